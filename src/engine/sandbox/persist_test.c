/* Sandboxes that outlive their warden, their daemon, or both: with the real programs. */
#include "engine/blank/persist.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"
#include "engine/sandbox/persist_test.h"
#include "warden/msg.h"

#include <sched.h>
#include <sys/mount.h>

#ifdef __SANITIZE_ADDRESS__
/*
 * The storm moves this process's children to a pid namespace of their own, where the leak checker's helper cannot see
 * us.
 */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}
#endif

/* One sandbox of a new warden, ready. */
static bool begin(struct wt *w, struct client_sandbox *s, struct kt_peer *p)
{
	struct sandbox_spec spec;
	struct err e = { 0 };
	struct frame f;
	int fds[8];

	wt_spec(&spec);
	kt_fresh();
	if (!wt_open(w, kt_args()))
		return false;
	if (client_create(w->client, &spec, s, &e) < 0) {
		printf("# create: %s\n", e.msg);
		return false;
	}
	kt_open(p, TAKE_FD(s->sock));
	return kt_wait(p, FRAME_UP, 0, &f, fds);
}

/* A new warden on the same state finds exactly that one, and attaches. */
static bool come_back(struct wt *w, uint64_t handle, struct client_sandbox *s, struct kt_peer *p)
{
	struct warden_receipt receipt;
	struct err e = { 0 };
	uint64_t found = 0, none = 1;
	struct frame f;
	int fds[8];

	if (!wt_open(w, kt_args()) || client_next(w->client, 0, &found, &receipt, &e) < 0 || found != handle ||
	    client_next(w->client, found, &none, &receipt, &e) < 0 || none != 0)
		return false;
	if (client_attach(w->client, handle, s, &e) < 0) {
		printf("# attach: %s\n", e.msg);
		return false;
	}
	kt_open(p, TAKE_FD(s->sock));
	return kt_wait(p, FRAME_READY, 0, &f, fds) && kt_wait(p, FRAME_UP, 0, &f, fds);
}

static bool end(struct wt *w, struct client_sandbox *s, const char *group)
{
	struct err e = { 0 };
	bool ok = client_destroy(w->client, s->handle, &e) == 0 && wt_gone(s->pidfd, 5000) && kt_settled(w) &&
		  kt_records() == 0;

	client_sandbox_done(s);
	ok = wt_stop(w) == 0 && ok;
	kt_remove_state();
	return ok && access(group, F_OK) < 0;
}

TEST(a_killed_warden_leaves_a_sandbox_that_the_next_one_takes_over_whole)
{
	struct client_sandbox s;
	struct kt_held held[4];
	struct kt_pipes x, y;
	struct warden_stat st;
	struct err e = { 0 };
	struct kt_peer p;
	char group[256];
	struct wt w;

	CHECK(begin(&w, &s, &p));
	CHECK(s.group >= 0);
	CHECK(wt_cgroup(wt_pid(s.pidfd), group, sizeof(group)));
	CHECK(kt_exec(&p, 7, "echo one; sleep 1; read line; echo got $line; exit 5", s.group, &x));
	CHECK(kt_exec(&p, 8, "echo two; exit 3", -1, &y));
	CHECK(kt_reads(x.out, "one\n"));
	CHECK_EQ(kt_records(), 1);
	/* The host of the agent dies, too: nothing of ours is left but the pidfd. */
	kt_pipes_close(&x);
	kt_pipes_close(&y);
	kt_close(&p);
	kt_crash(&w);
	CHECK(!wt_gone(s.pidfd, 300));
	fd_close(TAKE_FD(s.group));
	fd_close(TAKE_FD(s.pidfd));

	CHECK(come_back(&w, s.handle, &s, &p));
	CHECK_EQ(kt_sync(&p, held, 4), 2);
	CHECK(held[0].id == 7 && held[1].id == 8);
	CHECK_EQ(held[0].held.flags, FRAME_HELD_STDIN);
	CHECK_EQ(held[1].held.flags, FRAME_HELD_STDIN | FRAME_HELD_ENDED);
	CHECK_EQ(held[1].held.exited.status, 3 << 8);
	CHECK(held[1].held.exited.maxrss > 0);
	CHECK(kt_reads(held[1].pipes.out, "two\n"));
	CHECK_EQ(write(held[0].pipes.in, "word\n", 5), 5);
	CHECK(kt_reads(held[0].pipes.out, "got word\n"));
	CHECK(kt_exited(&p, 7, 5 << 8));
	/* All that a warden can do, this one can. */
	CHECK_EQ(client_stat(w.client, s.handle, &st, &e), 0);
	CHECK(st.disk_size == 64 * MIB && st.group.pids >= 1 && st.group.memory > 0);
	CHECK_EQ(client_freeze(w.client, s.handle, &e), 0);
	CHECK_EQ(client_thaw(w.client, s.handle, &e), 0);
	/* Released means forgotten. */
	CHECK(kt_send(&p, FRAME_RELEASE, 8, NULL, 0, NULL, 0));
	kt_pipes_close(&held[0].pipes);
	kt_pipes_close(&held[1].pipes);
	CHECK_EQ(kt_sync(&p, held, 4), 1);
	CHECK(held[0].id == 7 && held[0].held.flags & FRAME_HELD_ENDED);
	kt_pipes_close(&held[0].pipes);
	kt_close(&p);
	CHECK(end(&w, &s, group));
}

TEST(a_dead_daemon_is_replaced_while_the_warden_goes_on)
{
	struct client_sandbox s, again;
	struct kt_held held[2];
	struct pollfd ended;
	struct kt_pipes x;
	struct err e = { 0 };
	struct kt_peer p, q;
	char group[256], byte;
	struct frame f;
	struct wt w;
	int fds[8];

	CHECK(begin(&w, &s, &p));
	CHECK(wt_cgroup(wt_pid(s.pidfd), group, sizeof(group)));
	CHECK(kt_exec(&p, 1, "sleep 0.2; echo late; exit 9", s.group, &x));
	kt_close(&p);
	/* It ends while it has no client. */
	ended = (struct pollfd){ .fd = x.out };
	CHECK(poll(&ended, 1, KT_WAIT) == 1 && ended.revents & POLLHUP);
	wt_sleep_ms(300);
	kt_pipes_close(&x);
	CHECK(!wt_gone(s.pidfd, 0));
	CHECK_EQ(client_attach(w.client, s.handle, &again, &e), 0);
	kt_open(&p, again.sock);
	CHECK(kt_wait(&p, FRAME_UP, 0, &f, fds));
	CHECK_EQ(kt_sync(&p, held, 2), 1);
	CHECK(held[0].id == 1 && held[0].held.flags & FRAME_HELD_ENDED && held[0].held.exited.status == 9 << 8);
	CHECK(kt_reads(held[0].pipes.out, "late\n"));
	kt_pipes_close(&held[0].pipes);
	/* The latest client is the host: the one before finds its socket closed. */
	fd_close(again.pidfd);
	CHECK_EQ(client_attach(w.client, s.handle, &again, &e), 0);
	kt_open(&q, again.sock);
	CHECK(kt_wait(&q, FRAME_UP, 0, &f, fds));
	CHECK_EQ(read(p.sock, &byte, 1), 0);
	kt_close(&p);
	kt_close(&q);
	fd_close(again.pidfd);
	CHECK(end(&w, &s, group));
}

TEST(sigterm_leaves_sandboxes_but_no_blank)
{
	struct client_sandbox s;
	struct kt_peer p;
	char group[256];
	struct wt w;
	pid_t pid;

	CHECK(begin(&w, &s, &p));
	CHECK(wt_cgroup(wt_pid(s.pidfd), group, sizeof(group)));
	pid = wt_pid(s.pidfd);
	CHECK_EQ(wt_stop(&w), 0);
	CHECK(!wt_gone(s.pidfd, 100));
	/* The holder of the socket can use it as before. */
	CHECK(kt_send(&p, FRAME_PING, 4, NULL, 0, NULL, 0));
	{
		struct frame f;
		int fds[8];

		CHECK(kt_wait(&p, FRAME_PONG, 4, &f, fds));
	}
	kt_close(&p);
	client_sandbox_done(&s);
	CHECK(come_back(&w, s.handle, &s, &p));
	CHECK_EQ(wt_pid(s.pidfd), pid);
	kt_close(&p);
	CHECK(end(&w, &s, group));
}

TEST(a_frozen_sandbox_is_attached_to_when_it_thaws_and_ends_when_it_is_destroyed)
{
	struct client_sandbox s;
	struct err e = { 0 };
	struct kt_peer p;
	char group[256];
	struct frame f;
	struct wt w;
	int fds[8];

	CHECK(begin(&w, &s, &p));
	CHECK(wt_cgroup(wt_pid(s.pidfd), group, sizeof(group)));
	CHECK_EQ(client_freeze(w.client, s.handle, &e), 0);
	kt_close(&p);
	kt_crash(&w);
	client_sandbox_done(&s);
	CHECK(wt_open(&w, kt_args()));
	CHECK_EQ(client_attach(w.client, s.handle, &s, &e), 0);
	kt_open(&p, TAKE_FD(s.sock));
	CHECK(!kt_next(&p, 200, &f, fds));
	CHECK_EQ(client_thaw(w.client, s.handle, &e), 0);
	CHECK(kt_wait(&p, FRAME_UP, 0, &f, fds));
	CHECK_EQ(client_freeze(w.client, s.handle, &e), 0);
	kt_close(&p);
	kt_crash(&w);
	client_sandbox_done(&s);
	CHECK(wt_open(&w, kt_args()));
	CHECK_EQ(client_attach(w.client, s.handle, &s, &e), 0);
	CHECK(end(&w, &s, group));
}

/* Changes the one record there is. */
static bool forge(pid_t pid, int64_t start)
{
	struct record rec;
	char path[96];
	off_t at = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/boxes", kt_dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	while (pread(fd, &rec, sizeof(rec), at) == (ssize_t)sizeof(rec)) {
		if (rec.handle) {
			rec.pid = (uint32_t)pid;
			rec.start = (uint64_t)((int64_t)rec.start + start);
			if (pwrite(fd, &rec, sizeof(rec), at) != (ssize_t)sizeof(rec))
				break;
			fd_close(fd);
			return true;
		}
		at += (off_t)sizeof(rec);
	}
	fd_close(fd);
	return false;
}

TEST(a_stranger_with_the_pid_of_a_record_is_neither_adopted_nor_harmed)
{
	struct warden_receipt receipt;
	struct client_sandbox s;
	struct err e = { 0 };
	uint64_t found = 1;
	struct kt_peer p;
	char group[256];
	pid_t stranger;
	struct wt w;
	int status;

	CHECK(begin(&w, &s, &p));
	CHECK(wt_cgroup(wt_pid(s.pidfd), group, sizeof(group)));
	kt_crash(&w);
	CHECK_EQ(kill(wt_pid(s.pidfd), SIGKILL), 0);
	CHECK(wt_gone(s.pidfd, 5000));
	stranger = fork();
	if (stranger == 0) {
		pause();
		_exit(0);
	}
	CHECK(forge(stranger, -1));
	CHECK(wt_open(&w, kt_args()));
	CHECK_EQ(client_next(w.client, 0, &found, &receipt, &e), 0);
	CHECK_EQ(found, 0);
	CHECK_EQ(waitpid(stranger, &status, WNOHANG), 0);
	/* What the dead one left is gone, its record too. */
	CHECK(access(group, F_OK) < 0);
	CHECK_EQ(kt_records(), 0);
	CHECK_EQ(wt_stop(&w), 0);
	kill(stranger, SIGKILL);
	waitpid(stranger, &status, 0);
	kt_close(&p);
	client_sandbox_done(&s);
	kt_remove_state();
}

static bool proc_alive(int out, pid_t *inside)
{
	char text[32] = "";
	size_t have = 0;
	ssize_t n;

	while (have < sizeof(text) - 1 && !strchr(text, '\n') && (n = read(out, text + have, 1)) == 1)
		have++;
	*inside = (pid_t)strtol(text, NULL, 10);
	return *inside > 0;
}

/* Asks inside: does that process exist? */
static bool lives(struct kt_peer *p, uint32_t id, pid_t inside)
{
	struct kt_pipes x;
	char script[64];
	bool there;

	snprintf(script, sizeof(script), "test -d /proc/%d && echo yes || echo no", (int)inside);
	if (!kt_exec(p, id, script, -1, &x))
		return false;
	there = kt_reads(x.out, "yes\n");
	kt_pipes_close(&x);
	return there;
}

TEST(killing_a_group_ends_what_left_the_session_and_nobody_else)
{
	/* Twice forked, its own session, its parent gone. */
	static const char *const escape = "setsid sh -c '(sleep 1000 & echo $!) ; exit' & wait; sleep 1000";
	struct client_sandbox s;
	struct kt_pipes x, y;
	struct err e = { 0 };
	struct kt_peer p;
	pid_t away, other;
	char group[256];
	uint32_t n, again;
	struct wt w;
	int join;

	CHECK(begin(&w, &s, &p));
	CHECK(wt_cgroup(wt_pid(s.pidfd), group, sizeof(group)));
	CHECK_EQ(client_group(w.client, s.handle, &n, &join, &e), 0);
	CHECK_EQ(n, 2);
	CHECK(kt_exec(&p, 1, escape, s.group, &x));
	CHECK(kt_exec(&p, 2, escape, join, &y));
	fd_close(join);
	CHECK(proc_alive(x.out, &away) && proc_alive(y.out, &other));
	CHECK(lives(&p, 10, away) && lives(&p, 11, other));
	/* A group with members cannot be taken away from under them. */
	CHECK_EQ(client_group_end(w.client, s.handle, 2, &e), 0);
	CHECK(lives(&p, 12, other));
	CHECK_EQ(client_group_kill(w.client, s.handle, 1, &e), 0);
	CHECK(kt_exited(&p, 1, SIGKILL));
	CHECK(!lives(&p, 13, away));
	CHECK(lives(&p, 14, other));
	CHECK_EQ(client_group_end(w.client, s.handle, 1, &e), 0);
	CHECK_EQ(client_group_end(w.client, s.handle, 1, &e), 0);
	CHECK_EQ(client_group_kill(w.client, s.handle, 1, &e), -ENOENT);
	CHECK_EQ(client_group_kill(w.client, s.handle, 99, &e), -ENOENT);
	/* An empty one serves the next exec, which can fork. */
	CHECK_EQ(client_group(w.client, s.handle, &again, &join, &e), 0);
	CHECK_EQ(again, 1);
	kt_pipes_close(&x);
	CHECK(kt_exec(&p, 3, "sh -c 'echo fork'; sleep 1000", join, &x));
	fd_close(join);
	CHECK(kt_reads(x.out, "fork\n"));
	/* Across a crash the numbers stay. */
	kt_close(&p);
	kt_crash(&w);
	client_sandbox_done(&s);
	CHECK(come_back(&w, s.handle, &s, &p));
	CHECK_EQ(client_group_kill(w.client, s.handle, 2, &e), 0);
	CHECK(kt_exited(&p, 2, SIGKILL));
	CHECK(!lives(&p, 15, other));
	CHECK_EQ(client_group(w.client, s.handle, &n, &join, &e), 0);
	CHECK_EQ(n, 3);
	fd_close(join);
	CHECK_EQ(client_group_kill(w.client, s.handle, 1, &e), 0);
	CHECK(kt_exited(&p, 3, SIGKILL));
	kt_pipes_close(&x);
	kt_pipes_close(&y);
	kt_close(&p);
	CHECK(end(&w, &s, group));
}

TEST(a_fork_bomb_in_a_group_ends_with_it)
{
	struct client_sandbox s;
	struct kt_pipes x, y;
	struct err e = { 0 };
	struct kt_peer p;
	char group[256];
	struct wt w;

	CHECK(begin(&w, &s, &p));
	CHECK(wt_cgroup(wt_pid(s.pidfd), group, sizeof(group)));
	CHECK(kt_exec(&p, 1, "b() { b & b & b & wait; }; (b 2>/dev/null) & echo on; read line", s.group, &x));
	CHECK(kt_reads(x.out, "on\n"));
	wt_sleep_ms(200);
	CHECK_EQ(client_group_kill(w.client, s.handle, 1, &e), 0);
	CHECK(kt_exited(&p, 1, SIGKILL));
	CHECK(kt_exec(&p, 2, "sh -c 'echo alone'; exit 4", -1, &y));
	CHECK(kt_reads(y.out, "alone\n"));
	CHECK(kt_exited(&p, 2, 4 << 8));
	kt_pipes_close(&x);
	kt_pipes_close(&y);
	kt_close(&p);
	CHECK(end(&w, &s, group));
}

TEST(a_host_that_does_not_read_is_taken_over_from)
{
	struct client_sandbox s, again;
	struct err e = { 0 };
	struct kt_peer p, q;
	uint8_t ping[FRAME_HEAD];
	char group[256];
	struct frame f;
	struct wt w;
	int fds[8];

	CHECK(begin(&w, &s, &p));
	CHECK(wt_cgroup(wt_pid(s.pidfd), group, sizeof(group)));
	frame_head(ping, FRAME_PING, 0, 1, 0);
	/* Until the agent has no room for answers and does not read us any more either. */
	for (int quiet = 0; quiet < 5; quiet++)
		while (fd_send_now(p.sock, ping, sizeof(ping), NULL, 0) == 0)
			quiet = 0;
	CHECK_EQ(client_attach(w.client, s.handle, &again, &e), 0);
	kt_open(&q, again.sock);
	CHECK(kt_next(&q, 2000, &f, fds));
	CHECK_EQ(f.type, FRAME_READY);
	kt_close(&p);
	kt_close(&q);
	fd_close(again.pidfd);
	CHECK(end(&w, &s, group));
}

TEST(a_host_that_talks_nonsense_loses_its_connection_only)
{
	struct client_sandbox s, again;
	struct err e = { 0 };
	struct kt_peer p, q;
	char group[256], byte;
	struct frame f;
	struct wt w;
	int fds[8];

	CHECK(begin(&w, &s, &p));
	CHECK(wt_cgroup(wt_pid(s.pidfd), group, sizeof(group)));
	CHECK(kt_send(&p, FRAME_UP, 0, NULL, 0, NULL, 0));
	CHECK_EQ(read(p.sock, &byte, 1), 0);
	CHECK_EQ(client_attach(w.client, s.handle, &again, &e), 0);
	kt_open(&q, again.sock);
	CHECK(kt_wait(&q, FRAME_UP, 0, &f, fds));
	CHECK(kt_send(&q, FRAME_PING, 3, NULL, 0, NULL, 0));
	CHECK(kt_wait(&q, FRAME_PONG, 3, &f, fds));
	kt_close(&p);
	kt_close(&q);
	fd_close(again.pidfd);
	CHECK(end(&w, &s, group));
}

TEST(a_kept_terminal_and_a_kept_stdin_are_closed_when_they_should)
{
	const char *argv[] = { "/bin/sh", "-c", "read a; echo tty $a; sleep 1000" }, *envp[] = { "PATH=/bin" };
	struct frame_exec x = {
		.flags = FRAME_EXEC_KEEP | FRAME_EXEC_TTY,
		.uid = 1000,
		.gid = 1000,
		.cwd = "/",
		.argc = 3,
		.envc = 1,
		.argv = argv,
		.envp = envp,
	};
	struct client_sandbox s;
	struct kt_held held[4];
	struct kt_pipes y;
	struct kt_peer p;
	uint8_t out[512];
	char group[256];
	struct frame f;
	struct wt w;
	int fds[8];

	CHECK(begin(&w, &s, &p));
	CHECK(wt_cgroup(wt_pid(s.pidfd), group, sizeof(group)));
	CHECK(kt_send(&p, FRAME_EXEC, 5, out, (size_t)frame_exec_encode(&x, out, sizeof(out)), NULL, 0));
	CHECK(kt_wait(&p, FRAME_STARTED, 5, &f, fds));
	fd_close(fds[0]);
	CHECK(kt_exec(&p, 6, "cat; echo end", -1, &y));
	/* The same id once more is refused while the first is held. */
	CHECK(kt_send(&p, FRAME_EXEC, 5, out, (size_t)frame_exec_encode(&x, out, sizeof(out)), NULL, 0));
	CHECK(kt_wait(&p, FRAME_FAILED, 5, &f, fds));
	kt_pipes_close(&y);
	kt_close(&p);
	kt_crash(&w);
	client_sandbox_done(&s);
	CHECK(come_back(&w, s.handle, &s, &p));
	CHECK_EQ(kt_sync(&p, held, 4), 2);
	CHECK(held[0].id == 5 && held[0].held.flags == FRAME_HELD_TTY && held[0].pipes.err < 0);
	CHECK_EQ(write(held[0].pipes.out, "x\n", 2), 2);
	CHECK(kt_reads(held[0].pipes.out, "tty x"));
	CHECK_EQ(write(held[1].pipes.in, "y\n", 2), 2);
	CHECK(kt_reads(held[1].pipes.out, "y\n"));
	fd_close(TAKE_FD(held[1].pipes.in));
	CHECK(kt_send(&p, FRAME_CLOSE_STDIN, 6, NULL, 0, NULL, 0));
	CHECK(kt_reads(held[1].pipes.out, "end\n"));
	CHECK(kt_exited(&p, 6, 0));
	kt_pipes_close(&held[0].pipes);
	kt_pipes_close(&held[1].pipes);
	/* Released while it runs: the terminal closes, and nothing is held. */
	CHECK(kt_send(&p, FRAME_RELEASE, 5, NULL, 0, NULL, 0));
	CHECK(kt_exited(&p, 5, SIGHUP));
	CHECK_EQ(kt_sync(&p, held, 4), 1);
	kt_pipes_close(&held[0].pipes);
	kt_close(&p);
	CHECK(end(&w, &s, group));
}

TEST(a_state_folder_is_one_wardens_and_only_roots)
{
	char path[80];
	struct wt w, second;

	kt_fresh();
	CHECK(wt_open(&w, kt_args()));
	CHECK(wt_start(&second, kt_args()));
	CHECK(!wt_connect(&second));
	CHECK_EQ(wt_stop(&second), 1 << 8);
	CHECK_EQ(wt_stop(&w), 0);
	CHECK_EQ(chmod(kt_dir, 0777), 0);
	CHECK(wt_start(&w, kt_args()));
	CHECK(!wt_connect(&w));
	CHECK_EQ(wt_stop(&w), 1 << 8);
	kt_remove_state();
	snprintf(path, sizeof(path), "%s-link", kt_dir);
	CHECK_EQ(symlink(path, kt_dir), 0);
	CHECK(wt_start(&w, kt_args()));
	CHECK(!wt_connect(&w));
	CHECK_EQ(wt_stop(&w), 1 << 8);
	CHECK_EQ(unlink(kt_dir), 0);
}

/* Ends every sandbox the warden has. Returns how many, or -1. */
static int destroy_all(struct wt *w)
{
	struct warden_receipt receipt;
	struct err e = { 0 };
	uint64_t h = 0;
	int n = 0;

	for (;;) {
		if (client_next(w->client, h, &h, &receipt, &e) < 0)
			return -1;
		if (!h)
			return n;
		if (client_destroy(w->client, h, &e) < 0)
			return -1;
		n++;
	}
}

#define STORM_CREATES 12
#define STORM_GROUPS 8192

static char storm_group[STORM_GROUPS][256];
static unsigned storm_groups;

/* In a pid namespace of our own: every process but us, and the groups they are in. */
static unsigned look_around(void)
{
	DIR *d = opendir("/proc");
	struct dirent *x;
	unsigned n = 0;

	while (d && (x = readdir(d))) {
		pid_t pid = (pid_t)strtol(x->d_name, NULL, 10);
		char group[256];

		if (pid <= 1)
			continue;
		n++;
		if (storm_groups == STORM_GROUPS || !wt_cgroup(pid, group, sizeof(group)))
			continue;
		for (unsigned i = 0; i <= storm_groups; i++) {
			if (i == storm_groups)
				snprintf(storm_group[storm_groups++], sizeof(group), "%s", group);
			if (!strcmp(storm_group[i], group))
				break;
		}
	}
	if (d)
		closedir(d);
	return n;
}

/* Orphans become children of this process, so it waits for them. */
static unsigned left_after(int ms)
{
	unsigned n = 0;

	for (; ms > 0; ms -= 20) {
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		n = look_around();
		if (!n)
			break;
		wt_sleep_ms(20);
	}
	return n;
}

/* Requests without waiting for answers, then the end of the warden at any moment. */
static bool storm(unsigned *seed, unsigned span_us)
{
	static struct warden_req q;
	struct sandbox_spec spec;
	unsigned wait_us;
	struct wt w;

	if (!wt_start(&w, kt_args()))
		return false;
	wt_spec(&spec);
	q.version = MSG_VERSION;
	q.op = WARDEN_CREATE;
	spec_put(&spec, &q.spec);
	for (unsigned i = 0; i < STORM_CREATES; i++) {
		q.seq = i;
		if (fd_send_now(w.sock, &q, sizeof(q), NULL, 0) < 0)
			break;
	}
	wait_us = (unsigned)rand_r(seed) % span_us;
	nanosleep(&(struct timespec){ wait_us / 1000000, (long)(wait_us % 1000000) * 1000 }, NULL);
	look_around();
	kt_crash(&w);
	return true;
}

/* How long a warden takes from its start to all of a storm's sandboxes, on this machine. */
static unsigned measure_us(void)
{
	const uint64_t begun = clock_mono_ns();
	struct sandbox_spec spec;
	struct client_sandbox s;
	struct err e = { 0 };
	struct wt w;

	wt_spec(&spec);
	if (!wt_open(&w, kt_args()))
		return 0;
	for (unsigned i = 0; i < STORM_CREATES; i++) {
		if (client_create(w.client, &spec, &s, &e) < 0)
			return 0;
		client_sandbox_done(&s);
	}
	destroy_all(&w);
	return wt_stop(&w) ? 0 : (unsigned)((clock_mono_ns() - begun) / 600);
}

static int storms(void)
{
	const char *fewer = getenv("CLOCHE_STORMS");
	const unsigned count = fewer ? (unsigned)strtoul(fewer, NULL, 10) : 200;
	unsigned seed = 12345, made = 0, left, span_us = measure_us();
	struct wt w;

	for (unsigned i = 0; i < count; i++) {
		int n;

		if (!span_us || !storm(&seed, span_us))
			return 2;
		if (i % 10 != 9)
			continue;
		if (!wt_open(&w, kt_args()) || (n = destroy_all(&w)) < 0 || !kt_settled(&w))
			return 3;
		made += (unsigned)n;
		if (wt_stop(&w) != 0)
			return 4;
		if (kt_records())
			return 5;
	}
	left = left_after(5000);
	printf("# %u sandboxes outlived %u wardens; %u groups seen\n", made, count, storm_groups);
	if (left)
		return 6;
	for (unsigned i = 0; i < storm_groups; i++)
		if (access(storm_group[i], F_OK) == 0) {
			printf("# %s is left\n", storm_group[i]);
			return 7;
		}
	return made > count / 10 && storm_groups > count ? 0 : 8;
}

TEST(whenever_a_warden_is_killed_the_next_one_leaves_nothing)
{
	int status = -1;
	pid_t pid;

	kt_fresh();
	CHECK_EQ(unshare(CLONE_NEWPID), 0);
	pid = fork();
	if (pid == 0) {
		int r;

		if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		    mount("proc", "/proc", "proc", 0, NULL) < 0)
			_exit(1);
		r = storms();
		fflush(stdout);
		_exit(r);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	CHECK_EQ(status >> 8, 0);
	CHECK_EQ(status, 0);
	kt_remove_state();
}
