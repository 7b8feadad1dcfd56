#!/bin/sh
# Unpacks what an aarch64 build links with into a folder, without telling the system's dpkg of a foreign architecture:
# apt works on a private state folder, and nothing is installed.
# Also writes the cross file for Meson.
#   scripts/sysroot.sh build-sysroot-arm64
#   meson setup build-aarch64 --cross-file build-sysroot-arm64/cross.ini
set -eu
arch=arm64
out=$1
[ -e "$out/done" ] && exit 0

# apt drops to a user of its own to download, who must reach the folder.
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
chmod 755 "$state"
mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/debs" "$out"
: >"$state/status"
[ "$(id -u)" != 0 ] || chown _apt "$state/lists/partial" "$state/cache/archives/partial" "$state/debs"

# Only Debian's own lists: others rarely carry every architecture.
. /etc/os-release
mirror=$(sed -n 's/^URIs: *\(.*debian\)\/*$/\1/p; s/^deb  *\([^[ ]*debian\)\/*  *.*/\1/p' \
	/etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null | head -n 1)
[ -n "$mirror" ] || {
	echo "sysroot.sh: no Debian mirror found below /etc/apt; add one to sources.list" >&2
	exit 1
}
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $VERSION_CODENAME main" >"$state/sources.list"

apt() {
	apt-get -qq -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o Dir::State="$state" \
		-o Dir::State::Lists="$state/lists" -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" \
		-o Dir::Etc::SourceList="$state/sources.list" -o Dir::Etc::SourceParts=/dev/null "$@"
}
apt update
cd "$state/debs"
apt download musl-dev libseccomp2 libseccomp-dev libjansson4 libjansson-dev
cd - >/dev/null
for deb in "$state"/debs/*.deb; do
	dpkg-deb -x "$deb" "$out"
done
root=$(cd "$out" && pwd)
cat >"$out/cross.ini" <<END
[binaries]
c = 'aarch64-linux-gnu-gcc'
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
exe_wrapper = ['qemu-aarch64', '-L', '/usr/aarch64-linux-gnu']

[properties]
sys_root = '$root'
pkg_config_libdir = '$root/usr/lib/aarch64-linux-gnu/pkgconfig'

[built-in options]
c_args = ['-idirafter', '$root/usr/include']
c_link_args = ['-Wl,-rpath-link,$root/usr/lib/aarch64-linux-gnu']

[project options]
musl_sysroot = '$root'
daemon = false

[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
END
: >"$out/done"
