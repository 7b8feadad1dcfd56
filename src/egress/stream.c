/* A connection of a sandbox, from its acceptance to its end. */
#include "egress/stream.h"
#include "base/base.h"
#include "egress/refuse.h"
#include "egress/report.h"
#include "egress/tenant.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define IDLE (3600 * LOOP_SEC)
#define IDLE_HALF (600 * LOOP_SEC) /* one side has ended */
#define LOOK_PATIENCE (15 * LOOP_SEC)
#define ASK_PATIENCE (30 * LOOP_SEC) /* for a proxy's client to send its request */
#define PROXY_HTTP 3128
#define PROXY_SOCKS 1080

/* ---- ready and not ----------------------------------------------------------------------------------------------- */

void stream_queue(struct stream *s)
{
	struct sandbox *b = s->sandbox;

	if (s->ready_prev)
		return;
	s->ready_next = NULL;
	s->ready_prev = b->ready_last;
	*b->ready_last = s;
	b->ready_last = &s->ready_next;
	sandbox_queue(b);
}

static void unqueue(struct stream *s)
{
	struct sandbox *b = s->sandbox;

	if (!s->ready_prev)
		return;
	*s->ready_prev = s->ready_next;
	if (s->ready_next)
		s->ready_next->ready_prev = s->ready_prev;
	else
		b->ready_last = s->ready_prev;
	s->ready_prev = NULL;
}

static void note(struct relay_side *side, uint32_t events)
{
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		side->in = true;
	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		side->hup = true;
	if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		side->out = true;
}

static void client_ready(struct loop_fd *f, uint32_t events)
{
	struct stream *s = (struct stream *)((char *)f - offsetof(struct stream, a));

	note(&s->client, events);
	room_touch(s->sandbox);
	if (s->client.in || s->in.in_pipe || s->in.len)
		stream_queue(s);
}

static void server_ready(struct loop_fd *f, uint32_t events)
{
	struct stream *s = (struct stream *)((char *)f - offsetof(struct stream, b));

	note(&s->server, events);
	room_touch(s->sandbox);
	if (s->server.in || s->out.in_pipe || s->out.len)
		stream_queue(s);
}

static void timer_due(struct loop_timer *t)
{
	struct stream *s = (struct stream *)((char *)t - offsetof(struct stream, timer));
	struct loop *l = &s->sandbox->g->loop;
	uint64_t idle = s->out.eof || s->in.eof ? IDLE_HALF : IDLE;

	if (s->stage == STREAM_REFUSED) {
		refuse_due(s);
		return;
	}
	if ((s->looking && s->out.len) || s->stage < STREAM_AIMED) {
		refuse(s, EGRESS_V_DENIED, "the first bytes did not arrive in time");
		return;
	}
	if (l->now - s->last < idle && loop_timer_set(l, t, s->last + idle) == 0)
		return;
	stream_end(s, EGRESS_V_CUT, "the connection was idle for too long");
}

/* ---- end --------------------------------------------------------------------------------------------------------- */

static void soft_close(struct stream *s, struct loop_fd *f)
{
	static const struct linger soft = { 0, 0 };

	if (f->fd < 0)
		return;
	setsockopt(f->fd, SOL_SOCKET, SO_LINGER, &soft, sizeof(soft));
	loop_close(&s->sandbox->g->loop, f);
}

static void report(struct stream *s, uint8_t verdict, const char *reason)
{
	char rule[NET_RULE_TEXT], secrets[EGRESS_TEXT_MAX] = "";
	struct sandbox *b = s->sandbox;
	struct egress_stream e = { .out = s->bytes_out,
				   .in = s->bytes_in,
				   .usec = (b->g->loop.now - s->began) / 1000,
				   .verdict = verdict,
				   .family = s->addr.family,
				   .port = s->port,
				   .requests = s->requests,
				   .name = s->name ? s->name->text : "",
				   .rule = rule,
				   .reason = reason,
				   .secrets = secrets };

	memcpy(e.addr, s->addr.addr, sizeof(e.addr));
	if (b->policy->mode == EGRESS_OBSERVE)
		policy_wish(e.name, &s->addr, s->port, rule);
	else
		policy_rule_text(b->policy, s->rule, rule);
	if (s->secrets && b->inject && s->name) {
		inject_secrets(b->inject, s->name->text, s->port, true, secrets, sizeof(secrets));
		if (!secrets[0])
			inject_secrets(b->inject, s->name->text, s->port, false, secrets, sizeof(secrets));
	}
	report_stream(b, &e);
}

void stream_end(struct stream *s, uint8_t verdict, const char *reason)
{
	struct sandbox *b = s->sandbox;
	struct loop *l = &b->g->loop;

	if (s->refused)
		refuse_free(s);
	else if (s->stage == STREAM_AIMED)
		report(s, verdict, reason);
	unqueue(s);
	loop_timer_stop(l, &s->timer);
	resolve_cancel(s->query);
	upstream_cancel(s->upstream);
	if (s->mitm)
		mitm_free(s->mitm);
	if (verdict == EGRESS_V_OK && !s->broke) {
		soft_close(s, &s->a);
		soft_close(s, &s->b);
	} else {
		if (s->a.fd >= 0)
			loop_close(l, &s->a);
		if (s->b.fd >= 0)
			loop_close(l, &s->b);
	}
	s->client.fd = s->server.fd = -1;
	relay_half_done(&b->g->relay, &s->out);
	relay_half_done(&b->g->relay, &s->in);
	free(s->http);
	free(s->late);
	free(s->retry);
	if (s->name) {
		s->name->streams--;
		s->name->used = (uint32_t)(l->now / LOOP_SEC);
	}
	if (s->prev)
		s->prev->next = s->next;
	else
		b->streams = s->next;
	if (s->next)
		s->next->prev = s->prev;
	b->meter.counts.concurrent--;
	b->tree->meter.counts.concurrent--;
	b->tenant->streams--;
	b->g->streams--;
	report_counts(b);
	loop_bury(l, s);
}

void stream_broke(struct stream *s)
{
	s->broke = true;
	stream_end(s, EGRESS_V_OK, "the sandbox closed the connection early");
}

/* ---- moving bytes ------------------------------------------------------------------------------------------------ */

/* How many bytes may be read for that direction now. 0: the stream has ended, or waits for its sandbox's timer. */
static size_t allowance(struct stream *s, bool out)
{
	struct sandbox *b = s->sandbox;
	uint64_t wait, n;
	const char *why;

	n = meter_bytes(&b->meter, &b->tree->meter, out, b->g->loop.now, &wait, &why);
	if (why) {
		stream_end(s, EGRESS_V_CUT, why);
		return 0;
	}
	if (!n) {
		b->late = loop_timer_set(&b->g->loop, &b->timer, b->g->loop.now + wait) == 0;
		stream_queue(s);
	}
	return n < STREAM_A_TURN ? (size_t)n : STREAM_A_TURN;
}

static void count(struct stream *s, bool out, size_t n)
{
	if (!n)
		return;
	meter_used(&s->sandbox->meter, out, n);
	meter_used(&s->sandbox->tree->meter, out, n);
	if (out)
		s->bytes_out += n;
	else
		s->bytes_in += n;
	s->last = s->sandbox->g->loop.now;
	s->sandbox->g->sched_batch.moved += n;
	report_counts(s->sandbox);
}

/* 0: continue; 1: the stream is over or waits. */
static int pump_out(struct stream *s, bool *ret_more)
{
	uint64_t plain = UINT64_MAX;
	size_t n = 0, most;
	enum relay_state state;

	if (s->http) {
		uint32_t before = s->out.pass;

		stream_requests(s);
		if (s->stage != STREAM_AIMED || s->a.fd < 0 || s->mitm)
			return 1;
		count(s, true, s->out.pass - before);
		plain = s->out.len ? 0 : request_plain(&s->http->request);
		s->out.held = !plain;
	} else if (s->late) {
		uint32_t before = s->out.pass;

		stream_late(s);
		if (s->stage != STREAM_AIMED || s->a.fd < 0)
			return 1;
		count(s, true, s->out.pass - before);
		plain = s->late ? 0 : UINT64_MAX;
		s->out.held = !plain;
	} else if (s->retry) {
		uint32_t before = s->out.pass;

		stream_retry(s);
		if (s->stage != STREAM_AIMED || s->a.fd < 0)
			return 1;
		count(s, true, s->out.pass - before);
		plain = s->retry ? 0 : UINT64_MAX;
		s->out.held = !plain;
	}
	if (!s->up)
		return 0;
	most = s->stopped ? 0 : allowance(s, true);
	if (!most && !s->stopped)
		return 1;
	state = relay_pump(&s->sandbox->g->relay, &s->out, &s->client, &s->server, most, s->stopped ? 0 : plain, &n);
	count(s, true, n);
	if (s->http && n)
		request_passed(&s->http->request, n);
	/* A parser stops before all bytes are read, so there is more to do, unless the server does not accept bytes. */
	if (state == RELAY_MORE || (s->client.in && !s->stopped && !s->out.broken && !s->out.pass && !s->out.in_pipe &&
				    ((s->late && !s->out.len) || (s->retry && s->retry_asked) ||
				     (s->http && !request_waits(&s->http->request)))))
		*ret_more = true;
	if (state == RELAY_SRC_BROKE) {
		stream_broke(s);
		return 1;
	}
	/* The server takes no more; what it said before is still for the client. */
	return 0;
}

static int pump_in(struct stream *s, bool *ret_more)
{
	size_t n = 0, most = allowance(s, false);
	enum relay_state state;

	if (!most)
		return 1;
	if (s->retry && !s->retry_asked) {
		uint32_t before = s->out.pass;

		if (!stream_retry_server(s))
			return 0;
		count(s, true, s->out.pass - before);
		*ret_more |= s->client.in; /* the client's bytes waited for that */
	}
	if (s->http && request_waits(&s->http->request)) {
		size_t before = s->in.pass;

		stream_answer(s);
		if (s->stage != STREAM_AIMED || s->a.fd < 0)
			return 1;
		count(s, false, s->in.pass - before);
		s->in.held = request_waits(&s->http->request);
		if (!s->in.held)
			*ret_more = true;
	}
	state = relay_pump(&s->sandbox->g->relay, &s->in, &s->server, &s->client, most, UINT64_MAX, &n);
	count(s, false, n);
	if (state == RELAY_MORE)
		*ret_more = true;
	if (state == RELAY_SRC_BROKE) {
		stream_end(s, EGRESS_V_FAILED, "the server closed the connection early");
		return 1;
	}
	if (state == RELAY_DST_BROKE) {
		stream_broke(s);
		return 1;
	}
	return 0;
}

int stream_drain(struct stream *s, size_t *ret_n)
{
	enum relay_state state;

	state = relay_pump(&s->sandbox->g->relay, &s->in, &s->server, &s->client, RELAY_READ, UINT64_MAX, ret_n);
	count(s, false, *ret_n);
	if (state == RELAY_SRC_BROKE || state == RELAY_DST_BROKE)
		return -1;
	if (state == RELAY_MORE)
		stream_queue(s);
	return s->in.eof && !s->in.len && !s->in.in_pipe;
}

void stream_turn(struct stream *s)
{
	bool more = false;

	unqueue(s);
	if (s->stage == STREAM_REFUSED) {
		refuse_ready(s);
		return;
	}
	if (s->mitm) {
		mitm_go(s->mitm);
		return;
	}
	if (s->stage < STREAM_AIMED) {
		if (s->client.in)
			stream_ask(s);
		return;
	}
	if (s->looking && (s->client.in || s->out.len)) {
		uint32_t before = s->out.pass;

		stream_look(s);
		if (s->stage != STREAM_AIMED || s->mitm || s->a.fd < 0)
			return;
		count(s, true, s->out.pass - before);
	}
	if (s->looking) {
		if (s->out.len && s->timer.at > s->last + LOOK_PATIENCE)
			loop_timer_set(&s->sandbox->g->loop, &s->timer, s->sandbox->g->loop.now + LOOK_PATIENCE);
	} else if (pump_out(s, &more)) {
		return;
	}
	if (s->up && pump_in(s, &more))
		return;
	if (s->in.shut && (s->out.shut || s->out.broken || s->stopped)) {
		if (s->out.broken && !s->stopped)
			stream_end(s, EGRESS_V_FAILED, "the server closed the connection early");
		else
			stream_end(s, EGRESS_V_OK, "");
		return;
	}
	if (more)
		stream_queue(s);
}

/* ---- connecting -------------------------------------------------------------------------------------------------- */

static void connected(struct stream *s, int fd, const struct net_addr *a)
{
	s->addr = *a;
	room_connected(s, fd);
	if (s->mitm) {
		mitm_connected(s->mitm, fd, NULL);
		return;
	}
	s->b.fd = s->server.fd = fd;
	s->server.out = true;
	s->up = true;
	if (loop_add(&s->sandbox->g->loop, &s->b, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) < 0) {
		stream_end(s, EGRESS_V_FAILED, "no room for another connection");
		return;
	}
	if (!stream_granted(s))
		return;
	if (s->out.len || s->out.eof || s->client.in)
		stream_queue(s);
}

static void failed(struct stream *s, int error)
{
	char why[EGRESS_TEXT_MAX];

	snprintf(why, sizeof(why), "the server is unreachable: %s", strerror(-error));
	if (s->mitm)
		mitm_connected(s->mitm, -1, why);
	else
		refuse(s, EGRESS_V_FAILED, why);
}

static void upstream_done(void *arg, int fd, const struct net_addr *a)
{
	struct stream *s = arg;

	s->upstream = NULL;
	if (fd < 0) {
		failed(s, fd);
	} else if (!policy_addr_open(s->sandbox->policy, &s->sandbox->g->own, a, s->port, NULL)) {
		fd_close(fd);
		stream_end(s, EGRESS_V_CUT, "the policy was changed");
	} else {
		connected(s, fd, a);
	}
}

/* Reports a permitted stream at once in mode observe: a query of the needed rules must not wait for its end. */
static void seen(struct stream *s)
{
	char rule[NET_RULE_TEXT];
	struct egress_stream e = { .port = s->port, .rule = rule };

	policy_wish(s->name ? s->name->text : "", &s->addr, s->port, rule);
	report_seen(s->sandbox, &e);
}

static void dial(struct stream *s, const struct net_addr *addr, unsigned n)
{
	struct egress *g = s->sandbox->g;
	struct net_addr to = s->addr;
	int fd;

	if (s->sandbox->policy->mode == EGRESS_OBSERVE)
		seen(s);
	fd = upstream_start(&g->loop, &g->past, addr, n, s->port, &to, &s->upstream, upstream_done, s);

	if (fd >= 0)
		connected(s, fd, &to);
	else if (fd != -EINPROGRESS)
		failed(s, fd);
}

static void refuse_or_tell(struct stream *s, uint8_t verdict, const char *why)
{
	if (s->mitm)
		mitm_connected(s->mitm, -1, why);
	else
		refuse(s, verdict, why);
}

/* One resolution, every address checked, and no other used. */
static void resolved(void *arg, const struct resolve_answer *a)
{
	struct stream *s = arg;
	struct sandbox *b = s->sandbox;
	struct net_addr good[RESOLVE_MAX];
	const char *what = NULL;
	char why[EGRESS_TEXT_MAX], text[64];
	unsigned n = 0, bad = 0;

	s->query = NULL;
	if (!a->n) {
		refuse_or_tell(s, EGRESS_V_FAILED, a->why);
		return;
	}
	if (own_refresh(&b->g->own, b->g->loop.now) < 0) {
		refuse_or_tell(s, EGRESS_V_FAILED, "the addresses of this host cannot be read");
		return;
	}
	for (unsigned i = 0; i < a->n; i++) {
		if (policy_addr_open(b->policy, &b->g->own, &a->addr[i], s->port, &what))
			good[n++] = a->addr[i];
		else
			bad = i;
	}
	if (n) {
		dial(s, good, n);
		return;
	}
	s->addr = a->addr[bad];
	net_addr_text(&a->addr[bad], text);
	snprintf(why, sizeof(why), "the name resolves to %s, %s", text, what);
	refuse_or_tell(s, EGRESS_V_DENIED, why);
}

void stream_aim(struct stream *s)
{
	struct sandbox *b = s->sandbox;
	struct resolve_answer answer;
	const char *what = "which cannot be checked now";
	char why[EGRESS_TEXT_MAX];
	int r;

	s->stage = STREAM_AIMED;
	/* Checked first: no rule permits these, so the report must not suggest one. */
	if (!s->name && b->policy->mode != EGRESS_NONE &&
	    (own_refresh(&b->g->own, b->g->loop.now) < 0 ||
	     !policy_addr_open(b->policy, &b->g->own, &s->addr, s->port, &what))) {
		char text[64];

		net_addr_text(&s->addr, text);
		snprintf(why, sizeof(why), "%s is %s", text, what);
		refuse(s, EGRESS_V_DENIED, why);
		return;
	}
	if (s->name ? !policy_has_name(b->policy, sandbox_outer(b), s->name->text, s->port, &s->rule) :
		      !policy_has_addr(b->policy, sandbox_outer(b), &s->addr, s->port, &s->rule)) {
		refuse(s, EGRESS_V_DENIED,
		       b->policy->mode == EGRESS_NONE ? "the sandbox has no network" :
		       s->name			      ? "no rule names this host with this port" :
							"no rule names this address with this port");
		return;
	}
	b->meter.counts.connections++;
	b->tree->meter.counts.connections++;
	report_counts(b);
	s->looking = s->asked != STREAM_ABSOLUTE;
	s->out.held = true;
	if (s->name) {
		if (!b->asker)
			b->asker = calloc(1, sizeof(*b->asker));
		if (!b->g->resolve || !b->asker)
			r = -EAGAIN;
		else
			r = resolve_name(b->g->resolve, b->asker, s->name->text, &answer, &s->query, resolved, s);
		if (r == 1)
			resolved(s, &answer);
		else if (r < 0)
			refuse(s, EGRESS_V_FAILED,
			       r == -EBUSY ? "too many names are being resolved" : "the name cannot be resolved");
		return;
	}
	dial(s, &s->addr, 1);
}

void stream_judge(struct stream *s)
{
	struct sandbox *b = s->sandbox;
	bool ok;

	if (s->stage != STREAM_AIMED)
		return;
	ok = s->name ? policy_has_name(b->policy, sandbox_outer(b), s->name->text, s->port, &s->rule) :
		       policy_has_addr(b->policy, sandbox_outer(b), &s->addr, s->port, &s->rule);
	/* Of a name, the address is one of ours until the server is connected. */
	if (ok && s->addr.family && names_index(&s->addr) == -1)
		ok = policy_addr_open(b->policy, &b->g->own, &s->addr, s->port, NULL);
	if (s->mitm && !stream_wants_mitm(s, true) && !stream_wants_mitm(s, false))
		ok = false;
	if (!s->mitm && !s->looking && !s->http && stream_terminates(s))
		ok = false;
	if (!ok || stream_unsure(s))
		stream_end(s, EGRESS_V_CUT, "the policy was changed");
	else if (s->mitm && !mitm_set_inject(s->mitm, b->inject))
		stream_end(s, EGRESS_V_CUT, "the secrets were changed");
}

/* ---- accepting --------------------------------------------------------------------------------------------------- */

static void from_sockaddr(const struct sockaddr_in6 *from, struct net_addr *ret, uint16_t *ret_port)
{
	*ret = (struct net_addr){ .family = 6 };
	*ret_port = ntohs(from->sin6_port);
	if (IN6_IS_ADDR_V4MAPPED(&from->sin6_addr)) {
		ret->family = 4;
		memcpy(ret->addr, from->sin6_addr.s6_addr + 12, 4);
	} else {
		memcpy(ret->addr, &from->sin6_addr, 16);
	}
}

/* Of an address that names_index() says -2 of: whether it is ours, where proxies are. */
static bool at_proxy(const struct stream *s, int index)
{
	const uint8_t *a = s->addr.addr;

	return index == -2 && (s->port == PROXY_HTTP || s->port == PROXY_SOCKS) &&
	       (s->addr.family == 4 ? a[2] == 0 && a[3] == 1 : a[13] == 0 && a[14] == 0 && a[15] == 1);
}

static struct stream *make(struct sandbox *b, int fd)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->a = (struct loop_fd){ client_ready, fd };
	s->b = (struct loop_fd){ server_ready, -1 };
	s->client = (struct relay_side){ .fd = fd, .out = true };
	s->server.fd = -1;
	relay_half_init(&s->out);
	relay_half_init(&s->in);
	s->sandbox = b;
	s->timer.due = timer_due;
	s->stage = STREAM_AIMED; /* one that is refused at once was none of a proxy's */
	s->began = s->last = b->g->loop.now;
	s->rule = POLICY_NO_RULE;
	s->next = b->streams;
	if (s->next)
		s->next->prev = s;
	b->streams = s;
	b->meter.counts.concurrent++;
	b->tree->meter.counts.concurrent++;
	b->tenant->streams++;
	b->g->streams++;
	room_touch(b);
	return s;
}

/* As names_index() says. */
static int name_it(struct stream *s)
{
	int index = names_index(&s->addr);

	if (index >= 0)
		s->name = names_at(&s->sandbox->names, (uint32_t)index);
	if (s->name)
		s->name->streams++;
	return index;
}

/* Finds the target of an accepted connection by the address it was made to. */
static void begin(struct stream *s)
{
	struct sandbox *b = s->sandbox;
	int index = name_it(s);

	if (at_proxy(s, index)) {
		s->stage = s->port == PROXY_HTTP ? STREAM_HTTP_PROXY : STREAM_SOCKS_GREET;
		loop_timer_set(&b->g->loop, &s->timer, b->g->loop.now + ASK_PATIENCE);
		return;
	}
	s->stage = STREAM_AIMED;
	if (index == -1) {
		stream_aim(s);
		return;
	}
	if (!s->name)
		refuse(s, EGRESS_V_DENIED, "this address is not the answer to a DNS query of the sandbox");
	else
		stream_aim(s);
}

bool stream_accept(struct sandbox *b)
{
	struct sockaddr_in6 peer = { 0 }, to = { 0 };
	socklen_t len = sizeof(peer);
	int fd = accept4(b->tcp.fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct stream *s;
	const char *why;

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE) {
			egress_give_spare(b->g, b->tcp.fd);
			b->meter.counts.refused++;
			report_counts(b);
		}
		return false;
	}
	why = meter_stream(&b->meter, &b->tree->meter);
	if (!why && b->meter.counts.concurrent >= egress_share(b->g))
		why = "too many concurrent connections";
	if (!why && tenant_full(b->g, b->tenant))
		why = "too many concurrent connections of the tenant's sandboxes";
	len = sizeof(to);
	if (getsockname(fd, (struct sockaddr *)&to, &len) < 0 || !(s = make(b, fd))) {
		close(fd);
		return true;
	}
	from_sockaddr(&peer, &s->client_addr, &s->client_port);
	from_sockaddr(&to, &s->addr, &s->port);
	if (loop_add(&b->g->loop, &s->a, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET) < 0 ||
	    loop_timer_set(&b->g->loop, &s->timer, b->g->loop.now + IDLE) < 0) {
		stream_end(s, EGRESS_V_FAILED, "no room for another connection");
		return true;
	}
	if (why) {
		if (at_proxy(s, name_it(s)) && s->port == PROXY_HTTP)
			s->stage = STREAM_HTTP_PROXY; /* its client reads HTTP, whatever it asks for */
		refuse(s, EGRESS_V_BUDGET, why);
	} else {
		begin(s);
	}
	return true;
}
