"""ask.py PORT: asks the program behind a port of this sandbox for its next step, prints the answer."""
import socket
import sys

with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60) as s:
    s.settimeout(60)
    s.sendall(b"step\n")
    answer = b""
    while not answer.endswith(b"\n"):
        more = s.recv(65536)
        if not more:
            sys.exit(f"the connection ended after {answer!r}")
        answer += more
print(answer.decode(), end="")
