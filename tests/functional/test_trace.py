"""A sandbox's processes may trace each other, so that sanitizers and debuggers work; never process 1."""
import subprocess

import pytest

import host
from api import d, nothing_is_left_behind  # noqa: F401

TRACED = r"""
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int word = 7;
static void none(int sig) { (void)sig; }

int main(int argc, char **argv)
{
    int status, got = 0;
    struct iovec to = { &got, sizeof got }, from = { (void *)&word, sizeof word };

    if (argc > 1 && !strcmp(argv[1], "me")) { /* by the parent: process 1 in an exec, which does not care */
        for (int i = 0; i < 50; i++) {
            signal(SIGUSR1, none);
            if (ptrace(PTRACE_TRACEME, 0, 0, 0)) return 1;
            raise(SIGUSR1);
        }
        if (ptrace(PTRACE_TRACEME, 0, 0, 0)) return 1;
        execl("/bin/echo", "echo", "went on", (char *)NULL);
        return 2;
    }
    if (argc > 1 && !strcmp(argv[1], "leak")) { char *volatile p = malloc(77); p = NULL; return p != NULL; }
    if (argc > 1 && !strcmp(argv[1], "after")) { char *p = malloc(10); free(p); return ((volatile char *)p)[0]; }
    pid_t child = fork();
    if (!child) { word = 8; for (;;) pause(); }
    if (ptrace(PTRACE_SEIZE, child, 0, 0) || ptrace(PTRACE_INTERRUPT, child, 0, 0) || waitpid(child, &status, __WALL) != child) return 3;
    errno = 0;
    if (process_vm_readv(child, &to, 1, &from, 1, 0) != sizeof got) return 4;
    if (ptrace(PTRACE_SEIZE, 1, 0, 0) == 0 || errno != EPERM) return 5;
    if (process_vm_readv(1, &to, 1, &from, 1, 0) >= 0 || errno != EPERM) return 6;
    if (argc > 1 && !strcmp(argv[1], "hold")) { puts("holding"); fflush(stdout); pause(); }
    kill(child, SIGKILL);
    puts("traced");
    fflush(stdout);
    _exit(0); /* what the child left is no leak of ours */
}
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    at = tmp_path_factory.mktemp("trace")
    at.chmod(0o755)
    (at / "t.c").write_text(TRACED)
    subprocess.run(["gcc", "-O0", "-w", "-o", at / "plain", at / "t.c"], check=True)
    subprocess.run(["gcc", "-O0", "-w", "-fsanitize=address", "-o", at / "asan", at / "t.c"], check=True)
    return at


@pytest.mark.parametrize("user", ["user", "root"])
def test_run(programs, user):
    def run(*command):
        return host.run("--user", user, "--mount", f"{programs}:/t:ro", "--", *command)

    for program in "plain", "asan":
        r = run(f"/t/{program}")
        assert (r.code, r.out) == (0, b"traced\n"), r
        r = run(f"/t/{program}", "me")
        assert (r.code, r.out) == (0, b"went on\n"), r
    r = run("/t/asan", "leak")
    assert r.code == 1 and b"77 byte(s) leaked" in r.err, r
    r = run("/t/asan", "after")
    assert r.code == 1 and b"heap-use-after-free" in r.err, r


@pytest.mark.parametrize("user", ["user", "root"])
def test_the_daemon(d, programs, user):
    b = d.create()["id"]
    assert d.put(f"/v1/sandboxes/{b}/files?path=/tmp/asan&mode=755", (programs / "asan").read_bytes()).status < 300
    at = f"/v1/sandboxes/{b}/execs"
    for argument, answer in (("", "traced\n"), ("me", "went on\n")):
        r = d.post(at, {"cmd": ["/tmp/asan", argument], "user": user}).json
        assert (r["exit_code"], r["stdout"]) == (0, answer), r
    r = d.post(at, {"cmd": ["/tmp/asan", "leak"], "user": user}).json
    assert r["exit_code"] == 1 and "77 byte(s) leaked" in r["stderr"], r


def test_a_copy_of_traced_processes_is_refused(d, programs):
    b = d.create()["id"]
    assert d.put(f"/v1/sandboxes/{b}/files?path=/tmp/plain&mode=755", (programs / "plain").read_bytes()).status < 300
    d.post(f"/v1/sandboxes/{b}/execs", {"shell": "/tmp/plain hold > /tmp/out", "background": True})
    host.wait_for(lambda: d.get(f"/v1/sandboxes/{b}/files?path=/tmp/out").body == b"holding\n", 60)
    r = d.post(f"/v1/sandboxes/{b}/checkpoints", {"memory": True})
    assert r.status == 422 and "traced" in r.json["error"]["message"], r
    assert d.post(f"/v1/sandboxes/{b}/execs", {"cmd": ["echo", "lives"]}).json["stdout"] == "lives\n"
