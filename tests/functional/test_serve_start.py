"""`cloche serve`: how it starts and ends, what it prints, what it refuses."""
import hashlib
import http.client
import json
import os
import pathlib
import re
import resource
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

import pytest

import host

PATIENCE = 20


class Daemon:
    """One `cloche serve`; `lines` is what it printed until it served."""

    def __init__(self, *args, data, wait=True, argv=None, **kw):
        self.data = pathlib.Path(data)
        self.p = subprocess.Popen(argv or [str(host.CLOCHE), "serve", "--data", str(data), *map(str, args)],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
        self.lines = []
        if wait:
            self.wait_ready()

    def wait_ready(self):
        os.set_blocking(self.p.stdout.fileno(), False)
        text, end = b"", time.monotonic() + PATIENCE
        while b" serving on " not in text or not text.endswith(b"\n"):
            ready, _, _ = select.select([self.p.stdout], [], [], max(0, end - time.monotonic()))
            assert ready, f"it did not serve within {PATIENCE} s: {text!r}"
            more = os.read(self.p.stdout.fileno(), 65536)
            assert more, f"it ended: {text!r} {self.p.stderr.read()!r}"
            text += more
        self.lines = text.decode().splitlines()

    @property
    def url(self):
        return re.search(r"serving on (\S+)", self.lines[0]).group(1)

    @property
    def token(self):
        return self.lines[1].removeprefix("token: ")

    def connect(self):
        return http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=PATIENCE)

    def call(self, method, path, token=None, body=None):
        c = self.connect()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        c.request(method, path, json.dumps(body) if body is not None else None, headers)
        r = c.getresponse()
        return r.status, r.read()

    def child(self, name):
        for pid in host.children(self.p.pid):
            try:
                if pathlib.Path("/proc", str(pid), "comm").read_text().strip() == name:
                    return pid
            except OSError:
                pass  # it has ended meanwhile
        return 0

    @property
    def api(self):
        return host.wait_for(lambda: self.child("cloche-serve"), what="the API process")

    @property
    def warden(self):
        return host.wait_for(lambda: self.child("cloche-warden"), what="the warden")

    def stop(self, sig=signal.SIGTERM):
        self.p.send_signal(sig)
        return self.p.wait(PATIENCE)


def gone(pid):
    """Orphans become ours (we are a subreaper), so a dead one is there until it is waited for."""
    try:
        return pathlib.Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def state_folder(data):
    return pathlib.Path("/run/cloche/w-" + hashlib.sha256(str(data).encode()).hexdigest()[:16])


@pytest.fixture
def place():
    """A folder that the API's user can get to, for data and others."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cloche-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(state_folder(folder / "data"), ignore_errors=True)
    shutil.rmtree(folder)


@pytest.fixture
def serve(place):
    started = []

    def serve(*args, **kw):
        kw.setdefault("data", place / "data")
        if not any(str(a).startswith("--listen") for a in args):
            args = ("--listen", "127.0.0.1:0", *args)
        started.append(Daemon("--pool", 1, *args, **kw))
        return started[-1]

    yield serve
    for d in started:
        if d.p.poll() is None:
            d.stop()
        d.p.stdout.close()
        d.p.stderr.close()


def refuse(*args, **kw):
    """The one line it says instead of starting."""
    p = subprocess.run([str(host.CLOCHE), "serve", *map(str, args)], stdin=subprocess.DEVNULL, capture_output=True,
                       timeout=PATIENCE, **kw)
    return host.one_line(host.Result(args, p.returncode, p.stdout, p.stderr, 0))


def test_an_address_that_others_reach_without_tls_is_warned_of(serve):
    d = serve("--stop-sandboxes", "--listen", "127.0.0.1:0", "--listen", "0.0.0.0:0")
    assert d.stop() == 0
    warned = [line for line in d.p.stderr.read().decode().splitlines() if "without TLS" in line]
    assert len(warned) == 1 and "0.0.0.0:" in warned[0] and "--tls-cert" in warned[0], warned


def test_the_first_start_prints_a_token_once_and_a_line_that_works(serve, place):
    d = serve("--stop-sandboxes")
    assert re.fullmatch(rf"cloche \S+ serving on http://127\.0\.0\.1:[1-9]\d* \(data {place}/data\)", d.lines[0])
    assert re.fullmatch(r"token: cloche_[A-Za-z0-9_-]{43}", d.lines[1])
    assert d.lines[2] == f"try: curl -sX POST -H 'Authorization: Bearer {d.token}' {d.url}/v1/sandboxes"
    assert len(d.lines) == 3
    made = subprocess.run(["sh", "-c", d.lines[2].removeprefix("try: ")], capture_output=True, timeout=PATIENCE)
    assert json.loads(made.stdout)["state"] == "running", made
    token = d.token
    assert d.stop() == 0
    again = serve()
    assert len(again.lines) == 1
    assert again.call("GET", "/v1/sandboxes", token)[0] == 200
    assert again.call("GET", "/v1/sandboxes", "cloche_" + "x" * 43)[0] == 401


def test_the_data_folder_is_closed_to_others(serve, place):
    d = serve()
    st = os.stat(place / "data")
    assert stat.S_IMODE(st.st_mode) == 0o700 and st.st_uid != 0
    assert os.stat(f"/proc/{d.api}").st_uid in (st.st_uid, 0)
    status = pathlib.Path(f"/proc/{d.api}/status").read_text()
    assert re.search(rf"^Uid:\s+{st.st_uid}\s+{st.st_uid}\s+{st.st_uid}\s+{st.st_uid}$", status, re.M)
    assert re.search(r"^CapEff:\s+0+$", status, re.M)
    assert stat.S_IMODE(os.stat(place / "data/warden.sock").st_mode) == 0o600
    assert stat.S_IMODE(os.stat(state_folder(place / "data")).st_mode) == 0o700


def test_a_folder_above_that_is_closed_to_others_is_no_obstacle(serve, place):
    """As mktemp -d makes them."""
    place.chmod(0o700)
    one = serve()
    box = json.loads(one.call("POST", "/v1/sandboxes", one.token, {})[1])["id"]
    x = json.loads(one.call("POST", f"/v1/sandboxes/{box}/execs", one.token, {"shell": "echo kept", "background": True})[1])["id"]
    token = one.token
    assert one.stop() == 0
    two = serve()
    assert two.call("GET", f"/v1/sandboxes/{box}/execs/{x}/output", token) == (200, b"kept\n")
    assert two.call("DELETE", f"/v1/sandboxes/{box}", token)[0] == 204


def test_a_token_file_is_made_and_its_token_is_not_printed(serve, place):
    file = place / "the token"
    d = serve("--token-file", file, "--stop-sandboxes")
    token = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(d.lines) == 2 and token not in "\n".join(d.lines)
    assert d.call("GET", "/v1/sandboxes", token)[0] == 200
    made = subprocess.run(["sh", "-c", d.lines[1].removeprefix("try: ")], capture_output=True, timeout=PATIENCE)
    assert json.loads(made.stdout)["state"] == "running", made


def test_a_token_of_the_admins_own_is_taken_also_later(serve, place):
    file = place / "token"
    assert serve().stop() == 0
    file.write_text("my-own-token-0123456789\n")
    file.chmod(0o400)
    d = serve("--token-file", file)
    assert d.call("GET", "/v1/sandboxes", "my-own-token-0123456789")[0] == 200


def test_a_token_file_that_others_may_read_is_refused(place):
    file = place / "token"
    file.write_text("my-own-token-0123456789\n")
    file.chmod(0o644)
    assert "other users may read" in refuse("--data", place / "data", "--listen", "127.0.0.1:0", "--token-file", file)


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_cleanly(serve, place, sig):
    d = serve()
    warden, api = d.warden, d.api
    assert d.stop(sig) == 0
    assert not list((place / "data").glob("*.sock"))
    for pid in (warden, api):
        assert gone(pid)
    with pytest.raises(OSError):
        d.call("GET", "/healthz")


def test_ctrl_c_reaches_only_the_supervisor(serve):
    d = serve(start_new_session=True)
    warden, api = d.warden, d.api
    assert os.getpgid(warden) != d.p.pid and os.getpgid(api) != d.p.pid
    os.killpg(d.p.pid, signal.SIGINT)
    assert d.p.wait(PATIENCE) == 0


def fill(path):
    """Down to the last byte."""
    with open(path, "wb", buffering=0) as f:
        for size in (1 << 16, 1):
            try:
                while f.write(b"x" * size):
                    pass
            except OSError:
                pass


def test_a_full_disk_costs_no_sandbox_and_is_over_when_there_is_room(serve, place):
    disk = place / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=755", "none", str(disk)], check=True)
    try:
        d = serve(data=disk / "data")
        kept, other = (json.loads(d.call("POST", "/v1/sandboxes", d.token, {})[1])["id"] for _ in range(2))
        before = d.api
        run = ("POST", f"/v1/sandboxes/{kept}/execs", d.token, {"cmd": ["true"]})

        def answer(*what):
            try:
                return d.call(*what)[0]
            except (OSError, http.client.HTTPException):
                return 0

        # What a command says does not take the last of it.
        x = json.loads(d.call(*run[:3], {"cmd": ["sh", "-c", "yes | head -c 30M"], "background": True})[1])["id"]
        host.wait_for(lambda: json.loads(d.call("GET", f"{run[1]}/{x}", d.token)[1])["state"] == "ended", 20, "its end")
        assert answer(*run) == 200 and shutil.disk_usage(disk).free > 4 << 20
        # Somebody else does: new work ends before the last of it.
        (disk / "other").write_bytes(bytes(shutil.disk_usage(disk).free - (3 << 20)))
        host.wait_for(lambda: answer(*run) == 503, 30, "a refusal")
        for what in "fork", "checkpoints":
            assert answer("POST", f"/v1/sandboxes/{kept}/{what}", d.token, {}) == 503, what
        assert shutil.disk_usage(disk).free > 2 << 20 and d.api == before
        fill(disk / "fill")
        # What is to be noted has room of its own (test_disk_full.py).
        assert answer("POST", f"/v1/sandboxes/{kept}/pause", d.token) == 503
        assert d.call("DELETE", f"/v1/sandboxes/{other}", d.token)[0] == 204
        status, body = d.call("POST", "/v1/sandboxes", d.token, {})
        assert status == 503 and "full" in json.loads(body)["error"]["message"] and json.loads(body)["error"]["remedy"]
        assert json.loads(d.call("GET", f"/v1/sandboxes/{kept}", d.token)[1])["state"] == "running"
        (disk / "fill").unlink()
        (disk / "other").unlink()
        subprocess.run(["mount", "-o", "remount,size=32m", str(disk)], check=True)
        host.wait_for(lambda: answer(*run) == 200, 10, "room")
        assert d.api == before
        host.wait_for(lambda: (disk / "data/reserve").exists(), 10, "room that is kept for the next time")
        assert d.call("DELETE", f"/v1/sandboxes/{kept}", d.token)[0] == 204
        assert d.stop() == 0
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    shutil.rmtree(state_folder(disk / "data"), ignore_errors=True)


def test_a_disk_that_does_not_tell_its_size_is_not_full(serve, place):
    disk = place / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "-o", "mode=755", "none", str(disk)], check=True)
    try:
        d = serve(data=disk / "data")
        status, body = d.call("POST", "/v1/sandboxes", d.token, {})
        assert status == 201
        assert d.call("DELETE", f"/v1/sandboxes/{json.loads(body)['id']}", d.token)[0] == 204
        assert d.stop() == 0
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    shutil.rmtree(state_folder(disk / "data"), ignore_errors=True)


def test_checkpoints_and_output_leave_room_for_others_to_work(serve, place):
    disk = place / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m,mode=755", "none", str(disk)], check=True)

    def free():
        v = os.statvfs(disk)
        return v.f_bavail * v.f_frsize

    try:
        d = serve(data=disk / "data")
        box = json.loads(d.call("POST", "/v1/sandboxes", d.token, {})[1])["id"]

        def run(command, **more):
            return d.call("POST", f"/v1/sandboxes/{box}/execs", d.token, {"cmd": ["sh", "-c", command], **more})[0]

        assert run("head -c 31457280 /dev/zero > /tmp/much") == 200
        before = free()
        status, body = d.call("POST", f"/v1/sandboxes/{box}/checkpoints", d.token, {})
        assert status == 503 and "disk of the checkpoints is full" in json.loads(body)["error"]["message"]
        assert before - free() < 2 << 20 and run("rm /tmp/much; head -c 1048576 /dev/zero > /tmp/little") == 200
        for _ in range(2):  # what was refused counts no more
            assert d.call("POST", f"/v1/sandboxes/{box}/checkpoints", d.token, {})[0] == 201
        for _ in range(4):
            assert run("head -c 15000000 /dev/zero") == 200
        assert 4 << 20 < free() < 9 << 20 and run("true") == 200
        assert d.call("POST", f"/v1/sandboxes/{box}/checkpoints", d.token, {})[0] == 503
        assert d.call("DELETE", f"/v1/sandboxes/{box}", d.token)[0] == 204
        assert d.stop() == 0
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    shutil.rmtree(state_folder(disk / "data"), ignore_errors=True)


@pytest.fixture
def programs(monkeypatch):
    """Copies of all programs, to be replaced; and an empty cache, on a file system that allows device nodes."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cloche-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    for program in host.BUILD.glob("cloche*"):
        if program.is_file():
            shutil.copy2(program, folder)
    monkeypatch.setattr(host, "CLOCHE", folder / "cloche")
    yield folder
    shutil.rmtree(folder)


def test_without_what_sandboxes_start_from_it_says_why_and_leaves_nothing(serve, place, programs):
    cache, files = programs / "cache", programs / "cloche-files"
    files.unlink()
    env = os.environ | {"CLOCHE_CACHE": str(cache)}
    for instead, says in ((None, b"cloche-files is not installed"), ("/etc/hostname", b"start cloche-files"), ("/bin/false", b"ended without an answer")):
        if instead:
            shutil.copyfile(instead, files)
            files.chmod(0o755)
        p = subprocess.run([str(host.CLOCHE), "serve", "--data", str(place / "data")], stdin=subprocess.DEVNULL, capture_output=True,
                           timeout=PATIENCE, env=env, check=False)
        assert p.returncode == 125 and says in p.stderr, p
        assert not list(cache.iterdir())
    files.unlink()
    shutil.copy2(host.BUILD / "cloche-files", files)
    serve(env=env)
    image, = cache.glob("host-*")
    assert stat.S_ISCHR((image / "dev/null").stat().st_mode) and (image / "root/home/user").stat().st_uid == 1000
    assert not list(cache.glob("new-*"))


def test_a_second_daemon_waits_and_is_refused(serve, place):
    d = serve()
    start = time.monotonic()
    text = refuse("--data", place / "data", "--listen", "127.0.0.1:0")
    assert f"another daemon uses this data folder (pid {d.p.pid})" in text
    assert 4.5 < time.monotonic() - start < 8
    assert d.call("GET", "/healthz")[0] == 200


def test_a_second_daemon_takes_over_when_the_first_ends(serve):
    first = serve()
    second = serve(wait=False)
    time.sleep(0.5)
    assert first.stop() == 0
    second.wait_ready()
    assert second.call("GET", "/healthz")[0] == 200


def test_killed_with_kill_9_it_can_start_again_at_once(serve):
    d = serve()
    token, warden, api = d.token, d.warden, d.api
    assert d.stop(signal.SIGKILL) == -signal.SIGKILL
    again = serve()
    for pid in (warden, api):
        assert gone(pid)
    assert again.call("GET", "/v1/sandboxes", token)[0] == 200


def test_a_killed_child_comes_back_and_its_sibling_stays(serve):
    d = serve()
    warden, api = d.warden, d.api
    os.kill(api, signal.SIGKILL)
    assert d.call("GET", "/healthz")[0] == 200  # waited in the backlog
    assert d.warden == warden and d.api != api
    api = d.api
    os.kill(warden, signal.SIGKILL)
    host.wait_for(lambda: d.child("cloche-warden") not in (0, warden), what="another warden")
    assert d.call("GET", "/healthz")[0] == 200
    assert d.api == api


def test_sandboxes_outlive_it_unless_told_otherwise(serve):
    d = serve()
    token = d.token
    code, body = d.call("POST", "/v1/sandboxes", token, {})
    assert code == 201
    box = json.loads(body)["id"]
    assert d.stop() == 0
    d = serve("--stop-sandboxes")
    assert json.loads(d.call("GET", f"/v1/sandboxes/{box}", token)[1])["state"] == "running"
    code, body = d.call("POST", f"/v1/sandboxes/{box}/execs", token, {"cmd": ["echo", "still here"]})
    assert json.loads(body)["stdout"] == "still here\n"
    assert d.stop() == 0


def test_root_needs_no_token_on_the_unix_socket(serve, place):
    serve()
    r = subprocess.run(["curl", "-s", "--unix-socket", place / "data/cloche.sock", "http://localhost/v1/sandboxes"],
                       capture_output=True, timeout=PATIENCE)
    assert json.loads(r.stdout)["sandboxes"] == []


def test_it_listens_where_it_is_told(serve, place):
    d = serve("--listen", f"unix:{place}/s", "--listen", "[::1]:0")
    assert re.search(rf"serving on unix:{place}/s and http://\[::1\]:[1-9]\d* \(", d.lines[0])
    assert f"--unix-socket {place}/s " in d.lines[2]
    assert (place / "s").is_socket()
    assert d.stop() == 0
    assert not (place / "s").exists()


def test_an_address_in_use_is_told(place):
    with socket.create_server(("127.0.0.1", 0)) as s:
        text = refuse("--data", place / "data", "--listen", f"127.0.0.1:{s.getsockname()[1]}")
    assert "in use" in text and "--listen" in text


def test_files_that_may_not_grow_are_told(place):
    line = refuse("--data", place / "data", "--listen", "127.0.0.1:0", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
    assert "not writable" in line, line


def test_sockets_of_systemd_are_served_and_it_is_told(serve, place):
    launcher = ("import os, sys; os.dup2(int(sys.argv[1]), 3); os.set_inheritable(3, True); "
                "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); os.execv(sys.argv[2], sys.argv[2:])")
    with socket.create_server(("127.0.0.1", 0)) as s, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(place / "notify"))
        notify.settimeout(PATIENCE)
        port = s.getsockname()[1]
        d = serve(argv=[sys.executable, "-c", launcher, str(s.fileno()), str(host.CLOCHE), "serve", "--pool", "1",
                        "--data", str(place / "data")],
                  pass_fds=(s.fileno(),), env=dict(os.environ, NOTIFY_SOCKET=str(place / "notify")))
        assert d.url == f"http://127.0.0.1:{port}"
        said = notify.recv(4096).decode().splitlines()
        assert "READY=1" in said and f"MAINPID={d.p.pid}" in said
        assert d.call("GET", "/healthz")[0] == 200
        assert d.stop() == 0
        assert notify.recv(4096) == b"STOPPING=1"


def test_the_supervisor_is_small(serve):
    d = serve()
    status = pathlib.Path(f"/proc/{d.p.pid}/status").read_text()
    assert int(re.search(r"^RssAnon:\s+(\d+) kB", status, re.M).group(1)) < 2048
    assert re.search(r"^Threads:\s+1$", status, re.M)


# ---- refusals ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("text, says", [
    ("pool = 1\nports = 3\n", ":2: unknown key 'ports'"),
    ("pool = 1\npool = 2\n", ":2: pool is given twice"),
    ("\n# x\nmemory = lots\n", ":3: memory: invalid size 'lots'"),
    ("just words\n", ":1: 'just words': expected key = value"),
    ("memory_max = 1M\n", "memory must not be more than memory_max"),
    ("tls_cert = /etc/passwd\n", "tls_cert needs tls_key"),
    ("images = /nowhere\n", "images '/nowhere': No such file"),
])
def test_a_bad_configuration_is_told_with_its_line(place, text, says):
    file = place / "conf"
    file.write_text(text)
    for extra in ((), ("--check",)):
        said = refuse("--data", place / "data", "--config", file, *extra)
        assert says in said
        if says.startswith(":"):
            assert f"{file}{says}" in said
    assert not (place / "data").exists()


@pytest.mark.parametrize("args, says", [
    (("--bogus",), "--bogus"),
    (("--pool",), "--pool"),
    (("--pool", "0"), "pool: '0' must be between 1 and 1024"),
    (("--listen", "7070"), "address '7070'"),
    (("words",), "argument 'words'"),
    (("--user", "nobody-of-that-name"), "user 'nobody-of-that-name' does not exist"),
    (("--user", "root"), "must not be root"),
    (("--config", "/nowhere"), "configuration '/nowhere'"),
    (("--data", "/nowhere/at/all"), "mkdir -p"),
    (("--data", "/proc/self"), "data folder '/proc/self'"),
])
def test_bad_options_are_told(place, args, says):
    assert says in refuse("--data", place / "data", *args)


def test_options_win_over_the_file(serve, place):
    file = place / "conf"
    file.write_text("listen = 127.0.0.1:1\nlisten = 127.0.0.1:2\ndata = /nowhere/at/all\n")
    d = serve("--config", file)
    assert d.lines[0].count("http") == 1


def test_without_root_it_says_what_to_do(place):
    def drop():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    text = refuse("--data", place / "data", preexec_fn=drop)
    assert "must run as root" in text and "sudo" in text and "cloche run" in text


def test_the_documentation_has_every_key_and_its_example_is_good(place):
    docs = (host.ROOT / "docs/config.md").read_text()
    keys = re.findall(r'^\t\{ "(\w+)", [A-Z_]+, FIELD', (host.ROOT / "src/daemon/conf.c").read_text(), re.M)
    rows = re.findall(r"^\| `(\w+)` \| (?:`--[\w-]+`)? ?\| (?:`([^`]+)`|none) \|", docs, re.M)
    assert len(keys) >= 30 and sorted(keys) == sorted(key for key, _ in rows)
    file = place / "conf"
    example = re.search(r"```ini\n(.*?)```", docs, re.S).group(1)
    file.write_text(example.replace("/srv", str(place)))
    r = subprocess.run([str(host.CLOCHE), "serve", "--check", "--config", file], capture_output=True, timeout=PATIENCE)
    assert (r.returncode, r.stdout) == (0, b"the configuration is valid\n"), r
    # The defaults as they are written are ones that can be written.
    file.write_text("".join(f"{key} = {value}\n" for key, value in rows if value))
    r = subprocess.run([str(host.CLOCHE), "serve", "--check", "--config", file], capture_output=True, timeout=PATIENCE)
    assert r.returncode == 0, r
