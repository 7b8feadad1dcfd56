/* Sealing with memory: the warden's part, with the real cloche-dump, and with programs that fail in its place. */
#include "layers/memory.h"
#include "base/base.h"
#include "base/test.h"
#include "layers/seal_test.h"

/* A loop that prints a counter: it must continue, in one process only. */
#define COUNTER "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done"

static bool seal_memory(struct wt *w, struct st_box *b, char id[ID_SIZE], struct client_layer *l, uint64_t *pause,
			struct err *e)
{
	id_new(id, ID_SIZE);
	return client_seal_memory(w->client, b->s.handle, id, l, pause, e) == 0;
}

static bool begin(struct wt *w, struct st_box *a)
{
	struct sandbox_spec spec;

	st_fresh();
	wt_spec(&spec);
	return wt_open(w, st_args()) && st_create(w, &spec, a);
}

/* Reads the next line of a counter, which must be the one after @last; else -1. */
static long next_line(int fd, long last)
{
	char line[32] = "";
	size_t n = 0;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	while (n < sizeof(line) - 1 && poll(&p, 1, 5000) == 1 && read(fd, line + n, 1) == 1 && line[n] != '\n')
		n++;
	return line[n] == '\n' && (!last || strtol(line, NULL, 10) == last + 1) ? strtol(line, NULL, 10) : -1;
}

TEST(a_running_sandbox_is_sealed_with_its_processes_and_runs_on)
{
	struct client_layer l, again;
	struct kt_pipes x;
	struct err e = { 0 };
	char id[ID_SIZE], path[256];
	struct manifest m;
	struct mem_head head;
	struct st_box a;
	uint64_t pause;
	struct wt w;
	long at;

	CHECK(begin(&w, &a));
	CHECK(kt_exec(&a.p, 1, COUNTER, a.s.group, &x));
	at = next_line(x.out, 0);
	CHECK(at > 0);
	if (!seal_memory(&w, &a, id, &l, &pause, &e))
		TEST_FAIL("%s; %s", e.msg, e.remedy);
	CHECK(pause > 0 && l.memory > 4096);
	printf("# paused %.2f ms, %llu KiB of memory\n", (double)pause / 1e6, (unsigned long long)l.memory / 1024);
	for (int i = 0; i < 20; i++) {
		at = next_line(x.out, at);
		CHECK(at > 0);
	}
	CHECK_EQ(client_layers(w.client, "", &again, &e), 1);
	CHECK(!strcmp(again.id, id) && again.memory == l.memory && !again.bad);
	{
		AUTO_CLOSE int dir = -1, meta = -1, pages = -1;

		snprintf(path, sizeof(path), "%s/%s", st_store, id);
		dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		meta = memory_open(dir, "meta");
		pages = memory_open(dir, "pages");
		CHECK_EQ(memory_head(meta, pages, &head, &e), 0);
		CHECK_EQ(head.section[MEM_S_EXEC].n, 1);
		CHECK(head.section[MEM_S_PROC].n >= 1);
		/* The sum that cloche-dump reported is that of the file. */
		CHECK_EQ(manifest_read(dir, id, &m), 0);
		CHECK_EQ(m.pages, head.pages);
		CHECK_EQ(manifest_verify(dir, NULL, &m), 0);
	}
	CHECK_EQ(wt_children(w.pid), wt_children(w.pid));
	kt_pipes_close(&x);
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}

TEST(a_paused_sandbox_is_sealed_with_memory_and_stays_paused)
{
	struct client_layer l;
	struct kt_pipes x;
	struct err e = { 0 };
	struct pollfd p;
	char id[ID_SIZE];
	struct st_box a;
	uint64_t pause;
	struct wt w;
	long at;

	CHECK(begin(&w, &a));
	CHECK(kt_exec(&a.p, 1, COUNTER, a.s.group, &x));
	at = next_line(x.out, 0);
	CHECK_EQ(client_freeze(w.client, a.s.handle, &e), 0);
	p = (struct pollfd){ .fd = x.out, .events = POLLIN };
	while (poll(&p, 1, 0) == 1)
		at = next_line(x.out, at);
	if (!seal_memory(&w, &a, id, &l, &pause, &e))
		TEST_FAIL("%s; %s", e.msg, e.remedy);
	CHECK_EQ(pause, 0);
	CHECK_EQ(poll(&p, 1, 300), 0);
	CHECK_EQ(client_thaw(w.client, a.s.handle, &e), 0);
	for (int i = 0; i < 5; i++) {
		at = next_line(x.out, at);
		CHECK(at > 0);
	}
	kt_pipes_close(&x);
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}

/* Starts a warden and an agent in a folder, with another program in cloche-dump's place. */
static bool start_with(const char *instead, struct wt *w)
{
	static const char *const programs[] = { "cloche-warden", "cloche-agent", "cloche-layers", "cloche-watch" };
	char dir[128], from[512], cmd[1400];
	const char *const *args = st_args();
	const char *argv[24] = { NULL, "--socket-fd", "3" };
	int pair[2], n = 3;

	snprintf(dir, sizeof(dir), "/var/tmp/cloche-dump-test-%d", (int)getpid());
	snprintf(cmd, sizeof(cmd), "rm -rf %s; mkdir %s", dir, dir);
	if (st_shell(cmd))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
		if (!wt_program(programs[i], from, sizeof(from)))
			return false;
		snprintf(cmd, sizeof(cmd), "cp %s %s/", from, dir);
		if (st_shell(cmd))
			return false;
	}
	snprintf(cmd, sizeof(cmd), "cp %s %s/cloche-dump", instead, dir);
	if (st_shell(cmd) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return false;
	snprintf(from, sizeof(from), "%s/cloche-warden", dir);
	argv[0] = from;
	while (*args)
		argv[n++] = *args++;
	*w = (struct wt){ .sock = pair[0] };
	w->pid = fork();
	if (w->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		dup2(pair[1], 3);
		execv(from, (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	fd_close(pair[1]);
	return wt_connect(w);
}

static void remove_programs(void)
{
	char cmd[160];

	snprintf(cmd, sizeof(cmd), "rm -rf /var/tmp/cloche-dump-test-%d", (int)getpid());
	st_shell(cmd);
}

TEST(a_dump_that_fails_leaves_a_sandbox_that_runs_and_nothing_half_made)
{
	/* A program that ends at once; one that never answers; a file that is no program. */
	static const struct {
		const char *program;
		int result;
	} cases[] = {
		{ "/bin/true", -EIO }, { "/bin/cat", -EIO }, { "/bin/sleep", -ETIMEDOUT }, { "/usr/bin/ldd", -ENOENT }
	};
	struct sandbox_spec spec;
	struct client_layer l;
	struct kt_pipes x;
	struct st_box a;
	char id[ID_SIZE];
	uint64_t pause;
	struct wt w;
	long at;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err e = { 0 };
		int r;

		st_fresh();
		wt_spec(&spec);
		CHECK(start_with(cases[i].program, &w));
		CHECK(st_create(&w, &spec, &a));
		CHECK(kt_exec(&a.p, 1, COUNTER, a.s.group, &x));
		at = next_line(x.out, 0);
		id_new(id, sizeof(id));
		r = client_seal_memory(w.client, a.s.handle, id, &l, &pause, &e);
		if (r != cases[i].result)
			TEST_FAIL("%s: %d, %s", cases[i].program, r, e.msg);
		for (int k = 0; k < 5; k++) {
			at = next_line(x.out, at);
			CHECK(at > 0);
		}
		CHECK_EQ(half_made(), 0);
		CHECK_EQ(client_layers(w.client, "", &l, &e), 0);
		/* Sealing files only still works. */
		CHECK(st_seal(&w, &a, id, &l, &pause));
		CHECK_EQ(l.memory, 0);
		kt_pipes_close(&x);
		CHECK(st_end(&w, &a));
		CHECK(st_stop(&w));
		remove_programs();
	}
}

TEST(a_damaged_image_is_refused)
{
	static const char *const harm[] = { "printf x | dd of=pages bs=1 seek=5000 conv=notrunc status=none",
					    "truncate -s -4096 pages", "rm meta", "printf x >> meta" };
	struct sandbox_spec spec;
	struct client_layer l;
	struct kt_pipes x;
	struct st_box a, b;
	char cmd[300], id[ID_SIZE];
	uint64_t pause;
	struct wt w;

	for (size_t i = 0; i < ARRAY_LEN(harm); i++) {
		struct err e = { 0 };

		CHECK(begin(&w, &a));
		CHECK(kt_exec(&a.p, 1, COUNTER, a.s.group, &x));
		CHECK(next_line(x.out, 0) > 0);
		CHECK(seal_memory(&w, &a, id, &l, &pause, &e));
		snprintf(cmd, sizeof(cmd), "cd %s/%s/mem && %s", st_store, id, harm[i]);
		CHECK_EQ(st_shell(cmd), 0);
		wt_spec(&spec);
		st_stand_on(&spec, id);
		spec.flags = SPEC_MEMORY;
		CHECK_EQ(client_create(w.client, &spec, &b.s, &e), -EBADMSG);
		spec.flags = 0;
		CHECK_EQ(client_create(w.client, &spec, &b.s, &e), -EBADMSG);
		kt_pipes_close(&x);
		CHECK(st_end(&w, &a));
		CHECK(st_stop(&w));
	}
}

TEST(memory_is_asked_for_only_where_it_is)
{
	struct sandbox_spec spec;
	struct client_layer l;
	struct err e = { 0 };
	struct st_box a, b;
	char id[ID_SIZE];
	uint64_t pause;
	struct wt w;

	CHECK(begin(&w, &a));
	wt_spec(&spec);
	spec.flags = SPEC_MEMORY;
	CHECK_EQ(client_create(w.client, &spec, &b.s, &e), -EINVAL);
	CHECK(st_seal(&w, &a, id, &l, &pause));
	st_stand_on(&spec, id);
	CHECK_EQ(client_create(w.client, &spec, &b.s, &e), -EINVAL);
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}

/* Restores a sandbox and attaches to it; the pipes of its one exec are in @x. */
static bool restore(struct wt *w, const char *id, struct st_box *b, struct kt_pipes *x)
{
	struct sandbox_spec spec;
	struct kt_held held[4];
	struct err e = { 0 };
	struct frame f;
	int fds[8];

	wt_spec(&spec);
	st_stand_on(&spec, id);
	spec.flags = SPEC_MEMORY;
	memset(b, 0, sizeof(*b));
	if (client_create(w->client, &spec, &b->s, &e) < 0) {
		printf("# restore: %s; %s\n", e.msg, e.remedy);
		return false;
	}
	kt_open(&b->p, TAKE_FD(b->s.sock));
	b->id = 100;
	if (!kt_wait(&b->p, FRAME_UP, 0, &f, fds) || kt_sync(&b->p, held, 4) != 1)
		return false;
	*x = held[0].pipes;
	return true;
}

TEST(three_sandboxes_go_on_from_one_image_each_for_itself)
{
	struct kt_pipes x, y[3];
	struct client_layer l;
	struct st_box a, b[3];
	struct err e = { 0 };
	char id[ID_SIZE];
	uint64_t pause, from;
	struct wt w;
	long at, there[3];

	CHECK(begin(&w, &a));
	CHECK(kt_exec(&a.p, 1, "i=0; while :; do i=$((i+1)); echo $i; echo $i >> /home/user/count; sleep 0.02; done",
		      a.s.group, &x));
	for (at = next_line(x.out, 0); at > 0 && at < 10;)
		at = next_line(x.out, at);
	CHECK_EQ(at, 10);
	CHECK(seal_memory(&w, &a, id, &l, &pause, &e));
	for (int i = 0; i < 3; i++) {
		from = clock_mono_ns();
		CHECK(restore(&w, id, &b[i], &y[i]));
		printf("# restored in %.2f ms\n", (double)(clock_mono_ns() - from) / 1e6);
		CHECK(b[i].s.group < 0);
		CHECK(b[i].s.receipt.restored & FRAME_RESTORED_GENERATION && b[i].s.receipt.restored & WARDEN_RESTORED);
	}
	for (int i = 0; i < 3; i++) {
		there[i] = next_line(y[i].out, 0);
		CHECK(there[i] > 9 && there[i] < 40);
		for (int k = 0; k < 30; k++) {
			there[i] = next_line(y[i].out, there[i]);
			CHECK(there[i] > 0);
		}
		/* It has its own files, of the same instant as its memory, and none of another copy. */
		CHECK_EQ(st_run(&b[i], 1000,
				"cp /home/user/count /tmp/c; n=$(wc -l < /tmp/c); test $n -gt 30 && "
				"test \"$(seq $n | cksum)\" = \"$(cksum < /tmp/c)\""),
			 0);
	}
	/* Each copy ends by itself; the source continues. */
	CHECK_EQ(client_group_kill(w.client, b[1].s.handle, 1, &e), 0);
	CHECK(wt_gone(b[0].s.pidfd, 0) == false);
	CHECK(next_line(y[0].out, there[0]) > 0 && next_line(y[2].out, there[2]) > 0);
	CHECK(next_line(x.out, at) > 0);
	for (int i = 0; i < 3; i++) {
		kt_pipes_close(&y[i]);
		CHECK(st_end(&w, &b[i]));
	}
	kt_pipes_close(&x);
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}
