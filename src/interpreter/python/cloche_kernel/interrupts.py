"""SIGINT as an interrupt of the cell that runs, and of nothing else."""
import signal
import threading


class Interrupts:
    """SIGINT raises KeyboardInterrupt while a cell runs. Between cells it does nothing, and while the kernel does something
    that must not be left half-done (held()), it waits for the end of that."""

    def __init__(self):
        self.running = False
        self.depth = 0
        self.pending = False
        self.main = threading.main_thread()

    def arm(self):
        """Before each cell: cells may have installed handlers of their own."""
        signal.signal(signal.SIGINT, self._signal)

    def _signal(self, number, frame):
        if not self.running:
            return
        if self.depth:
            self.pending = True
        else:
            raise KeyboardInterrupt

    def held(self):
        return _Held(self)

    def begin(self):
        self.pending = False
        self.running = True

    def end(self):
        self.running = False
        self.pending = False


class _Held:
    def __init__(self, interrupts):
        self.interrupts = interrupts
        self.counts = threading.current_thread() is interrupts.main

    def __enter__(self):
        if self.counts:
            self.interrupts.depth += 1

    def __exit__(self, kind, value, traceback):
        if not self.counts:
            return
        of = self.interrupts
        of.depth -= 1
        if of.pending and not of.depth and of.running:
            of.pending = False
            if kind is None:
                raise KeyboardInterrupt
