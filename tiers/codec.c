/* SPDX-License-Identifier: Apache-2.0 */
/*
 * codec.c - LZ4 and zstd, a page at a time. Run by the shard's thread.
 *
 * zstd takes its work memory with the first page of a kind, so a page is compressed and decompressed at start: later
 * calls allocate nothing.
 */
#include "tiers/codec.h"
#include "base/error.h"
#include "base/os.h"

#include <errno.h>
#include <lz4.h>
#include <string.h>
#include <zstd.h>

#define ZSTD_LEVEL 1 /* 17 us a page; more buys little on 4 KiB */

/* ---- LZ4 ------------------------------------------------------------------------------------------------------- */

static int lz4_open(struct codec *codec)
{
    return os_pages_map((size_t)LZ4_sizeofState(), &codec->state);
}

static void lz4_close(struct codec *codec)
{
    os_pages_unmap(codec->state, (size_t)LZ4_sizeofState());
}

static size_t lz4_compress(struct codec *codec, const void *page, void *bytes, size_t limit_bytes)
{
    int used = LZ4_compress_fast_extState(codec->state, page, bytes, (int)PAGE_BYTES, (int)limit_bytes, 1);

    return used > 0 ? (size_t)used : 0;
}

static bool lz4_decompress(struct codec *codec, const void *bytes, size_t size_bytes, void *page)
{
    (void)codec;
    return LZ4_decompress_safe(bytes, page, (int)size_bytes, (int)PAGE_BYTES) == (int)PAGE_BYTES;
}

/* ---- zstd ------------------------------------------------------------------------------------------------------ */

static size_t zstd_compress(struct codec *codec, const void *page, void *bytes, size_t limit_bytes)
{
    size_t used = ZSTD_compressCCtx(codec->state, bytes, limit_bytes, page, PAGE_BYTES, ZSTD_LEVEL);

    return ZSTD_isError(used) ? 0 : used;
}

static bool zstd_decompress(struct codec *codec, const void *bytes, size_t size_bytes, void *page)
{
    return ZSTD_decompressDCtx(codec->other, page, PAGE_BYTES, bytes, size_bytes) == PAGE_BYTES;
}

static void zstd_close(struct codec *codec)
{
    ZSTD_freeCCtx(codec->state); /* NULL is allowed */
    ZSTD_freeDCtx(codec->other);
}

static int zstd_open(struct codec *codec)
{
    char page[PAGE_BYTES];
    char bytes[PAGE_BYTES];
    size_t used;

    codec->state = ZSTD_createCCtx();
    codec->other = ZSTD_createDCtx();
    memset(page, 1, sizeof(page));
    used = codec->state != NULL && codec->other != NULL ? zstd_compress(codec, page, bytes, sizeof(bytes)) : 0;
    if (used > 0 && zstd_decompress(codec, bytes, used, page))
        return 0;
    zstd_close(codec);
    return -ENOMEM;
}

/* ---- by name --------------------------------------------------------------------------------------------------- */

static const struct codec_ops codecs[] = {
    {"lz4", lz4_open, lz4_close, lz4_compress, lz4_decompress},
    {"zstd", zstd_open, zstd_close, zstd_compress, zstd_decompress},
};

int codec_open(const char *name, struct codec *ret_codec)
{
    struct codec codec = {.ops = NULL};

    for (size_t i = 0; i < ARRAY_COUNT(codecs); i++)
        if (strcmp(codecs[i].name, name) == 0)
            codec.ops = &codecs[i];
    if (codec.ops == NULL)
        return error_set(-EINVAL, "tier zmem: no codec is named '%s'; there are lz4 and zstd", name);
    if (codec.ops->open(&codec) < 0)
        return error_set(-ENOMEM, "tier zmem: no memory for the codec %s", name);
    *ret_codec = codec;
    return 0;
}

void codec_close(struct codec *codec)
{
    codec->ops->close(codec);
}
