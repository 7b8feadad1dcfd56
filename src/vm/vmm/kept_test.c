/* A host that keeps and a guest's carry, with a socket as the port; the agent is this test. No machine. */
#include "vm/vmm/kept.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

struct world {
	struct carry host, guest;
	struct kept *kept;
	int port[2], api, agent, agent_ctl;
	int r;
};

static int no_op(void *arg, const struct mux *m)
{
	(void)arg;
	(void)m;
	return 0;
}

/* The host's half, on a port of its own. */
static bool host_open(struct world *w)
{
	const int flags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

	if (sys_socketpair(AF_UNIX, flags, 0, w->port) < 0 || carry_init(&w->host, CARRY_HOST, w->port[0], -1, 1) < 0 ||
	    kept_new(&w->host, &w->kept) < 0)
		return false;
	w->host.keeps = true;
	w->host.other = no_op;
	return true;
}

static bool attach(struct world *w, uint32_t restored)
{
	int a[2];

	if (sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, a) < 0)
		return false;
	w->api = a[0];
	return kept_attach(w->kept, a[1], restored) == 0;
}

static void settle(struct world *w)
{
	for (unsigned i = 0; i < 100 && !w->r; i++) {
		w->r = carry_turn(&w->host, NULL, 0, 0);
		if (!w->r)
			w->r = carry_turn(&w->guest, NULL, 0, 0);
	}
}

static int send_frame(int sock, enum frame_type type, uint32_t id, const void *payload, size_t len, const int *fds,
		      size_t n)
{
	static uint8_t out[FRAME_HEAD + FRAME_PAYLOAD_MAX];

	frame_head(out, type, (uint8_t)n, id, (uint32_t)len);
	if (len)
		memcpy(out + FRAME_HEAD, payload, len);
	return fd_send(sock, out, FRAME_HEAD + len, fds, n);
}

/* One frame; its type, 0: there is none. */
static int next_frame(int sock, struct frame *ret, int *fds)
{
	static uint8_t in[FRAME_HEAD + FRAME_PAYLOAD_MAX];
	size_t nfds = 0;
	ssize_t n = recv(sock, in, FRAME_HEAD, MSG_PEEK | MSG_DONTWAIT);

	*ret = (struct frame){ 0 };
	if (n != FRAME_HEAD)
		return 0;
	n = fd_recv(sock, in, FRAME_HEAD + mux_u32(in + 8), fds, FRAME_FDS_MAX, &nfds);
	return n > 0 && frame_decode(in, (size_t)n, ret) == n && nfds == ret->nfds ? ret->type : -1;
}

static bool world_open(struct world *w)
{
	const int flags = SOCK_STREAM | SOCK_CLOEXEC;
	static const uint8_t ready[8] = { FRAME_VERSION, 0, 0, 0, 3 };
	int b[2], fds[FRAME_FDS_MAX];
	struct frame f;

	*w = (struct world){ 0 };
	if (!host_open(w) || sys_socketpair(AF_UNIX, flags, 0, b) < 0 ||
	    carry_init(&w->guest, CARRY_GUEST, w->port[1], b[1], 1) < 0)
		return false;
	w->guest.other = no_op;
	w->agent = b[0];
	w->agent_ctl = b[1];
	send_frame(w->agent, FRAME_READY, 0, ready, sizeof(ready), NULL, 0);
	send_frame(w->agent, FRAME_UP, 0, NULL, 0, NULL, 0);
	settle(w);
	if (kept_up(w->kept, NULL) != 1 || kept_landlock(w->kept) != 3 || !attach(w, 0))
		return false;
	settle(w);
	if (next_frame(w->api, &f, fds) != FRAME_READY)
		return false;
	return next_frame(w->api, &f, fds) == FRAME_UP && !w->r;
}

static void world_close(struct world *w)
{
	kept_free(w->kept);
	carry_done(&w->host);
	carry_done(&w->guest);
	fd_close_many((int[]){ w->port[0], w->port[1], w->api, w->agent, w->agent_ctl }, 5);
}

struct exec {
	int in, out, err; /* the host's */
	int inside[3]; /* what the agent got */
};

static int group_fd(uint32_t number)
{
	int fd = sys_memfd_create("g", MFD_CLOEXEC);
	uint8_t data[4];

	mux_put_u32(data, number);
	return fd >= 0 && write(fd, data, 4) == 4 ? fd : -1;
}

/* A kept one with stdin, in a group. */
static bool ask(struct world *w, uint32_t id, uint32_t group, struct exec *ret)
{
	static const char *const argv[] = { "x" };
	struct frame_exec x = {
		.flags = FRAME_EXEC_KEEP | FRAME_EXEC_STDIN | FRAME_EXEC_GROUP, .cwd = "/", .argc = 1, .argv = argv
	};
	int in[2], out[2], err[2], g = group_fd(group);
	uint8_t payload[256];
	long n = frame_exec_encode(&x, payload, sizeof(payload));

	if (n < 0 || g < 0 || sys_pipe2(in, O_CLOEXEC) < 0 || sys_pipe2(out, O_CLOEXEC) < 0 ||
	    sys_pipe2(err, O_CLOEXEC) < 0)
		return false;
	if (send_frame(w->api, FRAME_EXEC, id, payload, (size_t)n,
		       (int[]){ in[0], out[1], err[1], g, out[0], err[0], in[1] }, 7) < 0)
		return false;
	fd_close_many((int[]){ in[0], out[1], err[1], g }, 4);
	*ret = (struct exec){ in[1], out[0], err[0], { -1, -1, -1 } };
	return true;
}

static bool start(struct world *w, uint32_t id, uint32_t group, struct exec *ret, uint32_t *ret_key)
{
	int fds[FRAME_FDS_MAX];
	struct frame_exec y;
	struct frame f;
	uint8_t key[4];

	if (!ask(w, id, group, ret))
		return false;
	settle(w);
	if (next_frame(w->agent, &f, fds) != FRAME_EXEC || f.id != id || f.nfds != 4 || frame_exec_decode(&f, &y) < 0 ||
	    y.flags != FRAME_EXEC_GROUP || pread(fds[3], key, 4, 0) != 4)
		return false;
	memcpy(ret->inside, fds, sizeof(ret->inside));
	fd_close(fds[3]);
	*ret_key = mux_u32(key);
	return true;
}

static void exec_close(struct exec *x)
{
	fd_close_many((int[]){ x->in, x->out, x->err }, 3);
	fd_close_many(x->inside, 3);
}

static int send_exited(struct world *w, uint32_t id, int status)
{
	struct frame_exited x = { .status = status };
	uint8_t out[64];
	long n = frame_exited_encode(&x, out, sizeof(out));

	return send_frame(w->agent, FRAME_EXITED, id, out, (size_t)n, NULL, 0);
}

static bool text_at(int fd, const char *want)
{
	char got[256] = "";
	struct pollfd p = { .fd = fd, .events = POLLIN };
	ssize_t n = poll(&p, 1, 0) == 1 ? read(fd, got, sizeof(got) - 1) : 0;

	return n == (ssize_t)strlen(want) && !strcmp(got, want);
}

TEST(a_host_that_comes_back_gets_execs_again_and_has_missed_nothing)
{
	struct world w;
	struct exec a, b;
	struct frame f;
	struct frame_held h;
	int fds[FRAME_FDS_MAX];
	uint32_t key;

	CHECK(world_open(&w));
	CHECK(start(&w, 1, 7, &a, &key) && start(&w, 2, 8, &b, &key));
	fd_close_many((int[]){ a.in, a.out, a.err, b.in, b.out, b.err, w.api }, 7); /* it dies */
	CHECK_EQ(write(a.inside[1], "while away", 10), 10);
	CHECK_EQ(send_exited(&w, 2, 256), 0);
	settle(&w);
	CHECK_EQ(w.r, 0);
	CHECK(attach(&w, 0));
	CHECK_EQ(send_frame(w.api, FRAME_SYNC, 0, NULL, 0, NULL, 0), 0);
	settle(&w);
	CHECK_EQ(next_frame(w.api, &f, fds), FRAME_READY);
	CHECK_EQ(next_frame(w.api, &f, fds), FRAME_UP);
	CHECK_EQ(next_frame(w.api, &f, fds), FRAME_HELD);
	CHECK(f.id == 1 && f.nfds == 3 && frame_held_decode(&f, &h) == 0 && h.flags == FRAME_HELD_STDIN);
	CHECK(text_at(fds[0], "while away"));
	CHECK_EQ(write(fds[2], "hello", 5), 5);
	fd_close_many(fds, 3);
	CHECK_EQ(next_frame(w.api, &f, fds), FRAME_HELD);
	CHECK(f.id == 2 && frame_held_decode(&f, &h) == 0 && h.flags == (FRAME_HELD_STDIN | FRAME_HELD_ENDED) &&
	      h.exited.status == 256);
	fd_close_many(fds, 3);
	CHECK_EQ(next_frame(w.api, &f, fds), FRAME_SYNCED);
	/* Stdin ends when it is closed here, and what is released is gone. */
	CHECK_EQ(send_frame(w.api, FRAME_CLOSE_STDIN, 1, NULL, 0, NULL, 0), 0);
	CHECK_EQ(send_frame(w.api, FRAME_RELEASE, 2, NULL, 0, NULL, 0), 0);
	CHECK_EQ(send_frame(w.api, FRAME_SYNC, 0, NULL, 0, NULL, 0), 0);
	settle(&w);
	CHECK(text_at(a.inside[0], "hello"));
	CHECK_EQ(read(a.inside[0], &h, 1), 0);
	CHECK(next_frame(w.api, &f, fds) == FRAME_HELD && f.id == 1 && f.nfds == 2);
	fd_close_many(fds, 2);
	CHECK_EQ(next_frame(w.api, &f, fds), FRAME_SYNCED);
	CHECK_EQ(w.r, 0);
	fd_close_many(a.inside, 3);
	fd_close_many(b.inside, 3);
	world_close(&w);
}

TEST(all_that_a_host_said_before_it_died_is_done_however_soon_the_next_one_comes)
{
	const bool still[] = { false, true };
	struct exec x[3];
	struct frame f;
	struct world w;
	int fds[FRAME_FDS_MAX];

	for (size_t i = 0; i < ARRAY_LEN(still); i++) {
		CHECK(world_open(&w));
		if (still[i]) { /* nothing is read meanwhile */
			CHECK_EQ(carry_quiesce(&w.host), 0);
			settle(&w);
			CHECK_EQ(carry_quiet(&w.host), 1);
		}
		CHECK_EQ(send_frame(w.api, FRAME_PING, 9, NULL, 0, NULL, 0), 0);
		for (uint32_t n = 0; n < ARRAY_LEN(x); n++)
			CHECK(ask(&w, n + 1, n + 1, &x[n]));
		fd_close(w.api);
		CHECK(attach(&w, 0));
		if (still[i])
			CHECK_EQ(carry_go_on(&w.host), 0);
		settle(&w);
		CHECK_EQ(w.r, 0);
		for (uint32_t n = 0; n < ARRAY_LEN(x);) {
			const int type = next_frame(w.agent, &f, fds);

			CHECK(type == FRAME_PING || (type == FRAME_EXEC && f.id == ++n));
			fd_close_many(fds, f.nfds);
		}
		for (uint32_t n = 0; n < ARRAY_LEN(x); n++)
			exec_close(&x[n]);
		world_close(&w);
	}
}

TEST(an_id_that_is_held_is_refused_and_what_a_guest_may_not_say_ends_it)
{
	static const enum frame_type bad[] = { FRAME_HELD, FRAME_SYNCED, FRAME_RESTORED,
					       FRAME_EXEC, FRAME_UP,	 FRAME_READY };
	struct world w;
	struct exec a, b;
	struct frame f;
	struct frame_failed why;
	int fds[FRAME_FDS_MAX];
	uint32_t key;

	CHECK(world_open(&w));
	CHECK(start(&w, 1, 1, &a, &key));
	CHECK(!start(&w, 1, 2, &b, &key));
	CHECK_EQ(next_frame(w.api, &f, fds), FRAME_FAILED);
	CHECK(frame_failed_decode(&f, &why) == 0 && why.errnum == EEXIST && f.id == 1);
	exec_close(&a);
	fd_close_many((int[]){ b.in, b.out, b.err }, 3);
	world_close(&w);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		CHECK(world_open(&w));
		CHECK_EQ(send_frame(w.agent, bad[i], 9, "xxxxxxxx", 8, NULL, 0), 0);
		settle(&w);
		CHECK_EQ(w.r, -EBADMSG);
		world_close(&w);
	}
	CHECK(world_open(&w));
	CHECK_EQ(send_exited(&w, 5, 0), 0); /* no such exec was started */
	settle(&w);
	CHECK_EQ(w.r, -EBADMSG);
	world_close(&w);
}

/* The host's half of a machine that is copied: a new port, the same guest. */
static bool clone_host(struct world *w, struct world *ret, uint32_t flags)
{
	AUTO_FREE uint8_t *state = NULL;
	struct mux_resume who = { .flags = flags, .hostname = "new" };
	uint32_t restored;
	size_t len;

	if (carry_quiesce(&w->host) < 0)
		return false;
	settle(w);
	if (w->r || carry_quiet(&w->host) != 1 || kept_save(w->kept, 1 << 20, &state, &len) < 0)
		return false;
	*ret = (struct world){ .agent = w->agent, .agent_ctl = w->agent_ctl, .guest = w->guest };
	if (!host_open(ret))
		return false;
	ret->guest.port = ret->port[1];
	if (kept_load(ret->kept, state, len) < 0 || kept_resume(ret->kept, &who) < 0)
		return false;
	settle(ret);
	return !ret->r && carry_resumed(&ret->host, &restored) && attach(ret, 1);
}

/* The old host is gone, its guest lives on in the new world. */
static void old_close(struct world *w)
{
	kept_free(w->kept);
	carry_done(&w->host);
	fd_close_many((int[]){ w->port[0], w->port[1], w->api }, 3);
}

TEST(a_state_saved_in_mid_stream_goes_on_in_another_process)
{
	static char data[70000];
	static uint8_t got[400000];
	struct world w, n;
	struct exec a, b;
	struct frame f;
	int fds[FRAME_FDS_MAX], keep[3];
	uint32_t key_a, key_b;
	size_t sent = 0, have = 0;

	CHECK(world_open(&w));
	CHECK(start(&w, 5, 40, &a, &key_a) && start(&w, 3, 41, &b, &key_b));
	/* No side reads: pipes and windows are full, on both sides. */
	CHECK_EQ(fd_set_nonblock(a.inside[1]), 0);
	for (unsigned i = 0; i < 30; i++) {
		ssize_t k;

		memset(data, 'a' + (int)i % 26, sizeof(data));
		k = write(a.inside[1], data, sizeof(data));
		sent += k > 0 ? (size_t)k : 0;
		settle(&w);
	}
	CHECK_EQ(write(b.in, "half a line", 11), 11);
	settle(&w);
	while (read(a.out, data, 1) == 1 && have++ < 10000) /* of the pipe, which is not saved */
		;
	CHECK(clone_host(&w, &n, 0));
	settle(&n);
	CHECK_EQ(send_frame(n.api, FRAME_SYNC, 0, NULL, 0, NULL, 0), 0);
	settle(&n);
	CHECK_EQ(next_frame(n.api, &f, fds), FRAME_READY);
	CHECK(next_frame(n.api, &f, fds) == FRAME_UP && f.len == 4);
	CHECK(next_frame(n.api, &f, fds) == FRAME_HELD && f.id == 5);
	memcpy(keep, fds, sizeof(keep));
	CHECK(next_frame(n.api, &f, fds) == FRAME_HELD && f.id == 3);
	CHECK_EQ(write(fds[2], " and its end", 12), 12);
	CHECK_EQ(next_frame(n.api, &f, keep), FRAME_SYNCED);
	/* What was under way comes, in order, but for what the old pipe had taken. */
	fd_close(a.inside[1]);
	CHECK_EQ(send_exited(&n, 5, 0), 0);
	have = 0;
	for (unsigned i = 0; i < 1000 && !n.r; i++) {
		struct pollfd p = { .fd = keep[0], .events = POLLIN };
		ssize_t k = poll(&p, 1, 0) == 1 ? read(keep[0], got + have, sizeof(got) - have) : -1;

		if (k == 0)
			break;
		have += k > 0 ? (size_t)k : 0;
		settle(&n);
	}
	CHECK_EQ(n.r, 0);
	CHECK(have > 60000 && have + 65536 <= sent);
	for (size_t i = 1; i < have; i++)
		CHECK(got[i] == got[i - 1] || got[i] == got[i - 1] + 1 || (got[i] == 'a' && got[i - 1] == 'z'));
	settle(&n);
	CHECK(next_frame(n.api, &f, fds + 4) == FRAME_EXITED && f.id == 5);
	CHECK(text_at(b.inside[0], "half a line and its end"));
	/* The host's numbers of groups begin anew: the i-th by id is in i + 1. */
	CHECK(key_a != key_b);
	fd_close_many(keep, 3);
	fd_close_many(fds, 3);
	fd_close_many((int[]){ a.in, a.out, a.err, a.inside[0], a.inside[2] }, 5);
	exec_close(&b);
	old_close(&w);
	world_close(&n);
}

#define FILE_LEN 700000U

TEST(a_file_that_is_being_read_is_read_to_its_end_in_a_clone)
{
	static const char *const argv[] = { "x" };
	struct frame_exec x = { .flags = FRAME_EXEC_KEEP, .cwd = "/", .argc = 1, .argv = argv };
	static uint8_t want[FILE_LEN], got[FILE_LEN + 1];
	int out[2], err[2], in = sys_memfd_create("in", MFD_CLOEXEC), fds[FRAME_FDS_MAX];
	uint8_t payload[256];
	size_t have = 0;
	struct world w, n;
	struct frame f;

	for (uint32_t i = 0; i < FILE_LEN; i++)
		want[i] = (uint8_t)(i * 2654435761U >> 24);
	CHECK(world_open(&w));
	CHECK(in >= 0 && fd_write_all(in, want, FILE_LEN) == 0 && lseek(in, 0, SEEK_SET) == 0);
	CHECK(sys_pipe2(out, O_CLOEXEC) == 0 && sys_pipe2(err, O_CLOEXEC) == 0);
	CHECK_EQ(send_frame(w.api, FRAME_EXEC, 1, payload, (size_t)frame_exec_encode(&x, payload, sizeof(payload)),
			    (int[]){ in, out[1], err[1], out[0], err[0] }, 5),
		 0);
	fd_close_many((int[]){ in, out[1], err[1] }, 3);
	settle(&w);
	CHECK(next_frame(w.agent, &f, fds) == FRAME_EXEC && f.nfds == 3);
	CHECK(read(fds[0], got, 1000) == 1000);
	have = 1000;
	settle(&w);
	CHECK(clone_host(&w, &n, 0));
	for (unsigned i = 0; i < 1000 && !n.r; i++) {
		struct pollfd p = { .fd = fds[0], .events = POLLIN };
		ssize_t k = poll(&p, 1, 0) == 1 ? read(fds[0], got + have, sizeof(got) - have) : -1;

		if (k == 0)
			break;
		have += k > 0 ? (size_t)k : 0;
		settle(&n);
	}
	CHECK_EQ(n.r, 0);
	CHECK_EQ(have, FILE_LEN);
	CHECK(!memcmp(want, got, FILE_LEN));
	fd_close_many(fds, 3);
	fd_close_many((int[]){ out[0], err[0] }, 2);
	old_close(&w);
	world_close(&n);
}

static int note_group(void *arg, const struct mux *m)
{
	if (m->type == MUX_GROUP)
		memcpy(arg, m->payload, 8);
	return 0;
}

TEST(groups_of_a_clone_are_numbered_by_their_execs)
{
	struct world w, n;
	struct exec a, b;
	uint32_t key_a, key_b;
	uint8_t said[8] = { 0 };

	CHECK(world_open(&w));
	CHECK(start(&w, 5, 40, &a, &key_a) && start(&w, 3, 41, &b, &key_b));
	CHECK(clone_host(&w, &n, 0));
	n.guest.other = note_group;
	n.guest.arg = said;
	CHECK_EQ(kept_group(n.kept, 2, MUX_GROUP_KILL), 0);
	settle(&n);
	CHECK(mux_u32(said) == key_a && mux_u32(said + 4) == MUX_GROUP_KILL);
	CHECK_EQ(kept_group(n.kept, 1, MUX_GROUP_END), 0);
	settle(&n);
	CHECK(mux_u32(said) == key_b && mux_u32(said + 4) == MUX_GROUP_END);
	exec_close(&a);
	exec_close(&b);
	old_close(&w);
	world_close(&n);
}

TEST(dropped_execs_are_never_heard_of_and_their_ids_are_free)
{
	struct world w, n;
	struct exec a, b;
	struct frame f;
	int fds[FRAME_FDS_MAX];
	uint32_t key;

	CHECK(world_open(&w));
	CHECK(start(&w, 1, 1, &a, &key));
	CHECK(clone_host(&w, &n, MUX_RESUME_DROP));
	/* The guest ends them; until all have ended, nothing new begins. */
	CHECK(!start(&n, 1, 1, &b, &key));
	fd_close_many((int[]){ b.in, b.out, b.err }, 3);
	CHECK_EQ(send_exited(&n, 1, 9), 0);
	settle(&n);
	CHECK_EQ(n.r, 0);
	CHECK(next_frame(n.agent, &f, fds) == FRAME_EXEC && f.id == 1);
	fd_close_many(fds, f.nfds);
	CHECK_EQ(next_frame(n.api, &f, fds), FRAME_READY);
	CHECK(next_frame(n.api, &f, fds) == FRAME_UP);
	CHECK_EQ(next_frame(n.api, &f, fds), 0);
	exec_close(&a);
	old_close(&w);
	world_close(&n);
}

TEST(a_machine_that_stood_still_goes_on_as_if_nothing_had_been)
{
	struct world w;
	struct exec a;
	uint32_t key;

	CHECK(world_open(&w));
	CHECK(start(&w, 1, 1, &a, &key));
	for (unsigned i = 0; i < 3; i++) {
		CHECK_EQ(carry_quiesce(&w.host), 0);
		CHECK_EQ(write(a.in, "in", 2), 2);
		if (i != 1) /* the second is given up before the guest has answered */
			settle(&w);
		CHECK_EQ(carry_quiet(&w.host), i != 1);
		CHECK(i == 1 || read(a.inside[0], &key, 0) == 0);
		CHECK_EQ(write(a.inside[1], "out", 3), 3);
		CHECK_EQ(carry_go_on(&w.host), 0);
		settle(&w);
		CHECK_EQ(w.r, 0);
		CHECK(text_at(a.inside[0], "in") && text_at(a.out, "out"));
	}
	exec_close(&a);
	world_close(&w);
}

TEST(a_state_that_was_changed_is_refused)
{
	AUTO_FREE uint8_t *state = NULL;
	struct world w, n;
	struct exec a;
	uint32_t key;
	size_t len;

	CHECK(world_open(&w));
	CHECK(start(&w, 1, 1, &a, &key));
	CHECK_EQ(carry_quiesce(&w.host), 0);
	settle(&w);
	CHECK_EQ(kept_save(w.kept, 1 << 20, &state, &len), 0);
	/* Any byte, any length: no harm is done, and what is cut is never taken. */
	for (size_t i = 0; i < len + 4; i++) {
		n = (struct world){ 0 };
		CHECK(host_open(&n));
		if (i < len)
			state[i] ^= 0xff;
		kept_load(n.kept, state, len);
		kept_free(n.kept);
		carry_done(&n.host);
		fd_close_many(n.port, 2);
		if (i < len)
			state[i] ^= 0xff;
		n = (struct world){ 0 };
		CHECK(host_open(&n));
		CHECK_EQ(kept_load(n.kept, state, i < len ? i : len), i < len ? -EBADMSG : 0);
		kept_free(n.kept);
		carry_done(&n.host);
		fd_close_many(n.port, 2);
	}
	exec_close(&a);
	world_close(&w);
}

static int answer(void *arg, const struct mux *m)
{
	static const uint8_t stat[MUX_STAT_LEN];

	return m->type == MUX_ASK ? carry_say(arg, MUX_STAT, 0, stat, sizeof(stat)) : 0;
}

TEST(a_guest_that_says_nothing_while_something_runs_is_lost_and_one_that_answers_is_not)
{
	struct world w;
	struct exec a;
	uint32_t key;

	CHECK(world_open(&w));
	w.host.lost_ns = 120000000;
	for (unsigned i = 0; i < 30 && !w.r; i++) /* nothing runs, so no answer is due */
		w.r = carry_turn(&w.host, NULL, 0, 10);
	CHECK_EQ(w.r, 0);
	CHECK(start(&w, 1, 1, &a, &key));
	w.guest.other = answer;
	w.guest.arg = &w.guest;
	for (unsigned i = 0; i < 40 && !w.r; i++) {
		w.r = carry_turn(&w.host, NULL, 0, 10);
		w.r = w.r ? w.r : carry_turn(&w.guest, NULL, 0, 0);
	}
	CHECK_EQ(w.r, 0);
	for (unsigned i = 0; i < 2000 && !w.r; i++)
		w.r = carry_turn(&w.host, NULL, 0, -1);
	CHECK_EQ(w.r, -ETIMEDOUT);
	exec_close(&a);
	world_close(&w);
}
