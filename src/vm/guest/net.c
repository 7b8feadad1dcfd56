/*
 * The sandbox's way out of a machine that has no network: its streams and questions are met by the steered sockets
 * (linux/steer.h), as on any host, and each becomes a channel. The host connects it, in the jail's own steered network, so
 * that the same cloche-egress decides. The same rules are here, too, so that what the host's kernel would refuse is refused at
 * connect(). A question by UDP goes as one by TCP.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "vm/guest/guest.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ASKS_MAX 8U /* egress lets a sandbox have 32 connections for questions; the others wait in the socket */
#define ASK_NS 10000000000ULL
#define QUERY_MAX 1232U
#define ANSWER_MAX 4096U
#define BATCH 32 /* streams and queries accepted in one turn, so that others get theirs */
#define ROOM (8U * 1024U) /* room in the port's buffer that is needed to accept more */
#define DNS_PORT 53
#define DNS_TC 2 /* bit of the third byte: the answer was truncated, ask by TCP */
#define DNS_HEAD 12

/* One DNS query, and the address of the process that waits for its answer. */
struct ask {
	bool used;
	int fd, carried; /* our end of a socket pair; ->carried is the end that becomes a channel */
	uint64_t until;
	struct sockaddr_in6 from;
	struct in6_pktinfo at; /* the address that the query was sent to */
	bool have_at;
	size_t len;
	uint8_t data[2 + ANSWER_MAX];
};

struct guest_net {
	int ep;
	int way[STEER_SOCKETS];
	bool full; /* no more questions are taken for now */
	struct ask ask[ASKS_MAX];
	struct steer_denied told[STEER_DENIED];
	unsigned ntold;
	uint64_t fails; /* count of refused connections at the last check */
};

static const struct mux_net resolver = { .family = 4, .port = DNS_PORT, .addr = { 198, 18, 0, 1 } };

static int add(const struct guest_net *n, int fd, uint32_t what)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u32 = what };

	return epoll_ctl(n->ep, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

static void net_close(struct guest *g)
{
	struct guest_net *n = TAKE_PTR(g->net);

	if (!n)
		return;
	for (size_t i = 0; i < ASKS_MAX; i++)
		if (n->ask[i].used)
			fd_close(n->ask[i].fd);
	fd_close_many(n->way, STEER_SOCKETS);
	fd_close(n->ep);
	free(n);
}

/* Takes over the sockets, also on failure. */
static int listen_on(struct guest *g, int way[STEER_SOCKETS], struct err *e)
{
	struct guest_net *n = calloc(1, sizeof(*n));
	int r = 0;

	if (!n) {
		fd_close_many(way, STEER_SOCKETS);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "guest: no memory");
	}
	g->net = n;
	memcpy(n->way, way, sizeof(n->way));
	n->ep = epoll_create1(EPOLL_CLOEXEC);
	if (n->ep < 0)
		r = -errno;
	for (uint32_t i = 0; r == 0 && i < STEER_SOCKETS; i++)
		r = n->way[i] < 0 ? -ENOTCONN : add(n, n->way[i], i);
	if (r < 0)
		net_close(g);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "guest: set up the network proxy") : 0;
}

int net_open(struct guest *g, struct err *e)
{
	int way[STEER_SOCKETS];

	warden_net_sockets(g->sandbox, way);
	return listen_on(g, way, e);
}

/* Gives a network to a sandbox that was made without one. */
static int net_give(struct guest *g, const struct steer_rules *rules, struct err *e)
{
	int way[STEER_SOCKETS], r = warden_net(g->warden, g->sandbox, rules, way, e);

	if (r == 0)
		r = listen_on(g, way, e);
	if (r == 0 && !g->host) {
		r = resume_resolver(g);
		if (r < 0)
			err_sys(e, ERR_INTERNAL, r, "guest: /etc/resolv.conf");
	}
	return r;
}

int net_steer(struct guest *g, const struct mux *m)
{
	static const struct steer_rules none = { .mode = STEER_NONE };
	struct steer_rules rules;
	struct err e = { 0 };
	int r = 0;

	if (!g->sandbox || (m->len && m->len != sizeof(rules)))
		return -EBADMSG;
	if (!m->len && g->net) {
		net_close(g);
		r = warden_net(g->warden, g->sandbox, &none, NULL, &e);
	}
	if (m->len) {
		memcpy(&rules, m->payload, sizeof(rules));
		r = g->net ? warden_net(g->warden, g->sandbox, &rules, NULL, &e) : net_give(g, &rules, &e);
	}
	if (r < 0)
		dprintf(STDERR_FILENO, "cloche-guest: set up the network proxy: %s\n", e.msg);
	return 0;
}

int net_poll(const struct guest *g)
{
	return g->net && carry_room(&g->carry) > ROOM ? g->net->ep : -1;
}

static void get_addr(const struct sockaddr_in6 *a, struct mux_net *ret)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	*ret = (struct mux_net){ .family = 6, .port = ntohs(a->sin6_port) };
	if (memcmp(&a->sin6_addr, mapped, sizeof(mapped))) {
		memcpy(ret->addr, &a->sin6_addr, 16);
		return;
	}
	ret->family = 4;
	memcpy(ret->addr, a->sin6_addr.s6_addr + 12, 4);
}

/* Accepts a stream. False: there is none. */
static bool take_stream(struct guest *g, int sock)
{
	const struct linger now = { .l_onoff = 1, .l_linger = 0 };
	struct sockaddr_in6 to = { 0 };
	socklen_t len = sizeof(to);
	struct mux_net where;
	int fd = accept4(sock, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return false;
	if (getsockname(fd, (struct sockaddr *)&to, &len) < 0 || chan_numbers(&g->carry) <= CHAN_SPARE) {
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
		fd_close(fd);
		return true;
	}
	get_addr(&to, &where);
	chan_open_net(&g->carry, fd, &where);
	return true;
}

static void set_full(struct guest_net *n, bool full)
{
	struct epoll_event ev = { .events = full ? 0 : EPOLLIN, .data.u32 = STEER_DNS_UDP };

	if (n->full != full && epoll_ctl(n->ep, EPOLL_CTL_MOD, n->way[STEER_DNS_UDP], &ev) == 0)
		n->full = full;
}

/* Ends a query: it was answered, egress has given up, or its channel was cut. */
static void ask_end(struct guest_net *n, struct ask *a)
{
	fd_close(a->fd);
	a->used = false;
	set_full(n, false);
}

static struct ask *free_ask(struct guest_net *n, uint64_t now)
{
	for (size_t i = 0; i < ASKS_MAX; i++) {
		struct ask *a = &n->ask[i];

		if (a->used && now > a->until)
			ask_end(n, a);
		if (!a->used)
			return a;
	}
	return NULL;
}

static void note_at(struct ask *a, struct msghdr *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			memcpy(&a->at, CMSG_DATA(c), sizeof(a->at));
			a->at.ipi6_ifindex = 0;
			a->have_at = true;
		}
}

static int send_ask(struct guest *g, struct ask *a, const uint8_t *query, size_t len)
{
	uint8_t out[2 + QUERY_MAX] = { (uint8_t)(len >> 8), (uint8_t)len };
	int pair[2], r = sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair);

	if (r < 0)
		return r;
	a->fd = pair[0];
	a->carried = pair[1];
	memcpy(out + 2, query, len);
	r = fd_send_now(a->fd, out, len + 2, NULL, 0);
	if (r == 0)
		r = chan_open_net(&g->carry, TAKE_FD(pair[1]), &resolver);
	if (r == 0)
		r = add(g->net, a->fd, (uint32_t)(STEER_SOCKETS + (a - g->net->ask)));
	fd_close(pair[1]);
	if (r < 0)
		fd_close(a->fd);
	return r;
}

static bool take_question(struct guest *g)
{
	struct guest_net *n = g->net;
	uint64_t now = clock_mono_ns();
	struct ask *a = free_ask(n, now);
	_Alignas(struct cmsghdr) char control[256];
	uint8_t query[QUERY_MAX];
	struct iovec v = { query, sizeof(query) };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	ssize_t len;

	if (!a) {
		set_full(n, true);
		return false;
	}
	a->len = 0;
	a->have_at = false;
	m.msg_name = &a->from;
	m.msg_namelen = sizeof(a->from);
	len = recvmsg(n->way[STEER_DNS_UDP], &m, MSG_DONTWAIT);
	if (len < 0)
		return false;
	if (len < DNS_HEAD || m.msg_flags & MSG_TRUNC)
		return true;
	note_at(a, &m);
	a->until = now + ASK_NS;
	a->used = send_ask(g, a, query, (size_t)len) == 0;
	return true;
}

static void answer(const struct guest_net *n, struct ask *a, size_t len)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(a->at))] = { 0 };
	struct iovec v = { a->data + 2, len };
	struct msghdr m = { .msg_name = &a->from, .msg_namelen = sizeof(a->from), .msg_iov = &v, .msg_iovlen = 1 };

	if (len > QUERY_MAX) {
		/* A large answer is cut to its head and question; the client then asks by TCP. */
		a->data[2 + 2] |= DNS_TC;
		memset(a->data + 2 + 4, 0, 8);
		v.iov_len = DNS_HEAD;
	}
	if (a->have_at) {
		struct cmsghdr *c = (struct cmsghdr *)(void *)control;

		c->cmsg_level = IPPROTO_IPV6;
		c->cmsg_type = IPV6_PKTINFO;
		c->cmsg_len = CMSG_LEN(sizeof(a->at));
		memcpy(CMSG_DATA(c), &a->at, sizeof(a->at));
		m.msg_control = control;
		m.msg_controllen = sizeof(control);
	}
	sendmsg(n->way[STEER_DNS_UDP], &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void take_answer(struct guest_net *n, struct ask *a)
{
	ssize_t k;
	size_t want;

	if (!a->used)
		return;
	k = recv(a->fd, a->data + a->len, sizeof(a->data) - a->len, MSG_DONTWAIT);
	if (k < 0 && errno == EAGAIN)
		return;
	if (k <= 0) {
		ask_end(n, a);
		return;
	}
	a->len += (size_t)k;
	want = a->len < 2 ? 0 : (size_t)a->data[0] << 8 | a->data[1];
	if (a->len < 2 || (a->len < want + 2 && want <= ANSWER_MAX))
		return;
	if (want >= DNS_HEAD && want <= ANSWER_MAX)
		answer(n, a, want);
	ask_end(n, a);
}

static void put_end(const struct sockaddr_in6 *a, uint8_t addr[16], uint16_t *port, uint8_t *family)
{
	struct mux_net x;

	get_addr(a, &x);
	memcpy(addr, x.addr, sizeof(x.addr));
	*port = (uint16_t)x.port;
	*family = (uint8_t)x.family;
}

int net_who(struct guest *g, uint32_t channel, struct socket_owner *ret)
{
	const int fd = channel < MUX_CHANNELS && g->carry.chan[channel].net ? g->carry.chan[channel].fd : -1;
	struct sockaddr_in6 from = { 0 }, to = { 0 };
	socklen_t flen = sizeof(from), tlen = sizeof(to);
	struct warden_who who = { 0 };
	uint8_t family;
	uint16_t port;

	if (!g->net || fd < 0)
		return -ENOENT;
	for (size_t i = 0; i < ASKS_MAX; i++) {
		const struct ask *a = &g->net->ask[i];

		if (a->used && a->have_at && a->carried == fd) {
			from = a->from;
			to = (struct sockaddr_in6){ .sin6_family = AF_INET6,
						    .sin6_port = htons(DNS_PORT),
						    .sin6_addr = a->at.ipi6_addr };
			who.udp = 1;
		}
	}
	if (!who.udp && (getpeername(fd, (struct sockaddr *)&from, &flen) < 0 ||
			 getsockname(fd, (struct sockaddr *)&to, &tlen) < 0 || from.sin6_family != AF_INET6))
		return -ENOTCONN;
	put_end(&from, who.client, &port, &family);
	who.client_port = port;
	who.family = family;
	put_end(&to, who.addr, &port, &family);
	who.port = port;
	return family == who.family ? warden_who(g->warden, g->sandbox, &who, ret, NULL) : -EAFNOSUPPORT;
}

static uint64_t told(const struct guest_net *n, const struct steer_denied *d)
{
	for (unsigned i = 0; i < n->ntold; i++)
		if (n->told[i].family == d->family && n->told[i].port == d->port &&
		    !memcmp(n->told[i].addr, d->addr, sizeof(d->addr)))
			return n->told[i].count;
	return 0;
}

/*
 * Whether any connection of the sandbox was refused since the last check. Mostly none was, so this cheap check comes
 * first.
 */
static bool failed_more(struct guest *g)
{
	char path[48], text[4096], *at;
	uint64_t fails = 0;

	snprintf(path, sizeof(path), "/proc/%d/net/snmp", (int)warden_pid(g->sandbox));
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) < 0)
		return true;
	/* /proc/net/snmp has a line of names and one of numbers: AttemptFails is the seventh. */
	at = strstr(text, "\nTcp: ");
	at = at ? strstr(at + 1, "\nTcp: ") : NULL;
	for (unsigned i = 0; at && i < 7; i++)
		at = strchr(at + 1, ' ');
	fails = at ? strtoull(at, NULL, 10) : g->net->fails + 1;
	if (fails == g->net->fails)
		return false;
	g->net->fails = fails;
	return true;
}

int net_denied(struct guest *g)
{
	uint8_t out[MUX_DENIED_MAX * MUX_DENIED_LEN];
	struct steer_denied now[STEER_DENIED];
	size_t len = 0;
	int k;

	static_assert(STEER_DENIED <= MUX_DENIED_MAX, "they fit into one message");
	g->look = g->net && carry_room(&g->carry) < sizeof(out) + MUX_HEAD;
	if (!g->net || g->look || !failed_more(g))
		return 0;
	k = warden_denied(g->warden, g->sandbox, now, NULL);
	for (int i = 0; i < k; i++) {
		const uint64_t before = told(g->net, &now[i]), more = now[i].count > before ? now[i].count - before : 0;
		struct mux_net to = { .family = now[i].family, .port = now[i].port };

		memcpy(to.addr, now[i].addr, sizeof(to.addr));
		if (!more || !to.port)
			continue;
		mux_net_encode(&to, out + len);
		mux_put_u32(out + len + MUX_NET_LEN, more < UINT32_MAX ? (uint32_t)more : UINT32_MAX);
		len += MUX_DENIED_LEN;
	}
	if (k >= 0) {
		memcpy(g->net->told, now, (size_t)k * sizeof(now[0]));
		g->net->ntold = (unsigned)k;
	}
	return len ? carry_say(&g->carry, MUX_DENIED, 0, out, len) : 0;
}

int net_serve(struct guest *g)
{
	struct guest_net *n = g->net;
	struct epoll_event ev[BATCH];
	int k = epoll_wait(n->ep, ev, BATCH, 0);

	for (int i = 0; i < k; i++) {
		const uint32_t what = ev[i].data.u32;

		for (int j = 0; j < BATCH && carry_room(&g->carry) > ROOM; j++)
			if (what >= STEER_SOCKETS) {
				take_answer(n, &n->ask[what - STEER_SOCKETS]);
				break;
			} else if (what == STEER_DNS_UDP ? !take_question(g) : !take_stream(g, n->way[what])) {
				break;
			}
	}
	return 0;
}
