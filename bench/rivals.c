/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rivals.c - measures two commands by turns, one round each, and judges the ratio: the same program under the preload
 * library and under a rival.
 *
 *   bench_rivals [OPTION]... PRODUCT... :: RIVAL...
 *     --figure NAME,UNIT,BAR   what a command says, in order. BAR: ">=1.2", "<=1.03", or "" for a figure that is told.
 *                              The ratio is product to rival; with --once, of the rival's time to the product's.
 *     --seconds S              of a round. The command says "ready" when it can be measured, then takes a line with S
 *                              and answers with a line of its figures
 *     --once                   instead: each round runs the command from start to end, the figure is the time it takes.
 *                              What it prints must be the same on both sides
 *     --rounds N               5
 *     --drop-caches            before each run of --once
 *     --json FILE              as every benchmark
 *
 *   bench_rivals --peak COMMAND...    runs it once and says how many MiB of memory it had at most
 *
 * The commands run at the same time but are asked by turns: the one that is not asked waits for its input. They are
 * ended by the end of their input, and by SIGTERM when that is not enough.
 */
#include "bench/report.h"
#include "bench/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIGURES_MAX    4
#define READY_LIMIT_NS UINT64_C(1800000000000)
#define ROUND_LIMIT_NS UINT64_C(300000000000)
#define END_LIMIT_NS   UINT64_C(20000000000)

enum side_name {
    PRODUCT,
    RIVAL,
    SIDES,
};

static const char *const side_names[SIDES] = {"the product's side", "the rival's side"};

struct side {
    char **command;
    pid_t pid; /* 0: not running */
    int to, from;
    size_t used;
    char buffer[4096];
    uint64_t hash; /* of what it printed, --once */
};

static struct {
    struct figure figures[FIGURES_MAX];
    char bars[FIGURES_MAX][16];
    unsigned figures_count;
    const char *seconds;
    unsigned rounds_count;
    bool is_once, has_to_drop_caches;
    struct side sides[SIDES];
} run = {.seconds = "3", .rounds_count = 5};

static volatile sig_atomic_t was_told_to_end;

static void told_to_end(int signal_number)
{
    (void)signal_number;
    was_told_to_end = 1;
}

/* ---- processes ------------------------------------------------------------------------------------------------- */

static bool side_has_ended(struct side *side, uint64_t limit_ns, int *ret_status)
{
    uint64_t end_ns = now_ns() + limit_ns;

    while (waitpid(side->pid, ret_status, WNOHANG) == 0) {
        if (now_ns() >= end_ns)
            return false;
        nap_ns(5000000);
    }
    side->pid = 0;
    return true;
}

static int side_end(struct side *side)
{
    int status = 0;

    if (side->pid == 0)
        return 0;
    close(side->to);
    if (!side_has_ended(side, was_told_to_end ? 0 : END_LIMIT_NS, &status)) {
        kill(side->pid, SIGTERM);
        if (!side_has_ended(side, END_LIMIT_NS, &status)) {
            kill(side->pid, SIGKILL);
            side_has_ended(side, END_LIMIT_NS, &status);
        }
    }
    close(side->from);
    return status;
}

_Noreturn static void give_up(const char *what, const struct side *side)
{
    fprintf(stderr, "bench_rivals: %s: %s (%s ...)\n", side_names[side - run.sides], what, side->command[0]);
    for (int i = 0; i < SIDES; i++)
        side_end(&run.sides[i]);
    exit(was_told_to_end ? 143 : EXIT_FAILURE);
}

static void side_start(struct side *side)
{
    int in[2];
    int out[2];

    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
        die("make pipes: %s", strerror(errno));
    side->pid = fork();
    if (side->pid < 0)
        die("fork: %s", strerror(errno));
    if (side->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        execvp(side->command[0], side->command);
        fprintf(stderr, "bench_rivals: start %s: %s\n", side->command[0], strerror(errno));
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    side->to = in[1];
    side->from = out[0];
    side->used = 0;
}

/* What the command printed since, as much as there is room for. false: the end of it. */
static bool side_read(struct side *side, uint64_t end_ns)
{
    struct pollfd wait = {.fd = side->from, .events = POLLIN};
    ssize_t got;

    while (poll(&wait, 1, 100) <= 0) {
        if (was_told_to_end)
            give_up("told to end", side);
        if (now_ns() > end_ns)
            give_up("no answer", side);
    }
    got = read(side->from, side->buffer + side->used, sizeof(side->buffer) - 1 - side->used);
    if (got > 0)
        side->used += (size_t)got;
    return got > 0;
}

/* The next line, valid until the next call. */
static const char *side_line(struct side *side, uint64_t limit_ns)
{
    static char line[sizeof(side->buffer)];
    uint64_t end_ns = now_ns() + limit_ns;
    char *end;

    while ((end = memchr(side->buffer, '\n', side->used)) == NULL) {
        if (side->used == sizeof(side->buffer) - 1 || !side_read(side, end_ns))
            give_up("ended before it answered", side);
    }
    memcpy(line, side->buffer, (size_t)(end - side->buffer));
    line[end - side->buffer] = '\0';
    side->used -= (size_t)(end + 1 - side->buffer);
    memmove(side->buffer, end + 1, side->used);
    return line;
}

/* ---- rounds ---------------------------------------------------------------------------------------------------- */

static void side_ask(struct side *side, double *values)
{
    const char *line;
    char *next;

    dprintf(side->to, "%s\n", run.seconds);
    line = side_line(side, ROUND_LIMIT_NS);
    for (unsigned i = 0; i < run.figures_count; i++) {
        values[i] = strtod(line, &next);
        if (next == line)
            give_up("it does not answer with its figures", side);
        line = next;
    }
}

static void caches_drop(void)
{
    int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

    sync();
    if (fd < 0 || write(fd, "3", 1) != 1)
        die("drop the caches: %s", strerror(errno));
    close(fd);
}

/* Seconds from start to end. */
static double side_once(struct side *side)
{
    uint64_t start_ns;
    int status;

    if (run.has_to_drop_caches)
        caches_drop();
    start_ns = now_ns();
    side->hash = UINT64_C(0xcbf29ce484222325);
    side_start(side);
    while (side_read(side, start_ns + READY_LIMIT_NS)) {
        for (size_t i = 0; i < side->used; i++)
            side->hash = (side->hash ^ (uint8_t)side->buffer[i]) * UINT64_C(0x100000001b3);
        side->used = 0;
    }
    status = side_end(side);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        give_up("it failed", side);
    return (double)(now_ns() - start_ns) / 1e9;
}

static void round_run(unsigned round)
{
    double values[SIDES][FIGURES_MAX];

    for (int i = 0; i < SIDES; i++) {
        int which = round % 2 == 0 ? i : SIDES - 1 - i;

        if (run.is_once)
            values[which][0] = side_once(&run.sides[which]);
        else
            side_ask(&run.sides[which], values[which]);
    }
    if (run.is_once && run.sides[PRODUCT].hash != run.sides[RIVAL].hash)
        give_up("it printed something else than the other side", &run.sides[PRODUCT]);
    for (unsigned i = 0; i < run.figures_count; i++) {
        double product = values[PRODUCT][i];
        double rival = values[RIVAL][i];

        figure_add(&run.figures[i], product, rival, run.is_once ? rival / product : product / rival);
    }
}

static void judge(unsigned i)
{
    const char *bar = run.bars[i];

    if (bar[0] == '>')
        figure_judge(&run.figures[i], BAR_AT_LEAST, strtod(bar + 2, NULL));
    else if (bar[0] == '<')
        figure_judge(&run.figures[i], BAR_AT_MOST, strtod(bar + 2, NULL));
    else
        figure_tell(&run.figures[i]);
}

/* ---- arguments ------------------------------------------------------------------------------------------------- */

static void figure_parse(char *text)
{
    struct figure *figure = &run.figures[run.figures_count];
    const char *bar;

    if (run.figures_count == FIGURES_MAX)
        die("more than %d figures", FIGURES_MAX);
    figure->name = strsep(&text, ",");
    figure->unit = text != NULL ? strsep(&text, ",") : "";
    bar = text != NULL ? text : "";
    snprintf(run.bars[run.figures_count++], sizeof(run.bars[0]), "%s", bar);
}

static void commands_parse(char **arguments)
{
    run.sides[PRODUCT].command = arguments;
    while (*arguments != NULL && strcmp(*arguments, "::") != 0)
        arguments++;
    if (*arguments == NULL || arguments[1] == NULL || arguments == run.sides[PRODUCT].command)
        die("two commands are needed, with :: between them");
    *arguments = NULL;
    run.sides[RIVAL].command = arguments + 1;
}

static void arguments_parse(int argc, char **argv)
{
    static const struct option names[] = {
        {"figure", required_argument, NULL, 'f'},
        {"seconds", required_argument, NULL, 's'},
        {"rounds", required_argument, NULL, 'r'},
        {"once", no_argument, NULL, 'o'},
        {"drop-caches", no_argument, NULL, 'c'},
        {"json", required_argument, NULL, 'j'},
        {NULL, 0, NULL, 0},
    };
    int letter;

    while ((letter = getopt_long(argc, argv, "+", names, NULL)) != -1) {
        switch (letter) {
        case 'f':
            figure_parse(optarg);
            break;
        case 's':
            run.seconds = optarg;
            break;
        case 'r':
            run.rounds_count = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'o':
            run.is_once = true;
            break;
        case 'c':
            run.has_to_drop_caches = true;
            break;
        case 'j':
            report_open(optarg);
            break;
        default:
            exit(2);
        }
    }
    if (run.figures_count == 0 || (run.is_once && run.figures_count != 1))
        die("a figure is needed (--figure), one with --once");
    commands_parse(argv + optind);
}

static int peak_say(char **command)
{
    struct rusage usage;
    int status;
    pid_t pid = fork();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (pid < 0 || null < 0)
        die("start %s: %s", command[0], strerror(errno));
    if (pid == 0) {
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        execvp(command[0], command);
        _exit(127);
    }
    if (waitpid(pid, &status, 0) != pid || status != 0 || getrusage(RUSAGE_CHILDREN, &usage) != 0)
        die("%s failed", command[0]);
    printf("%ld\n", (usage.ru_maxrss + 1023) / 1024);
    return 0;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = told_to_end};

    if (argc > 2 && strcmp(argv[1], "--peak") == 0)
        return peak_say(argv + 2);
    arguments_parse(argc, argv);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; !run.is_once && i < SIDES; i++) {
        side_start(&run.sides[i]);
        while (strcmp(side_line(&run.sides[i], READY_LIMIT_NS), "ready") != 0)
            ;
    }
    for (unsigned round = 0; round < run.rounds_count; round++)
        round_run(round);
    for (int i = 0; i < SIDES; i++)
        side_end(&run.sides[i]);
    for (unsigned i = 0; i < run.figures_count; i++)
        judge(i);
    return 0;
}
