/* Configuration, rules (faults, durations) and text buffers of the emulated CANN. */
#define _GNU_SOURCE
#include "emulator.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_RULES 512

typedef struct {
    char *name, *shapes, *phase, *value;
    int device;               /* physical device, -1 for all */
    uint64_t first, last;     /* which of its matches, counted from 1 */
    uint64_t *matches;
} Rule;

static Config config;
static Rule faults[MAX_RULES], durations[MAX_RULES];
static int fault_count, duration_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void text_add(Text *text, const char *format, ...) {
    for (;;) {
        va_list arguments;
        va_start(arguments, format);
        size_t room = text->capacity - text->length;
        int wanted = vsnprintf(text->text ? text->text + text->length : NULL, room, format, arguments);
        va_end(arguments);
        if ((size_t)wanted < room) {
            text->length += (size_t)wanted;
            return;
        }
        text->capacity = (text->capacity + (size_t)wanted + 256) * 2;
        text->text = realloc(text->text, text->capacity);
    }
}

void text_add_json_string(Text *text, const char *value) {
    text_add(text, "\"");
    for (const unsigned char *at = (const unsigned char *)value; *at; at++) {
        if (*at == '"' || *at == '\\') text_add(text, "\\%c", *at);
        else if (*at < 0x20) text_add(text, "\\u%04x", *at);
        else text_add(text, "%c", *at);
    }
    text_add(text, "\"");
}

void text_add_dims(Text *text, const int64_t *dims, size_t count) {
    for (size_t i = 0; i < count; i++) text_add(text, i ? ",%lld" : "%lld", (long long)dims[i]);
}

void text_free(Text *text) {
    free(text->text);
    memset(text, 0, sizeof *text);
}

static char *copy_range(const char *from, const char *to) { return strndup(from, (size_t)(to - from)); }

/* [DEVICE!]NAME[[SHAPES]][@FIRST[-[LAST]]][:PHASE]=VALUE */
static int parse_rule(const char *word, Rule *rule) {
    const char *equals = strrchr(word, '=');
    if (!equals) return 0;
    memset(rule, 0, sizeof *rule);
    rule->device = -1;
    rule->first = 1;
    rule->last = UINT64_MAX;
    const char *bang = strchr(word, '!');
    if (bang && bang < equals) {
        rule->device = atoi(word);
        word = bang + 1;
    }
    size_t name_length = strcspn(word, "[@:=");
    rule->name = copy_range(word, word + name_length);
    const char *at = word + name_length;
    if (*at == '[') {
        const char *close = strchr(at, ']');
        if (!close) return 0;
        rule->shapes = copy_range(at + 1, close);
        at = close + 1;
    }
    if (*at == '@') {
        char *end;
        rule->first = rule->last = strtoull(at + 1, &end, 10);
        if (*end == '-') {
            char *after;
            rule->last = strtoull(end + 1, &after, 10);
            if (after == end + 1) rule->last = UINT64_MAX;
            end = after;
        }
        at = end;
    }
    rule->phase = *at == ':' ? copy_range(at + 1, equals) : strdup("");
    rule->value = strdup(equals + 1);
    return 1;
}

static int parse_rules(const char *variable, Rule *rules, uint64_t *counters) {
    const char *text = getenv(variable);
    int count = 0;
    if (!text) return 0;
    char *copy = strdup(text), *state = NULL;
    for (char *word = strtok_r(copy, " \t\r\n", &state); word && count < MAX_RULES;
         word = strtok_r(NULL, " \t\r\n", &state)) {
        if (!parse_rule(word, &rules[count])) {
            fprintf(stderr, "emulated CANN: %s: cannot read the rule '%s'\n", variable, word);
            continue;
        }
        rules[count].matches = &counters[count];
        count++;
    }
    free(copy);
    return count;
}

/* Counters of fault rules: in a file they survive the worker that the fault ends. */
static uint64_t *fault_counters(void) {
    const char *path = getenv("CANN_EMU_FAULT_STATE");
    size_t bytes = MAX_RULES * sizeof(uint64_t);
    if (path && *path) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0) {
            void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            close(fd);
            if (shared != MAP_FAILED) return shared;
        }
        fprintf(stderr, "emulated CANN: CANN_EMU_FAULT_STATE=%s cannot be used\n", path);
    }
    return calloc(MAX_RULES, sizeof(uint64_t));
}

static const char *text_of(const char *variable, const char *fallback) {
    const char *value = getenv(variable);
    return value && *value ? value : fallback;
}

static void load(void) {
    config.device_count = atoi(text_of("CANN_EMU_DEVICES", "1"));
    if (config.device_count < 0) config.device_count = 0;
    if (config.device_count > EMU_MAX_DEVICES) config.device_count = EMU_MAX_DEVICES;
    config.soc = strdup(text_of("CANN_EMU_SOC", "Ascend910_9382"));
    config.cann_version = strdup(text_of("CANN_EMU_CANN_VERSION", "8.5.0"));
    config.hbm_bytes = (size_t)strtoull(text_of("CANN_EMU_HBM_MB", "65536"), NULL, 10) << 20;
    config.jitter = atof(text_of("CANN_EMU_JITTER", "0"));
    config.virtual_clock = !strcmp(text_of("CANN_EMU_CLOCK", "real"), "virtual");
    config.trace_stubs = *text_of("CANN_EMU_TRACE_STUBS", "") != 0;
    const char *visible = getenv("ASCEND_RT_VISIBLE_DEVICES");
    if (visible) {
        for (const char *at = visible; *at;) {
            char *end;
            long device = strtol(at, &end, 10);
            if (end == at || device < 0 || device >= config.device_count) break;
            config.visible[config.visible_count++] = (int)device;
            at = *end == ',' ? end + 1 : end;
            if (config.visible_count == EMU_MAX_DEVICES) break;
        }
    } else {
        for (int i = 0; i < config.device_count; i++) config.visible[config.visible_count++] = i;
    }
    fault_count = parse_rules("CANN_EMU_FAULTS", faults, fault_counters());
    duration_count = parse_rules("CANN_EMU_DURATIONS", durations, calloc(MAX_RULES, sizeof(uint64_t)));
}

const Config *emu_config(void) {
    pthread_once(&once, load);
    return &config;
}

int emu_physical_device(int device) {
    const Config *now = emu_config();
    return device >= 0 && device < now->visible_count ? now->visible[device] : -1;
}

static int rule_matches(Rule *rule, const char *name, const char *shapes, int device) {
    if (rule->device >= 0 && rule->device != emu_physical_device(device)) return 0;
    if (fnmatch(rule->name, name, 0)) return 0;
    if (rule->shapes) {
        size_t length = strlen(rule->shapes);
        if (!shapes || strncmp(shapes, rule->shapes, length)) return 0;
        if (shapes[length] && shapes[length] != ';') return 0;
    }
    return 1;
}

static int rule_applies(Rule *rule, const char *name, const char *shapes, int device) {
    if (!rule_matches(rule, name, shapes, device)) return 0;
    uint64_t match = __atomic_add_fetch(rule->matches, 1, __ATOMIC_SEQ_CST);
    return match >= rule->first && match <= rule->last;
}

Fault emu_fault(const char *name, const char *shapes, int device, int synchronous) {
    Fault fault = {.exit_code = -1};
    emu_config();
    for (int i = 0; i < fault_count; i++) {
        Rule *rule = &faults[i];
        if (synchronous != !strcmp(rule->phase, "ws")) continue;
        if (!rule_applies(rule, name, shapes, device)) continue;
        if (!strcmp(rule->phase, "ws")) fault.synchronous_code = atoi(rule->value);
        else if (!strcmp(rule->phase, "launch")) fault.queued_code = atoi(rule->value);
        else if (!strcmp(rule->phase, "sync")) fault.sticky_code = atoi(rule->value);
        else if (!strcmp(rule->phase, "hang")) fault.hang_s = atof(rule->value);
        else if (!strcmp(rule->phase, "lhang")) fault.launch_hang_s = atof(rule->value);
        else if (!strcmp(rule->phase, "exit")) fault.exit_code = atoi(rule->value);
        else if (!strcmp(rule->phase, "sig")) fault.signal_number = atoi(rule->value);
        else if (!strcmp(rule->phase, "drop")) fault.drop = atoi(rule->value);
        else if (!strcmp(rule->phase, "ret")) fault.allocation_code = atoi(rule->value);
        else fprintf(stderr, "emulated CANN: unknown phase '%s' of a fault\n", rule->phase);
    }
    return fault;
}

/* A number in [-1, 1] that depends on its arguments only. */
static double noise(const char *name, const char *shapes, uint64_t nth) {
    uint64_t hash = 1469598103934665603ULL ^ nth;
    for (const char *at = name; *at; at++) hash = (hash ^ (unsigned char)*at) * 1099511628211ULL;
    for (const char *at = shapes ? shapes : ""; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 1099511628211ULL;
    hash ^= hash >> 29;
    hash *= 0xbf58476d1ce4e5b9ULL;
    hash ^= hash >> 32;
    return (double)(hash % 2000001) / 1e6 - 1.0;
}

double emu_duration_us(const char *name, const char *shapes, int device, double modelled_us) {
    static uint64_t launches;
    emu_config();
    for (int i = 0; i < duration_count; i++) {
        if (rule_applies(&durations[i], name, shapes, device)) return atof(durations[i].value);
    }
    if (config.jitter == 0) return modelled_us;
    uint64_t nth = __atomic_add_fetch(&launches, 1, __ATOMIC_SEQ_CST);
    return modelled_us * (1 + config.jitter * noise(name, shapes, nth));
}

/* A plain stub answers 0 and fills nothing in: seen here, it may need an answer of its own. */
void emu_stub_called(const char *name) {
    if (emu_config()->trace_stubs) fprintf(stderr, "emulated CANN: stub %s\n", name);
}
