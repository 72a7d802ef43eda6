/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_loop.c - the promises of the event loop (base/loop.h), each over io_uring and over epoll.
 */
#include "loop_fixture.h"

/* ---- watches --------------------------------------------------------------------------------------------------- */

struct counter {
    struct loop_watch watch;
    struct loop *loop;
    int calls;
    int stop_at; /* unwatch in that call; 0: never */
    int take;    /* bytes to read in each call */
    uint32_t events;
    struct counter *other; /* unwatched and closed in the first call */
};

static void count_ready(struct loop_watch *watch, uint32_t events)
{
    struct counter *counter = watch->context;
    char bytes[16];

    counter->calls++;
    counter->events = events;
    if (counter->take > 0)
        counter->take = (int)recv(watch->fd, bytes, (size_t)counter->take, MSG_DONTWAIT) > 0 ? counter->take : 0;
    if (counter->other != NULL) {
        loop_unwatch(counter->loop, &counter->other->watch);
        close(counter->other->watch.fd);
        memset(counter->other, 0xa5, sizeof(*counter->other));
        counter->other = NULL;
    }
    if (counter->calls == counter->stop_at) {
        loop_unwatch(counter->loop, watch);
        memset(watch, 0xa5, sizeof(*watch));
    }
}

static void counter_init(struct counter *counter, struct loop *loop, int fd)
{
    memset(counter, 0, sizeof(*counter));
    counter->loop = loop;
    counter->watch = (struct loop_watch){.fd = fd, .ready = count_ready, .context = counter};
}

static void pair_create(int ret_fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ret_fds), 0);
}

static void pair_close(const int fds[2])
{
    close(fds[0]);
    close(fds[1]);
}

/* A callback that reads one byte of eight is called eight times. */
static void test_watch_is_level_triggered(void **state)
{
    struct fixture *fixture = *state;
    struct counter counter;
    int fds[2];

    pair_create(fds);
    counter_init(&counter, fixture->loop, fds[0]);
    counter.take = 1;
    assert_int_equal(loop_watch(fixture->loop, &counter.watch, EPOLLIN), 0);
    assert_int_equal(write(fds[1], "12345678", 8), 8);
    run_until_equal(fixture->loop, &counter.calls, 8);
    run_quiet(fixture->loop);
    assert_int_equal(counter.calls, 8);
    assert_int_equal(counter.events, EPOLLIN);
    loop_unwatch(fixture->loop, &counter.watch);
    pair_close(fds);
}

/* With EPOLLET what was left unread is not reported again, but each new arrival is. */
static void test_watch_edge_reports_arrivals(void **state)
{
    struct fixture *fixture = *state;
    struct counter counter;
    int fds[2];

    pair_create(fds);
    counter_init(&counter, fixture->loop, fds[0]);
    assert_int_equal(loop_watch(fixture->loop, &counter.watch, EPOLLIN | EPOLLET), 0);
    run_quiet(fixture->loop);
    for (int i = 1; i <= 100; i++) {
        assert_int_equal(write(fds[1], "x", 1), 1);
        run_until_equal(fixture->loop, &counter.calls, i);
    }
    run_quiet(fixture->loop);
    assert_int_equal(counter.calls, 100);
    loop_unwatch(fixture->loop, &counter.watch);
    pair_close(fds);
}

static void test_watch_sees_what_came_before(void **state)
{
    struct fixture *fixture = *state;
    struct counter counters[2];
    int fds[2][2];

    for (int i = 0; i < 2; i++) {
        pair_create(fds[i]);
        counter_init(&counters[i], fixture->loop, fds[i][0]);
        assert_int_equal(write(fds[i][1], "x", 1), 1);
        assert_int_equal(loop_watch(fixture->loop, &counters[i].watch, i == 0 ? EPOLLIN : EPOLLIN | EPOLLET), 0);
        assert_int_equal(counters[i].calls, 0);
        counters[i].take = 1;
    }
    run_until_equal(fixture->loop, &counters[0].calls, 1);
    run_until_equal(fixture->loop, &counters[1].calls, 1);
    for (int i = 0; i < 2; i++) {
        loop_unwatch(fixture->loop, &counters[i].watch);
        pair_close(fds[i]);
    }
}

static void test_unwatch_inside_own_callback(void **state)
{
    struct fixture *fixture = *state;
    struct counter counter;
    int fds[2];

    pair_create(fds);
    counter_init(&counter, fixture->loop, fds[0]);
    counter.stop_at = 3;
    assert_int_equal(loop_watch(fixture->loop, &counter.watch, EPOLLIN), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    run_until_equal(fixture->loop, &counter.calls, 3);
    run_quiet(fixture->loop);
    assert_int_equal(counter.calls, 3);
    pair_close(fds);
}

/* Both are ready in one batch of events; the first callback ends the second watch: it must not be called. */
static void test_unwatch_other_inside_callback(void **state)
{
    struct fixture *fixture = *state;
    struct counter counters[2];
    int fds[2][2];
    int calls = 0;

    for (int i = 0; i < 2; i++) {
        pair_create(fds[i]);
        counter_init(&counters[i], fixture->loop, fds[i][0]);
        counters[i].take = 1;
        counters[i].other = &counters[1 - i];
        assert_int_equal(loop_watch(fixture->loop, &counters[i].watch, EPOLLIN), 0);
    }
    run_quiet(fixture->loop);
    for (int i = 0; i < 2; i++)
        assert_int_equal(write(fds[i][1], "x", 1), 1);
    run_quiet(fixture->loop);
    for (int i = 0; i < 2; i++) {
        if (counters[i].loop != fixture->loop)
            continue;
        calls += counters[i].calls;
        loop_unwatch(fixture->loop, &counters[i].watch);
        close(fds[i][0]);
    }
    assert_int_equal(calls, 1);
    close(fds[0][1]);
    close(fds[1][1]);
}

/* The other end sees the close at once: the loop holds no reference to the file. */
static void test_unwatch_releases_the_file(void **state)
{
    static const uint32_t events[] = {EPOLLIN, EPOLLIN | EPOLLET};
    struct fixture *fixture = *state;
    struct counter counter;
    char byte;
    int fds[2];

    for (size_t i = 0; i < ARRAY_COUNT(events); i++) {
        pair_create(fds);
        counter_init(&counter, fixture->loop, fds[0]);
        assert_int_equal(loop_watch(fixture->loop, &counter.watch, events[i]), 0);
        run_quiet(fixture->loop);
        loop_unwatch(fixture->loop, &counter.watch);
        close(fds[0]);
        assert_int_equal(recv(fds[1], &byte, 1, MSG_DONTWAIT), 0);
        close(fds[1]);
    }
}

static void test_rewatch_changes_events(void **state)
{
    struct fixture *fixture = *state;
    struct counter counter;
    int fds[2];

    pair_create(fds);
    counter_init(&counter, fixture->loop, fds[0]);
    assert_int_equal(loop_watch(fixture->loop, &counter.watch, EPOLLIN), 0);
    run_quiet(fixture->loop);
    assert_int_equal(counter.calls, 0);
    assert_int_equal(loop_rewatch(fixture->loop, &counter.watch, EPOLLIN | EPOLLOUT), 0);
    loop_run_once(fixture->loop, os_now_ns() + SECOND_NS);
    loop_run_once(fixture->loop, os_now_ns() + SECOND_NS);
    assert_true(counter.calls > 0);
    assert_int_equal(counter.events, EPOLLOUT);
    assert_int_equal(loop_rewatch(fixture->loop, &counter.watch, EPOLLIN), 0);
    run_quiet(fixture->loop);
    counter.calls = 0;
    counter.take = 1;
    assert_int_equal(write(fds[1], "x", 1), 1);
    run_until_equal(fixture->loop, &counter.calls, 1);
    assert_int_equal(counter.events, EPOLLIN);
    loop_unwatch(fixture->loop, &counter.watch);
    pair_close(fds);
}

static void test_watch_reports_hangup(void **state)
{
    struct fixture *fixture = *state;
    struct counter counter;
    int fds[2];

    pair_create(fds);
    counter_init(&counter, fixture->loop, fds[0]);
    counter.stop_at = 1;
    assert_int_equal(loop_watch(fixture->loop, &counter.watch, EPOLLIN), 0);
    close(fds[1]);
    run_until_equal(fixture->loop, &counter.calls, 1);
    assert_true((counter.events & EPOLLHUP) != 0);
    close(fds[0]);
}

static void test_watch_of_closed_descriptor_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct counter counter;
    int fds[2];

    pair_create(fds);
    pair_close(fds);
    counter_init(&counter, fixture->loop, fds[0]);
    assert_int_equal(loop_watch(fixture->loop, &counter.watch, EPOLLIN), -EBADF);
}

/* More watches than one submission queue holds, some given up before the loop first runs. */
static void test_watch_many(void **state)
{
    enum { COUNT = 700 };
    struct fixture *fixture = *state;
    struct counter *counters = calloc(COUNT, sizeof(*counters));
    int total = 0;

    for (int i = 0; i < COUNT; i++) {
        counter_init(&counters[i], fixture->loop, eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
        assert_true(counters[i].watch.fd >= 0);
        assert_int_equal(loop_watch(fixture->loop, &counters[i].watch, EPOLLIN | EPOLLET), 0);
        if (i % 7 == 0)
            loop_unwatch(fixture->loop, &counters[i].watch);
    }
    run_quiet(fixture->loop);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(counters[i].calls, i % 7 != 0);
        total += counters[i].calls;
        if (i % 7 != 0)
            loop_unwatch(fixture->loop, &counters[i].watch);
        close(counters[i].watch.fd);
    }
    assert_int_equal(total, COUNT - COUNT / 7);
    free(counters);
}

/* ---- timers ---------------------------------------------------------------------------------------------------- */

struct expiry {
    struct loop_timer timer;
    struct loop *loop;
    int *order; /* how many expired so far */
    int place;
    struct expiry *stops; /* stopped when this one expires */
};

static void expire(struct loop_timer *timer)
{
    struct expiry *expiry = timer->context;

    assert_true(os_now_ns() >= timer->deadline_ns);
    expiry->place = ++*expiry->order;
    if (expiry->stops != NULL)
        loop_timer_stop(expiry->loop, &expiry->stops->timer);
}

static void test_timers_expire_in_order(void **state)
{
    enum { COUNT = 200 };
    struct fixture *fixture = *state;
    struct expiry *expiries = calloc(COUNT, sizeof(*expiries));
    uint64_t base_ns = os_now_ns() + 2000000;
    int order = 0;

    /* Deadlines 0 .. 49 in a scattered order, four timers each. */
    for (int i = 0; i < COUNT; i++) {
        expiries[i] = (struct expiry){.loop = fixture->loop, .order = &order};
        expiries[i].timer.context = &expiries[i];
        expiries[i].timer.expired = expire;
        loop_timer_start(fixture->loop, &expiries[i].timer, base_ns + (uint64_t)(i * 37 % 50) * 10000);
    }
    for (int i = 0; i < COUNT; i += 10)
        loop_timer_stop(fixture->loop, &expiries[i].timer);
    run_until_equal(fixture->loop, &order, COUNT - COUNT / 10);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(expiries[i].place == 0, i % 10 == 0);
        for (int j = 0; j < i && i % 10 != 0; j++) {
            bool is_before = expiries[j].timer.deadline_ns <= expiries[i].timer.deadline_ns;

            if (j % 10 != 0)
                assert_int_equal(expiries[j].place < expiries[i].place, is_before);
        }
    }
    free(expiries);
}

static void test_timer_restarts_and_stops_another(void **state)
{
    struct fixture *fixture = *state;
    struct expiry expiries[2];
    uint64_t now_ns = os_now_ns();
    int order = 0;

    for (int i = 0; i < 2; i++) {
        expiries[i] = (struct expiry){.loop = fixture->loop, .order = &order};
        expiries[i].timer.context = &expiries[i];
        expiries[i].timer.expired = expire;
        loop_timer_start(fixture->loop, &expiries[i].timer, now_ns + SECOND_NS * 100);
    }
    expiries[1].stops = &expiries[0];
    loop_timer_start(fixture->loop, &expiries[0].timer, now_ns); /* both expired, the first in front */
    loop_timer_start(fixture->loop, &expiries[1].timer, now_ns - 1);
    run_until_equal(fixture->loop, &order, 1);
    run_quiet(fixture->loop);
    assert_int_equal(expiries[1].place, 1);
    assert_int_equal(expiries[0].place, 0);
}

static void test_run_once_keeps_its_limit(void **state)
{
    struct fixture *fixture = *state;
    uint64_t begin_ns = os_now_ns();

    run_quiet(fixture->loop);
    assert_int_equal(loop_run_once(fixture->loop, 0), 0);
    assert_int_equal(loop_run_once(fixture->loop, os_now_ns() + 3000000), 0);
    assert_true(os_now_ns() - begin_ns >= 3000000);
}

/* ---- posts ----------------------------------------------------------------------------------------------------- */

enum { POSTERS = 4, POSTS = 2000 };

struct post {
    struct loop_call call;
    struct poster *poster;
    int number;
};

struct poster {
    struct loop *loop;
    pthread_t thread;
    struct post posts[POSTS];
    int seen; /* the loop's thread: the number expected next */
    int *total;
    _Atomic(uint32_t) done; /* set by the loop's thread (release), waited for by the poster (acquire) */
};

static void post_run(struct loop_call *call)
{
    struct post *post = CONTAINER_OF(call, struct post, call);
    struct poster *poster = post->poster;

    ASSERT(post->number == poster->seen);
    poster->seen++;
    ++*poster->total;
    atomic_store_explicit(&poster->done, (uint32_t)poster->seen, memory_order_release);
    if (post->number % 8 == 7)
        os_futex_wake(&poster->done, 1, false);
}

/* Bursts of eight, then wait for the loop: it goes to sleep often, so lost wakes would show as a hang. */
static void *post_many(void *argument)
{
    struct poster *poster = argument;

    for (int i = 0; i < POSTS; i++) {
        poster->posts[i] = (struct post){.call.run = post_run, .poster = poster, .number = i};
        loop_post(poster->loop, &poster->posts[i].call);
        while (i % 8 == 7) {
            uint32_t done = atomic_load_explicit(&poster->done, memory_order_acquire);

            if (done == (uint32_t)i + 1)
                break;
            os_futex_wait(&poster->done, done, SECOND_NS * 30, false);
        }
    }
    return NULL;
}

static void test_posts_from_many_threads(void **state)
{
    struct fixture *fixture = *state;
    struct poster *posters = calloc(POSTERS, sizeof(*posters));
    int total = 0;

    for (int i = 0; i < POSTERS; i++) {
        posters[i].loop = fixture->loop;
        posters[i].total = &total;
        assert_int_equal(os_thread_start(&posters[i].thread, "poster", post_many, &posters[i]), 0);
    }
    run_until_equal(fixture->loop, &total, POSTERS * POSTS);
    for (int i = 0; i < POSTERS; i++) {
        pthread_join(posters[i].thread, NULL);
        assert_int_equal(posters[i].seen, POSTS);
    }
    free(posters);
}

static void finish(struct loop_call *call)
{
    struct post *post = CONTAINER_OF(call, struct post, call);
    struct fixture *fixture = (struct fixture *)(void *)post->poster;

    fixture->is_done = true;
}

static void *run_loop(void *argument)
{
    struct fixture *fixture = argument;

    loop_run_until(fixture->loop, &fixture->is_done);
    return NULL;
}

/* Created and given a watch here, owned by the thread that runs it. */
static void test_loop_runs_in_another_thread(void **state)
{
    struct fixture *fixture = *state;
    struct post post = {.call.run = finish, .poster = (struct poster *)(void *)fixture};
    struct counter counter;
    pthread_t thread;
    int fds[2];

    pair_create(fds);
    counter_init(&counter, fixture->loop, fds[0]);
    counter.stop_at = 5;
    assert_int_equal(loop_watch(fixture->loop, &counter.watch, EPOLLIN), 0);
    assert_int_equal(os_thread_start(&thread, "loop", run_loop, fixture), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    while (recv(fds[1], fds, 0, MSG_DONTWAIT | MSG_PEEK) > 0)
        ;
    usleep(20000);
    loop_post(fixture->loop, &post.call);
    pthread_join(thread, NULL);
    assert_int_equal(counter.calls, 5);
    pair_close(fds);
}

/* ---- pollers --------------------------------------------------------------------------------------------------- */

struct ring {
    struct loop_poller poller;
    struct loop_watch watch;
    struct loop *loop;
    _Atomic(uint32_t) filled;   /* by the other thread */
    _Atomic(uint32_t) is_armed; /* seq_cst with filled, as the loop's own posts */
    int taken, arms, disarms, rings;
};

static int ring_poll(struct loop_poller *poller)
{
    struct ring *ring = poller->context;
    int fresh = (int)atomic_load(&ring->filled) - ring->taken;

    ring->taken += fresh;
    return fresh;
}

static bool ring_arm(struct loop_poller *poller)
{
    struct ring *ring = poller->context;

    ring->arms++;
    atomic_store(&ring->is_armed, 1);
    return (int)atomic_load(&ring->filled) != ring->taken;
}

static void ring_disarm(struct loop_poller *poller)
{
    struct ring *ring = poller->context;

    ring->disarms++;
    atomic_store(&ring->is_armed, 0);
}

static void ring_ready(struct loop_watch *watch, uint32_t events)
{
    struct ring *ring = watch->context;
    uint64_t count;

    ASSERT((events & EPOLLIN) != 0);
    ring->rings += read(watch->fd, &count, sizeof(count)) == (ssize_t)sizeof(count);
}

static void *ring_fill(void *argument)
{
    struct ring *ring = argument;
    uint64_t one = 1;

    for (int i = 0; i < POSTS; i++) {
        while (i == POSTS - 1 && atomic_load(&ring->is_armed) == 0)
            usleep(50); /* the last finds the loop blocked, however late the loop's thread was */
        atomic_fetch_add(&ring->filled, 1);
        if (atomic_exchange(&ring->is_armed, 0) != 0)
            ASSERT(write(ring->watch.fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
        if (i % 16 == 0)
            usleep(50);
    }
    return NULL;
}

static void test_pollers_are_armed_before_a_block(void **state)
{
    struct fixture *fixture = *state;
    struct ring ring = {.poller = {.poll = ring_poll, .arm = ring_arm, .disarm = ring_disarm, .context = &ring},
                        .watch = {.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .ready = ring_ready, .context = &ring}};
    pthread_t thread;

    loop_poller_add(fixture->loop, &ring.poller);
    assert_int_equal(loop_watch(fixture->loop, &ring.watch, EPOLLIN), 0);
    assert_int_equal(os_thread_start(&thread, "filler", ring_fill, &ring), 0);
    run_until_equal(fixture->loop, &ring.taken, POSTS);
    pthread_join(thread, NULL);
    assert_true(ring.arms > 0 && ring.rings > 0);
    assert_int_equal(ring.arms, ring.disarms);
    loop_poller_remove(fixture->loop, &ring.poller);
    run_quiet(fixture->loop);
    assert_int_equal(ring.arms, ring.disarms);
    loop_unwatch(fixture->loop, &ring.watch);
    close(ring.watch.fd);
}

/* The adaptive spin finds what the look found before, and still blocks. */
static void test_spin_still_blocks(void **state)
{
    struct fixture *fixture = *state;
    struct poster *poster = calloc(1, sizeof(*poster));
    int total = 0;

    loop_spin_set(fixture->loop, 50000);
    poster->loop = fixture->loop;
    poster->total = &total;
    assert_int_equal(os_thread_start(&poster->thread, "poster", post_many, poster), 0);
    run_until_equal(fixture->loop, &total, POSTS);
    pthread_join(poster->thread, NULL);
    assert_int_equal(loop_run_once(fixture->loop, os_now_ns() + 3000000), 0);
    free(poster);
}

/* ---- creation -------------------------------------------------------------------------------------------------- */

static void test_create_checks_kind(void **state)
{
    struct fixture *fixture = *state;
    struct loop *loop = NULL;

    assert_int_equal(loop_create("kqueue", &loop), -EINVAL);
    assert_non_null(strstr(error_text(), "kqueue"));
    assert_null(loop);
    assert_string_equal(loop_kind(fixture->loop), fixture->kind);
    assert_int_equal(loop_create("auto", &loop), 0);
    loop_destroy(loop);
    loop_destroy(NULL);
}

#define TESTS_OF(kind) \
    TEST_OF(test_watch_is_level_triggered, kind), \
    TEST_OF(test_watch_edge_reports_arrivals, kind), \
    TEST_OF(test_watch_sees_what_came_before, kind), \
    TEST_OF(test_unwatch_inside_own_callback, kind), \
    TEST_OF(test_unwatch_other_inside_callback, kind), \
    TEST_OF(test_unwatch_releases_the_file, kind), \
    TEST_OF(test_rewatch_changes_events, kind), \
    TEST_OF(test_watch_reports_hangup, kind), \
    TEST_OF(test_watch_of_closed_descriptor_is_refused, kind), \
    TEST_OF(test_watch_many, kind), \
    TEST_OF(test_timers_expire_in_order, kind), \
    TEST_OF(test_timer_restarts_and_stops_another, kind), \
    TEST_OF(test_run_once_keeps_its_limit, kind), \
    TEST_OF(test_posts_from_many_threads, kind), \
    TEST_OF(test_loop_runs_in_another_thread, kind), \
    TEST_OF(test_pollers_are_armed_before_a_block, kind), \
    TEST_OF(test_spin_still_blocks, kind), \
    TEST_OF(test_create_checks_kind, kind)

int main(void)
{
    static const struct CMUnitTest epoll_tests[] = {TESTS_OF("epoll")};
    static const struct CMUnitTest uring_tests[] = {TESTS_OF("io_uring")};

    return run_both(epoll_tests, uring_tests, ARRAY_COUNT(epoll_tests));
}
