"""cloche run without root: user namespaces, or a clear word why not."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import host
from host import BUILD, Result, one_line

UID = 64321
LIFTED = ["--memory", "0", "--pids", "0", "--cpus", "0"]
PROGRAMS = ["cloche", "cloche-agent", "cloche-seccomp", "cloche-probe", "cloche-egress"]


@pytest.fixture(scope="module")
def place():
    """The programs in a folder where every user can run them, and a home of the user's own."""
    folder = pathlib.Path("/tmp/cloche-test-rootless")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    folder.chmod(0o755)
    for name in PROGRAMS:
        if (BUILD / name).exists():
            shutil.copy2(BUILD / name, folder / name)
            (folder / name).chmod(0o755)
    (folder / "home").mkdir()
    os.chown(folder / "home", UID, UID)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def user(place):
    def run(*args, **kw):
        kw.setdefault("stdin", subprocess.DEVNULL)
        p = subprocess.run([str(place / "cloche"), "run", *map(str, args)], capture_output=True, timeout=60, user=UID,
                           group=UID, extra_groups=[], cwd="/", env={"HOME": str(place / "home"), "PATH": "/usr/bin:/bin"},
                           **kw)
        return Result(args, p.returncode, p.stdout, p.stderr, 0)
    return run


def test_limits_that_need_cgroups_are_refused_with_the_remedy(user):
    r = user("--", "true")
    line = one_line(r)
    assert "cgroup" in line and "--memory 0 --pids 0 --cpus 0" in line, line
    r = user("--json", "--", "true")
    assert r.code == 125 and r.json["error"]["code"] == "unsupported" and r.json["error"]["remedy"], r


def test_the_doctor_and_a_run_agree_on_every_limit(place, user):
    p = subprocess.run([str(place / "cloche"), "doctor", "--json"], capture_output=True, timeout=60, user=UID, group=UID, extra_groups=[],
                       cwd="/", stdin=subprocess.DEVNULL, env={"HOME": str(place / "home"), "PATH": "/usr/bin:/bin"})
    told = json.loads(p.stdout)["limits"]
    values = {"memory": "64M", "pids": "9", "cpus": "1", "disk": "1M", "nofile": "99", "cpu-time": "9s", "timeout": "9s"}
    for name, value in values.items():
        r = user(*LIFTED, f"--{name}", value, "--", "true")
        assert told[name] if r.code == 0 else not told[name] and "root" in one_line(r), (name, told, r)


def test_without_those_limits_a_sandbox_runs(user):
    r = user(*LIFTED, "--json", "--", "sh", "-c", "id; pwd; touch x /tmp/y && echo made; ls /; cat /proc/1/comm")
    assert r.code == 0 and r.cause == "exited", r
    out = r.json["stdout"]
    assert out.startswith("uid=1000(user) gid=1000(user)") and "/home/user\nmade\n" in out, r
    assert not {"memory", "pids", "cpus", "cgroups"} & set(r.json["enforced"]), r
    assert r.json["enforced"]["network"] == "none"


def test_root_of_somebody_s_namespace_is_that_user(place):
    """unshare -r, a rootless container: it has none of the ids a sandbox of root's gets."""
    p = subprocess.run(["unshare", "-Urm", str(place / "cloche"), "run", *LIFTED, "--json", "--", "id", "-u"], capture_output=True,
                       timeout=60, user=UID, group=UID, extra_groups=[], cwd="/", stdin=subprocess.DEVNULL, env={"HOME": str(place / "home"), "PATH": "/usr/bin:/bin"})
    assert p.returncode == 0, p
    got = json.loads(p.stdout)
    assert got["stdout"] == "1000\n" and "65536" not in got["enforced"]["user"], got


def test_it_gives_no_power_on_the_host(user, place):
    folder = place / "of-root"
    folder.mkdir()
    secret = folder / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    r = user(*LIFTED, "--mount", f"{folder}:/data", "--", "sh", "-c",
             "cat /data/secret; touch /data/x; grep -E 'Cap(Eff|Bnd)|NoNewPrivs|Seccomp:' /proc/self/status")
    assert b"secret" not in r.out and not (folder / "x").exists(), r
    assert r.text.count("0000000000000000") == 2 and "NoNewPrivs:\t1" in r.text and "Seccomp:\t2" in r.text, r


def test_its_files_belong_to_the_caller(user, place):
    folder = place / "home/shared"
    folder.mkdir()
    os.chown(folder, UID, UID)
    r = user(*LIFTED, "--mount", f"{folder}:/data", "--", "sh", "-c", "touch /data/f && stat -c %u:%g /data/f")
    assert (r.code, r.out) == (0, b"1000:1000\n"), r
    info = (folder / "f").stat()
    assert (info.st_uid, info.st_gid) == (UID, UID)


def test_there_is_no_network(user):
    r = user(*LIFTED, "--", "/usr/bin/python3", "-c",
             "import socket; print(socket.if_nameindex())\ntry: socket.create_connection(('1.1.1.1', 53), 2)\n"
             "except OSError as e: print(e.strerror)")
    assert r.out == b"[(1, 'lo')]\nNetwork is unreachable\n", r


def test_streams_and_exit_codes_are_as_ever(user):
    r = user(*LIFTED, "--", "sh", "-c", "cat; echo e >&2; exit 7", stdin=None, input=b"in")
    assert (r.code, r.out, r.err) == (7, b"in", b"e\n"), r
    assert user(*LIFTED, "--", "no-such").code == 127
    assert user(*LIFTED, "--timeout", "200ms", "--", "sleep", "9").code == 124


def test_the_disk_limit_holds(user):
    r = user(*LIFTED, "--json", "--disk", "8M", "--", "sh", "-c", "head -c 100M /dev/zero > x")
    assert r.cause == "disk", r


def test_disk_storage_is_refused_with_a_reason(user):
    r = user(*LIFTED, "--storage", "disk", "--", "true")
    assert r.code == 0 or "root" in one_line(r), r


def test_root_of_the_sandbox_is_possible_or_refused(user):
    r = user(*LIFTED, "--user", "root", "--", "id", "-u")
    assert (r.code, r.out) == (0, b"0\n") or one_line(r), r


def test_the_probes_find_nothing_open(user, place):
    probe = place / "cloche-probe"
    r = user(*LIFTED, "--mount", f"{probe}:/opt/probe:ro", "--", "/opt/probe")
    rows = [line.split("\t") for line in r.text.splitlines()]
    assert len(rows) > 60, r
    # R15 reads the map of ids, where the 0 is root of the namespace in between, which is the caller.
    assert [x for x in rows if x[1] == "open" and x[0] != "R15"] == []


def test_kill_9_leaves_nothing(place):
    for delay in (0.0, 0.002, 0.005, 0.01, 0.02, 0.1):
        p = subprocess.Popen([str(place / "cloche"), "run", *LIFTED, "--", "sleep", "100"], user=UID, group=UID,
                             extra_groups=[], cwd="/", env={"HOME": str(place / "home")}, stdin=subprocess.DEVNULL)
        host.time.sleep(delay)
        p.kill()
        p.wait()


def test_without_user_namespaces_it_says_exactly_why(place):
    """A filter that refuses unshare simulates a host that forbids user namespaces."""
    code = ("import ctypes, os, struct, sys\n"
            "l = ctypes.CDLL(None, use_errno=True)\n"
            "nr = {'x86_64': 272, 'aarch64': 97}[os.uname().machine]\n"
            "prog = b''.join(struct.pack('HBBI', *i) for i in ((0x20, 0, 0, 0), (0x15, 0, 1, nr), (6, 0, 0, 0x50001),"
            " (6, 0, 0, 0x7fff0000)))\n"
            "class F(ctypes.Structure): _fields_ = [('n', ctypes.c_ushort), ('p', ctypes.c_char_p)]\n"
            "assert l.prctl(38, 1, 0, 0, 0) == 0\n"
            "assert l.prctl(22, 2, ctypes.byref(F(4, prog))) == 0\n"
            "os.execv(sys.argv[1], sys.argv[1:])")
    p = subprocess.run([sys.executable, "-c", code, str(place / "cloche"), "run", *LIFTED, "--", "true"],
                       capture_output=True, user=UID, group=UID, extra_groups=[], cwd="/",
                       env={"HOME": str(place / "home")}, stdin=subprocess.DEVNULL)
    line = one_line(Result([], p.returncode, p.stdout, p.stderr, 0))
    assert "user namespace" in line and "sysctl" in line
