/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - writes the touches that a pager sees to a file, as a page trace (base/pt1.h).
 *
 * A record is a fault: its page, whether it was a store, and as the gap the nanoseconds that the program ran since the
 * fault before had been served. The page is that of the address (address >> 12). There is one instruction, 0, and no
 * filter (0 pages). The file is a row of parts, each of them whole, and becomes one trace when it is closed.
 */
#ifndef TIERMESH_RUNTIME_RECORD_H
#define TIERMESH_RUNTIME_RECORD_H

#include "base/types.h"

struct record;

/*
 * record_create - nothing is written, and nothing opened, before there is something to write.
 * is_shared: more processes were told the same path. The first that writes has it, others have "PATH.PID"; else what is
 * there is replaced. A path is at most RECORD_PATH_MAX - 1 long. 0, or -ENOMEM or -ENAMETOOLONG with a sentence.
 */
#define RECORD_PATH_MAX 1024
int record_create(const char *path, bool is_shared, struct record **ret_record) MUST_USE;
/* Opens the file now, to know that it can be. 0, or what the file system says, with a sentence. */
int record_open(struct record *record) MUST_USE;

/*
 * A fault of the page with this number, at start_ns, which is served at end_ns (os_now_ns()). Costs no system call but
 * for one fault in RECORD_PART. When the file cannot be written any more, one line is logged and nothing is recorded
 * from then on; what the file has stays.
 */
#define RECORD_PART 8192u
void record_touch(struct record *record, uint64_t page, bool is_store, uint64_t start_ns, uint64_t end_ns);
/* What is held goes to the file, but for the last seven touches at most. */
void record_flush(struct record *record);
/* The same, ten times a second at most. */
void record_tick(struct record *record, uint64_t now_ns);
/* In a forked child: what is held is the parent's; the child writes "PATH.PID". */
void record_forked(struct record *record);
/* All goes to the file, and its parts become one. Any thread; nobody else may use it any more. NULL is allowed. */
void record_close(struct record *record);

#endif
