/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e2e_syscalls.c - system calls on absent pages: the kernel takes the fault. Devices and io_uring work on private
 * memory as they are, and on shared memory under dsm_pin().
 */
#include "tests/support/node_test.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGES 512 /* 2 MiB */
#define SIZE  ((size_t)PAGES * DSM_PAGE_BYTES)

static char *memory_of(enum dsm_kind kind, size_t size)
{
    struct dsm_attributes attributes = {.kind = kind};
    void *memory;

    CHECK_OK(dsm_malloc_with(size, &attributes, &memory));
    return memory;
}

/* Fills 12 MiB of other memory, so that everything else leaves DDR (4 MiB). */
static void push_out(void)
{
    char *other = memory_of(DSM_PRIVATE, 12 << 20);

    memset(other, 1, 12 << 20);
    CHECK_OK(dsm_free(other));
}

static void pages_fill(char *memory, uint64_t round)
{
    for (size_t i = 0; i < PAGES; i++)
        page_fill(memory + i * DSM_PAGE_BYTES, i, round);
}

static void pages_check(const char *memory, uint64_t round)
{
    for (size_t i = 0; i < PAGES; i++)
        CHECK(page_is_filled(memory + i * DSM_PAGE_BYTES, i, round));
}

static int file_open(int flags)
{
    int fd;

    CHECK(node_directory() != NULL);
    fd = open(node_directory(), O_TMPFILE | O_RDWR | flags, 0600);
    CHECK(fd >= 0);
    return fd;
}

static void whole(ssize_t done, size_t wanted)
{
    if (done != (ssize_t)wanted)
        check_failed(__FILE__, __LINE__, "system call moved %zd bytes of %zu: %s", done, wanted, strerror(errno));
}

/* ---- read, write, readv
 * ------------------------------------------------------------------------------------------------- */

static void file_round(enum dsm_kind kind)
{
    char *memory = memory_of(kind, SIZE);
    char *fresh = memory_of(kind, SIZE);
    struct iovec parts[8];
    int fd = file_open(0);

    pages_fill(memory, 1);
    push_out();
    whole(pwrite(fd, memory, SIZE, 0), SIZE);
    whole(pread(fd, fresh, SIZE, 0), SIZE); /* into pages never touched */
    pages_check(fresh, 1);
    pages_fill(fresh, 2);
    push_out();
    for (size_t i = 0; i < 8; i++)
        parts[i] = (struct iovec){fresh + i * SIZE / 8, SIZE / 8};
    whole(preadv(fd, parts, 8, 0), SIZE); /* over pages that are in lower tiers */
    pages_check(fresh, 1);
    push_out();
    whole(pwritev(fd, parts, 8, 0), SIZE);
    close(fd);
    CHECK_OK(dsm_free(memory));
    CHECK_OK(dsm_free(fresh));
}

static void run_files(void)
{
    file_round(DSM_PRIVATE);
    file_round(DSM_SHARED);
    CHECK_OK(dsm_barrier());
}

/* ---- sockets and pipes
 * ------------------------------------------------------------------------------------------------------ */

static int ends[2];
static char *sent;

static void send_or_receive(unsigned thread)
{
    size_t done = 0;

    if (thread == 0) {
        while (done < SIZE) {
            ssize_t count = send(ends[0], sent + done, SIZE - done, 0);

            CHECK(count > 0);
            done += (size_t)count;
        }
        return;
    }
    for (char *memory = sent + SIZE; done < SIZE;) {
        ssize_t count = recv(ends[1], memory + done, SIZE - done, 0);

        CHECK(count > 0);
        done += (size_t)count;
    }
}

static void run_sockets(void)
{
    static const enum dsm_kind kinds[] = {DSM_PRIVATE, DSM_SHARED};

    for (int k = 0; k < 2; k++) {
        sent = memory_of(kinds[k], 2 * SIZE);
        pages_fill(sent, 3);
        push_out();
        CHECK_IS(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        threads_run(2, send_or_receive);
        pages_check(sent + SIZE, 3);
        close(ends[0]);
        close(ends[1]);
        CHECK_OK(dsm_free(sent));
    }
    CHECK_OK(dsm_barrier());
}

/* Pages that another node has: read(2) into them takes them, write(2) from them brings them. */
static void run_remote_pages(void)
{
    char *memory = node_share("memory", SIZE);
    int fd = file_open(0);

    for (uint64_t round = 1; round <= 3; round++) {
        if ((int)round % dsm_node_count() == dsm_node_id())
            pages_fill(memory, round);
        CHECK_OK(dsm_barrier());
        if ((int)(round + 1) % dsm_node_count() == dsm_node_id()) {
            whole(pwrite(fd, memory, SIZE, 0), SIZE);
            memset(memory, 0, SIZE);
        }
        CHECK_OK(dsm_barrier());
        if ((int)(round + 1) % dsm_node_count() == dsm_node_id())
            whole(pread(fd, memory, SIZE, 0), SIZE);
        CHECK_OK(dsm_barrier());
        pages_check(memory, round);
        CHECK_OK(dsm_barrier());
    }
    close(fd);
}

/* A page that is lost: the call fails with EFAULT, the process lives. */
static void run_lost_page(void)
{
    char *memory = memory_of(DSM_SHARED, 4 << 20);
    char byte = 1;
    int fd = file_open(0);

    memory[0] = 1;
    CHECK_OK(dsm_free(memory));
    CHECK_IS(pwrite(fd, memory + DSM_PAGE_BYTES, 1, 0), -1);
    CHECK_IS(errno, EFAULT);
    whole(pwrite(fd, &byte, 1, 0), 1);
    close(fd);
}

/* ---- O_DIRECT and io_uring
 * ---------------------------------------------------------------------------------------------------- */

static void direct_round(char *memory, bool is_pinned)
{
    int fd = file_open(O_DIRECT);

    pages_fill(memory, 4);
    push_out();
    if (is_pinned)
        CHECK_OK(dsm_pin(memory, SIZE / 4, 1, 0));
    for (size_t part = 0; part < 4; part++) {
        char *at = memory + part * SIZE / 4;

        if (is_pinned && part > 0) {
            CHECK_OK(dsm_unpin(at - SIZE / 4, SIZE / 4));
            CHECK_OK(dsm_pin(at, SIZE / 4, 1, 0));
        }
        whole(pwrite(fd, at, SIZE / 4, (off_t)(part * SIZE / 4)), SIZE / 4);
        memset(at, 0, SIZE / 4);
        whole(pread(fd, at, SIZE / 4, (off_t)(part * SIZE / 4)), SIZE / 4);
    }
    if (is_pinned)
        CHECK_OK(dsm_unpin(memory + 3 * SIZE / 4, SIZE / 4));
    pages_check(memory, 4);
    push_out(); /* what the device stored is not lost on the way through the tiers */
    pages_check(memory, 4);
    close(fd);
}

static void run_direct(void)
{
    char *private = memory_of(DSM_PRIVATE, SIZE);
    char *shared = memory_of(DSM_SHARED, SIZE);

    direct_round(private, false);
    direct_round(private, false);
    direct_round(shared, true);
    CHECK_OK(dsm_barrier());
}

static void ring_move(struct io_uring *ring, int fd, char *memory, bool is_write)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    struct io_uring_cqe *cqe;

    if (is_write)
        io_uring_prep_write_fixed(sqe, fd, memory, SIZE, 0, 0);
    else
        io_uring_prep_read_fixed(sqe, fd, memory, SIZE, 0, 0);
    CHECK_IS(io_uring_submit(ring), 1);
    CHECK_IS(io_uring_wait_cqe(ring, &cqe), 0);
    CHECK_IS(cqe->res, (int)SIZE);
    io_uring_cqe_seen(ring, cqe);
}

/* Registered buffers stay pinned by the kernel over evictions around them. */
static void registered_round(char *memory, bool is_pinned)
{
    struct iovec buffer = {memory, SIZE};
    struct io_uring ring;
    int fd = file_open(O_DIRECT);
    int error = io_uring_queue_init(4, &ring, 0);

    if (error == -EPERM || error == -ENOSYS)
        node_skip("io_uring is refused here");
    CHECK_IS(error, 0);
    if (is_pinned)
        CHECK_OK(dsm_pin(memory, SIZE, 1, 0));
    CHECK_IS(io_uring_register_buffers(&ring, &buffer, 1), 0);
    pages_fill(memory, 5);
    if (!is_pinned)
        push_out();
    ring_move(&ring, fd, memory, true);
    memset(memory, 0, SIZE);
    if (!is_pinned)
        push_out(); /* tries to take the pages away between memset and the device's write */
    ring_move(&ring, fd, memory, false);
    pages_check(memory, 5);
    io_uring_queue_exit(&ring);
    if (is_pinned)
        CHECK_OK(dsm_unpin(memory, SIZE));
    push_out();
    pages_check(memory, 5);
    close(fd);
}

static void run_registered(void)
{
    registered_round(memory_of(DSM_PRIVATE, SIZE), false);
    registered_round(memory_of(DSM_SHARED, SIZE), true);
    CHECK_OK(dsm_barrier());
}

/*
 * Why the pin is needed: a registered buffer is the memory of one moment. Another node takes the page and gives it
 * back, and the page's memory is another one: what the device writes then goes nowhere. Under a pin the other node
 * waits.
 */
static void run_pin_shows(void)
{
    char *memory = node_share("memory", DSM_PAGE_BYTES);
    int fd = file_open(0);
    bool is_device_node = dsm_node_id() == 0;
    struct iovec buffer = {memory, DSM_PAGE_BYTES};
    struct io_uring ring;
    char bytes[DSM_PAGE_BYTES];

    memset(bytes, 9, sizeof(bytes));
    whole(pwrite(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
    for (int is_pinned = 0; is_pinned < 2; is_pinned++) {
        if (is_device_node) {
            int error = io_uring_queue_init(4, &ring, 0);

            if (error == -EPERM || error == -ENOSYS)
                node_skip("io_uring is refused here");
            CHECK_IS(error, 0);
            memory[0] = 1;
            if (is_pinned)
                CHECK_OK(dsm_pin(memory, DSM_PAGE_BYTES, 1, 5 * SECOND_NS));
            CHECK_IS(io_uring_register_buffers(&ring, &buffer, 1), 0);
        }
        CHECK_OK(dsm_barrier());
        if (!is_device_node && !is_pinned)
            memory[0] = 2; /* takes the page: node 0's memory of it is given up */
        if (!is_pinned)
            CHECK_OK(dsm_barrier());
        if (is_device_node) {
            struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
            struct io_uring_cqe *cqe;

            if (is_pinned)
                sleep_ms(50); /* the other node wants the page by now */
            io_uring_prep_read_fixed(sqe, fd, memory, DSM_PAGE_BYTES, 0, 0);
            CHECK_IS(io_uring_submit(&ring), 1);
            CHECK_IS(io_uring_wait_cqe(&ring, &cqe), 0);
            CHECK_IS(cqe->res, DSM_PAGE_BYTES);
            io_uring_cqe_seen(&ring, cqe);
            CHECK_IS(memory[0], is_pinned ? 9 : 2); /* right with the pin, lost without */
            if (is_pinned)
                CHECK_OK(dsm_unpin(memory, DSM_PAGE_BYTES));
            io_uring_queue_exit(&ring);
        } else if (is_pinned) {
            memory[DSM_PAGE_BYTES - 1] = 3; /* wants the page while the device works */
            CHECK_IS(memory[0], 9);
        }
        CHECK_OK(dsm_barrier());
    }
    close(fd);
}

#define TIERS_SMALL "ddr=4M", "cxl=4M", "nvme=32M:%D"

static const struct node_case cases[] = {
    {"files_1", run_files, .nodes_count = 1, .options = {TIERS_SMALL}},
    {"files_no_move", run_files, .nodes_count = 1, .options = {TIERS_SMALL, "uffd.move=off"}},
    {"files_3", run_files, .nodes_count = 3, .options = {TIERS_SMALL}, .timeout_s = 40},
    {"sockets", run_sockets, .nodes_count = 1, .options = {TIERS_SMALL}},
    {"remote_pages", run_remote_pages, .nodes_count = 3, .options = {TIERS_SMALL}, .timeout_s = 40},
    {"lost_page", run_lost_page, .nodes_count = 1},
    {"direct", run_direct, .nodes_count = 1, .options = {TIERS_SMALL}},
    {"registered", run_registered, .nodes_count = 1, .options = {"ddr=8M", "cxl=4M", "nvme=32M:%D"}},
    {"pin_shows", run_pin_shows, .nodes_count = 2},
};

int main(int argc, char **argv)
{
    return node_test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
