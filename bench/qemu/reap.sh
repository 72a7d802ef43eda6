#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# reap.sh JOB: waits for the end of its input, which boot.sh holds open for as long as it lives, then ends the guests of
# this job and removes its files. In a session of its own, so that what kills boot.sh does not kill it too.
trap '' INT TERM HUP
job=$1
cat >/dev/null
while read -r pid; do
    # Not a later process of that number: the files of the job are in its command line.
    if tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF "$job/"; then
        kill -KILL "$pid" 2>/dev/null
    fi
done <"$job/pids"
rm -rf "$job"
