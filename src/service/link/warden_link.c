/* Sends requests to the warden from threads, and returns answers to the loop. */
#include "service/link/warden_link.h"
#include "base/base.h"
#include "base/log.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define AGAIN_MS 50

/*
 * Connections: the first for what is quick, the others for one kind of what is not, one request at a time each. A fork of ten sends all
 * its creates at once: the last ones would else begin when others are done, with a processor that has nothing to do at the end.
 */
enum kind { QUICK, SEALS, STANDS, KINDS };
static const enum kind lanes[] = { QUICK,  SEALS,  SEALS,  SEALS,  STANDS, STANDS, STANDS, STANDS,
				   STANDS, STANDS, STANDS, STANDS, STANDS, STANDS, STANDS, STANDS };
#define LANES ARRAY_LEN(lanes)

struct wcall {
	struct wcall *next;
	warden_link_fn *fn;
	void *arg;
	uint32_t op;
	uint64_t seq, handle, op_arg, ended;
	char id[MSG_ID]; /* of a layer */
	struct sandbox_spec *spec; /* CREATE, DIFF only */
	struct msg_diff *diff; /* DIFF only */
	struct steer_rules *net; /* NET only */
	struct spec_limits limits; /* LIMITS only */
	struct warden_who who; /* WHO only */
	bool once; /* of finding out what is there: not repeated, for all of it is done again */
};

struct queue {
	struct wcall *first, **last;
};

struct lane {
	struct warden_link *w;
	enum kind kind;
	uv_poll_t *poll; /* NULL: not connected */
	int fd;
	int events; /* that are waited for */
	struct queue sent; /* not answered */
};

struct warden_link {
	uv_loop_t *loop;
	uv_timer_t *again;
	int place;
	uint64_t seq;
	struct lane lane[LANES];
	struct queue first; /* go before all others */
	struct queue waiting[KINDS]; /* not sent */
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
	free(c->diff);
	free(c->net);
	free(c);
}

static void free_handle(uv_handle_t *h)
{
	free(h);
}

static void tell(struct wcall *c, int r, const struct warden_link_answer *a, const struct err *e)
{
	if (c->fn)
		c->fn(c->arg, r, a, e);
	call_free(c);
}

static void on_event(uv_poll_t *p, int status, int events);
static void on_again(uv_timer_t *t);

static void watch(struct lane *l, int events)
{
	if (events != l->events)
		uv_poll_start(l->poll, events, on_event);
	l->events = events;
}

static void lane_close(struct lane *l)
{
	if (!l->poll)
		return;
	uv_poll_stop(l->poll);
	uv_close((uv_handle_t *)l->poll, free_handle);
	l->poll = NULL;
	fd_close(l->fd);
	l->fd = -1;
}

static void queue_join(struct queue *to, struct queue *from)
{
	struct wcall *c;

	while ((c = queue_take(from)))
		queue_add(to, c);
}

/* What was sent is asked again on the next connection, in the same order. */
static void disconnect(struct warden_link *w)
{
	struct queue again[KINDS], over;
	struct wcall *c;

	if (w->lane[0].poll)
		log_warn("the warden has ended; waiting for it to come back");
	w->broken = false;
	w->held = true;
	uv_timer_start(w->again, on_again, AGAIN_MS, 0);
	queue_init(&over);
	for (unsigned k = 0; k < KINDS; k++)
		queue_init(&again[k]);
	for (unsigned i = 0; i < LANES; i++) {
		struct lane *l = &w->lane[i];

		lane_close(l);
		while ((c = queue_take(&l->sent)))
			queue_add(c->once ? &over : &again[l->kind], c);
	}
	queue_join(&over, &w->first);
	for (unsigned k = 0; k < KINDS; k++) {
		queue_join(&again[k], &w->waiting[k]);
		queue_join(&w->waiting[k], &again[k]);
	}
	/* Last: a callback may send new requests. */
	while ((c = queue_take(&over)))
		tell(c, -EPIPE, NULL, NULL);
}

/* What of a request its answer is held against. */
static void put_head(struct warden_link *w, const struct wcall *c)
{
	w->req.version = MSG_VERSION;
	w->req.op = c->op;
	w->req.seq = c->seq;
	w->req.handle = c->handle;
	w->req.arg = c->op_arg;
	w->req.ended = c->ended;
	memcpy(w->req.id, c->id, sizeof(w->req.id));
	w->req.spec.flags = c->spec ? c->spec->flags : 0;
}

/* All behind the head. */
static void put_rest(struct warden_link *w, const struct wcall *c)
{
	if (c->spec)
		spec_put(c->spec, &w->req.spec);
	else
		memset(&w->req.spec, 0, sizeof(w->req.spec));
	if (c->op == WARDEN_LIMITS)
		w->req.spec.limits = c->limits;
	if (c->net)
		spec_put_net(c->net, &w->req.spec.net);
	w->req.who = c->who;
	w->req.diff = c->diff ? *c->diff : (struct msg_diff){ 0 };
}

static int send_one(struct lane *l, struct wcall *c)
{
	const size_t size = msg_brief(c->op) ? MSG_REQ_HEAD : sizeof(l->w->req);
	ssize_t n;

	put_head(l->w, c);
	if (size != MSG_REQ_HEAD)
		put_rest(l->w, c);
	do {
		n = send(l->fd, &l->w->req, size, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static int lane_open(struct lane *l, struct err *e);

/* Whether there is something for this connection to send now. */
static struct queue *next_of(struct lane *l)
{
	struct warden_link *w = l->w;

	if (l->kind == QUICK && w->first.first)
		return &w->first;
	if (w->held || !w->waiting[l->kind].first || (l->kind != QUICK && l->sent.first))
		return NULL;
	return &w->waiting[l->kind];
}

static void lane_send(struct lane *l)
{
	struct warden_link *w = l->w;
	struct queue *q;

	while (w->lane[0].poll && !w->broken && (q = next_of(l))) {
		int r = l->poll ? 0 : lane_open(l, NULL);

		if (r == 0)
			r = send_one(l, q->first);
		if (l->poll && (r == -EAGAIN || r == -ENOBUFS)) {
			watch(l, UV_READABLE | UV_WRITABLE);
			return;
		}
		if (r < 0) {
			w->broken = true;
			uv_timer_start(w->again, on_again, 0, 0);
			return;
		}
		queue_add(&l->sent, queue_take(q));
	}
	if (l->poll)
		watch(l, UV_READABLE);
}

static void send_more(struct warden_link *w, enum kind k)
{
	for (unsigned i = 0; i < LANES; i++)
		if (w->lane[i].kind == k)
			lane_send(&w->lane[i]);
}

/* One answer. 0 when there was none, < 0 when the connection is of no more use. */
static int receive(struct lane *l)
{
	struct warden_link *w = l->w;
	struct err e = { 0 };
	int fds[MSG_FDS];
	struct warden_link_answer a = { .rep = &w->rep, .fds = fds };
	struct wcall *c;
	ssize_t n;
	int r;

	n = fd_recv(l->fd, &w->rep, sizeof(w->rep), fds, MSG_FDS, &a.nfds);
	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return -EPIPE;
	memset((char *)&w->rep + n, 0, sizeof(w->rep) - (size_t)n);
	c = l->sent.first;
	if (c)
		put_head(w, c);
	r = c ? msg_check_rep(&w->rep, (size_t)n, a.nfds, &w->req, &e) : -EPROTO;
	if (r < 0) {
		log_error("invalid answer from the warden: %s", e.msg);
		fd_close_many(fds, a.nfds);
		return r;
	}
	queue_take(&l->sent);
	if (w->rep.result < 0) {
		err_set(&e, w->rep.what, w->rep.result, "%s", w->rep.msg);
		if (w->rep.remedy[0])
			err_remedy(&e, "%s", w->rep.remedy);
	}
	tell(c, w->rep.result, &a, &e);
	fd_close_many(fds, a.nfds);
	return 1;
}

static void on_event(uv_poll_t *p, int status, int events)
{
	struct lane *l = p->data;
	int r = status < 0 ? -EPIPE : 1;

	if (r > 0 && events & UV_WRITABLE)
		lane_send(l);
	/* The warden sends only answers; its end causes the next event. */
	for (int i = 0; r > 0 && l->poll == p && i < 64 && (!i || l->sent.first); i++)
		r = receive(l);
	if (r < 0 && l->poll == p)
		disconnect(l->w);
	else if (l->kind != QUICK && l->poll == p)
		lane_send(l);
}

static int open_sock(struct warden_link *w, struct err *e)
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
		r = err_sys(e, WHY_SERVICE_LOST, -errno, "connect to the warden");
	return r < 0 ? r : TAKE_FD(fd);
}

static int lane_open(struct lane *l, struct err *e)
{
	int r = open_sock(l->w, e);

	if (r < 0)
		return r;
	l->fd = r;
	l->poll = malloc(sizeof(*l->poll));
	r = l->poll ? uv_poll_init(l->w->loop, l->poll, l->fd) : -ENOMEM;
	if (r < 0) {
		free(l->poll);
		l->poll = NULL;
		fd_close(l->fd);
		l->fd = -1;
		return err_sys(e, ERR_EXHAUSTED, r, "watch the warden's socket");
	}
	l->poll->data = l;
	l->events = 0;
	watch(l, UV_READABLE);
	return 0;
}

static void on_hello(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct warden_link *w = arg;

	(void)a;
	if (r == 0)
		w->back(w->arg);
	else if (e)
		log_error("the warden: %s", e->msg);
}

static int dial(struct warden_link *w, struct err *e)
{
	int r = lane_open(&w->lane[0], e);

	if (r == 0)
		warden_link_call_first(w, WARDEN_HELLO, 0, 0, on_hello, w);
	return r;
}

static void on_again(uv_timer_t *t)
{
	struct warden_link *w = t->data;

	if (w->broken)
		disconnect(w);
	else if (!w->lane[0].poll && dial(w, NULL) < 0)
		uv_timer_start(w->again, on_again, AGAIN_MS, 0);
}

int warden_link_new(uv_loop_t *loop, int place, void (*back)(void *arg), void *arg, struct warden_link **ret,
		    struct err *e)
{
	struct warden_link *w = calloc(1, sizeof(*w));
	uv_timer_t *t = calloc(1, sizeof(*t));
	int r;

	if (!w || !t) {
		free(w);
		free(t);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for the link to the warden");
	}
	*w = (struct warden_link){ .loop = loop, .place = place, .back = back, .arg = arg, .again = t };
	w->held = true;
	queue_init(&w->first);
	for (unsigned k = 0; k < KINDS; k++)
		queue_init(&w->waiting[k]);
	for (unsigned i = 0; i < LANES; i++) {
		w->lane[i] = (struct lane){ .w = w, .kind = lanes[i], .fd = -1 };
		queue_init(&w->lane[i].sent);
	}
	uv_timer_init(loop, t);
	t->data = w;
	r = dial(w, e);
	if (r < 0) /* it may be about to start */
		uv_timer_start(t, on_again, AGAIN_MS, 0);
	*ret = w;
	return 0;
}

static struct wcall *call_new(struct warden_link *w, enum warden_op op, uint64_t handle, uint64_t arg,
			      warden_link_fn *fn, void *fn_arg)
{
	struct wcall *c = calloc(1, sizeof(*c));

	/* Small, and every caller would have to undo what it began: as good as the end. */
	if (!c)
		abort();
	*c = (struct wcall){ .fn = fn, .arg = fn_arg, .op = op, .seq = ++w->seq, .handle = handle, .op_arg = arg };
	return c;
}

void warden_link_call(struct warden_link *w, enum warden_op op, uint64_t handle, uint64_t arg,
		      const struct sandbox_spec *spec, warden_link_fn *fn, void *fn_arg)
{
	struct wcall *c = call_new(w, op, handle, arg, fn, fn_arg);
	enum kind k = spec && spec->layers ? STANDS : QUICK;

	if (spec) {
		c->spec = malloc(sizeof(*spec));
		if (!c->spec)
			abort();
		*c->spec = *spec;
	}
	queue_add(&w->waiting[k], c);
	send_more(w, k);
}

void warden_link_group(struct warden_link *w, uint64_t handle, uint32_t uid, uint64_t ended, warden_link_fn *fn,
		       void *fn_arg)
{
	struct wcall *c = call_new(w, WARDEN_GROUP, handle, uid, fn, fn_arg);

	c->ended = ended;
	queue_add(&w->waiting[QUICK], c);
	send_more(w, QUICK);
}

void warden_link_diff(struct warden_link *w, uint64_t handle, const struct sandbox_spec *spec,
		      const struct msg_diff *diff, warden_link_fn *fn, void *fn_arg)
{
	struct wcall *c = call_new(w, WARDEN_DIFF, handle, 0, fn, fn_arg);

	c->spec = malloc(sizeof(*spec));
	c->diff = malloc(sizeof(*diff));
	if (!c->spec || !c->diff)
		abort();
	*c->spec = *spec;
	*c->diff = *diff;
	queue_add(&w->waiting[STANDS], c);
	send_more(w, STANDS);
}

void warden_link_net(struct warden_link *w, uint64_t handle, uint64_t arg, const struct steer_rules *rules,
		     warden_link_fn *fn, void *fn_arg)
{
	struct wcall *c = call_new(w, WARDEN_NET, handle, arg, fn, fn_arg);

	c->net = malloc(sizeof(*rules));
	if (!c->net)
		abort();
	*c->net = *rules;
	queue_add(&w->waiting[QUICK], c);
	send_more(w, QUICK);
}

void warden_link_limits(struct warden_link *w, uint64_t handle, const struct spec_limits *l, warden_link_fn *fn,
			void *fn_arg)
{
	struct wcall *c = call_new(w, WARDEN_LIMITS, handle, 0, fn, fn_arg);

	c->limits = *l;
	queue_add(&w->waiting[QUICK], c);
	send_more(w, QUICK);
}

void warden_link_who(struct warden_link *w, uint64_t handle, const struct warden_who *who, warden_link_fn *fn,
		     void *fn_arg)
{
	struct wcall *c = call_new(w, WARDEN_WHO, handle, 0, fn, fn_arg);

	c->who = *who;
	queue_add(&w->waiting[QUICK], c);
	send_more(w, QUICK);
}

void warden_link_call_layer(struct warden_link *w, enum warden_op op, uint64_t handle, uint64_t arg, const char *id,
			    warden_link_fn *fn, void *fn_arg)
{
	struct wcall *c = call_new(w, op, handle, arg, fn, fn_arg);
	enum kind k = op == WARDEN_SEAL ? SEALS : QUICK;

	if (id)
		memcpy(c->id, id, strnlen(id, ID_LEN));
	queue_add(&w->waiting[k], c);
	send_more(w, k);
}

void warden_link_call_first(struct warden_link *w, enum warden_op op, uint64_t handle, uint64_t arg, warden_link_fn *fn,
			    void *fn_arg)
{
	struct wcall *c = call_new(w, op, handle, arg, fn, fn_arg);

	c->once = true;
	queue_add(&w->first, c);
	send_more(w, QUICK);
}

void warden_link_go(struct warden_link *w)
{
	w->held = false;
	for (unsigned k = 0; k < KINDS; k++)
		send_more(w, (enum kind)k);
}

bool warden_link_idle(const struct warden_link *w)
{
	bool idle = !w->first.first;

	for (unsigned k = 0; k < KINDS; k++)
		idle = idle && !w->waiting[k].first;
	for (unsigned i = 0; i < LANES; i++)
		idle = idle && !w->lane[i].sent.first;
	return idle;
}
