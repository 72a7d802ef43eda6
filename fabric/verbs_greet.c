/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbs_greet.c - greetings in the private data of rdma_cm. No state; what is read was written by a stranger.
 */
#include "fabric/verbs_greet.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <errno.h>

#define HELLO_MAGIC 0x56624d54U /* "TMbV" */

void verbs_hello_encode(const struct greeting *hello, uint8_t bytes[VERBS_HELLO_BYTES])
{
    struct bytes_writer writer = {bytes, VERBS_HELLO_BYTES, false};

    ASSERT(hello->kind == GREETING_HELLO && hello->status == GREETING_OK);
    bytes_put_u32(&writer, HELLO_MAGIC);
    bytes_put_u16(&writer, hello->version);
    bytes_put_u16(&writer, hello->plane);
    bytes_put_u16(&writer, hello->from);
    bytes_put_u16(&writer, hello->to);
    bytes_put_u32(&writer, hello->attempt);
    bytes_put_u64(&writer, hello->job);
    bytes_put_u64(&writer, hello->from_incarnation);
    bytes_put_u64(&writer, hello->to_incarnation);
    bytes_put_u64(&writer, hello->session);
    bytes_put_u64(&writer, hello->received);
    ASSERT(!writer.failed && writer.left == 0);
}

int verbs_hello_decode(const void *bytes, size_t size_bytes, struct greeting *ret_hello)
{
    struct bytes_reader reader = {bytes, size_bytes, false};
    struct greeting hello = {.kind = GREETING_HELLO};
    uint32_t magic = bytes_take_u32(&reader);

    hello.version = bytes_take_u16(&reader);
    hello.plane = bytes_take_u16(&reader);
    hello.from = bytes_take_u16(&reader);
    hello.to = bytes_take_u16(&reader);
    hello.attempt = bytes_take_u32(&reader);
    hello.job = bytes_take_u64(&reader);
    hello.from_incarnation = bytes_take_u64(&reader);
    hello.to_incarnation = bytes_take_u64(&reader);
    hello.session = bytes_take_u64(&reader);
    hello.received = bytes_take_u64(&reader);
    if (reader.failed || magic != HELLO_MAGIC)
        return -EBADMSG;
    *ret_hello = hello;
    return 0;
}

int verbs_welcome_decode(const void *bytes, size_t size_bytes, struct greeting *ret_welcome)
{
    struct greeting welcome;

    if (bytes == NULL || size_bytes < GREETING_BYTES || greeting_decode(bytes, &welcome) != 0 ||
        welcome.kind != GREETING_WELCOME)
        return -EBADMSG;
    *ret_welcome = welcome;
    return 0;
}
