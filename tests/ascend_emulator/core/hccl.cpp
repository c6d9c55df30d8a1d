/* HCCL for small worlds: ranks exchange real data through files that appear whole under their final name. */
#include "emulator.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <map>
#include <string>
#include <sys/stat.h>
#include <third_party/hccl/inc/hccl/hccl.h>
#include <time.h>
#include <unistd.h>
#include <vector>

namespace {

struct Communicator {
    std::string name;
    uint32_t size = 1, rank = 0;
    uint64_t operation = 0;
    std::map<uint32_t, uint64_t> sent, received;
    bool failed = false;
};

size_t width_of(HcclDataType type) {
    switch (type) {
    case HCCL_DATA_TYPE_INT16: case HCCL_DATA_TYPE_FP16: case HCCL_DATA_TYPE_UINT16: case HCCL_DATA_TYPE_BFP16: return 2;
    case HCCL_DATA_TYPE_INT32: case HCCL_DATA_TYPE_FP32: case HCCL_DATA_TYPE_UINT32: return 4;
    case HCCL_DATA_TYPE_INT64: case HCCL_DATA_TYPE_UINT64: case HCCL_DATA_TYPE_FP64: return 8;
    case HCCL_DATA_TYPE_INT128: return 16;
    default: return 1;
    }
}

std::string directory() {
    const char *set = getenv("CANN_EMU_HCCL_DIR");
    std::string path = set && *set ? set : "/dev/shm/cann-emu-hccl-" + std::to_string(getuid());
    mkdir(path.c_str(), 0700);
    return path;
}

double timeout_s() {
    const char *set = getenv("CANN_EMU_HCCL_TIMEOUT_S");
    return set && *set ? atof(set) : 60;
}

bool write_file(const std::string &path, const void *data, size_t bytes) {
    std::string partial = path + ".partial" + std::to_string(getpid());
    int file = open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return false;
    const char *at = static_cast<const char *>(data);
    for (size_t done = 0; done < bytes;) {
        ssize_t written = write(file, at + done, bytes - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) break;
        done += static_cast<size_t>(written);
    }
    close(file);
    return rename(partial.c_str(), path.c_str()) == 0;
}

bool read_file(const std::string &path, std::vector<char> &data, double limit_s) {
    double waited = 0;
    for (int file; waited < limit_s; waited += 0.0002) {
        file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            struct stat facts;
            fstat(file, &facts);
            data.resize(static_cast<size_t>(facts.st_size));
            size_t done = 0;
            while (done < data.size()) {
                ssize_t got = read(file, data.data() + done, data.size() - done);
                if (got <= 0) break;
                done += static_cast<size_t>(got);
            }
            close(file);
            return done == data.size();
        }
        struct timespec rest = {0, 200000};
        nanosleep(&rest, nullptr);
    }
    return false;
}

double half_to_double(uint16_t bits, int exponent_bits) {
    int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    double value = static_cast<double>(bits & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits);
    value = exponent ? __builtin_ldexp(1 + value, exponent - bias) : __builtin_ldexp(value, 1 - bias);
    return bits & 0x8000 ? -value : value;
}

double load(HcclDataType type, const char *at) {
    switch (type) {
    case HCCL_DATA_TYPE_FP32: { float value; memcpy(&value, at, 4); return value; }
    case HCCL_DATA_TYPE_FP64: { double value; memcpy(&value, at, 8); return value; }
    case HCCL_DATA_TYPE_FP16: { uint16_t bits; memcpy(&bits, at, 2); return half_to_double(bits, 5); }
    case HCCL_DATA_TYPE_BFP16: { uint16_t bits; memcpy(&bits, at, 2); return half_to_double(bits, 8); }
    case HCCL_DATA_TYPE_INT8: return *reinterpret_cast<const int8_t *>(at);
    case HCCL_DATA_TYPE_INT16: { int16_t value; memcpy(&value, at, 2); return value; }
    case HCCL_DATA_TYPE_INT32: { int32_t value; memcpy(&value, at, 4); return value; }
    case HCCL_DATA_TYPE_INT64: { int64_t value; memcpy(&value, at, 8); return static_cast<double>(value); }
    default: return *reinterpret_cast<const uint8_t *>(at);
    }
}

void store(HcclDataType type, char *at, double value) {
    switch (type) {
    case HCCL_DATA_TYPE_FP32: { float out = static_cast<float>(value); memcpy(at, &out, 4); return; }
    case HCCL_DATA_TYPE_FP64: memcpy(at, &value, 8); return;
    case HCCL_DATA_TYPE_FP16: { _Float16 out = static_cast<_Float16>(value); memcpy(at, &out, 2); return; }
    case HCCL_DATA_TYPE_BFP16: {
        float single = static_cast<float>(value);
        uint32_t bits;
        memcpy(&bits, &single, 4);
        uint16_t out = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
        memcpy(at, &out, 2);
        return;
    }
    case HCCL_DATA_TYPE_INT8: *reinterpret_cast<int8_t *>(at) = static_cast<int8_t>(value); return;
    case HCCL_DATA_TYPE_INT16: { int16_t out = static_cast<int16_t>(value); memcpy(at, &out, 2); return; }
    case HCCL_DATA_TYPE_INT32: { int32_t out = static_cast<int32_t>(value); memcpy(at, &out, 4); return; }
    case HCCL_DATA_TYPE_INT64: { int64_t out = static_cast<int64_t>(value); memcpy(at, &out, 8); return; }
    default: *reinterpret_cast<uint8_t *>(at) = static_cast<uint8_t>(value); return;
    }
}

double reduced(HcclReduceOp operation, double left, double right) {
    switch (operation) {
    case HCCL_REDUCE_PROD: return left * right;
    case HCCL_REDUCE_MAX: return left > right ? left : right;
    case HCCL_REDUCE_MIN: return left < right ? left : right;
    default: return left + right;
    }
}

using Parts = std::vector<std::vector<char>>;

class Exchange {
public:
    Exchange(Communicator &world, const char *name, uint64_t count, HcclDataType type, void *stream)
        : world_(world), name_(name), count_(count), type_(type), stream_(stream) {
        number_ = ++world_.operation;
    }

    /* Every rank gives the parts it has for each rank (one for all, or one each) and takes one from each. */
    bool all(const Parts &given, Parts &taken) {
        for (uint32_t to = 0; to < given.size(); to++)
            if (!write_file(path(world_.rank, given.size() == 1 ? -1 : static_cast<int>(to)), given[to].data(),
                            given[to].size()))
                return false;
        taken.resize(world_.size);
        for (uint32_t from = 0; from < world_.size; from++) {
            bool shared = access(path(from, -1).c_str(), F_OK) == 0 || given.size() == 1;
            if (!read_file(path(from, shared ? -1 : static_cast<int>(world_.rank)), taken[from], timeout_s()))
                return false;
        }
        forget_older();
        return true;
    }

    HcclResult finish(bool exchanged, double bytes) {
        if (!exchanged) {
            world_.failed = true;
            emu_fail(name_, 507899);
            return HCCL_E_TIMEOUT;
        }
        Text body = {};
        text_add(&body, ",\"group\":");
        text_add_json_string(&body, world_.name.c_str());
        text_add(&body, ",\"rank\":%u,\"world_size\":%u,\"count\":%llu,\"dtype\":%d,\"bytes\":%.0f", world_.rank,
                 world_.size, static_cast<unsigned long long>(count_), static_cast<int>(type_), bytes);
        Launch launch = {};
        launch.kind = "hccl";
        launch.name = name_;
        launch.body = body.text;
        launch.prepared_ns = emu_now_ns();
        launch.modelled_us = 10 + bytes / 50e3;
        int code = emu_launch(emu_stream(stream_), &launch);
        text_free(&body);
        return code ? HCCL_E_RUNTIME : HCCL_SUCCESS;
    }

private:
    std::string path(uint32_t from, int to) const { return path_of(number_, from, to); }

    std::string path_of(uint64_t number, uint32_t from, int to) const {
        return directory() + "/" + world_.name + "." + std::to_string(number) + "." + std::to_string(from) +
               (to < 0 ? "" : "." + std::to_string(to));
    }

    /* When this one is complete every rank has begun it, so each has read all of the one before. */
    void forget_older() {
        if (number_ < 2) return;
        unlink(path_of(number_ - 1, world_.rank, -1).c_str());
        for (uint32_t to = 0; to < world_.size; to++)
            unlink(path_of(number_ - 1, world_.rank, static_cast<int>(to)).c_str());
    }

    Communicator &world_;
    const char *name_;
    uint64_t count_, number_;
    HcclDataType type_;
    void *stream_;
};

std::vector<char> bytes_at(const void *from, size_t bytes) {
    const char *at = static_cast<const char *>(from);
    return bytes ? std::vector<char>(at, at + bytes) : std::vector<char>();
}

void put(void *to, const std::vector<char> &from, size_t limit) {
    if (!from.empty()) memcpy(to, from.data(), from.size() < limit ? from.size() : limit);
}

void reduce_into(char *to, const Parts &parts, size_t offset, uint64_t count, HcclDataType type, HcclReduceOp operation) {
    size_t width = width_of(type);
    for (uint64_t i = 0; i < count; i++) {
        double value = load(type, parts[0].data() + offset + i * width);
        for (size_t rank = 1; rank < parts.size(); rank++)
            value = reduced(operation, value, load(type, parts[rank].data() + offset + i * width));
        store(type, to + i * width, value);
    }
}

HcclResult make(const char *name, uint32_t size, uint32_t rank, HcclComm *made) {
    auto *world = new Communicator();
    world->name = name;
    world->size = size;
    world->rank = rank;
    *made = world;
    Text line = {};
    text_add(&line, "{\"kind\":\"hcclinit\",\"name\":\"HcclCommInitRootInfo\",\"pid\":%d,\"device\":%d,\"host_ns\":%llu",
             getpid(), emu_physical_device(emu_current_device()), static_cast<unsigned long long>(emu_now_ns()));
    text_add(&line, ",\"group\":");
    text_add_json_string(&line, name);
    text_add(&line, ",\"rank\":%u,\"world_size\":%u}\n", rank, size);
    if (emu_log_enabled()) emu_log_line(&line);
    text_free(&line);
    return HCCL_SUCCESS;
}

Communicator &world_of(HcclComm handle) { return *static_cast<Communicator *>(handle); }

} // namespace

extern "C" {

HcclResult HcclGetRootInfo(HcclRootInfo *root) {
    memset(root, 0, sizeof *root);
    snprintf(root->internal, sizeof root->internal, "emulated-%d-%llu", getpid(),
             static_cast<unsigned long long>(emu_now_ns()));
    return HCCL_SUCCESS;
}

HcclResult HcclCommInitRootInfo(uint32_t size, const HcclRootInfo *root, uint32_t rank, HcclComm *made) {
    return make(root->internal, size, rank, made);
}

HcclResult HcclCommInitRootInfoConfig(uint32_t size, const HcclRootInfo *root, uint32_t rank,
                                      const HcclCommConfig *config, HcclComm *made) {
    (void)config;
    return make(root->internal, size, rank, made);
}

HcclResult HcclCommDestroy(HcclComm handle) {
    delete static_cast<Communicator *>(handle);
    return HCCL_SUCCESS;
}

HcclResult HcclGetCommName(HcclComm handle, char *name) {
    snprintf(name, COMM_NAME_MAX_LENGTH, "%s", world_of(handle).name.c_str());
    return HCCL_SUCCESS;
}

HcclResult HcclGetRankSize(HcclComm handle, uint32_t *size) {
    *size = world_of(handle).size;
    return HCCL_SUCCESS;
}

HcclResult HcclGetRankId(HcclComm handle, uint32_t *rank) {
    *rank = world_of(handle).rank;
    return HCCL_SUCCESS;
}

HcclResult HcclGetCommAsyncError(HcclComm handle, HcclResult *error) {
    *error = world_of(handle).failed ? HCCL_E_TIMEOUT : HCCL_SUCCESS;
    return HCCL_SUCCESS;
}

uint32_t HcclGetCommConfigCapability() { return 0; }

HcclResult HcclAllReduce(void *send, void *receive, uint64_t count, HcclDataType type, HcclReduceOp operation,
                         HcclComm handle, aclrtStream stream) {
    Exchange exchange(world_of(handle), "HcclAllReduce", count, type, stream);
    size_t bytes = count * width_of(type);
    Parts taken;
    bool done = exchange.all({bytes_at(send, bytes)}, taken);
    if (done) reduce_into(static_cast<char *>(receive), taken, 0, count, type, operation);
    return exchange.finish(done, static_cast<double>(bytes));
}

HcclResult HcclReduce(void *send, void *receive, uint64_t count, HcclDataType type, HcclReduceOp operation,
                      uint32_t root, HcclComm handle, aclrtStream stream) {
    Exchange exchange(world_of(handle), "HcclReduce", count, type, stream);
    size_t bytes = count * width_of(type);
    Parts taken;
    bool done = exchange.all({bytes_at(send, bytes)}, taken);
    if (done && world_of(handle).rank == root)
        reduce_into(static_cast<char *>(receive), taken, 0, count, type, operation);
    return exchange.finish(done, static_cast<double>(bytes));
}

HcclResult HcclReduceScatter(void *send, void *receive, uint64_t count, HcclDataType type, HcclReduceOp operation,
                             HcclComm handle, aclrtStream stream) {
    Communicator &world = world_of(handle);
    Exchange exchange(world, "HcclReduceScatter", count, type, stream);
    size_t bytes = count * width_of(type);
    Parts taken;
    bool done = exchange.all({bytes_at(send, bytes * world.size)}, taken);
    if (done) reduce_into(static_cast<char *>(receive), taken, bytes * world.rank, count, type, operation);
    return exchange.finish(done, static_cast<double>(bytes * world.size));
}

HcclResult HcclAllGather(void *send, void *receive, uint64_t count, HcclDataType type, HcclComm handle,
                         aclrtStream stream) {
    Communicator &world = world_of(handle);
    Exchange exchange(world, "HcclAllGather", count, type, stream);
    size_t bytes = count * width_of(type);
    Parts taken;
    bool done = exchange.all({bytes_at(send, bytes)}, taken);
    for (uint32_t rank = 0; done && rank < world.size; rank++)
        put(static_cast<char *>(receive) + rank * bytes, taken[rank], bytes);
    return exchange.finish(done, static_cast<double>(bytes * world.size));
}

HcclResult HcclBroadcast(void *buffer, uint64_t count, HcclDataType type, uint32_t root, HcclComm handle,
                         aclrtStream stream) {
    Communicator &world = world_of(handle);
    Exchange exchange(world, "HcclBroadcast", count, type, stream);
    size_t bytes = count * width_of(type);
    Parts taken;
    bool done = exchange.all({bytes_at(buffer, world.rank == root ? bytes : 0)}, taken);
    if (done) put(buffer, taken[root], bytes);
    return exchange.finish(done, static_cast<double>(bytes));
}

HcclResult HcclScatter(void *send, void *receive, uint64_t count, HcclDataType type, uint32_t root, HcclComm handle,
                       aclrtStream stream) {
    Communicator &world = world_of(handle);
    Exchange exchange(world, "HcclScatter", count, type, stream);
    size_t bytes = count * width_of(type);
    Parts taken;
    bool done = exchange.all({bytes_at(send, world.rank == root ? bytes * world.size : 0)}, taken);
    if (done) memcpy(receive, taken[root].data() + bytes * world.rank, bytes);
    return exchange.finish(done, static_cast<double>(bytes));
}

HcclResult HcclAlltoAllV(const void *send, const void *send_counts, const void *send_offsets, HcclDataType send_type,
                         const void *receive, const void *receive_counts, const void *receive_offsets,
                         HcclDataType receive_type, HcclComm handle, aclrtStream stream) {
    Communicator &world = world_of(handle);
    auto *counts = static_cast<const uint64_t *>(send_counts), *offsets = static_cast<const uint64_t *>(send_offsets);
    auto *room = static_cast<const uint64_t *>(receive_counts), *places = static_cast<const uint64_t *>(receive_offsets);
    size_t width = width_of(send_type), out_width = width_of(receive_type);
    uint64_t total = 0;
    Parts given(world.size), taken;
    for (uint32_t rank = 0; rank < world.size; rank++) {
        given[rank] = bytes_at(static_cast<const char *>(send) + offsets[rank] * width, counts[rank] * width);
        total += counts[rank];
    }
    Exchange exchange(world, "HcclAlltoAllV", total, send_type, stream);
    bool done = exchange.all(given, taken);
    for (uint32_t rank = 0; done && rank < world.size; rank++)
        put(static_cast<char *>(const_cast<void *>(receive)) + places[rank] * out_width, taken[rank], room[rank] * out_width);
    return exchange.finish(done, static_cast<double>(total * width));
}

HcclResult HcclAlltoAll(const void *send, uint64_t count, HcclDataType send_type, const void *receive,
                        uint64_t receive_count, HcclDataType receive_type, HcclComm handle, aclrtStream stream) {
    (void)receive_count;
    Communicator &world = world_of(handle);
    size_t bytes = count * width_of(send_type);
    Parts given(world.size), taken;
    for (uint32_t rank = 0; rank < world.size; rank++)
        given[rank] = bytes_at(static_cast<const char *>(send) + rank * bytes, bytes);
    Exchange exchange(world, "HcclAlltoAll", count, send_type, stream);
    bool done = exchange.all(given, taken);
    for (uint32_t rank = 0; done && rank < world.size; rank++)
        put(static_cast<char *>(const_cast<void *>(receive)) + rank * bytes, taken[rank], bytes);
    (void)receive_type;
    return exchange.finish(done, static_cast<double>(bytes * world.size));
}

HcclResult HcclBarrier(HcclComm handle, aclrtStream stream) {
    Exchange exchange(world_of(handle), "HcclBarrier", 0, HCCL_DATA_TYPE_INT8, stream);
    Parts taken;
    return exchange.finish(exchange.all({{}}, taken), 0);
}

static std::string message_path(const Communicator &world, uint32_t from, uint32_t to, uint64_t number) {
    return directory() + "/" + world.name + ".p2p." + std::to_string(from) + "." + std::to_string(to) + "." +
           std::to_string(number);
}

HcclResult HcclSend(void *buffer, uint64_t count, HcclDataType type, uint32_t to, HcclComm handle, aclrtStream stream) {
    Communicator &world = world_of(handle);
    size_t bytes = count * width_of(type);
    Exchange exchange(world, "HcclSend", count, type, stream);
    world.operation--; /* point-to-point messages have numbers of their own */
    bool done = write_file(message_path(world, world.rank, to, ++world.sent[to]), buffer, bytes);
    return exchange.finish(done, static_cast<double>(bytes));
}

HcclResult HcclRecv(void *buffer, uint64_t count, HcclDataType type, uint32_t from, HcclComm handle, aclrtStream stream) {
    Communicator &world = world_of(handle);
    size_t bytes = count * width_of(type);
    Exchange exchange(world, "HcclReceive", count, type, stream);
    world.operation--;
    std::string path = message_path(world, from, world.rank, ++world.received[from]);
    std::vector<char> data;
    bool done = read_file(path, data, timeout_s());
    if (done) put(buffer, data, bytes);
    unlink(path.c_str());
    return exchange.finish(done, static_cast<double>(bytes));
}
}
