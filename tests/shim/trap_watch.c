/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_watch.c - a program with a userfaultfd of its own: what it watches is its own to fill.
 */
#include "tests/shim/trap.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define SIZE (64 * PAGE)

static int watcher;
static char *source; /* what the watcher fills with */

static void *serve(void *unused)
{
    struct uffd_msg message;

    (void)unused;
    while (read(watcher, &message, sizeof(message)) == sizeof(message)) {
        struct uffdio_copy copy = {
            .dst = message.arg.pagefault.address & ~(PAGE - 1), .src = (uintptr_t)source, .len = PAGE};

        CHECK(message.event == UFFD_EVENT_PAGEFAULT);
        CHECK(ioctl(watcher, UFFDIO_COPY, &copy) == 0 || errno == EEXIST);
    }
    return NULL;
}

static bool watch_begin(char *memory, pthread_t *ret_thread)
{
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.range = {(uintptr_t)memory, SIZE}, .mode = UFFDIO_REGISTER_MODE_MISSING};

    watcher = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (watcher < 0)
        return false;
    CHECK(ioctl(watcher, UFFDIO_API, &api) == 0);
    CHECK(ioctl(watcher, UFFDIO_REGISTER, &range) == 0);
    CHECK(pthread_create(ret_thread, NULL, serve, NULL) == 0);
    return true;
}

static void watch_end(pthread_t thread)
{
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
    close(watcher);
}

static void own_filling(void)
{
    char *memory = map(SIZE, RW);
    pthread_t thread;

    source = map_filled(16 * PAGE, 1);
    /* Half of it has bytes, some elsewhere: those stay. The other half is the watcher's to fill. */
    fill(memory, SIZE / 2, 2);
    push_out(memory, SIZE / 2);
    if (!watch_begin(memory, &thread))
        return;
    CHECK(filled(memory, SIZE / 2, 2));
    for (size_t at = SIZE / 2; at < SIZE; at += PAGE)
        CHECK(filled(memory + at, PAGE, 1));
    pressure();
    CHECK(filled(memory, SIZE / 2, 2) && filled(memory + SIZE - PAGE, PAGE, 1));
    CHECK(madvise(memory, PAGE, MADV_DONTNEED) == 0 && filled(memory, PAGE, 1));
    watch_end(thread);
    CHECK(munmap(memory, SIZE) == 0 && munmap(source, 16 * PAGE) == 0);
}

static void beside(void)
{
    char *memory = map(2 * SIZE, RW);
    pthread_t thread;

    source = map_filled(16 * PAGE, 3);
    fill(memory + SIZE, SIZE, 4);
    if (!watch_begin(memory, &thread))
        return;
    for (int i = 0; i < 3; i++) {
        push_out(memory + SIZE, SIZE);
        CHECK(filled(memory + (size_t)i * PAGE, PAGE, 3) && filled(memory + SIZE, SIZE, 4));
    }
    watch_end(thread);
    CHECK(munmap(memory, 2 * SIZE) == 0 && munmap(source, 16 * PAGE) == 0);
}

TRAP_MAIN({"own_filling", own_filling}, {"beside", beside})
