/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/raw.h"
#include "base/os.h"
#include "bench/report.h"
#include "bench/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define NAME         "bench.raw"
#define SOURCE_BYTES (64 * MIB)
#define MEET_NS      UINT64_C(10000000000)

/* Where rank 1 is reached: published in a managed page. */
struct address {
    int32_t pid;
    int32_t fd; /* of the shared memory, in that process */
    uint16_t port;
};

struct raw {
    int rank;
    struct raw_shared *shared;
    int memory_fd;
    int socket; /* rank 0: the connection; rank 1: the listener */
    pthread_t tcp_thread, shared_thread;
    void *page;
};

static void send_all(int fd, const void *bytes, size_t size_bytes)
{
    for (size_t done = 0; done < size_bytes;) {
        ssize_t sent = send(fd, (const char *)bytes + done, size_bytes - done, MSG_NOSIGNAL);

        if (sent < 0)
            die("send: %s", strerror(errno));
        done += (size_t)sent;
    }
}

/* false: the other side closed. */
static bool receive_all(int fd, void *bytes, size_t size_bytes)
{
    for (size_t done = 0; done < size_bytes;) {
        ssize_t received = recv(fd, (char *)bytes + done, size_bytes - done, 0);

        if (received < 0)
            die("receive: %s", strerror(errno));
        if (received == 0)
            return false;
        done += (size_t)received;
    }
    return true;
}

static void no_delay(int fd)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

/* ---- rank 1 --------------------------------------------------------------------------------------------------------
 */

/* The first word of a request says how much is wanted. Copies come from all over the source, as pages do. */
static void *tcp_main(void *argument)
{
    struct raw *raw = argument;
    char *source = memory_map(SOURCE_BYTES, false);
    uint32_t request[RAW_REQUEST_BYTES / 4];
    size_t at = 0;
    int fd = accept4(raw->socket, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        die("accept: %s", strerror(errno));
    no_delay(fd);
    while (receive_all(fd, request, sizeof(request))) {
        if (at + request[0] > SOURCE_BYTES)
            at = 0;
        send_all(fd, source + at, request[0]);
        at += request[0];
    }
    close(fd);
    munmap(source, SOURCE_BYTES);
    return NULL;
}

/* The request number 0 ends it. */
static void *shared_main(void *argument)
{
    struct raw *raw = argument;
    struct raw_shared *shared = raw->shared;
    char request[RAW_REQUEST_BYTES];
    char page[RAW_REPLY_BYTES] = {1};
    uint32_t seen = 1;

    for (;;) {
        uint32_t number;

        while ((number = atomic_load(&shared->requests)) == seen)
            os_futex_wait(&shared->requests, seen, UINT64_MAX, true);
        if (number == 0)
            return NULL;
        seen = number;
        memcpy(request, shared->request, sizeof(request));
        memcpy(shared->reply, page, sizeof(page));
        atomic_store(&shared->replies, number);
        os_futex_wake(&shared->replies, 1, true);
    }
}

static struct raw_shared *shared_map(int fd)
{
    void *memory = mmap(NULL, sizeof(struct raw_shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (memory == MAP_FAILED)
        die("map the shared memory: %s", strerror(errno));
    return memory;
}

static void serve(struct raw *raw)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(name);
    struct address address;

    raw->memory_fd = memfd_create("tiermesh-bench", MFD_CLOEXEC);
    if (raw->memory_fd < 0 || ftruncate(raw->memory_fd, sizeof(struct raw_shared)) != 0)
        die("make a memfd: %s", strerror(errno));
    raw->shared = shared_map(raw->memory_fd);
    atomic_store(&raw->shared->requests, 1);
    raw->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (raw->socket < 0 || bind(raw->socket, (struct sockaddr *)&name, length) != 0 || listen(raw->socket, 1) != 0 ||
        getsockname(raw->socket, (struct sockaddr *)&name, &length) != 0)
        die("listen on loopback: %s", strerror(errno));
    if (pthread_create(&raw->tcp_thread, NULL, tcp_main, raw) != 0 ||
        pthread_create(&raw->shared_thread, NULL, shared_main, raw) != 0)
        die("start the servers");
    address = (struct address){.pid = getpid(), .fd = raw->memory_fd, .port = ntohs(name.sin_port)};
    DSM(dsm_malloc(DSM_PAGE_BYTES, &raw->page));
    DSM(dsm_write(raw->page, &address, sizeof(address), 0, NULL));
    DSM(dsm_root_set(NAME, raw->page));
}

/* ---- rank 0 --------------------------------------------------------------------------------------------------------
 */

static void meet(struct raw *raw)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct address address;
    char path[64];

    DSM(dsm_root_get(NAME, MEET_NS, &raw->page));
    DSM(dsm_read(&address, raw->page, sizeof(address), 0, NULL));
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", address.pid, address.fd);
    raw->memory_fd = open(path, O_RDWR | O_CLOEXEC);
    if (raw->memory_fd < 0)
        die("open %s: %s", path, strerror(errno));
    raw->shared = shared_map(raw->memory_fd);
    raw->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    name.sin_port = htons(address.port);
    if (raw->socket < 0 || connect(raw->socket, (struct sockaddr *)&name, sizeof(name)) != 0)
        die("connect to rank 1: %s", strerror(errno));
    no_delay(raw->socket);
}

static void tcp_trip(struct raw *raw, char *page)
{
    uint32_t request[RAW_REQUEST_BYTES / 4] = {RAW_REPLY_BYTES};

    send_all(raw->socket, request, sizeof(request));
    if (!receive_all(raw->socket, page, RAW_REPLY_BYTES))
        die("rank 1 is gone");
}

static void shared_trip(struct raw *raw, char *page)
{
    struct raw_shared *shared = raw->shared;
    uint32_t number = atomic_load(&shared->requests) + 1;
    uint32_t seen;

    memset(shared->request, 1, sizeof(shared->request));
    atomic_store(&shared->requests, number);
    os_futex_wake(&shared->requests, 1, true);
    while ((seen = atomic_load(&shared->replies)) != number)
        os_futex_wait(&shared->replies, seen, UINT64_MAX, true);
    memcpy(page, shared->reply, RAW_REPLY_BYTES);
}

double raw_round_trip(struct raw *raw, bool by_tcp, unsigned count, uint64_t pause_ns)
{
    double times_us[RAW_TIMES_MAX];
    char page[RAW_REPLY_BYTES];

    if (count > RAW_TIMES_MAX)
        die("more than %d round trips", RAW_TIMES_MAX);
    for (unsigned i = 0; i < count; i++) {
        uint64_t start_ns;

        if (pause_ns > 0)
            nap_ns(pause_ns);
        start_ns = now_ns();
        if (by_tcp)
            tcp_trip(raw, page);
        else
            shared_trip(raw, page);
        times_us[i] = (double)(now_ns() - start_ns) / 1000;
    }
    return quantile(times_us, count, 0.5);
}

void raw_tcp_copy(struct raw *raw, void *buffer, size_t size_bytes)
{
    uint32_t request[RAW_REQUEST_BYTES / 4] = {(uint32_t)size_bytes};

    send_all(raw->socket, request, sizeof(request));
    if (!receive_all(raw->socket, buffer, size_bytes))
        die("rank 1 is gone");
}

/* ---- both ----------------------------------------------------------------------------------------------------------
 */

struct raw *raw_open(int rank)
{
    struct raw *raw = calloc(1, sizeof(*raw));

    if (raw == NULL)
        die("no memory");
    raw->rank = rank;
    if (rank == 1)
        serve(raw);
    else
        meet(raw);
    return raw;
}

void raw_close(struct raw *raw)
{
    if (raw->rank == 0) {
        atomic_store(&raw->shared->requests, 0);
        os_futex_wake(&raw->shared->requests, 1, true);
        close(raw->socket);
    } else {
        pthread_join(raw->tcp_thread, NULL);
        pthread_join(raw->shared_thread, NULL);
        close(raw->socket);
        DSM(dsm_free(raw->page));
    }
    munmap(raw->shared, sizeof(*raw->shared));
    close(raw->memory_fd);
    free(raw);
}

struct raw_shared *raw_shared(struct raw *raw)
{
    return raw->shared;
}
