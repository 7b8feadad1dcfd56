"""Who the command is: environment, user, capabilities, host name, what it sees of the host."""
import os
import re

import pytest

from host import ROOT, agent_of, one_line, python, run, sh, wait_for

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/cloche/bin"
ROOT_CAPS = {"chown": 0, "dac_override": 1, "fowner": 3, "fsetid": 4, "kill": 5, "setgid": 6, "setuid": 7,
             "net_bind_service": 10, "setfcap": 31}


def environment(*options, **kw):
    r = run(*options, "--", "/usr/bin/env", "-0", **kw)
    assert r.code == 0, r
    return sorted(r.text.rstrip("\0").split("\0"))


def test_the_environment_is_only_what_we_say():
    secret = dict(os.environ, SECRET="x", LD_PRELOAD="/x.so", LC_ALL="C", TERM="xterm")
    assert environment(env=secret) == ["HOME=/home/user", "LANG=C.UTF-8", PATH, "USER=user"]
    assert environment("--user", "root", env=secret) == ["HOME=/root", "LANG=C.UTF-8", PATH, "USER=root"]


def test_python_is_there_by_both_names():
    """Debian has a package for the shorter one alone."""
    assert run("--", "python", "-c", "import sys; print(sys.version_info[0])").text == "3\n"
    assert run("--", "/bin/sh", "-c", "python -V; command -v python").code == 0


def test_an_empty_environment_of_ours_changes_nothing():
    assert environment(env={}) == ["HOME=/home/user", "LANG=C.UTF-8", PATH, "USER=user"]


def test_given_variables_are_added_and_win():
    got = environment("--env", "A=1", "-e", "B=x=y z", "-e", "HOME=/tmp", "-e", "EMPTY=")
    assert got == ["A=1", "B=x=y z", "EMPTY=", "HOME=/tmp", "LANG=C.UTF-8", PATH, "USER=user"]


def test_of_a_variable_given_twice_the_last_counts():
    got = environment("-e", "A=1", "-e", "USER=x", "-e", "A=2", "-e", "AB=3", "-e", "USER=y")
    assert got == ["A=2", "AB=3", "HOME=/home/user", "LANG=C.UTF-8", PATH, "USER=y"]


def test_a_name_alone_takes_our_value():
    assert "TOKEN=s3cret=1" in environment("--env", "TOKEN", env={"TOKEN": "s3cret=1"})
    assert "TOKEN" in one_line(run("--env", "TOKEN", "--", "true", env={}))


def test_a_name_alone_can_take_an_empty_value_of_ours():
    assert "TOKEN=" in environment("--env", "TOKEN", env={"TOKEN": ""})


def test_the_default_user_is_1000_without_any_capability():
    r = sh("id; grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; pwd; echo ~; touch x && stat -c %u:%g x")
    assert r.text.startswith("uid=1000(user) gid=1000(user) groups=1000(user)\n"), r
    assert set(re.findall(r"^Cap...:\t(\w+)$", r.text, re.M)) == {"0" * 16}, r
    assert "NoNewPrivs:\t1\n" in r.text and "Seccomp:\t2\n" in r.text, r
    assert r.text.endswith("/home/user\n/home/user\n1000:1000\n"), r


def test_root_has_the_few_capabilities_of_package_managers_and_no_more():
    r = sh("id; grep ^Cap /proc/self/status; pwd", "--user", "root")
    caps = {name: int(value, 16) for name, value in re.findall(r"^Cap(...):\t(\w+)$", r.text, re.M)}
    want = sum(1 << bit for bit in ROOT_CAPS.values())
    assert r.text.startswith("uid=0(root) gid=0(root) groups=0(root)\n") and r.text.endswith("\n/root\n"), r
    assert caps["Eff"] == caps["Prm"] == caps["Inh"] == want, r
    assert caps["Amb"] == caps["Bnd"] == 0, r


def test_what_root_may_inherit_gains_another_user_nothing():
    """Root's capabilities are inheritable, and stay so when it changes its user: no file gives them back."""
    caps = sum(1 << bit for bit in ROOT_CAPS.values())
    name = "/tmp/cat"
    mark = f"import os, shutil, struct; shutil.copy('/usr/bin/cat', '{name}'); os.setxattr('{name}', 'security.capability', " \
           f"struct.pack('<5I', 0x02000001, {caps & 0xffffffff}, {caps & 0xffffffff}, 0, 0))"
    r = sh(f'python3 -c "{mark}" && setpriv --reuid 1000 --regid 1000 --clear-groups {name} /proc/self/status', "--user",
           "root")
    found = {name: int(value, 16) for name, value in re.findall(r"^Cap(...):\t(\w+)$", r.text, re.M)}
    assert re.search(r"^Uid:\t1000\t1000\t1000\t1000$", r.text, re.M), r
    assert found["Inh"] == caps and found["Eff"] == found["Prm"] == found["Amb"] == found["Bnd"] == 0, r


@pytest.mark.parametrize("user, uid, gid", [("1000", 1000, 1000), ("5:7", 5, 7), ("65535", 65535, 65535),
                                            ("1234:0", 1234, 0), ("0", 0, 0), ("user", 1000, 1000)])
def test_numeric_users_are_who_they_say(user, uid, gid):
    r = sh("id -u; id -g; id -G; grep CapEff /proc/self/status; touch file && echo made", "--user", user)
    assert r.text.split()[:3] == [str(uid), str(gid), str(gid)], r
    assert r.text.endswith("made\n"), r
    assert uid == 0 or "0000000000000000" in r.text, r


@pytest.mark.parametrize("user", ["65533", "0:65533", "65536", "1:65536", "-1", "no-such-name", "user:no-such-group", "", ":", "1:", "1:2:3",
                                  "99999999999"])
def test_other_users_are_refused(user):
    one_line(run("--user", user, "--", "true"))


def test_the_agent_s_id_gives_no_power_over_the_agent():
    r = python("import os, resource, sys\nos.setresuid(65533, 65533, 65533)\n"
               "def tries(f, *a):\n try: f(*a); print('done', f)\n except OSError as e: pass\n"
               "tries(resource.prlimit, 1, resource.RLIMIT_NOFILE, (3, 3))\n"
               "tries(os.setpriority, os.PRIO_PROCESS, 1, 19)\ntries(os.sched_setaffinity, 1, {0})\n"
               "tries(open, '/proc/1/mem', 'rb')\ntries(os.listdir, '/proc/1/fd')\nprint('end')", "--user", "root")
    assert r.out == b"end\n", r


def test_setuid_programs_give_nothing():
    r = sh("cp /bin/sh /tmp/s; chmod 4755 /tmp/s; ls -l /tmp/s; /usr/bin/env -i /tmp/s -p -c 'id -u'", "--user", "1000")
    assert r.out.endswith(b"\n1000\n"), r
    r = sh("find / -xdev -perm /6000 -type f -exec test -u {} \\; -print -quit 2>/dev/null | head -1; "
           "su -c id root </dev/null; id -u")
    assert b"uid=0" not in r.out and r.out.endswith(b"1000\n"), r


def test_the_host_name_is_the_sandbox_s():
    assert sh("hostname; cat /proc/sys/kernel/hostname").out == b"sandbox\nsandbox\n"
    assert sh("hostname", "--hostname", "box-1").out == b"box-1\n"
    assert os.uname().nodename != "box-1"


def test_only_the_sandbox_s_processes_are_seen():
    r = sh("ls /proc | grep -c '^[0-9]'; cat /proc/1/comm; cat /proc/self/cgroup | cut -d: -f3 | sort -u")
    n, comm, group = r.text.split()
    assert int(n) < 8 and comm == "init" and group == "/", r


def test_the_agent_cannot_be_killed_traced_or_read():
    script = ("for s in 9 15 19 11; do kill -$s 1 2>/dev/null && echo sent; done; sleep 0.05; "
              "for f in mem maps environ auxv stack syscall; do cat /proc/1/$f >/dev/null 2>&1 && echo read $f; done; "
              "ls -l /proc/1/fd /proc/1/root /proc/1/exe 2>/dev/null | grep -e '->'; echo alive")
    for user in ("user", "root", "65534"):
        r = sh(script, "--user", user)
        assert r.code == 0 and r.out.replace(b"sent\n", b"") == b"alive\n", r


def test_killing_everything_inside_ends_only_the_sandbox():
    r = sh("kill -9 -1; echo alive", "--json")
    assert r.code in (0, 137) and r.cause in ("exited", "signaled"), r
    assert sh("echo fine").out == b"fine\n"


def test_there_is_no_network_but_loopback():
    r = python("import os, socket\nprint(socket.if_nameindex())\n"
               "s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); print('lo')\n"
               "try: socket.create_connection(('1.1.1.1', 53), 2)\nexcept OSError as e: print(e.strerror)")
    assert r.out == b"[(1, 'lo')]\nlo\nNetwork is unreachable\n", r


def test_nothing_of_the_host_s_files_but_the_system_is_there():
    r = sh(f"ls -d {ROOT} /work /root/* /home/* /boot/* /var/log/* /etc/shadow /etc/ssh 2>/dev/null", "--user", "root")
    assert r.text.split() == ["/home/user"] or "/etc/shadow" in r.text, r
    secret = open("/etc/shadow", encoding="utf-8").read() if os.path.exists("/etc/shadow") else ""
    inside = sh("cat /etc/shadow", "--user", "root").text
    hashes = [line.split(":")[1] for line in secret.splitlines() if len(line.split(":")[1]) > 4]
    assert not any(h in inside for h in hashes)


def test_python_code_runs():
    r = python("import sys, json, ssl, sqlite3, subprocess, multiprocessing as m\n"
               "with m.Pool(2) as p: print(sum(p.map(abs, range(-10, 0))))")
    assert (r.code, r.out) == (0, b"55\n"), r


@pytest.mark.parametrize("user", ["user", "root"])
def test_neither_boot_options_nor_other_sandboxes_are_told(popen, user):
    p = popen("--", "sleep", "20")
    wait_for(lambda: agent_of(p.pid))
    with open("/proc/locks", encoding="ascii") as f:
        assert "OFDLCK" in f.read()  # of its slot, and to be seen here
    r = sh("cat /proc/cmdline /proc/locks", "--user", user)
    assert (r.code, r.out) == (0, b""), r
