"""CRIU as a reference: which one works on this kernel, and what a dump and a restore of one process take."""
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time


def works(command):
    try:
        return subprocess.run([*command, "check"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def find(build):
    """Debian 12's own does not know the vdso of newer kernels; then the next release's, below @build."""
    own = shutil.which("criu") or "/usr/sbin/criu"
    if works([own]):
        return [own]
    root = pathlib.Path(build) / "criu-root"
    if not (root / "usr/sbin/criu").exists():
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "--include=criu", "trixie", str(root)], check=True)
    loader = next(iter(sorted(root.glob("usr/lib*/ld-linux-*.so.*")) or sorted(root.glob("usr/lib/*/ld-linux-*.so.*"))))
    libraries = next(root.glob("usr/lib/*-linux-gnu"))
    command = [str(loader), "--library-path", str(libraries), str(root / "usr/sbin/criu")]
    return command if works(command) else None


class Process:
    """A process with its image on tmpfs. The caller is a subreaper, so that restored ones can be waited for."""

    def __init__(self, command, argv, env):
        self.command, self.argv, self.env = command, argv, env
        self.images = pathlib.Path(tempfile.mkdtemp(prefix="cloche-criu-", dir="/dev/shm"))
        self.pid = None

    def __enter__(self):
        read, write = os.pipe()
        p = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.DEVNULL,
                             env=self.env, start_new_session=True)
        os.close(write)
        if os.read(read, 1) != b"r":
            raise RuntimeError(f"{self.argv} did not get ready")
        os.close(read)
        self.pid = p.pid
        return self

    def __exit__(self, *_):
        if self.pid:
            self.end()
        shutil.rmtree(self.images, ignore_errors=True)

    def _run(self, *args):
        start = time.perf_counter()
        p = subprocess.run([*self.command, *args, "-D", str(self.images)], stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        took = time.perf_counter() - start
        if p.returncode:
            raise RuntimeError(f"criu {args[0]}: {p.stdout.decode(errors='replace')[-500:]}")
        return took

    def dump(self):
        """The source continues."""
        for old in self.images.iterdir():
            old.unlink()
        return self._run("dump", "-t", str(self.pid), "--leave-running", "--shell-job")

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def restore(self):
        """The last one must have ended: it gets the same pid."""
        return self._run("restore", "-d", "--shell-job")
