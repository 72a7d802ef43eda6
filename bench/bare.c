/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bare.c - two threads: the caller's, which faults, and the handler. The memory of `struct bare` is written before the
 * handler starts and after it ended, never between.
 */
#include "bench/bare.h"
#include "bench/setup.h"
#include "mmu/uapi.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct bare {
    bool is_shared;
    size_t size_bytes;
    int fd;
    int stop;
    char *memory;
    char *source;
    pthread_t thread;
    struct io_uring ring; /* the handler's */
    bool has_ring;
};

static int uffd_open(void)
{
    struct uffdio_api api = {.api = UFFD_API};
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    int fd;

    if (device >= 0) {
        fd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
        close(device);
    } else {
        fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    }
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0)
        die("open a userfaultfd: %s", strerror(errno));
    return fd;
}

static void arm(struct bare *bare, int fd)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&bare->ring);

    io_uring_prep_poll_add(sqe, fd, POLLIN);
    sqe->user_data = (unsigned)fd;
}

/* true: the userfaultfd may be read. false: the end. */
static bool wait_for_fault(struct bare *bare)
{
    struct pollfd fds[2] = {{.fd = bare->fd, .events = POLLIN}, {.fd = bare->stop, .events = POLLIN}};
    struct io_uring_cqe *cqe;
    uint64_t fd;

    if (!bare->has_ring) {
        poll(fds, 2, -1);
        return fds[1].revents == 0;
    }
    io_uring_submit_and_wait(&bare->ring, 1);
    if (io_uring_peek_cqe(&bare->ring, &cqe) != 0)
        return true;
    fd = cqe->user_data;
    io_uring_cqe_seen(&bare->ring, cqe);
    if (fd == (unsigned)bare->fd)
        arm(bare, bare->fd);
    return fd != (unsigned)bare->stop;
}

static void *handler_main(void *argument)
{
    struct bare *bare = argument;
    struct uffd_msg message;

    bare->has_ring =
        io_uring_queue_init(8, &bare->ring,
                            IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN) == 0;
    if (bare->has_ring) {
        arm(bare, bare->fd);
        arm(bare, bare->stop);
    }
    while (wait_for_fault(bare)) {
        while (read(bare->fd, &message, sizeof(message)) == (ssize_t)sizeof(message)) {
            uint64_t address = message.arg.pagefault.address & ~(uint64_t)(DSM_PAGE_BYTES - 1);
            struct uffdio_copy copy = {
                .dst = address,
                .src = (uint64_t)(uintptr_t)bare->source + (address - (uint64_t)(uintptr_t)bare->memory),
                .len = DSM_PAGE_BYTES,
            };

            if (ioctl(bare->fd, UFFDIO_COPY, &copy) != 0)
                die("UFFDIO_COPY: %s", strerror(errno));
        }
    }
    if (bare->has_ring)
        io_uring_queue_exit(&bare->ring);
    return NULL;
}

static void *absent_map(bool is_shared, size_t size_bytes)
{
    int fd = -1;
    void *memory;

    if (is_shared) {
        fd = memfd_create("tiermesh-bench", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)size_bytes) != 0)
            die("make a memfd: %s", strerror(errno));
    }
    memory =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, is_shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
    if (memory == MAP_FAILED)
        die("map %zu bytes: %s", size_bytes, strerror(errno));
    if (is_shared)
        close(fd);
    madvise(memory, size_bytes, MADV_NOHUGEPAGE);
    return memory;
}

struct bare *bare_open(bool is_shared, uint32_t pages_count)
{
    struct bare *bare = calloc(1, sizeof(*bare));
    struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};

    if (bare == NULL)
        die("no memory");
    bare->is_shared = is_shared;
    bare->size_bytes = (size_t)pages_count * DSM_PAGE_BYTES;
    bare->source = memory_map(bare->size_bytes, false);
    for (uint64_t i = 0; i < pages_count; i++)
        memcpy(bare->source + i * DSM_PAGE_BYTES, &i, sizeof(i));
    bare->memory = absent_map(is_shared, bare->size_bytes);
    bare->fd = uffd_open();
    bare->stop = eventfd(0, EFD_CLOEXEC);
    range.range.start = (uint64_t)(uintptr_t)bare->memory;
    range.range.len = bare->size_bytes;
    if (ioctl(bare->fd, UFFDIO_REGISTER, &range) != 0)
        die("UFFDIO_REGISTER: %s", strerror(errno));
    if (pthread_create(&bare->thread, NULL, handler_main, bare) != 0)
        die("start the bare handler");
    return bare;
}

void bare_close(struct bare *bare)
{
    uint64_t one = 1;

    if (write(bare->stop, &one, sizeof(one)) != (ssize_t)sizeof(one))
        die("stop the bare handler: %s", strerror(errno));
    pthread_join(bare->thread, NULL);
    munmap(bare->memory, bare->size_bytes);
    munmap(bare->source, bare->size_bytes);
    close(bare->stop);
    close(bare->fd);
    free(bare);
}

void bare_empty(struct bare *bare)
{
    if (madvise(bare->memory, bare->size_bytes, bare->is_shared ? MADV_REMOVE : MADV_DONTNEED) != 0)
        die("empty the bare memory: %s", strerror(errno));
}

char *bare_memory(const struct bare *bare)
{
    return bare->memory;
}
