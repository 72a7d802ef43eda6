/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_machine.c - what is said of a machine's memory, over pictures of machines, and the option that overrules it.
 */
#include "base/error.h"
#include "runtime/cxl.h"
#include "runtime/machine.h"
#include "tests/unit/tiers/machines.h"

static struct topology topology;
static char text[MACHINE_TEXT_MAX];

static void describe(const struct fake_root *root, const char *nodes)
{
    size_t length;

    assert_int_equal(machine_look(root->path, nodes, &topology), 0);
    length = machine_describe(&topology, text, sizeof(text));
    assert_int_equal(length, strlen(text));
}

static void says(const char *words)
{
    if (strstr(text, words) == NULL)
        assert_string_equal(text, words);
}

static void a_cxl_node_is_said_with_its_reason(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_cxl_guest(&root, "kmem", true);
    describe(&root, "");
    says("node 0: ddr, 967 MiB, processors, kernel tier 4\n    why: it has processors\n");
    says("node 1: cxl, 512 MiB, kernel tier 22\n    why: its memory comes from dax0.0, which is a CXL device's\n");
    says("dax0.0: cxl, 512 MiB, in steps of 2048 KiB\n    is memory of node 1 (kmem)");
    describe(&root, "1=none");
    says("node 1: none, 512 MiB, kernel tier 22\n    why: option nodes says so\n");
    fake_root_remove(&root);
}

static void states_of_devices_are_said_with_their_remedy(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_cxl_guest(&root, "device_dax", false);
    fake_dax(&root, "dax9.0", PMEM_LINK, "262144000\n", "0\n", NULL);
    describe(&root, "");
    says("is a device, but there is no /dev/dax0.0 here");
    says("dax9.0: pmem, 250 MiB");
    says("has no driver: daxctl reconfigure-device");
    fake_file(&root, "/dev/dax0.0", "");
    describe(&root, "");
    says("--cxl SIZE:/dev/dax0.0 uses it as a store");
    fake_root_remove(&root);
}

static void one_kernel_tier_and_malformed_files_are_said(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_nodes(&root, "0-1\n", "0\n");
    fake_node(&root, 0, 64);
    fake_node(&root, 1, 64);
    fake_tier(&root, 4, "0-1\n");
    fake_firmware(&root, 1, 300, 20000);
    fake_file(&root, "/sys/devices/system/node/node0/access0/initiators/read_latency", "?\n");
    describe(&root, "");
    says("node 1: ddr, 64 MiB, kernel tier 4, firmware 300 ns 20000 MB/s\n");
    says("all nodes in one memory tier, which tells nothing");
    says("1 files could not be understood, the first is /sys/devices/system/node/node0/");
    fake_root_remove(&root);
}

static void a_wrong_option_is_refused_with_a_sentence(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_cxl_guest(&root, "kmem", true);
    assert_int_equal(machine_look(root.path, "1=fast", &topology), -EINVAL);
    assert_non_null(strstr(error_text(), "'1=fast'"));
    assert_int_equal(machine_look(root.path, "7=cxl", &topology), -EINVAL);
    assert_non_null(strstr(error_text(), "node 7, which this machine does not have"));
    fake_root_remove(&root);
}

/* What the pager gets: CXL nodes, each with the DDR next to it. */
static void far_memory_is_the_cxl_nodes(void **state)
{
    struct fake_root root;
    struct pager_far far;
    uint64_t there_bytes;

    (void)state;
    fake_root_make(&root);
    fake_large(&root);
    fake_file(&root, "/sys/devices/system/node/node9/distance", "31 31 21 21 31 31 21 21 41 10\n");
    assert_int_equal(machine_look(root.path, "3=hbm", &topology), 0);
    cxl_far_of(&topology, &far, &there_bytes);
    assert_int_equal(far.nodes_count, 2);
    assert_int_equal(far.nodes[0].number, 8);
    assert_int_equal(far.nodes[0].near, 0); /* nobody says what is next to it */
    assert_int_equal(far.nodes[1].number, 9);
    assert_int_equal(far.nodes[1].near, 2);
    assert_int_equal(there_bytes >> 30, 512);
    assert_int_equal(far.bytes, 0); /* the option says how much */
    assert_int_equal(machine_look(root.path, "8=none,9=ddr", &topology), 0);
    cxl_far_of(&topology, &far, &there_bytes);
    assert_int_equal(far.nodes_count, 0);
    assert_int_equal(there_bytes, 0);
    assert_int_equal(machine_look(root.path, "0=none,1=none,2=none,3=none,8=none", &topology), 0);
    cxl_far_of(&topology, &far, &there_bytes); /* no DDR to come back to */
    assert_int_equal(far.nodes_count, 0);
    fake_root_remove(&root);
}

static void text_without_room_is_cut(void **state)
{
    struct fake_root root;
    char small[40];

    (void)state;
    fake_root_make(&root);
    fake_large(&root);
    assert_int_equal(machine_look(root.path, "", &topology), 0);
    memset(small, 'x', sizeof(small));
    assert_int_equal(machine_describe(&topology, small, 32), 31);
    assert_int_equal(strlen(small), 31);
    assert_int_equal(small[32], 'x');
    fake_root_remove(&root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cxl_node_is_said_with_its_reason),
        cmocka_unit_test(states_of_devices_are_said_with_their_remedy),
        cmocka_unit_test(one_kernel_tier_and_malformed_files_are_said),
        cmocka_unit_test(a_wrong_option_is_refused_with_a_sentence),
        cmocka_unit_test(far_memory_is_the_cxl_nodes),
        cmocka_unit_test(text_without_room_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
