/* SPDX-License-Identifier: Apache-2.0 */
/*
 * error.h - the sentence that goes with the last error of this thread.
 *
 * error_set formats the sentence and returns `code` (a negative errno), so that a function can end with
 * `return error_set(-EINVAL, "...")`. The sentence names the thing, the cause and the remedy.
 * Thread-local; read by dsm_errmsg().
 */
#ifndef TIERMESH_BASE_ERROR_H
#define TIERMESH_BASE_ERROR_H

int error_set(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The last sentence of this thread; "" when none. Valid until the thread's next error. */
const char *error_text(void);

#endif
