#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building, testing and the demo need, on Debian 12 and 13. Says nothing and needs neither root nor
# network when all of it is there. `setup.sh programs` also installs the programs that tests/e2e/programs runs.
set -euo pipefail

packages=(
    make cmake ninja-build pkgconf git gcc g++ libc6-dev binutils clang clang-format libclang-rt-dev
    liburing-dev libnuma-dev libxxhash-dev libjemalloc-dev liblz4-dev libzstd-dev libpmem2-dev libcmocka-dev spin
    openssh-client libibverbs-dev librdmacm-dev
)

programs=(
    coreutils util-linux time perl python3 python3-numpy sqlite3 redis-server redis-tools memcached nodejs
    default-jdk-headless postgresql rocksdb-tools xz-utils memtester stress-ng man-db groff-base
)
[ "${1:-}" != programs ] || packages+=("${programs[@]}")

say() { printf 'setup: %s\n' "$*" >&2; }

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "this is not Debian; install the equivalents of: ${packages[*]}"
    exit 0
fi

missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done

# The demo reads the distribution's package lists; a fresh container image comes without them.
lists=$(find /var/lib/apt/lists -maxdepth 1 -name '*_Packages*' -size +1M -print -quit 2>/dev/null || true)
if [ ${#missing[@]} -eq 0 ] && [ -n "$lists" ]; then
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        say "needs root or sudo to install: ${missing[*]:-the package lists}"
        exit 1
    fi
    as_root=(sudo)
fi

# The packages of servers start them; the tests want their programs only. An administrator's own policy stays.
policy=/usr/sbin/policy-rc.d
policy_is_ours=
hold_services() {
    [ ! -e "$policy" ] || return 0
    policy_is_ours=yes
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
}

log=$(mktemp)
leave() {
    rm -f "$log"
    [ -z "$policy_is_ours" ] || "${as_root[@]}" rm -f "$policy"
}
trap leave EXIT
run() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" </dev/null >"$log" 2>&1 && return 0
    cat "$log" >&2
    say "failed: $*"
    return 1
}

say "reading the package lists"
if ! run apt-get update -q; then
    # One broken source must not stop those that work; apt-get install says what is really missing.
    say "going on with the lists that could be read"
fi
if [ ${#missing[@]} -gt 0 ]; then
    say "installing ${missing[*]}"
    hold_services
    run apt-get install -q -y --no-install-recommends "${missing[@]}"
fi
