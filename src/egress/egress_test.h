/*
 * For tests: egress in a child, as it is, confined too; sandboxes are network namespaces that are steered as the warden
 * does it; the internet is listeners on this host's loopback, named by the administrator's hosts.
 */
#pragma once
#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"
#include "egress/confine.h"
#include "egress/egress.h"
#include "linux/ns.h"
#include "linux/steer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif

#define TEST_PATIENCE 10000 /* ms; a loaded machine is slow */

struct world {
	int owner; /* our end of its connection */
	pid_t pid;
	int home; /* our own network namespace */
	uint64_t next;
	struct egress_stream last; /* of world_stream(), strings in ->packet */
	struct egress_msg msg;
	uint8_t packet[EGRESS_MSG_MAX];
};

struct cell { /* a sandbox */
	uint64_t number;
	int netns;
};

static inline bool world_begin(struct world *w, const struct egress_config *c)
{
	static const struct egress_config plain = { .resolver = "127.0.0.1:1", .ca_file = "" };
	int pair[2];
	long n;

	memset(w, 0, sizeof(*w));
	w->home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (w->home < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return false;
	w->pid = fork();
	if (w->pid == 0) {
		static struct egress g;
		struct err e = { 0 };
		int r;

		/* The test's sockets are not ours. */
		r = dup2(pair[1], 3) < 0 || close_range(4, ~0U, 0) < 0 ? -errno : 0;
		signal(SIGPIPE, SIG_IGN);
		if (r == 0)
			r = egress_init(&g, -1, 3, &e);
#ifndef TEST_SANITIZED
		if (r == 0)
			r = confine(&e);
		g.confined = r == 0;
#endif
		if (r < 0)
			printf("# egress: %s\n", e.msg);
		while (r == 0 && !g.link.ended)
			r = egress_turn(&g, -1);
		egress_done(&g);
		/* Not exit(): what the test has buffered is not ours. */
#ifdef TEST_SANITIZED
		exit(r < 0);
#else
		_exit(r < 0);
#endif
	}
	close(pair[1]);
	w->owner = pair[0];
	n = egress_config_encode(c ? c : &plain, w->packet, sizeof(w->packet));
	return w->pid > 0 && send(w->owner, w->packet, (size_t)n, 0) == n;
}

/* True: it ended well. */
static inline bool world_end(struct world *w)
{
	int status = -1;

	close(w->owner);
	close(w->home);
	waitpid(w->pid, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* The next message of that type; others are passed over. */
static inline bool world_await(struct world *w, uint8_t type)
{
	for (;;) {
		struct pollfd p = { .fd = w->owner, .events = POLLIN };
		ssize_t n;

		if (poll(&p, 1, TEST_PATIENCE) != 1)
			return false;
		n = recv(w->owner, w->packet, sizeof(w->packet), 0);
		if (n <= 0 || egress_decode(w->packet, (size_t)n, &w->msg) < 0)
			return false;
		if (w->msg.type == type)
			return true;
	}
}

static inline bool world_stream(struct world *w, uint8_t type)
{
	return world_await(w, type) && egress_stream_decode(&w->msg, &w->last) == 0;
}

/* Sends the SANDBOX and waits for its DONE: its errno, or -1. */
static inline int cell_put(struct world *w, struct egress_sandbox *b, const int *fds, size_t nfds)
{
	static uint8_t packet[EGRESS_MSG_MAX];
	long n;

	b->ca_cert = b->ca_cert ? b->ca_cert : "";
	b->ca_key = b->ca_key ? b->ca_key : "";
	n = egress_sandbox_encode(b, 7, packet, sizeof(packet));
	if (n < 0 || fd_send(w->owner, packet, (size_t)n, fds, nfds) < 0 || !world_await(w, EGRESS_DONE))
		return -1;
	return (int)w->msg.arg;
}

/* A namespace, steered. @b gets its number; its tree is its own when it has none. */
static inline bool cell_begin(struct world *w, struct cell *c, struct egress_sandbox *b)
{
	struct steer_rules rules = { .mode = STEER_OPEN };
	struct err e = { 0 };
	int fds[STEER_SOCKETS], r;

	if (unshare(CLONE_NEWNET) < 0)
		return false;
	c->netns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	r = ns_loopback_up() == 0 ? steer_up(&rules, &e) : -1;
	if (r == 0)
		r = steer_sockets(fds, &e);
	if (setns(w->home, CLONE_NEWNET) < 0 || r < 0) {
		printf("# %s\n", e.msg);
		return false;
	}
	b->sandbox = c->number = ++w->next;
	if (!b->tree)
		b->tree = b->sandbox;
	r = cell_put(w, b, fds, EGRESS_SOCKETS);
	for (int i = 0; i < STEER_SOCKETS; i++)
		close(fds[i]);
	return r == 0;
}

static inline void cell_end(struct cell *c)
{
	close(c->netns);
}

/* A socket inside. */
static inline int cell_socket(const struct world *w, const struct cell *c, int family, int type)
{
	int fd = -1;

	if (setns(c->netns, CLONE_NEWNET) == 0)
		fd = socket(family, type | SOCK_CLOEXEC, 0);
	return setns(w->home, CLONE_NEWNET) == 0 ? fd : -1;
}

static inline void fd_patience(int fd)
{
	struct timeval t = { .tv_sec = TEST_PATIENCE / 1000 };

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

/* Connected to that address, from inside; -1 with errno. */
static inline int cell_dial(const struct world *w, const struct cell *c, const char *addr, uint16_t port)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	bool is6 = strchr(addr, ':');
	int fd = cell_socket(w, c, is6 ? AF_INET6 : AF_INET, SOCK_STREAM), r;

	if (fd < 0)
		return -1;
	fd_patience(fd);
	if (is6)
		r = inet_pton(AF_INET6, addr, &v6.sin6_addr) == 1 ? connect(fd, (struct sockaddr *)&v6, sizeof(v6)) :
								    -1;
	else
		r = inet_pton(AF_INET, addr, &v4.sin_addr) == 1 ? connect(fd, (struct sockaddr *)&v4, sizeof(v4)) : -1;
	if (r < 0) {
		r = errno;
		close(fd);
		errno = r;
		return -1;
	}
	return fd;
}

/* A question, asked: the socket it was asked with, or -1; *ret_len bytes. */
static inline int cell_query(const struct world *w, const struct cell *c, const char *name, uint16_t type,
			     size_t *ret_len)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = htonl(0xc6120001) };
	uint8_t q[512] = { 1, 2, 1, 0, 0, 1 };
	size_t n = 12;
	int fd = cell_socket(w, c, AF_INET, SOCK_DGRAM);

	for (const char *p = name; *p;) {
		size_t label = strcspn(p, ".");

		q[n++] = (uint8_t)label;
		memcpy(q + n, p, label);
		n += label;
		p += label + (p[label] == '.');
	}
	q[n++] = 0;
	q[n++] = (uint8_t)(type >> 8);
	q[n++] = (uint8_t)type;
	q[n++] = 0;
	q[n++] = 1;
	fd_patience(fd);
	*ret_len = n;
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 && send(fd, q, n, 0) == (ssize_t)n)
		return fd;
	close(fd);
	return -1;
}

/* What the DNS inside says: the code, and the address as text when there is one. -1: nothing. */
static inline int cell_ask(const struct world *w, const struct cell *c, const char *name, uint16_t type, char addr[64])
{
	uint8_t a[1024];
	size_t n = 0;
	int fd = cell_query(w, c, name, type, &n);
	ssize_t k = fd < 0 ? -1 : recv(fd, a, sizeof(a), 0);

	fd_close(fd);
	addr[0] = '\0';
	if (k < 12)
		return -1;
	if (a[7] == 1)
		inet_ntop(a[n + 3] == 1 ? AF_INET : AF_INET6, a + n + 12, addr, 64);
	return a[3] & 15;
}

/* Of the test's internet: on 127.0.0.x. */
static inline int server_begin(const char *addr, uint16_t *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(*port) };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	inet_pton(AF_INET, addr, &a.sin_addr);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	fd_patience(fd);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 4096) < 0 ||
	    getsockname(fd, (struct sockaddr *)&a, &len) < 0)
		return -1;
	*port = ntohs(a.sin_port);
	return fd;
}

static inline int server_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0)
		fd_patience(fd);
	return fd;
}

/* All of @text, and nothing else, comes out of @fd. */
static inline bool arrives(int fd, const char *text)
{
	char buf[4096];
	size_t have = 0, want = strlen(text);

	while (have < want) {
		ssize_t n = recv(fd, buf + have, want - have, 0);

		if (n <= 0)
			return false;
		have += (size_t)n;
	}
	return !memcmp(buf, text, want);
}

static inline bool says(int fd, const char *text)
{
	return send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}
