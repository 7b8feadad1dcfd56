"""Negative controls of cloche-probe: a probe that cannot say "open" proves nothing when it says "closed".

Each runs as root without a sandbox, in throwaway namespaces, so that nothing of the machine is touched. The bombs are
left out here: their control is the bound that they stop at by themselves.
"""
import json
import os
import pathlib
import re
import socket
import subprocess
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROBE = pathlib.Path(os.environ.get("CLOCHE_BUILD", ROOT / "build")) / "cloche-probe"
THROWAWAY = ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--mount-proc"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

# Open for any root outside a sandbox, whatever the machine.
MUST_BE_OPEN = """
K01 K02 K03 K04 K05 K06 K07 K08 K09 K10 K11 K14 K15 K16 K17 K18 K19 K20 K24
N03 N04 N12
F01 F02 F03 F04 F05 F06 F07 F08 F09 F11 F12 F14 F15
R02 R03 R04 R05 R06 R10 R12 R13 R14 R15 R16 R17
L03 L04
""".split()


def probe(*args, prefix=(), **kw):
    r = subprocess.run([*prefix, str(PROBE), *args], capture_output=True, text=True, timeout=60, **kw)
    rows = {}
    for line in r.stdout.splitlines():
        ident, verdict, name, detail = line.split("\t")
        assert verdict in ("closed", "open", "na", "info"), line
        rows[ident] = (verdict, detail)
    return r, rows


def host_caps():
    text = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"^CapEff:\s*(\w+)", text, re.M).group(1), 16)


@pytest.fixture(scope="module")
def unconfined(tmp_path_factory):
    """All probes but the bombs, with a leaked folder, a canary in reach and a mount that is not read-only."""
    canary = tmp_path_factory.mktemp("canary") / "file"
    text = uuid.uuid4().hex
    canary.write_text(text)
    leak = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        return probe("--canary", str(canary), text, "--ro", str(canary), prefix=THROWAWAY, pass_fds=[leak])
    finally:
        os.close(leak)


@pytest.mark.parametrize("ident", MUST_BE_OPEN)
def test_is_open_without_a_sandbox(unconfined, ident):
    verdict, detail = unconfined[1][ident]
    assert verdict == "open", detail
    assert detail, "an open probe says how it got through"


def test_an_open_probe_makes_the_exit_status_1(unconfined):
    assert unconfined[0].returncode == 1


def test_only_closed_probes_make_the_exit_status_0():
    r, rows = probe("R12", prefix=["setpriv", "--no-new-privs"])
    assert (r.returncode, rows["R12"][0]) == (0, "closed")


def test_32_bit_calls_are_noticed_where_the_kernel_has_them(unconfined):
    verdict, _ = unconfined[1]["K21"]
    assert verdict == ("open" if os.uname().machine == "x86_64" and ia32_works() else "na")


def ia32_works():
    r = subprocess.run(["zgrep", "-q", "^CONFIG_IA32_EMULATION=y", "/proc/config.gz"])
    return r.returncode == 0 or pathlib.Path("/proc/sys/abi/vsyscall32").exists()


def test_landlock_is_noticed_to_be_off_where_the_kernel_has_it(unconfined):
    assert unconfined[1]["K25"][0] in ("open", "na")
    if unconfined[1]["K25"][0] == "na":
        lsm = pathlib.Path("/sys/kernel/security/lsm")
        assert not lsm.exists() or "landlock" not in lsm.read_text()


def test_limits_can_be_raised_by_who_has_the_capability(unconfined):
    sys_resource = host_caps() >> 24 & 1
    # With every hard limit infinite there is nothing to raise.
    finite = any(
        not line.split("  ")[-1].strip().startswith("unlimited") and "unlimited" not in line.rsplit(None, 2)[-2]
        for line in pathlib.Path("/proc/self/limits").read_text().splitlines()[1:]
    )
    assert unconfined[1]["L01"][0] == ("open" if sys_resource and finite else "closed")
    assert unconfined[1]["R08"][0] == ("open" if sys_resource else "closed")


def test_core_dumps_are_judged_by_the_hard_limit():
    assert probe("R18", prefix=["prlimit", "--core=0:0"])[1]["R18"][0] == "closed"
    if subprocess.run(["prlimit", "--core=0:1", "true"]).returncode == 0:
        assert probe("R18", prefix=["prlimit", "--core=0:1"])[1]["R18"][0] == "open"


def test_processes_of_the_host_are_seen_outside_a_pid_namespace():
    assert probe("R09")[1]["R09"][0] == "open"


def test_the_caller_s_environment_is_noticed():
    assert probe("R19", env={"CLOCHE_ATTACK_SECRET": "x"})[1]["R19"][0] == "open"
    assert probe("R19", env={})[1]["R19"][0] == "closed"


def test_system_v_ipc_is_noticed():
    script = 'ipcmk -M 4096 >/dev/null && exec "$0" R11'
    r = subprocess.run(["unshare", "--ipc", "sh", "-c", script, str(PROBE)], capture_output=True, text=True)
    assert "\topen\t" in r.stdout, r


def test_a_work_folder_outside_the_root_is_noticed(tmp_path):
    jail = tmp_path / "jail"
    (jail / "proc").mkdir(parents=True)
    (jail / "probe").write_bytes(PROBE.read_bytes())
    (jail / "probe").chmod(0o755)
    # chroot without chdir: the work folder stays where it was.
    script = "import os,sys; os.chdir('/'); os.chroot(sys.argv[1]); os.execv('/probe', ['/probe', 'F13'])"
    r = subprocess.run(["/usr/bin/python3", "-c", script, str(jail)], capture_output=True, text=True)
    assert "\topen\t" in r.stdout, r


def test_what_listens_on_the_host_is_reached():
    name = "cloche-test-" + uuid.uuid4().hex[:8]
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as abstract:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        abstract.bind("\0" + name)
        abstract.listen()
        port = str(tcp.getsockname()[1])
        _, rows = probe("--port", port, "--abstract", name, "N13", "N14", "N15")
        assert {i: v for i, (v, _) in rows.items()} == {"N13": "open", "N14": "open", "N15": "open"}
        _, rows = probe("--port", port, "--abstract", name, "N13", "N14", "N15", prefix=["unshare", "--net"])
        assert {i: v for i, (v, _) in rows.items()} == {"N13": "closed", "N14": "closed", "N15": "closed"}


def test_a_network_is_noticed():
    """A link that swallows every packet is a way out as far as the sandbox can tell."""
    script = """
        ip link set lo up && ip link add out type veth peer name far && ip link set far up && ip link set out up &&
        ip addr add 10.99.0.2/24 dev out && ip route add default via 10.99.0.1 &&
        ip neigh add 10.99.0.1 lladdr 02:00:00:00:00:01 dev out && exec "$0" N07 N08 N09 N11
    """
    r = subprocess.run(["unshare", "--net", "sh", "-c", script, str(PROBE)], capture_output=True, text=True, timeout=60)
    verdicts = dict(line.split("\t")[:2] for line in r.stdout.splitlines())
    assert verdicts == {"N07": "open", "N08": "open", "N09": "open", "N11": "open"}, r


def test_a_resolver_is_noticed():
    script = """
import os, socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.53", 53))
pid = os.fork()
if pid == 0:
    q, peer = s.recvfrom(512)
    s.sendto(q, peer)
    os._exit(0)
sys.exit(subprocess.run([sys.argv[1], "N10"]).returncode)
"""
    r = subprocess.run(
        ["unshare", "--net", "/usr/bin/python3", "-c", script, str(PROBE)], capture_output=True, text=True, timeout=60
    )
    assert "\topen\t" in r.stdout and "127.0.0.53" in r.stdout, r


def test_a_service_of_the_host_is_noticed():
    script = """
import socket, subprocess, sys
subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
s = socket.socket(socket.AF_UNIX)
s.bind("/run/docker.sock")
s.listen()
sys.exit(subprocess.run([sys.argv[1], "N16"]).returncode)
"""
    r = subprocess.run(
        ["unshare", "--mount", "/usr/bin/python3", "-c", script, str(PROBE)], capture_output=True, text=True, timeout=60
    )
    assert "\topen\t" in r.stdout and "/run/docker.sock" in r.stdout, r


def test_a_cgroup_path_is_noticed():
    paths = [line.split(":", 2)[2] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()]
    want = "open" if any(p != "/" for p in paths) else "closed"
    assert probe("F10")[1]["F10"][0] == want


def test_nothing_is_left_on_the_machine(unconfined):
    left = [p for d in ("/tmp", "/root", "/dev", "/dev/shm") for p in pathlib.Path(d).glob(".probe-*")]
    left += list(pathlib.Path("/tmp").glob("probe-*"))
    assert left == []
    assert "probe-mount" not in pathlib.Path("/proc/mounts").read_text()


def test_json_says_the_same_as_the_table():
    r = subprocess.run([str(PROBE), "--json", "R12", "R13"], capture_output=True, text=True)
    rows = json.loads(r.stdout)
    assert [x["id"] for x in rows] == ["R12", "R13"]
    assert all(set(x) == {"id", "verdict", "name", "anchor", "detail"} for x in rows)


def test_every_id_is_listed_once():
    out = subprocess.run([str(PROBE), "--list"], capture_output=True, text=True).stdout
    ids = [line.split("\t")[0] for line in out.splitlines()]
    assert len(ids) == len(set(ids)) >= 85
    assert set(MUST_BE_OPEN) <= set(ids)


@pytest.mark.parametrize(
    "args", [["X99"], ["--nonsense"], ["--port", "0"], ["--mib", "1x"], ["--canary", "relative", "t"]]
)
def test_a_wrong_command_line_is_one_message_and_status_2(args):
    r = subprocess.run([str(PROBE), *args], capture_output=True, text=True)
    assert r.returncode == 2 and r.stdout == "" and r.stderr.startswith("cloche-probe: ")
