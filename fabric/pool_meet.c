/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool_meet.c - how two nodes meet in a pool, and how their session ends. Run by the loop's thread.
 *
 * The connecting side writes HELLO with a session in its partition, the other side WELCOME with the same session, or
 * why not, in its own. Either ends it with LEAVE. A node that says nothing more is known by its header, which it writes
 * anew all the time: when that stands still for the session's time-out, or shows another process, the session is over.
 */
#include "base/log.h"
#include "base/os.h"
#include "fabric/greeting.h"
#include "fabric/pool.h"
#include "fabric/transport.h"

#include <stdio.h>

/* A full window still takes the header and padding of the largest message. */
#define WAITING_SLACK_BYTES 16

/* ---- sessions begin and end ------------------------------------------------------------------------------------- */

void pool_peer_init(struct pool_peer *peer, struct pool *pool, struct node_id id)
{
    *peer = (struct pool_peer){.pool = pool, .id = id};
    for (unsigned i = 0; i < PLANES; i++)
        fifo_init(&peer->waiting[i], pool->config.window_bytes_max + WAITING_SLACK_BYTES);
}

static struct pool_greeting greeting_of(const struct pool_peer *peer, enum pool_word word, uint64_t session)
{
    const struct fabric_config *config = &peer->pool->config;

    return (struct pool_greeting){
        .word = word,
        .session = session,
        .job = config->job,
        .from_incarnation = config->incarnation,
        .to_incarnation = peer->incarnation,
    };
}

static void peer_begin(struct pool_peer *peer, uint64_t session, uint64_t incarnation, enum pool_state state)
{
    peer->session = session;
    peer->incarnation = incarnation;
    peer->state = state;
    peer->is_broken = peer->is_other_node = false;
    peer->begun_ns = peer->beat_seen_ns = os_now_ns();
    pool_rings_init(peer);
}

void pool_peer_end(struct pool_peer *peer)
{
    struct pool_greeting leave = greeting_of(peer, POOL_LEAVE, peer->session);

    if (peer->session == 0)
        return;
    pool_greeting_write(peer, &leave);
    for (unsigned i = 0; i < PLANES; i++)
        fifo_fini(&peer->waiting[i]);
    peer->generation++;
    peer->session_ended = peer->session;
    peer->session = 0;
    peer->state = POOL_DOWN;
}

void pool_peer_fail(struct pool_peer *peer, const char *cause)
{
    pool_peer_end(peer);
    fabric_report_down(&peer->pool->base, peer->id, cause);
}

/* What the peer had committed before is still handed out. False: a callback ended the session. */
static bool peer_drain(struct pool_peer *peer)
{
    uint64_t generation = peer->generation;
    uint64_t left = 2 * POOL_STEP_BYTES / POOL_RECORD_BYTES; /* bounded, should the peer go on */

    while (left-- > 0 && pool_peer_receive(peer) > 0)
        if (peer->generation != generation)
            return false;
    return peer->generation == generation;
}

void pool_peer_connect(struct pool_peer *peer, uint64_t incarnation, bool is_other_node)
{
    struct pool_greeting hello;

    peer_begin(peer, os_random() | 1, incarnation, POOL_GREETING);
    peer->is_other_node = is_other_node;
    hello = greeting_of(peer, POOL_HELLO, peer->session);
    if (!is_other_node)
        pool_greeting_write(peer, &hello);
}

/* ---- greetings -------------------------------------------------------------------------------------------------- */

static enum greeting_status hello_judge(const struct pool_peer *peer, const struct pool_greeting *hello)
{
    const struct fabric_config *config = &peer->pool->config;
    const struct greeting words = {
        .version = FABRIC_PROTOCOL,
        .kind = GREETING_HELLO,
        .from = peer->id.index,
        .to = config->self.index,
        .job = hello->job,
        .from_incarnation = hello->from_incarnation,
        .to_incarnation = hello->to_incarnation,
        .session = hello->session,
    };

    if (hello->job == config->job && hello->to_incarnation != config->incarnation)
        return REFUSED_PROCESS;
    return greeting_judge(&words, config);
}

static void refuse(struct pool_peer *peer, const struct pool_greeting *hello, enum greeting_status status)
{
    struct pool_greeting answer = greeting_of(peer, POOL_WELCOME, hello->session);

    answer.status = (uint16_t)status;
    answer.to_incarnation = hello->from_incarnation;
    peer->session_ended = hello->session; /* said once */
    peer->pool->base.counters.peers_refused++;
    log_debug("refused a greeting in the pool that says it is node %u: status %d", peer->id.index, (int)status);
    if (peer->session == 0)
        pool_greeting_write(peer, &answer);
}

/* Accepting side. May call back. */
static void hello_take(struct pool_peer *peer, const struct pool_greeting *hello)
{
    enum greeting_status status = hello_judge(peer, hello);
    struct pool_greeting welcome;

    if (status != GREETING_OK) {
        refuse(peer, hello, status);
        return;
    }
    if (peer->session != 0)
        pool_peer_fail(peer, hello->from_incarnation == peer->incarnation ? "it started a new session"
                                                                          : "its process is another one");
    if (peer->session != 0 || peer->pool->is_taken)
        return;
    peer_begin(peer, hello->session, hello->from_incarnation, POOL_UP);
    welcome = greeting_of(peer, POOL_WELCOME, peer->session);
    pool_greeting_write(peer, &welcome);
    fabric_report_up(&peer->pool->base, peer->id);
}

/* Connecting side. May call back. */
static void welcome_take(struct pool_peer *peer, const struct pool_greeting *welcome)
{
    if (welcome->status != GREETING_OK) {
        pool_peer_fail(peer, greeting_status_text(welcome->status));
        return;
    }
    if (welcome->from_incarnation != peer->incarnation || welcome->job != peer->pool->config.job) {
        pool_peer_fail(peer, "its answer to a greeting makes no sense");
        return;
    }
    peer->state = POOL_UP;
    peer->beat_seen_ns = os_now_ns();
    fabric_report_up(&peer->pool->base, peer->id);
}

void pool_peer_look(struct pool_peer *peer)
{
    struct pool_greeting greeting;

    if (peer->pool->is_taken || peer->is_other_node || !pool_greeting_read(peer, &greeting) || greeting.session == 0)
        return;
    if (!pool_connects(peer) && greeting.word == POOL_HELLO && greeting.session != peer->session &&
        greeting.session != peer->session_ended)
        hello_take(peer, &greeting);
    else if (peer->state == POOL_GREETING && (greeting.word == POOL_WELCOME || greeting.word == POOL_LEAVE) &&
             greeting.session == peer->session)
        welcome_take(peer, &greeting); /* who leaves a session has welcomed it; the next look sees that */
    else if (peer->state == POOL_UP && greeting.word == POOL_LEAVE && greeting.session == peer->session &&
             peer_drain(peer))
        pool_peer_fail(peer, "it ended the session");
}

/* ---- signs of life ---------------------------------------------------------------------------------------------- */

static void up_watch(struct pool_peer *peer, uint64_t now_ns, uint64_t timeout_ns)
{
    struct pool_header header;
    char cause[96];

    if (pool_header_read(peer->pool, peer->id, &header)) {
        if (header.incarnation != peer->incarnation) {
            if (peer_drain(peer))
                pool_peer_fail(peer, header.incarnation == 0 ? "it has left" : "its process is another one");
            return;
        }
        if (header.beat != peer->beat) {
            peer->beat = header.beat;
            peer->beat_seen_ns = now_ns;
        }
    }
    if (now_ns - peer->beat_seen_ns < timeout_ns)
        return;
    snprintf(cause, sizeof(cause), "no sign of life in the pool for %lu ms", timeout_ns / 1000000u);
    if (peer_drain(peer))
        pool_peer_fail(peer, cause);
}

/* Why a HELLO was not answered. */
static void greeting_fail(struct pool_peer *peer, uint64_t timeout_ns)
{
    struct pool_header header;
    const char *why = "its part of the pool is empty: it has another pool, or has not started";
    char cause[160];

    if (pool_header_read(peer->pool, peer->id, &header) && header.incarnation == peer->incarnation)
        why = "it does not answer";
    snprintf(cause, sizeof(cause), "no connection for %lu ms: %s", timeout_ns / 1000000u, why);
    pool_peer_fail(peer, cause);
}

void pool_peer_watch(struct pool_peer *peer, uint64_t now_ns)
{
    uint64_t timeout_ns = peer->pool->config.session_timeout_ns;

    if (peer->state == POOL_UP)
        up_watch(peer, now_ns, timeout_ns);
    else if (peer->state == POOL_GREETING && peer->is_other_node)
        pool_peer_fail(peer, "the address is another node's, or of a pool for another number of nodes");
    else if (peer->state == POOL_GREETING && now_ns - peer->begun_ns >= timeout_ns)
        greeting_fail(peer, timeout_ns);
}
