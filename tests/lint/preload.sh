#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# preload.sh LIBRARY MAP: what the preload library shows and needs. It exports what the map names and nothing else, and
# all of the malloc family; it needs libc and the dynamic linker only; and it calls no system call by its libc name,
# which another preload library could have taken: such references go to shim/raw.c (cmake/shim.cmake).
set -euo pipefail
library=$1
map=$2
findings=0

finding() {
    echo "$*"
    findings=$((findings + 1))
}

# The whole family or nothing: a block of one allocator must never reach another one's free().
family="malloc calloc realloc free reallocarray posix_memalign aligned_alloc memalign valloc pvalloc "
family+="malloc_usable_size cfree free_sized free_aligned_sized malloc_trim strdup strndup __strdup __strndup wcsdup"

# By their libc names all the same: the clock, which is no system call there, and what jemalloc does not come to.
allowed=" clock_gettime gettimeofday creat sched_getaffinity getcpu "

# Locks of libc's that a thread of the program may hold while it waits for the shard: of locales, and of all streams.
locking="strerror strerror_r __xpg_strerror_r strerror_l perror dcgettext gettext setlocale newlocale syslog "
locking+="fopen fopen64 fdopen fclose fflush fprintf vfprintf printf puts fputs dlopen dlsym localtime strftime"

exported=$(nm -D --defined-only "$library" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort -u)
listed=$(sed -e 's|/\*.*\*/||' "$map" | sed -n '/global:/,/local:/p' | grep -oE '[A-Za-z_0-9]+;' | tr -d ';' | sort -u)
for name in $(comm -13 <(echo "$listed") <(echo "$exported")); do
    finding "$name is exported but not in $(basename "$map")"
done
for name in $(comm -23 <(echo "$listed") <(echo "$exported")); do
    finding "$name is in $(basename "$map") but not exported"
done
for name in $family; do
    grep -qx "$name" <<<"$exported" || finding "$name of the malloc family is missing"
done

for name in $(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    case $name in
    libc.so.* | ld-linux*.so.* | ld.so.*) ;;
    *) finding "the library needs $name" ;;
    esac
done

calls=$(printf '#include <sys/syscall.h>\n' | "${CC:-gcc}" -E -dM - |
    sed -n 's/^#define __NR_\([a-z0-9_]*\) .*/\1/p' | sort -u)
# Weak ones may be absent (zstd's hooks for tracing).
needed=$(nm -D --undefined-only "$library" | awk '$(NF - 1) == "U" {print $NF}')
if grep -q '^__tls_get_addr' <<<"$needed"; then
    finding "thread storage is reached through the dynamic linker: TLS_STATIC is missing somewhere"
fi
while read -r name; do
    case $name in
    *@GLIBC_*) name=${name%%@*} ;;
    _ITM_* | __gmon_start__ | __cxa_finalize) continue ;;
    *)
        grep -qx "$name" <<<"$exported" || finding "$name is not libc's"
        continue
        ;;
    esac
    if [[ " $locking " == *" $name "* ]]; then
        finding "$name takes a lock of libc's that a thread which waits for the shard may hold"
    fi
    if grep -qx "$name" <<<"$calls" && [[ $allowed != *" $name "* ]] && ! grep -qx "$name" <<<"$exported"; then
        finding "$name is called by its libc name"
    fi
done <<<"$needed"

if [ "$findings" -gt 0 ] || [ -z "$exported" ]; then
    echo "preload: $findings findings"
    exit 1
fi
echo "preload: ok, $(wc -w <<<"$exported") names"
