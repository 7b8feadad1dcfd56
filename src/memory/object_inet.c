/*
 * TCP and UDP sockets. A TCP connection with both ends inside is carried: its bytes are those that each end can read,
 * found by peeking at both. All processes are held, so what one end has sent has arrived at the other, or there is no
 * room for it.
 */
#include "memory/object_socket.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/diag.h"
#include "proto/socket_cut.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define STREAM_MAX (4U << 20) /* as much as a new connection takes without a reader */
#define FLOW_MS 1000U
#define SOON_MS 20U /* what may be in the way for long is waited for no longer */
#define CUT_MAX (1U << 20) /* of a connection that is cut: all of it has to be at its reader when that happens */
#define SIOCOUTQ_ 0x5411
/* enum of net/tcp_states.h, which no header for programs has */
enum {
	ESTABLISHED = 1,
	SYN_SENT,
	SYN_RECV,
	FIN_WAIT1,
	FIN_WAIT2,
	TIME_WAIT,
	CLOSED,
	CLOSE_WAIT,
	LAST_ACK,
	LISTENING,
	CLOSING
};

/* One end's address and port, IPv4 as mapped. */
struct end {
	uint8_t addr[16];
	uint16_t port;
};

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

static bool end_read(const uint8_t *name, uint32_t len, struct end *ret)
{
	struct sockaddr_in6 a = { 0 };
	const struct sockaddr_in *in = (const struct sockaddr_in *)&a;

	if (!len)
		return false;
	memcpy(&a, name, len < sizeof(a) ? len : sizeof(a));
	memset(ret, 0, sizeof(*ret));
	if (a.sin6_family == AF_INET) {
		memcpy(ret->addr, mapped, sizeof(mapped));
		memcpy(ret->addr + 12, &in->sin_addr, 4);
		ret->port = in->sin_port;
	} else {
		memcpy(ret->addr, &a.sin6_addr, 16);
		ret->port = a.sin6_port;
	}
	return true;
}

static bool end_is_v4(const struct end *x)
{
	return !memcmp(x->addr, mapped, sizeof(mapped));
}

static bool end_is_loopback(const struct end *x)
{
	return end_is_v4(x) ? x->addr[12] == 127 : !memcmp(x->addr, &in6addr_loopback, 16);
}

static bool end_is_cut(const struct end *x)
{
	const uint32_t at = htonl(SOCKET_CUT_PEER);

	return end_is_v4(x) && !memcmp(x->addr + 12, &at, 4);
}

static bool end_same(const struct end *a, const struct end *b)
{
	return a->port == b->port && !memcmp(a->addr, b->addr, sizeof(a->addr));
}

static void flow_of(const struct end *local, const struct end *remote, struct diag_flow *ret)
{
	bool v4 = end_is_v4(local);

	*ret = (struct diag_flow){ .family = v4 ? 4 : 6,
				   .local_port = ntohs(local->port),
				   .remote_port = ntohs(remote->port) };
	memcpy(ret->local, local->addr + (v4 ? 12 : 0), v4 ? 4 : 16);
	memcpy(ret->remote, remote->addr + (v4 ? 12 : 0), v4 ? 4 : 16);
}

/*
 * An error waits. It cannot be looked at without taking it away. A connection to the outside that had been made is over, one way or the other: it
 * is cut. One that was cut by an earlier restore has the same error again.
 */
static bool is_over(struct socket *s, const struct tcp_info *info)
{
	struct end there;

	if (!end_read(s->k.peer, s->k.peer_len, &there))
		return false;
	s->was_cut = end_is_cut(&there);
	return s->was_cut || (!end_is_loopback(&there) && (info->tcpi_rtt || info->tcpi_bytes_acked));
}

/* As it is now: what it has sent, and what has come. */
static int look_tcp(struct object *o, struct tcp_info *info, short *ret_revents, struct err *e)
{
	struct socket *s = o->socket;
	socklen_t len = sizeof(*info);
	struct pollfd p = { .fd = o->fd, .events = POLLIN | POLLRDHUP | POLLPRI };
	uint32_t waiting = 0;

	/* In this order: what comes meanwhile may be counted twice as sent, or as an end that is not seen yet, but never the opposite. */
	memset(info, 0, sizeof(*info));
	sys_ioctl(o->fd, SIOCOUTQ_, &waiting);
	if (poll(&p, 1, 0) < 0 || getsockopt(o->fd, IPPROTO_TCP, TCP_INFO, info, &len) < 0 ||
	    (info->tcpi_state == CLOSED && poll(&p, 1, 0) < 0))
		return err_sys(e, ERR_INTERNAL, -errno, "a TCP socket");
	s->tcp_state = info->tcpi_state;
	s->hung_up = p.revents & POLLRDHUP;
	s->failed = p.revents & (POLLERR | POLLPRI);
	s->sent = info->tcpi_bytes_acked + waiting;
	s->received = info->tcpi_bytes_received;
	s->sent_any = info->tcpi_bytes_sent || waiting;
	*ret_revents = p.revents;
	return 0;
}

static void look_listener(struct socket *s, const struct tcp_info *info)
{
	s->k.state = MEM_SOCK_LISTEN;
	s->k.backlog = info->tcpi_sacked < 65535 ? info->tcpi_sacked : 65535;
	s->pending = info->tcpi_unacked;
}

/* Looks at it and says what it is, as far as it says so itself. Done again later, since packets may still be under way. */
static int read_tcp(struct object *o, struct err *e)
{
	struct socket *s = o->socket;
	struct tcp_info info;
	short revents;
	int r;

	r = look_tcp(o, &info, &revents, e);
	if (r < 0)
		return r;
	switch (s->tcp_state) {
	case LISTENING:
		look_listener(s, &info);
		return 0;
	case SYN_SENT:
		return proc_refuse_now(o->p, e, "has a TCP socket that is connecting, descriptor %u", o->num);
	case CLOSED:
		if (revents & POLLERR && is_over(s, &info)) {
			s->k.state = MEM_SOCK_RESET;
			s->connected = true;
			return 0;
		}
		if (s->failed)
			return proc_refuse(o->p, e, "has a TCP socket with an unread error");
		if (!s->hung_up)
			return 0;
		if (!info.tcpi_segs_in && !info.tcpi_segs_out)
			return proc_refuse(o->p, e, "has a TCP socket that was shut down before it was connected");
		s->k.state = MEM_SOCK_CLOSED;
		s->connected = true;
		return 0;
	default:
		s->k.state = MEM_SOCK_RESET; /* unless the other end is found */
		s->connected = true;
		return 0;
	}
}

bool socket_from_inside(const struct sockaddr_storage *from, uint32_t len)
{
	struct end x;

	return end_read((const uint8_t *)from, len, &x) && end_is_loopback(&x);
}

static int read_udp(struct opened *x, struct err *e)
{
	struct socket *s = x->o->socket;
	struct pollfd p = { .fd = x->o->fd };
	struct diag_socket found = { 0 };
	struct diag_flow flow;
	struct err quiet = { 0 };
	struct end here, there;
	uint32_t held = 0;

	if (poll(&p, 1, 0) > 0 && p.revents & POLLERR)
		return proc_refuse(x->p, e, "has a UDP socket with an unread error");
	if (sys_ioctl(x->o->fd, SIOCOUTQ_, &held) == 0 && held)
		return proc_refuse(x->p, e, "has a UDP socket with a pending datagram (UDP_CORK)");
	if (!s->k.peer_len || !end_read(s->k.addr, s->k.addr_len, &here) || !end_read(s->k.peer, s->k.peer_len, &there))
		return 0;
	flow_of(&here, &there, &flow);
	flow.udp = true;
	if (diag_socket(&flow, &found, &quiet) < 0 || found.inode != x->f.st.st_ino)
		return proc_refuse(
			x->p, e, "has a connected UDP socket, and this kernel does not report whether it is shut down");
	s->k.shutdown = found.shutdown & 3;
	return 0;
}

int object_inet(struct opened *x, struct err *e)
{
	const struct mem_socket *k = &x->o->socket->k;

	if (k->type == SOCK_STREAM && k->protocol == IPPROTO_TCP)
		return read_tcp(x->o, e);
	if (k->type == SOCK_DGRAM && k->protocol == IPPROTO_UDP)
		return read_udp(x, e);
	return proc_refuse(x->p, e, "has an IP socket of type %u and protocol %u", k->type, k->protocol);
}

/* ---- TCP connections, when all sockets are known ---------------------------------------------------------------- */

/*
 * Whether its program may not know yet that it is connected: it has connected it, sent nothing and read nothing of the @unread
 * bytes. Then connect(), called again or begun anew, succeeds once.
 */
static void note_connecting(struct socket *s, uint64_t unread)
{
	const bool ended = s->tcp_state == CLOSE_WAIT;

	/* One byte that the kernel counts as sent is the SYN of the end that has connected. */
	if ((s->tcp_state == ESTABLISHED || ended) && s->sent == 1 && !s->sent_any && s->received == unread + ended)
		s->k.flags |= MEM_SOCK_CONNECTING;
}

/* What it can read stays where it is. */
static int read_stream(struct object *o, struct err *e)
{
	struct socket *s = o->socket;
	AUTO_FREE uint8_t *data = NULL;
	uint32_t waiting = 0;
	ssize_t n;
	int r;

	if (s->failed)
		return proc_refuse(o->p, e, "has a TCP socket with an unread error or urgent data");
	if (sys_ioctl(o->fd, FIONREAD, &waiting) < 0)
		return 0;
	note_connecting(s, waiting);
	if (!waiting)
		return 0;
	if (waiting > STREAM_MAX)
		return proc_refuse(o->p, e, "has more than %u MiB of unread data in a TCP socket", STREAM_MAX >> 20);
	if (socket_number(o->fd, SOL_SOCKET, SO_PEEK_OFF) >= 0)
		return proc_refuse(o->p, e, "has a TCP socket with SO_PEEK_OFF and unread data");
	data = malloc(waiting);
	if (!data)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "a queue");
	n = recv(o->fd, data, waiting, MSG_PEEK | MSG_DONTWAIT);
	if (n != (ssize_t)waiting)
		return proc_refuse(o->p, e, "has a TCP socket whose data cannot be read");
	r = buf_add(&s->queue, data, waiting);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "a queue") : 0;
}

/* What it did itself: a FIN from the other end comes again by itself. */
static void note_shutdown(struct socket *s)
{
	bool wrote = s->tcp_state == FIN_WAIT1 || s->tcp_state == FIN_WAIT2 || s->tcp_state == CLOSING ||
		     s->tcp_state == LAST_ACK ||
		     s->tcp_state == CLOSED; /* what both had to say has come, since we looked first */
	bool open = s->tcp_state == ESTABLISHED || s->tcp_state == FIN_WAIT1 || s->tcp_state == FIN_WAIT2;

	s->k.shutdown = (wrote ? MEM_SOCK_SHUT_WRITE : 0) | (open && s->hung_up ? MEM_SOCK_SHUT_READ : 0);
}

/*
 * Whether all that was sent has arrived. Bytes for which the receiver has no room come when its buffer is enlarged for
 * a while; a window that opens again is announced only when the queue is read or peeked at. To the processes it makes
 * no difference where the bytes wait. @b NULL: no process has the other end any more.
 */
static bool has_come(const struct object *a, const struct object *b)
{
	/* The first byte that the kernel counts of one of both is its SYN. */
	return b ? a->socket->sent + b->socket->sent <= a->socket->received + b->socket->received + 1 :
		   a->socket->tcp_state == CLOSE_WAIT;
}

static int let_flow(struct dump *d, struct object *a, struct object *b, struct err *e)
{
	struct object *const end[] = { a, b };
	struct tcp_info info;
	short revents;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < 2; i++)
		if (end[i] && socket_number(end[i]->fd, SOL_SOCKET, SO_PEEK_OFF) < 0)
			r = socket_guard_change(&d->guard, GUARD_ROOM, end[i]->fd);
	for (unsigned ms = 0; r == 0 && !has_come(a, b) && ms < FLOW_MS; ms++) {
		for (unsigned i = 0; i < 2; i++)
			if (end[i] && !end[i]->socket->failed && socket_number(end[i]->fd, SOL_SOCKET, SO_PEEK_OFF) < 0)
				socket_unread(end[i]->fd);
		if (ms)
			poll(NULL, 0, 1);
		for (unsigned i = 0; r == 0 && i < 2; i++)
			r = end[i] ? look_tcp(end[i], &info, &revents, e) : 0;
	}
	if (socket_guard_undo(&d->guard) < 0 && r == 0)
		return err_set(e, ERR_INTERNAL, -EIO, "undo the changes to a socket of process %u", a->p->pid);
	return r < 0 && !e->msg[0] ? err_sys(e, ERR_INTERNAL, r, "make room in a socket of process %u", a->p->pid) : r;
}

/* Both ends are ours. */
static int link_pair(struct dump *d, uint32_t at, uint32_t other, struct err *e)
{
	struct object *a = &d->object[at], *b = &d->object[other];
	struct end here = { 0 };
	int r = has_come(a, b) ? 0 : let_flow(d, a, b, e);

	if (r < 0)
		return r;
	b->socket->other = at + 1;
	a->rec.pair = at < other ? at : other;
	a->socket->k.state = MEM_SOCK_PAIR;
	note_shutdown(a->socket);
	end_read(a->socket->k.addr, a->socket->k.addr_len, &here);
	if (!end_is_loopback(&here))
		return proc_refuse(a->p, e, "has a TCP connection to process %u over a non-loopback address",
				   b->p->pid);
	if (!has_come(a, b))
		return proc_refuse(a->p, e,
				   "has a TCP connection to process %u with more data than its receiver can hold",
				   b->p->pid);
	return read_stream(a, e);
}

static bool listens_at(const struct object *o, const struct end *at)
{
	static const struct end none;
	struct end x;

	if (o->rec.kind != MEM_OBJ_SOCKET || o->socket->k.state != MEM_SOCK_LISTEN || o->socket->k.family == AF_UNIX ||
	    !end_read(o->socket->k.addr, o->socket->k.addr_len, &x) || x.port != at->port)
		return false;
	return !memcmp(x.addr, at->addr, 16) || !memcmp(x.addr, none.addr, 16) ||
	       (end_is_v4(&x) && end_is_v4(at) && !memcmp(x.addr + 12, none.addr, 4));
}

/* The listener inside at @there which has counted a connection that is in its queue and not linked yet; else one that has not. */
static struct object *listener_at(struct dump *d, const struct end *there)
{
	struct object *early = NULL;
	struct tcp_info info;
	struct err quiet = { 0 };
	short revents;

	for (uint32_t i = 0; i < d->n_objects; i++) {
		struct object *l = &d->object[i];

		if (!listens_at(l, there))
			continue;
		if (look_tcp(l, &info, &revents, &quiet) == 0)
			look_listener(l->socket, &info);
		if (l->socket->matched < l->socket->pending)
			return l;
		early = l;
	}
	return early;
}

/* Links an end whose other end is still in the queue of a listener, which cannot be read. */
static int link_pending(struct dump *d, struct object *o, const struct end *there, struct err *e)
{
	struct object *l = listener_at(d, there);

	if (!l)
		return 0; /* a process outside listens there: it is cut */
	l->socket->matched++;
	note_shutdown(o->socket);
	if (o->socket->sent_any || o->socket->k.shutdown || o->socket->failed)
		return proc_refuse_now(
			o->p, e, "has sent data over a TCP connection that process %u has not accepted yet", l->p->pid);
	note_connecting(o->socket, 0);
	o->socket->k.state = MEM_SOCK_PENDING;
	o->rec.pair = (uint32_t)(l - d->object);
	return 0;
}

/* No process inside has the other end, which is as @found. */
static int link_alone(struct dump *d, uint32_t at, const struct end *there, const struct diag_socket *found,
		      struct err *e)
{
	struct object *o = &d->object[at];

	if (found->inode)
		return 0; /* a process of the host has it */
	if (found->state == ESTABLISHED || found->state == CLOSE_WAIT)
		return link_pending(d, o, there, e);
	if (found->state == FIN_WAIT1 && !has_come(o, NULL)) {
		if (let_flow(d, o, NULL, e) < 0)
			return -EIO;
		if (!has_come(o, NULL))
			return proc_refuse(o->p, e,
					   "has a TCP connection whose other end was closed while data was in transit");
	}
	o->socket->k.state = MEM_SOCK_PAIR;
	o->rec.pair = at;
	return read_stream(o, e);
}

/* Both have ended, as streams do: both are shut down for writing. */
static int link_closed(struct dump *d, uint32_t at, uint32_t other, struct err *e)
{
	struct object *o = &d->object[at];

	o->rec.pair = at < other ? at : other;
	o->socket->k.state = MEM_SOCK_PAIR;
	o->socket->k.shutdown = MEM_SOCK_SHUT_WRITE;
	return read_stream(o, e);
}

/* The other end by its addresses: one that has ended for one that has ended, or the opposite (@differs). */
static uint32_t other_end(const struct dump *d, uint32_t at, bool differs)
{
	const struct socket *s = d->object[at].socket;
	struct end here, there, a, b;

	if (!end_read(s->k.addr, s->k.addr_len, &here) || !end_read(s->k.peer, s->k.peer_len, &there))
		return MEM_NONE;
	for (uint32_t i = 0; i < d->n_objects; i++) {
		const struct object *o = &d->object[i];

		if (i != at && o->rec.kind == MEM_OBJ_SOCKET && o->socket->connected &&
		    ((o->socket->tcp_state == CLOSED) == (s->tcp_state == CLOSED)) != differs &&
		    end_read(o->socket->k.addr, o->socket->k.addr_len, &a) &&
		    end_read(o->socket->k.peer, o->socket->k.peer_len, &b) && end_same(&a, &there) &&
		    end_same(&b, &here))
			return i;
	}
	return MEM_NONE;
}

/* What the kernel has of the other end, if no process inside has it. State 0: nothing. */
static int look_outside(const struct end *here, const struct end *there, struct diag_socket *ret, struct err *e)
{
	struct diag_flow flow;
	struct err none = { 0 };
	int r;

	*ret = (struct diag_socket){ 0 };
	flow_of(there, here, &flow);
	r = diag_socket(&flow, ret, &none);
	if (r < 0 && r != -ENOENT)
		*e = none;
	return r == -ENOENT ? 0 : r;
}

/* Whether a packet is under way that would change what @o and the other end @found are for each other. */
static bool is_under_way(struct dump *d, const struct object *o, const struct end *there,
			 const struct diag_socket *found)
{
	const struct object *l;

	if (found->inode)
		return false;
	switch (found->state) {
	case SYN_RECV:
		return true;
	case ESTABLISHED:
	case CLOSE_WAIT: /* not counted: the packet that puts it into the queue is under way */
		l = listener_at(d, there);
		return l && l->socket->matched >= l->socket->pending;
	default:
		return o->socket->tcp_state != CLOSE_WAIT;
	}
}

/*
 * A busy processor delivers packets after the processes that sent them were stopped. Waits until both ends are as they will be.
 * The other end of @at is *@ret, or MEM_NONE and *@ret_found.
 */
static int settle(struct dump *d, uint32_t at, uint32_t *ret, struct diag_socket *ret_found, struct err *e)
{
	struct object *o = &d->object[at];
	struct end here = { 0 }, there = { 0 };
	const struct object *l;
	uint32_t other;
	bool waits;
	int r;

	end_read(o->socket->k.addr, o->socket->k.addr_len, &here);
	end_read(o->socket->k.peer, o->socket->k.peer_len, &there);
	for (unsigned ms = 0;; ms++) {
		r = read_tcp(o, e);
		*ret = other_end(d, at, false);
		*ret_found = (struct diag_socket){ 0 };
		if (r < 0 || *ret != MEM_NONE)
			return r;
		other = other_end(d, at, true);
		if (other != MEM_NONE && other_end(d, other, false) == MEM_NONE) {
			r = read_tcp(&d->object[other], e); /* one of both has ended, so the other is about to */
		} else if (o->socket->tcp_state == CLOSED) {
			return 0;
		} else {
			r = look_outside(&here, &there, ret_found, e);
			if (r == 0 && !is_under_way(d, o, &there, ret_found))
				return 0;
		}
		if (r < 0)
			return r;
		waits = ret_found->state == SYN_RECV || ret_found->state == ESTABLISHED ||
			ret_found->state == CLOSE_WAIT;
		if (ms == FLOW_MS || (ms >= SOON_MS && (waits || ret_found->state == FIN_WAIT1)))
			break;
		poll(NULL, 0, 1);
	}
	if (ret_found->state == FIN_WAIT1)
		return 0; /* it waits for room */
	l = waits ? listener_at(d, &there) : NULL;
	if (l)
		return proc_refuse_now(o->p, e, "has a TCP connection that process %u cannot accept yet", l->p->pid);
	if (waits)
		return proc_refuse_now(o->p, e, "has a TCP connection that no process can accept yet");
	return proc_refuse(o->p, e, "has a TCP connection whose other end does not exist any more");
}

int object_link_tcp(struct dump *d, uint32_t at, struct err *e)
{
	struct object *o = &d->object[at];
	struct end here = { 0 }, there = { 0 };
	struct diag_socket found = { 0 };
	uint32_t other = MEM_NONE;
	bool ends, local;
	int r = 0;

	if (o->socket->k.state != MEM_SOCK_CLOSED && o->socket->k.state != MEM_SOCK_RESET)
		return 0;
	ends = end_read(o->socket->k.addr, o->socket->k.addr_len, &here) &&
	       end_read(o->socket->k.peer, o->socket->k.peer_len, &there);
	if (ends && end_same(&here, &there))
		return proc_refuse(o->p, e, "has a TCP socket that is connected to itself");
	/* A connection to an address of the sandbox's own is inside, too. */
	local = ends && !o->socket->was_cut &&
		(end_is_loopback(&there) || !memcmp(here.addr, there.addr, 16) || other_end(d, at, false) != MEM_NONE);
	if (o->socket->other)
		other = o->socket->other - 1;
	else if (local)
		r = settle(d, at, &other, &found, e);
	if (r < 0)
		return r;
	if (o->socket->k.state == MEM_SOCK_CLOSED)
		return other != MEM_NONE && end_is_loopback(&here) ? link_closed(d, at, other, e) : read_stream(o, e);
	if (other != MEM_NONE)
		return link_pair(d, at, other, e);
	if (local && !found.inode && !end_is_loopback(&there))
		return proc_refuse(o->p, e, "has a TCP connection inside the sandbox over a non-loopback address");
	return local ? link_alone(d, at, &there, &found, e) : 0;
}

/* What had come before it is cut can still be read, as after a reset. */
void object_cut_queue(struct object *o)
{
	struct socket *s = o->socket;
	uint32_t waiting = 0;
	struct err quiet = { 0 };

	if (s->k.protocol != IPPROTO_TCP || s->k.state != MEM_SOCK_RESET || sys_ioctl(o->fd, FIONREAD, &waiting) < 0 ||
	    !waiting)
		return;
	s->failed = s->failed && s->tcp_state != CLOSED; /* then it is the reset itself */
	if (waiting > CUT_MAX || read_stream(o, &quiet) < 0)
		s->lost = waiting;
}

int object_link_listener(const struct dump *d, uint32_t at, struct err *e)
{
	struct object *o = &d->object[at];
	struct tcp_info info;
	short revents;
	int r = 0;

	if (o->socket->k.state != MEM_SOCK_LISTEN)
		return 0;
	if (o->socket->k.family != AF_UNIX) {
		r = look_tcp(o, &info, &revents, e);
		if (r == 0)
			look_listener(o->socket, &info);
	}
	if (r == 0 && o->socket->pending + o->socket->n_waiting > o->socket->matched)
		return proc_refuse_now(o->p, e,
				       "has unaccepted connections of processes that ended or are outside the sandbox");
	return r;
}
