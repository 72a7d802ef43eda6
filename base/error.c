/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"
#include "base/types.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_text[512] TLS_STATIC;

int error_set(int code, const char *format, ...)
{
    int saved_errno = errno;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(last_text, sizeof(last_text), format, arguments);
    va_end(arguments);
    errno = saved_errno;
    return code;
}

const char *error_text(void)
{
    return last_text;
}
