/* Sets up the devices, routes and rules that steer streams. */
#include "linux/steer.h"
#include "base/base.h"
#include "linux/nft.h"

#include <arpa/inet.h>
#include <linux/if_addr.h>
#include <linux/netfilter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#ifndef IPV6_TRANSPARENT
#define IPV6_TRANSPARENT 75
#endif
#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78
#endif

#define TABLE "cloche"
#define CHAIN "out"
#define DENIED "denied"
#define DENIED_MS (15U * 60U * 1000U)
#define DENIED_KEY 20U /* address, IPv4 as mapped; port and two bytes of nothing */
#define PRIORITY (-150) /* priority of mangling rules: after defragmentation */
#define LOOPBACK 1 /* the index of the first interface of a namespace */

#define PORT_TCP 1
#define PORT_DNS 53
#define PORT_HTTP 3128
#define PORT_SOCKS 1080

/* New connections a second, and how many at once; questions for names likewise: a program is not held up by it, a flood does not get to egress. */
#define RATE 2000
#define BURST 4000
#define BACKLOG 4096

/*
 * Congestion control inside, in both directions. Loopback loses no packets and is not shared: pacing, which the host
 * may use for the outside (bbr), only costs time there. Every kernel has this algorithm.
 */
#define CONGESTION "reno"

#define IP4_DST 16
#define IP6_DST 24
#define TCP_DST 2
#define TCP_FLAGS 13
#define TCP_SYN 2
#define TCP_ACK 16

struct net {
	uint8_t addr[16];
	uint8_t prefix;
};

static const struct net loop4 = { { 127 }, 8 }, loop6 = { { [15] = 1 }, 128 };
static const struct net own4 = { { 198, 18, 0, 2 }, 32 };
static const struct net own6 = { { 0xfd, 0x63, 0x6c, 0x6f, 0x63, 0x68, 0, 0x65, [15] = 2 }, 128 };
static const struct net host4 = { { 198, 18, 0, 1 }, 32 };
static const struct net host6 = { { 0xfd, 0x63, 0x6c, 0x6f, 0x63, 0x68, 0, 0x65, [15] = 1 }, 128 };
/* Networks around those two addresses, which no name has. */
static const struct net near4 = { { 198, 18 }, 24 };
static const struct net near6 = { { 0xfd, 0x63, 0x6c, 0x6f, 0x63, 0x68, 0, 0x65 }, 112 };
static const struct net names4 = { { 198, 18 }, 15 };
static const struct net names6 = { { 0xfd, 0x63, 0x6c, 0x6f, 0x63, 0x68, 0, 0x65 }, 64 };

static bool rest_zero(const struct steer_rule *r)
{
	const unsigned size = r->family == 4 ? 4 : 16;

	for (unsigned i = 0; i < 16; i++) {
		const unsigned bits = i >= size		       ? 0 :
				      r->prefix >= 8 * (i + 1) ? 8 :
				      r->prefix > 8 * i	       ? r->prefix - 8 * i :
								 0;

		if (r->addr[i] & (0xff >> bits))
			return false;
	}
	return true;
}

int steer_check(const struct steer_rules *r, struct err *e)
{
	if (r->mode > STEER_OBSERVE)
		return err_set(e, ERR_INVALID, -EINVAL, "network: unknown mode %u", r->mode);
	if (r->n > STEER_RULES)
		return err_set(e, ERR_INVALID, -E2BIG, "network: at most %d addresses", STEER_RULES);
	if (r->n && r->mode != STEER_ALLOW)
		return err_set(e, ERR_INVALID, -EINVAL, "network: the mode does not use addresses");
	for (uint32_t i = 0; i < r->n; i++) {
		const struct steer_rule *x = &r->rule[i];

		if ((x->family != 4 && x->family != 6) || x->prefix > (x->family == 4 ? 32 : 128) || !x->first ||
		    x->last < x->first || x->zero || !rest_zero(x))
			return err_set(e, ERR_INVALID, -EINVAL, "network: address %u is invalid", i);
	}
	return 0;
}

/* --- addresses and routes --- */

static void put_addr(struct netlink *n, uint16_t type, uint16_t flags, int family, const struct net *own)
{
	const struct ifaddrmsg m = {
		.ifa_family = (uint8_t)family,
		.ifa_prefixlen = own->prefix,
		.ifa_flags = family == AF_INET6 ? IFA_F_NODAD : 0,
		.ifa_scope = RT_SCOPE_HOST,
		.ifa_index = LOOPBACK,
	};
	const size_t size = family == AF_INET ? 4 : 16;

	netlink_begin(n, type, flags, &m, sizeof(m));
	netlink_put(n, IFA_LOCAL, own->addr, size);
	netlink_put(n, IFA_ADDRESS, own->addr, size);
}

/* Every address is this host's: what is sent comes in by loopback, where the rules are. */
static void put_route(struct netlink *n, uint16_t type, uint16_t flags, int family, const struct net *own)
{
	const struct rtmsg m = {
		.rtm_family = (uint8_t)family,
		.rtm_table = RT_TABLE_LOCAL,
		.rtm_protocol = RTPROT_STATIC,
		.rtm_scope = family == AF_INET ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE,
		.rtm_type = RTN_LOCAL,
	};
	const uint32_t lo = LOOPBACK;
	size_t metrics;

	netlink_begin(n, type, flags, &m, sizeof(m));
	netlink_put(n, RTA_OIF, &lo, sizeof(lo));
	netlink_put(n, RTA_PREFSRC, own->addr, family == AF_INET ? 4 : 16);
	if (type == RTM_DELROUTE)
		return;
	metrics = netlink_nest(n, RTA_METRICS);
	netlink_put_str(n, RTAX_CC_ALGO, CONGESTION);
	netlink_close(n, metrics);
}

static int routes(uint16_t addr, uint16_t route, uint16_t flags, struct err *e)
{
	AUTO(netlink_free) struct netlink *n = NULL;
	uint32_t seq = 0;
	int r = netlink_new(NETLINK_ROUTE, &n, e);

	if (r < 0)
		return r;
	if (route == RTM_DELROUTE) {
		put_route(n, route, flags, AF_INET, &own4);
		put_route(n, route, flags, AF_INET6, &own6);
	}
	put_addr(n, addr, flags, AF_INET, &own4);
	put_addr(n, addr, flags | (route == RTM_DELROUTE ? NLM_F_ACK : 0), AF_INET6, &own6);
	if (route == RTM_NEWROUTE) {
		put_route(n, route, flags, AF_INET, &own4);
		put_route(n, route, flags | NLM_F_ACK, AF_INET6, &own6);
	}
	r = netlink_send(n, &seq);
	if (r < 0) {
		err_sys(e, ERR_UNSUPPORTED, r, "addresses and routes of a sandbox's network (message %u)", seq);
		if (r == -EAFNOSUPPORT || r == -EOPNOTSUPP || r == -EACCES)
			err_remedy(e, "IPv4 and IPv6 are both required, if only on loopback: remove ipv6.disable=1");
	}
	return r;
}

/* --- rules --- */

static void to(struct nft *b, unsigned family, const struct net *dst)
{
	uint8_t mask[16] = { 0 };
	const uint32_t size = family == 4 ? 4 : 16;

	nft_family(b, family);
	if (!dst->prefix)
		return;
	for (unsigned i = 0; i < dst->prefix; i++)
		mask[i / 8] |= (uint8_t)(0x80 >> i % 8);
	nft_load(b, 0, NFT_HEAD_NETWORK, family == 4 ? IP4_DST : IP6_DST, size);
	if (dst->prefix < size * 8)
		nft_mask(b, 0, mask, size);
	nft_cmp(b, 0, NFT_IS, dst->addr, size);
}

/* UDP has its ports where TCP has them. */
static void to_ports(struct nft *b, uint16_t first, uint16_t last)
{
	const uint16_t from = htons(first), until = htons(last);

	if (first == 1 && last == UINT16_MAX)
		return;
	nft_load(b, 0, NFT_HEAD_TRANSPORT, TCP_DST, sizeof(from));
	if (first == last)
		nft_cmp(b, 0, NFT_IS, &from, sizeof(from));
	else
		nft_within(b, 0, &from, &until, sizeof(from));
}

static void accept_to(struct nft *b, unsigned family, const struct net *dst)
{
	nft_rule(b);
	to(b, family, dst);
	nft_accept(b);
	nft_rule_end(b);
}

static void reset_to(struct nft *b, unsigned family, const struct net *dst)
{
	nft_rule(b);
	to(b, family, dst);
	nft_reset(b);
	nft_rule_end(b);
}

static void accept_dns(struct nft *b, uint8_t proto, unsigned family, const struct net *dst)
{
	nft_rule(b);
	nft_proto(b, NFT_IS, proto);
	to(b, family, dst);
	to_ports(b, PORT_DNS, PORT_DNS);
	nft_accept(b);
	nft_rule_end(b);
}

static void steer_to(struct nft *b, unsigned family, const struct net *dst, uint16_t first, uint16_t last)
{
	nft_rule(b);
	to(b, family, dst);
	to_ports(b, first, last);
	nft_tproxy(b, PORT_TCP);
	nft_rule_end(b);
}

/* What is not the beginning of a connection, and what stays inside: none of our business. */
static void rules_inside(struct nft *b)
{
	const uint8_t mask = TCP_SYN | TCP_ACK, syn = TCP_SYN;

	nft_rule(b);
	nft_proto(b, NFT_IS, IPPROTO_TCP);
	nft_load(b, 0, NFT_HEAD_TRANSPORT, TCP_FLAGS, 1);
	nft_mask(b, 0, &mask, 1);
	nft_cmp(b, 0, NFT_IS_NOT, &syn, 1);
	nft_accept(b);
	nft_rule_end(b);
	/*
	 * The listener's own port must not be reached directly: egress would take the listener's address for the
	 * destination.
	 */
	nft_rule(b);
	nft_proto(b, NFT_IS, IPPROTO_TCP);
	to_ports(b, PORT_TCP, PORT_TCP);
	nft_reset(b);
	nft_rule_end(b);
	accept_to(b, 4, &loop4);
	accept_to(b, 6, &loop6);
	accept_to(b, 4, &own4);
	accept_to(b, 6, &own6);
}

/* Refused at once, so that clients turn to TCP. Errors the kernel itself sends by ICMP must pass, echoes not. */
static void rules_other(struct nft *b)
{
	static const struct {
		uint8_t proto, echo;
	} icmp[] = { { IPPROTO_ICMP, 8 }, { IPPROTO_ICMPV6, 128 } };

	nft_rule(b);
	nft_proto(b, NFT_IS, IPPROTO_UDP);
	nft_faster_than(b, RATE, BURST);
	nft_unreachable(b);
	nft_rule_end(b);
	accept_dns(b, IPPROTO_UDP, 4, &host4);
	accept_dns(b, IPPROTO_UDP, 6, &host6);
	for (size_t i = 0; i < ARRAY_LEN(icmp); i++) {
		nft_rule(b);
		nft_proto(b, NFT_IS, icmp[i].proto);
		nft_load(b, 0, NFT_HEAD_TRANSPORT, 0, 1);
		nft_cmp(b, 0, NFT_IS_NOT, &icmp[i].echo, 1);
		nft_accept(b);
		nft_rule_end(b);
	}
	nft_rule(b);
	nft_proto(b, NFT_IS_NOT, IPPROTO_TCP);
	nft_unreachable(b);
	nft_rule_end(b);
}

static void rules_limit(struct nft *b)
{
	nft_rule(b);
	nft_faster_than(b, RATE, BURST);
	nft_reset(b);
	nft_rule_end(b);
}

static void rules_near(struct nft *b, uint32_t mode)
{
	accept_dns(b, IPPROTO_TCP, 4, &host4);
	accept_dns(b, IPPROTO_TCP, 6, &host6);
	if (mode != STEER_NONE) {
		steer_to(b, 4, &host4, PORT_HTTP, PORT_HTTP);
		steer_to(b, 6, &host6, PORT_HTTP, PORT_HTTP);
		steer_to(b, 4, &host4, PORT_SOCKS, PORT_SOCKS);
		steer_to(b, 6, &host6, PORT_SOCKS, PORT_SOCKS);
	}
	reset_to(b, 4, &near4);
	reset_to(b, 6, &near6);
}

/*
 * When the listener is gone, a rule that steers does not match, and the packet reaches the last rule: never a listener
 * of the sandbox itself, whatever its address.
 */
static void rules_far(struct nft *b, const struct steer_rules *r)
{
	if (r->mode != STEER_NONE) {
		steer_to(b, 4, &names4, 1, UINT16_MAX);
		steer_to(b, 6, &names6, 1, UINT16_MAX);
	}
	if (r->mode == STEER_OPEN || r->mode == STEER_OBSERVE) {
		nft_rule(b);
		nft_tproxy(b, PORT_TCP);
		nft_rule_end(b);
	}
	for (uint32_t i = 0; r->mode == STEER_ALLOW && i < r->n; i++) {
		const struct steer_rule *x = &r->rule[i];
		struct net dst = { .prefix = x->prefix };

		memcpy(dst.addr, x->addr, sizeof(dst.addr));
		steer_to(b, x->family, &dst, x->first, x->last);
	}
}

static void rules_denied(struct nft *b)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	nft_rule(b);
	nft_family(b, 4);
	nft_put(b, 0, mapped, sizeof(mapped));
	nft_load(b, 3, NFT_HEAD_NETWORK, IP4_DST, 4);
	nft_load(b, 4, NFT_HEAD_TRANSPORT, TCP_DST, 2);
	nft_count(b, DENIED, 0);
	nft_rule_end(b);
	nft_rule(b);
	nft_family(b, 6);
	nft_load(b, 0, NFT_HEAD_NETWORK, IP6_DST, 16);
	nft_load(b, 4, NFT_HEAD_TRANSPORT, TCP_DST, 2);
	nft_count(b, DENIED, 0);
	nft_rule_end(b);
	nft_rule(b);
	nft_reset(b);
	nft_rule_end(b);
}

static void rules(struct nft *b, const struct steer_rules *r)
{
	rules_inside(b);
	rules_other(b);
	rules_limit(b);
	rules_near(b, r->mode);
	rules_far(b, r);
	rules_denied(b);
}

static int open_nft(struct netlink **ret, struct err *e)
{
	int r = netlink_new(NETLINK_NETFILTER, ret, e);

	if (r == -EPROTONOSUPPORT) {
		err_set(e, ERR_UNSUPPORTED, r, "this kernel has no nfnetlink, which the network of a sandbox requires");
		err_remedy(e, "load it (modprobe nf_tables); see `cloche doctor`");
	}
	return r;
}

int steer_up(const struct steer_rules *r, struct err *e)
{
	AUTO(netlink_free) struct netlink *n = NULL;
	struct nft b;
	int x = routes(RTM_NEWADDR, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, e);

	if (x == 0)
		x = open_nft(&n, e);
	if (x < 0)
		return x;
	nft_begin(&b, n, TABLE, CHAIN);
	nft_table(&b);
	nft_set(&b, DENIED, DENIED_KEY, STEER_DENIED, DENIED_MS);
	nft_chain(&b, NF_INET_PRE_ROUTING, PRIORITY);
	rules(&b, r);
	return nft_commit(&b, e);
}

static int commit_late(struct nft *b, int *ret_late, struct err *e)
{
	int r = nft_commit(b, e);

	if (ret_late)
		*ret_late = netlink_take(b->link);
	return r;
}

int steer_change(const struct steer_rules *r, int *ret_late, struct err *e)
{
	AUTO(netlink_free) struct netlink *n = NULL;
	struct nft b;
	int x = open_nft(&n, e);

	if (ret_late)
		*ret_late = -1;
	if (x < 0)
		return x;
	nft_begin(&b, n, TABLE, CHAIN);
	nft_flush(&b);
	rules(&b, r);
	return commit_late(&b, ret_late, e);
}

int steer_down(int *ret_late, struct err *e)
{
	AUTO(netlink_free) struct netlink *n = NULL;
	struct nft b;
	/* The routes first: an address without rules must not lead anywhere, not even to the sandbox itself. */
	int r = routes(RTM_DELADDR, RTM_DELROUTE, 0, e);

	if (ret_late)
		*ret_late = -1;
	if (r == 0)
		r = open_nft(&n, e);
	if (r < 0)
		return r;
	nft_begin(&b, n, TABLE, CHAIN);
	nft_table_delete(&b);
	return commit_late(&b, ret_late, e);
}

/* --- sockets --- */

static int set(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value)) < 0 ? -errno : 0;
}

static int open_socket(enum steer_socket which)
{
	const bool udp = which == STEER_DNS_UDP;
	const struct sockaddr_in6 any = {
		.sin6_family = AF_INET6,
		.sin6_port = htons(which == STEER_TCP ? PORT_TCP : PORT_DNS),
	};
	AUTO_CLOSE int fd = socket(AF_INET6, (udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r = fd < 0 ? -errno : set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);

	if (r == 0 && which == STEER_TCP) {
		r = set(fd, IPPROTO_IPV6, IPV6_TRANSPARENT, 1);
		if (r == 0)
			r = set(fd, IPPROTO_IP, IP_TRANSPARENT, 1);
		/* What is accepted has this from its listener; the sandbox's own end from the route. */
		if (r == 0 && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, CONGESTION, strlen(CONGESTION)) < 0)
			r = -errno;
	}
	/*
	 * Accepted connections have local ports that a server inside may need: with 8080 of another host in use, it can
	 * still bind 8080.
	 */
	if (r == 0 && !udp)
		r = set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	/* Answers come from where the question went, or resolvers do not believe them. */
	if (r == 0 && udp)
		r = set(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
	if (r == 0 && udp)
		r = set(fd, IPPROTO_IPV6, IPV6_FREEBIND, 1);
	if (r == 0 && bind(fd, (const struct sockaddr *)&any, sizeof(any)) < 0)
		r = -errno;
	if (r == 0 && !udp && listen(fd, BACKLOG) < 0)
		r = -errno;
	return r < 0 ? r : TAKE_FD(fd);
}

int steer_sockets(int ret[STEER_SOCKETS], struct err *e)
{
	int fds[STEER_SOCKETS];

	for (unsigned i = 0; i < STEER_SOCKETS; i++) {
		fds[i] = open_socket((enum steer_socket)i);
		if (fds[i] < 0) {
			int r = fds[i];

			fd_close_many(fds, i);
			if (r == -EADDRINUSE)
				return err_set(e, ERR_CONFLICT, r, "another process changed the sandbox's network");
			return err_sys(e, ERR_UNSUPPORTED, r, "make the sockets of a sandbox's network");
		}
	}
	memcpy(ret, fds, sizeof(fds));
	return 0;
}

/* --- what was refused --- */

struct denied {
	struct steer_denied *to;
	int n;
};

static void take_denied(void *arg, const uint8_t *key, size_t len, uint64_t count, uint64_t stays)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct denied *d = arg;
	struct steer_denied *x = &d->to[d->n];

	if (len != DENIED_KEY || d->n == STEER_DENIED)
		return;
	*x = (struct steer_denied){ .family = 6, .port = (uint16_t)(key[16] << 8 | key[17]), .count = count };
	if (stays && stays < DENIED_MS)
		x->ago_ms = (uint32_t)(DENIED_MS - stays);
	if (!memcmp(key, mapped, sizeof(mapped))) {
		x->family = 4;
		memcpy(x->addr, key + sizeof(mapped), 4);
	} else {
		memcpy(x->addr, key, 16);
	}
	d->n++;
}

int steer_denied(struct steer_denied *ret, struct err *e)
{
	AUTO(netlink_free) struct netlink *n = NULL;
	struct denied d = { ret, 0 };
	int r = open_nft(&n, e);

	if (r < 0)
		return r;
	r = nft_set_read(n, TABLE, DENIED, take_denied, &d);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "read what a sandbox's network has refused") : d.n;
}
