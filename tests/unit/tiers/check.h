/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - what the tests of tiers/ share: cmocka, pages with known bytes, and checks that a contract check fires.
 */
#ifndef TIERMESH_TESTS_UNIT_TIERS_CHECK_H
#define TIERMESH_TESTS_UNIT_TIERS_CHECK_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "base/types.h"

/* Bytes that tell page and version apart everywhere in the page. */
static inline void page_fill(void *page, uint64_t number)
{
    struct random random = {number};

    for (size_t i = 0; i < PAGE_BYTES / sizeof(uint64_t); i++)
        ((uint64_t *)page)[i] = random_next(&random);
}

static inline void page_check(const void *page, uint64_t number)
{
    struct random random = {number};

    for (size_t i = 0; i < PAGE_BYTES / sizeof(uint64_t); i++)
        assert_int_equal(((const uint64_t *)page)[i], random_next(&random));
}

static inline void *pages_new(unsigned count)
{
    void *memory = aligned_alloc(PAGE_BYTES, count * PAGE_BYTES);

    assert_non_null(memory);
    memset(memory, 0, count * PAGE_BYTES);
    return memory;
}

/* The call must end the process by a failed ASSERT. */
static inline void check_aborts(void (*call)(void *argument), void *argument)
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit no_core = {0, 0};

        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO); /* the message is expected */
        call(argument);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

#endif
