/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preload.c - whether a program can be managed, and what it gets: the preload library and the way to the job's broker.
 *
 * What cannot be managed is refused, never run unmanaged in silence.
 */
#include "tools/preload.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/broker.h"
#include "tools/elf.h"
#include "tools/program.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#define LIBRARY "libtiermesh-preload.so"

static const char privileged[] = "it gains privileges when it starts (set-user-id, set-group-id or file "
                                 "capabilities), and the system then ignores a preload library";

/* ---- the decision ----------------------------------------------------------------------------------------------- */

/* Beside dsmrun in a build tree, in the library folder of the same installation otherwise. */
static bool library_find(char *ret_path)
{
    static const char *const places[] = {"", "../" TIERMESH_LIBDIR "/", "../lib/", "../lib64/"};
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    if (length < 0)
        return false;
    self[length] = '\0';
    slash = strrchr(self, '/');
    if (slash == NULL)
        return false;
    slash[1] = '\0';
    for (size_t i = 0; i < ARRAY_COUNT(places); i++) {
        char path[2 * PATH_MAX];

        snprintf(path, sizeof(path), "%s%s" LIBRARY, self, places[i]);
        if (realpath(path, ret_path) != NULL)
            return true;
    }
    return false;
}

/* Why the program cannot be managed; NULL: it can. */
static const char *obstacle(const struct elf_file *file)
{
    switch (file->kind) {
    case ELF_DYNAMIC:
    case ELF_DSM:
        return program_is_privileged(file->path) ? privileged : NULL;
    case ELF_STATIC:
        return "it is statically linked, and a preload library cannot be put into it";
    case ELF_OTHER_CPU:
        return "it is for another kind of processor than dsmrun";
    case ELF_OTHER_LIBC:
        return "it uses another C library than the GNU one";
    case ELF_UNKNOWN:
        break;
    }
    return "it is neither a program of a known kind nor a script that names one";
}

/* Not managed: 0 when the user said that this is fine, else the exit status, with a sentence. */
static int unmanaged(const struct preload *preload, int status, const char *name, const struct elf_file *file,
                     const char *why)
{
    bool has_detail = file->kind == ELF_OTHER_CPU || file->kind == ELF_OTHER_LIBC;

    if (preload->options->is_unmanaged_allowed) {
        log_warn("%s runs unmanaged: %s", name, why);
        return 0;
    }
    return error_set(status,
                     "%s cannot be managed: %s%s%s%s; --unmanaged runs it all the same, --preload off does not ask",
                     name, why, has_detail ? " (" : "", has_detail ? file->detail : "", has_detail ? ")" : "");
}

static int userfaultfd_check(const struct preload *preload, const char *name)
{
    if (broker_userfaultfd_check() == 0)
        return 0;
    if (!preload->options->is_unmanaged_allowed)
        return error_set(EX_NOPERM, "%s cannot be managed: %s", name, error_text());
    log_warn("%s runs unmanaged: %s", name, error_text());
    return -1;
}

int preload_decide(struct preload *preload, const struct options *options, const char *path, int found)
{
    const char *name = options->program[0], *why;
    struct elf_file file;
    int status;

    preload->options = options;
    if (found != 0 && found != EX_NOPERM)
        return found;
    if (options->preload == PRELOAD_OFF)
        return options->is_unmanaged_allowed ? 0 : found;
    if (options->hosts.count > 0)
        return options->preload == PRELOAD_AUTO
                   ? 0
                   : error_set(EX_USAGE, "--preload on: programs are managed on this machine only, not on hosts");
    if (!TIERMESH_HAS_PRELOAD && options->preload == PRELOAD_AUTO)
        return found; /* this build has no preload library, e.g. for want of a sanitizer's in it */
    if (elf_look(path, &file) < 0)
        return EXIT_NOT_EXECUTABLE;
    if (options->preload == PRELOAD_AUTO && file.kind == ELF_DSM)
        return found;
    why = found != 0 ? privileged : obstacle(&file);
    if (why != NULL)
        return unmanaged(preload, EX_USAGE, name, &file, why);
    if (!library_find(preload->library))
        return unmanaged(preload, EX_UNAVAILABLE, name, &file, LIBRARY " is not where dsmrun was installed");
    if (strpbrk(preload->library, " :") != NULL)
        return unmanaged(preload, EX_UNAVAILABLE, name, &file,
                         "the path of " LIBRARY " has a space or a colon, which LD_PRELOAD cannot name");
    status = userfaultfd_check(preload, name);
    preload->is_active = status == 0;
    return status < 0 ? 0 : status;
}

/* ---- what the ranks get ------------------------------------------------------------------------------------------ */

__attribute__((format(printf, 2, 3))) static int variable_add(struct preload *preload, const char *format, ...)
{
    va_list arguments;
    char *text;
    int length;

    va_start(arguments, format);
    length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0)
        return error_set(EX_OSERR, "no memory for the environment");
    preload->variables[preload->variables_count++] = text;
    return 0;
}

/* The guard puts it into the program's environment, so that the guard itself is not preloaded. */
static int library_add(struct preload *preload)
{
    const char *others = getenv("LD_PRELOAD");

    if (others == NULL || others[0] == '\0')
        return variable_add(preload, LAUNCH_PRELOAD_VARIABLE "=%s", preload->library);
    if (strstr(others, LIBRARY) != NULL) /* a job inside a job */
        return variable_add(preload, LAUNCH_PRELOAD_VARIABLE "=%s", others);
    return preload->options->is_preload_last
               ? variable_add(preload, LAUNCH_PRELOAD_VARIABLE "=%s:%s", others, preload->library)
               : variable_add(preload, LAUNCH_PRELOAD_VARIABLE "=%s:%s", preload->library, others);
}

static int directory_make(struct preload *preload)
{
    snprintf(preload->directory, sizeof(preload->directory), "/tmp/dsmrun-XXXXXX");
    if (mkdtemp(preload->directory) != NULL)
        return 0;
    preload->directory[0] = '\0';
    return error_set(EX_OSERR, "a directory for the broker's socket in /tmp: %m");
}

static void process_ended(void *context, const struct broker_process *process)
{
    struct preload *preload = context;

    summary_ended(&preload->summary, process);
}

static int exit_status_of(int error)
{
    return error == -ENOMEM || error == -EMFILE || error == -ENFILE ? EX_OSERR : EX_UNAVAILABLE;
}

int preload_open(struct preload *preload, const char *directory)
{
    const struct broker_store store = {.size_bytes = preload->options->nvme_bytes, .path = preload->options->nvme_path};
    char path[BROKER_PATH_MAX];
    int status = summary_open(&preload->summary, preload->options->summary);
    int error;

    if (status == 0 && directory == NULL)
        status = directory_make(preload);
    if (status != 0)
        return status;
    if (directory == NULL)
        directory = preload->directory;
    /* A process that has changed its user by then must get through. */
    (void)chmod(directory, 0711);
    snprintf(path, sizeof(path), "%s/broker", directory);
    error = broker_server_create(path, &store, process_ended, preload, &preload->broker);
    if (error < 0)
        return exit_status_of(error);
    status = variable_add(preload, "DSM_PRELOAD=1");
    if (status == 0)
        status = variable_add(preload, BROKER_PATH_VARIABLE "=%s", path);
    if (status == 0)
        status = variable_add(preload, BROKER_KEY_VARIABLE "=%s", broker_server_key(preload->broker));
    return status == 0 ? library_add(preload) : status;
}

static void report_one(void *context, const struct broker_process *process)
{
    struct summary *summary = context;

    summary_print(summary, process);
}

void preload_report(struct preload *preload)
{
    if (preload->broker != NULL)
        broker_server_visit(preload->broker, report_one, &preload->summary);
}

void preload_close(struct preload *preload)
{
    broker_server_destroy(preload->broker);
    summary_close(&preload->summary);
    for (unsigned i = 0; i < preload->variables_count; i++)
        free(preload->variables[i]);
    if (preload->directory[0] != '\0')
        (void)rmdir(preload->directory);
}
