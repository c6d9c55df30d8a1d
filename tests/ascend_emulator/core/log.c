/* The launch log: one JSON line a task, one file a process. */
#define _GNU_SOURCE
#include "emulator.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The log a test reads, and the one the stand-in msprof reads. */
static const char *const variables[] = {"CANN_EMU_LOG", "CANN_EMU_PROFILE"};
static int files[] = {-1, -1};
static pid_t owner;

uint64_t emu_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static const char *setting(int which) {
    const char *template = getenv(variables[which]);
    return template && *template ? template : NULL;
}

int emu_log_enabled(void) { return setting(0) || setting(1); }

static int open_file(const char *template) {
    char path[4096];
    const char *mark = strstr(template, "%p");
    if (mark) snprintf(path, sizeof path, "%.*s%d%s", (int)(mark - template), template, getpid(), mark + 2);
    else snprintf(path, sizeof path, "%s", template);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) fprintf(stderr, "emulated CANN: cannot write the log %s\n", path);
    return file;
}

/* A forked child writes files of its own. */
static void open_files(void) {
    if (owner == getpid()) return;
    owner = getpid();
    for (int i = 0; i < 2; i++) files[i] = setting(i) ? open_file(setting(i)) : -1;
}

/* Written at once: a killed process leaves every record up to its end. */
void emu_log_line(const Text *line) {
    pthread_mutex_lock(&lock);
    open_files();
    for (int i = 0; i < 2; i++) {
        for (size_t done = 0; files[i] >= 0 && done < line->length;) {
            ssize_t written = write(files[i], line->text + done, line->length - done);
            if (written <= 0) break;
            done += (size_t)written;
        }
    }
    pthread_mutex_unlock(&lock);
}
