/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cgroup.c - finding the memory cgroup and reading what fits into it, over pictures of machines: v1, v2, both,
 * containers, nested groups, nothing at all.
 */
#include "runtime/cgroup.h"
#include "runtime/pressure.h"
#include "tests/support/fake_root.h"

#include <fcntl.h>
#include <unistd.h>

#define MIB ((int64_t)1 << 20)

static int64_t room_with_margin(int64_t limit_mib, int64_t used_mib)
{
    return (limit_mib - used_mib) * MIB - (int64_t)cgroup_margin_bytes((uint64_t)(limit_mib * MIB));
}

static struct cgroup_room room_now(const struct fake_root *root)
{
    struct cgroup_room room;
    struct cgroup group;

    cgroup_find_memory(root->path, &group);
    cgroup_room(&group, &room);
    return room;
}

static void nothing_mounted_is_no_limit(void **state)
{
    struct fake_root root;
    struct cgroup group;

    (void)state;
    fake_root_make(&root);
    assert_int_equal(room_now(&root).room_bytes, INT64_MAX); /* no file at all */
    fake_file(&root, "/proc/self/cgroup", "0::/\n");
    fake_file(&root, "/proc/self/mountinfo", "22 1 0:5 / /proc rw - proc proc rw\n");
    assert_int_equal(room_now(&root).room_bytes, INT64_MAX);
    assert_true(room_now(&root).limit_bytes == UINT64_MAX);
    cgroup_find_memory(root.path, &group);
    assert_int_equal(group.kind, CGROUP_NONE);
    assert_true(cgroup_is_top(&group));
    fake_root_remove(&root);
}

static void v1_machine(struct fake_root *root, const char *name, const char *part)
{
    char text[512];

    fake_root_make(root);
    snprintf(text, sizeof(text), "9:name=systemd:/x\n5:cpu,memory,io:%s\n0::/else\n", name);
    fake_file(root, "/proc/self/cgroup", text);
    snprintf(text, sizeof(text),
             "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
             "33 31 0:30 / /sys/fs/cgroup/memory_not rw - cgroup cgroup rw,memory_not\n"
             "34 31 0:31 %s /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,cpu,memory",
             part); /* and no end of the line */
    fake_file(root, "/proc/self/mountinfo", text);
}

static void v1_group(const struct fake_root *root, const char *name, const char *limit, int usage_mib)
{
    char text[128];

    snprintf(text, sizeof(text), "%lld\n", (long long)usage_mib << 20);
    fake_files(root, "/sys/fs/cgroup/memory", name, "memory.usage_in_bytes", text);
    fake_files(root, "/sys/fs/cgroup/memory", name, "memory.limit_in_bytes", limit);
}

static void v1_unlimited_is_no_limit(void **state)
{
    struct fake_root root;

    (void)state;
    v1_machine(&root, "/a", "/");
    v1_group(&root, "/a", "9223372036854771712\n", 50);
    v1_group(&root, "", "9223372036854771712\n", 5000);
    assert_int_equal(room_now(&root).room_bytes, INT64_MAX);
    fake_root_remove(&root);
}

static void v1_limit_less_what_is_used(void **state)
{
    struct fake_root root;
    struct cgroup group;

    (void)state;
    v1_machine(&root, "/a", "/");
    v1_group(&root, "/a", "268435456\n", 50);
    cgroup_find_memory(root.path, &group);
    assert_int_equal(group.kind, CGROUP_V1);
    assert_false(cgroup_is_top(&group));
    assert_int_equal(room_now(&root).room_bytes, room_with_margin(256, 50));
    assert_int_equal(room_now(&root).limit_bytes, 256 * MIB);
    /* File cache is the kernel's to take back. */
    fake_file(&root, "/sys/fs/cgroup/memory/a/memory.stat",
              "inactive_file 1\ntotal_inactive_file 10485760\ntotal_active_file 20971520\n"
              "hierarchical_memory_limit 268435456\n");
    assert_int_equal(room_now(&root).room_bytes, room_with_margin(256, 20));
    fake_root_remove(&root);
}

static void the_tightest_ancestor_counts(void **state)
{
    struct fake_root root;

    (void)state;
    v1_machine(&root, "/a/b/c", "/");
    v1_group(&root, "/a", "134217728\n", 100); /* of 128 MiB, siblings use the most */
    v1_group(&root, "/a/b", "9223372036854771712\n", 40);
    v1_group(&root, "/a/b/c", "104857600\n", 20);
    assert_int_equal(room_now(&root).room_bytes, room_with_margin(128, 100));
    v1_group(&root, "/a", "134217728\n", 30);
    assert_int_equal(room_now(&root).room_bytes, room_with_margin(100, 20));
    v1_group(&root, "/a/b", "20971520\n", 40); /* lowered below what is there */
    assert_int_equal(room_now(&root).room_bytes, room_with_margin(20, 40));
    assert_true(room_now(&root).room_bytes < 0);
    fake_root_remove(&root);
}

/* A container that sees its own part of the hierarchy as the mount point; above it, only the kernel's sum tells. */
static void v1_in_a_container(void **state)
{
    struct fake_root root;

    (void)state;
    v1_machine(&root, "/docker/77/own", "/docker/77");
    v1_group(&root, "/own", "268435456\n", 10);
    v1_group(&root, "", "134217728\n", 10);
    assert_int_equal(room_now(&root).room_bytes, room_with_margin(128, 10));
    fake_file(&root, "/sys/fs/cgroup/memory/own/memory.stat", "hierarchical_memory_limit 67108864\n");
    assert_int_equal(room_now(&root).room_bytes, room_with_margin(64, 10));
    fake_root_remove(&root);
}

static void another_group_mounted_is_not_ours(void **state)
{
    struct fake_root root;

    (void)state;
    v1_machine(&root, "/docker/77", "/docker/78");
    v1_group(&root, "", "1048576\n", 10);
    assert_int_equal(room_now(&root).room_bytes, INT64_MAX);
    fake_root_remove(&root);
    v1_machine(&root, "/../78", "/"); /* outside of our namespace */
    v1_group(&root, "", "1048576\n", 10);
    assert_int_equal(room_now(&root).room_bytes, INT64_MAX);
    fake_root_remove(&root);
    v1_machine(&root, "/own", "/.."); /* mounted from above our namespace: its top is an ancestor */
    v1_group(&root, "", "268435456\n", 10);
    assert_int_equal(room_now(&root).room_bytes, room_with_margin(256, 10));
    fake_root_remove(&root);
}

static void v2_machine(struct fake_root *root, const char *name)
{
    char text[512];

    fake_root_make(root);
    snprintf(text, sizeof(text), "0::%s\n", name);
    fake_file(root, "/proc/self/cgroup", text);
    fake_file(root, "/proc/self/mountinfo",
              "29 23 0:26 / /sys/fs\\040x/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
}

static void v2_max_and_high(void **state)
{
    struct fake_root root;
    struct cgroup group;

    (void)state;
    v2_machine(&root, "/user.slice/job");
    fake_file(&root, "/sys/fs x/cgroup/user.slice/job/memory.max", "max\n");
    fake_file(&root, "/sys/fs x/cgroup/user.slice/job/memory.current", "31457280\n");
    fake_file(&root, "/sys/fs x/cgroup/user.slice/memory.max", "max\n");
    cgroup_find_memory(root.path, &group);
    assert_int_equal(group.kind, CGROUP_V2);
    assert_int_equal(room_now(&root).room_bytes, INT64_MAX);
    fake_file(&root, "/sys/fs x/cgroup/user.slice/job/memory.max", "536870912\n");
    assert_int_equal(room_now(&root).room_bytes, room_with_margin(512, 30));
    fake_file(&root, "/sys/fs x/cgroup/user.slice/job/memory.high", "268435456\n");
    fake_file(&root, "/sys/fs x/cgroup/user.slice/job/memory.stat", "anon 99\ninactive_file 10485760\nactive_file 0\n");
    assert_int_equal(room_now(&root).room_bytes, room_with_margin(256, 20));
    fake_file(&root, "/sys/fs x/cgroup/user.slice/memory.max", "67108864\n");
    fake_file(&root, "/sys/fs x/cgroup/user.slice/memory.current", "60817408\n");
    assert_int_equal(room_now(&root).room_bytes, room_with_margin(64, 58));
    fake_root_remove(&root);
}

/* systemd's hybrid: v2 is mounted for its own sake, the memory controller is v1's. */
static void both_mounted_memory_is_where_its_controller_is(void **state)
{
    struct fake_root root;
    struct cgroup group;

    (void)state;
    fake_root_make(&root);
    fake_file(&root, "/proc/self/cgroup", "4:memory:/m\n1:name=systemd:/s\n0::/u\n");
    fake_file(&root, "/proc/self/mountinfo",
              "42 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
              "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    v1_group(&root, "/m", "134217728\n", 1);
    fake_file(&root, "/sys/fs/cgroup/unified/u/memory.pressure", "some avg10=0.00 total=5\n");
    assert_int_equal(room_now(&root).room_bytes, room_with_margin(128, 1));
    cgroup_find_unified(root.path, &group);
    assert_int_equal(group.kind, CGROUP_V2);
    assert_string_equal(group.path + strlen(root.path), "/sys/fs/cgroup/unified/u");
    fake_root_remove(&root);
}

static void long_lines_are_passed_over(void **state)
{
    char text[3 * 8192];
    struct fake_root root;

    (void)state;
    v1_machine(&root, "/a", "/");
    v1_group(&root, "/a", "268435456\n", 50);
    memset(text, 'x', sizeof(text));
    snprintf(text + 2 * 8192 + 5, 512, "%s", "\n34 31 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    fake_file(&root, "/proc/self/mountinfo", text);
    assert_int_equal(room_now(&root).room_bytes, room_with_margin(256, 50));
    fake_root_remove(&root);
}

static void the_machine_has_a_limit_too(void **state)
{
    struct cgroup_room room;
    struct fake_root root;

    (void)state;
    fake_root_make(&root);
    machine_room(root.path, &room);
    assert_int_equal(room.room_bytes, INT64_MAX);
    fake_file(&root, "/proc/meminfo", "MemTotal:        8388608 kB\nMemFree:  1 kB\nMemAvailable:    1048576 kB\n");
    machine_room(root.path, &room);
    assert_int_equal(room.limit_bytes, (int64_t)8 << 30);
    assert_int_equal(room.room_bytes, 1024 * MIB - (int64_t)cgroup_margin_bytes((uint64_t)8 << 30));
    fake_root_remove(&root);
}

/* ---- pressure -------------------------------------------------------------------------------------------------- */

#define SECOND_NS UINT64_C(1000000000)

static void pressure_is_a_tenth_of_the_time(void **state)
{
    struct pressure pressure;
    struct fake_root root;
    char text[128];

    (void)state;
    v2_machine(&root, "/job");
    fake_file(&root, "/sys/fs x/cgroup/job/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n");
    pressure_open(root.path, &pressure);
    assert_true(pressure.is_own);
    fake_file(&root, "/sys/fs x/cgroup/job/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n");
    assert_false(pressure_look(&pressure, 5 * SECOND_NS)); /* the first look has nothing to compare with */
    snprintf(text, sizeof(text), "some avg10=9.00 avg60=0.00 avg300=0.00 total=%d\nfull total=3\n", 1000000 + 99000);
    fake_file(&root, "/sys/fs x/cgroup/job/memory.pressure", text);
    assert_false(pressure_look(&pressure, 6 * SECOND_NS));
    snprintf(text, sizeof(text), "some avg10=9.00 avg60=0.00 avg300=0.00 total=%d\n", 1000000 + 99000 + 101000);
    fake_file(&root, "/sys/fs x/cgroup/job/memory.pressure", text);
    assert_true(pressure_look(&pressure, 7 * SECOND_NS));
    assert_false(pressure_look(&pressure, 8 * SECOND_NS));
    pressure_close(&pressure);
    fake_root_remove(&root);
}

static void pressure_of_the_machine_where_the_group_has_none(void **state)
{
    struct pressure pressure;
    struct fake_root root;

    (void)state;
    v2_machine(&root, "/job");
    pressure_open(root.path, &pressure);
    assert_int_equal(pressure.fd, -1); /* the kernel was built without, or it is switched off: nothing to say */
    assert_false(pressure_look(&pressure, SECOND_NS));
    fake_file(&root, "/proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
    pressure_open(root.path, &pressure);
    assert_false(pressure.is_own);
    assert_true(pressure.path[0] != '\0');
    pressure_close(&pressure);
    fake_root_remove(&root);
}

/* The kernel of this machine, whatever it has: opening must not fail in a way that leaks or changes errno. */
static void the_real_machine_answers(void **state)
{
    struct pressure pressure;
    struct cgroup_room room;
    struct cgroup group;
    int before = dup(0);

    (void)state;
    close(before);
    errno = 4242;
    cgroup_find_memory("", &group);
    cgroup_room(&group, &room);
    assert_true(room.room_bytes > 0);
    machine_room("", &room);
    assert_true(room.room_bytes > 0 && room.limit_bytes < UINT64_MAX);
    pressure_open("", &pressure);
    pressure_close(&pressure);
    assert_int_equal(errno, 4242);
    assert_int_equal(dup(0), before);
    close(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_mounted_is_no_limit),
        cmocka_unit_test(v1_unlimited_is_no_limit),
        cmocka_unit_test(v1_limit_less_what_is_used),
        cmocka_unit_test(the_tightest_ancestor_counts),
        cmocka_unit_test(v1_in_a_container),
        cmocka_unit_test(another_group_mounted_is_not_ours),
        cmocka_unit_test(v2_max_and_high),
        cmocka_unit_test(both_mounted_memory_is_where_its_controller_is),
        cmocka_unit_test(long_lines_are_passed_over),
        cmocka_unit_test(the_machine_has_a_limit_too),
        cmocka_unit_test(pressure_is_a_tenth_of_the_time),
        cmocka_unit_test(pressure_of_the_machine_where_the_group_has_none),
        cmocka_unit_test(the_real_machine_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
