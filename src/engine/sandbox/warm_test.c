/* Warm processes, with the real programs and a real Python. */
#include "proto/warm.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"
#include "layers/seal_test.h"
#include "proto/table.h"

#define HOST 1000

struct wexec {
	int in, out, err; /* ours */
	struct frame_exited x;
	char text[4096], errors[4096];
};

static bool send_exec(struct st_box *b, uint32_t id, const struct frame_exec *x, int group, struct wexec *w)
{
	static uint8_t out[FRAME_HEAD + 65536];
	int pipes[3][2], fds[8], n = 0;
	long len = frame_exec_encode(x, out + FRAME_HEAD, sizeof(out) - FRAME_HEAD);
	bool ok;

	for (int i = 0; i < 3; i++)
		if (pipe2(pipes[i], O_CLOEXEC) < 0)
			return false;
	/* A pipe without KEEP could not be carried over. */
	if (x->flags & FRAME_EXEC_KEEP) {
		fd_close(pipes[0][0]);
		pipes[0][0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	}
	fds[n++] = pipes[0][0];
	fds[n++] = pipes[1][1];
	fds[n++] = pipes[2][1];
	if (group >= 0)
		fds[n++] = group;
	if (x->flags & FRAME_EXEC_KEEP) {
		fds[n++] = pipes[1][0];
		fds[n++] = pipes[2][0];
	}
	frame_head(out, FRAME_EXEC, (uint8_t)n, id, (uint32_t)len);
	ok = len > 0 && fd_send(b->p.sock, out, FRAME_HEAD + (size_t)len, fds, (size_t)n) == 0;
	fd_close(pipes[0][0]);
	fd_close(pipes[1][1]);
	fd_close(pipes[2][1]);
	*w = (struct wexec){ .in = pipes[0][1], .out = pipes[1][0], .err = pipes[2][0] };
	return ok;
}

/* A warm process as exec HOST, ready. */
static bool warm_up(struct st_box *b, const char *runner, const char *code, struct wexec *w)
{
	const char *argv[] = { "/usr/bin/python3", "-c", runner, code };
	const char *envp[] = { "PATH=/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/home/user" };
	struct frame_exec x = { .flags = FRAME_EXEC_KEEP | FRAME_EXEC_WARM_HOST,
				.uid = 1000,
				.gid = 1000,
				.cwd = "/",
				.argc = 4,
				.envc = 3,
				.argv = argv,
				.envp = envp };
	struct frame f;
	int fds[8];

	return send_exec(b, HOST, &x, -1, w) && kt_wait(&b->p, FRAME_WARM, HOST, &f, fds);
}

static void read_all(int fd, char *to, size_t size)
{
	size_t have = 0;
	ssize_t n;

	while (have < size - 1 && (n = read(fd, to + have, size - 1 - have)) > 0)
		have += (size_t)n;
	to[have] = '\0';
}

/* Runs it to its end. False: it did not start. */
/* A new group that forks of the warm process can join; the one that comes with the sandbox is for the agent's own children. */
static int fork_group(struct wt *w, const struct st_box *b, uint32_t *ret)
{
	int agent = -1, user = -1;
	struct err e = { 0 };

	if (client_group_for(w->client, b->s.handle, 1000, ret, &agent, &user, &e) < 0)
		printf("# a group: %s\n", e.msg);
	fd_close(agent);
	return user;
}

static bool run(struct st_box *b, const char *code, int group, struct wexec *w)
{
	const char *argv[] = { "python", code, "one", "two" }, *envp[] = { "A=b", "PATH=/bin" };
	struct frame_exec x = { .flags = FRAME_EXEC_WARM | (group >= 0 ? FRAME_EXEC_GROUP : 0),
				.uid = 1000,
				.gid = 1000,
				.cwd = "/home/user",
				.nofile = 77,
				.argc = 4,
				.envc = 2,
				.argv = argv,
				.envp = envp };
	struct frame f;
	bool ok = send_exec(b, ++b->id, &x, group, w);
	int fds[8];

	fd_close(w->in);
	while (ok && kt_next(&b->p, KT_WAIT, &f, fds) && f.id == b->id && f.type != FRAME_EXITED)
		ok = f.type != FRAME_FAILED;
	ok = ok && f.type == FRAME_EXITED && frame_exited_decode(&f, &w->x) == 0;
	if (ok) {
		read_all(w->out, w->text, sizeof(w->text));
		read_all(w->err, w->errors, sizeof(w->errors));
	}
	fd_close(w->out);
	fd_close(w->err);
	return ok;
}

static bool begin(struct wt *w, struct st_box *b)
{
	struct sandbox_spec spec;

	kt_fresh();
	wt_spec(&spec);
	return wt_open(w, kt_args()) && st_create(w, &spec, b);
}

static bool end(struct wt *w, struct st_box *b)
{
	bool ok = st_end(w, b) && kt_settled(w);

	ok = wt_stop(w) == 0 && ok;
	kt_remove_state();
	return ok;
}

TEST(what_a_warm_process_starts_is_as_if_python_had_been_started)
{
	static const struct {
		const char *code, *out, *err;
		int status;
	} cases[] = {
		{ "print(1)", "1\n", "", 0 },
		{ "import sys; print(sys.argv, __name__, sys.path[0] == '')", "['-c', 'one', 'two'] __main__ True\n",
		  "", 0 },
		{ "import os; print(os.getcwd(), sorted(os.environ.items()), os.getpgrp() == os.getpid(), os.getppid())",
		  "/home/user [('A', 'b'), ('PATH', '/bin')] True 1\n", "", 0 },
		{ "import resource, os; print(resource.getrlimit(7), sorted(os.listdir('/proc/self/fd')))",
		  "(77, 77) ['0', '1', '2', '3']\n", "", 0 },
		{ "print('no end', end='')", "no end", "", 0 },
		{ "raise SystemExit(7)", "", "", 7 << 8 },
		{ "import sys; sys.exit('why')", "", "why\n", 1 << 8 },
		{ "def f():\n  1/0\nf()", "",
		  "Traceback (most recent call last):\n  File \"<string>\", line 3, in <module>\n"
		  "  File \"<string>\", line 2, in f\nZeroDivisionError: division by zero\n",
		  1 << 8 },
		{ "1 +", "", "  File \"<string>\", line 1\n    1 +\n       ^\nSyntaxError: invalid syntax\n", 1 << 8 },
		{ "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "", "", 15 },
		{ "import os; os.abort()", "", "", 6 },
		{ "import atexit; atexit.register(print, 'bye'); print('hi')", "hi\nbye\n", "", 0 },
		{ "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.05), print('late'))).start()",
		  "late\n", "", 0 },
		{ "import sys; print(sys.stdin.read() == '', warm)", "True 1\n", "", 0 },
		{ "import subprocess; print(subprocess.run(['sh', '-c', 'echo sub; exit 3']).returncode)", "sub\n3\n",
		  "", 0 },
		{ "import os\nif os.fork() == 0: os._exit(5)\nprint(os.wait()[1] >> 8)", "5\n", "", 0 },
		{ "import multiprocessing as m\np = m.Process(target=print, args=('mp',)); p.start(); p.join()", "mp\n",
		  "", 0 },
	};
	struct wexec host, x;
	struct st_box b;
	struct wt w;

	CHECK(begin(&w, &b));
	CHECK(warm_up(&b, warm_runner_python(), "import json\nwarm = 1", &host));
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		if (!run(&b, cases[i].code, -1, &x)) {
			TEST_FAIL("%s: did not start", cases[i].code);
			continue;
		}
		if (strcmp(x.text, cases[i].out) || !strstr(x.errors, cases[i].err) ||
		    (!cases[i].err[0] && x.errors[0]) || (x.x.status & ~0x80) != cases[i].status)
			TEST_FAIL("%s: status %d, said '%s', '%s'", cases[i].code, x.x.status, x.text, x.errors);
	}
	fd_close(host.in);
	fd_close(host.out);
	fd_close(host.err);
	CHECK(end(&w, &b));
}

TEST(each_has_random_numbers_of_its_own_and_its_group)
{
	char first[4096];
	struct wexec host, x;
	struct err e = { 0 };
	struct st_box b;
	uint32_t number = 0;
	struct wt w;
	int group;

	CHECK(begin(&w, &b));
	CHECK((group = fork_group(&w, &b, &number)) >= 0 && number == 2);
	CHECK(warm_up(&b, warm_runner_python(),
		      "import numpy.random, random, tempfile, uuid\nrandom.seed(1)\nnumpy.random.seed(1)", &host));
	CHECK(run(&b, "import random, numpy; print(random.random(), numpy.random.rand())", group, &x));
	memcpy(first, x.text, sizeof(first));
	CHECK(run(&b, "import random, numpy; print(random.random(), numpy.random.rand())", group, &x));
	CHECK(strlen(first) > 20 && strcmp(first, x.text));
	CHECK(run(&b, "print([l for l in open('/proc/self/cgroup') if l.rstrip().endswith(':/x2')] != [])", group, &x));
	CHECK_STR(x.text, "True\n");
	/* And it ends with it. */
	{
		const char *argv[] = { "python", "import time; print(1, flush=True); time.sleep(100)" };
		struct frame_exec f = { .flags = FRAME_EXEC_WARM | FRAME_EXEC_GROUP,
					.uid = 1000,
					.gid = 1000,
					.cwd = "/",
					.argc = 2,
					.argv = argv };
		struct frame ended;
		int fds[8];

		CHECK(send_exec(&b, 500, &f, group, &x));
		CHECK(kt_reads(x.out, "1\n"));
		CHECK_EQ(client_group_kill(w.client, b.s.handle, number, &e), 0);
		CHECK(kt_wait(&b.p, FRAME_EXITED, 500, &ended, fds));
	}
	fd_close(group);
	CHECK(end(&w, &b));
}

TEST(one_may_have_a_terminal)
{
	const char *argv[] = { "python",
			       "import os\n"
			       "print(os.ttyname(0), os.get_terminal_size(), os.tcgetpgrp(0) == os.getpgrp())\n"
			       "print('got', input('say: '))\nos.kill(os.getpid(), 2)" };
	struct frame_exec x = { .flags = FRAME_EXEC_WARM | FRAME_EXEC_TTY,
				.uid = 1000,
				.gid = 1000,
				.rows = 30,
				.cols = 100,
				.cwd = "/",
				.argc = 2,
				.argv = argv };
	static uint8_t out[4096];
	long len = frame_exec_encode(&x, out, sizeof(out));
	struct frame_exited ended;
	struct wexec host;
	struct st_box b;
	struct frame f;
	struct wt w;
	int fds[8];

	CHECK(begin(&w, &b));
	CHECK(warm_up(&b, warm_runner_python(), "", &host));
	CHECK(kt_send(&b.p, FRAME_EXEC, 9, out, (size_t)len, NULL, 0));
	CHECK(kt_wait(&b.p, FRAME_STARTED, 9, &f, fds));
	CHECK(kt_reads(fds[0], "/dev/pts/0 os.terminal_size(columns=100, lines=30) True"));
	CHECK_EQ(write(fds[0], "hello\n", 6), 6);
	CHECK(kt_reads(fds[0], "got hello"));
	CHECK(kt_wait(&b.p, FRAME_EXITED, 9, &f, fds + 1) && frame_exited_decode(&f, &ended) == 0);
	CHECK_EQ(ended.status, 2);
	fd_close(fds[0]);
	CHECK(end(&w, &b));
}

/* Runs the C tests' own warm processes: what a hostile one may try. */
static bool refused(const char *runner, enum frame_stage stage, int error, unsigned times)
{
	const char *argv[] = { "python", "print(1)" };
	struct frame_exec x = { .flags = FRAME_EXEC_WARM | FRAME_EXEC_GROUP,
				.uid = 1000,
				.gid = 1000,
				.cwd = "/",
				.argc = 2,
				.argv = argv };
	struct frame_failed failed = { 0 };
	struct wexec host, y;
	struct st_box b;
	struct frame f;
	struct wt w;
	bool ok;
	int fds[8];

	if (!begin(&w, &b) || !warm_up(&b, runner, "", &host))
		return false;
	for (unsigned i = 0; i < times; i++) {
		ok = send_exec(&b, 7, &x, b.s.group, &y) && kt_wait(&b.p, FRAME_FAILED, 7, &f, fds) &&
		     frame_failed_decode(&f, &failed) == 0;
		if (!ok)
			return false;
	}
	if (failed.stage != stage || failed.errnum != (uint32_t)error)
		printf("# %s: %s, errno %u\n", runner, frame_stage_text(failed.stage), failed.errnum);
	ok = failed.stage == stage && failed.errnum == (uint32_t)error;
	/* The agent is alive and well. */
	ok = ok && st_run(&b, 1000, "echo well") == 0 && !strcmp(b.out, "well\n");
	return end(&w, &b) && ok;
}

#define HEAD                                                                                                                \
	"import os, socket, struct, time\ns = socket.socket(fileno=3)\ns.send(struct.pack('<IIIi', 0x4D524157, 0, 0, 0))\n" \
	"def ask():\n d, a, _, _ = s.recvmsg(256, 256)\n"                                                                   \
	" return struct.unpack('<IIIIQQII', d)[1], struct.unpack('<6i', a[0][2])\n"                                         \
	"def say(tag, stage=0, error=0): s.send(struct.pack('<IIIi', 0x4D524157, tag, stage, error))\n"

TEST(a_warm_process_that_lies_is_not_believed)
{
	/* It answers itself: it is an exec already. */
	CHECK(refused(HEAD "t, f = ask()\nsay(t)\ntime.sleep(100)", FRAME_STAGE_WARM, ECHILD, 1));
	/* A child of its own. */
	CHECK(refused(HEAD "t, f = ask()\nif os.fork() == 0: say(t)\ntime.sleep(100)", FRAME_STAGE_WARM, ECHILD, 1));
	/* An orphan that did not join its group. */
	CHECK(refused(HEAD "t, f = ask()\nif os.fork() == 0:\n if os.fork() == 0:\n  while os.getppid() != 1: pass\n"
			   "  say(t)\n  time.sleep(100)\n os._exit(0)\ntime.sleep(100)",
		      FRAME_STAGE_GROUP, EPERM, 1));
	/* Errors that are none. */
	CHECK(refused(HEAD "t, f = ask()\nsay(t, 4000000000, -5)\ntime.sleep(100)", FRAME_STAGE_WARM, EIO, 1));
	CHECK(refused(HEAD "t, f = ask()\nsay(t, 23, 2)\ntime.sleep(100)", FRAME_STAGE_CWD, ENOENT, 1));
	/* Too much, too little, gifts. */
	CHECK(refused(HEAD "t, f = ask()\nfor i in range(99): s.send(b'x' * i)\ntime.sleep(100)", FRAME_STAGE_WARM,
		      EPIPE, 1));
	CHECK(refused(HEAD "t, f = ask()\nfor i in range(99): socket.send_fds(s, [b'x'], [0] * 200)\ntime.sleep(100)",
		      FRAME_STAGE_WARM, EPIPE, 1));
	CHECK(refused(HEAD "time.sleep(100)", FRAME_STAGE_WARM, ENOENT, 4));
	CHECK(refused(HEAD "t, f = ask()\nos._exit(0)", FRAME_STAGE_WARM, EPIPE, 1));
}

/* A template's: warmed up once, imaged, and used in sandboxes that are restored from that. */
/* The warden's child that has read an image already: one whose descriptors go that far. 0 = none, after some time. */
static pid_t made_ready(pid_t warden)
{
	char path[96], text[65536], *at, *end;
	struct dirent *d;
	pid_t found = 0, pid;
	DIR *tasks;

	for (int i = 0; !found && i < 2000; i++, wt_sleep_ms(5)) {
		snprintf(path, sizeof(path), "/proc/%d/task", (int)warden);
		tasks = opendir(path);
		while (tasks && (d = readdir(tasks))) {
			snprintf(path, sizeof(path), "/proc/%d/task/%.16s/children", (int)warden, d->d_name);
			if (d->d_name[0] == '.' || fd_get(AT_FDCWD, path, text, sizeof(text)) < 0)
				continue;
			for (at = text; (pid = (pid_t)strtol(at, &end, 10)) > 0; at = end) {
				snprintf(path, sizeof(path), "/proc/%d/fd/200", (int)pid);
				found = faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ? pid : found;
			}
		}
		if (tasks)
			closedir(tasks);
	}
	return found;
}

static bool restored(struct wt *w, const struct sandbox_spec *spec, struct st_box *b)
{
	struct err e = { 0 };
	struct frame f;
	int fds[8];

	memset(b, 0, sizeof(*b));
	if (client_create(w->client, spec, &b->s, &e) < 0) {
		printf("# create: %s\n", e.msg);
		return false;
	}
	kt_open(&b->p, TAKE_FD(b->s.sock));
	return kt_wait(&b->p, FRAME_UP, 0, &f, fds);
}

/* Copies of one that has drawn its numbers, and used none, draw their own. */
static bool copies_differ(struct wt *w, const struct sandbox_spec *from)
{
	static const char code[] = "import random, numpy\nprint(random.random(), numpy.random.rand())";
	static char said[3][4096];
	struct sandbox_spec spec = *from;
	struct client_layer l;
	struct err e = { 0 };
	char id[ID_SIZE];
	struct st_box a, b;
	uint64_t pause;
	struct wexec x;
	bool ok = restored(w, from, &a) && kt_send(&a.p, FRAME_WARM, FRAME_WARM_WAKE, NULL, 0, NULL, 0);

	id_new(id, sizeof(id));
	ok = ok && client_seal_memory(w->client, a.s.handle, id, &l, &pause, &e) == 0;
	st_stand_on(&spec, id);
	for (int i = 0; ok && i < 2; i++) {
		ok = restored(w, &spec, &b) && run(&b, code, -1, &x) && st_end(w, &b);
		memcpy(said[i], x.text, sizeof(said[i]));
	}
	ok = ok && run(&a, code, a.s.group, &x) && st_end(w, &a);
	memcpy(said[2], x.text, sizeof(said[2]));
	return ok && strlen(said[0]) > 20 && strcmp(said[0], said[1]) && strcmp(said[0], said[2]) &&
	       strcmp(said[1], said[2]);
}

/* From the third create on, or soon, one is prebuilt, with the image read and its files open. */
TEST(a_warm_process_goes_on_in_other_sandboxes)
{
	const char *args[] = { "--keep", "--state", kt_dir, "--layers", st_store, "--pool", "8", NULL };
	static char said[10][4096];
	unsigned had = 0;
	pid_t ready;
	struct sandbox_spec spec;
	struct client_layer l;
	struct wexec host, x;
	struct err e = { 0 };
	char id[ID_SIZE];
	struct st_box a, b;
	uint64_t pause, from, took;
	struct kt_held held[2];
	struct frame f;
	uint32_t number;
	struct wt w;
	int fds[8], group;

	st_fresh();
	wt_spec(&spec);
	CHECK(wt_open(&w, args));
	CHECK(st_create(&w, &spec, &a));
	CHECK(warm_up(&a, warm_runner_python(), "import numpy, random\nrandom.seed(1)", &host));
	id_new(id, sizeof(id));
	if (client_seal_memory(w.client, a.s.handle, id, &l, &pause, &e) < 0) {
		TEST_FAIL("%s", e.msg);
		return;
	}
	st_stand_on(&spec, id);
	spec.flags = SPEC_MEMORY;
	for (int i = 0; i < 3 || (!had && i < 10); i++) {
		memset(&b, 0, sizeof(b));
		ready = i < 2 ? 0 : made_ready(w.pid);
		from = clock_mono_ns();
		if (client_create(w.client, &spec, &b.s, &e) < 0) {
			TEST_FAIL("%s", e.msg);
			break;
		}
		kt_open(&b.p, TAKE_FD(b.s.sock));
		had += wt_pid(b.s.pidfd) == ready;
		CHECK(kt_wait(&b.p, FRAME_UP, 0, &f, fds));
		if (i % 2) /* some draw their numbers when they are woken up */
			CHECK(kt_send(&b.p, FRAME_WARM, FRAME_WARM_WAKE, NULL, 0, NULL, 0));
		CHECK(run(&b,
			  "import random, numpy\n"
			  "print(random.random(), numpy.random.rand(), open('/run/cloche/generation').read())",
			  -1, &x));
		took = clock_mono_ns() - from;
		memcpy(said[i], x.text, sizeof(said[i]));
		CHECK(strlen(said[i]) > 50);
		printf("# create, restore, run to the end: %.2f ms\n", (double)took / 1e6);
		for (int k = 0; k < i; k++)
			CHECK(strcmp(said[i], said[k]) && strncmp(said[i], said[k], 20));
		CHECK_EQ(kt_sync(&b.p, held, 2), 1);
		CHECK_EQ(held[0].id, HOST);
		kt_pipes_close(&held[0].pipes);
		CHECK(st_end(&w, &b));
	}
	CHECK(had > 0); /* not at once, maybe: it can be seen a moment before it is there to be had */
	CHECK(copies_differ(&w, &spec));
	/* And the source's own is as good as before. */
	CHECK((group = fork_group(&w, &a, &number)) >= 0);
	CHECK(run(&a, "print(2)", group, &x));
	fd_close(group);
	CHECK_STR(x.text, "2\n");
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}

TEST(how_fast)
{
	static const char *const warm[] = { "", "import numpy" };
	struct wexec host, x;
	uint64_t took[60], from;
	struct st_box b;
	uint32_t number;
	struct wt w;
	int group;

	for (unsigned k = 0; k < 2; k++) {
		CHECK(begin(&w, &b));
		CHECK(warm_up(&b, warm_runner_python(), warm[k], &host));
		CHECK((group = fork_group(&w, &b, &number)) >= 0);
		for (unsigned i = 0; i < ARRAY_LEN(took); i++) {
			from = clock_mono_ns();
			CHECK(run(&b, "print(1)", group, &x));
			took[i] = clock_mono_ns() - from;
			CHECK_STR(x.text, "1\n");
		}
		for (unsigned i = 1; i < ARRAY_LEN(took); i++)
			for (unsigned j = i; j && took[j] < took[j - 1]; j--) {
				uint64_t t = took[j];

				took[j] = took[j - 1];
				took[j - 1] = t;
			}
		printf("# '%s': exec to exit p50 %.2f ms, p90 %.2f ms, at best %.2f ms; the last took %llu us of CPU\n",
		       warm[k], (double)took[30] / 1e6, (double)took[54] / 1e6, (double)took[0] / 1e6,
		       (unsigned long long)x.x.cpu_usec);
		fd_close(group);
		CHECK(end(&w, &b));
	}
}
