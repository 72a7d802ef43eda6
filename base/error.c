/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"
#include "base/text.h"
#include "base/types.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

static _Thread_local char last_text[512] TLS_STATIC;

int error_set(int code, const char *format, ...)
{
    int saved_errno = errno;
    char text[sizeof(last_text)];
    va_list arguments;

    va_start(arguments, format);
    text_format(text, sizeof(text), format, arguments); /* an argument may be the last text */
    va_end(arguments);
    memcpy(last_text, text, strlen(text) + 1);
    errno = saved_errno;
    return code;
}

const char *error_text(void)
{
    return last_text;
}
