#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# planted.sh LINT: shows a lint one tree that is good and several with one planted violation each; a lint that
# catches nothing, or complains of everything, fails here.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lint=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
spdx='/* SPDX-License-Identifier: Apache-2.0 */'
failed=0
CC=${CC:-gcc}

# good NAME COMMAND...: must pass.  bad NAME PATTERN COMMAND...: must fail and say PATTERN.
good() {
    local name=$1 output
    shift
    if ! output=$("$@" 2>&1); then
        printf 'planted %s: good tree refused (%s):\n%s\n' "$lint" "$name" "$output"
        failed=1
    fi
}
bad() {
    local name=$1 pattern=$2 output
    shift 2
    if output=$("$@" 2>&1); then
        printf 'planted %s: not caught: %s\n' "$lint" "$name"
        failed=1
    elif ! grep -qE "$pattern" <<<"$output"; then
        printf 'planted %s: %s: caught, but not as /%s/:\n%s\n' "$lint" "$name" "$pattern" "$output"
        failed=1
    fi
}

# put FILE LINE...: writes a source file into the scratch tree.
put() {
    local file=$scratch/$1
    shift
    mkdir -p "$(dirname "$file")"
    printf '%s\n' "$@" >"$file"
}

# plant FILE NAME PATTERN LINE...: the file is bad while it is there.
plant() {
    local file=$1 name=$2 pattern=$3
    shift 3
    put "$file" "$@"
    bad "$name" "$pattern" "$here/$lint.sh" "$scratch"
    rm "$scratch/$file"
}

planted_layers() {
    put coherence/home.c '#include "coherence/home.h"' '#include "base/types.h"' '#include <string.h>'
    put runtime/node.c '#include <tiermesh/dsm.h>' '#include "mmu/mmu.h"'
    put demo/rank.c '#include <tiermesh/dsm.h>'
    good "clean tree" "$here/layers.sh" "$scratch"
    plant coherence/step.c sibling 'coherence/ may not include mmu/mmu.h' '#include "mmu/mmu.h"'
    plant mmu/fault.c upward 'mmu/ may not include runtime/' '  #  include "runtime/node.h"'
    plant base/list.c "the public header below runtime" 'base/ may not' '#include <tiermesh/dsm.h>'
    plant demo/cheat.c "the inside from a program" 'demo/ may not' '#include "base/types.h"'
    plant tiers/ddr.c "a relative path" 'not written from the root' '#include "tier.h"'
}

planted_length() {
    put runtime/ok.c "$spdx" 'int one(void)' '{' "$(yes '    work();' | head -n 68)" '}'
    good "70 lines" "$here/length.sh" "$scratch"
    plant runtime/long.c "a long function" 'function of 71 lines' \
        'int f(void)' '{' "$(yes '    work();' | head -n 69)" '}'
    plant runtime/file.c "a long file" 'file of 801 lines' "$(yes '/* */' | head -n 801)"
    plant runtime/line.c "a long line" 'line over 120' "/* $(printf 'x%.0s' {1..117}) */"
    put runtime/wide.c "/* $(printf 'x%.0s' {1..114}) */" "/* $(printf 'ä%.0s' {1..114}) */"
    good "120 columns, not bytes" "$here/length.sh" "$scratch"
}

planted_rules() {
    put docs/PROTOCOL.md '# Rules' 'P1. One writer.' '**P2** The home answers. See P1.' '- L1. Locks queue.'
    put coherence/home.c '/* P1, P2: as stated. */' '/* L1 */' '/* X9 is no rule, and no letter of one */'
    put tests/sim/world.c '/* P1 */' '/* P2 */' '/* L1 */'
    good "all cited" "$here/rules.sh" "$scratch"
    plant coherence/new.c "an unknown rule" 'P9 is cited but not stated' '/* P9 */'
    plant coherence/new.c "an unknown rule of another letter" 'L4 is cited but not stated' '/* L4 */'
    put docs/PROTOCOL.md 'P1. One writer.' 'P2. The home answers.' '### P10'
    bad "not cited by code" 'P10 is not cited by code' "$here/rules.sh" "$scratch"
    put coherence/home.c '/* P1, P2, P10: as stated. */'
    bad "not cited by a test" 'P10 is not cited by a test' "$here/rules.sh" "$scratch"
    rm "$scratch/docs/PROTOCOL.md"
    bad "no document" 'states no numbered rule' "$here/rules.sh" "$scratch"
}

planted_words() {
    put base/ok.c "$spdx" '/* TODO(#7): later */' '/* see /proc/self/maps, ../work/x and a/home/b */'
    put scripts/ok.sh '#!/bin/sh' '# SPDX-License-Identifier: Apache-2.0'
    good "clean tree" "$here/words.sh" "$scratch"
    plant base/a.c "work without an issue" 'which issue' "$spdx" '/* TO''DO: later */'
    plant base/b.c "broken code" 'which issue' "$spdx" '/* FIX''ME(soon) */'
    plant base/c.c "no licence line" 'c.c: no SPDX' 'int x;'
    plant docs/d.md "a developer's folder" 'place on one machine' 'look into `/ho''me/me/tree`'
    plant scripts/e.sh "a registry host" 'place on one machine' '# SPDX-License-Identifier: Apache-2.0' \
        'curl http://deb.deb''ian.org/x'
}

# object NAME LINE...: compiles a source into an archive of its own and prints the archive's path.
object() {
    local name=$1
    shift
    printf '%s\n' "$@" >"$scratch/$name.c"
    "$CC" -O2 -ffreestanding -c "$scratch/$name.c" -o "$scratch/$name.c.o"
    rm -f "$scratch/lib$name.a"
    ar rc "$scratch/lib$name.a" "$scratch/$name.c.o"
    echo "$scratch/lib$name.a"
}

planted_pure() {
    local clean impure
    clean=$(object clean 'void *memset(void *, int, unsigned long);' 'int helper(int x) { return x; }' \
        'int helper(int); void f(char *b) { memset(b, helper(0), 64); }')
    good "memset and itself" "$here/pure.sh" "$clean"
    good "one member" "$here/pure.sh" "$clean:clean.c.o"
    bad "a member that is not there" 'no such object' "$here/pure.sh" "$clean:other.c.o"
    bad "an archive that is not there" 'no such object' "$here/pure.sh" "$scratch/libnone.a"
    for name in clock_gettime malloc rand printf os_now_ns pthread_create read; do
        impure=$(object impure "long $name(long);" "long f(void) { return $name(1) + 1; }")
        bad "$name" "calls $name" "$here/pure.sh" "$clean" "$impure"
    done
}

planted_symbols() {
    local header=$scratch/dsm.h
    library() {
        printf '%s\n' "$@" | "$CC" -shared -fPIC -x c - -o "$scratch/lib.so"
        "$here/symbols.sh" "$header" "$scratch/lib.so"
    }
    put dsm.h '/* dsm_a - does. */' 'int dsm_a(int x);' '' '/* A group. */' 'int dsm_b(void);' 'int dsm_c(void);' '' \
        'int dsm_d(void); /* this one */'
    local all='int dsm_a(int x) { return x; } int dsm_b(void) { return 0; } int dsm_c(void) { return 0; }'
    good "all there" library "$all" 'int dsm_d(void) { return 0; }'
    bad "declared only" 'dsm_d is declared in dsm.h but not exported' library "$all"
    bad "exported only" 'dsm_e is exported but not declared' library "$all" 'int dsm_d(void) { return 0; }' 'int dsm_e;'
    bad "a leak" 'frame_take is exported' library "$all" 'int dsm_d(void) { return 0; }' 'int frame_take;'
    put dsm.h '/* A group. */' 'int dsm_a(int x);' 'int dsm_b(void);' 'int dsm_c(void);' '' 'int dsm_d(void);'
    bad "no comment" 'dsm_d has no comment' library "$all" 'int dsm_d(void) { return 0; }'
}

planted_preload() {
    local map=$scratch/lib.map family
    family=$(grep -E "^family" "$here/preload.sh" | cut -d\" -f2 | tr "\n" " ")
    preload() {
        printf '%s\n' '{ global:' "${names[@]/%/;}" 'local: *; };' >"$map"
        printf '%s\n' "$@" | "$CC" -shared -fPIC -fno-builtin -w -Wl,--version-script="$map" -x c - \
            -o "$scratch/lib.so" "${libraries[@]}"
        "$here/preload.sh" "$scratch/lib.so" "$scratch/listed.map"
    }
    local names libraries=() define
    read -ra names <<<"$family"
    define=$(printf 'int %s(void) { return 0; }\n' "${names[@]}")
    printf '%s\n' '{ global:' "${names[@]/%/;}" 'local: *; };' >"$scratch/listed.map"
    good "the family" preload "$define" 'int hidden(void) { return getenv("A") != 0; }'
    bad "a system call" 'read is called by its libc name' preload "$define" 'int f(void) { return read(0, 0, 0); }'
    bad "a lock of libc's" 'strerror takes a lock' preload "$define" 'char *f(void) { return strerror(1); }'
    bad "a stranger" 'no_such is not libc' preload "$define" 'int f(void) { return no_such(); }'
    bad "late thread storage" 'TLS_STATIC is missing' preload "$define" \
        '__attribute__((noinline)) static int *g(void) { static __thread int x; return &x; }' \
        'int *f(void) { return g(); }'
    libraries=(-Wl,--no-as-needed -lm)
    bad "another library" 'the library needs libm' preload "$define"
    libraries=()
    names+=(open)
    bad "exported only" 'open is exported but not in' preload "$define" 'int open(void) { return 0; }'
    printf '%s\n' '{ global:' "${names[@]/%/;}" 'madvise;' 'local: *; };' >"$scratch/listed.map"
    bad "listed only" 'madvise is in listed.map but not exported' preload "$define" 'int open(void) { return 0; }'
    names=("${names[@]/valloc/other}")
    bad "half a family" 'pvalloc of the malloc family is missing' preload "$define"
}

planted_verbs() {
    local folder
    for folder in base mmu tiers fabric coherence cluster prefetch runtime shim tools demo tests bench include; do
        mkdir -p "$scratch/$folder"
    done
    link() {
        printf '%s\n' 'int f(void) { return 0; }' | "$CC" -shared -fPIC -x c - -x none -o "$scratch/$1" "${@:2}"
    }
    check() { "$here/verbs.sh" "$scratch" "$scratch/$1" "$2" "$scratch/$3"; }
    printf 'int ibv_x;\n' | "$CC" -shared -fPIC -x c - -Wl,-soname,libibverbs.so.1 -o "$scratch/libibverbs.so"
    link bare.so
    link rdma.so -Wl,--no-as-needed "$scratch/libibverbs.so"
    put fabric/verbs.h '#include <infiniband/verbs.h>'
    put fabric/verbs.c '#include "fabric/verbs.h"'
    good "built with" check rdma.so yes bare.so
    good "built without" check bare.so no bare.so
    bad "found and not used" 'does not need rdma-core' check bare.so yes bare.so
    bad "needed and not found" 'rdma.so needs rdma-core' check rdma.so no bare.so
    bad "the bare fabric" 'rdma.so needs rdma-core' check rdma.so yes rdma.so
    put runtime/peers.c '#include <rdma/rdma_cma.h>'
    bad "a header elsewhere" 'runtime/peers.c: includes headers of rdma-core' check rdma.so yes bare.so
}

planted_header() {
    check() { "$here/header.sh" "$scratch/include" "$CC" "${CXX:-g++}"; }
    put include/tiermesh/dsm.h '#include <stddef.h>' '#ifdef __cplusplus' 'extern "C"' '#endif' 'int dsm_node_id(void);'
    good "clean header" check
    put include/tiermesh/dsm.h 'int dsm_node_id(void);' 'int dsm_malloc(size_t size);'
    bad "an include forgotten" 'size_t' check
    put include/tiermesh/dsm.h 'int dsm_node_id(void);' 'int dsm_x(int class);'
    bad "a word of C++" 'class|expected|cannot combine' check
}

"planted_$lint"
[ "$failed" -eq 0 ] && echo "planted $lint: ok" || exit 1
