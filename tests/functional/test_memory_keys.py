"""Memory protection keys in memory checkpoints: which a process was given, which mapping has which, and what each thread may do with them."""
import pathlib

import pytest

from api import d, nothing_is_left_behind  # noqa: F401
from memory_lives import live_on
from test_checkpoints_memory import clean  # noqa: F401

KEYS = ("""
ACCESS, WRITE = 1, 2
def take(rights=0): return check(libc.pkey_alloc(0, rights))
def rights(*keys): return [check(libc.pkey_get(k)) for k in keys]
first, second, third = take(), take(WRITE), take(ACCESS)
check(libc.pkey_free(first))
m = mmap.mmap(-1, 8192); m[:5] = b"first"; m[4096:4100] = b"page"
at = ctypes.addressof(ctypes.c_char.from_buffer(m))
check(libc.pkey_mprotect(ctypes.c_void_p(at), ctypes.c_size_t(4096), 3, second))
code = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 4)  # the kernel has a key of its own for what is only run
told, go = [], threading.Event()
def other():
    check(libc.pkey_set(second, ACCESS)); told.append("set"); go.wait(); told.append(rights(second, third))
t = threading.Thread(target=other); t.start()
while not told: time.sleep(0.01)
def writes():
    m[0] = 120
gate()
go.set(); t.join()
print(rights(second, third), told[-1], m[:5], m[4096:4100])
p = os.fork()
if not p: writes(); os._exit(0)
print(os.waitpid(p, 0)[1] & 127)
check(libc.pkey_set(second, 0)); writes(); print(m[:5])
print(take(), fails(lambda: check(libc.pkey_mprotect(ctypes.c_void_p(at), ctypes.c_size_t(4096), 3, third))), fails(lambda: check(libc.pkey_free(15))))
""", "[2, 1] [1, 1] b'first' b'page'\n11\nb'xirst'\n4 0 EINVAL")


@pytest.mark.skipif(" ospke" not in pathlib.Path("/proc/cpuinfo").read_text(), reason="this processor has no protection keys")
def test_keys_mappings_and_rights_are_the_same(d, clean):
    live_on(d, {"keys": KEYS})
