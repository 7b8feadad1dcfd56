"""What a cell prints: sys.stdout and sys.stderr as events, and what C code and child processes write to descriptors 1 and 2.

One print() is one event. What is written otherwise becomes an event at the end of a line, at flush(), or after a moment."""
import builtins
import codecs
import errno
import fcntl
import io
import os
import select
import signal
import threading
import time

PIPE_SIZE = 1 << 20  # code that holds the interpreter's lock while it writes to a descriptor has this much room
PIECE_MAX = 64 << 10  # bytes of one event
SINGLE_MAX = 1000  # events of one execution; what follows is joined into larger ones
HELD_S = 0.02
HANGUP_S = 3
FIRST_FDS = (200, 100, 40, 10)  # a limit of descriptors may be below the first of these
_SETPIPE_SZ = 1031


def away(fd):
    """The same file with a number out of the way of what cells open and close."""
    high = high_copy(fd)
    os.close(fd)
    return high


def high_copy(fd):
    for first in FIRST_FDS:
        try:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, first)
        except OSError as e:
            if first == FIRST_FDS[-1] or e.errno not in (errno.EINVAL, errno.EMFILE):
                raise
    return None


def pipe():
    return tuple(map(away, os.pipe()))


class Output:
    """The output of one context, with the limit of each execution."""

    def __init__(self, wire, limit):
        self.wire, self.limit = wire, limit
        self.id = None  # of the execution that runs
        self.sent = self.dropped = self.count = 0
        self.lock = threading.RLock()
        self.kernel = os.getpid()
        self.streams = (Stream(self, "stdout", 1), Stream(self, "stderr", 2))
        self.captures = ()
        self.wake = None

    def begin(self, request_id):
        with self.wire.interrupts.held(), self.lock:
            self.sent = self.dropped = self.count = 0
            self.id = request_id

    def end(self):
        """After this, no event carries the execution's id. Returns the bytes that were over the limit."""
        with self.wire.interrupts.held(), self.lock:
            self.flush()
            self.id = None
            return self.dropped

    def flush(self):
        """Sends all that is held back or lies in the pipes."""
        with self.wire.interrupts.held(), self.lock:
            for capture in self.captures:
                capture.drain()
            for stream in self.streams:
                stream.push()

    def event(self, kind, text):
        """Sends @text. What is over the execution's limit is counted and dropped."""
        with self.wire.interrupts.held(), self.lock:
            room = self.limit - self.sent
            if room <= 0:
                self.dropped += len(text.encode("utf-8", "replace"))
                return
            start = 0
            while start < len(text):
                piece = text[start:start + PIECE_MAX // 4]
                start += len(piece)
                size = len(piece) if piece.isascii() else len(piece.encode("utf-8", "replace"))
                if self.sent + size > self.limit:
                    whole, cut = piece.encode("utf-8", "replace"), self.limit - self.sent
                    kept = whole[:max(cut, 0)].decode("utf-8", "ignore")
                    self.dropped += len(whole) - len(kept.encode("utf-8"))
                    self.sent = self.limit
                    piece, size = kept, 0
                    if not piece:
                        continue
                self.sent += size
                self.count += 1
                self.wire.send({"type": kind, "id": self.id, "text": piece})

    def held(self):
        """The pump has to come by: something waits to be sent."""
        if self.wake is not None:
            try:
                os.write(self.wake, b"x")
            except BlockingIOError:
                pass  # it is awake already

    def start(self):
        """Takes descriptors 1 and 2, and starts the thread that reads what is written there."""
        self.captures = tuple(Capture(self, s, fd) for s, fd in zip(self.streams, (1, 2)))
        pump_end, self.wake = pipe()
        os.set_blocking(pump_end, False)
        os.set_blocking(self.wake, False)
        threading.Thread(target=self._pump, args=(pump_end,), name="cloche-output", daemon=True).start()

    def _pump(self, wake):
        poll = select.poll()
        for capture in self.captures:
            poll.register(capture.fd, select.POLLIN)
        poll.register(wake, select.POLLIN)
        poll.register(self.wire.requests, 0)  # only the hang-up
        while True:
            ready = dict(poll.poll())
            if self.wire.requests in ready:
                poll.unregister(self.wire.requests)
                self._hung_up()
            if wake in ready:
                time.sleep(HELD_S)
                try:
                    os.read(wake, 4096)
                except BlockingIOError:
                    pass
            self.flush()

    def _hung_up(self):
        """Whoever sent requests is gone: a cell that runs on would have no owner."""
        def end():
            os.kill(self.kernel, signal.SIGINT)
            time.sleep(HANGUP_S)
            os._exit(0)
        threading.Thread(target=end, name="cloche-hangup", daemon=True).start()

    def forked(self):
        """In a child of the kernel: its output goes through the parent's pipes, like that of any other child process."""
        self.lock = threading.RLock()
        for stream in self.streams:
            stream.text, stream.direct = [], True


class Capture:
    """A pipe in place of a descriptor, for what does not go through sys.stdout."""

    def __init__(self, output, stream, fd):
        self.output, self.stream = output, stream
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.fd, self.end = pipe()  # the end stays open: a cell may close the descriptor
        try:
            fcntl.fcntl(self.fd, _SETPIPE_SZ, PIPE_SIZE)
        except OSError:
            pass  # the user's limit of pipe memory is reached: it works with less
        os.set_blocking(self.fd, False)
        os.dup2(self.end, fd)

    def drain(self):
        while True:
            try:
                data = os.read(self.fd, PIECE_MAX)
            except BlockingIOError:
                return
            if not data:
                return
            text = self.decoder.decode(data)
            if text:
                self.stream.push()
                self.output.event(self.stream.kind, text)


class Stream(io.TextIOBase):
    """sys.stdout or sys.stderr of the cells."""

    encoding, errors, newlines = "utf-8", "backslashreplace", None
    mode, line_buffering, write_through = "w", True, False

    def __init__(self, output, kind, fd):
        self.output, self.kind, self.number = output, kind, fd
        self.name = "<%s>" % kind
        self.text, self.size = [], 0
        self.direct = False
        self.buffer = Bytes(self)

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not %s" % type(text).__name__)
        if text:
            self.put(text, text.endswith("\n"))
        return len(text)

    def put(self, text, now):
        """@now: as an event of its own, unless there were too many of them."""
        if self.direct:
            _write_all(self.number, text.encode("utf-8", "backslashreplace"))
            return
        output = self.output
        with output.wire.interrupts.held(), output.lock:
            for capture in output.captures:
                capture.drain()
            first = not self.text
            self.text.append(text)
            self.size += len(text)
            if (now and output.count < SINGLE_MAX) or self.size >= PIECE_MAX // 4:
                self.push()
            elif first:
                output.held()

    def push(self):
        if self.text:
            text, self.text, self.size = "".join(self.text), [], 0
            self.output.event(self.kind, text)

    def flush(self):
        if not self.direct:
            with self.output.wire.interrupts.held(), self.output.lock:
                self.push()

    def writable(self):
        return True

    def isatty(self):
        return False

    def fileno(self):
        return self.number

    def reconfigure(self, **options):
        """Accepted, as programs for pipes and terminals ask for it. The encoding is always UTF-8."""

    def close(self):
        self.flush()  # the next cell prints, too

    def __repr__(self):
        return "<%s of this context>" % self.kind


class Bytes(io.RawIOBase):
    """sys.stdout.buffer"""

    def __init__(self, stream):
        self.stream = stream
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self):
        return True

    def write(self, data):
        data = bytes(data)
        if self.stream.direct:
            _write_all(self.stream.number, data)
        else:
            text = self.decoder.decode(data)
            if text:
                self.stream.put(text, text.endswith("\n"))
        return len(data)

    def flush(self):
        self.stream.flush()

    def fileno(self):
        return self.stream.number

    def close(self):
        self.flush()


def _write_all(fd, data):
    while data:
        data = data[os.write(fd, data):]


def _printer(output):
    """print(), with all of its text in one write. What it does with other files, or wrong arguments, is up to the original."""
    original = builtins.print

    def print(*args, sep=" ", end="\n", file=None, flush=False):
        import sys
        stream = sys.stdout if file is None else file
        if not isinstance(stream, Stream) or not all(x is None or isinstance(x, str) for x in (sep, end)):
            original(*args, sep=sep, end=end, file=file, flush=flush)
            return
        text = (" " if sep is None else sep).join([str(x) for x in args]) + ("\n" if end is None else end)
        if text:
            stream.put(text, flush or text.endswith("\n"))
    print.__doc__, print.__qualname__, print.__module__ = original.__doc__, "print", "builtins"
    return print


def install_print(output):
    builtins.print = _printer(output)
