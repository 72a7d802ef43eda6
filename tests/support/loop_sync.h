/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop_sync.h - a loop for unit tests: transfers wait until loop_sync_run() does them, with faults on demand.
 *
 * It defines loop_io_start() and loop_buffers() itself, so a test links this or the runtime's loop, never both.
 */
#ifndef TIERMESH_TESTS_SUPPORT_LOOP_SYNC_H
#define TIERMESH_TESTS_SUPPORT_LOOP_SYNC_H

#include "base/loop.h"

struct loop *loop_sync_create(void);
void loop_sync_destroy(struct loop *loop); /* no transfer may wait */

/* Does what waits, and what its callbacks start; returns how many transfers were done. */
unsigned loop_sync_run(struct loop *loop);

/* Faults. 0 switches a fault off. */
void loop_sync_limit(struct loop *loop, uint32_t size_bytes);             /* no transfer moves more than this */
void loop_sync_interrupt(struct loop *loop, unsigned count);              /* the next ones end with -EINTR */
void loop_sync_fail(struct loop *loop, uint64_t offset_bytes, int error); /* those that touch this byte */
void loop_sync_buffers_result(struct loop *loop, int result);             /* of loop_buffers() */

#endif
