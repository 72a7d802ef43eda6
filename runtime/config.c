/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - the options table: parsing, environment, and the checks that need the whole.
 */
#include "runtime/config.h"
#include "base/error.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

enum option_kind {
    OPTION_SIZE,   /* bytes, with K M G T */
    OPTION_ZMEM,   /* SIZE, or N% of the DDR budget */
    OPTION_TIER,   /* SIZE:PATH */
    OPTION_CXL,    /* SIZE, SIZE:node, SIZE:emulated, SIZE:PATH */
    OPTION_TIME,   /* milliseconds in text, nanoseconds inside */
    OPTION_NUMBER,
    OPTION_SWITCH, /* on, off */
    OPTION_TEXT,
    OPTION_WORDS, /* some of the choices, with commas between; bit i: the choice number i */
};

struct option_row {
    const char *name;
    enum option_kind kind;
    size_t offset;
    size_t size_bytes; /* of a text field */
    const char *fallback;
    const char *choices; /* text: words allowed, separated by spaces; NULL: anything */
    const char *help;
};

#define ROW(name, kind, field, fallback, choices, help)                                                    \
    {                                                                                                      \
        name, kind, offsetof(struct dsm_config, field), sizeof(((struct dsm_config *)0)->field), fallback, \
            choices, help                                                                                  \
    }

static const struct option_row options[] = {
    ROW("ddr", OPTION_SIZE, ddr_bytes, "256M", NULL, "DDR budget of this node, bytes"),
    ROW("cxl", OPTION_CXL, cxl_bytes, "0", NULL,
        "CXL memory as SIZE, SIZE:node, SIZE:PATH or SIZE:emulated; 0 for none"),
    ROW("nodes", OPTION_TEXT, nodes, "", NULL, "which memory is which, as NODE=ddr|hbm|cxl|none with commas between"),
    ROW("zmem", OPTION_ZMEM, zmem_bytes, "0", NULL, "compressed memory: bytes, or N% out of ddr; 0 for none"),
    ROW("zmem.codec", OPTION_TEXT, zmem_codec, "lz4", "lz4 zstd", "how zmem compresses"),
    ROW("nvme", OPTION_TIER, nvme_bytes, "0", NULL, "NVMe tier as SIZE:DIRECTORY; 0 for none"),
    ROW("transport", OPTION_TEXT, transport, "auto", "auto shm tcp verbs pool", "fabric between nodes"),
    ROW("pool", OPTION_TEXT, pool, "", NULL, "dax device or file that the hosts share, for transport pool"),
    ROW("loop", OPTION_TEXT, loop, "auto", "auto io_uring epoll", "event loop of the shard"),
    ROW("bind", OPTION_TEXT, bind, "127.0.0.1", NULL, "numeric address that tcp and RDMA listen on"),
    ROW("log", OPTION_TEXT, log, "warning", "error warning info debug", "log lines to print"),
    ROW("window.shared", OPTION_SIZE, window_shared_bytes, "256G", NULL, "addresses for shared memory, bytes"),
    ROW("window.private", OPTION_SIZE, window_private_bytes, "256G", NULL, "addresses for private memory, bytes"),
    ROW("window.base", OPTION_NUMBER, window_base, "0", NULL, "first address; 0 lets the nodes agree"),
    ROW("join.timeout", OPTION_TIME, join_timeout_ns, "30000", NULL, "wait for the other nodes at start, ms"),
    ROW("session.timeout", OPTION_TIME, session_timeout_ns, "10000", NULL, "longest cut of a connection, ms"),
    ROW("heartbeat", OPTION_TIME, heartbeat_ns, "200", NULL, "heartbeat between nodes, ms"),
    ROW("suspect", OPTION_TIME, suspect_ns, "1200", NULL, "silence after which a node is suspected, ms"),
    ROW("hold_us", OPTION_NUMBER, hold_ns, "50", NULL, "shortest time a granted page is kept, us"),
    ROW("spin_us", OPTION_NUMBER, spin_ns, "0", NULL, "spin of the event loop before it blocks, us"),
    ROW("requests", OPTION_NUMBER, requests_max, "256", NULL, "page requests in flight"),
    ROW("prefetch", OPTION_NUMBER, prefetch_pages, "128", NULL, "pages read ahead at most; 0 for none"),
    ROW("prefetch.predictors", OPTION_WORDS, prefetch_predictors, "streams,hints,around",
        "streams temporal signature hints around", "what says which pages to read ahead (docs/PREFETCH.md)"),
    ROW("fault_around", OPTION_NUMBER, fault_around_pages, "1", NULL, "pages brought with an unpredicted fault"),
    ROW("cpu", OPTION_NUMBER, cpu, "0", NULL, "processor of the shard, counted from 1; 0 for any"),
    ROW("preload.malloc_threshold", OPTION_SIZE, preload_malloc_threshold_bytes, "0", NULL,
        "smallest malloc() of an unmodified program that is managed"),
    ROW("preload.mmap_threshold", OPTION_SIZE, preload_mmap_threshold_bytes, "64K", NULL,
        "smallest mmap() of an unmodified program that is managed"),
    ROW("preload.spin_us", OPTION_NUMBER, preload_spin_ns, "100", NULL, "spin_us of an unmodified program's shard"),
    ROW("preload.affine", OPTION_SWITCH, preload_affine, "on", NULL,
        "an unmodified program's shard goes to the processor of the thread that waits for it"),
    ROW("policy", OPTION_TEXT, policy, "fifo", "fifo arms", "which pages leave DDR (docs/TIERS.md)"),
    ROW("record", OPTION_TEXT, record, "", NULL, "file for a trace of the touches that the pager sees; empty for none"),
    ROW("follow", OPTION_SWITCH, follow, "on", NULL, "budgets follow the memory cgroup and memory pressure"),
    ROW("uffd.move", OPTION_SWITCH, move, "on", NULL, "use UFFDIO_MOVE when the kernel has it"),
    ROW("uffd.poison", OPTION_SWITCH, poison, "on", NULL, "use UFFDIO_POISON when the kernel has it"),
    ROW("uffd.wp_async", OPTION_SWITCH, wp_async, "on", NULL, "use asynchronous write protection if there"),
    ROW("faulty", OPTION_NUMBER, faulty_seed, "0", NULL, "test: seed of delays and cuts in the fabric; 0 for none"),
    ROW("test.disk_errors", OPTION_NUMBER, test_disk_errors, "0", NULL, "test: nvme transfers that fail"),
    ROW("test.zmem_errors", OPTION_NUMBER, test_zmem_errors, "0", NULL, "test: pages of zmem that come back damaged"),
};

static const struct option_row *row_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(options); i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

/* How many leading characters agree: good enough to suggest a name. */
static const char *row_suggest(const char *name)
{
    const char *best = options[0].name;
    size_t best_length = 0;

    for (size_t i = 0; i < ARRAY_COUNT(options); i++) {
        size_t length = 0;

        while (name[length] != '\0' && name[length] == options[i].name[length])
            length++;
        if (length > best_length) {
            best_length = length;
            best = options[i].name;
        }
    }
    return best;
}

static int parse_number(const char *text, const char **ret_end, uint64_t *ret_value)
{
    char *end;
    unsigned long long value;

    if (!isdigit((unsigned char)text[0]))
        return -EINVAL;
    errno = 0;
    value = strtoull(text, &end, 0);
    if (errno != 0)
        return -EINVAL;
    *ret_end = end;
    *ret_value = value;
    return 0;
}

static int parse_size(const char *text, const char **ret_end, uint64_t *ret_bytes)
{
    static const char units[] = "KMGT";
    const char *end;
    const char *unit;
    uint64_t value;
    unsigned shift;

    if (parse_number(text, &end, &value) != 0)
        return -EINVAL;
    unit = *end != '\0' ? strchr(units, toupper((unsigned char)*end)) : NULL;
    shift = unit != NULL ? 10 * (unsigned)(unit - units + 1) : 0;
    if (shift != 0 && value > UINT64_MAX >> shift)
        return -EINVAL;
    *ret_bytes = value << shift;
    *ret_end = unit != NULL ? end + 1 : end;
    return 0;
}

static int parse_whole_size(const char *text, uint64_t *ret_bytes)
{
    const char *end;
    uint64_t bytes;

    if (parse_size(text, &end, &bytes) != 0 || *end != '\0')
        return -EINVAL;
    *ret_bytes = bytes;
    return 0;
}

static int parse_tier(struct dsm_config *config, const char *value)
{
    const char *end;
    uint64_t bytes;

    if (parse_size(value, &end, &bytes) != 0 || (bytes != 0 && *end != ':') || (bytes == 0 && *end != '\0'))
        return -EINVAL;
    if (bytes != 0 && (end[1] == '\0' || strlen(end + 1) >= sizeof(config->nvme_path)))
        return -EINVAL;
    config->nvme_bytes = bytes;
    snprintf(config->nvme_path, sizeof(config->nvme_path), "%s", bytes != 0 ? end + 1 : "");
    return 0;
}

static int parse_cxl(struct dsm_config *config, const char *value)
{
    const char *end;
    const char *source;
    uint64_t bytes;

    if (parse_size(value, &end, &bytes) != 0 || (*end != ':' && *end != '\0'))
        return -EINVAL;
    source = *end == ':' ? end + 1 : "";
    if (*end == ':' && source[0] != '/' && strcmp(source, "node") != 0 && strcmp(source, "emulated") != 0)
        return -EINVAL;
    if (strlen(source) >= sizeof(config->cxl_source))
        return -EINVAL;
    config->cxl_bytes = bytes;
    snprintf(config->cxl_source, sizeof(config->cxl_source), "%s", source);
    return 0;
}

static int parse_zmem(struct dsm_config *config, const char *value)
{
    const char *end;
    uint64_t percent;

    if (parse_number(value, &end, &percent) == 0 && strcmp(end, "%") == 0) {
        if (percent < 1 || percent > CONFIG_ZMEM_PERCENT_MAX)
            return -EINVAL;
        config->zmem_percent = percent;
        config->zmem_bytes = 0;
        return 0;
    }
    config->zmem_percent = 0;
    return parse_whole_size(value, &config->zmem_bytes);
}

static bool word_is_in(const char *word, const char *words)
{
    size_t length = strlen(word);

    for (const char *at = words; length > 0 && (at = strstr(at, word)) != NULL; at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static int parse_switch(const char *value, bool *ret_on)
{
    if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
        return -EINVAL;
    *ret_on = strcmp(value, "on") == 0;
    return 0;
}

static int parse_scaled(const struct option_row *row, const char *value, uint64_t *ret_value)
{
    uint64_t scale = row->kind == OPTION_TIME ? 1000000 : strstr(row->name, "_us") != NULL ? 1000 : 1;
    const char *end;
    uint64_t number;

    if (parse_number(value, &end, &number) != 0 || *end != '\0' || number > UINT64_MAX / scale)
        return -EINVAL;
    *ret_value = number * scale;
    return 0;
}

static bool choice_find(const char *choices, const char *word, size_t length, unsigned *ret_number)
{
    unsigned number = 0;

    for (const char *at = choices; *at != '\0'; number++) {
        size_t size = strcspn(at, " ");

        if (size == length && memcmp(at, word, size) == 0) {
            *ret_number = number;
            return true;
        }
        at += size + (at[size] == ' ');
    }
    return false;
}

static int parse_words(const struct option_row *row, const char *value, uint64_t *ret_bits)
{
    uint64_t bits = 0;

    for (const char *at = value;;) {
        size_t length = strcspn(at, ",");
        unsigned number;

        if (!choice_find(row->choices, at, length, &number))
            return -EINVAL;
        bits |= (uint64_t)1 << number;
        if (at[length] == '\0')
            break;
        at += length + 1;
    }
    *ret_bits = bits;
    return 0;
}

static int row_parse(struct dsm_config *config, const struct option_row *row, const char *value)
{
    void *field = (char *)config + row->offset;

    switch (row->kind) {
    case OPTION_SIZE:
        return parse_whole_size(value, field);
    case OPTION_ZMEM:
        return parse_zmem(config, value);
    case OPTION_TIER:
        return parse_tier(config, value);
    case OPTION_CXL:
        return parse_cxl(config, value);
    case OPTION_TIME:
    case OPTION_NUMBER:
        return parse_scaled(row, value, field);
    case OPTION_SWITCH:
        return parse_switch(value, field);
    case OPTION_TEXT:
        if (strlen(value) >= row->size_bytes || (row->choices != NULL && !word_is_in(value, row->choices)))
            return -EINVAL;
        snprintf(field, row->size_bytes, "%s", value);
        return 0;
    case OPTION_WORDS:
        return parse_words(row, value, field);
    }
    return -EINVAL;
}

static const char *kind_text(const struct option_row *row)
{
    static const char *const texts[] = {
        [OPTION_SIZE] = "a size such as 512M",
        [OPTION_ZMEM] = "a size such as 512M, or 1% to 90% of option ddr",
        [OPTION_TIME] = "milliseconds",
        [OPTION_TIER] = "SIZE:DIRECTORY such as 4G:/scratch, or 0",
        [OPTION_SWITCH] = "on or off",
        [OPTION_NUMBER] = "a number",
        [OPTION_TEXT] = "a short text",
        [OPTION_WORDS] = "",
        [OPTION_CXL] = "a size such as 4G, or SIZE:node, SIZE:/dev/dax0.0, SIZE:emulated",
    };

    return row->choices != NULL ? row->choices : texts[row->kind];
}

int config_set(struct dsm_config *config, const char *name, const char *value)
{
    const struct option_row *row = row_find(name);

    if (row == NULL)
        return error_set(-ENOENT, "no option is named '%s'; did you mean '%s'?", name, row_suggest(name));
    if (row_parse(config, row, value) != 0)
        return error_set(-EINVAL, "option %s cannot be '%s': it takes %s%s", name, value, kind_text(row),
                         row->kind == OPTION_WORDS ? ", with commas between" : "");
    return 0;
}

static int environment_apply(struct dsm_config *config, const struct option_row *row)
{
    char variable[64] = "DSM_";
    const char *value;
    size_t used = 4;

    for (const char *at = row->name; *at != '\0' && used < sizeof(variable) - 1; at++)
        variable[used++] = *at == '.' ? '_' : (char)toupper((unsigned char)*at);
    value = getenv(variable);
    if (value == NULL || row_parse(config, row, value) == 0)
        return 0;
    return error_set(-EINVAL, "environment variable %s cannot be '%s': it takes %s", variable, value, kind_text(row));
}

int config_init(struct dsm_config *config)
{
    memset(config, 0, sizeof(*config));
    for (size_t i = 0; i < ARRAY_COUNT(options); i++) {
        int error = row_parse(config, &options[i], options[i].fallback);

        if (error != 0)
            return error_set(error, "bug: default of option %s", options[i].name);
        /* A set-user-id program does not take orders from its caller's environment. */
        error = getauxval(AT_SECURE) != 0 ? 0 : environment_apply(config, &options[i]);
        if (error != 0)
            return error;
    }
    return 0;
}

uint64_t config_zmem_bytes(const struct dsm_config *config, uint64_t ddr_bytes)
{
    return config->zmem_percent == 0 ? config->zmem_bytes : ddr_bytes / 100 * config->zmem_percent;
}

uint64_t config_cxl_memory_bytes(const struct dsm_config *config)
{
    return config->cxl_source[0] == '/' ? 0 : config->cxl_bytes;
}

int config_check(const struct dsm_config *config)
{
    uint64_t memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    if (config->ddr_bytes > memory_bytes)
        return error_set(-ENOMEM, "DDR budget of %lu MiB is larger than this machine's %lu MiB; lower option ddr",
                         config->ddr_bytes >> 20, memory_bytes >> 20);
    if (config_cxl_memory_bytes(config) > memory_bytes)
        return error_set(-ENOMEM, "CXL memory of %lu MiB is larger than this machine's %lu MiB; "
                         "lower option cxl", config->cxl_bytes >> 20, memory_bytes >> 20);
    if (config->zmem_bytes > memory_bytes)
        return error_set(-ENOMEM, "zmem of %lu MiB is larger than this machine's %lu MiB; lower option zmem",
                         config->zmem_bytes >> 20, memory_bytes >> 20);
    if (config->ddr_bytes < EXTENT_BYTES)
        return error_set(-EINVAL, "DDR budget of %lu KiB is too small; option ddr takes at least 2M",
                         config->ddr_bytes >> 10);
    if (config->requests_max < 8 || config->requests_max > 4096)
        return error_set(-EINVAL, "option requests takes 8 to 4096");
    if (config->heartbeat_ns == 0 || config->suspect_ns / 3 < config->heartbeat_ns)
        return error_set(-EINVAL, "option heartbeat takes at least 1 ms, and suspect three times heartbeat");
    if (config->window_shared_bytes % EXTENT_BYTES != 0 || config->window_private_bytes % EXTENT_BYTES != 0 ||
        config->window_shared_bytes < EXTENT_BYTES || config->window_private_bytes < EXTENT_BYTES ||
        config->window_shared_bytes > (uint64_t)1 << 44 || config->window_private_bytes > (uint64_t)1 << 44)
        return error_set(-EINVAL, "options window.shared and window.private take multiples of 2M up to 16T");
    return 0;
}

void config_visit(void (*visit)(void *context, const char *name, const char *fallback, const char *help),
                  void *context)
{
    for (size_t i = 0; i < ARRAY_COUNT(options); i++)
        visit(context, options[i].name, options[i].fallback, options[i].help);
}
