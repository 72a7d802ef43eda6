/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dsm_plain.c - the part of <tiermesh/dsm.h> that the demo uses, over ordinary shared memory of forked processes.
 *
 * For tests of programs, not of the runtime: DSM_SIZE nodes (1 when unset), every page in DDR, no tiers, no messages.
 * A node that dies takes the others along.
 */
#include <tiermesh/dsm.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WINDOW_BYTES ((size_t)16 << 30)
#define NAMES_MAX    16

struct plain_job {
    pthread_barrier_t barrier;
    uint64_t used_bytes;
    struct {
        char name[DSM_NAME_MAX + 1];
        void *memory;
    } names[NAMES_MAX];
    pthread_mutex_t names_mutex;
    pthread_cond_t names_cond;
};

static struct {
    struct plain_job *job;
    int node, nodes_count;
    pid_t children[DSM_NODES_MAX];
} plain;

static int job_create(void)
{
    pthread_mutexattr_t mutex;
    pthread_condattr_t cond;
    pthread_barrierattr_t barrier;

    plain.job = mmap(NULL, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (plain.job == MAP_FAILED)
        return -ENOMEM;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&plain.job->names_mutex, &mutex);
    pthread_condattr_init(&cond);
    pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&plain.job->names_cond, &cond);
    pthread_barrierattr_init(&barrier);
    pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&plain.job->barrier, &barrier, (unsigned)plain.nodes_count);
    plain.job->used_bytes = 2u << 20;
    return 0;
}

static void child_died(int signal_number)
{
    int status = 0;

    (void)signal_number;
    while (waitpid(-1, &status, WNOHANG) > 0)
        if (status != 0)
            _exit(EXIT_FAILURE);
}

int dsm_init(const struct dsm_config *config)
{
    const char *size = getenv("DSM_SIZE");
    int result;

    (void)config;
    if (plain.job != NULL)
        return -EALREADY;
    plain.nodes_count = size != NULL ? atoi(size) : 1;
    if (plain.nodes_count < 1 || plain.nodes_count > DSM_NODES_MAX)
        return -EINVAL;
    result = job_create();
    if (result != 0)
        return result;
    signal(SIGCHLD, child_died);
    for (int node = 1; node < plain.nodes_count; node++) {
        plain.children[node] = fork();
        if (plain.children[node] < 0)
            return -EAGAIN;
        if (plain.children[node] == 0) {
            signal(SIGCHLD, SIG_DFL);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            plain.node = node;
            return 0;
        }
    }
    signal(SIGCHLD, SIG_DFL);
    return 0;
}

int dsm_finalize(void)
{
    int result = 0;
    int status;

    dsm_barrier();
    for (int node = 1; plain.node == 0 && node < plain.nodes_count; node++)
        if (waitpid(plain.children[node], &status, 0) < 0 || status != 0)
            result = -EHOSTDOWN;
    munmap(plain.job, WINDOW_BYTES);
    plain.job = NULL;
    return result;
}

int dsm_node_id(void)
{
    return plain.node;
}

int dsm_node_count(void)
{
    return plain.nodes_count;
}

const char *dsm_errmsg(void)
{
    return "";
}

int dsm_malloc_with(size_t size_bytes, const struct dsm_attributes *attributes, void **ret_memory)
{
    uint64_t at;
    size_t rounded = (size_bytes + DSM_PAGE_BYTES - 1) / DSM_PAGE_BYTES * DSM_PAGE_BYTES;

    (void)attributes;
    if (size_bytes == 0)
        return -EINVAL;
    at = __atomic_fetch_add(&plain.job->used_bytes, rounded, __ATOMIC_SEQ_CST);
    if (at + rounded > WINDOW_BYTES)
        return -ENOMEM;
    *ret_memory = (char *)plain.job + at;
    return 0;
}

int dsm_malloc(size_t size_bytes, void **ret_memory)
{
    return dsm_malloc_with(size_bytes, NULL, ret_memory);
}

int dsm_calloc(size_t count, size_t size_bytes, void **ret_memory)
{
    size_t bytes;

    return __builtin_mul_overflow(count, size_bytes, &bytes) ? -EOVERFLOW : dsm_malloc(bytes, ret_memory);
}

int dsm_barrier(void)
{
    pthread_barrier_wait(&plain.job->barrier);
    return 0;
}

int dsm_atomic_fetch_add(uint64_t *address, uint64_t value, uint64_t *ret_old)
{
    uint64_t old = __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);

    if (ret_old != NULL)
        *ret_old = old;
    return 0;
}

int dsm_mutex_lock(dsm_mutex *mutex)
{
    while (__atomic_exchange_n(&mutex->internal[0], 1, __ATOMIC_ACQUIRE) != 0)
        usleep(10);
    return 0;
}

int dsm_mutex_unlock(dsm_mutex *mutex)
{
    __atomic_store_n(&mutex->internal[0], 0, __ATOMIC_RELEASE);
    return 0;
}

int dsm_root_set(const char *name, void *memory)
{
    int result = -ENOSPC;

    pthread_mutex_lock(&plain.job->names_mutex);
    for (int i = 0; i < NAMES_MAX && result != 0; i++) {
        if (plain.job->names[i].memory != NULL && strcmp(plain.job->names[i].name, name) != 0)
            continue;
        strncpy(plain.job->names[i].name, name, DSM_NAME_MAX);
        plain.job->names[i].memory = memory;
        result = 0;
    }
    pthread_cond_broadcast(&plain.job->names_cond);
    pthread_mutex_unlock(&plain.job->names_mutex);
    return result;
}

/* Waits without a limit. */
int dsm_root_get(const char *name, uint64_t timeout_ns, void **ret_memory)
{
    void *found = NULL;

    (void)timeout_ns;
    pthread_mutex_lock(&plain.job->names_mutex);
    for (;;) {
        for (int i = 0; i < NAMES_MAX; i++)
            if (strcmp(plain.job->names[i].name, name) == 0)
                found = plain.job->names[i].memory;
        if (found != NULL)
            break;
        pthread_cond_wait(&plain.job->names_cond, &plain.job->names_mutex);
    }
    pthread_mutex_unlock(&plain.job->names_mutex);
    *ret_memory = found;
    return 0;
}

/* No tiers here: one fault of another node is told, so that a report has what it asks for. */
int dsm_stats(struct dsm_stats *ret_stats, size_t size_bytes)
{
    struct dsm_stats stats = {.members = (1u << plain.nodes_count) - 1};

    stats.faults[DSM_FROM_REMOTE].count = 1;
    memcpy(ret_stats, &stats, size_bytes < sizeof(stats) ? size_bytes : sizeof(stats));
    return 0;
}

const char *dsm_tier_name(enum dsm_tier tier)
{
    static const char *const names[DSM_TIERS] = {"ddr", "cxl (plain)", "zmem", "nvme"};

    return (unsigned)tier < DSM_TIERS ? names[tier] : "?";
}

const char *dsm_source_name(enum dsm_source source)
{
    static const char *const names[DSM_SOURCES] = {"zero", "ddr", "cxl", "zmem", "nvme", "remote", "upgrade"};

    return (unsigned)source < DSM_SOURCES ? names[source] : "?";
}
