/* In network namespaces of their own, with real connections. Needs root. */
#include "linux/steer.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "base/test.h"
#include "linux/netlink.h"
#include "linux/ns.h"

#include <arpa/inet.h>
#include <linux/capability.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define OWN6 "fd63:6c6f:6368:65::2"
#define HOST6 "fd63:6c6f:6368:65::1"
#define NAME4 "198.18.1.7"
#define NAME6 "fd63:6c6f:6368:65::1:7"

static struct steer_rules allow(void)
{
	struct steer_rules r = { .mode = STEER_ALLOW, .n = 3 };

	r.rule[0] = (struct steer_rule){ .family = 4, .prefix = 16, .first = 5432, .last = 5432, .addr = { 10, 1 } };
	r.rule[1] = (struct steer_rule){
		.family = 6, .prefix = 32, .first = 1, .last = 65535, .addr = { 0x20, 1, 0xd, 0xb8 }
	};
	r.rule[2] = (struct steer_rule){ .family = 4, .prefix = 9, .first = 8000, .last = 8010, .addr = { 44, 128 } };
	return r;
}

/* In a new namespace, like one of a sandbox. */
static bool fresh(void)
{
	return sys_unshare(CLONE_NEWNET) == 0 && ns_loopback_up() == 0;
}

static bool steered(const struct steer_rules *r, int fds[STEER_SOCKETS])
{
	struct err e = { 0 };

	if (fresh() && steer_up(r, &e) == 0 && steer_sockets(fds, &e) == 0)
		return true;
	printf("# %s; %s\n", e.msg, e.remedy);
	return false;
}

static socklen_t address(const char *text, uint16_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in *a = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *b = (struct sockaddr_in6 *)ret;

	memset(ret, 0, sizeof(*ret));
	if (inet_pton(AF_INET, text, &a->sin_addr) == 1) {
		a->sin_family = AF_INET;
		a->sin_port = htons(port);
		return sizeof(*a);
	}
	if (inet_pton(AF_INET6, text, &b->sin6_addr) != 1)
		abort();
	b->sin6_family = AF_INET6;
	b->sin6_port = htons(port);
	return sizeof(*b);
}

/* An established connection, or -errno. Waits for a bounded time. */
static int dial(const char *to, uint16_t port)
{
	const struct timeval soon = { .tv_sec = 5 };
	struct sockaddr_storage a;
	socklen_t len = address(to, port, &a);
	AUTO_CLOSE int fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon)) < 0 ||
	    connect(fd, (const struct sockaddr *)&a, len) < 0)
		return -errno;
	return TAKE_FD(fd);
}

static int refused(const char *to, uint16_t port)
{
	int fd = dial(to, port);

	fd_close(fd);
	return fd;
}

static int wait_in(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms);
}

/* No pacing inside, whatever the host has for the world outside. */
static bool plain(int fd)
{
	char name[16] = "";
	socklen_t len = sizeof(name);

	return getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len) == 0 && !strcmp(name, "reno");
}

/* Connects, and that the transparent listener got it with the address that was meant. */
static bool reaches(int listener, const char *to, uint16_t port)
{
	AUTO_CLOSE int fd = dial(to, port), in = -1;
	struct sockaddr_in6 a;
	socklen_t len = sizeof(a);
	char text[64], want[64];

	if (fd < 0 || wait_in(listener, 5000) != 1) {
		printf("# %s:%u: %s\n", to, port, strerror(fd < 0 ? -fd : ETIMEDOUT));
		return false;
	}
	in = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (in < 0 || getsockname(in, (struct sockaddr *)&a, &len) < 0 || !plain(fd) || !plain(in))
		return false;
	snprintf(want, sizeof(want), "%s%s", strchr(to, ':') ? "" : "::ffff:", to);
	inet_ntop(AF_INET6, &a.sin6_addr, text, sizeof(text));
	if (strcmp(text, want) != 0 || ntohs(a.sin6_port) != port)
		printf("# %s:%u came as [%s]:%u\n", to, port, text, ntohs(a.sin6_port));
	return !strcmp(text, want) && ntohs(a.sin6_port) == port;
}

TEST(names_and_allowed_addresses_reach_the_listener_with_the_address_that_was_meant)
{
	struct steer_rules r = allow();
	int s[STEER_SOCKETS];

	CHECK(steered(&r, s));
	CHECK(reaches(s[STEER_TCP], NAME4, 443));
	CHECK(reaches(s[STEER_TCP], NAME4, 53));
	CHECK(reaches(s[STEER_TCP], NAME6, 443));
	CHECK(reaches(s[STEER_TCP], "198.19.255.255", 22));
	CHECK(reaches(s[STEER_TCP], "198.18.0.1", 3128));
	CHECK(reaches(s[STEER_TCP], "198.18.0.1", 1080));
	CHECK(reaches(s[STEER_TCP], HOST6, 3128));
	CHECK(reaches(s[STEER_TCP], HOST6, 1080));
	CHECK(reaches(s[STEER_TCP], "10.1.255.1", 5432));
	CHECK(reaches(s[STEER_TCP], "2001:db8:1::2", 65535));
	CHECK(reaches(s[STEER_TCP], "44.129.0.1", 8000));
	CHECK(reaches(s[STEER_TCP], "44.255.0.1", 8010));
	fd_close_many(s, STEER_SOCKETS);
}

TEST(the_rest_is_refused_by_the_kernel_at_once)
{
	static const struct {
		const char *to;
		uint16_t port;
	} no[] = {
		{ "1.1.1.1", 443 },
		{ "8.8.8.8", 53 },
		{ "169.254.169.254", 80 },
		{ "10.0.0.1", 80 },
		{ "10.1.0.1", 5433 },
		{ "10.2.0.1", 5432 },
		{ "44.129.0.1", 7999 },
		{ "44.129.0.1", 8011 },
		{ "44.1.0.1", 8000 },
		{ "198.18.0.1", 80 },
		{ "198.18.0.1", 1 },
		{ "198.18.0.7", 53 },
		{ "198.20.0.1", 443 },
		{ "2001:db9::1", 80 },
		{ "fd00:ec2::254", 80 },
		{ "::ffff:1.1.1.1", 443 },
		{ "2606:4700::1111", 443 },
		{ HOST6, 80 },
		{ NAME4, 1 },
		{ "127.0.0.1", 1 },
	};
	struct steer_rules r = allow();
	uint64_t best = UINT64_MAX;
	int s[STEER_SOCKETS];

	CHECK(steered(&r, s));
	for (size_t i = 0; i < ARRAY_LEN(no); i++) {
		int got = refused(no[i].to, no[i].port);

		if (got != -ECONNREFUSED)
			TEST_FAIL("%s:%u: %d", no[i].to, no[i].port, got);
	}
	CHECK_EQ(wait_in(s[STEER_TCP], 0), 0);
	CHECK_EQ(wait_in(s[STEER_DNS_TCP], 0), 0);
	for (unsigned i = 0; i < 200; i++) {
		uint64_t t = clock_mono_ns();

		CHECK_EQ(refused("1.1.1.1", 443), -ECONNREFUSED);
		t = clock_mono_ns() - t;
		best = t < best ? t : best;
	}
	CHECK(best < 1000000); /* 30 to 80 µs */
	fd_close_many(s, STEER_SOCKETS);
}

/* One datagram there, and what happens to it. */
static int ask(const char *to, uint16_t port)
{
	struct sockaddr_storage a;
	socklen_t len = address(to, port, &a);
	AUTO_CLOSE int fd = socket(a.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char c;

	if (connect(fd, (const struct sockaddr *)&a, len) < 0 || send(fd, "x", 1, 0) < 0)
		return -errno;
	/* It was refused while we sent, if it was. */
	return recv(fd, &c, 1, MSG_DONTWAIT) < 0 && errno != EAGAIN ? -errno : 0;
}

TEST(names_are_asked_for_at_one_address_and_no_other_datagram_goes_anywhere)
{
	struct steer_rules r = { .mode = STEER_OPEN };
	int s[STEER_SOCKETS];
	char c;

	CHECK(steered(&r, s));
	CHECK_EQ(ask("198.18.0.1", 53), 0);
	CHECK_EQ(recv(s[STEER_DNS_UDP], &c, 1, MSG_DONTWAIT), 1);
	CHECK_EQ(ask(HOST6, 53), 0);
	CHECK_EQ(recv(s[STEER_DNS_UDP], &c, 1, MSG_DONTWAIT), 1);
	CHECK_EQ(ask("8.8.8.8", 53), -ECONNREFUSED);
	CHECK_EQ(ask("2001:4860:4860::8888", 53), -ECONNREFUSED);
	CHECK_EQ(ask("1.1.1.1", 443), -ECONNREFUSED);
	CHECK_EQ(ask(NAME4, 443), -ECONNREFUSED);
	CHECK_EQ(ask("198.18.0.1", 54), -ECONNREFUSED);
	CHECK_EQ(ask(NAME6, 53), -ECONNREFUSED);
	CHECK_EQ(wait_in(s[STEER_DNS_UDP], 0), 0);
	fd_close(refused("198.18.0.1", 53));
	CHECK_EQ(wait_in(s[STEER_DNS_TCP], 5000), 1);
	CHECK_EQ(wait_in(s[STEER_TCP], 0), 0);
	fd_close_many(s, STEER_SOCKETS);
}

/* As egress answers: from the address that was asked, since resolvers drop other answers. */
TEST(an_answer_comes_from_the_address_that_was_asked)
{
	static const char *const to[] = { "198.18.0.1", HOST6 };
	struct steer_rules r = { .mode = STEER_NONE };
	int s[STEER_SOCKETS];

	CHECK(steered(&r, s));
	for (size_t i = 0; i < ARRAY_LEN(to); i++) {
		_Alignas(struct cmsghdr) char ctl[CMSG_SPACE(sizeof(struct in6_pktinfo))];
		struct sockaddr_storage a;
		struct sockaddr_in6 from;
		socklen_t len = address(to[i], 53, &a);
		AUTO_CLOSE int fd = socket(a.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		char c;
		struct iovec iov = { &c, 1 };
		struct msghdr m = { .msg_name = &from,
				    .msg_namelen = sizeof(from),
				    .msg_iov = &iov,
				    .msg_iovlen = 1,
				    .msg_control = ctl,
				    .msg_controllen = sizeof(ctl) };

		CHECK(connect(fd, (const struct sockaddr *)&a, len) == 0);
		CHECK_EQ(send(fd, "q", 1, 0), 1);
		CHECK_EQ(wait_in(s[STEER_DNS_UDP], 10000), 1); /* a busy kernel brings it later */
		CHECK_EQ(recvmsg(s[STEER_DNS_UDP], &m, MSG_DONTWAIT), 1);
		CHECK(m.msg_controllen > 0);
		/* The very control message that came goes back, without the interface. */
		CMSG_FIRSTHDR(&m)->cmsg_len = CMSG_LEN(sizeof(struct in6_pktinfo));
		((struct in6_pktinfo *)(void *)CMSG_DATA(CMSG_FIRSTHDR(&m)))->ipi6_ifindex = 0;
		c = 'a';
		CHECK_EQ(sendmsg(s[STEER_DNS_UDP], &m, MSG_DONTWAIT), 1);
		CHECK_EQ(wait_in(fd, 10000), 1);
		CHECK_EQ(recv(fd, &c, 1, MSG_DONTWAIT), 1);
		CHECK_EQ(c, 'a');
	}
	fd_close_many(s, STEER_SOCKETS);
}

static int listen_on(const char *at, uint16_t port)
{
	struct sockaddr_storage a;
	socklen_t len = address(at, port, &a);
	AUTO_CLOSE int fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (const struct sockaddr *)&a, len) < 0 || listen(fd, 8) < 0)
		return -errno;
	return TAKE_FD(fd);
}

TEST(the_sandboxs_own_services_are_reached_by_its_own_addresses_only)
{
	static const char *const own[] = { "127.0.0.1", "127.8.8.8", "::1", "198.18.0.2", OWN6 };
	static const char *const foreign[] = { "5.6.7.8", "198.18.0.9", "2001:db9::5", "10.0.0.1" };
	struct steer_rules r = allow();
	int s[STEER_SOCKETS], wild, any;

	CHECK(steered(&r, s));
	wild = listen_on("::", 8080);
	any = listen_on("5.6.7.8", 9090); /* it may: the address is local */
	CHECK(wild >= 0 && any >= 0);
	for (size_t i = 0; i < ARRAY_LEN(own); i++) {
		CHECK_EQ(refused(own[i], 8080) < 0, 0);
		CHECK_EQ(wait_in(wild, 5000), 1);
		fd_close(accept(wild, NULL, NULL));
	}
	for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
		CHECK_EQ(refused(foreign[i], 8080), -ECONNREFUSED);
	CHECK_EQ(refused("5.6.7.8", 9090), -ECONNREFUSED);
	/* What is steered goes to the listener, also when another socket has that port. */
	CHECK(reaches(s[STEER_TCP], NAME4, 8080));
	CHECK_EQ(wait_in(wild, 0), 0);
	/* When no process has the listener any more, it is refused. */
	fd_close_many(s, STEER_SOCKETS);
	CHECK_EQ(refused(NAME4, 8080), -ECONNREFUSED);
	CHECK_EQ(refused(NAME6, 8080), -ECONNREFUSED);
	CHECK_EQ(refused("10.1.0.1", 5432), -ECONNREFUSED);
	CHECK_EQ(ask("198.18.0.1", 53), -ECONNREFUSED);
	CHECK_EQ(wait_in(wild, 0), 0);
	r.mode = STEER_OPEN;
	r.n = 0;
	CHECK_EQ(steer_change(&r, NULL, NULL), 0);
	CHECK_EQ(refused("5.6.7.8", 8080), -ECONNREFUSED);
	CHECK_EQ(refused("5.6.7.8", 9090), -ECONNREFUSED);
	CHECK_EQ(wait_in(wild, 0), 0);
	fd_close(wild);
	fd_close(any);
}

/* A stream to port 8080 somewhere must not keep a server inside from its own port 8080. */
TEST(an_open_stream_takes_no_port_from_a_server_inside)
{
	struct steer_rules r = allow();
	int s[STEER_SOCKETS], fd, in, own;

	CHECK(steered(&r, s));
	fd = dial(NAME4, 8080);
	CHECK(fd >= 0 && wait_in(s[STEER_TCP], 5000) == 1);
	in = accept4(s[STEER_TCP], NULL, NULL, SOCK_CLOEXEC);
	CHECK(in >= 0);
	own = listen_on("0.0.0.0", 8080);
	CHECK(own >= 0);
	CHECK_EQ(send(fd, "x", 1, 0), 1);
	CHECK_EQ(wait_in(in, 5000), 1);
	fd_close_many((int[]){ fd, in, own }, 3);
	fd_close_many(s, STEER_SOCKETS);
}

TEST(each_mode_lets_through_what_it_says)
{
	struct steer_rules r = { .mode = STEER_NONE };
	int s[STEER_SOCKETS];

	CHECK(steered(&r, s));
	CHECK_EQ(refused(NAME4, 443), -ECONNREFUSED);
	CHECK_EQ(refused(NAME6, 443), -ECONNREFUSED);
	CHECK_EQ(refused("198.18.0.1", 3128), -ECONNREFUSED);
	CHECK_EQ(refused("1.1.1.1", 443), -ECONNREFUSED);
	CHECK_EQ(ask("198.18.0.1", 53), 0);
	for (r.mode = STEER_OPEN; r.mode <= STEER_OBSERVE; r.mode++) {
		CHECK_EQ(steer_change(&r, NULL, NULL), 0);
		CHECK(reaches(s[STEER_TCP], NAME4, 443));
		CHECK(reaches(s[STEER_TCP], "1.1.1.1", 443));
		CHECK(reaches(s[STEER_TCP], "2606:4700::1111", 853));
		CHECK_EQ(refused("198.18.0.3", 443), -ECONNREFUSED);
	}
	r = allow();
	CHECK_EQ(steer_change(&r, NULL, NULL), 0);
	CHECK_EQ(refused("1.1.1.1", 443), -ECONNREFUSED);
	CHECK(reaches(s[STEER_TCP], "10.1.0.1", 5432));
	r.n = 0;
	CHECK_EQ(steer_change(&r, NULL, NULL), 0);
	CHECK_EQ(refused("10.1.0.1", 5432), -ECONNREFUSED);
	CHECK(reaches(s[STEER_TCP], NAME4, 443));
	fd_close_many(s, STEER_SOCKETS);
}

TEST(as_many_rules_as_there_can_be_fit)
{
	struct steer_rules r = { .mode = STEER_ALLOW, .n = STEER_RULES };
	int s[STEER_SOCKETS];

	for (unsigned i = 0; i < STEER_RULES; i++)
		r.rule[i] = (struct steer_rule){
			.family = 6, .prefix = 57, .first = 2, .last = 9, .addr = { 0x20, 1, [6] = (uint8_t)i }
		};
	CHECK_EQ(steer_check(&r, NULL), 0);
	CHECK(steered(&r, s));
	CHECK(reaches(s[STEER_TCP], "2001:0:0:1f7f::1", 9));
	CHECK_EQ(refused("2001:0:0:1f80::1", 9), -ECONNREFUSED);
	fd_close_many(s, STEER_SOCKETS);
}

TEST(what_the_kernel_refused_is_told_with_how_often)
{
	struct steer_denied d[STEER_DENIED];
	struct steer_rules r = allow();
	int s[STEER_SOCKETS], n;

	CHECK(steered(&r, s));
	CHECK_EQ(steer_denied(d, NULL), 0);
	for (unsigned i = 0; i < 5; i++)
		CHECK_EQ(refused("9.8.7.6", 2222), -ECONNREFUSED);
	CHECK_EQ(refused("2001:db9::9", 443), -ECONNREFUSED);
	CHECK(reaches(s[STEER_TCP], NAME4, 443));
	usleep(50000); /* so long ago it was, at least, as clocks of ticks go */
	n = steer_denied(d, NULL);
	CHECK_EQ(n, 2);
	for (int i = 0; i < n; i++) {
		if (d[i].family == 4) {
			CHECK(!memcmp(d[i].addr, (uint8_t[16]){ 9, 8, 7, 6 }, 16) && d[i].port == 2222);
			CHECK_EQ(d[i].count, 5);
			CHECK(d[i].ago_ms >= 20 && d[i].ago_ms < 60000);
		} else {
			CHECK(d[i].addr[0] == 0x20 && d[i].addr[3] == 0xb9 && d[i].addr[15] == 9 && d[i].port == 443);
			CHECK_EQ(d[i].count, 1);
		}
	}
	/* It is bounded, and full it refuses all the same. */
	for (unsigned i = 0; i < 3 * STEER_DENIED; i++)
		CHECK_EQ(refused("9.8.7.6", (uint16_t)(3000 + i)), -ECONNREFUSED);
	CHECK_EQ(steer_denied(d, NULL), STEER_DENIED);
	/* Other rules forget nothing. */
	CHECK_EQ(steer_change(&r, NULL, NULL), 0);
	CHECK_EQ(steer_denied(d, NULL), STEER_DENIED);
	fd_close_many(s, STEER_SOCKETS);
}

/* Never more than 4000 at once and 2000 a second; an emulated machine may not even get there. */
TEST(a_flood_of_connections_is_cut_short)
{
	struct steer_rules r = allow();
	unsigned no = 0, yes = 0;
	int s[STEER_SOCKETS];
	uint64_t from, took;

	CHECK(steered(&r, s));
	from = clock_mono_ns();
	do {
		int fd = dial(NAME4, 443);

		if (fd >= 0) {
			fd_close(accept4(s[STEER_TCP], NULL, NULL, SOCK_CLOEXEC));
			fd_close(fd);
			yes++;
		} else {
			CHECK_EQ(fd, -ECONNREFUSED);
			no++;
		}
		took = clock_mono_ns() - from;
	} while (no < 2000 && took < 3000000000ULL);
	printf("# %u passed and %u did not in %llu ms\n", yes, no, (unsigned long long)took / 1000000);
	CHECK(yes > 100);
	CHECK(yes <= 4000 + 2200 * (took / 1000000 + 10) / 1000);
	/* Its own services are not counted. */
	fd_close(s[STEER_DNS_TCP]);
	for (unsigned i = 0; i < 100; i++)
		CHECK_EQ(refused("127.0.0.1", 7777), -ECONNREFUSED);
	fd_close_many(s, 2);
}

TEST(a_flood_of_questions_is_cut_short)
{
	struct steer_rules r = allow();
	unsigned asked = 0, came = 0;
	struct sockaddr_storage a;
	socklen_t len = address("198.18.0.1", 53, &a);
	AUTO_CLOSE int fd = -1;
	int s[STEER_SOCKETS];
	uint64_t from, took;
	char c;

	CHECK(steered(&r, s));
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(connect(fd, (struct sockaddr *)&a, len) == 0);
	from = clock_mono_ns();
	do {
		asked++;
		if (send(fd, "q", 1, 0) == 1 && recv(s[STEER_DNS_UDP], &c, 1, MSG_DONTWAIT) == 1)
			came++;
		took = clock_mono_ns() - from;
	} while (asked < 20000 && took < 3000000000ULL);
	printf("# %u of %u came in %llu ms\n", came, asked, (unsigned long long)took / 1000000);
	CHECK(came > 100);
	CHECK(came <= 4000 + 2200 * (took / 1000000 + 10) / 1000);
	fd_close_many(s, STEER_SOCKETS);
}

TEST(sockets_are_made_anew_only_when_the_old_ones_are_gone)
{
	struct steer_rules r = allow();
	int s[STEER_SOCKETS], again[STEER_SOCKETS], held;
	struct err e = { 0 };

	CHECK(steered(&r, s));
	CHECK_EQ(steer_sockets(again, &e), -EADDRINUSE);
	CHECK_EQ(e.kind, ERR_CONFLICT);
	/* A stream that is still open does not count. */
	held = dial(NAME4, 443);
	CHECK(held >= 0);
	fd_close_many(s, STEER_SOCKETS);
	CHECK_EQ(steer_sockets(again, &e), 0);
	CHECK(reaches(again[STEER_TCP], NAME4, 443));
	fd_close(held);
	fd_close_many(again, STEER_SOCKETS);
}

/* What a namespace has: links, addresses and routes as the kernel lists them, tables of rules. */
static int add_up(void *arg, const uint8_t *body, size_t len)
{
	size_t *sum = arg;

	(void)body;
	sum[0]++;
	sum[1] += len;
	return 0;
}

static bool contents(size_t ret[6])
{
	static const uint16_t lists[] = { RTM_GETADDR, RTM_GETROUTE };
	const struct rtgenmsg g = { .rtgen_family = AF_UNSPEC };
	const struct nfgenmsg f = { .nfgen_family = AF_UNSPEC };
	bool ok = true;

	memset(ret, 0, 6 * sizeof(*ret));
	for (unsigned i = 0; ok && i < 3; i++) {
		AUTO(netlink_free) struct netlink *n = NULL;

		ok = netlink_new(i < 2 ? NETLINK_ROUTE : NETLINK_NETFILTER, &n, NULL) == 0;
		if (ok && i < 2)
			netlink_begin(n, lists[i], NLM_F_DUMP, &g, sizeof(g));
		else if (ok)
			netlink_begin(n, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETTABLE, NLM_F_DUMP, &f, sizeof(f));
		ok = ok && netlink_ask(n, add_up, ret + 2 * i) == 0;
	}
	return ok;
}

TEST(taken_down_nothing_is_left)
{
	size_t before[6], during[6], after[6];
	struct steer_rules r = allow();
	int s[STEER_SOCKETS];

	CHECK(fresh());
	CHECK(contents(before));
	CHECK_EQ(steer_up(&r, NULL), 0);
	CHECK_EQ(steer_sockets(s, NULL), 0);
	CHECK(contents(during));
	CHECK(during[0] == before[0] + 2 && during[2] > before[2] && during[4] == before[4] + 1);
	fd_close_many(s, STEER_SOCKETS);
	CHECK_EQ(steer_down(NULL, NULL), 0);
	CHECK(contents(after));
	for (unsigned i = 0; i < 6; i++)
		CHECK_EQ(after[i], before[i]);
	CHECK_EQ(refused("1.1.1.1", 443), -ENETUNREACH);
	CHECK_EQ(refused("2001:db8::1", 443), -ENETUNREACH);
	/* And it can be steered again. */
	CHECK_EQ(steer_up(&r, NULL), 0);
	CHECK_EQ(refused("1.1.1.1", 443), -ECONNREFUSED);
}

/* Nothing was sent by all this: the pool uses a namespace again only when its counters are zero. */
TEST(steering_sends_nothing)
{
	struct steer_rules r = allow();
	int s[STEER_SOCKETS];
	char text[4096];

	CHECK(steered(&r, s));
	CHECK_EQ(steer_change(&r, NULL, NULL), 0);
	CHECK(fd_get(AT_FDCWD, "/proc/thread-self/net/dev", text, sizeof(text)) > 0);
	CHECK(strstr(text, "lo:") && strtoull(strstr(text, "lo:") + 3, NULL, 10) == 0);
	fd_close_many(s, STEER_SOCKETS);
}

static void write_map(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		_exit(100);
	close(fd);
}

/* Root of a user namespace of its own, with all capabilities there: the most that a process in a sandbox can become. */
static int try_as_root_inside(void)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6 };
	int fd, one = 1;
	struct steer_rules r = { .mode = STEER_OPEN };
	int s[STEER_SOCKETS];

	if (sys_unshare(CLONE_NEWUSER) < 0)
		return 99;
	write_map("/proc/self/setgroups", "deny");
	write_map("/proc/self/uid_map", "0 0 1");
	write_map("/proc/self/gid_map", "0 0 1");
	fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) < 0)
		return 98;
	a.sin6_port = htons(1);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return 1;
	a.sin6_port = htons(53);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return 2;
	if (setsockopt(fd, IPPROTO_IP, IP_TRANSPARENT, &one, sizeof(one)) == 0)
		return 3;
	if (setsockopt(fd, IPPROTO_IPV6, 75 /* IPV6_TRANSPARENT */, &one, sizeof(one)) == 0)
		return 4;
	if (setsockopt(fd, SOL_SOCKET, SO_MARK, &one, sizeof(one)) == 0)
		return 5;
	if (socket(AF_INET, SOCK_RAW, IPPROTO_TCP) >= 0 || socket(AF_PACKET, SOCK_RAW, 0) >= 0)
		return 6;
	if (steer_change(&r, NULL, NULL) == 0 || steer_down(NULL, NULL) == 0 || steer_sockets(s, NULL) == 0)
		return 7;
	/* In a namespace of its own it may do all that, and is alone there. */
	return refused("1.1.1.1", 443) == -ECONNREFUSED ? 0 : 8;
}

TEST(root_of_a_nested_user_namespace_can_change_none_of_it)
{
	struct steer_rules r = allow();
	int s[STEER_SOCKETS], status = 0;
	pid_t pid;

	CHECK(steered(&r, s));
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		/* Not even with the listener gone. */
		fd_close_many(s, STEER_SOCKETS);
		_exit(try_as_root_inside());
	}
	fd_close_many(s, STEER_SOCKETS);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
}

/* What a kernel says that has none of it: the message names what to load. */
TEST(a_kernel_that_lacks_a_piece_is_told_by_its_name)
{
	struct steer_rules r = allow();
	struct err e = { 0 };

	CHECK(fresh());
	sys_test_fail(SYSID_sendmsg, EOPNOTSUPP, 2); /* the first has the routes */
	CHECK_EQ(steer_up(&r, &e), -EOPNOTSUPP);
	CHECK_EQ(e.kind, ERR_UNSUPPORTED);
	CHECK_CONTAINS(e.msg, "nf_tables");
	CHECK_CONTAINS(e.remedy, "modprobe nf_tables");
	CHECK(fresh());
	sys_test_fail(SYSID_sendmsg, EAFNOSUPPORT, 1);
	CHECK_EQ(steer_up(&r, &e), -EAFNOSUPPORT);
	CHECK_CONTAINS(e.remedy, "IPv6");
	/* An answer that never came is no success. */
	CHECK(fresh());
	sys_test_fail(SYSID_recvmsg, ENOBUFS, 1);
	CHECK_EQ(steer_up(&r, &e), -ENOBUFS);
}
