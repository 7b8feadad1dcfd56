/*
 * A restore in which one system call fails, in the agent or in a process that is being restored. Either all processes
 * are there, or none, with a reason; and the agent continues to serve.
 */
#include "base/base.h"
#include "base/test.h"
#include "engine/sandbox/restore_test.h"

static struct wt w;
static struct rt_box a, b;
static struct rt_image m = { .out = -1 };
static struct rt_result res;
static struct kt_pipes x;
static struct sandbox_spec spec;

static const char program[] = "import threading, time, os, select\n"
			      "t = [threading.Thread(target=time.sleep, args=(1000,), daemon=True) for i in range(2)]\n"
			      "[i.start() for i in t]\n"
			      "r, w = os.pipe(); os.write(w, b'x'); e = os.eventfd(3); f = os.memfd_create('m')\n"
			      "p = select.epoll(); p.register(r, 1); n = os.open('/dev/null', 2); k = os.openpty()\n"
			      "if os.fork() == 0: os.setsid(); time.sleep(1000)\n"
			      "print('up')\ninput()\n";

static unsigned children(pid_t pid)
{
	char path[64], text[512];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	n = fd_get(AT_FDCWD, path, text, sizeof(text));
	return n > 0 ? (unsigned)strcspn(text, "\n") : 0;
}

/* 1 when it failed, 0 when it did not, -1 when it must not have been like that. */
static int with_fault(const char *fault)
{
	int fds[2] = { -1, -1 }, r = -1;
	struct frame f;
	int got[8];

	setenv("CLOCHE_FAULT_AGENT", fault, 1);
	st_fresh();
	if (!wt_open(&w, st_args()))
		return -1;
	if (!rt_create(&w, &spec, &b)) {
		r = 0; /* it hit the making of the sandbox */
	} else {
		fds[0] = openat(m.out, "meta", O_RDONLY | O_CLOEXEC);
		fds[1] = mount_open_file(m.out, "pages");
		if (rt_send_fds(&b, fds, 1, &res) && kt_send(&b.p, FRAME_PING, 77, NULL, 0, NULL, 0) &&
		    kt_wait(&b.p, FRAME_PONG, 77, &f, got) && !children(b.agent) == !!res.why[0])
			r = !!res.why[0];
		fd_close_many(fds, 2);
		if (!rt_destroy(&w, &b))
			r = -1;
	}
	kt_settled(&w);
	wt_stop(&w);
	kt_remove_state();
	st_remove_store();
	return r;
}

TEST(one_call_that_fails_leaves_all_processes_or_none)
{
	static const struct {
		const char *name;
		unsigned first,
			last; /* which of them: earlier ones are KEEP's; a capset that fails later ends the agent, as it must */
	} calls[] = {
		{ "clone3_cookie", 1, 2 }, { "ptrace", 1, 9 },
		{ "fcntl", 4, 11 },	   { "memfd_create", 1, 1 },
		{ "pipe2", 1, 3 },	   { "setresuid", 2, 4 },
		{ "setgroups", 1, 3 },	   { "capset", 3, 4 },
		{ "close_range", 1, 2 },   { "ioctl", 1, 4 },
		{ "ftruncate", 1, 3 },	   { "userfaultfd", 1, 2 }, /* never an error: its memory is read instead */
		{ "socketpair", 1, 1 }, /* nor this: each fills its memory alone */
	};
	unsigned failed = 0, not = 0;

	wt_spec(&spec);
	spec.limits.memory = 256 * MIB;
	wt_warden = "faulty/cloche-warden";
	unsetenv("CLOCHE_FAULT_AGENT");
	st_fresh();
	CHECK(wt_open(&w, st_args()) && rt_create(&w, &spec, &a) && rt_python(&a, 7, program, &x) &&
	      kt_reads(x.out, "up\n") && rt_dump(&a, &m));
	kt_pipes_close(&x);
	CHECK(rt_destroy(&w, &a));
	CHECK(st_stop(&w));
	for (size_t i = 0; i < ARRAY_LEN(calls); i++)
		for (unsigned n = calls[i].first; n <= calls[i].last; n++) {
			char fault[64];
			int r;

			snprintf(fault, sizeof(fault), "%s:%d:%u", calls[i].name, ENOMEM, n);
			r = with_fault(fault);
			if (r < 0)
				TEST_FAIL("%s: '%s', %u children", fault, res.why, children(b.agent));
			printf("# %s: %s\n", fault, r ? res.why : "-");
			failed += r > 0;
			not += r == 0;
		}
	printf("# %u failed, %u did not\n", failed, not );
	CHECK(failed >= 10);
	rt_forget(&m);
}
