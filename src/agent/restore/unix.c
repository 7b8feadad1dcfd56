/*
 * Unix sockets. Connections are made again by connecting to a listener of our own with the name of the original one, so
 * that each end reports the same names as before. The content of each queue is sent again by the socket that had sent
 * it, or by a new one with its name. SO_PEERCRED names the process that listened or connected, so a child with that
 * number and user does it.
 *
 * Sockets that have a file of their own are bound as their user, in open.c.
 */
#include "agent/restore/restore.h"
#include "agent/restore/socket.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/caps.h"
#include "proto/socket_option.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASIDE "/.cloche-aside" /* a name for what is in the way, behind the folder's */
#define QUEUE_ROOM (8 << 20)
#define SO_BUF_LOCK_ 72

struct unix_restore {
	struct restore *r;
	int *place; /* O_PATH of the file of a socket, while it can be reached by that alone; -1 */
	int *other; /* the other end of one whose other end was closed; -1 */
};

bool restore_unix_has_file(const struct restore *r, const struct mem_object *o)
{
	struct restore_socket s;

	if (o->kind != MEM_OBJ_SOCKET)
		return false;
	restore_socket_read(r, o, &s);
	return s.k.family == AF_UNIX && s.k.flags & MEM_SOCK_NAMED &&
	       (s.k.state == MEM_SOCK_BOUND || s.k.state == MEM_SOCK_LISTEN);
}

/* ---- as another process -------------------------------------------------------------------------------------------- */

enum unix_act { LISTEN, CONNECT, TWO };

struct act {
	enum unix_act what;
	int fd, backlog, type;
	struct sockaddr_storage addr;
	socklen_t len;
	int two[2]; /* TWO: descriptors that become the pair */
};

static int act_do(const struct act *a)
{
	int p[2], r;

	switch (a->what) {
	case LISTEN:
		return listen(a->fd, a->backlog) < 0 ? -errno : 0;
	case CONNECT:
		return connect(a->fd, (const struct sockaddr *)&a->addr, a->len) < 0 ? -errno : 0;
	case TWO:
		r = sys_socketpair(AF_UNIX, a->type | SOCK_CLOEXEC, 0, p);
		for (unsigned i = 0; r >= 0 && i < 2; i++) {
			r = sys_dup3(p[i], a->two[i], O_CLOEXEC);
			fd_close(p[i]);
		}
		return r < 0 ? r : 0;
	}
	return -EINVAL;
}

/* With our descriptors, and rights to reach any name; only its number and user are others. */
static int act_as(const struct restore *r, const uint32_t cred[4], const struct act *a)
{
	pid_t tid = (pid_t)cred[0];
	struct clone_args c = { .flags = CLONE_FILES, .exit_signal = SIGCHLD };
	int status;
	long pid;

	if (!cred[3] || r->agent->single_id)
		return act_do(a);
	if (tid > 1) {
		c.set_tid = (uint64_t)(uintptr_t)&tid;
		c.set_tid_size = 1;
	}
	pid = sys_clone3_cookie(&c, sizeof(c), r->agent->cookie);
	if (pid < 0)
		return (int)pid;
	if (pid == 0) {
		int x = prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 ? -errno : 0;

		if (x == 0)
			x = sys_setresgid(cred[2], cred[2], cred[2]);
		if (x == 0)
			x = sys_setresuid(cred[1], cred[1], cred[1]);
		if (x == 0)
			x = caps_raise_effective();
		if (x == 0)
			x = act_do(a);
		_exit(-x & 255);
	}
	while (waitpid((pid_t)pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
}

/* ---- names --------------------------------------------------------------------------------------------------------- */

static bool is_path(const struct restore_socket *s)
{
	return s->k.addr_len > 2 && ((const struct sockaddr_un *)&s->addr)->sun_path[0];
}

/* Where a relative path begins; "/tmp" for one that was removed, wherever that was. */
static void folder_of(const struct restore *r, const struct mem_object *o, char *ret)
{
	const struct mem_file *f = o && o->file != MEM_NONE ? &r->m.file[o->file] : NULL;

	if (!f) {
		memcpy(ret, "/tmp", 5);
		return;
	}
	memcpy(ret, restore_bytes(r, f->path), f->path.len);
	ret[f->path.len] = '\0';
}

/* A name for a moment: whatever has it is put aside. *ret_place is the socket's file, which has no name any more. */
static int bind_aside(const struct restore *r, const struct mem_object *o, const struct restore_socket *s, int fd,
		      int *ret_place)
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)&s->addr;
	char name[sizeof(un->sun_path) + 1] = "", aside[sizeof(name) + sizeof(ASIDE)], folder[MEM_PATH_MAX + 1] = "/";
	bool was;
	int x;

	if (!is_path(s))
		return bind(fd, (const struct sockaddr *)un, s->k.addr_len) < 0 ? -errno : 0;
	memcpy(name, un->sun_path, s->k.addr_len - 2);
	snprintf(aside, sizeof(aside), "%s%s", name, &ASIDE[1]);
	if (name[0] != '/')
		folder_of(r, o, folder);
	if (chdir(folder) < 0)
		return -errno;
	was = rename(name, aside) == 0;
	x = bind(fd, (const struct sockaddr *)un, s->k.addr_len) < 0 ? -errno : 0;
	if (x == 0 && ret_place) {
		*ret_place = sys_openat(AT_FDCWD, name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
		*ret_place = *ret_place < 0 ? *ret_place : restore_high(r, *ret_place);
		x = *ret_place < 0 ? *ret_place : 0;
	}
	if (x == 0 && unlink(name) < 0)
		x = -errno;
	if (was && rename(aside, name) < 0 && x == 0)
		x = -errno;
	return chdir("/") < 0 ? -errno : x;
}

/* How object @i can be connected or sent to. */
static int reach(struct unix_restore *u, uint32_t i, struct sockaddr_storage *ret, socklen_t *ret_len)
{
	struct sockaddr_un *un = (struct sockaddr_un *)ret;
	struct restore_socket s;

	restore_socket_read(u->r, &u->r->m.object[i], &s);
	*ret = s.addr;
	*ret_len = s.k.addr_len;
	if (s.k.addr_len <= 2)
		return -EDESTADDRREQ;
	if (!is_path(&s))
		return 0;
	if (u->place[i] < 0) {
		char folder[MEM_PATH_MAX + 1] = "", path[MEM_PATH_MAX + 128];
		int fd;

		if (((const struct sockaddr_un *)&s.addr)->sun_path[0] != '/')
			folder_of(u->r, &u->r->m.object[i], folder);
		snprintf(path, sizeof(path), "%s/%.*s", folder, (int)s.k.addr_len - 2,
			 ((const struct sockaddr_un *)&s.addr)->sun_path);
		fd = sys_openat(AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
		u->place[i] = fd < 0 ? fd : restore_high(u->r, fd);
		if (fd < 0)
			return fd;
	}
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	snprintf(un->sun_path, sizeof(un->sun_path), "/proc/self/fd/%d", u->place[i]);
	*ret_len = sizeof(*un);
	return 0;
}

/* ---- making them ------------------------------------------------------------------------------------------------- */

static int unix_make(struct restore *r, struct restore_socket *s)
{
	int fd = socket(AF_UNIX, (int)s->k.type | SOCK_CLOEXEC, 0), x;

	fd = fd < 0 ? -errno : restore_high(r, fd);
	if (fd < 0)
		return fd;
	x = socket_option_set(fd, s->options, s->k.options, 0, &s->failed);
	if (x < 0)
		fd_close(fd);
	return x < 0 ? x : fd;
}

static int make_two(struct restore *r, const uint32_t cred[4], uint32_t type, int ret[2])
{
	struct act a = { .what = TWO, .type = (int)type, .two = { -1, -1 } };
	int x = 0;

	for (unsigned i = 0; x >= 0 && i < 2; i++)
		x = a.two[i] = sys_fcntl(r->pages[0], F_DUPFD_CLOEXEC, r->base);
	if (x >= 0)
		x = act_as(r, cred, &a);
	if (x < 0) {
		fd_close_many(a.two, 2);
		return x;
	}
	ret[0] = a.two[0];
	ret[1] = a.two[1];
	return 0;
}

/* A connection of @a to @b, which has a name. */
static int make_connected(struct unix_restore *u, const struct mem_object *ao, struct restore_socket *a,
			  const struct mem_object *bo, struct restore_socket *b, int ret[2])
{
	AUTO_CLOSE int listener = unix_make(u->r, b), from = -1, place = -1;
	struct act act = { .what = LISTEN, .fd = listener, .backlog = 1, .addr = b->addr, .len = b->k.addr_len };
	int x = listener < 0 ? listener : bind_aside(u->r, bo, b, listener, &place);

	if (x == 0)
		x = act_as(u->r, a->k.cred, &act);
	if (x == 0)
		x = from = unix_make(u->r, a);
	if (x >= 0)
		x = a->k.addr_len > 2 ? bind_aside(u->r, ao, a, from, NULL) : 0;
	if (x < 0)
		return x;
	act.what = CONNECT;
	act.fd = from;
	if (place >= 0) {
		struct sockaddr_un *un = (struct sockaddr_un *)&act.addr;

		memset(&act.addr, 0, sizeof(act.addr));
		un->sun_family = AF_UNIX;
		snprintf(un->sun_path, sizeof(un->sun_path), "/proc/self/fd/%d", place);
		act.len = sizeof(*un);
	}
	x = act_as(u->r, b->k.cred, &act);
	if (x < 0)
		return x;
	ret[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	ret[1] = ret[1] < 0 ? -errno : restore_high(u->r, ret[1]);
	if (ret[1] < 0)
		return ret[1];
	ret[0] = TAKE_FD(from);
	return 0;
}

static int make_pair(struct unix_restore *u, uint32_t i)
{
	const struct mem_object *all = u->r->m.object;
	uint32_t other = MEM_NONE;
	struct restore_socket a, b = { 0 };
	int fd[2], x;

	if (u->r->object[i] >= 0)
		return 0;
	restore_socket_read(u->r, &all[i], &a);
	for (uint32_t j = i + 1; j < u->r->m.n[MEM_S_OBJECT] && other == MEM_NONE; j++)
		if (all[j].kind == MEM_OBJ_SOCKET && all[j].pair == all[i].pair) {
			restore_socket_read(u->r, &all[j], &b);
			other = b.k.state == MEM_SOCK_PAIR && b.k.family == AF_UNIX ? j : MEM_NONE;
		}
	if (other == MEM_NONE)
		b = (struct restore_socket){ .k = { .family = AF_UNIX, .type = a.k.type, .addr_len = a.k.peer_len },
					     .addr = a.peer };
	if (a.k.addr_len <= 2 && b.k.addr_len <= 2)
		x = make_two(u->r, a.k.cred, a.k.type, fd);
	else if (a.k.addr_len <= 2)
		x = make_connected(u, &all[i], &a, other == MEM_NONE ? NULL : &all[other], &b, fd);
	else {
		x = make_connected(u, other == MEM_NONE ? NULL : &all[other], &b, &all[i], &a, fd);
		if (x == 0) {
			const int from = fd[0];

			fd[0] = fd[1];
			fd[1] = from;
		}
	}
	if (x < 0)
		return x;
	u->r->object[i] = fd[0];
	if (other == MEM_NONE)
		u->other[i] = fd[1];
	else
		u->r->object[other] = fd[1];
	return 0;
}

static int make_dgrams(struct unix_restore *u, uint32_t i)
{
	struct restore_socket s;
	uint32_t other = u->r->m.object[i].pair;
	int fd[2], x;

	if (u->r->object[i] >= 0)
		return 0;
	restore_socket_read(u->r, &u->r->m.object[i], &s);
	x = make_two(u->r, s.k.cred, s.k.type, fd);
	if (x < 0)
		return x;
	u->r->object[i] = fd[0];
	if (other == i) /* that one was closed */
		u->other[i] = fd[1];
	else
		u->r->object[other] = fd[1];
	return 0;
}

/* Without a file of its own, or with one that was removed. */
static int make_single(struct unix_restore *u, uint32_t i)
{
	struct restore_socket s;

	if (u->r->object[i] >= 0)
		return 0;
	restore_socket_read(u->r, &u->r->m.object[i], &s);
	u->r->object[i] = unix_make(u->r, &s);
	if (u->r->object[i] < 0)
		return u->r->object[i];
	return s.k.addr_len > 2 ? bind_aside(u->r, &u->r->m.object[i], &s, u->r->object[i], &u->place[i]) : 0;
}

static int make_listening(struct unix_restore *u, uint32_t i)
{
	struct restore_socket s;
	struct act a = { .what = LISTEN, .fd = u->r->object[i] };

	restore_socket_read(u->r, &u->r->m.object[i], &s);
	a.backlog = (int)s.k.backlog;
	return act_as(u->r, s.k.cred, &a);
}

/* All that wait at one listener, in their order. */
static int make_pending(struct unix_restore *u, uint32_t listener)
{
	for (uint32_t order = 0, found = 1; found; order++) {
		found = 0;
		for (uint32_t i = 0; i < u->r->m.n[MEM_S_OBJECT]; i++) {
			struct restore_socket s;
			struct act a = { .what = CONNECT };
			int x;

			if (u->r->m.object[i].kind != MEM_OBJ_SOCKET || u->r->m.object[i].pair != listener)
				continue;
			restore_socket_read(u->r, &u->r->m.object[i], &s);
			if (s.k.family != AF_UNIX || s.k.state != MEM_SOCK_PENDING || s.k.order < order)
				continue;
			found = 1;
			if (s.k.order != order)
				continue;
			a.fd = u->r->object[i];
			x = reach(u, listener, &a.addr, &a.len);
			if (x == 0)
				x = act_as(u->r, s.k.cred, &a);
			if (x < 0)
				return x;
		}
	}
	return 0;
}

/* ---- queues ------------------------------------------------------------------------------------------------------ */

static uint32_t named_as(const struct restore *r, const uint8_t *addr, uint32_t len)
{
	for (uint32_t i = 0; len > 2 && i < r->m.n[MEM_S_OBJECT]; i++) {
		struct restore_socket s;

		if (r->m.object[i].kind != MEM_OBJ_SOCKET)
			continue;
		restore_socket_read(r, &r->m.object[i], &s);
		if (s.k.family == AF_UNIX && s.k.type == SOCK_DGRAM && s.k.addr_len == len &&
		    !memcmp(s.k.addr, addr, len))
			return i;
	}
	return MEM_NONE;
}

/* The socket that sends it: the other end, the one that has its name, or a new one. */
static int sender(struct unix_restore *u, uint32_t i, const struct restore_socket *s, const uint8_t *addr, uint32_t len,
		  int *ret_new)
{
	struct restore_socket n = { .k = { .family = AF_UNIX, .type = SOCK_DGRAM, .addr_len = len } };
	uint32_t from;
	int x;

	if (s->k.type != SOCK_DGRAM) {
		if (u->other[i] >= 0)
			return u->other[i];
		for (uint32_t j = 0; j < u->r->m.n[MEM_S_OBJECT]; j++) {
			struct restore_socket o;

			if (j == i || u->r->m.object[j].kind != MEM_OBJ_SOCKET ||
			    u->r->m.object[j].pair != u->r->m.object[i].pair)
				continue;
			restore_socket_read(u->r, &u->r->m.object[j], &o);
			if (o.k.state == MEM_SOCK_PAIR && o.k.family == AF_UNIX)
				return u->r->object[j];
		}
		return -ENOTCONN;
	}
	if (s->k.flags & MEM_SOCK_TWO)
		return u->other[i] >= 0 ? u->other[i] : u->r->object[u->r->m.object[i].pair];
	from = named_as(u->r, addr, len);
	if (from != MEM_NONE && u->r->object[from] >= 0)
		return u->r->object[from];
	memcpy(&n.addr, addr, len);
	*ret_new = unix_make(u->r, &n);
	x = *ret_new < 0 ? *ret_new : len > 2 ? bind_aside(u->r, NULL, &n, *ret_new, NULL) : 0;
	return x < 0 ? x : *ret_new;
}

static int send_one(struct unix_restore *u, uint32_t i, const struct restore_socket *s, const struct mem_message *m,
		    const uint8_t *data)
{
	struct iovec io = { (void *)(uintptr_t)(data + m->addr_len + 4 * m->objects), m->len };
	_Alignas(8) char control[CMSG_SPACE(sizeof(int) * 253)] = { 0 };
	struct msghdr h = { .msg_iov = &io, .msg_iovlen = 1 };
	struct sockaddr_storage to;
	AUTO_CLOSE int temp = -1;
	int from = sender(u, i, s, data, m->addr_len, &temp), was = 0, room = QUEUE_ROOM / 2, none = 0, x;
	socklen_t len = sizeof(was);
	ssize_t n;

	if (from < 0)
		return from;
	if (s->k.type == SOCK_DGRAM && !(s->k.flags & MEM_SOCK_TWO)) {
		x = reach(u, i, &to, &h.msg_namelen);
		if (x < 0)
			return x;
		h.msg_name = &to;
	}
	if (m->objects) {
		struct cmsghdr *c;

		h.msg_control = control;
		h.msg_controllen = (socklen_t)CMSG_SPACE(sizeof(int) * m->objects);
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = (socklen_t)CMSG_LEN(sizeof(int) * m->objects);
		for (uint32_t k = 0; k < m->objects; k++) {
			uint32_t object;

			memcpy(&object, data + m->addr_len + 4 * k, 4);
			if (u->r->object[object] < 0)
				return -EBADF;
			memcpy(CMSG_DATA(c) + k * sizeof(int), &u->r->object[object], sizeof(int));
		}
	}
	getsockopt(from, SOL_SOCKET, SO_SNDBUF, &was, &len);
	setsockopt(from, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	n = sys_sendmsg(from, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
	was /= 2;
	setsockopt(from, SOL_SOCKET, SO_SNDBUF, &was, sizeof(was));
	setsockopt(from, SOL_SOCKET, SO_BUF_LOCK_, &none, sizeof(none));
	return n < 0 ? (int)n : n == (ssize_t)m->len ? 0 : -EFBIG;
}

static int make_queue(struct unix_restore *u, uint32_t i)
{
	struct restore_socket s;
	int x = 0;

	restore_socket_read(u->r, &u->r->m.object[i], &s);
	for (uint64_t at = 0; x == 0 && at < s.queue_len;) {
		struct mem_message m;

		memcpy(&m, s.queue + at, sizeof(m));
		x = send_one(u, i, &s, &m, s.queue + at + sizeof(m));
		at += sizeof(m) + m.addr_len + 4ULL * m.objects + m.len;
	}
	return x;
}

/* Connected datagrams: when all queues are full, since only the other one could send then. */
static int make_peer(struct unix_restore *u, uint32_t i)
{
	struct restore_socket s;
	struct sockaddr_storage to;
	socklen_t len;
	int x;

	restore_socket_read(u->r, &u->r->m.object[i], &s);
	if (!(s.k.flags & MEM_SOCK_PEER) || s.k.flags & MEM_SOCK_TWO)
		return 0;
	x = reach(u, u->r->m.object[i].pair, &to, &len);
	return x < 0 ? x : connect(u->r->object[i], (const struct sockaddr *)&to, len) < 0 ? -errno : 0;
}

static int make_ready(struct unix_restore *u, uint32_t i)
{
	struct restore_socket s;
	int fd = u->r->object[i], x = 0;
	bool shut; /* by the end of the other one */

	restore_socket_read(u->r, &u->r->m.object[i], &s);
	shut = u->other[i] >= 0 && s.k.type != SOCK_DGRAM;
	if (u->other[i] >= 0) {
		/* Its process has closed it, with something in it or not. */
		if (s.k.flags & MEM_SOCK_UNHEARD && send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			return -errno;
		fd_close(TAKE_FD(u->other[i]));
	}
	if (!shut && s.k.shutdown && shutdown(fd, (int)s.k.shutdown - 1) < 0)
		return -errno;
	if (!u->r->agent->single_id)
		x = sys_fchownat(fd, "", s.k.uid, s.k.gid, AT_EMPTY_PATH);
	return x < 0 ? x : restore_socket_late(u->r, &u->r->m.object[i], &s, fd);
}

static bool step_is_for(const struct restore_socket *s, unsigned step)
{
	bool two = s->k.flags & MEM_SOCK_TWO;

	switch (step) {
	case 0:
		return s->k.state == MEM_SOCK_PAIR;
	case 1:
		return two;
	case 2:
		return s->k.state != MEM_SOCK_PAIR && !two;
	case 3:
	case 4:
		return s->k.state == MEM_SOCK_LISTEN;
	default:
		return true;
	}
}

int restore_unix(struct restore *r, struct err *e)
{
	static int (*const steps[])(struct unix_restore *, uint32_t) = {
		make_pair, make_dgrams, make_single, make_listening, make_pending, make_queue, make_peer, make_ready,
	};
	static const char *const words[] = {
		"connect",	     "make",	"bind",		  "listen with", "connect to",
		"fill the queue of", "connect", "set options of",
	};
	uint32_t n = r->m.n[MEM_S_OBJECT];
	struct unix_restore u = { .r = r,
				  .place = malloc((n + 1) * sizeof(int)),
				  .other = malloc((n + 1) * sizeof(int)) };
	int x = u.place && u.other ? 0 : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to restore with");

	for (uint32_t i = 0; x == 0 && i < n; i++)
		u.place[i] = u.other[i] = -1;
	for (unsigned step = 0; x == 0 && step < ARRAY_LEN(steps); step++)
		for (uint32_t i = 0; x == 0 && i < n; i++) {
			struct restore_socket s;

			if (r->m.object[i].kind != MEM_OBJ_SOCKET)
				continue;
			restore_socket_read(r, &r->m.object[i], &s);
			if (s.k.family != AF_UNIX || !step_is_for(&s, step))
				continue;
			x = steps[step](&u, i);
			if (x < 0)
				x = err_sys(e, ERR_UNSUPPORTED, x, "%s a unix socket again", words[step]);
		}
	for (uint32_t i = 0; u.place && u.other && i < n; i++)
		fd_close(u.place[i]);
	free(u.place);
	free(u.other);
	return x;
}
