/* Whole frames between ->ctl and the port. */
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "vm/vmm/carry.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

#define SMALL 8192U /* frames up to this size are sent in one piece */
#define SETTLE_ID 0xfff00000U /* first id of our PINGs, which no exec has */
#define SETTLE_LOOK_MS 100

static int show(struct carry *c, int (*hook)(void *arg, struct carry_frame *f), uint8_t *data, size_t len, int *fds,
		const uint32_t *chan)
{
	struct carry_frame x = { .data = data, .fds = fds, .chan = chan };

	if (!hook)
		return 0;
	return frame_decode(data, len, &x.f) <= 0 ? -EBADMSG : hook(c->hook_arg, &x);
}

/* Makes an EXITED wait for the output of its exec. Returns the number of bytes to wait for. */
static uint64_t due(struct carry *c, uint32_t exec)
{
	uint64_t sum = 0;

	for (uint32_t n = 1; n < c->top; n++) {
		struct chan *x = &c->chan[n];
		int waiting = 0;

		if (!x->used || x->exec != exec || x->fd < 0)
			continue;
		if (c->side == CARRY_HOST)
			x->due = x->takes ? x->len - x->at : 0;
		else if (x->sends && !x->end_sent && ioctl(x->fd, FIONREAD, &waiting) == 0 && waiting > 0)
			x->due = (uint64_t)waiting;
		sum += x->due;
	}
	return sum;
}

static uint64_t still_due(const struct carry *c, uint32_t exec)
{
	uint64_t sum = 0;

	for (uint32_t n = 1; n < c->top; n++)
		if (c->chan[n].used && c->chan[n].exec == exec)
			sum += c->chan[n].due;
	return sum;
}

/* Holds back an EXITED frame until its exec's output is written. 1: it was put aside. */
static int hold(struct carry *c, const struct frame *f, const uint8_t *data, size_t len)
{
	struct carry_held *h = &c->held[c->nheld];

	if (f->type != FRAME_EXITED || f->nfds || len > sizeof(h->data) || !due(c, f->id))
		return 0;
	if (c->nheld == CARRY_HELD)
		return -ENOBUFS;
	memcpy(h->data, data, len);
	h->len = len;
	h->exec = f->id;
	c->nheld++;
	return 1;
}

/* How many bytes of the control stream the other end has room for. */
static size_t control_room(const struct carry *c)
{
	size_t room = carry_room(c), credit = c->chan[0].credit;

	room = room < MUX_HEAD ? 0 : room - MUX_HEAD;
	return credit < room ? credit : room;
}

static int say_control(struct carry *c, const uint8_t *data, size_t len)
{
	for (size_t n; len; data += n, len -= n) {
		int r;

		n = len < MUX_DATA_MAX ? len : MUX_DATA_MAX;
		r = carry_say(c, MUX_DATA, 0, data, n);
		if (r < 0)
			return r;
		c->chan[0].credit -= (uint32_t)n;
	}
	return 0;
}

int carry_tell(struct carry *c, const uint8_t *frame, size_t len)
{
	/* Our frames are sent whole, and only when no other frame is partly sent. */
	return c->from_said || control_room(c) < len ? -ENOBUFS : say_control(c, frame, len);
}

static void frames_drop(struct carry_frames *f, size_t len, size_t nfds)
{
	f->len -= len;
	memmove(f->data, f->data + len, f->len);
	f->nfds -= nfds;
	memmove(f->fds, f->fds + nfds, f->nfds * sizeof(*f->fds));
	memmove(f->chan, f->chan + nfds, f->nfds * sizeof(*f->chan));
}

/* Released EXITED frames first: they came before what is behind them. */
static int release_to_port(struct carry *c)
{
	for (size_t i = 0; i < c->nheld;) {
		struct carry_held *h = &c->held[i];
		int r;

		if (still_due(c, h->exec) || control_room(c) < h->len) {
			i++;
			continue;
		}
		r = show(c, c->hooks.from_ctl, h->data, h->len, NULL, NULL);
		if (r >= 0)
			r = say_control(c, h->data, h->len);
		if (r < 0)
			return r;
		*h = c->held[--c->nheld];
	}
	return 0;
}

/*
 * The first step of a frame: its hook, and its descriptors. 0: its bytes can be sent now. CARRY_TAKEN, CARRY_LATER. A
 * guest's frames are small, and sent whole: so a machine is never stopped in the middle of one.
 */
static int begin_frame(struct carry *c, struct frame *f, size_t n)
{
	struct carry_frames *in = &c->from;
	const size_t nfds = f->nfds;
	int r = c->side == CARRY_HOST ? 0 : hold(c, f, in->data, n);

	if (r == 1) {
		frames_drop(in, n, 0);
		return CARRY_TAKEN;
	}
	if (r == 0 && (c->stop || control_room(c) < (c->side == CARRY_GUEST && n <= SMALL ? n : 1)))
		return CARRY_LATER;
	if (r == 0)
		r = show(c, c->hooks.from_ctl, in->data, n, in->fds, NULL);
	if (r < 0 || r == CARRY_LATER)
		return r;
	if (r == CARRY_TAKEN) {
		fd_close_many(in->fds, nfds);
		frames_drop(in, n, nfds);
		return r;
	}
	frame_decode(in->data, in->len, f); /* the hook may have taken some of its descriptors */
	for (size_t i = 0; r == 0 && i < f->nfds && i < nfds; i++)
		r = chan_open_local(c, TAKE_FD(in->fds[i]), f->id, (uint32_t)i);
	fd_close_many(in->fds, nfds);
	frames_drop(in, 0, nfds);
	return r;
}

/* Whole frames from ->ctl into the port; descriptors become channels. */
int pass_to_port(struct carry *c)
{
	struct carry_frames *in = &c->from;
	int r = c->from_said || c->side == CARRY_HOST ? 0 : release_to_port(c);

	while (r == 0) {
		struct frame f;
		long n = frame_decode(in->data, in->len, &f);
		size_t rest, room;

		if (n == 0)
			return 0;
		if (n < 0 || (!c->from_begun && f.nfds > in->nfds))
			return -EBADMSG;
		if (!c->from_begun) {
			r = begin_frame(c, &f, (size_t)n);
			if (r == CARRY_TAKEN) {
				r = 0;
				continue;
			}
			if (r)
				return r == CARRY_LATER ? 0 : r;
			c->from_begun = true;
		}
		room = control_room(c);
		rest = (size_t)n - c->from_said;
		rest = rest < room ? rest : room;
		if (!rest)
			return 0;
		r = say_control(c, in->data + c->from_said, rest);
		c->from_said += rest;
		if (r < 0 || c->from_said < (size_t)n)
			return r;
		c->from_said = 0;
		c->from_begun = false;
		frames_drop(in, (size_t)n, 0);
	}
	return r;
}

/* Drops an incomplete frame at the end, which was cut off, with its descriptors. */
static void cut_frames(struct carry *c)
{
	struct carry_frames *in = &c->from;
	size_t at = 0, nfds = 0;
	struct frame f;
	long n;

	while ((n = frame_decode(in->data + at, in->len - at, &f)) > 0) {
		nfds += at == 0 && c->from_begun ? 0 : f.nfds;
		if (nfds > in->nfds)
			break;
		at += (size_t)n;
	}
	in->len = at;
	if (nfds < in->nfds) {
		fd_close_many(in->fds + nfds, in->nfds - nfds);
		in->nfds = nfds;
	}
}

void carry_hang_up(struct carry *c)
{
	cut_frames(c);
	if (c->to_sent) {
		struct frame f;
		long n = frame_decode(c->to.data, c->to.len, &f);

		/* A part of it was sent; the rest would be an invalid frame to the next client. */
		assert(n > 0);
		fd_close_many(c->to.fds, f.nfds);
		frames_drop(&c->to, (size_t)n, f.nfds);
		c->to_sent = 0;
		c->to_seen = false;
	}
	fd_close(c->ctl);
	c->ctl = -1;
}

int read_ctl(struct carry *c)
{
	struct carry_frames *in = &c->from;
	size_t got = 0;
	ssize_t n;

	if (in->len == CARRY_FRAME)
		return 0;
	n = fd_recv(c->ctl, in->data + in->len, CARRY_FRAME - in->len, in->fds + in->nfds, CARRY_FDS - in->nfds, &got);
	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n <= 0 && c->keeps) {
		carry_hang_up(c);
		return 0;
	}
	if (n <= 0)
		return -ECONNRESET;
	in->len += (size_t)n;
	in->nfds += got;
	return 0;
}

int read_ctl_rest(struct carry *c)
{
	while (c->ctl >= 0 && c->from.nfds <= CARRY_FDS / 2) {
		const size_t had = c->from.len;
		int r = read_ctl(c);

		if (r < 0 || c->from.len <= had)
			return r;
		r = c->still ? 0 : pass_to_port(c);
		if (r < 0)
			return r;
	}
	return 0;
}

static ssize_t send_some(int sock, const void *data, size_t len, const int *fds, size_t nfds)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(FRAME_FDS_MAX * sizeof(int))];
	struct iovec iov = { (void *)(uintptr_t)data, len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (nfds) {
		struct cmsghdr *h;

		memset(control, 0, sizeof(control));
		m.msg_control = control;
		m.msg_controllen = (socklen_t)CMSG_SPACE(nfds * sizeof(int));
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = (socklen_t)CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(h), fds, nfds * sizeof(int));
	}
	return sys_sendmsg(sock, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Sends bytes and descriptors to ->ctl. 1: there is no room now. */
static int send_ctl(struct carry *c, const uint8_t *data, size_t len, const int *fds, size_t nfds)
{
	while (c->to_sent < len) {
		ssize_t n = send_some(c->ctl, data + c->to_sent, len - c->to_sent, fds, c->to_sent ? 0 : nfds);

		if (n == -EAGAIN || n == -EINTR)
			return 1;
		if (n <= 0)
			return -ECONNRESET;
		c->to_sent += (size_t)n;
	}
	c->to_sent = 0;
	return 0;
}

static int release_to_ctl(struct carry *c)
{
	for (size_t i = 0; i < c->nheld;) {
		struct carry_held *h = &c->held[i];
		int r;

		if (still_due(c, h->exec)) {
			i++;
			continue;
		}
		r = h->seen ? h->taken : show(c, c->hooks.to_ctl, h->data, h->len, NULL, NULL);
		if (r < 0)
			return r;
		h->seen = true;
		h->taken = r;
		r = h->taken || c->ctl < 0 ? 0 : fd_send_now(c->ctl, h->data, h->len, NULL, 0);
		if (r == -EAGAIN)
			return 1;
		if (r < 0)
			return -ECONNRESET;
		*h = c->held[--c->nheld];
	}
	return 0;
}

/* Calls the hook before a frame's bytes are sent. 0: send them; CARRY_TAKEN: drop them. */
static int see_frame(struct carry *c, const struct frame *f, size_t n)
{
	struct carry_frames *out = &c->to;
	int r;

	for (size_t i = 0; i < f->nfds; i++)
		if (out->chan[i])
			c->chan[out->chan[i]].exec = f->id;
	r = c->side == CARRY_HOST ? hold(c, f, out->data, n) : 0;
	if (r == 1)
		return CARRY_TAKEN;
	if (r == 0)
		r = show(c, c->hooks.to_ctl, out->data, n, out->fds, out->chan);
	return r == 0 && c->ctl < 0 ? CARRY_TAKEN : r;
}

/* Whole frames to ->ctl, each with its descriptors. 1: there is no room. */
static int frames_to_ctl(struct carry *c)
{
	struct carry_frames *out = &c->to;
	int r = 0;

	if (!c->to_sent && c->side == CARRY_HOST && (c->ctl >= 0 || c->hooks.to_ctl))
		r = release_to_ctl(c);
	if (r == 0 && !c->to_sent && c->ctl >= 0 && c->hooks.own)
		r = c->hooks.own(c->hook_arg);
	while (r == 0 && (c->ctl >= 0 || c->hooks.to_ctl)) {
		struct frame f;
		long n = frame_decode(out->data, out->len, &f);

		if (n == 0)
			return 0;
		if (n < 0 || f.nfds > out->nfds)
			return -EBADMSG;
		r = c->to_seen ? 0 : see_frame(c, &f, (size_t)n);
		if (r < 0)
			return r;
		c->to_seen = true;
		r = r == CARRY_TAKEN ? 0 : c->ctl < 0 ? 0 : send_ctl(c, out->data, (size_t)n, out->fds, f.nfds);
		if (r == 0) {
			c->to_seen = false;
			fd_close_many(out->fds, f.nfds);
			frames_drop(out, (size_t)n, f.nfds);
		}
	}
	return r;
}

int pass_to_ctl(struct carry *c)
{
	int r = frames_to_ctl(c);

	if (r == -ECONNRESET && c->keeps) {
		carry_hang_up(c);
		r = frames_to_ctl(c);
	}
	return r;
}

/* Gives the other end room for as many bytes as were read from the control stream, unless a whole frame waits. */
int credit_control(struct carry *c)
{
	struct chan *x = &c->chan[0];
	struct frame f;
	uint8_t out[4];

	if (!x->owed || frame_decode(c->to.data, c->to.len, &f) != 0)
		return 0;
	mux_put_u32(out, x->owed);
	x->window += x->owed;
	x->owed = 0;
	return carry_say(c, MUX_CREDIT, 0, out, sizeof(out));
}

int take_control(struct carry *c, const struct mux *m)
{
	struct chan *x = &c->chan[0];
	uint32_t n;
	int r;

	if (m->type == MUX_CREDIT) {
		n = m->len == 4 ? mux_u32(m->payload) : 0;
		if (!n || n > MUX_WINDOW - x->credit)
			return -EBADMSG;
		x->credit += n;
		return 0;
	}
	if (m->type != MUX_DATA || !m->len || m->len > x->window || c->to.len + m->len > CARRY_FRAME + MUX_WINDOW)
		return -EBADMSG;
	memcpy(c->to.data + c->to.len, m->payload, m->len);
	c->to.len += m->len;
	x->window -= m->len;
	x->owed += m->len;
	r = pass_to_ctl(c);
	return r < 0 ? r : credit_control(c);
}

/* Takes our PONG out of what ->ctl has sent; it has no descriptors. */
static bool found_pong(struct carry_frames *in, uint32_t id)
{
	size_t at = 0;
	struct frame f;
	long n;

	while ((n = frame_decode(in->data + at, in->len - at, &f)) > 0) {
		if (f.type == FRAME_PONG && f.id == id) {
			in->len -= (size_t)n;
			memmove(in->data + at, in->data + at + n, in->len - at);
			return true;
		}
		at += (size_t)n;
	}
	return false;
}

int carry_settle(struct carry *c, unsigned ms)
{
	const uint64_t until = clock_mono_ns() + ms * 1000000ULL;
	const uint32_t id = SETTLE_ID | (c->settles++ & 0xfffff);
	struct pollfd p = { .fd = c->ctl };
	uint8_t ping[FRAME_HEAD];
	bool asked = false;
	int r;

	frame_head(ping, FRAME_PING, 0, id, 0);
	for (;;) {
		r = pass_to_ctl(c);
		if (r == 0 && !asked) {
			r = fd_send_now(c->ctl, ping, sizeof(ping), NULL, 0);
			asked = r == 0;
			r = r == -EAGAIN ? 1 : r < 0 ? -ECONNRESET : 0;
		}
		if (r >= 0 && found_pong(&c->from, id))
			return 0;
		if (r >= 0 && clock_mono_ns() > until)
			r = -ETIMEDOUT;
		if (r >= 0 && (c->from.len == CARRY_FRAME || c->from.nfds > CARRY_FDS / 2))
			r = -ENOBUFS;
		if (r < 0)
			return r;
		p.events = (short)(POLLIN | (r == 1 ? POLLOUT : 0));
		if (poll(&p, 1, SETTLE_LOOK_MS) > 0 && p.revents & (POLLIN | POLLHUP | POLLERR))
			r = read_ctl(c);
		if (r < 0)
			return r;
	}
}
