#include "engine/kernel_memory/sockets.h"
#include "base/base.h"
#include "base/log.h"
#include "base/sys.h"
#include "linux/socket_memory.h"

#include <sched.h>

/* Sockets of a sandbox, of any family: some, and more for one with more memory. */
#define MOST 4096U
#define MOST_SHARE (64U * 1024U)

/* Version 1 has a counter of its own for what waits in accepted connections, and does not add it to the memory. */
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

/* The call of libc: tests count those of base/sys.h, and do not expect them from another thread. */
static int enter(int net)
{
	return setns(net, CLONE_NEWNET) < 0 ? -errno : 0;
}

/* A thread that stays there would keep the namespace. Without root there is no way back: it ends with our process. */
static void leave(const struct kernel_look *l)
{
	int r = l->rootless ? 0 : enter(l->net);

	if (r < 0)
		r = enter(l->net);
	if (r < 0)
		log_error("the watch cannot return to the host's network namespace: errno %d", -r);
}

int kernel_sockets_bound(const struct kernel_look *l, struct socket_bpf *b, uint64_t most, struct socket_bpf_entry *ret)
{
	int r = enter(l->pidfd);

	if (r < 0)
		return r;
	r = socket_bpf_enter(b, most, ret);
	leave(l);
	return r;
}

int kernel_sockets_orphans(const struct kernel_look *l, uint64_t *ret)
{
	int r = enter(l->pidfd);

	if (r < 0)
		return r;
	r = socket_orphans(ret);
	leave(l);
	return r;
}

/* What was there at the last look, too: sockets that are made and closed look like hidden ones for a moment. */
static uint64_t lasting(uint64_t *before, uint64_t now)
{
	const uint64_t was = *before;

	*before = now;
	return now < was ? now : was;
}

int kernel_sockets_bytes(const struct kernel_look *l, uint64_t *ret)
{
	/* In version 2 the memory of accepted connections is part of the group's. */
	const bool v2 = l->host->version == 2;
	struct socket_memory m = { 0 };
	uint64_t v1 = 0;
	const enum socket_which which = v2 || counted_v1(l, &v1) == 0 ? SOCKET_WAITING : SOCKET_ALL;
	int r = enter(l->pidfd);

	if (r < 0)
		return r;
	r = socket_memory(which, MOST + l->memory / MOST_SHARE, &m);
	leave(l);
	/* BPF counts those that a sandbox has made itself: beyond that number they are egress's, closed in a moment. */
	if (l->sockets && m.hidden + m.unlisted > l->sockets)
		m.unlisted = l->sockets > m.hidden ? l->sockets - m.hidden : 0;
	m.unsure += m.unlisted * SOCKET_HIDDEN;
	if (r == 0)
		*ret = v1 + m.tcp + m.udp + m.netlink + m.hidden * SOCKET_HIDDEN + lasting(l->unsure, m.unsure);
	return r;
}
