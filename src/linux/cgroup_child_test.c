/*
 * Exec groups: joining, and ending all that is in one. On a hybrid host on both versions (see cgroup_test.c), since version 2
 * does it with threaded groups.
 */
#include "linux/cgroup.h"
#include "base/base.h"
#include "base/clock.h"
#include "linux/cgroup_test.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define BOMBS 8

static struct cgroup_host unified; /* the second one of a hybrid host; ->version 0 when there is none */

static void find_v2(struct cgroup_mount *m)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[8192];

	m->version = 0;
	while (f && m->version != 2 && fgets(line, sizeof(line), f))
		if (cgroup_parse_mount(line, strcspn(line, "\n"), m) != 1)
			m->version = 0;
	if (f)
		fclose(f);
}

TEST(the_host_opens)
{
	static struct cgroup_mount m;
	char own[8192];

	/* Version 1 counts processes until their parent has waited for them, which init may do late. */
	CHECK_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	snprintf(base, sizeof(base), "cloche-children-%d", (int)getpid());
	CHECK_EQ(cgroup_host_open_as(&host, base, &err), 0);
	find_v2(&m);
	if (host.version == 1 && m.version == 2) {
		CHECK(fd_get(AT_FDCWD, "/proc/self/cgroup", own, sizeof(own)) > 0);
		cgroup_host_init(&unified);
		cgroup_v2_take(&unified, &(struct cgroup_seen){ .own = own, .base = base }, &m);
		CHECK(unified.have & CGROUP_BIT(CGROUP_FREEZER));
	}
}

static unsigned mask_of(const struct cgroup_host *h)
{
	return (CGROUP_BIT(CGROUP_PIDS) | CGROUP_BIT(CGROUP_FREEZER)) & h->have;
}

/* The folder of child @n. */
static int open_of(const struct cgroup *c, unsigned version, unsigned n)
{
	char name[16];

	snprintf(name, sizeof(name), "x%u", n);
	return sys_openat(c->dir[version == 2 ? 0 : CGROUP_PIDS], name, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
}

/* In its child: joins the group, then runs @body. */
struct joiner {
	int join;
	int (*body)(void);
};

static int join_and(void *arg)
{
	const struct joiner *j = arg;

	if (write(j->join, "0", 1) != 1)
		return 98;
	__atomic_fetch_add(shared(), 1, __ATOMIC_SEQ_CST);
	return j->body();
}

static pid_t start(const struct cgroup_host *h, const struct cgroup *c, int join, int (*body)(void))
{
	struct joiner j = { join, body };

	return spawn(h, c, join_and, &j);
}

static int wait_for_ever(void)
{
	for (;;)
		pause();
	return 0;
}

static int leave_at_once(void)
{
	return 7;
}

/* On a slow machine a fork can outlast the kill; what it left is killed when the group is looked at again, as in the engine. */
static bool emptied(const struct cgroup_host *h, const struct cgroup *c, unsigned n)
{
	for (int i = 0; i < 10000; i++) {
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (cgroup_child_empty(h, c, n) == 1)
			return true;
		if (i % 100 == 99)
			cgroup_child_reset(h, c, n);
		nap_ms(1);
	}
	return false;
}

/* As many have joined since the count was @before. */
static bool joined(unsigned before, unsigned many)
{
	for (int i = 0; i < 10000 && *shared() - before < many; i++)
		nap_ms(1);
	return *shared() - before == many;
}

static void *sit(void *arg)
{
	(void)arg;
	for (;;)
		pause();
	return NULL;
}

/* The first thread ends: lists of threads name only the others. */
static int go_on_as_thread(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, sit, NULL))
		return 97;
	pthread_exit(NULL);
	return 0;
}

/* Two processes that replace one another as fast as they can. */
static int hop(void)
{
	for (;;)
		if (fork() > 0)
			_exit(0);
	return 0;
}

static void check_all_end(const struct cgroup_host *h, int (*body)(void), unsigned times, bool once)
{
	const unsigned before = *shared();
	struct cgroup c;
	int join;

	CHECK_EQ(cgroup_make(h, "ends", mask_of(h), &c, &err), 0);
	join = cgroup_child_make(h, &c, 1, 0);
	CHECK(join >= 0);
	for (unsigned i = 0; i < times; i++)
		CHECK(start(h, &c, join, body) > 0);
	CHECK(joined(before, times));
	nap_ms(20);
	for (int i = 0; i < 100 && (i == 0 || (once && cgroup_child_empty(h, &c, 1) == 0)); i++)
		CHECK_EQ((once ? cgroup_child_kill_once : cgroup_child_kill)(h, &c, 1), 0);
	CHECK(emptied(h, &c, 1));
	nap_ms(20);
	CHECK_EQ(cgroup_child_empty(h, &c, 1), 1);
	/* The next one can be in it, and end. */
	if (!once || h->version == 1)
		CHECK_EQ(cgroup_child_reset(h, &c, 1), 0);
	CHECK_EQ(finish(start(h, &c, join, leave_at_once)), 7 << 8);
	CHECK_EQ(cgroup_child_recycle(h, &c, 1) == 0 || h->version == 1, true);
	fd_close(join);
	CHECK_EQ(clear(h, &c), 0);
	CHECK_EQ(groups(h), 0);
}

#define ON_BOTH(call)                                                                                                  \
	do {                                                                                                           \
		const struct cgroup_host *h = &host;                                                                   \
		call;                                                                                                  \
		h = &unified;                                                                                          \
		if (h->version)                                                                                        \
			call;                                                                                          \
	} while (0)

TEST(all_processes_of_a_child_end)
{
	ON_BOTH(check_all_end(h, wait_for_ever, 3, false));
	ON_BOTH(check_all_end(h, wait_for_ever, 3, true));
}

TEST(a_process_whose_first_thread_has_ended_ends)
{
	ON_BOTH(check_all_end(h, go_on_as_thread, 1, false));
	ON_BOTH(check_all_end(h, go_on_as_thread, 1, true));
}

TEST(no_fork_escapes)
{
	for (unsigned i = 0; i < 20; i++)
		ON_BOTH(check_all_end(h, hop, BOMBS, false));
}

static bool threaded(const struct cgroup *c, unsigned n)
{
	AUTO_CLOSE int dir = open_of(c, 2, n);
	char type[32];

	return fd_get(dir, "cgroup.type", type, sizeof(type)) > 0 && !strcmp(type, "threaded\n");
}

/* On version 2 only a threaded group is joined without waiting for the whole host. */
static void check_type(const struct cgroup_host *h)
{
	int join, more;
	struct cgroup c;

	CHECK_EQ(cgroup_make(h, "type", mask_of(h), &c, &err), 0);
	join = cgroup_child_make(h, &c, 1, 0);
	more = cgroup_child_make(h, &c, 2, 0);
	CHECK(join >= 0 && more >= 0);
	CHECK_EQ(threaded(&c, 1), h->version == 2);
	CHECK_EQ(threaded(&c, 2), h->version == 2);
	CHECK_EQ(finish(start(h, &c, join, leave_at_once)), 7 << 8);
	CHECK_EQ(finish(start(h, &c, more, leave_at_once)), 7 << 8);
	fd_close(join);
	fd_close(more);
	CHECK_EQ(clear(h, &c), 0);
}

TEST(children_are_joined_without_the_lock_of_the_host)
{
	ON_BOTH(check_type(h));
}

/* As an earlier version made them: with a threaded one beside it, no process could join it any more. */
static void check_older(const struct cgroup_host *h)
{
	const unsigned before = *shared();
	struct cgroup c;
	int join, more;

	CHECK_EQ(cgroup_make(h, "older", mask_of(h), &c, &err), 0);
	CHECK_EQ(sys_mkdirat(c.dir[h->version == 2 ? 0 : CGROUP_PIDS], "x1", 0755), 0);
	more = cgroup_child_make(h, &c, 2, 0);
	join = cgroup_child_open(h, &c, 1, 0);
	CHECK(join >= 0 && more >= 0);
	CHECK(start(h, &c, join, wait_for_ever) > 0);
	CHECK_EQ(finish(start(h, &c, more, leave_at_once)), 7 << 8);
	CHECK(joined(before, 2));
	CHECK_EQ(cgroup_child_kill(h, &c, 1), 0);
	CHECK(emptied(h, &c, 1));
	CHECK_EQ(cgroup_child_reset(h, &c, 1), 0);
	fd_close(join);
	fd_close(more);
	CHECK_EQ(clear(h, &c), 0);
}

TEST(children_of_an_earlier_version_are_joined_as_before)
{
	ON_BOTH(check_older(h));
}

TEST(nothing_is_left)
{
	end_host(&host);
	if (unified.version)
		end_host(&unified);
}
