#include "warden/kernel_sockets.h"
#include "base/base.h"
#include "base/log.h"
#include "base/sys.h"
#include "linux/socket_memory.h"

#include <sched.h>

/* Version 1 has a counter of its own for what waits in accepted connections, and does not add it to the memory. */
static uint64_t counted_v1(const struct kernel_look *l)
{
	unsigned long long n = 0;
	char path[96];

	if (l->host->version != 1 || !(l->cgroup->mask & CGROUP_BIT(CGROUP_MEMORY)))
		return 0;
	snprintf(path, sizeof(path), "%s/memory.kmem.tcp.usage_in_bytes", l->cgroup->name);
	return fd_get_u64(l->host->base[CGROUP_MEMORY], path, &n) < 0 ? 0 : n;
}

/* In version 2 the memory of connections that were accepted is part of the group's. */
static uint64_t uncounted(const struct kernel_look *l, const struct socket_memory *m)
{
	const uint64_t rest = m->udp + m->netlink + m->hidden * SOCKET_HIDDEN;
	uint64_t v1;

	if (l->host->version == 2)
		return m->tcp_waiting + rest;
	v1 = counted_v1(l) + m->tcp_waiting;
	return (v1 > m->tcp ? v1 : m->tcp) + rest;
}

int kernel_sockets_bytes(const struct kernel_look *l, uint64_t *ret)
{
	struct socket_memory m = { 0 };
	int r = sys_setns(l->pidfd, CLONE_NEWNET), back;

	if (r < 0)
		return r;
	r = socket_memory(&m);
	/* A thread that stays there would keep the namespace. Without root there is no way back: it ends with our process. */
	back = l->rootless ? 0 : sys_setns(l->net, CLONE_NEWNET);
	if (back < 0)
		log_error("the watch cannot return to our own network namespace: errno %d", -back);
	if (r == 0)
		*ret = uncounted(l, &m);
	return r;
}
