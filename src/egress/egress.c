/* Makes and ends the state of cloche-egress. */
#include "egress/egress.h"
#include "base/base.h"
#include "base/log.h"
#include "egress/sandbox.h"
#include "egress/confine.h"
#include "egress/refuse.h"
#include "egress/report.h"
#include "egress/tenant.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST 8192U /* streams of a sandbox */
#define LEAST 4U

struct sandbox *egress_sandbox(const struct egress *g, uint64_t number)
{
	struct sandbox *b = g->sandbox[number % EGRESS_BUCKETS];

	while (b && b->number != number)
		b = b->next;
	return b;
}

static void say(struct egress *g, enum egress_type type, uint32_t seq, uint64_t sandbox, uint64_t arg)
{
	uint8_t packet[EGRESS_HEAD + 16];
	long n = egress_plain_encode(type, seq, sandbox, arg, packet, sizeof(packet));

	link_send(&g->link, packet, (size_t)n);
}

/* ---- the owner --------------------------------------------------------------------------------------------------- */

static void joined(void *ctx)
{
	struct egress *g = ctx;

	for (uint32_t i = 0; i < EGRESS_BUCKETS; i++)
		for (struct sandbox *b = g->sandbox[i]; b; b = b->next) {
			b->kept = false;
			say(g, EGRESS_HAVE, 0, b->number, 0);
			report_counts(b);
		}
	say(g, EGRESS_HAVE, 0, 0, 0);
	if (g->dirty)
		loop_timer_set(&g->loop, &g->counts_timer, g->loop.now);
}

static void left(void *ctx)
{
	(void)ctx; /* policies stay in force; reports wait */
}

static int set_config(struct egress *g, const struct egress_msg *m)
{
	struct egress_config c;
	struct resolve *resolve = NULL;
	struct policy *outer = NULL;
	struct trust *trust = NULL;
	struct err e = { 0 };
	char *copy;
	int r = egress_config_decode(m, &c);

	if (r < 0)
		return r;
	/* After a restart an owner sends the same configuration again; then running queries continue. */
	if (g->config && g->config_len == m->len && !memcmp(g->config, m->payload, m->len))
		return 0;
	r = resolve_new(&g->loop, c.resolver, c.host, c.hosts, &resolve, &e);
	if (r == 0)
		r = policy_new(EGRESS_ALLOW, c.rule, c.outer, NULL, 0, &outer, &e);
	copy = malloc(m->len + 1);
	if (r < 0 || !copy) {
		log_warn("cloche-egress: the configuration is not changed: %s", r < 0 ? e.msg : "no memory");
		resolve_free(resolve);
		policy_free(outer);
		free(copy);
		return 0;
	}
	/* Without authorities no server is verified, and nothing injected: the rest works. */
	if (trust_new(c.ca_file, &trust, &e) < 0)
		log_warn("cloche-egress: no server certificate can be verified: %s", e.msg);
	if (g->confined && !g->config && confine_files(&e) < 0) {
		log_error("cloche-egress: %s", e.msg);
		resolve_free(resolve);
		policy_free(outer);
		trust_free(trust);
		free(copy);
		return -EPERM;
	}
	memcpy(copy, m->payload, m->len);
	free(g->config);
	g->config = copy;
	g->config_len = m->len;
	resolve_free(g->resolve); /* which answers what runs */
	g->resolve = resolve;
	for (uint32_t i = 0; i < EGRESS_BUCKETS; i++)
		for (struct sandbox *b = g->sandbox[i]; b; b = b->next)
			sandbox_cut_waiting(b);
	policy_free(g->outer);
	trust_free(g->trust);
	g->outer = outer;
	g->trust = trust;
	for (uint32_t i = 0; i < EGRESS_BUCKETS; i++)
		for (struct sandbox *b = g->sandbox[i]; b; b = b->next)
			sandbox_judge(b);
	return 0;
}

static void keep(struct egress *g)
{
	for (uint32_t i = 0; i < EGRESS_BUCKETS; i++)
		for (struct sandbox *b = g->sandbox[i], *next; b; b = next) {
			next = b->next;
			if (!b->kept)
				sandbox_free(b);
		}
}

static void gone(struct egress *g, uint64_t number)
{
	struct sandbox *b = egress_sandbox(g, number);

	if (b)
		sandbox_free(b);
	say(g, EGRESS_GONE, 0, number, 0);
}

static int put_sandbox(struct egress *g, const struct egress_msg *m, int *fds, size_t nfds)
{
	AUTO_FREE struct egress_sandbox *want = malloc(sizeof(*want));
	int r = want ? egress_sandbox_decode(m, want) : -ENOMEM;

	if (r < 0)
		return r;
	r = sandbox_put(g, want, fds, nfds);
	/* What it had is not what it is to have: rather nothing, until its owner knows better. */
	if (r < 0 && egress_sandbox(g, want->sandbox))
		sandbox_free(egress_sandbox(g, want->sandbox));
	/* Before DONE: an owner that makes a checkpoint has then received all names. */
	if (r == 0 && egress_sandbox(g, want->sandbox))
		report_names(egress_sandbox(g, want->sandbox));
	say(g, EGRESS_DONE, m->seq, want->sandbox, (uint64_t)-r);
	return 0;
}

static void tell(struct egress *g, const struct egress_msg *m)
{
	struct sandbox *b = egress_sandbox(g, m->sandbox);

	if (b)
		sandbox_report_all(b, m->seq);
	else
		say(g, EGRESS_TOLD, m->seq, m->sandbox, 0);
}

static int message(void *ctx, const struct egress_msg *m, int *fds, size_t nfds)
{
	struct egress *g = ctx;
	struct egress_they they;
	int r = 0;

	switch (m->type) {
	case EGRESS_CONFIG:
		return set_config(g, m);
	case EGRESS_SANDBOX:
		return put_sandbox(g, m, fds, nfds);
	case EGRESS_GONE:
		gone(g, m->sandbox);
		return 0;
	case EGRESS_KEEP:
		keep(g);
		return 0;
	case EGRESS_TELL:
		tell(g, m);
		return 0;
	case EGRESS_THEY:
		r = egress_they_decode(m, &they);
		if (r == 0)
			refuse_they(g, m->seq, &they);
		return r;
	case EGRESS_NAMES: {
		AUTO_FREE struct egress_names *n = malloc(sizeof(*n));

		r = n ? egress_names_decode(m, n) : -ENOMEM;
		if (r == 0)
			sandbox_names(g, n);
		return r;
	}
	default:
		return -EBADMSG;
	}
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static uint32_t most_files(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return 1024;
	if (l.rlim_cur < l.rlim_max) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
	}
	return l.rlim_cur < UINT32_MAX / 2 ? (uint32_t)l.rlim_cur : UINT32_MAX / 2;
}

uint32_t egress_room(const struct egress *g)
{
	/* Two for each stream; each sandbox has three and some for its questions, and pipes are an eighth at most. */
	uint32_t other = g->files / 8 + 8 * g->sandboxes + 64;

	return g->files > other ? (g->files - other) / 2 : 0;
}

uint32_t egress_share(const struct egress *g)
{
	uint32_t room = egress_room(g), share = room > g->streams ? (room - g->streams) / 8 : 0;

	if (share < LEAST)
		share = LEAST;
	return share < g->most ? share : g->most;
}

void egress_give_spare(struct egress *g, int listener)
{
	fd_close(g->spare);
	fd_close(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
	g->spare = dup(g->loop.ep);
}

int egress_init(struct egress *g, int listen_fd, int owner_fd, struct err *e)
{
	static const struct link_ops ops = { joined, message, left };
	int r;

	*g = (struct egress){ .spare = -1, .files = most_files(), .ports = tenant_ports() };
	g->most = g->files / 8 < MOST ? g->files / 8 : MOST;
	g->run_last = &g->run_first;
	g->counts_timer.due = report_counts_due;
	g->fold_timer.due = report_fold_due;
	r = loop_init(&g->loop);
	if (r == 0)
		r = relay_init(&g->relay);
	g->relay.most = g->files / 16;
	sched_batch_init(&g->sched_batch, &g->loop);
	if (r == 0 && (g->spare = dup(g->loop.ep)) < 0)
		r = -errno;
	if (r == 0)
		r = link_init(&g->link, &g->loop, listen_fd, owner_fd, &ops, g);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "cannot start") : 0;
}

void egress_done(struct egress *g)
{
	for (uint32_t i = 0; i < EGRESS_BUCKETS; i++)
		while (g->sandbox[i])
			sandbox_free(g->sandbox[i]);
	resolve_free(g->resolve);
	policy_free(g->outer);
	trust_free(g->trust);
	own_done(&g->own);
	free(g->config);
	if (g->link.packet)
		link_done(&g->link);
	relay_done(&g->relay);
	fd_close(g->spare);
	loop_done(&g->loop);
}

int egress_turn(struct egress *g, int most_ms)
{
	int r = loop_turn(&g->loop, g->run_first ? 0 : most_ms);
	struct sandbox *b = g->run_first, *next;

	g->run_first = NULL;
	g->run_last = &g->run_first;
	for (; b; b = next) {
		next = b->run_next;
		b->queued = false;
		if (sandbox_turn(b))
			sandbox_queue(b);
	}
	sched_batch_turn(&g->sched_batch);
	return r;
}
