/* Device memory of the emulated CANN: host memory without reserved pages, limited to the device's size. */
#define _GNU_SOURCE
#include "emulator.h"

#include <acl/acl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct Block {
    char *address;
    size_t bytes;
    int device;
    struct Block *next;
} Block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Block *blocks;
static size_t used[EMU_MAX_DEVICES];

static size_t pages(size_t bytes) { return (bytes + 4095) & ~(size_t)4095; }

static void *map(size_t bytes) {
    void *address =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return address == MAP_FAILED ? NULL : address;
}

aclError aclrtMalloc(void **address, size_t size, aclrtMemMallocPolicy policy) {
    (void)policy;
    int device = emu_current_device(), lost = emu_device_error();
    Fault fault = emu_fault("aclrtMalloc", NULL, device, 0);
    *address = NULL;
    if (lost) return emu_fail("aclrtMalloc", lost);
    if (fault.allocation_code) return emu_fail("aclrtMalloc", fault.allocation_code);
    size_t bytes = pages(size ? size : 1);
    pthread_mutex_lock(&lock);
    if (used[device] + bytes <= emu_config()->hbm_bytes && (*address = map(bytes)) != NULL) {
        Block *block = malloc(sizeof *block);
        *block = (Block){*address, bytes, device, blocks};
        blocks = block;
        used[device] += bytes;
    }
    pthread_mutex_unlock(&lock);
    return *address ? 0 : emu_fail("aclrtMalloc", EMU_FAULT_OUT_OF_MEMORY);
}

aclError aclrtMallocAlign32(void **address, size_t size, aclrtMemMallocPolicy policy) {
    return aclrtMalloc(address, size, policy);
}

aclError aclrtFree(void *address) {
    pthread_mutex_lock(&lock);
    for (Block **at = &blocks; *at; at = &(*at)->next) {
        Block *block = *at;
        if (block->address != address) continue;
        munmap(block->address, block->bytes);
        used[block->device] -= block->bytes;
        *at = block->next;
        free(block);
        break;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

aclError aclrtMallocHost(void **address, size_t size) {
    *address = aligned_alloc(4096, pages(size ? size : 1));
    return *address ? 0 : EMU_FAULT_OUT_OF_MEMORY;
}

aclError aclrtMallocHostWithCfg(void **address, uint64_t size, aclrtMallocConfig *config) {
    (void)config;
    return aclrtMallocHost(address, size);
}

aclError aclrtFreeHost(void *address) {
    free(address);
    return 0;
}

aclError aclrtGetMemInfo(aclrtMemAttr kind, size_t *free_bytes, size_t *total) {
    (void)kind;
    pthread_mutex_lock(&lock);
    *total = emu_config()->hbm_bytes;
    *free_bytes = *total - used[emu_current_device()];
    pthread_mutex_unlock(&lock);
    return 0;
}

aclError aclrtPointerGetAttributes(const void *address, aclrtPtrAttributes *attributes) {
    memset(attributes, 0, sizeof *attributes);
    attributes->location.type = ACL_MEM_LOCATION_TYPE_UNREGISTERED;
    pthread_mutex_lock(&lock);
    for (Block *block = blocks; block; block = block->next) {
        const char *at = address;
        if (at < block->address || at >= block->address + block->bytes) continue;
        attributes->location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
        attributes->location.id = (uint32_t)block->device;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static const char *direction(aclrtMemcpyKind kind) {
    static const char *const names[] = {"h2h", "h2d", "d2h", "d2d"};
    return (unsigned)kind < 4 ? names[kind] : "d2d";
}

static double copy_us(size_t bytes) { return 1.0 + (double)bytes / 50e3; }

/* Copies happen when they are queued: the emulated device has no work of its own in flight. */
static int copy(void *to, size_t room, const void *from, size_t bytes, aclrtMemcpyKind kind, Stream *stream) {
    if (bytes > room) return emu_fail("aclrtMemcpy", EMU_FAULT_BAD_ARGUMENT);
    if (emu_device_error()) return emu_fail("aclrtMemcpy", emu_device_error());
    if (bytes) memmove(to, from, bytes);
    Text body = {0};
    text_add(&body, ",\"direction\":\"%s\",\"bytes\":%zu", direction(kind), bytes);
    Launch launch = {.kind = "memcpy", .name = "memcpy", .body = body.text, .modelled_us = copy_us(bytes)};
    int code = emu_launch(stream, &launch);
    text_free(&body);
    return code;
}

aclError aclrtMemcpy(void *to, size_t room, const void *from, size_t bytes, aclrtMemcpyKind kind) {
    return copy(to, room, from, bytes, kind, emu_stream(NULL));
}

aclError aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t bytes, aclrtMemcpyKind kind,
                          aclrtStream stream) {
    return copy(to, room, from, bytes, kind, emu_stream(stream));
}

aclError aclrtMemcpyAsyncWithCondition(void *to, size_t room, const void *from, size_t bytes,
                                       aclrtMemcpyKind kind, aclrtStream stream) {
    return copy(to, room, from, bytes, kind, emu_stream(stream));
}

aclError aclrtMemset(void *address, size_t room, int32_t value, size_t bytes) {
    if (bytes > room) return emu_fail("aclrtMemset", EMU_FAULT_BAD_ARGUMENT);
    memset(address, value, bytes);
    return emu_fail("aclrtMemset", emu_device_error());
}

aclError aclrtMemsetAsync(void *address, size_t room, int32_t value, size_t bytes, aclrtStream stream) {
    (void)stream;
    return aclrtMemset(address, room, value, bytes);
}

/* --- virtual memory: an address range is mapped whole when it is reserved --- */

aclError aclrtReserveMemAddress(void **address, size_t size, size_t alignment, void *expected, uint64_t flags) {
    (void)alignment, (void)expected, (void)flags;
    *address = map(pages(size));
    return *address ? 0 : EMU_FAULT_OUT_OF_MEMORY;
}

aclError aclrtMallocPhysical(aclrtDrvMemHandle *handle, size_t size, const aclrtPhysicalMemProp *property,
                             uint64_t flags) {
    (void)property, (void)flags;
    int device = emu_current_device();
    pthread_mutex_lock(&lock);
    int fits = used[device] + size <= emu_config()->hbm_bytes;
    if (fits) used[device] += size;
    pthread_mutex_unlock(&lock);
    *handle = NULL;
    if (!fits) return emu_fail("aclrtMallocPhysical", EMU_FAULT_OUT_OF_MEMORY);
    Block *block = calloc(1, sizeof *block);
    block->bytes = size;
    block->device = device;
    *handle = (aclrtDrvMemHandle)block;
    return 0;
}

aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
    Block *block = (Block *)handle;
    pthread_mutex_lock(&lock);
    used[block->device] -= block->bytes;
    pthread_mutex_unlock(&lock);
    free(block);
    return 0;
}
