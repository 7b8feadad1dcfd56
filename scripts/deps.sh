#!/bin/sh
# Installs the Debian packages of the named groups that are missing. Quick when none is.
set -eu

for group in "$@"; do
	case $group in
	build) set -- "$@" meson ninja-build gcc libc6-dev linux-libc-dev musl-dev libseccomp-dev libjansson-dev \
		libuv1-dev libwslay-dev libssl-dev node-llhttp libsqlite3-dev libarchive-dev libcurl4-openssl-dev \
		libc-ares-dev libyaml-dev pkg-config python3 make esbuild ;;
	test) # These may come from elsewhere than Debian.
		PATH=$PATH:/usr/local/go/bin:$HOME/.cargo/bin
		command -v npm >/dev/null || set -- "$@" nodejs npm
		command -v go >/dev/null || set -- "$@" golang-go
		command -v javac >/dev/null || set -- "$@" default-jdk-headless
		command -v cargo >/dev/null || set -- "$@" cargo
		[ "$(sed -n 's/^VERSION_ID="\(.*\)"/\1/p' /etc/os-release)" != 12 ] || set -- "$@" clang-format clang-tidy # see scripts/format.sh, tidy.py
		set -- "$@" ccache python3-pytest python3-jsonschema clang libclang-rt-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross \
		linux-libc-dev-arm64-cross qemu-user qemu-system-x86 qemu-system-arm qemu-utils e2fsprogs bubblewrap \
		git util-linux procps busybox-static mmdebstrap python3-pip python3-venv zsh fish patch curl openssl iproute2 \
		python3-pandas python3-ipykernel python3-jupyter-client python3-matplotlib python3-pil redis-server redis-tools postgresql chromium tmux vim-tiny \
		stress-ng libpython3.11-testsuite umoci buildah podman skopeo docker-registry r-base-core ;;
	vm) # What virtual machines take, with `make vm-kernel`.
		case $(dpkg --print-architecture) in
		arm64) set -- "$@" qemu-system-arm ;;
		*) set -- "$@" qemu-system-x86 ;;
		esac
		set -- "$@" erofs-utils e2fsprogs lz4 xz-utils ;;
	bench) set -- "$@" bubblewrap crun criu mmdebstrap python3 python3-numpy python3-pandas passt slirp4netns iproute2 busybox-static ;;
	images) set -- "$@" buildah podman docker-registry skopeo ;;
	tidy) set -- "$@" clang-tidy clang-format ;;
	demo) set -- "$@" python3 ;;
	*) echo "deps.sh: no group '$group'" >&2; exit 2 ;;
	esac
	shift
done

missing=
for package in "$@"; do
	case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) in
	installed) ;;
	*) missing="$missing $package" ;;
	esac
done
[ -n "$missing" ] || exit 0

sudo=
if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null; then
		echo "deps.sh: missing packages, and neither root nor sudo to install them: apt-get install$missing" >&2
		exit 1
	fi
	sudo="sudo env DEBIAN_FRONTEND=noninteractive" # which sudo would not let through
fi
# shellcheck disable=SC2086
set -- $missing
echo "installing $# Debian packages, which can take minutes:$missing"
export DEBIAN_FRONTEND=noninteractive
export RUNLEVEL=1 # no service is started for a package that tests run by themselves
# shellcheck disable=SC2086
{
	$sudo apt-get install -y --no-install-recommends $missing >/dev/null 2>&1 ||
		{ $sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null; }
} || {
	echo "deps.sh: could not install:$missing" >&2
	exit 1
}
