/* Sends messages to cloche-egress, and passes on its reports. */
#include "service/link/egress_link.h"
#include "base/base.h"
#include "base/log.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define AGAIN_MS 50
#define TURN_MAX 256 /* packets per event, so that others get their turn */

struct packet {
	struct packet *next;
	size_t len, nfds;
	int fd[EGRESS_SOCKETS];
	uint8_t data[];
};

struct egress_link {
	uv_loop_t *loop;
	int place;
	struct egress_link_user u;
	uv_poll_t *poll; /* NULL: not connected */
	int fd;
	int events;
	uv_timer_t again;
	bool hello, up;
	bool broken; /* sending failed: the timer disconnects, so that no callback comes from within a call */
	bool told; /* that it is away */
	uint32_t seq;
	struct packet *first, **last; /* not sent yet */
	uint8_t *in, *out;
};

static void on_event(uv_poll_t *p, int status, int events);
static void on_again(uv_timer_t *t);

static void free_handle(uv_handle_t *h)
{
	free(h);
}

static void packet_free(struct packet *p)
{
	fd_close_many(p->fd, p->nfds);
	explicit_bzero(p->data, p->len); /* there may be secrets in it */
	free(p);
}

static void watch(struct egress_link *l, int events)
{
	if (events != l->events)
		uv_poll_start(l->poll, events, on_event);
	l->events = events;
}

static void hang_up(struct egress_link *l)
{
	struct packet *p;

	if (l->poll) {
		uv_poll_stop(l->poll);
		uv_close((uv_handle_t *)l->poll, free_handle);
		l->poll = NULL;
		fd_close(l->fd);
		l->fd = -1;
	}
	while ((p = l->first)) {
		l->first = p->next;
		packet_free(p);
	}
	l->last = &l->first;
	l->hello = l->up = l->broken = false;
}

static void disconnect(struct egress_link *l)
{
	bool was = l->up;

	hang_up(l);
	uv_timer_start(&l->again, on_again, AGAIN_MS, 0);
	if (was) {
		log_warn("cloche-egress has ended; sandboxes have no network until it is back");
		l->u.down(l->u.arg);
	}
}

static void send_more(struct egress_link *l)
{
	struct packet *p;
	int r;

	while (l->poll && !l->broken && (p = l->first)) {
		r = fd_send_now(l->fd, p->data, p->len, p->fd, p->nfds);
		if (r == -EAGAIN || r == -ENOBUFS) {
			watch(l, UV_READABLE | UV_WRITABLE);
			return;
		}
		if (r < 0) {
			l->broken = true;
			uv_timer_start(&l->again, on_again, 0, 0);
			return;
		}
		l->first = p->next;
		if (!l->first)
			l->last = &l->first;
		packet_free(p);
	}
	if (l->poll)
		watch(l, UV_READABLE);
}

static int dispatch(struct egress_link *l, size_t len)
{
	struct egress_msg m;
	int r = egress_decode(l->in, len, &m);

	if (r < 0)
		return r;
	if (!l->hello) {
		l->hello = m.type == EGRESS_HELLO;
		return l->hello ? 0 : -EBADMSG;
	}
	if (m.type == EGRESS_HAVE && l->up)
		return -EBADMSG;
	if (m.type == EGRESS_HAVE) {
		l->up = !m.sandbox;
		if (l->up && l->told)
			log_info("cloche-egress is back");
		l->told = l->told && !l->up;
		l->u.have(l->u.arg, m.sandbox);
		return 0;
	}
	l->u.message(l->u.arg, &m);
	return 0;
}

static int receive(struct egress_link *l)
{
	ssize_t n;
	int r;

	do {
		n = recv(l->fd, l->in, EGRESS_MSG_MAX, MSG_DONTWAIT | MSG_TRUNC);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0 || n > (ssize_t)EGRESS_MSG_MAX)
		return -EPIPE;
	r = dispatch(l, (size_t)n);
	if (r < 0)
		log_error("protocol error from cloche-egress; connecting again");
	return r < 0 ? r : 1;
}

static void on_event(uv_poll_t *p, int status, int events)
{
	struct egress_link *l = p->data;
	int r = status < 0 ? -EPIPE : 1;

	if (r > 0 && events & UV_WRITABLE)
		send_more(l);
	for (int i = 0; r > 0 && l->poll == p && i < TURN_MAX; i++)
		r = receive(l);
	if (r < 0 && l->poll == p)
		disconnect(l);
}

static int dial(struct egress_link *l)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int room = 1 << 20;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d", l->place);
	if (connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
		return -errno;
	l->poll = malloc(sizeof(*l->poll));
	if (!l->poll || uv_poll_init(l->loop, l->poll, fd) < 0) {
		free(l->poll);
		l->poll = NULL;
		return -ENOMEM;
	}
	l->fd = TAKE_FD(fd);
	l->poll->data = l;
	l->events = 0;
	watch(l, UV_READABLE);
	return 0;
}

static void on_again(uv_timer_t *t)
{
	struct egress_link *l = t->data;

	if (l->broken) {
		disconnect(l);
	} else if (!l->poll && dial(l) < 0) {
		l->told = true;
		uv_timer_start(t, on_again, AGAIN_MS, 0);
	}
}

int egress_link_new(uv_loop_t *loop, int place, const struct egress_link_user *u, struct egress_link **ret,
		    struct err *e)
{
	struct egress_link *l = calloc(1, sizeof(*l));

	if (l) {
		l->in = malloc(EGRESS_MSG_MAX);
		l->out = malloc(EGRESS_MSG_MAX);
	}
	if (!l || !l->in || !l->out) {
		if (l) {
			free(l->in);
			free(l->out);
		}
		free(l);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for the link to cloche-egress");
	}
	l->loop = loop;
	l->place = place;
	l->u = *u;
	l->fd = -1;
	l->last = &l->first;
	uv_timer_init(loop, &l->again);
	l->again.data = l;
	if (dial(l) < 0) /* it may be about to start */
		uv_timer_start(&l->again, on_again, AGAIN_MS, 0);
	*ret = l;
	return 0;
}

static void on_freed(uv_handle_t *h)
{
	struct egress_link *l = h->data;

	free(l->in);
	free(l->out);
	free(l);
}

void egress_link_free(struct egress_link *l)
{
	if (!l)
		return;
	hang_up(l);
	uv_close((uv_handle_t *)&l->again, on_freed);
}

bool egress_link_up(const struct egress_link *l)
{
	return l->up && !l->broken;
}

uint32_t egress_link_seq(struct egress_link *l)
{
	if (!++l->seq)
		l->seq = 1;
	return l->seq;
}

uint8_t *egress_link_room(struct egress_link *l)
{
	return l->out;
}

void egress_link_send(struct egress_link *l, const uint8_t *data, size_t len, int *fds, size_t nfds)
{
	struct packet *p = malloc(sizeof(*p) + len);

	assert(nfds <= EGRESS_SOCKETS);
	if (!p)
		abort();
	p->next = NULL;
	p->len = len;
	p->nfds = nfds;
	memcpy(p->data, data, len);
	for (size_t i = 0; i < nfds; i++)
		p->fd[i] = TAKE_FD(fds[i]);
	if (!l->poll || l->broken) {
		packet_free(p);
		return;
	}
	*l->last = p;
	l->last = &p->next;
	send_more(l);
}
