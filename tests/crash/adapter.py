#!/usr/bin/python3 -IS
"""A daemon by commands: start | pid | ready | create OP | exec ID OP -- ARGV… | put ID PATH OP <stdin | get ID PATH | untar ID DIR
<stdin | rm ID OP | ls | audit | verify.

For crash and file probes that are programs of their own. The operation's id travels as X-Request-Id, which comes back in
the audit log. CRASH_DIR holds `data` and what this script notes; CRASH_TARGET names the process that `pid` tells:
supervisor, api or warden. Started very often, so it imports little.
"""
import os
import socket
import sys
import time

HERE = os.environ["CRASH_DIR"]
CLOCHE = os.path.join(os.environ["CLOCHE_BUILD"], "cloche")
DATA = os.path.join(HERE, "data")


def note(name, text=None):
    path = os.path.join(HERE, name)
    if text is not None:
        with open(path + ".new", "w", encoding="ascii") as f:
            f.write(text)
        os.rename(path + ".new", path)
        return text
    with open(path, encoding="ascii") as f:
        return f.read().strip()


def quote(text):
    return "".join(c if c.isalnum() or c in "/-_.~" else "".join(f"%{b:02X}" for b in c.encode()) for c in text)


def call(method, path, body=b"", op=None, timeout=18):
    """(status, body). An answer that is cut is none: OSError."""
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {note('token')}\r\nConnection: close\r\n"
    if op:
        head += f"X-Request-Id: {op}\r\n"
    if method != "GET":
        head += f"Content-Length: {len(body)}\r\n"
    place, port = note("place").split(":")
    with socket.create_connection((place, int(port)), timeout) as s:
        s.sendall(head.encode() + b"\r\n" + body)
        got = bytearray()
        while True:
            piece = s.recv(1 << 20)
            if not piece:
                break
            got += piece
            if len(got) > 64 << 20:
                raise OSError("more than is wanted")
    head, end, rest = bytes(got).partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines[1:])}
    if not end:
        raise OSError("no answer")
    if fields.get("transfer-encoding") == "chunked":
        rest = unchunk(rest)
    elif len(rest) != int(fields.get("content-length", len(rest))):
        raise OSError("an answer that is cut")
    return int(lines[0].split()[1]), rest


def unchunk(data):
    out = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        n = int(size, 16)
        if n == 0:
            return out
        if len(data) < n + 2:
            raise OSError("an answer that is cut")
        out += data[:n]
        data = data[n + 2:]


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def start():
    try:
        if alive(note("pid")):
            return 0
        listen = note("place")
    except OSError:
        listen = "127.0.0.1:0"
    reader, writer = os.pipe()
    command = [CLOCHE, "serve", "--data", DATA, "--listen", listen, "--token-file", os.path.join(HERE, "token")]
    pid = os.fork()
    if pid == 0:
        os.setsid()
        log = os.open(os.path.join(HERE, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(writer, 1)
        os.dup2(log, 2)
        os.closerange(3, 64)
        os.execv(CLOCHE, command)
    os.close(writer)
    note("pid", str(pid))
    with os.fdopen(reader) as f:
        line = f.readline()
    note("place", line.split("http://", 1)[1].split()[0].rstrip("/,"))
    return 0


def target():
    pid = note("pid")
    which = os.environ.get("CRASH_TARGET", "supervisor")
    if which == "supervisor":
        return pid
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            children = f.read().split()
        for child in children:
            try:
                with open(f"/proc/{child}/comm", encoding="ascii") as f:
                    name = f.read().strip()
            except OSError:
                continue
            if name.startswith("cloche-warden") == (which == "warden"):
                return child
        time.sleep(0.01)
    raise OSError(f"no {which}")


def records():
    with open(os.path.join(DATA, "audit.log"), "rb") as f:
        return f.read().split(b"\n")[:-1]


def audit():
    import json
    for line in records():
        r = json.loads(line)
        if r.get("request_id"):
            print(json.dumps({**r, "op_id": r["request_id"]}))
    return 0


def verify():
    """The chain: each record's hash covers its own text, in which the hash of the one before is."""
    import hashlib
    import json
    prev, seq = None, 0
    for line in records():
        r = json.loads(line)
        text, _, tail = line.rpartition(b',"hash":"')
        if (prev is not None and (r["prev"] != prev or r["seq"] != seq + 1)) or tail != r["hash"].encode() + b'"}' or \
           hashlib.sha256(text).hexdigest() != r["hash"]:
            print("bad record", r["seq"])
            return 1
        prev, seq = r["hash"], r["seq"]
    return 0


def ids():
    import json
    cursor = ""
    while cursor is not None:
        status, body = call("GET", "/v1/sandboxes?limit=1000&tenant=*" + (f"&cursor={cursor}" if cursor else ""))
        if status != 200:
            return 1
        page = json.loads(body)
        for box in page["sandboxes"]:
            if box["state"] != "lost":
                print(box["id"])
        cursor = page["next"]
    return 0


def execute(box, op, argv):
    import json
    status, body = call("POST", f"/v1/sandboxes/{box}/execs", json.dumps({"cmd": argv}).encode(), op)
    if status != 200:
        return 1
    result = json.loads(body)
    sys.stdout.write(result["stdout"])
    return result["exit_code"]


def main(verb, *args):
    if verb == "start":
        return start()
    if verb == "pid":
        print(target())
        return 0
    if verb == "ready":
        return call("GET", "/healthz", timeout=2)[0] != 200
    if verb == "create":
        status, body = call("POST", "/v1/sandboxes", b'{"memory":67108864,"disk":16777216}', args[0])
        if status == 201:
            import json
            print(json.loads(body)["id"])
        return status != 201
    if verb == "exec":
        return execute(args[0], args[1], list(args[3:]))
    if verb == "put":
        return call("PUT", f"/v1/sandboxes/{args[0]}/files?path={quote(args[1])}", sys.stdin.buffer.read(), args[2])[0] != 200
    if verb == "get":
        status, body = call("GET", f"/v1/sandboxes/{args[0]}/files?path={quote(args[1])}", timeout=10)
        if status == 200:
            sys.stdout.buffer.write(body)
        return status != 200
    if verb == "untar":
        return call("POST", f"/v1/sandboxes/{args[0]}/files?op=extract&path={quote(args[1])}", sys.stdin.buffer.read())[0] != 200
    if verb == "rm":
        return call("DELETE", f"/v1/sandboxes/{args[0]}", b"", args[1])[0] != 204
    if verb == "ls":
        return ids()
    return {"audit": audit, "verify": verify}[verb]()


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except (OSError, ValueError, IndexError) as problem:
        print(problem, file=sys.stderr)
        sys.exit(1)
