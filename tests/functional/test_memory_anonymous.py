"""Memory that a process has in a copy, in a fork of the copy and after sleeping is what it was: anonymous memory gives zeros when
it is given back or grows, advice is kept, pages that were not there are not there. The source and each of them tell the same."""
import hashlib
import os
import pathlib
import shutil
import subprocess

import pytest

import host
from api import d, eventually, nothing_is_left_behind, parallel  # noqa: F401
from test_checkpoints_memory import background, clean  # noqa: F401

# Each line that it reads it looks at all of its memory, says what it found, and makes it anew.
C = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define P 4096UL
#define MIB (1UL << 20)
static char *back, *lazy, *wiped, *hidden, *grows, *huge, *holes, *file, *half, *ro, *top, *block, *gone, *zero;
static int fd;

static char *get(size_t n)
{
	char *m = mmap(NULL, n + 2 * P, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return mmap(m + P, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
static char *filled(size_t n) { return memset(get(n), 'x', n); }
static unsigned long other(const char *m, size_t n, char want)
{
	unsigned long bad = 0;

	for (size_t i = 0; i < n; i += P / 4)
		bad += m[i] != want;
	return bad;
}
static int in_child(const char *m, char want)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(*(volatile const char *)m == want ? 7 : 8);
	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}
static void flags(const char *m, const char *what)
{
	char line[512];
	int here = 0;
	FILE *f = fopen("/proc/self/smaps", "r");

	while (fgets(line, sizeof(line), f)) {
		unsigned long a, b;

		if (sscanf(line, "%lx-%lx ", &a, &b) == 2)
			here = (uintptr_t)m >= a && (uintptr_t)m < b;
		else if (here && !strncmp(line, "VmFlags:", 8))
			printf(" %s%d", what, strstr(line, what) != NULL);
	}
	fclose(f);
}
static void make(void)
{
	int f;

	back = filled(8 * MIB);
	lazy = filled(MIB);
	wiped = filled(P);
	madvise(wiped, P, MADV_WIPEONFORK);
	hidden = filled(P);
	madvise(hidden, P, MADV_DONTFORK);
	grows = filled(MIB);
	huge = get(8 * MIB);
	huge = (char *)(((uintptr_t)huge + 2 * MIB - 1) & -(2 * MIB));
	madvise(huge, 4 * MIB, MADV_HUGEPAGE);
	memset(huge + 2 * MIB, 'h', 2 * MIB);
	holes = get(64 * P);
	for (int i = 0; i < 64; i += 2)
		holes[i * P] = 'x';
	fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (ftruncate(fd, 16 * P) < 0 || pwrite(fd, "file", 4, 5 * P) != 4)
		exit(1);
	file = mmap(NULL, 16 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	memcpy(file + 5 * P, "mine", 4);
	half = filled(4 * P); /* two mappings that are alike: the second one was moved here with its pages */
	munmap(half + 2 * P, 2 * P);
	mremap(filled(2 * P), 2 * P, 2 * P, MREMAP_MAYMOVE | MREMAP_FIXED, half + 2 * P);
	f = open("gone", O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (f < 0 || ftruncate(f, 3 * P) < 0 || pwrite(f, "gone", 4, P) != 4 || pwrite(f, "2", 1, 2 * P) != 1)
		exit(1);
	gone = mmap(NULL, 3 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE, f, 0);
	memcpy(gone + P, "mine", 4);
	unlink("gone");
	close(f);
	f = open("/dev/zero", O_RDWR);
	zero = mmap(NULL, 2 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE, f, 0);
	close(f);
	*zero = 'z';
	ro = filled(2 * P);
	mprotect(ro, 2 * P, PROT_READ);
	top = sbrk(4 * P);
	memset(top, 't', 4 * P);
	block = malloc(24 * MIB);
	memset(block, 'b', 24 * MIB);
}
static __attribute__((noinline)) int deep(int n)
{
	volatile char here[64 * 1024];

	memset((char *)here, n, sizeof(here));
	return n ? deep(n - 1) + here[77] : here[5];
}
static void look(void)
{
	unsigned char there[64];
	char *more, text[5] = "";

	printf("%lu", other(back, 8 * MIB, 'x'));
	madvise(back, 8 * MIB, MADV_DONTNEED);
	printf(" %lu", other(back, 8 * MIB, 0));
	printf(" %lu", other(lazy, MIB, 'x'));
	printf(" free%d", madvise(lazy, MIB, MADV_FREE));
	printf(" wipe%c%d hide%c%d", *wiped, in_child(wiped, 0), *hidden, in_child(hidden, 'x'));
	more = mremap(grows, MIB, 3 * MIB, MREMAP_MAYMOVE);
	printf(" grow%lu,%lu", other(more, MIB, 'x'), other(more + MIB, 2 * MIB, 0));
	printf(" huge%lu,%lu", other(huge, 2 * MIB, 0), other(huge + 2 * MIB, 2 * MIB, 'h'));
	flags(huge, "hg");
	mincore(holes, 64 * P, there);
	for (int i = 0, n = 0; i < 64; i++)
		n += there[i] & 1, i == 63 && printf(" present%d,%d,%d", n, there[2] & 1, there[3] & 1);
	memcpy(text, file + 5 * P, 4);
	madvise(file, 16 * P, MADV_DONTNEED);
	printf(" %s,%.4s", text, file + 5 * P);
	memcpy(text, gone + P, 4);
	madvise(gone, 3 * P, MADV_DONTNEED);
	printf(" %s,%.4s%c", text, gone + P, gone[2 * P]);
	printf(" %c", *zero);
	madvise(zero, P, MADV_DONTNEED);
	printf("%d", *zero + zero[P]);
	printf(" apart%d", mremap(half, 4 * P, 8 * P, MREMAP_MAYMOVE) == MAP_FAILED ? errno : 0);
	printf(" ro%lu", other(ro, 2 * P, 'x'));
	printf(",%d", madvise(ro, 2 * P, MADV_DONTNEED));
	mprotect(ro, 2 * P, PROT_READ | PROT_WRITE);
	printf(",%lu", other(ro, 2 * P, 0));
	more = sbrk(0) == top + 4 * P ? sbrk(16 * P) : NULL;
	printf(" brk%lu,%lu", other(top, 4 * P, 't'), more ? other(more, 16 * P, 0) : 99);
	printf(" block%lu", other(block, 24 * MIB, 'b'));
	free(block);
	block = calloc(24, MIB);
	printf(",%lu", other(block, 24 * MIB, 0));
	free(block);
	printf(" stack%d\n", deep(60));
	fflush(stdout);
	munmap(huge, 4 * MIB);
	munmap(back, 8 * MIB);
	munmap(lazy, MIB);
	close(fd);
}
int main(void)
{
	char line[64];

	for (;;) {
		make();
		puts("ready");
		fflush(stdout);
		if (!fgets(line, sizeof(line), stdin))
			return 0;
		look();
	}
}
"""

GO = r"""
package main

import ("bufio"; "crypto/sha256"; "fmt"; "os"; "runtime"; "runtime/debug"; "sort"; "sync")

type node struct{ left, right *node; text []byte }

func tree(depth, seed int) *node {
	if depth == 0 { return nil }
	n := &node{tree(depth-1, 2*seed), tree(depth-1, 2*seed+1), make([]byte, 100+seed%900)}
	for i := range n.text { if n.text[i] != 0 { panic("memory that is new is not zeros") }; n.text[i] = byte(seed + i) }
	return n
}
func (n *node) sum(h *[32]byte) {
	if n == nil { return }
	n.left.sum(h); n.right.sum(h); *h = sha256.Sum256(append(h[:], n.text...))
}
var kept []*node

func work() string {
	var all sync.WaitGroup
	sums := make([]string, 60)
	for i := range sums {
		all.Add(1)
		go func() {
			defer all.Done()
			var h [32]byte
			t := tree(6, i+1)
			if i % 20 == 0 { runtime.GC() }
			t.sum(&h); sums[i] = fmt.Sprintf("%x", h[:4])
		}()
	}
	all.Wait()
	debug.FreeOSMemory()
	var h [32]byte
	for _, k := range kept { k.sum(&h) }
	sort.Strings(sums)
	return fmt.Sprintf("%x %x", sha256.Sum256([]byte(fmt.Sprint(sums))), h[:8])
}
func main() {
	for i := 0; i < 20; i++ { kept = append(kept, tree(7, i+1)) }
	work()
	in := bufio.NewScanner(os.Stdin)
	for fmt.Println("ready"); in.Scan(); fmt.Println("ready") { fmt.Println(work()) }
}
"""

GO_TOOL = shutil.which("go") or shutil.which("/usr/local/go/bin/go")


def lines(d, box, x):
    r = d.get(f"/v1/sandboxes/{box['id']}/execs/{x}/output")
    assert r.status == 200, r
    return r.body.decode().splitlines()


def ready(d, box, x, seconds=60):
    def look():
        state = d.get(f"/v1/sandboxes/{box['id']}/execs/{x}").json
        assert state["state"] == "running", (state, lines(d, box, x), d.get(f"/v1/sandboxes/{box['id']}/execs/{x}/output?stream=stderr").body)
        return lines(d, box, x)[-1:] == ["ready"]
    eventually(look, seconds)


def asks(d, box, x):
    """What it says to the next line that it is sent."""
    had = len(lines(d, box, x))
    assert d.post(f"/v1/sandboxes/{box['id']}/execs/{x}/stdin", b"\n").status in (200, 204)
    eventually(lambda: len(lines(d, box, x)) > had, 60)
    ready(d, box, x)
    return lines(d, box, x)[-2]


def copy(d, box):
    r = d.post(f"/v1/sandboxes/{box['id']}/checkpoints", {"memory": True})
    assert r.status == 201 and r.json["memory"], r
    r = d.post(f"/v1/checkpoints/{r.json['id']}/restore", {"count": 1})
    assert r.status == 201, r
    return r.json["sandboxes"][0]


def fork(d, box):
    r = d.post(f"/v1/sandboxes/{box['id']}/fork", {"count": 1, "memory": True})
    assert r.status == 201, r
    return r.json["sandboxes"][0]


def sleep_and_wake(d, box):
    assert d.post(f"/v1/sandboxes/{box['id']}/hibernate").json["state"] == "hibernated"
    assert d.post(f"/v1/sandboxes/{box['id']}/resume").json["state"] == "running"


def all_tell(d, box, x, told):
    """@told says what one of them is like: the source, a copy, a fork of the copy, that one after it has slept, twice."""
    made = copy(d, box)
    own, = made["restored"]["execs"]
    forked = fork(d, made)
    inner, = forked["restored"]["execs"]
    first = told(box, x)
    assert told(made, own) == first
    assert told(forked, inner) == first
    for _ in range(2):
        sleep_and_wake(d, forked)
        assert told(forked, inner) == first
    return first


def upload(d, box, path, name):
    assert d.put(f"/v1/sandboxes/{box['id']}/files?path=/tmp/{name}&mode=0755", path.read_bytes()).status in (200, 201, 204)


def test_anonymous_memory_is_what_it_was(d, clean, tmp_path):
    (tmp_path / "m.c").write_text(C)
    subprocess.run(["gcc", "-O1", "-static", "-o", tmp_path / "m", tmp_path / "m.c"], check=True)
    b = d.create()
    upload(d, b, tmp_path / "m", "m")
    x = background(d, b, "cd /tmp; exec ./m", stdin_open=True)
    ready(d, b, x)
    told = all_tell(d, b, x, lambda box, exec_id: asks(d, box, exec_id))
    assert told == ("0 0 0 free0 wipex7 hidex-11 grow0,0 huge0,0 hg1 present32,1,0 mine,file mine,gone2 z0 apart14 ro0,0,0 brk0,0 block0,0 "
                    "stack" + told.rpartition("stack")[2]), told


# 72 MiB of pages that all differ, with holes, in mappings beside each other, of which one is read-only. Each line that it reads it
# says the sum of all, and changes every 37th page: so copies of copies have their pages in several files.
PIECES = r"""
import ctypes, hashlib, mmap
P, N = 4096, 18432
m = mmap.mmap(-1, N * P, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
at = ctypes.addressof(ctypes.c_char.from_buffer(m))
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
def write(i, text):
    m[i * P:i * P + P] = (b"%d %s " % (i, text)).ljust(P, b"%d" % (i % 10))
for i in range(N):
    if i % 11 and not 9000 <= i < 9500:
        write(i, b"first")
assert libc.mprotect(at + 12000 * P, 3 * P, 1) == 0
assert libc.madvise(at + 15000 * P, 3 * P, 16) == 0
told = 0
print("ready", flush=True)
while input() == "":
    here = sum(line.startswith("%x-" % at) or "%x-" % (at + 12003 * P) in line for line in open("/proc/self/maps"))
    print(hashlib.sha256(m).hexdigest(), here, flush=True)
    told += 1
    for i in range(told, N, 37):
        if not 12000 <= i < 12003:
            write(i, b"%d" % told)
    print("ready", flush=True)
"""


def test_much_memory_in_pieces_comes_back_page_by_page(d, clean):
    b = d.create(memory="512M")
    x = background(d, b, "exec python3 -c '" + PIECES.replace("'", '"') + "'", stdin_open=True)
    ready(d, b, x)
    made = copy(d, b)
    want = [asks(d, b, x) for _ in range(4)]
    own, = made["restored"]["execs"]
    assert asks(d, made, own) == want[0] and want[0].endswith(" 2")
    forked = fork(d, made)
    inner, = forked["restored"]["execs"]
    assert asks(d, forked, inner) == want[1]
    for told in want[2:]:
        sleep_and_wake(d, forked)
        assert asks(d, forked, inner) == told


# 8 MiB in 41 mappings that differ by protection alone. Each line that it reads it makes them alike, says how many there are and which
# pages are wrong, and makes them differ again. Two processes fill such memory (agent/restore/help.c).
JOINED = r"""
import ctypes, random
P, N = 4096, 2048
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
at = libc.mmap(None, (N + 2) * P, 0, 0x22, -1, 0) + P
libc.mprotect(at, N * P, 3)
page = lambda i: (b"%08d" % i) * (P // 8)
for i in range(N):
    ctypes.memmove(at + i * P, page(i), P)
random.seed(1)
cuts = sorted(random.sample(range(1, N), 40))
def differ():
    for a, b in zip(cuts[::2], cuts[1::2]):
        libc.mprotect(at + a * P, (b - a) * P, 1)
def count():
    ends = ([int(x, 16) for x in line.split()[0].split("-")] for line in open("/proc/self/maps"))
    return sum(a >= at and b <= at + N * P for a, b in ends)
differ()
print("ready", flush=True)
while input() == "":
    apart = count()
    libc.mprotect(at, N * P, 3)
    print(apart, count(), sum(ctypes.string_at(at + i * P, P) != page(i) for i in range(N)), flush=True)
    differ()
    print("ready", flush=True)
"""


def test_mappings_that_become_alike_are_joined(d, clean):
    b = d.create()
    x = background(d, b, "exec python3 -c '" + JOINED.replace("'", '"') + "'", stdin_open=True)
    ready(d, b, x)
    assert all_tell(d, b, x, lambda box, exec_id: asks(d, box, exec_id)) == "41 1 0"


@pytest.fixture(scope="module")
def go_program():
    """Built once for a build folder, with the libraries of test_net_programs.py: those take long."""
    place = pathlib.Path(host.BUILD) / "test-go"
    program = place / ("garbage-" + hashlib.sha256(GO.encode()).hexdigest()[:12])
    if not program.exists():
        place.mkdir(exist_ok=True)
        source = place / f"garbage-{os.getpid()}.go"
        source.write_text(GO)
        subprocess.run([GO_TOOL, "build", "-gcflags=all=-N -l", "-ldflags=-s -w", "-o", f"{program}.{os.getpid()}", source], check=True, cwd=place,
                       env={**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off", "GOFLAGS": "", "GOCACHE": str(place / "cache"), "HOME": str(place),
                            "GOTOOLCHAIN": "local", "GOTMPDIR": str(place)})
        os.rename(f"{program}.{os.getpid()}", program)
        source.unlink()
    return program


@pytest.mark.skipif(not GO_TOOL, reason="no Go here")
def test_a_go_program_collects_its_garbage(d, clean, go_program):
    b = d.create()
    upload(d, b, go_program, "g")
    x = background(d, b, "exec /tmp/g", stdin_open=True)
    ready(d, b, x)
    all_tell(d, b, x, lambda box, exec_id: asks(d, box, exec_id))


@pytest.mark.skipif(not shutil.which("redis-server"), reason="redis-server is not installed")
def test_redis_forgets_all_and_is_filled_again(d, clean):
    cli = "redis-cli -s /tmp/redis.sock "
    fill = cli + """eval 'for i = 1, 15000 do redis.call("set", "k" .. i, string.rep(i, 50)) end; return redis.call("dbsize")' 0"""
    b = d.create()
    x = background(d, b, "exec redis-server --port 0 --unixsocket /tmp/redis.sock --save '' --enable-debug-command yes --dir /tmp")
    eventually(lambda: "PONG" in d.exec(b["id"], "sh", "-c", cli + "ping")["stdout"], 60)

    def told(box, exec_id):
        say = d.exec(box["id"], "sh", "-c", f"{cli} debug digest; {cli} flushall; {fill}; {cli} debug digest; {cli} info memory | grep mem_allocator")
        assert d.get(f"/v1/sandboxes/{box['id']}/execs/{exec_id}").json["state"] == "running", (say, lines(d, box, exec_id)[-30:])
        return say["stdout"]
    assert d.exec(b["id"], "sh", "-c", fill)["stdout"].strip() == "15000"
    first = all_tell(d, b, x, told).split()
    assert first[0] == first[3] and first[1] == "OK" and first[2] == "15000", first
