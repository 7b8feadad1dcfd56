"""The file system inside: what can be written, mounts of the host, the work folder."""
import os
import stat
import subprocess

import pytest

from host import one_line, run, sh

MIB = 1 << 20


def test_what_is_written_is_gone_with_the_sandbox():
    assert sh("echo x > ~/mine; echo x > /tmp/mine; ls ~ /tmp").out != b""
    assert sh("ls -A ~ /tmp").out == b"/home/user:\n\n/tmp:\n"


def test_the_default_user_cannot_write_the_system():
    r = sh("for d in / /usr /usr/bin /etc /var /root /proc /dev /sys; do touch $d/x 2>/dev/null && echo $d; done")
    assert r.out == b"", r


def test_root_can_change_the_system_of_the_sandbox_only():
    name = "/usr/bin/cloche-was-here"
    r = sh(f"echo x > {name}; echo y >> /etc/passwd; rm -rf /usr/share/doc; ls {name}; tail -1 /etc/passwd", "--user", "root")
    assert r.out == f"{name}\ny\n".encode(), r
    assert not os.path.exists(name) and os.path.exists("/usr/share/doc")
    assert not open("/etc/passwd", encoding="utf-8").read().endswith("y\n")


@pytest.mark.parametrize("user", ["user", "root"])
def test_read_only_leaves_the_work_folder_and_tmp_writable(user):
    r = sh("for d in / /usr /etc /var /home /opt; do touch $d/x 2>&1 | grep -o 'Read-only\\|denied'; done | sort -u; "
           "touch x /tmp/x /dev/shm/x && echo fine", "--read-only", "--user", user)
    assert r.out.endswith(b"fine\n"), r
    assert user == "user" or r.out == b"Read-only\nfine\n", r


def test_read_only_with_a_work_folder_of_one_s_own():
    r = sh("pwd; touch x && echo fine; touch /opt/x || echo no", "--read-only", "--workdir", "/work/deep", "--user", "root")
    assert r.out == b"/work/deep\nfine\nno\n", r


def test_a_work_folder_is_made_when_missing_and_belongs_to_the_user():
    r = sh("pwd; stat -c %u:%g .; touch x && echo fine", "--workdir", "/srv/a/b c")
    assert r.out == b"/srv/a/b c\n1000:1000\nfine\n", r


def test_a_work_folder_that_is_there_is_left_as_it_is():
    r = sh("pwd; stat -c %u /usr/bin; touch x || echo no", "--workdir", "/usr/bin")
    assert r.out == b"/usr/bin\n0\nno\n", r


def test_a_file_as_the_work_folder_is_one_line():
    one_line(run("--workdir", "/etc/passwd", "--", "true"))
    one_line(run("--workdir", "/etc/passwd/x", "--", "true"))


def test_more_memory_can_be_mounted_with_a_size():
    r = sh("df -B1 --output=size /data | tail -1; df -B1 --output=size /more | tail -1; touch /data/x && echo fine;"
           "head -c 8M /dev/zero > /data/y || echo full", "--tmpfs", "/data:size=4M", "--tmpfs", "/more")
    size, more, *rest = r.text.split()
    assert int(size) == 4 * MIB and int(more) == 64 * MIB and rest == ["fine", "full"], r


def test_a_mounted_tmpfs_stays_writable_when_the_root_is_read_only():
    assert sh("touch /data/x && echo fine", "--read-only", "--tmpfs", "/data:size=1M").out == b"fine\n"


def test_a_mounted_folder_shows_the_host_s_files(shared):
    (shared / "in").write_text("from the host")
    r = sh("cat /data/in; mkdir /data/sub; echo from inside > /data/sub/out; stat -c %u:%g /data /data/in /data/sub",
           "--mount", f"{shared}:/data")
    assert r.code == 0, r
    assert (shared / "sub/out").read_text() == "from inside\n"


def test_files_made_inside_belong_to_the_folder_s_owner(shared):
    r = sh("stat -c %u:%g /data; echo x > /data/file; mkdir /data/dir; ln -s file /data/link; stat -c %u:%g /data/file",
           "--mount", f"{shared}:/data")
    assert (r.code, r.out) == (0, b"1000:1000\n1000:1000\n"), r
    for name in ("file", "dir", "link"):
        info = (shared / name).lstat()
        assert (info.st_uid, info.st_gid) == (1234, 1234), name


def test_files_of_the_folder_s_owner_can_be_changed(shared):
    file = shared / "file"
    file.write_text("old")
    os.chown(file, 1234, 1234)
    file.chmod(0o600)
    r = sh("cat /data/file; echo new > /data/file; rm /data/file; echo newer > /data/file", "--mount", f"{shared}:/data")
    assert (r.code, r.out) == (0, b"old"), r
    assert file.read_text() == "newer\n"


@pytest.mark.parametrize("user", ["user", "root"])
def test_files_of_others_cannot_be_changed(shared, user):
    file = shared / "root-owned"
    file.write_text("secret")
    file.chmod(0o600)
    r = sh("cat /data/root-owned; echo x > /data/root-owned; chown 0:0 /data/root-owned; chmod 666 /data/root-owned;"
           "chown 1000 /data; stat -c %U /data/root-owned", "--mount", f"{shared}:/data", "--user", user)
    assert file.read_text() == "secret" and b"secret" not in r.out, r
    info = file.stat()
    assert (info.st_uid, stat.S_IMODE(info.st_mode)) == (0, 0o600)
    assert shared.stat().st_uid == 1234


def test_root_of_a_sandbox_makes_no_root_files_on_the_host(shared):
    r = sh("echo x > /data/f; cp /bin/sh /data/sh; chmod 6755 /data/sh; chown 0:0 /data/f; mknod /data/dev c 1 3;"
           " ls -ln /data", "--mount", f"{shared}:/data", "--user", "root")
    for path in shared.iterdir():
        info = path.lstat()
        assert info.st_uid == 1234, (path, r)
        assert not stat.S_ISCHR(info.st_mode) and not stat.S_ISBLK(info.st_mode), path


def test_set_user_id_files_of_a_mounted_folder_do_nothing(shared):
    prog = shared / "sh"
    prog.write_bytes(open("/bin/sh", "rb").read())
    prog.chmod(0o4755)
    assert sh("/data/sh -p -c 'id -u'", "--mount", f"{shared}:/data").text.strip() == "1000"


@pytest.mark.parametrize("user", ["user", "root"])
def test_a_read_only_mount_cannot_be_written(shared, user):
    (shared / "f").write_text("x")
    os.chown(shared / "f", 1234, 1234)
    r = sh("cat /data/f; echo y > /data/f; touch /data/g; rm /data/f; chmod 777 /data; ls /data",
           "--mount", f"{shared}:/data:ro", "--user", user)
    assert r.out == b"xf\n" and b"Read-only" in r.err, r
    assert sorted(p.name for p in shared.iterdir()) == ["f"]


def test_a_file_can_be_mounted(shared):
    file = shared / "config"
    file.write_text("a=1\n")
    os.chown(file, 1234, 1234)
    r = sh("cat /opt/new/config; echo b=2 >> /opt/new/config; cat /etc/hosts",
           "--mount", f"{file}:/opt/new/config", "--mount", f"{file}:/etc/hosts:ro")
    assert r.code == 0 and r.text.startswith("a=1\na=1\nb=2\n"), r
    assert file.read_text() == "a=1\nb=2\n"


def test_a_relative_source_is_taken_from_where_we_are(shared):
    (shared / "f").write_text("here")
    assert sh("cat /data/f", "--mount", "shared:/data", cwd=shared.parent).out == b"here"
    assert sh("cat /data/f", "--mount", ".:/data", cwd=shared).out == b"here"


def test_a_mount_can_be_the_work_folder(shared):
    r = sh("pwd; touch made", "--mount", f"{shared}:/work", "--workdir", "/work")
    assert (r.code, r.out) == (0, b"/work\n"), r
    assert (shared / "made").stat().st_uid == 1234


def test_mounts_can_stand_in_mounts(shared, tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "x").write_text("inner")
    (shared / "sub").mkdir()
    assert sh("cat /a/sub/x", "--mount", f"{shared}:/a", "--mount", f"{inner}:/a/sub:ro").out == b"inner"


def test_a_symbolic_link_in_a_mounted_folder_leads_nowhere_outside(shared):
    (shared / "link").symlink_to("/etc/hostname-of-nobody")
    (shared / "up").symlink_to("../../../../../../root")
    r = sh("cat /data/link; ls /data/up/", "--mount", f"{shared}:/data")
    assert r.code != 0 and r.out == b"", r


def test_host_mounts_below_a_source_do_not_come_along(tmp_path):
    """What is mounted below on the host was not asked for."""
    r = sh("ls /data/proc /data/sys | head -3", "--mount", "/:/data:ro", "--user", "root")
    assert r.out.replace(b"/data/proc:\n", b"").replace(b"\n/data/sys:\n", b"").strip() == b"", r


def test_devices_on_a_mounted_folder_cannot_be_opened(tmp_path):
    folder = tmp_path / "dev"
    folder.mkdir()
    os.mknod(folder / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    r = sh("cat /data/null && echo opened", "--mount", f"{folder}:/data", "--user", "root")
    assert r.out == b"" and b"ermission denied" in r.err, r


def test_dev_holds_only_what_is_harmless():
    r = sh("ls /dev | sort; echo x > /dev/null; head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c;"
           "echo x > /dev/full || echo full")
    have = set(r.text.split())
    assert {"null", "zero", "full", "random", "urandom", "tty", "pts", "ptmx", "shm", "fd", "stdin", "4"} <= have, r
    assert not {"kmsg", "mem", "kvm", "fuse", "loop-control", "vda", "sda", "vsock", "console"} & have, r


@pytest.mark.parametrize("user", ["user", "root"])
def test_a_writable_mount_takes_no_set_id_file_and_no_file_capability(tmp_path, user):
    folder = tmp_path / "given"
    folder.mkdir()
    code = (
        "import ctypes, os, shutil\n"
        "shutil.copy('/bin/true', '/data/t')\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def refused(name, f):\n"
        "    try: f()\n"
        "    except OSError: return\n"
        "    print('not refused:', name)\n"
        "refused('chmod', lambda: os.chmod('/data/t', 0o4755))\n"
        "refused('setgid', lambda: os.chmod('/data/t', 0o2755))\n"
        "fd = os.open('/data/t', os.O_RDONLY)\n"
        "refused('fchmod', lambda: os.fchmod(fd, 0o6755))\n"
        "refused('open', lambda: os.open('/data/new', os.O_CREAT | os.O_WRONLY, 0o4755))\n"
        "refused('mknod', lambda: os.mknod('/data/node', 0o104755))\n"
        "refused('capability', lambda: os.setxattr('/data/t', 'security.capability',\n"
        "        bytes.fromhex('0100000200002000000000000000000000000000')))\n"
        "if libc.syscall(452, -100, b'/data/t', 0o4755, 0) == 0: print('not refused: fchmodat2')\n"
        "os.chmod('/data/t', 0o755)\n"
    )
    result = run("--user", user, "--mount", f"{folder}:/data", "--", "python3", "-c", code)
    assert result.code == 0 and result.out == b"", result
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o6000 == 0, path
        assert os.listxattr(path) == [], path


def test_without_a_writable_mount_packages_may_set_the_bits():
    assert run("--user", "root", "--", "sh", "-c", "cp /bin/true /tmp/t && chmod 4755 /tmp/t && test -u /tmp/t").code == 0


def test_an_image_without_tmp_gets_one(tmp_path):
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    subprocess.run(["cp", "/bin/busybox", str(root / "bin/sh")], check=True)
    assert run("--image", str(root), "--", "/bin/sh", "-c", "echo x > /tmp/x").code == 0
