/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet.c - a node that only meets the others through dsmrun, for dsmrun.sh: checks what it is told and leaves.
 *
 * `meet die`: rank 0 kills itself after the start, and the others wait until they hear of it.
 */
#include "base/error.h"
#include "runtime/agent.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_NS 10000000000u

static struct agent_welcome welcome;

static int complain(const char *what)
{
    fprintf(stderr, "meet: %s: %s\n", what, error_text());
    return 1;
}

/* 0 when every peer says of itself what it should. */
static int check(const struct agent_place *place)
{
    for (unsigned i = 0; i < place->nodes_count; i++) {
        if (welcome.peers[i].blob_bytes != 1 || welcome.peers[i].blob[0] != i)
            return complain("a peer's address is wrong");
    }
    if (welcome.view.epoch.number != 1 || view_count(&welcome.view) != place->nodes_count)
        return complain("the first view is wrong");
    return 0;
}

/* Until a view without rank 0. */
static int await_death(struct agent_link *link)
{
    struct view view = welcome.view;

    while (view_has(&view, node_of(0))) {
        struct pollfd one = {.fd = agent_link_descriptor(link), .events = POLLIN};

        if (poll(&one, 1, 10000) != 1 || agent_link_read(link, &view) < 0)
            return complain("no view without rank 0");
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct agent_place place;
    struct agent_link *link;
    struct agent_peer self = {.host = "here", .blob_bytes = 1};
    uint64_t base;
    int status;

    if (agent_place_find(&place) < 0 || place.is_alone)
        return complain("no place in a job");
    self.blob[0] = (uint8_t)place.rank;
    if (agent_connect(&place, 1, TIMEOUT_NS, &link, &base) < 0 || base != agent_window_base(0))
        return complain("connect");
    if (agent_meet(link, &self, TIMEOUT_NS, &welcome) < 0)
        return complain("meet");
    status = check(&place);
    if (status == 0 && argc > 1 && strcmp(argv[1], "die") == 0) {
        if (place.rank == 0)
            raise(SIGKILL);
        status = await_death(link);
    }
    printf("%u of %u met\n", place.rank, place.nodes_count);
    agent_link_leave(link);
    agent_link_close(link);
    return status;
}
