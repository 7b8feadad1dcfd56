/* Received data that is mapped, or that pipes keep: modes of fill_objects.c, which has the includes. */
#pragma once

static int tcp_pair(int pair[2])
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0);

	pair[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (l < 0 || pair[0] < 0 || bind(l, (struct sockaddr *)&a, len) < 0 || listen(l, 1) < 0 ||
	    getsockname(l, (struct sockaddr *)&a, &len) < 0 || connect(pair[0], (struct sockaddr *)&a, len) < 0)
		return -1;
	pair[1] = accept(l, NULL, NULL);
	close(l);
	return pair[1];
}

/* Pages of received data that are mapped leave their socket, and nothing counts them. */
static void fill_received(int nth)
{
	enum { SOME = 65536, MAP = 256 << 20 };
	static char data[SOME] __attribute__((aligned(4096)));
	int pair[2], one = 1;
	char *map;

	(void)nth;
	if (fill_note(tcp_pair(pair)) < 0 ||
	    setsockopt(pair[0], SOL_SOCKET, 60 /* SO_ZEROCOPY */, &one, sizeof(one)) < 0)
		return;
	map = mmap(NULL, MAP, PROT_READ, MAP_SHARED, pair[1], 0);
	for (size_t at = 0; map != MAP_FAILED && at + SOME <= MAP;) {
		struct {
			uint64_t address;
			uint32_t length, skip;
		} ask = { .address = (uintptr_t)map + at, .length = SOME };
		socklen_t len = sizeof(ask);
		struct msghdr m = { 0 };

		send(pair[0], data, SOME, 0x4000000 /* MSG_ZEROCOPY */ | MSG_DONTWAIT);
		while (recvmsg(pair[0], &m, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0)
			;
		if (fill_note(getsockopt(pair[1], IPPROTO_TCP, 35 /* TCP_ZEROCOPY_RECEIVE */, &ask, &len)) < 0)
			return;
		at += ask.length;
		if (ask.skip)
			recv(pair[1], data, ask.skip < SOME ? ask.skip : SOME, MSG_DONTWAIT);
	}
}

/* Sends the descriptor to @to, and closes it. */
static int send_to(int to, int fd)
{
	char byte = 0, room[CMSG_SPACE(sizeof(fd))] = { 0 };
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	*c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(fd)) };
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	if (sendmsg(to, &m, MSG_DONTWAIT) < 0)
		return -1;
	close(fd);
	return 0;
}

/* Sends the descriptor to nobody, and closes it. */
static int hide(int fd)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) < 0 || send_to(pair[0], fd) < 0)
		return -1;
	close(pair[0]);
	return 0;
}

/* In the queue of a socket that is itself in the queue of another one: 128 in each, and one descriptor shows. */
static int hide_deep(int fd)
{
	static int outer[2] = { -1, -1 }, inner[2] = { -1, -1 }, n;

	if (outer[0] < 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, outer) < 0)
		return -1;
	if (n++ % 128 == 0) {
		if (inner[0] >= 0)
			close(inner[0]);
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, inner) < 0 || send_to(outer[0], inner[1]) < 0)
			return -1;
	}
	return send_to(inner[0], fd);
}

/* A byte of each 32 KiB that a connection has received, in a pipe: it keeps all of them. */
static void fill_pipes_of(int sent)
{
	static char data[32768];
	int pair[2], p[2];

	if (fill_note(tcp_pair(pair)) < 0)
		return;
	while (fill_note(pipe(p)) == 0) {
		for (int i = 0; i < 16; i++) {
			ssize_t left = send(pair[0], data, sizeof(data), 0) -
				       splice(pair[1], NULL, p[1], NULL, 1, SPLICE_F_NONBLOCK);

			while (left > 0 && left <= (ssize_t)sizeof(data))
				left -= recv(pair[1], data, (size_t)left, 0);
		}
		close(p[1]);
		if (sent && fill_note(sent == 1 ? hide(p[0]) : hide_deep(p[0])) < 0)
			return;
	}
}

/* Holds the lock of a pipe: nothing comes from that connection. */
static void *pipe_holder(void *arg)
{
	int pair[2], p[2];

	if (tcp_pair(pair) >= 0 && pipe(p) == 0)
		splice(pair[1], NULL, p[1], NULL, 1, 0);
	return arg;
}

static void fill_pipes_held(int nth)
{
	pthread_t t;

	(void)nth;
	pthread_create(&t, NULL, pipe_holder, NULL);
	usleep(100000);
	fill_pipes_of(0);
}

static void fill_pipes(int nth)
{
	(void)nth;
	fill_pipes_of(0);
}

/* Behind many other descriptors, which have to be walked first. */
static void fill_pipes_behind(int nth)
{
	const int fd = eventfd(0, 0);

	(void)nth;
	for (int i = 0; i < 10000 && dup(fd) >= 0; i++)
		;
	fill_pipes_of(0);
}

static void fill_pipes_sent(int nth)
{
	(void)nth;
	fill_pipes_of(1);
}

static void fill_pipes_deep(int nth)
{
	(void)nth;
	fill_pipes_of(2);
}

/* Pages of a device. */
static void fill_pipes_zero(int nth)
{
	int zero = open("/dev/zero", O_RDONLY), p[2];

	(void)nth;
	while (fill_note(pipe(p)) == 0) {
		while (splice(zero, NULL, p[1], NULL, 65536, SPLICE_F_NONBLOCK) > 0)
			;
		close(p[1]);
	}
}
