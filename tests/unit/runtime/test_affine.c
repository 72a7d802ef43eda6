/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a shard runs: by what faults cost there, as this test says they do; the masks of real threads follow.
 */
#include "base/os.h"
#include "runtime/affine.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define EPOCH 256u

/* The thread that faults: it sleeps, as one that waits for a page does. */
static struct {
    pthread_t thread;
    _Atomic(uint32_t) id, is_over;
} faulter;

static struct affine affine;
static cpu_set_t before;
static uint64_t now_ns;

static void *faulter_run(void *argument)
{
    (void)argument;
    atomic_store(&faulter.id, (uint32_t)gettid());
    os_futex_wake(&faulter.id, 1, false);
    while (atomic_load(&faulter.is_over) == 0)
        os_futex_wait(&faulter.is_over, 0, UINT64_MAX, false);
    return NULL;
}

static int begin(void **state)
{
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    atomic_store(&faulter.id, 0);
    atomic_store(&faulter.is_over, 0);
    assert_int_equal(os_thread_start(&faulter.thread, "faulter", faulter_run, NULL), 0);
    while (atomic_load(&faulter.id) == 0)
        os_futex_wait(&faulter.id, 0, UINT64_MAX, false);
    now_ns = 1000000000;
    affine_init(&affine, true);
    return 0;
}

static int end(void **state)
{
    (void)state;
    affine_settle(&affine);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    atomic_store(&faulter.is_over, 1);
    os_futex_wake(&faulter.is_over, 1, false);
    return pthread_join(faulter.thread, NULL);
}

static int processors_of(uint32_t thread)
{
    cpu_set_t set;

    assert_int_equal(sched_getaffinity((pid_t)thread, sizeof(set), &set), 0);
    return CPU_COUNT(&set);
}

static void faults(unsigned epochs, uint64_t free_ns, uint64_t beside_ns)
{
    for (unsigned i = 0; i < epochs * EPOCH; i++) {
        affine_fault(&affine, atomic_load(&faulter.id), now_ns);
        now_ns += affine.processor == AFFINE_FREE ? free_ns : beside_ns;
    }
}

static void skip_on_one(void)
{
    if (CPU_COUNT(&before) < 2)
        skip();
}

static void test_stays_where_it_costs_less(void **state)
{
    (void)state;
    skip_on_one();
    faults(8, 50000, 20000);
    assert_true(affine.processor != AFFINE_FREE);
    assert_int_equal(processors_of(atomic_load(&faulter.id)), 1);
    assert_int_equal(processors_of((uint32_t)gettid()), 1);
    faults(16, 50000, 20000);
    assert_true(affine.is_preferred);
    /* It comes to cost more: what was found out is found out anew. */
    faults(600, 20000, 50000);
    assert_false(affine.is_preferred);
    assert_int_equal(affine.processor, AFFINE_FREE);
    assert_int_equal(processors_of(atomic_load(&faulter.id)), CPU_COUNT(&before));
    assert_int_equal(processors_of((uint32_t)gettid()), CPU_COUNT(&before));
}

/* The other way is tried ever more rarely: of many epochs only a few are spent on it. */
static void test_tries_rarely(void **state)
{
    unsigned beside = 0;

    (void)state;
    skip_on_one();
    for (unsigned i = 0; i < 2000; i++) {
        faults(1, 20000, 50000);
        beside += affine.processor != AFFINE_FREE;
    }
    assert_in_range(beside, 1, 40);
}

static void test_lets_go_in_a_pause(void **state)
{
    (void)state;
    skip_on_one();
    assert_true(affine_deadline_ns(&affine) == UINT64_MAX);
    faults(16, 50000, 20000);
    assert_int_equal(processors_of(atomic_load(&faulter.id)), 1);
    affine_tick(&affine, now_ns);
    assert_int_equal(processors_of(atomic_load(&faulter.id)), 1);
    affine_tick(&affine, affine_deadline_ns(&affine));
    assert_int_equal(processors_of(atomic_load(&faulter.id)), CPU_COUNT(&before));
    /* And goes on when the faults do. */
    faults(1, 50000, 20000);
    assert_int_equal(processors_of(atomic_load(&faulter.id)), 1);
}

static void test_settles(void **state)
{
    (void)state;
    skip_on_one();
    faults(16, 50000, 20000);
    assert_int_equal(processors_of(atomic_load(&faulter.id)), 1);
    errno = ENOTTY;
    affine_settle(&affine);
    assert_int_equal(errno, ENOTTY);
    assert_int_equal(processors_of(atomic_load(&faulter.id)), CPU_COUNT(&before));
    faults(2, 50000, 20000);
    assert_int_equal(processors_of(atomic_load(&faulter.id)), 1);
}

/* A mask that the program chose comes back as it was; one of one processor is left alone. */
static void test_keeps_a_chosen_mask(void **state)
{
    cpu_set_t one;
    cpu_set_t now;

    (void)state;
    skip_on_one();
    CPU_ZERO(&one);
    for (size_t i = 0; CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity((pid_t)atomic_load(&faulter.id), sizeof(one), &one), 0);
    faults(16, 50000, 20000);
    affine_tick(&affine, now_ns + 1000000000);
    assert_int_equal(sched_getaffinity((pid_t)atomic_load(&faulter.id), sizeof(now), &now), 0);
    assert_true(CPU_EQUAL(&one, &now));
}

static void test_many_threads(void **state)
{
    (void)state;
    skip_on_one();
    for (unsigned i = 0; i < 64 * EPOCH; i++) {
        affine_fault(&affine, i % 2 == 0 ? atomic_load(&faulter.id) : (uint32_t)gettid(), now_ns);
        now_ns += 20000;
        assert_int_equal(affine.processor, AFFINE_FREE);
    }
}

static void test_off(void **state)
{
    (void)state;
    affine_init(&affine, false);
    faults(64, 50000, 20000);
    assert_int_equal(affine.processor, AFFINE_FREE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_stays_where_it_costs_less, begin, end),
        cmocka_unit_test_setup_teardown(test_tries_rarely, begin, end),
        cmocka_unit_test_setup_teardown(test_lets_go_in_a_pause, begin, end),
        cmocka_unit_test_setup_teardown(test_settles, begin, end),
        cmocka_unit_test_setup_teardown(test_keeps_a_chosen_mask, begin, end),
        cmocka_unit_test_setup_teardown(test_many_threads, begin, end),
        cmocka_unit_test_setup_teardown(test_off, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
