"""What `make` starts, by users who are not root but have sudo."""
import importlib.util
import os
import pathlib
import shutil
import subprocess

import host

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"
UID = 64321


def state():
    return {f: (f.stat().st_mtime_ns, f.stat().st_size) for f in map(host.BUILD.joinpath, ("config.h", "build.ninja", "cloche", "cloche-serve", "cloche-agent"))}


def script(name, prefix):
    """The scripts of `make install` and `make uninstall`; not by make, which would build while others build."""
    p = subprocess.run([SCRIPTS / name], capture_output=True, text=True, env={**os.environ, "BUILD": str(host.BUILD), "PREFIX": str(prefix)})
    assert p.returncode == 0, p


def test_install_to_another_prefix_leaves_the_build_and_folders_alone_and_uninstall_no_file_behind(tmp_path):
    before, prefix = state(), tmp_path / "a prefix"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "other").write_text("stays")
    (prefix / "bin").chmod(0o2775)
    (prefix / "elsewhere").mkdir(mode=0o700)
    (prefix / "libexec").symlink_to("elsewhere")
    script("install.sh", prefix)
    assert state() == before
    assert [(prefix / f).stat().st_mode & 0o7777 for f in ("bin", "elsewhere", "elsewhere/cloche")] == [0o2775, 0o700, 0o755]
    (prefix / "elsewhere").chmod(0o755)
    moved = tmp_path / "moved"
    prefix.rename(moved)
    for folder in (moved, tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    p = subprocess.run([moved / "bin" / "cloche", "run", "--", "echo", "works"], capture_output=True, text=True)
    assert (p.returncode, p.stdout) == (0, "works\n"), p
    p = subprocess.run([moved / "bin" / "cloche", "help", "create"], capture_output=True, text=True)
    assert p.returncode == 0 and "usage: cloche create" in p.stdout, p
    script("uninstall.sh", moved)
    assert sorted(f.name for f in moved.rglob("*")) == ["bin", "elsewhere", "libexec", "other"]


def test_a_part_is_run_with_the_programs_that_it_needs():
    """`make test PARTS=unit` in a fresh checkout."""
    spec = importlib.util.spec_from_file_location("test_runner", SCRIPTS / "test.py")
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    assert runner.with_build(["unit"]) == ["build", "unit"]
    assert runner.with_build(["layers", "functional", "fuzz"]) == ["build", "layers", "functional", "fuzz"]
    for enough in (["layers"], ["clang", "asan"], ["build", "unit"], [*runner.PARTS, *runner.PYTEST]):
        assert runner.with_build(enough) == enough
    assert set(runner.NEED_BUILD) <= {*runner.PARTS, *runner.PYTEST}


def test_sudo_gets_command_and_settings_and_gives_the_exit_code(tmp_path):
    """sudo drops the environment; this one also prints its arguments, since it has no rights."""
    sudo = tmp_path / "bin" / "sudo"
    sudo.parent.mkdir()
    sudo.write_text('#!/bin/sh\necho "sudo $1" >&2\nexec env -i "$@"\n')
    sudo.chmod(0o755)
    script = tmp_path / "scripts" / "as_root.sh"
    script.parent.mkdir()
    shutil.copy2(SCRIPTS / "as_root.sh", script)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    env = {"PATH": f"{sudo.parent}:/usr/bin:/bin", "PARTS": "a  b", "CLOCHE_NO_SKIP": "1", "CLOCHE_X": "$(id) 'q'", "SECRET": "s"}
    p = subprocess.run([script, "sh", "-c", 'echo "$PARTS|$CLOCHE_NO_SKIP|$CLOCHE_X|$SECRET|$PATH|$1"; exit 3', "x", "1 2"],
                       env=env, cwd=tmp_path, capture_output=True, text=True, user=UID, group=UID, extra_groups=[])
    assert p.returncode == 3, p
    assert p.stdout == f"a  b|1|$(id) 'q'||{env['PATH']}|1 2\n", p
    assert [line for line in p.stderr.splitlines() if line.startswith("sudo")] == ["sudo env", "sudo find"], p


def test_root_and_who_has_no_sudo_run_it_as_they_are():
    for user in (0, UID):
        p = subprocess.run([SCRIPTS / "as_root.sh", "sh", "-c", "id -u; exit 4"], env={"PATH": "/usr/bin:/bin"} if user else None, cwd="/",
                           capture_output=True, text=True, user=user, group=user, extra_groups=[])
        assert user and os.path.exists("/usr/bin/sudo") or (p.returncode, p.stdout) == (4, f"{user}\n"), p
