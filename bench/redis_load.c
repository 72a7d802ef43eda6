/* SPDX-License-Identifier: Apache-2.0 */
/*
 * redis_load.c - GET and SET against a redis server on a unix socket, keys after Zipf's law: few are asked for often.
 *
 *   bench_redis_load SOCKET KEYS VALUE_BYTES CONNECTIONS
 *
 * Writes every key and says "ready". Then, for each line of its input that names a number of seconds: four GET to one
 * SET for so long, one request at a time a connection, and says how many requests a second and the 99th percentile of
 * their latency in us. A value starts with its key, which is checked.
 */
#include "base/random.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 64
#define THETA           0.99 /* of the law; the usual one of YCSB */
#define BUFFER_BYTES    65536
#define SAMPLES_MAX     4000000
#define FILL_DEPTH      32

struct connection {
    int fd;
    uint32_t key;
    bool is_set;
    uint64_t start_ns;
    size_t used;
    char buffer[BUFFER_BYTES];
};

static struct {
    uint32_t keys_count;
    size_t value_bytes;
    unsigned connections_count;
    double zeta, alpha, eta; /* Gray et al.: Quickly generating billion-record synthetic databases, SIGMOD 1994 */
} load;

static struct connection connections[CONNECTIONS_MAX];
static struct pollfd polls[CONNECTIONS_MAX];
static uint32_t *samples_us;
static size_t samples_count;
static char *value;

_Noreturn static void die(const char *why)
{
    fprintf(stderr, "bench_redis_load: %s: %s\n", why, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* ---- keys ------------------------------------------------------------------------------------------------------ */

static void zipf_init(void)
{
    double zeta_two = 1 + pow(0.5, THETA);

    for (uint32_t i = 1; i <= load.keys_count; i++)
        load.zeta += pow(1.0 / i, THETA);
    load.alpha = 1 / (1 - THETA);
    load.eta = (1 - pow(2.0 / load.keys_count, 1 - THETA)) / (1 - zeta_two / load.zeta);
}

/* The rank is scattered over the keys, so that those asked for often do not lie together in memory. */
static uint32_t zipf_next(struct random *random)
{
    double u = (double)(random_next(random) >> 11) / (double)(UINT64_C(1) << 53);
    double uz = u * load.zeta;
    uint64_t rank;

    if (uz < 1)
        rank = 0;
    else if (uz < 1 + pow(0.5, THETA))
        rank = 1;
    else
        rank = (uint64_t)((double)load.keys_count * pow(load.eta * u - load.eta + 1, load.alpha));
    return (uint32_t)(rank * UINT64_C(0x9e3779b97f4a7c15) % load.keys_count);
}

/* ---- the protocol ---------------------------------------------------------------------------------------------- */

static void write_all(int fd, const char *bytes, size_t size_bytes)
{
    while (size_bytes > 0) {
        ssize_t put = write(fd, bytes, size_bytes);

        if (put <= 0)
            die("the server is gone");
        bytes += put;
        size_bytes -= (size_t)put;
    }
}

/* Its key, then half of it text of its own, half text that all values have. */
static void value_make(uint32_t key)
{
    struct random random = {.state = key};

    for (size_t i = 0; i + 8 <= load.value_bytes / 2; i += 8) {
        uint64_t word = (random_next(&random) & 0x3f3f3f3f3f3f3f3f) + 0x2828282828282828;

        memcpy(value + i, &word, sizeof(word));
    }
    snprintf(value, 12, "%011u", key);
    value[11] = '.';
}

static void request_send(struct connection *connection)
{
    char text[BUFFER_BYTES];
    int used;

    if (connection->is_set) {
        value_make(connection->key);
        used = snprintf(text, sizeof(text), "*3\r\n$3\r\nSET\r\n$14\r\nkey%011u\r\n$%zu\r\n%.*s\r\n", connection->key,
                        load.value_bytes, (int)load.value_bytes, value);
    } else {
        used = snprintf(text, sizeof(text), "*2\r\n$3\r\nGET\r\n$14\r\nkey%011u\r\n", connection->key);
    }
    connection->start_ns = now_ns();
    connection->used = 0;
    write_all(connection->fd, text, (size_t)used);
}

/* The whole answer is there: "+OK\r\n", or "$SIZE\r\nVALUE\r\n". */
static bool answer_is_whole(const struct connection *connection)
{
    char wanted[32];
    int head = snprintf(wanted, sizeof(wanted), "$%zu\r\n", load.value_bytes);
    char key[16];

    if (connection->is_set)
        return connection->used >= 5;
    if (connection->used < (size_t)head + load.value_bytes + 2)
        return false;
    snprintf(key, sizeof(key), "%011u.", connection->key);
    if (memcmp(connection->buffer, wanted, (size_t)head) != 0 || memcmp(connection->buffer + head, key, 12) != 0)
        die("a value is not the one that was set");
    return true;
}

static bool answer_read(struct connection *connection)
{
    ssize_t got = read(connection->fd, connection->buffer + connection->used, BUFFER_BYTES - connection->used);

    if (got <= 0)
        die("the server is gone");
    connection->used += (size_t)got;
    if (connection->buffer[0] == '-')
        die("the server refuses");
    return answer_is_whole(connection);
}

/* ---- filling and measuring ------------------------------------------------------------------------------------- */

static void answers_await(struct connection *connection, unsigned count)
{
    size_t wanted = (size_t)count * 5; /* "+OK\r\n" */

    while (wanted > 0) {
        ssize_t got = read(connection->fd, connection->buffer, wanted < BUFFER_BYTES ? wanted : BUFFER_BYTES);

        if (got <= 0 || connection->buffer[0] == '-')
            die("the server refuses");
        wanted -= (size_t)got;
    }
}

static void fill(void)
{
    struct connection *connection = &connections[0];
    unsigned sent = 0;

    connection->is_set = true;
    for (uint32_t key = 0; key < load.keys_count; key++) {
        connection->key = key;
        request_send(connection);
        if (++sent == FILL_DEPTH || key + 1 == load.keys_count) {
            answers_await(connection, sent);
            sent = 0;
        }
    }
}

static int compare(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a;
    uint32_t right = *(const uint32_t *)b;

    return (left > right) - (left < right);
}

static void next_send(struct connection *connection, struct random *random)
{
    connection->key = zipf_next(random);
    connection->is_set = random_below(random, 5) == 0;
    request_send(connection);
}

static void measure(double time_s, struct random *random)
{
    uint64_t start_ns = now_ns();
    uint64_t end_ns = start_ns + (uint64_t)(time_s * 1e9);
    unsigned open = load.connections_count;
    uint64_t requests = 0;

    samples_count = 0;
    for (unsigned i = 0; i < load.connections_count; i++)
        next_send(&connections[i], random);
    while (open > 0) {
        if (poll(polls, load.connections_count, 60000) <= 0)
            die("no answer for a minute");
        for (unsigned i = 0; i < load.connections_count; i++) {
            struct connection *connection = &connections[i];
            uint64_t at_ns;

            if ((polls[i].revents & (POLLIN | POLLHUP)) == 0 || !answer_read(connection))
                continue;
            at_ns = now_ns();
            requests++;
            if (samples_count < SAMPLES_MAX)
                samples_us[samples_count++] = (uint32_t)((at_ns - connection->start_ns) / 1000);
            if (at_ns < end_ns)
                next_send(connection, random);
            else
                open--;
        }
    }
    qsort(samples_us, samples_count, sizeof(*samples_us), compare);
    printf("%.2f %u\n", (double)requests * 1e9 / (double)(now_ns() - start_ns),
           samples_us[(size_t)((double)(samples_count - 1) * 0.99)]);
    fflush(stdout);
}

static void connect_all(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
    for (unsigned i = 0; i < load.connections_count; i++) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
            die(path);
        connections[i].fd = fd;
        polls[i] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
}

int main(int argc, char **argv)
{
    static const char common[] = "{\"name\": \"a value as good as any\", \"count\": 17}";
    struct random random = {.state = 42};
    char line[64];

    if (argc != 5) {
        fprintf(stderr, "usage: bench_redis_load SOCKET KEYS VALUE_BYTES CONNECTIONS\n");
        return 2;
    }
    load.keys_count = (uint32_t)strtoul(argv[2], NULL, 10);
    load.value_bytes = strtoul(argv[3], NULL, 10);
    load.connections_count = (unsigned)strtoul(argv[4], NULL, 10);
    if (load.keys_count < 2 || load.value_bytes < 16 || load.value_bytes > BUFFER_BYTES / 2 ||
        load.connections_count == 0 || load.connections_count > CONNECTIONS_MAX)
        return 2;
    value = malloc(load.value_bytes + 1);
    samples_us = malloc(SAMPLES_MAX * sizeof(*samples_us));
    if (value == NULL || samples_us == NULL)
        die("memory");
    for (size_t i = 0; i < load.value_bytes; i++)
        value[i] = common[i % (sizeof(common) - 1)];
    value[load.value_bytes] = '\0';
    zipf_init();
    connect_all(argv[1]);
    fill();
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL)
        measure(strtod(line, NULL), &random);
    return 0;
}
