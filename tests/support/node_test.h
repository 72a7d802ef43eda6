/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_test.h - tests of the whole runtime: each case runs in a job of its own, and is judged from outside.
 *
 * A program is a table of cases and `return node_test_main(argc, argv, cases, count);`. Without a case's name in the
 * environment it is the judge: it starts a job for each case (dsmrun with this same program; a job of one node is
 * started directly), waits no longer than the case may take, prints the job's output when the case failed, and looks at
 * how it ended. Inside the job it is a node: dsm_init(), the case, dsm_finalize(), exit 0.
 *
 *   program [--set NAME=VALUE]... [CASE]...      --set goes to every node of every case, after the case's own options
 *
 * The checks work on any thread: they print and end the process, which ends the case.
 */
#ifndef TIERMESH_TESTS_NODE_TEST_H
#define TIERMESH_TESTS_NODE_TEST_H

#include "base/random.h"
#include "tiermesh/dsm.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODE_TEST_SKIP 77
#define MILLISECOND_NS UINT64_C(1000000)
#define SECOND_NS      UINT64_C(1000000000)

/* How a job ended. */
struct node_outcome {
    int status;       /* exit status of the job; 128 + signal when it died of one */
    const char *text; /* what its nodes wrote, standard output and error */
};

struct node_case {
    const char *name;
    void (*run)(void);      /* in every node, after dsm_init() */
    unsigned nodes_count;   /* 0: 1 */
    const char *options[8]; /* "ddr=8M"; %D in a value is a fresh directory on a disk */
    /* true: ended as it should. NULL: exit status 0 is wanted. */
    bool (*judge)(const struct node_outcome *outcome);
    unsigned timeout_s; /* 0: 20 */
    bool is_bare;       /* no dsm_init() and dsm_finalize() around run */
    bool is_asked_only; /* runs only when its name is given: longer variants */
    bool may_not_skip;  /* an exit status of 77 is for judge */
};

int node_test_main(int argc, char **argv, const struct node_case *cases, size_t cases_count);

/* true: the text is there. Otherwise it says what was missed. */
bool outcome_says(const struct node_outcome *outcome, const char *text);

/* ---- checks ------------------------------------------------------------------------------------------------------ */

_Noreturn void check_failed(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, "%s does not hold", #condition))

/* Integers. */
#define CHECK_IS(value, wanted) check_is(__FILE__, __LINE__, #value, (long long)(value), (long long)(wanted))

/* A call of the library that must return 0, or this error together with a sentence. */
#define CHECK_OK(call)            check_result(__FILE__, __LINE__, #call, (call), 0)
#define CHECK_ERROR(call, wanted) check_result(__FILE__, __LINE__, #call, (call), (wanted))

void check_is(const char *file, int line, const char *what, long long value, long long wanted);
void check_result(const char *file, int line, const char *what, int result, int wanted);

/* ---- in a node ------------------------------------------------------------------------------------------------------
 */

_Noreturn void node_skip(const char *why);

/* The same pointer on every node: node 0 allocates, the others get it by name; everybody leaves together. */
void *node_share(const char *name, size_t size_bytes);
void *node_share_with(const char *name, size_t size_bytes, const struct dsm_attributes *attributes);

/* Runs `run(i)` on count threads and waits for them. */
void threads_run(unsigned count, void (*run)(unsigned index));

uint64_t now_ns(void);
void sleep_ms(unsigned ms);

/* Loads one byte, or stores one; false: SIGBUS came instead. */
bool touch_reads(const volatile void *address);
bool touch_writes(volatile void *address);

/* A page's contents that name the page and the round: filled, and checked whole. */
void page_fill(void *page, uint64_t number, uint64_t round);
bool page_is_filled(const void *page, uint64_t number, uint64_t round);

struct dsm_stats node_stats(void);

/* A fresh directory on a disk, removed with the job: the %D of the case's options. */
const char *node_directory(void);

/* The milliseconds that something may take, longer under a sanitizer. */
unsigned patience(unsigned value);

#endif
