/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent_socket.c - addresses of an agent and the options of its sockets.
 */
#include "runtime/agent_socket.h"
#include "base/error.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

static int parse_unix(const char *path, struct sockaddr_storage *ret_address, socklen_t *ret_address_bytes)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);

    if (path[0] != '/' || length >= sizeof(address.sun_path))
        return error_set(-EINVAL, "unix:%s: the path of a socket is absolute and at most %zu bytes long", path,
                         sizeof(address.sun_path) - 1);
    memcpy(address.sun_path, path, length + 1);
    memset(ret_address, 0, sizeof(*ret_address));
    memcpy(ret_address, &address, sizeof(address));
    *ret_address_bytes = (socklen_t)sizeof(address);
    return 0;
}

static int parse_tcp(const char *text, struct sockaddr_storage *ret_address, socklen_t *ret_address_bytes)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    const char *colon = strrchr(text, ':');
    char host[64];
    struct addrinfo *found;
    size_t length = colon == NULL ? 0 : (size_t)(colon - text);

    if (length > 2 && text[0] == '[' && colon[-1] == ']') {
        text++;
        length -= 2;
    }
    if (length == 0 || length >= sizeof(host))
        return error_set(-EINVAL, "tcp:%s: an address is tcp:HOST:PORT", text);
    memcpy(host, text, length);
    host[length] = '\0';
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
        return error_set(-EINVAL, "tcp:%s: the host must be a numeric address and the port a number", text);
    memset(ret_address, 0, sizeof(*ret_address));
    memcpy(ret_address, found->ai_addr, found->ai_addrlen);
    *ret_address_bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

int agent_socket_parse(const char *text, struct sockaddr_storage *ret_address, socklen_t *ret_address_bytes)
{
    if (strncmp(text, "unix:", 5) == 0)
        return parse_unix(text + 5, ret_address, ret_address_bytes);
    if (strncmp(text, "tcp:", 4) == 0)
        return parse_tcp(text + 4, ret_address, ret_address_bytes);
    return error_set(-EINVAL, "%s: an agent's address starts with unix: or tcp:", text);
}

void agent_socket_tune(int fd)
{
    const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},   {SOL_SOCKET, SO_KEEPALIVE, 1}, {IPPROTO_TCP, TCP_KEEPIDLE, 10},
        {IPPROTO_TCP, TCP_KEEPINTVL, 5}, {IPPROTO_TCP, TCP_KEEPCNT, 3},
    };

    /* Refused on unix sockets, which need none of them. */
    for (size_t i = 0; i < ARRAY_COUNT(options); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(options[i].value));
}
