/* Finds a socket by its addresses, through sock_diag. */
#include "linux/diag.h"
#include "base/base.h"
#include "linux/netlink.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static int take(void *arg, const uint8_t *body, size_t len)
{
	struct inet_diag_msg m;
	struct diag_socket *ret = arg;

	if (len < sizeof(m))
		return -EBADMSG;
	memcpy(&m, body, sizeof(m));
	/* Where there is no connection, a listener on that port is found. (No datagram socket is ever in that state.) */
	if (m.idiag_state == TCP_LISTEN)
		return 0;
	*ret = (struct diag_socket){ .inode = m.idiag_inode, .state = m.idiag_state };
	for (size_t at = NLMSG_ALIGN(sizeof(m)); at + sizeof(struct nlattr) < len;) {
		struct nlattr a;

		memcpy(&a, body + at, sizeof(a));
		if (a.nla_len < sizeof(a) || a.nla_len > len - at)
			break;
		if (a.nla_type == INET_DIAG_SHUTDOWN && a.nla_len > sizeof(a))
			ret->shutdown = body[at + sizeof(a)];
		at += NLA_ALIGN(a.nla_len);
	}
	return 0;
}

int diag_socket(const struct diag_flow *c, struct diag_socket *ret, struct err *e)
{
	struct inet_diag_req_v2 q = {
		.sdiag_family = c->family == 4 ? AF_INET : AF_INET6,
		.sdiag_protocol = c->udp ? IPPROTO_UDP : IPPROTO_TCP,
		.idiag_states = ~0U,
		.id = {
			.idiag_sport = htons(c->udp ? c->remote_port : c->local_port),
			.idiag_dport = htons(c->udp ? c->local_port : c->remote_port),
			.idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE },
		},
	};
	AUTO(netlink_free) struct netlink *n = NULL;
	struct diag_socket found = { 0 };
	int r = netlink_new(NETLINK_SOCK_DIAG, &n, e);

	if (r < 0)
		return r;
	/* For datagrams the kernel looks up the receiver, so the addresses are exchanged. */
	memcpy(q.id.idiag_src, c->udp ? c->remote : c->local, sizeof(q.id.idiag_src));
	memcpy(q.id.idiag_dst, c->udp ? c->local : c->remote, sizeof(q.id.idiag_dst));
	netlink_begin(n, SOCK_DIAG_BY_FAMILY, 0, &q, sizeof(q));
	r = netlink_ask(n, take, &found);
	if (r == 0 && !found.state)
		r = -ENOENT;
	if (r == -ENOENT)
		return err_set(e, ERR_NOT_FOUND, r, "no such connection");
	if (r < 0)
		return err_sys(e, ERR_UNSUPPORTED, r, "look for a connection (%s)", c->udp ? "udp_diag" : "tcp_diag");
	*ret = found;
	return 0;
}

int diag_inode(const struct diag_flow *c, uint64_t *ret, struct err *e)
{
	struct diag_socket found;
	int r = diag_socket(c, &found, e);

	if (r == 0 && !found.inode)
		return err_set(e, ERR_NOT_FOUND, -ENOENT, "no such connection");
	if (r == 0)
		*ret = found.inode;
	return r;
}
