"""serve(step): answers each connection to port 7000 with the line that step(n) gives, n = 1, 2, ..."""
import socketserver


def serve(step):
    count = 0

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            nonlocal count
            self.rfile.readline()
            count += 1
            try:
                answer = step(count)
            except Exception as e:  # pylint: disable=broad-except
                answer = f"failed: {e!r}"
            self.wfile.write(f"{answer}\n".encode())

    class Server(socketserver.TCPServer):
        allow_reuse_address = True

    Server(("127.0.0.1", 7000), Handler).serve_forever()
