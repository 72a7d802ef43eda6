/* SPDX-License-Identifier: Apache-2.0 */
/*
 * uapi.h - the kernel's userfaultfd interface, with what headers older than the running kernel lack.
 *
 * Definitions only, each under #ifndef: Debian 12 ships the headers of 6.1. Whether the kernel has a thing is asked
 * with UFFDIO_API, never concluded from a definition here.
 * Source: include/uapi/linux/userfaultfd.h and ioctl_userfaultfd(2).
 */
#ifndef TIERMESH_MMU_UAPI_H
#define TIERMESH_MMU_UAPI_H

#include <linux/memfd.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

#ifndef UFFD_FEATURE_POISON
#define UFFD_FEATURE_POISON (1 << 14)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef UFFD_FEATURE_MOVE
#define UFFD_FEATURE_MOVE (1 << 16)
#endif

#ifndef UFFDIO_CONTINUE_MODE_WP
#define UFFDIO_CONTINUE_MODE_WP ((__u64)1 << 1)
#endif

#ifndef UFFDIO_MOVE
struct uffdio_move {
    __u64 dst;
    __u64 src;
    __u64 len;
    __u64 mode;
    __s64 move;
};
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#endif
#ifndef UFFDIO_MOVE_MODE_DONTWAKE
#define UFFDIO_MOVE_MODE_DONTWAKE ((__u64)1 << 0)
#endif

#ifndef UFFDIO_POISON
struct uffdio_poison {
    struct uffdio_range range;
    __u64 mode;
    __s64 updated;
};
#define UFFDIO_POISON _IOWR(UFFDIO, 0x08, struct uffdio_poison)
#endif

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

#endif
