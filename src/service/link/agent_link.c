/* Sends frames to an agent, and passes on its own. */
#include "service/link/agent_link.h"
#include "base/base.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define QUEUE_MAX                                                                                                      \
	(16U * MIB) /* some of the largest commands at once; what a tenant has waiting is bounded as a whole (kept.c) */

struct agent_link_frame {
	struct agent_link_frame *next;
	size_t len, sent;
	int fds[FRAME_FDS_MAX];
	size_t nfds;
	uint8_t data[];
};

static void frame_free(struct agent_link_frame *f)
{
	fd_close_many(f->fds, f->nfds);
	free(f);
}

static void on_poll_closed(uv_handle_t *h)
{
	free(h);
}

void agent_link_close(struct agent_link *l)
{
	if (!l->poll)
		return;
	uv_poll_stop(l->poll);
	uv_close((uv_handle_t *)l->poll, on_poll_closed);
	l->poll = NULL;
	fd_close(l->sock);
	l->sock = -1;
	fd_close_many(l->fds, l->nfds);
	l->nfds = l->len = 0;
	while (l->first) {
		struct agent_link_frame *f = l->first;

		l->first = f->next;
		frame_free(f);
	}
	l->last = &l->first;
	l->queued = 0;
}

/* Returns bytes sent, or -errno; never waits. Descriptors go with the first byte. */
static ssize_t send_some(int sock, const void *data, size_t len, const int *fds, size_t nfds)
{
	_Alignas(struct cmsghdr) char ctl[CMSG_SPACE(sizeof(int) * FRAME_FDS_MAX)] = { 0 };
	struct iovec iov = { .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	memcpy(&iov.iov_base, &data, sizeof(data)); /* sendmsg does not write there */
	if (nfds) {
		struct cmsghdr *c = (struct cmsghdr *)(void *)ctl;

		m.msg_control = ctl;
		m.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
	}
	do {
		n = sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static void on_event(uv_poll_t *p, int status, int events);

static void watch(struct agent_link *l)
{
	int want = UV_READABLE | (l->first ? UV_WRITABLE : 0);

	if (want != l->events)
		uv_poll_start(l->poll, want, on_event);
	l->events = want;
}

/* What waits, as far as it goes. An error shows when reading, too: nothing to do about it here. */
static void flush(struct agent_link *l)
{
	while (l->first) {
		struct agent_link_frame *f = l->first;
		ssize_t n = send_some(l->sock, f->data + f->sent, f->len - f->sent, f->fds, f->sent ? 0 : f->nfds);

		if (n < 0)
			return;
		f->sent += (size_t)n;
		l->queued -= (size_t)n;
		if (f->sent < f->len)
			return;
		l->first = f->next;
		if (!l->first)
			l->last = &l->first;
		frame_free(f);
	}
	watch(l);
}

/* Hands out every whole frame. Stops when the callback closed the link. */
static int drain(struct agent_link *l)
{
	size_t used = 0;
	struct frame f;
	long n;

	while ((n = frame_decode(l->data + used, l->len - used, &f)) > 0) {
		int fds[ALINK_FDS];
		size_t nfds = f.nfds;

		if (nfds > l->nfds)
			return -EBADMSG;
		memcpy(fds, l->fds, nfds * sizeof(int));
		l->nfds -= nfds;
		memmove(l->fds, l->fds + nfds, l->nfds * sizeof(int));
		l->fn(l->arg, 0, &f, fds, nfds);
		fd_close_many(fds, nfds);
		if (!l->poll)
			return -ECANCELED;
		used += (size_t)n;
	}
	if (n < 0 || l->len - used == sizeof(l->data))
		return -EBADMSG;
	l->len -= used;
	memmove(l->data, l->data + used, l->len);
	return 0;
}

static void fail(struct agent_link *l, int r)
{
	agent_link_close(l);
	l->fn(l->arg, r, NULL, NULL, 0);
}

static void on_event(uv_poll_t *p, int status, int events)
{
	struct agent_link *l = p->data;
	int turns = 16, r;

	/*
	 * An agent that is killed before it has read everything leaves an error, at which libuv stops watching. What it
	 * had sent is read first, so its end has to be another event.
	 */
	if (status < 0) {
		l->events = 0;
		watch(l);
	}
	if (events & UV_WRITABLE)
		flush(l);
	if (status == 0 && !(events & (UV_READABLE | UV_DISCONNECT)))
		return;
	while (turns--) {
		size_t got = 0;
		ssize_t n = fd_recv(l->sock, l->data + l->len, sizeof(l->data) - l->len, l->fds + l->nfds,
				    ALINK_FDS - l->nfds, &got);

		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			fail(l, n == -EMSGSIZE ? -EBADMSG : -EPIPE);
			return;
		}
		l->len += (size_t)n;
		l->nfds += got;
		l->short_read = l->len < sizeof(l->data);
		r = drain(l);
		if (r == -ECANCELED)
			return;
		if (r < 0) {
			fail(l, r);
			return;
		}
		if (l->short_read) /* the socket was empty; later bytes cause the next event */
			return;
	}
}

void agent_link_read(struct agent_link *l)
{
	if (l->poll)
		on_event(l->poll, 0, UV_READABLE);
}

bool agent_link_is_read(const struct agent_link *l)
{
	int n = 0;

	return l->poll && !l->first && ioctl(l->sock, SIOCOUTQ, &n) == 0 && n == 0;
}

int agent_link_open(struct agent_link *l, uv_loop_t *loop, int sock,
		    void (*fn)(void *, int, const struct frame *, int *, size_t), void *arg, struct err *e)
{
	int r = fd_set_nonblock(sock);
	uv_poll_t *p;

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "the agent's socket");
	p = malloc(sizeof(*p));
	if (!p)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a link to an agent");
	r = uv_poll_init(loop, p, sock);
	if (r < 0) {
		free(p);
		return err_sys(e, ERR_INTERNAL, r, "watch the agent's socket");
	}
	*l = (struct agent_link){ .poll = p, .sock = sock, .fn = fn, .arg = arg };
	l->last = &l->first;
	p->data = l;
	watch(l);
	return 0;
}

void agent_link_move(struct agent_link *to, struct agent_link *from, void *arg)
{
	*to = *from;
	to->arg = arg;
	if (!to->first)
		to->last = &to->first;
	if (to->poll)
		to->poll->data = to;
	*from = (struct agent_link){ .sock = -1 };
	from->last = &from->first;
}

static int queue(struct agent_link *l, const uint8_t *head, const void *payload, size_t len, size_t sent,
		 const int *fds, size_t nfds)
{
	struct agent_link_frame *f;
	size_t whole = FRAME_HEAD + len;

	if (l->queued + whole > QUEUE_MAX)
		return -ENOBUFS;
	f = malloc(sizeof(*f) + whole);
	if (!f)
		return -ENOMEM;
	*f = (struct agent_link_frame){ .len = whole, .sent = sent };
	memcpy(f->data, head, FRAME_HEAD);
	if (len)
		memcpy(f->data + FRAME_HEAD, payload, len);
	for (; !sent && f->nfds < nfds; f->nfds++) {
		f->fds[f->nfds] = fcntl(fds[f->nfds], F_DUPFD_CLOEXEC, 3);
		if (f->fds[f->nfds] < 0) {
			int r = -errno;

			frame_free(f);
			return r;
		}
	}
	*l->last = f;
	l->last = &f->next;
	l->queued += whole - sent;
	watch(l);
	return 0;
}

int agent_link_send(struct agent_link *l, enum frame_type type, uint32_t id, const void *payload, size_t len,
		    const int *fds, size_t nfds)
{
	uint8_t out[4096];
	size_t now;
	ssize_t n;

	if (!l->poll)
		return -EPIPE;
	frame_head(out, type, (uint8_t)nfds, id, (uint32_t)len);
	if (l->first)
		return queue(l, out, payload, len, 0, fds, nfds);
	now = len <= sizeof(out) - FRAME_HEAD ? len : 0;
	if (now)
		memcpy(out + FRAME_HEAD, payload, now);
	n = send_some(l->sock, out, FRAME_HEAD + now, fds, nfds);
	if (n == (ssize_t)(FRAME_HEAD + len))
		return 0;
	if (n < 0 && n != -EAGAIN)
		return (int)n;
	return queue(l, out, payload, len, n < 0 ? 0 : (size_t)n, fds, nfds);
}

void agent_link_release(struct agent_link *l, const uint32_t *ids, size_t n)
{
	uint8_t out[RELEASES_MAX * FRAME_HEAD];
	const size_t len = n * FRAME_HEAD;
	ssize_t sent = 0;

	assert(n <= RELEASES_MAX);
	if (!l->poll || !n)
		return;
	for (size_t i = 0; i < n; i++)
		frame_head(out + i * FRAME_HEAD, FRAME_RELEASE, 0, ids[i], 0);
	if (!l->first)
		sent = send_some(l->sock, out, len, NULL, 0);
	if (sent == (ssize_t)len || (sent < 0 && sent != -EAGAIN))
		return;
	queue(l, out, out + FRAME_HEAD, len - FRAME_HEAD, sent < 0 ? 0 : (size_t)sent, NULL, 0);
}
