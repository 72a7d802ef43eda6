/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heap_jemalloc.c - what jemalloc finds in place of functions that it must not call (cmake/shim.cmake renames the
 * references): options come from heap.c alone, not from the program's MALLOC_CONF or /etc/malloc.conf; nothing is
 * looked up by dlsym(); and the profiler, which is off, pulls in neither libm nor an unwinder.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <sys/types.h>

char *heap_no_secure_getenv(const char *name);
ssize_t heap_no_readlink(const char *path, char *to, size_t size);
void *heap_no_dlsym(void *handle, const char *name);
double heap_no_exp(double value);
double heap_no_log(double value);
double heap_no_round(double value);
int heap_no__Unwind_Backtrace(void);
int heap_no__Unwind_GetIP(void);

char *heap_no_secure_getenv(const char *name)
{
    (void)name;
    return NULL;
}

ssize_t heap_no_readlink(const char *path, char *to, size_t size)
{
    (void)path;
    (void)to;
    (void)size;
    errno = ENOENT;
    return -1;
}

void *heap_no_dlsym(void *handle, const char *name)
{
    (void)handle;
    (void)name;
    return NULL;
}

double heap_no_exp(double value)
{
    return value;
}

double heap_no_log(double value)
{
    return value;
}

double heap_no_round(double value)
{
    return value;
}

int heap_no__Unwind_Backtrace(void)
{
    return 0;
}

int heap_no__Unwind_GetIP(void)
{
    return 0;
}
