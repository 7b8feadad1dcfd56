/* The process that changes settings of sockets while they are read, and restores them. */
#include "memory/socket_guard.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/caps.h"
#include "linux/seccomp.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELD_MAX 4
#define NET_ADMIN (1ULL << 12)
#define SIOCUNIXFILE_ 0x89e0
#define SO_BUF_LOCK_ 72
#define ROOM (4 << 20)
#ifdef __aarch64__
#define ARCH AUDIT_ARCH_AARCH64
#else
#define ARCH AUDIT_ARCH_X86_64
#endif

/* ---- the process itself: one question, one answer, until the other end is gone ---------------------------------- */

/* One that was changed, and how it was. */
struct held {
	int fd;
	int name, old; /* of SOL_SOCKET; ->name 0: not changed */
};

static int number(int fd, int name)
{
	int v = 0;
	socklen_t len = sizeof(v);

	return getsockopt(fd, SOL_SOCKET, name, &v, &len) < 0 ? -errno : v;
}

/* The old value is recorded before the change: the guard may be ended at any time. */
static int set(struct held *h, int name, int old, int now)
{
	h->old = old;
	h->name = name;
	return setsockopt(h->fd, SOL_SOCKET, name, &now, sizeof(now)) < 0 ? -errno : 0;
}

/*
 * Enlarges the receive buffer for all that its peer could not send yet. SO_RCVLOWAT makes the kernel do so; a socket
 * whose program has set SO_RCVBUF needs another size there instead.
 */
static int make_room(struct held *h)
{
	int waiting = 0, size = number(h->fd, SO_RCVBUF);

	if (size < 0 || ioctl(h->fd, FIONREAD, &waiting) < 0)
		return size < 0 ? size : -errno;
	if (number(h->fd, SO_BUF_LOCK_) & 2)
		return set(h, SO_RCVBUFFORCE, size / 2, waiting + ROOM);
	return set(h, SO_RCVLOWAT, number(h->fd, SO_RCVLOWAT), waiting + ROOM);
}

static int change(int what, struct held *h)
{
	if (what == GUARD_ROOM)
		return make_room(h);
	return what == GUARD_PEEK ? set(h, SO_PEEK_OFF, -1, 0) : -EINVAL;
}

static void undo(struct held *held, size_t *n)
{
	while (*n) {
		const struct held *h = &held[--*n];

		if (h->name)
			setsockopt(h->fd, SOL_SOCKET, h->name, &h->old, sizeof(h->old));
		fd_close(h->fd);
	}
}

static int peer_number(int fd)
{
	int c[3] = { 0 };
	socklen_t len = sizeof(c);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, c, &len) < 0 ? -errno : c[0];
}

static _Noreturn void serve(int s)
{
	struct held held[HELD_MAX];
	size_t n = 0;

	for (;;) {
		char what = 0;
		int fd = -1, answer = 0;
		size_t nfds = 0;
		ssize_t got = fd_recv(s, &what, 1, &fd, 1, &nfds);

		if (got == -EINTR)
			continue;
		if (got <= 0)
			break;
		if (what == GUARD_FILE) {
			AUTO_CLOSE int file = nfds ? sys_ioctl(fd, SIOCUNIXFILE_, NULL) : -EINVAL;

			fd_close(TAKE_FD(fd));
			answer = file < 0 ? file : 0;
			if (fd_send(s, &answer, sizeof(answer), &file, file >= 0 ? 1 : 0) < 0)
				break;
			continue;
		}
		if (what == GUARD_CRED) {
			answer = nfds ? peer_number(fd) : -EINVAL;
		} else if (what == GUARD_UNDO) {
			undo(held, &n);
		} else if (!nfds || n == HELD_MAX) {
			answer = -EINVAL;
		} else {
			held[n++] = (struct held){ .fd = TAKE_FD(fd) };
			answer = change(what, &held[n - 1]);
		}
		fd_close(fd);
		if (fd_send(s, &answer, sizeof(answer), NULL, 0) < 0)
			break;
	}
	undo(held, &n);
	_exit(0);
}

/* It needs no more: what it is sent are descriptors of processes that may be hostile. */
static int confine_guard(void)
{
	static const uint32_t allowed[] = {
		SYS_recvmsg,
		SYS_sendmsg,
		SYS_setsockopt,
		SYS_getsockopt,
		SYS_ioctl,
		SYS_close,
		SYS_exit_group,
		SYS_exit,
		SYS_restart_syscall,
		/* the last: a sanitizer asks for it before a function that does not return */
		SYS_rt_sigreturn,
		SYS_sigaltstack,
	};
	struct sock_filter code[ARRAY_LEN(allowed) + 6];
	size_t n = 0;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < ARRAY_LEN(allowed); i++)
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i],
							 (uint8_t)(ARRAY_LEN(allowed) - i), 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	return seccomp_install_extra(code, n);
}

static int give_up_rights(void)
{
	int r = sys_prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);

	if (r == 0)
		r = sys_prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (r == 0)
		r = caps_drop_bounding(NET_ADMIN);
	if (r == 0 ||
	    r == -EPERM) /* the warden may not, as for cloche-dump itself: with no_new_privs nothing is gained by it */
		r = sys_prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (r == 0)
		r = caps_set(NET_ADMIN, 0);
	return r == 0 ? confine_guard() : r;
}

int socket_guard_start(struct socket_guard *g, int agent_pidfd, struct err *e)
{
	int pair[2], r = sys_setns(agent_pidfd, CLONE_NEWPID); /* for the child that we start */
	pid_t pid;

	g->fd = -1;
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "join the sandbox's processes");
	r = sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "make a socket");
	pid = fork();
	if (pid < 0) {
		r = -errno;
		fd_close_many(pair, 2);
		return err_sys(e, ERR_INTERNAL, r, "start a process");
	}
	if (pid == 0) {
		if (dup2(pair[1], 0) < 0 || sys_close_range(1, ~0U, 0) < 0 || give_up_rights() < 0)
			_exit(1);
		serve(0);
	}
	fd_close(pair[1]);
	g->fd = pair[0];
	g->pid = pid;
	return 0;
}

/* ---- cloche-dump's side ------------------------------------------------------------------------------------------ */

static int ask(const struct socket_guard *g, char what, int fd)
{
	size_t nfds = 0;
	int answer, r = fd_send(g->fd, &what, 1, &fd, fd >= 0 ? 1 : 0);
	ssize_t n;

	if (r < 0)
		return r;
	n = fd_recv(g->fd, &answer, sizeof(answer), NULL, 0, &nfds);
	return n == sizeof(answer) ? answer : n < 0 ? (int)n : -EPIPE;
}

int socket_guard_change(struct socket_guard *g, enum socket_guard_what what, int fd)
{
	return ask(g, (char)what, fd);
}

int socket_guard_file(struct socket_guard *g, int fd)
{
	const char what = GUARD_FILE;
	size_t nfds = 0;
	int answer, file = -1, r = fd_send(g->fd, &what, 1, &fd, 1);
	ssize_t n;

	if (r < 0)
		return r;
	n = fd_recv(g->fd, &answer, sizeof(answer), &file, 1, &nfds);
	if (n != sizeof(answer) || (answer == 0 && !nfds))
		return -EPIPE;
	return answer < 0 ? answer : file;
}

int socket_guard_undo(struct socket_guard *g)
{
	return ask(g, GUARD_UNDO, -1);
}

int socket_guard_undo_peek(struct socket_guard *g, int fd)
{
	const int none = -1;

	if (socket_guard_undo(g) == 0)
		return 0;
	return setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &none, sizeof(none)) < 0 ? -errno : -EOWNERDEAD;
}

void socket_guard_end(struct socket_guard *g)
{
	fd_close(TAKE_FD(g->fd));
}

void socket_guard_stop(struct socket_guard *g)
{
	socket_guard_end(g);
	if (g->pid <= 0)
		return;
	while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
		;
	g->pid = 0;
}
