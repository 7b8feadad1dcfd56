/* Bounds the kernel memory of streams at our end. */
#include "egress/room.h"
#include "base/base.h"
#include "egress/stream.h"

#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif
#define SOON (3 * LOOP_MS)
#define EACH (LOOP_MS / 100) /* and for each stream */
#define LATER (50 * LOOP_MS) /* what one that waits holds can grow without a word to us */
#define PATIENCE (50 * LOOP_MS) /* in transit for a moment. A single stream never has more than its buffers */
#define LITTLE (1U << 20) /* less than that is not looked at again by itself */
/* what is given away; the rest is for what a kernel takes beside the bytes, and for windows that were given before */
#define ROOM (10U << 20)
/* All of the sandbox's streams together: */
#define FROM_SERVERS (4U << 20)
#define FROM_SANDBOX (1U << 20)
#define IN_PIPES (2U << 20)
#define PIPE_MOST (1U << 20)
#define UNSENT_MOST (1U << 20)
#define UNSENT_SERVER (64U << 10)
#define LEAST 16384U
#define MANY 16U /* streams: from then on new ones begin with small buffers */
#define BEGIN 65536U /* a new connection's receive buffer as it is otherwise; the kernel doubles it */

/* For each stream: bytes that each side may send, and that may wait in the socket for that side. */
struct part {
	uint32_t window[2], unsent[2], pipe;
};

static uint32_t smallest(uint64_t a, uint64_t b)
{
	const uint64_t n = a < b ? a : b;

	return n < LEAST ? LEAST : (uint32_t)n;
}

/* What others hold is not for this one. What it holds itself is: a window that was given must not be taken back in the middle. */
static void divide(const struct sandbox *b, uint64_t own, struct part *ret)
{
	const uint32_t streams = b->meter.counts.concurrent ? b->meter.counts.concurrent : 1;
	const uint64_t others = b->room.held > own ? b->room.held - own : 0, left = others < ROOM ? ROOM - others : 0;
	const uint32_t unsent = smallest(UNSENT_MOST / streams, left / 6);

	*ret = (struct part){ .window = { smallest(FROM_SANDBOX / streams, left / 8),
					  smallest(FROM_SERVERS / streams, left / 3) },
			      .unsent = { unsent, smallest(UNSENT_SERVER, unsent) },
			      .pipe = smallest(smallest(IN_PIPES / streams, left / 4), PIPE_MOST) };
}

static void set(int fd, int level, int option, uint32_t value)
{
	const int v = (int)value;

	(void)setsockopt(fd, level, option, &v, sizeof(v));
}

/* Whether it is worth a call: not for every few bytes. */
static bool other(uint32_t now, uint32_t want)
{
	return want < now - now / 4 || want > now + now / 2;
}

/*
 * The kernel enlarges a window together with its buffer, whatever window was set, unless the buffer's size was set,
 * too. So the buffer is fixed at its present size, where the administrator allows that size. A smaller buffer would
 * lose bytes that are in transit.
 */
static void set_window(int fd, uint32_t window, uint32_t buffer, uint32_t most, struct stream_side *side)
{
	if (!side->fixed && buffer / 2 <= most) {
		set(fd, SOL_SOCKET, SO_RCVBUF, buffer / 2);
		side->fixed = true;
	}
	set(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, window);
	side->window = window;
	side->buffer = buffer;
}

/* What the socket holds. */
static uint64_t look_at(const struct egress *g, int fd, const struct part *p, unsigned which, struct stream_side *side)
{
	const uint32_t window = p->window[which];
	uint32_t m[SK_MEMINFO_VARS] = { 0 }, buffer;
	socklen_t len = sizeof(m);

	if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_MEMINFO, m, &len) < 0)
		return 0;
	buffer = m[SK_MEMINFO_RCVBUF];
	if (side->window ? other(side->window, window) || (!side->fixed && side->buffer != buffer) :
			   buffer / 2 > window)
		set_window(fd, window, buffer, g->buffer_most[which], side);
	if (other(side->unsent, p->unsent[which])) {
		set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, p->unsent[which]);
		side->unsent = p->unsent[which];
	}
	return (uint64_t)m[SK_MEMINFO_RMEM_ALLOC] + m[SK_MEMINFO_BACKLOG] +
	       (m[SK_MEMINFO_WMEM_QUEUED] > m[SK_MEMINFO_WMEM_ALLOC] ? m[SK_MEMINFO_WMEM_QUEUED] :
								       m[SK_MEMINFO_WMEM_ALLOC]);
}

static uint64_t stream_holds(struct stream *s)
{
	const struct egress *g = s->sandbox->g;
	int fd[2] = { s->a.fd, s->b.fd };
	struct part p;
	uint64_t n = (uint64_t)s->out.in_pipe + s->out.len + s->in.in_pipe + s->in.len;

	if (s->mitm)
		n += mitm_holds(s->mitm, fd);
	divide(s->sandbox, s->holds, &p);
	s->out.most = s->in.most = p.pipe;
	s->holds = n + look_at(g, fd[0], &p, 0, &s->side[0]) + look_at(g, fd[1], &p, 1, &s->side[1]);
	return s->holds;
}

/* Those that hold more than others, the newest first, until there is room again. */
static void cut(struct sandbox *b, uint64_t sum)
{
	const uint64_t average = sum / b->meter.counts.concurrent;

	for (struct stream *s = b->streams, *next; s && sum > ROOM; s = next) {
		next = s->next;
		if (s->holds < average)
			continue;
		sum -= s->holds;
		stream_end(s, EGRESS_V_CUT, "the sandbox's connections hold too much unread data");
	}
	b->room.held = sum;
}

/* Connections inherit it from their listener, also those that wait to be accepted. */
static void new_ones(struct sandbox *b, bool small, uint32_t unsent)
{
	if (b->tcp.fd < 0)
		return;
	if (other(b->room.unsent, unsent)) {
		set(b->tcp.fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, unsent);
		b->room.unsent = unsent;
	}
	if (b->room.small == small)
		return;
	b->room.small = small;
	set(b->tcp.fd, SOL_SOCKET, SO_RCVBUF, small ? LEAST : BEGIN);
	set(b->tcp.fd, SOL_SOCKET, SO_SNDBUF, LEAST);
	if (!small) /* and they grow again as they are used */
		set(b->tcp.fd, SOL_SOCKET, SO_BUF_LOCK, 0);
}

static void look(struct loop_timer *t)
{
	struct sandbox *b = (struct sandbox *)((char *)t - offsetof(struct sandbox, room.timer));
	const uint32_t streams = b->meter.counts.concurrent;
	uint64_t sum = 0;
	struct part p;

	divide(b, 0, &p);
	new_ones(b, streams >= (b->room.small ? MANY / 2 : MANY), p.unsent[0]);
	for (struct stream *s = b->streams; s; s = s->next)
		sum += stream_holds(s);
	b->room.held = sum;
	if (sum <= ROOM_MOST)
		b->room.over = 0;
	else if (!b->room.over)
		b->room.over = b->g->loop.now;
	if (b->room.over && streams > 1 && (sum > 2 * ROOM_MOST || b->g->loop.now - b->room.over >= PATIENCE))
		cut(b, sum);
	if (b->room.held > LITTLE)
		loop_timer_set(&b->g->loop, &b->room.timer, b->g->loop.now + LATER);
}

void room_init(struct room *r)
{
	*r = (struct room){ .timer = { .due = look } };
}

/* The largest buffer that we may ask for. */
static uint32_t buffer_most(int fd)
{
	uint32_t n = 0;
	socklen_t len = sizeof(n);

	set(fd, SOL_SOCKET, SO_RCVBUF, INT32_MAX / 2);
	return getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &n, &len) < 0 ? 0 : n / 2;
}

void room_connected(struct stream *s, int fd)
{
	uint32_t *most = &s->sandbox->g->buffer_most[1];
	struct part p;

	if (!*most)
		*most = buffer_most(fd);
	divide(s->sandbox, 0, &p);
	s->out.most = s->in.most = p.pipe;
	if (p.window[1] <= *most) {
		set(fd, SOL_SOCKET, SO_RCVBUF, p.window[1]);
		s->side[1] = (struct stream_side){ .window = p.window[1], .fixed = true };
	} else { /* as it was */
		set(fd, SOL_SOCKET, SO_BUF_LOCK, 0);
	}
	room_touch(s->sandbox);
}

void room_listener(struct sandbox *b)
{
	b->room.small = true; /* as no other one is */
	b->room.unsent = 0;
	if (!b->g->buffer_most[0])
		b->g->buffer_most[0] = buffer_most(b->tcp.fd);
	new_ones(b, false, UNSENT_MOST);
}

void room_done(struct sandbox *b)
{
	loop_timer_stop(&b->g->loop, &b->room.timer);
}

/* A look at thousands of streams is not to be most of what this process does. */
void room_touch(struct sandbox *b)
{
	const uint64_t at = b->g->loop.now + SOON + b->meter.counts.concurrent * EACH;
	struct room *r = &b->room;

	if (!b->closing && (!r->timer.slot || r->timer.at > at))
		loop_timer_set(&b->g->loop, &r->timer, at);
}
