/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate.c - a listening socket and the connections that have not said who they are. Runs on the loop's thread.
 */
#include "fabric/gate.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAUSE_NS        ((uint64_t)100000000U)
#define ACCEPTS_AT_ONCE 32

static void gate_timer_set(struct gate *gate, uint64_t delay_ns)
{
    if (gate->timer_runs)
        return;
    gate->timer_runs = true;
    loop_timer_start(gate->loop, &gate->timer, os_now_ns() + delay_ns);
}

static void slot_ready(struct loop_watch *watch, uint32_t events)
{
    struct gate_slot *slot = watch->context;

    (void)events;
    slot->gate->greeted(slot->gate, slot);
}

int gate_take(struct gate_slot *slot)
{
    int fd = slot->fd;

    loop_unwatch(slot->gate->loop, &slot->watch);
    slot->fd = -1;
    return fd;
}

void gate_refuse(struct gate_slot *slot)
{
    close(gate_take(slot));
}

/* A free slot, or that of the oldest stranger, who is sent away. */
static struct gate_slot *gate_slot_find(struct gate *gate)
{
    struct gate_slot *oldest = &gate->slots[0];

    for (size_t i = 0; i < GATE_SLOTS_COUNT; i++) {
        struct gate_slot *slot = &gate->slots[i];

        if (slot->fd < 0)
            return slot;
        if (slot->accepted_ns < oldest->accepted_ns)
            oldest = slot;
    }
    gate_refuse(oldest);
    return oldest;
}

static void gate_admit(struct gate *gate, int fd)
{
    struct gate_slot *slot = gate_slot_find(gate);

    slot->fd = fd;
    slot->watch = (struct loop_watch){.fd = fd, .ready = slot_ready, .context = slot};
    slot->accepted_ns = os_now_ns();
    slot->filled_bytes = 0;
    if (loop_watch(gate->loop, &slot->watch, EPOLLIN) != 0) {
        slot->fd = -1;
        close(fd);
        return;
    }
    gate_timer_set(gate, GATE_TIMEOUT_NS);
}

static bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static void gate_ready(struct loop_watch *watch, uint32_t events)
{
    struct gate *gate = watch->context;

    (void)events;
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        int fd = accept4(gate->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            gate_admit(gate, fd);
            continue;
        }
        if (is_shortage(errno)) {
            log_warn("accept a connection: %m; trying again in 100 ms");
            loop_unwatch(gate->loop, &gate->watch);
            gate->is_paused = true;
            loop_timer_start(gate->loop, &gate->timer, os_now_ns() + PAUSE_NS);
            gate->timer_runs = true;
        }
        if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

static void gate_expired(struct loop_timer *timer)
{
    struct gate *gate = timer->context;
    uint64_t now_ns = os_now_ns();
    uint64_t next_ns = UINT64_MAX;

    gate->timer_runs = false;
    if (gate->is_paused) {
        gate->is_paused = loop_watch(gate->loop, &gate->watch, EPOLLIN) != 0;
        if (gate->is_paused)
            next_ns = now_ns + PAUSE_NS;
    }
    for (size_t i = 0; i < GATE_SLOTS_COUNT; i++) {
        struct gate_slot *slot = &gate->slots[i];

        if (slot->fd >= 0 && now_ns - slot->accepted_ns >= GATE_TIMEOUT_NS)
            gate_refuse(slot);
        else if (slot->fd >= 0 && slot->accepted_ns + GATE_TIMEOUT_NS < next_ns)
            next_ns = slot->accepted_ns + GATE_TIMEOUT_NS;
    }
    if (next_ns != UINT64_MAX)
        gate_timer_set(gate, next_ns - now_ns);
}

int gate_open(struct gate *gate, struct loop *loop, int fd, void (*greeted)(struct gate *, struct gate_slot *),
              void *context)
{
    *gate = (struct gate){
        .loop = loop,
        .fd = fd,
        .watch = {.fd = fd, .ready = gate_ready, .context = gate},
        .timer = {.expired = gate_expired, .context = gate},
        .greeted = greeted,
        .context = context,
    };
    for (size_t i = 0; i < GATE_SLOTS_COUNT; i++)
        gate->slots[i] = (struct gate_slot){.gate = gate, .fd = -1};
    return loop_watch(loop, &gate->watch, EPOLLIN);
}

void gate_close(struct gate *gate)
{
    for (size_t i = 0; i < GATE_SLOTS_COUNT; i++)
        if (gate->slots[i].fd >= 0)
            gate_refuse(&gate->slots[i]);
    loop_timer_stop(gate->loop, &gate->timer);
    if (!gate->is_paused)
        loop_unwatch(gate->loop, &gate->watch);
    close(gate->fd);
}
