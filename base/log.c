/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/assert.h"
#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The one context of this file: where lines go and which of them. Set at start, read by all threads. */
static struct {
    _Atomic(int) level;
    char name[32];
} log_context = {.level = LOG_WARN};

void log_configure(enum log_level level, const char *name)
{
    snprintf(log_context.name, sizeof(log_context.name), "%s", name);
    atomic_store_explicit(&log_context.level, (int)level, memory_order_release);
}

static const char *level_name(enum log_level level)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};

    return names[level];
}

static void write_all(const char *text, size_t size)
{
    while (size > 0) {
        ssize_t done = write(STDERR_FILENO, text, size);

        if (done <= 0)
            return;
        text += done;
        size -= (size_t)done;
    }
}

void log_line(enum log_level level, const char *format, ...)
{
    char line[512];
    int saved_errno = errno;
    va_list arguments;
    int used;

    /* Pairs with the release in log_configure(): the name is whole. */
    if ((int)level > atomic_load_explicit(&log_context.level, memory_order_acquire))
        return;
    used = snprintf(line, sizeof(line), "tiermesh%s%s: %s: ", log_context.name[0] ? " " : "", log_context.name,
                    level_name(level));
    va_start(arguments, format);
    errno = saved_errno; /* for %m */
    used += text_format(line + used, sizeof(line) - (size_t)used, format, arguments);
    va_end(arguments);
    if ((size_t)used > sizeof(line) - 2)
        used = (int)sizeof(line) - 2;
    line[used] = '\n';
    write_all(line, (size_t)used + 1);
    errno = saved_errno;
}

_Noreturn void assert_failed(const char *condition, const char *file, int line)
{
    char text[512];
    int used = snprintf(text, sizeof(text), "tiermesh %s: bug: %s does not hold at %s:%d\n", log_context.name,
                        condition, file, line);

    write_all(text, (size_t)used < sizeof(text) ? (size_t)used : sizeof(text) - 1);
    abort();
}
