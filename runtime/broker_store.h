/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_store.h - the broker's side of the shared NVMe store and of accounts. Private to runtime/broker_*.c.
 */
#ifndef TIERMESH_RUNTIME_BROKER_STORE_H
#define TIERMESH_RUNTIME_BROKER_STORE_H

#include "runtime/broker_wire.h"

#define STORE_GROWTH 4u /* the store can grow to this many times its first size */

struct slot_table;

struct store {
    int fd; /* -1: the job has none */
    bool is_device;
    uint64_t size_bytes;      /* of the file */
    uint32_t capacity;        /* 0: the job has none */
    struct slot_table *table; /* NULL: the job has none */
    int table_fd;
    char where[BROKER_WHERE_MAX];
};

/* Errors as tier_nvme_open(). */
int store_open(struct store *store, const struct broker_store *wanted) MUST_USE;
void store_close(struct store *store);

/*
 * Another number of slots. Growing reserves room first. Shrinking gives room back to the disk when nothing above lies
 * there any more: store_trim() does so, when it can. 0, -EINVAL, -ENOSPC, -EOPNOTSUPP with a sentence.
 */
int store_resize(struct store *store, uint64_t size_bytes) MUST_USE;
bool store_trim(struct store *store); /* true: nothing is left to give back */

uint32_t store_used(const struct store *store); /* slots, counted anew */

/* A fresh account in a sealed memfd. -errno. */
int account_open(const struct store *store, uint32_t id, int *ret_fd) MUST_USE;
/*
 * The last figures of an account and how many slots it holds; any time. The process may be writing there: what comes is
 * checked by the caller, who prints it.
 */
void account_read(const struct store *store, int fd, struct broker_process *process);
/*
 * No address space has it mapped any more: the process ended or executed another program. A process that merely closed
 * its socket still uses its slots. Once true, nobody can write there any more.
 */
bool account_is_unused(int fd);
/* Gives back what such an account holds. False: no memory for that now, try again. */
bool account_release(struct store *store, int fd, uint32_t id) MUST_USE;

#endif
