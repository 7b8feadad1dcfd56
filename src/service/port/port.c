/* Connects to servers inside sandboxes. */
#include "service/port/port.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/link/warden_link.h"
#include "service/sandbox/struct.h"
#include "tier/tiers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <sys/socket.h>

#define DIAL_MS 10000

/* --- access --- */

struct port {
	struct port *next;
	uint16_t number;
	bool public, has_token;
	uint8_t hash[32]; /* of the token's text */
	uint64_t created_ns;
};

static struct port *port_find(const struct sandbox *b, uint16_t number)
{
	struct port *p = b->ports;

	while (p && p->number != number)
		p = p->next;
	return p;
}

static struct port_view view_of(const struct port *p)
{
	return (struct port_view){ p->number, p->public, p->has_token, p->created_ns };
}

struct port_view port_view(const struct sandbox *b, uint16_t number)
{
	const struct port *p = port_find(b, number);

	return p ? view_of(p) : (struct port_view){ .number = number };
}

unsigned ports_view(const struct sandbox *b, struct port_view ret[PORTS_MAX])
{
	unsigned n = 0;

	for (const struct port *p = b->ports; p && n < PORTS_MAX; p = p->next)
		ret[n++] = view_of(p);
	return n;
}

static int store(const struct sandbox *b, const struct port *p, struct err *e)
{
	struct port_row row = { .sandbox = b->id, .port = p->number, .public = p->public, .created_ns = p->created_ns };

	if (p->has_token)
		memcpy(row.token, p->hash, sizeof(row.token));
	return ports_put(b->service->db, &row, e);
}

static void note(struct sandbox *b, const struct who *who, const char *kind, uint16_t number, const struct port *p)
{
	struct audit_rec rec = who_rec(who, kind);
	struct json *j;

	rec.sandbox = b->id;
	rec.tenant = b->tenant->id;
	j = audit_begin(b->service->audit, &rec);
	jout_u64(j, "port", number);
	if (p) {
		jout_bool(j, "public", p->public);
		jout_bool(j, "has_token", p->has_token); /* `token` is whose call it was */
	}
	audit_end(b->service->audit, NULL);
	turn_dirty(b->service->turn);
}

static int room(const struct sandbox *b, struct err *e)
{
	unsigned n = 0;

	for (const struct port *p = b->ports; p; p = p->next)
		n++;
	if (n < PORTS_MAX)
		return 0;
	err_set(e, WHY_LIMIT, -EDQUOT, "sandbox '%s' has reached its limit of %u public ports", b->request->name, n);
	err_remedy(e, "DELETE a port that is not needed");
	return -EDQUOT;
}

int port_set(struct sandbox *b, const struct who *who, uint16_t number, const struct port_request *request,
	     char text[TOKEN_TEXT_MAX], struct port_view *ret, struct err *e)
{
	struct port *old = port_find(b, number), *p = old;
	struct port new = { .number = number, .created_ns = clock_real_ns() };
	int r = old ? 0 : room(b, e);

	text[0] = '\0';
	if (old)
		new = *old;
	if (request->public)
		new.public = *request->public;
	if (request->token) {
		new.has_token = *request->token;
		memset(new.hash, 0, sizeof(new.hash));
	}
	if (r == 0 && request->token && *request->token) {
		r = token_text_new(PORT_TOKEN_PREFIX, text, e);
		if (r == 0)
			token_text_hash(text, new.hash);
	}
	if (r == 0 && !old) {
		p = calloc(1, sizeof(*p));
		r = p ? 0 : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a port");
	}
	if (r == 0)
		r = store(b, &new, e);
	if (r < 0) {
		OPENSSL_cleanse(text, TOKEN_TEXT_MAX);
		if (p != old)
			free(p);
		return r;
	}
	if (!old) {
		new.next = b->ports;
		b->ports = p;
	}
	*p = new;
	note(b, who, "port.set", number, p);
	*ret = view_of(p);
	return 0;
}

int port_remove(struct sandbox *b, const struct who *who, uint16_t number, struct err *e)
{
	struct port **at = &b->ports, *p;
	int r;

	while (*at && (*at)->number != number)
		at = &(*at)->next;
	if (!*at)
		return 0;
	r = ports_delete(b->service->db, b->id, number, e);
	if (r < 0)
		return r;
	p = *at;
	*at = p->next;
	free(p);
	note(b, who, "port.remove", number, NULL);
	return 0;
}

bool port_token_is(const struct sandbox *b, uint16_t number, const char *text)
{
	const struct port *p = port_find(b, number);
	uint8_t hash[32];

	if (!p || !p->has_token)
		return false;
	token_text_hash(text, hash);
	return !CRYPTO_memcmp(hash, p->hash, sizeof(hash));
}

static int on_row(void *arg, const struct port_row *row)
{
	static const uint8_t none[32];
	struct service *s = arg;
	struct sandbox *b = map_get(&s->sandboxes, row->sandbox);
	struct port *p;

	if (!b)
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	*p = (struct port){ .next = b->ports,
			    .number = row->port,
			    .public = row->public,
			    .has_token = memcmp(row->token, none, sizeof(none)) != 0,
			    .created_ns = row->created_ns };
	memcpy(p->hash, row->token, sizeof(p->hash));
	b->ports = p;
	return 0;
}

int ports_load(struct service *s, struct err *e)
{
	return ports_each(s->db, on_row, s, e);
}

void ports_free(struct sandbox *b)
{
	struct port *p;

	while ((p = b->ports)) {
		b->ports = p->next;
		free(p);
	}
}

/* --- a connection --- */

struct port_dial {
	struct sandbox *sandbox; /* referenced */
	uint16_t number;
	bool v6; /* the second try */
	bool asking; /* a request to the warden is pending */
	port_dialed_fn *fn; /* NULL: it was cancelled */
	void *arg;
	int fd;
	uv_poll_t *poll;
	uv_timer_t *timer;
};

static void free_handle(uv_handle_t *h)
{
	free(h);
}

static void stop_poll(struct port_dial *d)
{
	if (!d->poll)
		return;
	uv_poll_stop(d->poll);
	uv_close((uv_handle_t *)TAKE_PTR(d->poll), free_handle);
}

static void dial_free(struct port_dial *d)
{
	stop_poll(d);
	if (d->timer)
		uv_close((uv_handle_t *)TAKE_PTR(d->timer), free_handle);
	fd_close(TAKE_FD(d->fd));
	/* The warden's answer still finds it. */
	if (d->asking)
		return;
	sandbox_unref(d->sandbox);
	free(d);
}

static void finish(struct port_dial *d, const struct err *e)
{
	port_dialed_fn *fn = d->fn;
	void *arg = d->arg;
	int fd = e ? -1 : TAKE_FD(d->fd);

	d->fn = NULL;
	dial_free(d);
	if (fn)
		fn(arg, fd, e);
	else
		fd_close(fd);
}

static void ask(struct port_dial *d);

static void refused(struct port_dial *d, int errnum)
{
	struct err e = { 0 };

	if (!d->v6) {
		stop_poll(d);
		fd_close(TAKE_FD(d->fd));
		d->v6 = true;
		ask(d);
		return;
	}
	err_set(&e, WHY_PORT_CLOSED, -errnum, "no server listens on port %u in sandbox '%s'", d->number,
		d->sandbox->request->name);
	err_remedy(&e, "start the server inside, on 127.0.0.1, ::1 or all addresses");
	finish(d, &e);
}

static void on_connected(uv_poll_t *h, int status, int events)
{
	struct port_dial *d = h->data;
	socklen_t len = sizeof(int);
	int why = 0;

	(void)events;
	if (getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &why, &len) < 0)
		why = errno;
	if (!why && status < 0)
		why = -status;
	stop_poll(d);
	if (why)
		refused(d, why);
	else
		finish(d, NULL);
}

static int watch(struct port_dial *d, int events, uv_poll_cb fn)
{
	int r;

	d->poll = malloc(sizeof(*d->poll));
	r = d->poll ? uv_poll_init(d->sandbox->service->loop, d->poll, d->fd) : -ENOMEM;
	if (r < 0) {
		free(TAKE_PTR(d->poll));
		return r;
	}
	d->poll->data = d;
	return uv_poll_start(d->poll, events, fn);
}

static int start(struct port_dial *d)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(d->number) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(d->number) };
	int r, one = 1;

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	in6.sin6_addr = in6addr_loopback;
	r = fd_set_nonblock(d->fd);
	if (r < 0)
		return r;
	(void)setsockopt(d->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(d->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	if (d->v6)
		r = connect(d->fd, (const struct sockaddr *)&in6, sizeof(in6));
	else
		r = connect(d->fd, (const struct sockaddr *)&in, sizeof(in));
	if (r < 0 && errno != EINPROGRESS)
		return -errno;
	return watch(d, UV_WRITABLE, on_connected);
}

/* --- into a machine: its agent's link carries it, and says in the first byte how it went --- */

static void on_said(uv_poll_t *h, int status, int events)
{
	struct port_dial *d = h->data;
	uint8_t why = 0;
	ssize_t n = status < 0 ? 0 : recv(d->fd, &why, 1, MSG_DONTWAIT);

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	stop_poll(d);
	if (n == 1 && !why)
		finish(d, NULL);
	else
		refused(d, n == 1 ? why : ECONNRESET);
}

static int reach_in(struct port_dial *d)
{
	const struct frame_connect x = { .family = d->v6 ? 6 : 4, .port = d->number };
	int pair[2], r;
	uint8_t out[16];
	long len = frame_connect_encode(&x, out, sizeof(out));

	if (len < 0)
		return (int)len;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -errno;
	d->fd = pair[0];
	r = agent_link_send(&d->sandbox->link, FRAME_CONNECT, 0, out, (size_t)len, &pair[1], 1);
	fd_close(pair[1]);
	return r < 0 ? r : watch(d, UV_READABLE, on_said);
}

static void on_broken(uv_timer_t *t)
{
	struct port_dial *d = t->data;
	struct err e = { 0 };

	err_set(&e, WHY_SANDBOX_LOST, -EPIPE, "sandbox '%s' is not reachable at the moment", d->sandbox->request->name);
	err_remedy(&e, "try again");
	finish(d, &e);
}

static void on_socket(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct port_dial *d = arg;
	struct err why = { 0 };

	d->asking = false;
	if (!d->fn) {
		dial_free(d);
		return;
	}
	if (r == 0 && a->nfds) {
		d->fd = a->fds[0];
		a->fds[0] = -1;
		r = start(d);
		if (r < 0)
			refused(d, -r);
		return;
	}
	if (e && r < 0)
		why = *e;
	else
		err_set(&why, ERR_INTERNAL, -EPROTO, "the warden sent no socket");
	finish(d, &why);
}

static void ask(struct port_dial *d)
{
	if (tier_is_machine(d->sandbox->request->spec->flags)) {
		if (reach_in(d) < 0)
			uv_timer_start(d->timer, on_broken, 0, 0); /* not from within the call that asks */
		return;
	}
	d->asking = true;
	warden_link_call(d->sandbox->service->warden, WARDEN_SOCKET, d->sandbox->handle, d->v6 ? 6 : 4, NULL, on_socket,
			 d);
}

static void on_late(uv_timer_t *t)
{
	struct port_dial *d = t->data;
	struct err e = { 0 };

	err_set(&e, WHY_PORT_SILENT, -ETIMEDOUT, "port %u in sandbox '%s' did not accept a connection within %d s",
		d->number, d->sandbox->request->name, DIAL_MS / 1000);
	err_remedy(&e, "the server inside may be busy: try again");
	finish(d, &e);
}

struct port_dial *port_dial(struct sandbox *b, uint16_t number, port_dialed_fn *fn, void *arg)
{
	struct port_dial *d = malloc(sizeof(*d));
	uv_timer_t *t = malloc(sizeof(*t));

	if (!d || !t) {
		free(d);
		free(t);
		return NULL;
	}
	*d = (struct port_dial){ .sandbox = b, .number = number, .fn = fn, .arg = arg, .fd = -1, .timer = t };
	sandbox_ref(b);
	uv_timer_init(b->service->loop, t);
	t->data = d;
	uv_timer_start(t, on_late, DIAL_MS, 0);
	ask(d);
	return d;
}

void port_dial_cancel(struct port_dial *d)
{
	d->fn = NULL;
	dial_free(d);
}
