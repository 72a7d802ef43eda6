/* SPDX-License-Identifier: Apache-2.0 */
/*
 * setup.h - what every benchmark needs around the measuring: arguments, processors, a node, an order of pages.
 */
#ifndef TIERMESH_BENCH_SETUP_H
#define TIERMESH_BENCH_SETUP_H

#include "tiermesh/dsm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MIB          ((size_t)1 << 20)
#define EXIT_SKIPPED 77

struct options {
    bool is_quick;         /* --quick: a smoke test of the program; its figures mean nothing */
    const char *json_path; /* --json FILE */
    const char *directory; /* --directory DIR: on the disk that holds the nvme tier */
    const char *transport; /* --transport NAME: the fabric the job runs on, for names and references */
    const char *spin_us;   /* --spin US: option spin_us of the nodes; "0": they block at once */
};

struct options options_parse(int argc, char **argv);

_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A call of the library must return 0. */
#define DSM(call) dsm_check(#call, (call))
void dsm_check(const char *what, int result);

/*
 * Starts this node with options "name=value", NULL last. Exits with 77 when the kernel refuses userfaultfd.
 * The shard runs on processor `cpu`, -1: on any.
 */
void node_start(int cpu, ...) __attribute__((sentinel));

/*
 * This process's rank in a job of two; the calling thread moves to the processor of that number. Exits with 77 where
 * there are fewer than two.
 */
int rank_of_two(void);

/* `size_bytes` with home on rank 1, which calls it first; the same pointer on both. */
void *area_of_rank_1(int rank, size_t size_bytes);

/* The calling thread on one processor. Threads inherit it. */
void cpu_pin(int cpu);

uint64_t now_ns(void);
void nap_ns(uint64_t time_ns);

/* Anonymous memory in 4 KiB pages or, where the kernel has them, huge ones; every page touched. */
void *memory_map(size_t size_bytes, bool is_huge);

/* 0 .. count-1 in a random order that is the same in every run; the caller frees it. */
uint32_t *order_make(uint32_t count);

#endif
