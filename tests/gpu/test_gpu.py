#!/usr/bin/python3
"""test_gpu.py [--build FOLDER] [--python PROGRAM]: GPUs in sandboxes, on a machine that has one (`make test-gpu`).

Needs root, the driver, and nothing else: CUDA's driver is called through ctypes, so that no compiler is needed. PyTorch is tested when
a Python on this machine has it (--python, or one of those that are usually there). Prints one line for each test, and the
output of the programs; exits with 1 when one fails, with 3 when the machine has no GPU.
"""
import argparse
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

CUDA = r'''
import ctypes, sys
def call(r, what):
    if r: raise SystemExit(f"{what}: error {r}")
cu = ctypes.CDLL("libcuda.so.1")
call(cu.cuInit(0), "cuInit")
n = ctypes.c_int(); call(cu.cuDeviceGetCount(ctypes.byref(n)), "cuDeviceGetCount")
version = ctypes.c_int(); call(cu.cuDriverGetVersion(ctypes.byref(version)), "cuDriverGetVersion")
for i in range(n.value):
    dev = ctypes.c_int(); call(cu.cuDeviceGet(ctypes.byref(dev), i), "cuDeviceGet")
    name = ctypes.create_string_buffer(100); call(cu.cuDeviceGetName(name, 100, dev), "cuDeviceGetName")
    ctx = ctypes.c_void_p(); call(cu.cuCtxCreate_v2(ctypes.byref(ctx), 0, dev), "cuCtxCreate")
    # A kernel in PTX, which the driver compiles: adds 1 to each of 1,048,576 numbers.
    ptx = b""".version 6.0
.target sm_50
.address_size 64
.visible .entry add1(.param .u64 p)
{
  .reg .b32 %r<6>; .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %rd3, %r4, 4; add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r5, [%rd4]; add.u32 %r5, %r5, 1; st.global.u32 [%rd4], %r5; ret;
}
\0"""
    mod = ctypes.c_void_p(); call(cu.cuModuleLoadData(ctypes.byref(mod), ptx), "cuModuleLoadData")
    fn = ctypes.c_void_p(); call(cu.cuModuleGetFunction(ctypes.byref(fn), mod, b"add1"), "cuModuleGetFunction")
    N = 1 << 20; host = (ctypes.c_uint32 * N)(*range(N)); mem = ctypes.c_uint64()
    call(cu.cuMemAlloc_v2(ctypes.byref(mem), ctypes.c_size_t(4 * N)), "cuMemAlloc")
    call(cu.cuMemcpyHtoD_v2(mem, host, ctypes.c_size_t(4 * N)), "cuMemcpyHtoD")
    arg = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(mem), ctypes.c_void_p))
    call(cu.cuLaunchKernel(fn, N // 256, 1, 1, 256, 1, 1, 0, None, arg, None), "cuLaunchKernel")
    call(cu.cuMemcpyDtoH_v2(host, mem, ctypes.c_size_t(4 * N)), "cuMemcpyDtoH")
    assert all(host[k] == k + 1 for k in range(0, N, 997)), "wrong results"
    # managed memory needs nvidia-uvm
    call(cu.cuMemAllocManaged(ctypes.byref(mem), ctypes.c_size_t(1 << 20), 1), "cuMemAllocManaged")
    print("cuda", version.value, name.value.decode(), "ok")
'''
TORCH = r'''
import time, torch
assert torch.cuda.is_available(), "torch.cuda.is_available() is False"
x = torch.randn(4096, 4096, device="cuda"); y = x @ x; torch.cuda.synchronize()
t = time.time(); [x @ x for _ in range(20)]; torch.cuda.synchronize()
print("torch", torch.__version__, torch.cuda.get_device_name(0), f"{20 * 2 * 4096 ** 3 / (time.time() - t) / 1e12:.1f} TFLOP/s", float(y.sum()) == float(y.sum()))
'''

failed = []


class World:
    def __init__(self, options):
        self.cloche = str(pathlib.Path(options.build) / "cloche")
        self.env = dict(os.environ)
        if "LD_LIBRARY_PATH_KIT" in self.env:  # for the daemon's programs alone, which need libraries that may not be here
            self.kit = self.env.pop("LD_LIBRARY_PATH_KIT")
        else:
            self.kit = None

    def sh(self, *args, timeout=180, env=None):
        t = time.monotonic()
        try:
            p = subprocess.run([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, env=env or self.env, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as e:
            return 124, (e.stdout or b"").decode(errors="replace") + f"\n(timeout after {timeout} s)", time.monotonic() - t
        return p.returncode, p.stdout.decode(errors="replace"), time.monotonic() - t

    def run(self, *args, **kw):
        return self.sh(self.cloche, "run", "--memory", "16G", "--pids", "4096", "--disk", "4G", "--cpus", "4", "--timeout", "150s", *args, **kw)


def report(name, good, text, seconds=0.0):
    print(f"{'ok' if good else 'FAILED'}  {name}  ({seconds:.1f} s)")
    for line in text.strip().splitlines()[-12:]:
        print("    " + line)
    sys.stdout.flush()
    if not good:
        failed.append(name)


def test(name, result, code=0, has=None):
    rc, out, seconds = result
    report(name, rc == code and (has is None or has in out), out or f"exit status {rc}", seconds)
    return out


def python_with_torch(options, world):
    for p in [options.python, "/opt/torch/.venv/bin/python3", "/usr/bin/python3", *glob.glob("/opt/*/bin/python3"), *glob.glob("/opt/*/.venv/bin/python3")]:
        if p and os.path.exists(p) and world.sh(p, "-c", "import torch", timeout=120)[0] == 0:
            return p
    return None


def mounts_for(python):
    """What is not below /usr must be given to image `host`."""
    top = pathlib.Path(python).parent.parent
    real = pathlib.Path(os.path.realpath(python)).parent.parent
    found = [str(p) for p in dict.fromkeys((top, real)) if not str(p).startswith("/usr")]
    return [a for p in found for a in ("--mount", f"{p}:{p}:ro")]


def in_run(world, options):
    python = python_with_torch(options, world)
    plain = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else python or sys.executable
    cuda = [*mounts_for(plain), "--gpu", "0"] if not plain.startswith("/usr/") else ["--gpu", "0"]
    test("doctor lists it", (lambda r: (r[0], "\n".join(x for x in r[1].splitlines() if "gpu" in x.lower() or "Devices" in x), r[2]))(world.sh(world.cloche, "doctor")), has="gpu=0")
    if shutil.which("nvidia-smi") or glob.glob("/usr/local/nvidia/bin/nvidia-smi"):
        test("nvidia-smi inside", world.run("--gpu", "all", "--", "nvidia-smi"), has="Driver Version")
        out = test("nvidia-smi -L", world.run("--gpu", "0", "--", "nvidia-smi", "-L"), has="UUID")
        uuid = out.split("UUID: ")[-1].split(")")[0] if "UUID: " in out else None
        if uuid:
            test("by UUID", world.run("--gpu", uuid, "--", "nvidia-smi", "-L"), has=uuid)
    test("a CUDA program", world.run(*cuda, "--", plain, "-c", CUDA), has="ok")
    test("a CUDA program as root inside", world.run(*cuda, "--user", "root", "--", plain, "-c", CUDA), has="ok")
    test("a CUDA program as another user", world.run(*cuda, "--user", "4321", "--", plain, "-c", CUDA), code=0, has="ok")
    rc, out, seconds = world.run(*cuda[:-2], "--", plain, "-c", CUDA)
    report("without --gpu there is none", rc != 0, out, seconds)
    test("no GPU of that number", world.run("--gpu", "99", "--", "true"), code=125, has="none of that name")
    if not python:
        print("--  PyTorch: no Python here has it")
        return
    test("PyTorch on the host", world.sh(python, "-c", TORCH), has="TFLOP/s")
    test("PyTorch inside", world.run(*mounts_for(python), "--gpu", "0", "--", python, "-c", TORCH), has="TFLOP/s")


def api(url, token, method, path, body=None):
    request = urllib.request.Request(url + path, method=method, data=None if body is None else json.dumps(body).encode(),
                                     headers={"Authorization": "Bearer " + token, "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as r:
            return r.status, json.loads(r.read() or b"{}")
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read() or b"{}")


def in_daemon(world):
    folder = tempfile.mkdtemp(prefix="cloche-gpu-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    env = dict(world.env)
    if world.kit:
        env["LD_LIBRARY_PATH"] = world.kit
    log = open(folder + "/log", "wb")
    d = subprocess.Popen([world.cloche, "serve", "--data", folder + "/data", "--token-file", folder + "/token", "--listen", "127.0.0.1:18765", "--allow-device", "gpu"],
                         env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        for _ in range(300):
            if d.poll() is not None or b"serving on" in open(folder + "/log", "rb").read():
                break
            time.sleep(0.1)
        if d.poll() is not None or not os.path.exists(folder + "/token"):
            report("the daemon starts", False, open(folder + "/log", errors="replace").read())
            return
        call = lambda *a: api("http://127.0.0.1:18765", open(folder + "/token").read().strip(), *a)  # noqa: E731
        status, a = call("POST", "/v1/sandboxes", {"name": "a", "gpus": "any", "memory": "16G", "pids": 4096, "cpus": 4})
        report("a sandbox of the daemon", status == 201, json.dumps({k: a.get(k) for k in ("error", "gpus", "enforced")}))
        if status != 201:
            return
        status, x = call("POST", "/v1/sandboxes/a/execs", {"cmd": ["/usr/bin/python3", "-c", CUDA], "timeout": 100})
        report("a CUDA program in it", status == 200 and x.get("stdout", "").startswith("cuda ") and x["stdout"].rstrip().endswith(" ok"), json.dumps({k: x.get(k) for k in ("error", "stdout", "stderr", "verdict")}))
        # One that keeps the GPU open.
        status, x = call("POST", "/v1/sandboxes/a/execs", {"cmd": ["/usr/bin/python3", "-c", CUDA + "\nsys.stdout.flush()\nimport time; time.sleep(60)"], "background": True})
        time.sleep(8)
        status, x = call("GET", f"/v1/sandboxes/a/execs/{x.get('id')}")
        report("one keeps the GPU open", status == 200 and x.get("state") == "running", json.dumps({k: x.get(k) for k in ("error", "state", "stdout", "stderr")}))
        status, x = call("POST", "/v1/sandboxes/a/checkpoints", {"memory": True})
        report("memory with an open GPU is refused with the reason", status == 422 and x["error"]["reason"] == "cannot_carry", json.dumps(x))
        status, x = call("POST", "/v1/sandboxes/a/checkpoints", {})
        report("files are saved", status == 201, json.dumps(x)[:300])
        status, x = call("POST", "/v1/sandboxes", {"gpus": "all", "name": "b"})
        report("a GPU is one sandbox's", status == 503 and x["error"]["reason"] == "device_taken", json.dumps(x))
    finally:
        subprocess.run([world.cloche, "rm", "-f", "a"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False)
        d.terminate()
        try:
            d.wait(60)
        except subprocess.TimeoutExpired:
            d.kill()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default=os.environ.get("CLOCHE_BUILD") or str(pathlib.Path(__file__).resolve().parents[2] / "build"))
    p.add_argument("--python", help="one that has torch")
    p.add_argument("--only", choices=("run", "daemon"))
    options = p.parse_args()
    world = World(options)
    for command in (["nvidia-smi", "-L"], ["sh", "-c", "ls -l /dev/nvidia* /dev/kfd /dev/dri 2>/dev/null; ls -d /usr/local/nvidia/* /etc/cdi/* /var/run/cdi/* 2>/dev/null; ls /proc/driver/nvidia/gpus"]):
        rc, out, _ = world.sh(*command) if shutil.which(command[0]) else (0, "", 0)
        print("\n".join("# " + x for x in out.strip().splitlines()))
    if world.run("--gpu", "all", "--", "true")[0] != 0:
        print(world.run("--gpu", "all", "--", "true")[1])
        print("no GPU that a sandbox can have: nothing was tested")
        return 3
    if options.only != "daemon":
        in_run(world, options)
    if options.only != "run":
        in_daemon(world)
    print(f"{len(failed)} failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
