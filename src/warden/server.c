/* Serves connections to a warden: reads requests, executes them, and answers, some of them later. */
#include "warden/server.h"
#include "base/base.h"
#include "base/log.h"
#include "base/sys.h"
#include "warden/msg.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PEERS 32 /* an API process uses half of them (service/link/warden_link.c) */
#define AT_ONCE 64

struct entry {
	uint64_t handle;
	struct warden_sandbox *sandbox;
};

/* A slow request: answered when a worker is done. */
struct slow {
	int peer; /* index of the connection; -1: it is closed */
	struct warden_req q;
};

struct server {
	struct warden *warden;
	const struct server_opts *opts;
	bool listening;
	int peer[PEERS]; /* -1: free */
	struct slow *slow[PEERS]; /* the request that a connection waits for: it is not read meanwhile */
	int at; /* index of the connection being served */
	struct entry *table;
	size_t count, room;
	struct {
		struct warden_req q;
		char more; /* an extra byte: received only when a request is too long */
	} in;
	size_t filled; /* bytes of ->in that may not be zero */
	bool brief; /* ->in is no more than a head, and so will ->out be */
	struct warden_rep out;
	int passing[MSG_FDS]; /* descriptors that are closed here once the reply is sent, or -1 */
};

static struct entry *find(struct server *s, uint64_t handle)
{
	for (size_t i = 0; i < s->count; i++)
		if (s->table[i].handle == handle)
			return &s->table[i];
	return NULL;
}

static int make_room(struct server *s, struct err *e)
{
	size_t room = s->room ? s->room * 2 : 64;
	struct entry *t;

	if (s->count < s->room)
		return 0;
	t = realloc(s->table, room * sizeof(*t));
	if (!t)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	s->table = t;
	s->room = room;
	return 0;
}

static int add(struct server *s, struct warden_sandbox *x, struct err *e)
{
	int r = make_room(s, e);

	if (r == 0)
		s->table[s->count++] = (struct entry){ warden_handle(x), x };
	return r;
}

static void tell(struct server *s, const struct entry *x)
{
	s->out.handle = x->handle;
	msg_put_receipt(warden_receipt(x->sandbox), &s->out.receipt);
}

/* Makes a slow request for the connection being served, or returns NULL. */
static struct slow *slow_new(struct server *s, struct err *e)
{
	struct slow *x = malloc(sizeof(*x));

	if (!x) {
		err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a request");
		return NULL;
	}
	x->peer = s->at;
	x->q = s->in.q;
	return x;
}

/* 1: answered later. */
static int seal(struct server *s, const struct entry *x, struct err *e)
{
	struct slow *later = slow_new(s, e);
	int r;

	if (!later)
		return -ENOMEM;
	r = warden_seal(s->warden, x->sandbox, s->in.q.id, (uint32_t)s->in.q.arg, later, e);
	if (r < 0) {
		free(later);
		return r;
	}
	s->slow[s->at] = later;
	return 1;
}

/* 1: a layer has to be verified first, and the request is repeated then. */
static int ready(struct server *s, const struct sandbox_spec *spec, struct err *e)
{
	struct slow *later;
	int r;

	if (!spec->layers)
		return 0;
	later = slow_new(s, e);
	if (!later)
		return -ENOMEM;
	r = warden_layers_ready(s->warden, spec, later, e);
	if (r == 1)
		s->slow[s->at] = later;
	else
		free(later);
	return r;
}

static void tell_layer(struct server *s, const struct manifest *m)
{
	struct msg_layer *to = &s->out.layer;

	memcpy(to->parent, m->parent, sizeof(to->parent));
	memcpy(to->sum, m->sum, sizeof(to->sum));
	to->tenant = m->tenant;
	to->made = m->made;
	to->entries = m->entries;
	to->files = m->files;
	to->size = m->size;
	to->memory = m->meta + m->pages;
	to->flags = m->meta ? MSG_LAYER_MEMORY : 0;
	to->depth = m->depth;
}

static void next_layer(struct server *s)
{
	struct layer_facts f;

	if (!warden_layer_next(s->warden, s->in.q.id, &f)) {
		s->out.layer.users = f.users;
		return;
	}
	tell_layer(s, f.m);
	memcpy(s->out.id, f.id, sizeof(s->out.id));
	s->out.layer.users = f.users;
	s->out.layer.flags |= f.bad ? MSG_LAYER_BAD : 0;
}

/* Fills in the reply to CREATE; the list has room for the sandbox. */
static void made(struct server *s, struct warden_sandbox *x, int fds[MSG_FDS])
{
	unsigned n = 2;

	add(s, x, NULL);
	tell(s, &s->table[s->count - 1]);
	fds[0] = warden_sock(x);
	fds[1] = warden_pidfd(x);
	s->passing[0] = warden_first_group(x);
	s->out.arg = s->passing[0] >= 0;
	if (s->out.arg)
		fds[n++] = s->passing[0];
	if (s->in.q.spec.flags & SPEC_MEMORY)
		warden_cuts(s->warden, x, &s->out.cuts);
	if (s->in.q.spec.flags & SPEC_NET) {
		warden_net_sockets(x, s->passing + 1);
		memcpy(fds + n, s->passing + 1, STEER_SOCKETS * sizeof(int));
	}
}

/* 1: answered later: a layer has to be verified, or its processes do not run yet. */
static int create(struct server *s, int fds[MSG_FDS], struct err *e)
{
	struct slow *later = NULL;
	struct warden_sandbox *x;
	int r = ready(s, &s->in.q.spec, e);

	if (r == 0)
		r = make_room(s, e);
	if (r == 0 && s->in.q.spec.flags & (SPEC_MEMORY | SPEC_TIERS)) {
		later = slow_new(s, e);
		r = later ? 0 : -ENOMEM;
	}
	if (r == 0)
		r = warden_create(s->warden, &s->in.q.spec, &x, e);
	if (r == 0)
		made(s, x, fds);
	if (r == 1 && later) {
		warden_restoring(x, later);
		s->slow[s->at] = TAKE_PTR(later);
	}
	free(later);
	return r;
}
static int attach(struct server *s, const struct entry *x, int fds[MSG_FDS], struct err *e)
{
	int r = warden_attach(x->sandbox, s->passing, e);

	if (r < 0)
		return r;
	tell(s, x);
	fds[0] = s->passing[0] >= 0 ? s->passing[0] : warden_sock(x->sandbox);
	fds[1] = warden_pidfd(x->sandbox);
	return 0;
}

static void next(struct server *s)
{
	const struct entry *best = NULL;

	for (size_t i = 0; i < s->count; i++)
		if (s->table[i].handle > s->in.q.handle && (!best || s->table[i].handle < best->handle))
			best = &s->table[i];
	if (best)
		tell(s, best);
}

static int group(struct server *s, const struct entry *x, int fds[MSG_FDS], struct err *e)
{
	uint32_t n = 0;
	int r;

	if (s->in.q.ended) /* one that does not exist is gone already */
		warden_group_end(s->warden, x->sandbox, (uint32_t)s->in.q.ended, NULL);
	r = warden_group(s->warden, x->sandbox, &n, s->passing, e);
	if (r < 0)
		return r;
	s->out.arg = n;
	fds[0] = s->passing[0];
	if (!s->in.q.arg)
		return 0;
	r = warden_group_for(s->warden, x->sandbox, n, (uint32_t)s->in.q.arg - 1, s->passing + 1, e);
	fds[1] = r < 0 ? -1 : s->passing[1];
	if (r < 0) {
		fds[0] = -1;
		warden_group_end(s->warden, x->sandbox, n, NULL);
	}
	return r;
}

static int destroy(struct server *s, struct entry *x, struct err *e)
{
	struct warden_sandbox *gone = x->sandbox;

	*x = s->table[--s->count];
	return warden_destroy(s->warden, gone, e);
}

static int stat_one(struct server *s, const struct entry *x, struct err *e)
{
	int r = warden_stat(s->warden, x->sandbox, &s->out.stat);

	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "read the sandbox's usage") : 0;
}

static void counts(struct server *s)
{
	struct warden_counts c;

	warden_counts(s->warden, &c);
	s->out.counts = (struct msg_counts){
		c.alive, c.ready, c.cleaning, c.made, c.ended, c.cleanup_retries, c.cleanup_failures,
	};
}

static void machines(struct server *s)
{
	bool kvm;

	if (warden_accel(s->warden, &kvm, s->out.msg, sizeof(s->out.msg)) == 0)
		s->out.arg = kvm ? MSG_MACHINES_KVM : MSG_MACHINES_TCG;
}

/* 1: a layer has to be verified first. */
static int compare(struct server *s, const struct entry *to, int fds[MSG_FDS], struct err *e)
{
	const struct msg_diff *d = &s->in.q.diff;
	const struct entry *from = d->from ? find(s, d->from) : NULL;
	struct sandbox_spec older = s->in.q.spec;
	const struct warden_compare c = {
		.from = from ? from->sandbox : NULL,
		.to = to ? to->sandbox : NULL,
		.from_spec = &older,
		.to_spec = &s->in.q.spec,
		.flags = d->flags,
		.max = d->max,
	};
	int r;

	if (d->from && !from)
		return err_set(e, ERR_NOT_FOUND, -ESRCH, "no sandbox with this handle");
	older.layers = d->layers;
	memcpy(older.layer, d->layer, sizeof(older.layer));
	r = ready(s, &older, e);
	if (r == 0)
		r = ready(s, &s->in.q.spec, e);
	if (r == 0)
		r = warden_compare(s->warden, &c, s->passing, e);
	if (r == 0)
		fds[0] = s->passing[0];
	return r;
}

static int net(struct server *s, const struct entry *x, int fds[MSG_FDS], struct err *e)
{
	int r = warden_net(s->warden, x->sandbox, &s->in.q.spec.net, s->in.q.arg ? s->passing : NULL, e);

	if (r == 0)
		memcpy(fds, s->passing, STEER_SOCKETS * sizeof(int));
	return r;
}

/*
 * Executes the checked request in ->in. 1: it will be answered later. Descriptors for the reply stay the sandbox's,
 * except ->passing.
 */
static int act(struct server *s, int fds[MSG_FDS], struct err *e)
{
	enum warden_op op = (enum warden_op)s->in.q.op;
	struct entry *x = s->in.q.handle ? find(s, s->in.q.handle) : NULL;
	int r;

	if (s->in.q.handle && !x && op != WARDEN_NEXT)
		return err_set(e, ERR_NOT_FOUND, -ESRCH, "no sandbox with this handle");
	switch (op) {
	case WARDEN_HELLO:
		return 0;
	case WARDEN_CREATE:
		return create(s, fds, e);
	case WARDEN_ATTACH:
		return attach(s, x, fds, e);
	case WARDEN_DESTROY:
		return destroy(s, x, e);
	case WARDEN_STAT:
		return stat_one(s, x, e);
	case WARDEN_FREEZE:
		return warden_freeze(s->warden, x->sandbox, e);
	case WARDEN_THAW:
		return warden_thaw(s->warden, x->sandbox, e);
	case WARDEN_COUNTS:
		counts(s);
		return 0;
	case WARDEN_NEXT:
		next(s);
		return 0;
	case WARDEN_GROUP:
		return group(s, x, fds, e);
	case WARDEN_GROUP_KILL:
		return warden_group_kill(s->warden, x->sandbox, (uint32_t)s->in.q.arg, e);
	case WARDEN_GROUP_END:
		return warden_group_end(s->warden, x->sandbox, (uint32_t)s->in.q.arg, e);
	case WARDEN_SEAL:
		return seal(s, x, e);
	case WARDEN_UNSEAL:
		return (s->in.q.arg ? warden_put_aside : warden_unseal)(s->warden, s->in.q.id, e);
	case WARDEN_LAYERS:
		next_layer(s);
		return 0;
	case WARDEN_DIFF:
		return compare(s, x, fds, e);
	case WARDEN_NET:
		return net(s, x, fds, e);
	case WARDEN_SOCKET:
		r = warden_socket(s->warden, x->sandbox, (unsigned)s->in.q.arg, s->passing, e);
		fds[0] = r < 0 ? -1 : s->passing[0];
		return r;
	case WARDEN_WHO:
		return warden_who(s->warden, x->sandbox, &s->in.q.who, &s->out.they, e);
	case WARDEN_DENIED:
		r = warden_denied(s->warden, x->sandbox, s->out.denied, e);
		s->out.arg = r < 0 ? 0 : (uint64_t)r;
		return r < 0 ? r : 0;
	case WARDEN_SYSTEM:
		return warden_system(s->warden, x->sandbox, e);
	case WARDEN_MACHINES:
		machines(s);
		return 0;
	case WARDEN_DISKS:
		return warden_disk_next(s->warden, s->in.q.id, s->out.id, e);
	case WARDEN_DISK_REMOVE:
		return warden_disk_remove(s->warden, s->in.q.id, s->in.q.arg ? DISK_ASIDE : DISK_AWAY, e);
	case WARDEN_LIMITS:
		return warden_limits(s->warden, x->sandbox, &s->in.q.spec.limits, e);
	case WARDEN_OP_END:
		break;
	}
	return err_set(e, ERR_INVALID, -EINVAL, "request: unknown operation");
}

/*
 * Sends the reply to the request in ->in; a sandbox whose handle could not be sent is ended. Never waits: a daemon that does not
 * read its answers must not delay the others, or the end of the warden.
 */
static int reply(struct server *s, int sock, int r, const struct err *e, const int fds[MSG_FDS])
{
	size_t n = 0;

	while (n < MSG_FDS && fds[n] >= 0)
		n++;
	s->out.version = MSG_VERSION;
	s->out.result = r;
	if (r < 0) {
		s->out.what = err_what(e);
		memcpy(s->out.msg, e->msg, strlen(e->msg));
		memcpy(s->out.remedy, e->remedy, strlen(e->remedy));
	}
	r = sock < 0 ? -EPIPE : fd_send_now(sock, &s->out, sizeof(s->out), fds, n);
	fd_close_many(s->passing, MSG_FDS);
	if (s->in.q.op == WARDEN_CREATE && fds[0] >= 0) {
		struct entry *made = find(s, s->out.handle);

		/* No client has the handle, so none could ever end it. */
		if (r < 0)
			destroy(s, made, NULL);
		else
			warden_let_go(made->sandbox);
	}
	return r;
}

/* Serves one request: 1, or 0 when there is none (any more now). A negative result closes the connection. */
static int serve(struct server *s, int sock)
{
	int fds[MSG_FDS] = MSG_NO_FDS, r;
	struct err e = { 0 };
	size_t nfds = 0;
	ssize_t n;
	bool bad;

	memset(&s->in, 0, s->filled);
	n = fd_recv(sock, &s->in, sizeof(s->in), NULL, 0, &nfds);
	s->filled = n < 0 ? sizeof(s->in) : (size_t)n;
	s->brief = n == MSG_REQ_HEAD;
	if (n == -EAGAIN)
		return 0;
	if (n == 0 || (n < 0 && n != -EMSGSIZE))
		return -EPIPE;
	memset(&s->out, 0, sizeof(s->out));
	if (n == -EMSGSIZE) /* they are closed already */
		r = err_set(&e, ERR_INVALID, -EINVAL, "a request must not contain descriptors");
	else
		r = msg_check_req(&s->in.q, (size_t)n, &e);
	/* A connection with another protocol is closed; a refused spec is a normal answer. */
	bad = (n != (ssize_t)sizeof(s->in.q) && !s->brief) || r == -EPROTO || r == -EMSGSIZE;
	if (r == 0)
		r = act(s, fds, &e);
	if (r == 1)
		return 0;
	if (!bad) {
		s->out.op = s->in.q.op;
		s->out.seq = s->in.q.seq;
	}
	r = reply(s, sock, r, &e, fds);
	return bad ? -EPROTO : r < 0 ? r : 1;
}

static void drop(struct server *s, int i)
{
	if (s->peer[i] != s->opts->sock)
		fd_close(s->peer[i]);
	s->peer[i] = -1;
	if (s->slow[i])
		s->slow[i]->peer = -1;
	s->slow[i] = NULL;
}

/* Continues a request whose wait has succeeded. 1: it has to wait again. */
static int go_on(struct server *s, struct warden_done *d, int fds[MSG_FDS])
{
	int r;

	switch (d->what) {
	case WARDEN_DONE_LOOKED:
		/* If the client is gone, the result is not needed any more. */
		return s->at < 0 ? -EPIPE : act(s, fds, &d->e);
	case WARDEN_DONE_SEALED:
		s->out.arg = d->pause;
		s->out.cuts = d->cuts;
		tell_layer(s, &d->layer);
		return 0;
	case WARDEN_DONE_RESTORED:
		r = s->at < 0 ? -EPIPE : make_room(s, &d->e);
		if (r == 0)
			made(s, d->sandbox, fds);
		else
			warden_destroy(s->warden, d->sandbox, NULL);
		return r;
	}
	return -EINVAL;
}

/* Answers, or continues, a request that a worker or an agent has finished. */
static void finish_one(struct server *s, struct warden_done *d)
{
	struct slow *x = d->tag;
	int fds[MSG_FDS] = MSG_NO_FDS, r = d->result;
	const int at = x->peer;

	if (at >= 0)
		s->slow[at] = NULL;
	s->in.q = x->q;
	s->filled = sizeof(s->in);
	s->brief = false;
	free(x);
	memset(&s->out, 0, sizeof(s->out));
	s->at = at;
	if (r == 0)
		r = go_on(s, d, fds);
	if (r == 1)
		return;
	s->out.op = s->in.q.op;
	s->out.seq = s->in.q.seq;
	if (at >= 0 && reply(s, s->peer[at], r, &d->e, fds) < 0)
		drop(s, at);
}

static void finish(struct server *s)
{
	struct warden_done d;

	while (warden_done(s->warden, &d))
		finish_one(s, &d);
}

/* Serves requests in order, but only some at a time, since other connections wait, too. */
static int serve_some(struct server *s, int at)
{
	const int sock = s->peer[at];
	int r = 1;

	s->at = at;
	for (unsigned i = 0; r == 1 && i < AT_ONCE && !s->slow[s->at]; i++)
		r = serve(s, sock);
	return r;
}

static bool welcome(const struct server *s, int sock)
{
	struct ucred who = { 0 };
	socklen_t len = sizeof(who);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
		return false;
	if (who.uid == 0 || who.uid == s->opts->uid)
		return true;
	log_warn("user %u may not connect to this warden", who.uid);
	return false;
}

static int free_place(const struct server *s)
{
	for (int i = 0; i < PEERS; i++)
		if (s->peer[i] < 0)
			return i;
	return -1;
}

static void accept_one(struct server *s)
{
	int place = free_place(s), fd = accept4(s->opts->sock, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0 && place >= 0 && welcome(s, fd))
		s->peer[place] = fd;
	else
		fd_close(fd);
}

static void destroy_all(struct server *s)
{
	struct warden_sandbox *x;
	struct err e;

	while ((x = warden_next(s->warden, NULL)))
		if (warden_destroy(s->warden, x, &e) < 0)
			log_warn("%s", e.msg);
}

static int loop(struct server *s, struct err *e)
{
	struct pollfd p[PEERS + 5];

	for (;;) {
		p[PEERS] = (struct pollfd){ .fd = s->opts->stop, .events = POLLIN };
		p[PEERS + 1] = (struct pollfd){
			.fd = s->listening && free_place(s) >= 0 ? s->opts->sock : -1,
			.events = POLLIN,
		};
		p[PEERS + 2] = (struct pollfd){ .fd = s->opts->stop_all, .events = POLLIN };
		p[PEERS + 3] = (struct pollfd){ .fd = s->opts->parent, .events = POLLIN };
		for (int i = 0; i < PEERS; i++)
			p[i] = (struct pollfd){ .fd = s->slow[i] ? -1 : s->peer[i], .events = POLLIN };
		p[PEERS + 4] = (struct pollfd){ .fd = warden_done_fd(s->warden), .events = POLLIN };
		if (poll(p, PEERS + 5, -1) < 0) {
			if (errno == EINTR)
				continue;
			return err_sys(e, ERR_INTERNAL, -errno, "poll");
		}
		if (p[PEERS + 2].revents)
			destroy_all(s);
		if (p[PEERS].revents || p[PEERS + 2].revents || p[PEERS + 3].revents)
			return 0;
		if (p[PEERS + 4].revents)
			finish(s);
		for (int i = 0; i < PEERS; i++)
			if (p[i].revents && serve_some(s, i) < 0)
				drop(s, i);
		if (p[PEERS + 1].revents)
			accept_one(s);
	}
}

static int open_sock(struct server *s, struct err *e)
{
	int type = 0, listening = 0;
	socklen_t len = sizeof(int);

	if (getsockopt(s->opts->sock, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_SEQPACKET)
		return err_set(e, ERR_INVALID, -EINVAL, "descriptor %d is not a SOCK_SEQPACKET socket", s->opts->sock);
	len = sizeof(int);
	if (getsockopt(s->opts->sock, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) < 0)
		return err_sys(e, ERR_INVALID, -errno, "descriptor %d", s->opts->sock);
	s->listening = listening;
	if (!listening)
		s->peer[0] = s->opts->sock;
	return fd_set_nonblock(s->opts->sock);
}

int server_run(const struct server_opts *o, struct err *e)
{
	AUTO_FREE struct server *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a server");
	s->opts = o;
	memset(s->passing, 0xff, sizeof(s->passing)); /* -1 */
	for (int i = 0; i < PEERS; i++)
		s->peer[i] = -1;
	r = open_sock(s, e);
	if (r == 0)
		r = warden_new(&o->warden, &s->warden, e);
	if (r < 0)
		return r;
	for (struct warden_sandbox *x = warden_next(s->warden, NULL); r == 0 && x; x = warden_next(s->warden, x))
		r = add(s, x, e);
	if (r == 0)
		r = loop(s, e);
	warden_free(s->warden); /* ends all work under way */
	for (int i = 0; i < PEERS; i++) {
		free(s->slow[i]);
		s->slow[i] = NULL;
		drop(s, i);
	}
	free(s->table);
	return r;
}
