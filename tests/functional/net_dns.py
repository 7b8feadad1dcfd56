"""A name server for the tests: authoritative for what it is told, never asks anybody, and remembers who asked for what.

A name's answers are a list of lists: the first query of a type gets the first list, the next one the second, and so on;
the last one stays. That is how a name is "rebound" between two looks at it.
"""
import ipaddress
import socket
import socketserver
import struct
import threading

A, CNAME, AAAA = 1, 5, 28
NOERROR, FORMERR, NXDOMAIN = 0, 1, 3
QUERIES_MAX = 10000


def wire(name):
    return b"".join(bytes([len(x)]) + x.encode("ascii") for x in name.split(".")) + b"\0"


def read_name(data, at):
    """Of a question, where nothing is compressed."""
    labels = []
    while data[at]:
        n = data[at]
        if n > 63 or len(labels) > 127:
            raise ValueError("not a name")
        labels.append(data[at + 1:at + 1 + n].decode("ascii").lower())
        at += 1 + n
    return ".".join(labels), at + 1


def record(owner, value):
    """`value`: an address, or a name it is an alias of."""
    try:
        a = ipaddress.ip_address(value)
    except ValueError:
        return wire(owner) + struct.pack(">HHIH", CNAME, 1, 0, len(wire(value))) + wire(value)
    return wire(owner) + struct.pack(">HHIH", A if a.version == 4 else AAAA, 1, 0, len(a.packed)) + a.packed


class Names:
    """What is known, and the queries so far as (name, type)."""

    def __init__(self):
        self.lock = threading.Lock()
        self.known, self.turn, self.queries = {}, {}, []

    def set(self, name, *answers):
        """`answers`: one or more lists of addresses; a name among them is a CNAME, whose own answers follow."""
        with self.lock:
            self.known[name] = [list(x) for x in answers]
            self.turn = {k: v for k, v in self.turn.items() if k[0] != name}

    def asked(self, name=None):
        with self.lock:
            return [q for q in self.queries if name is None or q[0] == name]

    def forget(self):
        with self.lock:
            self.queries = []

    def look(self, name, kind):
        with self.lock:
            if len(self.queries) < QUERIES_MAX:
                self.queries.append((name, kind))
            answers = self.known.get(name)
            if answers is None:
                return None
            n = self.turn.get((name, kind), 0)
            self.turn[name, kind] = n + 1
            return answers[min(n, len(answers) - 1)]

    def answer(self, query):
        if len(query) < 12:
            return None
        ident, flags, questions = struct.unpack(">HHH", query[:6])
        try:
            name, at = read_name(query, 12)
            kind, = struct.unpack(">H", query[at:at + 2])
        except (ValueError, IndexError, struct.error):
            return struct.pack(">HHHHHH", ident, 0x8180 | FORMERR, 0, 0, 0, 0)
        question = query[12:at + 4]
        found = self.look(name, kind)
        records = []
        if questions == 1 and found is not None:
            owner = name
            for value in found:
                is_address = value.replace(".", "").isdigit() or ":" in value
                if not is_address:
                    records.append(record(owner, value))
                    owner = value
                elif (":" in value) == (kind == AAAA) and kind in (A, AAAA):
                    records.append(record(owner, value))
        code = NXDOMAIN if found is None else NOERROR
        head = struct.pack(">HHHHHH", ident, 0x8580 | (flags & 0x0100) | code, 1, len(records), 0, 0)
        return head + question + b"".join(records)


class Server:
    """UDP and TCP on one address and port."""

    def __init__(self, names, address, port=53):
        class Udp(socketserver.BaseRequestHandler):
            def handle(self):
                reply = names.answer(self.request[0])
                if reply:
                    self.request[1].sendto(reply, self.client_address)

        class Tcp(socketserver.StreamRequestHandler):
            timeout = 10

            def handle(self):
                try:
                    while len(size := self.rfile.read(2)) == 2:
                        reply = names.answer(self.rfile.read(struct.unpack(">H", size)[0]))
                        if not reply:
                            return
                        self.wfile.write(struct.pack(">H", len(reply)) + reply)
                except OSError:
                    pass

        class TcpServer(socketserver.ThreadingTCPServer):
            daemon_threads = allow_reuse_address = True

        self.servers = [TcpServer((address, port), Tcp)]
        try:
            self.port = self.servers[0].server_address[1]
            self.servers.append(socketserver.UDPServer((address, self.port), Udp))
        except OSError:
            self.servers[0].server_close()
            raise
        self.threads = [threading.Thread(target=s.serve_forever, args=(0.05,), daemon=True) for s in self.servers]
        for t in self.threads:
            t.start()

    def done(self):
        for s in self.servers:
            s.shutdown()
            s.server_close()
        for t in self.threads:
            t.join()


def ask(address, port, name, kind=A, tcp=False, seconds=2):
    """One query: (response code, addresses), for tests of this file itself and of others."""
    data = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + wire(name) + struct.pack(">HH", kind, 1)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as s:
        s.settimeout(seconds)
        s.connect((address, port))
        s.sendall(struct.pack(">H", len(data)) + data if tcp else data)
        reply = s.recv(4096)[2 if tcp else 0:]
    code, count = reply[3] & 15, struct.unpack(">H", reply[6:8])[0]
    at, found = len(data), []
    for _ in range(count):
        if reply[at] & 0xc0:
            at += 2
        else:
            _, at = read_name(reply, at)
        kind, _, _, n = struct.unpack(">HHIH", reply[at:at + 10])
        if kind in (A, AAAA):
            found.append(str(ipaddress.ip_address(reply[at + 10:at + 10 + n])))
        at += 10 + n
    return code, found
