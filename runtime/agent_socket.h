/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_socket.h - addresses of an agent and the options of its sockets. Private to runtime/agent_*.c.
 */
#ifndef TIERMESH_RUNTIME_AGENT_SOCKET_H
#define TIERMESH_RUNTIME_AGENT_SOCKET_H

#include "base/types.h"

#include <sys/socket.h>

/* "unix:/path" or "tcp:HOST:PORT" with a numeric host (IPv6 in brackets). 0, or -EINVAL with a sentence. */
int agent_socket_parse(const char *text, struct sockaddr_storage *ret_address, socklen_t *ret_address_bytes) MUST_USE;

/* Options of a connected socket: no delay, and a dead machine at the other end is noticed within half a minute. */
void agent_socket_tune(int fd);

#endif
