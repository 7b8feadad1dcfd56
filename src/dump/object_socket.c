/* Sockets: both ends in here, or no other end. */
#include "dump/object.h"
#include "base/base.h"
#include "base/sys.h"

#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define QUEUE_MAX (4U << 20)
#define TCP_IS_CLOSED 7
#define TCP_IS_LISTENING 10
#define UNIX_IS_CONNECTED 1 /* TCP_ESTABLISHED, as the kernel says it of unix sockets too */

static int number_opt(int fd, int level, int name)
{
	int v = 0;
	socklen_t len = sizeof(v);

	return getsockopt(fd, level, name, &v, &len) < 0 ? -errno : v;
}

struct unix_info {
	uint32_t peer; /* inode; 0: none */
	uint32_t state;
	uint8_t shutdown;
	uint32_t queued; /* of one that listens: connections */
};

static void take_attr(const struct nlattr *a, struct unix_info *ret)
{
	const uint8_t *data = (const uint8_t *)(a + 1);
	size_t len = a->nla_len - sizeof(*a);

	if (a->nla_type == UNIX_DIAG_PEER && len >= 4)
		memcpy(&ret->peer, data, 4);
	if (a->nla_type == UNIX_DIAG_SHUTDOWN && len >= 1)
		ret->shutdown = *data;
	if (a->nla_type == UNIX_DIAG_RQLEN && len >= 4)
		memcpy(&ret->queued, data, 4);
}

/* We are in the sandbox's network, so its sockets can be asked for by number. */
static int ask_unix(ino_t ino, struct unix_info *ret)
{
	struct {
		struct nlmsghdr h;
		struct unix_diag_req r;
	} ask = {
		.h = { .nlmsg_len = sizeof(ask), .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST },
		.r = { .sdiag_family = AF_UNIX, .udiag_states = UINT32_MAX, .udiag_ino = (uint32_t)ino,
		       .udiag_show = UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN, .udiag_cookie = { UINT32_MAX, UINT32_MAX } },
	};
	AUTO_CLOSE int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	_Alignas(8) uint8_t answer[4096];
	const struct nlmsghdr *h = (const void *)answer;
	const struct unix_diag_msg *m = (const void *)(answer + NLMSG_HDRLEN);
	ssize_t n;

	if (fd < 0 || send(fd, &ask, sizeof(ask), 0) < 0)
		return -errno;
	n = recv(fd, answer, sizeof(answer), 0);
	if (n < (ssize_t)(NLMSG_HDRLEN + sizeof(*m)) || h->nlmsg_type != SOCK_DIAG_BY_FAMILY || h->nlmsg_len > (size_t)n)
		return -EOPNOTSUPP;
	*ret = (struct unix_info){ .state = m->udiag_state };
	for (size_t at = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(*m)); at + sizeof(struct nlattr) <= h->nlmsg_len;) {
		const struct nlattr *a = (const void *)(answer + at);

		if (a->nla_len < sizeof(*a) || a->nla_len > h->nlmsg_len - at)
			break;
		take_attr(a, ret);
		at += NLA_ALIGN(a->nla_len);
	}
	return 0;
}

static int add_option(struct buf *b, int fd, int level, int name)
{
	uint8_t value[16];
	socklen_t len = sizeof(value);
	uint32_t head[3];
	int r;

	if (getsockopt(fd, level, name, value, &len) < 0)
		return 0; /* it has none of that */
	head[0] = (uint32_t)level;
	head[1] = (uint32_t)name;
	head[2] = len;
	r = buf_add(b, head, sizeof(head));
	return r < 0 ? r : buf_add(b, value, len);
}

/* One without a peer: what it is bound to, and options that programs set. */
static int alone(struct opened *x, const struct mem_socket *k, struct err *e)
{
	static const int general[] = { SO_REUSEADDR, SO_REUSEPORT, SO_KEEPALIVE, SO_BROADCAST, SO_PASSCRED, SO_OOBINLINE,
				       SO_LINGER, SO_RCVTIMEO, SO_SNDTIMEO };
	AUTO(buf_done) struct buf b = BUF_INIT(4096);
	int fd = x->o->fd, r = buf_add(&b, k, sizeof(*k));

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(general); i++)
		r = add_option(&b, fd, SOL_SOCKET, general[i]);
	if (r == 0 && k->family == AF_INET6)
		r = add_option(&b, fd, IPPROTO_IPV6, IPV6_V6ONLY);
	if (r == 0 && k->protocol == IPPROTO_TCP)
		r = add_option(&b, fd, IPPROTO_TCP, TCP_NODELAY);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "options of a socket");
	x->o->rec.kind = MEM_OBJ_LISTEN;
	return image_bytes(&x->d->image, b.data, b.len, &x->o->rec.data, e);
}

static bool is_bound(const struct mem_socket *k)
{
	static const uint8_t zeros[sizeof(k->addr)];

	if (k->family == AF_UNIX)
		return k->addr_len > sizeof(sa_family_t);
	return k->addr_len > 2 && memcmp(k->addr + 2, zeros, 2) != 0; /* the port */
}

/* Also an empty message, which no count of bytes tells of. */
static bool unread(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

static int inet(struct opened *x, struct mem_socket *k, struct err *e)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);
	struct sockaddr_storage peer;
	socklen_t plen = sizeof(peer);
	int fd = x->o->fd;

	if (k->type == SOCK_STREAM && k->protocol == IPPROTO_TCP) {
		if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
			return err_sys(e, ERR_INTERNAL, -errno, "a TCP socket");
		if (info.tcpi_state == TCP_IS_LISTENING) {
			if (info.tcpi_unacked)
				return proc_refuse(x->p, e, "has connections that it did not accept yet");
			k->state = MEM_SOCK_LISTEN;
			k->backlog = info.tcpi_sacked < 65535 ? info.tcpi_sacked : 65535;
		} else if (info.tcpi_state != TCP_IS_CLOSED) {
			/* Whoever is at the other end, outside, is not carried: as after a failure of the network. */
			k->state = MEM_SOCK_RESET;
			k->addr_len = 0;
			memset(k->addr, 0, sizeof(k->addr));
			x->o->connected = true;
		}
		return alone(x, k, e);
	}
	if (k->type != SOCK_DGRAM || k->protocol != IPPROTO_UDP)
		return proc_refuse(x->p, e, "has a socket of a kind that can not be carried");
	if (getpeername(fd, (struct sockaddr *)&peer, &plen) == 0)
		return proc_refuse(x->p, e, "has a connected UDP socket");
	if (unread(fd))
		return proc_refuse(x->p, e, "has a UDP socket with data that was not read");
	return alone(x, k, e);
}

/* One end's address and port, IPv4 as mapped. */
struct end {
	uint8_t addr[16];
	uint16_t port;
};

static bool end_of(int fd, int (*name)(int, struct sockaddr *, socklen_t *), struct end *ret)
{
	struct sockaddr_in6 a = { 0 };
	const struct sockaddr_in *in = (const struct sockaddr_in *)&a;
	socklen_t len = sizeof(a);

	if (name(fd, (struct sockaddr *)&a, &len) < 0)
		return false;
	memset(ret, 0, sizeof(*ret));
	if (a.sin6_family == AF_INET) {
		ret->addr[10] = ret->addr[11] = 0xff;
		memcpy(ret->addr + 12, &in->sin_addr, 4);
		ret->port = in->sin_port;
	} else {
		memcpy(ret->addr, &a.sin6_addr, 16);
		ret->port = a.sin6_port;
	}
	return true;
}

int object_link_tcp(struct dump *d, uint32_t at, struct err *e)
{
	struct end here, there, a, b;
	const struct object *o = &d->object[at];

	/* One that only begins to connect has no other end yet. */
	if (!end_of(o->fd, getsockname, &here) || !end_of(o->fd, getpeername, &there))
		return 0;
	for (uint32_t i = 0; i < d->n_objects; i++) {
		const struct object *other = &d->object[i];

		if (i != at && other->connected && end_of(other->fd, getsockname, &a) && end_of(other->fd, getpeername, &b) &&
		    !memcmp(&a, &there, sizeof(a)) && !memcmp(&b, &here, sizeof(b)))
			return proc_refuse(o->p, e, "has a TCP connection to process %u, inside", other->p->pid);
	}
	return 0;
}

static uint64_t wait_ms(int fd, int name)
{
	struct timeval t = { 0 };
	socklen_t len = sizeof(t);
	uint64_t ms;

	if (getsockopt(fd, SOL_SOCKET, name, &t, &len) < 0)
		return 0;
	ms = (uint64_t)t.tv_sec * 1000 + ((uint64_t)t.tv_usec + 999) / 1000;
	return ms < UINT32_MAX ? ms : UINT32_MAX;
}

/* One end of a pair. */
static void paired(struct opened *x, const struct mem_socket *k, unsigned shut)
{
	struct mem_object *rec = &x->o->rec;

	rec->kind = MEM_OBJ_UNIX;
	rec->a = k->type;
	rec->b = shut | (number_opt(x->o->fd, SOL_SOCKET, SO_PASSCRED) > 0 ? MEM_UNIX_PASSCRED : 0);
	rec->pos = wait_ms(x->o->fd, SO_RCVTIMEO) | wait_ms(x->o->fd, SO_SNDTIMEO) << 32;
}

static int unix_socket(struct opened *x, struct mem_socket *k, struct err *e)
{
	const struct external *ext;
	struct unix_info info;
	int r = ask_unix(x->f.st.st_ino, &info);

	if (r < 0)
		return proc_refuse(x->p, e, "has a unix socket, and this kernel does not tell its other end");
	if (k->state == MEM_SOCK_BOUND && k->addr[2] && k->addr[2] != '/')
		return proc_refuse(x->p, e, "has a unix socket with a name that is relative to some folder");
	if (number_opt(x->o->fd, SOL_SOCKET, SO_ACCEPTCONN) > 0) {
		if (info.queued)
			return proc_refuse(x->p, e, "has connections that it did not accept yet");
		k->state = MEM_SOCK_LISTEN;
		k->backlog = 128; /* it does not tell */
		return alone(x, k, e);
	}
	if (!info.peer) {
		if (info.state == UNIX_IS_CONNECTED && k->type != SOCK_DGRAM) { /* the other end is closed */
			paired(x, k, 3);
			return 0;
		}
		if (k->type == SOCK_DGRAM && unread(x->o->fd))
			return proc_refuse(x->p, e, "has a unix socket with data that was not read");
		return alone(x, k, e);
	}
	ext = NULL;
	for (size_t i = 0; i < x->d->n_external; i++)
		if (x->d->external[i].role == MEM_WARM && (uint32_t)x->d->external[i].ino == info.peer)
			ext = &x->d->external[i];
	if (ext) {
		x->o->rec.kind = MEM_OBJ_EXTERNAL;
		x->o->rec.a = ext->id;
		x->o->rec.b = MEM_WARM;
		return 0;
	}
	paired(x, k, info.shutdown & 3);
	x->o->peer = info.peer;
	return 0;
}

int object_socket(struct opened *x, struct err *e)
{
	struct mem_socket k = { .state = MEM_SOCK_UNBOUND };
	struct sockaddr_storage addr = { 0 };
	socklen_t len = sizeof(addr);
	int family = number_opt(x->o->fd, SOL_SOCKET, SO_DOMAIN), type = number_opt(x->o->fd, SOL_SOCKET, SO_TYPE);
	int proto = number_opt(x->o->fd, SOL_SOCKET, SO_PROTOCOL);

	if (family < 0 || type < 0 || proto < 0 || getsockname(x->o->fd, (struct sockaddr *)&addr, &len) < 0)
		return err_sys(e, ERR_INTERNAL, -EINVAL, "a socket of process %u", x->p->pid);
	k.family = (uint32_t)family;
	k.type = (uint32_t)type;
	k.protocol = (uint32_t)proto;
	k.addr_len = len < sizeof(k.addr) ? len : sizeof(k.addr);
	memcpy(k.addr, &addr, k.addr_len);
	if (is_bound(&k))
		k.state = MEM_SOCK_BOUND;
	if (x->o->rec.flags & O_ASYNC)
		return proc_refuse(x->p, e, "wants signals for a socket");
	if (family == AF_UNIX)
		return unix_socket(x, &k, e);
	if (family == AF_INET || family == AF_INET6)
		return inet(x, &k, e);
	return proc_refuse(x->p, e, "has a socket of family %d", family);
}

/* Descriptors that are on their way can not be carried; to find out, we get copies of them. */
static ssize_t peek(int fd, void *data, size_t len, bool *ret_fds, int *ret_flags)
{
	struct iovec io = { data, len };
	_Alignas(8) char control[CMSG_SPACE(sizeof(int) * 253)];
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	ssize_t n = sys_recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC);

	*ret_fds = false;
	*ret_flags = m.msg_flags;
	for (struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		*ret_fds = true;
		for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			int got;

			memcpy(&got, CMSG_DATA(c) + i * sizeof(int), sizeof(got));
			fd_close(got);
		}
	}
	return n;
}

static int read_queue(struct dump *d, struct object *o, struct err *e)
{
	AUTO_FREE uint8_t *data = NULL;
	uint32_t waiting = 0, len;
	int flags = 0;
	bool fds;
	ssize_t n;

	if (o->rec.a == SOCK_DGRAM)
		return unread(o->fd) ? proc_refuse(o->p, e, "has datagrams that were not read") : 0;
	if (sys_ioctl(o->fd, FIONREAD, &waiting) < 0 || !waiting)
		return 0;
	if (waiting > QUEUE_MAX)
		return proc_refuse(o->p, e, "has more than %u MiB in a unix socket", QUEUE_MAX >> 20);
	data = malloc(4 + waiting);
	if (!data)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "a queue");
	n = peek(o->fd, data + 4, waiting, &fds, &flags);
	if (n < 0)
		return err_sys(e, ERR_INTERNAL, (int)n, "look into a socket of process %u", o->p->pid);
	if (fds)
		return proc_refuse(o->p, e, "has a unix socket with descriptors on their way");
	if ((size_t)n != waiting)
		return proc_refuse(o->p, e, "has several messages in a unix socket");
	len = waiting;
	memcpy(data, &len, 4);
	if (o->rec.a == SOCK_STREAM)
		return image_bytes(&d->image, data + 4, waiting, &o->rec.data, e);
	return image_bytes(&d->image, data, waiting + 4, &o->rec.data, e);
}

int object_link_unix(struct dump *d, uint32_t at, struct err *e)
{
	struct object *o = &d->object[at];
	bool found = !o->peer;

	o->rec.pair = at;
	for (uint32_t i = 0; i < d->n_objects; i++) {
		const struct object *other = &d->object[i];

		if (other->rec.kind != MEM_OBJ_UNIX || i == at || !o->peer || (uint32_t)other->ino != o->peer)
			continue;
		found = true;
		o->rec.pair = i < at ? i : at;
	}
	for (uint32_t i = 0; !found && i < d->n_objects; i++)
		if (i != at && (uint32_t)d->object[i].ino == o->peer)
			return proc_refuse(o->p, e, "has a unix socket that is connected to one of process %u, which is not connected to it",
					   d->object[i].p->pid);
	if (!found)
		return proc_refuse(o->p, e, "has a unix socket whose other end is outside");
	return read_queue(d, o, e);
}
