/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.h - how the zmem tier compresses a page: LZ4 or zstd behind one ops table. Private to tiers/.
 *
 * All memory is taken by codec_open(). Decompression of damaged bytes fails, or gives wrong bytes, and nothing worse.
 */
#ifndef TIERMESH_TIERS_CODEC_H
#define TIERMESH_TIERS_CODEC_H

#include "base/types.h"

struct codec_ops;

struct codec {
    const struct codec_ops *ops;
    void *state;
    void *other; /* zstd: what decompresses */
};

struct codec_ops {
    const char *name;
    int (*open)(struct codec *codec); /* 0 or -ENOMEM */
    void (*close)(struct codec *codec);
    /* A page into at most limit_bytes; how many it took, 0: it does not fit. */
    size_t (*compress)(struct codec *codec, const void *page, void *bytes, size_t limit_bytes);
    /* false: these bytes are not a compressed page. */
    bool (*decompress)(struct codec *codec, const void *bytes, size_t size_bytes, void *page);
};

/* "lz4" or "zstd". 0, -EINVAL, -ENOMEM with a sentence. */
int codec_open(const char *name, struct codec *ret_codec) MUST_USE;
void codec_close(struct codec *codec);

#endif
