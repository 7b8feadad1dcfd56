/* What a memory image says of a socket: see memory.c. */
#include "base/base.h"
#include "proto/memory.h"
#include "proto/socket_netlink.h"
#include "proto/socket_option.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#define ID_MAX 4194304U /* the kernel's own limit of process ids */
#define FILTER_MAX (4096U * 8U) /* the kernel's limit of instructions, 8 bytes each */

static bool is_inet(uint32_t family)
{
	return family == AF_INET || family == AF_INET6;
}

/* The length of an address of that family: of these it is always the same. */
static bool address_ok(uint32_t family, uint32_t len)
{
	if (is_inet(family))
		return len == (family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
	return len <= (family == AF_UNIX ? sizeof(struct sockaddr_un) : sizeof(((struct mem_socket *)0)->addr));
}

/* Messages of a queue. */
static bool messages_ok(const struct mem_image *m, uint32_t family, const uint8_t *data, uint64_t len)
{
	while (len) {
		struct mem_message x;

		if (len < sizeof(x))
			return false;
		memcpy(&x, data, sizeof(x));
		data += sizeof(x);
		len -= sizeof(x);
		if (x.zero || !address_ok(family, x.addr_len) || x.objects > (is_inet(family) ? 0 : 253) ||
		    x.len > len || x.addr_len + 4ULL * x.objects > len - x.len)
			return false;
		for (uint32_t i = 0; i < x.objects; i++) {
			uint32_t object;

			memcpy(&object, data + x.addr_len + 4 * i, 4);
			if (object >= m->n[MEM_S_OBJECT])
				return false;
		}
		data += x.addr_len + 4 * x.objects + x.len;
		len -= x.addr_len + 4ULL * x.objects + x.len;
	}
	return true;
}

static bool socket_at(const struct mem_image *m, uint32_t i, struct mem_socket *ret)
{
	const struct mem_object *o = i < m->n[MEM_S_OBJECT] ? &m->object[i] : NULL;

	if (!o || o->kind != MEM_OBJ_SOCKET || !mem_span_ok(m, o->data) || o->data.len < sizeof(*ret))
		return false;
	memcpy(ret, m->bytes + o->data.off, sizeof(*ret));
	return true;
}

/* What ->pair says by the state. Two that were made together say it of each other. */
static bool pair_ok(const struct mem_image *m, const struct mem_object *o, const struct mem_socket *k)
{
	const bool local = k->family == AF_UNIX;
	struct mem_socket other;

	if (k->state == MEM_SOCK_PENDING)
		return k->order <= UINT16_MAX && !(k->flags & (MEM_SOCK_PEER | MEM_SOCK_TWO)) &&
		       socket_at(m, o->pair, &other) && other.state == MEM_SOCK_LISTEN &&
		       local == (other.family == AF_UNIX);
	if (!(k->flags & (MEM_SOCK_PEER | MEM_SOCK_TWO)))
		return k->state != MEM_SOCK_PAIR || o->pair != MEM_NONE;
	return k->flags & MEM_SOCK_PEER && local && k->type == SOCK_DGRAM && k->state <= MEM_SOCK_BOUND &&
	       socket_at(m, o->pair, &other) && other.family == AF_UNIX && other.type == SOCK_DGRAM &&
	       (!(k->flags & MEM_SOCK_TWO) ||
		(other.flags & MEM_SOCK_TWO && m->object[o->pair].pair == (uint32_t)(o - m->object)));
}

bool mem_socket_ok(const struct mem_image *m, const struct mem_object *o)
{
	const uint8_t *data = m->bytes + o->data.off;
	uint64_t len = o->data.len;
	struct mem_socket k;
	bool tcp, local;

	if (len < sizeof(k))
		return false;
	memcpy(&k, data, sizeof(k));
	len -= sizeof(k);
	tcp = is_inet(k.family) && k.type == SOCK_STREAM && k.protocol == IPPROTO_TCP;
	local = k.family == AF_UNIX;
	if (k.state > MEM_SOCK_CLOSED || k.shutdown > 3 || k.backlog > 65535 || k.addr_len > sizeof(k.addr) ||
	    k.peer_len > sizeof(k.peer) || k.uid == UINT32_MAX || k.gid == UINT32_MAX || k.flags > MEM_SOCK_FLAGS ||
	    k.cred[0] >= ID_MAX || k.cred[3] > 1)
		return false;
	if (k.state >= MEM_SOCK_RESET && !tcp && !(local && (k.state == MEM_SOCK_PAIR || k.state == MEM_SOCK_PENDING)))
		return false;
	if (!address_ok(k.family, k.addr_len) || (k.peer_len && !address_ok(k.family, k.peer_len)))
		return false;
	if (k.family == AF_NETLINK && (!socket_netlink_carried(k.protocol) || k.state == MEM_SOCK_LISTEN))
		return false;
	if (!pair_ok(m, o, &k))
		return false;
	if (o->file != MEM_NONE && o->file >= m->n[MEM_S_FILE])
		return false;
	data += sizeof(k);
	if (k.options > len || k.filter > len - k.options || k.filter % sizeof(uint64_t) || k.filter > FILTER_MAX ||
	    !socket_option_list_ok(data, k.options))
		return false;
	return tcp || messages_ok(m, k.family, data + k.options + k.filter, len - k.options - k.filter);
}
