/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assert.h - checks for our own bugs, on in every build.
 *
 * ASSERT says what must hold if our code is right. It never sees what a peer, a file or a user said:
 * those are checked and refused with an error. Conditions have no side effects.
 */
#ifndef TIERMESH_BASE_ASSERT_H
#define TIERMESH_BASE_ASSERT_H

#define BUILD_ASSERT(condition) _Static_assert(condition, #condition)

#define ASSERT(condition) \
    (__builtin_expect(!!(condition), 1) ? (void)0 : assert_failed(#condition, __FILE__, __LINE__))

/* A place that is never reached; `what` says what would have gone wrong. */
#define NEVER(what) assert_failed(what, __FILE__, __LINE__)

/* Prints the condition and its place with write(2), then aborts. Callable in any state. */
_Noreturn void assert_failed(const char *condition, const char *file, int line);

#endif
