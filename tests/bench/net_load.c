/*
 * Both ends of a connection, for tests/bench/network.py: a server, and what a sandbox does to it. One thread each.
 *
 *	cloche-net-load serve ADDR PORT
 *	cloche-net-load down|up HOST PORT MSEC		bytes, nanoseconds
 *	cloche-net-load echo|connect|denied HOST PORT N	p50, p95 and p99 in nanoseconds
 *	cloche-net-load hold HOST PORT N START END	N streams; nanoseconds after START that the last was up; errors
 *	cloche-net-load flood HOST PORT MSEC		connections, those that were refused
 *
 * The first byte of a stream says what the server does: 'd' sends for ever, 'u' throws away, all else is sent back.
 * A name is looked up once, before anything is measured. START and END are nanoseconds since 1970: the only clock that
 * sandboxes share.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PIECE (256U * 1024U)
#define SAMPLES_MAX 1000000U
#define STREAMS_MAX 4096U
#define FILES_MAX 65536U
#define PATIENCE 20 /* seconds, for one answer */

struct place {
	struct sockaddr_storage addr;
	socklen_t len;
};

static uint8_t piece[PIECE];

static void die(const char *what)
{
	fprintf(stderr, "cloche-net-load: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static uint64_t number(const char *text, uint64_t max)
{
	char *end;
	uint64_t v;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || *end || end == text || v > max) {
		errno = EINVAL;
		die(text);
	}
	return v;
}

static struct place look_up(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV }, *found;
	struct place p = { 0 };
	int r = getaddrinfo(host, port, &hints, &found);

	if (r) {
		fprintf(stderr, "cloche-net-load: %s: %s\n", host, gai_strerror(r));
		exit(1);
	}
	memcpy(&p.addr, found->ai_addr, found->ai_addrlen);
	p.len = found->ai_addrlen;
	freeaddrinfo(found);
	return p;
}

/* -errno when it does not come about. */
static int dial(const struct place *p)
{
	struct timeval patience = { .tv_sec = PATIENCE };
	int fd = socket(p->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0)
		die("socket");
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(fd, (const struct sockaddr *)&p->addr, p->len) < 0) {
		int e = errno;

		close(fd);
		return -e;
	}
	return fd;
}

/* So that tens of thousands of ports do not wait for late packets. */
static void drop(int fd)
{
	struct linger at_once = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	close(fd);
}

/* Whether the byte came back. */
static bool echo(int fd)
{
	char c = 'e';

	return send(fd, &c, 1, MSG_NOSIGNAL) == 1 && recv(fd, &c, 1, 0) == 1;
}

/* ---- the server ---- */

/* False when it is over. */
static bool attend(int fd, uint8_t *kind)
{
	ssize_t n;

	if (!*kind) {
		char c;

		n = recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
		if (n <= 0)
			return n < 0 && errno == EAGAIN;
		*kind = (uint8_t)c;
	}
	if (*kind == 'd') {
		do
			n = send(fd, piece, sizeof(piece), MSG_NOSIGNAL | MSG_DONTWAIT);
		while (n > 0);
		return n < 0 && errno == EAGAIN;
	}
	for (;;) {
		n = recv(fd, piece, sizeof(piece), MSG_DONTWAIT | (*kind == 'u' ? MSG_TRUNC : 0));
		if (n <= 0)
			return n < 0 && errno == EAGAIN;
		if (*kind != 'u' && send(fd, piece, (size_t)n, MSG_NOSIGNAL) != n)
			return false;
	}
}

static void serve(const char *host, const char *port)
{
	struct place p = look_up(host, port);
	struct epoll_event ev[64], ask = { .events = EPOLLIN };
	struct rlimit many = { FILES_MAX, FILES_MAX };
	static uint8_t kind[FILES_MAX];
	int listener = socket(p.addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
	    ep = epoll_create1(EPOLL_CLOEXEC), one = 1;

	setrlimit(RLIMIT_NOFILE, &many);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	ask.data.fd = listener;
	if (bind(listener, (struct sockaddr *)&p.addr, p.len) < 0 || listen(listener, 4096) < 0 ||
	    epoll_ctl(ep, EPOLL_CTL_ADD, listener, &ask) < 0)
		die(host);
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		int n = epoll_wait(ep, ev, 64, -1);

		for (int i = 0; i < n; i++) {
			int fd = ev[i].data.fd;

			if (fd != listener) {
				if (!attend(fd, &kind[fd]))
					close(fd);
				continue;
			}
			while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
				setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
				ask = (struct epoll_event){ .events = EPOLLIN | EPOLLOUT | EPOLLET, .data.fd = fd };
				if (fd >= (int)FILES_MAX || epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ask) < 0) {
					close(fd);
					continue;
				}
				kind[fd] = 0;
			}
		}
	}
}

/* ---- clients ---- */

static void stream(const struct place *p, char kind, uint64_t msec)
{
	int fd = dial(p);
	uint64_t bytes = 0, start, end;

	if (fd < 0) {
		errno = -fd;
		die("connect");
	}
	if (send(fd, &kind, 1, MSG_NOSIGNAL) != 1)
		die("send");
	/* What comes before the window has opened is not measured. */
	for (uint64_t warm = now(CLOCK_MONOTONIC) + msec * 100000ULL; now(CLOCK_MONOTONIC) < warm;)
		if ((kind == 'd' ? recv(fd, piece, sizeof(piece), 0) : send(fd, piece, sizeof(piece), MSG_NOSIGNAL)) <=
		    0)
			die("stream");
	start = now(CLOCK_MONOTONIC);
	do {
		ssize_t n =
			kind == 'd' ? recv(fd, piece, sizeof(piece), 0) : send(fd, piece, sizeof(piece), MSG_NOSIGNAL);

		if (n <= 0)
			die("stream");
		bytes += (uint64_t)n;
		end = now(CLOCK_MONOTONIC);
	} while (end - start < msec * 1000000ULL);
	drop(fd);
	printf("%llu %llu\n", (unsigned long long)bytes, (unsigned long long)(end - start));
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void latencies(const struct place *p, const char *verb, uint64_t n)
{
	uint64_t *took = calloc(n ? n : 1, sizeof(*took));
	bool refused = !strcmp(verb, "denied"), with_echo = !strcmp(verb, "echo");

	if (!took || !n)
		die("samples");
	for (uint64_t i = 0; i < n; i++) {
		uint64_t start = now(CLOCK_MONOTONIC);
		int fd = dial(p);

		if (refused ? fd != -ECONNREFUSED : fd < 0) {
			errno = fd < 0 ? -fd : EISCONN;
			die(verb);
		}
		if (with_echo && !echo(fd))
			die(verb);
		took[i] = now(CLOCK_MONOTONIC) - start;
		if (fd >= 0)
			drop(fd);
	}
	qsort(took, n, sizeof(*took), by_value);
	printf("%llu %llu %llu\n", (unsigned long long)took[n / 2], (unsigned long long)took[n * 95 / 100],
	       (unsigned long long)took[n * 99 / 100]);
	free(took);
}

static void sleep_until(uint64_t when)
{
	struct timespec t = { .tv_sec = (time_t)(when / 1000000000ULL), .tv_nsec = (long)(when % 1000000000ULL) };

	while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

static void hold(const struct place *p, uint64_t n, uint64_t start, uint64_t end)
{
	static int fd[STREAMS_MAX];
	uint64_t up, errors = 0;

	sleep_until(start);
	for (uint64_t i = 0; i < n; i++)
		fd[i] = dial(p);
	for (uint64_t i = 0; i < n; i++)
		if (fd[i] >= 0 && !echo(fd[i])) {
			close(fd[i]);
			fd[i] = -1;
		}
	up = now(CLOCK_REALTIME) - start;
	sleep_until(end);
	for (uint64_t i = 0; i < n; i++)
		errors += fd[i] < 0 || !echo(fd[i]);
	printf("%llu %llu\n", (unsigned long long)up, (unsigned long long)errors);
}

static void flood(const struct place *p, uint64_t msec)
{
	uint64_t end = now(CLOCK_MONOTONIC) + msec * 1000000ULL, made = 0, refused = 0;

	do {
		int fd = dial(p);

		made += fd >= 0;
		refused += fd < 0;
		if (fd >= 0)
			drop(fd);
	} while (now(CLOCK_MONOTONIC) < end);
	printf("%llu %llu\n", (unsigned long long)made, (unsigned long long)refused);
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";
	struct place p;

	signal(SIGPIPE, SIG_IGN);
	if (argc == 4 && !strcmp(verb, "serve"))
		serve(argv[2], argv[3]);
	if (argc < 5) {
		fprintf(stderr, "cloche-net-load: see its source\n");
		return 1;
	}
	p = look_up(argv[2], argv[3]);
	if (!strcmp(verb, "down") || !strcmp(verb, "up"))
		stream(&p, verb[0], number(argv[4], 600000));
	else if (!strcmp(verb, "echo") || !strcmp(verb, "connect") || !strcmp(verb, "denied"))
		latencies(&p, verb, number(argv[4], SAMPLES_MAX));
	else if (!strcmp(verb, "flood"))
		flood(&p, number(argv[4], 600000));
	else if (!strcmp(verb, "hold") && argc == 7)
		hold(&p, number(argv[4], STREAMS_MAX), number(argv[5], UINT64_MAX), number(argv[6], UINT64_MAX));
	else
		return 1;
	return 0;
}
