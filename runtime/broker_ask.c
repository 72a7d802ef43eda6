/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_ask.c - questions to the broker of another process. Run by dsmctl.
 */
#include "base/error.h"
#include "base/os.h"
#include "runtime/broker_wire.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#define ANSWER_TIMEOUT_MS 10000

struct asker {
    int fd;
    struct broker_message message;
    struct broker_packet packet;
};

static int asker_open(const struct broker_place *place, struct asker **ret_asker)
{
    struct asker *asker = calloc(1, sizeof(*asker));
    int error;

    if (asker == NULL)
        return error_set(-ENOMEM, "no memory");
    error = broker_key_parse(place->key, asker->message.key) == 0
                ? broker_call(place->path, &asker->fd)
                : error_set(-EACCES, "the key in " BROKER_KEY_VARIABLE " is none");
    if (error != 0) {
        free(asker);
        return error;
    }
    *ret_asker = asker;
    return 0;
}

static void asker_close(struct asker *asker)
{
    close(asker->fd);
    free(asker);
}

/* The question is in asker->message, and so is the answer: `wanted`, or DONE. */
static int ask(struct asker *asker, enum broker_type wanted)
{
    struct pollfd one = {.fd = asker->fd, .events = POLLIN};
    int error;

    asker->message.version = broker_version();
    error = broker_send(asker->fd, &asker->message, NULL, 0, &asker->packet);
    if (error == 0 && poll(&one, 1, ANSWER_TIMEOUT_MS) <= 0)
        return error_set(-ETIMEDOUT, "the job's broker does not answer; is dsmrun stopped?");
    if (error == 0)
        error = broker_receive(asker->fd, &asker->packet);
    if (error != 0)
        return error_set(-ECONNREFUSED, "the job's broker hung up");
    broker_packet_close(&asker->packet);
    if (broker_decode(asker->packet.bytes, asker->packet.size_bytes, &asker->message) != 0)
        return error_set(-EPROTO, "what answers as the job's broker is none");
    if (asker->message.type == BROKER_REFUSE)
        return error_set(asker->message.code, "%s", asker->message.sentence);
    if (asker->message.type != wanted && asker->message.type != BROKER_DONE)
        return error_set(-EPROTO, "the job's broker sent something else than was due");
    return 0;
}

int broker_ask_stat(const struct broker_place *place, int pid,
                    void (*visit)(void *context, const struct broker_process *process), void *context)
{
    struct asker *asker;
    int error = asker_open(place, &asker);

    if (error != 0)
        return error;
    asker->message.id = 0;
    do {
        asker->message.type = BROKER_STAT;
        asker->message.pid = pid;
        error = ask(asker, BROKER_PROCESS);
        if (error == 0 && asker->message.type == BROKER_PROCESS)
            visit(context, &asker->message.process);
    } while (error == 0 && pid == 0 && asker->message.type == BROKER_PROCESS);
    asker_close(asker);
    return error;
}

int broker_ask_limit(const struct broker_place *place, int pid, enum dsm_tier tier, uint64_t size_bytes)
{
    struct asker *asker;
    int error = asker_open(place, &asker);

    if (error != 0)
        return error;
    asker->message.type = BROKER_LIMIT;
    asker->message.pid = pid;
    asker->message.tier = (uint32_t)tier;
    asker->message.size_bytes = size_bytes;
    error = ask(asker, BROKER_DONE);
    asker_close(asker);
    return error;
}
