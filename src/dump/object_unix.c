/* Unix sockets: both ends in here, or no other end. */
#include "dump/object_socket.h"
#include "base/base.h"
#include "base/sys.h"

#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define QUEUE_MAX (4U << 20)
#define UNIX_IS_CONNECTED 1 /* TCP_ESTABLISHED, as the kernel says it of unix sockets too */

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
	rec->b = shut | (socket_number(x->o->fd, SOL_SOCKET, SO_PASSCRED) > 0 ? MEM_UNIX_PASSCRED : 0);
	rec->pos = wait_ms(x->o->fd, SO_RCVTIMEO) | wait_ms(x->o->fd, SO_SNDTIMEO) << 32;
}

int object_unix(struct opened *x, struct err *e)
{
	struct mem_socket *k = &x->o->socket->k;
	const struct external *ext;
	struct unix_info info;
	int r = ask_unix(x->f.st.st_ino, &info);

	if (r < 0)
		return proc_refuse(x->p, e, "has a unix socket, and this kernel does not tell its other end");
	if (k->state == MEM_SOCK_BOUND && k->addr[2] && k->addr[2] != '/')
		return proc_refuse(x->p, e, "has a unix socket with a name that is relative to some folder");
	if (k->state == MEM_SOCK_BOUND && k->addr[2] == '/') {
		char path[sizeof(k->addr)] = { 0 };

		memcpy(path, k->addr + 2, k->addr_len - 2);
		/* A new one will be put in its place. */
		if (!info.peer && !file_may_reach(x->d, x->p, path, 2))
			return proc_refuse(x->p, e, "has the unix socket %.100s, which it could not make again", path);
	}
	if (socket_number(x->o->fd, SOL_SOCKET, SO_ACCEPTCONN) > 0) {
		if (info.queued)
			return proc_refuse(x->p, e, "has connections that it did not accept yet");
		k->state = MEM_SOCK_LISTEN;
		k->backlog = 128; /* it does not tell */
		return 0;
	}
	if (!info.peer) {
		if (info.state == UNIX_IS_CONNECTED && k->type != SOCK_DGRAM) { /* the other end is closed */
			paired(x, k, 3);
			return 0;
		}
		if (k->type == SOCK_DGRAM && socket_unread(x->o->fd))
			return proc_refuse(x->p, e, "has a unix socket with data that was not read");
		return 0;
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
		return socket_unread(o->fd) ? proc_refuse(o->p, e, "has datagrams that were not read") : 0;
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
