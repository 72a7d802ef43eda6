/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pins.h - dsm_pin(): pages kept in memory with their rights while a device transfers, at most until a deadline.
 */
#ifndef TIERMESH_RUNTIME_PINS_H
#define TIERMESH_RUNTIME_PINS_H

#include "runtime/request.h"

#define PINS_MAX 1024 /* ranges at a time */
#define PIN_NS_DEFAULT 10000000000U
#define PIN_NS_MAX 60000000000U

int pins_create(struct pins **ret_pins) MUST_USE;
void pins_destroy(struct pins *pins);

/* Application threads; errors as dsm.h says. */
int pins_take(struct node *node, void *address, size_t size_bytes, bool writable, uint64_t timeout_ns) MUST_USE;
int pins_put(struct node *node, void *address, size_t size_bytes) MUST_USE;

/* The shard: ends pins whose time is over. Returns the next deadline (UINT64_MAX: none). */
uint64_t pins_expire(struct node *node, uint64_t now_ns);

#endif
