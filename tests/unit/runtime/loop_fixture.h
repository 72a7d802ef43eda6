/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop_fixture.h - what the tests of the event loop share: a loop of one kind, and running it for a while.
 */
#ifndef TIERMESH_TESTS_LOOP_FIXTURE_H
#define TIERMESH_TESTS_LOOP_FIXTURE_H

#include "base/assert.h"
#include "base/error.h"
#include "base/os.h"
#include "runtime/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND_NS 1000000000U

struct fixture {
    const char *kind;
    struct loop *loop;
    bool is_done;
};

static inline int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    ASSERT(fixture != NULL);
    fixture->kind = *state;
    *state = fixture;
    return loop_create(fixture->kind, &fixture->loop);
}

static inline int teardown(void **state)
{
    struct fixture *fixture = *state;

    loop_destroy(fixture->loop);
    *state = (void *)(uintptr_t)fixture->kind;
    free(fixture);
    return 0;
}

/* Rounds until `word` reaches `goal`; a round blocks for a second at most, ten fruitless ones fail. */
static inline void run_until_equal(struct loop *loop, const int *word, int goal)
{
    int fruitless = 0;

    while (*word != goal && fruitless < 10)
        fruitless = loop_run_once(loop, os_now_ns() + SECOND_NS) == 0 ? fruitless + 1 : 0;
    assert_int_equal(*word, goal);
}

static inline void run_quiet(struct loop *loop)
{
    while (loop_run_once(loop, os_now_ns() + 20000000) > 0)
        ;
}

/* The same tests over epoll, then over io_uring; 77 when the kernel refuses that. */
static inline int run_both(const struct CMUnitTest *epoll_tests, const struct CMUnitTest *uring_tests, size_t count)
{
    struct loop *loop;
    int failed = _cmocka_run_group_tests("epoll", epoll_tests, count, NULL, NULL);
    int error = loop_create("io_uring", &loop);

    if (error != 0) {
        print_message("io_uring is not tested: %s\n", error_text());
        return failed != 0 ? failed : 77;
    }
    loop_destroy(loop);
    return failed + _cmocka_run_group_tests("io_uring", uring_tests, count, NULL, NULL);
}

#define TEST_OF(test, kind)                                                                                            \
    {                                                                                                                  \
        kind ": " #test, test, setup, teardown, (void *)(uintptr_t)(kind)                                              \
    }

#endif
