/* Adds, changes and removes sandboxes. */
#include "egress/sandbox.h"
#include "base/base.h"
#include "egress/dns.h"
#include "egress/refuse.h"
#include "egress/report.h"
#include "egress/stream.h"
#include "egress/tenant.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS 8 /* a turn */
#define STREAMS 8
#define BYTES (1024U * 1024U)
#define TELL_TURNS 4U /* until all is reported: enough for all that a program has in progress unless it floods */

const struct policy *sandbox_outer(const struct sandbox *b)
{
	return b->g->outer;
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

void sandbox_queue(struct sandbox *b)
{
	struct egress *g = b->g;

	if (b->queued || (b->late && !b->want_accept && !b->want_dns && !b->tell))
		return;
	b->queued = true;
	b->run_next = NULL;
	*g->run_last = b;
	g->run_last = &b->run_next;
}

void sandbox_report_all(struct sandbox *b, uint32_t seq)
{
	b->tell = seq;
	b->tell_turns = TELL_TURNS;
	sandbox_queue(b);
}

void sandbox_report_again(struct sandbox *b)
{
	if (b->tell)
		sandbox_queue(b);
}

/* True: another turn is needed. Refusals that were not reported yet lead to sandbox_report_again(). */
static bool tell(struct sandbox *b)
{
	bool all = !b->dns_asked;

	if (b->tell_turns && --b->tell_turns)
		return true;
	for (struct stream *s = b->streams; s; s = s->next)
		all &= refuse_told(s);
	if (all) {
		report_now(b, b->tell);
		b->tell = 0;
	}
	return false;
}

bool sandbox_turn(struct sandbox *b)
{
	uint64_t before = b->meter.counts.bytes_in + b->meter.counts.bytes_out;

	if (b->want_dns) {
		b->want_dns = false;
		dns_turn(b); /* the loop reports what is left again */
	}
	if (b->want_accept) {
		b->want_accept = false;
		for (int i = 0; i < ACCEPTS && b->tcp.fd >= 0 && stream_accept(b); i++)
			;
	}
	for (int i = 0; i < STREAMS && b->ready_first && !b->late; i++) {
		stream_turn(b->ready_first);
		if (b->meter.counts.bytes_in + b->meter.counts.bytes_out - before >= BYTES)
			break;
	}
	if (b->tell && tell(b))
		return true;
	return b->ready_first && !b->late;
}

static void tcp_ready(struct loop_fd *f, uint32_t events)
{
	struct sandbox *b = (struct sandbox *)((char *)f - offsetof(struct sandbox, tcp));

	(void)events;
	b->want_accept = true;
	sandbox_queue(b);
}

static void udp_ready(struct loop_fd *f, uint32_t events)
{
	struct sandbox *b = (struct sandbox *)((char *)f - offsetof(struct sandbox, udp));

	(void)events;
	b->want_dns = true;
	sandbox_queue(b);
}

static void dns_ready(struct loop_fd *f, uint32_t events)
{
	(void)events;
	dns_accept((struct sandbox *)((char *)f - offsetof(struct sandbox, dns)));
}

static void late_due(struct loop_timer *t)
{
	struct sandbox *b = (struct sandbox *)((char *)t - offsetof(struct sandbox, timer));

	b->late = false;
	if (b->ready_first)
		sandbox_queue(b);
}

/* ---- sockets ----------------------------------------------------------------------------------------------------- */

static bool socket_is(int fd, int type, bool listening)
{
	int v = 0;
	socklen_t len = sizeof(v);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &v, &len) < 0 || v != AF_INET6)
		return false;
	len = sizeof(v);
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &v, &len) < 0 || v != type)
		return false;
	len = sizeof(v);
	return !listening || (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &v, &len) == 0 && v);
}

static void close_sockets(struct sandbox *b)
{
	struct loop_fd *const f[] = { &b->tcp, &b->udp, &b->dns };

	for (size_t i = 0; i < ARRAY_LEN(f); i++)
		if (f[i]->fd >= 0)
			loop_close(&b->g->loop, f[i]);
}

static int take_sockets(struct sandbox *b, int *fds)
{
	static const struct linger hard = { 1, 0 };
	static const int one = 1;
	struct loop_fd *const f[EGRESS_SOCKETS] = {
		[EGRESS_TCP] = &b->tcp, [EGRESS_DNS_UDP] = &b->udp, [EGRESS_DNS_TCP] = &b->dns
	};
	int r = 0;

	if (!socket_is(fds[EGRESS_TCP], SOCK_STREAM, true) || !socket_is(fds[EGRESS_DNS_UDP], SOCK_DGRAM, false) ||
	    !socket_is(fds[EGRESS_DNS_TCP], SOCK_STREAM, true))
		return -EINVAL;
	/*
	 * Streams inherit both: should we die, or end one early, its client sees a broken connection, never a short but
	 * clean one.
	 */
	if (setsockopt(fds[EGRESS_TCP], SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)) < 0 ||
	    setsockopt(fds[EGRESS_TCP], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0 ||
	    setsockopt(fds[EGRESS_DNS_UDP], IPPROTO_IPV6, IPV6_RECVPKTINFO, &one, sizeof(one)) < 0)
		return -errno;
	close_sockets(b);
	for (size_t i = 0; r == 0 && i < EGRESS_SOCKETS; i++) {
		r = fd_set_nonblock(fds[i]);
		f[i]->fd = TAKE_FD(fds[i]);
		if (r == 0)
			r = loop_add(&b->g->loop, f[i], EPOLLIN);
	}
	if (r < 0)
		close_sockets(b);
	else
		room_listener(b);
	return r;
}

/* ---- trees ------------------------------------------------------------------------------------------------------- */

static struct tree *tree_get(struct egress *g, const struct egress_sandbox *want)
{
	struct tree *t = g->tree;

	while (t && t->number != want->tree)
		t = t->next;
	if (!t) {
		t = calloc(1, sizeof(*t));
		if (!t)
			return NULL;
		t->number = want->tree;
		t->meter.counts = want->tree_counts;
		t->meter.counts.concurrent = 0;
		t->next = g->tree;
		g->tree = t;
	}
	t->sandboxes++;
	return t;
}

static void tree_put(struct egress *g, struct tree *t)
{
	struct tree **at = &g->tree;

	if (!t || --t->sandboxes)
		return;
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	names_done(&t->names);
	free(t);
}

static void join_tree(struct sandbox *b, struct tree *t)
{
	if (b->tree == t) {
		t->sandboxes--; /* it was counted already */
		return;
	}
	if (b->tree) {
		b->tree->meter.counts.concurrent -= b->meter.counts.concurrent;
		tree_put(b->g, b->tree);
	}
	t->meter.counts.concurrent += b->meter.counts.concurrent;
	b->tree = t;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static struct sandbox **bucket(struct egress *g, uint64_t number)
{
	return &g->sandbox[number % EGRESS_BUCKETS];
}

static struct sandbox *sandbox_new(struct egress *g, const struct egress_sandbox *want)
{
	struct sandbox *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->g = g;
	b->number = want->sandbox;
	b->tcp = (struct loop_fd){ tcp_ready, -1 };
	b->udp = (struct loop_fd){ udp_ready, -1 };
	b->dns = (struct loop_fd){ dns_ready, -1 };
	b->ready_last = &b->ready_first;
	b->timer.due = late_due;
	room_init(&b->room);
	b->meter.counts = want->counts;
	b->meter.counts.sandbox = want->sandbox;
	b->meter.counts.concurrent = 0;
	b->next = *bucket(g, b->number);
	*bucket(g, b->number) = b;
	g->sandboxes++;
	return b;
}

static void unqueue(struct sandbox *b)
{
	struct egress *g = b->g;
	struct sandbox **at = &g->run_first;

	if (!b->queued)
		return;
	while (*at != b)
		at = &(*at)->run_next;
	*at = b->run_next;
	if (!*at)
		g->run_last = at;
}

static void release(struct sandbox *b)
{
	struct egress *g = b->g;
	struct sandbox **at = bucket(g, b->number);

	b->closing = true;
	close_sockets(b);
	dns_close(b);
	while (b->streams)
		stream_end(b->streams, EGRESS_V_CUT, "the sandbox has ended");
	if (b->policy)
		report_flush(b);
	report_done(b);
	room_done(b);
	loop_timer_stop(&g->loop, &b->timer);
	unqueue(b);
	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	g->sandboxes--;
	tree_put(g, b->tree);
	tenant_put(g, b->tenant);
	policy_free(b->policy);
	names_done(&b->names);
	inject_unref(b->inject);
	ca_close(b->ca);
	resolve_asker_free(b->asker);
	loop_bury(&g->loop, b);
}

void sandbox_free(struct sandbox *b)
{
	release(b);
}

static int read_sandbox(const struct egress_sandbox *want, const struct sandbox *b, struct policy **ret_policy,
			struct inject **ret_inject, struct ca **ret_ca, struct err *e)
{
	int r = policy_new(want->mode, want->rule, want->rules, want->private, want->privates, ret_policy, e);

	if (r == 0 && want->injects)
		r = inject_new(want->inject, want->injects, b ? b->inject : NULL, ret_inject, e);
	if (r == 0 && want->ca_cert[0])
		r = ca_open(want->ca_cert, want->ca_key, ret_ca, e);
	return r;
}

static void set_meter(struct meter *m, const struct egress_budget *budget)
{
	if (m->budget.bandwidth != budget->bandwidth)
		m->bucket = (struct bucket){ 0 };
	m->budget = *budget;
}

void sandbox_judge(struct sandbox *b)
{
	for (struct stream *s = b->streams, *next; s; s = next) {
		next = s->next;
		stream_judge(s);
	}
}

void sandbox_cut_waiting(struct sandbox *b)
{
	for (struct stream *s = b->streams, *next; s; s = next) {
		next = s->next;
		if (s->mitm && (s->query || s->upstream))
			stream_end(s, EGRESS_V_CUT, "the configuration was changed");
	}
}

int sandbox_put(struct egress *g, const struct egress_sandbox *want, int *fds, size_t nfds)
{
	struct sandbox *b = egress_sandbox(g, want->sandbox);
	struct policy *policy = NULL;
	struct inject *inject = NULL;
	struct ca *ca = NULL;
	struct tree *tree = NULL;
	bool made = !b;
	struct err e = { 0 };
	int r = nfds == EGRESS_SOCKETS || (!nfds && b) ? 0 : nfds ? -EINVAL : -ENOENT;

	if (r == 0)
		r = read_sandbox(want, b, &policy, &inject, &ca, &e);
	if (r == 0 && (!(tree = tree_get(g, want)) || (!b && !(b = sandbox_new(g, want)))))
		r = -ENOMEM;
	/* It never changes hands. */
	if (r == 0 && !b->tenant && !(b->tenant = tenant_get(g, want->tenant)))
		r = -ENOMEM;
	if (r == 0 && nfds)
		r = take_sockets(b, fds);
	if (r) {
		tree_put(g, tree);
		policy_free(policy);
		inject_unref(inject);
		ca_close(ca);
		if (made && b)
			release(b);
		return r;
	}
	memcpy(b->id, want->id, sizeof(b->id));
	b->kept = true;
	join_tree(b, tree);
	set_meter(&b->meter, &want->budget);
	set_meter(&tree->meter, &want->tree_budget);
	policy_free(b->policy);
	inject_unref(b->inject);
	ca_close(b->ca);
	b->policy = policy;
	b->inject = inject;
	b->ca = ca;
	b->late = false;
	loop_timer_stop(&g->loop, &b->timer);
	sandbox_judge(b);
	if (b->ready_first)
		sandbox_queue(b);
	report_counts(b);
	return 0;
}

void sandbox_names(struct egress *g, const struct egress_names *n)
{
	struct sandbox *b = egress_sandbox(g, n->sandbox);

	for (uint32_t i = 0; b && i < n->n; i++)
		names_set(&b->names, n->name[i].index, n->name[i].name, (uint32_t)(g->loop.now / LOOP_SEC));
}
