/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - a text that grows in memory of the caller's, and stays within it.
 */
#ifndef TIERMESH_BASE_TEXT_H
#define TIERMESH_BASE_TEXT_H

#include "base/types.h"

#include <stdarg.h>

struct text {
    char *bytes;
    size_t size_bytes; /* of the memory, at least 1 */
    size_t used;       /* without the closing zero */
};

/* As printf(3). What has no room is cut off; the closing zero always has. Any thread, one at a time a text. */
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * As vsnprintf(3), but %m is not translated: that would take locks of libc's, which a thread that waits for the caller
 * may hold (setlocale() that allocates, under the preload library). Errors are named by strerrordesc_np() for the same
 * reason. Any thread.
 */
int text_format(char *to, size_t size_bytes, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

#endif
