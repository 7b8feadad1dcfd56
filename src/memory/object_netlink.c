/*
 * Netlink sockets: protocol, number, groups, options, and peer. Messages of the kernel that were not read yet are
 * refused, since the kernel cannot be made to send them again.
 */
#include "memory/object_socket.h"
#include "base/base.h"
#include "proto/socket_netlink.h"

#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>

#define SOL_NETLINK_ 270
#define LIST_MEMBERSHIPS 9
#define GROUPS_MAX 64U /* words of 32 */

/* bind() knows the first 32 groups. */
static int check_groups(const struct opened *x, struct err *e)
{
	uint32_t group[GROUPS_MAX] = { 0 };
	socklen_t len = sizeof(group);

	if (getsockopt(x->o->fd, SOL_NETLINK_, LIST_MEMBERSHIPS, group, &len) < 0)
		return 0; /* an older kernel */
	for (uint32_t i = 1; i < GROUPS_MAX; i++)
		if (group[i])
			return proc_refuse(x->p, e, "has a netlink socket (descriptor %u) in a group above 32", x->num);
	return len > sizeof(group) ?
		       proc_refuse(x->p, e, "has a netlink socket (descriptor %u) with too many groups", x->num) :
		       0;
}

int object_netlink(struct opened *x, struct err *e)
{
	struct mem_socket *k = &x->o->socket->k;
	struct pollfd p = { .fd = x->o->fd, .events = POLLIN };
	struct sockaddr_nl own = { 0 }, peer = { 0 };

	if (!socket_netlink_carried(k->protocol))
		return proc_refuse(x->p, e, "has a netlink socket (descriptor %u) of protocol %u", x->num, k->protocol);
	if (poll(&p, 1, 0) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "a netlink socket");
	if (p.revents & POLLERR)
		return proc_refuse(x->p, e, "has a netlink socket (descriptor %u) with an unread error", x->num);
	if (p.revents & POLLIN)
		return proc_refuse(x->p, e, "has a netlink socket (descriptor %u) with unread messages", x->num);
	memcpy(&own, k->addr, k->addr_len < sizeof(own) ? k->addr_len : sizeof(own));
	memcpy(&peer, k->peer, k->peer_len < sizeof(peer) ? k->peer_len : sizeof(peer));
	k->state = own.nl_pid || own.nl_groups ? MEM_SOCK_BOUND : MEM_SOCK_UNBOUND;
	if (!peer.nl_pid && !peer.nl_groups)
		k->peer_len = 0; /* the kernel, as at first */
	return check_groups(x, e);
}
