/* SPDX-License-Identifier: Apache-2.0 */
/*
 * greeting.c - the first words of two nodes on a connection. No state; what is read was written by a stranger.
 */
#include "fabric/greeting.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <errno.h>

#define GREETING_MAGIC 0x46624d54U /* "TMbF" */

void greeting_encode(const struct greeting *greeting, uint8_t bytes[GREETING_BYTES])
{
    struct bytes_writer writer = {bytes, GREETING_BYTES, false};

    bytes_put_u32(&writer, GREETING_MAGIC);
    bytes_put_u16(&writer, greeting->version);
    bytes_put_u16(&writer, greeting->kind);
    bytes_put_u16(&writer, greeting->status);
    bytes_put_u16(&writer, greeting->plane);
    bytes_put_u16(&writer, greeting->from);
    bytes_put_u16(&writer, greeting->to);
    bytes_put_u32(&writer, greeting->attempt);
    bytes_put_u32(&writer, 0);
    bytes_put_u64(&writer, greeting->job);
    bytes_put_u64(&writer, greeting->from_incarnation);
    bytes_put_u64(&writer, greeting->to_incarnation);
    bytes_put_u64(&writer, greeting->session);
    bytes_put_u64(&writer, greeting->received);
    ASSERT(!writer.failed && writer.left == 0);
}

int greeting_decode(const uint8_t bytes[GREETING_BYTES], struct greeting *ret_greeting)
{
    struct bytes_reader reader = {bytes, GREETING_BYTES, false};
    struct greeting greeting;
    uint32_t magic = bytes_take_u32(&reader);

    greeting.version = bytes_take_u16(&reader);
    greeting.kind = bytes_take_u16(&reader);
    greeting.status = bytes_take_u16(&reader);
    greeting.plane = bytes_take_u16(&reader);
    greeting.from = bytes_take_u16(&reader);
    greeting.to = bytes_take_u16(&reader);
    greeting.attempt = bytes_take_u32(&reader);
    bytes_take_u32(&reader);
    greeting.job = bytes_take_u64(&reader);
    greeting.from_incarnation = bytes_take_u64(&reader);
    greeting.to_incarnation = bytes_take_u64(&reader);
    greeting.session = bytes_take_u64(&reader);
    greeting.received = bytes_take_u64(&reader);
    if (magic != GREETING_MAGIC || (greeting.kind != GREETING_HELLO && greeting.kind != GREETING_WELCOME))
        return -EBADMSG;
    *ret_greeting = greeting;
    return 0;
}

enum greeting_status greeting_judge(const struct greeting *hello, const struct fabric_config *config)
{
    if (hello->version != FABRIC_PROTOCOL)
        return REFUSED_VERSION;
    if (hello->job != config->job)
        return REFUSED_JOB;
    /* Of two nodes the higher id connects. */
    if (hello->to != config->self.index || hello->from <= hello->to || hello->from >= config->nodes_count)
        return REFUSED_NODE;
    if (hello->to_incarnation != 0 && hello->to_incarnation != config->incarnation)
        return REFUSED_PROCESS;
    if (hello->kind != GREETING_HELLO || hello->plane >= PLANES || hello->session == 0 || hello->from_incarnation == 0)
        return REFUSED_SESSION;
    return GREETING_OK;
}

struct greeting greeting_answer(const struct greeting *hello, const struct fabric_config *config,
                                enum greeting_status status)
{
    return (struct greeting){
        .version = FABRIC_PROTOCOL,
        .kind = GREETING_WELCOME,
        .status = (uint16_t)status,
        .plane = hello->plane,
        .from = config->self.index,
        .to = hello->from,
        .attempt = hello->attempt,
        .job = hello->job,
        .from_incarnation = config->incarnation,
        .to_incarnation = hello->from_incarnation,
        .session = hello->session,
    };
}

bool greeting_fits(const struct greeting *welcome, const struct greeting *hello)
{
    return welcome->kind == GREETING_WELCOME && welcome->to_incarnation == hello->from_incarnation &&
           welcome->session == hello->session && welcome->plane == hello->plane && welcome->job == hello->job;
}

const char *greeting_status_text(unsigned status)
{
    switch (status) {
    case REFUSED_VERSION:
        return "it speaks another version of the protocol";
    case REFUSED_JOB:
        return "it belongs to another job";
    case REFUSED_NODE:
        return "it is not the node that was meant, or does not expect this one";
    case REFUSED_PROCESS:
        return "its process is another one";
    case REFUSED_SESSION:
        return "it has ended the session";
    case REFUSED_SYSTEM:
        return "it has no memory or descriptors left";
    default:
        return "it refused without a known reason";
    }
}
