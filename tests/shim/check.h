/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - for programs that know nothing of Tiermesh: CHECK, and whether an address is in the managed range.
 */
#ifndef TIERMESH_TESTS_SHIM_CHECK_H
#define TIERMESH_TESTS_SHIM_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Prints by one write(2), so that it works when the heap does not. */
void check_failed(const char *condition, const char *file, int line);

#define CHECK(condition) ((condition) ? (void)0 : check_failed(#condition, __FILE__, __LINE__))

/* The test is run with EXPECT_MANAGED in the environment: the library is there and active. */
bool expect_managed(void);

/* In the range that the library reserved. False for every address when it is not there. */
bool is_managed(const void *address);

/* Agrees with is_managed() where the library is active, and holds for everything else. */
#define CHECK_MANAGED(address)     CHECK(!expect_managed() || is_managed(address))
#define CHECK_NOT_MANAGED(address) CHECK(!is_managed(address))

/* The test is run with EXPECT_EVICTIONS: the budget is so small that memory must be absent. */
bool expect_evictions(void);

/* How many of the whole pages in these bytes are not in memory. */
size_t absent_pages(const void *memory, size_t size);

#endif
