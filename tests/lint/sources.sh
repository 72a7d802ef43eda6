# SPDX-License-Identifier: Apache-2.0
# Sourced by the lints: what a source file is, and how a finding is told.
# A lint takes the tree to look at as its first argument, so that planted.sh can show it a bad one.

tree=${1:?usage: lint TREE}
cd "$tree"
findings=0

# sources EXTENSION...: the tree's own files, without build directories.
sources() {
    local extension names=()
    for extension in "$@"; do
        names+=(-o -name "*.$extension")
    done
    find . \( -name .git -o -name 'build' -o -name 'build-*' \) -prune -o -type f \( "${names[@]:1}" \) -print |
        sed 's|^\./||' | sort
}

finding() {
    printf '%s\n' "$*"
    findings=$((findings + 1))
}

# finish WHAT: fails when there were findings, and when nothing was looked at.
finish() {
    [ -n "$(sources c h)" ] || finding "$tree holds no source"
    if [ "$findings" -gt 0 ]; then
        printf '%s: %d findings\n' "$1" "$findings"
        exit 1
    fi
    printf '%s: ok\n' "$1"
}
