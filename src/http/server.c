/* Listeners, and the list of connections. */
#include "http/conn.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/base.h"
#include "base/sys.h"

#define ACCEPT_AT_ONCE 64
#define ACCEPT_AGAIN_MS 100
#define CONNS_MAX 10000U

/* ---- the clock -------------------------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *t)
{
	struct http_server *s = t->data;
	uint64_t now = uv_now(s->loop), next = 0;

	s->timer_at = 0;
	for (unsigned k = 0; k < WAIT_KINDS; k++) {
		struct wait *w;

		while ((w = TAILQ_FIRST(&s->waits[k])) && w->until <= now) {
			wait_off(w);
			conn_expired(w->conn, (enum wait_kind)k);
		}
	}
	for (unsigned k = 0; k < WAIT_KINDS; k++) {
		const struct wait *w = TAILQ_FIRST(&s->waits[k]);

		if (w && (!next || w->until < next))
			next = w->until;
	}
	if (next)
		server_alarm(s, next);
}

void server_alarm(struct http_server *s, uint64_t at)
{
	uint64_t now = uv_now(s->loop);

	if (s->freed)
		return;
	s->timer_at = at;
	uv_timer_start(&s->timer, on_timer, at > now ? at - now : 0, 0);
}

/* ---- connections in --------------------------------------------------------------------------------------------- */

static void describe(int fd, const struct sockaddr_storage *a, char *peer, size_t size, int64_t *ret_uid)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	*ret_uid = -1;
	snprintf(peer, size, "?");
	if (a->ss_family == AF_INET) {
		inet_ntop(AF_INET, &((const struct sockaddr_in *)a)->sin_addr, peer, (socklen_t)size);
	} else if (a->ss_family == AF_INET6) {
		const struct in6_addr *in6 = &((const struct sockaddr_in6 *)a)->sin6_addr;

		if (IN6_IS_ADDR_V4MAPPED(in6))
			inet_ntop(AF_INET, &in6->s6_addr[12], peer, (socklen_t)size);
		else
			inet_ntop(AF_INET6, in6, peer, (socklen_t)size);
	} else if (a->ss_family == AF_UNIX) {
		snprintf(peer, size, "unix");
		if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
			*ret_uid = cred.uid;
	}
}

static void on_accept(uv_poll_t *h, int status, int events);
static void on_again(uv_timer_t *t);

/* Listens while there is room. */
static void listen_again(struct http_server *s)
{
	bool room = s->n_conns < s->o.conns_max && !s->scarce;

	for (struct listener *l = s->listeners; l; l = l->next) {
		if (l->on == room || s->draining || s->freed)
			continue;
		l->on = room;
		if (room)
			uv_poll_start(&l->poll, UV_READABLE, on_accept);
		else
			uv_poll_stop(&l->poll);
	}
	if (s->n_conns >= s->o.conns_max && !s->draining && !s->freed && !uv_is_active((uv_handle_t *)&s->again))
		uv_timer_start(&s->again, on_again, ACCEPT_AGAIN_MS, 0);
}

/*
 * Closes the connections that were idle for longest when new ones wait. Otherwise a client that holds the maximum of
 * connections would block all others.
 */
static void make_room(struct http_server *s)
{
	bool wanted = false;

	for (const struct listener *l = s->listeners; l && !wanted; l = l->next) {
		struct pollfd p = { .fd = l->fd, .events = POLLIN };

		wanted = poll(&p, 1, 0) == 1;
	}
	for (unsigned i = 0; wanted && i < ACCEPT_AT_ONCE && !TAILQ_EMPTY(&s->waits[WAIT_IDLE]); i++)
		conn_kill(TAILQ_FIRST(&s->waits[WAIT_IDLE])->conn);
}

static void on_again(uv_timer_t *t)
{
	struct http_server *s = t->data;

	s->scarce = false;
	if (s->n_conns >= s->o.conns_max)
		make_room(s);
	listen_again(s);
}

static void on_accept(uv_poll_t *h, int status, int events)
{
	struct listener *l = h->data;
	struct http_server *s = l->server;

	(void)status;
	(void)events;
	for (unsigned i = 0; i < ACCEPT_AT_ONCE && s->n_conns < s->o.conns_max; i++) {
		struct sockaddr_storage a = { 0 };
		socklen_t len = sizeof(a);
		char peer[46];
		int64_t uid;
		int fd = accept4(l->fd, (struct sockaddr *)&a, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			/*
			 * Out of descriptors or memory: it stays in the backlog, and asking again at once would spin.
			 */
			s->scarce = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
			if (s->scarce)
				uv_timer_start(&s->again, on_again, ACCEPT_AGAIN_MS, 0);
			break;
		}
		describe(fd, &a, peer, sizeof(peer), &uid);
		if (conn_new(s, fd, l->tls, peer, uid) < 0)
			fd_close(fd);
	}
	listen_again(s);
}

/* ---- life ------------------------------------------------------------------------------------------------------- */

static void server_end(struct http_server *s)
{
	while (s->spare) {
		struct http_req *q = s->spare;

		s->spare = q->next;
		buf_done(&q->set);
		free(q);
	}
	tls_free(s->tls);
	free(s);
}

static void check_drained(struct http_server *s)
{
	void (*done)(void *arg) = s->drained;

	if (!s->draining || s->n_conns || !done)
		return;
	s->drained = NULL;
	done(s->drained_arg);
}

void server_gone(struct http_server *s)
{
	if (s->freed && !s->handles) {
		server_end(s);
		return;
	}
	if (!s->freed)
		listen_again(s);
	check_drained(s);
}

static void closed(uv_handle_t *h)
{
	struct http_server *s = h->data;

	s->handles--;
	server_gone(s);
}

static void listener_closed(uv_handle_t *h)
{
	struct listener *l = h->data;
	struct http_server *s = l->server;

	free(l);
	s->handles--;
	server_gone(s);
}

static void listeners_close(struct http_server *s)
{
	while (s->listeners) {
		struct listener *l = s->listeners;

		s->listeners = l->next;
		uv_close((uv_handle_t *)&l->poll, listener_closed);
		fd_close(TAKE_FD(l->fd));
	}
}

static void on_kick(uv_idle_t *h)
{
	struct http_server *s = h->data;
	struct conns now;

	/* What is put off meanwhile has its turn in the next round, behind the loop's other work. */
	TAILQ_INIT(&now);
	TAILQ_CONCAT(&now, &s->ready, ready_link);
	while (!TAILQ_EMPTY(&now)) {
		struct conn *c = TAILQ_FIRST(&now);

		TAILQ_REMOVE(&now, c, ready_link);
		c->ready = false;
		conn_turn(c);
	}
	check_drained(s);
	if (!TAILQ_EMPTY(&s->ready))
		return;
	uv_idle_stop(&s->kick);
	if (s->freed && !s->n_conns && !uv_is_closing((uv_handle_t *)&s->kick)) {
		uv_close((uv_handle_t *)&s->kick, closed);
		uv_close((uv_handle_t *)&s->timer, closed);
		uv_close((uv_handle_t *)&s->again, closed);
	}
}

void server_kick(struct http_server *s)
{
	if (!uv_is_active((uv_handle_t *)&s->kick))
		uv_idle_start(&s->kick, on_kick);
}

static void set_waits(struct http_server *s)
{
	const struct http_opts *o = &s->o;

	for (unsigned k = 0; k < WAIT_KINDS; k++)
		TAILQ_INIT(&s->waits[k]);
	s->wait_ms[WAIT_HEAD] = o->head_ms ? o->head_ms : 10000;
	s->wait_ms[WAIT_BODY] = o->body_ms ? o->body_ms : 25000;
	s->wait_ms[WAIT_IDLE] = o->idle_ms ? o->idle_ms : 300000;
	s->wait_ms[WAIT_SEND] = o->send_ms ? o->send_ms : 120000;
	s->wait_ms[WAIT_LINGER] = 2000;
	s->wait_ms[WAIT_SSE] = 15000;
	s->wait_ms[WAIT_FIN] = 30000;
	s->wait_ms[WAIT_PING] = 25000;
}

int http_server_new(const struct http_opts *o, struct http_server **ret, struct err *e)
{
	struct http_server *s = calloc(1, sizeof(*s));
	uint32_t random = 0;
	int r;

	if (!s)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "HTTP server");
	s->loop = o->loop;
	s->o = *o;
	if (!s->o.conns_max)
		s->o.conns_max = CONNS_MAX;
	if (o->tls_cert) {
		r = tls_new(o->tls_cert, o->tls_key, &s->tls, e);
		if (r < 0) {
			free(s);
			return r;
		}
	}
	(void)sys_getrandom(&random, sizeof(random), 0);
	snprintf(s->id_prefix, sizeof(s->id_prefix), "%08x-", random);
	TAILQ_INIT(&s->conns);
	TAILQ_INIT(&s->ready);
	set_waits(s);
	uv_timer_init(s->loop, &s->timer);
	uv_timer_init(s->loop, &s->again);
	uv_idle_init(s->loop, &s->kick);
	s->timer.data = s->again.data = s->kick.data = s;
	s->handles = 3;
	*ret = s;
	return 0;
}

int http_server_listen(struct http_server *s, int fd, bool tls, struct err *e)
{
	struct listener *l;
	int r;

	if (tls && !s->tls)
		return err_set(e, ERR_INVALID, -EINVAL, "a TLS listener needs a certificate");
	l = calloc(1, sizeof(*l));
	if (!l)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "listener");
	l->server = s;
	l->fd = fd;
	l->tls = tls;
	l->poll.data = l;
	r = fd_set_nonblock(fd);
	if (r >= 0)
		r = uv_poll_init(s->loop, &l->poll, fd);
	if (r < 0) {
		free(l);
		return err_sys(e, ERR_INTERNAL, r, "listen");
	}
	l->poll.data = l;
	s->handles++;
	l->next = s->listeners;
	s->listeners = l;
	listen_again(s);
	return 0;
}

void http_server_drain(struct http_server *s, void (*done)(void *arg), void *arg)
{
	struct conn *c;

	s->draining = true;
	s->drained = done;
	s->drained_arg = arg;
	listeners_close(s);
	TAILQ_FOREACH(c, &s->conns, link)
	conn_kick(c);
	server_kick(s);
}

void http_server_free(struct http_server *s)
{
	struct conn *c;

	if (!s || s->freed)
		return;
	s->drained = NULL;
	s->freed = true;
	listeners_close(s);
	TAILQ_FOREACH(c, &s->conns, link)
	conn_kill(c);
	server_kick(s);
}

unsigned http_server_conns(const struct http_server *s)
{
	return s->n_conns;
}
