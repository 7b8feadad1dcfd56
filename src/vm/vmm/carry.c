/* Carries an agent's frames and descriptors over a serial port. */
#include "vm/vmm/carry.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"

#define IN_SIZE (2 * (MUX_HEAD + MUX_PAYLOAD_MAX))
#define SKIP_MAX (8 * MUX_PAYLOAD_MAX)
#define SIZES_MS 100 /* how often a terminal's size is looked at */
#define EXTRA_MAX 8U
/*
 * A guest that sends nothing for this time, while something runs in it, is asked for an answer; without one it is lost.
 */
#define LOOK_MS 5000
#ifdef CLOCHE_FAULTS
#define LOST_NS 20000000000ULL /* shorter in test builds, since a test waits for it */
#else
#define LOST_NS 60000000000ULL
#endif

static void frames_free(struct carry_frames *f)
{
	fd_close_many(f->fds, f->nfds);
	free(f->data);
}

int carry_init(struct carry *c, enum carry_side side, int port, int ctl, uint32_t epoch)
{
	*c = (struct carry){
		.side = side, .port = port, .ctl = ctl, .epoch = epoch, .uid = UINT32_MAX, .gid = UINT32_MAX
	};
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
	c->top = 1;
	c->lost_ns = LOST_NS;
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
	return c->out_at >= (c->still ? c->out_stop : c->out_len);
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
		c->out_stop -= c->out_stop < c->out_at ? c->out_stop : c->out_at;
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
	const size_t end = c->still ? c->out_stop : c->out_len;

	while (c->out_at < end) {
		ssize_t n = sys_write(c->port, c->out + c->out_at, end - c->out_at);

		if (n == -EAGAIN || n == -EINTR)
			return 0;
		if (n <= 0)
			return -EPIPE;
		c->out_at += (size_t)n;
	}
	if (!c->still)
		c->out_at = c->out_len = 0;
	return 0;
}

static int take_open(struct carry *c, const struct mux *m)
{
	struct carry_frames *out = &c->to;
	int r, fd = -1;

	if (out->nfds == CARRY_FDS)
		return -EBADMSG;
	r = chan_open_remote(c, m, &fd);
	if (r < 0 || fd < 0)
		return r;
	out->fds[out->nfds] = fd;
	out->chan[out->nfds++] = m->channel;
	return 0;
}

static int take(struct carry *c, const struct mux *m)
{
	if (m->epoch != c->epoch && (m->type != MUX_RESUME || c->side == CARRY_HOST))
		return 0;
	/* A guest that has sent QUIET must not send more until it continues. */
	if (c->quiet || (c->still && c->side == CARRY_GUEST && m->type != MUX_GO_ON && m->type != MUX_RESUME))
		return -EBADMSG;
	switch ((enum mux_type)m->type) {
	case MUX_OPEN:
		return take_open(c, m);
	case MUX_HELLO:
	case MUX_START:
	case MUX_ASK:
	case MUX_STAT:
	case MUX_FAILED:
	case MUX_GROUP:
	case MUX_STEER:
		return c->other ? c->other(c->arg, m) : 0;
	case MUX_DENIED:
		return chan_denied(c, m);
	case MUX_QUIESCE:
	case MUX_QUIET:
	case MUX_GO_ON:
	case MUX_RESUME:
	case MUX_RESUMED:
		return still_take(c, m);
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

static int take_all(struct carry *c)
{
	size_t at = 0;
	int r = 0;

	while (r == 0 && at < c->in_len) {
		struct mux m;
		long len = mux_decode(c->in + at, c->in_len - at, &m);

		if (len == 0)
			break;
		if (len < 0) {
			size_t n = mux_skip(c->in + at, c->in_len - at);

			at += n;
			c->skipped += n;
			/* A checkpoint cuts off one or two messages, not more. */
			if (c->skipped > SKIP_MAX)
				r = -EBADMSG;
			continue;
		}
		c->skipped = 0;
		r = take(c, &m);
		at += (size_t)len;
	}
	c->in_len -= at;
	if (at)
		memmove(c->in, c->in + at, c->in_len);
	return r;
}

/* A guest's port gives a page at a time, so it is asked until the buffer is full; which has room for any message. */
static int read_port(struct carry *c)
{
	while (c->in_len < IN_SIZE) {
		ssize_t n = sys_read(c->port, c->in + c->in_len, IN_SIZE - c->in_len);

		if (n == -EAGAIN || n == -EINTR)
			break;
		if (n <= 0 && c->in_len) {
			int r = take_all(c);

			return r < 0 ? r : -EPIPE;
		}
		if (n <= 0)
			return -EPIPE;
		c->in_len += (size_t)n;
		c->heard = true;
	}
	return take_all(c);
}

static int serve_chans(struct carry *c, const struct pollfd *p, const uint32_t *which, size_t n)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		if (p[i].revents && c->chan[which[i]].used)
			r = chan_serve(c, which[i], p[i].revents);
	return r;
}

/*
 * Returns how long to wait, or -ETIMEDOUT: the guest does not answer. Time in which this process itself did not run
 * does not count.
 */
static int look_alive(struct carry *c, int ms)
{
	const uint8_t ask[4] = { MUX_ASK_STAT };
	uint64_t now = clock_mono_ns(), gone = now - c->looked_ns;
	int most;

	if (c->side == CARRY_GUEST || c->still || !c->hooks.busy)
		return ms;
	if (gone > 2 * LOOK_MS * 1000000ULL && c->asked_ns)
		c->asked_ns += gone;
	if (gone > 2 * LOOK_MS * 1000000ULL)
		c->heard_ns += gone;
	c->looked_ns = now;
	if (c->heard) {
		c->heard_ns = now;
		c->asked_ns = 0;
	}
	c->heard = false;
	if (!c->asked_ns && !c->hooks.busy(c->hook_arg))
		return ms;
	if (c->asked_ns && now > c->asked_ns && now - c->asked_ns > c->lost_ns)
		return -ETIMEDOUT;
	if (!c->asked_ns && now > c->heard_ns && now - c->heard_ns > c->lost_ns / 6 &&
	    carry_say(c, MUX_ASK, 0, ask, sizeof(ask)) == 0)
		c->asked_ns = now;
	most = (int)(c->lost_ns / 12 / 1000000);
	return ms < 0 || ms > most ? most : ms;
}

/* Does all that needs no waiting. 1: ->ctl has no room. */
static int before_turn(struct carry *c)
{
	int waiting = pass_to_ctl(c), r = waiting;

	if (r == 0)
		r = credit_control(c);
	r = r < 0 ? r : pass_to_port(c);
	r = r < 0 ? r : still_begin(c);
	return r < 0 ? r : waiting;
}

static int after_turn(struct carry *c, const struct pollfd *p)
{
	int r = 0;

	if (p[0].revents & (POLLIN | POLLHUP | POLLERR))
		r = read_port(c);
	if (r == 0 && p[1].revents & (POLLIN | POLLHUP | POLLERR))
		r = read_ctl(c);
	if (r == 0 && !c->still)
		r = pass_to_port(c);
	return r < 0 ? r : flush_port(c);
}

int carry_turn(struct carry *c, struct pollfd *extra, size_t nextra, int ms)
{
	struct pollfd p[2 + EXTRA_MAX + MUX_CHANNELS];
	uint32_t which[MUX_CHANNELS];
	size_t n = 2 + nextra, chans = 0;
	bool waiting, full;
	int r = c->still ? 0 : before_turn(c);

	assert(nextra <= EXTRA_MAX);
	waiting = r == 1;
	r = r < 0 ? r : flush_port(c);
	if (r < 0)
		return r;
	if (!c->still && chan_sizes(c) && (ms < 0 || ms > SIZES_MS))
		ms = SIZES_MS;
	r = ms = look_alive(c, ms);
	if (r == -ETIMEDOUT)
		return r;
	p[0] = (struct pollfd){ .fd = c->port, .events = (short)(POLLIN | (carry_flushed(c) ? 0 : POLLOUT)) };
	/* When frames wait, no more are read; that the sender has closed its socket is then noticed after them. */
	full = c->from.len == CARRY_FRAME || c->from.nfds > CARRY_FDS / 2;
	p[1] = (struct pollfd){ .fd = c->still || (full && !waiting) ? -1 : c->ctl,
				.events = (short)((full ? 0 : POLLIN) | (waiting ? POLLOUT : 0)) };
	if (nextra)
		memcpy(p + 2, extra, nextra * sizeof(*extra));
	for (uint32_t i = 1; i < c->top && !c->still; i++) {
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
	return r < 0 ? r : after_turn(c, p);
}
