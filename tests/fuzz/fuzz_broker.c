/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_broker.c - packets between processes and their job's broker: whatever decodes encodes again to the same bytes,
 * and a broker that gets any sequence of packets goes on.
 *
 * Input: packets, each after two bytes of length. The first bit of a length says that the key is put where it belongs.
 */
#include "base/assert.h"
#include "runtime/broker_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PACKET_MAX (BROKER_MESSAGE_MAX + 8)
#define CLIENTS    3

static struct broker_message message;
static uint8_t again[BROKER_MESSAGE_MAX];

static void check_same(const uint8_t *packet, size_t size)
{
    static uint8_t typed[PACKET_MAX];

    /* A wrong first byte says little: each input is tried as every type. */
    for (uint8_t type = 0; type <= BROKER_TYPES && size > 0 && size <= sizeof(typed); type++) {
        memcpy(typed, packet, size);
        typed[0] = type;
        if (broker_decode(typed, size, &message) == 0) {
            ASSERT(broker_encode(&message, again) == size);
            ASSERT(memcmp(again, typed, size) == 0);
        }
    }
}

static struct broker_server *server_get(void)
{
    static struct broker_server *server;
    const struct broker_store none = {.size_bytes = 0};
    char directory[] = "/tmp/broker-fuzz-XXXXXX", path[64];

    if (server != NULL)
        return server;
    ASSERT(mkdtemp(directory) != NULL);
    snprintf(path, sizeof(path), "%s/broker", directory);
    ASSERT(broker_server_create(path, &none, NULL, NULL, &server) == 0);
    setenv("BROKER_FUZZ_PATH", path, 1);
    (void)unlink(path); /* the abstract name serves; nothing is left behind */
    (void)rmdir(directory);
    return server;
}

static void drain(int fd)
{
    static struct broker_packet packet;

    while (broker_receive(fd, &packet) == 0)
        broker_packet_close(&packet);
}

static void key_plant(struct broker_server *server, uint8_t *packet, size_t size)
{
    uint8_t key[BROKER_KEY_BYTES];
    uint32_t version = broker_version();

    ASSERT(broker_key_parse(broker_server_key(server), key) == 0);
    if (size < 9 + sizeof(key))
        return;
    for (unsigned i = 0; i < 4; i++)
        packet[5 + i] = (uint8_t)(version >> 8 * i);
    memcpy(packet + 9, key, sizeof(key));
}

static void server_feed(const uint8_t *data, size_t size)
{
    struct broker_server *server = server_get();
    int fds[CLIENTS];
    unsigned turn = 0;

    for (unsigned i = 0; i < CLIENTS; i++)
        ASSERT(broker_call(getenv("BROKER_FUZZ_PATH"), &fds[i]) == 0);
    broker_server_serve(server);
    while (size >= 2) {
        static uint8_t packet[PACKET_MAX];
        size_t wanted = (size_t)(data[0] | (data[1] & 0x3f) << 8), length = wanted < size - 2 ? wanted : size - 2;
        bool has_key = (data[1] & 0x40) != 0;

        if (length > sizeof(packet))
            length = sizeof(packet);
        memcpy(packet, data + 2, length);
        if (has_key)
            key_plant(server, packet, length);
        (void)!send(fds[turn % CLIENTS], packet, length, MSG_NOSIGNAL | MSG_DONTWAIT);
        turn += has_key ? 0 : 1;
        data += 2 + length;
        size -= 2 + length;
        broker_server_serve(server);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        drain(fds[i]);
        close(fds[i]);
    }
    broker_server_serve(server);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_same(data, size);
    server_feed(data, size);
    return 0;
}
