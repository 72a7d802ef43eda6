#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building, testing and the demo need, on Debian 12 and 13. Says nothing and needs neither root nor
# network when all of it is there.
set -euo pipefail

packages=(
    make cmake ninja-build pkgconf git gcc g++ libc6-dev binutils clang clang-format libclang-rt-dev
    liburing-dev libnuma-dev libxxhash-dev libjemalloc-dev liblz4-dev libzstd-dev libcmocka-dev spin
    openssh-client
)

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

log=$(mktemp)
trap 'rm -f "$log"' EXIT
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
    run apt-get install -q -y --no-install-recommends "${missing[@]}"
fi
