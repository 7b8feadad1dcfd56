/*
 * TCP and UDP sockets. A connection whose two ends are inside is made again by connecting: one end to a listener of our
 * own at the address of the other, over loopback. What each could read is sent by the other, and each is shut down as it
 * was, so the kernel brings both into the states that they had.
 *
 * The order: all are bound, with SO_REUSEADDR, since connections share a port with their listener; connections are made
 * while nothing listens at their addresses but we; then listeners listen, and connections that wait for them are made;
 * last come the options that would be in the way before.
 */
#include "agent/restore/restore.h"
#include "agent/restore/socket.h"
#include "base/base.h"
#include "base/sys.h"
#include "proto/socket_cut.h"
#include "proto/socket_option.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_S 10 /* loopback answers at once, or never */
#define SO_LOCK_FILTER_ 44
#define SO_MEMINFO_ 55
#define REUSEPORT_CBPF 51 /* SO_ATTACH_REUSEPORT_CBPF */
#define REUSEPORT_DETACH 68 /* SO_DETACH_REUSEPORT_BPF */
#define ROOM_FREE 32768U /* as much as every new connection takes */
#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78
#endif

void restore_socket_read(const struct restore *r, const struct mem_object *o, struct restore_socket *ret)
{
	const uint8_t *data = restore_bytes(r, o->data);

	memset(ret, 0, sizeof(*ret));
	memcpy(&ret->k, data, sizeof(ret->k));
	memcpy(&ret->addr, ret->k.addr, ret->k.addr_len);
	memcpy(&ret->peer, ret->k.peer, ret->k.peer_len);
	ret->options = data + sizeof(ret->k);
	ret->filter = ret->options + ret->k.options;
	ret->queue = ret->filter + ret->k.filter;
	ret->queue_len = o->data.len - sizeof(ret->k) - ret->k.options - ret->k.filter;
}

static bool is_inet(const struct mem_object *o, const struct restore_socket *s)
{
	return o->kind == MEM_OBJ_SOCKET && (s->k.family == AF_INET || s->k.family == AF_INET6);
}

static int set_int(int fd, int level, int name, int v)
{
	return setsockopt(fd, level, name, &v, sizeof(v)) < 0 ? -errno : 0;
}

/* A new one in the agent's range, its user's, with what has to be set before it has an address. */
static int socket_make(struct restore *r, struct restore_socket *s)
{
	const struct timeval limit = { .tv_sec = CONNECT_S };
	int fd = socket((int)s->k.family, (int)s->k.type | SOCK_CLOEXEC, (int)s->k.protocol), x;

	fd = fd < 0 ? -errno : restore_high(r, fd);
	if (fd < 0)
		return fd;
	x = set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (x == 0 && s->k.type == SOCK_STREAM)
		x = setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0 ? -errno : 0;
	if (x == 0 && !r->agent->single_id)
		x = sys_fchownat(fd, "", s->k.uid, s->k.gid, AT_EMPTY_PATH);
	if (x == 0)
		x = socket_option_set(fd, s->options, s->k.options, 0, &s->failed);
	if (x < 0) {
		fd_close(fd);
		return x;
	}
	return fd;
}

static int socket_bind(int fd, const struct restore_socket *s)
{
	const int level = s->k.family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6,
		  name = s->k.family == AF_INET ? IP_FREEBIND : IPV6_FREEBIND;
	int x = bind(fd, (const struct sockaddr *)&s->addr, s->k.addr_len) < 0 ? -errno : 0;

	if (x != -EADDRNOTAVAIL)
		return x;
	/* An address that was there, or that the program could take by an option which it has removed since. */
	x = set_int(fd, level, name, 1);
	if (x == 0)
		x = bind(fd, (const struct sockaddr *)&s->addr, s->k.addr_len) < 0 ? -errno : 0;
	return x < 0 ? x : set_int(fd, level, name, 0);
}

int restore_socket_late(const struct restore *r, const struct mem_object *o, struct restore_socket *s, int fd)
{
	static const struct timeval none;
	int x = 0;

	if (s->k.family != AF_UNIX) {
		x = set_int(fd, SOL_SOCKET, SO_REUSEADDR, 0);
		if (x == 0 && !socket_option_listed(s->options, s->k.options, SOL_SOCKET, SO_REUSEPORT))
			x = set_int(fd, SOL_SOCKET, SO_REUSEPORT, 0);
		if (x == 0)
			x = setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof(none)) < 0 ? -errno : 0;
	}
	if (x == 0 && s->k.filter) {
		const struct sock_fprog prog = { .len = (unsigned short)(s->k.filter / sizeof(struct sock_filter)),
						 .filter = (struct sock_filter *)(uintptr_t)s->filter };

		x = setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog)) < 0 ? -errno : 0;
		if (x == 0 && s->k.flags & MEM_SOCK_FILTER_LOCKED)
			x = set_int(fd, SOL_SOCKET, SO_LOCK_FILTER_, 1);
	}
	if (x == 0)
		x = socket_option_set(fd, s->options, s->k.options, SOCKET_LATE, &s->failed);
	if (x == 0)
		x = sys_fcntl(fd, F_SETFL, (long)(o->flags & O_NONBLOCK));
	(void)r;
	return x < 0 ? x : 0;
}

/*
 * Makes room for @len bytes in the queue of a socket whose reader does not run yet. SO_RCVLOWAT makes the kernel
 * enlarge the receive buffer, and lowering it again does not shrink the buffer.
 */
static int make_room(int fd, uint64_t len)
{
	if (len <= ROOM_FREE)
		return 0;
	if (set_int(fd, SOL_SOCKET, SO_RCVLOWAT, (int)len) < 0)
		return -errno;
	return set_int(fd, SOL_SOCKET, SO_RCVLOWAT, 1);
}

/* All of it: a new connection has room, and what its reader has no room for waits at the sender. */
static int send_all(int fd, const uint8_t *data, uint64_t len)
{
	while (len) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		data += n;
		len -= (uint64_t)n;
	}
	return 0;
}

static int shut(int fd, uint32_t how)
{
	if (how & MEM_SOCK_SHUT_WRITE && shutdown(fd, SHUT_WR) < 0)
		return -errno;
	return how & MEM_SOCK_SHUT_READ && shutdown(fd, SHUT_RD) < 0 ? -errno : 0;
}

static int wait_end(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };

	return poll(&p, 1, CONNECT_S * 1000) == 1 ? 0 : -ETIMEDOUT;
}

/*
 * Connects it to its peer. One that is connected without waiting stays as it is until connect() is called once more, which then
 * succeeds: as in the source, if its program was about to call it, or was inside of it.
 */
static int connect_peer(int fd, const struct restore_socket *s)
{
	const bool untold = s->k.flags & MEM_SOCK_CONNECTING;
	int x = untold ? sys_fcntl(fd, F_SETFL, O_NONBLOCK) : 0, failed = 0;
	socklen_t len = sizeof(failed);

	if (x < 0)
		return x;
	if (connect(fd, (const struct sockaddr *)&s->peer, s->k.peer_len) < 0 && !(untold && errno == EINPROGRESS))
		return -errno;
	if (!untold)
		return 0;
	x = wait_end(fd, POLLOUT);
	if (x == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len) < 0)
		x = -errno;
	return x < 0 ? x : failed ? -failed : sys_fcntl(fd, F_SETFL, 0);
}

/* A connection from @a to @b, both of their addresses; each is a new socket, blocking. */
static int connect_two(struct restore *r, struct restore_socket *a, struct restore_socket *b, int *ret_a, int *ret_b)
{
	AUTO_CLOSE int listener = socket_make(r, b), from = -1, to = -1;
	int x = listener < 0 ? listener : socket_bind(listener, b);

	if (x == 0)
		x = listen(listener, 1) < 0 ? -errno : 0;
	if (x == 0)
		x = from = socket_make(r, a);
	if (x >= 0)
		x = socket_bind(from, a);
	if (x == 0)
		x = connect_peer(from, a);
	if (x == 0) {
		to = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		to = to < 0 ? -errno : restore_high(r, to);
		x = to < 0 ? to : 0;
	}
	if (x == 0 && !r->agent->single_id)
		x = sys_fchownat(to, "", b->k.uid, b->k.gid, AT_EMPTY_PATH);
	if (x < 0)
		return x;
	*ret_a = TAKE_FD(from);
	*ret_b = TAKE_FD(to);
	return 0;
}

/* The other end of @s as far as its addresses say. */
static void mirror(const struct restore_socket *s, struct restore_socket *ret)
{
	*ret = (struct restore_socket){ .k = { .family = s->k.family,
					       .type = s->k.type,
					       .protocol = s->k.protocol,
					       .uid = s->k.uid,
					       .gid = s->k.gid,
					       .addr_len = s->k.peer_len,
					       .peer_len = s->k.addr_len },
					.addr = s->peer,
					.peer = s->addr };
}

static int make_pair(struct restore *r, uint32_t i)
{
	const struct mem_object *all = r->m.object;
	uint32_t other = MEM_NONE;
	struct restore_socket a, b;
	int fd[2], x;

	for (uint32_t j = i + 1; j < r->m.n[MEM_S_OBJECT] && other == MEM_NONE; j++)
		if (all[j].kind == MEM_OBJ_SOCKET && all[j].pair == all[i].pair) {
			restore_socket_read(r, &all[j], &b);
			other = b.k.state == MEM_SOCK_PAIR ? j : MEM_NONE;
		}
	restore_socket_read(r, &all[i], &a);
	if (other == MEM_NONE)
		mirror(&a, &b);
	x = a.k.flags & MEM_SOCK_CONNECTING ? connect_two(r, &a, &b, &fd[1], &fd[0]) :
					      connect_two(r, &b, &a, &fd[0], &fd[1]);
	if (x < 0)
		return x;
	r->object[i] = fd[1];
	x = make_room(fd[1], a.queue_len);
	if (x == 0)
		x = make_room(fd[0], b.queue_len);
	if (x == 0)
		x = send_all(fd[0], a.queue, a.queue_len);
	if (x == 0)
		x = send_all(fd[1], b.queue, b.queue_len);
	if (x == 0)
		x = shut(fd[0], b.k.shutdown);
	if (x == 0)
		x = shut(fd[1], a.k.shutdown);
	if (other == MEM_NONE)
		fd_close(fd[0]);
	else
		r->object[other] = fd[0];
	return x;
}

/* Until @len bytes can be read. */
static int wait_bytes(int fd, uint64_t len)
{
	for (unsigned ms = 0; ms < CONNECT_S * 1000; ms++) {
		int waiting = 0;

		if (ioctl(fd, FIONREAD, &waiting) < 0)
			return -errno;
		if ((uint64_t)waiting >= len)
			return 0;
		poll(NULL, 0, 1);
	}
	return -ETIMEDOUT;
}

static bool on_loopback(const struct sockaddr_storage *addr, uint32_t len)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	const uint8_t *v6 = ((const struct sockaddr_in6 *)addr)->sin6_addr.s6_addr;

	if (!len)
		return false;
	if (addr->ss_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr) >> 24 == 127;
	return !memcmp(v6, &in6addr_loopback, 16) || (!memcmp(v6, mapped, sizeof(mapped)) && v6[12] == 127);
}

/* @at is IPv4, any port. An IPv6 socket as @a that takes no IPv4 has the one address that there is. */
static void cut_address(const struct restore_socket *a, struct restore_socket *s, uint32_t at)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };

	at = htonl(at);
	memset(&s->addr, 0, sizeof(s->addr));
	if (s->k.family == AF_INET) {
		*(struct sockaddr_in *)&s->addr = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = at };
		s->k.addr_len = sizeof(struct sockaddr_in);
		return;
	}
	if (!socket_option_listed(a->options, a->k.options, IPPROTO_IPV6, IPV6_V6ONLY)) {
		memset(&v6.sin6_addr, 0, sizeof(v6.sin6_addr));
		memset(v6.sin6_addr.s6_addr + 10, 0xff, 2);
		memcpy(v6.sin6_addr.s6_addr + 12, &at, 4);
	}
	*(struct sockaddr_in6 *)&s->addr = v6;
	s->k.addr_len = sizeof(v6);
}

/* Loopback, any port. */
static void any_address(struct restore_socket *s)
{
	memset(&s->addr, 0, sizeof(s->addr));
	if (s->k.family == AF_INET) {
		*(struct sockaddr_in *)&s->addr =
			(struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		s->k.addr_len = sizeof(struct sockaddr_in);
	} else {
		*(struct sockaddr_in6 *)&s->addr =
			(struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
		s->k.addr_len = sizeof(struct sockaddr_in6);
	}
}

/* Accepts it, of @listener at its address, from @other at that of its peer. */
static int accept_from(struct restore *r, struct restore_socket *s, int listener, int other)
{
	socklen_t len = sizeof(s->addr);
	int fd, x;

	if (listen(listener, 1) < 0 || getsockname(listener, (struct sockaddr *)&s->addr, &len) < 0 ||
	    connect(other, (const struct sockaddr *)&s->addr, len) < 0)
		return -errno;
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	fd = fd < 0 ? -errno : restore_high(r, fd);
	x = fd < 0 || r->agent->single_id ? 0 : sys_fchownat(fd, "", s->k.uid, s->k.gid, AT_EMPTY_PATH);
	if (x < 0)
		fd_close(fd);
	return x < 0 ? x : fd;
}

/*
 * One whose connection is over: it is accepted from a socket of our own, which ends the connection first, with what can still be
 * read or with a reset. Its addresses are those that it had if both are loopback's. The bound on sockets does not count accepted
 * ones: in the source most were accepted, too, and there may be more of them than the bound.
 */
static int make_ended(struct restore *r, uint32_t i)
{
	const struct linger now = { .l_onoff = 1 };
	struct restore_socket a, b;
	AUTO_CLOSE int listener = -1, other = -1;
	int x;

	restore_socket_read(r, &r->m.object[i], &a);
	mirror(&a, &b);
	if (a.k.state == MEM_SOCK_RESET) {
		cut_address(&a, &b, SOCKET_CUT_PEER);
		cut_address(&a, &a, INADDR_LOOPBACK);
	} else if (!on_loopback(&a.addr, a.k.addr_len) || !on_loopback(&b.addr, b.k.addr_len)) {
		any_address(&a);
		any_address(&b);
	}
	x = listener = socket_make(r, &a);
	if (x >= 0)
		x = socket_bind(listener, &a);
	if (x == 0)
		x = other = socket_make(r, &b);
	if (x >= 0)
		x = socket_bind(other, &b);
	if (x == 0)
		x = r->object[i] = accept_from(r, &a, listener, other);
	if (x < 0)
		return x;
	x = make_room(r->object[i], a.queue_len);
	if (x == 0)
		x = send_all(other, a.queue, a.queue_len);
	if (x == 0 && a.k.state == MEM_SOCK_RESET) {
		x = wait_bytes(r->object[i], a.queue_len);
		if (x == 0 && setsockopt(other, SOL_SOCKET, SO_LINGER, &now, sizeof(now)) < 0)
			x = -errno;
		fd_close(TAKE_FD(other));
		return x < 0 ? x : wait_end(r->object[i], 0);
	}
	if (x == 0)
		x = shutdown(other, SHUT_WR) < 0 ? -errno : wait_end(r->object[i], POLLRDHUP);
	if (x == 0)
		x = shutdown(r->object[i], SHUT_WR) < 0 ? -errno : wait_end(r->object[i], POLLHUP);
	return x;
}

/* Bound to one port, two of them: by SO_REUSEPORT, which one may have given up since. */
static bool shares_port(const struct restore *r, uint32_t i, const struct restore_socket *s)
{
	for (uint32_t j = 0; j < r->m.n[MEM_S_OBJECT]; j++) {
		struct restore_socket o;

		if (j == i || r->m.object[j].kind != MEM_OBJ_SOCKET)
			continue;
		restore_socket_read(r, &r->m.object[j], &o);
		if (o.k.family != AF_UNIX && o.k.type == s->k.type &&
		    (o.k.state == MEM_SOCK_BOUND || o.k.state == MEM_SOCK_LISTEN) &&
		    !memcmp(o.k.addr + 2, s->k.addr + 2, 2))
			return true;
	}
	return false;
}

static int make_bound(struct restore *r, uint32_t i)
{
	struct restore_socket s;
	int x = 0;

	restore_socket_read(r, &r->m.object[i], &s);
	r->object[i] = socket_make(r, &s);
	if (r->object[i] < 0)
		return r->object[i];
	if (s.k.state == MEM_SOCK_UNBOUND)
		return 0;
	if ((s.k.state == MEM_SOCK_LISTEN || s.k.state == MEM_SOCK_BOUND) && shares_port(r, i, &s))
		x = set_int(r->object[i], SOL_SOCKET, SO_REUSEPORT, 1);
	return x < 0 ? x : socket_bind(r->object[i], &s);
}

static int make_pending(struct restore *r, uint32_t i)
{
	struct restore_socket s;
	int x = make_bound(r, i);

	restore_socket_read(r, &r->m.object[i], &s);
	return x < 0 ? x : connect_peer(r->object[i], &s);
}

static int make_listening(struct restore *r, uint32_t i)
{
	struct restore_socket s;

	restore_socket_read(r, &r->m.object[i], &s);
	return listen(r->object[i], (int)s.k.backlog) < 0 ? -errno : 0;
}

/* Where datagrams for it go from @from: an address of its own kind, and of the sender's. */
static void reach_datagram(const struct restore_socket *s, const struct sockaddr_storage *from,
			   struct sockaddr_storage *ret)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
	struct in6_addr sender = ((const struct sockaddr_in6 *)from)->sin6_addr;

	*ret = s->addr;
	if (s->k.family == AF_INET && v4->sin_addr.s_addr == INADDR_ANY)
		v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (s->k.family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr))
		v6->sin6_addr = IN6_IS_ADDR_V4MAPPED(&sender) ?
					(struct in6_addr){ .s6_addr = { [10] = 0xff, 0xff, 127, 0, 0, 1 } } :
					in6addr_loopback;
}

/* Whether a socket bound as @o sends from the address @from: by default, or (*ret_told) if the message names it. */
static bool sends_from(const struct restore_socket *o, const struct restore_socket *from, bool *ret_told)
{
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)&o->addr,
				 *b4 = (const struct sockaddr_in *)&from->addr;
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)&o->addr,
				  *b6 = (const struct sockaddr_in6 *)&from->addr;

	if (o->k.family != from->k.family || o->k.type != SOCK_DGRAM || o->k.addr_len != from->k.addr_len ||
	    a4->sin_port != b4->sin_port)
		return false;
	if (o->k.family == AF_INET) {
		*ret_told = a4->sin_addr.s_addr == INADDR_ANY;
		return *ret_told || a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	}
	*ret_told = !memcmp(&a6->sin6_addr, &in6addr_any, sizeof(in6addr_any));
	return *ret_told || (!memcmp(&a6->sin6_addr, &b6->sin6_addr, 16) && a6->sin6_scope_id == b6->sin6_scope_id);
}

/* The socket that sends: one that has the sender's address, else one that has its port and all addresses, else none. */
static int find_sender(const struct restore *r, const struct restore_socket *from, bool *ret_told)
{
	int fd = -1;

	*ret_told = false;
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++) {
		struct restore_socket o;
		bool told;

		if (r->m.object[i].kind != MEM_OBJ_SOCKET || r->object[i] < 0)
			continue;
		restore_socket_read(r, &r->m.object[i], &o);
		if (!sends_from(&o, from, &told))
			continue;
		fd = r->object[i];
		*ret_told = told;
		if (!told)
			break;
	}
	return fd;
}

/* Adds the control message that names the local address to send from. */
static void tell_source(const struct restore_socket *from, struct msghdr *h, void *control)
{
	struct in_pktinfo v4 = { .ipi_spec_dst = ((const struct sockaddr_in *)&from->addr)->sin_addr };
	const struct sockaddr_in6 *at = (const struct sockaddr_in6 *)&from->addr;
	struct in6_pktinfo v6 = { .ipi6_addr = at->sin6_addr, .ipi6_ifindex = at->sin6_scope_id };
	const bool is4 = from->k.family == AF_INET;
	const size_t len = is4 ? sizeof(v4) : sizeof(v6);
	struct cmsghdr *c;

	h->msg_control = control;
	h->msg_controllen = (socklen_t)CMSG_SPACE(len);
	c = CMSG_FIRSTHDR(h);
	c->cmsg_level = is4 ? IPPROTO_IP : IPPROTO_IPV6;
	c->cmsg_type = is4 ? IP_PKTINFO : IPV6_PKTINFO;
	c->cmsg_len = (socklen_t)CMSG_LEN(len);
	memcpy(CMSG_DATA(c), is4 ? (const void *)&v4 : (const void *)&v6, len);
}

/* What its queue takes, as the kernel counts it. */
static uint32_t queue_size(int fd)
{
	uint32_t info[16] = { 0 };
	socklen_t len = sizeof(info);

	return getsockopt(fd, SOL_SOCKET, SO_MEMINFO_, info, &len) < 0 ? 0 : info[0];
}

/* A datagram that its reader has no room for, or that another socket gets, is lost without an error: so we look for it. */
static int wait_arrived(int fd, uint32_t before)
{
	for (unsigned ms = 0; queue_size(fd) <= before; ms++) {
		if (ms == CONNECT_S * 1000)
			return -ENOBUFS;
		usleep(1000);
	}
	return 0;
}

/* How many of those that are bound to the same address come before @end: all are bound in this order. */
static uint32_t same_address(const struct restore *r, const struct restore_socket *s, uint32_t end)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < end; i++) {
		struct restore_socket o;

		if (r->m.object[i].kind != MEM_OBJ_SOCKET)
			continue;
		restore_socket_read(r, &r->m.object[i], &o);
		n += o.k.family == s->k.family && o.k.type == SOCK_DGRAM && o.k.state == MEM_SOCK_BOUND &&
		     o.k.addr_len == s->k.addr_len && !memcmp(&o.addr, &s->addr, s->k.addr_len);
	}
	return n;
}

/*
 * Of several sockets at one address (SO_REUSEPORT) the kernel picks one for each datagram: a filter makes it pick this
 * one.
 */
static int pick(const struct restore *r, uint32_t i, const struct restore_socket *s)
{
	struct sock_filter number = { .code = BPF_RET | BPF_K, .k = same_address(r, s, i) };
	const struct sock_fprog prog = { .len = 1, .filter = &number };

	return sys_setsockopt_cookie(r->object[i], SOL_SOCKET, REUSEPORT_CBPF, &prog, sizeof(prog), r->agent->cookie);
}

/* A sender that is there sends itself; for others a new socket with that address does. */
static int send_datagram(struct restore *r, uint32_t i, const struct restore_socket *s, const struct mem_message *m,
			 const uint8_t *data)
{
	struct restore_socket from = { .k = { .family = s->k.family,
					      .type = SOCK_DGRAM,
					      .protocol = IPPROTO_UDP,
					      .uid = s->k.uid,
					      .gid = s->k.gid,
					      .addr_len = m->addr_len } };
	struct iovec io = { (void *)(uintptr_t)(data + m->addr_len + 4 * m->objects), m->len };
	_Alignas(8) char control[CMSG_SPACE(sizeof(struct in6_pktinfo))] = { 0 };
	struct sockaddr_storage to;
	struct msghdr h = { .msg_name = &to, .msg_namelen = s->k.addr_len, .msg_iov = &io, .msg_iovlen = 1 };
	AUTO_CLOSE int temp = -1;
	uint32_t before;
	bool told;
	int fd, x = 0;

	memcpy(&from.addr, data, m->addr_len);
	fd = find_sender(r, &from, &told);
	if (fd < 0) {
		x = fd = temp = socket_make(r, &from);
		if (x >= 0)
			x = socket_bind(fd, &from);
	} else if (told) {
		tell_source(&from, &h, control);
	}
	if (x < 0)
		return x;
	reach_datagram(s, &from.addr, &to);
	before = queue_size(r->object[i]);
	if (sendmsg(fd, &h, MSG_DONTWAIT) != (ssize_t)m->len)
		return -errno;
	return wait_arrived(r->object[i], before);
}

static int make_queue(struct restore *r, uint32_t i)
{
	struct restore_socket s;
	bool shared;
	int x = 0;

	restore_socket_read(r, &r->m.object[i], &s);
	shared = s.k.type == SOCK_DGRAM && s.queue_len && same_address(r, &s, r->m.n[MEM_S_OBJECT]) > 1;
	if (shared)
		x = pick(r, i, &s);
	for (uint64_t at = 0; x == 0 && s.k.type == SOCK_DGRAM && at < s.queue_len;) {
		struct mem_message m;

		memcpy(&m, s.queue + at, sizeof(m));
		x = send_datagram(r, i, &s, &m, s.queue + at + sizeof(m));
		at += sizeof(m) + m.addr_len + 4ULL * m.objects + m.len;
	}
	if (shared && x == 0)
		x = set_int(r->object[i], SOL_SOCKET, REUSEPORT_DETACH, 0);
	return x;
}

/* Datagrams of others than the one that it is connected to are in its queue by now. */
static int make_peer(struct restore *r, uint32_t i)
{
	struct restore_socket s;

	restore_socket_read(r, &r->m.object[i], &s);
	if (s.k.type != SOCK_DGRAM || !s.k.peer_len)
		return 0;
	if (connect(r->object[i], (const struct sockaddr *)&s.peer, s.k.peer_len) < 0)
		return -errno;
	return shut(r->object[i], s.k.shutdown);
}

static int make_late(struct restore *r, uint32_t i)
{
	struct restore_socket s;

	restore_socket_read(r, &r->m.object[i], &s);
	return restore_socket_late(r, &r->m.object[i], &s, r->object[i]);
}

static int say(const struct restore *r, uint32_t i, const char *what, int x, struct err *e)
{
	static const char *const names[] = { "a socket",	   "a bound socket",
					     "a listening socket", "a connection to the outside",
					     "a TCP connection",   "a TCP connection that was not accepted",
					     "a closed TCP socket" };
	struct restore_socket s;

	restore_socket_read(r, &r->m.object[i], &s);
	return err_sys(e, ERR_UNSUPPORTED, x, "%s %s again", what,
		       s.k.state < ARRAY_LEN(names) ? names[s.k.state] : "?");
}

int restore_sockets(struct restore *r, struct err *e)
{
	static const struct {
		uint32_t states;
		int (*fn)(struct restore *, uint32_t);
	} step[] = {
		{ 1U << MEM_SOCK_UNBOUND | 1U << MEM_SOCK_BOUND | 1U << MEM_SOCK_LISTEN, make_bound },
		{ 1U << MEM_SOCK_PAIR, make_pair },
		{ 1U << MEM_SOCK_RESET | 1U << MEM_SOCK_CLOSED, make_ended },
		{ 1U << MEM_SOCK_LISTEN, make_listening },
		{ 1U << MEM_SOCK_PENDING, make_pending },
		{ 1U << MEM_SOCK_BOUND | 1U << MEM_SOCK_UNBOUND, make_queue },
		{ 1U << MEM_SOCK_BOUND | 1U << MEM_SOCK_UNBOUND, make_peer },
		{ ~0U, make_late },
	};

	for (size_t k = 0; k < ARRAY_LEN(step); k++)
		for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++) {
			struct restore_socket s;
			int x;

			if (r->m.object[i].kind != MEM_OBJ_SOCKET)
				continue;
			restore_socket_read(r, &r->m.object[i], &s);
			if (!is_inet(&r->m.object[i], &s) || !(step[k].states & 1U << s.k.state) ||
			    (step[k].fn == make_pair && r->object[i] >= 0))
				continue;
			x = step[k].fn(r, i);
			if (x < 0)
				return say(r, i, step[k].fn == make_late ? "set options of" : "make", x, e);
		}
	return 0;
}
