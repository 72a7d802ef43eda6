/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start.c - the library decides once whether it manages this process.
 *
 * Run by whichever thread comes first through shim_active(), perhaps before any constructor. The thread that starts
 * calls interposers of ours on its way; those and other threads meanwhile see "not managed", which is always right:
 * nobody waits for anybody here.
 */
#include "runtime/hooks.h"
#include "shim/libc.h"
#include "shim/raw.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/uio.h>
#include <unistd.h>

struct shim shim;

void shim_say(const char *text, const char *more)
{
    struct iovec parts[] = {
        {(void *)"tiermesh: ", 10}, {(void *)(uintptr_t)text, strlen(text)},
        {(void *)": ", 2},          {(void *)(uintptr_t)more, strlen(more)},
        {(void *)"\n", 1},
    };

    raw_call(SYS_writev, STDERR_FILENO, parts, sizeof(parts) / sizeof(parts[0]));
}

/* A program of the shared memory library has its own memory manager, and dsmrun's words are for it. */
static bool wanted(void)
{
    return getauxval(AT_SECURE) == 0 && getenv("DSM_PRELOAD") != NULL && !libc_is_loaded("libtiermesh.so");
}

static bool start(void)
{
    int error;

    if (!wanted())
        return false;
    if (!libc_find(&shim.libc, &shim.linker)) {
        shim_say("this program is not managed", "its libc is not the GNU C library");
        return false;
    }
    error = hooks_open();
    if (error != 0) {
        if (error != -ENOENT)
            shim_say("this program is not managed", hooks_error());
        return false;
    }
    if (heap_start() != 0) {
        shim_say("this program is not managed", "the heap could not be set up");
        return false;
    }
    return true;
}

bool shim_start(void)
{
    int state = SHIM_FRESH;
    int before = errno;
    bool active;

    /* Before libc's own constructor there is no environment; only libc and the dynamic linker run then. */
    if (atomic_load_explicit(&shim.state, memory_order_relaxed) != SHIM_FRESH || environ == NULL)
        return false;
    if (!atomic_compare_exchange_strong(&shim.state, &state, SHIM_STARTING))
        return state == SHIM_ACTIVE;
    active = start();
    atomic_store_explicit(&shim.state, active ? SHIM_ACTIVE : SHIM_INERT, memory_order_release);
    errno = before;
    return active;
}

__attribute__((destructor)) static void finish(void)
{
    if (atomic_load_explicit(&shim.state, memory_order_acquire) == SHIM_ACTIVE)
        hooks_finish();
}
