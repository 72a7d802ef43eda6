/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e2e_start.c - what keeps a node from starting, each with a sentence that says what would help: budgets, paths,
 * rights, and addresses that are taken.
 */
#include "tests/support/node_test.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* dsm_init() with one option; the sentence must contain `word`. */
static void refused_with(const char *name, const char *value, int wanted, const char *word)
{
    struct dsm_config *config;

    CHECK_OK(dsm_config_create(&config));
    CHECK_OK(dsm_config_set(config, name, value));
    CHECK_ERROR(dsm_init(config), wanted);
    printf("%s=%s: %s\n", name, value, dsm_errmsg());
    if (strstr(dsm_errmsg(), word) == NULL)
        check_failed(__FILE__, __LINE__, "'%s' does not say '%s'", dsm_errmsg(), word);
    CHECK_ERROR(dsm_node_id(), -ENOTCONN);
    dsm_config_destroy(config);
}

/* After every refusal the process can still become a node. */
static void starts_now(void)
{
    void *memory;

    CHECK_OK(dsm_init(NULL));
    CHECK_OK(dsm_malloc(100, &memory));
    *(char *)memory = 1;
    CHECK_OK(dsm_finalize());
}

static void skip_unless_root(void)
{
    if (geteuid() != 0)
        node_skip("needs root");
}

/* A sanitizer keeps terabytes of addresses for itself. */
static void skip_when_sanitized(void)
{
    if (patience(1) != 1)
        node_skip("a sanitizer has its own use of addresses");
}

static const char *in_directory(const char *size, const char *rest)
{
    static char value[4096 + 64];

    CHECK(node_directory() != NULL);
    snprintf(value, sizeof(value), "%s:%s%s", size, node_directory(), rest);
    return value;
}

static void run_budgets(void)
{
    refused_with("ddr", "100T", -ENOMEM, "larger than this machine");
    refused_with("cxl", "100T", -ENOMEM, "larger than this machine");
    refused_with("ddr", "1M", -EINVAL, "too small");
    refused_with("window.shared", "3M", -EINVAL, "2M");
    refused_with("requests", "1", -EINVAL, "requests");
    starts_now();
}

static void run_nvme_paths(void)
{
    refused_with("nvme", in_directory("16M", "/missing"), -ENOENT, "missing");
    refused_with("nvme", in_directory("2T", ""), -ENOSPC, node_directory());
    refused_with("nvme", "16M:/proc", -ENOENT, "/proc");
    refused_with("nvme", "16M:/dev/null", -ENOTDIR, "/dev/null");
    starts_now();
}

static void run_nvme_tmpfs(void)
{
    refused_with("nvme", "16M:/dev/shm", -EOPNOTSUPP, "tmpfs");
    starts_now();
}

/* A limit on file sizes holds for the memfd of the shared pages as well. */
static void run_file_size_limit(void)
{
    struct rlimit limit = {1 << 20, 1 << 20};

    signal(SIGXFSZ, SIG_IGN);
    CHECK_IS(setrlimit(RLIMIT_FSIZE, &limit), 0);
    refused_with("nvme", in_directory("16M", ""), -ENOMEM, "RLIMIT_FSIZE");
}

static void run_nvme_read_only(void)
{
    const char *directory = node_directory();
    char value[4200];

    skip_unless_root();
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(directory, directory, NULL, MS_BIND, NULL) != 0 ||
        mount(NULL, directory, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) != 0)
        node_skip("no mount namespace of its own");
    snprintf(value, sizeof(value), "16M:%s", directory);
    refused_with("nvme", value, -EROFS, directory);
    CHECK_IS(umount(directory), 0);
    starts_now();
}

static void run_nvme_no_rights(void)
{
    char value[4200];

    skip_unless_root();
    if (access("/proc/sys/vm/unprivileged_userfaultfd", R_OK) != 0)
        node_skip("no such sysctl here");
    CHECK_IS(chmod(node_directory(), 0500), 0);
    CHECK_IS(chown(node_directory(), 0, 0), 0);
    snprintf(value, sizeof(value), "16M:%s", node_directory());
    CHECK_IS(setresuid(65534, 65534, 65534), 0);
    {
        struct dsm_config *config;
        int error;

        CHECK_OK(dsm_config_create(&config));
        CHECK_OK(dsm_config_set(config, "nvme", value));
        error = dsm_init(config);
        CHECK(error == -EACCES || error == -EPERM); /* EPERM: userfaultfd was asked for first */
        CHECK(dsm_errmsg()[0] != '\0');
        dsm_config_destroy(config);
    }
}

static void run_userfaultfd_refused(void)
{
    const char *text;

    skip_unless_root();
    CHECK_IS(setresgid(65534, 65534, 65534), 0);
    CHECK_IS(setresuid(65534, 65534, 65534), 0);
    if (open("/dev/userfaultfd", O_RDWR | O_CLOEXEC) >= 0)
        node_skip("everybody may use userfaultfd here");
    CHECK_ERROR(dsm_init(NULL), -EPERM);
    text = dsm_errmsg();
    printf("%s\n", text);
    CHECK(strstr(text, "vm.unprivileged_userfaultfd") != NULL);
    CHECK(strstr(text, "/dev/userfaultfd") != NULL);
    CHECK(strstr(text, "CAP_SYS_PTRACE") != NULL);
}

/* Run as that user, a test skips: it does not pass. */
static void run_skips(void)
{
    skip_unless_root();
    CHECK_IS(setresuid(65534, 65534, 65534), 0);
    unsetenv("NODE_TEST_CASE");
    setenv("TIERMESH_BUILD", "/tmp", 1); /* where that user may make directories */
    execl("/proc/self/exe", "e2e_start", "starts", (char *)NULL);
    node_skip("that user may not run this program");
}

static void run_starts(void)
{
    CHECK_IS(dsm_node_id(), 0);
}

/* The usual window is taken in this process: it finds another one, or says who has it when the place is prescribed. */
static void run_window_taken(void)
{
    char *usual;

    CHECK_OK(dsm_init(NULL));
    CHECK_OK(dsm_malloc(100, (void **)&usual));
    CHECK_OK(dsm_finalize());
    /* The old window stays reserved in this process, so a second start takes another place. */
    {
        char *next;

        CHECK_OK(dsm_init(NULL));
        CHECK_OK(dsm_malloc(100, (void **)&next));
        CHECK(next != usual);
        *next = 1;
        CHECK(!touch_reads(usual));
        CHECK_OK(dsm_finalize());
    }
    {
        char base[32];

        snprintf(base, sizeof(base), "0x%lx", (unsigned long)(uintptr_t)usual & ~((1UL << 40) - 1));
        refused_with("window.base", base, -EADDRINUSE, "0x");
    }
}

static void run_address_space_limit(void)
{
    struct rlimit limit = {(rlim_t)8 << 30, (rlim_t)8 << 30};

    skip_when_sanitized();
    CHECK_IS(setrlimit(RLIMIT_AS, &limit), 0);
    refused_with("window.shared", "64G", -ENOMEM, "RLIMIT_AS");
}

/* Each of three nodes sees a part of its addresses taken: they agree on a window that is free on all. */
static void run_window_agreed(void)
{
    int rank = atoi(getenv("DSM_RANK"));
    void *blocked = (void *)(uintptr_t)(0x100000000000UL + ((unsigned long)rank << 30));
    uint64_t *word;

    skip_when_sanitized();
    CHECK(mmap(blocked, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == blocked);
    CHECK_OK(dsm_init(NULL));
    word = node_share("word", 4096);
    CHECK((uintptr_t)word < 0x100000000000UL || (uintptr_t)word >= 0x108000000000UL);
    CHECK_OK(dsm_atomic_fetch_add(word, 1, NULL));
    CHECK_OK(dsm_barrier());
    CHECK_IS(*word, 3);
    CHECK_OK(dsm_finalize());
}

/* One of three never joins: the others give up in time. */
static void run_join_timeout(void)
{
    uint64_t start_ns = now_ns();
    int error;

    if (strcmp(getenv("DSM_RANK"), "1") == 0) {
        sleep_ms(3000);
        return;
    }
    error = dsm_init(NULL);
    CHECK(error == -ETIMEDOUT || error == -EHOSTDOWN); /* the second: another one gave up first */
    CHECK(dsm_errmsg()[0] != '\0');
    CHECK(now_ns() - start_ns < 3 * SECOND_NS);
    printf("%s\n", dsm_errmsg());
}

/* One of three cannot start: it says so; the others do not wait for ever. */
static void run_one_refused(void)
{
    struct dsm_config *config;
    int error;

    CHECK_OK(dsm_config_create(&config));
    if (strcmp(getenv("DSM_RANK"), "1") == 0)
        CHECK_OK(dsm_config_set(config, "nvme", in_directory("16M", "/missing")));
    error = dsm_init(config);
    CHECK(strcmp(getenv("DSM_RANK"), "1") == 0 ? error == -ENOENT : (error == -ETIMEDOUT || error == -EHOSTDOWN));
    CHECK(dsm_errmsg()[0] != '\0');
    dsm_config_destroy(config);
}

static bool judge_skipped(const struct node_outcome *outcome)
{
    return outcome->status == NODE_TEST_SKIP;
}

#define BARE .nodes_count = 1, .is_bare = true

static const struct node_case cases[] = {
    {"budgets", run_budgets, BARE},
    {"nvme_paths", run_nvme_paths, BARE},
    {"nvme_tmpfs", run_nvme_tmpfs, BARE},
    {"file_size_limit", run_file_size_limit, BARE},
    {"nvme_read_only", run_nvme_read_only, BARE},
    {"nvme_no_rights", run_nvme_no_rights, BARE},
    {"userfaultfd_refused", run_userfaultfd_refused, BARE},
    {"skips", run_skips, BARE, .judge = judge_skipped, .may_not_skip = true},
    {"starts", run_starts, .nodes_count = 1},
    {"window_taken", run_window_taken, BARE},
    {"address_space_limit", run_address_space_limit, BARE},
    {"window_agreed", run_window_agreed, .nodes_count = 3, .is_bare = true},
    {"join_timeout", run_join_timeout, .nodes_count = 3, .is_bare = true, .options = {"join.timeout=1000"}},
    {"one_refused", run_one_refused, .nodes_count = 3, .is_bare = true, .options = {"join.timeout=2000"}},
};

int main(int argc, char **argv)
{
    return node_test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
