"""One keep-alive connection to a daemon."""
import http.client
import json
import urllib.parse


class Keep:
    """One keep-alive connection."""

    def __init__(self, daemon):
        place = urllib.parse.urlsplit(daemon.url)
        self.c = http.client.HTTPConnection(place.hostname, place.port, timeout=120)
        self.head = {"Authorization": f"Bearer {daemon.token}", "Content-Type": "application/json"}

    def __call__(self, method, path, body=None, ok=(200, 201, 204)):
        self.c.request(method, path, None if body is None else json.dumps(body), self.head)
        r = self.c.getresponse()
        data = r.read()
        if r.status not in ok:
            raise RuntimeError(f"{method} {path}: {r.status} {data[:500]!r}")
        return json.loads(data) if data else None

    def code(self, box, code):
        r = self("POST", f"/v1/sandboxes/{box}/execs", {"code": code})
        if r["exit_code"] != 0:
            raise RuntimeError(f"{code!r}: {r}")
        return r["stdout"]
