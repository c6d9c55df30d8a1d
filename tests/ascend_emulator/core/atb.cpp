/* libatb.so: ATB operations that torch_npu makes as objects; their layout is read from what it passes. */
#include "emulator.h"

#include <cstring>
#include <string>

namespace atb {

using Status = int32_t;

/* Operands as the caller lays them out: a count, then one record each. */
struct Tensor {
    int32_t dtype, format;
    int64_t dims[8];
    uint64_t dim_count;
    void *device_data, *host_data;
    uint64_t bytes;
};

struct Operands {
    uint64_t capacity, count;
    Tensor tensors[64];
};

class Context {
public:
    virtual ~Context() = default;
    virtual Status SetExecuteStream(void *stream) {
        stream_ = stream;
        return 0;
    }
    virtual void *GetExecuteStream() const { return stream_; }
    virtual Status SetAsyncTilingCopyStatus(bool) { return 0; }
    virtual bool GetAsyncTilingCopyStatus() const { return false; }
    virtual Status Unused1() { return 0; }
    virtual Status Unused2() { return 0; }
    virtual Status Unused3() { return 0; }
    virtual Status Unused4() { return 0; }

private:
    void *stream_ = nullptr;
};

class Operation {
public:
    explicit Operation(const char *name) : name_(name) {}
    virtual ~Operation() = default;
    virtual std::string GetName() const { return name_; }
    virtual Status InferShape(const void *, void *) const { return 0; }
    virtual uint32_t GetInputNum() const { return 0; }
    virtual uint32_t GetOutputNum() const { return 0; }

    virtual Status Setup(const Operands &operands, uint64_t &workspace, Context *) {
        workspace = 0;
        Text shapes = {};
        describe(operands, nullptr, &shapes);
        Fault fault = emu_fault(name_.c_str(), shapes.text ? shapes.text : "", emu_current_device(), 1);
        text_free(&shapes);
        return fault.synchronous_code ? emu_fail(name_.c_str(), fault.synchronous_code) : 0;
    }

    virtual Status Execute(const Operands &operands, uint8_t *, uint64_t, Context *context) {
        Text body = {}, shapes = {};
        text_add(&body, ",\"args\":[");
        double bytes = describe(operands, &body, &shapes);
        text_add(&body, "]");
        Launch launch = {};
        launch.kind = "atb";
        launch.name = name_.c_str();
        launch.shapes = shapes.text ? shapes.text : "";
        launch.body = body.text;
        launch.prepared_ns = emu_now_ns();
        launch.modelled_us = 1.5 + bytes / 1.2e6;
        int code = emu_launch(emu_stream(context ? context->GetExecuteStream() : nullptr), &launch);
        text_free(&body);
        text_free(&shapes);
        return code;
    }

private:
    static double describe(const Operands &operands, Text *body, Text *shapes) {
        double bytes = 0;
        for (uint64_t i = 0; i < operands.count && i < 64; i++) {
            const Tensor &one = operands.tensors[i];
            if (body && i) text_add(body, ",");
            if (body)
                emu_tensor_json(body, one.dtype, one.format, one.dims, one.dim_count, one.dims, one.dim_count,
                                nullptr, 0);
            if (shapes->length) text_add(shapes, ";");
            text_add_dims(shapes, one.dims, one.dim_count);
            bytes += static_cast<double>(one.bytes);
        }
        return bytes;
    }

    std::string name_;
};

Status CreateContext(Context **context) {
    *context = new Context();
    return 0;
}

Status DestroyContext(Context *context) {
    delete context;
    return 0;
}

/* Kept: torch_npu's cache of operations calls this while its thread ends, when the object may be gone. */
Status DestroyOperation(Operation *) { return 0; }

class Utils {
public:
    static uint64_t GetTensorSize(const Tensor &tensor);
};

uint64_t Utils::GetTensorSize(const Tensor &tensor) {
    uint64_t elements = 1;
    for (uint64_t i = 0; i < tensor.dim_count; i++) elements *= static_cast<uint64_t>(tensor.dims[i]);
    return elements * emu_dtype_bits(tensor.dtype) / 8;
}

namespace infer {
struct ElewiseParam;
struct GroupTopkParam;
struct LinearParam;
struct PagedAttentionParam;
struct ReshapeAndCacheParam;
struct RmsNormParam;
struct RopeParam;
struct SelfAttentionParam;
} // namespace infer

template <typename Parameters> const char *name_of();

template <typename Parameters> Status CreateOperation(const Parameters &, Operation **operation) {
    *operation = new Operation(name_of<Parameters>());
    return 0;
}

#define OPERATION(name)                                                                                                \
    template <> const char *name_of<infer::name##Param>() { return #name "Operation"; }                                \
    template Status CreateOperation(const infer::name##Param &, Operation **);

OPERATION(Elewise)
OPERATION(GroupTopk)
OPERATION(Linear)
OPERATION(PagedAttention)
OPERATION(ReshapeAndCache)
OPERATION(RmsNorm)
OPERATION(Rope)
OPERATION(SelfAttention)

} // namespace atb

/* The second phase of ATB's C functions has a context where aclnn's has a stream. */
extern "C" int emu_execute_atb(void *workspace, uint64_t size, void *executor, void *context, const char *name) {
    void *stream = context ? static_cast<atb::Context *>(context)->GetExecuteStream() : nullptr;
    return emu_execute(workspace, size, executor, stream, name);
}
