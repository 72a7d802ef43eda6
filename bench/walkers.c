/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/walkers.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct walker {
    pthread_t thread;
    unsigned number;
    walker_run *run;
    const _Atomic(bool) *stop;
    uint64_t touched;
};

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void *walker_main(void *argument)
{
    struct walker *walker = argument;

    walker->touched = walker->run(walker->number, walker->stop);
    return NULL;
}

/* Pages a second of all threads. */
static double measure(unsigned count, walker_run *run, double time_s)
{
    struct timespec nap = {(time_t)time_s, (long)((time_s - (double)(time_t)time_s) * 1e9)};
    struct walker walkers[WALKERS_MAX];
    _Atomic(bool) stop = false;
    double start_s = now_s();
    uint64_t touched = 0;

    for (unsigned i = 0; i < count; i++) {
        walkers[i] = (struct walker){.number = i, .run = run, .stop = &stop};
        if (pthread_create(&walkers[i].thread, NULL, walker_main, &walkers[i]) != 0)
            exit(1);
    }
    nanosleep(&nap, NULL);
    atomic_store(&stop, true);
    for (unsigned i = 0; i < count; i++) {
        pthread_join(walkers[i].thread, NULL);
        touched += walkers[i].touched;
    }
    return (double)touched / (now_s() - start_s);
}

void walkers_answer(unsigned count, walker_run *run)
{
    char line[64];

    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        printf("%.2f\n", measure(count, run, strtod(line, NULL)));
        fflush(stdout);
    }
}
