/* Sandboxes that outlive their warden, their daemon, or both: with the real programs. */
#include "warden/keep.h"
#include "base/base.h"
#include "base/test.h"
#include "warden/keep_test.h"

/* One sandbox of a new warden, standing. */
static bool begin(struct wt *w, struct client_sandbox *s, struct kt_peer *p)
{
	struct sandbox_spec spec;
	struct err e = { 0 };
	struct frame f;
	int fds[8];

	wt_spec(&spec);
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
	CHECK_EQ(client_refresh(w.client, s.handle, &e), 0);
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
