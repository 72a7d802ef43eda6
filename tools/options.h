/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h - the command line of dsmrun: one table with help text.
 */
#ifndef TIERMESH_TOOLS_OPTIONS_H
#define TIERMESH_TOOLS_OPTIONS_H

#include "runtime/config.h"
#include "tools/hosts.h"

enum preload_mode {
    PRELOAD_AUTO, /* programs that are not nodes by themselves */
    PRELOAD_ON,
    PRELOAD_OFF,
};

struct options {
    unsigned nodes_count;
    struct hosts hosts;
    const char *launcher;
    const char *bind; /* NULL: chosen by the hosts */
    bool is_output_tagged;
    bool is_failure_fatal; /* --kill-on-failure */
    bool is_verbose;
    uint64_t timeout_ns; /* 0: none */
    enum preload_mode preload;
    bool is_preload_last;      /* behind other preload libraries */
    bool is_unmanaged_allowed; /* --unmanaged */
    const char *summary;       /* auto, on, off, or a file */
    uint64_t nvme_bytes;       /* of the nodes' options */
    char nvme_path[CONFIG_TEXT_MAX];
    char record[CONFIG_PATH_MAX]; /* "": no trace is written */
    unsigned settings_count;
    char **settings; /* "NAME=VALUE": for every node's environment */
    char **program;  /* ends with NULL */
};

/*
 * options_parse - read the command line. True: run. False: *ret_exit is the exit status, and what there is to say was
 * said (help and version on standard output, errors on standard error).
 */
bool options_parse(int argc, char **argv, struct options *ret_options, int *ret_exit) MUST_USE;
void options_free(struct options *options);

#endif
