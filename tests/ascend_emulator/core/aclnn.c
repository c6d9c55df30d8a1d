/* The two phases of every aclnn call: arguments are recorded in the first, the task is queued in the second. */
#define _GNU_SOURCE
#include "emulator.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ARGUMENTS 80

typedef struct {
    char *shapes, *body;
    uint64_t prepared_ns, values[MAX_ARGUMENTS];
    int count;
    double modelled_us;
} Executor;

static void stack_of_thread(uint64_t *low, uint64_t *high) {
    static __thread uint64_t known_low, known_high;
    if (!known_high) {
        pthread_attr_t attributes;
        void *base;
        size_t size;
        pthread_getattr_np(pthread_self(), &attributes);
        pthread_attr_getstack(&attributes, &base, &size);
        pthread_attr_destroy(&attributes);
        known_low = (uint64_t)base;
        known_high = known_low + size;
    }
    *low = known_low;
    *high = known_high;
}

static int is_on_stack(uint64_t value) {
    uint64_t low, high;
    stack_of_thread(&low, &high);
    return value % 8 == 0 && value >= low && value + 8 <= high;
}

static int is_result_pointer(uint64_t value) { return is_on_stack(value) && *(const uint64_t *)value == 0; }

/* The last two arguments are the addresses of a zero size and a null executor in the caller's frame; the ATB plugin
 * does not clear its operation, which then still holds that of the call before. */
static int count_arguments(const char *name, const uint64_t *values, int limit) {
    int unclear = strncmp(name, "Atb", 3) == 0;
    for (int i = 0; i + 1 < limit; i++)
        if (values[i] != values[i + 1] && is_result_pointer(values[i]) &&
            (unclear ? is_on_stack(values[i + 1]) : is_result_pointer(values[i + 1])))
            return i;
    return -1;
}

/* Bandwidth 1.2 TB/s and 300 TFLOP/s stand for a device; no figure of it means anything. */
static double model_us(const char *name, const uint64_t *values, int count) {
    double memory_us = emu_objects_bytes(values, count) / 1.2e6;
    double compute_us = emu_objects_flops(name, values, count) / 3e8;
    return 1.5 + (memory_us > compute_us ? memory_us : compute_us);
}

static void add_floats(Text *body, const double *registers) {
    text_add(body, ",\"floats\":[");
    for (int i = 0; i < 4; i++) {
        float single;
        memcpy(&single, &registers[i], sizeof single);
        double shown = fabs(registers[i]) > 1e-30 && fabs(registers[i]) < 1e30 ? registers[i] : single;
        if (!isfinite(shown)) text_add(body, i ? ",null" : "null");
        else text_add(body, i ? ",%.9g" : "%.9g", shown);
    }
    text_add(body, "]");
}

int emu_workspace_size(const char *name, const uint64_t *integers, const double *floats, const uint64_t *stack) {
    uint64_t values[MAX_ARGUMENTS], low, high;
    stack_of_thread(&low, &high);
    int limit = 0;
    for (int i = 0; i < 6; i++) values[limit++] = integers[i];
    while (limit < MAX_ARGUMENTS && (uint64_t)(stack + 1) <= high) values[limit++] = *stack++;
    int count = count_arguments(name, values, limit);
    if (count < 0) {
        fprintf(stderr, "emulated CANN: cannot find the end of the arguments of %s\n", name);
        return 561000;
    }
    Text body = {0}, shapes = {0};
    text_add(&body, ",\"args\":[");
    for (int i = 0; i < count; i++) {
        if (i) text_add(&body, ",");
        emu_argument_json(&body, &shapes, values[i]);
    }
    text_add(&body, "]");
    add_floats(&body, floats);

    Fault fault = emu_fault(name, shapes.text ? shapes.text : "", emu_current_device(), 1);
    if (fault.synchronous_code) {
        text_free(&body);
        text_free(&shapes);
        return emu_fail(name, fault.synchronous_code);
    }
    Executor *executor = calloc(1, sizeof *executor);
    executor->body = body.text;
    executor->shapes = shapes.text ? shapes.text : strdup("");
    executor->prepared_ns = emu_now_ns();
    executor->count = count;
    memcpy(executor->values, values, sizeof values[0] * (size_t)count);
    executor->modelled_us = model_us(name, values, count);
    *(uint64_t *)values[count] = 0;
    *(Executor **)values[count + 1] = executor;
    return 0;
}

int emu_execute(void *workspace, uint64_t size, void *handle, void *stream, const char *name) {
    (void)workspace, (void)size;
    Executor *executor = handle;
    if (!executor) return emu_fail(name, 161001);
    Launch launch = {.kind = strncmp(name, "Atb", 3) ? "aclnn" : "atb",
                     .name = name,
                     .shapes = executor->shapes,
                     .body = executor->body,
                     .prepared_ns = executor->prepared_ns,
                     .modelled_us = executor->modelled_us};
    emu_apply(launch.name, executor->values, executor->count);
    int code = emu_launch(emu_stream(stream), &launch);
    free(executor->shapes);
    free(executor->body);
    free(executor);
    return code;
}
