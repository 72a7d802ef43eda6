/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_loop_io.c - transfers of files through the event loop, over io_uring and over epoll.
 */
#include "loop_fixture.h"

/* ---- transfers ------------------------------------------------------------------------------------------------- */

enum { IOS = 3000, IO_BYTES = 4096 };

struct transfer {
    struct loop_io io;
    int *done;
    int result;
    int calls;
};

static void transfer_done(struct loop_io *io, int result)
{
    struct transfer *transfer = io->context;

    transfer->result = result;
    transfer->calls++;
    ++*transfer->done;
}

/* An unlinked file in the build directory, which is on a disk; without O_DIRECT where the file system has none. */
static int file_create(void)
{
    char path[] = "loop-test-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC | O_DIRECT);

    if (fd < 0)
        fd = mkostemp(path, O_CLOEXEC);
    assert_true(fd >= 0);
    unlink(path);
    return fd;
}

static uint8_t pattern(int block, int round)
{
    return (uint8_t)(block * 7 + round * 31 + 1);
}

static void transfer_all(struct fixture *fixture, struct transfer *transfers, int fd, uint8_t *memory, bool is_write)
{
    int done = 0;

    for (int i = 0; i < IOS; i++) {
        transfers[i] = (struct transfer){.done = &done};
        transfers[i].io = (struct loop_io){
            .fd = fd,
            .is_write = is_write,
            .memory = memory + (size_t)i * IO_BYTES,
            .size_bytes = IO_BYTES,
            .offset_bytes = (uint64_t)i * IO_BYTES,
            .done = transfer_done,
            .context = &transfers[i],
        };
        loop_io_start(fixture->loop, &transfers[i].io);
        assert_int_equal(transfers[i].calls, 0);
    }
    run_until_equal(fixture->loop, &done, IOS);
    for (int i = 0; i < IOS; i++) {
        assert_int_equal(transfers[i].calls, 1);
        assert_int_equal(transfers[i].result, IO_BYTES);
    }
}

static void write_and_read_back(struct fixture *fixture, uint8_t *memory, int round)
{
    struct transfer *transfers = calloc(IOS, sizeof(*transfers));
    int fd = file_create();

    for (int i = 0; i < IOS; i++)
        memset(memory + (size_t)i * IO_BYTES, pattern(i, round), IO_BYTES);
    transfer_all(fixture, transfers, fd, memory, true);
    memset(memory, 0, (size_t)IOS * IO_BYTES);
    transfer_all(fixture, transfers, fd, memory, false);
    for (int i = 0; i < IOS; i++) {
        assert_int_equal(memory[(size_t)i * IO_BYTES], pattern(i, round));
        assert_memory_equal(memory + (size_t)i * IO_BYTES, memory + (size_t)i * IO_BYTES + 1, IO_BYTES - 1);
    }
    close(fd);
    free(transfers);
}

static void test_io_thousands_direct(void **state)
{
    struct fixture *fixture = *state;
    void *memory;

    assert_int_equal(os_pages_map((size_t)IOS * IO_BYTES, &memory), 0);
    write_and_read_back(fixture, memory, 1);
    os_pages_unmap(memory, (size_t)IOS * IO_BYTES);
}

/* Half of the transfers lie in the registered area. */
static void test_io_registered_buffers(void **state)
{
    struct fixture *fixture = *state;
    uint8_t *memory;
    void *mapped;
    int error;

    assert_int_equal(os_pages_map((size_t)IOS * IO_BYTES, &mapped), 0);
    memory = mapped;
    error = loop_buffers(fixture->loop, memory + (size_t)IOS / 2 * IO_BYTES, (size_t)IOS / 2 * IO_BYTES);
    if (strcmp(fixture->kind, "epoll") == 0)
        assert_int_equal(error, -EOPNOTSUPP);
    else if (error != -ENOMEM) /* a memlock limit is the machine's, and transfers work all the same */
        assert_int_equal(error, 0);
    write_and_read_back(fixture, memory, 2);
    os_pages_unmap(mapped, (size_t)IOS * IO_BYTES);
}

static void test_io_errors_arrive_at_done(void **state)
{
    struct fixture *fixture = *state;
    uint8_t byte = 0;
    int done = 0;
    int fd = file_create();
    struct transfer transfers[3];

    for (int i = 0; i < 3; i++) {
        transfers[i] = (struct transfer){.done = &done};
        transfers[i].io = (struct loop_io){.memory = &byte, .size_bytes = 1, .done = transfer_done};
        transfers[i].io.context = &transfers[i];
    }
    close(fd);
    transfers[0].io.fd = fd;                                      /* closed */
    transfers[1].io.fd = open("/dev/null", O_WRONLY | O_CLOEXEC); /* not readable */
    transfers[2].io.fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* at its end */
    for (int i = 0; i < 3; i++)
        loop_io_start(fixture->loop, &transfers[i].io);
    run_until_equal(fixture->loop, &done, 3);
    assert_int_equal(transfers[0].result, -EBADF); /* its number may be the write-only one now: the same error */
    assert_int_equal(transfers[1].result, -EBADF);
    assert_int_equal(transfers[2].result, 0);
    close(transfers[1].io.fd);
    close(transfers[2].io.fd);
}

#define TESTS_OF(kind) \
    TEST_OF(test_io_thousands_direct, kind), \
    TEST_OF(test_io_registered_buffers, kind), \
    TEST_OF(test_io_errors_arrive_at_done, kind)

int main(void)
{
    static const struct CMUnitTest epoll_tests[] = {TESTS_OF("epoll")};
    static const struct CMUnitTest uring_tests[] = {TESTS_OF("io_uring")};

    return run_both(epoll_tests, uring_tests, ARRAY_COUNT(epoll_tests));
}
