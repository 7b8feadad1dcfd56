/* Connections to the outside: the copy finds them reset, and the caller gets a list of them. */
#include "memory/object_socket.h"
#include "base/base.h"

#include <arpa/inet.h>
#include <netinet/in.h>

static uint16_t put_end(const uint8_t name[128], uint32_t len, uint8_t ret[16])
{
	struct sockaddr_in6 a = { 0 };
	const struct sockaddr_in *in = (const struct sockaddr_in *)&a;

	memcpy(&a, name, len < sizeof(a) ? len : sizeof(a));
	if (a.sin6_family == AF_INET)
		memcpy(ret, &in->sin_addr, 4);
	else if (a.sin6_family == AF_INET6)
		memcpy(ret, &a.sin6_addr, 16);
	return ntohs(a.sin6_family == AF_INET ? in->sin_port : a.sin6_port);
}

static bool is_cut(const struct socket *s)
{
	if (s->k.protocol == IPPROTO_TCP)
		return s->k.state == MEM_SOCK_RESET && !s->was_cut;
	return s->k.protocol == IPPROTO_UDP && s->dropped;
}

int cut_note(struct dump *d, const struct object *o, struct err *e)
{
	const struct socket *s = o->socket;
	const bool tcp = s->k.protocol == IPPROTO_TCP;
	struct mem_cut x = { .pid = o->p->pid,
			     .fd = o->flying ? MEM_NONE : o->num,
			     .family = s->k.family,
			     .protocol = s->k.protocol,
			     .unread = tcp ? s->lost : s->dropped };
	char text[INET6_ADDRSTRLEN] = "";

	if ((s->k.family != AF_INET && s->k.family != AF_INET6) || !is_cut(s))
		return 0;
	x.local_port = put_end(s->k.addr, s->k.addr_len, x.local);
	x.remote_port = put_end(s->k.peer, s->k.peer_len, x.remote);
	snprintf(x.comm, sizeof(x.comm), "%.15s", o->p->name);
	if (!d->refuses_network)
		return image_add(&d->image, MEM_S_CUT, &x, NULL, e);
	if (!tcp)
		return proc_refuse(o->p, e, "has unread datagrams from outside, descriptor %u", o->num);
	inet_ntop((int)x.family, x.remote, text, sizeof(text));
	return proc_refuse(o->p, e, "has a connection to the outside, descriptor %u, to %s port %u", o->num, text,
			   x.remote_port);
}
