/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topology.c - reads sysfs into the tables of topology.h. Any thread; no allocation, no stdio.
 *
 * What is missing is "not known": old kernels have no memory tiers, virtual machines no HMAT. What is there and cannot
 * be understood is not known either, and is noted.
 */
#include "tiers/topology.h"
#include "base/textfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_BYTES  512
#define NODE_FOLDER "/sys/devices/system/node"
#define TIER_FOLDER "/sys/devices/virtual/memory_tiering"
#define DAX_FOLDER  "/sys/bus/dax/devices"

/* ---- text ------------------------------------------------------------------------------------------------------ */

#define PATH_OVERFLOWN '\1' /* behind the zero of an empty path: it stays empty, and names nothing */

static void path_add(char path[PATH_BYTES], const char *text)
{
    size_t used = strlen(path);
    size_t length = strlen(text);

    if (used == 0 && path[1] == PATH_OVERFLOWN)
        return;
    if (length >= PATH_BYTES - used) {
        path[0] = '\0';
        path[1] = PATH_OVERFLOWN;
        return;
    }
    memcpy(path + used, text, length + 1);
}

static void path_add_number(char path[PATH_BYTES], unsigned number)
{
    char digits[12];
    char *at = digits + sizeof(digits) - 1;

    *at = '\0';
    do
        *--at = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    path_add(path, at);
}

static void malformed_note(struct topology *topology, const char *root, const char *path)
{
    size_t skip = strlen(root);

    if (topology->malformed_count++ == 0)
        (void)(text_join(topology->malformed, sizeof(topology->malformed), path + skip, "") ||
               text_join(topology->malformed, sizeof(topology->malformed), "a file with a long name", ""));
}

/* Cuts a line's end. */
static char *line_of(char *text)
{
    text[strcspn(text, "\n")] = '\0';
    return text;
}

/* Decimal, or hexadecimal as dax devices have it. The whole text must be a number. */
static bool number_of(const char *text, uint64_t *ret_value)
{
    uint64_t value = 0;
    unsigned base = text[0] == '0' && text[1] == 'x' ? 16 : 10;

    text += base == 16 ? 2 : 0;
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        unsigned digit = *text >= '0' && *text <= '9'                 ? (unsigned)(*text - '0')
                         : base == 16 && *text >= 'a' && *text <= 'f' ? (unsigned)(*text - 'a' + 10)
                                                                      : 16;

        if (digit >= base || __builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *ret_value = value;
    return true;
}

struct reader {
    struct topology *topology;
    const char *root;
};

/* The number in `folder`/`name`; false: not known. */
static bool number_read(const struct reader *reader, const char *folder, const char *name, uint64_t *ret_value)
{
    char path[PATH_BYTES] = "";
    char text[64];

    path_add(path, folder);
    path_add(path, "/");
    path_add(path, name);
    if (text_read(path, text, sizeof(text)) != 0)
        return false;
    if (number_of(line_of(text), ret_value))
        return true;
    malformed_note(reader->topology, reader->root, path);
    return false;
}

/* A target node is -1 where there is none. */
static int node_number_read(const struct reader *reader, const char *folder, const char *name)
{
    char path[PATH_BYTES] = "";
    char text[64];
    uint64_t value = 0;

    path_add(path, folder);
    path_add(path, "/");
    path_add(path, name);
    if (text_read(path, text, sizeof(text)) != 0 || strcmp(line_of(text), "-1") == 0)
        return -1;
    if (number_of(text, &value) && value <= INT32_MAX)
        return (int)value;
    malformed_note(reader->topology, reader->root, path);
    return -1;
}

/* ---- lists of nodes: "0-3,8" ------------------------------------------------------------------------------------- */

static bool list_number(const char **text, unsigned *ret_number)
{
    uint64_t value = 0;
    const char *at = *text;

    for (; *at >= '0' && *at <= '9' && value < 65536; at++)
        value = value * 10 + (unsigned)(*at - '0');
    if (at == *text || value >= 65536)
        return false;
    *text = at;
    *ret_number = (unsigned)value;
    return true;
}

/* Calls visit() for each number; false: this is no list. An empty list is one. */
static bool list_visit(const char *text, void (*visit)(void *context, unsigned number), void *context)
{
    while (*text != '\0') {
        unsigned first, last;

        if (!list_number(&text, &first))
            return false;
        last = first;
        if (*text == '-' && (text++, !list_number(&text, &last)))
            return false;
        if (last < first || (*text != ',' && *text != '\0'))
            return false;
        for (unsigned i = first; i <= last; i++)
            visit(context, i);
        text += *text == ',';
    }
    return true;
}

static bool list_read(const struct reader *reader, const char *path, void (*visit)(void *context, unsigned number),
                      void *context)
{
    char text[1024];

    if (text_read(path, text, sizeof(text)) != 0)
        return false;
    if (list_visit(line_of(text), visit, context))
        return true;
    malformed_note(reader->topology, reader->root, path);
    return false;
}

/* ---- folders ----------------------------------------------------------------------------------------------------- */

struct kernel_entry { /* linux_dirent64 */
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

/* Not opendir(), which allocates: in the preload library that would be the program's heap. */
static void folder_visit(const char *path, void (*visit)(void *context, const char *name), void *context)
{
    _Alignas(8) char bytes[4096];
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long got;

    if (fd < 0)
        return;
    while ((got = syscall(SYS_getdents64, fd, bytes, sizeof(bytes))) > 0) {
        for (long at = 0; at < got;) {
            const struct kernel_entry *entry = (const void *)(bytes + at);

            if (entry->name[0] != '.')
                visit(context, entry->name);
            at += entry->length;
        }
    }
    close(fd);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

struct topology_node *topology_node(struct topology *topology, unsigned number)
{
    for (unsigned i = 0; i < topology->nodes_count; i++)
        if (topology->nodes[i].number == number)
            return &topology->nodes[i];
    return NULL;
}

static struct topology_node *node_add(struct topology *topology, unsigned number)
{
    struct topology_node *node = topology_node(topology, number);

    if (node != NULL)
        return node;
    if (topology->nodes_count == TOPOLOGY_NODES_MAX) {
        topology->left_out++;
        return NULL;
    }
    node = &topology->nodes[topology->nodes_count++];
    *node = (struct topology_node){
        .number = number, .kernel_tier = TOPOLOGY_TIER_UNKNOWN, .near_node = -1, .near_processor = -1, .dax = -1};
    return node;
}

static void node_seen(void *context, unsigned number)
{
    (void)node_add(context, number);
}

static void node_has_processors(void *context, unsigned number)
{
    struct topology_node *node = topology_node(context, number);

    if (node != NULL)
        node->has_processors = true;
}

/* "Node 1 MemTotal:  524288 kB". A node that vanishes while it is read has none. */
static uint64_t node_memory(const struct reader *reader, const char *folder)
{
    static const char word[] = "MemTotal:";
    char path[PATH_BYTES] = "";
    char text[2048];
    const char *at;
    uint64_t kib = 0;

    path_add(path, folder);
    path_add(path, "/meminfo");
    if (text_read(path, text, sizeof(text)) != 0)
        return 0;
    at = strstr(text, word);
    if (at != NULL) {
        at += sizeof(word) - 1;
        at += strspn(at, " \t");
    }
    if (at != NULL && text_number(at, &kib) == 0 && kib < UINT64_MAX >> 10)
        return kib << 10;
    malformed_note(reader->topology, reader->root, path);
    return 0;
}

/* What firmware says of the nearest processors. Read figures: loads wait, stores do not. */
static struct memory_speed node_firmware(const struct reader *reader, const char *folder)
{
    struct memory_speed speed = {0};
    char path[PATH_BYTES] = "";

    path_add(path, folder);
    path_add(path, "/access0/initiators");
    (void)number_read(reader, path, "read_latency", &speed.latency_ns);
    (void)number_read(reader, path, "read_bandwidth", &speed.bandwidth_mbs);
    return speed;
}

static void first_note(void *context, unsigned number)
{
    int *first = context;

    if (*first < 0)
        *first = (int)number;
}

/* Distances to all nodes that are online, in the order of their numbers, which is that of the table at this time. */
static void near_find(const struct reader *reader, const char *folder, struct topology_node *node)
{
    struct topology *topology = reader->topology;
    uint64_t least = UINT64_MAX;
    char path[PATH_BYTES] = "";
    char text[1024];
    char *at = text;

    path_add(path, folder);
    path_add(path, "/distance");
    if (text_read(path, text, sizeof(text)) != 0)
        return;
    for (unsigned i = 0; i < topology->nodes_count; i++) {
        uint64_t distance;

        if (text_number(at, &distance) != 0) {
            malformed_note(topology, reader->root, path);
            return;
        }
        if (topology->nodes[i].has_processors && distance < least) {
            least = distance;
            node->near_node = (int)topology->nodes[i].number;
        }
        at += strcspn(at, " \n");
        at += strspn(at, " ");
    }
    if (node->near_node < 0)
        return;
    path[0] = '\0';
    path_add(path, reader->root);
    path_add(path, NODE_FOLDER "/node");
    path_add_number(path, (unsigned)node->near_node);
    path_add(path, "/cpulist");
    (void)list_read(reader, path, first_note, &node->near_processor);
}

static void node_read(const struct reader *reader, struct topology_node *node)
{
    char folder[PATH_BYTES] = "";

    path_add(folder, reader->root);
    path_add(folder, NODE_FOLDER "/node");
    path_add_number(folder, node->number);
    node->memory_bytes = node_memory(reader, folder);
    if (node->memory_bytes == 0)
        return;
    node->firmware = node_firmware(reader, folder);
    near_find(reader, folder, node);
}

static void nodes_read(const struct reader *reader)
{
    struct topology *topology = reader->topology;
    char path[PATH_BYTES] = "";

    path_add(path, reader->root);
    path_add(path, NODE_FOLDER "/online");
    (void)list_read(reader, path, node_seen, topology);
    path[0] = '\0';
    path_add(path, reader->root);
    path_add(path, NODE_FOLDER "/has_cpu");
    (void)list_read(reader, path, node_has_processors, topology);
    for (unsigned i = 0; i < topology->nodes_count; i++)
        node_read(reader, &topology->nodes[i]);
}

/* ---- memory tiers of the kernel ---------------------------------------------------------------------------------- */

struct tier_reader {
    const struct reader *reader;
    int tier;
    bool has_nodes;
};

static void tier_has_node(void *context, unsigned number)
{
    struct tier_reader *tiers = context;
    struct topology_node *node = topology_node(tiers->reader->topology, number);

    if (node == NULL)
        return;
    node->kernel_tier = tiers->tier;
    tiers->has_nodes = true;
}

static void tier_read(void *context, const char *name)
{
    static const char prefix[] = "memory_tier";
    const struct reader *reader = context;
    struct tier_reader tiers = {.reader = reader};
    char path[PATH_BYTES] = "";
    uint64_t number;

    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0 || !number_of(name + sizeof(prefix) - 1, &number) ||
        number > INT32_MAX)
        return;
    tiers.tier = (int)number;
    path_add(path, reader->root);
    path_add(path, TIER_FOLDER "/");
    path_add(path, name);
    path_add(path, "/nodelist");
    (void)list_read(reader, path, tier_has_node, &tiers);
    reader->topology->kernel_tiers += tiers.has_nodes;
}

/* ---- dax devices ------------------------------------------------------------------------------------------------- */

/* Where the link leads; "": nowhere. */
static void link_read(const char *folder, const char *name, char target[PATH_BYTES])
{
    char path[PATH_BYTES] = "";
    long length;

    path_add(path, folder);
    path_add(path, "/");
    path_add(path, name);
    length = syscall(SYS_readlinkat, AT_FDCWD, path, target, PATH_BYTES - 1);
    target[length > 0 ? length : 0] = '\0';
}

static enum dax_origin origin_of(const char *target)
{
    if (strstr(target, "/dax_region") != NULL || strstr(target, "/ACPI0017") != NULL)
        return DAX_CXL;
    if (strstr(target, "/ndbus") != NULL)
        return DAX_PMEM;
    return strstr(target, "/hmem") != NULL ? DAX_HMEM : DAX_UNKNOWN;
}

static enum dax_state state_of(const char *driver)
{
    const char *name = strrchr(driver, '/');

    name = name != NULL ? name + 1 : driver;
    if (strcmp(name, "kmem") == 0)
        return DAX_NODE;
    return strcmp(name, "device_dax") == 0 ? DAX_DEVICE : DAX_FREE;
}

static void dax_file_look(const struct reader *reader, struct topology_dax *dax)
{
    char path[PATH_BYTES] = "";

    path_add(path, reader->root);
    path_add(path, "/dev/");
    path_add(path, dax->name);
    dax->has_file = syscall(SYS_faccessat, AT_FDCWD, path, F_OK) == 0;
    dax->may_open = dax->has_file && syscall(SYS_faccessat, AT_FDCWD, path, R_OK | W_OK) == 0;
}

static void dax_read(void *context, const char *name)
{
    const struct reader *reader = context;
    struct topology *topology = reader->topology;
    struct topology_dax *dax = &topology->dax[topology->dax_count];
    char folder[PATH_BYTES] = "";
    char target[PATH_BYTES];

    if (topology->dax_count == TOPOLOGY_DAX_MAX || strlen(name) >= sizeof(dax->name)) {
        topology->left_out++;
        return;
    }
    topology->dax_count++;
    *dax = (struct topology_dax){.target_node = -1};
    (void)text_join(dax->name, sizeof(dax->name), name, "");
    path_add(folder, reader->root);
    path_add(folder, DAX_FOLDER);
    link_read(folder, name, target);
    dax->origin = origin_of(target);
    path_add(folder, "/");
    path_add(folder, name);
    link_read(folder, "driver", target);
    dax->state = state_of(target);
    (void)number_read(reader, folder, "size", &dax->size_bytes);
    (void)number_read(reader, folder, "align", &dax->align_bytes);
    dax->target_node = node_number_read(reader, folder, "target_node");
    dax_file_look(reader, dax);
}

/* Nodes that dax devices gave their memory to; a node may be there in name only, until its memory is online. */
static void dax_join(struct topology *topology)
{
    for (unsigned i = 0; i < topology->dax_count; i++) {
        const struct topology_dax *dax = &topology->dax[i];
        struct topology_node *node;

        if (dax->state != DAX_NODE || dax->target_node < 0)
            continue;
        node = node_add(topology, (unsigned)dax->target_node);
        if (node != NULL)
            node->dax = (int)i;
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void nodes_sort(struct topology *topology)
{
    for (unsigned i = 1; i < topology->nodes_count; i++) {
        struct topology_node node = topology->nodes[i];
        unsigned at = i;

        for (; at > 0 && topology->nodes[at - 1].number > node.number; at--)
            topology->nodes[at] = topology->nodes[at - 1];
        topology->nodes[at] = node;
    }
}

static void dax_sort(struct topology *topology)
{
    for (unsigned i = 1; i < topology->dax_count; i++) {
        struct topology_dax dax = topology->dax[i];
        unsigned at = i;

        for (; at > 0 && strcmp(topology->dax[at - 1].name, dax.name) > 0; at--)
            topology->dax[at] = topology->dax[at - 1];
        topology->dax[at] = dax;
    }
}

static void auto_online_read(const struct reader *reader)
{
    struct topology *topology = reader->topology;
    char path[PATH_BYTES] = "";

    path_add(path, reader->root);
    path_add(path, "/sys/devices/system/memory/auto_online_blocks");
    if (text_read(path, topology->auto_online, sizeof(topology->auto_online)) != 0)
        topology->auto_online[0] = '\0';
    (void)line_of(topology->auto_online);
}

/* A kernel without NUMA: all memory is that of one node. */
static void sole_node_add(const struct reader *reader)
{
    struct topology_node *node = node_add(reader->topology, 0);
    char path[PATH_BYTES] = "";
    char text[2048];
    uint64_t kib = 0;

    node->has_processors = true;
    path_add(path, reader->root);
    path_add(path, "/proc/meminfo");
    if (text_read(path, text, sizeof(text)) == 0 && text_number_of(text, "MemTotal:", &kib) == 0)
        node->memory_bytes = kib << 10;
}

void topology_read(const char *root, struct topology *ret_topology)
{
    struct reader reader = {ret_topology, root};
    char path[PATH_BYTES] = "";
    int before = errno;

    memset(ret_topology, 0, sizeof(*ret_topology));
    nodes_read(&reader);
    if (ret_topology->nodes_count == 0)
        sole_node_add(&reader);
    path_add(path, root);
    path_add(path, TIER_FOLDER);
    folder_visit(path, tier_read, &reader);
    path[0] = '\0';
    path_add(path, root);
    path_add(path, DAX_FOLDER);
    folder_visit(path, dax_read, &reader);
    dax_sort(ret_topology);
    dax_join(ret_topology);
    nodes_sort(ret_topology);
    auto_online_read(&reader);
    errno = before;
}

unsigned topology_of_kind(const struct topology *topology, enum memory_kind kind, unsigned *numbers_out,
                          unsigned wanted)
{
    unsigned count = 0;

    for (unsigned i = 0; i < topology->nodes_count && count < wanted; i++)
        if (topology->nodes[i].kind == kind)
            numbers_out[count++] = topology->nodes[i].number;
    return count;
}

const char *memory_kind_name(enum memory_kind kind)
{
    static const char *const names[MEMORY_KINDS] = {"ddr", "hbm", "cxl", "pmem", "offline", "none"};

    return (unsigned)kind < MEMORY_KINDS ? names[kind] : "?";
}

const char *dax_origin_name(enum dax_origin origin)
{
    static const char *const names[] = {"unknown", "cxl", "pmem", "set aside by firmware"};

    return (unsigned)origin < ARRAY_COUNT(names) ? names[origin] : "?";
}
