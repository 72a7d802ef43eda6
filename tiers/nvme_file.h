/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvme_file.h - finding, reserving and probing the file or device that an NVMe tier lies on. Private to tiers/.
 */
#ifndef TIERMESH_TIERS_NVME_FILE_H
#define TIERMESH_TIERS_NVME_FILE_H

#include "base/types.h"

/*
 * nvme_file_open - a close-on-exec O_DIRECT descriptor with size_bytes of reserved room: an unlinked file in `path`
 * when that is a directory, the device itself when it is a block device. Errors as tier_nvme_open(), with a sentence.
 */
int nvme_file_open(const char *path, uint64_t size_bytes, int *ret_fd, bool *ret_is_device) MUST_USE;

/* Another size; room for more is reserved first. -ENOSPC with a sentence; the file then keeps its size. */
int nvme_file_resize(const char *where, int fd, bool is_device, uint64_t before_bytes, uint64_t size_bytes) MUST_USE;

#endif
