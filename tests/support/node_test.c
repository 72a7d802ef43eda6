/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node_test.c - the judge that starts jobs, and what cases use inside them.
 */
#include "tests/support/node_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__has_feature)
#define HAS(feature) __has_feature(feature)
#else
#define HAS(feature) 0
#endif
#if defined(__SANITIZE_THREAD__) || HAS(thread_sanitizer)
#define IS_THREAD_SANITIZED true
#else
#define IS_THREAD_SANITIZED false
#endif
#if defined(__SANITIZE_ADDRESS__) || HAS(address_sanitizer)
#define IS_SANITIZED true
#else
#define IS_SANITIZED IS_THREAD_SANITIZED
#endif

#define OUTPUT_MAX         (256 * 1024)
#define OPTIONS_MAX        32
#define CASE_VARIABLE      "NODE_TEST_CASE"
#define DIRECTORY_VARIABLE "NODE_TEST_DIRECTORY"
#define PAGE_WORDS         (DSM_PAGE_BYTES / sizeof(uint64_t))

/* The judge's own state; one thread. */
static struct {
    const char *settings[OPTIONS_MAX];
    unsigned settings_count;
    char output[OUTPUT_MAX];
    char directory[PATH_MAX];
} judge;

/* ---- checks
 * ---------------------------------------------------------------------------------------------------------- */

_Noreturn void check_failed(const char *file, int line, const char *format, ...)
{
    char text[1024];
    int used = snprintf(text, sizeof(text), "FAILED node %d: %s:%d: ", dsm_node_id(), file, line);
    va_list arguments;
    ssize_t written;

    va_start(arguments, format);
    used += vsnprintf(text + used, sizeof(text) - 1 - (size_t)used, format, arguments);
    va_end(arguments);
    if ((size_t)used > sizeof(text) - 2)
        used = (int)sizeof(text) - 2;
    text[used++] = '\n';
    written = write(STDERR_FILENO, text, (size_t)used);
    _exit(written > 0 ? 1 : 2);
}

void check_is(const char *file, int line, const char *what, long long value, long long wanted)
{
    if (value != wanted)
        check_failed(file, line, "%s is %lld, not %lld", what, value, wanted);
}

static const char *result_name(int result)
{
    const char *name = result > 0 ? NULL : strerrorname_np(-result);

    return name == NULL ? "?" : name;
}

void check_result(const char *file, int line, const char *what, int result, int wanted)
{
    char sentence[512];

    snprintf(sentence, sizeof(sentence), "%s", dsm_errmsg());
    if (result != wanted)
        check_failed(file, line, "%s is %d (%s: %s), not %d (%s)", what, result, result_name(result), sentence, wanted,
                     result_name(wanted));
    if (wanted != 0 && dsm_errmsg()[0] == '\0')
        check_failed(file, line, "%s failed as it should, but without a sentence", what);
}

/* ---- in a node
 * ----------------------------------------------------------------------------------------------------------- */

_Noreturn void node_skip(const char *why)
{
    printf("skipped: %s\n", why);
    fflush(stdout);
    _exit(NODE_TEST_SKIP);
}

void *node_share_with(const char *name, size_t size_bytes, const struct dsm_attributes *attributes)
{
    void *memory = NULL;

    if (dsm_node_id() == 0) {
        CHECK_OK(dsm_malloc_with(size_bytes, attributes, &memory));
        CHECK_OK(dsm_root_set(name, memory));
    } else {
        CHECK_OK(dsm_root_get(name, DSM_FOREVER, &memory));
    }
    CHECK_OK(dsm_barrier());
    return memory;
}

void *node_share(const char *name, size_t size_bytes)
{
    return node_share_with(name, size_bytes, NULL);
}

struct thread_call {
    pthread_t thread;
    void (*run)(unsigned index);
    unsigned index;
};

static void *thread_main(void *argument)
{
    struct thread_call *call = argument;

    call->run(call->index);
    return NULL;
}

void threads_run(unsigned count, void (*run)(unsigned index))
{
    struct thread_call calls[64];

    CHECK(count <= 64);
    for (unsigned i = 0; i < count; i++) {
        calls[i] = (struct thread_call){.run = run, .index = i};
        CHECK_IS(pthread_create(&calls[i].thread, NULL, thread_main, &calls[i]), 0);
    }
    for (unsigned i = 0; i < count; i++)
        CHECK_IS(pthread_join(calls[i].thread, NULL), 0);
}

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

void sleep_ms(unsigned ms)
{
    struct timespec left = {ms / 1000, (long)(ms % 1000) * 1000000};

    while (nanosleep(&left, &left) != 0)
        ;
}

unsigned patience(unsigned value)
{
    return IS_SANITIZED ? value * 4 : value;
}

/* The touching thread's way out of SIGBUS. */
static _Thread_local sigjmp_buf bus_exit;
static _Thread_local volatile sig_atomic_t bus_is_expected;

static void bus_arrived(int signal, siginfo_t *info, void *context)
{
    (void)context;
    if (bus_is_expected)
        siglongjmp(bus_exit, 1);
    dprintf(STDERR_FILENO, "FAILED: unexpected signal %d at %p\n", signal, info->si_addr);
    _exit(1);
}

/* Out of the race detector's sight: a lost page may be mapped anew by the shard while this thread is at it. */
__attribute__((no_sanitize_thread)) static bool touch(volatile char *address, bool is_write)
{
    struct sigaction action = {.sa_sigaction = bus_arrived, .sa_flags = SA_SIGINFO | SA_NODEFER};

    sigaction(SIGBUS, &action, NULL);
    bus_is_expected = 1;
    if (sigsetjmp(bus_exit, 1) != 0) {
        bus_is_expected = 0;
        return false;
    }
    if (is_write)
        *address = 1;
    else
        (void)*address;
    bus_is_expected = 0;
    return true;
}

bool touch_reads(const volatile void *address)
{
    return touch((volatile char *)(uintptr_t)address, false);
}

bool touch_writes(volatile void *address)
{
    return touch(address, true);
}

/* Every other page compresses to a third, the rest does not. */
static uint64_t page_word_of(uint64_t number, uint64_t round, size_t i)
{
    struct random random = {.state = number << 20 ^ round << 44 ^ i};

    if (number % 2 == 1 && i % 4 != 0)
        random.state ^= i;
    return random_next(&random);
}

void page_fill(void *page, uint64_t number, uint64_t round)
{
    uint64_t *words = page;

    for (size_t i = 0; i < PAGE_WORDS; i++)
        words[i] = page_word_of(number, round, i);
}

bool page_is_filled(const void *page, uint64_t number, uint64_t round)
{
    const uint64_t *words = page;

    for (size_t i = 0; i < PAGE_WORDS; i++) {
        if (words[i] == page_word_of(number, round, i))
            continue;
        fprintf(stderr, "node %d: page %lu round %lu: word %zu is 0x%lx, not 0x%lx\n", dsm_node_id(), number, round, i,
                words[i], page_word_of(number, round, i));
        return false;
    }
    return true;
}

struct dsm_stats node_stats(void)
{
    struct dsm_stats stats;

    CHECK_OK(dsm_stats(&stats, sizeof(stats)));
    return stats;
}

const char *node_directory(void)
{
    return getenv(DIRECTORY_VARIABLE);
}

static int node_run(const struct node_case *test)
{
    int error;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (test->is_bare) {
        test->run();
        return 0;
    }
    error = dsm_init(NULL);
    if (error == -EPERM || error == -ENOSYS)
        node_skip(dsm_errmsg());
    CHECK_IS(error == 0 ? 0 : (fprintf(stderr, "dsm_init: %s\n", dsm_errmsg()), error), 0);
    test->run();
    if (dsm_node_id() >= 0)
        CHECK_OK(dsm_finalize());
    return 0;
}

/* ---- the judge
 * -------------------------------------------------------------------------------------------------------------- */

static const char *launcher_find(char *path, size_t size)
{
    static const char *const places[] = {"dsmrun", "tools/dsmrun", "bin/dsmrun"};
    const char *told = getenv("TIERMESH_DSMRUN");
    const char *build = getenv("TIERMESH_BUILD");

    if (told != NULL)
        return told;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path, size, "%s/%s", build != NULL ? build : ".", places[i]);
        if (access(path, X_OK) == 0)
            return path;
    }
    return NULL;
}

/* Puts the directory for each %D. */
static char *option_expand(const char *option)
{
    const char *mark = strstr(option, "%D");
    char *text = NULL;

    if (mark == NULL)
        return strdup(option);
    if (asprintf(&text, "%.*s%s%s", (int)(mark - option), option, judge.directory, mark + 2) < 0)
        return NULL;
    return text;
}

static void option_export(char *option)
{
    char name[64] = "DSM_";
    char *value = strchr(option, '=');
    size_t used = 4;

    CHECK(value != NULL);
    for (char *at = option; at < value && used < sizeof(name) - 1; at++)
        name[used++] = *at == '.' ? '_' : (char)(*at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : *at);
    setenv(name, value + 1, 1);
}

static _Noreturn void job_exec(const struct node_case *test, char *program)
{
    char path[PATH_MAX];
    char count[16];
    const char *launcher = launcher_find(path, sizeof(path));
    char *arguments[16 + 2 * OPTIONS_MAX] = {NULL, (char[]){"-n"}, count};
    unsigned used = 3;

    if (IS_THREAD_SANITIZED) { /* it wants the window below 512 GiB */
        setenv("DSM_WINDOW_SHARED", "64G", 1);
        setenv("DSM_WINDOW_PRIVATE", "64G", 1);
    }
    for (unsigned i = 0; i < 8 && test->options[i] != NULL; i++)
        option_export(option_expand(test->options[i]));
    for (unsigned i = 0; i < judge.settings_count; i++)
        option_export(option_expand(judge.settings[i]));
    setenv(CASE_VARIABLE, test->name, 1);
    setenv(DIRECTORY_VARIABLE, judge.directory, 1);
    if (test->nodes_count <= 1) {
        execl(program, program, (char *)NULL);
        _exit(126);
    }
    if (launcher == NULL) {
        fprintf(stderr, "no dsmrun in the build directory\n");
        _exit(126);
    }
    snprintf(count, sizeof(count), "%u", test->nodes_count);
    arguments[0] = strdup(launcher);
    arguments[used++] = (char[]){"--"};
    arguments[used++] = program;
    execv(launcher, arguments);
    fprintf(stderr, "run %s: %s\n", launcher, strerror(errno));
    _exit(126);
}

/* Reads until the job's last process closed its output or time is over. Returns false when it is. */
static bool output_read(int fd, uint64_t deadline_ns)
{
    size_t used = 0;

    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        uint64_t now = now_ns();
        ssize_t count;

        judge.output[used] = '\0';
        if (now >= deadline_ns)
            return false;
        if (poll(&ready, 1, (int)((deadline_ns - now) / MILLISECOND_NS) + 1) == 0)
            return false;
        if (used == OUTPUT_MAX - 1)
            used /= 2; /* keep what came first, and the end */
        count = read(fd, judge.output + used, OUTPUT_MAX - 1 - used);
        if (count == 0 || (count < 0 && errno != EINTR))
            return true;
        used += count > 0 ? (size_t)count : 0;
    }
}

/* For whoever must find out where a job that does not end stands. */
static void job_wait_for_debugger(const struct node_case *test, pid_t job)
{
    if (getenv("NODE_TEST_KEEP") == NULL)
        return;
    fprintf(stderr, "%s: job %d hangs; kept until its end\n%s", test->name, job, judge.output);
    while (waitpid(job, NULL, 0) < 0 && errno == EINTR)
        ;
    exit(1);
}

static int job_end(const struct node_case *test, pid_t job, bool in_time)
{
    int status;

    if (!in_time) {
        job_wait_for_debugger(test, job);
        kill(job, SIGTERM); /* dsmrun ends its nodes */
        for (int i = 0; i < 30 && waitpid(job, &status, WNOHANG) == 0; i++)
            sleep_ms(100);
        kill(-job, SIGKILL);
    }
    while (waitpid(job, &status, 0) < 0 && errno == EINTR)
        ;
    if (!in_time)
        return 124;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void directory_make(void)
{
    const char *build = getenv("TIERMESH_BUILD");

    snprintf(judge.directory, sizeof(judge.directory), "%s/node-test-XXXXXX", build != NULL ? build : ".");
    if (mkdtemp(judge.directory) == NULL) {
        fprintf(stderr, "make %s: %s\n", judge.directory, strerror(errno));
        exit(1);
    }
}

static void directory_remove(void)
{
    DIR *directory = opendir(judge.directory);
    struct dirent *entry;

    while (directory != NULL && (entry = readdir(directory)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory != NULL)
        closedir(directory);
    rmdir(judge.directory);
}

static int job_run(const struct node_case *test, char *program)
{
    unsigned limit_s = patience(test->timeout_s != 0 ? test->timeout_s : 20);
    int pipe_ends[2];
    bool in_time;
    pid_t job;

    if (pipe2(pipe_ends, O_CLOEXEC) != 0)
        return 126;
    job = fork();
    if (job == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(pipe_ends[1], STDOUT_FILENO);
        dup2(pipe_ends[1], STDERR_FILENO);
        job_exec(test, program);
    }
    close(pipe_ends[1]);
    in_time = output_read(pipe_ends[0], now_ns() + limit_s * SECOND_NS);
    close(pipe_ends[0]);
    return job_end(test, job, in_time);
}

bool outcome_says(const struct node_outcome *outcome, const char *text)
{
    if (strstr(outcome->text, text) != NULL)
        return true;
    fprintf(stderr, "the job did not say '%s'\n", text);
    return false;
}

static bool is_wanted(const struct node_case *test, int argc, char **argv, int first)
{
    for (int i = first; i < argc; i++)
        if (strcmp(argv[i], test->name) == 0)
            return true;
    return first == argc && !test->is_asked_only;
}

/* Nodes that should talk over one transport (TIERMESH_TEST_PATH, with option log=info) did so. */
static bool path_is_right(const struct node_case *test, const struct node_outcome *outcome)
{
    const char *wanted = getenv("TIERMESH_TEST_PATH");
    char text[64];

    if (wanted == NULL || test->nodes_count < 2)
        return true;
    snprintf(text, sizeof(text), "is reached by %s", wanted);
    return outcome_says(outcome, text);
}

static int judge_one(const struct node_case *test, char *program)
{
    struct node_outcome outcome = {.text = judge.output};
    uint64_t start_ns = now_ns();
    bool is_good;

    directory_make();
    outcome.status = job_run(test, program);
    directory_remove();
    if (outcome.status == NODE_TEST_SKIP && !test->may_not_skip) {
        printf("skip %-32s %s", test->name, judge.output);
        return NODE_TEST_SKIP;
    }
    is_good = outcome.status != 124 && (test->judge != NULL ? test->judge(&outcome) : outcome.status == 0) &&
              path_is_right(test, &outcome);
    printf("%s %-32s %6.2f s  status %d\n", is_good ? "ok  " : "FAIL", test->name, (double)(now_ns() - start_ns) / 1e9,
           outcome.status);
    if (!is_good)
        printf("---- output of %s\n%s----\n", test->name, judge.output);
    fflush(stdout);
    return is_good ? 0 : 1;
}

static int settings_take(int argc, char **argv)
{
    int at = 1;

    while (at + 1 < argc && strcmp(argv[at], "--set") == 0) {
        CHECK(judge.settings_count < OPTIONS_MAX);
        judge.settings[judge.settings_count++] = argv[at + 1];
        at += 2;
    }
    return at;
}

static void case_must_exist(const char *name, const struct node_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(cases[i].name, name) == 0)
            return;
    fprintf(stderr, "no case is named '%s'\n", name);
    exit(1);
}

int node_test_main(int argc, char **argv, const struct node_case *cases, size_t cases_count)
{
    const char *inside = getenv(CASE_VARIABLE);
    char program[PATH_MAX] = "";
    int first = settings_take(argc, argv);
    int failed = 0;
    int done = 0;

    for (size_t i = 0; inside != NULL && i < cases_count; i++)
        if (strcmp(cases[i].name, inside) == 0)
            return node_run(&cases[i]);
    CHECK(inside == NULL && readlink("/proc/self/exe", program, sizeof(program) - 1) > 0);
    for (int i = first; i < argc; i++)
        case_must_exist(argv[i], cases, cases_count);
    for (size_t i = 0; i < cases_count; i++) {
        int result = is_wanted(&cases[i], argc, argv, first) ? judge_one(&cases[i], program) : NODE_TEST_SKIP;

        failed += result == 1;
        done += result == 0;
    }
    printf("%d passed, %d failed\n", done, failed);
    return failed > 0 ? 1 : done > 0 ? 0 : NODE_TEST_SKIP;
}
