/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hooks_open_calls.c - another preload library, of the kind that trips allocators up at start: its open() and read()
 * look the real ones up by dlsym() and allocate on the way.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static void allocate(void)
{
    char *memory = malloc(1000);

    memory = realloc(memory, 40000);
    if (memory != NULL)
        memset(memory, 1, 40000);
    free(memory);
    free(calloc(3, 100));
}

static int open_by(const char *name, const char *path, int flags, mode_t mode)
{
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))(size_t)dlsym(RTLD_NEXT, name);

    allocate();
    return real(path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    mode_t mode;

    va_start(arguments, flags);
    mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return open_by("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list arguments;
    mode_t mode;

    va_start(arguments, flags);
    mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return open_by("open64", path, flags, mode);
}

ssize_t read(int fd, void *to, size_t size)
{
    ssize_t (*real)(int, void *, size_t) = (ssize_t(*)(int, void *, size_t))(size_t)dlsym(RTLD_NEXT, "read");

    allocate();
    return real(fd, to, size);
}

/* Before the other library's constructor, or after it, as the order has it. */
__attribute__((constructor)) static void begin(void)
{
    allocate();
    close(open("/dev/null", O_RDONLY));
}
