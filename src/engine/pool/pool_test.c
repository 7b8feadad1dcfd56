#include "engine/pool/internal.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "linux/sched_slice.h"
#include "warden/warden_test.h"

#include <sys/syscall.h>

/* All processes the warden started, as they stand in /proc. */
static unsigned blanks(pid_t pid, pid_t *ret, unsigned max)
{
	char path[96], text[65536], *at, *end;
	struct dirent *d;
	unsigned n = 0;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	while (tasks && (d = readdir(tasks))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/children", (int)pid, d->d_name);
		if (d->d_name[0] == '.' || fd_get(AT_FDCWD, path, text, sizeof(text)) < 0)
			continue;
		for (at = text; n < max && (ret[n] = (pid_t)strtol(at, &end, 10)) > 0; at = end)
			n++;
	}
	if (tasks)
		closedir(tasks);
	return n;
}

/* Until @ready or more are, and nothing is being cleaned up. */
static bool wait_ready(struct client *c, unsigned ready, struct warden_counts *ret)
{
	struct err e = { 0 };

	for (int i = 0; i < 1000; i++) {
		if (client_counts(c, ret, &e) < 0)
			return false;
		if (ret->ready >= ready && !ret->cleaning)
			return true;
		wt_sleep_ms(5);
	}
	return false;
}

TEST(it_fills_itself_and_fills_up_again_behind_creates)
{
	static const char *const more[] = { "--pool", "6", NULL };
	struct client_sandbox s[5];
	struct sandbox_spec spec;
	struct warden_counts c;
	struct err e = { 0 };
	struct wt w;

	CHECK(wt_open(&w, more));
	CHECK(wait_ready(w.client, 6, &c));
	CHECK_EQ(c.alive, 0);
	CHECK_EQ(wt_children(w.pid), 6);
	wt_spec(&spec);
	for (size_t i = 0; i < ARRAY_LEN(s); i++)
		CHECK_EQ(client_create(w.client, &spec, &s[i], &e), 0);
	/* It may rest anywhere above half. */
	CHECK(wait_ready(w.client, 4, &c));
	CHECK_EQ(c.alive, 5);
	CHECK_EQ(c.made, 5);
	for (size_t i = 0; i < ARRAY_LEN(s); i++) {
		CHECK(wt_wait_up(s[i].sock));
		CHECK_EQ(client_destroy(w.client, s[i].handle, &e), 0);
		client_sandbox_done(&s[i]);
	}
	wt_sleep_ms(100); /* on the way up it counts one more child than ready */
	CHECK(wait_ready(w.client, 4, &c));
	CHECK_EQ(c.ended, 5);
	for (unsigned i = 0; i < 300 && wt_children(w.pid) != c.ready; i++) {
		wt_sleep_ms(100);
		CHECK(wait_ready(w.client, 4, &c));
	}
	CHECK_EQ(wt_children(w.pid), c.ready);
	CHECK_EQ(wt_stop(&w), 0);
}

TEST(who_comes_after_one_without_limits_has_limits)
{
	static const char *const more[] = { "--pool", "3", NULL };
	struct client_sandbox s;
	struct sandbox_spec spec;
	struct warden_counts c;
	struct err e = { 0 };
	struct wt w;

	CHECK(wt_open(&w, more));
	for (unsigned i = 0; i < 8; i++) { /* more than are ready: what comes then was made for the one before */
		wt_spec(&spec);
		if (i % 4 == 3) {
			spec.limits.disk = 8 * MIB;
			spec.limits.inodes = 100;
		} else {
			spec.limits.disk = spec.limits.inodes = spec.limits.memory = 0;
		}
		CHECK(wait_ready(w.client, 2, &c));
		CHECK_EQ(client_create(w.client, &spec, &s, &e), 0);
		CHECK(wt_wait_up(s.sock));
		CHECK_EQ(s.receipt.disk, spec.limits.disk);
		CHECK_EQ(client_destroy(w.client, s.handle, &e), 0);
		client_sandbox_done(&s);
	}
	CHECK_EQ(wt_stop(&w), 0);
}

TEST(more_creates_than_blanks_wait_for_new_ones)
{
	static const char *const more[] = { "--pool", "1", NULL };
	struct client_sandbox s[12];
	struct sandbox_spec spec;
	struct err e = { 0 };
	struct wt w;

	CHECK(wt_open(&w, more));
	wt_spec(&spec);
	for (size_t i = 0; i < ARRAY_LEN(s); i++)
		CHECK_EQ(client_create(w.client, &spec, &s[i], &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(s); i++) {
		CHECK(wt_wait_up(s[i].sock));
		client_sandbox_done(&s[i]);
	}
	CHECK_EQ(wt_stop(&w), 0);
}

/* It rests anywhere above half: taking some away makes it fill up to the brim. */
static bool fill_up(struct client *c, const struct sandbox_spec *spec, unsigned full)
{
	struct warden_counts n = { 0 };
	struct err e = { 0 };

	for (int i = 0; i < 20 && n.ready != full; i++) {
		struct client_sandbox s;

		for (int k = 0; k < 100 && (n.ready != full || n.cleaning); k++) {
			if (client_counts(c, &n, &e) < 0)
				return false;
			wt_sleep_ms(5);
		}
		if (n.ready == full)
			break;
		if (client_create(c, spec, &s, &e) < 0 || client_destroy(c, s.handle, &e) < 0)
			return false;
		client_sandbox_done(&s);
	}
	return n.ready == full;
}

TEST(a_blank_that_died_waiting_is_never_handed_out)
{
	static const char *const more[] = { "--pool", "4", NULL };
	struct sandbox_spec spec;
	struct warden_counts c;
	struct err e = { 0 };
	struct wt w;

	CHECK(wt_open(&w, more));
	wt_spec(&spec);
	for (int round = 0; round < 10; round++) {
		struct client_sandbox s;
		unsigned n, spare = (unsigned)round % 4; /* all of them dead, or some */
		pid_t pid[16];

		CHECK(fill_up(w.client, &spec, 4));
		n = blanks(w.pid, pid, ARRAY_LEN(pid));
		CHECK_EQ(n, 4);
		for (unsigned i = 0; i < n - spare; i++) {
			AUTO_CLOSE int fd = sys_pidfd_open(pid[i], 0);

			CHECK(fd >= 0);
			CHECK_EQ(kill(pid[i], SIGKILL), 0);
			CHECK(wt_gone(fd, 2000));
		}
		CHECK_EQ(client_create(w.client, &spec, &s, &e), 0);
		for (unsigned i = 0; i < n - spare; i++)
			CHECK(wt_pid(s.pidfd) != pid[i]);
		CHECK(wt_wait_up(s.sock));
		CHECK(!wt_gone(s.pidfd, 0));
		CHECK_EQ(client_destroy(w.client, s.handle, &e), 0);
		client_sandbox_done(&s);
	}
	/* The dead that were passed over are buried as well. */
	CHECK(fill_up(w.client, &spec, 4));
	CHECK_EQ(wt_children(w.pid), 4);
	CHECK_EQ(client_counts(w.client, &c, &e), 0);
	CHECK_EQ(c.cleanup_failures, 0);
	CHECK_EQ(wt_stop(&w), 0);
}

static int user_namespace(pid_t pid, uint64_t *ret)
{
	char path[64], to[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	n = readlink(path, to, sizeof(to) - 1);
	if (n < 0)
		return -errno;
	to[n] = '\0';
	*ret = strtoull(strchr(to, '[') + 1, NULL, 10);
	return 0;
}

TEST(what_one_tenant_left_is_never_under_another)
{
	enum { LIVES = 60 };
	static const char *const more[] = { "--pool", "3", NULL };
	static struct {
		uint64_t tenant;
		char group[256], net[64];
	} life[LIVES];
	struct sandbox_spec spec;
	struct err e = { 0 };
	struct wt w;

	CHECK(wt_open(&w, more));
	wt_spec(&spec);
	for (int i = 0; i < LIVES; i++) {
		struct client_sandbox s;
		char path[64];
		ssize_t n;

		spec.tenant = life[i].tenant = 1 + (uint64_t)(i / 4 % 3); /* in turns, so that each finds the others' */
		CHECK_EQ(client_create(w.client, &spec, &s, &e), 0);
		CHECK(wt_wait_up(s.sock));
		CHECK(wt_cgroup(wt_pid(s.pidfd), life[i].group, sizeof(life[i].group)));
		snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)wt_pid(s.pidfd));
		n = readlink(path, life[i].net, sizeof(life[i].net) - 1);
		CHECK(n > 0);
		CHECK_EQ(client_destroy(w.client, s.handle, &e), 0);
		CHECK(wt_gone(s.pidfd, 2000));
		client_sandbox_done(&s);
		for (int k = 0; k < i; k++)
			if (life[k].tenant != life[i].tenant && !strcmp(life[k].net, life[i].net))
				CHECK(strcmp(life[k].group, life[i].group) != 0); /* both numbers may come again, not both at once */
	}
	CHECK_EQ(wt_stop(&w), 0);
}

TEST(no_blank_is_used_twice)
{
	enum { LIVES = 100 };
	static const char *const more[] = { "--pool", "3", NULL };
	static struct {
		pid_t pid;
		char group[256];
	} life[LIVES];
	struct sandbox_spec spec;
	struct err e = { 0 };
	uint64_t now = 0, before = 0;
	struct wt w;

	CHECK(wt_open(&w, more));
	wt_spec(&spec);
	for (int i = 0; i < LIVES; i++) {
		struct client_sandbox s;

		CHECK_EQ(client_create(w.client, &spec, &s, &e), 0);
		CHECK(wt_wait_up(s.sock));
		life[i].pid = wt_pid(s.pidfd);
		CHECK(wt_cgroup(life[i].pid, life[i].group, sizeof(life[i].group)));
		CHECK_EQ(user_namespace(life[i].pid, &now), 0);
		CHECK(now != before);
		before = now;
		CHECK_EQ(client_destroy(w.client, s.handle, &e), 0);
		CHECK(wt_gone(s.pidfd, 2000));
		client_sandbox_done(&s);
	}
	for (int i = 0; i < LIVES; i++) {
		for (int k = 0; k < i; k++) {
			CHECK(life[i].pid != life[k].pid); /* the group may be one that this tenant left */
		}
	}
	CHECK_EQ(wt_stop(&w), 0);
}

static uint64_t sched_slice_of(pid_t pid)
{
	struct sys_sched_attr a = { 0 };

	return syscall(SYS_sched_getattr, pid, &a, sizeof(a), 0) < 0 ? UINT64_MAX : a.runtime;
}

/* They give way while they are made, and no longer once they are handed out, whether they were prebuilt or not. */
TEST(a_sandbox_that_is_handed_out_has_its_usual_turn_on_the_cpu)
{
	static const char *const more[] = { "--pool", "4", NULL };
	const uint64_t usual = sched_slice_of(0);
	struct sandbox_spec spec;
	struct warden_counts c;
	struct err e = { 0 };
	pid_t pid[8];
	struct wt w;

	CHECK(wt_open(&w, more));
	CHECK(wait_ready(w.client, 4, &c));
	CHECK_EQ(blanks(w.pid, pid, ARRAY_LEN(pid)), 4);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(sched_slice_of(pid[i]), usual ? SLICE_LONG_NS : 0); /* before 6.12 there is none to tell */
	wt_spec(&spec);
	for (int i = 0; i < 12; i++) {
		struct client_sandbox s;

		CHECK_EQ(client_create(w.client, &spec, &s, &e), 0);
		CHECK(wt_wait_up(s.sock));
		CHECK_EQ(sched_slice_of(wt_pid(s.pidfd)), usual);
		CHECK_EQ(client_destroy(w.client, s.handle, &e), 0);
		client_sandbox_done(&s);
	}
	CHECK_EQ(wt_stop(&w), 0);
}

TEST(the_pool_itself_gives_each_blank_once_and_counts_its_cleaning)
{
	static const struct sandbox_spec any;
	struct env_opts o = { 0 };
	struct pool_item it[6];
	struct pool *p = NULL;
	struct pool_counts c;
	struct err e = { 0 };
	struct env v;
	char agent[512];
	unsigned fds;

	CHECK(wt_program("cloche-agent", agent, sizeof(agent)));
	o.agent = agent;
	fds = wt_fds(getpid());
	CHECK_EQ(env_open(&o, &v, &e), 0);
	CHECK_EQ(pool_new(&v, 3, &p, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(it); i++) {
		CHECK_EQ(pool_take(p, &any, &it[i], &e), 0);
		for (size_t k = 0; k < i; k++)
			CHECK(it[k].blank.pid != it[i].blank.pid && it[k].blank.slot != it[i].blank.slot);
	}
	for (size_t i = 0; i < ARRAY_LEN(it); i++) {
		struct root r;

		root_init(&r);
		r.premount = it[i].premount;
		CHECK_EQ(pool_clean(p, &it[i].blank, &r), 0);
		CHECK_EQ(it[i].blank.pidfd, -1);
	}
	pool_wait(p, 3);
	pool_counts(p, &c);
	CHECK_EQ(c.ready, 3);
	CHECK_EQ(c.cleaning, 0);
	CHECK_EQ(v.cleanup_failures, 0);
	pool_free(p);
	env_done(&v);
	CHECK(wt_fds_wait(getpid(), fds) <= fds);
}

/* A pool without threads: what its maker does, one step at a time. */
static void still_pool(struct pool *p, struct pool_item *items, unsigned target)
{
	*p = (struct pool){ .items = items, .target = target, .queue_end = &p->queue };
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->dirt, NULL);
	for (unsigned i = 0; i < target; i++) {
		items[i] = (struct pool_item){ .prebuilt = i + 1 };
		blank_init(&items[i].blank);
		premount_init(&items[i].premount);
		root_init(&items[i].root);
		items[i].blank.slot = i + 1;
	}
}

TEST(what_is_made_besides_never_takes_the_place_of_one_in_the_making)
{
	struct pool_item items[4];
	AUTO_FREE struct pool *p = malloc(sizeof(*p));

	CHECK(p);
	still_pool(p, items, 4);
	p->ready = 2;
	p->ways[0].busy = true;
	CHECK(pool_make_room(p));
	CHECK_EQ(p->ready, 2); /* there was room */
	p->ways[3].busy = true;
	items[1].prebuilt = 0;
	CHECK(pool_make_room(p));
	CHECK_EQ(p->ready, 1);
	CHECK(p->queue && p->queue->blank.slot == 2); /* the one that was prebuilt for no current request */
	CHECK_EQ(items[p->first].blank.slot, 1);
	free(p->queue);
	p->queue_end = &p->queue;
	p->ready = 0;
	p->ways[5].busy = p->ways[6].busy = true;
	CHECK(!pool_make_room(p));
	CHECK_EQ(p->ready, 0);
}
