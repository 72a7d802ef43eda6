/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.h - every option of a node: one table with name, default, unit and help.
 *
 * Precedence: dsm_config_set() > environment DSM_<NAME> (dots become underscores) > default.
 */
#ifndef TIERMESH_RUNTIME_CONFIG_H
#define TIERMESH_RUNTIME_CONFIG_H

#include "base/types.h"

#define CONFIG_TEXT_MAX 256
#define CONFIG_ZMEM_PERCENT_MAX 90 /* pages must lie somewhere to be used */
#define CONFIG_PATH_MAX 1024

struct dsm_config {
    uint64_t ddr_bytes;
    uint64_t cxl_bytes;          /* 0: no such tier */
    char cxl_source[CONFIG_TEXT_MAX]; /* node, emulated, or a path; "": nodes if there are any, else emulated */
    char nodes[CONFIG_TEXT_MAX]; /* "2=cxl,3=hbm": what the machine's memory is; "": found out */
    uint64_t zmem_bytes;         /* beside DDR; 0: no such tier, or a share of DDR */
    uint64_t zmem_percent;       /* of the DDR budget, taken out of it; 0: not so */
    char zmem_codec[8];          /* lz4, zstd */
    uint64_t nvme_bytes;         /* 0: no such tier */
    char nvme_path[CONFIG_TEXT_MAX];
    char transport[16];          /* auto, shm, tcp, verbs, pool */
    char pool[CONFIG_TEXT_MAX];  /* transport pool: what the hosts share */
    char loop[16];               /* auto, io_uring, epoll */
    char bind[64]; /* numeric address */
    char log[16];
    char policy[8];              /* fifo, arms */
    uint64_t window_shared_bytes;
    uint64_t window_private_bytes;
    uint64_t window_base;        /* 0: agreed with the other nodes */
    uint64_t join_timeout_ns;
    uint64_t session_timeout_ns;
    uint64_t heartbeat_ns;
    uint64_t suspect_ns;
    uint64_t hold_ns;
    uint64_t spin_ns;
    uint64_t requests_max;
    uint64_t prefetch_pages;
    uint64_t prefetch_predictors; /* 1 << enum prefetch_predictor each */
    uint64_t fault_around_pages;
    uint64_t cpu;                /* the shard's processor + 1; 0: any */
    uint64_t preload_malloc_threshold_bytes;
    uint64_t preload_mmap_threshold_bytes;
    uint64_t preload_spin_ns;
    bool preload_affine;         /* the shard beside the one thread that faults */
    char record[CONFIG_PATH_MAX]; /* "": no trace is written */
    bool follow;                 /* budgets go down with the memory cgroup and under pressure */
    bool move, poison, wp_async; /* kernel features that may be used */
    uint64_t faulty_seed;        /* 0: none; else faults are injected into the fabric */
    uint64_t test_disk_errors;   /* transfers of the nvme tier that fail, from the first on */
    uint64_t test_zmem_errors;   /* pages that come out of zmem damaged, from the first on */
};

/* Defaults, then the environment. 0, or -EINVAL with a sentence that names the variable. */
int config_init(struct dsm_config *config) MUST_USE;

/* 0, -ENOENT (the sentence suggests a name), -EINVAL. */
int config_set(struct dsm_config *config, const char *name, const char *value) MUST_USE;

/* Checks that need the whole: budgets against the machine. 0, -ENOMEM, -EINVAL. */
int config_check(const struct dsm_config *config) MUST_USE;

/* What option cxl takes of this machine's memory: nothing where it is a device. */
uint64_t config_cxl_memory_bytes(const struct dsm_config *config);

/* The most that zmem can take when DDR has so much; 0: no such tier. */
uint64_t config_zmem_bytes(const struct dsm_config *config, uint64_t ddr_bytes);

/* Calls visit for each option, in order: for docs and `--help`. */
void config_visit(void (*visit)(void *context, const char *name, const char *fallback, const char *help),
                  void *context);

#endif
