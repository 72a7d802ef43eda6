/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_topology.c - finding nodes and dax devices, and saying which is which, over pictures of machines.
 */
#include "tests/unit/tiers/machines.h"
#include "tiers/classify.h"

static struct topology topology;

static void look_wishing(const struct fake_root *root, const char *nodes)
{
    struct classify_wish wish;

    assert_true(classify_parse(nodes, &wish));
    topology_read(root->path, &topology);
    classify(&topology, &wish);
}

static void look(const struct fake_root *root)
{
    look_wishing(root, "");
}

static void kind_is(unsigned number, enum memory_kind kind, const char *reason)
{
    const struct topology_node *node = topology_node(&topology, number);

    assert_non_null(node);
    assert_string_equal(memory_kind_name(node->kind), memory_kind_name(kind));
    if (strstr(node->reason, reason) == NULL)
        assert_string_equal(node->reason, reason);
}

static void again(void)
{
    struct classify_wish wish = {.count = 0};

    classify(&topology, &wish);
}

/* ---- plain machines -------------------------------------------------------------------------------------------- */

static void a_machine_that_tells_nothing_has_one_node(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_file(&root, "/proc/meminfo", "MemTotal:       2048 kB\n");
    errno = 7;
    look(&root);
    assert_int_equal(errno, 7);
    assert_int_equal(topology.nodes_count, 1);
    assert_int_equal(topology.nodes[0].memory_bytes, 2 << 20);
    assert_int_equal(topology.kernel_tiers, 0);
    assert_int_equal(topology.malformed_count, 0);
    kind_is(0, MEMORY_DDR, "it has processors");
    fake_root_remove(&root);
}

static void sockets_and_clusters_are_all_ddr(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_nodes(&root, "0-7\n", "0-7\n");
    for (unsigned i = 0; i < 8; i++)
        fake_node(&root, i, 32768);
    fake_firmware(&root, 0, 100, 100000);
    fake_firmware(&root, 5, 180, 100000); /* seen from afar, but its own processors are near */
    fake_tier(&root, 4, "0-7\n");
    look(&root);
    assert_int_equal(topology.nodes_count, 8);
    assert_int_equal(topology.kernel_tiers, 1);
    for (unsigned i = 0; i < 8; i++)
        kind_is(i, MEMORY_DDR, "it has processors");
    fake_root_remove(&root);
}

static void hbm_ddr_and_cxl_are_told_apart(void **state)
{
    unsigned numbers[TOPOLOGY_NODES_MAX];
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_large(&root);
    look(&root);
    assert_int_equal(topology.nodes_count, 10);
    kind_is(0, MEMORY_DDR, "it has processors");
    kind_is(6, MEMORY_HBM, "firmware: bandwidth 204800 MB/s, DDR has 76800 MB/s");
    kind_is(8, MEMORY_CXL, "dax1.0, which is a CXL device's");
    kind_is(9, MEMORY_CXL, "firmware: latency 250 ns, DDR has 110 ns");
    assert_int_equal(topology_of_kind(&topology, MEMORY_HBM, numbers, 64), 4);
    assert_int_equal(numbers[0], 4);
    assert_int_equal(topology_of_kind(&topology, MEMORY_CXL, numbers, 1), 1);
    assert_int_equal(numbers[0], 8);
    assert_int_equal(topology.dax[0].size_bytes, 256ULL << 30); /* hexadecimal */
    assert_int_equal(topology.kernel_tiers, 3);
    fake_root_remove(&root);
}

/* Numbers with holes, more than 64, in any order of finding. */
static void nodes_beyond_the_table_are_counted(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_nodes(&root, "0,3,900-970\n", "0\n");
    fake_node(&root, 0, 64);
    fake_node(&root, 3, 64);
    look(&root);
    assert_int_equal(topology.nodes_count, TOPOLOGY_NODES_MAX);
    assert_int_equal(topology.left_out, 73 - TOPOLOGY_NODES_MAX);
    assert_int_equal(topology.nodes[1].number, 3);
    fake_root_remove(&root);
}

/* ---- the kernel's tiers, and measuring --------------------------------------------------------------------------- */

static void without_firmware_the_kernel_tier_decides(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_nodes(&root, "0-2\n", "0\n");
    for (unsigned i = 0; i < 3; i++)
        fake_node(&root, i, 1024);
    fake_tier(&root, 4, "0\n");
    fake_tier(&root, 3, "1\n");
    fake_tier(&root, 9, "2\n");
    look(&root);
    kind_is(1, MEMORY_HBM, "memory tier 3, DDR in 4");
    kind_is(2, MEMORY_CXL, "memory tier 9, DDR in 4");
    fake_root_remove(&root);
}

static void with_all_in_one_kernel_tier_measuring_decides(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_nodes(&root, "0-3\n", "0\n");
    for (unsigned i = 0; i < 4; i++)
        fake_node(&root, i, 1024);
    fake_tier(&root, 4, "0-3\n");
    look(&root);
    for (unsigned i = 1; i < 4; i++)
        kind_is(i, MEMORY_DDR, "it was not measured");
    topology.nodes[0].measured = (struct memory_speed){100, 10000};
    topology.nodes[1].measured = (struct memory_speed){131, 10000};
    topology.nodes[2].measured = (struct memory_speed){110, 15100};
    topology.nodes[3].measured = (struct memory_speed){130, 15000};
    again();
    kind_is(1, MEMORY_CXL, "measured: latency 131 ns, DDR has 100 ns");
    kind_is(2, MEMORY_HBM, "measured: bandwidth 15100 MB/s, DDR has 10000 MB/s");
    kind_is(3, MEMORY_DDR, "nor does measuring");
    fake_root_remove(&root);
}

static void measuring_raises_doubts_but_renames_nothing(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_cxl_guest(&root, "kmem", true);
    look(&root);
    topology.nodes[0].measured = (struct memory_speed){100, 10000};
    topology.nodes[1].measured = (struct memory_speed){105, 10000};
    again();
    kind_is(1, MEMORY_CXL, "dax0.0");
    assert_string_equal(topology.nodes[1].doubt, "it measures as fast as DDR");
    topology.nodes[1].measured.latency_ns = 300;
    again();
    assert_string_equal(topology.nodes[1].doubt, "");
    look_wishing(&root, "1=hbm");
    topology.nodes[0].measured = (struct memory_speed){100, 10000};
    topology.nodes[1].measured = (struct memory_speed){300, 10000};
    classify(&topology, &(struct classify_wish){.overrides = {{1, MEMORY_HBM}}, .count = 1});
    assert_string_equal(topology.nodes[1].doubt, "it measures slower than DDR");
    fake_root_remove(&root);
}

/* Firmware that gives bandwidth alone. */
static void a_narrow_node_without_latency_is_slower_memory(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_nodes(&root, "0-1\n", "0\n");
    fake_node(&root, 0, 64);
    fake_node(&root, 1, 64);
    fake_firmware(&root, 0, 0, 100000);
    fake_firmware(&root, 1, 0, 20000);
    look(&root);
    kind_is(1, MEMORY_CXL, "firmware: bandwidth 20000 MB/s");
    fake_root_remove(&root);
}

/* From where a node is measured. */
static void the_nearest_processors_are_found(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_nodes(&root, "0,2-3,5\n", "0,3\n");
    for (unsigned i = 0; i < 6; i++)
        fake_node(&root, i, 64);
    fake_file(&root, "/sys/devices/system/node/node2/distance", "10 10 17 21\n"); /* its own figure does not count */
    fake_file(&root, "/sys/devices/system/node/node5/distance", "28 20 17 10\n");
    fake_file(&root, "/sys/devices/system/node/node3/distance", "21 9\n");
    fake_file(&root, "/sys/devices/system/node/node3/cpulist", "48-95\n");
    look(&root);
    assert_int_equal(topology_node(&topology, 2)->near_node, 0);
    assert_int_equal(topology_node(&topology, 2)->near_processor, -1); /* no such file */
    assert_int_equal(topology_node(&topology, 5)->near_node, 3);
    assert_int_equal(topology_node(&topology, 5)->near_processor, 48);
    assert_int_equal(topology.malformed_count, 1);
    fake_root_remove(&root);
}

/* ---- dax devices ------------------------------------------------------------------------------------------------- */

static void a_cxl_device_as_a_node(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_cxl_guest(&root, "kmem", true);
    look(&root);
    kind_is(1, MEMORY_CXL, "its memory comes from dax0.0, which is a CXL device's");
    assert_int_equal(topology.dax[0].state, DAX_NODE);
    assert_int_equal(topology.dax[0].origin, DAX_CXL);
    assert_int_equal(topology.dax[0].align_bytes, 2 << 20);
    fake_root_remove(&root);
}

static void memory_that_is_not_online_is_named_with_its_remedy(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_cxl_guest(&root, "kmem", false);
    look(&root);
    assert_int_equal(topology.nodes_count, 2); /* the kernel has no such node yet, the device knows its number */
    kind_is(1, MEMORY_OFFLINE, "daxctl online-memory dax0.0 (auto_online_blocks is offline)");
    fake_root_remove(&root);
}

static void a_device_is_no_node(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_cxl_guest(&root, "device_dax", false);
    fake_dax(&root, "dax1.0", PMEM_LINK, "262144000\n", "-1\n", NULL);
    look(&root);
    assert_int_equal(topology.nodes_count, 1);
    assert_int_equal(topology.dax_count, 2);
    assert_int_equal(topology.dax[0].state, DAX_DEVICE);
    assert_false(topology.dax[0].has_file);
    assert_int_equal(topology.dax[1].state, DAX_FREE);
    assert_int_equal(topology.dax[1].origin, DAX_PMEM);
    assert_int_equal(topology.dax[1].target_node, -1);
    assert_int_equal(topology.malformed_count, 0);
    fake_file(&root, "/dev/dax0.0", "");
    look(&root);
    assert_true(topology.dax[0].has_file && topology.dax[0].may_open);
    fake_root_remove(&root);
}

static void persistent_memory_as_a_node(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_nodes(&root, "0,2\n", "0\n");
    fake_node(&root, 0, 64);
    fake_node(&root, 2, 64);
    fake_dax(&root, "dax0.0", PMEM_LINK, "67108864\n", "2\n", "kmem");
    look(&root);
    kind_is(2, MEMORY_PMEM, "persistent memory");
    fake_root_remove(&root);
}

/* ---- what can be wrong ------------------------------------------------------------------------------------------- */

static void malformed_files_are_noted_and_not_believed(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_cxl_guest(&root, "kmem", true);
    fake_file(&root, "/sys/devices/system/node/node0/access0/initiators/read_latency", "fast\n");
    fake_file(&root, "/sys/devices/system/node/node1/access0/initiators/read_latency", "99999999999999999999\n");
    fake_file(&root, "/sys/devices/system/node/node1/access0/initiators/read_bandwidth", "");
    fake_tier(&root, 22, "1-\n");
    fake_tier(&root, 23, "3-1\n");
    fake_file(&root, "/sys/devices/virtual/memory_tiering/memory_tierX/nodelist", "1\n"); /* no tier: not looked at */
    look(&root);
    assert_int_equal(topology.malformed_count, 5);
    assert_string_equal(topology.malformed, "/sys/devices/system/node/node0/access0/initiators/read_latency");
    assert_int_equal(topology.nodes[1].firmware.latency_ns, 0);
    assert_int_equal(topology.nodes[1].firmware.bandwidth_mbs, 0);
    kind_is(1, MEMORY_CXL, "dax0.0");
    fake_root_remove(&root);
}

static void a_node_that_vanishes_while_it_is_read_is_offline(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_nodes(&root, "0-1\n", "0\n");
    fake_node(&root, 0, 64);
    fake_tier(&root, 4, "0\n");
    fake_tier(&root, 22, "1\n"); /* and its folder is gone */
    look(&root);
    kind_is(1, MEMORY_OFFLINE, "no memory of it is online");
    assert_int_equal(topology.malformed_count, 0);
    fake_file(&root, "/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: ");
    look(&root);
    kind_is(1, MEMORY_OFFLINE, "no memory of it is online");
    assert_int_equal(topology.malformed_count, 1);
    fake_root_remove(&root);
}

static void a_malformed_list_of_nodes_leaves_what_was_understood(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_nodes(&root, "0-1,x\n", "0;\n");
    fake_node(&root, 0, 64);
    fake_node(&root, 1, 64);
    look(&root);
    assert_int_equal(topology.nodes_count, 2);
    assert_int_equal(topology.malformed_count, 2);
    fake_root_remove(&root);
}

static void deep_roots_are_nothing_known(void **state)
{
    char path[600] = "/";

    (void)state;
    memset(path + 1, 'x', sizeof(path) - 2);
    topology_read(path, &topology);
    assert_int_equal(topology.nodes_count, 1);
    assert_int_equal(topology.nodes[0].memory_bytes, 0);
}

/* ---- the user's word --------------------------------------------------------------------------------------------- */

static void the_user_has_the_last_word(void **state)
{
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    fake_large(&root);
    look_wishing(&root, "0=cxl,8=none,9=ddr,77=hbm");
    kind_is(0, MEMORY_CXL, "option nodes says so");
    kind_is(8, MEMORY_NONE, "option nodes says so");
    kind_is(9, MEMORY_DDR, "option nodes says so");
    kind_is(4, MEMORY_HBM, "firmware");
    fake_root_remove(&root);
}

static void wishes_that_cannot_be_understood_are_refused(void **state)
{
    static const char *const bad[] = {"1",      "1=",     "=cxl",         "1=cxl,", ",1=cxl",    "1=cx",
                                      "1=cxl2", "1= cxl", "x=cxl",        "-1=cxl", "99999=cxl", "1=offline",
                                      "1=cxl;", "1:cxl",  "1=cxl,,2=hbm", "1=pmem"};
    struct classify_wish wish = {.count = 5};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        assert_false(classify_parse(bad[i], &wish));
    assert_int_equal(wish.count, 5);
    assert_true(classify_parse("12=hbm", &wish));
    assert_int_equal(wish.count, 1);
    assert_int_equal(wish.overrides[0].number, 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_that_tells_nothing_has_one_node),
        cmocka_unit_test(sockets_and_clusters_are_all_ddr),
        cmocka_unit_test(hbm_ddr_and_cxl_are_told_apart),
        cmocka_unit_test(nodes_beyond_the_table_are_counted),
        cmocka_unit_test(without_firmware_the_kernel_tier_decides),
        cmocka_unit_test(with_all_in_one_kernel_tier_measuring_decides),
        cmocka_unit_test(measuring_raises_doubts_but_renames_nothing),
        cmocka_unit_test(a_narrow_node_without_latency_is_slower_memory),
        cmocka_unit_test(the_nearest_processors_are_found),
        cmocka_unit_test(a_cxl_device_as_a_node),
        cmocka_unit_test(memory_that_is_not_online_is_named_with_its_remedy),
        cmocka_unit_test(a_device_is_no_node),
        cmocka_unit_test(persistent_memory_as_a_node),
        cmocka_unit_test(malformed_files_are_noted_and_not_believed),
        cmocka_unit_test(a_node_that_vanishes_while_it_is_read_is_offline),
        cmocka_unit_test(a_malformed_list_of_nodes_leaves_what_was_understood),
        cmocka_unit_test(deep_roots_are_nothing_known),
        cmocka_unit_test(the_user_has_the_last_word),
        cmocka_unit_test(wishes_that_cannot_be_understood_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
