/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trap_pin.c - memory that a device or the kernel holds while others are pushed out, and system calls on memory that is
 * elsewhere (T24, T25, T27).
 */
#include "tests/shim/trap.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/errqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define SIZE (64 * PAGE)

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

/* A file without a name on the disk of the working directory; -1: its file system has no O_DIRECT. */
static int disk_file(void)
{
    char path[] = "trap_pin.XXXXXX";
    int fd = mkostemp(path, O_DIRECT | O_CLOEXEC);

    if (fd >= 0)
        unlink(path);
    return fd;
}

/* ---- pressure beside ----------------------------------------------------------------------------------------------
 */

static volatile int over;

static void *press(void *unused)
{
    (void)unused;
    while (!over)
        pressure();
    return NULL;
}

static pthread_t press_begin(void)
{
    pthread_t thread;

    over = 0;
    CHECK(pthread_create(&thread, NULL, press, NULL) == 0);
    return thread;
}

static void press_end(pthread_t thread)
{
    over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

/* ---- transfers ----------------------------------------------------------------------------------------------------
 */

static void direct(void)
{
    char *from = map_filled(SIZE, 1), *to = map(SIZE, RW);
    pthread_t presser;
    int fd = disk_file();

    if (fd < 0)
        return;
    push_out(from, SIZE);
    CHECK(pwrite(fd, from, SIZE, 0) == (ssize_t)SIZE);
    presser = press_begin();
    for (uint64_t i = 0; i < 60; i++) {
        fill(from, SIZE, i);
        CHECK(pwrite(fd, from, SIZE, 0) == (ssize_t)SIZE);
        memset(to, 0x55, SIZE);
        CHECK(pread(fd, to, SIZE, 0) == (ssize_t)SIZE);
        CHECK(filled(to, SIZE, i) && filled(from, SIZE, i));
    }
    press_end(presser);
    CHECK(munmap(from, SIZE) == 0 && munmap(to, SIZE) == 0);
    close(fd);
}

static void ring_transfer(struct io_uring *ring, int fd, bool write, char *memory, size_t size, int buffer)
{
    struct io_uring_sqe *request = io_uring_get_sqe(ring);
    struct io_uring_cqe *done;

    if (write)
        io_uring_prep_write_fixed(request, fd, memory, (unsigned)size, 0, buffer);
    else
        io_uring_prep_read_fixed(request, fd, memory, (unsigned)size, 0, buffer);
    CHECK(io_uring_submit(ring) == 1);
    CHECK(io_uring_wait_cqe(ring, &done) == 0 && done->res == (int)size);
    io_uring_cqe_seen(ring, done);
}

/* Buffers that a ring has registered stay the same pages for as long, whatever is pushed out meanwhile. */
static void registered_buffers(void)
{
    char *from = map_filled(SIZE, 2), *to = map_filled(SIZE, 3);
    struct iovec buffers[] = {{from, SIZE}, {to, SIZE}};
    struct io_uring ring;
    int fd = disk_file();

    if (fd < 0)
        return;
    if (io_uring_queue_init(8, &ring, 0) != 0) {
        close(fd);
        return;
    }
    push_out(from, SIZE);
    CHECK(io_uring_register_buffers(&ring, buffers, 2) == 0);
    CHECK(filled(from, SIZE, 2) && filled(to, SIZE, 3));
    for (uint64_t i = 10; i < 16; i++) {
        fill(from, SIZE, i);
        pressure();
        ring_transfer(&ring, fd, true, from, SIZE, 0);
        pressure();
        ring_transfer(&ring, fd, false, to, SIZE, 1);
        CHECK(filled(to, SIZE, i));
        pressure();
        CHECK(filled(to, SIZE, i) && filled(from, SIZE, i));
    }
    CHECK(io_uring_unregister_buffers(&ring) == 0);
    io_uring_queue_exit(&ring);
    push_out(to, SIZE);
    CHECK(filled(to, SIZE, 15));
    CHECK(munmap(from, SIZE) == 0 && munmap(to, SIZE) == 0);
    close(fd);
}

static void read_all(int fd, void *memory, size_t size)
{
    size_t done = 0;

    while (done < size) {
        ssize_t got = read(fd, (char *)memory + done, size - done);

        CHECK(got > 0);
        done += (size_t)got;
    }
}

/* The pages themselves are in the pipe; they are not written before they were read. */
static void gifts(void)
{
    char *from = map_filled(16 * PAGE, 4), *to = map(16 * PAGE, RW);
    struct iovec part = {from, 16 * PAGE};
    int pipes[2];

    CHECK(pipe(pipes) == 0);
    push_out(from, 16 * PAGE);
    CHECK(vmsplice(pipes[1], &part, 1, 0) == 16 * (ssize_t)PAGE);
    for (int i = 0; i < 3; i++)
        pressure();
    CHECK(filled(from, 16 * PAGE, 4));
    read_all(pipes[0], to, 16 * PAGE);
    CHECK(filled(to, 16 * PAGE, 4));
    /* Written after it was given: the reader sees the new bytes, as the pipe has the page itself. */
    CHECK(vmsplice(pipes[1], &part, 1, 0) == 16 * (ssize_t)PAGE);
    fill(from, 16 * PAGE, 5);
    pressure();
    read_all(pipes[0], to, 16 * PAGE);
    CHECK(filled(to, 16 * PAGE, 5) && filled(from, 16 * PAGE, 5));
    CHECK(munmap(from, 16 * PAGE) == 0 && munmap(to, 16 * PAGE) == 0);
    close(pipes[0]);
    close(pipes[1]);
}

static void connected(int pair[2])
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(name);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&name, sizeof(name)) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&name, &size) == 0);
    pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(pair[0], (struct sockaddr *)&name, sizeof(name)) == 0);
    pair[1] = accept(listener, NULL, NULL);
    CHECK(pair[1] >= 0);
    close(listener);
}

static void without_copies(void)
{
    char *from = map(16 * PAGE, RW), *to = map(16 * PAGE, RW);
    char control[128];
    int pair[2], on = 1;

    connected(pair);
    if (setsockopt(pair[0], SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) != 0)
        return;
    for (uint64_t i = 0; i < 20; i++) {
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof(control)};
        struct pollfd waiting = {.fd = pair[0]};

        fill(from, 16 * PAGE, i);
        push_out(from, 16 * PAGE);
        CHECK(send(pair[0], from, 16 * PAGE, MSG_ZEROCOPY) == 16 * (ssize_t)PAGE);
        pressure();
        read_all(pair[1], to, 16 * PAGE);
        CHECK(filled(to, 16 * PAGE, i));
        do
            CHECK(poll(&waiting, 1, 5000) == 1);
        while (recvmsg(pair[0], &message, MSG_ERRQUEUE) < 0);
        CHECK(filled(from, 16 * PAGE, i));
    }
    close(pair[0]);
    close(pair[1]);
    CHECK(munmap(from, 16 * PAGE) == 0 && munmap(to, 16 * PAGE) == 0);
}

/* ---- ordinary system calls ------------------------------------------------------------------------------------------
 */

/* Every kind of argument lies in memory that has just been pushed out. */
static void plain_calls(void)
{
    char *memory = map_filled(SIZE, 6), *other = map_filled(SIZE, 7);
    struct iovec *parts = (struct iovec *)(void *)(memory + 8 * PAGE);
    char *path = memory + 16 * PAGE;
    int *pipes = (int *)(void *)(memory + 20 * PAGE);
    struct timespec *time = (struct timespec *)(void *)(memory + 24 * PAGE);

    strcpy(path, "/proc/self/exe");
    push_out(memory, SIZE);
    CHECK(pipe(pipes) == 0);
    push_out(memory, SIZE);
    CHECK(write(pipes[1], other, 8 * PAGE) == 8 * (ssize_t)PAGE);
    parts[0] = (struct iovec){memory, PAGE};
    parts[1] = (struct iovec){memory + 2 * PAGE, 7 * PAGE - 2 * PAGE};
    push_out(memory, SIZE);
    CHECK(readv(pipes[0], parts, 2) == 6 * (ssize_t)PAGE);
    CHECK(filled(memory, PAGE, 7) && filled_at(memory + 2 * PAGE, 5 * PAGE, 7, PAGE));
    CHECK(filled_at(memory + PAGE, PAGE, 6, PAGE));
    push_out(memory, SIZE);
    CHECK(access(path, R_OK) == 0);
    push_out(memory, SIZE);
    CHECK(clock_gettime(CLOCK_REALTIME, time) == 0 && readlink(path, memory + 32 * PAGE, PAGE) > 0);
    CHECK(filled(other, SIZE, 7));
    close(pipes[0]);
    close(pipes[1]);
    CHECK(munmap(memory, SIZE) == 0 && munmap(other, SIZE) == 0);
}

static void of_another_process(void)
{
    char *memory = map_filled(SIZE, 8), *copy = map(SIZE, RW);
    struct iovec here = {copy, SIZE}, there = {memory, SIZE};
    int ready[2], go[2];
    char byte;
    pid_t child;

    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    child = fork();
    if (child == 0) {
        fill(memory, SIZE, 9);
        push_out(memory, SIZE);
        CHECK(write(ready[1], "r", 1) == 1 && read(go[0], &byte, 1) == 1);
        _exit(filled(memory, SIZE, 10) ? 0 : 1);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    push_out(copy, SIZE);
    if (process_vm_readv(child, &here, 1, &there, 1, 0) == (ssize_t)SIZE) {
        CHECK(filled(copy, SIZE, 9));
        fill(copy, SIZE, 10);
        push_out(copy, SIZE);
        CHECK(process_vm_writev(child, &here, 1, &there, 1, 0) == (ssize_t)SIZE);
        CHECK(write(go[1], "g", 1) == 1 && child_end(child) == 0);
    } else {
        CHECK(errno == EPERM); /* Yama forbids */
        kill(child, SIGKILL);
        child_end(child);
    }
    CHECK(filled(memory, SIZE, 8));
    for (int i = 0; i < 2; i++) {
        close(ready[i]);
        close(go[i]);
    }
    CHECK(munmap(memory, SIZE) == 0 && munmap(copy, SIZE) == 0);
}

/* A debugger reads a word as it is or is told that it cannot, and changes nothing by looking. */
static void of_a_debugger(void)
{
    char *memory = map_filled(SIZE, 11);
    size_t refused = 0;
    int status;
    pid_t child = fork();

    if (child == 0) {
        push_out(memory, SIZE);
        CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 && raise(SIGSTOP) == 0);
        _exit(filled(memory, SIZE, 11) ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
    for (size_t at = 0; at < SIZE; at += PAGE) {
        uint64_t word;

        errno = 0;
        word = (uint64_t)ptrace(PTRACE_PEEKDATA, child, memory + at, NULL);
        CHECK(errno == EIO || (errno == 0 && word == word_of(11, at / sizeof(word))));
        refused += errno == EIO;
    }
    CHECK(getenv("TRAP_EVICTS") != NULL ? refused > 0 : refused == 0);
    CHECK(ptrace(PTRACE_CONT, child, NULL, NULL) == 0 && child_end(child) == 0);
    CHECK(munmap(memory, SIZE) == 0);
}

/*
 * A ring's buffer is one page of a huge page, since before memory ran short. Kernels that cannot split the huge page
 * for that must not keep others waiting, and its pages go once the buffer is given back.
 */
static void in_a_huge_page(void)
{
    const size_t size = 4 * MIB, at = 300 * PAGE;
    char *memory = map(size, RW);
    struct iovec buffer = {memory + at, PAGE};
    struct io_uring ring;
    int fd = disk_file();

    if (fd < 0)
        return;
    madvise(memory, size, MADV_HUGEPAGE);
    fill(memory, size, 12);
    if (io_uring_queue_init(8, &ring, 0) != 0) {
        close(fd);
        return;
    }
    CHECK(io_uring_register_buffers(&ring, &buffer, 1) == 0);
    for (uint64_t i = 20; i < 24; i++) {
        pressure();
        CHECK(filled(memory, at, 12) && filled_at(memory + at + PAGE, size - at - PAGE, 12, at + PAGE));
        fill(memory + at, PAGE, i);
        ring_transfer(&ring, fd, true, memory + at, PAGE, 0);
        memset(memory + at, 0, PAGE);
        pressure();
        ring_transfer(&ring, fd, false, memory + at, PAGE, 0);
        CHECK(filled(memory + at, PAGE, i));
    }
    CHECK(io_uring_unregister_buffers(&ring) == 0);
    io_uring_queue_exit(&ring);
    push_out(memory, size);
    CHECK(filled(memory, at, 12) && filled(memory + at, PAGE, 23));
    CHECK(munmap(memory, size) == 0);
    close(fd);
}

TRAP_MAIN({"direct", direct}, {"registered_buffers", registered_buffers}, {"gifts", gifts},
          {"without_copies", without_copies}, {"plain_calls", plain_calls}, {"of_another_process", of_another_process},
          {"of_a_debugger", of_a_debugger}, {"in_a_huge_page", in_a_huge_page})
