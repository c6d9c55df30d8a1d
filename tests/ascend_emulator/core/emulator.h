/* What the files of the emulated CANN share: text buffers, rules, the device model and the launch log. */
#ifndef PERFCOLLECT_EMULATOR_H
#define PERFCOLLECT_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EMU_MAX_DEVICES 64
#define EMU_FAULT_UNKNOWN_DEVICE 107001
#define EMU_FAULT_BAD_ARGUMENT 107000
#define EMU_FAULT_OUT_OF_MEMORY 207001

/* A text that grows; JSON records are built in it. */
typedef struct {
    char *text;
    size_t length, capacity;
} Text;

void text_add(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_add_json_string(Text *text, const char *value);
void text_add_dims(Text *text, const int64_t *dims, size_t count);
void text_free(Text *text);

/* Configuration, read from the environment when the library loads. */
typedef struct {
    int device_count, visible[EMU_MAX_DEVICES], visible_count;
    const char *soc, *cann_version;
    size_t hbm_bytes;
    double jitter;
    int virtual_clock, trace_stubs;
} Config;

const Config *emu_config(void);
int emu_physical_device(int device);

/* Rules: what a test fixed for a launch of this name and these view shapes. */
typedef struct {
    int synchronous_code; /* GetWorkspaceSize fails with it */
    int queued_code;      /* the launch fails with it */
    int sticky_code;      /* the device is lost with it */
    double hang_s;        /* the device does not finish */
    double launch_hang_s; /* the launch call does not return */
    int exit_code, signal_number, drop;
    int allocation_code;
} Fault;

Fault emu_fault(const char *name, const char *shapes, int device, int synchronous);
double emu_duration_us(const char *name, const char *shapes, int device, double modelled_us);

/* The launch log. */
uint64_t emu_now_ns(void);
void emu_log_line(const Text *line);
int emu_log_enabled(void);

/* Ranges and marks of mstx; a null stream leaves the host's time only. */
void emu_mark(const char *what, const char *domain, const char *message, uint64_t id, void *stream);

/* Streams and the clock. */
typedef struct Stream Stream;
typedef struct {
    const char *kind, *name, *shapes; /* shapes: view shapes of the tensors, "2,3;3,4" */
    const char *body;                 /* further JSON members, each with a leading comma */
    uint64_t prepared_ns;             /* when GetWorkspaceSize ran, 0 if there was none */
    double modelled_us;
} Launch;

int emu_launch(Stream *stream, const Launch *launch); /* an aclError */
int emu_device_error(void);                           /* sticky error of the current device */
int emu_current_device(void);
Stream *emu_stream(void *handle);
int emu_stream_id(Stream *stream);
uint64_t emu_stream_end_ns(Stream *stream);
int emu_fail(const char *what, int code); /* remembers the text for aclGetRecentErrMsg */

/* Objects that aclnn calls take as arguments. */
void emu_argument_json(Text *out, Text *shapes, uint64_t value);
int emu_is_object(uint64_t value);
double emu_objects_bytes(const uint64_t *values, int count);
double emu_objects_flops(const char *name, const uint64_t *values, int count);
void emu_tensor_json(Text *out, int dtype, int format, const int64_t *view, size_t view_count,
                     const int64_t *storage, size_t storage_count, const int64_t *strides, int64_t offset);
size_t emu_dtype_bits(int dtype);

/* Entry points of the generated trampolines. */
int emu_workspace_size(const char *name, const uint64_t *integers, const double *floats, const uint64_t *stack);
int emu_execute(void *workspace, uint64_t size, void *executor, void *stream, const char *name);
void emu_stub_called(const char *name);

/* Effects of the few APIs whose result matters (zero, fill, copy). */
void emu_apply(const char *name, const uint64_t *values, int count);

#ifdef __cplusplus
}
#endif
#endif
