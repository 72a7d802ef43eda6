/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_store.c - the shared NVMe store and the accounts, as dsmrun keeps them. Run on dsmrun's thread.
 *
 * The broker maps no account for good: it reads figures by pread(2), and takes an account apart when the kernel lets it
 * seal the account's memory against writing, which is exactly when no process has it mapped. So slots never go to
 * others while a process that lost its socket (a daemon closes all descriptors) still uses them.
 */
#include "runtime/broker_store.h"
#include "base/error.h"
#include "base/log.h"
#include "mmu/mmu.h"
#include "tiers/nvme_file.h"
#include "tiers/shared_slots.h"
#include "tiers/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

#define READ_TRIES 4

int broker_userfaultfd_check(void)
{
    const struct mmu_switches switches = {.no_continue_wp = true};
    struct mmu_features features;

    return mmu_features_probe(&switches, &features);
}

/* A memfd of that size for good, so that nobody can cut it off under who maps it. */
static int memory_open(const char *name, size_t size_bytes, int *ret_fd)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL) /* before 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)size_bytes) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
        int error = -errno;

        close(fd);
        return error;
    }
    *ret_fd = fd;
    return 0;
}

/* ---- the store ------------------------------------------------------------------------------------------------ */

static int table_open(struct store *store, uint32_t count)
{
    size_t size_bytes = slot_table_bytes(store->capacity);
    void *memory;
    int error = memory_open("tiermesh-slots", size_bytes, &store->table_fd);

    if (error != 0) {
        errno = -error;
        return error_set(error, "memory for the slots of the job's NVMe store: %m");
    }
    memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, store->table_fd, 0);
    if (memory == MAP_FAILED) {
        error = error_set(-errno, "memory for the slots of the job's NVMe store: %m");
        close(store->table_fd);
        return error;
    }
    store->table = memory;
    slot_table_init(store->table, store->capacity, count);
    return 0;
}

int store_open(struct store *store, const struct broker_store *wanted)
{
    uint64_t count = wanted->size_bytes / PAGE_BYTES;
    int error;

    *store = (struct store){.fd = -1, .table_fd = -1};
    if (wanted->size_bytes == 0)
        return 0;
    if (count == 0 || count > SLOTS_MAX)
        return error_set(-EINVAL, "NVMe store of %llu bytes: the size must be at least 4096 bytes and below 16 TiB",
                         (unsigned long long)wanted->size_bytes);
    store->size_bytes = count * PAGE_BYTES;
    store->capacity = count * STORE_GROWTH < SLOTS_MAX ? (uint32_t)count * STORE_GROWTH : SLOTS_MAX;
    error = nvme_file_open(wanted->path, store->size_bytes, &store->fd, &store->is_device);
    if (error != 0)
        return error;
    snprintf(store->where, sizeof(store->where), "%s%s", store->is_device ? "" : "the job's file in ", wanted->path);
    error = table_open(store, (uint32_t)count);
    if (error != 0)
        close(store->fd);
    return error;
}

void store_close(struct store *store)
{
    if (store->table == NULL)
        return;
    munmap(store->table, slot_table_bytes(store->capacity));
    close(store->table_fd);
    close(store->fd);
}

int store_resize(struct store *store, uint64_t size_bytes)
{
    uint64_t count = size_bytes / PAGE_BYTES;
    int error;

    if (store->table == NULL)
        return error_set(-EOPNOTSUPP, "the job has no NVMe store; start it with --nvme");
    if (count == 0 || count > store->capacity)
        return error_set(-EINVAL, "the job's NVMe store can have 4K to %llu MiB (%u times what it started with)",
                         (unsigned long long)((uint64_t)store->capacity * PAGE_BYTES >> 20), STORE_GROWTH);
    size_bytes = count * PAGE_BYTES;
    if (size_bytes > store->size_bytes) {
        error = nvme_file_resize(store->where, store->fd, store->is_device, store->size_bytes, size_bytes);
        if (error != 0)
            return error;
        store->size_bytes = size_bytes;
    }
    slot_table_resize(store->table, (uint32_t)count);
    (void)store_trim(store);
    return 0;
}

bool store_trim(struct store *store)
{
    uint32_t count, high;
    uint64_t size_bytes;

    if (store->table == NULL)
        return true;
    count = atomic_load(&store->table->count);
    if (count == 0 || count > store->capacity || store->size_bytes <= count * PAGE_BYTES)
        return true;
    high = slot_table_high(store->table, store->capacity);
    size_bytes = (high > count ? high : count) * PAGE_BYTES;
    if (size_bytes < store->size_bytes &&
        nvme_file_resize(store->where, store->fd, store->is_device, store->size_bytes, size_bytes) == 0)
        store->size_bytes = size_bytes;
    return high <= count;
}

uint32_t store_used(const struct store *store)
{
    return store->table == NULL ? 0 : slot_table_recount(store->table, store->capacity);
}

/* ---- accounts ------------------------------------------------------------------------------------------------- */

int account_open(const struct store *store, uint32_t id, int *ret_fd)
{
    size_t size_bytes = account_bytes(store->capacity);
    void *memory;
    int fd = -1;
    int error = memory_open("tiermesh-account", size_bytes, &fd);

    if (error != 0)
        return error;
    memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        error = -errno;
        close(fd);
        return error;
    }
    slot_account_init((void *)((char *)memory + ACCOUNT_SLOTS_OFFSET), store->capacity, id);
    munmap(memory, size_bytes);
    *ret_fd = fd;
    return 0;
}

static bool read_at(int fd, void *memory, size_t size_bytes, size_t offset_bytes)
{
    return pread(fd, memory, size_bytes, (off_t)offset_bytes) == (ssize_t)size_bytes;
}

void account_read(const struct store *store, int fd, struct broker_process *process)
{
    uint32_t state = 0, held = 0;

    memset(&process->stats, 0, sizeof(process->stats));
    for (int i = 0; i < READ_TRIES; i++) {
        uint32_t before = 0, after = 0;

        if (!read_at(fd, &before, sizeof(before), offsetof(struct account, turn)) || before == 0 ||
            !read_at(fd, &process->stats, sizeof(process->stats),
                     offsetof(struct account, copies) + before % 2 * sizeof(process->stats)) ||
            !read_at(fd, &after, sizeof(after), offsetof(struct account, turn)) || before == after)
            break;
    }
    (void)read_at(fd, &state, sizeof(state), offsetof(struct account, state));
    process->state = state <= ACCOUNT_FINISHED ? (enum account_state)state : ACCOUNT_STARTING;
    (void)read_at(fd, &held, sizeof(held), ACCOUNT_SLOTS_OFFSET + offsetof(struct slot_account, held_count));
    process->slots_held = held <= store->capacity ? held : 0;
}

bool account_is_unused(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0;
}

bool account_release(struct store *store, int fd, uint32_t id)
{
    size_t size_bytes = account_bytes(store->capacity);
    bool is_certain = true;
    void *memory;

    if (store->table == NULL)
        return true;
    memory = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (memory == MAP_FAILED)
        return false;
    slot_account_release(store->table, (void *)((char *)memory + ACCOUNT_SLOTS_OFFSET), store->capacity, id,
                         &is_certain);
    munmap(memory, size_bytes);
    if (!is_certain)
        slot_table_recount(store->table, store->capacity);
    return true;
}
