/* Unix sockets: both ends inside, or no other end. The kernel names their other ends by number (unix_diag). */
#include "memory/object_socket.h"
#include "base/base.h"
#include "base/sys.h"

#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <linux/unix_diag.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define UNIX_IS_CONNECTED 1 /* TCP_ESTABLISHED, as the kernel says it of unix sockets too */
#define WAITING_MAX 4096U

struct unix_info {
	uint32_t peer; /* inode; 0: none */
	uint32_t state;
	uint8_t shutdown;
	uint32_t backlog; /* of one that listens */
	uint32_t *waiting; /* of one that listens: inodes of those that were not accepted */
	uint32_t n_waiting;
};

static void take_attr(const struct nlattr *a, struct unix_info *ret)
{
	const uint8_t *data = (const uint8_t *)(a + 1);
	size_t len = a->nla_len - sizeof(*a);

	if (a->nla_type == UNIX_DIAG_PEER && len >= 4)
		memcpy(&ret->peer, data, 4);
	if (a->nla_type == UNIX_DIAG_SHUTDOWN && len >= 1)
		ret->shutdown = *data;
	if (a->nla_type == UNIX_DIAG_RQLEN && len >= 8)
		memcpy(&ret->backlog, data + 4, 4);
	if (a->nla_type == UNIX_DIAG_ICONS && !ret->waiting) {
		ret->waiting = calloc(len / 4 + 1, 4);
		ret->n_waiting = ret->waiting ? (uint32_t)(len / 4) : 0;
		if (ret->waiting)
			memcpy(ret->waiting, data, ret->n_waiting * 4UL);
	}
}

/* We are in the sandbox's network, so its sockets can be asked for by number. */
static int ask_unix(ino_t ino, struct unix_info *ret)
{
	struct {
		struct nlmsghdr h;
		struct unix_diag_req r;
	} ask = {
		.h = { .nlmsg_len = sizeof(ask), .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST },
		.r = { .sdiag_family = AF_UNIX,
		       .udiag_states = UINT32_MAX,
		       .udiag_ino = (uint32_t)ino,
		       .udiag_show = UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN | UDIAG_SHOW_ICONS,
		       .udiag_cookie = { UINT32_MAX, UINT32_MAX } },
	};
	AUTO_CLOSE int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	_Alignas(8) uint8_t answer[4096 + 4 * WAITING_MAX];
	const struct nlmsghdr *h = (const void *)answer;
	const struct unix_diag_msg *m = (const void *)(answer + NLMSG_HDRLEN);
	ssize_t n;

	if (fd < 0 || send(fd, &ask, sizeof(ask), 0) < 0)
		return -errno;
	n = recv(fd, answer, sizeof(answer), 0);
	if (n < (ssize_t)(NLMSG_HDRLEN + sizeof(*m)) || h->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
	    h->nlmsg_len > (size_t)n)
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

/* ---- names -------------------------------------------------------------------------------------------------------- */

static void path_of(const struct mem_socket *k, char ret[sizeof(((struct mem_socket *)0)->addr) + 1])
{
	memset(ret, 0, sizeof(k->addr) + 1);
	if (k->addr_len > 2)
		memcpy(ret, k->addr + 2, k->addr_len - 2);
}

/* Finds the folder that the socket's path is relative to. */
static int take_folder(struct opened *x, const char *name, const struct found *f, struct err *e)
{
	size_t n = strlen(name), len = strlen(f->path);
	char folder[MEM_PATH_MAX];
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	AUTO_CLOSE int fd = -1;
	struct stat st;

	if (!f->named || len < n + 1 || f->path[len - n - 1] != '/' || strcmp(f->path + len - n, name) != 0)
		return proc_refuse(x->p, e, "has the unix socket %.100s, whose location is unknown", name);
	snprintf(folder, sizeof(folder), "%.*s", len == n + 1 ? 1 : (int)(len - n - 1), f->path);
	fd = sys_openat2(x->d->root, folder, &how);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, ERR_INTERNAL, fd < 0 ? fd : -errno, "open %s", folder);
	return image_file(&x->d->image, folder, &st, 0, &x->o->rec.file, e);
}

static bool folder_exists(const struct dump *d, const char *path)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	AUTO_CLOSE int fd = -1;
	char folder[sizeof(((struct mem_socket *)0)->addr) + 1];

	snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(path, '/') - path + 1), path);
	fd = sys_openat2(d->root, folder, &how);
	return fd >= 0;
}

static int read_path(struct opened *x, struct err *e)
{
	struct mem_socket *k = &x->o->socket->k;
	char path[sizeof(k->addr) + 1], link[32];
	AUTO_CLOSE int file = -1, self = -1;
	struct found f;
	int r;

	path_of(k, path);
	if (!path[0])
		return 0;
	file = socket_guard_file(&x->d->guard, x->o->fd);
	self = sys_openat(AT_FDCWD, "/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (file < 0 || self < 0)
		return proc_refuse(x->p, e, "has the unix socket %.100s, whose location is unknown", path);
	snprintf(link, sizeof(link), "fd/%d", file);
	r = file_find(x->d, self, link, &f, e);
	if (r < 0)
		return r;
	/* One without a name, or whose name is another's by now, gets the name for a moment only. */
	if (f.st.st_nlink && (path[0] != '/' || f.named)) {
		k->flags |= MEM_SOCK_NAMED;
		r = path[0] == '/' ? 0 : take_folder(x, path, &f, e);
	} else if (path[0] != '/' && strchr(path, '/')) {
		r = proc_refuse(x->p, e, "has the unix socket %.100s, which was removed, and whose location is unknown",
				path);
	}
	/* The restore will put a new socket file in its place. */
	if (r == 0 && (path[0] == '/' || k->flags & MEM_SOCK_NAMED) &&
	    ((path[0] == '/' && !folder_exists(x->d, path)) ||
	     !file_may_reach(x->d, x->p, path[0] == '/' ? path : f.path, 2)))
		return proc_refuse(x->p, e, "has the unix socket %.100s, which it cannot recreate", path);
	return r;
}

/* ---- one of them -------------------------------------------------------------------------------------------------- */

/* SO_PEERCRED, with the process number as it is seen inside. */
static int read_cred(struct opened *x, struct err *e)
{
	struct mem_socket *k = &x->o->socket->k;
	struct {
		uint32_t pid, uid, gid;
	} c;
	socklen_t len = sizeof(c);
	int pid;

	if (getsockopt(x->o->fd, SOL_SOCKET, SO_PEERCRED, &c, &len) < 0 || c.uid == UINT32_MAX)
		return 0;
	pid = socket_guard_change(&x->d->guard, GUARD_CRED, x->o->fd);
	if (pid <= 0 || !proc_map(&x->d->uids, c.uid, &k->cred[1]) || !proc_map(&x->d->gids, c.gid, &k->cred[2]))
		return proc_refuse(x->p, e,
				   "has a unix socket whose other end was made by a process outside the sandbox");
	k->cred[0] = (uint32_t)pid;
	k->cred[3] = 1;
	return 0;
}

static const struct external *warm_end(const struct dump *d, uint32_t peer)
{
	for (size_t i = 0; i < d->n_external; i++)
		if (d->external[i].role == MEM_WARM && (uint32_t)d->external[i].ino == peer)
			return &d->external[i];
	return NULL;
}

int object_unix(struct opened *x, struct err *e)
{
	struct socket *s = x->o->socket;
	struct pollfd p = { .fd = x->o->fd, .events = POLLPRI };
	const struct external *ext;
	struct unix_info info = { 0 };
	int r = ask_unix(x->f.st.st_ino, &info);

	if (r < 0)
		return proc_refuse(x->p, e, "has a unix socket, and this kernel does not report its other end");
	s->waiting = info.waiting;
	s->n_waiting = info.n_waiting;
	s->peer = info.peer;
	s->k.shutdown = info.shutdown & 3;
	ext = info.peer ? warm_end(x->d, info.peer) : NULL;
	if (ext) {
		x->o->rec.kind = MEM_OBJ_EXTERNAL;
		x->o->rec.a = ext->id;
		x->o->rec.b = MEM_WARM;
		return 0;
	}
	poll(&p, 1, 0);
	s->failed = p.revents & (POLLERR | POLLPRI);
	if (socket_number(x->o->fd, SOL_SOCKET, SO_ACCEPTCONN) > 0) {
		s->k.state = MEM_SOCK_LISTEN;
		s->k.backlog = info.backlog < 65535 ? info.backlog : 65535;
	} else if (s->k.type != SOCK_DGRAM && (info.peer || info.state == UNIX_IS_CONNECTED)) {
		s->k.state = MEM_SOCK_PAIR;
		s->connected = true;
	}
	if (s->failed && (s->k.state != MEM_SOCK_PAIR || info.peer || p.revents & POLLPRI))
		return proc_refuse(x->p, e, "has a unix socket with an unread error or urgent data");
	if (s->failed)
		s->k.flags |= MEM_SOCK_UNHEARD;
	r = read_path(x, e);
	return r < 0 ? r : read_cred(x, e);
}

bool socket_keeps(const struct socket *s, const struct sockaddr_storage *from, uint32_t len)
{
	return s->k.family == AF_UNIX || socket_from_inside(from, len);
}

/* ---- when all are known ------------------------------------------------------------------------------------------- */

static uint32_t by_inode(const struct dump *d, uint32_t ino)
{
	for (uint32_t i = 0; i < d->n_objects; i++)
		if (d->object[i].rec.kind == MEM_OBJ_SOCKET && (uint32_t)d->object[i].ino == ino)
			return i;
	return MEM_NONE;
}

/* Links a socket that waits at a listener, so that its other end cannot be read; or one whose other end is gone. */
static int link_waiting(struct dump *d, uint32_t at, struct err *e)
{
	struct object *o = &d->object[at];
	uint32_t sent = 0;

	for (uint32_t i = 0; i < d->n_objects; i++) {
		struct socket *l = d->object[i].rec.kind == MEM_OBJ_SOCKET ? d->object[i].socket : NULL;

		for (uint32_t k = 0; l && k < l->n_waiting; k++) {
			if (l->waiting[k] != (uint32_t)o->ino)
				continue;
			l->matched++;
			if (sys_ioctl(o->fd, SIOCOUTQ, &sent) < 0 || sent || o->socket->k.shutdown)
				return proc_refuse_now(
					o->p, e,
					"has sent data over a unix connection that process %u has not accepted yet",
					d->object[i].p->pid);
			o->socket->k.state = MEM_SOCK_PENDING;
			o->socket->k.order = k;
			o->rec.pair = i;
			return 0;
		}
	}
	if (o->socket->peer)
		return proc_refuse(o->p, e, "has a unix socket whose other end is outside the sandbox");
	o->rec.pair = at; /* the other end was closed */
	return 0;
}

static int link_dgram(struct dump *d, uint32_t at, uint32_t other, struct err *e)
{
	struct object *o = &d->object[at];
	const struct socket *peer = other == MEM_NONE ? NULL : d->object[other].socket;

	if (!o->socket->peer && !o->socket->k.peer_len)
		return 0;
	/* It was made by socketpair(), and the other socket was closed: both had no name. */
	if (!o->socket->peer && o->socket->k.addr_len <= 2 && o->socket->k.peer_len <= 2) {
		o->rec.pair = at;
		o->socket->k.flags |= MEM_SOCK_PEER | MEM_SOCK_TWO;
		return 0;
	}
	if (!peer)
		return proc_refuse(
			o->p, e,
			"has a unix socket that is connected to one that was closed, or is outside the sandbox");
	o->rec.pair = other;
	o->socket->k.flags |= MEM_SOCK_PEER;
	if (peer->peer == (uint32_t)o->ino && other != at && peer->k.addr_len <= 2 && o->socket->k.addr_len <= 2)
		o->socket->k.flags |= MEM_SOCK_TWO;
	else if (peer->k.addr_len <= 2)
		return proc_refuse(o->p, e,
				   "has a unix socket that is connected to a socket of process %u without a name",
				   d->object[other].p->pid);
	return 0;
}

int object_link_unix(struct dump *d, uint32_t at, struct err *e)
{
	struct object *o = &d->object[at];
	uint32_t other = o->socket->peer ? by_inode(d, o->socket->peer) : MEM_NONE;

	if (o->socket->k.type == SOCK_DGRAM)
		return link_dgram(d, at, other, e);
	if (o->socket->k.state != MEM_SOCK_PAIR)
		return 0;
	if (other == MEM_NONE)
		return link_waiting(d, at, e);
	o->rec.pair = at < other ? at : other;
	return 0;
}
