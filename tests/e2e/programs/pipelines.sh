#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A shell that holds much and forks often, pipelines of small programs, and man, which confines its helpers by seccomp.
source "$(dirname "$0")/common.sh"
bash=$(need bash bash)

cat >page.1 <<'ROFF'
.TH PAGE 1 2024-01-01
.SH NAME
page \- a page to be formatted
.SH DESCRIPTION
.B page
has words, a table and a list.
.TS
l r.
one	1
two	22
.TE
.IP \(bu 2
an item
ROFF
cat >script.sh <<'SHELL'
set -euo pipefail
for ((i = 0; i < 60000; i++)); do
    words[i]="word $((i * 7919 % 60013)) of many, which is long enough to fill some memory: $((i * i % 9973))"
done
echo "${#words[@]} words"
# Each of these forks the shell, whose array is mostly absent by now.
printf '%s\n' "${words[@]}" | sort | uniq | sha256sum
printf '%s\n' "${words[@]}" | awk '{ sum += $2 } END { print sum }'
for i in 1 2 3 4 5; do
    (words[i]=changed; echo "${words[i]} ${words[59000 + i]}") | sed 's/many/few/'
done
echo "${words[3]}"
numbers() { printf '%s\n' "${words[@]}" | cut -d' ' -f2 | sort "$@"; }
diff <(numbers -n) <(numbers -n -r | tac)
seq 20000 | xargs -n 500 echo | tr ' ' '\n' | grep -c 7
seq 100000 | gzip -c | gunzip | tail -n 1
tar cf - -C .. script.sh page.1 | tar tf -
find .. -maxdepth 1 -name '*.1' | xargs cat | wc -l
if command -v man >/dev/null; then
    man -P cat -l ../page.1
fi
exec 3< <(seq 3); read -r first <&3; echo "first $first"
coproc { read -r line; echo "heard $line"; }
echo hello >&"${COPROC[1]}"; read -r answer <&"${COPROC[0]}"; echo "$answer"
trap 'echo bye' EXIT
SHELL
natively "$bash" ../script.sh
managed "$bash" ../script.sh
same out
[ ! -s managed/err ] || fail "something was said on standard error"
verdict
