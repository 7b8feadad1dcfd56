"""--image DIR: any folder with a root filesystem, honest or hostile."""
import os
import shutil
import stat
import subprocess

import pytest

import host
from host import BUILD, one_line, run, sh


def tree(folder):
    """Everything that can be told of a folder from outside, but access times."""
    found = {}
    for top, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(top, name)
            s = os.lstat(path)
            found[path] = (s.st_mode, s.st_uid, s.st_gid, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
    return found


@pytest.fixture(scope="session")
def busybox():
    """Statically linked, so that an image needs nothing else."""
    for path in ("/bin/busybox", "/usr/bin/busybox"):
        if os.path.exists(path) and b"statically" in subprocess.run(["file", "-L", path], capture_output=True).stdout:
            return path
        if os.path.exists(path) and subprocess.run(["ldd", path], capture_output=True).returncode != 0:
            return path
    pytest.fail("busybox-static is not installed")


@pytest.fixture
def image(tmp_path, busybox):
    """A root filesystem as small as it gets: no /proc, /dev, /tmp, /etc, no home."""
    root = tmp_path / "image"
    (root / "bin").mkdir(parents=True)
    shutil.copy(busybox, root / "bin/busybox")
    for name in ("sh", "ls", "cat", "id", "touch", "mount", "echo", "stat", "rm", "true", "sleep", "pwd", "head", "ps"):
        (root / "bin" / name).symlink_to("busybox")
    return root


def test_a_folder_is_a_root_filesystem(image):
    (image / "etc").mkdir()
    (image / "etc/motd").write_text("hello from the image\n")
    r = sh("cat /etc/motd; id -u; pwd; echo x > file && cat file; ls /usr 2>/dev/null || true", "--image", image)
    assert (r.code, r.out) == (0, b"hello from the image\n1000\n/home/user\nx\n"), r


def test_a_relative_image_is_taken_from_where_we_are(image):
    assert sh("echo ok", "--image", "image", cwd=image.parent).out == b"ok\n"


@pytest.mark.parametrize("user", ["user", "root"])
@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_the_image_on_the_host_is_never_changed(image, user, storage):
    (image / "etc").mkdir()
    (image / "etc/f").write_text("x")
    (image / "d").mkdir(mode=0o777)
    (image / "d").chmod(0o777)
    before = tree(image)
    r = sh("echo y > /etc/f; echo y > /d/new; rm -f /bin/cat; touch /new; rm -rf /etc; echo done", "--image", image,
           "--user", user, "--storage", storage)
    assert r.out.endswith(b"done\n"), r
    assert tree(image) == before


def test_root_can_change_everything_in_its_own_view(image):
    r = sh("rm /bin/cat && echo x > /new && mkdir /new2 && echo y > /etc/f && head -1 /etc/f", "--image", image,
           "--user", "root")
    assert (r.code, r.out) == (0, b"y\n"), r


def test_owners_inside_are_those_of_the_image(image):
    (image / "mine").write_text("x")
    os.chown(image / "mine", 1000, 1000)
    (image / "theirs").write_text("x")
    r = sh("stat -c %u:%g /mine /theirs /bin; echo y > /mine && echo written; echo y > /theirs || echo refused",
           "--image", image)
    assert r.out == b"1000:1000\n0:0\n0:0\nwritten\nrefused\n", r


def test_the_usual_folders_are_there_whatever_the_image_has(image):
    r = sh("ls -d /proc/self /dev/null /tmp /home/user; touch /tmp/x && echo tmp; echo y > /dev/null && echo dev", "--image",
           image)
    assert r.code == 0 and b"dev\n" in r.out, r


def test_an_image_can_be_read_only(image):
    r = sh("touch /x; touch ~/x && echo home; touch /tmp/x && echo tmp", "--image", image, "--read-only", "--user", "root")
    assert r.out == b"home\ntmp\n" and b"Read-only" in r.err, r


def test_limits_show_in_an_image_too(image):
    r = sh("head -1 /proc/meminfo; cat /proc/cpuinfo", "--image", image, "--memory", "64M")
    assert r.text.split()[1] == "65536" and r.text.count("processor\t") == 1, r


def test_nothing_of_the_host_is_in_an_image(image):
    r = sh("ls /; cat /etc/hostname /etc/shadow 2>/dev/null", "--image", image)
    assert set(r.text.split()) <= {"bin", "dev", "home", "proc", "tmp", "sys", "etc", "run", "var", "root", "usr"}, r


def test_two_sandboxes_of_one_image_do_not_see_each_other(image, popen):
    p = popen("--image", image, "--user", "root", "--", "sh", "-c", "echo secret > /shared; echo ready; sleep 5")
    assert p.stdout.readline() == b"ready\n"
    assert sh("cat /shared", "--image", image, "--user", "root").code != 0


def test_devices_and_set_user_id_files_of_an_image_do_nothing(image):
    os.mknod(image / "disk", 0o666 | stat.S_IFBLK, os.makedev(254, 0))
    os.mknod(image / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    (image / "bin/busybox").chmod(0o4755)
    r = sh("id -u; head -c 1 /disk && echo opened; head -c 1 /null && echo opened; grep -s Cap /proc/self/status",
           "--image", image)
    assert r.text.startswith("1000\n") and "opened" not in r.text, r


HOSTILE = {
    "proc is a link to etc": [("proc", "/etc")],
    "proc is a link upwards": [("proc", "../../../../../../etc")],
    "dev is a link to the host's": [("dev", "/dev")],
    "dev is a link to proc": [("dev", "/proc")],
    "sys is a link": [("sys", "/proc/self/root/sys")],
    "tmp is a link to the root": [("tmp", "/")],
    "tmp is a magic link": [("tmp", "/proc/1/root/tmp")],
    "home is a link to etc": [("home", "/etc")],
    "home is a loop": [("home", "/home")],
    "etc is a link to a magic link": [("etc", "/proc/self/fd")],
    "every folder is a link": [(n, "/") for n in ("proc", "dev", "sys", "tmp", "home", "etc", "var", "run", "usr", "root")],
    "every folder is a dead link": [(n, "/nowhere") for n in ("proc", "dev", "sys", "tmp", "home", "etc", "run")],
}


@pytest.mark.parametrize("links", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("user", ["user", "root"])
@pytest.mark.parametrize("options", [[], ["--read-only"]], ids=["", "read-only"])
def test_a_hostile_image_escapes_nowhere_and_hangs_nothing(image, links, user, options, tmp_path):
    canary = tmp_path / "canary"
    canary.write_text("host-canary")
    for name, target in links:
        (image / name).symlink_to(target)
    before, host_etc = tree(image), set(os.listdir("/etc"))
    r = sh(f"echo in; echo x > /tmp/escaped; echo x > /etc/escaped; cat {canary}; ls /proc/1/root/", "--image", image,
           "--user", user, *options, timeout=10)
    assert r.code in (125, 127) and r.err.count(b"\n") == 1 or r.out.startswith(b"in\n"), r
    assert b"host-canary" not in r.out, r
    assert tree(image) == before and set(os.listdir("/etc")) == host_etc
    assert not os.path.exists("/tmp/escaped") and not os.path.exists("/escaped")


FILES = ["proc", "dev", "tmp", "home"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["file", "fifo", "socket"])
def test_an_image_with_something_else_than_a_folder_is_one_line_or_works(image, name, kind):
    path = image / name
    if kind == "file":
        path.write_text("x")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        os.mknod(path, 0o666 | stat.S_IFSOCK)
    r = sh("echo in", "--image", image, timeout=10)
    assert (r.code == 0 and r.out == b"in\n") or one_line(r), r


def test_a_mount_into_a_hostile_image_stays_inside(image, shared):
    (image / "data").symlink_to("/proc/1/root/etc")
    (image / "up").symlink_to("../../../../etc")
    for target in ("/data", "/up", "/data/x", "/up/x"):
        r = sh("echo in", "--image", image, "--mount", f"{shared}:{target}", timeout=10)
        assert r.code in (0, 125), r
    assert os.path.isdir("/etc/apt") or os.path.exists("/etc/passwd")


def test_an_empty_image_has_no_command_to_run(tmp_path):
    (tmp_path / "empty").mkdir()
    one_line(run("--image", tmp_path / "empty", "--", "true"), 127)


def test_a_program_of_another_machine_is_not_executable(image):
    (image / "bin/alien").write_bytes(b"\x7fELF\x02\x01\x01" + b"\xff" * 60)
    (image / "bin/alien").chmod(0o755)
    one_line(run("--image", image, "--", "/bin/alien"), 126)


# --- package managers ---

DEB = {"control": "Package: cloche-hello\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <n@example.org>\n"
                  "Description: says hello\n",
       "postinst": "#!/bin/sh\nset -e\nmkdir -p /var/lib/cloche-hello\nchown daemon:daemon /var/lib/cloche-hello\n"
                   "echo configured > /var/lib/cloche-hello/state\n"}


@pytest.fixture(scope="session")
def deb(tmp_path_factory):
    """A small package with a program, a set-group-id folder and a script that runs as root."""
    folder = tmp_path_factory.mktemp("deb")
    root = folder / "pkg"
    (root / "DEBIAN").mkdir(parents=True)
    for name, text in DEB.items():
        (root / "DEBIAN" / name).write_text(text)
    (root / "DEBIAN/postinst").chmod(0o755)
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/cloche-hello").write_text("#!/bin/sh\necho hello from a package\n")
    (root / "usr/bin/cloche-hello").chmod(0o755)
    (root / "etc").mkdir()
    (root / "etc/cloche-hello.conf").write_text("x=1\n")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", str(root), str(folder / "hello.deb")], check=True,
                   stdout=subprocess.DEVNULL)
    return folder / "hello.deb"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    import zipfile
    path = tmp_path_factory.mktemp("wheel") / "cloche_hello-1.0-py3-none-any.whl"
    info = "cloche_hello-1.0.dist-info/"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("cloche_hello.py", "def hello(): return 'hello from a wheel'\n")
        z.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: cloche-hello\nVersion: 1.0\n")
        z.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(info + "RECORD", "cloche_hello.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n")
    return path


INSTALLED = "&& cloche-hello && cat /var/lib/cloche-hello/state && stat -c %U /var/lib/cloche-hello"


def test_dpkg_installs_as_root_of_the_sandbox(deb):
    r = sh(f"dpkg -i /pkg.deb >/dev/null {INSTALLED} && dpkg -s cloche-hello | grep Status && dpkg -r cloche-hello >/dev/null",
           "--user", "root", "--mount", f"{deb}:/pkg.deb:ro")
    assert r.code == 0 and r.text.splitlines() == ["hello from a package", "configured", "daemon",
                                                   "Status: install ok installed"], r
    assert not os.path.exists("/usr/bin/cloche-hello")


def test_apt_get_installs_a_local_package_as_root_of_the_sandbox(deb):
    r = sh(f"apt-get install -y /tmp/p/hello.deb >/tmp/log 2>&1 {INSTALLED} || cat /tmp/log", "--user", "root",
           "--mount", f"{deb}:/tmp/p/hello.deb:ro")
    assert r.text.splitlines() == ["hello from a package", "configured", "daemon"], r


def test_apt_get_installs_on_disk_storage_too(deb):
    r = sh(f"apt-get install -y /tmp/p/hello.deb >/tmp/log 2>&1 {INSTALLED} || cat /tmp/log", "--user", "root",
           "--mount", f"{deb}:/tmp/p/hello.deb:ro", "--storage", "disk")
    assert r.text.splitlines() == ["hello from a package", "configured", "daemon"], r


def test_root_of_the_sandbox_makes_users_and_becomes_them():
    r = sh("useradd -m bob && su bob -c 'id -un; id -gn' && su - bob -c pwd && runuser -u bob whoami && "
           "su bob -c 'su -c id 2>&1 || echo no'", "--user", "root")
    assert r.text.splitlines()[:4] == ["bob", "bob", "/home/bob", "bob"] and r.text.splitlines()[-1] == "no", r


def pip_there():
    return subprocess.run(["/usr/bin/python3", "-m", "pip", "--version"], capture_output=True).returncode == 0


@pytest.mark.parametrize("user", ["user", "root"])
def test_pip_installs_a_wheel(wheel, user):
    if not pip_there():
        pytest.fail("python3-pip is not installed")
    r = sh(f"/usr/bin/python3 -m pip install --no-index --break-system-packages /w/{wheel.name} >/tmp/log 2>&1 && "
           "/usr/bin/python3 -c 'import cloche_hello; print(cloche_hello.hello())' || cat /tmp/log",
           "--user", user, "--mount", f"{wheel}:/w/{wheel.name}:ro")
    assert r.out == b"hello from a wheel\n", r


@pytest.fixture(scope="session")
def debian():
    """A real Debian, made once and kept with the build."""
    root = BUILD / "test-images/debian"
    if not (root / "usr/bin/dpkg").exists():
        if not shutil.which("mmdebstrap"):
            pytest.fail("mmdebstrap is not installed")
        shutil.rmtree(root, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        log = subprocess.run(["mmdebstrap", "--variant=apt", "--quiet", "bookworm", str(root)],
                             capture_output=True, timeout=180)
        assert log.returncode == 0, log.stderr[-1000:]
    return root


def test_a_real_debian_runs(debian):
    r = sh("cat /etc/debian_version; id; dpkg -l | grep -c ^ii; ls /home/user /tmp", "--image", debian)
    assert r.code == 0 and r.text.startswith("12") and "uid=1000" in r.text, r


def test_packages_install_into_a_real_debian(debian, deb):
    before = tree(debian)
    r = sh(f"apt-get install -y /tmp/p/hello.deb >/tmp/log 2>&1 {INSTALLED} || cat /tmp/log", "--image", debian, "--user",
           "root", "--mount", f"{deb}:/tmp/p/hello.deb:ro")
    assert r.text.splitlines() == ["hello from a package", "configured", "daemon"], r
    r = sh(f"dpkg -i /pkg.deb >/tmp/log 2>&1 {INSTALLED} || cat /tmp/log", "--image", debian, "--user",
           "root", "--mount", f"{deb}:/pkg.deb:ro")
    assert r.text.splitlines() == ["hello from a package", "configured", "daemon"], r
    assert tree(debian) == before


ROOT, USER = "root:x:0:0:root:/root:/bin/sh\n", ":x:1000:1000:user:/home/user:/bin/sh\n"
HOSTS = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.0.1 sandbox\n"


@pytest.mark.parametrize("options", [(), ("--read-only",)], ids=["plain", "read-only"])
@pytest.mark.parametrize("kind", ["none", "empty", "others", "own", "taken", "link", "etc-link", "fifo"])
def test_the_sandboxs_user_is_known_in_every_image(image, kind, options):
    """Whatever its /etc is; and none of it is changed for others."""
    etc = image / "etc"
    names, want = ("user", "user"), None
    if kind != "none":
        etc.mkdir()
    if kind == "empty":
        (etc / "passwd").touch()
    if kind == "others":
        (etc / "passwd").write_text("app:x:7:7::/:/bin/sh")
        (etc / "group").write_text("app:x:7:\n")
        (etc / "hosts").write_text("10.0.0.1 other")
        want = "app:x:7:7::/:/bin/sh\nuser" + USER + "app:x:7:\nuser:x:1000:\n10.0.0.1 other\n" + HOSTS
    if kind == "own":
        (etc / "passwd").write_text("node:x:1000:1000::/home/node:/bin/sh\n")
        (etc / "group").write_text("nodes:x:1000:\n")
        (etc / "hosts").write_text("127.0.0.1 localhost\n127.0.0.1\tsandbox\n")
        names = ("node", "nodes")
        want = "node:x:1000:1000::/home/node:/bin/sh\nnodes:x:1000:\n127.0.0.1 localhost\n127.0.0.1\tsandbox\n"
    if kind == "taken":
        (etc / "passwd").write_text("user:x:7:7::/:/bin/sh\n")
        names = ("sandbox", "user")
        want = "user:x:7:7::/:/bin/sh\nsandbox" + USER + "root:x:0:\nuser:x:1000:\n" + HOSTS
    if kind == "link":
        (image / "lists").mkdir()
        (image / "lists/passwd").write_text(ROOT)
        (etc / "passwd").symlink_to("/lists/passwd")
        (etc / "group").symlink_to("../../../../../../../etc/group-of-nobody")
    if kind == "etc-link":
        etc.rmdir()
        (image / "settings").mkdir()
        etc.symlink_to("settings")
    if kind == "fifo":
        os.mkfifo(etc / "passwd")
    before = tree(image)
    r = sh("echo ok" if kind == "fifo" else "id -un; id -gn; cat /etc/passwd /etc/group /etc/hosts", "--image", image, *options)
    text = r.out.decode()
    assert tree(image) == before
    if kind == "fifo":
        assert r.out == b"ok\n", r  # nothing hangs
        return
    assert text.startswith(f"{names[0]}\n{names[1]}\n"), text
    assert want is None or text == f"{names[0]}\n{names[1]}\n{want}"
    if kind in ("none", "empty", "etc-link"):
        assert text.endswith(ROOT + "user" + USER + "root:x:0:\nuser:x:1000:\n" + HOSTS), text


def test_a_user_by_its_name_in_the_image(image):
    (image / "etc").mkdir()
    (image / "etc/passwd").write_text("app:x:7:8::/srv/app:/bin/sh\n")
    (image / "etc/group").write_text("www:x:33:app\n")
    r = sh("id -u; id -G; echo $HOME $USER > /dev/stderr", "--image", image, "--user", "app")
    assert (r.code, r.out, r.err) == (0, b"7\n8 33\n", b"/srv/app app\n"), r
    assert sh("id -u; id -G", "--image", image, "--user", "app:www").out == b"7\n33\n"
    r = sh("true", "--image", image, "--user", "postgres")
    assert r.code in (125, 126, 127) and b"no such user" in r.err and b"postgres" in r.err, r
    assert sh("whoami; id -gn", "--user", "www-data").out == b"www-data\nwww-data\n"
    r = sh("true", "--user", "app", "--mount", f"{image}:/work", "--image", image)
    assert r.code == 125 and b"UID:GID" in r.err, r
