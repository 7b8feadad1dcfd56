#!/bin/sh
# Unpacks what an aarch64 build links with into a folder, and writes the cross file for Meson.
#   scripts/sysroot.sh build-sysroot-arm64
#   meson setup build-aarch64 --cross-file build-sysroot-arm64/cross.ini
set -eu
out=$1
# The last two are for a virtual machine (tests/functional/test_vm_arm64.py).
packages='musl-dev libseccomp2 libseccomp-dev libjansson4 libjansson-dev busybox-static +linux-image-cloud-arm64'
[ "$(cat "$out/done" 2>/dev/null)" != "$packages" ] || exit 0

# shellcheck disable=SC2086
"$(dirname "$0")/foreign.sh" arm64 "$out" $packages
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
echo "$packages" >"$out/done"
