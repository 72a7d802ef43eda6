/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch.c - start one rank: its guard, here or on another machine through the launcher.
 *
 * The job's key goes down the control socket (over a launcher: its standard input), so that no other process of either
 * machine can read it from a command line or an environment.
 */
#include "tools/launch.h"
#include "base/error.h"
#include "runtime/broker.h"
#include "tools/guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

/* The other ends, for the child. -1: it keeps what dsmrun has. */
struct child_ends {
    int control, output, error, input;
};

static void close_if_open(int fd)
{
    if (fd >= 0)
        close(fd);
}

static int own_path(char path[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);

    if (length < 0)
        return error_set(-errno, "dsmrun's own path: %s", strerror(errno));
    path[length] = '\0';
    return 0;
}

/* ---- in the child ----------------------------------------------------------------------------------------------- */

static void set_number(const char *name, unsigned value)
{
    char text[16];

    snprintf(text, sizeof(text), "%u", value);
    (void)setenv(name, text, 1);
}

static _Noreturn void run_guard(const struct launch *launch, unsigned rank, const char *self, int control)
{
    static const char *const outer[] = {"DSM_PRELOAD", BROKER_PATH_VARIABLE, BROKER_KEY_VARIABLE,
                                        LAUNCH_PRELOAD_VARIABLE, LAUNCH_UNMANAGED_VARIABLE};
    const struct options *options = launch->options;
    char number[16], guard_word[] = GUARD_WORD, nowhere[] = "-", name[] = "dsmrun";
    unsigned words = 0;
    char **argv;

    while (options->program[words] != NULL)
        words++;
    argv = calloc(words + 5, sizeof(*argv));
    if (argv == NULL)
        _exit(EX_OSERR);
    /* Of a job around this one. */
    for (size_t i = 0; i < ARRAY_COUNT(outer); i++)
        (void)unsetenv(outer[i]);
    for (unsigned i = 0; i < options->settings_count; i++)
        (void)putenv(options->settings[i]);
    for (unsigned i = 0; i < LAUNCH_VARIABLES_MAX && launch->variables[i] != NULL; i++)
        (void)putenv(launch->variables[i]);
    if (options->is_unmanaged_allowed)
        (void)setenv(LAUNCH_UNMANAGED_VARIABLE, "1", 1);
    set_number("DSM_RANK", rank);
    set_number("DSM_SIZE", options->nodes_count);
    (void)setenv("DSM_AGENT", launch->agent_address, 1);
    (void)fcntl(control, F_SETFD, 0);
    snprintf(number, sizeof(number), "%d", control);
    argv[0] = name;
    argv[1] = guard_word;
    argv[2] = number;
    argv[3] = launch->directory == NULL ? nowhere : strdup(launch->directory);
    memcpy(argv + 4, options->program, words * sizeof(*argv));
    execv(self, argv);
    fprintf(stderr, "dsmrun: start %s: %s\n", self, strerror(errno));
    _exit(EX_OSERR);
}

/* As the shell on the other side shall read it: one word. */
static void put_quoted(FILE *command, const char *word)
{
    fputc('\'', command);
    for (; *word != '\0'; word++) {
        if (*word == '\'')
            fputs("'\\''", command);
        else
            fputc(*word, command);
    }
    fputs("' ", command);
}

static bool is_of_this_job(const char *variable)
{
    static const char *const names[] = {
        "DSM_RANK=",
        "DSM_SIZE=",
        "DSM_AGENT=",
        "DSM_KEY_FD=",
        "DSM_PRELOAD=",
        BROKER_PATH_VARIABLE "=",
        BROKER_KEY_VARIABLE "=",
        LAUNCH_PRELOAD_VARIABLE "=",
        LAUNCH_UNMANAGED_VARIABLE "=",
    };

    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    }
    return false;
}

static char *remote_command(const struct launch *launch, unsigned rank, const char *self)
{
    const struct options *options = launch->options;
    char directory[PATH_MAX], variable[LAUNCH_ADDRESS_MAX + 16];
    char *text = NULL;
    size_t size;
    FILE *command = open_memstream(&text, &size);

    if (command == NULL || getcwd(directory, sizeof(directory)) == NULL)
        _exit(EX_OSERR);
    fputs("cd ", command);
    put_quoted(command, directory);
    fputs("&& exec env ", command);
    for (char **at = environ; *at != NULL; at++) {
        if (strncmp(*at, "DSM_", 4) == 0 && !is_of_this_job(*at))
            put_quoted(command, *at);
    }
    for (unsigned i = 0; i < options->settings_count; i++)
        put_quoted(command, options->settings[i]);
    fprintf(command, "DSM_RANK=%u DSM_SIZE=%u ", rank, options->nodes_count);
    snprintf(variable, sizeof(variable), "DSM_AGENT=%s", launch->agent_address);
    put_quoted(command, variable);
    put_quoted(command, self);
    fputs(GUARD_WORD " 0 - ", command);
    for (char **word = options->program; *word != NULL; word++)
        put_quoted(command, *word);
    if (fclose(command) != 0)
        _exit(EX_OSERR);
    return text;
}

/* The launcher may come with arguments ("ssh -p 2222"), so a shell takes it apart. */
static _Noreturn void run_launcher(const struct launch *launch, unsigned rank, const char *self, const char *host)
{
    char *script;

    if (asprintf(&script, "exec %s \"$@\"", launch->options->launcher) < 0)
        _exit(EX_OSERR);
    execl("/bin/sh", "sh", "-c", script, "dsmrun", host, remote_command(launch, rank, self), (char *)NULL);
    _exit(EX_OSERR);
}

static _Noreturn void run_child(const struct launch *launch, unsigned rank, const struct child_ends *ends, pid_t parent,
                                const char *self)
{
    const char *host = hosts_of_rank(&launch->options->hosts, rank);

    if ((ends->input >= 0 && dup2(ends->input, STDIN_FILENO) < 0) ||
        (ends->output >= 0 && dup2(ends->output, STDOUT_FILENO) < 0) ||
        (ends->error >= 0 && dup2(ends->error, STDERR_FILENO) < 0))
        _exit(EX_OSERR);
    (void)sigprocmask(SIG_SETMASK, &launch->mask, NULL);
    (void)setrlimit(RLIMIT_NOFILE, &launch->files);
    if (host == NULL)
        run_guard(launch, rank, self, ends->control);
    /* Out of the terminal's process group, and not left waiting for an answer when dsmrun is killed. */
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(128 + SIGKILL);
    run_launcher(launch, rank, self, host);
}

/* ---- in dsmrun -------------------------------------------------------------------------------------------------- */

static int ends_open(const struct launch *launch, unsigned rank, struct launched *launched, struct child_ends *ends)
{
    bool is_remote = launch->options->hosts.count > 0;
    int pairs[4][2] = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    bool is_open = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pairs[0]) == 0;

    if (is_open && launch->is_output_piped)
        is_open = pipe2(pairs[1], O_CLOEXEC) == 0 && pipe2(pairs[2], O_CLOEXEC) == 0;
    if (is_open && !is_remote && rank == 0 && launch->is_input_piped)
        is_open = pipe2(pairs[3], O_CLOEXEC) == 0;
    else if (is_open && !is_remote && rank > 0)
        is_open = (pairs[3][0] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;
    *launched =
        (struct launched){.control = pairs[0][0], .output = pairs[1][0], .error = pairs[2][0], .input = pairs[3][1]};
    *ends =
        (struct child_ends){.control = pairs[0][1], .output = pairs[1][1], .error = pairs[2][1], .input = pairs[3][0]};
    if (is_remote)
        ends->input = fcntl(ends->control, F_DUPFD_CLOEXEC, 3);
    return is_open ? 0 : error_set(-errno, "pipes for rank %u: %s", rank, strerror(errno));
}

static void ends_close(const struct child_ends *ends)
{
    close_if_open(ends->control);
    close_if_open(ends->output);
    close_if_open(ends->error);
    close_if_open(ends->input);
}

static void launched_close(const struct launched *launched)
{
    close_if_open(launched->control);
    close_if_open(launched->output);
    close_if_open(launched->error);
    close_if_open(launched->input);
}

static void set_nonblocking(int fd)
{
    if (fd >= 0)
        (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

int launch_rank(const struct launch *launch, unsigned rank, struct launched *ret_launched)
{
    char self[PATH_MAX];
    struct launched launched;
    struct child_ends ends;
    pid_t parent = getpid();
    int result = own_path(self);

    if (result < 0)
        return result;
    result = ends_open(launch, rank, &launched, &ends);
    if (result < 0)
        goto close_ends;
    launched.pid = fork();
    if (launched.pid < 0) {
        result = error_set(-errno, "start rank %u: %s", rank, strerror(errno));
        goto close_ends;
    }
    if (launched.pid == 0)
        run_child(launch, rank, &ends, parent, self);
    ends_close(&ends);
    set_nonblocking(launched.output);
    set_nonblocking(launched.error);
    set_nonblocking(launched.input);
    /* 32 bytes into a fresh socket never block; a guard that is gone already shows by its exit status. */
    (void)send(launched.control, launch->key, sizeof(launch->key), MSG_NOSIGNAL);
    *ret_launched = launched;
    return 0;

close_ends:
    launched_close(&launched);
    ends_close(&ends);
    return result;
}

void launch_signal(const struct launched *launched, int signal_number)
{
    uint8_t byte = (uint8_t)signal_number;

    (void)send(launched->control, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool host_is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

/* The address that packets to `host` would carry as their source: asked of the kernel, nothing is sent. */
static int source_address(const char *host, char *ret_address, size_t size)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_DGRAM};
    struct sockaddr_storage own;
    socklen_t own_bytes = sizeof(own);
    struct addrinfo *found;
    int fd;
    bool is_found;

    if (getaddrinfo(host, "9", &hints, &found) != 0)
        return error_set(-EINVAL, "the name of host %s has no address here; say with --bind where nodes find dsmrun",
                         host);
    fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    is_found = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
               getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 &&
               getnameinfo((const struct sockaddr *)&own, own_bytes, ret_address, (socklen_t)size, NULL, 0,
                           NI_NUMERICHOST) == 0;
    close_if_open(fd);
    freeaddrinfo(found);
    return is_found ? 0 : error_set(-EINVAL, "no way leads to host %s; say with --bind where nodes find dsmrun", host);
}

int launch_agent_address(const struct options *options, char text[LAUNCH_ADDRESS_MAX], const char **ret_text)
{
    char address[INET6_ADDRSTRLEN + 32] = "127.0.0.1";
    int result = 0;

    *ret_text = NULL;
    if (options->hosts.count == 0 && options->bind == NULL)
        return 0;
    if (options->bind != NULL) {
        snprintf(address, sizeof(address), "%s", options->bind);
    } else {
        for (unsigned i = 0; i < options->hosts.count; i++) {
            const char *at = strchr(options->hosts.list[i].name, '@');
            const char *host = at == NULL ? options->hosts.list[i].name : at + 1;

            if (!host_is_loopback(host)) {
                result = source_address(host, address, sizeof(address));
                break;
            }
        }
    }
    snprintf(text, LAUNCH_ADDRESS_MAX, strchr(address, ':') == NULL ? "tcp:%s:0" : "tcp:[%s]:0", address);
    *ret_text = text;
    return result;
}
