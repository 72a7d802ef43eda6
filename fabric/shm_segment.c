/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_segment.c - the memory that a pair of nodes shares.
 *
 * page 0: the words of the four rings; then the bytes of each ring. Its size is sealed, so that no peer can shrink it
 * under us, and its pages exist from the start: a touch never fails. Each ring is mapped twice in a row (ring.h).
 */
#include "base/error.h"
#include "fabric/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS         (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define WORDS_BYTES   PAGE_BYTES
#define PAIR_BYTES    (SHM_CONTROL_BYTES + SHM_DATA_BYTES)
#define SEGMENT_BYTES (WORDS_BYTES + SHM_DIRECTIONS * PAIR_BYTES)
#define MAPPED_BYTES  (WORDS_BYTES + 2 * SHM_DIRECTIONS * PAIR_BYTES)

_Static_assert(sizeof(struct ring_shared[SHM_DIRECTIONS][PLANES]) <= WORDS_BYTES, "the words fit their page");

static size_t plane_bytes(unsigned plane)
{
    return plane == PLANE_CONTROL ? SHM_CONTROL_BYTES : SHM_DATA_BYTES;
}

int shm_segment_create(int *ret_fd)
{
    int fd = memfd_create("tiermesh-fabric", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int result;

    if (fd < 0)
        return error_set(-errno, "shm: make a memory file: %m");
    if (ftruncate(fd, (off_t)SEGMENT_BYTES) != 0) {
        result = error_set(-errno, "shm: size a memory file: %m");
        goto close_fd;
    }
    do
        result = fallocate(fd, 0, 0, (off_t)SEGMENT_BYTES) == 0 ? 0 : -errno;
    while (result == -EINTR);
    if (result != 0) {
        error_set(result, "shm: %zu KiB for the rings of a peer: %s", SEGMENT_BYTES / 1024, strerror(-result));
        goto close_fd;
    }
    if (fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        result = error_set(-errno, "shm: seal a memory file: %m");
        goto close_fd;
    }
    *ret_fd = fd;
    return 0;

close_fd:
    close(fd);
    return result;
}

static int map_at(uint8_t *at, size_t size, int fd, size_t offset)
{
    int flags = MAP_SHARED | MAP_FIXED | MAP_POPULATE;

    return mmap(at, size, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset) == MAP_FAILED ? -errno : 0;
}

int shm_segment_map(int fd, struct shm_segment *ret_segment)
{
    struct shm_segment segment = {0};
    struct stat about;
    int seals = fcntl(fd, F_GET_SEALS);
    size_t offset = WORDS_BYTES;
    uint8_t *at;
    int result;

    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &about) != 0 || about.st_size != (off_t)SEGMENT_BYTES)
        return -EBADMSG;
    at = mmap(NULL, MAPPED_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return -errno;
    segment.memory = at;
    segment.rings = (struct ring_shared(*)[PLANES])(void *)at;
    result = map_at(at, WORDS_BYTES, fd, 0);
    at += WORDS_BYTES;
    for (unsigned direction = 0; direction < SHM_DIRECTIONS; direction++)
        for (unsigned plane = 0; plane < PLANES; plane++) {
            size_t size = plane_bytes(plane);

            segment.bytes[direction][plane] = at;
            for (int twice = 0; twice < 2; twice++, at += size)
                if (result == 0)
                    result = map_at(at, size, fd, offset);
            offset += size;
        }
    if (result != 0) {
        shm_segment_unmap(&segment);
        return result;
    }
    *ret_segment = segment;
    return 0;
}

void shm_segment_unmap(struct shm_segment *segment)
{
    if (segment->memory != NULL)
        munmap(segment->memory, MAPPED_BYTES);
    *segment = (struct shm_segment){0};
}
