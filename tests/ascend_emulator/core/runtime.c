/* Devices, contexts, streams, events, the clock and sticky errors of the emulated CANN. */
#define _GNU_SOURCE
#include "emulator.h"

#include <acl/acl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The mark of the emulator (decision 16): a program may look for it, and for nothing else. */
__attribute__((visibility("default"))) int perfcollect_emulated_cann = 1;

struct Stream {
    int id, device, capturing;
    uint64_t end_ns;   /* host epoch: when the work queued so far is done */
    double busy_ns;    /* work queued so far, without the gaps between tasks */
    double hang_until; /* host epoch in seconds */
    Stream *next;
};

typedef struct {
    uint64_t end_ns;
    double busy_ns, hang_until;
    int recorded;
} Event;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Stream *streams;
static Stream default_streams[EMU_MAX_DEVICES];
static int sticky[EMU_MAX_DEVICES], next_stream_id, capturing_streams;
static uint64_t sequence;
static __thread int current_device = -1, pending_error;
static __thread char recent_error[512];

int emu_current_device(void) { return current_device < 0 ? 0 : current_device; }
int emu_device_error(void) { return sticky[emu_current_device()]; }
int emu_stream_id(Stream *stream) { return stream->id; }
uint64_t emu_stream_end_ns(Stream *stream) { return stream->end_ns; }

static const char *meaning(int code) {
    switch (code) {
    case 507014: return "The aicore execution times out.";
    case 507015: return "The aicore execution is abnormal.";
    case 507018: return "The aicpu execution is abnormal.";
    case 507035: return "The vector core execution is abnormal.";
    case 507046: return "Stream synchronization timed out.";
    case 507899: return "An internal error occurs in the Driver module.";
    case 507901: return "The HDC session is disconnected.";
    case 207001: return "Failed to allocate memory.";
    case 161002: return "A parameter is invalid.";
    case 561002: return "An internal error occurred in tiling.";
    default: return "The emulated CANN was told to fail.";
    }
}

int emu_fail(const char *what, int code) {
    if (!code) return 0;
    char date[64];
    time_t now = time(NULL);
    struct tm parts;
    localtime_r(&now, &parts);
    strftime(date, sizeof date, "%Y-%m-%d-%H:%M:%S", &parts);
    snprintf(recent_error, sizeof recent_error, "EZ9999: Inner Error!\nEZ9999: [PID: %d] %s %s: error code is %d. %s",
             getpid(), date, what, code, meaning(code));
    pending_error = code;
    return code;
}

const char *aclGetRecentErrMsg(void) {
    static __thread char answer[512];
    memcpy(answer, recent_error, sizeof answer);
    recent_error[0] = 0;
    return answer[0] ? answer : NULL;
}

aclError aclrtGetLastError(aclrtLastErrLevel level) {
    (void)level;
    int code = pending_error;
    pending_error = 0;
    return code;
}

aclError aclrtPeekAtLastError(aclrtLastErrLevel level) {
    (void)level;
    return pending_error;
}

Stream *emu_stream(void *handle) {
    if (handle) return handle;
    Stream *stream = &default_streams[emu_current_device()];
    stream->device = emu_current_device();
    return stream;
}

static void sleep_s(double seconds) {
    struct timespec rest = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    while (nanosleep(&rest, &rest)) continue;
}

/* Waits as the host would for the device. Returns 0, or the timeout error when limit_s passed first. */
static int wait_until(uint64_t end_ns, double hang_until, double limit_s) {
    double now = (double)emu_now_ns() / 1e9;
    double target = emu_config()->virtual_clock ? now : (double)end_ns / 1e9;
    if (hang_until > target) target = hang_until;
    if (target <= now) return 0;
    if (limit_s >= 0 && target - now > limit_s) {
        sleep_s(limit_s);
        return 507046;
    }
    sleep_s(target - now);
    return 0;
}

int emu_launch(Stream *stream, const Launch *launch) {
    int device = stream->device;
    Fault fault = emu_fault(launch->name, launch->shapes, device, 0);
    if (fault.exit_code >= 0) _exit(fault.exit_code);
    if (fault.signal_number) {
        signal(fault.signal_number, SIG_DFL);
        raise(fault.signal_number);
    }
    if (fault.launch_hang_s > 0) sleep_s(fault.launch_hang_s);
    if (fault.queued_code) return emu_fail(launch->name, fault.queued_code);
    if (fault.drop) return 0;

    double us = emu_duration_us(launch->name, launch->shapes, device, launch->modelled_us);
    uint64_t duration_ns = (uint64_t)llround(us * 1000.0), now = emu_now_ns();
    pthread_mutex_lock(&lock);
    uint64_t start = stream->end_ns > now ? stream->end_ns : now;
    int captured = stream->capturing;
    if (!captured) {
        stream->end_ns = start + duration_ns;
        stream->busy_ns += (double)duration_ns;
        if (fault.hang_s > 0) stream->hang_until = (double)now / 1e9 + fault.hang_s;
        if (fault.sticky_code) sticky[device] = fault.sticky_code;
    }
    uint64_t number = ++sequence;
    pthread_mutex_unlock(&lock);
    if (!emu_log_enabled()) return 0;
    Text line = {0};
    text_add(&line, "{\"kind\":\"%s\",\"name\":", launch->kind);
    text_add_json_string(&line, launch->name);
    text_add(&line, ",\"seq\":%llu,\"pid\":%d,\"tid\":%ld,\"device\":%d,\"logical_device\":%d,\"stream\":%d",
             (unsigned long long)number, getpid(), (long)syscall(SYS_gettid), emu_physical_device(device),
             device, stream->id);
    text_add(&line, ",\"start_ns\":%llu,\"duration_ns\":%llu,\"prepared_ns\":%llu,\"launched_ns\":%llu",
             (unsigned long long)start, (unsigned long long)duration_ns,
             (unsigned long long)launch->prepared_ns, (unsigned long long)now);
    if (captured) text_add(&line, ",\"captured\":true");
    if (launch->shapes) {
        text_add(&line, ",\"shapes\":");
        text_add_json_string(&line, launch->shapes);
    }
    text_add(&line, "%s}\n", launch->body ? launch->body : "");
    emu_log_line(&line);
    text_free(&line);
    return 0;
}

/* --- devices and contexts: a context is its device's number plus one --- */

aclError aclInit(const char *path) {
    (void)path;
    emu_config();
    return 0;
}

const char *aclrtGetSocName(void) { return emu_config()->soc; }

aclError aclrtGetDeviceCount(uint32_t *count) {
    *count = (uint32_t)emu_config()->visible_count;
    return 0;
}

aclError aclrtSetDevice(int32_t device) {
    if (emu_physical_device(device) < 0) return emu_fail("aclrtSetDevice", EMU_FAULT_UNKNOWN_DEVICE);
    current_device = device;
    return 0;
}

aclError aclrtGetDevice(int32_t *device) {
    if (current_device < 0) return 107002; /* no context in this thread yet */
    *device = current_device;
    return 0;
}

aclError aclrtGetLogicDevIdByUserDevId(const int32_t user, int32_t *const logic) {
    *logic = emu_physical_device(user);
    return 0;
}

aclError aclrtSetCurrentContext(aclrtContext context) {
    if (!context) return emu_fail("aclrtSetCurrentContext", EMU_FAULT_BAD_ARGUMENT);
    current_device = (int)((intptr_t)context - 1);
    return 0;
}

aclError aclrtGetCurrentContext(aclrtContext *context) {
    if (current_device < 0) return 107002;
    *context = (aclrtContext)(intptr_t)(current_device + 1);
    return 0;
}

aclError aclrtGetPrimaryCtxState(int32_t device, uint32_t *flags, int32_t *active) {
    if (flags) *flags = 0;
    *active = device == current_device;
    return 0;
}

/* --- streams --- */

aclError aclrtCreateStreamWithConfig(aclrtStream *handle, uint32_t priority, uint32_t flag) {
    (void)priority, (void)flag;
    Stream *stream = calloc(1, sizeof *stream);
    pthread_mutex_lock(&lock);
    stream->id = ++next_stream_id;
    stream->device = emu_current_device();
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&lock);
    *handle = stream;
    return 0;
}

aclError aclrtCreateStream(aclrtStream *handle) { return aclrtCreateStreamWithConfig(handle, 0, 0); }

aclError aclrtStreamGetId(aclrtStream handle, int32_t *id) {
    *id = emu_stream(handle)->id;
    return 0;
}

static int synchronize_stream(Stream *stream, double limit_s) {
    int late = wait_until(stream->end_ns, stream->hang_until, limit_s);
    if (late) return emu_fail("aclrtSynchronizeStream", late);
    return emu_fail("aclrtSynchronizeStream", sticky[stream->device]);
}

aclError aclrtSynchronizeStream(aclrtStream stream) { return synchronize_stream(emu_stream(stream), -1); }

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t milliseconds) {
    return synchronize_stream(emu_stream(stream), milliseconds < 0 ? -1 : milliseconds / 1e3);
}

aclError aclrtSynchronizeDeviceWithTimeout(int32_t milliseconds) {
    int device = emu_current_device();
    double limit_s = milliseconds < 0 ? -1 : milliseconds / 1e3, hang_until = default_streams[device].hang_until;
    uint64_t end_ns = default_streams[device].end_ns;
    pthread_mutex_lock(&lock);
    for (Stream *stream = streams; stream; stream = stream->next) {
        if (stream->device != device) continue;
        if (stream->end_ns > end_ns) end_ns = stream->end_ns;
        if (stream->hang_until > hang_until) hang_until = stream->hang_until;
    }
    pthread_mutex_unlock(&lock);
    int late = wait_until(end_ns, hang_until, limit_s);
    if (late) return emu_fail("aclrtSynchronizeDevice", late);
    return emu_fail("aclrtSynchronizeDevice", sticky[device]);
}

aclError aclrtSynchronizeDevice(void) { return aclrtSynchronizeDeviceWithTimeout(-1); }

static int is_done(uint64_t end_ns, double hang_until) {
    uint64_t now = emu_now_ns();
    return (emu_config()->virtual_clock || end_ns <= now) && hang_until * 1e9 <= (double)now;
}

aclError aclrtStreamQuery(aclrtStream handle, aclrtStreamStatus *status) {
    Stream *stream = emu_stream(handle);
    *status = is_done(stream->end_ns, stream->hang_until) ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    return sticky[stream->device];
}

/* --- events --- */

aclError aclrtCreateEventExWithFlag(aclrtEvent *event, uint32_t flag) {
    (void)flag;
    *event = calloc(1, sizeof(Event));
    return 0;
}

aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag) { return aclrtCreateEventExWithFlag(event, flag); }
aclError aclrtCreateEvent(aclrtEvent *event) { return aclrtCreateEventExWithFlag(event, 0); }

aclError aclrtDestroyEvent(aclrtEvent event) {
    free(event);
    return 0;
}

aclError aclrtRecordEvent(aclrtEvent handle, aclrtStream stream_handle) {
    Stream *stream = emu_stream(stream_handle);
    if (sticky[stream->device]) return emu_fail("aclrtRecordEvent", sticky[stream->device]);
    Event *event = handle;
    pthread_mutex_lock(&lock);
    uint64_t now = emu_now_ns();
    event->end_ns = stream->end_ns > now ? stream->end_ns : now;
    event->busy_ns = stream->busy_ns;
    event->hang_until = stream->hang_until;
    event->recorded = 1;
    pthread_mutex_unlock(&lock);
    return 0;
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
    (void)event, (void)stream;
    return 0;
}

aclError aclrtStreamWaitEvent(aclrtStream stream_handle, aclrtEvent handle) {
    Stream *stream = emu_stream(stream_handle);
    Event *event = handle;
    pthread_mutex_lock(&lock);
    if (event->end_ns > stream->end_ns) stream->end_ns = event->end_ns;
    if (event->busy_ns > stream->busy_ns) stream->busy_ns = event->busy_ns;
    if (event->hang_until > stream->hang_until) stream->hang_until = event->hang_until;
    pthread_mutex_unlock(&lock);
    return 0;
}

aclError aclrtQueryEventStatus(aclrtEvent handle, aclrtEventRecordedStatus *status) {
    Event *event = handle;
    int done = !event->recorded || is_done(event->end_ns, event->hang_until);
    *status = done ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    return 0;
}

aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus *status) {
    (void)event;
    *status = ACL_EVENT_WAIT_STATUS_COMPLETE;
    return 0;
}

aclError aclrtSynchronizeEvent(aclrtEvent handle) {
    Event *event = handle;
    wait_until(event->end_ns, event->hang_until, -1);
    return emu_fail("aclrtSynchronizeEvent", emu_device_error());
}

/* Time of the work between two events: deterministic, whatever the host did in between. */
aclError aclrtEventElapsedTime(float *ms, aclrtEvent start, aclrtEvent end) {
    *ms = (float)((((Event *)end)->busy_ns - ((Event *)start)->busy_ns) / 1e6);
    return 0;
}

aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t *microseconds) {
    *microseconds = ((Event *)event)->end_ns / 1000;
    return 0;
}

/* --- graph capture: captured launches are logged as such, a replay is one line --- */

aclError aclmdlRICaptureBegin(aclrtStream stream, aclmdlRICaptureMode mode) {
    (void)mode;
    emu_stream(stream)->capturing = 1;
    __atomic_add_fetch(&capturing_streams, 1, __ATOMIC_SEQ_CST);
    return 0;
}

aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus *status, aclmdlRI *model) {
    int active = emu_stream(stream)->capturing;
    if (status) *status = active ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE : ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    if (model) *model = active ? (aclmdlRI)(intptr_t)1 : NULL;
    return 0;
}

aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI *model) {
    emu_stream(stream)->capturing = 0;
    __atomic_sub_fetch(&capturing_streams, 1, __ATOMIC_SEQ_CST);
    *model = (aclmdlRI)(intptr_t)1;
    return 0;
}

aclError aclmdlRIExecuteAsync(aclmdlRI model, aclrtStream stream) {
    (void)model;
    Launch launch = {.kind = "replay", .name = "aclmdlRIExecuteAsync", .modelled_us = 1};
    return emu_launch(emu_stream(stream), &launch);
}

/* --- ranges of mstx: with a stream they also have a device time, ordered with the work queued there --- */

void emu_mark(const char *what, const char *domain, const char *message, uint64_t id, void *handle) {
    if (!emu_log_enabled()) return;
    uint64_t now = emu_now_ns();
    Text line = {0};
    text_add(&line, "{\"kind\":\"mstx\",\"name\":\"%s\",\"id\":%llu,\"pid\":%d,\"tid\":%ld,\"host_ns\":%llu", what,
             (unsigned long long)id, getpid(), (long)syscall(SYS_gettid), (unsigned long long)now);
    if (handle) {
        Stream *stream = handle;
        text_add(&line, ",\"device\":%d,\"stream\":%d,\"device_ns\":%llu", emu_physical_device(stream->device),
                 stream->id, (unsigned long long)(stream->end_ns > now ? stream->end_ns : now));
    }
    if (domain) {
        text_add(&line, ",\"domain\":");
        text_add_json_string(&line, domain);
    }
    text_add(&line, ",\"message\":");
    text_add_json_string(&line, message);
    text_add(&line, "}\n");
    emu_log_line(&line);
    text_free(&line);
}
