/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_verbs_choose.c - which RDMA device serves an address, from lists of devices that this host does not have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "fabric/verbs_choose.h"

#include <errno.h>
#include <string.h>

static const uint8_t address[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = 1, [14] = 0, [15] = 7};
static const uint8_t other[16] = {[10] = 0xff, [11] = 0xff, [12] = 192, [13] = 168, [14] = 0, [15] = 7};

static struct verbs_candidate devices[3];

static struct verbs_port *port_add(struct verbs_candidate *device, bool is_active)
{
    struct verbs_port *port = &device->ports[device->ports_count++];

    port->number = (uint8_t)device->ports_count;
    port->is_active = is_active;
    port->is_ethernet = true;
    port->mtu_bytes = 1024;
    return port;
}

static void gid_add(struct verbs_port *port, const uint8_t raw[16], uint16_t index, uint8_t version)
{
    struct verbs_gid *gid = &port->gids[port->gids_count++];

    memcpy(gid->raw, raw, 16);
    gid->index = index;
    gid->version = version;
}

/* Three devices; the address belongs to the second port of the second one, behind GIDs of another address. */
static int set_up(void **state)
{
    struct verbs_port *port;

    (void)state;
    memset(devices, 0, sizeof(devices));
    strcpy(devices[0].name, "mlx5_0");
    gid_add(port_add(&devices[0], true), other, 0, 2);
    strcpy(devices[1].name, "mlx5_1");
    gid_add(port_add(&devices[1], true), other, 0, 2);
    port = port_add(&devices[1], true);
    port->mtu_bytes = 4096;
    gid_add(port, other, 0, 2);
    gid_add(port, address, 4, 1);
    gid_add(port, address, 5, 2);
    gid_add(port, address, 6, 1);
    strcpy(devices[2].name, "rxe0");
    gid_add(port_add(&devices[2], true), other, 0, 2);
    return 0;
}

static int choose(unsigned count, const char *bound, struct verbs_choice *ret_choice)
{
    return verbs_choose(devices, count, "10.1.0.7", address, bound, ret_choice);
}

static void test_the_one_with_the_address_serves(void **state)
{
    struct verbs_choice choice;

    (void)state;
    assert_int_equal(choose(3, "mlx5_1", &choice), 0);
    assert_int_equal(choice.candidate, 1);
    assert_int_equal(choice.port, 2);
    assert_int_equal(choice.gid_index, 5);
    assert_int_equal(choice.roce_version, 2);
    assert_int_equal(choice.mtu_bytes, 4096);
}

static void test_old_roce_serves_when_there_is_no_other(void **state)
{
    struct verbs_choice choice;

    (void)state;
    devices[1].ports[1].gids[2].version = 1;
    assert_int_equal(choose(3, "mlx5_1", &choice), 0);
    assert_int_equal(choice.gid_index, 4);
    assert_int_equal(choice.roce_version, 1);
}

static void test_infiniband_needs_no_gid_of_the_address(void **state)
{
    struct verbs_choice choice;

    (void)state;
    devices[0].ports[0].is_ethernet = false;
    assert_int_equal(choose(3, "mlx5_0", &choice), 0);
    assert_int_equal(choice.candidate, 0);
    assert_int_equal(choice.roce_version, 0);
}

static void test_no_device(void **state)
{
    struct verbs_choice choice;

    (void)state;
    assert_int_equal(choose(0, "", &choice), -ENODEV);
    assert_non_null(strstr(error_text(), "no RDMA device"));
}

static void test_address_of_no_device_names_those_there_are(void **state)
{
    struct verbs_choice choice;

    (void)state;
    assert_int_equal(choose(3, "", &choice), -ENODEV);
    assert_non_null(strstr(error_text(), "10.1.0.7"));
    assert_non_null(strstr(error_text(), "mlx5_0, mlx5_1, rxe0"));
}

static void test_device_that_cannot_be_opened_is_named_with_its_error(void **state)
{
    struct verbs_choice choice;

    (void)state;
    devices[1].open_error = EACCES;
    assert_int_equal(choose(3, "", &choice), -ENODEV); /* rdma_cm cannot open it either */
    assert_non_null(strstr(error_text(), "mlx5_1 (cannot be opened: Permission denied)"));
    assert_int_equal(choose(3, "mlx5_1", &choice), -EACCES);
    assert_non_null(strstr(error_text(), "Permission denied"));
}

/* rdma-core#1060: one device that refuses must not spoil the others. */
static void test_a_refusing_device_does_not_spoil_the_others(void **state)
{
    struct verbs_choice choice;

    (void)state;
    devices[0].open_error = ENODEV;
    devices[2].open_error = EACCES;
    assert_int_equal(choose(3, "mlx5_1", &choice), 0);
    assert_int_equal(choice.candidate, 1);
}

static void test_port_that_is_down(void **state)
{
    struct verbs_choice choice;

    (void)state;
    devices[1].ports[1].is_active = false;
    assert_int_equal(choose(3, "mlx5_1", &choice), -ENETDOWN);
    assert_non_null(strstr(error_text(), "port 2 of mlx5_1"));
}

static void test_no_gid(void **state)
{
    struct verbs_choice choice;

    (void)state;
    assert_int_equal(choose(3, "rxe0", &choice), -ENODEV);
    assert_non_null(strstr(error_text(), "no port of rxe0 has a GID"));
}

static void test_device_that_vanished_meanwhile(void **state)
{
    struct verbs_choice choice;

    (void)state;
    assert_int_equal(choose(3, "mlx5_9", &choice), -ENODEV);
    assert_non_null(strstr(error_text(), "mlx5_9"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup(name, set_up)
        TEST(test_the_one_with_the_address_serves),
        TEST(test_old_roce_serves_when_there_is_no_other),
        TEST(test_infiniband_needs_no_gid_of_the_address),
        TEST(test_no_device),
        TEST(test_address_of_no_device_names_those_there_are),
        TEST(test_device_that_cannot_be_opened_is_named_with_its_error),
        TEST(test_a_refusing_device_does_not_spoil_the_others),
        TEST(test_port_that_is_down),
        TEST(test_no_gid),
        TEST(test_device_that_vanished_meanwhile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
