/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dsmrun.c - start a program as the nodes of a job, let them meet, and end with their exit status.
 *
 * One thread, one poll loop: the agent's connections, the ranks' output, signals. Nothing that the job started is left
 * when dsmrun ends, by itself or by SIGKILL (guard.h).
 */
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "runtime/agent.h"
#include "runtime/broker.h"
#include "tools/guard.h"
#include "tools/launch.h"
#include "tools/options.h"
#include "tools/output.h"
#include "tools/preload.h"
#include "tools/program.h"
#include "tools/recording.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#define EXIT_TIMEOUT 124
#define GRACE_NS     5000000000u /* between SIGTERM and SIGKILL */
#define POLL_MAX     (AGENT_POLL_MAX + 2 * NODES_MAX + 3)

/* What is typed at a terminal, on its way to rank 0. */
struct relay {
    bool is_open;
    int to;
    size_t used;
    char buffer[4096];
};

struct job {
    struct options options;
    struct agent *agent;
    char agent_address[AGENT_ADDRESS_MAX];
    struct launch launch;
    struct preload preload;
    int signals; /* signalfd */
    struct launched ranks[NODES_MAX];
    bool is_running[NODES_MAX];
    unsigned running_count;
    struct stream *streams; /* two a rank: output, error */
    struct relay relay;
    int exit_status; /* of the first rank that failed */
    bool is_timed_out;
    unsigned interrupts_count;
    uint64_t timeout_ns, kill_ns; /* os_now_ns() clock; UINT64_MAX: never */
};

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char line[600];
    va_list arguments;
    int used = snprintf(line, sizeof(line), "dsmrun: ");

    va_start(arguments, format);
    used += vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, arguments);
    va_end(arguments);
    if ((size_t)used > sizeof(line) - 2)
        used = (int)sizeof(line) - 2;
    line[used] = '\n';
    (void)!write(STDERR_FILENO, line, (size_t)used + 1);
}

static void signal_all(struct job *job, int signal_number)
{
    for (unsigned i = 0; i < job->options.nodes_count; i++) {
        if (job->is_running[i])
            launch_signal(&job->ranks[i], signal_number);
    }
}

static void end_softly(struct job *job)
{
    uint64_t kill_ns = os_now_ns() + GRACE_NS;

    signal_all(job, SIGTERM);
    if (job->kill_ns > kill_ns)
        job->kill_ns = kill_ns;
}

/* ---- ends of ranks ---------------------------------------------------------------------------------------------- */

static void say_end(const struct job *job, unsigned rank, int status)
{
    /* A guard passes the signal of its program on as a shell does. */
    if (status > 128 && status <= 128 + SIGRTMAX)
        say("rank %u was ended by signal %d (%s)", rank, status - 128, strsignal(status - 128));
    else if (job->options.is_verbose || (status != 0 && job->options.nodes_count > 1))
        say("rank %u exited with %d", rank, status);
}

static void rank_ended(struct job *job, unsigned rank, int wait_status)
{
    int status = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);

    job->is_running[rank] = false;
    job->running_count--;
    close(job->ranks[rank].control);
    agent_exited(job->agent, rank);
    say_end(job, rank, status);
    if (status == 0)
        return;
    if (job->exit_status == 0) {
        job->exit_status = status;
        if (job->options.is_failure_fatal && job->running_count > 0) {
            say("ending the other ranks (--kill-on-failure)");
            end_softly(job);
        }
    }
}

/* Also an orphan whose guard was killed: it is nobody's rank. */
static void child_ended(void *context, int pid, int status)
{
    struct job *job = context;

    for (unsigned i = 0; i < job->options.nodes_count; i++) {
        if (job->is_running[i] && job->ranks[i].pid == pid)
            rank_ended(job, i, status);
    }
}

static void reap(struct job *job)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        child_ended(job, pid, status);
}

/* ---- signals ---------------------------------------------------------------------------------------------------- */

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

static int signals_open(struct job *job)
{
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_COUNT(forwarded); i++)
        sigaddset(&set, forwarded[i]);
    sigaddset(&set, SIGCHLD);
    job->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    /* Blocked, not ignored: what is ignored would stay so in the ranks. */
    sigaddset(&set, SIGPIPE);
    sigaddset(&set, SIGTTIN);
    (void)sigprocmask(SIG_BLOCK, &set, &job->launch.mask);
    return job->signals < 0 ? error_set(-errno, "a descriptor for signals: %s", strerror(errno)) : 0;
}

static void signal_handle(struct job *job, int signal_number)
{
    if (signal_number == SIGINT && ++job->interrupts_count > 1) {
        say("second interrupt: killing all ranks");
        signal_number = SIGKILL;
    }
    if (signal_number == SIGUSR2 && job->preload.is_active) {
        /* Most programs would end by it. */
        preload_report(&job->preload);
        return;
    }
    signal_all(job, signal_number);
}

static void signals_read(struct job *job)
{
    struct signalfd_siginfo info;

    while (read(job->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo != SIGCHLD)
            signal_handle(job, (int)info.ssi_signo);
    }
    reap(job);
}

/* ---- input and output ------------------------------------------------------------------------------------------- */

static void relay_end(struct relay *relay)
{
    close(relay->to);
    relay->is_open = false;
}

static void relay_move(struct relay *relay, bool is_readable)
{
    ssize_t done;

    if (is_readable && relay->used < sizeof(relay->buffer)) {
        done = read(STDIN_FILENO, relay->buffer + relay->used, sizeof(relay->buffer) - relay->used);
        if (done > 0)
            relay->used += (size_t)done;
        else if (done == 0 || (errno != EINTR && errno != EAGAIN))
            relay_end(relay); /* end of input, or another job has the terminal */
    }
    if (!relay->is_open || relay->used == 0)
        return;
    done = write(relay->to, relay->buffer, relay->used);
    if (done > 0) {
        relay->used -= (size_t)done;
        memmove(relay->buffer, relay->buffer + done, relay->used);
    } else if (done < 0 && errno != EAGAIN && errno != EINTR) {
        relay_end(relay);
    }
}

static void streams_open(struct job *job, unsigned rank)
{
    const struct launched *launched = &job->ranks[rank];

    for (unsigned i = 0; i < 2; i++) {
        struct stream *stream = &job->streams[2 * rank + i];

        stream->fd = i == 0 ? launched->output : launched->error;
        stream->target = i == 0 ? STDOUT_FILENO : STDERR_FILENO;
        stream->rank = rank;
        stream->is_tagged = job->options.is_output_tagged;
    }
    if (launched->input >= 0) {
        job->relay.to = launched->input;
        job->relay.is_open = true;
    }
}

static void streams_move(struct job *job)
{
    for (unsigned i = 0; i < 2 * job->options.nodes_count; i++) {
        if (job->streams[i].fd >= 0)
            stream_move(&job->streams[i]);
    }
}

/* ---- the loop --------------------------------------------------------------------------------------------------- */

static int poll_timeout_ms(const struct job *job)
{
    uint64_t deadline_ns = agent_deadline_ns(job->agent);
    uint64_t now_ns = os_now_ns();

    if (deadline_ns > job->timeout_ns)
        deadline_ns = job->timeout_ns;
    if (deadline_ns > job->kill_ns)
        deadline_ns = job->kill_ns;
    if (job->preload.broker != NULL && deadline_ns > broker_server_deadline_ns(job->preload.broker))
        deadline_ns = broker_server_deadline_ns(job->preload.broker);
    if (deadline_ns <= now_ns)
        return 0;
    return deadline_ns - now_ns > 60000000000u ? 60000 : (int)((deadline_ns - now_ns) / 1000000 + 1);
}

static void timers_check(struct job *job)
{
    uint64_t now_ns = os_now_ns();

    if (now_ns >= job->timeout_ns) {
        job->timeout_ns = UINT64_MAX;
        job->is_timed_out = true;
        say("time limit of %g s reached: ending all ranks", (double)job->options.timeout_ns / 1e9);
        end_softly(job);
    }
    if (now_ns >= job->kill_ns) {
        job->kill_ns = UINT64_MAX;
        signal_all(job, SIGKILL);
    }
}

static void job_run(struct job *job)
{
    static struct pollfd descriptors[POLL_MAX];

    while (job->running_count > 0) {
        int count = agent_poll(job->agent, descriptors, AGENT_POLL_MAX);
        const struct pollfd *input = NULL;

        descriptors[count++] = (struct pollfd){.fd = job->signals, .events = POLLIN};
        if (job->preload.broker != NULL)
            descriptors[count++] =
                (struct pollfd){.fd = broker_server_descriptor(job->preload.broker), .events = POLLIN};
        for (unsigned i = 0; i < 2 * job->options.nodes_count; i++)
            count += stream_poll(&job->streams[i], &descriptors[count]);
        if (job->relay.is_open && job->relay.used == 0) {
            input = &descriptors[count];
            descriptors[count++] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
        } else if (job->relay.is_open) {
            descriptors[count++] = (struct pollfd){.fd = job->relay.to, .events = POLLOUT};
        }
        if (poll(descriptors, (nfds_t)count, poll_timeout_ms(job)) < 0)
            continue;
        agent_serve(job->agent);
        if (job->preload.broker != NULL)
            broker_server_serve(job->preload.broker);
        streams_move(job);
        if (job->relay.is_open)
            relay_move(&job->relay, input != NULL && input->revents != 0);
        signals_read(job);
        timers_check(job);
    }
}

/* A signal that asks to end, while only output is left. */
static bool is_told_to_end(struct job *job)
{
    struct signalfd_siginfo info;

    while (read(job->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP)
            return true;
    }
    return false;
}

/* All ranks have ended: what they printed still goes out, at the pace of who reads it. */
static void job_drain(struct job *job)
{
    static struct pollfd descriptors[2 * NODES_MAX + 1];

    for (;;) {
        int count = 0;

        streams_move(job);
        for (unsigned i = 0; i < 2 * job->options.nodes_count; i++) {
            if (stream_poll(&job->streams[i], &descriptors[count]) && descriptors[count].events == POLLOUT)
                count++;
        }
        if (count == 0 || is_told_to_end(job))
            return;
        if (os_now_ns() >= job->timeout_ns) {
            job->is_timed_out = true;
            return;
        }
        descriptors[count++] = (struct pollfd){.fd = job->signals, .events = POLLIN};
        (void)poll(descriptors, (nfds_t)count, poll_timeout_ms(job));
    }
}

/* ---- start and end ---------------------------------------------------------------------------------------------- */

static void key_make(uint8_t key[LAUNCH_KEY_BYTES])
{
    for (unsigned i = 0; i < LAUNCH_KEY_BYTES; i += 8) {
        uint64_t random = os_random();

        memcpy(key + i, &random, sizeof(random));
    }
}

static int ranks_start(struct job *job)
{
    for (unsigned i = 0; i < job->options.nodes_count; i++) {
        const char *host = hosts_of_rank(&job->options.hosts, i);
        int result = launch_rank(&job->launch, i, &job->ranks[i]);

        if (result < 0)
            return result;
        job->is_running[i] = true;
        job->running_count++;
        streams_open(job, i);
        if (job->options.is_verbose)
            say("rank %u starts on %s (process %d)", i, host == NULL ? "this machine" : host, job->ranks[i].pid);
    }
    return 0;
}

/* 0, or the exit status, after saying why. */
static int job_open(struct job *job)
{
    char text[LAUNCH_ADDRESS_MAX];
    const char *address;
    unsigned nodes_count = job->options.nodes_count;

    job->timeout_ns = job->kill_ns = UINT64_MAX;
    if (job->options.timeout_ns != 0)
        job->timeout_ns = os_now_ns() + job->options.timeout_ns;
    key_make(job->launch.key);
    job->launch.options = &job->options;
    job->launch.is_output_piped = nodes_count > 1 || job->options.is_output_tagged;
    job->launch.is_input_piped = isatty(STDIN_FILENO) != 0;
    job->launch.agent_address = job->agent_address;
    job->streams = calloc(2 * (size_t)nodes_count, sizeof(*job->streams));
    if (job->streams == NULL) {
        say("no memory for the output of %u ranks", nodes_count);
        return EX_OSERR;
    }
    for (unsigned i = 0; i < 2 * nodes_count; i++)
        job->streams[i].fd = -1;
    if (launch_agent_address(&job->options, text, &address) < 0) {
        say("%s", error_text());
        return EX_USAGE;
    }
    if (signals_open(job) < 0 || agent_create(address, nodes_count, job->launch.key, job->agent_address,
                                              sizeof(job->agent_address), &job->agent) < 0) {
        say("%s", error_text());
        return EX_UNAVAILABLE;
    }
    job->launch.directory = agent_directory(job->agent);
    job->launch.variables = job->preload.variables;
    if (job->preload.is_active) {
        int status = preload_open(&job->preload, job->launch.directory);

        if (status != 0) {
            say("%s", error_text());
            return status;
        }
        if (job->launch.directory == NULL)
            job->launch.directory = job->preload.directory;
    }
    if (job->options.is_verbose)
        say("job of %u, agent at %s", nodes_count, job->agent_address);
    return 0;
}

static void job_close(struct job *job)
{
    guard_end_descendants(child_ended, job);
    if (job->agent != NULL)
        job_drain(job);
    if (job->preload.is_active)
        preload_close(&job->preload);
    if (job->agent != NULL && agent_directory(job->agent) != NULL)
        guard_remove_directory(agent_directory(job->agent));
    agent_destroy(job->agent);
    free(job->streams);
    explicit_bzero(job->launch.key, sizeof(job->launch.key));
}

static int program_check(struct job *job)
{
    const struct options *options = &job->options;
    char path[PATH_MAX] = "";
    /* Another machine has its own files: the guard there looks. */
    int found = options->hosts.count > 0 ? 0 : program_find(options->program[0], path, sizeof(path));

    return preload_decide(&job->preload, options, path, found);
}

/* The broker needs two descriptors for each process of the job; the ranks get the limit that we got. */
static void files_limit_raise(struct job *job)
{
    struct rlimit raised;

    (void)getrlimit(RLIMIT_NOFILE, &job->launch.files);
    raised = job->launch.files;
    raised.rlim_cur = raised.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &raised);
}

/* Other hosts have files of their own. */
static int recording_check(const struct job *job)
{
    if (job->options.record[0] == '\0' || job->options.hosts.count > 0)
        return 0;
    return recording_prepare(job->options.record) == 0 ? 0 : EX_USAGE;
}

static void recording_say(const struct job *job)
{
    const struct options *options = &job->options;

    if (options->record[0] != '\0' && options->hosts.count == 0 && options->nodes_count == 1 &&
        !recording_is_there(options->record))
        say("nothing was recorded: no page was faulted on, since the memory fitted or was not managed");
}

static int job_status(const struct job *job)
{
    return job->is_timed_out ? EXIT_TIMEOUT : job->exit_status;
}

int main(int argc, char **argv)
{
    static struct job job;
    int status;

    if (argc > 1 && strcmp(argv[1], GUARD_WORD) == 0)
        return guard_main(argc, argv);
    if (!options_parse(argc, argv, &job.options, &status))
        return status;
    log_configure(job.options.is_verbose ? LOG_INFO : LOG_WARN, "dsmrun");
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    files_limit_raise(&job);
    status = program_check(&job);
    if (status == 0)
        status = recording_check(&job);
    if (status != 0) {
        say("%s", error_text());
        goto free_options;
    }
    status = job_open(&job);
    if (status == 0 && ranks_start(&job) < 0) {
        say("%s", error_text());
        status = EX_OSERR;
        signal_all(&job, SIGKILL);
    }
    job_run(&job);
    job_close(&job);
    recording_say(&job);
    if (status == 0)
        status = job_status(&job);
free_options:
    options_free(&job.options);
    return status;
}
