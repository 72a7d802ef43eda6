# SPDX-License-Identifier: Apache-2.0
"""A client for redis.sh: fills a server, changes it in a known order, tells whether a dump is one moment of it.

The strings s:0 .. s:N-1 all have the version of their round: a writer raises them one after the other. At any moment
those before some key have round r and the others r - 1; a dump that has anything else mixes two moments.
"""
import signal
import socket
import sys

STRINGS = 24_000
BATCH = 200


class Server:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.input = self.socket.makefile("rb")

    def send(self, commands):
        """Sends all of them, gives their answers."""
        out = []
        for command in commands:
            out.append(b"*%d\r\n" % len(command))
            for word in command:
                out.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self.socket.sendall(b"".join(out))
        return [self.answer() for _ in commands]

    def answer(self):
        line = self.input.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            sys.exit("the server says: " + rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self.input.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        if not kind:
            sys.exit("the server has gone")
        return rest


def key(i):
    return b"s:%d" % i


def value(i, version):
    return b"%d/%d/" % (i, version) + (b"%x." % (i * 2654435761 % 4294967296)) * (100 + i * 7 % 500)


def write_round(server, version, told=()):
    """One batch is one transaction, and thus one step."""
    for first in range(0, STRINGS, BATCH):
        if told:
            return
        words = [b"MSET"]
        for i in range(first, first + BATCH):
            words += [key(i), value(i, version)]
        server.send([words])


def fill(server):
    write_round(server, 0)
    for i in range(300):
        server.send([[b"RPUSH", b"list:%d" % i] + [b"%d" % (i * j) for j in range(200)],
                     [b"SADD", b"set:%d" % i] + [b"member %d" % (i * j % 1009) for j in range(200)],
                     [b"HSET", b"hash:%d" % i] + [b"%d" % (j // 2) for j in range(300)],
                     [b"ZADD", b"zset:%d" % i] + [b"%d" % (j // 2) for j in range(300)]])


def write(server):
    """Until it is told to end; then with a whole batch."""
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    version = 1
    while not told:
        write_round(server, version, told)
        version += 1


def consistent(server):
    versions = []
    for first in range(0, STRINGS, BATCH):
        values = server.send([[b"MGET"] + [key(i) for i in range(first, first + BATCH)]])[0]
        for i, bytes_read in enumerate(values, first):
            version = int(bytes_read.split(b"/")[1])
            if bytes_read != value(i, version):
                sys.exit("the value of %s is damaged" % key(i).decode())
            versions.append(version)
    steps = [i for i in range(1, STRINGS) if versions[i] != versions[i - 1]]
    if len(steps) > 1 or (steps and (versions[0] != versions[-1] + 1 or steps[0] % BATCH)):
        sys.exit("versions change at %s: %s" % (steps[:10], [versions[i] for i in steps[:10]]))
    print("the dump is of round", versions[0], "changed up to", steps or "the end")


server = Server(sys.argv[1])
what = sys.argv[2]
if what == "fill":
    fill(server)
elif what == "write":
    write(server)
else:
    consistent(server)
