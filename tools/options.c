/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.c - the command line of dsmrun: one table with help text.
 *
 * Values for the nodes (--ddr, --set) are checked by the nodes' own table of options, so that a wrong one is refused
 * before anything is started.
 */
#include "tools/options.h"
#include "base/error.h"
#include "runtime/config.h"
#include "tools/recording.h"
#include "tiermesh/dsm.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum option_id {
    OPTION_BIND = 256,
    OPTION_CXL,
    OPTION_DDR,
    OPTION_HOSTFILE,
    OPTION_KILL_ON_FAILURE,
    OPTION_LAUNCHER,
    OPTION_NVME,
    OPTION_PRELOAD,
    OPTION_PRELOAD_ORDER,
    OPTION_RECORD,
    OPTION_SET,
    OPTION_SUMMARY,
    OPTION_TAG_OUTPUT,
    OPTION_TIMEOUT,
    OPTION_TRANSPORT,
    OPTION_UNMANAGED,
    OPTION_VERSION,
    OPTION_ZMEM,
};

struct option_row {
    int id; /* a letter: the short option */
    const char *name;
    const char *argument; /* NULL: takes none */
    const char *help;
};

static const struct option_row rows[] = {
    {'n', "np", "N", "start N nodes (1 to 64; default 1, or the slots of the hosts)"},
    {OPTION_DDR, "ddr", "SIZE", "DDR budget of each node, e.g. 256M"},
    {OPTION_CXL, "cxl", "SIZE", "CXL budget of each node"},
    {OPTION_ZMEM, "zmem", "SIZE|N%", "budget of each node for compressed pages in memory, or N% of its DDR"},
    {OPTION_NVME, "nvme", "SIZE:PATH", "NVMe budget of each node and the directory for its file"},
    {OPTION_TRANSPORT, "transport", "NAME", "auto, shm, tcp, verbs or pool"},
    {OPTION_SET, "set", "NAME=VALUE", "set any option of docs/CONFIG.md on each node; may be repeated"},
    {'x', "export", "VAR[=VALUE]", "give the nodes this environment variable; may be repeated"},
    {OPTION_PRELOAD, "preload", "WHEN", "manage programs that are not nodes: auto (default), on, off"},
    {OPTION_PRELOAD_ORDER, "preload-order", "WHERE", "first or last among the libraries of LD_PRELOAD"},
    {OPTION_UNMANAGED, "unmanaged", NULL, "run a program that cannot be managed as it is"},
    {OPTION_SUMMARY, "summary", "WHEN", "figures of managed processes at their end: auto, on, off or a file"},
    {OPTION_RECORD, "record", "FILE", "write a trace of the pages that are faulted on, for tiermesh-replay"},
    {'H', "host", "A,B:2", "run on these hosts, B with 2 slots, through the launcher"},
    {OPTION_HOSTFILE, "hostfile", "FILE", "hosts from a file: one a line, with slots=N or :N"},
    {OPTION_LAUNCHER, "launcher", "CMD", "run CMD host 'command' for each remote node (default ssh)"},
    {OPTION_BIND, "bind", "ADDRESS", "numeric address where remote nodes find this process"},
    {OPTION_TAG_OUTPUT, "tag-output", NULL, "put [rank] in front of each line of output"},
    {OPTION_TIMEOUT, "timeout", "SECONDS", "end the job after this time, with exit status 124"},
    {OPTION_KILL_ON_FAILURE, "kill-on-failure", NULL, "when one node fails, end the others too"},
    {'v', "verbose", NULL, "say what is started and how it ends"},
    {OPTION_VERSION, "version", NULL, "print the version"},
    {'h', "help", NULL, "print this help"},
};

static void print_help(void)
{
    puts("usage: dsmrun [-n N] [options] [--] program [arguments]\n"
         "Starts N nodes of a Tiermesh job, each running the program, and waits for them.\n");
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        char left[64];
        char letter[8] = "    ";

        if (rows[i].id < 256)
            snprintf(letter, sizeof(letter), "-%c, ", rows[i].id);
        snprintf(left, sizeof(left), "%s--%s %s", letter, rows[i].name,
                 rows[i].argument == NULL ? "" : rows[i].argument);
        printf("  %-30s %s\n", left, rows[i].help);
    }
    puts(
        "\nThe exit status is that of the first node that failed (128 + signal), 124 after --timeout, 127 or 126 when\n"
        "the program is not found or cannot be run, 64 when it cannot be managed, else 0. dsmrun(1) has the rest.");
}

/* How many single-character edits lead from a to b. */
static unsigned edit_distance(const char *a, const char *b)
{
    unsigned row[32];
    size_t length = strlen(b);

    if (length >= ARRAY_COUNT(row))
        return UINT32_MAX;
    for (unsigned j = 0; j <= length; j++)
        row[j] = j;
    for (unsigned i = 1; a[i - 1] != '\0'; i++) {
        unsigned diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= length; j++) {
            unsigned best = diagonal + (a[i - 1] != b[j - 1]);

            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[length];
}

static void complain_unknown(const char *word)
{
    const char *nearest = NULL;
    unsigned distance_min = 4; /* farther than this is another word */
    char name[64];

    snprintf(name, sizeof(name), "%s", word + strspn(word, "-"));
    name[strcspn(name, "=")] = '\0';
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        unsigned distance = edit_distance(name, rows[i].name);

        if (distance < distance_min) {
            distance_min = distance;
            nearest = rows[i].name;
        }
    }
    if (nearest != NULL && strncmp(word, "--", 2) == 0)
        fprintf(stderr, "dsmrun: there is no option %s; did you mean --%s?\n", word, nearest);
    else
        fprintf(stderr, "dsmrun: there is no option %s; dsmrun --help lists them\n", word);
}

static int setting_add(struct options *options, char *setting)
{
    char **grown = reallocarray(options->settings, options->settings_count + 1, sizeof(*grown));

    if (setting == NULL || grown == NULL) {
        free(setting);
        return error_set(-ENOMEM, "no memory for options");
    }
    options->settings = grown;
    options->settings[options->settings_count++] = setting;
    return 0;
}

/* An option of the nodes: checked here, handed over as DSM_<NAME>. */
static int node_option(struct options *options, struct dsm_config *config, const char *name, const char *value)
{
    char path[CONFIG_PATH_MAX];
    char *setting;
    int result = 0;

    if (strcmp(name, "record") == 0 && value[0] != '\0') {
        result = recording_path(value, path);
        value = path;
    }
    if (result == 0)
        result = config_set(config, name, value);
    if (result < 0)
        return result;
    if (asprintf(&setting, "DSM_%s=%s", name, value) < 0)
        setting = NULL;
    for (char *c = setting; c != NULL && *c != '='; c++)
        *c = *c == '.' ? '_' : (char)toupper((unsigned char)*c);
    return setting_add(options, setting);
}

static int node_option_set(struct options *options, struct dsm_config *config, const char *text)
{
    char name[64];
    size_t length = strcspn(text, "=");

    if (text[length] != '=' || length == 0 || length >= sizeof(name))
        return error_set(-EINVAL, "--set %s: NAME=VALUE is needed", text);
    memcpy(name, text, length);
    name[length] = '\0';
    return node_option(options, config, name, text + length + 1);
}

static int export_variable(struct options *options, const char *text)
{
    size_t length = strcspn(text, "=");
    char name[256];
    const char *value;
    char *setting;

    for (size_t i = 0; i < length; i++) {
        if (!(isalnum((unsigned char)text[i]) || text[i] == '_') || (i == 0 && isdigit((unsigned char)text[i])))
            return error_set(-EINVAL, "-x %s: that is not the name of a variable", text);
    }
    if (length == 0 || length >= sizeof(name))
        return error_set(-EINVAL, "-x %s: that is not the name of a variable", text);
    memcpy(name, text, length);
    name[length] = '\0';
    value = text[length] == '=' ? text + length + 1 : getenv(name);
    if (value == NULL)
        return error_set(-EINVAL, "-x %s: the variable is not set here; -x %s=VALUE sets it", name, name);
    if (asprintf(&setting, "%s=%s", name, value) < 0)
        setting = NULL;
    return setting_add(options, setting);
}

static int parse_nodes(const char *text, unsigned *ret_count)
{
    char *end;
    unsigned long count = strtoul(text, &end, 10);

    if (!isdigit((unsigned char)text[0]) || *end != '\0' || count == 0 || count > NODES_MAX)
        return error_set(-EINVAL, "-n %s: a job has 1 to %d nodes", text, NODES_MAX);
    *ret_count = (unsigned)count;
    return 0;
}

static int parse_timeout(const char *text, uint64_t *ret_timeout_ns)
{
    char *end;
    double seconds = strtod(text, &end);

    if (!isdigit((unsigned char)text[0]) || *end != '\0' || !(seconds > 0 && seconds <= 1e9))
        return error_set(-EINVAL, "--timeout %s: a number of seconds above 0 is needed", text);
    *ret_timeout_ns = (uint64_t)(seconds * 1e9);
    return 0;
}

/* Which of the words it is: 0, 1, ... */
static int parse_word(const char *option, const char *text, const char *const words[], int count, int *ret_index)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0) {
            *ret_index = i;
            return 0;
        }
    }
    return error_set(-EINVAL, "--%s %s: it takes %s%s%s%s%s", option, text, words[0], count > 2 ? ", " : "",
                     count > 2 ? words[1] : "", " or ", words[count - 1]);
}

static int parse_preload(struct options *options, const char *text)
{
    static const char *const words[] = {"auto", "on", "off"};
    int index = 0;
    int result = parse_word("preload", text, words, 3, &index);

    options->preload = (enum preload_mode)index;
    return result;
}

static int parse_preload_order(struct options *options, const char *text)
{
    static const char *const words[] = {"first", "last"};
    int index = 0;
    int result = parse_word("preload-order", text, words, 2, &index);

    options->is_preload_last = index == 1;
    return result;
}

static int apply(struct options *options, struct dsm_config *config, int id, char *argument)
{
    switch (id) {
    case 'n':
        return parse_nodes(argument, &options->nodes_count);
    case OPTION_DDR:
        return node_option(options, config, "ddr", argument);
    case OPTION_CXL:
        return node_option(options, config, "cxl", argument);
    case OPTION_ZMEM:
        return node_option(options, config, "zmem", argument);
    case OPTION_NVME:
        return node_option(options, config, "nvme", argument);
    case OPTION_TRANSPORT:
        return node_option(options, config, "transport", argument);
    case OPTION_PRELOAD:
        return parse_preload(options, argument);
    case OPTION_PRELOAD_ORDER:
        return parse_preload_order(options, argument);
    case OPTION_UNMANAGED:
        options->is_unmanaged_allowed = true;
        return 0;
    case OPTION_SUMMARY:
        options->summary = argument;
        return argument[0] == '\0' ? error_set(-EINVAL, "--summary: auto, on, off or a file is needed") : 0;
    case OPTION_RECORD:
        return argument[0] == '\0' ? error_set(-EINVAL, "--record: a file is needed")
                                   : node_option(options, config, "record", argument);
    case OPTION_SET:
        return node_option_set(options, config, argument);
    case 'x':
        return export_variable(options, argument);
    case 'H':
        return hosts_parse(&options->hosts, argument);
    case OPTION_HOSTFILE:
        return hosts_read(&options->hosts, argument);
    case OPTION_LAUNCHER:
        options->launcher = argument;
        return argument[0] == '\0' ? error_set(-EINVAL, "--launcher: a command is needed") : 0;
    case OPTION_BIND:
        options->bind = argument;
        return 0;
    case OPTION_TAG_OUTPUT:
        options->is_output_tagged = true;
        return 0;
    case OPTION_TIMEOUT:
        return parse_timeout(argument, &options->timeout_ns);
    case OPTION_KILL_ON_FAILURE:
        options->is_failure_fatal = true;
        return 0;
    case 'v':
        options->is_verbose = true;
        return 0;
    default:
        return -ENOSYS;
    }
}

/* getopt's tables, from ours. The leading '+' ends the options at the program, ':' tells a missing argument apart. */
static void getopt_tables(struct option *longs, char *letters, size_t letters_size)
{
    size_t used = (size_t)snprintf(letters, letters_size, "+:");

    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        longs[i] = (struct option){.name = rows[i].name,
                                   .has_arg = rows[i].argument == NULL ? no_argument : required_argument,
                                   .val = rows[i].id};
        if (rows[i].id < 256)
            used += (size_t)snprintf(letters + used, letters_size - used, "%c%s", rows[i].id,
                                     rows[i].argument == NULL ? "" : ":");
    }
    longs[ARRAY_COUNT(rows)] = (struct option){.name = NULL};
}

/* True: go on to the program. */
static bool parse_words(int argc, char **argv, struct options *options, struct dsm_config *config, int *ret_exit)
{
    struct option longs[ARRAY_COUNT(rows) + 1];
    char letters[64];
    int id;

    getopt_tables(longs, letters, sizeof(letters));
    opterr = 0;
    *ret_exit = EX_USAGE;
    while ((id = getopt_long(argc, argv, letters, longs, NULL)) >= 0) {
        const char *word = argv[optind - 1];

        if (id == 'h' || id == OPTION_VERSION) {
            if (id == 'h')
                print_help();
            else
                printf("dsmrun (Tiermesh) %d.%d\n", DSM_VERSION_MAJOR, DSM_VERSION_MINOR);
            *ret_exit = 0;
            return false;
        }
        if (id == ':') {
            fprintf(stderr, "dsmrun: option %s needs an argument\n", word);
            return false;
        }
        if (id == '?') {
            char letter[3] = {'-', (char)optopt, '\0'};

            /* A letter of ours in optopt: its long form was given an argument that it does not take. */
            complain_unknown(optopt > 0 && optopt < 256 && strchr(letters, optopt) == NULL ? letter : word);
            return false;
        }
        if (apply(options, config, id, optarg) < 0) {
            fprintf(stderr, "dsmrun: %s\n", error_text());
            return false;
        }
    }
    return true;
}

static bool check_whole(struct options *options, int *ret_exit)
{
    unsigned slots = hosts_slots(&options->hosts);

    *ret_exit = EX_USAGE;
    if (options->program[0] == NULL) {
        fprintf(stderr, "dsmrun: no program to run; dsmrun --help shows how\n");
        return false;
    }
    if (options->nodes_count == 0)
        options->nodes_count = slots == 0 ? 1 : slots;
    if (options->nodes_count > NODES_MAX) {
        fprintf(stderr, "dsmrun: the hosts have %u slots, but a job has at most %d nodes; say how many with -n\n",
                slots, NODES_MAX);
        return false;
    }
    return true;
}

bool options_parse(int argc, char **argv, struct options *ret_options, int *ret_exit)
{
    struct dsm_config *config = calloc(1, sizeof(*config));
    struct options options = {.launcher = "ssh", .summary = "auto"};
    bool is_fine = false;

    if (config == NULL) {
        fprintf(stderr, "dsmrun: no memory\n");
        *ret_exit = EX_OSERR;
    } else if (config_init(config) < 0) {
        fprintf(stderr, "dsmrun: %s\n", error_text());
        *ret_exit = EX_CONFIG;
    } else {
        is_fine = parse_words(argc, argv, &options, config, ret_exit);
        options.nvme_bytes = config->nvme_bytes;
        memcpy(options.nvme_path, config->nvme_path, sizeof(options.nvme_path));
        memcpy(options.record, config->record, sizeof(options.record));
    }
    free(config);
    options.program = argv + optind;
    if (is_fine && check_whole(&options, ret_exit)) {
        *ret_options = options;
        return true;
    }
    options_free(&options);
    return false;
}

void options_free(struct options *options)
{
    for (unsigned i = 0; i < options->settings_count; i++)
        free(options->settings[i]);
    free(options->settings);
    options->settings = NULL;
    options->settings_count = 0;
}
