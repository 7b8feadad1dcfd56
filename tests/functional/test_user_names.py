"""Users by name: looked up in the sandbox's own /etc/passwd and /etc/group, which it may have changed; and the largest commands."""
import pytest

import host
from api import d, nothing_is_left_behind  # noqa: F401

WHO = "id -un; id -G; echo $HOME $USER $LOGNAME; pwd"


def run(d, box, **body):
    return d.post(f"/v1/sandboxes/{box}/execs", body)


def refused(r, *words):
    assert r.status == 422 and r.json["error"]["code"] == "refused", r.json
    assert all(w in r.json["error"]["message"] for w in words), r.json


def test_a_name_of_the_sandboxs_own_files(d):
    b = d.create()["id"]
    r = run(d, b, shell="groupadd -g 2001 readers && groupadd -g 2002 writers && useradd -u 2000 -U -G readers,writers -m -d /srv/app app",
            user="root").json
    assert r["exit_code"] == 0, r
    for user, out in (("app", "app\n2000 2001 2002\n/srv/app app app\n/home/user\n"), ("app:readers", "app\n2001\n/srv/app app app\n/home/user\n"),
                      ("app:0", "app\n0\n/srv/app app app\n/home/user\n"), ("2000:writers", "app\n2002\n/\n/home/user\n")):
        r = run(d, b, shell=WHO, user=user).json
        assert (r["exit_code"], r["stdout"], r["stderr"]) == (0, out, ""), (user, r)
    # What a caller sets stays; streams can be opened by name; without capabilities.
    r = run(d, b, shell="echo $HOME $USER > /dev/stderr; touch /srv/app/x && grep CapEff /proc/self/status", user="app", env={"HOME": "/x"}).json
    assert (r["stderr"], r["stdout"].split()[1].strip("0")) == ("/x app\n", ""), r
    r = d.cli("exec", "--user", "app", b, "--", "whoami")
    assert (r.code, r.out) == (0, b"app\n"), r
    r = d.cli("exec", "-t", "--user", "app:writers", b, "--", "sh", "-c", "whoami; id -g; tty >&2", input=b"")
    assert r.code == 0 and b"app\r\n2002\r\n/dev/pts/" in r.out, r
    refused(run(d, b, cmd=["true"], user="nobody2"), "'nobody2'", "no such user")
    refused(run(d, b, cmd=["true"], user="app:nobody2"), "'app:nobody2'", "no such group")
    r = d.cli("exec", "--user", "nobody2", b, "--", "true")
    assert r.code != 0 and b"nobody2" in r.err, r
    for bad in ("a b", "a:b:c", "70000", "65533", ":x", "x:", "a/b", "-x"):
        r = run(d, b, cmd=["true"], user=bad)
        assert r.status == 400 and "user" in r.json["error"]["message"], (bad, r.json)
    assert run(d, b, cmd=["whoami"]).json["stdout"] == "user\n"


def test_hostile_files_are_refused_and_nothing_hangs(d):
    b = d.create()["id"]
    kinds = {
        "rm /etc/passwd; mkfifo /etc/passwd": "not a regular file",
        "rm /etc/passwd; mkdir /etc/passwd": "not a regular file",
        "rm -r /etc/passwd; ln -s /dev/zero /etc/passwd": "not a regular file",
        "ln -sf /proc/1/environ /etc/passwd": "user 'app'",
        "ln -sf passwd /etc/passwd": "user 'app'",
        "rm /etc/passwd; truncate -s 2G /etc/passwd": "larger than",
        "head -c 500000 /dev/urandom > /etc/passwd": "no such user",
        "rm /etc/passwd": "no such user",
        "echo app:x:4294967297:1:::/bin/sh > /etc/passwd": "an id that is invalid for a user",
        "echo app:x:65533:1:::/bin/sh > /etc/passwd": "an id that is invalid for a user",
        "echo app:x:7:7::/:/bin/sh > /etc/passwd; rm /etc/group; mkfifo /etc/group": "/etc/group is not a regular file",
        "mv /etc /etc2": "no such user",
    }
    for line, why in kinds.items():
        assert run(d, b, shell=line, user="root").json["exit_code"] == 0, line
        refused(run(d, b, cmd=["true"], user="app"), "'app'", why)
        assert run(d, b, cmd=["true"]).json["exit_code"] == 0, line


@pytest.mark.parametrize("way", ["api", "run"])
def test_two_mebibytes_of_arguments(d, way):
    """What Linux takes at once; and the figures of what it does not."""
    lots = ["x" * (64 << 10)] * 31
    b = d.create()["id"] if way == "api" else None

    def ask(*words):
        if way == "run":
            r = host.run("--output-limit", "4M", "--", *words)
            return r.code, r.out.decode(), r.err.decode()
        r = run(d, b, cmd=list(words), output_limit="4M")
        return (r.json["exit_code"], r.json["stdout"], "") if r.status == 200 else (r.status, "", str(r.json))

    code, out, err = ask("printf", "%s", *lots)
    assert (code, len(out)) == (0, 31 << 16), err[:300]
    if way == "run":
        return  # more of them could not be started here
    code, out, err = ask("printf", "%s", *lots, *lots[:1])
    assert code == 413 and "at most 2097152" in err
    code, out, err = ask("printf", "%s", "x" * (128 << 10))
    assert code == 413 and "131072 bytes" in err and "131071" in err
    code, out, err = ask("printf", "%s", "x" * ((128 << 10) - 1))
    assert (code, len(out)) == (0, (128 << 10) - 1), err[:300]
