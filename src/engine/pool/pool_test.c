#include "engine/pool/internal.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "linux/sched_slice.h"
#include "warden/warden_test.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* All processes that the warden started, from /proc. */
static unsigned blanks(pid_t pid, pid_t *ret, unsigned max)
{
	return wt_sandboxes(pid, ret, max);
}

static unsigned count_blanks(pid_t pid)
{
	pid_t all[512];

	return wt_sandboxes(pid, all, ARRAY_LEN(all));
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
	CHECK_EQ(count_blanks(w.pid), 6);
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
	for (unsigned i = 0; i < 300 && count_blanks(w.pid) != c.ready; i++) {
		wt_sleep_ms(100);
		CHECK(wait_ready(w.client, 4, &c));
	}
	CHECK_EQ(count_blanks(w.pid), c.ready);
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
	CHECK_EQ(count_blanks(w.pid), 4);
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
				CHECK(strcmp(life[k].group, life[i].group) !=
				      0); /* both numbers may come again, not both at once */
	}
	CHECK_EQ(wt_stop(&w), 0);
}

/* A fork of ours in the group is refused: it has a past then. */
static bool refuse_fork(const char *group)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		AUTO_CLOSE int dir = sys_openat(AT_FDCWD, group, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
		pid_t more = -1;

		if (dir < 0 || fd_put(dir, "pids.max", "1") < 0 || fd_put(dir, "cgroup.procs", "0") < 0)
			_exit(2);
		more = fork();
		_exit(more < 0 && errno == EAGAIN ? 0 : 1);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

TEST(a_network_namespace_serves_again_where_the_groups_do_not)
{
	enum { LIVES = 8 };
	static const char *const more[] = { "--pool", "1", NULL };
	char group[512], first_net[64] = "", net[64], path[64];
	struct stat first = { 0 }, now;
	struct sandbox_spec spec;
	struct warden_counts c;
	struct err e = { 0 };
	bool again = false;
	struct wt w;

	CHECK(wt_open(&w, more));
	wt_spec(&spec);
	spec.tenant = 7;
	for (int i = 0; i < LIVES && !again; i++) {
		struct client_sandbox s;
		ssize_t n;

		CHECK_EQ(client_create(w.client, &spec, &s, &e), 0);
		CHECK(wt_wait_up(s.sock));
		CHECK(wt_cgroup(wt_pid(s.pidfd), group, sizeof(group)));
		CHECK_EQ(stat(group, &now), 0);
		snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)wt_pid(s.pidfd));
		n = readlink(path, net, sizeof(net) - 1);
		CHECK(n > 0);
		net[n] = '\0';
		again = !strcmp(net, first_net);
		if (again)
			CHECK(now.st_ino != first.st_ino); /* but in new groups */
		if (i == 0) {
			first = now;
			memcpy(first_net, net, sizeof(net));
			CHECK(refuse_fork(group));
		}
		CHECK_EQ(client_destroy(w.client, s.handle, &e), 0);
		CHECK(wt_gone(s.pidfd, 2000));
		client_sandbox_done(&s);
		CHECK(wait_ready(w.client, 1, &c));
	}
	CHECK(again);
	CHECK_EQ(wt_stop(&w), 0);
}

static unsigned threads_named(pid_t pid, const char *name)
{
	char path[64], text[64];
	struct dirent *d;
	unsigned n = 0;
	DIR *task;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	task = opendir(path);
	while (task && (d = readdir(task))) {
		snprintf(path, sizeof(path), "%.16s/comm", d->d_name);
		n += d->d_name[0] != '.' && fd_get(dirfd(task), path, text, sizeof(text)) > 0 && !strcmp(text, name);
	}
	if (task)
		closedir(task);
	return n;
}

/* As on a machine with sixteen processors, whatever this one has. */
TEST(many_makers_and_janitors_make_and_clean_up_each_sandbox_once)
{
	enum { AT_ONCE = 24, ROUNDS = 12 };
	static const char *const more[] = { "--pool", "8", NULL };
	static struct client_sandbox s[AT_ONCE];
	struct sandbox_spec spec;
	struct warden_counts c;
	struct err e = { 0 };
	bool deep = false;
	struct wt w;

	setenv("CLOCHE_CORES", "16", 1);
	wt_warden = "faulty/cloche-warden";
	CHECK(wt_open(&w, more));
	unsetenv("CLOCHE_CORES");
	wt_warden = "cloche-warden";
	wt_spec(&spec);
	CHECK(wait_ready(w.client, 8, &c));
	CHECK_EQ(threads_named(w.pid, "maker\n"), 8);
	CHECK_EQ(threads_named(w.pid, "janitor\n"), 16);
	for (int round = 0; round < ROUNDS; round++) {
		spec.tenant = 1 + (uint64_t)(round / 3 % 2);
		for (int i = 0; i < AT_ONCE; i++) {
			CHECK_EQ(client_create(w.client, &spec, &s[i], &e), 0);
			for (int k = 0; k < i; k++)
				CHECK(s[k].handle != s[i].handle && s[k].receipt.uid_base != s[i].receipt.uid_base &&
				      wt_pid(s[k].pidfd) != wt_pid(s[i].pidfd));
		}
		CHECK_EQ(client_counts(w.client, &c, &e), 0);
		CHECK_EQ(c.alive, AT_ONCE);
		for (int i = 0; i < AT_ONCE; i++) {
			CHECK(wt_wait_up(s[i].sock));
			CHECK_EQ(client_destroy(w.client, s[i].handle, &e), 0);
			CHECK(wt_gone(s[i].pidfd, 5000));
			client_sandbox_done(&s[i]);
		}
		CHECK(wait_ready(w.client, 4, &c));
		deep = deep || c.ready > 8;
	}
	CHECK(deep); /* requests had to wait, so there are more now than were asked for */
	for (unsigned i = 0; i < 300 && c.ready > 8; i++) {
		wt_sleep_ms(100);
		CHECK_EQ(client_counts(w.client, &c, &e), 0);
	}
	CHECK(c.ready <= 8 && c.ready >= 4); /* but not for good */
	CHECK_EQ(c.made, AT_ONCE * ROUNDS);
	CHECK_EQ(c.ended, AT_ONCE * ROUNDS);
	CHECK_EQ(c.cleanup_failures, 0);
	CHECK(wait_ready(w.client, 4, &c));
	CHECK_EQ(count_blanks(w.pid), c.ready);
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
		CHECK_EQ(sched_slice_of(pid[i]), usual ? SLICE_LONG_NS : 0); /* before 6.12 the kernel reports none */
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
	*p = (struct pool){
		.items = items, .target = target, .depth = target, .least = target, .queue_end = &p->queue
	};
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
	p->busy = 1;
	CHECK(pool_make_room(p));
	CHECK_EQ(p->ready, 2); /* there was room */
	CHECK_EQ(p->busy, 2); /* and it is taken */
	items[1].prebuilt = 0;
	CHECK(pool_make_room(p));
	CHECK_EQ(p->ready, 1);
	CHECK(p->queue && p->queue->blank.slot == 2); /* the one that was prebuilt for no current request */
	CHECK_EQ(items[p->first].blank.slot, 1);
	free(p->queue);
	p->queue_end = &p->queue;
	p->ready = 0;
	p->busy = 4;
	CHECK(!pool_make_room(p));
	CHECK_EQ(p->ready, 0);
	CHECK_EQ(p->busy, 4);
}
