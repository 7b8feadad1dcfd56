/* Receives the owner's messages and acts on them. */
#include "egress/link.h"
#include "base/base.h"
#include "base/log.h"

#include <sys/socket.h>

#define MESSAGES 64 /* per turn, so that streams get their share of it */

struct link_wait {
	struct link_wait *next;
	size_t len;
	uint8_t packet[];
};

bool link_owned(const struct link *k)
{
	return k->owner.fd >= 0;
}

bool link_has_room(const struct link *k)
{
	return k->waiting + EGRESS_MSG_MAX <= LINK_WAITING;
}

static void leave(struct link *k)
{
	if (k->owner.fd < 0)
		return;
	loop_close(k->loop, &k->owner);
	loop_timer_stop(k->loop, &k->soon);
	k->full = false;
	k->ended = k->once;
	k->ops->left(k->ctx);
}

static void watch(struct link *k, bool full)
{
	if (k->full == full)
		return;
	if (loop_change(k->loop, &k->owner, EPOLLIN | (full ? EPOLLOUT : 0)) < 0)
		leave(k);
	else
		k->full = full;
}

static void drop_first(struct link *k)
{
	struct link_wait *w = k->first;

	k->first = w->next;
	if (!k->first)
		k->last = &k->first;
	k->waiting -= w->len;
	free(w);
}

/* 1 when all is sent. */
static int flush(struct link *k)
{
	while (k->first && k->owner.fd >= 0) {
		int r = fd_send_now(k->owner.fd, k->first->packet, k->first->len, NULL, 0);

		if (r == -EAGAIN || r == -ENOBUFS) {
			watch(k, true);
			return 0;
		}
		if (r < 0) {
			leave(k);
			return 0;
		}
		drop_first(k);
	}
	if (k->owner.fd >= 0)
		watch(k, false);
	return k->owner.fd >= 0;
}

static int wait_send(struct link *k, const uint8_t *packet, size_t len)
{
	struct link_wait *w = k->waiting + len > LINK_WAITING ? NULL : malloc(sizeof(*w) + len);

	if (!w) {
		k->dropped++;
		return -ENOBUFS;
	}
	w->next = NULL;
	w->len = len;
	memcpy(w->packet, packet, len);
	*k->last = w;
	k->last = &w->next;
	k->waiting += len;
	return 0;
}

static void soon_due(struct loop_timer *t)
{
	struct link *k = (struct link *)((char *)t - offsetof(struct link, soon));

	k->told = k->loop->now;
	flush(k);
}

/* What was only put aside goes before what comes now. */
static void hurry(struct link *k)
{
	if (k->soon.slot) {
		loop_timer_stop(k->loop, &k->soon);
		flush(k);
	}
}

int link_send_soon(struct link *k, const uint8_t *packet, size_t len)
{
	if (k->soon.slot)
		return wait_send(k, packet, len);
	if (!k->first && k->owner.fd >= 0 && k->loop->now - k->told < LINK_SOON &&
	    loop_timer_set(k->loop, &k->soon, k->told + LINK_SOON) == 0)
		return wait_send(k, packet, len);
	k->told = k->loop->now;
	return link_send(k, packet, len);
}

int link_send(struct link *k, const uint8_t *packet, size_t len)
{
	hurry(k);
	if (!k->first && k->owner.fd >= 0) {
		int r = fd_send_now(k->owner.fd, packet, len, NULL, 0);

		if (r == 0)
			return 0;
		if (r == -EAGAIN || r == -ENOBUFS)
			watch(k, true);
		else
			leave(k);
	}
	return wait_send(k, packet, len);
}

int link_send_now(struct link *k, const uint8_t *packet, size_t len)
{
	hurry(k);
	return k->owner.fd >= 0 && !k->first && fd_send_now(k->owner.fd, packet, len, NULL, 0) == 0 ? 0 : -ENOBUFS;
}

static int one_message(struct link *k)
{
	int fds[FD_MSG_MAX];
	size_t nfds = 0;
	struct egress_msg m;
	ssize_t n = fd_recv(k->owner.fd, k->packet, EGRESS_MSG_MAX, fds, FD_MSG_MAX, &nfds);
	int r;

	if (n <= 0)
		return n == -EAGAIN ? -EAGAIN : -ECONNRESET;
	r = egress_decode(k->packet, (size_t)n, &m);
	if (r == 0)
		r = k->ops->message(k->ctx, &m, fds, nfds);
	fd_close_many(fds, nfds);
	/* Policies and secrets do not stay behind in it. */
	explicit_bzero(k->packet, (size_t)n);
	return r;
}

static void owner_ready(struct loop_fd *f, uint32_t events)
{
	struct link *k = (struct link *)((char *)f - offsetof(struct link, owner));
	int r = 0;

	if (events & EPOLLOUT)
		flush(k);
	for (int i = 0; r == 0 && i < MESSAGES && k->owner.fd >= 0; i++)
		r = one_message(k);
	if (r == -EBADMSG)
		log_warn("the owner sent an invalid message: its connection is closed");
	if (r < 0 && r != -EAGAIN)
		leave(k);
}

static void join(struct link *k, int fd)
{
	uint8_t hello[EGRESS_HEAD + 16];
	struct link_wait *held = k->first, **held_last = k->last;
	size_t held_bytes = k->waiting;
	long n = egress_plain_encode(EGRESS_HELLO, 0, 0, k->dropped, hello, sizeof(hello));

	k->owner.fd = fd;
	if (fd_set_nonblock(fd) < 0 || loop_add(k->loop, &k->owner, EPOLLIN) < 0) {
		loop_close(k->loop, &k->owner);
		return;
	}
	k->full = false;
	/* What waited comes behind what opens a conversation. */
	k->first = NULL;
	k->last = &k->first;
	k->waiting = 0;
	k->dropped = 0;
	link_send(k, hello, (size_t)n);
	k->ops->joined(k->ctx);
	if (held) {
		*k->last = held;
		k->last = held_last;
		k->waiting += held_bytes;
	}
	if (k->owner.fd >= 0)
		flush(k);
}

static void listener_ready(struct loop_fd *f, uint32_t events)
{
	struct link *k = (struct link *)((char *)f - offsetof(struct link, listener));
	int fd = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (fd < 0)
		return;
	leave(k);
	join(k, fd);
}

int link_init(struct link *k, struct loop *loop, int listen_fd, int owner_fd, const struct link_ops *ops, void *ctx)
{
	int r = 0;

	*k = (struct link){
		.loop = loop,
		.ops = ops,
		.ctx = ctx,
		.listener = { listener_ready, -1 },
		.owner = { owner_ready, -1 },
		.soon = { .due = soon_due },
		.once = listen_fd < 0,
		.packet = malloc(EGRESS_MSG_MAX),
	};
	k->last = &k->first;
	if (!k->packet)
		return -ENOMEM;
	if (listen_fd >= 0) {
		k->listener.fd = listen_fd;
		r = fd_set_nonblock(listen_fd);
		if (r == 0)
			r = loop_add(loop, &k->listener, EPOLLIN);
		if (r < 0)
			k->listener.fd = -1;
	} else {
		join(k, owner_fd);
		if (k->owner.fd < 0)
			r = -EIO;
	}
	return r;
}

void link_done(struct link *k)
{
	hurry(k);
	while (k->first)
		drop_first(k);
	if (k->listener.fd >= 0)
		loop_close(k->loop, &k->listener);
	if (k->owner.fd >= 0)
		loop_close(k->loop, &k->owner);
	free(k->packet);
	k->packet = NULL;
}
