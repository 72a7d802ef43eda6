#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# header.sh INCLUDE_DIRECTORY CC CXX: <tiermesh/dsm.h> compiles alone, as C11 and as C++, without a warning.
set -euo pipefail
warnings=(-Wall -Wextra -Wpedantic -Wconversion -Werror -fsyntax-only)

printf '#include <tiermesh/dsm.h>\nint main(void) { return dsm_node_id(); }\n' |
    "$2" -x c -std=c11 "${warnings[@]}" -Wshadow -Wstrict-prototypes -I "$1" -
printf '#include <tiermesh/dsm.h>\nint main() { return dsm_node_id(); }\n' |
    "$3" -x c++ -std=c++11 "${warnings[@]}" -I "$1" -
echo "header: ok"
