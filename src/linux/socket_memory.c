/* Sums up the memory of sockets. */
#include "linux/socket_memory.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/netlink.h"

#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/netlink_diag.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#define UDPLITE 136
#define FEW (4U << 20) /* bytes: so many may wait without being looked at one by one */
#define ALL_STATES ((2U << SYN_RECV_NEW) - 1)
#define SYN_RECV_NEW 12 /* TCP_NEW_SYN_RECV: half-open connections */

/* How many sockets of each protocol are in the kernel's lists. */
struct listed {
	uint64_t all, tcp, udp, udplite, netlink, local;
};

static void count_protocol(const char *name, uint64_t n, struct listed *l)
{
	l->all += n;
	if (!strcmp(name, "TCP") || !strcmp(name, "TCPv6"))
		l->tcp += n;
	else if (!strcmp(name, "UDP") || !strcmp(name, "UDPv6"))
		l->udp += n;
	else if (!strcmp(name, "UDP-Lite") || !strcmp(name, "UDPLITEv6"))
		l->udplite += n;
	else if (!strcmp(name, "NETLINK"))
		l->netlink += n;
	else if (!strcmp(name, "UNIX") || !strcmp(name, "UNIX-STREAM"))
		l->local += n;
}

static int read_listed(int net, struct listed *ret)
{
	char text[8192], name[24];
	struct listed l = { 0 };
	unsigned size;
	int n;
	ssize_t r = fd_get(net, "protocols", text, sizeof(text));

	if (r < 0)
		return (int)r;
	for (const char *at = strchr(text, '\n'); at; at = strchr(at + 1, '\n'))
		if (sscanf(at + 1, "%23s %u %d", name, &size, &n) == 3 && n > 0)
			count_protocol(name, (uint64_t)n, &l);
	/* Our own, that of socket_diag_open(). */
	l.all -= l.netlink > 0;
	l.netlink -= l.netlink > 0;
	*ret = l;
	return 0;
}

/* @ret_tcp: bytes of all connections of the host, in whatever namespace. */
static int read_sockets(int net, uint64_t *ret, uint64_t *ret_tcp)
{
	unsigned long long n, pages = 0;
	const char *tcp;
	char text[1024];
	ssize_t r = fd_get(net, "sockstat", text, sizeof(text));

	if (r < 0)
		return (int)r;
	if (sscanf(text, "sockets: used %llu", &n) != 1)
		return -EBADMSG;
	tcp = strstr(text, "\nTCP: ");
	if (!tcp || sscanf(tcp, "\nTCP: inuse %*d orphan %*d tw %*d alloc %*d mem %llu", &pages) != 1)
		return -EBADMSG;
	*ret = n - (n > 0); /* without our own, that of socket_diag_open() */
	*ret_tcp = pages * (uint64_t)sysconf(_SC_PAGESIZE);
	return 0;
}

static uint64_t held(const uint8_t *attrs, size_t len, uint16_t type, uint32_t *ret_rcvbuf)
{
	uint32_t m[SK_MEMINFO_VARS] = { 0 };
	struct netlink_attr a;

	if (netlink_find(attrs, len, type, &a) < 0)
		return 0;
	memcpy(m, a.data, a.len < sizeof(m) ? a.len : sizeof(m));
	if (ret_rcvbuf)
		*ret_rcvbuf = m[SK_MEMINFO_RCVBUF];
	return (uint64_t)m[SK_MEMINFO_RMEM_ALLOC] + m[SK_MEMINFO_OPTMEM] + m[SK_MEMINFO_BACKLOG] +
	       (m[SK_MEMINFO_WMEM_QUEUED] > m[SK_MEMINFO_WMEM_ALLOC] ? m[SK_MEMINFO_WMEM_QUEUED] :
								       m[SK_MEMINFO_WMEM_ALLOC]);
}

struct tcp_sum {
	uint64_t bytes, waiting; /* waiting: of connections in a listener's queue */
	uint64_t queued, seen; /* connections that listeners say wait, and those of them that are listed */
	uint32_t rcvbuf; /* the largest that a listener gives to its connections */
};

static int add_tcp(void *arg, const uint8_t *body, size_t len)
{
	struct tcp_sum *s = arg;
	struct inet_diag_msg m;
	uint32_t rcvbuf = 0;
	uint64_t bytes;

	if (len < sizeof(m))
		return -EBADMSG;
	memcpy(&m, body, sizeof(m));
	bytes = held(body + sizeof(m), len - sizeof(m), INET_DIAG_SKMEMINFO, &rcvbuf);
	s->bytes += bytes;
	if (m.idiag_state == TCP_LISTEN) {
		s->queued += m.idiag_rqueue;
		s->rcvbuf = rcvbuf > s->rcvbuf ? rcvbuf : s->rcvbuf;
	} else if (!m.idiag_inode && (m.idiag_state == TCP_ESTABLISHED || m.idiag_state == TCP_CLOSE_WAIT)) {
		s->waiting += bytes;
		s->seen++;
	}
	return 0;
}

static int add_udp(void *arg, const uint8_t *body, size_t len)
{
	uint64_t *sum = arg;

	if (len < sizeof(struct inet_diag_msg))
		return -EBADMSG;
	*sum += held(body + sizeof(struct inet_diag_msg), len - sizeof(struct inet_diag_msg), INET_DIAG_SKMEMINFO,
		     NULL);
	return 0;
}

static int add_netlink(void *arg, const uint8_t *body, size_t len)
{
	uint64_t *sum = arg;

	if (len < sizeof(struct netlink_diag_msg))
		return -EBADMSG;
	*sum += held(body + sizeof(struct netlink_diag_msg), len - sizeof(struct netlink_diag_msg),
		     NETLINK_DIAG_MEMINFO, NULL);
	return 0;
}

static int ask_inet(struct netlink *n, uint8_t family, uint8_t protocol, netlink_fn *fn, void *arg)
{
	const struct inet_diag_req_v2 q = {
		.sdiag_family = family,
		.sdiag_protocol = protocol,
		.idiag_ext = 1 << (INET_DIAG_SKMEMINFO - 1),
		.idiag_states = ALL_STATES,
	};

	netlink_begin(n, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &q, sizeof(q));
	return netlink_ask(n, fn, arg);
}

/* Both families at once: the kernel goes through all of its table for each question. */
static int ask_tcp(struct netlink *n, uint32_t states, struct tcp_sum *sum)
{
	const struct inet_diag_req q = {
		.idiag_family = AF_INET,
		.idiag_ext = 1 << (INET_DIAG_SKMEMINFO - 1),
		.idiag_states = states,
	};

	netlink_begin(n, TCPDIAG_GETSOCK, NLM_F_DUMP, &q, sizeof(q));
	return netlink_ask(n, add_tcp, sum);
}

static int ask_netlink(struct netlink *n, uint64_t *sum)
{
	const struct netlink_diag_req q = {
		.sdiag_family = AF_NETLINK,
		.sdiag_protocol = NDIAG_PROTO_ALL,
		.ndiag_show = NDIAG_SHOW_MEMINFO,
	};

	netlink_begin(n, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &q, sizeof(q));
	return netlink_ask(n, add_netlink, sum);
}

/*
 * The listeners report how many connections wait, and how much each can hold. A connection that was reset while it
 * waited is in no list, and keeps its data until it is accepted. It looks like one that was accepted during the query:
 * it may be full, but all connections of the host together have no more than @host bytes.
 */
static int add_tcp_all(struct netlink *n, enum socket_which which, uint64_t host, struct socket_memory *m)
{
	struct tcp_sum sum = { 0 };
	int r = ask_tcp(n, 1U << TCP_LISTEN, &sum);

	if (r == 0 && (which == SOCKET_ALL || sum.queued * sum.rcvbuf > FEW)) {
		sum = (struct tcp_sum){ 0 };
		r = ask_tcp(n, ALL_STATES, &sum);
	}
	if (r < 0)
		return r;
	if (sum.queued > sum.seen) {
		const uint64_t most = (sum.queued - sum.seen) * sum.rcvbuf;

		m->unsure = most < host ? most : host;
	}
	m->tcp = which == SOCKET_ALL ? sum.bytes : sum.waiting;
	m->tcp_waiting = sum.waiting;
	return 0;
}

/* A kernel without the module for a family cannot be asked about it: then none of its sockets is listed. */
static int or_hidden(int r, uint64_t sockets, struct socket_memory *m)
{
	if (r != -ENOENT)
		return r;
	m->hidden += sockets;
	return 0;
}

static int ask_all(struct netlink *n, enum socket_which which, uint64_t host, const struct listed *l,
		   struct socket_memory *m)
{
	int r = l->tcp ? or_hidden(add_tcp_all(n, which, host, m), l->tcp, m) : 0;

	for (unsigned i = 0; r == 0 && i < 4; i++) {
		const uint64_t count = i < 2 ? l->udp : l->udplite;

		if (count)
			r = or_hidden(ask_inet(n, i % 2 ? AF_INET6 : AF_INET, i < 2 ? IPPROTO_UDP : UDPLITE, add_udp,
					       &m->udp),
				      count, m);
	}
	if (r == 0 && l->netlink)
		r = or_hidden(ask_netlink(n, &m->netlink), l->netlink, m);
	return r;
}

static int add_orphan(void *arg, const uint8_t *body, size_t len)
{
	uint64_t *n = arg;
	struct inet_diag_msg m;

	if (len < sizeof(m))
		return -EBADMSG;
	memcpy(&m, body, sizeof(m));
	*n += !m.idiag_inode;
	return 0;
}

int socket_diag_open(void)
{
	const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	return fd < 0 ? -errno : fd;
}

int socket_orphans(const struct socket_space *s, uint64_t *ret)
{
	const struct inet_diag_req q = {
		.idiag_family = AF_INET, /* both, as above */
		.idiag_states = 1U << TCP_FIN_WAIT1 | 1U << TCP_FIN_WAIT2 | 1U << TCP_LAST_ACK | 1U << TCP_CLOSING,
	};
	AUTO(netlink_free) struct netlink *n = NULL;
	uint64_t count = 0;
	int r = netlink_from(s->diag, &n);

	if (r < 0)
		return r;
	netlink_begin(n, TCPDIAG_GETSOCK, NLM_F_DUMP, &q, sizeof(q));
	r = netlink_ask(n, add_orphan, &count);
	netlink_take(n);
	if (r == 0)
		*ret = count;
	return r;
}

int socket_memory(const struct socket_space *s, enum socket_which which, uint64_t most, struct socket_memory *ret)
{
	AUTO(netlink_free) struct netlink *n = NULL;
	struct socket_memory m = { 0 };
	uint64_t host = 0;
	struct listed l;
	int r = read_sockets(s->net, &m.sockets, &host);

	if (r < 0 || !m.sockets) {
		*ret = m;
		return r;
	}
	r = read_listed(s->net, &l);
	if (r == 0 && m.sockets > most + l.local) {
		m.hidden = m.sockets - l.local;
		*ret = m;
		return 0;
	}
	if (r == 0)
		r = netlink_from(s->diag, &n);
	if (r == 0) {
		r = ask_all(n, which, host, &l, &m);
		netlink_take(n);
	}
	if (r < 0)
		return r;
	m.unlisted = m.sockets > l.all ? m.sockets - l.all : 0;
	*ret = m;
	return 0;
}
