/* Gives sandboxes networks, and changes them. */
#include "service/network/network.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "service/network/internal.h"
#include "service/sandbox/part.h"
#include "service/secret/give.h"
#include "service/link/warden_link.h"
#include "tier/tiers.h"

#define TICK_MS 250
#define READY_NS 2000000000ULL /* an exec does not wait longer: without egress its network is closed, that is all */

/* --- trees of forks --- */

struct net_tree *net_tree_get(struct nets *n, uint64_t id)
{
	struct net_tree *t;
	char key[NET_KEY];

	net_key(id, key);
	t = map_get(&n->trees, key);
	if (t)
		return t;
	t = calloc(1, sizeof(*t));
	if (!t || map_put(&n->trees, key, t) < 0)
		abort();
	t->id = id;
	return t;
}

static bool tree_store(struct nets *n, struct net_tree *t)
{
	char text[160], key[NET_KEY];

	if (!t->refs) { /* its last sandbox is gone */
		net_key(t->id, key);
		map_del(&n->trees, key);
		if (t->stored)
			net_trees_delete(n->service->db, t->id, NULL);
		free(t);
		return true;
	}
	if (!t->dirty)
		return false;
	net_counts_text(&t->counts, text, sizeof(text));
	if (net_trees_put(n->service->db, &(struct net_tree_row){ t->id, text }, NULL) == 0) {
		t->dirty = false;
		t->stored = true;
	}
	return true;
}

static bool state_store(struct service *s, const struct sandbox *b)
{
	struct net_state *st = b->net;
	AUTO(buf_done) struct buf observed = BUF_INIT(MIB);
	char text[160];

	if (!st->dirty || b->state == SANDBOX_MAKING)
		return false;
	for (uint32_t i = 0; i < st->nobserved; i++)
		buf_addf(&observed, "%s%s", i ? "\n" : "", st->observed[i]);
	net_counts_text(&st->counts, text, sizeof(text));
	if (nets_put(s->db, &(struct net_row){ b->id, text, buf_str(&observed) }, NULL) == 0)
		st->dirty = false;
	return true;
}

void sandbox_nets_store(struct service *s)
{
	struct net_tree *t;
	struct sandbox *b;
	bool changed = false;
	size_t at = 0;

	while ((b = map_next(&s->sandboxes, &at)))
		if (b->net)
			changed |= state_store(s, b);
	at = 0;
	while ((t = map_next(&s->nets->trees, &at)))
		changed |= tree_store(s->nets, t);
	if (changed)
		turn_dirty(s->turn);
}

/* --- one that egress knows --- */

struct net_run *net_run_new(struct sandbox *b)
{
	struct net_run *r = calloc(1, sizeof(*r));

	if (!r)
		abort();
	*r = (struct net_run){ .nets = b->service->nets, .sandbox = b, .sock = { -1, -1, -1 } };
	r->state = net_state_ref(b->net);
	r->since_ns = clock_mono_ns();
	memcpy(r->id, b->id, sizeof(r->id));
	snprintf(r->tenant, sizeof(r->tenant), "%s", b->tenant->id);
	b->run = r;
	return r;
}

void net_run_list(struct net_run *r, uint64_t number)
{
	char key[NET_KEY];

	r->number = number;
	net_key(number, key);
	if (map_put(&r->nets->runs, key, r) < 0)
		abort();
}

static void not_fresh(struct net_run *r)
{
	struct net_run **at = &r->nets->fresh;

	if (!r->fresh)
		return;
	r->fresh = false;
	while (*at != r)
		at = &(*at)->fresh_next;
	*at = r->fresh_next;
}

static void run_free(struct net_run *r)
{
	char key[NET_KEY];

	not_fresh(r);
	net_key(r->number, key);
	if (r->number && map_get(&r->nets->runs, key) == r)
		map_del(&r->nets->runs, key);
	fd_close_many(r->sock, EGRESS_SOCKETS);
	net_state_unref(r->state);
	mask_unref(r->mask);
	free(r);
}

struct net_run *net_run_of(const struct nets *n, uint64_t number)
{
	char key[NET_KEY];

	net_key(number, key);
	return map_get(&n->runs, key);
}

static void let_go_on(struct net_run *r)
{
	if (r->ready)
		return;
	r->ready = true;
	if (r->sandbox && r->sandbox->state == SANDBOX_RUNNING)
		sandbox_parts_unblocked(r->sandbox);
}

/* Calls those that waited. Each may start a new wait: that one is not called. */
static void flushed(struct net_run *r)
{
	struct net_flush *f, *list = r->flushes;

	r->flushes = NULL;
	for (f = list; f; f = f->next)
		f->run = NULL; /* a callback may cancel none of the others: they are called, too */
	while ((f = list)) {
		list = f->next;
		f->fn(f->arg);
	}
}

void net_flush_cancel(struct net_flush *f)
{
	struct net_flush **at = f->run ? &f->run->flushes : NULL;

	while (at && *at != f)
		at = &(*at)->next;
	if (at)
		*at = f->next;
	f->run = NULL;
}

/* --- messages to egress --- */

static void send_plain(struct nets *n, enum egress_type type, uint32_t seq, uint64_t sandbox)
{
	uint8_t *out = egress_link_room(n->link);
	long len = egress_plain_encode(type, seq, sandbox, 0, out, EGRESS_MSG_MAX);

	assert(len > 0);
	egress_link_send(n->link, out, (size_t)len, NULL, 0);
}

struct asked {
	struct nets *nets;
	uint64_t number;
	bool sockets;
};

static void on_sockets(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct asked q = *(struct asked *)arg;
	struct net_run *x = net_run_of(q.nets, q.number);

	free(arg);
	if (!x || !x->sandbox)
		return;
	x->asking = false;
	if (r < 0) {
		/*
		 * The old sockets may still be open in their last process. A failure that repeats is only logged
		 * once.
		 */
		if (!x->again && r != -ESRCH)
			log_warn("sandbox %s: no network: %s", x->id, e ? e->msg : "the warden has ended");
		x->again = r != -ESRCH;
		nets_soon(q.nets);
		return;
	}
	x->again = false;
	if (!q.sockets || a->nfds != EGRESS_SOCKETS)
		return;
	fd_close_many(x->sock, EGRESS_SOCKETS);
	for (unsigned i = 0; i < EGRESS_SOCKETS; i++) {
		x->sock[i] = a->fds[i];
		a->fds[i] = -1;
	}
	net_run_sync(x);
}

static void ask(struct net_run *r, bool sockets)
{
	struct asked *q = malloc(sizeof(*q));
	struct steer_rules rules;

	if (!q)
		abort();
	*q = (struct asked){ .nets = r->nets, .number = r->number, .sockets = sockets };
	r->asking = r->asking || sockets;
	net_request_steer(r->nets->service->o.net, r->sandbox->request->net, &rules);
	warden_link_net(r->nets->service->warden, r->number, sockets, &rules, on_sockets, q);
}

void net_run_resteer(struct nets *n, uint64_t number)
{
	struct net_run *r = net_run_of(n, number);

	if (r && r->sandbox)
		ask(r, !r->held && r->sock[0] < 0 && !r->asking);
}

void net_run_sync(struct net_run *r)
{
	if (!r->sandbox || !r->number || !egress_link_up(r->nets->link))
		return;
	if (r->sock[0] >= 0 || r->held)
		net_send_sandbox(r);
	else if (!r->asking)
		ask(r, true);
}

/* --- messages of egress --- */

static void on_have(void *arg, uint64_t sandbox)
{
	struct nets *n = arg;
	struct net_run *r;
	size_t at = 0;

	if (sandbox) {
		r = net_run_of(n, sandbox);
		if (r && r->sandbox)
			r->held = true;
		return;
	}
	net_send_config(n);
	while ((r = map_next(&n->runs, &at))) {
		bool held = r->held;

		if (!r->sandbox)
			continue;
		net_run_sync(r);
		/* We may have died between a change of the kernel's rules and our note of it: what is noted counts. */
		if (held && !n->met)
			ask(r, false);
	}
	send_plain(n, EGRESS_KEEP, 0, 0);
	n->met = true;
}

static void on_down(void *arg)
{
	struct nets *n = arg;
	struct net_run *r;
	size_t at = 0;

	while ((r = map_next(&n->runs, &at))) {
		r->held = r->in_force = false;
		r->seq = 0;
		flushed(r);
		if (!r->sandbox) /* no further report will come */
			run_free(r);
	}
}

static void on_done(struct net_run *r, const struct egress_msg *m)
{
	if (!r->sandbox || !r->seq || m->seq != r->seq)
		return;
	r->seq = 0;
	r->in_force = !m->arg;
	if (m->arg) {
		log_error("sandbox %s: cloche-egress rejects its sockets: %s", r->id, strerror((int)m->arg));
		r->held = false;
	}
	net_put_done(r, (int)m->arg);
	let_go_on(r);
}

static void on_named(struct net_run *r, const struct egress_msg *m)
{
	struct egress_names *names = r->nets->names;
	struct service *s = r->nets->service;

	if (egress_names_decode(m, names) < 0)
		return;
	for (uint32_t i = 0; i < names->n; i++) {
		if (!net_state_name(r->state, names->name[i].index, names->name[i].name))
			continue;
		if (r->sandbox && r->sandbox->state != SANDBOX_MAKING && r->sandbox->net == r->state)
			net_names_put(s->db,
				      &(struct net_name_row){ .sandbox = r->id,
							      .number = names->name[i].index,
							      .name = names->name[i].name },
				      NULL);
		turn_dirty(s->turn);
	}
}

struct asking {
	struct nets *nets;
	uint64_t number;
	uint32_t seq;
};

void net_they(struct nets *n, uint64_t number, uint32_t seq, uint32_t pid, const char *command)
{
	const struct net_run *r = net_run_of(n, number);
	char told[WARDEN_COMMAND];
	const struct egress_they t = { .sandbox = number, .pid = pid, .command = told };
	uint8_t *out = egress_link_room(n->link);
	long len;

	if (!egress_link_up(n->link))
		return;
	snprintf(told, sizeof(told), "%s", command);
	if (r && r->sandbox)
		mask_field(sandbox_mask(r->sandbox), told, sizeof(told));
	len = egress_they_encode(&t, seq, out, EGRESS_MSG_MAX);
	if (len > 0)
		egress_link_send(n->link, out, (size_t)len, NULL, 0);
}

static void on_they(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct asking q = *(struct asking *)arg;
	char command[WARDEN_COMMAND + 1] = "";

	(void)e;
	free(arg);
	if (r == 0)
		snprintf(command, sizeof(command), "%.*s", WARDEN_COMMAND, a->rep->they.command);
	net_they(q.nets, q.number, q.seq, r == 0 ? a->rep->they.pid : 0, command);
}

static void on_who(struct net_run *r, const struct egress_msg *m)
{
	struct asking *q;
	struct egress_who w;
	struct warden_who who = { 0 };

	if (!r->sandbox || egress_who_decode(m, &w) < 0)
		return;
	if (tier_is_machine(r->sandbox->request->spec->flags)) {
		if (net_vm_who(r, m->seq, w.client_port) < 0)
			net_they(r->nets, r->number, m->seq, 0, "");
		return;
	}
	q = malloc(sizeof(*q));
	if (!q)
		abort();
	*q = (struct asking){ .nets = r->nets, .number = r->number, .seq = m->seq };
	who.family = w.family;
	who.udp = w.udp;
	who.client_port = w.client_port;
	who.port = w.port;
	memcpy(who.client, w.client, w.family == 4 ? 4 : 16);
	memcpy(who.addr, w.addr, w.family == 4 ? 4 : 16);
	warden_link_who(r->nets->service->warden, r->number, &who, on_they, q);
}

static void on_counts(struct net_run *r, const struct egress_msg *m)
{
	struct egress_counts c;

	if (egress_counts_decode(m, &c) < 0)
		return;
	net_state_count(r->state, &r->last, &c);
	nets_soon(r->nets);
}

static void on_stream(struct nets *n, const struct egress_msg *m)
{
	struct egress_stream x;
	struct net_run *r;

	if (egress_stream_decode(m, &x) < 0)
		return;
	r = net_run_of(n, x.sandbox);
	if (m->type == EGRESS_SEEN) {
		if (r)
			net_log_seen(r, x.rule);
		return;
	}
	if (r)
		net_log_stream(r, &x, m->type == EGRESS_LOOKUP);
	else
		net_log_unknown(n->service, &x);
}

/* The sandbox a message is about: those with a struct of their own begin with it. */
static struct net_run *about(const struct nets *n, const struct egress_msg *m)
{
	struct egress_names *names = n->names;
	struct egress_counts c;
	struct egress_who w;

	if (m->type == EGRESS_NAMED)
		return egress_names_decode(m, names) < 0 ? NULL : net_run_of(n, names->sandbox);
	if (m->type == EGRESS_COUNTS)
		return egress_counts_decode(m, &c) < 0 ? NULL : net_run_of(n, c.sandbox);
	if (m->type == EGRESS_WHO)
		return egress_who_decode(m, &w) < 0 ? NULL : net_run_of(n, w.sandbox);
	return net_run_of(n, m->sandbox);
}

static void on_message(void *arg, const struct egress_msg *m)
{
	struct nets *n = arg;
	struct net_run *r;

	if (m->type == EGRESS_STREAM || m->type == EGRESS_LOOKUP || m->type == EGRESS_SEEN) {
		on_stream(n, m);
		return;
	}
	r = about(n, m);
	if (!r)
		return;
	if (m->type == EGRESS_DONE)
		on_done(r, m);
	else if (m->type == EGRESS_TOLD && m->seq == r->flush_seq)
		flushed(r);
	else if (m->type == EGRESS_NAMED)
		on_named(r, m);
	else if (m->type == EGRESS_COUNTS)
		on_counts(r, m);
	else if (m->type == EGRESS_WHO)
		on_who(r, m);
	else if (m->type == EGRESS_GONE && !r->sandbox)
		run_free(r);
}

/* --- now and then --- */

static void on_tick(uv_timer_t *t)
{
	struct nets *n = t->data;
	uint64_t now = clock_mono_ns();
	struct net_run *r;
	size_t at = 0;

	n->ticking = false;
	while ((r = map_next(&n->runs, &at))) {
		if (!r->sandbox)
			continue;
		if (r->flushes && now - r->flush_ns >= READY_NS)
			flushed(r);
		else if (r->flushes)
			nets_soon(n);
		if (!r->ready && now - r->since_ns >= READY_NS)
			let_go_on(r);
		else if (!r->ready)
			nets_soon(n);
		if (r->again && !r->asking) {
			nets_soon(n);
			if (egress_link_up(n->link))
				ask(r, !r->held);
		}
	}
	sandbox_nets_store(n->service);
}

void nets_soon(struct nets *n)
{
	if (n->ticking)
		return;
	n->ticking = true;
	uv_timer_start(&n->timer, on_tick, TICK_MS, 0);
}

/* --- a sandbox's --- */

void sandbox_net_begin(struct sandbox *b, struct sandbox *like, struct sandbox_spec *spec)
{
	struct nets *n = b->service->nets;
	const struct net_request *w = b->request->net;

	if (like && like->net) {
		b->net = net_state_new(like->net->tree);
		b->net->counts = b->net->copied = like->net->counts;
		if (b->request->wake)
			net_state_names_copy(b->net, like->net);
		for (uint32_t i = 0; i < like->net->nobserved; i++)
			net_state_observe(b->net, like->net->observed[i]);
	} else if (net_request_on(w)) {
		b->net = net_state_new(net_tree_get(n, b->tree));
	}
	if (b->net && b->request->names)
		net_state_names_read(b->net, b->request->names);
	free(b->request->names);
	b->request->names = NULL;
	if (!net_request_on(w))
		return;
	net_run_new(b);
	spec->flags |= SPEC_NET;
	net_request_steer(b->service->o.net, w, &spec->net);
}

void sandbox_net_made(struct sandbox *b, int *fds, size_t n)
{
	struct net_run *r = b->run;

	if (!r)
		return;
	net_run_list(r, b->handle);
	r->since_ns = clock_mono_ns();
	if (n >= EGRESS_SOCKETS)
		for (unsigned i = 0; i < EGRESS_SOCKETS; i++) {
			r->sock[i] = fds[n - EGRESS_SOCKETS + i];
			fds[n - EGRESS_SOCKETS + i] = -1;
		}
}

static void on_tell(uv_timer_t *t)
{
	struct nets *n = t->data;
	struct net_run *r;

	while ((r = n->fresh)) {
		not_fresh(r);
		net_run_sync(r);
	}
	nets_soon(n);
}

void sandbox_net_entered(struct sandbox *b)
{
	struct service *s = b->service;

	if (!b->net)
		return;
	if (b->run && !b->run->fresh && !b->run->ready) {
		if (!s->nets->fresh)
			uv_timer_start(&s->nets->tell, on_tell, 0, 0);
		b->run->fresh = true;
		b->run->fresh_next = s->nets->fresh;
		s->nets->fresh = b->run;
	}
	for (uint32_t i = 0; i < b->net->nnames; i++)
		net_names_put(s->db,
			      &(struct net_name_row){ .sandbox = b->id,
						      .number = b->net->names[i].index,
						      .name = b->net->names[i].name },
			      NULL);
	state_store(s, b);
}

void sandbox_net_end(struct sandbox *b)
{
	struct net_run *r = b->run;
	struct err e = { 0 };

	if (!r)
		return;
	b->run = NULL;
	net_put_fail(r, err_set(&e, WHY_CHANGED_MEANWHILE, -ESRCH, "the sandbox was ended or restored in the meantime"),
		     &e);
	r->mask = mask_ref(sandbox_mask(b)); /* for reports of egress that still come */
	r->sandbox = NULL;
	flushed(r);
	fd_close_many(r->sock, EGRESS_SOCKETS);
	for (unsigned i = 0; i < EGRESS_SOCKETS; i++)
		r->sock[i] = -1;
	if (r->number && r->held && egress_link_up(r->nets->link))
		send_plain(r->nets, EGRESS_GONE, 0, r->number);
	else
		run_free(r);
}

void sandbox_net_move(struct sandbox *b, struct sandbox *from)
{
	struct net_state *old = b->net;

	sandbox_net_end(b);
	b->run = from->run;
	from->run = NULL;
	b->net = from->net;
	from->net = NULL;
	if (b->run) {
		b->run->sandbox = b;
		memcpy(b->run->id, b->id, sizeof(b->run->id));
	}
	if (!old)
		return;
	if (b->net) {
		/* What the old one used while the new one was made counts, and was counted for the tree already. */
		net_counts_add(&b->net->counts, &b->net->copied, &old->counts);
		for (uint32_t i = 0; i < old->nobserved; i++)
			net_state_observe(b->net, old->observed[i]);
		old->forward = net_state_ref(b->net);
	} else {
		b->net = net_state_ref(old); /* without a network by now; what it has used stays known */
	}
	net_state_unref(old);
}

void sandbox_net_free(struct sandbox *b)
{
	sandbox_net_end(b);
	net_state_unref(b->net);
	b->net = NULL;
}

bool sandbox_net_flushed(struct sandbox *b, struct net_flush *f)
{
	struct net_run *r = b->run;

	if (!r || !r->held || !egress_link_up(r->nets->link))
		return true;
	if (!r->flushes)
		r->flush_ns = clock_mono_ns();
	f->run = r;
	f->next = r->flushes;
	r->flushes = f;
	r->flush_seq = egress_link_seq(r->nets->link);
	send_plain(r->nets, EGRESS_TELL, r->flush_seq, r->number);
	nets_soon(r->nets);
	return false;
}

bool sandbox_net_ready(const struct sandbox *b)
{
	return !b->run || b->run->ready;
}

void sandbox_net_tell(struct sandbox *b)
{
	if (b->run)
		net_run_sync(b->run);
}

uint64_t sandbox_net_bytes(const struct sandbox *b)
{
	return b->net ? b->net->counts.bytes_out + b->net->counts.bytes_in : 0;
}

/* --- found again --- */

void sandbox_net_load(struct sandbox *b)
{
	struct nets *n = b->service->nets;

	if (!net_request_on(b->request->net))
		return;
	b->net = net_state_new(net_tree_get(n, b->tree));
	if (!b->handle || b->state == SANDBOX_LOST)
		return;
	net_run_new(b)->ready = true; /* its execs continue as they are */
	net_run_list(b->run, b->handle);
}

static int on_tree(void *arg, const struct net_tree_row *row)
{
	struct nets *n = arg;
	char key[NET_KEY];
	struct net_tree *t;

	net_key(row->id, key);
	t = net_tree_get(n, row->id);
	t->stored = true;
	net_counts_read(row->counts, &t->counts);
	return 0;
}

/* A tree without a network by now keeps what it has used, when the sandbox is there. */
static struct net_state *state_of(struct nets *n, const char *sandbox)
{
	struct sandbox *b = map_get(&n->service->sandboxes, sandbox);

	if (b && !b->net && b->tree)
		b->net = net_state_new(net_tree_get(n, b->tree));
	return b ? b->net : NULL;
}

static int on_net(void *arg, const struct net_row *row)
{
	struct net_state *st = state_of(arg, row->sandbox);
	AUTO_FREE char *text = st ? strdup(row->observed) : NULL;
	char *rest = text, *one;

	if (!st)
		return 0;
	net_counts_read(row->counts, &st->counts);
	while (rest && *rest && (one = strsep(&rest, "\n")))
		net_state_observe(st, one);
	st->dirty = false;
	return 0;
}

static int on_name(void *arg, const struct net_name_row *row)
{
	struct net_state *st = state_of(arg, row->sandbox);

	if (st)
		net_state_name(st, row->number, row->name);
	return 0;
}

static int load_all(struct service *s, struct err *e)
{
	struct net_run *run;
	size_t at = 0;
	int r = net_trees_each(s->db, on_tree, s->nets, e);

	if (r == 0)
		r = nets_each(s->db, on_net, s->nets, e);
	if (r == 0)
		r = net_names_each(s->db, on_name, s->nets, e);
	while ((run = map_next(&s->nets->runs, &at)))
		run->last = run->state->counts;
	return r;
}

int sandbox_nets_new(struct service *s, struct err *e)
{
	struct nets *n = calloc(1, sizeof(*n));

	if (n) {
		n->sandbox = calloc(1, sizeof(*n->sandbox));
		n->names = calloc(1, sizeof(*n->names));
	}
	if (!n || !n->sandbox || !n->names || map_init(&n->runs) < 0 || map_init(&n->trees) < 0) {
		if (n) {
			free(n->sandbox);
			free(n->names);
		}
		free(n);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for networks");
	}
	n->service = s;
	uv_timer_init(s->loop, &n->timer);
	n->timer.data = n;
	uv_timer_init(s->loop, &n->tell);
	n->tell.data = n;
	s->nets = n;
	return 0;
}

int sandbox_nets_start(struct service *s, struct err *e)
{
	const struct egress_link_user u = { .have = on_have, .down = on_down, .message = on_message, .arg = s->nets };
	int r = load_all(s, e);

	if (r == 0)
		sandbox_nets_store(s); /* trees without a sandbox are removed */
	return r < 0 ? r : egress_link_new(s->loop, s->o.egress_place, &u, &s->nets->link, e);
}
