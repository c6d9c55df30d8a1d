/* Results of the few calls whose outcome a program reads back: zero, fill and copy. */
#define _GNU_SOURCE
#include "emulator.h"
#include "objects.h"

#include <string.h>
#include <sys/mman.h>

/* Larger results are left alone: nobody reads them back, and each byte would cost real memory. */
#define LARGE_BYTES (64ULL << 20)

static const Tensor *tensor_at(const uint64_t *values, int count, int at) {
    if (at >= count || !emu_is_object(values[at])) return NULL;
    const Tensor *tensor = (const Tensor *)values[at];
    return tensor->object.kind == TENSOR && tensor->address && emu_dtype_bits(tensor->dtype) >= 8 ? tensor : NULL;
}

static uint64_t elements(const Tensor *tensor) {
    uint64_t total = 1;
    for (uint64_t i = 0; i < tensor->view_count; i++) total *= (uint64_t)tensor->view[i];
    return total;
}

/* Address of the nth element of the view, in row-major order. */
static char *element(const Tensor *tensor, uint64_t nth) {
    int64_t offset = tensor->offset;
    for (uint64_t i = tensor->view_count; i-- > 0;) {
        offset += (int64_t)(nth % (uint64_t)tensor->view[i]) * tensor->strides[i];
        nth /= (uint64_t)tensor->view[i];
    }
    return tensor->address + offset * (int64_t)(emu_dtype_bits(tensor->dtype) / 8);
}

static int is_contiguous(const Tensor *tensor) {
    int64_t expected = 1;
    for (uint64_t i = tensor->view_count; i-- > 0;) {
        if (tensor->view[i] != 1 && tensor->strides[i] != expected) return 0;
        expected *= tensor->view[i];
    }
    return 1;
}

static void store(int dtype, char *to, double value) {
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    switch (dtype) {
    case 0: memcpy(to, &single, 4); return;
    case 1: {
        _Float16 half = (_Float16)value;
        memcpy(to, &half, 2);
        return;
    }
    case 2: *(int8_t *)to = (int8_t)value; return;
    case 3: *(int32_t *)to = (int32_t)value; return;
    case 6: *(int16_t *)to = (int16_t)value; return;
    case 9: *(int64_t *)to = (int64_t)value; return;
    case 11: *(double *)to = value; return;
    case 27: {
        uint16_t rounded = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
        memcpy(to, &rounded, 2);
        return;
    }
    default: *(uint8_t *)to = (uint8_t)value; return;
    }
}

static int is_plain(int dtype) { return dtype <= 12 && dtype != 8 && dtype != 10 && dtype != 7 ? 1 : dtype == 27; }

static void copy(const Tensor *to, const Tensor *from) {
    uint64_t total = elements(to);
    size_t width = emu_dtype_bits(to->dtype) / 8;
    if (to->format == 29 || from->format == 29 || elements(from) != total || total * width > LARGE_BYTES) return;
    if (to->dtype == from->dtype && is_contiguous(to) && is_contiguous(from)) {
        memmove(element(to, 0), element(from, 0), total * width);
    } else if (to->dtype == from->dtype) {
        for (uint64_t i = 0; i < total; i++) memcpy(element(to, i), element(from, i), width);
    } else if (is_plain(to->dtype) && is_plain(from->dtype)) {
        for (uint64_t i = 0; i < total; i++)
            store(to->dtype, element(to, i), emu_scalar_value(from->dtype, element(from, i)));
    }
}

/* Whole pages of anonymous memory become zero without being touched: 40 GiB cost nothing. */
static void zero(char *at, size_t bytes) {
    char *first = (char *)(((uintptr_t)at + 4095) & ~(uintptr_t)4095);
    char *last = (char *)((uintptr_t)(at + bytes) & ~(uintptr_t)4095);
    if (last <= first) {
        memset(at, 0, bytes);
        return;
    }
    memset(at, 0, (size_t)(first - at));
    if (madvise(first, (size_t)(last - first), MADV_DONTNEED)) memset(first, 0, (size_t)(last - first));
    memset(last, 0, (size_t)(at + bytes - last));
}

static void fill(const Tensor *to, double value) {
    uint64_t total = elements(to);
    if (to->format == 29 || !total) return;
    size_t bytes = total * (emu_dtype_bits(to->dtype) / 8);
    if (value == 0 && is_contiguous(to)) {
        zero(element(to, 0), bytes);
        return;
    }
    if (bytes > LARGE_BYTES) return;
    for (uint64_t i = 0; i < total; i++) store(to->dtype, element(to, i), value);
}

/* Pads run from the last dimension, two each: torch_npu pads what it gathers to a multiple of 512 bytes. */
static void pad(const Tensor *to, const Tensor *from, const Array *pads, double value) {
    const int64_t *amounts = (const int64_t *)pads->values;
    Tensor inner = *to;
    if (to->view_count != from->view_count || pads->count > 2 * to->view_count) return;
    for (uint64_t i = 0; i < pads->count / 2; i++) {
        uint64_t axis = to->view_count - 1 - i;
        if (amounts[2 * i] < 0 || amounts[2 * i + 1] < 0) return;
        inner.offset += amounts[2 * i] * to->strides[axis];
        inner.view[axis] -= amounts[2 * i] + amounts[2 * i + 1];
    }
    fill(to, value);
    copy(&inner, from);
}

void emu_apply(const char *name, const uint64_t *values, int count) {
    const Tensor *first = tensor_at(values, count, 0);
    if (!first) return;
    if (!strcmp(name, "aclnnInplaceZero")) {
        fill(first, 0);
    } else if (!strcmp(name, "aclnnInplaceOne")) {
        fill(first, 1);
    } else if (!strcmp(name, "aclnnInplaceFillScalar") && count > 1 && emu_is_object(values[1])) {
        const Scalar *scalar = (const Scalar *)values[1];
        if (scalar->object.kind == SCALAR) fill(first, emu_scalar_value(scalar->dtype, scalar->value));
    } else if (!strcmp(name, "aclnnInplaceCopy")) {
        const Tensor *from = tensor_at(values, count, 1);
        if (from) copy(first, from);
    } else if (!strcmp(name, "aclnnConstantPadNd") && count > 3 && emu_is_object(values[1]) && emu_is_object(values[2])) {
        const Scalar *scalar = (const Scalar *)values[2];
        const Tensor *to = tensor_at(values, count, 3);
        if (to) pad(to, first, (const Array *)values[1], emu_scalar_value(scalar->dtype, scalar->value));
    } else if (!strcmp(name, "aclnnCast")) {
        const Tensor *to = tensor_at(values, count, 2);
        if (to) copy(to, first);
    }
}
