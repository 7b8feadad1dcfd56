/* Writes cut connections as JSON. */
#include "service/network/cut.h"
#include "base/base.h"
#include "base/json.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#define FIRST4 0xc6120100U /* 198.18.1.0: egress/names.h */
static const uint8_t first6[14] = { 0xfd, 0x63, 0x6c, 0x6f, 0x63, 0x68, 0, 0x65, 0, 0, 0, 0, 0, 1 };
static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

/* One end: IPv4 that an IPv6 socket has is written as such. */
struct place {
	bool v4;
	uint8_t addr[16];
	uint16_t port;
};

static struct place place_of(const struct mem_cut *x, const uint8_t addr[16], uint16_t port)
{
	const bool inside = x->family == AF_INET6 && !memcmp(addr, mapped, sizeof(mapped));
	struct place p = { .v4 = x->family == AF_INET || inside, .port = port };

	memcpy(p.addr, addr + (inside ? 12 : 0), inside ? 4 : 16);
	return p;
}

static void put_place(struct json *j, const char *key, const struct place *p)
{
	char text[INET6_ADDRSTRLEN] = "", all[INET6_ADDRSTRLEN + 16];

	inet_ntop(p->v4 ? AF_INET : AF_INET6, p->addr, text, sizeof(text));
	snprintf(all, sizeof(all), p->v4 ? "%s:%u" : "[%s]:%u", text, p->port);
	jout_str(j, key, all);
}

/* The name that a program asked for, behind the address that it got for it. */
static const char *name_of(const struct net_state *net, const struct place *p)
{
	uint32_t index = UINT32_MAX, at;

	memcpy(&at, p->addr, sizeof(at));
	if (p->v4)
		index = ntohl(at) - FIRST4;
	else if (!memcmp(p->addr, first6, sizeof(first6)))
		index = (uint32_t)p->addr[14] << 8 | p->addr[15];
	for (uint32_t i = 0; net && i < net->nnames; i++)
		if (net->names[i].index == index)
			return net->names[i].name;
	return NULL;
}

/* It is anything. */
static void put_command(struct json *j, const char comm[16])
{
	char text[16];

	memcpy(text, comm, sizeof(text));
	for (char *p = text; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	jout_str(j, "command", text);
}

char *cut_text(const struct memory_cuts *c, const struct net_state *net)
{
	AUTO(buf_done) struct buf text = BUF_INIT(64 * KIB);
	struct json j = JSON_INIT(&text);

	if (!c->n)
		return NULL;
	jout_object(&j, NULL);
	jout_u64(&j, "count", c->n);
	jout_array(&j, "connections");
	for (uint32_t i = 0; i < c->told; i++) {
		const struct mem_cut *x = &c->cut[i];
		const struct place local = place_of(x, x->local, x->local_port),
				   remote = place_of(x, x->remote, x->remote_port);

		jout_object(&j, NULL);
		jout_u64(&j, "pid", x->pid);
		put_command(&j, x->comm);
		if (x->fd == MEM_NONE)
			jout_null(&j, "fd");
		else
			jout_u64(&j, "fd", x->fd);
		jout_str(&j, "protocol", x->protocol == IPPROTO_TCP ? "tcp" : "udp");
		put_place(&j, "local", &local);
		put_place(&j, "remote", &remote);
		jout_str(&j, "host", name_of(net, &remote));
		jout_u64(&j, "unread", x->unread);
		jout_end(&j);
	}
	jout_end(&j);
	jout_end(&j);
	return jout_done(&j) < 0 ? NULL : buf_take(&text);
}
