/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer.h - dsm_read() and dsm_write(): copies in the calling thread that never raise a fault at the caller.
 */
#ifndef TIERMESH_RUNTIME_TRANSFER_H
#define TIERMESH_RUNTIME_TRANSFER_H

#include "runtime/request.h"

/* The range lies in the window. 0, -EIO (a page is lost), -EFAULT (the buffer), -EHOSTDOWN. */
int transfer_read(struct node *node, const void *address, size_t size_bytes, void *buffer) MUST_USE;
int transfer_write(struct node *node, void *address, size_t size_bytes, const void *buffer) MUST_USE;

/*
 * Ask for the pages of a range without waiting: rights (shared) and bytes in memory. A hint is refused when others are
 * busy with a page; without is_hint every page comes, though it may be taken away again.
 */
void transfer_ask(struct node *node, const void *address, size_t size_bytes, enum access access, bool is_hint);

/* true: every page of the range is here with the rights, so that a copy now would not wait. */
bool transfer_is_near(struct node *node, const void *address, size_t size_bytes, enum access access);

/* Have the page's bytes brought by touching it, in the kernel's copy: -EIO instead of SIGBUS. */
int transfer_touch(const void *address) MUST_USE;

#endif
