#!/usr/bin/env python3
"""Runs the tests of this package, installed as users install it, on every Python from 3.9 on that this machine has.

    CLOCHE_BUILD=../../build scripts/run_tests.py [3.N...]

On the newest Python all tests run, and types are checked: mypy --strict, pyright, and a program that uses the package. On the
others those run that are marked `each_python`: what depends on the version, and one walk through each part with both clients
(CLOCHE_SDK_ALL=1: all). Virtual environments are kept in .venv-3.N, made again when what they hold should change.
Ends with the lines "# pass N", "# fail N", "# skipped N".
"""
import concurrent.futures
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NEEDS = ["flit_core>=3.8,<4", "httpx>=0.25,<1", "sniffio>=1.1", "pytest>=8,<10"]
CHECKERS = ["mypy==1.19.1", "pyright==1.1.408", "typing_extensions"]
OLDEST = (3, 9)


def pythons():
    """{(3, N): path}, one of each version."""
    found = {}
    names = [p for folder in os.environ["PATH"].split(":") for p in glob.glob(folder + "/python3.[0-9]*")]
    names += glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3")) + ["/usr/bin/python3", sys.executable]
    for path in names:
        if not re.fullmatch(r"python3(\.\d+)?", os.path.basename(path)) or "/shims/" in path:
            continue
        try:
            code = "import sys, venv, ssl; print(*sys.version_info[:2])"
            out = subprocess.run([path, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, timeout=30)
        except OSError:
            continue
        version = tuple(map(int, out.stdout.split())) if out.returncode == 0 else ()
        if version >= OLDEST:
            found.setdefault(version, path)
    return found


def venv(version, path, more):
    """Makes the environment, or finds it. Those without @more have no pip of their own: that of the newest Python fills them."""
    folder = os.path.join(HERE, ".venv-%d.%d" % version)
    python = os.path.join(folder, "bin", "python")
    want = hashlib.sha256(repr((path, NEEDS, more, open(HERE + "/pyproject.toml").read())).encode()).hexdigest()
    stamp = os.path.join(folder, "stamp")
    known = os.path.exists(stamp) and open(stamp).read() == want
    if not known:
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([path, "-m", "venv", *([] if more else ["--without-pip"]), folder], check=True)
    return python, stamp, want, known


def install(newest, path):
    """The newest Python's environment has the package as users install it. Returns it, and the wheel for the others."""
    python, stamp, want, known = venv(newest, path, CHECKERS)
    pip = [python, "-m", "pip"]
    wheels = os.path.join(os.path.dirname(stamp), "wheels")
    shutil.rmtree(wheels, ignore_errors=True)
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", wheels, HERE], check=True)
    (wheel,) = glob.glob(wheels + "/*.whl")
    more = ["--no-deps", "--force-reinstall"] if known else [*NEEDS, *CHECKERS]
    subprocess.run([*pip, "install", "-q", "--no-compile", wheel, *more], check=True)
    with open(stamp, "w") as f:
        f.write(want)
    return pip, wheel


def install_again(version, path, pip, wheel):
    """The same wheel into the environment of another Python."""
    python, stamp, want, known = venv(version, path, [])
    command = [*pip, "--python", python, "install", "-q", "--no-compile"]
    if known:
        subprocess.run([*command, "--no-deps", "--force-reinstall", wheel], check=True)
    else:
        subprocess.run([*command, wheel, *NEEDS], check=True)
        with open(stamp, "w") as f:
            f.write(want)
    return python


def run(name, argv):
    """Its lines come at once, not mixed with others'."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(argv, cwd=HERE, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    sys.stdout.write(f"--- {name}\n{done.stdout.decode(errors='replace')}\n")
    sys.stdout.flush()
    return done.returncode


def tests(version, python, newest):
    """(passed, failed, skipped) of one Python."""
    name = "%d.%d" % version
    result = os.path.join(HERE, f".venv-{name}", "result.xml")
    if os.path.exists(result):
        os.unlink(result)
    some = [] if newest or os.environ.get("CLOCHE_SDK_ALL") == "1" else ["-m", "each_python"]
    code = run(f"Python {name}", [python, "-m", "pytest", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=120",
                                  "--tb=short", "--junitxml", result, *some])
    passed = failed = skipped = 0
    if os.path.exists(result):
        for case in xml.etree.ElementTree.parse(result).iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
                print(f"not ok - Python {name}: {case.get('name')}")
            elif case.find("skipped") is not None:
                skipped += 1
            else:
                passed += 1
    if code != 0 and not failed or not passed:
        failed += 1
        print(f"not ok - Python {name}: pytest ended with {code}")
    return passed, failed, skipped


def types(python):
    """(passed, failed, skipped) of the checks of types."""
    bin_folder = os.path.dirname(python)
    bad = 0
    checks = (
        ("mypy --strict", [bin_folder + "/mypy", "--cache-dir", bin_folder + "/../mypy"]),
        ("mypy --strict of a program", [bin_folder + "/mypy", "--strict", "--cache-dir", bin_folder + "/../mypy", "tests/usage.py"]),
        ("pyright", [bin_folder + "/pyright", "--pythonpath", python]),
    )
    for what, argv in checks:
        if run(what, argv) != 0:
            bad += 1
            print(f"not ok - {what}")
    return len(checks) - bad, bad, 0


def other(version, path, pip, wheel):
    try:
        return tests(version, install_again(version, path, pip, wheel), False)
    except (subprocess.CalledProcessError, OSError) as e:
        print("not ok - %d.%d: %s" % (*version, e))
        return 0, 1, 0


def main():
    found = pythons()
    wanted = [tuple(map(int, a.split("."))) for a in sys.argv[1:]] or sorted(found)
    missing = [v for v in wanted if v not in found]
    if missing or not wanted:
        sys.exit(f"no Python {missing or 'from 3.9 on'} here")
    newest = max(wanted)
    pip, wheel = install(newest, found[newest])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(tests, newest, pip[0], True)]
        jobs += [pool.submit(other, v, found[v], pip, wheel) for v in wanted if v != newest]
        jobs.append(pool.submit(types, pip[0]))
        counts = [j.result() for j in jobs]
    passed, failed, skipped = (sum(c[i] for c in counts) for i in range(3))
    print(f"# pass {passed}\n# fail {failed}\n# skipped {skipped}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
