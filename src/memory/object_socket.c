/* Sockets: what every kind of them has. object_inet.c and object_unix.c know the rest. */
#include "memory/object_socket.h"
#include "base/base.h"
#include "base/sys.h"
#include "proto/socket_option.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define OPTIONS_MAX 8192U
#define FILTER_MAX 4096U /* instructions, BPF_MAXINSNS */
#define QUEUE_MAX (8U << 20)
#define MESSAGES_MAX 4096U
#define MESSAGE_MAX (1U << 20)
#define FDS_MAX 253U
#define SO_GET_FILTER_ 26
#define SO_LOCK_FILTER_ 44
#define SO_BUF_LOCK_ 72

struct value {
	uint8_t data[SOCKET_OPTION_MAX];
	socklen_t len;
	int error;
};

/* A new socket of one kind, to compare with and to try on. */
struct model {
	uint32_t family, type, protocol;
	int fd; /* -1: none */
	struct value *value; /* by socket_options */
};

struct socket *socket_new(void)
{
	struct socket *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->options = (struct buf)BUF_INIT(OPTIONS_MAX);
	s->filter = (struct buf)BUF_INIT(FILTER_MAX * sizeof(struct sock_filter));
	s->queue = (struct buf)BUF_INIT(QUEUE_MAX);
	return s;
}

int socket_number(int fd, int level, int name)
{
	int v = 0;
	socklen_t len = sizeof(v);

	return getsockopt(fd, level, name, &v, &len) < 0 ? -errno : v;
}

bool socket_unread(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

static void value_read(int fd, const struct socket_option *o, struct value *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->len = sizeof(ret->data);
	if (getsockopt(fd, o->level, o->name, ret->data, &ret->len) < 0) {
		ret->error = errno;
		ret->len = 0;
	} else if (ret->len > sizeof(ret->data)) {
		ret->error = EOVERFLOW;
		ret->len = 0;
	}
}

static bool value_same(const struct value *a, const struct value *b)
{
	return a->error == b->error && a->len == b->len && !memcmp(a->data, b->data, a->len);
}

static int model_init(struct model *m, const struct mem_socket *k, struct err *e)
{
	AUTO_CLOSE int spare = -1;

	if (m->value && m->family == k->family && m->type == k->type && m->protocol == k->protocol)
		return 0;
	if (!m->value)
		m->value = calloc(socket_options_n, sizeof(*m->value));
	if (m->fd >= 0)
		fd_close(TAKE_FD(m->fd));
	m->family = k->family;
	m->type = k->type;
	m->protocol = k->protocol;
	m->fd = socket((int)k->family, (int)k->type | SOCK_CLOEXEC, (int)k->protocol);
	if (!m->value)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "make a socket");
	/* One more for value_can_be_set(); and the agent makes two at a time that it closes again (agent/restore/socket.c). */
	spare = m->fd < 0 ? -1 : socket((int)k->family, (int)k->type | SOCK_CLOEXEC, (int)k->protocol);
	if (spare < 0 && errno == EPERM)
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
			       "the sandbox has reached its limit of sockets; two more are needed to copy them");
	if (spare < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "make a socket");
	for (size_t i = 0; i < socket_options_n; i++)
		value_read(m->fd, &socket_options[i], &m->value[i]);
	return 0;
}

/* Whether a new socket can be given it. We have no more rights over the sandbox's network than the agent. */
static bool value_can_be_set(const struct mem_socket *k, const struct socket_option *o, const struct value *v)
{
	AUTO_CLOSE int fd = socket((int)k->family, (int)k->type | SOCK_CLOEXEC, (int)k->protocol);
	struct value now;

	if (fd < 0 || v->error || o->flags & SOCKET_REFUSED || socket_option_put(fd, o, v->data, v->len) < 0)
		return false;
	value_read(fd, o, &now);
	return value_same(&now, v);
}

static bool option_means_nothing(const struct socket *s, const struct socket_option *o, int locked)
{
	return (o->flags & SOCKET_IDLE && s->connected) || (o->flags & SOCKET_SNDBUF && !(locked & 1)) ||
	       (o->flags & SOCKET_RCVBUF && !(locked & 2)) || (o->flags & SOCKET_DGRAM && s->k.type == SOCK_STREAM);
}

static int read_options(struct opened *x, struct err *e)
{
	static struct model model = { .fd = -1 };
	struct socket *s = x->o->socket;
	int locked = socket_number(x->o->fd, SOL_SOCKET, SO_BUF_LOCK_), r = model_init(&model, &s->k, e);

	if (locked < 0)
		locked = 3; /* kernels before 5.14 do not report it */
	for (size_t i = 0; r == 0 && i < socket_options_n; i++) {
		const struct socket_option *o = &socket_options[i];
		struct value v;

		value_read(x->o->fd, o, &v);
		if (value_same(&v, &model.value[i]) || option_means_nothing(s, o, locked))
			continue;
		if (!value_can_be_set(&s->k, o, &v))
			return proc_refuse(x->p, e, "has a socket with %s, which cannot be restored", o->text);
		if (socket_option_add(&s->options, o, v.data, v.len) < 0)
			return proc_refuse(x->p, e, "has a socket with too many options");
	}
	return r;
}

static int read_filter(struct opened *x, struct err *e)
{
	struct socket *s = x->o->socket;
	AUTO_FREE struct sock_filter *code = NULL;
	socklen_t n = 0;
	int r = getsockopt(x->o->fd, SOL_SOCKET, SO_GET_FILTER_, NULL, &n) < 0 ? -errno : 0;

	if (r == -EACCES)
		return proc_refuse(x->p, e, "has a socket with a BPF program");
	if (r < 0 || !n) /* some kinds have none */
		return socket_number(x->o->fd, SOL_SOCKET, SO_LOCK_FILTER_) > 0 ?
			       proc_refuse(x->p, e, "has a socket that does not allow filters (SO_LOCK_FILTER)") :
			       0;
	code = n <= FILTER_MAX ? calloc(n, sizeof(*code)) : NULL;
	/* The length is in instructions. */
	if (!code || getsockopt(x->o->fd, SOL_SOCKET, SO_GET_FILTER_, code, &n) < 0 || !n)
		return err_sys(e, ERR_INTERNAL, code ? -errno : -ENOMEM, "filter of a socket");
	if (socket_number(x->o->fd, SOL_SOCKET, SO_LOCK_FILTER_) > 0)
		s->k.flags |= MEM_SOCK_FILTER_LOCKED;
	r = buf_add(&s->filter, code, n * sizeof(*code));
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "filter of a socket") : 0;
}

static bool is_bound(const struct mem_socket *k)
{
	static const uint8_t zeros[sizeof(k->addr)];

	if (k->family == AF_UNIX)
		return k->addr_len > sizeof(sa_family_t);
	return k->addr_len > 2 && memcmp(k->addr + 2, zeros, 2) != 0; /* the port */
}

static int read_names(struct opened *x, struct mem_socket *k, struct err *e)
{
	struct sockaddr_storage addr = { 0 };
	socklen_t len = sizeof(addr);
	int family = socket_number(x->o->fd, SOL_SOCKET, SO_DOMAIN),
	    type = socket_number(x->o->fd, SOL_SOCKET, SO_TYPE);
	int proto = socket_number(x->o->fd, SOL_SOCKET, SO_PROTOCOL);

	if (family < 0 || type < 0 || proto < 0 || getsockname(x->o->fd, (struct sockaddr *)&addr, &len) < 0)
		return err_sys(e, ERR_INTERNAL, -EINVAL, "a socket of process %u", x->p->pid);
	k->family = (uint32_t)family;
	k->type = (uint32_t)type;
	k->protocol = (uint32_t)proto;
	k->addr_len = len < sizeof(k->addr) ? len : sizeof(k->addr);
	memcpy(k->addr, &addr, k->addr_len);
	len = sizeof(addr);
	memset(&addr, 0, sizeof(addr));
	if (getpeername(x->o->fd, (struct sockaddr *)&addr, &len) < 0) {
		/* SO_PEERNAME works after the connection has ended, too, but only for the exact length of the name. */
		len = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
		if (family == AF_UNIX || getsockopt(x->o->fd, SOL_SOCKET, SO_PEERNAME, &addr, &len) < 0)
			len = 0;
	}
	k->peer_len = len < sizeof(k->peer) ? len : sizeof(k->peer);
	memcpy(k->peer, &addr, k->peer_len);
	k->state = is_bound(k) ? MEM_SOCK_BOUND : MEM_SOCK_UNBOUND;
	if (!proc_map(&x->d->uids, x->f.st.st_uid, &k->uid) || !proc_map(&x->d->gids, x->f.st.st_gid, &k->gid))
		return proc_refuse(x->p, e, "has a socket of a user that the sandbox does not have");
	return 0;
}

int object_socket(struct opened *x, struct err *e)
{
	struct socket *s = x->o->socket = socket_new();
	int r;

	if (!s)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "a socket");
	r = read_names(x, &s->k, e);
	if (r < 0)
		return r;
	x->o->rec.kind = MEM_OBJ_SOCKET;
	if (x->o->rec.flags & O_ASYNC)
		return proc_refuse(x->p, e, "has asked for signals for a socket");
	if (s->k.family == AF_UNIX)
		r = object_unix(x, e);
	else if (s->k.family == AF_INET || s->k.family == AF_INET6)
		r = object_inet(x, e);
	else if (s->k.family == AF_NETLINK)
		r = object_netlink(x, e);
	else
		return proc_refuse(x->p, e, "has a socket of family %u", s->k.family);
	if (r < 0 || x->o->rec.kind != MEM_OBJ_SOCKET)
		return r;
	r = read_options(x, e);
	return r < 0 ? r : read_filter(x, e);
}

/* ---- queues ------------------------------------------------------------------------------------------------------- */

static void close_all(struct msghdr *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
		for (size_t i = 0; c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
				   i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		     i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			fd_close(fd);
		}
}

/* What came with it: descriptors, which are copies of our own now. Anything else cannot be sent again. */
static int take_control(struct dump *d, uint32_t at, struct msghdr *m, uint32_t *objects, uint32_t *ret_n,
			struct err *e)
{
	int r = 0;

	*ret_n = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); r == 0 && c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			return proc_refuse(d->object[at].p, e,
					   "has unread messages with credentials or times in a socket");
		for (size_t i = 0; r == 0 && i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) && *ret_n < FDS_MAX; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			r = object_in_flight(d, d->object[at].p, fd, &objects[*ret_n], e);
			++*ret_n;
		}
	}
	for (uint32_t i = 0; r == 0 && i < *ret_n; i++)
		if (d->object[objects[i]].own || d->object[objects[i]].rec.kind == MEM_OBJ_EPOLL ||
		    d->object[objects[i]].rec.kind == MEM_OBJ_EXTERNAL)
			r = proc_refuse(d->object[at].p, e,
					"has a descriptor in transit in a unix socket that only its process can open");
	return r;
}

/* Reads one message, or as much of a stream as one peek returns. 1: there was one; 0: none. */
static int read_message(struct dump *d, uint32_t at, uint8_t *data, struct err *e)
{
	struct sockaddr_storage from;
	struct iovec io = { data, MESSAGE_MAX };
	_Alignas(8) char control[CMSG_SPACE(sizeof(int) * FDS_MAX) + 256];
	struct msghdr m = { .msg_iov = &io,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control),
			    .msg_name = &from,
			    .msg_namelen = sizeof(from) };
	struct socket *s = d->object[at].socket;
	bool stream = s->k.type == SOCK_STREAM;
	ssize_t n = sys_recvmsg(d->object[at].fd, &m, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct mem_message rec = { 0 };
	uint32_t objects[FDS_MAX];
	int r;

	if (n < 0 || (n == 0 && stream))
		return n == -EAGAIN || n >= 0 ? 0 : err_sys(e, ERR_INTERNAL, (int)n, "peek into a socket");
	/* The end of a connection looks like an empty message. */
	if (n == 0 && s->k.type == SOCK_SEQPACKET && (s->k.shutdown & MEM_SOCK_SHUT_READ || !s->peer))
		return 0;
	if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		close_all(&m);
		return proc_refuse(d->object[at].p, e, "has a message in a socket that is too large");
	}
	r = take_control(d, at, &m, objects, &rec.objects, e);
	close_all(&m);
	if (r < 0)
		return r;
	s = d->object[at].socket;
	rec.len = (uint32_t)n;
	s->bytes += rec.len;
	rec.addr_len = stream || m.msg_namelen > sizeof(from) ? 0 : m.msg_namelen;
	if (socket_keeps(s, &from, rec.addr_len)) {
		r = buf_add(&s->queue, &rec, sizeof(rec));
		if (r == 0)
			r = buf_add(&s->queue, &from, rec.addr_len);
		if (r == 0)
			r = buf_add(&s->queue, objects, rec.objects * sizeof(*objects));
		if (r == 0)
			r = buf_add(&s->queue, data, rec.len);
	} else {
		s->dropped++;
	}
	return r < 0 ? proc_refuse(d->object[at].p, e, "has more than %u MiB of unread data in a socket",
				   QUEUE_MAX >> 20) :
		       1;
}

/* The end of a connection is nothing to read. */
static bool has_queue(const struct object *o, uint32_t *ret_bytes)
{
	uint32_t waiting = 0;

	*ret_bytes = UINT32_MAX;
	if (o->socket->k.type != SOCK_DGRAM &&
	    (o->socket->k.type == SOCK_STREAM || o->socket->k.shutdown & MEM_SOCK_SHUT_READ || !o->socket->peer))
		return sys_ioctl(o->fd, FIONREAD, &waiting) == 0 && (*ret_bytes = waiting) > 0;
	return socket_unread(o->fd);
}

int socket_queue(struct dump *d, uint32_t at, struct err *e)
{
	/* SO_PASSCRED and the like: come with each message */
	static const int told[] = { 16, 29, 34, 35, 37, 40, 63, 64, 65, 76 };
	const struct object *o = &d->object[at];
	AUTO_FREE uint8_t *data = NULL;
	uint32_t bytes;
	int r = 0, undone;

	if (!has_queue(o, &bytes))
		return 0;
	if (socket_number(o->fd, SOL_SOCKET, SO_PEEK_OFF) >= 0)
		return proc_refuse(o->p, e, "has a socket with SO_PEEK_OFF and unread data");
	for (size_t i = 0; i < ARRAY_LEN(told); i++)
		if (socket_number(o->fd, SOL_SOCKET, told[i]) > 0)
			return proc_refuse(o->p, e, "has unread messages with credentials or times in a socket");
	data = malloc(MESSAGE_MAX);
	if (!data)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "a queue");
	/* An empty message that was looked at before is not seen again but here. */
	if (o->socket->k.type == SOCK_DGRAM && recv(o->fd, data, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
		r = read_message(d, at, data, e);
	else
		r = 1;
	if (r < 0)
		return r;
	o = &d->object[at];
	r = socket_guard_change(&d->guard, GUARD_PEEK, o->fd);
	if (r < 0) {
		socket_guard_undo_peek(&d->guard, o->fd);
		return err_sys(e, ERR_INTERNAL, r, "peek into a socket of process %u", o->p->pid);
	}
	r = 1;
	/* Not past the last byte of a connection: there may be an error, which would be gone then. */
	for (unsigned i = 0; r == 1 && d->object[at].socket->bytes < bytes; i++)
		r = i < MESSAGES_MAX ?
			    read_message(d, at, data, e) :
			    proc_refuse(d->object[at].p, e, "has more than %u messages in a socket", MESSAGES_MAX);
	r = r < 0 ? r : 0;
	undone = socket_guard_undo_peek(&d->guard, d->object[at].fd);
	if (undone == -EOWNERDEAD && r == 0)
		return err_set(e, ERR_INTERNAL, -EIO,
			       "a socket of process %u was reset by cloche-dump itself, because its guard was killed",
			       d->object[at].p->pid);
	if (undone < 0 && undone != -EOWNERDEAD)
		return err_sys(e, ERR_INTERNAL, undone,
			       "reset SO_PEEK_OFF of a socket of process %u: its guard was killed",
			       d->object[at].p->pid);
	return r;
}

int object_socket_queues(struct dump *d, struct err *e)
{
	int r = 0;

	/* Those that are found on their way come behind, and may have something themselves. */
	for (uint32_t i = 0; r == 0 && i < d->n_objects; i++) {
		const struct object *o = &d->object[i];

		if (o->rec.kind == MEM_OBJ_SOCKET && o->socket->k.state != MEM_SOCK_LISTEN &&
		    o->socket->k.family != AF_NETLINK && o->socket->k.protocol != IPPROTO_TCP)
			r = socket_queue(d, i, e);
	}
	return r;
}

/* Once it is known what each is: the records. */
static int write_record(struct dump *d, struct object *o, struct err *e)
{
	struct socket *s = o->socket;
	AUTO(buf_done)
	struct buf b = BUF_INIT(sizeof(s->k) + OPTIONS_MAX + FILTER_MAX * sizeof(struct sock_filter) + QUEUE_MAX);
	int r;

	s->k.options = (uint32_t)s->options.len;
	s->k.filter = (uint32_t)s->filter.len;
	r = buf_add(&b, &s->k, sizeof(s->k));
	if (r == 0)
		r = buf_add(&b, s->options.data, s->options.len);
	if (r == 0)
		r = buf_add(&b, s->filter.data, s->filter.len);
	if (r == 0)
		r = buf_add(&b, s->queue.data, s->queue.len);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "a socket") : image_bytes(&d->image, b.data, b.len, &o->rec.data, e);
}

int object_socket_finish(struct dump *d, struct err *e)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < d->n_objects; i++)
		if (d->object[i].rec.kind == MEM_OBJ_SOCKET) {
			r = object_link_listener(d, i, e);
			object_cut_queue(&d->object[i]);
			if (r == 0)
				r = cut_note(d, &d->object[i], e);
			if (r == 0)
				r = write_record(d, &d->object[i], e);
		}
	return r;
}
