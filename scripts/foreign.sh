#!/bin/sh
# Downloads Debian packages of another architecture and unpacks them into a folder, without telling the system's dpkg of
# that architecture: apt works on a private state folder, and nothing is installed. A name that begins with a + stands for
# the first package that it depends on (the kernel behind its meta package).
#   scripts/foreign.sh arm64 FOLDER PACKAGE...
set -eu
arch=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
shift 2

# apt drops to a user of its own to download, who must reach the folder.
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
chmod 755 "$state"
mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/debs"
: >"$state/status"
[ "$(id -u)" != 0 ] || chown _apt "$state/lists/partial" "$state/cache/archives/partial" "$state/debs"

# Only Debian's own lists: others rarely carry every architecture.
. /etc/os-release
mirror=$(sed -n 's/^URIs: *\(.*debian\)\/*$/\1/p; s/^deb  *\([^[ ]*debian\)\/*  *.*/\1/p' \
	/etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null | head -n 1)
[ -n "$mirror" ] || {
	echo "foreign.sh: no Debian mirror found below /etc/apt; add one to sources.list" >&2
	exit 1
}
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $VERSION_CODENAME main" >"$state/sources.list"

apt() {
	tool=$1
	shift
	"apt-$tool" -qq -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o Dir::State="$state" \
		-o Dir::State::Lists="$state/lists" -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache" \
		-o Dir::Etc::SourceList="$state/sources.list" -o Dir::Etc::SourceParts=/dev/null "$@"
}
apt get update
names=
for name in "$@"; do
	case $name in
	+*)
		meta=${name#+}
		name=$(apt cache depends "$meta" | sed -n 's/^ *Depends: \([^ <]*\)$/\1/p' | head -n 1)
		[ -n "$name" ] || {
			echo "foreign.sh: apt knows no $meta for $arch" >&2
			exit 1
		} ;;
	esac
	names="$names $name"
done
cd "$state/debs"
# shellcheck disable=SC2086
apt get download $names
for deb in *.deb; do
	dpkg-deb -x "$deb" "$out"
done
