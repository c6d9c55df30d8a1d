/* Layout of the objects that aclnn calls take. */
#ifndef PERFCOLLECT_EMULATOR_OBJECTS_H
#define PERFCOLLECT_EMULATOR_OBJECTS_H

#include <stdint.h>

#define MAX_DIMS 16

typedef enum { NO_OBJECT, TENSOR, SCALAR, INTS, FLOATS, BOOLS, TENSORS, SCALARS } ObjectKind;

typedef struct Object {
    ObjectKind kind;
    int size_class;
    struct Object *next_free;
} Object;

typedef struct {
    Object object;
    int dtype, format, has_strides;
    int64_t offset;
    uint64_t view_count, storage_count;
    int64_t view[MAX_DIMS], strides[MAX_DIMS], storage[MAX_DIMS];
    char *address;
} Tensor;

typedef struct {
    Object object;
    int dtype;
    char value[16];
} Scalar;

typedef struct {
    Object object;
    uint64_t count;
    char values[];
} Array;

double emu_scalar_value(int dtype, const void *at);

#endif
