/* libms_tools_ext.so: the ranges and marks a program puts between its launches. */
#include "emulator.h"

#include <stdlib.h>
#include <string.h>

static uint64_t last_id;

typedef struct {
    uint64_t id;
    void *stream;
} Open;

/* Ranges end in any order: what is needed at the end is kept by id. */
#define OPEN_RANGES 4096
static Open open_ranges[OPEN_RANGES];

static uint64_t start(const char *domain, const char *message, void *stream) {
    uint64_t id = __atomic_add_fetch(&last_id, 1, __ATOMIC_SEQ_CST);
    open_ranges[id % OPEN_RANGES] = (Open){id, stream};
    emu_mark("range_start", domain, message ? message : "", id, stream);
    return id;
}

static void end(const char *domain, uint64_t id) {
    Open *open = &open_ranges[id % OPEN_RANGES];
    emu_mark("range_end", domain, "", id, open->id == id ? open->stream : NULL);
}

uint64_t mstxRangeStartA(const char *message, void *stream) { return start(NULL, message, stream); }
void mstxRangeEnd(uint64_t id) { end(NULL, id); }
void mstxMarkA(const char *message, void *stream) { emu_mark("mark", NULL, message ? message : "", 0, stream); }

/* A domain is the text of its name. */
void *mstxDomainCreateA(const char *name) { return strdup(name); }
void mstxDomainDestroy(void *domain) { free(domain); }
uint64_t mstxDomainRangeStartA(void *domain, const char *message, void *stream) { return start(domain, message, stream); }
void mstxDomainRangeEnd(void *domain, uint64_t id) { end(domain, id); }
void mstxDomainMarkA(void *domain, const char *message, void *stream) {
    emu_mark("mark", domain, message ? message : "", 0, stream);
}
