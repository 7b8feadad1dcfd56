/* Answers a warden as an agent with KEEP does. */
#include "base/base.h"
#include "base/sys.h"
#include "vm/vmm/kept_impl.h"

#include <sys/mman.h>
#include <unistd.h>

#define NO_SYNC (KEPT_EXECS + 1)
#define GROUPS_MAX 4096U

struct kept_exec *kept_find(struct kept *k, uint32_t id)
{
	for (size_t i = 0; i < k->top; i++)
		if (k->exec[i].used && k->exec[i].id == id)
			return &k->exec[i];
	return NULL;
}

struct kept_exec *kept_place(struct kept *k)
{
	for (size_t i = 0; i < k->top; i++)
		if (!k->exec[i].used)
			return &k->exec[i];
	return k->top < KEPT_EXECS ? &k->exec[k->top++] : NULL;
}

void kept_drop(struct kept *k, struct kept_exec *x)
{
	fd_close_many(x->fds, ARRAY_LEN(x->fds));
	k->running -= !x->ended;
	k->dropped -= x->dropped;
	k->ttys -= x->tty && !x->ended;
	x->used = false;
}

static void end(struct kept *k, struct kept_exec *x)
{
	k->running--;
	k->ttys -= x->tty;
	x->ended = true;
	if (!x->keep)
		kept_drop(k, x);
}

static int fail(struct kept *k, uint32_t id, enum frame_stage stage, int r)
{
	if (k->nfail == KEPT_FAILS)
		return CARRY_LATER;
	k->fail[k->nfail].id = id;
	k->fail[k->nfail].stage = stage;
	k->fail[k->nfail++].errnum = (uint32_t)-r;
	return CARRY_TAKEN;
}

int kept_add_group(struct kept *k, uint32_t number, uint32_t key)
{
	struct kept_group *more;

	for (size_t i = 0; i < k->ngroup; i++)
		if (k->group[i].number == number) {
			k->group[i].key = key;
			return 0;
		}
	if (k->ngroup == GROUPS_MAX)
		return -ENOSPC;
	more = realloc(k->group, (k->ngroup + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	k->group = more;
	k->group[k->ngroup++] = (struct kept_group){ number, key };
	return 0;
}

/* Replaces the descriptor of an exec group: the host's contains its number, the guest's its key. */
static int change_group(struct kept *k, int *fd, uint32_t *ret_key)
{
	AUTO_CLOSE int new = -1;
	uint8_t data[4];
	uint32_t key = k->last_key + 1;
	int r;

	if (pread(*fd, data, sizeof(data), 0) != (ssize_t)sizeof(data))
		return -EBADF;
	for (size_t i = 0; i < k->ngroup; i++)
		if (k->group[i].number == mux_u32(data))
			key = k->group[i].key; /* the group has another exec already */
	new = sys_memfd_create("group", MFD_CLOEXEC);
	r = new < 0 ? new : kept_add_group(k, mux_u32(data), key);
	mux_put_u32(data, key);
	if (r == 0)
		r = fd_write_all(new, data, sizeof(data));
	if (r < 0)
		return r;
	k->last_key = key > k->last_key ? key : k->last_key;
	fd_close(*fd);
	*fd = TAKE_FD(new);
	*ret_key = key;
	return 0;
}

/* Whether all descriptors can be carried. If not, the exec fails, not the machine. */
static int look_at(const int *fds, size_t n)
{
	enum mux_kind kind;
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = chan_kind(fds[i], &kind);
	return r;
}

static int serve_exec(struct kept *k, struct carry_frame *cf)
{
	struct frame_exec_fds at;
	struct kept_exec *x = NULL;
	struct frame_exec f;
	uint32_t key = 0;
	int r;

	if (frame_exec_decode(&cf->f, &f) < 0)
		return fail(k, cf->f.id, FRAME_STAGE_PROTOCOL, -EBADMSG);
	if (kept_find(k, cf->f.id))
		return fail(k, cf->f.id, FRAME_STAGE_PROTOCOL, -EEXIST);
	if (k->nfail == KEPT_FAILS)
		return CARRY_LATER;
	at = frame_exec_fds(f.flags);
	if (chan_numbers(k->c) < at.n || (f.flags & FRAME_EXEC_TTY && k->ttys >= KEPT_TTYS) || !(x = kept_place(k)))
		return fail(k, cf->f.id, FRAME_STAGE_LIMIT, -EAGAIN);
	r = look_at(cf->fds, at.n);
	if (r < 0)
		return fail(k, cf->f.id, FRAME_STAGE_STDIO, r);
	r = at.group < 0 ? 0 : change_group(k, &cf->fds[at.group], &key);
	if (r < 0)
		return fail(k, cf->f.id, FRAME_STAGE_GROUP, r);
	*x = (struct kept_exec){
		.used = true,
		.keep = f.flags & FRAME_EXEC_KEEP,
		.tty = f.flags & FRAME_EXEC_TTY,
		.with_stdin = f.flags & FRAME_EXEC_STDIN,
		.id = cf->f.id,
		.conn = k->conn,
		.group = key,
		.fds = { -1, -1, -1 },
	};
	k->running++;
	k->ttys += x->tty;
	if (at.out >= 0) {
		x->fds[0] = TAKE_FD(cf->fds[at.out]);
		x->fds[1] = TAKE_FD(cf->fds[at.err]);
		at.n -= 2;
	}
	if (at.in >= 0) {
		x->fds[2] = TAKE_FD(cf->fds[at.in]);
		at.n--;
	}
	/* The guest's agent gets no KEEP: this process keeps execs in its place. */
	mux_put_u32(cf->data + FRAME_HEAD, f.flags & ~(FRAME_EXEC_KEEP | FRAME_EXEC_STDIN));
	frame_head(cf->data, FRAME_EXEC, (uint8_t)at.n, cf->f.id, cf->f.len);
	return 0;
}

static int release(struct kept *k, uint32_t id)
{
	struct kept_exec *x = kept_find(k, id);

	if (!x || !x->keep)
		return CARRY_TAKEN;
	/* A running exec continues without KEEP. */
	fd_close_many(x->fds, ARRAY_LEN(x->fds));
	x->keep = false;
	if (x->ended)
		kept_drop(k, x);
	return CARRY_TAKEN;
}

/*
 * The host identifies a connection by its own port, the guest by its channel. For one that is gone, the pipe just
 * ends.
 */
static int serve_who(struct kept *k, struct carry_frame *cf)
{
	uint32_t port, n;

	if (cf->f.len != 4 || cf->f.nfds != 1)
		return -EBADMSG;
	port = mux_u32(cf->f.payload);
	n = port && port <= UINT16_MAX ? chan_at_port(k->c, (uint16_t)port) : 0;
	if (!n || !chan_numbers(k->c))
		return CARRY_TAKEN;
	mux_put_u32(cf->data + FRAME_HEAD, n);
	return 0;
}

/* Handles a frame of the host. */
static int from_host(void *arg, struct carry_frame *cf)
{
	struct kept *k = arg;
	struct kept_exec *x;

	/* Ids of execs start anew, so all earlier execs must have ended. */
	if (!k->up || k->dropped)
		return CARRY_LATER;
	switch ((enum frame_type)cf->f.type) {
	case FRAME_EXEC:
		return serve_exec(k, cf);
	case FRAME_CONNECT:
	case FRAME_CHANGES:
		/* the frame is dropped, and its sockets are closed without an answer */
		return chan_numbers(k->c) < cf->f.nfds ? CARRY_TAKEN : 0;
	case FRAME_WHO:
		return serve_who(k, cf);
	case FRAME_FILES:
		return chan_numbers(k->c) < cf->f.nfds ? fail(k, cf->f.id, FRAME_STAGE_LIMIT, -EAGAIN) : 0;
	case FRAME_SIGNAL:
	case FRAME_PING:
	case FRAME_WARM:
		return cf->f.nfds ? -EBADMSG : 0;
	case FRAME_RELEASE:
		return release(k, cf->f.id);
	case FRAME_CLOSE_STDIN:
		x = kept_find(k, cf->f.id);
		if (x && x->keep && !x->tty)
			fd_close(TAKE_FD(x->fds[2]));
		return CARRY_TAKEN;
	case FRAME_SYNC:
		k->sync = 0;
		return CARRY_TAKEN;
	case FRAME_SETUP:
	case FRAME_MOUNTS:
	case FRAME_KEEP:
	case FRAME_RESTORE:
	case FRAME_READY:
	case FRAME_UP:
	case FRAME_STARTED:
	case FRAME_EXITED:
	case FRAME_FAILED:
	case FRAME_PONG:
	case FRAME_HELD:
	case FRAME_SYNCED:
	case FRAME_RESTORED:
		break;
	}
	return -EBADMSG; /* as an agent does: the other end is not our host */
}

static int on_ready(struct kept *k, const struct frame *f)
{
	if (f->nfds || k->up)
		return -EBADMSG;
	if (f->type == FRAME_UP) {
		if (!k->ready)
			return -EBADMSG;
		k->up = true;
		return CARRY_TAKEN;
	}
	if (k->ready || f->len != 8)
		return -EBADMSG;
	k->landlock = mux_u32(f->payload + 4);
	k->ready = true;
	return CARRY_TAKEN;
}

static int on_started(struct kept *k, const struct carry_frame *cf)
{
	struct kept_exec *x = kept_find(k, cf->f.id);
	bool late;

	if (!x || !x->tty || x->ended || x->fds[0] >= 0 || cf->f.nfds != 1)
		return -EBADMSG;
	if (x->dropped)
		return CARRY_TAKEN;
	if (!x->keep)
		return 0;
	/* A client that attached after the request learns of the exec by SYNC. */
	late = x->conn != k->conn;
	x->fds[0] = sys_fcntl(cf->fds[0], F_DUPFD_CLOEXEC, 0);
	return x->fds[0] < 0 ? x->fds[0] : late ? CARRY_TAKEN : 0;
}

static int on_exited(struct kept *k, const struct frame *f)
{
	struct kept_exec *x = kept_find(k, f->id);
	bool dropped = x && x->dropped;

	if (!x || x->ended || f->nfds || frame_exited_decode(f, &x->exited) < 0)
		return -EBADMSG;
	end(k, x);
	return dropped ? CARRY_TAKEN : 0;
}

static int on_failed(struct kept *k, const struct frame *f)
{
	struct kept_exec *x = f->id ? kept_find(k, f->id) : NULL;
	struct frame_failed why;

	if (f->nfds || frame_failed_decode(f, &why) < 0)
		return -EBADMSG;
	if (!k->up && !f->id) {
		k->failed = (struct frame_failed){ .stage = why.stage, .errnum = why.errnum ? why.errnum : EIO };
		return CARRY_TAKEN;
	}
	if (x && x->ended)
		return -EBADMSG;
	if (x)
		kept_drop(k, x);
	return 0;
}

/* Handles a frame of the guest's agent, which is hostile. */
static int from_guest(void *arg, struct carry_frame *cf)
{
	struct kept *k = arg;

	switch ((enum frame_type)cf->f.type) {
	case FRAME_READY:
	case FRAME_UP:
		return on_ready(k, &cf->f);
	case FRAME_STARTED:
		return on_started(k, cf);
	case FRAME_EXITED:
		return on_exited(k, &cf->f);
	case FRAME_FAILED:
		return on_failed(k, &cf->f);
	case FRAME_PONG:
	case FRAME_WARM:
		return cf->f.nfds ? -EBADMSG : 0;
	case FRAME_SETUP:
	case FRAME_EXEC:
	case FRAME_SIGNAL:
	case FRAME_PING:
	case FRAME_MOUNTS:
	case FRAME_KEEP:
	case FRAME_RELEASE:
	case FRAME_CLOSE_STDIN:
	case FRAME_SYNC:
	case FRAME_FILES:
	case FRAME_CONNECT:
	case FRAME_CHANGES:
	case FRAME_WHO:
	case FRAME_RESTORE:
	case FRAME_HELD:
	case FRAME_SYNCED:
	case FRAME_RESTORED:
		break;
	}
	return -EBADMSG;
}

/* 1: there is no room. */
static int tell(struct kept *k, enum frame_type type, uint32_t id, const void *payload, size_t len, const int *fds,
		size_t nfds)
{
	uint8_t out[FRAME_HEAD + 64];
	int r;

	assert(len <= sizeof(out) - FRAME_HEAD);
	frame_head(out, type, (uint8_t)nfds, id, (uint32_t)len);
	if (len)
		memcpy(out + FRAME_HEAD, payload, len);
	r = fd_send_now(k->c->ctl, out, FRAME_HEAD + len, fds, nfds);
	return r == -EAGAIN ? 1 : r < 0 ? -ECONNRESET : 0;
}

static int tell_up(struct kept *k)
{
	uint8_t out[8];
	int r = 0;

	mux_put_u32(out, FRAME_VERSION);
	mux_put_u32(out + 4, k->landlock);
	if (k->tell_ready)
		r = tell(k, FRAME_READY, 0, out, 8, NULL, 0);
	if (r)
		return r;
	k->tell_ready = false;
	mux_put_u32(out, k->restored);
	if (k->tell_up)
		r = tell(k, FRAME_UP, 0, out, k->restored ? 4 : 0, NULL, 0);
	if (r)
		return r;
	k->tell_up = false;
	return 0;
}

static int tell_failed(struct kept *k)
{
	while (k->nfail) {
		const struct frame_failed f = { .stage = k->fail[0].stage, .errnum = k->fail[0].errnum };
		uint8_t out[16];
		long n = frame_failed_encode(&f, out, sizeof(out));
		int r = tell(k, FRAME_FAILED, k->fail[0].id, out, (size_t)n, NULL, 0);

		if (r)
			return r;
		memmove(k->fail, k->fail + 1, --k->nfail * sizeof(k->fail[0]));
	}
	return 0;
}

static int tell_held(struct kept *k)
{
	for (; k->sync < k->top; k->sync++) {
		const struct kept_exec *x = &k->exec[k->sync];
		struct frame_held h = {
			.flags = (x->ended ? FRAME_HELD_ENDED : 0) | (x->tty ? FRAME_HELD_TTY : 0) |
				 (x->fds[2] >= 0 ? FRAME_HELD_STDIN : 0),
			.exited = x->exited,
		};
		uint8_t out[48];
		long n = frame_held_encode(&h, out, sizeof(out));
		int r;

		if (!x->used || !x->keep)
			continue;
		if (x->fds[0] < 0)
			return 0; /* its terminal is not there yet */
		r = tell(k, FRAME_HELD, x->id, out, (size_t)n, x->fds, x->tty ? 1 : x->fds[2] >= 0 ? 3 : 2);
		if (r)
			return r;
	}
	if (k->sync != NO_SYNC) {
		int r = tell(k, FRAME_SYNCED, 0, NULL, 0, NULL, 0);

		if (r)
			return r;
	}
	k->sync = NO_SYNC;
	return 0;
}

static int own(void *arg)
{
	struct kept *k = arg;
	int r = k->up ? tell_up(k) : 0;

	if (r == 0)
		r = tell_failed(k);
	return r == 0 && k->sync <= KEPT_EXECS ? tell_held(k) : r;
}

static bool busy(void *arg)
{
	const struct kept *k = arg;

	return k->up && (k->running || k->c->from.len);
}

int kept_new(struct carry *c, struct kept **ret)
{
	struct kept *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	k->c = c;
	k->sync = NO_SYNC;
	c->hooks = (struct carry_hooks){ .from_ctl = from_host, .to_ctl = from_guest, .own = own, .busy = busy };
	c->hook_arg = k;
	*ret = k;
	return 0;
}

void kept_free(struct kept *k)
{
	if (!k)
		return;
	for (size_t i = 0; i < k->top; i++)
		if (k->exec[i].used)
			fd_close_many(k->exec[i].fds, ARRAY_LEN(k->exec[i].fds));
	k->c->hooks = (struct carry_hooks){ 0 };
	fd_close(k->c->ctl);
	k->c->ctl = -1;
	free(k->group);
	free(k);
}

int kept_up(const struct kept *k, struct err *e)
{
	if (k->failed.errnum)
		return err_sys(e, ERR_INTERNAL, -(int)k->failed.errnum, "the sandbox in the virtual machine: %s",
			       frame_stage_text(k->failed.stage));
	return k->up;
}

uint32_t kept_landlock(const struct kept *k)
{
	return k->landlock;
}

int kept_attach(struct kept *k, int sock, uint32_t restored)
{
	int r = fd_set_nonblock(sock);

	if (r < 0) {
		fd_close(sock);
		return r;
	}
	if (k->c->ctl >= 0) {
		r = read_ctl_rest(k->c); /* what the client sent last is still served */
		if (r < 0 && r != -ECONNRESET) {
			fd_close(sock);
			return r;
		}
		carry_hang_up(k->c);
	}
	k->c->ctl = sock;
	k->conn++;
	k->tell_ready = k->tell_up = true;
	k->restored = restored;
	k->sync = NO_SYNC;
	k->nfail = 0;
	return 0;
}

int kept_group(struct kept *k, uint32_t number, enum mux_group what)
{
	uint8_t out[8];

	for (size_t i = 0; i < k->ngroup; i++) {
		if (k->group[i].number != number)
			continue;
		mux_put_u32(out, k->group[i].key);
		mux_put_u32(out + 4, what);
		if (what == MUX_GROUP_END)
			k->group[i] = k->group[--k->ngroup];
		return carry_say(k->c, MUX_GROUP, 0, out, sizeof(out));
	}
	return 0;
}
