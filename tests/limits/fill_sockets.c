/*
 * Fills kernel memory by sockets, one kind per mode, with some processes at once, and then waits: what a sandbox's limit must hold.
 *
 *   fill_sockets KIND [PROCESSES [SECONDS]]
 *   fill_sockets --list
 *
 * Needs nothing but a loopback interface. Exits with 0 after SECONDS (3), whatever the kernel has refused meanwhile.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BIG 60000 /* of a datagram */
#define LINE 65536

static double end_at;
static char data[1 << 16];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int over(void)
{
	return now() >= end_at;
}

static void large_buffers(int fd)
{
	int size = 64 << 20;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
}

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons(port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

/* A datagram socket that nobody reads, to send to. */
static struct sockaddr_in sink(void)
{
	struct sockaddr_in a = loopback(0);
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_DGRAM, 0), small = 1;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	bind(fd, (struct sockaddr *)&a, sizeof(a));
	getsockname(fd, (struct sockaddr *)&a, &len);
	return a;
}

/* The error queue keeps a copy of what was sent, asked for by the message itself. */
static void send_stamped(int fd)
{
	_Alignas(struct cmsghdr) char ctl[CMSG_SPACE(sizeof(uint32_t))] = { 0 };
	struct iovec iov = { data, BIG };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof(ctl) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	uint32_t flags = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_SCHED;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SO_TIMESTAMPING;
	c->cmsg_len = CMSG_LEN(sizeof(flags));
	memcpy(CMSG_DATA(c), &flags, sizeof(flags));
	sendmsg(fd, &m, MSG_DONTWAIT);
}

static void stamps(int option, int hide)
{
	struct sockaddr_in to = sink();
	uint32_t flags = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_SOFTWARE;
	const struct sockaddr none = { .sa_family = AF_UNSPEC };

	while (!over()) {
		int fd = socket(AF_INET, SOCK_DGRAM, 0), tries = 6;

		if (fd < 0)
			return;
		if (option) {
			large_buffers(fd);
			setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof(flags));
			tries = 200;
		}
		connect(fd, (struct sockaddr *)&to, sizeof(to));
		for (int i = 0; i < tries && !over(); i++) {
			if (option)
				send(fd, data, BIG, MSG_DONTWAIT);
			else
				send_stamped(fd);
		}
		if (hide)
			connect(fd, &none, sizeof(none));
	}
}

static void cork(void)
{
	struct sockaddr_in to = sink();

	while (!over()) {
		int fd = socket(AF_INET, SOCK_DGRAM, 0);

		if (fd < 0)
			return;
		large_buffers(fd);
		connect(fd, (struct sockaddr *)&to, sizeof(to));
		for (int i = 0; i < 16; i++)
			send(fd, data, 4000, MSG_MORE | MSG_DONTWAIT);
	}
}

/* Connections that nobody accepts. @reset: their senders reset them, so that no list has them. */
static void accepts(int reset)
{
	while (!over()) {
		struct sockaddr_in a = loopback(0);
		const struct linger hard = { 1, 0 };
		socklen_t len = sizeof(a);
		int l = socket(AF_INET, SOCK_STREAM, 0);

		if (l < 0)
			return;
		bind(l, (struct sockaddr *)&a, sizeof(a));
		listen(l, 4096);
		getsockname(l, (struct sockaddr *)&a, &len);
		for (int i = 0; i < 4096 && !over(); i++) {
			int c = socket(AF_INET, SOCK_STREAM, 0);
			struct timeval t = { 0, 20000 };

			if (c < 0)
				break;
			setsockopt(c, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
			if (connect(c, (struct sockaddr *)&a, sizeof(a)) < 0) {
				close(c);
				break;
			}
			for (int k = 0; k < 8 && send(c, data, LINE, MSG_DONTWAIT) > 0; k++)
				;
			if (reset)
				setsockopt(c, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
			close(c);
		}
	}
}

/* Both ends open, or @orphan: the one that has sent is closed. */
static void pairs(int orphan)
{
	struct sockaddr_in a = loopback(0);
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0), small = 1;

	if (orphan)
		setsockopt(l, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	bind(l, (struct sockaddr *)&a, sizeof(a));
	listen(l, 128);
	getsockname(l, (struct sockaddr *)&a, &len);
	while (!over()) {
		int c = socket(AF_INET, SOCK_STREAM, 0), s;

		if (c < 0)
			return;
		large_buffers(c);
		if (connect(c, (struct sockaddr *)&a, sizeof(a)) < 0)
			return;
		s = accept(l, NULL, NULL);
		if (s < 0)
			return;
		for (int k = 0; k < 400 && send(c, data, LINE, MSG_DONTWAIT) > 0; k++)
			;
		if (orphan)
			close(c);
	}
}

/* Errors that nobody reads: of datagrams that are too large, or that nobody takes. */
static void errors(int icmp)
{
	while (!over()) {
		int fd = socket(icmp ? AF_INET : AF_INET6, SOCK_DGRAM, 0), one = 1;
		struct sockaddr_in to = loopback(9);
		struct sockaddr_in6 to6 = { .sin6_family = AF_INET6,
					    .sin6_port = htons(9),
					    .sin6_addr = IN6ADDR_LOOPBACK_INIT };

		if (fd < 0)
			return;
		large_buffers(fd);
		if (icmp)
			setsockopt(fd, IPPROTO_IP, IP_RECVERR, &one, sizeof(one));
		else {
			int mtu = IPV6_PMTUDISC_DO;

			setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &one, sizeof(one));
			setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &mtu, sizeof(mtu));
		}
		for (int i = 0; i < 20000 && !over(); i++)
			icmp ? sendto(fd, data, 400, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to)) :
			       sendto(fd, data, 65500, MSG_DONTWAIT, (struct sockaddr *)&to6, sizeof(to6));
	}
}

static void answers(void)
{
	while (!over()) {
		struct {
			struct nlmsghdr h;
			struct rtgenmsg g;
		} q = { { .nlmsg_len = NLMSG_LENGTH(sizeof(struct rtgenmsg)),
			  .nlmsg_type = RTM_GETLINK,
			  .nlmsg_flags = NLM_F_REQUEST },
			{ AF_UNSPEC } };
		struct ifinfomsg_ask {
			struct nlmsghdr h;
			struct {
				unsigned char family, pad;
				unsigned short type;
				int index;
				unsigned flags, change;
			} i;
		} one = { { .nlmsg_len = sizeof(one), .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST },
			  { .index = 1 } };
		int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

		(void)q;
		if (fd < 0)
			return;
		large_buffers(fd);
		for (int i = 0; i < 8000 && !over(); i++)
			if (send(fd, &one, sizeof(one), MSG_DONTWAIT) < 0)
				break;
	}
}

static void multicast(void)
{
	while (!over()) {
		int fd = socket(AF_INET, SOCK_DGRAM, 0);
		struct ip_mreqn m = { .imr_ifindex = 1 };
		static uint32_t n;

		if (fd < 0)
			return;
		for (int i = 0; i < 20; i++) {
			m.imr_multiaddr.s_addr = htonl(0xe1000000U + (uint32_t)getpid() % 4096 * 4096 + n++ % 1048576);
			if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof(m)) < 0)
				break;
		}
	}
}

static void stamps_message(void)
{
	stamps(0, 0);
}
static void stamps_option(void)
{
	stamps(1, 0);
}
static void stamps_hidden(void)
{
	stamps(0, 1);
}
static void accept_queue(void)
{
	accepts(0);
}
static void accept_reset(void)
{
	accepts(1);
}
static void pairs_open(void)
{
	pairs(0);
}
static void pairs_orphans(void)
{
	pairs(1);
}
static void errors_own(void)
{
	errors(0);
}
static void errors_icmp(void)
{
	errors(1);
}

static const struct {
	const char *name;
	void (*fill)(void);
} kinds[] = {
	{ "stamps", stamps_message },
	{ "stamps-option", stamps_option },
	{ "stamps-hidden", stamps_hidden },
	{ "accept", accept_queue },
	{ "accept-reset", accept_reset },
	{ "cork", cork },
	{ "pairs", pairs_open },
	{ "orphans", pairs_orphans },
	{ "errors", errors_own },
	{ "icmp", errors_icmp },
	{ "netlink", answers },
	{ "multicast", multicast },
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static void run(void (*fill)(void))
{
	fill();
	while (!over())
		usleep(50000);
	_exit(0);
}

int main(int argc, char **argv)
{
	const int processes = argc > 2 ? atoi(argv[2]) : 24;
	const double seconds = argc > 3 ? atof(argv[3]) : 3;
	struct rlimit files;
	size_t i = 0;

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (; i < KINDS; i++)
			puts(kinds[i].name);
		return 0;
	}
	while (argc > 1 && i < KINDS && strcmp(argv[1], kinds[i].name) != 0)
		i++;
	if (argc < 2 || i == KINDS) {
		fprintf(stderr, "usage: fill_sockets KIND [PROCESSES [SECONDS]], or --list\n");
		return 2;
	}
	end_at = now() + seconds;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	signal(SIGPIPE, SIG_IGN);
	for (int n = 0; n < processes; n++) {
		pid_t p = fork();

		if (p == 0)
			run(kinds[i].fill);
		if (p < 0)
			break;
	}
	while (wait(NULL) > 0)
		;
	return 0;
}
