#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh [--check]: fetches the rig's packages and makes of them a QEMU, a kernel and an initial RAM disk in $RIG_OUT.
#
# Needs no root. A stage that is done leaves a file done.STAGE, so a build that was killed goes on where it was. --check
# builds nothing: status 0 when the rig is there, else 1 and the reason.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$rig/packages.sh"

room_mib=900
demo_packages=6000
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
library_folder=x86_64-linux-gnu

case ${1-} in
'') ;;
--check)
    lacks=$(rig_lacks)
    [ -z "$lacks" ] || die 1 "$lacks"
    exit 0
    ;;
*) die 2 "build.sh takes no argument but --check, not $1" ;;
esac

# ---- what must be there --------------------------------------------------------------------------------------------

release=
if [ -r /etc/os-release ]; then
    release=$(. /etc/os-release && echo "${ID:-} ${VERSION_CODENAME:-}")
fi
case $release in
'debian bookworm') suite=bookworm suite_newer=bookworm-backports ;;
'debian trixie') suite=trixie suite_newer=trixie ;;
*) die 77 "the rig is made of the packages of Debian 12 or 13, for programs built there; this is ${release:-neither}" ;;
esac
[ "$(uname -m)" = x86_64 ] || die 77 "the rig's guests are x86-64 machines; this is $(uname -m)"
for tool in apt-get apt-cache dpkg-deb tar awk sha256sum flock; do
    command -v "$tool" >/dev/null || die 77 "$tool is missing; the rig is made of packages that apt fetches"
done
[ -r "$keyring" ] || die 77 "$keyring is missing: apt-get install debian-archive-keyring"

# The mirror this machine uses already; only the user may name another.
mirror=${RIG_MIRROR:-$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' \
    'Component: main' 2>/dev/null | awk -v suite="$suite" '$2 == suite { print $1; exit }')}
[ -n "$mirror" ] || die 77 "apt's sources name no mirror of $suite; RIG_MIRROR=http://... names one for the rig"

mkdir -p "$out" 2>/dev/null && [ -w "$out" ] ||
    die 1 "$out cannot be written; RIG_OUT names another place for the rig"
out=$(cd "$out" && pwd)
exec {lock}>"$out/lock"
if ! flock -n "$lock"; then
    say "waiting for another build in $out"
    flock -w 900 "$lock" || die 1 "another build in $out did not end within 900 s"
fi
[ -n "$(rig_lacks)" ] || exit 0

# ---- stages --------------------------------------------------------------------------------------------------------

# quietly COMMAND...: its output is shown only when it fails.
quietly() {
    "$@" </dev/null >"$out/log" 2>&1 && return 0
    tail -n 12 "$out/log" >&2
    return 1
}

# A private state of apt, without an installed package, so that a closure is complete and the machine's own is not read.
apt_state() {
    local name=$1 state=$out/apt/$1 each
    shift
    mkdir -p "$state"/{lists/partial,cache/archives/partial,etc}
    : >"$state/status"
    for each in "$@"; do
        echo "deb [signed-by=$keyring] $mirror $each main"
    done >"$state/etc/sources.list"
    cat >"$state/apt.conf" <<CONF
Dir::State "$state";
Dir::State::status "$state/status";
Dir::Cache "$state/cache";
Dir::Etc::sourcelist "$state/etc/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Install-Recommends "0";
APT::Architecture "amd64";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "20";
CONF
    apt_in "$name" quietly apt-get -q update --error-on=any ||
        die 77 "the package lists could not be read (above); is there a network, and does it reach apt's mirror?"
}

apt_in() {
    local name=$1
    shift
    APT_CONFIG=$out/apt/$name/apt.conf "$@"
}

# closure STATE RELEASE USELESS PACKAGE...: the names that an installation would bring, less the useless.
closure() {
    local name=$1 target=$2 useless=$3
    shift 3
    apt_in "$name" apt-get -qq -s -t "$target" install "$@" | awk '/^Inst/ { print $2 }' | grep -vE "$useless"
}

download() {
    local name=$1 target=$2 folder=$out/debs/$3
    shift 3
    mkdir -p "$folder"
    cd "$folder"
    apt_in "$name" quietly apt-get -q -t "$target" download "$@" ||
        die 1 "the packages could not be fetched (above)"
    cd "$out"
}

stage_fetch() {
    local image names
    rm -rf apt debs
    apt_state host "$suite" "$suite_newer"
    apt_state guest "$suite"
    # The meta package names the current kernel.
    image=$(apt_in host apt-cache depends "$kernel_package/$suite_newer" |
        awk '/Depends: linux-image-[0-9]/ { print $2; exit }')
    [ -n "$image" ] || die 1 "$mirror has no $kernel_package in $suite_newer"
    download host "$suite_newer" kernel "$image"
    names=$(closure host "$suite_newer" "$host_useless" $host_packages)
    download host "$suite_newer" host $names
    names=$(closure guest "$suite" "$guest_useless" $guest_packages)
    download guest "$suite" guest $names
    # What the demo ranks: the first packages of the release.
    apt_in guest /usr/lib/apt/apt-helper cat-file apt/guest/lists/*_Packages* >packages
    awk -v most="$demo_packages" '{ print } /^$/ && ++stanzas == most { exit }' packages >packages.few
    mv packages.few packages
    rm -rf apt
}

# tree NAME: an empty tree as Debian lays it out today, with the packages of that name in it.
tree() {
    local link deb
    rm -rf "$1"
    mkdir -p "$1"/usr/{bin,sbin,lib,lib64}
    for link in bin sbin lib lib64; do
        ln -s "usr/$link" "$1/$link"
    done
    for deb in debs/"$1"/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -C "$1" -x --keep-directory-symlink --no-same-owner
    done
    rm -rf "$1"/usr/share/{doc,man,locale,info,lintian,bug,bash-completion}
}

stage_host() {
    tree host
    quietly run_program /usr/bin/qemu-system-x86_64 --version || die 1 "QEMU does not start (above)"
}

run_program() { (rig_program "$@"); }

# The modules that are wanted, unpacked here so that the guest, which is slow, need not.
guest_take_modules() {
    local version kmod=$out/host/usr/bin/kmod links module file to
    version=$(basename kernel/lib/modules/*)
    # kmod is what it is called; run from a folder of links.
    links=$out/kmod
    rm -rf "$links"
    mkdir "$links"
    for module in depmod modprobe; do
        printf '#!/usr/bin/env bash\nsource %q\nrig_program_as %q /usr/bin/kmod "$@"\n' "$rig/common.sh" "$module" \
            >"$links/$module"
    done
    chmod +x "$links"/*
    "$links/depmod" -b "$out/kernel" "$version"
    for module in $guest_modules; do
        "$links/modprobe" -d "$out/kernel" -S "$version" --show-depends "$module" ||
            die 1 "the kernel has no module $module"
    done | awk '$1 == "insmod" { print $2 }' | sort -u >"$out/modules"
    while read -r file; do
        to=guest/usr/lib/modules/$version/${file#*/modules/"$version"/}
        mkdir -p "${to%/*}"
        case $file in
        *.xz) run_program /usr/bin/xz -dc "$file" >"${to%.xz}" ;;
        *) cp "$file" "$to" ;;
        esac
    done <"$out/modules"
    cp kernel/lib/modules/"$version"/modules.{order,builtin,builtin.modinfo} "guest/usr/lib/modules/$version/"
    "$links/depmod" -b "$out/guest" "$version"
    rm -rf "$links" modules
}

guest_configure() {
    local applet
    mkdir -p guest/{proc,sys,dev,tmp,run,root,mnt,job,build,source,nvme,etc,var/lib/apt/lists}
    echo 'root:x:0:0:root:/root:/bin/bash' >guest/etc/passwd
    echo 'root:x:0:' >guest/etc/group
    echo /bin/bash >guest/etc/shells
    printf '127.0.0.1 localhost\n10.9.0.1 node1\n10.9.0.2 node2\n' >guest/etc/hosts
    echo 'hosts: files' >guest/etc/nsswitch.conf
    mv packages guest/var/lib/apt/lists/rig_Packages
    # Applets only where there is no real program.
    for applet in $(guest/usr/bin/busybox --list); do
        [ -e "guest/usr/bin/$applet" ] || [ -e "guest/usr/sbin/$applet" ] || ln -s busybox "guest/usr/bin/$applet"
    done
    install -m 755 "$rig/guest/init.sh" guest/init
    PATH=$PATH:/sbin:/usr/sbin ldconfig -r guest
}

stage_guest() {
    rm -rf kernel
    mkdir kernel
    dpkg-deb -x debs/kernel/linux-image-*.deb kernel
    cp kernel/boot/vmlinuz-* vmlinuz
    tree guest
    rm -rf guest/usr/share/{perl5,zoneinfo,misc} guest/usr/lib/{locale,systemd,udev} \
        guest/usr/lib/$library_folder/{gconv,audit} guest/usr/lib/$library_folder/perl*
    guest_take_modules
    guest_configure
}

# Not compressed: the guest copies pages instead of running a decompressor under emulation.
stage_image() {
    (cd guest && find . -print0 | LC_ALL=C sort -z |
        rig_program /usr/bin/cpio -0 -o -H newc --owner 0:0 --quiet) >initrd.new
    mv initrd.new initrd
}

# KVM may be there and still not run a guest, so one is booted.
stage_boot() {
    local accel tried
    for accel in kvm tcg; do
        if [ "$accel" = kvm ] && [ ! -w /dev/kvm ]; then
            continue
        fi
        echo "$accel" >accel
        tried=$SECONDS
        if RIG_BUILDING=yes RIG_OUT=$out quietly "$rig/boot.sh" -t 60 --accel "$accel" -- true; then
            say "a guest boots and is off again in $((SECONDS - tried)) s ($accel)"
            return 0
        fi
    done
    die 1 "no guest boots (above)"
}

# stage NAME: once, also when the build is run again.
stage() {
    local started=$SECONDS
    [ ! -e "done.$1" ] || return 0
    "stage_$1"
    sync -f "$out"
    touch "done.$1"
    say "$1: $((SECONDS - started)) s"
}

cd "$out"
free_mib=$(df -Pm . | awk 'NR == 2 { print $4 }')
if [ ! -e done.guest ] && [ "$free_mib" -lt "$room_mib" ]; then
    die 77 "$out has room for $free_mib MiB and $room_mib are needed; RIG_OUT names another place"
fi
if [ "$(cat recipe 2>/dev/null || true)" != "$(rig_recipe)" ]; then
    rm -f done.* stamp
    rig_recipe >recipe
fi
say "building in $out"
for name in fetch host guest image boot; do
    stage "$name"
done
rig_recipe >stamp
rm -rf debs kernel guest packages log recipe done.*
echo "$SECONDS" >seconds
say "ready after $SECONDS s, $(du -sm . | cut -f 1) MiB"
