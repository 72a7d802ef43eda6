/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - what the tests of prefetch/ share.
 */
#ifndef TIERMESH_TESTS_UNIT_PREFETCH_CHECK_H
#define TIERMESH_TESTS_UNIT_PREFETCH_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "prefetch/predictor.h"

#endif
