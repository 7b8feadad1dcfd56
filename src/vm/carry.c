#include "vm/carry.h"
#include "base/base.h"
#include "base/sys.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

#define IN_SIZE (2 * (MUX_HEAD + MUX_PAYLOAD_MAX))
#define SIZES_MS 100 /* how often a terminal's size is looked at */

static void frames_free(struct carry_frames *f)
{
	fd_close_many(f->fds, f->nfds);
	free(f->data);
}

int carry_init(struct carry *c, enum carry_side side, int port, int ctl, uint32_t epoch)
{
	*c = (struct carry){ .side = side, .port = port, .ctl = ctl, .epoch = epoch, .uid = UINT32_MAX, .gid = UINT32_MAX };
	c->chan = calloc(MUX_CHANNELS, sizeof(*c->chan));
	c->in = malloc(IN_SIZE);
	c->out = malloc(CARRY_OUT);
	c->from.data = malloc(CARRY_FRAME);
	c->to.data = malloc(CARRY_FRAME + MUX_WINDOW);
	if (!c->chan || !c->in || !c->out || !c->from.data || !c->to.data) {
		carry_done(c);
		return -ENOMEM;
	}
	for (uint32_t n = 0; n < MUX_CHANNELS; n++)
		c->chan[n].fd = -1;
	c->chan[0] = (struct chan){ .used = true, .fd = -1, .credit = MUX_WINDOW, .window = MUX_WINDOW };
	return 0;
}

void carry_done(struct carry *c)
{
	for (uint32_t n = 0; c->chan && n < MUX_CHANNELS; n++)
		chan_free(&c->chan[n]);
	frames_free(&c->from);
	frames_free(&c->to);
	free(c->chan);
	free(c->in);
	free(c->out);
	*c = (struct carry){ .port = -1, .ctl = -1 };
}

bool carry_flushed(const struct carry *c)
{
	return c->out_at == c->out_len;
}

size_t carry_room(const struct carry *c)
{
	size_t used = c->out_len - c->out_at, max = CARRY_OUT - CARRY_SPARE;

	return used < max ? max - used : 0;
}

int carry_say(struct carry *c, enum mux_type type, uint32_t channel, const void *payload, size_t len)
{
	if (c->out_at) {
		memmove(c->out, c->out + c->out_at, c->out_len - c->out_at);
		c->out_len -= c->out_at;
		c->out_at = 0;
	}
	if (len > MUX_PAYLOAD_MAX || CARRY_OUT - c->out_len < MUX_HEAD + len)
		return -ENOBUFS;
	mux_head(c->out + c->out_len, type, c->epoch, channel, (uint32_t)len);
	if (len)
		memcpy(c->out + c->out_len + MUX_HEAD, payload, len);
	c->out_len += MUX_HEAD + len;
	return 0;
}

static int flush_port(struct carry *c)
{
	while (c->out_at < c->out_len) {
		ssize_t n = sys_write(c->port, c->out + c->out_at, c->out_len - c->out_at);

		if (n == -EAGAIN || n == -EINTR)
			return 0;
		if (n <= 0)
			return -EPIPE;
		c->out_at += (size_t)n;
	}
	c->out_at = c->out_len = 0;
	return 0;
}

/* Starts the wait of an EXITED. How many bytes it is for. */
static uint64_t due(struct carry *c, uint32_t exec)
{
	uint64_t sum = 0;

	for (uint32_t n = 1; n < MUX_CHANNELS; n++) {
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

	for (uint32_t n = 1; n < MUX_CHANNELS; n++)
		if (c->chan[n].used && c->chan[n].exec == exec)
			sum += c->chan[n].due;
	return sum;
}

/* 1: the frame waits for its exec's output, and is put aside. */
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

/* Control bytes into the port, as far as the other end has room for. */
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
		r = say_control(c, h->data, h->len);
		if (r < 0)
			return r;
		*h = c->held[--c->nheld];
	}
	return 0;
}

/* Whole frames from ->ctl into the port; descriptors become channels. */
static int pass_to_port(struct carry *c)
{
	struct carry_frames *in = &c->from;
	int r = c->from_said || c->side == CARRY_HOST ? 0 : release_to_port(c);

	while (r == 0) {
		struct frame f;
		long n = frame_decode(in->data, in->len, &f);
		size_t rest, room;

		if (n == 0)
			return 0;
		if (n < 0 || f.nfds > in->nfds)
			return -EBADMSG;
		if (!c->from_said) {
			r = c->side == CARRY_HOST ? 0 : hold(c, &f, in->data, (size_t)n);
			if (r == 1) {
				frames_drop(in, (size_t)n, 0);
				r = 0;
				continue;
			}
			if (r == 0 && !control_room(c))
				return 0;
			for (size_t i = 0; r == 0 && i < f.nfds; i++)
				r = chan_open_local(c, TAKE_FD(in->fds[i]), f.id);
			if (r < 0)
				return r;
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
		frames_drop(in, (size_t)n, f.nfds);
	}
	return r;
}

static int read_ctl(struct carry *c)
{
	struct carry_frames *in = &c->from;
	size_t got = 0;
	ssize_t n;

	if (in->len == CARRY_FRAME)
		return 0;
	n = fd_recv(c->ctl, in->data + in->len, CARRY_FRAME - in->len, in->fds + in->nfds, CARRY_FDS - in->nfds, &got);
	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n <= 0)
		return -ECONNRESET;
	in->len += (size_t)n;
	in->nfds += got;
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

/* 1: it did not fit now. */
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
		r = fd_send_now(c->ctl, h->data, h->len, NULL, 0);
		if (r == -EAGAIN)
			return 1;
		if (r < 0)
			return -ECONNRESET;
		*h = c->held[--c->nheld];
	}
	return 0;
}

/* Whole frames to ->ctl, each with its descriptors. 1: there is no room. */
static int pass_to_ctl(struct carry *c)
{
	struct carry_frames *out = &c->to;
	int r = 0;

	if (c->side == CARRY_HOST && !c->to_sent)
		r = release_to_ctl(c);
	while (r == 0 && c->ctl >= 0) {
		struct frame f;
		long n = frame_decode(out->data, out->len, &f);

		if (n == 0)
			return 0;
		if (n < 0 || f.nfds > out->nfds)
			return -EBADMSG;
		if (!c->to_sent) {
			for (size_t i = 0; i < f.nfds; i++)
				if (out->chan[i])
					c->chan[out->chan[i]].exec = f.id;
			r = c->side == CARRY_HOST ? hold(c, &f, out->data, (size_t)n) : 0;
		}
		if (r == 0)
			r = send_ctl(c, out->data, (size_t)n, out->fds, f.nfds);
		else if (r == 1)
			r = 0;
		if (r == 0) {
			fd_close_many(out->fds, f.nfds);
			frames_drop(out, (size_t)n, f.nfds);
		}
	}
	return r;
}

/* What was read of it gives room again, unless a whole frame waits to be taken. */
static int credit_control(struct carry *c)
{
	struct chan *x = &c->chan[0];
	struct frame f;
	uint8_t out[4];

	if (!x->owed || frame_decode(c->to.data, c->to.len, &f) != 0)
		return 0;
	for (unsigned i = 0; i < 4; i++)
		out[i] = (uint8_t)(x->owed >> (8 * i));
	x->window += x->owed;
	x->owed = 0;
	return carry_say(c, MUX_CREDIT, 0, out, sizeof(out));
}

static int take_control(struct carry *c, const struct mux *m)
{
	struct chan *x = &c->chan[0];
	uint32_t n;
	int r;

	if (m->type == MUX_CREDIT) {
		n = m->len == 4 ? (uint32_t)m->payload[0] | (uint32_t)m->payload[1] << 8 | (uint32_t)m->payload[2] << 16 |
					  (uint32_t)m->payload[3] << 24 : 0;
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

static int take_open(struct carry *c, const struct mux *m)
{
	struct carry_frames *out = &c->to;
	int r;

	if (out->nfds == CARRY_FDS)
		return -EBADMSG;
	r = chan_open_remote(c, m, &out->fds[out->nfds]);
	if (r == 0)
		out->chan[out->nfds++] = m->channel;
	return r;
}

static int take(struct carry *c, const struct mux *m)
{
	if (m->epoch != c->epoch)
		return 0;
	switch ((enum mux_type)m->type) {
	case MUX_OPEN:
		return take_open(c, m);
	case MUX_HELLO:
	case MUX_START:
	case MUX_ASK:
	case MUX_STAT:
	case MUX_FAILED:
	case MUX_GROUP:
		return c->other ? c->other(c->arg, m) : 0;
	case MUX_QUIESCE:
	case MUX_QUIET:
	case MUX_GO_ON:
	case MUX_RESUME:
	case MUX_RESUMED:
		return -EBADMSG;
	case MUX_RESET:
	case MUX_DATA:
	case MUX_CREDIT:
	case MUX_END:
	case MUX_STOP:
	case MUX_CLOSED:
	case MUX_SIZE:
		break;
	}
	return m->channel ? chan_message(c, m) : take_control(c, m);
}

static int read_port(struct carry *c)
{
	ssize_t n = sys_read(c->port, c->in + c->in_len, IN_SIZE - c->in_len);
	size_t at = 0;
	int r = 0;

	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n <= 0)
		return -EPIPE;
	c->in_len += (size_t)n;
	while (r == 0 && at < c->in_len) {
		struct mux m;
		long len = mux_decode(c->in + at, c->in_len - at, &m);

		if (len == 0)
			break;
		if (len < 0) {
			at += mux_skip(c->in + at, c->in_len - at);
			continue;
		}
		r = take(c, &m);
		at += (size_t)len;
	}
	c->in_len -= at;
	memmove(c->in, c->in + at, c->in_len);
	return r;
}

static int serve_chans(struct carry *c, const struct pollfd *p, const uint32_t *which, size_t n)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		if (p[i].revents && c->chan[which[i]].used)
			r = chan_serve(c, which[i], p[i].revents);
	return r;
}

int carry_turn(struct carry *c, struct pollfd *extra, size_t nextra, int ms)
{
	struct pollfd p[2 + 8 + MUX_CHANNELS];
	uint32_t which[MUX_CHANNELS];
	size_t n = 2 + nextra, chans = 0;
	bool waiting, full;
	int r = pass_to_ctl(c);

	assert(nextra <= 8);
	waiting = r == 1;
	if (r == 0)
		r = credit_control(c);
	r = r < 0 ? r : pass_to_port(c);
	if (r < 0)
		return r;
	if (chan_sizes(c) && (ms < 0 || ms > SIZES_MS))
		ms = SIZES_MS;
	p[0] = (struct pollfd){ .fd = c->port, .events = (short)(POLLIN | (carry_flushed(c) ? 0 : POLLOUT)) };
	/* Frames that have to wait are enough; one who hangs up meanwhile is heard of after them. */
	full = c->from.len == CARRY_FRAME || c->from.nfds > CARRY_FDS / 2;
	p[1] = (struct pollfd){ .fd = full && !waiting ? -1 : c->ctl,
				.events = (short)((full ? 0 : POLLIN) | (waiting ? POLLOUT : 0)) };
	if (nextra)
		memcpy(p + 2, extra, nextra * sizeof(*extra));
	for (uint32_t i = 1; i < MUX_CHANNELS; i++) {
		short events;

		if (!c->chan[i].used || !chan_poll(c, &c->chan[i], &events))
			continue;
		which[chans++] = i;
		p[n++] = (struct pollfd){ .fd = c->chan[i].fd, .events = events };
	}
	if (poll(p, n, ms) < 0)
		return errno == EINTR ? 0 : -errno;
	if (nextra)
		memcpy(extra, p + 2, nextra * sizeof(*extra));
	r = serve_chans(c, p + 2 + nextra, which, chans);
	if (r == 0 && p[0].revents & (POLLIN | POLLHUP | POLLERR))
		r = read_port(c);
	if (r == 0 && p[1].revents & (POLLIN | POLLHUP | POLLERR))
		r = read_ctl(c);
	if (r == 0)
		r = pass_to_port(c);
	return r < 0 ? r : flush_port(c);
}
