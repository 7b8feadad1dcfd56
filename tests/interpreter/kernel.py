"""A kernel as a process, and its frames: what the daemon does with one, for tests."""
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCE = os.path.join(ROOT, 'src', 'interpreter')
PYTHON = ['/usr/bin/python3', os.path.join(SOURCE, 'python', 'cloche_kernel')]


def node(language='javascript', program='node'):
    move = f'exec {program} "$0" "$@" 3<&0 4>&1 0</dev/null 1>&2'
    return ['/bin/sh', '-c', move, os.path.join(SOURCE, 'node', 'kernel.js'), language]


def shell():
    return [os.path.join(os.environ.get('CLOCHE_BUILD') or os.path.join(ROOT, 'build'), 'cloche-shell-kernel')]


class Ended(Exception):
    """The kernel's process is over."""


class Result:
    """What one execution has sent."""

    def __init__(self, events):
        self.events = events
        self.end = events[-1]
        self.stdout = ''.join(e['text'] for e in events if e['type'] == 'stdout')
        self.stderr = ''.join(e['text'] for e in events if e['type'] == 'stderr')
        self.results = [e for e in events if e['type'] == 'result']
        self.error = next((e for e in events if e['type'] == 'error'), None)

    @property
    def main(self):
        found = [r for r in self.results if r['is_main']]
        assert len(found) <= 1
        return found[0]['mime'] if found else None

    @property
    def text(self):
        return self.main['text/plain'] if self.main else None

    def of(self, kind):
        return [e for e in self.events if e['type'] == kind]


class Kernel:
    def __init__(self, argv=None, env=None, cwd=None, stderr=subprocess.DEVNULL, **start):
        base = {k: v for k, v in os.environ.items() if not k.startswith(('PYTHON', 'CLOCHE'))}
        self.process = subprocess.Popen(argv or PYTHON, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
                                        cwd=cwd or '/tmp', env={**base, 'PYTHONDONTWRITEBYTECODE': '1', **(env or {})},
                                        start_new_session=True)
        self.data = b''
        self.number = 0
        self.ready = self.event(20)
        assert self.ready['type'] == 'ready', self.ready
        if start:
            reply = self.ask('start', **start)
            assert reply['type'] == 'reply', reply

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for f in (self.process.stdin, self.process.stdout):
            try:
                f.close()
            except OSError:
                pass
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        if self.process.stderr:
            self.process.stderr.close()

    def raw(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, **request):
        body = json.dumps(request).encode()
        self.raw(struct.pack('<I', len(body)) + body)

    def event(self, timeout=30):
        """The next event. None if there is none in time; Ended at the end of the stream."""
        while True:
            if len(self.data) >= 4:
                size = struct.unpack('<I', self.data[:4])[0]
                if len(self.data) >= 4 + size:
                    body, self.data = self.data[4:4 + size], self.data[4 + size:]
                    event = json.loads(body)
                    if event['type'] != 'begun':  # tests do not need to know when a cell begins
                        return event
                    continue
            if not select.select([self.process.stdout], [], [], timeout)[0]:
                return None
            piece = os.read(self.process.stdout.fileno(), 1 << 20)
            if not piece:
                raise Ended(self.process.wait(10))
            self.data += piece

    def until_end(self, number, timeout=60):
        events = []
        limit = time.monotonic() + timeout
        while time.monotonic() < limit:
            event = self.event(max(limit - time.monotonic(), 0.01))
            if event is None:
                break
            if event.get('id') != number:
                self.others.append(event) if hasattr(self, 'others') else None
                continue
            events.append(event)
            if event['type'] in ('end', 'refused', 'reply'):
                return events
        raise TimeoutError(f'no end of request {number}: {events[-5:]}')

    def begin(self, code, **fields):
        self.number += 1
        self.send(type='execute', id=self.number, code=code, **fields)
        return self.number

    def run(self, code, timeout=60, **fields):
        return Result(self.until_end(self.begin(code, **fields), timeout))

    def ask(self, kind, timeout=30, **fields):
        self.number += 1
        self.send(type=kind, id=self.number, **fields)
        return self.until_end(self.number, timeout)[-1]

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)


if __name__ == '__main__':  # kernel.py LANGUAGE CODE...: for a look at what comes back
    with Kernel({'python': PYTHON, 'shell': shell()}.get(sys.argv[1]) or node(sys.argv[1]), stderr=None) as k:
        for code in sys.argv[2:]:
            for event in k.run(code).events:
                print({a: (b if len(str(b)) < 600 else str(b)[:600] + '…') for a, b in event.items() if a != 'id'})
