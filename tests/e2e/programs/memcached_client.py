# SPDX-License-Identifier: Apache-2.0
"""A verifying client for memcached.sh: it knows what was stored, and looks at every answer."""
import hashlib
import random
import socket
import sys

KEYS = 30_000
CONNECTIONS = 8


class Server:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.input = self.socket.makefile("rb")

    def ask(self, request):
        self.socket.sendall(request)
        return self.input.readline().strip()

    def store(self, verb, key, value):
        answer = self.ask(b"%s key:%d 0 0 %d\r\n%s\r\n" % (verb, key, len(value), value))
        if answer != b"STORED":
            sys.exit("%s of key %d: %s" % (verb.decode(), key, answer.decode()))

    def get(self, key):
        words = self.ask(b"get key:%d\r\n" % key).split()
        if words == [b"END"]:
            return None
        value = self.input.read(int(words[3]) + 2)[:-2]
        self.input.readline()
        return value

    def pid(self):
        answer = self.ask(b"stats\r\n")
        while not answer.startswith(b"STAT pid "):
            answer = self.input.readline().strip()
        return int(answer.split()[2])


def value(key, version):
    return (b"%d:%d;" % (key, version)) * (50 + key * 31 % 900)


def check(key, got, wanted):
    if got != wanted:
        sys.exit("key %d: %s bytes, not %s" % (key, got and len(got), wanted and len(wanted)))


def run(servers, chance):
    """What the server must hold afterwards."""
    held = {}
    for key in range(KEYS):
        held[key] = value(key, 0)
        servers[key % CONNECTIONS].store(b"set", key, held[key])
    for step in range(KEYS // 2):
        key = chance.randrange(KEYS)
        server = chance.choice(servers)
        what = chance.randrange(5)
        if what == 0:
            held[key] = value(key, step + 1)
            server.store(b"set", key, held[key])
        elif what == 1 and held[key] is not None:
            held[key] += b"appended"
            server.store(b"append", key, b"appended")
        elif what == 2:
            answer = server.ask(b"delete key:%d\r\n" % key)
            if answer != (b"NOT_FOUND" if held[key] is None else b"DELETED"):
                sys.exit("delete of key %d: %s" % (key, answer.decode()))
            held[key] = None
        else:
            check(key, server.get(key), held[key])
    return held


connections = [Server(sys.argv[1]) for _ in range(CONNECTIONS)]
if sys.argv[2:] == ["pid"]:
    print(connections[0].pid())
    sys.exit()
digest = hashlib.sha256()
for number, wanted in run(connections, random.Random(23)).items():
    got = connections[number % CONNECTIONS].get(number)
    check(number, got, wanted)
    digest.update(got or b"none")
print(digest.hexdigest())
