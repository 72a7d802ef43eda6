#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dsmrun and dsmctl with programs that are not nodes: `preload.sh DIRECTORY CASE [ARGUMENT]`; DIRECTORY holds what was
# built.
# What programs compute while they are managed is for the tests of real programs.
set -euo pipefail

self=$(realpath "$0")
build=$1
case=$2
dsmrun=$build/dsmrun
dsmctl=$build/dsmctl
managed=$build/tests/e2e_managed
scratch=$(mktemp -d)
export XDG_RUNTIME_DIR=$scratch/run
mkdir "$XDG_RUNTIME_DIR"
job=
trap '[ -z "$job" ] || kill "$job" 2>/dev/null || true; rm -rf "$scratch"' EXIT
cd "$scratch"
unset LD_PRELOAD DSM_PRELOAD DSM_BROKER DSM_BROKER_KEY

fail() {
    echo "FAILED $case: $*" >&2
    exit 1
}

# expect STATUS COMMAND...: runs it with output in ./out and ./err.
expect() {
    local wanted=$1 status=0
    shift
    timeout 30 "$@" >out 2>err </dev/null || status=$?
    [ "$status" = "$wanted" ] || fail "$* exited with $status, not $wanted: $(cat err)"
}

# The same beside a job that writes to ./out and ./err, and from another directory.
expect_here() {
    local wanted=$1 status=0
    shift
    timeout 30 "$@" >"$scratch/out.here" 2>"$scratch/err.here" </dev/null || status=$?
    [ "$status" = "$wanted" ] || fail "$* exited with $status, not $wanted: $(cat "$scratch/err.here")"
}

# expect_word FILE WORDS: a line of the file has them.
expect_word() {
    grep -q -- "$2" "$1" || fail "\"$2\" is not in: $(cat "$1")"
}

no_word() {
    if grep -q -- "$2" "$1"; then
        fail "\"$2\" is in: $(cat "$1")"
    fi
}

eventually() {
    local tries=200
    for ((; tries > 0; tries--)); do
        if "$@"; then
            return 0
        fi
        sleep 0.05
    done
    fail "not in time: $*"
}

has_line() { grep -qs -- "$2" "$1"; }

nothing_left() {
    [ -z "$(ls -A "$XDG_RUNTIME_DIR")" ] || fail "left behind: $(ls "$XDG_RUNTIME_DIR")"
}

# start ARGUMENTS...: dsmrun in the background ($job); the process id of the program that says "ready" in $program.
start() {
    "$dsmrun" "$@" >out 2>err </dev/null &
    job=$!
    eventually has_line out '^ready'
    program=$(sed -n 's/^ready //p' out)
}

# Copies of a program, spoiled: the bytes of its headers are changed in place.
patched() { # NAME SED-EXPRESSION
    LC_ALL=C sed "$2" /bin/true >"$1"
    chmod +x "$1"
}

byte_put() { # FILE OFFSET OCTAL
    printf "\\$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

case_refusals() {
    local name
    patched musl 's|/lib64/ld-linux-x86-64.so.2|/lib/ld-musl-x86_64.so.1\x00\x00\x00|
        s|/lib/ld-linux-aarch64.so.1|/lib/ld-musl-aarch64.so.1|'
    cp /bin/true other
    byte_put other 18 10 # a MIPS
    cp /bin/true small
    byte_put small 4 1 # 32 bits
    cp /bin/true privileged
    chmod u+s privileged
    cp "$build/tests/e2e_static" static
    head -c 60 /bin/true >cut
    chmod +x cut
    printf '#!%s/static\n' "$scratch" >script
    chmod +x script
    ln -s /etc/passwd self
    printf '#!%s/loop\n' "$scratch" >loop
    chmod +x loop
    while read -r name words; do
        expect 64 "$dsmrun" "./$name"
        expect_word err "$words"
        expect_word err 'unmanaged'
        expect 64 "$dsmrun" -n 2 --preload on "./$name"
    done <<'END'
musl another C library.*ld-musl
other another kind of processor.*MIPS
small another kind of processor.*32-bit
privileged gains privileges
static statically linked
script statically linked
cut neither a program
loop neither a program
END
    expect 9 "$dsmrun" --unmanaged ./static
    expect_word err 'runs unmanaged'
    expect 9 "$dsmrun" --preload off ./static
    no_word err 'unmanaged'
    expect 9 "$dsmrun" -n 2 --unmanaged ./script
    expect 0 "$dsmrun" --unmanaged ./privileged
    expect 77 "$dsmrun" --preload off ./privileged
    expect 64 "$dsmrun" --preload on -H localhost true
    expect_word err 'this machine only'
    for wrong in '--preload maybe' '--preload-order middle' '--preload' '--summary'; do
        # shellcheck disable=SC2086
        expect 64 "$dsmrun" $wrong
    done
    expect_word err 'needs an argument'
    nothing_left
}

case_environment() {
    local library=$build/libtiermesh-preload.so
    expect 0 "$dsmrun" env
    expect_word out "^LD_PRELOAD=$library\$"
    expect_word out '^DSM_PRELOAD=1$'
    expect_word out '^DSM_BROKER=/'
    no_word out 'DSM_LD_PRELOAD\|DSM_UNMANAGED'
    # Whatever is preloaded already stays.
    cat >other.c <<'END'
int other_is_here = 1;
END
    "${CC:-cc}" -shared -fPIC -o libother.so other.c
    expect 0 env LD_PRELOAD="$scratch/libother.so" "$dsmrun" env
    expect_word out "^LD_PRELOAD=$library:$scratch/libother.so\$"
    expect 0 env LD_PRELOAD="$scratch/libother.so" "$dsmrun" --preload-order last env
    expect_word out "^LD_PRELOAD=$scratch/libother.so:$library\$"
    expect 0 "$dsmrun" --preload off env
    no_word out 'LD_PRELOAD\|DSM_PRELOAD\|DSM_BROKER'
    # Nodes are left alone, unless it is asked for; also below a managed program.
    expect 0 "$dsmrun" -n 2 "$build/tests/e2e_node_env"
    [ "$(sort -u out)" = "node of 2, tier ddr" ] || fail "a node finds: $(cat out)"
    expect 0 "$dsmrun" --preload on "$build/tests/e2e_node_env"
    expect_word out "^LD_PRELOAD=$library\$"
    expect 0 "$dsmrun" sh -c "exec $dsmrun --preload off env"
    no_word out 'DSM_PRELOAD\|DSM_BROKER'
    # Scripts, by their interpreters and without.
    printf '#!/usr/bin/env -S A=b sh\necho $A $DSM_PRELOAD\n' >script
    printf 'echo plain $DSM_PRELOAD\n' >plain
    chmod +x script plain
    expect 0 "$dsmrun" ./script
    expect_word out '^b 1$'
    expect 0 "$dsmrun" -n 2 ./plain
    [ "$(grep -c '^plain 1$' out)" = 2 ] || fail "a script of the shell finds: $(cat out)"
    # No descriptor where a program would notice, and the limit that dsmrun was started with.
    expect 0 ls /proc/self/fd
    awk '$1 < 100' out >natively
    expect 0 "$dsmrun" ls /proc/self/fd
    awk '$1 < 100' out | cmp - natively || fail "descriptors $(xargs <out), natively $(xargs <natively)"
    expect 0 bash -c "ulimit -Sn 300; exec $dsmrun sh -c 'ulimit -n'"
    expect_word out '^300$'
    nothing_left
}

case_store() {
    expect 69 "$dsmrun" --nvme 64M:/no/such/directory touch ran
    expect_word err 'No such file'
    expect 69 "$dsmrun" --nvme 4000T:. touch ran
    expect 69 "$dsmrun" --nvme 8T:. touch ran
    expect_word err 'free'
    expect 69 "$dsmrun" --nvme 64M:/dev/shm touch ran
    expect_word err 'in memory'
    expect 69 env DSM_NVME=64M:/no/such/directory "$dsmrun" touch ran
    [ ! -e ran ] || fail "the program was started without its store"
    expect 0 "$dsmrun" --nvme 16M:. --summary off "$managed" exit
    [ -z "$(ls -A . | grep -v '^\(run\|out\|err\)$')" ] || fail "the store has a name: $(ls -A)"
    nothing_left
}

case_summary() {
    local how status
    for how in exit _exit kill exec; do
        status=0
        [ $how = kill ] && status=137
        expect $status "$dsmrun" --nvme 16M:. "$managed" $how
        expect_word err "^dsmrun: e2e_managed (process $(sed -n 's/^ready //p' out)): 512 MiB managed, for 2.. s, ended"
        expect_word err '^dsmrun:   lies in     ddr 117 MiB of 128 MiB, zmem 0 B of 128 MiB, nvme 400 KiB of 128 MiB$'
        expect_word err '^dsmrun:   evicted     16.0 MiB, ddr to nvme 16.0 MiB$'
        expect_word err '^dsmrun:   faults      nvme  *1000   p50 .* us, p99 .* ms, longest 1.1 ms$'
        expect_word err '^dsmrun:   waited      599.5 ms in all threads, 100 % nvme; of it for room in DDR 500.0 ms$'
        expect_word err '^dsmrun:   read ahead  3.9 MiB, 90 % of it used, 5 % too late; spared 47 % of the faults$'
        expect_word err '^dsmrun:   predicted   streams 3.9 MiB (90 % used)$'
        expect_word err '^dsmrun:   policy      arms (lirs-10 now); 77 pages back from limbo, 1000 from below$'
        expect_word err '^dsmrun:   tables      3.0 MiB$'
    done
    expect 0 "$dsmrun" -n 2 --summary off "$managed" exit
    no_word err managed
    expect 0 "$dsmrun" -n 3 --summary figures "$managed" exit
    no_word err managed
    [ "$(grep -c '^e2e_managed.*ended' figures)" = 3 ] || fail "figures: $(cat figures)"
    expect 73 "$dsmrun" --summary /no/such/file true
    # A process that never came near its budget says nothing.
    expect 0 "$dsmrun" --summary on true
    [ ! -s err ] || fail "said: $(cat err)"
    # On request, to dsmrun; the program is not disturbed.
    start --nvme 16M:. --summary off "$managed" wait
    kill -USR2 "$job"
    eventually has_line err "process $program): 512 MiB managed, for"
    no_word err ended
    kill -0 "$program" || fail "SIGUSR2 ended the program"
    kill -KILL "$job"
    wait "$job" || true
    eventually [ ! -d "/proc/$program" ]
    eventually [ -z "$(ls -A "$XDG_RUNTIME_DIR")" ]
}

case_dsmctl() {
    start --nvme 16M:. "$managed" wait
    expect 0 "$dsmctl" stat "$program"
    expect_word out "^e2e_managed (process $program): 512 MiB managed"
    expect 0 "$dsmctl" stat
    expect_word out "^e2e_managed (process $program): 512 MiB managed"
    expect 64 "$dsmctl" limit "$program" ddr 1K
    expect_word err '2M'
    expect 64 "$dsmctl" limit "$program" ddr lots
    expect 64 "$dsmctl" limit "$program" floppy 1M
    expect 64 "$dsmctl" limit x ddr 1M
    expect 64 "$dsmctl" limit "$program" ddr
    expect 64 "$dsmctl" stat -5
    expect 69 "$dsmctl" limit "$program" cxl 64M
    expect_word err 'no cxl tier'
    expect 64 "$dsmctl" limit "$program" nvme 1G
    expect_word err '64 MiB'
    expect 0 "$dsmctl" limit "$program" nvme 32M
    expect 0 "$dsmctl" limit "$program" ddr 128M
    expect 69 "$dsmctl" stat $$
    expect_word err 'is not managed'
    expect 66 "$dsmctl" stat 4194305
    expect_word err 'no process'
    if [ "$(id -u)" = 0 ]; then
        chmod 711 "$scratch"
        expect 77 setpriv --reuid 65534 --clear-groups "$dsmctl" stat "$program"
        expect_word err 'another user'
    fi
    expect 0 "$dsmctl" limit "$program" ddr 64M
    wait "$job" || fail "the wishes did not arrive"
    expect 66 "$dsmctl" stat "$program"
    expect 0 "$dsmctl" --help
    expect 0 "$dsmctl" --version
    expect 64 "$dsmctl"
    nothing_left
}

# A managed program that has not come near its budget, and one that lost the library on its way.
case_dsmctl_early() {
    start sh -c 'echo ready $$; exec sleep 3'
    eventually grep -q sleep "/proc/$program/comm"
    expect 0 "$dsmctl" stat "$program"
    expect_word out 'nothing is managed yet'
    expect 69 "$dsmctl" limit "$program" ddr 64M
    expect_word err 'nothing is managed yet'
    kill -TERM "$job"
    wait "$job" || true
    start sh -c 'echo ready $$; unset LD_PRELOAD; exec sleep 3'
    eventually grep -q sleep "/proc/$program/comm"
    expect 69 "$dsmctl" stat "$program"
    expect_word err 'without libtiermesh-preload.so'
    kill -TERM "$job"
    wait "$job" || true
    nothing_left
}

lies_in() { "$dsmctl" stat "$program" >stat 2>&1 && grep -q -- "lies in .*$1" stat; }

# zmem as a share of DDR follows it, as much of it as pays, and can be given another share; nothing is lost meanwhile.
case_dsmctl_percent() {
    start --ddr 16M --zmem 50% --nvme 64M:. --summary off sh -c \
        "echo ready \$\$; exec $build/tests/e2e_plain_touches 80 2000000 exit"
    eventually lies_in 'of 16.0 MiB, zmem [1-9]'
    expect_here 0 "$dsmctl" limit "$program" ddr 24M
    eventually lies_in 'ddr .* of 24.0 MiB, zmem [1-9]'
    expect_here 0 "$dsmctl" limit "$program" zmem 6M
    eventually lies_in 'of 24.0 MiB, zmem .* of [0-6][.]. MiB'
    expect_here 0 "$dsmctl" limit "$program" zmem 23M
    eventually has_line err 'can have 90 % of it'
    expect_here 0 "$dsmctl" limit "$program" ddr 8M
    eventually lies_in 'ddr [4-8].* of 8.0 MiB, zmem .* of [0-2][.]. MiB'
    # More than zmem's tables were made for: DDR grows all the same.
    expect_here 0 "$dsmctl" limit "$program" ddr 600M
    eventually lies_in 'of 600 MiB, zmem'
    for wrong in 50% 0 -1 '' 99999999999999999999 1K; do
        expect_here 64 "$dsmctl" limit "$program" zmem "$wrong"
    done
    kill -0 "$program" || fail "the program has ended: $(cat err)"
    kill -TERM "$job"
    wait "$job" || true
    no_word err 'lost\|bug'
    nothing_left
}

# Without the right to a userfaultfd: said before the program starts.
case_userfaultfd() {
    [ "$(id -u)" = 0 ] || { echo "only root can become somebody without rights"; exit 77; }
    [ "$(cat /proc/sys/vm/unprivileged_userfaultfd)" = 0 ] || { echo "userfaultfd is everybody's here"; exit 77; }
    chmod 777 "$scratch" "$XDG_RUNTIME_DIR"
    if setpriv --reuid 65534 --clear-groups test -r /dev/userfaultfd; then
        echo "/dev/userfaultfd is everybody's here"
        exit 77
    fi
    expect 77 setpriv --reuid 65534 --clear-groups "$dsmrun" touch ran
    expect_word err 'unprivileged_userfaultfd'
    expect_word err '/dev/userfaultfd'
    no_word err 'managed: .*managed: '
    [ ! -e ran ] || fail "the program was started all the same"
    expect 0 setpriv --reuid 65534 --clear-groups "$dsmrun" --unmanaged touch ran
    expect_word err 'runs unmanaged'
    [ -e ran ] || fail "--unmanaged did not run it"
    expect 0 setpriv --reuid 65534 --clear-groups "$dsmrun" --preload off true
}

# A limit on address space counts what is mapped: set before dsmrun, in a shell under it, or too small for a shard.
case_ulimit() {
    local program="$build/tests/e2e_plain_forks 20 exec"
    local options="--ddr 8M --nvme 256M:. --summary figures"
    expect 0 bash -c "ulimit -v 1000000; exec $dsmrun $options $program"
    grep -q 'ddr to nvme' figures || fail "nothing was evicted, so this shows nothing: $(cat figures)"
    expect 0 "$dsmrun" $options bash -c "ulimit -v 1000000; $program"
    grep -q 'ddr to nvme' figures || fail "nothing was evicted, so this shows nothing: $(cat figures)"
    expect 0 "$dsmrun" $options bash -c "(ulimit -v 1000000; $program) && $program && [ \$(ulimit -v) = unlimited ]"
    # Room for the program to start, and not for the tables; how much that is differs by build.
    local room=28000
    until grep -qs 'its memory stays unmanaged: .*ulimit' err; do
        [ $((room += 1000)) -le 60000 ] || fail "no limit leaves memory unmanaged: $(cat err)"
        expect 1 bash -c "ulimit -v $room; exec $dsmrun --ddr 8M $program"
    done
    nothing_left
}

# More memory than the budget, and processes that come and go: nothing is lost, and no slot is left behind.
case_forks() {
    local what=$1 status=0
    if [ "$what" = user ] && [ "$(id -u)" != 0 ]; then
        echo "only root can become somebody else"
        exit 77
    fi
    [ "$what" = killed ] && status=137
    expect $status "$dsmrun" --ddr 8M --nvme 256M:. --summary figures "$build/tests/e2e_plain_forks" 20 "$what"
    no_word err 'this is a bug'
    no_word err 'denied' # of a changed user
    grep -q 'ddr to nvme' figures || fail "nothing was evicted, so this shows nothing: $(cat figures)"
    nothing_left
}

# ---- where a machine is not as usual -------------------------------------------------------------------------------

evicted() { # FILE
    grep -q 'ddr to nvme' "$1" || fail "nothing was evicted, so this shows nothing: $(cat "$1")"
}

need_root() {
    [ "$(id -u)" = 0 ] || { echo "only root can do this"; exit 77; }
}

# A disk of 230 MiB in a mount namespace, which goes with its last process: CASE DIRECTORY.
case_disk_full() {
    need_root
    truncate -s 256M disk
    mkfs.ext4 -q disk 2>err || { echo "no ext4 can be made: $(cat err)"; exit 77; }
    mkdir mounted
    if ! unshare -m sh -c "mount -o loop disk mounted" 2>err; then
        echo "no disk can be mounted: $(cat err)"
        exit 77
    fi
    expect 0 unshare -m "$self" "$build" on_full_disk "$scratch"
    nothing_left
}

# Forked processes share slots, so reading a page frees none: with the store full a page may not come any more. That is
# SIGBUS, in the parent or in a child, and not a wait without end.
case_store_full() {
    local status=0
    timeout 100 "$dsmrun" --ddr 8M --nvme 16M:. "$build/tests/e2e_plain_forks" 20 tree >out 2>err </dev/null ||
        status=$?
    [ "$status" = 1 ] || [ "$status" = 135 ] || fail "it exited with $status: $(cat err)"
    expect_word err 'every tier of this node is full'
    nothing_left
}

# The room of the store is taken at the start. What has no room then says so, and what comes later loses nothing.
case_on_full_disk() {
    local directory=$1 program="$build/tests/e2e_plain_forks 20 tree"
    mount -o loop "$directory/disk" "$directory/mounted"
    cd "$directory/mounted"
    expect_here 69 "$dsmrun" --nvme 300M:. touch ran
    expect_word "$scratch/err.here" 'free'
    [ ! -e ran ] || fail "the program was started without its store"
    expect_here 0 "$dsmrun" --ddr 8M --nvme 200M:. --summary "$scratch/figures" sh -c "dd if=/dev/zero of=filled bs=64K
        ! dd if=/dev/zero of=more bs=64K count=4 && $program"
    evicted "$scratch/figures"
    dd if=/dev/zero of=again bs=4K 2>/dev/null && fail "the disk is not full"
    # Figures may be missed or cut off; the program's status is its own.
    expect_here 3 "$dsmrun" --ddr 8M --cxl 256M --summary figures sh -c "$program && exit 3"
    cd /
}

# dsmrun in namespaces of its own, and a program that makes some for itself.
case_namespaces() {
    local program="$build/tests/e2e_plain_forks 20 tree"
    local options="--ddr 8M --nvme 256M:. --summary figures" ran=0 kind
    for kind in '--mount' '--pid --fork --mount-proc' '--net' '--ipc --uts --cgroup' '--user --map-root-user'; do
        # shellcheck disable=SC2086
        if ! unshare $kind true 2>err; then
            echo "unshare $kind: $(cat err)"
            continue
        fi
        # shellcheck disable=SC2086
        expect 0 unshare $kind "$dsmrun" $options $program
        evicted figures
        # shellcheck disable=SC2086
        expect 0 "$dsmrun" $options unshare $kind $program
        evicted figures
        ran=$((ran + 1))
    done
    [ "$ran" -gt 0 ] || { echo "no namespace can be made here"; exit 77; }
    nothing_left
}

# A program in a directory without /proc and /dev: from the time when it is managed, and from before.
case_chroot() {
    need_root
    mkdir empty figures
    cd empty
    expect_here 0 "$dsmrun" --ddr 8M --nvme 256M:"$scratch" --summary "$scratch/figures/late" \
        "$build/tests/e2e_plain_forks" 20 jail
    evicted "$scratch/figures/late"
    expect_here 0 "$dsmrun" --ddr 8M --nvme 256M:"$scratch" "$build/tests/e2e_plain_forks" 20 jail_early
    expect_word "$scratch/err.here" 'its memory stays unmanaged\|ddr to nvme'
    # One that is started there has no library to load: it runs as it would without us.
    mkdir -p bin
    cp "$build/tests/e2e_static" bin/
    expect_here 9 "$dsmrun" chroot . /bin/e2e_static
    cd "$scratch"
    nothing_left
}

# Two jobs in one directory, at once: each has a store and figures of its own.
case_two_jobs() {
    local job jobs=()
    for job in 1 2; do
        "$dsmrun" --ddr 8M --nvme 256M:. --summary "figures.$job" "$build/tests/e2e_plain_forks" 20 tree \
            >"out.$job" 2>"err.$job" </dev/null &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do
        wait "$job" || fail "a job ended with $?: $(cat err.1 err.2)"
    done
    evicted figures.1
    evicted figures.2
    [ -z "$(find . -maxdepth 1 -name '*tiermesh*' -o -maxdepth 1 -name 'nvme*')" ] || fail "left behind: $(ls)"
    nothing_left
}

"case_$case" "${@:3}"
