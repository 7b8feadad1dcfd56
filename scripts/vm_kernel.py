#!/usr/bin/python3
"""
The kernel that virtual machines run: Debian's cloud kernel, downloaded and unpacked, never installed.

As a program (`make vm-kernel`) it fills a folder with `kernel` (what QEMU starts), `modules.cpio` (the first part of the
initramfs: what the guest needs to find its devices) and `release`. cloche adds the second part, its own programs, for
each machine. As a module it is what tests/v2/run shares. With --arch it is the kernel of another architecture than this
host's, for tests.
"""
import argparse
import fcntl
import gzip
import lzma
import os
import re
import shutil
import struct
import subprocess
import sys

ARCH = subprocess.run(['dpkg', '--print-architecture'], capture_output=True, text=True, check=True).stdout.strip()
META = {'amd64': 'linux-image-cloud-amd64', 'arm64': 'linux-image-cloud-arm64'}

# What a machine without PCI needs. A name that is no file is built in, or not of this kernel.
GUEST_MODULES = ['virtio_mmio', 'virtio_console', 'virtio_blk', 'virtio_rng', 'erofs', 'overlay', 'ext4',
                 # for the way out of its sandbox (linux/steer.h)
                 'nf_tables', 'nft_limit', 'nft_reject_inet', 'nft_tproxy', 'inet_diag', 'tcp_diag', 'udp_diag']


def as_root(argv):
    return argv if os.geteuid() == 0 else ['sudo', '-n', *argv]


def apt_unpack(package, into, say=lambda text: None):
    """Downloads a package and unpacks it into a folder that appears only when it is complete."""
    if os.path.isdir(into):
        return
    part = into + '.part'
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    say(f'downloading {package}')
    # apt hands the download to another user where it can; a folder it cannot enter only costs a warning.
    subprocess.run(['apt-get', 'download', '-q', package], cwd=part, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    debs = [f for f in os.listdir(part) if f.endswith('.deb')]
    subprocess.run(['dpkg', '-x', os.path.join(part, debs[0]), part], check=True)
    os.unlink(os.path.join(part, debs[0]))
    os.rename(part, into)


def apt_depends(meta):
    p = subprocess.run(['apt-cache', 'depends', meta], capture_output=True, text=True)
    m = re.search(r'Depends: (linux-image-\S+)', p.stdout)
    return m.group(1) if m else None


def get_kernel(cache, say=lambda text: None):
    """-> as find_kernel(). What is in the cache is used without asking apt."""
    into = os.path.join(cache, 'kernel')
    if not os.path.isdir(into):
        package = apt_depends(META[ARCH])
        if not package:
            subprocess.run(as_root(['apt-get', 'update', '-q']), check=True, stdout=sys.stderr)
            package = apt_depends(META[ARCH])
        if not package:
            sys.exit(f'vm_kernel: apt knows no {META[ARCH]}')
        apt_unpack(package, into, say)
    return find_kernel(into)


def find_kernel(into):
    """-> (vmlinuz, modules folder, release) of a folder that a kernel's package was unpacked into."""
    for top in ('lib/modules', 'usr/lib/modules'):
        folder = os.path.join(into, top)
        if os.path.isdir(folder):
            release = os.listdir(folder)[0]
            return os.path.join(into, 'boot', f'vmlinuz-{release}'), os.path.join(folder, release), release
    sys.exit(f'vm_kernel: {into} holds no kernel; remove it and run again')


def get_foreign(arch, cache, say):
    """The same of another architecture."""
    into = os.path.join(cache, 'kernel')
    if not os.path.isdir(into):
        part = into + '.part'
        shutil.rmtree(part, ignore_errors=True)
        say(f'downloading {META[arch]}')
        subprocess.run([os.path.join(os.path.dirname(os.path.abspath(__file__)), 'foreign.sh'), arch, part, '+' + META[arch]],
                       check=True)
        os.rename(part, into)
    return find_kernel(into)


class Modules:
    """The package has no modules.dep (depmod runs when it is installed), so the order comes from the modules."""

    def __init__(self, folder):
        self.path = {}
        for top, _, files in os.walk(os.path.join(folder, 'kernel')):
            for f in files:
                m = re.match(r'(.*)\.ko(\.xz)?$', f)
                if m:
                    self.path[m.group(1).replace('-', '_')] = os.path.join(top, f)
        self.data = {}
        self.order = []

    def add(self, name):
        name = name.replace('-', '_')
        if name in self.data or name not in self.path:  # not a file: built in, or not in this kernel
            return
        with open(self.path[name], 'rb') as f:
            data = f.read()
        if self.path[name].endswith('.xz'):
            data = lzma.decompress(data)
        self.data[name] = data
        for need in re.findall(rb'\0depends=([^\0]*)\0', data):
            for dep in need.decode().split(','):
                self.add(dep)
        self.order.append(name)


def cpio_entry(name, mode, data=b'', rdev=(0, 0), ino=[0]):
    ino[0] += 1
    raw = name.encode() + b'\0'
    head = '070701' + ''.join(f'{v:08x}' for v in (ino[0], mode, 0, 0, 1, 0, len(data), 0, 0, *rdev, len(raw), 0))
    out = head.encode() + raw
    out += b'\0' * (-len(out) % 4)
    return out + data + b'\0' * (-len(data) % 4)


def modules_cpio(folder):
    mods = Modules(folder)
    for name in GUEST_MODULES:
        mods.add(name)
    parts = [cpio_entry(d, 0o040755) for d in ('dev', 'm')]
    parts.append(cpio_entry('dev/console', 0o020600, rdev=(5, 1)))
    parts += [cpio_entry(f'm/{n}.ko', 0o100644, mods.data[n]) for n in mods.order]
    parts.append(cpio_entry('m/order', 0o100644, ''.join(f'{n}\n' for n in mods.order).encode()))
    parts.append(cpio_entry('TRAILER!!!', 0))
    return b''.join(parts)


def unpack_payload(data):
    """The kernel proper, as its own image has it packed."""
    if data[:4] == b'\x02\x21\x4c\x18':  # the last four bytes are its length
        return subprocess.run(['lz4', '-dcq'], input=data[:-4], capture_output=True, check=True).stdout
    if data[:4] == b'\xfd7zX':
        return lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(data)
    if data[:2] == b'\x1f\x8b':
        return gzip.decompress(data[:-4])
    if data[:4] == b'\x28\xb5\x2f\xfd':
        return subprocess.run(['zstd', '-dcq'], input=data[:-4], capture_output=True, check=True).stdout
    sys.exit('vm_kernel: the kernel is packed in a way unknown here')


def start_image(path, arch):
    """What QEMU starts without firmware: on amd64 the ELF file inside, with its PVH entry; else the file as it is."""
    with open(path, 'rb') as f:
        data = f.read()
    if arch != 'amd64':
        return data
    sectors = data[0x1f1] or 4
    offset, length = struct.unpack_from('<II', data, 0x248)
    begin = (sectors + 1) * 512 + offset
    elf = unpack_payload(data[begin:begin + length])
    if elf[:4] != b'\x7fELF':
        sys.exit('vm_kernel: what the kernel unpacks to is no ELF file')
    return elf


def put(path, data):
    with open(path + '.part', 'wb') as f:
        f.write(data)
    os.chmod(path + '.part', 0o644)
    os.rename(path + '.part', path)


def main():
    args = argparse.ArgumentParser(description='The kernel that virtual machines run.')
    args.add_argument('--arch', default=ARCH, help='of another architecture than this host')
    args.add_argument('--unpacked', help='the folder that its package was unpacked into already')
    args.add_argument('folder')
    args = args.parse_args()
    folder, say = os.path.abspath(args.folder), lambda text: print(f'vm-kernel: {text}', flush=True)
    if args.arch not in META:
        sys.exit(f'vm_kernel: no machine described for {args.arch}')
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, 'lock'), 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path, modules, release = (find_kernel(args.unpacked) if args.unpacked else
                                  get_kernel(folder_cache(folder), say) if args.arch == ARCH else
                                  get_foreign(args.arch, folder_cache(folder), say))
        with open(os.path.abspath(__file__), 'rb') as f:
            want = f'{release} {len(f.read())}\n'
        have = os.path.join(folder, 'release')
        if os.path.exists(have) and open(have).read() == want:
            return
        put(os.path.join(folder, 'kernel'), start_image(path, args.arch))
        put(os.path.join(folder, 'modules.cpio'), modules_cpio(modules))
        put(have, want.encode())
        print(f'vm-kernel: {release} in {folder}')


def folder_cache(folder):
    """Where the package is unpacked: kept, since it is large and the same for all."""
    return os.path.join(folder, 'cache')


if __name__ == '__main__':
    sys.exit(main())
