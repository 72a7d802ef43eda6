/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.c - limits that the program sets itself.
 *
 * The kernel counts our reserved addresses against a limit on address space, and the tables for them against one on
 * data; they are given back before it holds.
 */
#include "shim/calls.h"

long call_prlimit(pid_t process, unsigned which, const struct rlimit *new_limit, struct rlimit *old_limit)
{
    bool is_self = process == 0 || process == raw_call(SYS_getpid);

    if ((which == RLIMIT_AS || which == RLIMIT_DATA) && new_limit != NULL && new_limit->rlim_cur != RLIM_INFINITY &&
        is_self && calls_managed())
        hooks_limit(new_limit->rlim_cur);
    return raw_call(SYS_prlimit64, process, which, new_limit, old_limit);
}

/* ---- the program's side: each name has a second one for the same ------------------------------------------------- */

SHIM_EXPORT int setrlimit(__rlimit_resource_t which, const struct rlimit *limit)
{
    return (int)raw_result(call_prlimit(0, which, limit, NULL));
}

SHIM_EXPORT int setrlimit64(__rlimit_resource_t which, const struct rlimit64 *limit)
{
    return (int)raw_result(call_prlimit(0, which, (const struct rlimit *)limit, NULL));
}

SHIM_EXPORT int prlimit(pid_t process, enum __rlimit_resource which, const struct rlimit *new_limit,
                        struct rlimit *old_limit)
{
    return (int)raw_result(call_prlimit(process, which, new_limit, old_limit));
}

SHIM_EXPORT int prlimit64(pid_t process, enum __rlimit_resource which, const struct rlimit64 *new_limit,
                          struct rlimit64 *old_limit)
{
    return (int)raw_result(call_prlimit(process, which, (const struct rlimit *)new_limit, (struct rlimit *)old_limit));
}
