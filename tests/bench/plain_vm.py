"""A machine booted in the usual way: the same kernel, plain QEMU, a first program that says it is there."""
import contextlib
import ctypes
import mmap
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import vm_kernel  # noqa: E402

INIT = b"""#!/bin/busybox sh
/bin/busybox mkdir /proc
/bin/busybox mount -t proc proc /proc
for m in $(/bin/busybox cat /m/order); do /bin/busybox insmod /m/$m.ko; done
/bin/busybox echo up
/bin/busybox poweroff -f
"""
LINE = "quiet loglevel=1 panic=-1 reboot=t rdinit=/init random.trust_cpu=on cryptomgr.notests audit=0 mitigations=off"


def counter_khz():
    """How fast this processor counts: a guest without a clock beside it cannot measure that on a busy host."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\x0f\x31\x48\xc1\xe2\x20\x48\x09\xd0\xc3")  # rdtsc; shl rdx, 32; or rax, rdx; ret
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    start, first = time.perf_counter_ns(), read()
    time.sleep(0.05)
    return int((read() - first) * 1e6 / (time.perf_counter_ns() - start))


class Plain:
    def __init__(self, build, memory):
        self.folder = tempfile.mkdtemp(prefix="cloche-bench-vm-", dir="/var/tmp")
        busybox = shutil.which("busybox", path="/usr/bin:/bin")
        entry = vm_kernel.cpio_entry
        parts = [entry("bin", 0o040755), entry("bin/busybox", 0o100755, pathlib.Path(busybox).read_bytes()),
                 entry("init", 0o100755, INIT), entry("TRAILER!!!", 0)]
        initrd = os.path.join(self.folder, "initrd")
        pathlib.Path(initrd).write_bytes((build / "vm/modules.cpio").read_bytes() + b"".join(parts))
        if vm_kernel.ARCH == "amd64":
            machine = ["qemu-system-x86_64", "-M", "microvm,acpi=on,pit=on,pic=on,rtc=on,isa-serial=on", "-cpu", "Nehalem-v1"]
            line = f"console=ttyS0 no_timer_check tsc=reliable tsc_early_khz={counter_khz()} {LINE}"
        else:
            machine = ["qemu-system-aarch64", "-M", "virt,gic-version=3,its=off", "-cpu", "cortex-a57"]
            line = f"console=ttyAMA0 {LINE}"
        self.argv = [*machine, "-accel", "tcg", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", f"{memory}M", "-serial", "stdio",
                     "-kernel", str(build / "vm/kernel"), "-initrd", initrd, "-append", line]

    def boot(self):
        """Seconds until the first program has spoken."""
        start = time.perf_counter()
        with subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as p:
            try:
                for line in p.stdout:
                    if line.strip() == b"up":
                        return time.perf_counter() - start
            finally:
                p.kill()
        raise RuntimeError(f"plain QEMU did not boot: {' '.join(self.argv)}")

    def done(self):
        with contextlib.suppress(OSError):
            shutil.rmtree(self.folder)
