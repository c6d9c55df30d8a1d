/* The older single-operator calls (aclop): torch_npu still casts formats through them. */
#define _GNU_SOURCE
#include "emulator.h"

#include <acl/acl.h>
#include <acl/acl_op_compiler.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "objects.h"

struct aclTensorDesc {
    int dtype, format;
    size_t count;
    int64_t dims[MAX_DIMS];
};

struct aclDataBuffer {
    void *address;
    size_t bytes;
};

struct aclopAttr {
    Text json;
};

aclTensorDesc *aclCreateTensorDesc(aclDataType dtype, int count, const int64_t *dims, aclFormat format) {
    aclTensorDesc *description = calloc(1, sizeof *description);
    description->dtype = dtype;
    description->format = format;
    aclSetTensorShape(description, count, dims);
    return description;
}

void aclDestroyTensorDesc(const aclTensorDesc *description) { free((void *)description); }
aclDataType aclGetTensorDescType(const aclTensorDesc *description) { return description->dtype; }
aclFormat aclGetTensorDescFormat(const aclTensorDesc *description) { return description->format; }
size_t aclGetTensorDescNumDims(const aclTensorDesc *description) { return description->count; }

aclError aclGetTensorDescDimV2(const aclTensorDesc *description, size_t index, int64_t *dim) {
    if (index >= description->count) return EMU_FAULT_BAD_ARGUMENT;
    *dim = description->dims[index];
    return 0;
}

/* The format and shape of the storage: these, not the logical ones, are what a kernel sees. */
aclError aclSetTensorFormat(aclTensorDesc *description, aclFormat format) {
    description->format = format;
    return 0;
}

aclError aclSetTensorShape(aclTensorDesc *description, int count, const int64_t *dims) {
    description->count = count < 0 ? 0 : count > MAX_DIMS ? MAX_DIMS : (size_t)count;
    if (dims) memcpy(description->dims, dims, description->count * sizeof(int64_t));
    return 0;
}

aclDataBuffer *aclCreateDataBuffer(void *address, size_t bytes) {
    aclDataBuffer *buffer = calloc(1, sizeof *buffer);
    buffer->address = address;
    buffer->bytes = bytes;
    return buffer;
}

aclError aclDestroyDataBuffer(const aclDataBuffer *buffer) {
    free((void *)buffer);
    return 0;
}

aclopAttr *aclopCreateAttr(void) { return calloc(1, sizeof(aclopAttr)); }

void aclopDestroyAttr(const aclopAttr *attributes) {
    if (!attributes) return;
    text_free((Text *)&attributes->json);
    free((void *)attributes);
}

static void add_name(aclopAttr *attributes, const char *name) {
    if (attributes->json.length) text_add(&attributes->json, ",");
    text_add_json_string(&attributes->json, name);
    text_add(&attributes->json, ":");
}

aclError aclopSetAttrBool(aclopAttr *attributes, const char *name, uint8_t value) {
    add_name(attributes, name);
    text_add(&attributes->json, value ? "true" : "false");
    return 0;
}

aclError aclopSetAttrInt(aclopAttr *attributes, const char *name, int64_t value) {
    add_name(attributes, name);
    text_add(&attributes->json, "%lld", (long long)value);
    return 0;
}

aclError aclopSetAttrFloat(aclopAttr *attributes, const char *name, float value) {
    add_name(attributes, name);
    text_add(&attributes->json, "%.9g", value);
    return 0;
}

aclError aclopSetAttrString(aclopAttr *attributes, const char *name, const char *value) {
    add_name(attributes, name);
    text_add_json_string(&attributes->json, value);
    return 0;
}

aclError aclopSetAttrDataType(aclopAttr *attributes, const char *name, aclDataType value) {
    return aclopSetAttrInt(attributes, name, value);
}

aclError aclopSetAttrListInt(aclopAttr *attributes, const char *name, int count, const int64_t *values) {
    add_name(attributes, name);
    text_add(&attributes->json, "[");
    text_add_dims(&attributes->json, values, (size_t)count);
    text_add(&attributes->json, "]");
    return 0;
}

static void add_descriptions(Text *out, Text *shapes, const char *name, int count,
                             const aclTensorDesc *const *descriptions) {
    text_add(out, ",\"%s\":[", name);
    for (int i = 0; i < count; i++) {
        const aclTensorDesc *one = descriptions[i];
        if (i) text_add(out, ",");
        emu_tensor_json(out, one->dtype, one->format, one->dims, one->count, one->dims, one->count, NULL, 0);
        if (!shapes) continue;
        if (shapes->length) text_add(shapes, ";");
        text_add_dims(shapes, one->dims, one->count);
    }
    text_add(out, "]");
}

aclError aclopCompileAndExecute(const char *type, int input_count, const aclTensorDesc *const inputs[],
                                const aclDataBuffer *const input_buffers[], int output_count,
                                const aclTensorDesc *const outputs[], aclDataBuffer *const output_buffers[],
                                const aclopAttr *attributes, aclopEngineType engine, aclopCompileType compile,
                                const char *path, aclrtStream stream) {
    (void)engine, (void)compile, (void)path;
    Text body = {0}, shapes = {0};
    uint64_t prepared_ns = emu_now_ns();
    add_descriptions(&body, &shapes, "args", input_count, inputs);
    add_descriptions(&body, NULL, "outputs", output_count, outputs);
    text_add(&body, ",\"attributes\":{%s}", attributes && attributes->json.text ? attributes->json.text : "");
    double bytes = 0;
    for (int i = 0; i < input_count; i++) bytes += (double)input_buffers[i]->bytes;
    for (int i = 0; i < output_count; i++) bytes += (double)output_buffers[i]->bytes;
    Fault fault = emu_fault(type, shapes.text ? shapes.text : "", emu_current_device(), 1);
    int code = fault.synchronous_code ? emu_fail(type, fault.synchronous_code) : 0;
    if (!code) {
        Launch launch = {.kind = "aclop", .name = type, .shapes = shapes.text ? shapes.text : "", .body = body.text,
                         .prepared_ns = prepared_ns, .modelled_us = 1.5 + bytes / 1.2e6};
        code = emu_launch(emu_stream(stream), &launch);
    }
    text_free(&body);
    text_free(&shapes);
    return code;
}

aclError aclopCompileAndExecuteV2(const char *type, int input_count, aclTensorDesc *inputs[],
                                  aclDataBuffer *input_buffers[], int output_count, aclTensorDesc *outputs[],
                                  aclDataBuffer *output_buffers[], aclopAttr *attributes, aclopEngineType engine,
                                  aclopCompileType compile, const char *path, aclrtStream stream) {
    return aclopCompileAndExecute(type, input_count, (const aclTensorDesc *const *)inputs,
                                  (const aclDataBuffer *const *)input_buffers, output_count,
                                  (const aclTensorDesc *const *)outputs, (aclDataBuffer *const *)output_buffers,
                                  attributes, engine, compile, path, stream);
}
