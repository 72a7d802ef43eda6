/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_greet.h - greetings in the private data of rdma_cm, which gives a request 56 bytes, 8 fewer than a HELLO has.
 *
 * The WELCOME travels whole, in the reply or the rejection. Private data arrives padded: longer is no fault.
 */
#ifndef TIERMESH_FABRIC_VERBS_GREET_H
#define TIERMESH_FABRIC_VERBS_GREET_H

#include "fabric/greeting.h"

#define VERBS_HELLO_BYTES 56

void verbs_hello_encode(const struct greeting *hello, uint8_t bytes[VERBS_HELLO_BYTES]);

/* 0, or -EBADMSG when it is no HELLO at all. Values are not judged. */
int verbs_hello_decode(const void *bytes, size_t size_bytes, struct greeting *ret_hello) MUST_USE;

/* 0, or -EBADMSG when it is no WELCOME. */
int verbs_welcome_decode(const void *bytes, size_t size_bytes, struct greeting *ret_welcome) MUST_USE;

#endif
