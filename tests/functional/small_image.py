"""A root filesystem with busybox in it and nothing else: what tests of both tiers can share, and small enough for a machine."""
import os
import shutil
import subprocess

import host

# Without /proc, /dev and /sys, as many images are: what a sandbox has there is no change of its files.
FOLDERS = ("bin", "etc", "home/user", "root", "run", "var/tmp", "tmp")


def small_image():
    """Its folder. It stays in the build folder, so that its disk image in the cache is used again; images/ holds nothing else."""
    folder = host.BUILD / "vm" / "images" / "small"
    if (folder / "done").exists() and (folder / "etc/hosts").exists() and not (folder / "proc").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    for d in FOLDERS:
        (folder / d).mkdir(parents=True)
    os.chown(folder / "home/user", 1000, 1000)
    (folder / "tmp").chmod(0o1777)
    (folder / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n")
    # What a sandbox would add otherwise, which is not what these tests look at.
    (folder / "etc/group").write_text("root:x:0:\nuser:x:1000:\n")
    (folder / "etc/hosts").write_text("127.0.0.1 localhost sandbox\n::1 localhost\n")
    (folder / "etc/machine-id").write_text("0" * 32 + "\n")
    busybox = shutil.which("busybox", path="/usr/bin:/bin")
    assert busybox, "busybox-static is not installed"
    shutil.copy(busybox, folder / "bin/busybox")
    for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name != "busybox":
            (folder / "bin" / name).symlink_to("busybox")
    (folder / "done").touch()
    return folder


def machine_image():
    """The same, and the kernel that machines run is there."""
    subprocess.run([host.CLOCHE, "image", "vm-kernel"], check=True, stdout=subprocess.DEVNULL)
    return small_image()
