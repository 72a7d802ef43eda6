/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dsmctl.c - looks at managed processes and changes their budgets while they run.
 *
 * A process's job is found by the environment it was started with (/proc/PID/environ), which the system shows to its
 * user and to root; the rest is asked of the job's broker, in dsmrun.
 */
#include "base/error.h"
#include "runtime/broker.h"
#include "runtime/config.h"
#include "runtime/machine.h"
#include "runtime/topology.h"
#include "tools/summary.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#define LIBRARY  "libtiermesh-preload.so"
#define JOBS_MAX 1024

static const char usage[] =
    "usage: dsmctl stat [PID]\n"
    "       dsmctl limit PID ddr|cxl|zmem|nvme SIZE\n"
    "       dsmctl topology [PID | NODE=ddr|hbm|cxl|none,...]\n"
    "\n"
    "stat      figures of a managed process; without PID, of all that this user can see\n"
    "limit     another budget for a process that runs; nvme is the store of the whole job\n"
    "topology  the memory of this machine, what each part counts as, and why; with what option nodes would say. And "
    "by\n"
    "          which transport each node of a job reaches each other node, and why so; with PID, of that node only\n"
    "\n"
    "SIZE is in bytes and takes the suffixes K, M, G, T. Managed processes are those that dsmrun started and what\n"
    "they started, once they have come near their DDR budget. dsmctl(1) has the rest.\n";

static int complain(int status, const char *sentence)
{
    fprintf(stderr, "dsmctl: %s\n", sentence);
    return status;
}

/* ---- what /proc says of a process -------------------------------------------------------------------------------- */

#define STEP_BYTES 65536

/* All of a file of /proc, ended by two zeroes. NULL with errno. */
static char *proc_read(int pid, const char *name)
{
    size_t used = 0;
    char path[64], *bytes = NULL;
    ssize_t got;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    do {
        char *grown = realloc(bytes, used + STEP_BYTES + 2);

        if (grown == NULL)
            break;
        bytes = grown;
        got = read(fd, bytes + used, STEP_BYTES);
        used += got > 0 ? (size_t)got : 0;
    } while (got > 0);
    close(fd);
    if (bytes != NULL)
        bytes[used] = bytes[used + 1] = '\0';
    return bytes;
}

static const char *variable_find(const char *environment, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = environment; *at != '\0'; at += strlen(at) + 1) {
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            return at + length + 1;
    }
    return NULL;
}

/* 0, or an exit status with a sentence. */
static int place_find(int pid, struct broker_place *ret_place)
{
    char *environment = proc_read(pid, "environ");
    const char *path, *key;
    int status = 0;

    if (environment == NULL && (errno == EACCES || errno == EPERM) && geteuid() == 0)
        return error_set(EX_NOPERM, "process %d may not be looked at: the capability CAP_SYS_PTRACE is missing", pid);
    if (environment == NULL && (errno == EACCES || errno == EPERM))
        return error_set(EX_NOPERM, "process %d belongs to another user; only that user and root may look at it", pid);
    if (environment == NULL)
        return error_set(EX_NOINPUT, "there is no process %d", pid);
    path = variable_find(environment, BROKER_PATH_VARIABLE);
    key = variable_find(environment, BROKER_KEY_VARIABLE);
    if (path == NULL || key == NULL || strlen(path) >= sizeof(ret_place->path) ||
        strlen(key) >= sizeof(ret_place->key)) {
        status = error_set(EX_UNAVAILABLE, "process %d is not managed: dsmrun did not start it, or not for this", pid);
    } else {
        snprintf(ret_place->path, sizeof(ret_place->path), "%s", path);
        snprintf(ret_place->key, sizeof(ret_place->key), "%s", key);
    }
    free(environment);
    return status;
}

static bool has_library(int pid)
{
    char *maps = proc_read(pid, "maps");
    bool is_there = maps != NULL && strstr(maps, LIBRARY) != NULL;

    free(maps);
    return is_there;
}

/* The broker does not know the process: why. */
static int explain_unknown(int pid, bool is_question)
{
    if (!has_library(pid))
        return error_set(EX_UNAVAILABLE,
                         "process %d is not managed: it runs without " LIBRARY " (statically linked, or with an "
                         "environment of its own)",
                         pid);
    if (!is_question)
        return error_set(EX_UNAVAILABLE,
                         "process %d has not come near its budget; nothing is managed yet, and no limit can be changed",
                         pid);
    printf("process %d has not come near its budget; nothing is managed yet\n", pid);
    return 0;
}

static int status_of(int error)
{
    switch (error) {
    case -EINVAL:
        return EX_USAGE;
    case -EACCES:
        return EX_NOPERM;
    case -ENOSPC:
        return EX_CANTCREAT;
    default:
        return EX_UNAVAILABLE;
    }
}

/* ---- the commands ------------------------------------------------------------------------------------------------ */

static void print_process(void *context, const struct broker_process *process)
{
    char text[SUMMARY_BYTES];
    unsigned *count = context;

    summary_format(process, "", text);
    printf("%s%s", *count > 0 ? "\n" : "", text);
    ++*count;
}

static int stat_one(int pid)
{
    struct broker_place place;
    unsigned count = 0;
    int status = place_find(pid, &place);
    int error;

    if (status != 0)
        return status;
    error = broker_ask_stat(&place, pid, print_process, &count);
    if (error == -ESRCH)
        return explain_unknown(pid, true);
    return error == 0 ? 0 : status_of(error);
}

static bool job_is_new(char (*seen)[BROKER_PATH_MAX], unsigned *count, const char *path)
{
    for (unsigned i = 0; i < *count; i++) {
        if (strcmp(seen[i], path) == 0)
            return false;
    }
    if (*count == JOBS_MAX)
        return false;
    snprintf(seen[(*count)++], BROKER_PATH_MAX, "%s", path);
    return true;
}

static int stat_all(void)
{
    static char seen[JOBS_MAX][BROKER_PATH_MAX];
    unsigned jobs = 0, count = 0;
    DIR *processes = opendir("/proc");
    struct dirent *entry;

    while (processes != NULL && (entry = readdir(processes)) != NULL) {
        struct broker_place place;

        /* Jobs that end meanwhile, and processes of others, are no error here. */
        if (isdigit((unsigned char)entry->d_name[0]) && place_find(atoi(entry->d_name), &place) == 0 &&
            job_is_new(seen, &jobs, place.path))
            (void)!broker_ask_stat(&place, 0, print_process, &count);
    }
    if (processes != NULL)
        closedir(processes);
    if (count == 0)
        printf(jobs == 0 ? "no job with managed programs is running\n"
                         : "no process has come near its budget; nothing is managed yet\n");
    return 0;
}

static int limit(int pid, enum dsm_tier tier, uint64_t size_bytes)
{
    struct broker_place place;
    int status = place_find(pid, &place);
    int error;

    if (status != 0)
        return status;
    error = broker_ask_limit(&place, pid, tier, size_bytes);
    if (error == -ESRCH)
        return explain_unknown(pid, false);
    return error == 0 ? 0 : status_of(error);
}

/* ---- topology ---------------------------------------------------------------------------------------------------- */

/* nodes: as the option; NULL for none. */
static int machine_show(const char *nodes)
{
    struct topology *topology = calloc(1, sizeof(*topology));
    char *text = calloc(1, MACHINE_TEXT_MAX);
    int status = topology != NULL && text != NULL ? 0 : error_set(EX_OSERR, "no memory");

    if (status == 0 && machine_look("", nodes != NULL ? nodes : "", topology) != 0)
        status = EX_USAGE;
    if (status == 0) {
        machine_describe(topology, text, MACHINE_TEXT_MAX);
        fputs(text, stdout);
    }
    free(text);
    free(topology);
    return status;
}

static bool is_running(int pid)
{
    return kill(pid, 0) == 0 || errno == EPERM;
}

/* Prints what the process says. -ENOENT: it says nothing. */
static int topology_show(uid_t user, int pid)
{
    char *text = malloc(TOPOLOGY_BYTES_MAX);
    int result = text == NULL ? error_set(-ENOMEM, "no memory") : topology_file_read(user, pid, text);

    if (result > 0)
        fputs(text, stdout);
    free(text);
    return result < 0 ? result : 0;
}

static int topology_one(int pid)
{
    char path[32];
    struct stat about;
    int result;

    snprintf(path, sizeof(path), "/proc/%d", pid);
    if (stat(path, &about) != 0)
        return error_set(EX_NOINPUT, "there is no process %d", pid);
    result = topology_show(about.st_uid, pid);
    if (result == -ENOENT)
        return error_set(EX_UNAVAILABLE, "process %d is not a node of a job of several", pid);
    return result == 0 ? 0 : status_of(result);
}

/* Files of processes that were killed are removed on the way. */
static int topology_all(void)
{
    char path[128];
    struct dirent *entry;
    DIR *directory;
    int status = 0;

    topology_directory(geteuid(), path, sizeof(path));
    directory = opendir(path);
    while (status == 0 && directory != NULL && (entry = readdir(directory)) != NULL) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);

        if (!isdigit((unsigned char)entry->d_name[0]) || *end != '\0' || pid <= 0 || pid > INT32_MAX)
            continue;
        if (is_running((int)pid)) {
            int result = topology_show(geteuid(), (int)pid);

            status = result == 0 || result == -ENOENT ? 0 : status_of(result);
        } else {
            topology_file_remove((pid_t)pid);
        }
    }
    if (directory != NULL)
        closedir(directory);
    return status;
}

/* ---- the command line -------------------------------------------------------------------------------------------- */

static int parse_pid(const char *text, int *ret_pid)
{
    char *end;
    long pid = strtol(text, &end, 10);

    if (!isdigit((unsigned char)text[0]) || *end != '\0' || pid <= 0 || pid > INT32_MAX)
        return error_set(EX_USAGE, "%s: the number of a process is needed", text);
    *ret_pid = (int)pid;
    return 0;
}

static int parse_tier(const char *text, enum dsm_tier *ret_tier)
{
    for (int i = 0; i < DSM_TIERS; i++) {
        if (strcmp(text, broker_tier_name((enum dsm_tier)i)) == 0) {
            *ret_tier = (enum dsm_tier)i;
            return 0;
        }
    }
    return error_set(EX_USAGE, "%s: the tier is ddr, cxl, zmem or nvme", text);
}

static int parse_size(const char *text, uint64_t *ret_size_bytes)
{
    struct dsm_config *config = calloc(1, sizeof(*config));
    int status = 0;

    if (config == NULL)
        return error_set(EX_OSERR, "no memory");
    if (config_set(config, "ddr", text) != 0 || config->ddr_bytes == 0)
        status = error_set(EX_USAGE, "%s: a size such as 512M is needed", text);
    *ret_size_bytes = config->ddr_bytes;
    free(config);
    return status;
}

static int run_limit(char **words)
{
    enum dsm_tier tier = DSM_TIER_DDR;
    uint64_t size_bytes = 0;
    int pid = 0;
    int status = parse_pid(words[0], &pid);

    if (status == 0)
        status = parse_tier(words[1], &tier);
    if (status == 0)
        status = parse_size(words[2], &size_bytes);
    return status == 0 ? limit(pid, tier, size_bytes) : status;
}

static int run_stat(const char *word)
{
    int pid = 0;
    int status = word == NULL ? 0 : parse_pid(word, &pid);

    if (status != 0)
        return status;
    return word == NULL ? stat_all() : stat_one(pid);
}

static int run_topology(const char *word)
{
    int pid = 0;
    int status;

    if (word != NULL && strchr(word, '=') == NULL)
        return (status = parse_pid(word, &pid)) != 0 ? status : topology_one(pid);
    status = machine_show(word != NULL ? word : getenv("DSM_NODES"));
    return status == 0 && word == NULL ? topology_all() : status;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    int status;

    if (strcmp(command, "--help") == 0 || strcmp(command, "-h") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (strcmp(command, "--version") == 0) {
        printf("dsmctl (Tiermesh) %d.%d\n", DSM_VERSION_MAJOR, DSM_VERSION_MINOR);
        return 0;
    }
    if (strcmp(command, "stat") == 0 && argc <= 3)
        status = run_stat(argv[2]);
    else if (strcmp(command, "limit") == 0 && argc == 5)
        status = run_limit(argv + 2);
    else if (strcmp(command, "topology") == 0 && argc <= 3)
        status = run_topology(argv[2]);
    else
        return fputs(usage, stderr), EX_USAGE;
    if (fflush(stdout) != 0)
        return complain(EX_IOERR, "standard output cannot be written");
    return status == 0 ? 0 : complain(status, error_text());
}
