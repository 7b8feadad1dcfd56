#include "base/base.h"
#include "base/test.h"
#include "proto/exec.h"
#include "run/remote_test.h"
#include "warden/warden_test.h"

#include <sys/stat.h>

static const char *const plain_env[] = { "PATH=/usr/bin:/bin", "HOME=/home/user" };

struct done {
	int status; /* -1: no answer */
	char out[32768];
};

struct box {
	struct client *c; /* client of its warden; NULL: that is in this process */
	struct client_sandbox there;
	struct engine_sandbox s;
	bool made;
	uint32_t next;
};

static bool box_open(struct client *c, const struct sandbox_spec *spec, struct box *b)
{
	struct err e = { 0 };
	int r;

	b->next = 1;
	b->made = false;
	b->c = c;
	r = remote_create(c, spec, &b->there, &b->s, &e);
	if (r == 0) {
		b->made = true;
		r = engine_wait_up(&b->s, 10000, &e);
	}
	if (r < 0)
		printf("# create: %s\n", e.msg);
	return r == 0;
}

static int box_close(struct box *b)
{
	struct err e = { 0 };
	int r;

	if (!b->made)
		return -ENOENT;
	b->made = false;
	r = b->c ? remote_destroy(b->c, &b->there, &b->s, &e) : engine_destroy(&b->s, &e);
	if (r < 0)
		printf("# destroy: %s\n", e.msg);
	return r;
}

/* Sends one exec with stdout and stderr to @out. Returns its id. */
static int start(struct box *b, const char *const *argv, uint32_t uid, int out)
{
	struct exec_spec x = {
		.argv = argv,
		.envp = plain_env,
		.envc = ARRAY_LEN(plain_env),
		.cwd = "/home/user",
		.uid = uid,
		.gid = uid,
		.filter = -1,
		.nofile = 256,
	};
	AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	const int stdio[3] = { null, out, out };
	struct err e = { 0 };
	int r;

	while (argv[x.argc])
		x.argc++;
	r = exec_send(&b->s.link, b->next, &x, stdio, &e);
	if (r < 0) {
		printf("# exec: %s\n", e.msg);
		return r;
	}
	return (int)b->next++;
}

static int wait_exit(struct box *b, uint32_t *ret_id)
{
	for (;;) {
		struct frame_exited x;
		struct frame f;
		int fd = -1, r = link_next(&b->s.link, 20000, &f, &fd);

		fd_close(fd);
		if (r <= 0)
			return -1;
		if (ret_id)
			*ret_id = f.id;
		if (f.type == FRAME_FAILED)
			return -1;
		if (f.type == FRAME_EXITED && frame_exited_decode(&f, &x) == 0)
			return x.status;
	}
}

static void read_all(int fd, char *buf, size_t size)
{
	size_t have = 0;
	ssize_t n;

	while (have < size - 1 && (n = read(fd, buf + have, size - 1 - have)) > 0)
		have += (size_t)n;
	buf[have] = '\0';
}

static struct done run(struct box *b, const char *const *argv, uint32_t uid)
{
	struct done d = { .status = -1 };
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return d;
	if (start(b, argv, uid, p[1]) > 0) {
		fd_close(TAKE_FD(p[1]));
		d.status = wait_exit(b, NULL);
		read_all(p[0], d.out, sizeof(d.out));
	}
	fd_close(p[1]);
	fd_close(p[0]);
	return d;
}

static struct done sh(struct box *b, const char *text)
{
	const char *const argv[] = { "/bin/sh", "-c", text, NULL };

	return run(b, argv, 1000);
}

/* Starts a warden in a process of its own, and connects to it. */
static struct client *client_open(struct wt *w, const char *const *more)
{
	struct client *c = NULL;
	struct err e = { 0 };

	if (!wt_start(w, more))
		return NULL;
	if (client_connect(TAKE_FD(w->sock), &c, &e) < 0)
		printf("# client: %s\n", e.msg);
	return c;
}

/* What most tests need: a warden, a connection to it, one sandbox. */
struct fixture {
	struct wt w;
	struct client *c;
	struct sandbox_spec spec;
	struct box b;
};

static bool fixture_open(struct fixture *s, const char *const *more)
{
	*s = (struct fixture){ 0 };
	wt_spec(&s->spec);
	s->c = client_open(&s->w, more);
	return s->c != NULL;
}

static int fixture_close(struct fixture *s)
{
	if (s->b.made)
		box_close(&s->b);
	client_free(s->c);
	return wt_stop(&s->w);
}

TEST(a_command_runs_and_its_exit_code_comes_back)
{
	static struct fixture s;
	struct done d;

	CHECK(fixture_open(&s, NULL));
	CHECK(box_open(s.c, &s.spec, &s.b));
	CHECK_EQ(s.b.s.receipt.idmapped, true);
	CHECK(s.b.s.receipt.landlock_abi > 0);
	d = sh(&s.b, "true");
	CHECK_EQ(d.status, 0);
	d = sh(&s.b, "id -u; exit 7");
	CHECK(WIFEXITED(d.status));
	CHECK_EQ(WEXITSTATUS(d.status), 7);
	CHECK_STR(d.out, "1000\n");
	CHECK_EQ(box_close(&s.b), 0);
	CHECK_EQ(fixture_close(&s), 0);
}

TEST(two_sandboxes_do_not_see_each_other)
{
	static struct fixture s;
	static struct box other;

	CHECK(fixture_open(&s, NULL));
	CHECK(box_open(s.c, &s.spec, &s.b));
	CHECK(box_open(s.c, &s.spec, &other));
	CHECK_EQ(sh(&s.b, "echo mine > /tmp/x; echo mine > /home/user/x").status, 0);
	CHECK(sh(&other, "cat /tmp/x /home/user/x").status != 0);
	CHECK_EQ(sh(&s.b, "cat /tmp/x").status, 0);
	CHECK_EQ(box_close(&s.b), 0);
	CHECK_EQ(sh(&other, "true").status, 0);
	CHECK_EQ(box_close(&other), 0);
	CHECK_EQ(fixture_close(&s), 0);
}

/* The pool recycles a tenant's namespace: a connection that is still closing would hold its port there for a minute. */
TEST(what_went_over_the_loopback_interface_is_not_left_to_the_next)
{
	static const char *const more[] = { "--pool", "1", NULL };
	static const char *const connect[] = {
		"/usr/bin/python3", "-c",
		"import socket\n"
		"print(open('/proc/net/dev').read().split('lo:')[1].split()[0], len(open('/proc/net/tcp').readlines()))\n"
		"s = socket.socket(); s.bind(('127.0.0.1', 8080)); s.listen()\n"
		"c = socket.create_connection(('127.0.0.1', 8080)); a, _ = s.accept(); a.close(); c.close()\n",
		NULL
	};
	static struct fixture s;

	CHECK(fixture_open(&s, more));
	s.spec.tenant = 7;
	for (int life = 0; life < 6; life++) {
		struct done d;

		CHECK(box_open(s.c, &s.spec, &s.b));
		d = run(&s.b, connect, 1000);
		CHECK_STR(d.out, "0 1\n");
		CHECK_EQ(d.status, 0);
		CHECK_EQ(box_close(&s.b), 0);
		wt_sleep_ms(100); /* until the slot is recycled, and the next sandbox uses it */
	}
	CHECK_EQ(fixture_close(&s), 0);
}

static unsigned long long counter(const char *path)
{
	char text[64];

	return fd_get(AT_FDCWD, path, text, sizeof(text)) < 0 ? 0 : strtoull(text, NULL, 10);
}

/* Each write truncates first, so a single read may find an empty file. */
static bool counts_past(const char *path, unsigned long long n)
{
	for (int i = 0; i < 1000; i++) {
		if (counter(path) > n)
			return true;
		wt_sleep_ms(5);
	}
	return false;
}

/* A folder that the sandbox may write to, so that the test sees its files. */
static bool shared_folder(char path[32], struct sandbox_spec *spec)
{
	snprintf(path, 32, "/var/tmp/cloche-test-XXXXXX");
	if (!mkdtemp(path) || chown(path, 1000, 1000) < 0)
		return false;
	snprintf(spec->mount[0].src, SPEC_PATH, "%s", path);
	snprintf(spec->mount[0].dst, SPEC_PATH, "/shared");
	spec->nmounts = 1;
	return true;
}

TEST(freezing_stops_a_counter_and_thawing_lets_it_go_on)
{
	static const char *const count[] = { "/bin/sh", "-c", "i=0; while :; do i=$((i+1)); echo $i > /shared/n; done",
					     NULL };
	static const char *const more[] = { "--allow-mount", "/var/tmp", NULL };
	static struct fixture s;
	unsigned long long was;
	char path[32], file[64];
	struct err e = { 0 };

	CHECK(fixture_open(&s, more));
	CHECK(shared_folder(path, &s.spec));
	CHECK(box_open(s.c, &s.spec, &s.b));
	CHECK(start(&s.b, count, 1000, STDERR_FILENO) > 0);
	snprintf(file, sizeof(file), "%s/n", path);
	CHECK(counts_past(file, 10));
	CHECK_EQ(client_freeze(s.c, s.b.there.handle, &e), 0);
	was = counter(file);
	wt_sleep_ms(200);
	CHECK_EQ(counter(file), was);
	CHECK_EQ(client_thaw(s.c, s.b.there.handle, &e), 0);
	CHECK(counts_past(file, was + 10));
	/* A frozen sandbox can be ended, too. */
	CHECK_EQ(client_freeze(s.c, s.b.there.handle, &e), 0);
	CHECK_EQ(box_close(&s.b), 0);
	CHECK_EQ(fixture_close(&s), 0);
	unlink(file);
	CHECK_EQ(rmdir(path), 0);
}

TEST(usage_shows_memory_files_processes_and_cpu_time)
{
	static struct fixture s;
	struct warden_stat a, b;
	struct err e = { 0 };

	CHECK(fixture_open(&s, NULL));
	CHECK(box_open(s.c, &s.spec, &s.b));
	CHECK_EQ(client_stat(s.c, s.b.there.handle, &a, &e), 0);
	CHECK_EQ(sh(&s.b, "head -c 20000000 /dev/zero > /tmp/big; sleep 100 >/dev/null 2>&1 & true").status, 0);
	CHECK_EQ(client_stat(s.c, s.b.there.handle, &b, &e), 0);
	CHECK(b.group.memory > a.group.memory + 15 * MIB);
	CHECK(b.group.memory_peak >= b.group.memory);
	CHECK(b.disk_used > a.disk_used + 15 * MIB);
	CHECK(b.inodes_used > a.inodes_used);
	CHECK(b.group.pids > a.group.pids);
	CHECK(b.group.cpu_usec > a.group.cpu_usec);
	CHECK(b.disk_size <= 64 * MIB);
	/* /proc/meminfo is updated while it runs. */
	CHECK_EQ(sh(&s.b, "until awk '/MemFree/ { exit !($2 < 115000) }' /proc/meminfo; do sleep 0.05; done").status,
		 0);
	CHECK_EQ(fixture_close(&s), 0);
}

TEST(what_one_sandbox_wrote_no_later_one_sees)
{
	static const char *const more[] = { "--pool", "3", NULL };
	static struct fixture s;
	struct done d;

	CHECK(fixture_open(&s, more));
	for (int i = 0; i < 25; i++) {
		CHECK(box_open(s.c, &s.spec, &s.b));
		/*
		 * Nothing of an earlier sandbox is left: files, System V memory, an abstract socket's name, a process.
		 */
		d = sh(&s.b,
		       "ls -A /tmp /var/tmp /dev/shm /home/user | grep -v : ; ipcs -m | grep 0x; cat /proc/net/unix | grep @; "
		       "ps -e -o comm=; hostname");
		CHECK_CONTAINS(d.out, "test\n");
		CHECK(!strstr(d.out, "sleep"));
		CHECK(!strstr(d.out, "secret"));
		CHECK(!strstr(d.out, "0x"));
		d = sh(&s.b,
		       "for f in /tmp /var/tmp /dev/shm /home/user; do echo x > $f/secret$$; done; ipcmk -M 4096 >/dev/null; "
		       "sleep 1000 >/dev/null 2>&1 & true");
		CHECK_EQ(d.status, 0);
		CHECK_EQ(box_close(&s.b), 0);
	}
	CHECK_EQ(fixture_close(&s), 0);
}

/* Whether it was prebuilt: its agent has already sent UP. */
static bool stood(const struct box *b)
{
	uint8_t data[64];
	ssize_t n = recv(b->s.link.sock, data, sizeof(data), MSG_PEEK | MSG_DONTWAIT);
	struct frame f;
	long at = n > 0 ? frame_decode(data, (size_t)n, &f) : 0;

	return at > 0 && frame_decode(data + at, (size_t)(n - at), &f) > 0 && f.type == FRAME_UP;
}

static const char tell_all[] =
	"hostname; pwd; grep MemTotal /proc/meminfo; touch /usr/x 2>/dev/null || echo fixed; ls -A /tmp";

TEST(who_asks_for_the_same_finds_it_standing_and_others_get_what_they_ask_for)
{
	static const char *const more[] = { "--pool", "6", NULL };
	static const char *const want[] = { "test\n/home/user\nMemTotal:         131072 kB\nfixed\n",
					    "other\n/home/user\nMemTotal:         262144 kB\nfixed\n" };
	static struct sandbox_spec spec[2];
	static struct fixture s;
	unsigned ahead[2] = { 0 };
	struct err e = { 0 };

	CHECK(fixture_open(&s, more));
	spec[0] = spec[1] = s.spec;
	memcpy(spec[1].hostname, "other", 6);
	spec[1].limits.memory = 256 * MIB;
	spec[1].flags = SPEC_READ_ONLY;
	for (int i = 0; i < 60; i++) {
		/* A long run of one kind, a long run of the other, then in turns. */
		const int k = i < 20 ? 0 : i < 40 ? 1 : i % 3 == 0;
		struct done d;

		s.b = (struct box){ .next = 1, .c = s.c };
		CHECK_EQ(remote_create(s.c, &spec[k], &s.b.there, &s.b.s, &e), 0);
		s.b.made = true;
		ahead[k] += stood(&s.b);
		CHECK_EQ(engine_wait_up(&s.b.s, 10000, &e), 0);
		d = sh(&s.b, tell_all);
		CHECK_EQ(d.status, 0);
		CHECK_STR(d.out, want[k]);
		d = sh(&s.b, "touch /tmp/secret");
		CHECK_EQ(d.status, 0);
		CHECK_EQ(box_close(&s.b), 0);
		wt_sleep_ms(10);
	}
	printf("# %u and %u of them stood\n", ahead[0], ahead[1]);
	CHECK(ahead[0] > 4 && ahead[1] > 4);
	CHECK_EQ(fixture_close(&s), 0);
}

TEST(execs_run_one_after_another_and_at_the_same_time)
{
	enum { N = 8 };
	static struct fixture s;
	int p[2], seen = 0;
	char out[256];

	CHECK(fixture_open(&s, NULL));
	CHECK(box_open(s.c, &s.spec, &s.b));
	CHECK_EQ(sh(&s.b, "echo 1 > /tmp/step").status, 0);
	CHECK_EQ(sh(&s.b, "test $(cat /tmp/step) = 1 && echo 2 > /tmp/step").status, 0);
	CHECK_EQ(sh(&s.b, "test $(cat /tmp/step) = 2").status, 0);
	CHECK_EQ(pipe2(p, O_CLOEXEC), 0);
	/* Each waits until all are there, so they end only if they run at the same time. */
	for (int i = 0; i < N; i++) {
		char text[160];
		const char *const argv[] = { "/bin/sh", "-c", text, NULL };

		snprintf(
			text, sizeof(text),
			"echo > /tmp/in%d; while [ $(ls /tmp/in* | wc -l) -lt %d ]; do sleep 0.01; done; echo %c; exit %d",
			i, N, 'a' + i, i);
		CHECK(start(&s.b, argv, 1000, p[1]) > 0);
	}
	fd_close(p[1]);
	for (int i = 0; i < N; i++) {
		uint32_t id = 0;
		int status = wait_exit(&s.b, &id);

		CHECK(id >= 4 && id < 4 + N);
		CHECK_EQ(WEXITSTATUS(status), id - 4);
		seen |= 1 << (id - 4);
	}
	CHECK_EQ(seen, (1 << N) - 1);
	read_all(p[0], out, sizeof(out));
	fd_close(p[0]);
	CHECK_EQ(strlen(out), 2 * N);
	CHECK_EQ(fixture_close(&s), 0);
}

static void probe_later(uint32_t uid)
{
	static struct fixture s;
	static struct done d;
	char probe[512], folder[512];
	const char *const more[] = { "--allow-mount", folder, NULL };
	const char *const argv[] = { "/probe", "--ro", "/probe", NULL };

	CHECK(wt_program("cloche-probe", probe, sizeof(probe)));
	snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(probe, '/') - probe), probe);
	CHECK(fixture_open(&s, more));
	s.spec.uid = s.spec.gid = uid;
	snprintf(s.spec.mount[0].src, SPEC_PATH, "%.*s", SPEC_PATH - 1, probe);
	snprintf(s.spec.mount[0].dst, SPEC_PATH, "/probe");
	s.spec.mount[0].read_only = 1;
	s.spec.nmounts = 1;
	CHECK(box_open(s.c, &s.spec, &s.b));
	for (int i = 0; i < 3; i++)
		CHECK_EQ(sh(&s.b, "true").status, 0);
	d = run(&s.b, argv, uid);
	if (d.status != 0)
		printf("# %s\n", d.out);
	CHECK_CONTAINS(d.out, "closed");
	CHECK(!strstr(d.out, "\topen"));
	CHECK_EQ(d.status, 0);
	CHECK_EQ(fixture_close(&s), 0);
}

TEST(who_stops_execs_on_their_way_does_not_stop_the_agent)
{
	enum { TRIES = 12 };
	/* Process ids inside are consecutive, so an attacker can guess the next one. */
	static const char *const stopper[] = {
		"/bin/sh", "-c",
		"exec 2>/dev/null; while :; do for p in 5 6 7 8 9 10 11 12 13 14 15 16; do "
		"kill -STOP $p; done; done",
		NULL
	};
	static const char *const victim[] = { "/bin/true", NULL };
	static struct fixture s;
	AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	CHECK(fixture_open(&s, NULL));
	s.spec.limits.cpu_milli = 0;
	CHECK(box_open(s.c, &s.spec, &s.b));
	for (int i = 0; i < 3; i++)
		CHECK(start(&s.b, stopper, 1000, null) > 0);
	for (int i = 0; i < TRIES; i++) {
		int root, status = -1;
		uint32_t id;

		CHECK(start(&s.b, victim, 1000, null) > 0);
		root = start(&s.b, victim, 0, null);
		CHECK(root > 0);
		do {
			id = 0;
			status = wait_exit(&s.b, &id);
		} while (id && id != (uint32_t)root);
		if (id != (uint32_t)root || status)
			TEST_FAIL("try %d: the agent does not answer any more (status %d)", i, status);
	}
	CHECK_EQ(box_close(&s.b), 0);
	CHECK_EQ(fixture_close(&s), 0);
}

TEST(probes_in_a_later_exec_find_nothing_open)
{
	probe_later(1000);
}

TEST(probes_in_a_later_exec_as_root_find_nothing_open)
{
	probe_later(0);
}

TEST(limits_on_io_are_made_to_order_also_twice_in_a_row)
{
	static struct fixture s;
	static struct box other;

	CHECK(fixture_open(&s, NULL));
	s.spec.limits.io_bps = 10 * MIB;
	s.spec.flags |= SPEC_DISK;
	CHECK(box_open(s.c, &s.spec, &s.b));
	CHECK(box_open(s.c, &s.spec, &other));
	CHECK(s.b.s.receipt.controllers & CGROUP_BIT(CGROUP_IO));
	CHECK_EQ(sh(&s.b, "true").status, 0);
	CHECK_EQ(sh(&other, "true").status, 0);
	CHECK_EQ(box_close(&other), 0);
	CHECK_EQ(fixture_close(&s), 0);
}

TEST(three_hundred_lives_with_four_at_once_leave_nothing)
{
	enum { LIVES = 300, ALIVE = 4, POOL = 2 }; /* a pool this small is refilled all the time */
	static const char *const more[] = { "--pool", "2", NULL };
	static struct box alive[ALIVE];
	static char group[LIVES][256];
	unsigned fds = 0, children = 0, mounts = 0, left = 0;
	pid_t all[512];
	static struct fixture s;
	struct warden_counts c;
	struct err e = { 0 };

	CHECK(fixture_open(&s, more));
	memset(alive, 0, sizeof(alive));
	for (int i = 0; i < LIVES; i++) {
		struct box *b = &alive[i % ALIVE];

		if (b->made)
			CHECK_EQ(box_close(b), 0);
		CHECK(box_open(s.c, &s.spec, b));
		CHECK(wt_cgroup(wt_pid(b->s.pidfd), group[i], sizeof(group[i])));
		CHECK_EQ(sh(b, "exit 3").status, 3 << 8);
		if (i == ALIVE) { /* warm by now: the first sandbox of each kind has been made */
			for (int k = 0; k < 500; k++) {
				CHECK_EQ(client_counts(s.c, &c, &e), 0);
				if (c.ready == POOL && !c.cleaning)
					break;
				wt_sleep_ms(10);
			}
			fds = wt_fds(s.w.pid);
			children = wt_sandboxes(s.w.pid, all, ARRAY_LEN(all));
			mounts = wt_mounts(s.w.pid);
			CHECK_EQ(children, POOL + ALIVE);
		}
	}
	for (int k = 0; k < 500; k++) {
		CHECK_EQ(client_counts(s.c, &c, &e), 0);
		if (c.ready == POOL && !c.cleaning)
			break;
		wt_sleep_ms(10);
	}
	CHECK_EQ(c.alive, ALIVE);
	CHECK_EQ(c.made, LIVES);
	CHECK_EQ(c.ended, LIVES - ALIVE);
	CHECK_EQ(c.cleanup_failures, 0);
	/* As many network namespaces as the pool is large are kept for the same tenant. */
	if (wt_fds(s.w.pid) > fds + 64)
		TEST_FAIL("%u descriptors, %u before", wt_fds(s.w.pid), fds);
	CHECK_EQ(wt_sandboxes(s.w.pid, all, ARRAY_LEN(all)), children);
	CHECK(wt_mounts_wait(s.w.pid, mounts) <= mounts);
	for (int i = 0; i < LIVES - ALIVE; i++) {
		bool later = false;

		for (int k = i + 1; k < LIVES; k++)
			later = later || !strcmp(group[i], group[k]);
		left += !later && access(group[i], F_OK) == 0;
	}
	CHECK(left <= 2 * POOL); /* kept for the same tenant, or part of a blank */
	for (int i = LIVES - ALIVE; i < LIVES; i++) {
		CHECK(access(group[i], F_OK) == 0);
		CHECK_EQ(box_close(&alive[i % ALIVE]), 0);
	}
	CHECK_EQ(fixture_close(&s), 0);
	for (int i = 0; i < LIVES; i++)
		CHECK(access(group[i], F_OK) < 0);
}

TEST(an_engine_in_this_process_does_the_same)
{
	struct engine_opts o = { .freezer = true, .accounting = true };
	struct sandbox_spec spec;
	static struct box b;
	struct engine *g = NULL;
	struct err e = { 0 };
	char agent[512];

	CHECK(wt_program("cloche-agent", agent, sizeof(agent)));
	o.agent = agent;
	CHECK_EQ(engine_new(&o, &g, &e), 0);
	wt_spec(&spec);
	b.next = 1;
	CHECK_EQ(engine_create(g, &spec, &b.s, &e), 0);
	b.made = true;
	CHECK_EQ(engine_wait_up(&b.s, 10000, &e), 0);
	CHECK_EQ(sh(&b, "exit 5").status, 5 << 8);
	CHECK_EQ(warden_freeze(engine_warden(g), b.s.made, &e), 0);
	CHECK_EQ(box_close(&b), 0);
	engine_free(g);
}

static struct done root_sh(struct box *b, const char *text)
{
	const char *const argv[] = { "/bin/sh", "-c", text, NULL };

	return run(b, argv, 0);
}

/* Does what dpkg does, through an overlay that works with the warden's capabilities. */
static void change_system(uint32_t flags)
{
	static struct fixture s;
	struct done d;

	CHECK(fixture_open(&s, NULL));
	s.spec.uid = s.spec.gid = 0;
	s.spec.flags = flags;
	CHECK(box_open(s.c, &s.spec, &s.b));
	d = root_sh(&s.b, "set -e; cd /usr; cp bin/true bin/mine; chown 33:44 bin/mine; chmod 6755 bin/mine; "
			  "stat -c %u:%g:%a bin/mine; rm bin/yes; ! test -e bin/yes; touch bin/wc; chmod 700 bin/wc; "
			  "mkdir -p /usr/new/deep; echo text > /usr/new/deep/file; rm -r /usr/share/doc; "
			  "mv /usr/new /usr/newer; chgrp -R 7 /usr/newer; stat -c %g /usr/newer/deep/file; "
			  "echo x > /etc/hostname.new; mv /etc/hostname.new /etc/hostname; echo y >> /etc/passwd");
	if (d.status != 0)
		printf("# %s\n", d.out);
	CHECK_EQ(d.status, 0);
	CHECK_STR(d.out, "33:44:6755\n7\n");
	/* A file with capabilities, like ping. */
	d = root_sh(&s.b,
		    "python3 -c 'import os; n = \"/usr/bin/mine\"; v = b\"\\1\\0\\0\\2\\0\\4\" + bytes(14); "
		    "os.setxattr(n, \"security.capability\", v); print(os.getxattr(n, \"security.capability\") == v)'");
	CHECK_CONTAINS(d.out, "True");
	CHECK_EQ(access("/usr/bin/mine", F_OK), -1);
	CHECK_EQ(access("/usr/bin/yes", F_OK), 0);
	CHECK_EQ(fixture_close(&s), 0);
}

TEST(root_of_a_sandbox_changes_its_own_system_as_package_managers_do)
{
	change_system(SPEC_SYSTEM_WRITABLE);
}

TEST(the_same_goes_for_a_layer_on_disk)
{
	change_system(SPEC_SYSTEM_WRITABLE | SPEC_DISK);
}

TEST(a_read_only_root_keeps_its_writable_places)
{
	static struct fixture s;

	CHECK(fixture_open(&s, NULL));
	s.spec.flags = SPEC_READ_ONLY;
	snprintf(s.spec.tmpfs[0].path, SPEC_PATH, "/scratch");
	s.spec.tmpfs[0].size = 1 * MIB;
	s.spec.ntmpfs = 1;
	CHECK(box_open(s.c, &s.spec, &s.b));
	CHECK_EQ(sh(&s.b, "echo x > /tmp/x && echo x > /home/user/x && echo x > /scratch/x").status, 0);
	CHECK(sh(&s.b, "echo x > /var/tmp/x").status != 0);
	CHECK(sh(&s.b, "head -c 2000000 /dev/zero > /scratch/big").status != 0);
	CHECK_EQ(fixture_close(&s), 0);
}
