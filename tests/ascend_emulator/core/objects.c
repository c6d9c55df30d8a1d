/* Tensors, scalars, arrays and lists that aclnn calls take, and their form in the log. */
#define _GNU_SOURCE
#include "emulator.h"

#include <acl/acl.h>
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "objects.h"

#define ARENA_BYTES (1ULL << 34)
#define SIZE_CLASSES 40

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *arena, *arena_top;
static Object *free_lists[SIZE_CLASSES];

static int size_class(size_t bytes) {
    int class = 6;
    while ((1ULL << class) < bytes) class++;
    return class;
}

/* All objects lie in one address range, so that an argument can be told to be one. */
static Object *allocate(ObjectKind kind, size_t bytes) {
    int class = size_class(bytes);
    pthread_mutex_lock(&lock);
    if (!arena) {
        arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        arena_top = arena;
    }
    Object *object = free_lists[class];
    if (object) {
        free_lists[class] = object->next_free;
    } else {
        object = (Object *)arena_top;
        arena_top += 1ULL << class;
    }
    pthread_mutex_unlock(&lock);
    memset(object, 0, bytes);
    object->kind = kind;
    object->size_class = class;
    return object;
}

static int release(const void *handle) {
    Object *object = (Object *)handle;
    if (!object || !emu_is_object((uint64_t)object) || object->kind == NO_OBJECT) return 0;
    pthread_mutex_lock(&lock);
    object->kind = NO_OBJECT;
    object->next_free = free_lists[object->size_class];
    free_lists[object->size_class] = object;
    pthread_mutex_unlock(&lock);
    return 0;
}

int emu_is_object(uint64_t value) {
    return arena && value >= (uint64_t)arena && value < (uint64_t)arena_top && value % 64 == 0;
}

#define EXPORT __attribute__((visibility("default")))

EXPORT void *aclCreateTensor(const int64_t *view, uint64_t view_count, int dtype, const int64_t *strides,
                             int64_t offset, int format, const int64_t *storage, uint64_t storage_count,
                             void *address) {
    Tensor *tensor = (Tensor *)allocate(TENSOR, sizeof(Tensor));
    tensor->view_count = view_count < MAX_DIMS ? view_count : MAX_DIMS;
    tensor->storage_count = storage_count < MAX_DIMS ? storage_count : MAX_DIMS;
    if (view) memcpy(tensor->view, view, tensor->view_count * sizeof(int64_t));
    if (strides) memcpy(tensor->strides, strides, tensor->view_count * sizeof(int64_t));
    if (storage) memcpy(tensor->storage, storage, tensor->storage_count * sizeof(int64_t));
    tensor->has_strides = strides != NULL;
    tensor->dtype = dtype;
    tensor->format = format;
    tensor->offset = offset;
    tensor->address = address;
    return tensor;
}

EXPORT void *aclCreateScalar(const void *value, int dtype) {
    Scalar *scalar = (Scalar *)allocate(SCALAR, sizeof(Scalar));
    size_t bytes = emu_dtype_bits(dtype) / 8;
    scalar->dtype = dtype;
    if (value) memcpy(scalar->value, value, bytes < 16 ? bytes : 16);
    return scalar;
}

static void *array(ObjectKind kind, const void *values, uint64_t count, size_t width) {
    Array *made = (Array *)allocate(kind, sizeof(Array) + count * width);
    made->count = count;
    if (values && count) memcpy(made->values, values, count * width);
    return made;
}

EXPORT void *aclCreateIntArray(const int64_t *values, uint64_t count) { return array(INTS, values, count, 8); }
EXPORT void *aclCreateFloatArray(const float *values, uint64_t count) { return array(FLOATS, values, count, 4); }
EXPORT void *aclCreateBoolArray(const uint8_t *values, uint64_t count) { return array(BOOLS, values, count, 1); }
EXPORT void *aclCreateTensorList(void *const *values, uint64_t count) { return array(TENSORS, values, count, 8); }
EXPORT void *aclCreateScalarList(void *const *values, uint64_t count) { return array(SCALARS, values, count, 8); }

EXPORT int aclDestroyTensor(const void *object) { return release(object); }
EXPORT int aclDestroyScalar(const void *object) { return release(object); }
EXPORT int aclDestroyIntArray(const void *object) { return release(object); }
EXPORT int aclDestroyFloatArray(const void *object) { return release(object); }
EXPORT int aclDestroyBoolArray(const void *object) { return release(object); }

static int release_list(const void *object) {
    const Array *list = object;
    if (!list || !emu_is_object((uint64_t)list)) return 0;
    for (uint64_t i = 0; i < list->count; i++) release(((void *const *)list->values)[i]);
    return release(object);
}

EXPORT int aclDestroyTensorList(const void *object) { return release_list(object); }
EXPORT int aclDestroyScalarList(const void *object) { return release_list(object); }

EXPORT int aclGetViewShape(const void *object, int64_t **dims, uint64_t *count) {
    const Tensor *tensor = object;
    int64_t *copy = malloc(sizeof(int64_t) * (tensor->view_count + 1)); /* the caller deletes it */
    memcpy(copy, tensor->view, tensor->view_count * sizeof(int64_t));
    *dims = copy;
    *count = tensor->view_count;
    return 0;
}

size_t emu_dtype_bits(int dtype) {
    switch (dtype) {
    case 2: case 4: case 12: case 34: case 35: case 36: case 37: return 8;
    case 1: case 6: case 7: case 27: return 16;
    case 0: case 3: case 8: case 33: return 32;
    case 9: case 10: case 11: case 16: return 64;
    case 17: return 128;
    case 29: case 40: case 41: return 4;
    default: return 8;
    }
}

static void add_dims(Text *out, const char *name, const int64_t *dims, size_t count) {
    text_add(out, "\"%s\":[", name);
    text_add_dims(out, dims, count);
    text_add(out, "]");
}

void emu_tensor_json(Text *out, int dtype, int format, const int64_t *view, size_t view_count,
                     const int64_t *storage, size_t storage_count, const int64_t *strides, int64_t offset) {
    text_add(out, "{");
    add_dims(out, "view", view, view_count);
    text_add(out, ",");
    add_dims(out, "storage", storage, storage_count);
    int64_t expected = 1;
    int contiguous = 1;
    for (size_t i = view_count; strides && i-- > 0;) {
        if (view[i] != 1 && strides[i] != expected) contiguous = 0;
        expected *= view[i];
    }
    if (!contiguous) {
        text_add(out, ",");
        add_dims(out, "strides", strides, view_count);
    }
    if (offset) text_add(out, ",\"offset\":%lld", (long long)offset);
    text_add(out, ",\"dtype\":%d,\"format\":%d}", dtype, format);
}

static void tensor_json(Text *out, Text *shapes, const Tensor *tensor) {
    emu_tensor_json(out, tensor->dtype, tensor->format, tensor->view, tensor->view_count, tensor->storage,
                    tensor->storage_count, tensor->has_strides ? tensor->strides : NULL, tensor->offset);
    if (shapes->length) text_add(shapes, ";");
    text_add_dims(shapes, tensor->view, tensor->view_count);
}

static double half_value(uint16_t bits, int exponent_bits) {
    int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    double value = (double)(bits & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits);
    value = exponent ? (1 + value) * __builtin_ldexp(1, exponent - bias) : value * __builtin_ldexp(1, 1 - bias);
    return bits & 0x8000 ? -value : value;
}

double emu_scalar_value(int dtype, const void *at) {
    switch (dtype) {
    case 0: return *(const float *)at;
    case 1: return half_value(*(const uint16_t *)at, 5);
    case 2: return *(const int8_t *)at;
    case 3: return *(const int32_t *)at;
    case 6: return *(const int16_t *)at;
    case 9: return (double)*(const int64_t *)at;
    case 11: return *(const double *)at;
    case 27: return half_value(*(const uint16_t *)at, 8);
    default: return *(const uint8_t *)at;
    }
}

static void scalar_json(Text *out, const Scalar *scalar) {
    text_add(out, "{\"scalar\":%.9g,\"dtype\":%d}", emu_scalar_value(scalar->dtype, scalar->value), scalar->dtype);
}

static void object_json(Text *out, Text *shapes, const Object *object) {
    const Array *list = (const Array *)object;
    switch (object->kind) {
    case TENSOR: tensor_json(out, shapes, (const Tensor *)object); return;
    case SCALAR: scalar_json(out, (const Scalar *)object); return;
    case INTS:
        text_add(out, "{");
        add_dims(out, "ints", (const int64_t *)list->values, list->count);
        text_add(out, "}");
        return;
    case NO_OBJECT: text_add(out, "null"); return;
    default: break;
    }
    static const char *const names[] = {[FLOATS] = "floats", [BOOLS] = "bools", [TENSORS] = "tensors", [SCALARS] = "scalars"};
    text_add(out, "{\"%s\":[", names[object->kind]);
    for (uint64_t i = 0; i < list->count; i++) {
        if (i) text_add(out, ",");
        if (object->kind == FLOATS) text_add(out, "%.9g", ((const float *)list->values)[i]);
        else if (object->kind == BOOLS) text_add(out, "%d", ((const uint8_t *)list->values)[i]);
        else if (((void *const *)list->values)[i]) object_json(out, shapes, ((Object *const *)list->values)[i]);
        else text_add(out, "null");
    }
    text_add(out, "]}");
}

/* Reads memory that may not be there. */
static int readable_text(uint64_t address, char *out, size_t room) {
    struct iovec local = {out, room - 1};
    size_t to_page_end = 4096 - address % 4096;
    struct iovec remote = {(void *)address, to_page_end < room - 1 ? to_page_end : room - 1};
    ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (got <= 0) return 0;
    out[got] = 0;
    for (const unsigned char *at = (const unsigned char *)out; *at; at++)
        if (!isprint(*at)) return 0;
    return strlen(out) < (size_t)got;
}

void emu_argument_json(Text *out, Text *shapes, uint64_t value) {
    char string[512];
    if (emu_is_object(value)) {
        object_json(out, shapes, (const Object *)value);
    } else if (value > 0x100000 && value >> 47 == 0 && readable_text(value, string, sizeof string)) {
        text_add_json_string(out, string);
    } else {
        int64_t number = (int64_t)value;
        uint32_t high = (uint32_t)(value >> 32);
        /* Only the low half of a 32-bit argument is defined. */
        if (high != 0 && high != 0xffffffff && high != 0x7fffffff && high != 0x80000000) number = (int32_t)value;
        text_add(out, "%lld", (long long)number);
    }
}

static double tensor_bytes(const Tensor *tensor) {
    double elements = 1;
    const int64_t *dims = tensor->format == 29 ? tensor->storage : tensor->view;
    uint64_t count = tensor->format == 29 ? tensor->storage_count : tensor->view_count;
    for (uint64_t i = 0; i < count; i++) elements *= (double)dims[i];
    return elements * (double)emu_dtype_bits(tensor->dtype) / 8;
}

double emu_objects_bytes(const uint64_t *values, int count) {
    double bytes = 0;
    for (int i = 0; i < count; i++) {
        if (!emu_is_object(values[i])) continue;
        const Object *object = (const Object *)values[i];
        if (object->kind == TENSOR) bytes += tensor_bytes((const Tensor *)object);
        if (object->kind != TENSORS) continue;
        const Array *list = (const Array *)object;
        for (uint64_t k = 0; k < list->count; k++)
            if (((void *const *)list->values)[k]) bytes += tensor_bytes(((Tensor *const *)list->values)[k]);
    }
    return bytes;
}

/* Multiply-accumulates of matrix products: all of the first operand against the last dimension of the second. */
double emu_objects_flops(const char *name, const uint64_t *values, int count) {
    if (!strstr(name, "Mm") && !strcasestr(name, "matmul")) return 0;
    const Tensor *first = NULL;
    for (int i = 0; i < count; i++) {
        const Tensor *tensor = (const Tensor *)values[i];
        if (!emu_is_object(values[i]) || tensor->object.kind != TENSOR || !tensor->view_count) continue;
        if (!first) {
            first = tensor;
            continue;
        }
        double flops = 2.0 * (double)tensor->view[tensor->view_count - 1];
        for (uint64_t k = 0; k < first->view_count; k++) flops *= (double)first->view[k];
        return flops;
    }
    return 0;
}
