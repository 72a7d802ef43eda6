/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log.h - log lines on standard error, one write(2) a line.
 *
 * Never allocates and never touches managed memory, so any thread may log in any state, the shard included.
 * A line is a sentence: what failed, on what, why; lowercase, no '='. The first function that knows the cause
 * logs it, once.
 */
#ifndef TIERMESH_BASE_LOG_H
#define TIERMESH_BASE_LOG_H

enum log_level {
    LOG_ERROR = 0,
    LOG_WARN = 1,
    LOG_INFO = 2,
    LOG_DEBUG = 3,
};

/* Lines above `level` are dropped. `name` (31 bytes at most) stands in front of each line, e.g. "node 2". */
void log_configure(enum log_level level, const char *name);

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
