/* Measures the memory of a sandbox's sockets. */
#include "engine/kernel_memory/sockets.h"
#include "base/base.h"
#include "base/fd.h"
#include "engine/kernel_memory/enter.h"
#include "linux/socket_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>

/* Sockets of any family: a fixed number, and more for a sandbox with more memory. */
#define MOST 4096U
#define MOST_SHARE (64U * 1024U)

/* Version 1 has a separate counter for data in accepted connections, and does not add it to the memory. */
static int counted_v1(const struct kernel_look *l, uint64_t *ret)
{
	unsigned long long n = 0;
	char path[96];
	int r;

	snprintf(path, sizeof(path), "%s/memory.kmem.tcp.usage_in_bytes", l->cgroup->name);
	r = fd_get_u64(l->host->base[CGROUP_MEMORY], path, &n);
	*ret = n;
	return r;
}

/* Entered once, by the thread that looks: the socket is enough afterwards. */
static int open_space(struct kernel_look *l, struct socket_space *ret)
{
	char path[32];
	int fd;

	if (l->diag < 0 && l->net >= 0) {
		struct kernel_entered x;

		kernel_enter(
			&(struct kernel_enter){
				.pidfd = l->pidfd, .net = l->net, .rootless = l->rootless, .diag = true },
			&x);
		l->diag = x.diag;
	}
	if (l->diag < 0)
		return l->net < 0 ? -ESRCH : l->diag;
	snprintf(path, sizeof(path), "/proc/%d/net", l->pid);
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -ESRCH;
	*ret = (struct socket_space){ fd, l->diag };
	return 0;
}

/* If the process still exists, what was read of /proc/PID is its own: no other process has had this number. */
static int close_space(const struct kernel_look *l, const struct socket_space *s, int r)
{
	struct pollfd p = { .fd = l->pidfd, .events = POLLIN };

	fd_close(s->net);
	/* An ending process loses its namespace some time before it has ended. */
	return r == -ENOENT || r == -ENXIO || poll(&p, 1, 0) == 1 ? -ESRCH : r;
}

int kernel_sockets_orphans(struct kernel_look *l, uint64_t *ret)
{
	struct socket_space s;
	int r = open_space(l, &s);

	return r < 0 ? r : close_space(l, &s, socket_orphans(&s, ret));
}

/* Only what was there at the last look, too: sockets that are opened and closed look like hidden ones for a moment. */
static uint64_t lasting(uint64_t *before, uint64_t now)
{
	const uint64_t was = *before;

	*before = now;
	return now < was ? now : was;
}

int kernel_sockets_bytes(struct kernel_look *l, uint64_t *ret)
{
	/* In version 2 the memory of accepted connections is part of the group's. */
	const bool v2 = l->host->version == 2;
	struct socket_memory m = { 0 };
	uint64_t v1 = 0;
	const enum socket_which which = v2 || counted_v1(l, &v1) == 0 ? SOCKET_WAITING : SOCKET_ALL;
	struct socket_space s;
	int r = open_space(l, &s);

	if (r < 0)
		return r;
	r = close_space(l, &s, socket_memory(&s, which, MOST + l->memory / MOST_SHARE, &m));
	/* BPF counts the sockets that a sandbox has made: more than that are egress's, and closed in a moment. */
	if (l->sockets && m.hidden + m.unlisted > l->sockets)
		m.unlisted = l->sockets > m.hidden ? l->sockets - m.hidden : 0;
	m.unsure += m.unlisted * SOCKET_HIDDEN;
	if (r == 0)
		*ret = v1 + m.tcp + m.udp + m.netlink + m.hidden * SOCKET_HIDDEN + lasting(l->unsure, m.unsure);
	return r;
}
