/* Layers under adverse conditions: sandboxes that are hostile or end meanwhile, many of them, and bounds on time. */
#include "layers/seal.h"
#include "base/base.h"
#include "base/test.h"
#include "layers/children.h"
#include "layers/seal_test.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

TEST(a_hostile_tree_is_sealed_whole)
{
	struct sandbox_spec spec;
	struct client_layer l;
	char id[ID_SIZE];
	struct st_box a;
	uint64_t pause;
	struct wt w;

	st_fresh();
	wt_spec(&spec);
	spec.limits.memory = 512 * MIB;
	spec.limits.disk = 256 * MIB;
	spec.limits.inodes = 200000;
	CHECK(wt_open(&w, st_args()));
	CHECK(st_create(&w, &spec, &a));
	/* Deep and wide trees, one file with more names than ext4 allows, sockets, a name of maximal length. */
	CHECK_EQ(st_run(&a, 1000,
			"cd /home/user && /usr/bin/python3 -c \"\n"
			"import os, socket\n"
			"os.makedirs('w'); open('w/f','w').write('x'*1000)\n"
			"for i in range(70000): os.link('w/f','w/%d' % i)\n"
			"for i in range(20000): os.close(os.open('w/n%d' % i, os.O_CREAT))\n"
			"socket.socket(socket.AF_UNIX).bind('sock')\n"
			"open('z'*255,'w').write('z')\n"
			"for i in range(10000):\n"
			"  os.mkdir('d'); os.chdir('d')\n"
			"open('bottom','w').write('b')\n"
			"\""),
		 0);
	CHECK(st_seal(&w, &a, id, &l, &pause));
	printf("# %llu entries in %.0f ms of pause\n", (unsigned long long)l.entries, (double)pause / 1e6);
	CHECK(l.entries > 100000);
	CHECK(st_end(&w, &a));
	st_stand_on(&spec, id);
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(st_run(&a, 1000,
			"cd /home/user && test -S sock && test $(ls w | wc -l) = 90001 && /usr/bin/python3 -c \"\n"
			"import os\n"
			"assert open('w/69999').read() == 'x'*1000 and open('z'*255).read() == 'z'\n"
			"for i in range(10000): os.chdir('d')\n"
			"assert open('bottom').read() == 'b'\n"
			"\""),
		 0);
	CHECK(st_end(&w, &a));
	{
		struct err e = { 0 };

		CHECK_EQ(client_unseal(w.client, id, &e), 0);
		CHECK(none_half_made());
	}
	CHECK(st_stop(&w));
}

/* Seals over a second connection, in a process of its own, so that both can wait. */
static pid_t seal_aside(struct client *c, uint64_t handle, const char *id, int want)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct client_layer l;
		struct err e = { 0 };
		uint64_t pause;
		int r = client_seal(c, handle, id, &l, &pause, &e);

		if (r != want)
			dprintf(1, "# sealed aside: %d %s\n", r, e.msg);
		_exit(r != want);
	}
	return pid;
}

static struct client *connect_to(const char *path)
{
	struct sockaddr_un {
		sa_family_t family;
		char path[108];
	} to = { .family = AF_UNIX };
	struct client *c = NULL;
	struct err e = { 0 };

	for (int i = 0; i < 500 && !c; i++) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

		snprintf(to.path, sizeof(to.path), "%s", path);
		if (connect(fd, (const struct sockaddr *)(const void *)&to, sizeof(to)) < 0) {
			fd_close(fd);
			wt_sleep_ms(10);
		} else if (client_connect(fd, &c, &e) < 0) {
			printf("# %s\n", e.msg);
			return NULL;
		}
	}
	return c;
}

TEST(others_are_served_while_one_is_sealed_and_a_sandbox_that_ends_gives_it_up)
{
	char sock[128], number[16], program[512], id[ID_SIZE];
	struct warden_stat stat;
	struct sandbox_spec spec;
	struct client_layer l;
	struct client *side;
	struct err e = { 0 };
	unsigned served = 0;
	struct st_box a;
	struct wt w = { .sock = -1 };
	int status;
	pid_t pid;

	st_fresh();
	wt_spec(&spec);
	spec.limits.memory = 768 * MIB;
	spec.limits.disk = 600 * MIB;
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
	side = connect_to(sock);
	CHECK(w.client && side);
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(st_run(&a, 1000, "head -c 400M /dev/zero | tr '\\0' x > /home/user/big"), 0);
	id_new(id, sizeof(id));
	pid = seal_aside(side, a.s.handle, id, 0);
	while (waitpid(pid, &status, WNOHANG) == 0) {
		uint64_t from = clock_mono_ns();

		CHECK_EQ(client_stat(w.client, a.s.handle, &stat, &e), 0);
		CHECK(clock_mono_ns() - from < 500000000);
		served++;
		wt_sleep_ms(5);
	}
	CHECK_EQ(status, 0);
	CHECK(served > 10);
	CHECK_EQ(client_layers(w.client, "", &l, &e), 1);
	CHECK(l.size >= 400 * MIB);
	CHECK_EQ(client_unseal(w.client, id, &e), 0);
	/*
	 * Again; this time the sandbox ends in the middle of it. The child used up the earlier connection, so there is
	 * a new one.
	 */
	client_free(side);
	side = connect_to(sock);
	id_new(id, sizeof(id));
	pid = seal_aside(side, a.s.handle, id, -ECANCELED);
	wt_sleep_ms(40);
	CHECK_EQ(client_freeze(w.client, a.s.handle, &e), -EBUSY);
	{
		uint64_t from = clock_mono_ns();

		CHECK_EQ(client_destroy(w.client, a.s.handle, &e), 0);
		printf("# %u served meanwhile; destroyed in the middle in %.1f ms\n", served,
		       (double)(clock_mono_ns() - from) / 1e6);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(wt_gone(a.s.pidfd, 5000));
	CHECK_EQ(client_layers(w.client, "", &l, &e), 0);
	CHECK(none_half_made());
	kt_close(&a.p);
	client_sandbox_done(&a.s);
	client_free(side);
	CHECK(st_stop(&w));
	unlink(sock);
}

struct held_up {
	struct work work;
	int go; /* atomic */
};

static void wait_for_go(struct work *w)
{
	struct held_up *x = (struct held_up *)(void *)w;

	while (!__atomic_load_n(&x->go, __ATOMIC_ACQUIRE))
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static void nothing(struct work *w)
{
	(void)w;
}

TEST(work_that_waits_for_strangers_never_has_all_workers)
{
	struct held_up waits[3] = { 0 }, quick = { .work = { .run = wait_for_go, .end = nothing }, .go = 1 };
	struct workers *s = NULL;
	struct pollfd p = { .events = POLLIN };
	struct work *w;
	struct err e;

	CHECK_EQ(workers_new(2, &s, &e), 0);
	for (unsigned i = 0; i < ARRAY_LEN(waits); i++) {
		waits[i].work = (struct work){ .run = wait_for_go, .end = nothing, .waits = true };
		workers_add(s, &waits[i].work);
	}
	workers_add(s, &quick.work);
	p.fd = workers_fd(s);
	CHECK_EQ(poll(&p, 1, 20000), 1);
	CHECK(workers_done(s) == &quick.work);
	/* All of them get their turn, including the last. */
	for (unsigned n = 0; n < ARRAY_LEN(waits);) {
		__atomic_store_n(&waits[n].go, 1, __ATOMIC_RELEASE);
		w = workers_done(s);
		if (!w) {
			CHECK(poll(&p, 1, 20000) == 1);
			continue;
		}
		CHECK(w == &waits[n++].work);
	}
	workers_free(s);
}

/* Waits until this many more have ended, in any order. */
static void await_done(struct workers *s, unsigned n)
{
	struct pollfd p = { .fd = workers_fd(s), .events = POLLIN };

	while (n)
		if (workers_done(s))
			n--;
		else
			CHECK(poll(&p, 1, 20000) == 1);
}

TEST(one_tenant_never_has_all_workers_that_wait_for_strangers)
{
	struct held_up theirs[6] = { 0 },
		       other = { .work = { .run = wait_for_go, .end = nothing, .waits = true, .tenant = 2 }, .go = 1 };
	struct workers *s = NULL;
	struct pollfd p = { .events = POLLIN };
	struct err e;

	CHECK_EQ(workers_new(8, &s, &e), 0);
	for (unsigned i = 0; i < ARRAY_LEN(theirs); i++) {
		theirs[i].work = (struct work){ .run = wait_for_go, .end = nothing, .waits = true, .tenant = 1 };
		workers_add(s, &theirs[i].work);
	}
	workers_add(s, &other.work);
	p.fd = workers_fd(s);
	CHECK_EQ(poll(&p, 1, 20000), 1);
	CHECK(workers_done(s) == &other.work);
	/* All work of the other tenants gets its turn, too. */
	for (unsigned i = 0; i < ARRAY_LEN(theirs); i++)
		__atomic_store_n(&theirs[i].go, 1, __ATOMIC_RELEASE);
	await_done(s, ARRAY_LEN(theirs));
	workers_free(s);
}

TEST(what_takes_long_leaves_workers_to_seals_and_seals_of_strangers_to_others)
{
	struct held_up slow[4] = { 0 }, waits[4] = { 0 },
		       quick = { .work = { .run = wait_for_go, .end = nothing }, .go = 1 };
	struct workers *s = NULL;
	struct pollfd p = { .events = POLLIN };
	struct work *w;
	struct err e;

	CHECK_EQ(workers_new(6, &s, &e), 0);
	for (unsigned i = 0; i < ARRAY_LEN(slow); i++) {
		slow[i].work = (struct work){ .run = wait_for_go, .end = nothing, .slow = true };
		workers_add(s, &slow[i].work);
	}
	for (unsigned i = 0; i < ARRAY_LEN(waits); i++) {
		waits[i].work = (struct work){ .run = wait_for_go, .end = nothing, .waits = true };
		workers_add(s, &waits[i].work);
	}
	workers_add(s, &quick.work);
	p.fd = workers_fd(s);
	CHECK_EQ(poll(&p, 1, 20000), 1);
	CHECK(workers_done(s) == &quick.work);
	/* Work that a caller waits for runs, although all slow work was queued first. */
	__atomic_store_n(&waits[0].go, 1, __ATOMIC_RELEASE);
	while (!(w = workers_done(s)))
		CHECK_EQ(poll(&p, 1, 20000), 1);
	CHECK(w == &waits[0].work);
	for (unsigned i = 0; i < ARRAY_LEN(slow); i++) {
		__atomic_store_n(&slow[i].go, 1, __ATOMIC_RELEASE);
		__atomic_store_n(&waits[i].go, 1, __ATOMIC_RELEASE);
	}
	await_done(s, ARRAY_LEN(slow) + ARRAY_LEN(waits) - 1);
	workers_free(s);
}

TEST(a_sandbox_that_ends_does_not_wait_for_seals_before_its_own)
{
	struct held_up first = { .work = { .run = wait_for_go, .end = nothing } };
	struct seal_source from = { .dir = -1, .writable = -1, .table = -1 };
	struct manifest m = { .id = "0000000000000000000000ab" };
	struct workers *s = NULL;
	struct seal *x = NULL;
	struct pollfd p = { .events = POLLIN };
	struct work *w;
	struct err e;

	CHECK_EQ(workers_new(1, &s, &e), 0);
	workers_add(s, &first.work);
	CHECK_EQ(seal_start(s, &from, &m, &m, &x, &e), 0);
	alarm(10); /* the first one runs until ->go is set */
	seal_leave(x);
	alarm(0);
	__atomic_store_n(&first.go, 1, __ATOMIC_RELEASE);
	p.fd = workers_fd(s);
	for (int n = 0; n < 2;) {
		w = workers_done(s);
		if (!w) {
			CHECK(poll(&p, 1, 5000) == 1);
			continue;
		}
		n++;
		if (w == &x->work)
			CHECK_EQ(x->result, -ECANCELED);
	}
	seal_free(x);
	workers_free(s);
}

/* The seal was queued behind another when root changed /usr: the layer has the change, and says so. */
TEST(a_layer_says_that_usr_was_opened_before_its_seal_began)
{
	struct held_up first = { .work = { .run = wait_for_go, .end = nothing } };
	struct seal_source from = { .paused = true, .table = -1, .side = -1 };
	struct manifest m = { .id = "0000000000000000000000ab", .flags = SPEC_SYSTEM_WRITABLE | SPEC_SYSTEM_LATER };
	struct workers *s = NULL;
	struct seal *x = NULL;
	struct manifest is;
	char path[512];
	struct err e;
	int dir, program;

	st_fresh();
	snprintf(path, sizeof(path), "mkdir -p %s/upper/u %s/upper/uu && echo r > %s/upper/uu/r", st_store, st_store,
		 st_store);
	CHECK_EQ(st_shell(path), 0);
	from.dir = open(st_store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	from.writable = openat(from.dir, "upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(from.writable >= 0);
	CHECK(wt_program("cloche-layers", path, sizeof(path)));
	program = open(path, O_PATH | O_CLOEXEC);
	from.children = layer_children_new(program, from.dir);
	CHECK_EQ(workers_new(1, &s, &e), 0);
	workers_add(s, &first.work);
	CHECK_EQ(seal_start(s, &from, &m, &m, &x, &e), 0);
	seal_system(x);
	__atomic_store_n(&first.go, 1, __ATOMIC_RELEASE);
	await_done(s, 2);
	CHECK_EQ(x->result, 0);
	dir = openat(from.dir, m.id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK_EQ(manifest_read(dir, m.id, &is), 0);
	CHECK_EQ(is.flags, SPEC_SYSTEM_WRITABLE);
	CHECK(!memcmp(&is, &x->m, sizeof(is)));
	seal_free(x);
	workers_free(s);
	layer_children_free(from.children);
	fd_close_many((int[]){ dir, from.writable, from.dir, program }, 4);
	st_remove_store();
}

TEST(the_probes_find_nothing_open_in_a_restored_sandbox)
{
	char folder[SPEC_PATH], id[ID_SIZE];
	const char *args[] = { "--keep", "--state", kt_dir, "--layers", st_store, "--allow-mount", folder, NULL };
	struct sandbox_spec spec;
	struct client_layer l;
	struct st_box a, b;
	uint64_t pause;
	struct wt w;

	st_fresh();
	wt_spec(&spec);
	CHECK(wt_program("cloche-probe", folder, sizeof(folder)));
	snprintf(spec.mount[0].src, SPEC_PATH, "%s", folder);
	snprintf(spec.mount[0].dst, SPEC_PATH, "/probe");
	spec.mount[0].read_only = spec.nmounts = 1;
	*strrchr(folder, '/') = '\0';
	CHECK(wt_open(&w, args));
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(st_run(&a, 0, "echo x > /etc/x; echo y > /home/user/y; mkdir -p /var/lib/y; rm /etc/hosts"), 0);
	CHECK(st_seal(&w, &a, id, &l, &pause));
	st_stand_on(&spec, id);
	CHECK(st_create(&w, &spec, &b));
	for (uint32_t uid = 0; uid <= 1000; uid += 1000) {
		CHECK_EQ(st_run(&a, uid,
				"/probe --ro /probe | cut -f1,2 | grep -v info > /tmp/p; grep -c closed /tmp/p"),
			 0);
		CHECK(strtol(a.out, NULL, 10) > 30);
		CHECK_EQ(st_run(&a, uid, "cat /tmp/p; rm /tmp/p"), 0);
		CHECK_EQ(st_run(&b, uid, "/probe --ro /probe | cut -f1,2 | grep -v info"), 0);
		if (strcmp(a.out, b.out))
			printf("# as %u: plain\n%s# restored\n%s", uid, a.out, b.out);
		CHECK(!strcmp(a.out, b.out));
		CHECK(!strstr(b.out, "open"));
	}
	/* The store itself cannot be seen from inside. */
	CHECK_EQ(st_run(&b, 0, "! grep -q cloche-seal /proc/self/mountinfo /proc/self/mounts"), 0);
	CHECK(st_end(&w, &a));
	CHECK(st_end(&w, &b));
	CHECK(st_stop(&w));
}

static long rss_kib(pid_t pid)
{
	char path[64], text[4096], *at;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) < 0 || !(at = strstr(text, "VmRSS:")))
		return -1;
	return strtol(at + 6, NULL, 10);
}

TEST(a_hundred_seals_and_creates_leave_nothing)
{
	struct sandbox_spec spec;
	struct client_layer l;
	struct st_box a, b;
	struct err e = { 0 };
	unsigned fds = 0;
	uint64_t pause;
	struct wt w;
	long rss = 0;

	st_fresh();
	wt_spec(&spec);
	CHECK(wt_open(&w, st_args()));
	CHECK(st_create(&w, &spec, &a));
	CHECK_EQ(st_run(&a, 1000, "cd /home/user; for i in $(seq 30); do echo $i > f$i; done"), 0);
	for (unsigned i = 0; i < 120; i++) {
		char id[ID_SIZE];

		CHECK(st_seal(&w, &a, id, &l, &pause));
		if (i % 4 == 0) {
			spec.layers = 0;
			st_stand_on(&spec, id);
			CHECK(st_create(&w, &spec, &b));
			CHECK(st_end(&w, &b));
		}
		CHECK_EQ(client_unseal(w.client, id, &e), 0);
		if (i == 19 || i == 119) {
			CHECK(none_half_made());
			wt_sleep_ms(500);
		}
		if (i == 19) {
			fds = wt_fds(w.pid);
			rss = rss_kib(w.pid);
		}
	}
	printf("# descriptors %u, then %u; memory %ld KiB, then %ld\n", fds, wt_fds(w.pid), rss, rss_kib(w.pid));
	CHECK(wt_fds(w.pid) <= fds + 40); /* descriptors of the pool change, by a dozen and more at a time */
	CHECK(rss_kib(w.pid) <= rss + 1024);
	CHECK(st_end(&w, &a));
	CHECK(st_stop(&w));
}
