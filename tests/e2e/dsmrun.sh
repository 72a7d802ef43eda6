#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dsmrun with ordinary programs: `dsmrun.sh DSMRUN CASE`. Each case is a function below.
set -euo pipefail

dsmrun=$1
case=$2
scratch=$(mktemp -d)
export XDG_RUNTIME_DIR=$scratch/run
mkdir "$XDG_RUNTIME_DIR"
# A failed case must not leave behind what it failed to end.
trap '[ ! -f pids ] || xargs -r kill -KILL <pids 2>/dev/null || true; rm -rf "$scratch"' EXIT
cd "$scratch"

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

# expect_word FILE WORDS: a line of the file has them.
expect_word() {
    grep -q -- "$2" "$1" || fail "\"$2\" is not in: $(cat "$1")"
}

# eventually SECONDS COMMAND...: it succeeds within that time.
eventually() {
    local tries=$(($1 * 20))
    shift
    for ((; tries > 0; tries--)); do
        if "$@"; then
            return 0
        fi
        sleep 0.05
    done
    fail "not in time: $*"
}

gone() {
    for pid in "$@"; do
        # A zombie has ended; its parent may be slow to look.
        if [ -d "/proc/$pid" ] && ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null; then
            return 1
        fi
    done
}

# lines_are FILE COUNT
lines_are() { [ -f "$1" ] && [ "$(wc -l <"$1")" = "$2" ]; }

# start ARGUMENTS...: dsmrun in the background, its process id in $pid. Through timeout, because what bash itself
# puts in the background ignores SIGINT.
start() {
    timeout 50 "$dsmrun" "$@" >out 2>err </dev/null &
    job=$!
    eventually 10 pgrep -P "$job" >parent
    pid=$(cat parent)
}

# ended STATUS: what start() started has ended with it.
ended() {
    local status=0
    wait "$job" || status=$?
    [ "$status" = "$1" ] || fail "exit status $status, not $1: $(cat err)"
}

run_directory_is_empty() { [ -z "$(ls -A "$XDG_RUNTIME_DIR")" ]; }

nothing_left() {
    run_directory_is_empty || fail "left behind: $(ls "$XDG_RUNTIME_DIR")"
}

# A stand-in for ssh that runs the command here, from another directory and with little environment.
fake_ssh() {
    cat >ssh <<'END'
#!/bin/sh
echo "$1" >>"$FAKE_LOG"
cd /
exec env -i PATH="$PATH" sh -c "$2"
END
    chmod +x ssh
    export FAKE_LOG=$scratch/hosts.log
}

case_exit_status() {
    expect 0 "$dsmrun" true
    expect 0 "$dsmrun" -n 4 -- true
    expect 3 "$dsmrun" sh -c 'exit 3'
    expect 7 "$dsmrun" -n 3 sh -c '[ $DSM_RANK = 0 ] && sleep 0.5 && exit 5
        [ $DSM_RANK = 2 ] && exit 7; exit 0'
    expect_word err 'rank 2 exited with 7'
    expect 139 "$dsmrun" -n 2 sh -c '[ $DSM_RANK = 1 ] && kill -SEGV $$; exit 0'
    expect_word err 'rank 1 was ended by signal 11'
    expect 127 "$dsmrun" no-such-program
    expect_word err 'no such program'
    expect 127 "$dsmrun" ./no-such-program
    touch plain
    expect 126 "$dsmrun" ./plain
    expect 126 "$dsmrun" /
    cp /bin/true privileged
    chmod u+s privileged
    expect 77 "$dsmrun" --preload off ./privileged
    expect_word err 'privileges'
    printf 'exit 4\n' >script
    chmod +x script
    expect 4 "$dsmrun" ./script
    nothing_left
}

case_usage() {
    local wrong
    for wrong in '-n 0' '-n 65' '-n x' '-n -1' '-n' '--ddr 5Q' '--ddr' '--nvme 4G' '--cxl -1' '--timeout 0' \
        '--timeout x' '--timeout -1' '--transport pigeon' '--set nothing' '--set ddr' '-x 1A=2' '-x NOT_SET_HERE' \
        '-H -x' '-H a:0' \
        '-H ,' '--hostfile /no/such/file' '-q' '--nonsense'; do
        # shellcheck disable=SC2086
        expect 64 "$dsmrun" $wrong true
        [ -s err ] || fail "nothing was said about $wrong"
    done
    expect 64 "$dsmrun"
    expect 64 "$dsmrun" -n 2
    expect 64 "$dsmrun" --tag-ouput true
    expect_word err 'did you mean --tag-output'
    expect 64 "$dsmrun" --set uffd.mve=on true
    expect_word err 'uffd.move'
    expect 78 env DSM_DDR=many "$dsmrun" true
    expect_word err DSM_DDR
    expect 0 "$dsmrun" --help
    expect_word out '--kill-on-failure'
    expect 0 "$dsmrun" --version
    expect 0 "$dsmrun" -n 1 sh -c '[ "$1" = --version ]' sh --version
    nothing_left
}

case_environment() {
    expect 0 "$dsmrun" -n 3 --ddr 64M --cxl 1G --zmem 3M --nvme 2G:/tmp --transport tcp --set uffd.move=off \
        --set window.shared=1G -x GREETING='hello world' -x PATH sh -c '
        echo "$DSM_RANK/$DSM_SIZE $DSM_DDR $DSM_CXL $DSM_ZMEM $DSM_NVME $DSM_TRANSPORT" \
        "$DSM_UFFD_MOVE $DSM_WINDOW_SHARED $GREETING"'
    for rank in 0 1 2; do
        expect_word out "^$rank/3 64M 1G 3M 2G:/tmp tcp off 1G hello world\$"
    done
    # The key can be read from its descriptor, again and again, and is nowhere else.
    expect 0 "$dsmrun" -n 2 sh -c '
        key=$(od -An -v -tx1 -j0 -N32 "/proc/self/fd/$DSM_KEY_FD" | tr -d " \n")
        [ ${#key} = 64 ] || exit 1
        guard=$PPID
        parent=$(cut -d" " -f4 "/proc/$guard/stat")
        for pid in $$ $guard $parent; do
            if cat "/proc/$pid/cmdline" "/proc/$pid/environ" | od -An -v -tx1 | tr -d " \n" | grep -q "$key"; then
                exit 2
            fi
            if tr "\0" "\n" <"/proc/$pid/environ" | grep -qi "$key"; then
                exit 3
            fi
        done
        echo "$key"'
    [ "$(sort -u out | wc -l)" = 1 ] || fail "two ranks have two keys"
    cp out first
    expect 0 "$dsmrun" sh -c 'od -An -v -tx1 -N32 "/proc/self/fd/$DSM_KEY_FD"'
    [ "$(tr -d ' \n' <out)" != "$(head -1 first)" ] || fail "two jobs have one key"
}

case_output() {
    local count
    expect 0 "$dsmrun" -n 4 --tag-output sh -c 'i=0; while [ $i -lt 500 ]; do
        echo "line $i of $DSM_RANK abcdefghijklmnopqrstuvwxyz"; echo "err $i" >&2; i=$((i + 1)); done; printf "no end"'
    count=$(grep -cE '^\[([0-3])\] line [0-9]+ of \1 abcdefghijklmnopqrstuvwxyz$' out)
    [ "$count" = 2000 ] || fail "$count whole lines of 2000"
    [ "$(grep -c '^\[[0-3]\] no end$' out)" = 4 ] || fail "the last lines without an end are not all there"
    [ "$(grep -cE '^\[[0-3]\] err [0-9]+$' err)" = 2000 ] || fail "standard error is not whole"
    lines_are out 2004 || fail "lines too many"
    # Untagged, lines far longer than a pipe's atomic size stay whole.
    expect 0 "$dsmrun" -n 3 sh -c 'for i in 1 2 3 4; do printf "%s" $DSM_RANK
        head -c 30000 /dev/zero | tr "\0" $DSM_RANK
        echo; done'
    [ "$(grep -cE '^(0+|1+|2+)$' out)" = 12 ] || fail "long lines were mixed"
    lines_are out 12 || fail "long lines were split"
    # A reader that goes away ends the writers, as without dsmrun.
    timeout 20 "$dsmrun" -n 2 sh -c 'while echo y; do :; done' 2>err | head -1 >out || true
    lines_are out 1 || fail "the reader got nothing"
    # Nothing is lost when a slow reader meets a large output.
    timeout 30 "$dsmrun" -n 2 sh -c 'seq 20000' 2>err | { sleep 1; wc -l; } >out
    [ "$(cat out)" = 40000 ] || fail "$(cat out) lines of 40000"
    # The ranks have ended long before their reader is ready, and fit the pipes between: nothing is lost either.
    timeout 30 "$dsmrun" -n 4 sh -c 'seq 9000' 2>err | { sleep 1; wc -l; } >out
    [ "$(cat out)" = 36000 ] || fail "$(cat out) lines of 36000"
}

case_input() {
    printf 'one\ntwo\n' | timeout 20 "$dsmrun" -n 2 --tag-output cat >out 2>err
    printf '[0] one\n[0] two\n' | cmp - out || fail "rank 0 did not get standard input alone"
    # From a terminal: what is typed reaches rank 0, and ^D ends it.
    if command -v script >/dev/null; then
        (sleep 0.5; printf 'typed\n'; sleep 0.3; printf '\004') |
            timeout 20 script -qec "$dsmrun -n 2 --tag-output cat" /dev/null >out 2>err || fail "terminal: $(cat out)"
        expect_word out '\[0\] typed'
    fi
}

case_signals() {
    for signal in TERM USR1 USR2 HUP INT; do
        rm -f ready
        # To nodes, that is: what is managed does not get SIGUSR2.
        start --preload off -n 2 sh -c "trap 'echo got; exit 20' $signal; echo r >>ready; while :; do sleep 0.05; done"
        eventually 10 lines_are ready 2
        kill -s "$signal" "$pid"
        ended 20
        [ "$(grep -c got out)" = 2 ] || fail "$signal reached $(grep -c got out) ranks of 2"
    done
    # Ranks that ignore an interrupt are killed by the second.
    rm -f ready
    start -n 2 sh -c 'trap "echo x >>interrupted" INT; echo r >>ready; while :; do sleep 0.05; done'
    eventually 10 lines_are ready 2
    kill -s INT "$pid"
    eventually 10 lines_are interrupted 2
    if gone "$pid"; then
        fail "the first interrupt ended the job"
    fi
    kill -s INT "$pid"
    ended 137
}

case_timeout() {
    SECONDS=0
    expect 124 "$dsmrun" -n 3 --timeout 0.5 sleep 60
    [ "$SECONDS" -le 4 ] || fail "took $SECONDS s"
    expect_word err 'time limit'
    expect 0 "$dsmrun" --timeout 20 true
    # SIGTERM is not enough for this one.
    expect 124 "$dsmrun" --timeout 0.2 sh -c 'trap "" TERM; while :; do sleep 0.1; done'
    [ "$SECONDS" -le 15 ] || fail "took $SECONDS s"
    expect_word err 'signal 9'
}

case_failure() {
    # The others go on by default ...
    expect 9 "$dsmrun" -n 3 sh -c '[ $DSM_RANK = 1 ] && exit 9; sleep 0.5; echo finished'
    lines_are out 2 || fail "the other ranks did not go on"
    # ... and end with --kill-on-failure.
    SECONDS=0
    expect 9 "$dsmrun" -n 3 --kill-on-failure sh -c '[ $DSM_RANK = 1 ] && exit 9; sleep 60; echo finished'
    [ "$SECONDS" -le 4 ] || fail "took $SECONDS s"
    [ ! -s out ] || fail "the other ranks went on"
}

# Starts a job whose ranks start children of every kind, and waits until all have written their process ids to ./pids.
family='
    echo $$ >>pids
    sleep 300 & echo $! >>pids
    setsid sh -c "echo \$\$ >>pids; exec sleep 300" &
    (setsid sh -c "sh -c \"echo \\\$\\\$ >>pids; exec sleep 300\" & exit 0" &)
    while :; do sleep 0.05; done'

case_orphans() {
    local all
    # dsmrun is killed: nothing of the job lives on, and its directory is gone.
    start -n 2 sh -c "$family"
    eventually 10 lines_are pids 8
    mapfile -t all <pids
    kill -KILL "$pid"
    eventually 3 gone "${all[@]}"
    eventually 3 run_directory_is_empty
    # A guard is killed: its rank is lost, and so is what the rank had started, at the latest with the job.
    rm -f pids
    start -n 2 sh -c "$family"
    eventually 10 lines_are pids 8
    mapfile -t all <pids
    for guard in $(pgrep -P "$pid"); do
        kill -KILL "$guard"
    done
    eventually 3 gone "${all[@]}"
    ended 137
    # The program ends: what it left in the background ends with it.
    rm -f pids
    expect 0 "$dsmrun" -n 2 sh -c 'setsid sh -c "echo \$\$ >>pids; exec sleep 300" &
        while [ ! -s pids ]; do sleep 0.05; done'
    mapfile -t all <pids
    gone "${all[@]}" || fail "a background process lives on"
    nothing_left
}

case_hosts() {
    local all
    fake_ssh
    expect 0 "$dsmrun" -H alpha,user@beta:2 --bind 127.0.0.1 --launcher "$scratch/ssh" --ddr 64M \
        -x QUOTE="it's \"so\"" \
        sh -c 'echo "$DSM_RANK $DSM_SIZE $DSM_DDR $QUOTE $(pwd) $1 ${DSM_AGENT%:*}"; cat' sh "a  b'c"
    for rank in 0 1 2; do
        expect_word out "^$rank 3 64M it's \"so\" $scratch a  b'c tcp:127.0.0.1\$"
    done
    [ "$(sort hosts.log | xargs)" = 'alpha user@beta user@beta' ] || fail "hosts: $(xargs <hosts.log)"
    printf '# machines\nalpha slots=2\n\nbeta:1 # one\n' >hostfile
    rm hosts.log
    expect 5 "$dsmrun" -n 5 --hostfile hostfile --bind 127.0.0.1 --launcher "sh $scratch/ssh" sh -c 'exit 5'
    [ "$(sort hosts.log | xargs)" = 'alpha alpha alpha alpha beta' ] || fail "hosts: $(xargs <hosts.log)"
    printf 'alpha slots=two\n' >hostfile
    expect 64 "$dsmrun" --hostfile hostfile true
    expect_word err 'line 1'
    expect 127 "$dsmrun" -H alpha --bind 127.0.0.1 --launcher "$scratch/ssh" no-such-program
    expect 127 "$dsmrun" -H alpha --bind 127.0.0.1 --launcher /no/such/launcher true
    expect 124 "$dsmrun" -H alpha,beta --bind 127.0.0.1 --launcher "$scratch/ssh" --timeout 0.5 sleep 60
    # No orphans there either.
    start -H alpha,beta --bind 127.0.0.1 --launcher "$scratch/ssh" sh -c "$family"
    eventually 10 lines_are pids 8
    mapfile -t all <pids
    kill -KILL "$pid"
    eventually 3 gone "${all[@]}"
}

# Nodes meet through dsmrun: $3 is a program that checks it.
case_meet() {
    local meet=$3
    fake_ssh
    expect 0 "$dsmrun" -n 1 "$meet"
    expect 0 "$dsmrun" -n 64 "$meet"
    lines_are out 64 || fail "$(cat out)"
    expect 0 "$dsmrun" -H alpha,beta,gamma --bind 127.0.0.1 --launcher "$scratch/ssh" "$meet"
    lines_are out 3 || fail "$(cat out)"
    # One dies: the others hear of it.
    expect 137 "$dsmrun" -n 4 "$meet" die
    lines_are out 3 || fail "$(cat out)"
    # One ends before it joined: the others are told so at once.
    SECONDS=0
    expect 1 "$dsmrun" -n 3 sh -c '[ $DSM_RANK = 2 ] && exit 1; exec "$0"' "$meet"
    [ "$SECONDS" -le 5 ] || fail "took $SECONDS s"
    expect_word err 'rank 2 ended before'
    # Inside another job a new one starts afresh.
    expect 0 "$dsmrun" -n 2 "$dsmrun" -n 2 "$meet"
    lines_are out 4 || fail "$(cat out)"
    nothing_left
}

"case_$case" "$@"
