/* Connects to the first of several addresses that answers. */
#include "egress/upstream.h"
#include "base/base.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#define AT_ONCE 3
#define UNSENT 65536 /* bytes that wait for the server in the kernel; more stay in the sandbox's own socket */
#define HEAD_START (250 * LOOP_MS)
#define PATIENCE (20 * LOOP_SEC)
#define REMEMBER (600 * LOOP_SEC)

struct attempt {
	struct loop_fd f; /* first */
	struct upstream *u;
	uint8_t which;
};

struct upstream {
	struct loop *loop;
	struct upstream_past *past;
	upstream_fn *fn;
	void *arg;
	struct net_addr addr[UPSTREAM_ADDRS];
	uint8_t n, next;
	uint16_t port;
	int last; /* why the last one failed */
	uint64_t deadline;
	struct loop_timer timer;
	struct attempt attempt[AT_ONCE];
};

/* 0: connected; -EINPROGRESS; or why not. */
static int dial(const struct net_addr *a, uint16_t port, int *ret_fd)
{
	static const struct linger hard = { 1, 0 };
	static const int one = 1, unsent = UNSENT;
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	int fd = socket(a->family == 4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), r;

	if (fd < 0)
		return -errno;
	memcpy(&v4.sin_addr, a->addr, 4);
	memcpy(&v6.sin6_addr, a->addr, 16);
	/* Should we die, the server is to see a broken connection and not an end. */
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	/*
	 * Bytes that the server does not accept stay in egress's memory, not in the sandbox's. Bytes in transit are not
	 * limited by that.
	 */
	setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
	if (a->family == 4)
		r = connect(fd, (struct sockaddr *)&v4, sizeof(v4));
	else
		r = connect(fd, (struct sockaddr *)&v6, sizeof(v6));
	if (r < 0 && errno != EINPROGRESS) {
		r = -errno;
		close(fd);
		return r;
	}
	*ret_fd = fd;
	return r < 0 ? -EINPROGRESS : 0;
}

/* Families by turns, the better one first; among those of one the order stays. */
static unsigned sort(struct net_addr *out, const struct net_addr *in, unsigned n, const struct upstream_past *past,
		     uint64_t now)
{
	uint8_t family = past->v6_late > now ? 4 : 6;
	unsigned next[2] = { 0, 0 }, k = 0;

	while (k < n) {
		for (unsigned side = 0; side < 2; side++) {
			unsigned *i = &next[side];

			while (*i < n && (in[*i].family == family) != (side == 0))
				(*i)++;
			if (*i < n)
				out[k++] = in[(*i)++];
		}
	}
	return k;
}

static void release(struct upstream *u)
{
	loop_timer_stop(u->loop, &u->timer);
	for (unsigned i = 0; i < AT_ONCE; i++)
		if (u->attempt[i].f.fd >= 0)
			loop_close(u->loop, &u->attempt[i].f);
	/* Events for its attempts may have been fetched already. */
	loop_bury(u->loop, u);
}

static void finish(struct upstream *u, int fd, unsigned which)
{
	upstream_fn *fn = u->fn;
	struct net_addr a = u->addr[which];
	void *arg = u->arg;

	/* An IPv6 one had its chance and IPv4 won: do not wait for it every time. */
	if (fd >= 0 && a.family == 4)
		for (unsigned i = 0; i < AT_ONCE; i++)
			if (u->attempt[i].f.fd >= 0 && u->addr[u->attempt[i].which].family == 6)
				u->past->v6_late = u->loop->now + REMEMBER;
	release(u);
	fn(arg, fd, &a);
}

static bool running(const struct upstream *u)
{
	for (unsigned i = 0; i < AT_ONCE; i++)
		if (u->attempt[i].f.fd >= 0)
			return true;
	return false;
}

/* Starts the next attempt. A descriptor that is connected at once, or -1; *ret_which it is. */
static int more(struct upstream *u, uint8_t *ret_which)
{
	struct attempt *a = NULL;

	for (unsigned i = 0; i < AT_ONCE; i++)
		if (u->attempt[i].f.fd < 0)
			a = &u->attempt[i];
	while (a && u->next < u->n) {
		int fd = -1, r;

		*ret_which = u->next++;
		r = dial(&u->addr[*ret_which], u->port, &fd);
		if (r == 0)
			return fd;
		if (r == -EINPROGRESS) {
			a->f.fd = fd;
			a->which = *ret_which;
			r = loop_add(u->loop, &a->f, EPOLLOUT);
			if (r == 0)
				break;
			loop_close(u->loop, &a->f);
		}
		u->last = r;
	}
	return -1;
}

static uint64_t next_time(const struct upstream *u)
{
	uint64_t at = u->loop->now + HEAD_START;

	return u->next < u->n && at < u->deadline ? at : u->deadline;
}

static void go_on(struct upstream *u)
{
	uint8_t which = 0;
	int fd = more(u, &which);

	if (fd >= 0)
		finish(u, fd, which);
	else if (!running(u) || u->loop->now >= u->deadline || loop_timer_set(u->loop, &u->timer, next_time(u)) < 0)
		finish(u, running(u) ? -ETIMEDOUT : u->last, 0);
}

static void attempt_ready(struct loop_fd *f, uint32_t events)
{
	struct attempt *a = (struct attempt *)f;
	struct upstream *u = a->u;
	socklen_t len = sizeof(int);
	int error = 0, fd = f->fd;

	(void)events;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	if (error) {
		u->last = -error;
		loop_close(u->loop, f);
		go_on(u);
		return;
	}
	loop_forget(u->loop, f);
	finish(u, fd, a->which);
}

static void timer_due(struct loop_timer *t)
{
	go_on((struct upstream *)((char *)t - offsetof(struct upstream, timer)));
}

int upstream_start(struct loop *loop, struct upstream_past *past, const struct net_addr *addr, unsigned n,
		   uint16_t port, struct net_addr *ret_addr, struct upstream **ret, upstream_fn *fn, void *arg)
{
	struct upstream *u = calloc(1, sizeof(*u));
	uint8_t which = 0;
	int fd;

	if (!u || !n || n > UPSTREAM_ADDRS) {
		free(u);
		return u ? -EINVAL : -ENOMEM;
	}
	*u = (struct upstream){ .loop = loop,
				.past = past,
				.fn = fn,
				.arg = arg,
				.port = port,
				.last = -EHOSTUNREACH,
				.deadline = loop->now + PATIENCE,
				.timer = { .due = timer_due } };
	for (unsigned i = 0; i < AT_ONCE; i++)
		u->attempt[i] = (struct attempt){ { attempt_ready, -1 }, u, 0 };
	u->n = (uint8_t)sort(u->addr, addr, n, past, loop->now);
	fd = more(u, &which);
	if (fd < 0 && running(u) && loop_timer_set(loop, &u->timer, next_time(u)) == 0) {
		*ret = u;
		return -EINPROGRESS;
	}
	*ret_addr = u->addr[which];
	if (fd < 0)
		fd = running(u) ? -ENOMEM : u->last;
	release(u);
	return fd;
}

void upstream_cancel(struct upstream *u)
{
	if (u)
		release(u);
}
