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
static int log_fd = -1;
static pid_t log_owner;

uint64_t emu_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

int emu_log_enabled(void) {
    const char *template = getenv("CANN_EMU_LOG");
    return template && *template;
}

/* A forked child writes a file of its own. */
static int log_file(void) {
    if (log_fd >= 0 && log_owner == getpid()) return log_fd;
    const char *template = getenv("CANN_EMU_LOG");
    if (!template || !*template) return -1;
    char path[4096];
    const char *mark = strstr(template, "%p");
    if (mark) snprintf(path, sizeof path, "%.*s%d%s", (int)(mark - template), template, getpid(), mark + 2);
    else snprintf(path, sizeof path, "%s", template);
    log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    log_owner = getpid();
    if (log_fd < 0) fprintf(stderr, "emulated CANN: cannot write the log %s\n", path);
    return log_fd;
}

/* Written at once: a killed process leaves every record up to its end. */
void emu_log_line(const Text *line) {
    pthread_mutex_lock(&lock);
    int fd = log_file();
    for (size_t done = 0; fd >= 0 && done < line->length;) {
        ssize_t written = write(fd, line->text + done, line->length - done);
        if (written <= 0) break;
        done += (size_t)written;
    }
    pthread_mutex_unlock(&lock);
}
