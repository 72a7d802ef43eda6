/* SPDX-License-Identifier: Apache-2.0 */
/*
 * without_verbs.c - the fabric as it is built where rdma-core is absent: RDMA is refused with a sentence, the rest
 * works.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "tests/fabric/world.h"

#include <errno.h>
#include <string.h>

static void test_refused_with_the_remedy(void **state)
{
    struct fabric_config config = {.nodes_count = 2};
    struct fabric *fabric = NULL;

    (void)state;
    assert_int_equal(fabric_verbs_open(&config, &fabric), -ENODEV);
    assert_null(fabric);
    assert_non_null(strstr(error_text(), "libibverbs-dev"));
}

static void test_tcp_works(void **state)
{
    static struct world world;

    (void)state;
    world_open(&world, "tcp", false, "epoll");
    world_connect_all(&world);
    world_send_sized(&world, 0, 1, PLANE_DATA, 10000);
    world_settle(&world);
    assert_string_equal(fabric_path(world.nodes[0].fabric, node_of(1), PLANE_DATA), "tcp");
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_with_the_remedy),
        cmocka_unit_test(test_tcp_works),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
