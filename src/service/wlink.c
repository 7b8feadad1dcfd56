#include "service/wlink.h"
#include "base/base.h"
#include "base/log.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define AGAIN_MS 50

struct wcall {
	struct wcall *next;
	wlink_fn *fn;
	void *arg;
	uint32_t op;
	uint64_t seq, handle, op_arg;
	struct sandbox_spec *spec; /* CREATE only */
	bool once; /* of finding out what is there: not repeated, for all of it is done again */
};

struct queue {
	struct wcall *first, **last;
};

struct wlink {
	uv_loop_t *loop;
	uv_poll_t *poll; /* NULL: not connected */
	uv_timer_t *again;
	int fd, place;
	int events; /* that are waited for */
	uint64_t seq;
	struct queue first; /* go before all others */
	struct queue waiting; /* not sent */
	struct queue sent; /* not answered */
	bool held; /* ->waiting is not sent */
	bool broken; /* sending failed: the timer disconnects, so that no callback comes from within a call */
	void (*back)(void *arg);
	void *arg;
	struct warden_req req; /* not on the stack: large */
	struct warden_rep rep;
};

static void queue_init(struct queue *q)
{
	q->first = NULL;
	q->last = &q->first;
}

static void queue_add(struct queue *q, struct wcall *c)
{
	c->next = NULL;
	*q->last = c;
	q->last = &c->next;
}

static struct wcall *queue_take(struct queue *q)
{
	struct wcall *c = q->first;

	if (c) {
		q->first = c->next;
		if (!q->first)
			q->last = &q->first;
	}
	return c;
}

static void call_free(struct wcall *c)
{
	free(c->spec);
	free(c);
}

static void free_handle(uv_handle_t *h)
{
	free(h);
}

static void tell(struct wcall *c, int r, const struct wlink_answer *a, const struct err *e)
{
	if (c->fn)
		c->fn(c->arg, r, a, e);
	call_free(c);
}

static void on_event(uv_poll_t *p, int status, int events);
static void send_more(struct wlink *w);

static void watch(struct wlink *w, int events)
{
	if (events != w->events)
		uv_poll_start(w->poll, events, on_event);
	w->events = events;
}

static void on_again(uv_timer_t *t);

/* What was sent is asked again on the next connection, in the same order. */
static void disconnect(struct wlink *w)
{
	struct queue again, over;
	struct wcall *c;

	if (w->poll) {
		uv_poll_stop(w->poll);
		uv_close((uv_handle_t *)w->poll, free_handle);
		w->poll = NULL;
		fd_close(w->fd);
		w->fd = -1;
		log_warn("the warden is gone; waiting for it to come back");
	}
	w->broken = false;
	w->held = true;
	uv_timer_start(w->again, on_again, AGAIN_MS, 0);
	queue_init(&again);
	queue_init(&over);
	while ((c = queue_take(&w->sent)))
		queue_add(c->once ? &over : &again, c);
	while ((c = queue_take(&w->waiting)))
		queue_add(&again, c);
	while ((c = queue_take(&w->first)))
		queue_add(&over, c);
	while ((c = queue_take(&again)))
		queue_add(&w->waiting, c);
	/* Last: whoever is told may ask for more. */
	while ((c = queue_take(&over)))
		tell(c, -EPIPE, NULL, NULL);
}

static int send_one(struct wlink *w, struct wcall *c)
{
	ssize_t n;

	w->req.version = MSG_VERSION;
	w->req.op = c->op;
	w->req.seq = c->seq;
	w->req.handle = c->handle;
	w->req.arg = c->op_arg;
	if (c->spec)
		msg_put_spec(c->spec, &w->req.spec);
	else
		memset(&w->req.spec, 0, sizeof(w->req.spec));
	do {
		n = send(w->fd, &w->req, sizeof(w->req), MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static void send_more(struct wlink *w)
{
	while (w->poll && !w->broken) {
		struct queue *q = w->first.first ? &w->first : &w->waiting;
		int r;

		if (!q->first || (q == &w->waiting && w->held))
			break;
		r = send_one(w, q->first);
		if (r == -EAGAIN || r == -ENOBUFS) {
			watch(w, UV_READABLE | UV_WRITABLE);
			return;
		}
		if (r < 0) {
			w->broken = true;
			uv_timer_start(w->again, on_again, 0, 0);
			return;
		}
		queue_add(&w->sent, queue_take(q));
	}
	if (w->poll)
		watch(w, UV_READABLE);
}

/* One answer. 0 when there was none, < 0 when the connection is of no more use. */
static int receive(struct wlink *w)
{
	struct err e = { 0 };
	int fds[MSG_FDS];
	struct wlink_answer a = { .rep = &w->rep, .fds = fds };
	struct wcall *c;
	ssize_t n;
	int r;

	n = fd_recv(w->fd, &w->rep, sizeof(w->rep), fds, MSG_FDS, &a.nfds);
	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return -EPIPE;
	c = w->sent.first;
	if (c) {
		w->req.op = c->op;
		w->req.seq = c->seq;
		w->req.handle = c->handle;
		w->req.arg = c->op_arg;
	}
	r = c ? msg_check_rep(&w->rep, (size_t)n, a.nfds, &w->req, &e) : -EPROTO;
	if (r < 0) {
		log_error("the warden's answer makes no sense: %s", e.msg);
		fd_close_many(fds, a.nfds);
		return r;
	}
	queue_take(&w->sent);
	if (w->rep.result < 0) {
		err_set(&e, (enum err_kind)w->rep.kind, w->rep.result, "%s", w->rep.msg);
		if (w->rep.remedy[0])
			err_remedy(&e, "%s", w->rep.remedy);
	}
	tell(c, w->rep.result, &a, &e);
	fd_close_many(fds, a.nfds);
	return 1;
}

static void on_event(uv_poll_t *p, int status, int events)
{
	struct wlink *w = p->data;
	int r = status < 0 ? -EPIPE : 1;

	if (r > 0 && events & UV_WRITABLE)
		send_more(w);
	/* Nothing comes that was not asked for, but the end: that is told by the next event. */
	for (int i = 0; r > 0 && w->poll && i < 64 && (!i || w->sent.first); i++)
		r = receive(w);
	if (r < 0 && w->poll)
		disconnect(w);
}

static int open_sock(struct wlink *w, struct err *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int room = 1 << 20, r = 0;
	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a socket");
	/* A request is large for what it says; many must fit before the warden is behind. */
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d", w->place);
	if (connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
		r = err_sys(e, ERR_LOST, -errno, "connect to the warden");
	return r < 0 ? r : TAKE_FD(fd);
}

static void on_hello(void *arg, int r, const struct wlink_answer *a, const struct err *e)
{
	struct wlink *w = arg;

	(void)a;
	if (r == 0)
		w->back(w->arg);
	else if (e)
		log_error("the warden: %s", e->msg);
}

static int dial(struct wlink *w, struct err *e)
{
	int r = open_sock(w, e);

	if (r < 0)
		return r;
	w->fd = r;
	w->poll = malloc(sizeof(*w->poll));
	r = w->poll ? uv_poll_init(w->loop, w->poll, w->fd) : -ENOMEM;
	if (r < 0) {
		free(w->poll);
		w->poll = NULL;
		fd_close(w->fd);
		w->fd = -1;
		return err_sys(e, ERR_EXHAUSTED, r, "watch the warden's socket");
	}
	w->poll->data = w;
	w->events = 0;
	watch(w, UV_READABLE);
	wlink_call_first(w, WARDEN_HELLO, 0, 0, on_hello, w);
	return 0;
}

static void on_again(uv_timer_t *t)
{
	struct wlink *w = t->data;

	if (w->broken)
		disconnect(w);
	else if (!w->poll && dial(w, NULL) < 0)
		uv_timer_start(w->again, on_again, AGAIN_MS, 0);
}

int wlink_new(uv_loop_t *loop, int place, void (*back)(void *arg), void *arg, struct wlink **ret, struct err *e)
{
	struct wlink *w = calloc(1, sizeof(*w));
	uv_timer_t *t = calloc(1, sizeof(*t));
	int r;

	if (!w || !t) {
		free(w);
		free(t);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for the link to the warden");
	}
	*w = (struct wlink){ .loop = loop, .place = place, .fd = -1, .back = back, .arg = arg, .again = t };
	w->held = true;
	queue_init(&w->first);
	queue_init(&w->waiting);
	queue_init(&w->sent);
	uv_timer_init(loop, t);
	t->data = w;
	r = dial(w, e);
	if (r < 0) /* it may be about to start */
		uv_timer_start(t, on_again, AGAIN_MS, 0);
	*ret = w;
	return 0;
}

static struct wcall *call_new(struct wlink *w, enum warden_op op, uint64_t handle, uint64_t arg, wlink_fn *fn,
			      void *fn_arg)
{
	struct wcall *c = calloc(1, sizeof(*c));

	/* Small, and every caller would have to undo what it began: as good as the end. */
	if (!c)
		abort();
	*c = (struct wcall){ .fn = fn, .arg = fn_arg, .op = op, .seq = ++w->seq, .handle = handle, .op_arg = arg };
	return c;
}

void wlink_call(struct wlink *w, enum warden_op op, uint64_t handle, uint64_t arg, const struct sandbox_spec *spec,
		wlink_fn *fn, void *fn_arg)
{
	struct wcall *c = call_new(w, op, handle, arg, fn, fn_arg);

	if (spec) {
		c->spec = malloc(sizeof(*spec));
		if (!c->spec)
			abort();
		*c->spec = *spec;
	}
	queue_add(&w->waiting, c);
	send_more(w);
}

void wlink_call_first(struct wlink *w, enum warden_op op, uint64_t handle, uint64_t arg, wlink_fn *fn, void *fn_arg)
{
	struct wcall *c = call_new(w, op, handle, arg, fn, fn_arg);

	c->once = true;
	queue_add(&w->first, c);
	send_more(w);
}

void wlink_go(struct wlink *w)
{
	w->held = false;
	send_more(w);
}

bool wlink_idle(const struct wlink *w)
{
	return !w->sent.first && !w->waiting.first && !w->first.first;
}
