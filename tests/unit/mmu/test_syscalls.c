/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_syscalls.c - system calls whose buffers are absent, unmapped or write-protected pages, with a handler thread.
 */
#include "fixture.h"

#include <sys/socket.h>
#include <sys/uio.h>

#define PAGES 8U

/* Lets each call meet pages in every state: absent, in the memfd only, protected, and mapped. */
static void mix_states(struct fixture *fixture, uint64_t first)
{
    uint8_t bytes[PAGE_BYTES];
    bool shared = mmu_page_is_shared(&fixture->window, page_of(first));

    pthread_mutex_lock(&fixture->lock);
    for (uint64_t page = first; page < first + PAGES; page++) {
        ok(shared ? mmu_free(fixture->mmu, page_of(page), 1) : mmu_drop(fixture->mmu, page_of(page), 1));
        if ((page - first) % 4 == 0)
            continue;
        page_fill(bytes, page);
        ok(mmu_copy(fixture->mmu, page_of(page), 1, bytes, (page - first) % 4 != 2));
        if ((page - first) % 4 == 1 && shared)
            ok(mmu_zap(fixture->mmu, page_of(page), 1));
    }
    pthread_mutex_unlock(&fixture->lock);
}

static bool all_filled(const uint8_t *bytes, uint64_t first)
{
    for (uint64_t i = 0; i < PAGES; i++)
        if (!page_is_filled(bytes + i * PAGE_BYTES, first + i))
            return false;
    return true;
}

static int open_fixture(void **state)
{
    static struct fixture fixture;
    struct mmu_switches none = {0};

    fixture_open(&fixture, &none);
    ok(mmu_register(fixture.mmu, page_of(PRIVATE_FIRST), EXTENT_PAGES));
    handler_start(&fixture, answer_plainly);
    *state = &fixture;
    return 0;
}

static int close_fixture(void **state)
{
    fixture_close(*state);
    return 0;
}

static const uint64_t FIRSTS[] = {8, PRIVATE_FIRST + 8};
#define SIZE ((ssize_t)(PAGES * PAGE_BYTES))

/* Names that the handler does not give, so that only the call can have brought them. */
static void name_differently(uint8_t *bytes)
{
    for (unsigned i = 0; i < PAGES; i++)
        page_fill(bytes + i * PAGE_BYTES, 1000 + i);
}

static void test_write_and_read_of_a_file(void **state)
{
    struct fixture *fixture = *state;
    static uint8_t bytes[PAGES * PAGE_BYTES];

    for (size_t i = 0; i < ARRAY_COUNT(FIRSTS); i++) {
        uint64_t first = FIRSTS[i];
        int fd = memfd_create("file", MFD_CLOEXEC);

        mix_states(fixture, first);
        assert_int_equal(write(fd, page_bytes(fixture, first), PAGES * PAGE_BYTES), SIZE);
        assert_int_equal(pread(fd, bytes, sizeof(bytes), 0), SIZE);
        assert_true(all_filled(bytes, first));
        name_differently(bytes);
        assert_int_equal(pwrite(fd, bytes, sizeof(bytes), 0), SIZE);
        mix_states(fixture, first);
        assert_int_equal(pread(fd, page_bytes(fixture, first), PAGES * PAGE_BYTES, 0), SIZE);
        assert_true(all_filled(page_bytes(fixture, first), 1000));
        close(fd);
    }
}

static void test_readv_and_writev(void **state)
{
    struct fixture *fixture = *state;
    static uint8_t expected[PAGES * PAGE_BYTES], back[PAGES * PAGE_BYTES];

    name_differently(expected);
    for (size_t i = 0; i < ARRAY_COUNT(FIRSTS); i++) {
        uint8_t *bytes = page_bytes(fixture, FIRSTS[i]);
        struct iovec vectors[2] = {{bytes + 100, 3 * PAGE_BYTES}, {bytes + 5 * PAGE_BYTES + 7, 2 * PAGE_BYTES}};
        int fd = memfd_create("file", MFD_CLOEXEC);

        mix_states(fixture, FIRSTS[i]);
        assert_int_equal(writev(fd, vectors, 2), 5 * PAGE_BYTES);
        assert_int_equal(pread(fd, back, 5 * PAGE_BYTES, 0), 5 * PAGE_BYTES);
        assert_memory_equal(back, bytes + 100, 3 * PAGE_BYTES);
        assert_memory_equal(back + 3 * PAGE_BYTES, bytes + 5 * PAGE_BYTES + 7, 2 * PAGE_BYTES);
        assert_int_equal(pwrite(fd, expected, 5 * PAGE_BYTES, 0), 5 * PAGE_BYTES);
        mix_states(fixture, FIRSTS[i]);
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        assert_int_equal(readv(fd, vectors, 2), 5 * PAGE_BYTES);
        assert_memory_equal(bytes + 100, expected, 3 * PAGE_BYTES);
        assert_memory_equal(bytes + 5 * PAGE_BYTES + 7, expected + 3 * PAGE_BYTES, 2 * PAGE_BYTES);
        close(fd);
    }
}

struct sender {
    pthread_t thread;
    int fd;
    const uint8_t *bytes;
};

static void *send_all(void *argument)
{
    struct sender *sender = argument;
    size_t done = 0;

    while (done < PAGES * PAGE_BYTES) {
        ssize_t sent = send(sender->fd, sender->bytes + done, PAGES * PAGE_BYTES - done, 0);

        ASSERT(sent > 0);
        done += (size_t)sent;
    }
    return NULL;
}

static void test_send_and_recv(void **state)
{
    struct fixture *fixture = *state;

    for (size_t i = 0; i < ARRAY_COUNT(FIRSTS); i++) {
        uint64_t other = FIRSTS[1 - i];
        struct sender sender = {.bytes = page_bytes(fixture, other)};
        size_t done = 0;
        int pair[2];

        mix_states(fixture, FIRSTS[i]);
        mix_states(fixture, other);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        sender.fd = pair[0];
        ok(os_thread_start(&sender.thread, "sender", send_all, &sender));
        while (done < PAGES * PAGE_BYTES) {
            ssize_t got = recv(pair[1], page_bytes(fixture, FIRSTS[i]) + done, PAGES * PAGE_BYTES - done, 0);

            assert_true(got > 0);
            done += (size_t)got;
        }
        pthread_join(sender.thread, NULL);
        assert_true(all_filled(page_bytes(fixture, FIRSTS[i]), other));
        close(pair[0]);
        close(pair[1]);
    }
}

static void test_process_vm_readv_and_futex(void **state)
{
    struct fixture *fixture = *state;
    static uint8_t bytes[PAGES * PAGE_BYTES];

    for (size_t i = 0; i < ARRAY_COUNT(FIRSTS); i++) {
        struct iovec local = {bytes, sizeof(bytes)};
        struct iovec remote = {page_bytes(fixture, FIRSTS[i]), sizeof(bytes)};
        uint32_t *word = (uint32_t *)(void *)page_bytes(fixture, FIRSTS[i] + 4);

        mix_states(fixture, FIRSTS[i]);
        assert_int_equal(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), SIZE);
        assert_true(all_filled(bytes, FIRSTS[i]));
        mix_states(fixture, FIRSTS[i]);
        /* Absent when the kernel looks at it; the value differs, so it does not sleep. */
        assert_int_equal(os_futex_wait((_Atomic(uint32_t) *)word, 1, 1000, true), 0);
    }
}

/* A file that a disk driver fills by DMA, where the machine has one that allows it. */
static int open_direct(void)
{
    static const char *const folders[] = {".", "/var/tmp", "/tmp"};
    char path[64];

    for (size_t i = 0; i < ARRAY_COUNT(folders); i++) {
        int fd;

        snprintf(path, sizeof(path), "%s/tiermesh-direct-%d", folders[i], getpid());
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);
        unlink(path);
        if (fd >= 0)
            return fd;
    }
    return -1;
}

static void test_direct_io_on_private_pages(void **state)
{
    struct fixture *fixture = *state;
    uint64_t first = PRIVATE_FIRST + 8;
    int fd = open_direct();

    if (fd < 0)
        skip();
    mix_states(fixture, first);
    assert_int_equal(pwrite(fd, page_bytes(fixture, first), PAGES * PAGE_BYTES, 0), SIZE);
    assert_int_equal(pread(fd, page_bytes(fixture, first + PAGES), PAGES * PAGE_BYTES, 0), SIZE);
    assert_true(all_filled(page_bytes(fixture, first + PAGES), first));
    name_differently(page_bytes(fixture, first));
    assert_int_equal(pwrite(fd, page_bytes(fixture, first), PAGES * PAGE_BYTES, 0), SIZE);
    memset(page_bytes(fixture, first), 0xff, PAGES * PAGE_BYTES);
    pthread_mutex_lock(&fixture->lock);
    ok(mmu_drop(fixture->mmu, page_of(first), PAGES / 2)); /* the others are protected */
    ok(mmu_protect(fixture->mmu, page_of(first + PAGES / 2), PAGES / 2, false));
    pthread_mutex_unlock(&fixture->lock);
    assert_int_equal(pread(fd, page_bytes(fixture, first), PAGES * PAGE_BYTES, 0), SIZE);
    assert_true(all_filled(page_bytes(fixture, first), 1000));
    close(fd);
}

static void test_registered_buffers_on_absent_private_pages(void **state)
{
    struct fixture *fixture = *state;
    uint64_t first = PRIVATE_FIRST + 8;
    int ring;

    mix_states(fixture, first);
    ring = memory_pin(page_bytes(fixture, first), PAGES * PAGE_BYTES);
    if (ring < 0)
        skip();
    assert_true(atomic_load(&fixture->faults[MMU_FAULT_MISSING]) > 0);
    assert_true(all_filled(page_bytes(fixture, first), first));
    close(ring);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_write_and_read_of_a_file),
        TEST(test_readv_and_writev),
        TEST(test_send_and_recv),
        TEST(test_process_vm_readv_and_futex),
        TEST(test_direct_io_on_private_pages),
        TEST(test_registered_buffers_on_absent_private_pages),
    };

    require_userfaultfd();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
