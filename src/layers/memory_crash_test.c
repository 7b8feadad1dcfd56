/* Wardens and cloche-dumps that are killed while memory is sealed or restored. */
#include "layers/memory.h"
#include "base/base.h"
#include "base/test.h"
#include "layers/seal_test.h"

#include <sys/un.h>

/* CI runs these tests each time, so fewer rounds there. */
static unsigned rounds(void)
{
	return getenv("CLOCHE_STORMS") ? 16 : 40;
}

#define COUNTER                                                                                                        \
	"i=0; while :; do i=$((i+1)); echo $i; sleep 0.005; done & "                                                   \
	"python3 -c 'import time, threading\nx = bytearray(3000000)\ndef f():\n"                                       \
	"  while True: x[:] = bytes(len(x)); time.sleep(.01)\n"                                                        \
	"threading.Thread(target=f).start()' & wait"

static pid_t parent_of(pid_t pid)
{
	char path[64], text[512], *at;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) < 0 || !(at = strrchr(text, ')')))
		return -1;
	return (pid_t)strtol(at + 4, NULL, 10);
}

/* Whether the process is of this build: other tests run beside this one. */
static bool ours(pid_t pid)
{
	char link[64], is[512] = "", want[512];

	snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	return wt_program("cloche-dump", want, sizeof(want)) && readlink(link, is, sizeof(is) - 1) > 0 &&
	       !strcmp(is, want);
}

/* Finds a cloche-dump of that warden, 0: none. */
static pid_t find_dump(pid_t warden)
{
	DIR *d = opendir("/proc");
	struct dirent *x;
	pid_t found = 0;

	while (d && !found && (x = readdir(d))) {
		pid_t pid = (pid_t)strtol(x->d_name, NULL, 10);
		char path[64], comm[32];

		snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
		if (pid > 0 && fd_get(AT_FDCWD, path, comm, sizeof(comm)) > 0 && !strcmp(comm, "cloche-dump\n") &&
		    parent_of(pid) == warden && ours(pid))
			found = pid;
	}
	if (d)
		closedir(d);
	return found;
}

/* Starts a process that kills the warden, or its cloche-dump, after a while. */
static pid_t kill_later(pid_t warden, bool dump, unsigned us)
{
	pid_t pid = fork(), victim = warden;

	if (pid == 0) {
		if (dump)
			for (int i = 0; i < 100000 && !(victim = find_dump(warden)); i++)
				;
		usleep(us);
		if (victim > 0)
			kill(victim, SIGKILL);
		_exit(0);
	}
	return pid;
}

/* The children of a dead warden get another parent, so they are searched by name. */
static bool no_orphans(void)
{
	for (int i = 0; i < 300; i++) {
		if (!find_dump(1) && !find_dump(getpid()))
			return true;
		wt_sleep_ms(10);
	}
	return false;
}

static bool again(struct wt *w, struct st_box *b)
{
	struct err e = { 0 };
	struct frame f;
	int fds[8];

	kt_close(&b->p);
	client_sandbox_done(&b->s);
	if (!wt_open(w, st_args()))
		return false;
	if (client_attach(w->client, b->s.handle, &b->s, &e) < 0) {
		printf("# attach: %s\n", e.msg);
		return false;
	}
	kt_open(&b->p, TAKE_FD(b->s.sock));
	return kt_wait(&b->p, FRAME_UP, 0, &f, fds);
}

/* Reads lines, which must be consecutive; *@last is the last one. True if more came. */
static bool counts_on(int fd, long *last)
{
	char line[32];

	for (int k = 0; k < 8; k++) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		size_t n = 0;

		do {
			if (poll(&p, 1, 5000) != 1 || read(fd, line + n, 1) != 1)
				return false;
		} while (line[n] != '\n' && ++n < sizeof(line) - 1);
		if (*last && strtol(line, NULL, 10) != *last + 1) {
			printf("# %s after %ld\n", line, *last);
			return false;
		}
		*last = strtol(line, NULL, 10);
	}
	return true;
}

static bool restorable(struct wt *w, const char *id)
{
	struct sandbox_spec spec;
	struct kt_held held[2] = { { .pipes = { -1, -1, -1 } } };
	struct err e = { 0 };
	struct st_box b = { 0 };
	long last = 0;
	struct frame f;
	bool ok;
	int fds[8];

	wt_spec(&spec);
	st_stand_on(&spec, id);
	spec.flags = SPEC_MEMORY;
	if (client_create(w->client, &spec, &b.s, &e) < 0) {
		printf("# restore: %s\n", e.msg);
		return false;
	}
	kt_open(&b.p, TAKE_FD(b.s.sock));
	ok = kt_wait(&b.p, FRAME_UP, 0, &f, fds) && kt_sync(&b.p, held, 2) == 1 && counts_on(held[0].pipes.out, &last);
	kt_pipes_close(&held[0].pipes);
	return st_end(w, &b) && ok;
}

static unsigned sandboxes(struct wt *w)
{
	struct warden_receipt receipt;
	struct err e = { 0 };
	uint64_t at = 0;
	unsigned n = 0;

	while (client_next(w->client, at, &at, &receipt, &e) == 0 && at)
		n++;
	return n;
}

static bool begin(struct wt *w, struct st_box *a, struct kt_pipes *x)
{
	struct sandbox_spec spec;

	st_fresh();
	wt_spec(&spec);
	return wt_open(w, st_args()) && st_create(w, &spec, a) && kt_exec(&a->p, 1, COUNTER, a->s.group, x);
}

TEST(a_warden_killed_while_it_seals_memory_leaves_a_sandbox_that_runs_and_nothing_half_made)
{
	unsigned whole = 0, lost = 0, halves = 0;
	struct client_layer l;
	struct kt_pipes x;
	struct st_box a;
	uint64_t pause;
	long last = 0;
	struct wt w;

	CHECK(begin(&w, &a, &x));
	CHECK(counts_on(x.out, &last));
	for (unsigned i = 0; i < rounds(); i++) {
		struct err e = { 0 };
		char id[ID_SIZE];
		pid_t killer, was = w.pid;
		int r;

		id_new(id, sizeof(id));
		killer = kill_later(w.pid, false, i * 3700 % 120000);
		r = client_seal_memory(w.client, a.s.handle, id, &l, &pause, &e);
		waitpid(killer, NULL, 0);
		halves += half_made() > 0;
		kt_crash(&w);
		CHECK(again(&w, &a));
		CHECK(counts_on(x.out, &last));
		CHECK(none_half_made());
		CHECK(!find_dump(was) && no_orphans());
		if (client_layers(w.client, "", &l, &e) == 1) {
			CHECK(!strcmp(l.id, id) && !l.bad && l.memory);
			CHECK(restorable(&w, id));
			CHECK_EQ(client_unseal(w.client, id, &e), 0);
			whole++;
		} else {
			CHECK(r < 0);
			lost++;
		}
	}
	printf("# %u wardens killed: %u layers whole, %u not there, %u left something half-made for the next\n",
	       rounds(), whole, lost, halves);
	CHECK(lost && halves);
	kt_pipes_close(&x);
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}

TEST(a_dump_killed_at_any_time_harms_nobody)
{
	unsigned whole = 0, lost = 0;
	struct client_layer l;
	struct kt_pipes x;
	struct st_box a;
	uint64_t pause;
	long last = 0;
	struct wt w;

	CHECK(begin(&w, &a, &x));
	CHECK(counts_on(x.out, &last));
	for (unsigned i = 0; i < rounds(); i++) {
		struct err e = { 0 };
		char id[ID_SIZE];
		pid_t killer;
		int r;

		id_new(id, sizeof(id));
		killer = kill_later(w.pid, true, i * 4100 % 130000);
		r = client_seal_memory(w.client, a.s.handle, id, &l, &pause, &e);
		waitpid(killer, NULL, 0);
		CHECK(counts_on(x.out, &last));
		CHECK(none_half_made());
		whole += r == 0;
		lost += r < 0;
		if (r == 0)
			CHECK(restorable(&w, id) && client_unseal(w.client, id, &e) == 0);
		else
			CHECK_EQ(client_layers(w.client, "", &l, &e), 0);
	}
	printf("# %u dumps killed: %u layers whole, %u not there\n", rounds(), whole, lost);
	CHECK(lost);
	kt_pipes_close(&x);
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}

TEST(a_warden_killed_while_it_restores_leaves_no_sandbox_behind)
{
	unsigned made = 0, lost = 0;
	struct client_layer l;
	struct sandbox_spec spec;
	struct err e = { 0 };
	struct kt_pipes x;
	struct st_box a;
	char id[ID_SIZE];
	uint64_t pause;
	long last = 0;
	struct wt w;

	CHECK(begin(&w, &a, &x));
	CHECK(counts_on(x.out, &last));
	id_new(id, sizeof(id));
	if (client_seal_memory(w.client, a.s.handle, id, &l, &pause, &e) < 0)
		TEST_FAIL("%s", e.msg);
	wt_spec(&spec);
	st_stand_on(&spec, id);
	spec.flags = SPEC_MEMORY;
	for (unsigned i = 0; i < rounds(); i++) {
		struct client_sandbox s = { .sock = -1, .pidfd = -1, .group = -1, .net = { -1, -1, -1 } };
		unsigned before = i ? 1 : 0; /* the first restore has to verify the layer */
		pid_t killer = kill_later(w.pid, false, before ? i * 900 % 33000 : 1000);
		int r = client_create(w.client, &spec, &s, &e);

		waitpid(killer, NULL, 0);
		kt_crash(&w);
		CHECK(again(&w, &a));
		/*
		 * Answered: the layer exists. Not answered: it may exist, complete, if only the answer was lost; it is
		 * never half there.
		 */
		CHECK(sandboxes(&w) <= 2);
		if (sandboxes(&w) == 2) {
			struct warden_receipt receipt;
			uint64_t h = 0;

			while (client_next(w.client, h, &h, &receipt, &e) == 0 && h == a.s.handle)
				;
			CHECK(r < 0 || h == s.handle);
			CHECK_EQ(client_destroy(w.client, h, &e), 0);
			made++;
		} else {
			CHECK(r < 0);
			lost++;
		}
		if (s.pidfd >= 0)
			CHECK(wt_gone(s.pidfd, 5000));
		client_sandbox_done(&s);
		CHECK(counts_on(x.out, &last));
		for (int k = 0; kt_records() != 1 && k < 500; k++) /* the record is cleared after the answer */
			wt_sleep_ms(10);
		CHECK_EQ(kt_records(), 1);
	}
	printf("# %u wardens killed: %u sandboxes made, %u not there\n", rounds(), made, lost);
	CHECK(lost);
	kt_pipes_close(&x);
	CHECK(st_end(&w, &a));
	CHECK_EQ(client_unseal(w.client, id, &e), 0);
	CHECK(st_stop(&w));
}

static struct client *connect_to(const char *path)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	struct client *c = NULL;
	struct err e = { 0 };

	snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
	for (int i = 0; i < 500 && !c; i++) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

		if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0)
			client_connect(fd, &c, &e);
		else
			fd_close(fd);
		if (!c)
			wt_sleep_ms(10);
	}
	return c;
}

/* Seals in a process of its own. Its exit code: 0 made, 1 given up, 2 something else. */
static pid_t seal_aside(const char *sock, uint64_t handle, const char *id)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct client *c = connect_to(sock);
		struct client_layer l;
		struct err e = { 0 };
		uint64_t pause;
		int r = c ? client_seal_memory(c, handle, id, &l, &pause, &e) : -EPIPE;

		if (r != 0 && r != -ECANCELED && r != -ESRCH)
			dprintf(1, "# %d: %s\n", r, e.msg);
		_exit(r == 0 ? 0 : r == -ECANCELED || r == -ESRCH ? 1 : 2);
	}
	return pid;
}

TEST(a_sandbox_that_ends_while_its_memory_is_sealed_ends)
{
	char sock[128], number[16], program[512];
	unsigned made = 0, given_up = 0;
	struct sandbox_spec spec;
	struct err e = { 0 };
	struct wt w = { .sock = -1 };

	st_fresh();
	wt_spec(&spec);
	snprintf(sock, sizeof(sock), "%s.sock", kt_dir);
	CHECK(wt_program("cloche-warden", program, sizeof(program)));
	w.pid = fork();
	if (w.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		snprintf(number, sizeof(number), "%d", wt_listener(sock));
		execl(program, program, "--socket-fd", number, "--keep", "--state", kt_dir, "--layers", st_store,
		      "--pool", "2", NULL);
		_exit(127);
	}
	w.client = connect_to(sock);
	CHECK(w.client);
	for (unsigned i = 0; i < 24; i++) {
		struct kt_pipes x;
		struct st_box a;
		char id[ID_SIZE];
		long last = 0;
		int status;
		pid_t pid;

		CHECK(st_create(&w, &spec, &a) && kt_exec(&a.p, 1, COUNTER, a.s.group, &x));
		CHECK(counts_on(x.out, &last));
		id_new(id, sizeof(id));
		pid = seal_aside(sock, a.s.handle, id);
		wt_sleep_ms(i * 4);
		CHECK_EQ(client_destroy(w.client, a.s.handle, &e), 0);
		CHECK(wt_gone(a.s.pidfd, 5000));
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		made += status == 0;
		given_up += status == 1 << 8;
		CHECK(none_half_made());
		if (status == 0)
			CHECK_EQ(client_unseal(w.client, id, &e), 0);
		CHECK_EQ(client_layers(w.client, "", &(struct client_layer){ 0 }, &e), 0);
		kt_pipes_close(&x);
		kt_close(&a.p);
		client_sandbox_done(&a.s);
	}
	printf("# 24 sandboxes ended: %u layers made, %u given up\n", made, given_up);
	CHECK(given_up > 0 && made + given_up >= 12); /* in the other rounds a process ended while it was read */
	CHECK(!find_dump(w.pid));
	CHECK(st_stop(&w));
	unlink(sock);
}
