/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recording.h - the file of --record, before the job and after it. runtime/record.h writes it.
 */
#ifndef TIERMESH_TOOLS_RECORDING_H
#define TIERMESH_TOOLS_RECORDING_H

#include "base/types.h"
#include "runtime/config.h"

/* The programs may have another working directory. 0, or -EINVAL with a sentence. */
int recording_path(const char *file, char ret_path[CONFIG_PATH_MAX]) MUST_USE;
/* The file can be written; an older one is removed. 0, or -EINVAL with a sentence. */
int recording_prepare(const char *path) MUST_USE;
bool recording_is_there(const char *path);

#endif
