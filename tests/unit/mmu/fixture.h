/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fixture.h - a small window with a fault handler, for the tests of mmu/.
 *
 * The handler thread plays the shard. Functions of mmu/ belong to the shard's thread, so a test that calls them while
 * the handler runs takes `lock`. cmocka's assertions belong to the main thread; other threads use ASSERT.
 */
#ifndef TIERMESH_TESTS_MMU_FIXTURE_H
#define TIERMESH_TESTS_MMU_FIXTURE_H

#include "base/assert.h"
#include "base/error.h"
#include "base/os.h"
#include "mmu/mmu.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Both sanitizers keep shadow memory where the default window lies. */
#if defined(__SANITIZE_THREAD__)
#define TEST_BASE 0x4000000000U
#elif defined(__SANITIZE_ADDRESS__)
#define TEST_BASE 0x200000000000U
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_BASE 0x4000000000U
#elif __has_feature(address_sanitizer)
#define TEST_BASE 0x200000000000U
#endif
#endif
#ifndef TEST_BASE
#define TEST_BASE MMU_WINDOW_BASE_DEFAULT
#endif

#define SHARED_EXTENTS  4U
#define PRIVATE_EXTENTS 4U
#define SHARED_BYTES    (SHARED_EXTENTS * EXTENT_BYTES)
#define PRIVATE_BYTES   (PRIVATE_EXTENTS * EXTENT_BYTES)
#define PRIVATE_FIRST   (SHARED_BYTES >> PAGE_SHIFT)
#define PRIVATE_PAGES   (PRIVATE_BYTES >> PAGE_SHIFT)

struct fixture {
    struct mmu_window window;
    struct mmu_features features;
    struct mmu *mmu;

    /* The handler. */
    pthread_mutex_t lock;
    pthread_t thread;
    int stop;
    bool is_running;
    void (*answer)(struct fixture *fixture, const struct mmu_fault *fault);
    _Atomic(unsigned) faults[3]; /* by kind */
};

static inline void ok(int result)
{
    if (result != 0)
        fprintf(stderr, "%s\n", error_text());
    ASSERT(result == 0);
}

static inline uint8_t *page_bytes(const struct fixture *fixture, uint64_t page)
{
    return mmu_page_address(&fixture->window, page_of(page));
}

/* Bytes that name their page, so that a page in a wrong place shows. */
static inline void page_fill(uint8_t *bytes, uint64_t page)
{
    for (size_t i = 0; i < PAGE_BYTES; i += sizeof(uint64_t)) {
        uint64_t word = page << PAGE_SHIFT | i | UINT64_C(1) << 62;

        memcpy(bytes + i, &word, sizeof(word));
    }
}

static inline bool page_is_filled(const uint8_t *bytes, uint64_t page)
{
    uint8_t expected[PAGE_BYTES];

    page_fill(expected, page);
    return memcmp(bytes, expected, PAGE_BYTES) == 0;
}

/* Tests count on single pages, whatever the machine's transparent_hugepage says; who wants huge ones asks for them. */
static inline void fixture_open(struct fixture *fixture, const struct mmu_switches *switches)
{
    memset(fixture, 0, sizeof(*fixture));
    pthread_mutex_init(&fixture->lock, NULL);
    ok(mmu_features_probe(switches, &fixture->features));
    ok(mmu_window_reserve(TEST_BASE, SHARED_BYTES, PRIVATE_BYTES, &fixture->window));
    madvise(page_bytes(fixture, PRIVATE_FIRST), PRIVATE_BYTES, MADV_NOHUGEPAGE);
    ok(mmu_open(&fixture->window, &fixture->features, &fixture->mmu));
    mmu_guard(fixture->mmu);
}

/* Absent pages are filled with their name, others are mapped writable: what a node alone would do. */
static inline void answer_plainly(struct fixture *fixture, const struct mmu_fault *fault)
{
    uint8_t bytes[PAGE_BYTES];

    switch (fault->kind) {
    case MMU_FAULT_MISSING:
        page_fill(bytes, fault->page.index);
        ok(mmu_copy(fixture->mmu, fault->page, 1, bytes, true));
        break;
    case MMU_FAULT_MINOR:
        ok(mmu_continue(fixture->mmu, fault->page, 1, true));
        break;
    case MMU_FAULT_WP:
        ok(mmu_protect(fixture->mmu, fault->page, 1, true));
        break;
    }
}

static inline void *handler_run(void *argument)
{
    struct fixture *fixture = argument;
    struct pollfd wait[2] = {{.fd = mmu_descriptor(fixture->mmu), .events = POLLIN},
                             {.fd = fixture->stop, .events = POLLIN}};
    struct mmu_fault faults[16];

    while (poll(wait, 2, -1) >= 0 && !(wait[1].revents & POLLIN)) {
        pthread_mutex_lock(&fixture->lock);
        for (int count = 16; count == 16;) {
            count = mmu_faults_read(fixture->mmu, faults, 16);
            for (int i = 0; i < count; i++) {
                atomic_fetch_add(&fixture->faults[faults[i].kind], 1);
                fixture->answer(fixture, &faults[i]);
            }
        }
        pthread_mutex_unlock(&fixture->lock);
    }
    return NULL;
}

static inline void handler_start(struct fixture *fixture, void (*answer)(struct fixture *, const struct mmu_fault *))
{
    fixture->answer = answer;
    fixture->stop = eventfd(0, EFD_CLOEXEC);
    ASSERT(fixture->stop >= 0);
    ok(os_thread_start(&fixture->thread, "handler", handler_run, fixture));
    fixture->is_running = true;
}

static inline void handler_stop(struct fixture *fixture)
{
    if (!fixture->is_running)
        return;
    ok(eventfd_write(fixture->stop, 1));
    pthread_join(fixture->thread, NULL);
    close(fixture->stop);
    fixture->is_running = false;
}

static inline void fixture_close(struct fixture *fixture)
{
    handler_stop(fixture);
    mmu_close(fixture->mmu);
    mmu_window_release(&fixture->window);
    pthread_mutex_destroy(&fixture->lock);
}

static inline unsigned faults_seen(struct fixture *fixture)
{
    return atomic_load(&fixture->faults[0]) + atomic_load(&fixture->faults[1]) + atomic_load(&fixture->faults[2]);
}

/* Bytes of a page that other threads store to unless the page table stops them. */
__attribute__((noinline, unused, no_sanitize("thread"))) static void page_copy(uint8_t *to,
                                                                               const volatile uint8_t *from)
{
    for (size_t i = 0; i < PAGE_BYTES; i++)
        to[i] = from[i];
}

/* Pins memory as a registered buffer of a ring; closing the ring unpins. -1: io_uring is refused here. */
static inline int memory_pin(void *memory, size_t size)
{
    struct io_uring_params parameters = {0};
    struct iovec vector = {memory, size};
    int ring = (int)syscall(__NR_io_uring_setup, 1, &parameters);

    if (ring < 0)
        return -1;
    if (syscall(__NR_io_uring_register, ring, IORING_REGISTER_BUFFERS, &vector, 1) != 0) {
        close(ring);
        return -1;
    }
    return ring;
}

/* ---- touching from another thread ----------------------------------------------------------------------------------
 */

struct toucher {
    pthread_t thread;
    volatile uint8_t *address;
    bool is_write;
    uint8_t value; /* to write, or read */
    _Atomic(uint32_t) thread_id;
    _Atomic(bool) is_done;
    _Atomic(int) signal; /* SIGBUS, SIGSEGV, or 0 */
};

static _Thread_local sigjmp_buf touch_escape;

static inline void touch_signal(int signal)
{
    siglongjmp(touch_escape, signal);
}

static inline void signals_catch(void)
{
    struct sigaction action = {.sa_handler = touch_signal};

    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
}

/*
 * Touches in this thread; returns the signal that came of it, or 0. What orders touches of one page is the page table,
 * which a race detector does not see.
 */
__attribute__((noinline, unused, no_sanitize("thread"))) static int touch(volatile uint8_t *address, bool is_write,
                                                                          uint8_t *value)
{
    int signal = sigsetjmp(touch_escape, 1);

    if (signal != 0)
        return signal;
    if (is_write)
        *address = *value;
    else
        *value = *address;
    return 0;
}

static inline void *toucher_run(void *argument)
{
    struct toucher *toucher = argument;

    atomic_store(&toucher->thread_id, (uint32_t)syscall(SYS_gettid));
    atomic_store(&toucher->signal, touch(toucher->address, toucher->is_write, &toucher->value));
    atomic_store(&toucher->is_done, true);
    return NULL;
}

/* The thread is not started by os_thread_start(): signals of a fault must be deliverable. */
static inline void toucher_start(struct toucher *toucher, void *address, bool is_write, uint8_t value)
{
    memset(toucher, 0, sizeof(*toucher));
    toucher->address = address;
    toucher->is_write = is_write;
    toucher->value = value;
    signals_catch();
    ASSERT(pthread_create(&toucher->thread, NULL, toucher_run, toucher) == 0);
}

/* Returns the signal the touch raised, or 0. */
static inline int toucher_join(struct toucher *toucher)
{
    pthread_join(toucher->thread, NULL);
    return atomic_load(&toucher->signal);
}

/* Waits for one fault and returns it; the test's own thread plays the shard. */
static inline struct mmu_fault fault_wait(struct fixture *fixture)
{
    struct pollfd wait = {.fd = mmu_descriptor(fixture->mmu), .events = POLLIN};
    struct mmu_fault fault;

    do
        ASSERT(poll(&wait, 1, 10000) == 1);
    while (mmu_faults_read(fixture->mmu, &fault, 1) == 0);
    return fault;
}

static inline bool has_fault(struct fixture *fixture)
{
    struct mmu_fault fault;

    return mmu_faults_read(fixture->mmu, &fault, 1) != 0;
}

/* A store to a mapped page: what would be a fault shows as one. */
static inline bool store_faults(struct fixture *fixture, uint64_t page, uint8_t value)
{
    struct toucher toucher;
    struct pollfd wait = {.fd = mmu_descriptor(fixture->mmu), .events = POLLIN};
    struct mmu_fault fault;
    bool faulted = false;

    toucher_start(&toucher, page_bytes(fixture, page), true, value);
    while (!atomic_load(&toucher.is_done)) {
        if (poll(&wait, 1, 1) != 1 || mmu_faults_read(fixture->mmu, &fault, 1) == 0)
            continue;
        ASSERT(fault.kind == MMU_FAULT_WP && fault.is_write && fault.page.index == page);
        faulted = true;
        ok(mmu_protect(fixture->mmu, fault.page, 1, true));
    }
    ASSERT(toucher_join(&toucher) == 0);
    return faulted;
}

/* Runs `check` in a child and returns its exit code; the child must not touch managed memory by accident. */
static inline int in_child(int (*check)(void *), void *argument)
{
    pid_t child = fork();
    int status;

    ASSERT(child >= 0);
    if (child == 0)
        _exit(check(argument));
    ASSERT(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Where userfaultfd is refused these tests cannot run: exit code 77. */
static inline void require_userfaultfd(void)
{
    struct mmu_features features;
    struct mmu_switches none = {0};

    if (mmu_features_probe(&none, &features) != 0) {
        fprintf(stderr, "skipped: %s\n", error_text());
        exit(77);
    }
    if (!features.has_minor || !features.has_wp_shmem) {
        fprintf(stderr, "skipped: this kernel has no minor faults or write protection on memfd\n");
        exit(77);
    }
}

#endif
