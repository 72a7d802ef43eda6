/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw.h - the raw references between two ranks of a job: round trips and copies without the product.
 *
 * Rank 1 serves with two threads on its processor, one blocked in recv(2) and one in a futex of shared memory; rank 0
 * asks from the thread that measures. A round trip is 64 bytes there and 4 KiB back.
 */
#ifndef TIERMESH_BENCH_RAW_H
#define TIERMESH_BENCH_RAW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RAW_REQUEST_BYTES 64
#define RAW_REPLY_BYTES   4096
#define RAW_TIMES_MAX     4096

/* Memory of both ranks that the product does not manage. */
struct raw_shared {
    _Alignas(64) _Atomic(uint32_t) requests; /* futex: counts requests; the server's answer carries the same number */
    _Alignas(64) _Atomic(uint32_t) replies;
    _Alignas(64) char request[RAW_REQUEST_BYTES];
    char reply[RAW_REPLY_BYTES];
    _Alignas(64) _Atomic(uint64_t) unlock_ns; /* for lock_handover.c: entry of the last unlock */
    _Atomic(int) unlocker;                    /* and the rank that did it */
    unsigned times_count[2];                  /* of each rank */
    double times_us[2][RAW_TIMES_MAX];
};

struct raw;

/* Rank 1: start serving and publish where. Rank 0: find it. Both call it after dsm_init(); threads inherit the
 * processor. */
struct raw *raw_open(int rank);
/* Rank 0 first. */
void raw_close(struct raw *raw);

struct raw_shared *raw_shared(struct raw *raw);

/* Rank 0: median of `count` round trips, us, each after a pause of `pause_ns`. */
double raw_round_trip(struct raw *raw, bool by_tcp, unsigned count, uint64_t pause_ns);

/* Rank 0: one request and `size_bytes` (at most 64 MiB) received into the buffer. */
void raw_tcp_copy(struct raw *raw, void *buffer, size_t size_bytes);

#endif
