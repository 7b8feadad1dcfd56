"""Every probe, in real sandboxes: as user and root, in the host's image and in a folder, as first command and later.

The probes are cloche-probe and, where ../shared/security (or CLOCHE_PROBES) has one, a second set written apart from
this code. A probe that cannot be run proves nothing: "not applicable" is a failure, too.
"""
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import uuid

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "functional"))
import host  # noqa: E402
from host import BUILD, CLOCHE, ROOT, run  # noqa: E402

PROBE = BUILD / "cloche-probe"
OTHERS = pathlib.Path(os.environ.get("CLOCHE_PROBES") or ROOT.parent / "shared/security")
MEMORY, PIDS = 96, 64  # MiB, processes: bombs go to twice of it

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    host.become_subreaper()
    watch = host.Watch()
    yield
    # This part does not have /tmp for itself, and others may mount things meanwhile.
    left = {x for x in watch.left() if x.startswith(("cgroup", "process", "loop"))}
    assert not left, "left behind:\n" + "\n".join(sorted(left))


@pytest.fixture(scope="module", autouse=True)
def own_cgroups():
    groups = host.PrivateCgroups()
    yield
    groups.done()


@pytest.fixture(scope="module")
def canary(tmp_path_factory):
    """A file that only the host has, readable for all, so that nothing but the sandbox protects it."""
    text = "canary-" + uuid.uuid4().hex
    path = pathlib.Path("/var/tmp") / ("cloche-" + text)
    path.write_text(text)
    path.chmod(0o644)
    yield str(path), text
    path.unlink()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Mounted read-only: a probe tries to change it."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "file").write_text("x")
    folder.chmod(0o777)
    (folder / "file").chmod(0o666)
    return folder


@pytest.fixture(scope="module")
def listeners():
    """What listens on the host: a port and an abstract socket."""
    name = "cloche-test-" + uuid.uuid4().hex[:8]
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as abstract:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        abstract.bind("\0" + name)
        abstract.listen()
        yield str(tcp.getsockname()[1]), name


@pytest.fixture(scope="module")
def folder_image(tmp_path_factory):
    """A root filesystem with nothing but busybox."""
    busybox = next((p for p in ("/bin/busybox", "/usr/bin/busybox") if os.path.exists(p)), None)
    assert busybox and subprocess.run(["ldd", busybox], capture_output=True).returncode != 0, "needs busybox-static"
    root = tmp_path_factory.mktemp("image")
    root.chmod(0o755)
    (root / "bin").mkdir()
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    shutil.copy(busybox, root / "bin/busybox")
    for name in ("sh", "true"):
        (root / "bin" / name).symlink_to("busybox")
    return root


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    """The other set of probes, compiled."""
    source = OTHERS / "probe_p.c"
    program = tmp_path_factory.mktemp("probe_p") / "probe_p"
    subprocess.run(["gcc", "-O1", "-static", "-w", "-o", str(program), str(source)], check=True)
    return program


WAYS = [(user, image, later) for user in ("user", "root") for image in ("host", "folder") for later in (False, True)]
NAMES = [f"{user}-{image}{'-later' if later else ''}" for user, image, later in WAYS]


def inside(program, args, user, image, later, folder_image, *options):
    """Runs it as the first process of the sandbox, or by one that has run others before."""
    command = ["/opt/probe", *args]
    if later:
        command = ["sh", "-c", 'true; (true & wait); "$@"; exit $?', "sh", *command]
    return run("--user", user, "--image", "host" if image == "host" else folder_image, "--mount",
               f"{program}:/opt/probe:ro", "--memory", f"{MEMORY}M", "--pids", PIDS, "--output-limit", "0", *options, "--",
               *command, timeout=180)


@pytest.mark.parametrize("user, image, later", WAYS, ids=NAMES)
def test_every_probe_of_ours_is_closed(user, image, later, folder_image, canary, shared, listeners):
    r = inside(PROBE, ["--canary", *canary, "--ro", "/ro", "--port", listeners[0], "--abstract", listeners[1]], user, image,
               later, folder_image, "--mount", f"{shared}:/ro:ro")
    rows = {x[0]: x[1:] for x in (line.split("\t") for line in r.text.splitlines())}
    assert len(rows) >= 80, r
    assert {i: x for i, x in rows.items() if x[0] not in ("closed", "info")} == {}
    assert r.code == 0, r


@pytest.mark.parametrize("user, image, storage", [("user", "host", "memory"), ("root", "host", "disk"),
                                                  ("user", "folder", "disk"), ("root", "folder", "memory")])
def test_every_bomb_of_ours_is_stopped(user, image, storage, folder_image):
    """One sandbox each: what a bomb leaves of a sandbox is its own business."""
    listed = subprocess.run([PROBE, "--list"], capture_output=True, text=True, check=True).stdout
    bombs = [line.split("\t")[0] for line in listed.splitlines() if line.startswith("B")]
    assert len(bombs) >= 10
    for bomb in bombs:
        r = inside(PROBE, ["--bombs", "--mib", str(2 * MEMORY), "--pids", str(2 * PIDS), bomb], user, image, False,
                   folder_image, "--storage", storage, "--disk", "64M", "--inodes", "4096", "--timeout", "60s", "--output-limit",
                   "1M", *(["--cpu-time", "1s"] if bomb == "B09" else []))
        rows = [line.split("\t") for line in r.text.splitlines()]
        if bomb == "B10":  # a flood of output is stopped outside, where it cannot see it
            assert b"cloche: output: " in r.err and len(r.err) < 1100000, bomb
        else:
            assert [x[1] for x in rows] == ["closed"] or r.code == 137, (bomb, r)


def rows_of(r):
    return {m[0]: (m[1], m[2]) for m in re.findall(r"^([PB]\d+) \S+ +(\w+) *(.*)$", r.text, re.M)}


if (OTHERS / "probe_p.c").exists():
    @pytest.mark.parametrize("user, image, later", WAYS, ids=NAMES)
    def test_every_probe_of_the_second_set_is_closed(user, image, later, folder_image, canary, second):
        r = inside(second, ["--canary", *canary], user, image, later, folder_image)
        rows = rows_of(r)
        assert len(rows) == 28, r
        assert {i: x for i, x in rows.items() if x[0] not in ("CLOSED", "INFO")} == {}
        assert {i for i, x in rows.items() if x[0] == "INFO"} <= {"P26", "P27"}
        assert r.code == 0, r

    @pytest.mark.parametrize("user", ["user", "root"])
    @pytest.mark.parametrize("image", ["host", "folder"])
    def test_every_bomb_of_the_second_set_is_stopped(user, image, folder_image, second):
        r = inside(second, ["B"], user, image, False, folder_image, "--env", f"SBX_MB={2 * MEMORY}", "--env",
                   f"SBX_PIDS={2 * PIDS}", "--inodes", "8192")
        assert {i: x[0] for i, x in rows_of(r).items()} == dict.fromkeys(["B1", "B2", "B3", "B4", "B5"], "CLOSED"), r


def test_a_host_s_neighbour_does_not_notice_the_bombs(folder_image):
    """While a sandbox forks, allocates and writes as it can, another one starts and works."""
    p = host.start("--timeout", "3s", "--memory", "64M", "--pids", "64", "--", "sh", "-c",
                   "f() { f | f & }; f; while :; do head -c 60M /dev/zero > /tmp/x; done", stdin=subprocess.DEVNULL)
    try:
        for _ in range(10):
            r = run("--", "echo", "fine")
            assert (r.code, r.out) == (0, b"fine\n") and r.wall < 2, r
    finally:
        host.end(p)


def test_the_doctor_finds_this_host_fit():
    r = subprocess.run([CLOCHE, "doctor"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 0 and r.stdout.count("\n") > 10, r


def test_the_doctor_s_attack_finds_nothing_open():
    r = subprocess.run([CLOCHE, "doctor", "--attack"], capture_output=True, text=True, timeout=300)
    assert r.returncode == 0, r
    assert not re.search(r"\bopen\b(?!.*0)", r.stdout.splitlines()[-1]), r.stdout[-500:]
    for ident in ("K01", "N08", "F12", "R01", "L03", "B01"):
        assert ident in r.stdout, ident
