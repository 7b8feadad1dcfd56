/* Processes that are saved in one sandbox and continue in another: with the real programs. */
#include "base/base.h"
#include "base/test.h"
#include "engine/sandbox/restore_test.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#ifndef SYS_mkdir
#define SYS_mkdir SYS_mkdirat
#endif

static struct wt w;
static struct rt_box a, b;
static struct rt_image m = { .out = -1 };
static struct rt_result res;
static struct kt_pipes x, y;
static struct sandbox_spec spec;

static bool begin(void)
{
	wt_spec(&spec);
	spec.limits.memory = 512 * MIB;
	st_fresh();
	return wt_open(&w, st_args()) && rt_create(&w, &spec, &a);
}

static bool end(void)
{
	bool ok;

	kt_pipes_close(&x);
	kt_pipes_close(&y);
	rt_forget(&m);
	ok = rt_destroy(&w, &a) && rt_destroy(&w, &b);
	return st_stop(&w) && ok;
}

static bool says(const struct kt_pipes *p, const char *line, const char *want)
{
	return write(p->in, line, strlen(line)) == (ssize_t)strlen(line) && kt_reads(p->out, want);
}

/* Dumps what runs in @a, restores it in @b, ahead as far as that can be, and attaches to exec 7. */
static bool move(void)
{
	return rt_dump(&a, &m) && rt_seal(&w, &a, &spec) && rt_create(&w, &spec, &b) && rt_hold(&b, &m) &&
	       rt_restore(&b, &m, &res) && rt_attach(&b, 7, &y);
}

TEST(a_shell_goes_on_where_it_was)
{
	CHECK(begin());
	CHECK(kt_exec(&a.p, 7, "n=41; while read line; do n=$((n + 1)); echo $line $n $$; done; exit 9", -1, &x));
	CHECK(says(&x, "one\n", "one 42 2\n"));
	CHECK(move());
	printf("# restored in %llu us, by its own clock %u us\n", (unsigned long long)res.ns / 1000, res.done.usec);
	CHECK_EQ(res.done.procs, 1);
	CHECK_EQ(res.done.threads, 1);
	CHECK(says(&y, "two\n", "two 43 2\n"));
	CHECK(says(&x, "two\n", "two 43 2\n"));
	CHECK(says(&y, "three\n", "three 44 2\n"));
	CHECK(kt_send(&b.p, FRAME_CLOSE_STDIN, 7, NULL, 0, NULL, 0));
	fd_close(TAKE_FD(y.in));
	CHECK(kt_exited(&b.p, 7, 9 << 8));
	CHECK(end());
}

/* Reads lines and runs each: what a context is. */
#define REPL "import sys\nfor line in sys.stdin:\n exec(line)\n"

static uint64_t private_kib(pid_t agent)
{
	char path[64], text[8192];
	const char *at;

	/* The agent's only child. Not what is private and dirty: the pages of a new file are, too. */
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)agent, (int)agent);
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/%ld/smaps_rollup", strtol(text, NULL, 10));
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return 0;
	at = strstr(text, "Anonymous:");
	return at ? strtoull(at + 10, NULL, 10) : 0;
}

TEST(python_with_numpy_is_restored_in_milliseconds)
{
	uint64_t best = UINT64_MAX;

	CHECK(begin());
	CHECK(rt_python(&a, 7, "import numpy as np\nx = np.arange(1000)\nsecret = 'kept'\nprint('ready')\n" REPL, &x));
	CHECK(kt_reads(x.out, "ready"));
	CHECK(says(&x, "print(secret, x.sum())\n", "kept 499500"));
	CHECK(rt_dump(&a, &m));
	for (int i = 0; i < 5; i++) {
		CHECK(rt_create(&w, &spec, &b));
		CHECK(rt_restore(&b, &m, &res));
		printf("# restored in %llu us, by its own clock %u us; %llu KiB private\n",
		       (unsigned long long)res.ns / 1000, res.done.usec, (unsigned long long)private_kib(b.agent));
		best = res.ns < best ? res.ns : best;
		CHECK(rt_attach(&b, 7, &y));
		CHECK(says(&y, "print(secret, x.sum(), np.ones(10).sum())\n", "kept 499500 10.0"));
		if (i == 4)
			break;
		kt_pipes_close(&y);
		CHECK(rt_destroy(&w, &b));
	}
	CHECK(best < 50000000); /* others may be at work here, too */
	CHECK(end());
}

TEST(threads_keep_their_ids_and_go_on)
{
	static const char code[] =
		"import threading, queue, time\n"
		"qs = [queue.Queue() for i in range(4)]\n"
		"out = queue.Queue()\n"
		"n = [0]\n"
		"def work(q):\n"
		" while True:\n"
		"  v = q.get(); out.put((v, threading.get_native_id()))\n"
		"def spin():\n"
		" while True:\n"
		"  n[0] += 1; time.sleep(0.0005)\n"
		"ts = [threading.Thread(target=work, args=(q,), daemon=True) for q in qs]\n"
		"ts.append(threading.Thread(target=spin, daemon=True))\n"
		"[t.start() for t in ts]\n"
		"ids = [t.native_id for t in ts]\n"
		"def ask():\n"
		" [q.put(i) for i, q in enumerate(qs)]\n"
		" got = sorted(out.get(timeout=5) for q in qs)\n"
		" was = n[0]; time.sleep(0.05)\n"
		" print('threads', [t for i, t in got] == ids[:4], n[0] > was, threading.active_count())\n"
		"ask()\n" REPL;

	CHECK(begin());
	CHECK(rt_python(&a, 7, code, &x));
	CHECK(kt_reads(x.out, "threads True True 6"));
	CHECK(move());
	CHECK_EQ(res.done.threads, 6);
	CHECK(says(&y, "ask()\n", "threads True True 6"));
	CHECK(says(&y, "ask(); t = threading.Thread(target=print, args=('new',)); t.start(); t.join()\n", "new"));
	CHECK(says(&x, "ask()\n", "threads True True 6"));
	CHECK(end());
}

TEST(a_tree_keeps_sessions_groups_pipes_and_the_dead)
{
	static const char code[] =
		"import os, signal, time, select\n"
		"def serve(r, w):\n"
		" while True:\n"
		"  l = os.read(r, 100)\n"
		"  if not l: os._exit(5)\n"
		"  os.write(w, b'%d %d %d %d ' % (os.getpid(), os.getppid(), os.getpgid(0), os.getsid(0)) + l)\n"
		"kids = []\n"
		"def kid(how):\n"
		" a, b = os.pipe(); c, d = os.pipe()\n"
		" pid = os.fork()\n"
		" if pid == 0:\n"
		"  if how == 'session': os.setsid()\n"
		"  if how == 'group': os.setpgid(0, 0)\n"
		"  if how == 'orphan':\n"
		"   if os.fork(): os._exit(0)\n"
		"  if how == 'daemon':\n"
		"   os.setsid()\n"
		"   if os.fork(): os._exit(0)\n"
		"  os.close(b); os.close(c); serve(a, d)\n"
		" if how in ('orphan', 'daemon'): os.waitpid(pid, 0)\n"
		" os.close(a); os.close(d); kids.append((how, pid, b, c))\n"
		"for h in ('plain', 'session', 'group', 'orphan', 'daemon'): kid(h)\n"
		"z = os.fork()\n"
		"if z == 0: os._exit(7)\n"
		"k = os.fork()\n"
		"if k == 0: os.kill(os.getpid(), 9)\n"
		"hits = []\n"
		"time.sleep(0.2)\n"
		"signal.signal(signal.SIGCHLD, lambda *a: hits.append(a))\n"
		"def ask():\n"
		" r = []\n"
		" for how, pid, w, rd in kids: os.write(w, b'x'); r.append(os.read(rd, 100).decode())\n"
		" return '; '.join(r)\n"
		"first = ask()\n"
		"print('first', first)\n" REPL;

	CHECK(begin());
	CHECK(rt_python(&a, 7, code, &x));
	CHECK(kt_reads(x.out, "first"));
	CHECK(move());
	CHECK(res.done.procs >= 8);
	CHECK(says(&y, "print('same', ask() == first, len(hits))\n", "same True 0"));
	CHECK(says(&y, "print(ask())\n", "; "));
	CHECK(says(&y, "print('dead', os.waitpid(z, 0)[1] >> 8, os.waitpid(k, 0)[1])\n", "dead 7 9"));
	CHECK(says(&y, "os.kill(kids[0][1], 15); print('end', os.waitpid(kids[0][1], 0)[1])\n", "end 15"));
	CHECK(says(&y, "time.sleep(0.05); print('told', len(hits))\n", "told 1"));
	CHECK(end());
}

/* All kinds of descriptors, in one process and its child. check() prints what has changed. */
static const char things[] =
	"import os, select, socket, mmap, ctypes, signal, struct, time, faulthandler\n"
	"c = ctypes.CDLL(None, use_errno=True)\n"
	"os.chdir('/tmp')\n"
	"bad = []\n"
	"def t(name, ok):\n"
	" if not ok: bad.append(name)\n"
	"r, w = os.pipe(); os.write(w, b'in the pipe')\n"
	"os.mkfifo('fifo'); ff = os.open('fifo', os.O_RDWR); os.write(ff, b'in the fifo')\n"
	"fr = os.open('fifo', os.O_RDONLY | os.O_NONBLOCK)\n"
	"ev = os.eventfd(5, os.EFD_NONBLOCK); es = os.eventfd(3, os.EFD_SEMAPHORE)\n"
	"ep = select.epoll(); ep.register(r, select.EPOLLIN)\n"
	"f = open('/tmp/file', 'w+b', buffering=0); f.write(b'0123456789'); f.seek(4)\n"
	"fd2 = os.dup(f.fileno()); fa = os.open('/tmp/file', os.O_WRONLY | os.O_APPEND)\n"
	"u = open('/tmp/gone', 'w+b', buffering=0); u.write(b'without a name'); u.seek(8); os.unlink('/tmp/gone')\n"
	"mf = os.memfd_create('mine', os.MFD_ALLOW_SEALING); os.write(mf, b'in memory')\n"
	"sm = mmap.mmap(-1, 8192); sm[0:6] = b'shared'\n"
	"os.close(os.open('mapped', os.O_CREAT)); os.truncate('mapped', 8192)\n"
	"fm = mmap.mmap(os.open('mapped', os.O_RDWR), 8192); fm[0:3] = b'abc'\n"
	"null = os.open('/dev/null', os.O_RDWR)\n"
	"tf = c.timerfd_create(1, 0); c.timerfd_settime(tf, 0, struct.pack('4q', 0, 0, 60, 0), None)\n"
	"sf = c.signalfd(-1, struct.pack('Q', 1 << 11), 0)\n"
	"signal.pthread_sigmask(signal.SIG_BLOCK, [12, 10]); os.kill(os.getpid(), 12); os.kill(os.getpid(), 10)\n"
	"pm, ps = os.openpty(); tty = os.ttyname(ps)\n"
	"pid = os.fork()\n"
	"if pid == 0:\n"
	" while True: time.sleep(0.01); sm[100] = (sm[100] + 1) % 256\n"
	"pf = os.pidfd_open(pid)\n"
	"faulthandler.enable()\n"
	"got = []\n"
	"signal.signal(14, lambda *a: got.append(14)); signal.setitimer(0, 100, 0)\n"
	"signal.signal(34, lambda *a: got.append(34))\n"
	"tid = ctypes.c_void_p(); ev34 = struct.pack('qii', 7, 34, 0).ljust(64, b'\\0')\n"
	"c.timer_create(1, ev34, ctypes.byref(tid)); c.timer_create(1, ev34, ctypes.byref(tid))\n"
	"c.timer_settime(tid, 0, struct.pack('4q', 0, 0, 50, 0), None)\n"
	"os.umask(0o27)\n"
	"prc = open('/proc/self/status')\n";

static const char checks[] =
	"def check():\n"
	" t('pipe', os.read(r, 100) == b'in the pipe'); os.write(w, b'x'); t('epoll', (r, 1) in ep.poll(1)); "
	"os.read(r, 1)\n"
	" t('fifo', os.read(fr, 100) == b'in the fifo')\n"
	" t('eventfd', os.eventfd_read(ev) == 5 and [os.eventfd_read(es) for i in range(3)] == [1, 1, 1])\n"
	" t('file', f.read(2) == b'45' and os.read(fd2, 2) == b'67'); os.write(fa, b'!'); f.seek(0); t('append', "
	"f.read() == b'0123456789!')\n"
	" t('unlinked', u.read() == b' a name' or u.tell() == 14); u.seek(0); t('unlinked all', u.read() == b'without "
	"a name')\n"
	" os.lseek(mf, 0, 0); t('memfd', os.read(mf, 99) == b'in memory')\n"
	" t('shared', sm[0:6] == b'shared'); v = sm[100]; time.sleep(0.1); t('shared with the child', sm[100] != v)\n"
	" t('mapped file', fm[0:3] == b'abc'); fm[4096:4099] = b'xyz'; v = open('mapped', 'rb').read(); "
	"t('mapped file is one', v[0:3] == b'abc' and v[4096:4099] == b'xyz')\n"
	" os.write(null, b'x')\n"
	" cur = ctypes.create_string_buffer(32); c.timerfd_gettime(tf, cur); v = struct.unpack('4q', cur.raw); "
	"t('timerfd %s' % (v,), 30 < v[2] < 60)\n"
	" t('signalfd', struct.unpack_from('I', os.read(sf, 128))[0] == 12)\n"
	" t('pending', signal.sigpending() == {10})\n"
	" t('tty', os.ttyname(ps) == tty); os.write(pm, b'hello\\n'); t('tty line', os.read(ps, 99) == b'hello\\n')\n"
	" t('itimer', 50 < signal.getitimer(0)[0] <= 100)\n"
	" c.timer_gettime(tid, cur); v = struct.unpack('4q', cur.raw); t('timer %s' % (v,), 20 < v[2] <= 50)\n"
	" c.timer_settime(tid, 0, struct.pack('4q', 0, 0, 0, 1000000), None); time.sleep(0.05); t('timer fires', got "
	"== [34])\n"
	" signal.pidfd_send_signal(pf, 9); t('pidfd', os.waitpid(pid, 0)[1] == 9)\n"
	" t('umask', os.umask(0) == 0o27)\n"
	" t('proc', prc.read().startswith('Name'))\n"
	" print('checked', bad)\n";

TEST(everything_a_descriptor_can_be_is_as_it_was)
{
	static char code[8192];

	CHECK(begin());
	snprintf(code, sizeof(code), "%s%sprint('made')\n" REPL, things, checks);
	CHECK(rt_python(&a, 7, code, &x));
	CHECK(kt_reads(x.out, "made"));
	CHECK(move());
	CHECK(says(&y, "check()\n", "checked []"));
	CHECK(says(&x, "check()\n", "checked []"));
	CHECK(end());
}

/* What the kernel says of a process, but for what its name, ids and history are. */
#define RIGHTS                                                                                                         \
	"def rights():\n"                                                                                              \
	" import os, resource\n"                                                                                       \
	" s = [l for l in open('/proc/self/status') if l.split(':')[0] in ('Uid', 'Gid', 'Groups', 'CapInh', "         \
	"'CapPrm',"                                                                                                    \
	" 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp', 'Seccomp_filters', 'CoreDumping', 'TracerPid', "      \
	"'Umask',"                                                                                                     \
	" 'Mems_allowed')] + ['cpus %d' % len(os.sched_getaffinity(0))]\n"                                             \
	" s += open('/proc/self/limits').readlines() + open('/proc/self/cgroup').readlines()\n"                        \
	" s += open('/proc/self/oom_score_adj').readlines() + open('/proc/self/uid_map').readlines()\n"                \
	" s += [os.readlink('/proc/self/ns/' + n).split(':')[0] for n in sorted(os.listdir('/proc/self/ns'))]\n"       \
	" s += [str(os.readlink('/proc/self/ns/' + n) == os.readlink('/proc/thread-self/ns/' + n)) for n in ('user', " \
	"'mnt')]\n"                                                                                                    \
	" s += ['owner %d' % os.stat('/proc/self/mem').st_uid, 'fds %d' % len(os.listdir('/proc/self/fd'))]\n"         \
	" return repr(s)\n"

/* One line, however it comes. */
static bool answer(const struct kt_pipes *p, const char *line, char *buf, size_t size)
{
	size_t n = 0;

	if (write(p->in, line, strlen(line)) != (ssize_t)strlen(line))
		return false;
	while (n < size - 1) {
		struct pollfd poll_one = { .fd = p->out, .events = POLLIN };

		if (poll(&poll_one, 1, KT_WAIT) != 1 || read(p->out, buf + n, 1) != 1)
			return false;
		if (buf[n++] == '\n')
			break;
	}
	buf[n] = '\0';
	return n > 0;
}

static bool same_rights(uint32_t uid)
{
	static const char code[] = RIGHTS REPL, ask[] = "print(rights())\n";
	const char *const argv[] = { "/usr/bin/python3", "-u", "-c", code, NULL };
	static char was[8192], is[8192], fresh[8192];
	struct kt_pipes z;

	if (!begin() || !rt_exec(&a, 7, uid, argv, &x) || !answer(&x, ask, was, sizeof(was)) || !move() ||
	    !answer(&y, ask, is, sizeof(is)))
		return false;
	/* A fresh exec in the sandbox where it is restored is the measure. */
	b.grouped = b.s.group >= 0;
	if (!rt_exec(&b, 8, uid, argv, &z) || !answer(&z, ask, fresh, sizeof(fresh)))
		return false;
	kt_pipes_close(&z);
	if (strcmp(is, fresh) != 0)
		printf("# restored: %s# fresh: %s", is, fresh);
	return end() && !strcmp(is, fresh);
}

TEST(a_restored_process_has_the_rights_of_an_exec_and_no_more)
{
	CHECK(same_rights(1000));
}

TEST(so_has_one_of_root)
{
	CHECK(same_rights(0));
}

/* Where nothing of the host's may be seen. */
TEST(no_path_of_the_host_is_in_the_maps)
{
	static char maps[8192];

	CHECK(begin());
	CHECK(rt_python(&a, 7, REPL, &x));
	CHECK(says(&x, "print('up')\n", "up\n")); /* what is not read would be restored, too */
	CHECK(move());
	CHECK(answer(&y, "print({l.split()[5] for l in open('/proc/self/maps') if len(l.split()) > 5})\n", maps,
		     sizeof(maps)));
	printf("# %s", maps);
	CHECK(!strstr(maps, "tmp"));
	CHECK(strstr(maps, "python3"));
	CHECK(strstr(maps, "[vdso]") && strstr(maps, "[heap]") && strstr(maps, "[stack]"));
	CHECK(answer(&y,
		     "print(open('/proc/self/cmdline').read()[:16], __import__('os').readlink('/proc/self/exe'), "
		     "open('/proc/self/comm').read().strip(), len(open('/proc/self/environ').read()) > 20)\n",
		     maps, sizeof(maps)));
	CHECK_STR(maps, "/usr/bin/python3 /usr/bin/python3.11 python3 True\n");
	CHECK(end());
}

/* The terminal of exec @id. */
static int attach_tty(struct rt_box *from, uint32_t id)
{
	struct kt_held held[4];
	int n = kt_sync(&from->p, held, 4);

	if (n != 1 || held[0].id != id || !(held[0].held.flags & FRAME_HELD_TTY))
		return -1;
	return held[0].pipes.out;
}

static bool types(int tty, const char *line, const char *want)
{
	return write(tty, line, strlen(line)) == (ssize_t)strlen(line) && kt_reads(tty, want);
}

TEST(a_terminal_has_its_number_size_modes_and_jobs)
{
	struct frame f;
	int fds[8], tty;

	x = y = (struct kt_pipes){ -1, -1, -1 };
	CHECK(begin());
	CHECK(rt_exec(&a, 7, 1000, (const char *const[]){ "/bin/bash", "--norc", "-i", NULL }, NULL));
	CHECK(kt_wait(&a.p, FRAME_STARTED, 7, &f, fds));
	CHECK(types(fds[0], "PS1='> '; stty -echo; tty; stty size\n", "30 100"));
	CHECK(types(fds[0], "sleep 1000 & echo in front; sleep 1001\n", "in front"));
	wt_sleep_ms(300);
	CHECK(types(fds[0], "\032", "Stopped"));
	CHECK(types(fds[0], "echo mark$((40 + 2))\n", "mark42"));
	wt_sleep_ms(100);
	while (poll(&(struct pollfd){ .fd = fds[0], .events = POLLIN }, 1, 100) == 1)
		CHECK(read(fds[0], (char[256]){ 0 }, 256) > 0);
	CHECK(rt_dump(&a, &m));
	CHECK(rt_create(&w, &spec, &b));
	CHECK(rt_restore(&b, &m, &res));
	CHECK_EQ(res.done.procs, 3);
	tty = attach_tty(&b, 7);
	CHECK(tty >= 0);
	/* The shell knows of its stopped job, and reports it only once. */
	if (poll(&(struct pollfd){ .fd = tty, .events = POLLIN }, 1, 300) == 1) {
		char early[256] = "";

		CHECK(read(tty, early, sizeof(early) - 1) > 0);
		CHECK(!strstr(early, "Stopped"));
	}
	CHECK(types(tty, "tty\n", "/dev/pts/0\r\n"));
	CHECK(types(tty, "stty size\n", "30 100\r\n"));
	CHECK(types(tty, "stty -a | grep -c -- '-echo '\n", "1\r\n"));
	CHECK(types(tty, "jobs; kill %1; wait %1; echo $?\n", "143"));
	CHECK(types(tty, "kill -CONT %2; kill %2; wait %2; echo code $?\n", "code 143"));
	/* The terminal has its foreground process group: ^C ends that group, and not the shell. */
	CHECK(types(tty, "echo in front; sleep 1000\n", "in front"));
	wt_sleep_ms(300);
	CHECK(types(tty, "\003", "> "));
	CHECK(types(tty, "echo code $?\n", "code 130"));
	CHECK(types(tty, "exit 3\n", "exit"));
	CHECK(kt_exited(&b.p, 7, 3 << 8));
	fd_close(tty);
	fd_close(fds[0]);
	CHECK(end());
}

/* An image of what was restored points into the one it came from. */
TEST(a_clone_of_a_clone_has_what_both_have_changed)
{
	static char big[300];
	struct rt_box c;
	struct rt_image second = { .out = -1 };
	struct stat one, two;
	struct kt_pipes z;
	int fds[3];

	CHECK(begin());
	CHECK(rt_python(&a, 7, "x = bytearray(b'1' * 8000000)\nprint('up')\n" REPL, &x));
	CHECK(kt_reads(x.out, "up\n"));
	CHECK(move());
	CHECK(says(&y, "x[5000000] = 50; y = 'second'; print('changed')\n", "changed\n"));
	fds[1] = mount_open_file(m.out, "pages");
	snprintf(big, sizeof(big), "abcdefghijklmnopqrstuvwxyz");
	fds[0] = openat(m.out, "meta", O_RDONLY | O_CLOEXEC);
	CHECK(rt_dump_on(&b, &second, big, fds[0], fds[1]));
	fd_close(fds[0]);
	CHECK(fstatat(m.out, "pages", &one, 0) == 0 && fstatat(second.out, "pages", &two, 0) == 0);
	printf("# %lld and %lld KiB of pages\n", (long long)one.st_size / 1024, (long long)two.st_size / 1024);
	CHECK(two.st_size * 4 < one.st_size);
	CHECK(rt_create(&w, &spec, &c));
	fds[2] = fds[1];
	fds[0] = openat(second.out, "meta", O_RDONLY | O_CLOEXEC);
	fds[1] = mount_open_file(second.out, "pages");
	CHECK(rt_send_fds(&c, fds, 2, &res));
	CHECK_STR(res.why, "");
	CHECK(rt_attach(&c, 7, &z));
	CHECK(says(&z, "print(y, x[5000000], x[4999999], x[7999999], len(x))\n", "second 50 49 49 8000000"));
	CHECK(says(&y, "print(y, x[5000000])\n", "second 50"));
	CHECK(says(&x, "print('y' in globals(), x[5000000])\n", "False 49"));
	fd_close_many(fds, 3);
	kt_pipes_close(&z);
	rt_forget(&second);
	CHECK(rt_destroy(&w, &c));
	CHECK(end());
}

TEST(sockets_without_a_stranger_at_their_other_end_are_as_they_were)
{
	static const char code[] =
		"import os, socket\n"
		"bad = []\n"
		"def t(name, ok):\n"
		" if not ok: bad.append(name)\n"
		"s1, s2 = socket.socketpair(); s1.send(b'to s2'); s2.send(b'to s1')\n"
		"q1, q2 = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); q1.send(b'three')\n"
		"tl = socket.socket(); tl.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); tl.bind(('127.0.0.1', "
		"8123)); tl.listen(3)\n"
		"ul = socket.socket(socket.AF_UNIX); ul.bind('/tmp/sock'); ul.listen(1)\n"
		"def check():\n"
		" t('pair', s2.recv(9) == b'to s2' and s1.recv(9) == b'to s1')\n"
		" t('seqpacket', q2.recv(9) == b'three')\n"
		" k = socket.create_connection(('127.0.0.1', 8123), 2); p, _ = tl.accept(); p.send(b'hi'); t('tcp', "
		"k.recv(9) == b'hi')\n"
		" k = socket.socket(socket.AF_UNIX); k.connect('/tmp/sock'); p, _ = ul.accept(); p.send(b'ho'); "
		"t('unix', k.recv(9) == b'ho')\n"
		" print('checked', bad)\n"
		"print('made')\n" REPL;

	CHECK(begin());
	CHECK(rt_python(&a, 7, code, &x));
	CHECK(kt_reads(x.out, "made"));
	CHECK(move());
	CHECK(says(&y, "check()\n", "checked []"));
	CHECK(says(&x, "check()\n", "checked []"));
	CHECK(end());
}

/* A sandbox may have a stricter filter than the one its image was taken in; and lower limits. */
TEST(the_filter_and_limits_of_the_new_sandbox_are_on_every_thread)
{
	static const struct sock_filter no_mkdir[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdir, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EROFS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	static const char code[] = "import threading, queue, os, resource\n"
				   "q, out = queue.Queue(), queue.Queue()\n"
				   "def make(name):\n"
				   " try: os.mkdir(name); return 'made'\n"
				   " except OSError as e: return e.errno\n"
				   "def work():\n"
				   " while True: out.put((make(q.get()), len(os.sched_getaffinity(0))))\n"
				   "threading.Thread(target=work, daemon=True).start()\n"
				   "print('up')\n" REPL;
	int fds[3];

	CHECK(begin());
	CHECK(rt_python(&a, 7, code, &x));
	CHECK(kt_reads(x.out, "up\n"));
	CHECK(rt_dump(&a, &m));
	CHECK(rt_create(&w, &spec, &b));
	fds[0] = openat(m.out, "meta", O_RDONLY | O_CLOEXEC);
	fds[1] = mount_open_file(m.out, "pages");
	fds[2] = sys_memfd_create("filter", MFD_CLOEXEC);
	CHECK(write(fds[2], no_mkdir, sizeof(no_mkdir)) == (ssize_t)sizeof(no_mkdir));
	CHECK(rt_send_flags(&b, fds, 1, FRAME_RESTORE_FILTER, 0, &res));
	CHECK_STR(res.why, "");
	CHECK(rt_attach(&b, 7, &y));
	CHECK(says(&y, "q.put('/tmp/a'); print('got', make('/tmp/b'), out.get(), resource.getrlimit(7))\n",
		   "got 30 (30, 1) (777, 777)"));
	CHECK(says(&x, "q.put('/tmp/a'); print('got', make('/tmp/b'), out.get())\n", "got made ('made', 1)"));
	fd_close_many(fds, 3);
	CHECK(end());
}

/* Another runtime: its own threads, an event loop, code that it has made. */
TEST(node_goes_on_in_the_middle_of_its_event_loop)
{
	static const char code[] = "let n = 0; setInterval(() => n++, 5);\n"
				   "function fib(k) { return k < 2 ? k : fib(k - 1) + fib(k - 2) }\n"
				   "fib(25);\n"
				   "const rl = require('readline').createInterface({input: process.stdin});\n"
				   "rl.on('line', l => { const was = n; setTimeout(() => "
				   "require('fs').readFile('/etc/hostname', (e, d) =>\n"
				   "console.log(l, fib(20), n > was, !e)), 50) });\n"
				   "console.log('up');\n";

	CHECK(begin());
	CHECK(rt_exec(&a, 7, 1000, (const char *const[]){ "/usr/bin/node", "-e", code, NULL }, &x));
	CHECK(kt_reads(x.out, "up\n"));
	CHECK(says(&x, "one\n", "one 6765 true true\n"));
	CHECK(move());
	printf("# %u threads, %u us\n", res.done.threads, res.done.usec);
	CHECK(says(&y, "two\n", "two 6765 true true\n"));
	CHECK(says(&x, "three\n", "three 6765 true true\n"));
	CHECK(end());
}

TEST(settings_that_a_process_made_for_itself_stay)
{
	static const char code[] =
		"import ctypes, os, resource, signal, sys\n"
		"c = ctypes.CDLL(None)\n"
		"def get(op):\n"
		" v = ctypes.c_int(); c.prctl(op, ctypes.byref(v)); return v.value\n"
		"def all():\n"
		" s = [c.prctl(3), get(2), get(37), c.prctl(42), os.nice(0), os.getpriority(0, 0), "
		"os.sched_getscheduler(0)]\n"
		" s += [resource.getrlimit(6), resource.getrlimit(0), open('/proc/self/comm').read(), os.getcwd()]\n"
		" s += [open('/proc/self/oom_score_adj').read(), signal.getitimer(1)[0], signal.getitimer(2)[0]]\n"
		" return s\n"
		"open('/proc/self/oom_score_adj', 'w').write('900')\n"
		"c.prctl(4, 0); c.prctl(1, 10); c.prctl(36, 1); c.prctl(41, 1); os.nice(5); os.sched_setscheduler(0, "
		"3, os.sched_param(0))\n"
		"resource.setrlimit(6, (50, 60)); resource.setrlimit(0, (1000, 2000)); c.prctl(15, b'renamed'); "
		"os.chdir('/usr/lib')\n"
		/* Stopped, and yet with an interval: these two would kill it. */
		"signal.setitimer(1, 0, 0.5); signal.setitimer(2, 0, 0.5)\n"
		"was = all()\n"
		"print('up')\n" REPL;

	CHECK(begin());
	CHECK(rt_python(&a, 7, code, &x));
	CHECK(kt_reads(x.out, "up\n"));
	CHECK(move());
	CHECK(says(&y, "print('same' if all() == was else (was, all()))\n", "same"));
	CHECK(end());
}

/* On a kernel where the minimum of the score was not set. */
TEST(a_process_that_lowered_its_oom_score_keeps_it)
{
	static const char code[] =
		"import os\n"
		"def score(): return open('/proc/self/oom_score_adj').read()\n"
		"try: os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY | os.O_CLOEXEC), b'400')\n"
		"except OSError: pass\n"
		"was = score()\n"
		"print('up')\n" REPL;

	CHECK(begin());
	CHECK(rt_python(&a, 7, code, &x));
	CHECK(kt_reads(x.out, "up\n"));
	CHECK(move());
	CHECK(says(&y, "print('same' if score() == was else (was, score()))\n", "same"));
	CHECK(end());
}

/* How many descriptors the agent has beside its own few. */
static unsigned held_ready(pid_t agent)
{
	char path[64];
	struct dirent *d;
	unsigned n = 0;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)agent);
	fds = opendir(path);
	while (fds && (d = readdir(fds)))
		n += strtoul(d->d_name, NULL, 10) >= 192;
	if (fds)
		closedir(fds);
	return n;
}

static bool send_ahead(const char *file)
{
	AUTO_CLOSE int fd = openat(m.out, file, O_RDONLY | O_CLOEXEC);
	struct frame f;
	int fds[8];

	/* When it has answered PING it has done with that. */
	return fd >= 0 && kt_send(&b.p, FRAME_RESTORE, FRAME_RESTORE_AHEAD, NULL, 0, &fd, 1) &&
	       kt_send(&b.p, FRAME_PING, 3, NULL, 0, NULL, 0) && kt_wait(&b.p, FRAME_PONG, 3, &f, fds);
}

/* The agent's only child, if it is held before it runs; 0: there is none. */
static pid_t held_child(pid_t agent)
{
	char path[64], text[512];
	const char *state;
	pid_t pid;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)agent, (int)agent);
	pid = fd_get(AT_FDCWD, path, text, sizeof(text)) > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
	if (!pid)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	state = fd_get(AT_FDCWD, path, text, sizeof(text)) > 0 ? strrchr(text, ')') : NULL;
	return state && state[1] && state[2] == 't' ? pid : -1;
}

TEST(what_was_made_ready_ahead_is_used_let_go_of_or_begun_anew_but_never_believed)
{
	char path[64];
	int fds[2], i;

	CHECK(begin());
	CHECK(kt_exec(
		&a.p, 7,
		"cp /bin/sh /tmp/own; exec /tmp/own -c 'n=41; while read line; do n=$((n + 1)); echo $line $n $$; done'",
		-1, &x));
	CHECK(says(&x, "one\n", "one 42 2\n"));
	CHECK(rt_dump(&a, &m) && rt_seal(&w, &a, &spec));
	/* Its files only; then its process, too. */
	for (int k = 0; k < 8; k++) {
		i = k % 4;
		CHECK(rt_create(&w, &spec, &b));
		CHECK_EQ(held_ready(b.agent), 0);
		CHECK(k < 4 ? send_ahead(i == 1 ? "pages" : "meta") : rt_hold(&b, &m));
		CHECK_EQ(held_ready(b.agent) > 0, k != 1); /* the second time it was no image */
		CHECK(k < 4 ? !held_child(b.agent) : held_child(b.agent) > 0);
		if (k == 5) /* as the kernel does when memory is short */
			CHECK_EQ(kill(held_child(b.agent), SIGKILL), 0);
		if (i < 2) {
			CHECK(rt_restore(&b, &m, &res) && rt_attach(&b, 7, &y));
			CHECK(says(&y, "two\n", "two 43 2\n"));
			kt_pipes_close(&y);
		} else if (i == 2) { /* a file that is mapped was changed in the meantime */
			snprintf(path, sizeof(path), "/proc/%d/root/tmp/own", (int)b.agent);
			CHECK_EQ(utimensat(AT_FDCWD, path, NULL, 0), 0);
			fds[0] = openat(m.out, "meta", O_RDONLY | O_CLOEXEC);
			fds[1] = mount_open_file(m.out, "pages");
			CHECK(rt_send_fds(&b, fds, 1, &res));
			CHECK(strstr(res.why, "is not the same file"));
			CHECK(!held_child(b.agent));
			fd_close_many(fds, 2);
		} else { /* another request came first */
			CHECK(kt_exec(&b.p, 8, "echo else; read line", -1, &y));
			CHECK(kt_reads(y.out, "else\n"));
			CHECK_EQ(held_child(b.agent), -1); /* the first one, which runs */
			kt_pipes_close(&y);
		}
		CHECK_EQ(held_ready(b.agent), 0);
		if (k < 7)
			CHECK(rt_destroy(&w, &b));
	}
	CHECK(end());
}

/* Writes what is there already. */
static bool touch_pages(void)
{
	AUTO_CLOSE int fd = openat(m.out, "pages", O_RDWR | O_CLOEXEC);
	char byte;

	return fd >= 0 && pread(fd, &byte, 1, 0) == 1 && pwrite(fd, &byte, 1, 0) == 1;
}

TEST(who_is_held_is_of_the_bytes_that_were_checked_last)
{
	pid_t held;

	CHECK(begin());
	CHECK(kt_exec(&a.p, 7, "n=41; while read line; do n=$((n + 1)); echo $line $n; done", -1, &x));
	CHECK(says(&x, "one\n", "one 42\n"));
	CHECK(rt_dump(&a, &m) && rt_seal(&w, &a, &spec));
	for (int i = 0; i < 2; i++) {
		CHECK(rt_create(&w, &spec, &b) && rt_hold(&b, &m));
		held = held_child(b.agent);
		CHECK(held > 0);
		CHECK(!i || touch_pages());
		CHECK(rt_restore(&b, &m, &res) && rt_attach(&b, 7, &y));
		CHECK(says(&y, "two\n", "two 43\n"));
		CHECK_EQ(kill(held, 0) == 0, !i); /* the second time another one was made */
		if (i)
			break;
		kt_pipes_close(&y);
		CHECK(rt_destroy(&w, &b));
	}
	CHECK(end());
}

TEST(who_would_take_much_memory_is_not_made_before_somebody_asks)
{
	CHECK(begin());
	CHECK(rt_python(
		&a, 7, "import mmap\nx = mmap.mmap(-1, 132 << 20)\nx.write(b'7' * len(x))\nprint('ready')\n" REPL, &x));
	CHECK(kt_reads(x.out, "ready"));
	CHECK(rt_dump(&a, &m) && rt_seal(&w, &a, &spec) && rt_create(&w, &spec, &b) && rt_hold(&b, &m));
	CHECK(held_ready(b.agent) > 0);
	CHECK_EQ(held_child(b.agent), 0);
	CHECK(rt_restore(&b, &m, &res) && rt_attach(&b, 7, &y));
	CHECK(says(&y, "print(x[5], x[-1])\n", "55 55"));
	CHECK(end());
}
