/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.h - start one rank: its guard, here or on another machine through the launcher.
 */
#ifndef TIERMESH_TOOLS_LAUNCH_H
#define TIERMESH_TOOLS_LAUNCH_H

#include "tools/options.h"

#include <signal.h>
#include <sys/resource.h>

#define LAUNCH_KEY_BYTES     32
#define LAUNCH_ADDRESS_MAX   256
#define LAUNCH_VARIABLES_MAX 8
/* What the guard sets as LD_PRELOAD for the program alone. */
#define LAUNCH_PRELOAD_VARIABLE "DSM_LD_PRELOAD"
/* Set: the guard starts a program that gains privileges, too. */
#define LAUNCH_UNMANAGED_VARIABLE "DSM_UNMANAGED"

/* What all ranks of the job have in common. */
struct launch {
    const struct options *options;
    const char *agent_address;
    const char *directory; /* NULL: none */
    uint8_t key[LAUNCH_KEY_BYTES];
    char *const *variables; /* more of the ranks' environment, on this machine; LAUNCH_VARIABLES_MAX, the rest NULL */
    sigset_t mask;          /* what children start with */
    struct rlimit files;    /* likewise */
    bool is_output_piped;
    bool is_input_piped; /* rank 0's */
};

/* One started rank. Descriptors are ours and close-on-exec; -1: there is none. */
struct launched {
    int pid;
    int control; /* see guard.h */
    int output, error;
    int input;
};

/* 0, or -errno with a sentence. */
int launch_rank(const struct launch *launch, unsigned rank, struct launched *ret_launched) MUST_USE;

/* Pass a signal to the rank's program; SIGKILL ends the rank with all that it started. */
void launch_signal(const struct launched *launched, int signal_number);

/*
 * Where the agent listens: NULL when all ranks run here, else "tcp:ADDRESS:0", with --bind or this machine's address on
 * the way to the first host. 0, or -EINVAL with a sentence.
 */
int launch_agent_address(const struct options *options, char text[LAUNCH_ADDRESS_MAX], const char **ret_text) MUST_USE;

#endif
