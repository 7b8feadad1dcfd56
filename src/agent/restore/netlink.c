/* Netlink sockets: each with its number, groups and options. Messages that were queued in it are not restored. */
#include "agent/restore/socket.h"
#include "base/base.h"
#include "base/sys.h"
#include "proto/socket_option.h"

#include <linux/netlink.h>
#include <unistd.h>

static int make(struct restore *r, uint32_t i, struct restore_socket *s)
{
	int fd = socket(AF_NETLINK, (int)s->k.type | SOCK_CLOEXEC, (int)s->k.protocol), x = 0;

	fd = fd < 0 ? -errno : restore_high(r, fd);
	if (fd < 0)
		return fd;
	r->object[i] = fd;
	if (!r->agent->single_id)
		x = sys_fchownat(fd, "", s->k.uid, s->k.gid, AT_EMPTY_PATH);
	if (x == 0)
		x = socket_option_set(fd, s->options, s->k.options, 0, &s->failed);
	if (x == 0 && s->k.state == MEM_SOCK_BOUND)
		x = bind(fd, (const struct sockaddr *)&s->addr, s->k.addr_len) < 0 ? -errno : 0;
	if (x == 0 && s->k.peer_len)
		x = connect(fd, (const struct sockaddr *)&s->peer, s->k.peer_len) < 0 ? -errno : 0;
	return x < 0 ? x : restore_socket_late(r, &r->m.object[i], s, fd);
}

int restore_netlinks(struct restore *r, struct err *e)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++) {
		struct restore_socket s;
		int x;

		if (r->m.object[i].kind != MEM_OBJ_SOCKET)
			continue;
		restore_socket_read(r, &r->m.object[i], &s);
		x = s.k.family == AF_NETLINK ? make(r, i, &s) : 0;
		if (x < 0)
			return err_sys(e, ERR_UNSUPPORTED, x, "recreate a netlink socket%s%s", s.failed ? ": " : "",
				       s.failed ? s.failed : "");
	}
	return 0;
}
