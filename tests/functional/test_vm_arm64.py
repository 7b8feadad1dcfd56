"""
The VM tier as arm64 has it, on a host of another architecture: cloche-vmm, cloche-guest and cloche-agent are cross-built, the
machine is qemu-system-aarch64, and cloche-vmm itself runs under qemu-aarch64. So what is arm64's own runs as it would there:
QEMU's arguments, the kernel and its modules, PID 1 and the sandbox in it, what is saved and loaded. Here speaks the warden's
part (vm/vmm/side.h). There is no jail around it: qemu-aarch64 knows neither the calls that make one nor a filter.
"""
import array
import fcntl
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import uuid

import pytest

import host

sys.path.insert(0, str(host.ROOT / "scripts"))
from vm_kernel import cpio_entry  # noqa: E402

# As scripts/test.py has made them: part `aarch64`.
CROSS = pathlib.Path(os.environ.get("CLOCHE_AARCH64", host.ROOT / "build-aarch64"))
SYSROOT = pathlib.Path(os.environ.get("CLOCHE_AARCH64_SYSROOT", host.ROOT / "build-sysroot-arm64"))
MEMORY_MIB = 128
DISK = 32 << 20
LONG = 120  # seconds, for anything that is emulated
LOADED, TEMPLATED, UP, SAVED, FAILED = range(32, 37)
START, GO, ATTACH, SAVE = range(1, 5)
COLD, TEMPLATE, CLONE = 1, 2, 3
STAT_FD, META_FD, RAM_FD, INITRD_FD, ROOT_FD = 1, 2, 4, 8, 16
FRESH = 2
NET = 3 << 8  # VM_WAY_*: an open one
EXEC, SYNC, READY, FRAME_UP, EXITED, HELD, SYNCED = 2, 9, 16, 17, 19, 22, 23
KEEP = 4
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

# Its layout is the compiler's to know.
SPEC = r"""
#include <stdio.h>
#include <string.h>
#include "vm/vmm/side.h"
#include "engine/spec.h"
int main(int argc, char **argv)
{
	static struct sandbox_spec s = { .uid = 1000, .gid = 1000, .limits = { .disk = 32 << 20, .pids = 64 } };

	strcpy(s.image, "/image");
	strcpy(s.hostname, "cold");
	strcpy(s.workdir, "/work");
	if (argc > 1 && !strcmp(argv[1], "net")) {
		s.flags = SPEC_NET;
		s.net.mode = STEER_OPEN;
	}
	fwrite(&s, sizeof(s), 1, stdout);
	return sizeof(struct vm_msg) != 264 || VM_SIDE_VERSION != 4;
}
"""

# What cloche-vmm finds around it, as in its jail: the host's programs, and /vm.
AROUND = """
set -e
mount -t tmpfs root "$1"; cd "$1"
mkdir usr etc proc dev tmp vm
for link in bin lib lib64 sbin; do ln -s "usr/$link" "$link"; done
for folder in usr etc proc dev; do mount --rbind "/$folder" "$folder"; done
touch vm/kernel vm/cloche-vmm
mount --bind "$2" vm/kernel; mount --bind "$3" vm/cloche-vmm
exec chroot . /usr/bin/qemu-aarch64 /vm/cloche-vmm
"""


def memfd(name, size=0, data=b""):
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size or len(data))
    if data:
        os.pwrite(fd, data, 0)
    return fd


class Files:
    """What all machines are made of."""

    def __init__(self, folder):
        self.folder = folder
        vm = CROSS / "vm"
        assert (vm / "kernel").exists(), "make test PARTS='aarch64 vm-arm64'"
        self.kernel = vm / "kernel"
        parts = [(vm / "modules.cpio").read_bytes()]
        for name, program in (("init", "cloche-guest"), ("cloche-agent", "cloche-agent"), ("cloche-layers", "cloche-layers")):
            parts.append(cpio_entry(name, 0o100755, (CROSS / program).read_bytes()))
        self.initrd = memfd("initrd", data=b"".join(parts) + cpio_entry("TRAILER!!!", 0))
        tree = folder / "tree"
        for d in ("bin", "etc", "proc", "dev", "sys", "tmp", "run"):
            (tree / d).mkdir(parents=True)
        (tree / "etc/machine-id").write_text("0" * 32 + "\n")
        busybox = next(p for d in ("bin", "usr/bin") if (p := SYSROOT / d / "busybox").exists())
        shutil.copy(busybox, tree / "bin/busybox")
        for name in ("sh", "cat", "uname", "sleep", "hostname"):
            (tree / "bin" / name).symlink_to("busybox")
        subprocess.run(["mkfs.erofs", "--quiet", "-Enoinline_data", folder / "root", tree], check=True,
                       stdout=subprocess.DEVNULL)
        self.root = os.open(folder / "root", os.O_RDONLY)
        (folder / "spec.c").write_text(SPEC)
        subprocess.run(["cc", "-I", host.ROOT / "src", "-o", folder / "spec", folder / "spec.c"], check=True)

    def spec(self, *net):
        return subprocess.run([self.folder / "spec", *net], check=True, capture_output=True).stdout

    def disk(self):
        path = self.folder / f"disk-{uuid.uuid4()}"
        with open(path, "wb") as f:
            f.truncate(DISK)
        subprocess.run(["/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-O", "^has_journal,^resize_inode", "-E",
                        "lazy_itable_init=1,nodiscard,root_owner=0:0", path], check=True)
        return path

    def empty(self):
        """A file for a clone's own disk."""
        return os.open(self.folder / f"top-{uuid.uuid4()}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)


class Vmm:
    """One cloche-vmm, as the warden knows it."""

    def __init__(self, files, role, fds, kinds, disks, spec=b"", flags=0):
        self.side, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.side.settimeout(LONG)
        around = files.folder / f"jail-{uuid.uuid4()}"
        around.mkdir()
        self.log = open(files.folder / f"log-{uuid.uuid4()}", "w+b")
        self.process = subprocess.Popen(
            ["unshare", "-mn", "--propagation", "private", "sh", "-c", AROUND, "sh", around, files.kernel,
             CROSS / "cloche-vmm"], stdin=theirs, stdout=self.log, stderr=self.log)
        theirs.close()
        start = struct.pack("<IIIIQIIII", role, 1, MEMORY_MIB, 1, 0, flags, kinds, len(disks), len(spec)) + bytes(160)
        self.say(START, start, [*fds, *disks], spec)
        self.agent, self.data, self.fds, self.execs = None, b"", [], 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.side.close()
        if self.agent:
            self.agent.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-2000:]

    def say(self, kind, body, fds=(), behind=b""):
        anc = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.side.sendmsg([struct.pack("<II", 4, kind) + body.ljust(256, b"\0") + behind], anc)

    def hear(self, want):
        m = self.side.recv(4096)
        assert len(m) == 264, (len(m), self.process.poll(), self.said())
        version, kind = struct.unpack_from("<II", m)
        text = m[24:].split(b"\0")[0].decode() if kind == FAILED else ""
        assert (version, kind) == (4, want), (kind, text, self.said())
        return m[8:]

    def go(self, hostname=b"", flags=0):
        self.agent, theirs = socket.socketpair()
        self.agent.settimeout(LONG)
        self.say(GO, hostname.ljust(64, b"\0") + os.urandom(48) + struct.pack("<II", flags, 0), [theirs.fileno()])
        theirs.close()
        _, landlock = struct.unpack_from("<II", self.hear(UP))
        assert landlock and self.frame()[0] == READY and self.frame()[0] == FRAME_UP

    def frame(self):
        """-> type, whose, payload. Descriptors that came along are in ->fds."""
        while len(self.data) < 12 or len(self.data) < 12 + struct.unpack_from("<I", self.data, 8)[0]:
            more, fds, _, _ = socket.recv_fds(self.agent, 65536, 8)
            assert more, self.said()
            self.fds += fds
            self.data += more
        _, kind, _, _, number, length = struct.unpack_from("<BBBBII", self.data)
        payload, self.data = self.data[12:12 + length], self.data[12 + length:]
        return kind, number, payload

    def start(self, script, keep=False):
        """-> its number, and where its output comes"""
        def text(s):
            raw = s.encode()
            return struct.pack("<I", len(raw)) + raw + b"\0"
        self.execs += 1
        argv = ["/bin/sh", "-c", script]
        payload = struct.pack("<IIIIIQQ", KEEP if keep else 0, 1000, 1000, 0, 0, 0, 0) + text("/work")
        payload += struct.pack("<II", len(argv), 1) + b"".join(map(text, argv)) + text("PATH=/bin")
        nothing, (reader, writer) = os.open("/dev/null", os.O_RDONLY), os.pipe()
        fds = [nothing, writer, writer, *([reader, reader] if keep else [])]
        socket.send_fds(self.agent, [struct.pack("<BBBBII", 1, EXEC, len(fds), 0, self.execs, len(payload)) + payload], fds)
        os.close(nothing)
        os.close(writer)
        return self.execs, reader

    def run(self, script):
        """-> exit code, output"""
        number, reader = self.start(script)
        return self.exited(number), read_all(reader)

    def exited(self, number):
        of, status = self.exited_any()
        assert of == number
        return status

    def exited_any(self):
        kind, of, payload = self.frame()
        assert kind == EXITED, (kind, of, payload)
        return of, os.waitstatus_to_exitcode(struct.unpack_from("<i", payload)[0])

    def held(self, number):
        """Who comes anew asks what there is. -> where its output comes"""
        self.agent.send(struct.pack("<BBBBII", 1, SYNC, 0, 0, 0, 0))
        kind, of, _ = self.frame()
        assert (kind, of) == (HELD, number), (kind, of)
        assert self.frame()[0] == SYNCED and len(self.fds) == 2
        return self.fds[0]


def read_all(fd):
    out = b""
    while more := os.read(fd, 65536):
        out += more
    os.close(fd)
    return out.decode()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("arm64"))


def test_a_machine_boots_and_runs_a_command(files):
    """With a network: what steers its sandbox's way out are modules."""
    fds = [memfd("stat", 4096), files.initrd, files.root, os.open(files.disk(), os.O_RDWR)]
    with Vmm(files, COLD, fds[:3], STAT_FD | INITRD_FD | ROOT_FD, fds[3:], files.spec("net"), NET) as m:
        m.hear(LOADED)
        m.go()
        assert m.run("uname -m; hostname; exit 3") == (3, "aarch64\ncold\n")
        status = m.run("cat /proc/self/status /etc/resolv.conf")[1].split("\n")
        for line in ("NoNewPrivs:\t1", "Seccomp:\t2", "CapBnd:\t0000000000000000", "nameserver 198.18.0.1"):
            assert line in status, status


def again(fd):
    """The same file, for reading alone: QEMU takes no other as a lower disk."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)


def with_pages(ram, pages):
    """The memory that a checkpoint has: that of its template, and its own pages (vm/vmm/meta.h)."""
    new = memfd("ram", MEMORY_MIB << 20)
    os.sendfile(new, ram, 0, MEMORY_MIB << 20)
    _, size, _, runs, count = struct.unpack("<QIIQQ", os.pread(pages, 32, 0))
    at = 32 + 16 * runs
    for i in range(runs):
        first, n = struct.unpack("<QQ", os.pread(pages, 16, 32 + 16 * i))
        assert os.pwrite(new, os.pread(pages, n * size, at), first * size) == n * size
        at += n * size
    assert at == os.fstat(pages).st_size == 32 + 16 * runs + count * size
    fcntl.fcntl(new, fcntl.F_ADD_SEALS, SEALS)
    return new


def clone(files, meta, ram, disks):
    return Vmm(files, CLONE, [memfd("stat", 4096), meta, ram, files.root], STAT_FD | META_FD | RAM_FD | ROOT_FD, disks)


def test_a_template_is_cloned_and_a_clone_is_saved_and_goes_on_elsewhere(files):
    path = files.disk()
    meta, ram, disk = memfd("meta"), memfd("ram", MEMORY_MIB << 20), os.open(path, os.O_RDWR)
    with Vmm(files, TEMPLATE, [memfd("stat", 4096), meta, ram, files.initrd, files.root],
             STAT_FD | META_FD | RAM_FD | INITRD_FD | ROOT_FD, [disk], files.spec()) as m:
        m.hear(TEMPLATED)
    fcntl.fcntl(ram, fcntl.F_ADD_SEALS, SEALS)
    top, above, saved, pages = files.empty(), files.empty(), memfd("saved"), memfd("pages")
    with clone(files, meta, ram, [again(disk), top]) as m:
        m.hear(LOADED)
        m.go(b"one", FRESH)
        assert m.run("hostname") == (0, "one\n")
        waits = "n=7; echo kept > file; echo ready; until [ -e go ]; do sleep 0.1; done; echo $n; cat file"
        number, reader = m.start(waits, keep=True)
        assert os.read(reader, 64) == b"ready\n"
        m.say(SAVE, struct.pack("<QII", 7, 2, 0), [saved, pages, above])
        answers, pause, count = struct.unpack_from("<QQQ", m.hear(SAVED))
        assert answers == 7 and pause and 0 < count < (MEMORY_MIB << 20) // 4096
        assert m.run("cat file; echo other > file") == (0, "kept\n")
        id_here = m.run("cat /etc/machine-id")
    with clone(files, saved, with_pages(ram, pages), [again(disk), again(top), files.empty()]) as m:
        m.hear(LOADED)
        m.go(b"two", FRESH)
        m.execs = 10
        reader = m.held(number)
        assert m.run("hostname; cat file") == (0, "two\nkept\n")
        assert m.run("cat /etc/machine-id") != id_here
        m.start("> go")
        assert {m.exited_any() for _ in range(2)} == {(number, 0), (m.execs, 0)}
        assert read_all(reader) == "7\nkept\n"
