/* What a sandbox's network has used and refused. */
#include "service/network/state.h"
#include "base/base.h"
#include "base/clock.h"

#include <inttypes.h>
#include <jansson.h>

static char *copy(const char *text)
{
	char *to = strdup(text);

	if (!to)
		abort(); /* a short text: without memory for it, nothing else would work */
	return to;
}

/* --- lifetime --- */

struct net_state *net_state_new(struct net_tree *tree)
{
	struct net_state *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	s->refs = 1;
	s->tree = tree;
	tree->refs++;
	return s;
}

static void refusal_done(struct net_refusal *r)
{
	free(r->target);
	free(r->rule);
	free(r->reason);
	free(r->command);
	*r = (struct net_refusal){ 0 };
}

static void names_done(struct net_state *s)
{
	for (uint32_t i = 0; i < s->nnames; i++)
		free(s->names[i].name);
	free(s->names);
	s->names = NULL;
	s->nnames = s->names_room = 0;
}

void net_state_unref(struct net_state *s)
{
	if (!s || --s->refs)
		return;
	names_done(s);
	for (uint32_t i = 0; i < NET_REFUSALS; i++)
		refusal_done(&s->refusal[i]);
	for (uint32_t i = 0; i < s->nobserved; i++)
		free(s->observed[i]);
	free(s->observed);
	s->tree->refs--; /* the owner of the trees frees unused ones */
	net_state_unref(s->forward);
	free(s);
}

struct net_state *net_state_now(struct net_state *s)
{
	while (s->forward)
		s = s->forward;
	return s;
}

/* --- counts --- */

#define FIELDS 6

static void fields(const struct egress_counts *c, uint64_t ret[FIELDS])
{
	const uint64_t all[FIELDS] = { c->bytes_out, c->bytes_in, c->connections, c->refused, c->dns, c->dns_refused };

	memcpy(ret, all, sizeof(all));
}

static void put_fields(const uint64_t v[FIELDS], struct egress_counts *c)
{
	c->bytes_out = v[0];
	c->bytes_in = v[1];
	c->connections = v[2];
	c->refused = v[3];
	c->dns = v[4];
	c->dns_refused = v[5];
}

/* What went back was begun anew. */
void net_counts_add(struct egress_counts *to, const struct egress_counts *last, const struct egress_counts *now)
{
	uint64_t a[FIELDS], b[FIELDS], sum[FIELDS];

	fields(last, a);
	fields(now, b);
	fields(to, sum);
	for (int i = 0; i < FIELDS; i++)
		if (b[i] > a[i] && __builtin_add_overflow(sum[i], b[i] - a[i], &sum[i]))
			sum[i] = UINT64_MAX;
	put_fields(sum, to);
}

void net_state_count(struct net_state *s, struct egress_counts *last, const struct egress_counts *now)
{
	s = net_state_now(s);
	net_counts_add(&s->counts, last, now);
	net_counts_add(&s->tree->counts, last, now);
	s->counts.concurrent = now->concurrent;
	s->dirty = s->tree->dirty = true;
	*last = *now;
}

void net_counts_write(const struct egress_counts *c, const char *key, struct json *j)
{
	jout_object(j, key);
	jout_u64(j, "bytes_out", c->bytes_out);
	jout_u64(j, "bytes_in", c->bytes_in);
	jout_u64(j, "connections", c->connections);
	jout_u64(j, "concurrent", c->concurrent);
	jout_u64(j, "refused", c->refused);
	jout_u64(j, "dns", c->dns);
	jout_u64(j, "dns_refused", c->dns_refused);
	jout_end(j);
}

int net_counts_text(const struct egress_counts *c, char *text, size_t size)
{
	uint64_t v[FIELDS];

	fields(c, v);
	return snprintf(text, size, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, v[0], v[1],
			v[2], v[3], v[4], v[5]);
}

void net_counts_read(const char *text, struct egress_counts *ret)
{
	uint64_t v[FIELDS] = { 0 };
	char *end;

	for (int i = 0; i < FIELDS && text && *text; i++) {
		v[i] = strtoull(text, &end, 10);
		text = end;
	}
	*ret = (struct egress_counts){ 0 };
	put_fields(v, ret);
}

/* --- names --- */

/* Where @index is, or belongs. */
static uint32_t name_at(const struct net_state *s, uint32_t index)
{
	uint32_t from = 0, to = s->nnames;

	while (from < to) {
		uint32_t mid = (from + to) / 2;

		if (s->names[mid].index < index)
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

bool net_state_name(struct net_state *s, uint32_t index, const char *name)
{
	uint32_t at = name_at(s, index);

	if (index >= EGRESS_NAMES_MAX)
		return false;
	if (at < s->nnames && s->names[at].index == index) {
		if (!strcmp(s->names[at].name, name))
			return false;
		free(s->names[at].name);
		s->names[at].name = copy(name);
		return true;
	}
	if (s->nnames == s->names_room) {
		uint32_t room = s->names_room ? 2 * s->names_room : 8;
		struct net_name *more = realloc(s->names, room * sizeof(*more));

		if (!more)
			abort();
		s->names = more;
		s->names_room = room;
	}
	memmove(s->names + at + 1, s->names + at, (s->nnames - at) * sizeof(*s->names));
	s->names[at] = (struct net_name){ .index = index, .name = copy(name) };
	s->nnames++;
	return true;
}

void net_state_names_copy(struct net_state *s, const struct net_state *from)
{
	for (uint32_t i = 0; i < from->nnames; i++)
		net_state_name(s, from->names[i].index, from->names[i].name);
}

int net_state_names_write(const struct net_state *s, struct buf *to)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < s->nnames; i++)
		r = buf_addf(to, "%s%u %s", i ? "\n" : "", s->names[i].index, s->names[i].name);
	return r;
}

void net_state_names_read(struct net_state *s, const char *text)
{
	while (text && *text) {
		size_t n = strcspn(text, "\n");
		char name[NET_NAME_MAX];
		char *end;
		unsigned long index = strtoul(text, &end, 10);
		size_t len = n - (size_t)(end - text);

		if (end > text && *end == ' ' && len > 1 && index < EGRESS_NAMES_MAX &&
		    net_name_parse(end + 1, len - 1, name) == 0)
			net_state_name(s, (uint32_t)index, name);
		text += n;
		text += *text == '\n';
	}
}

/* --- refusals --- */

static void target_of(const struct egress_stream *x, char *text, size_t size)
{
	struct net_addr a = { .family = x->family };

	if (*x->name || !x->family) {
		snprintf(text, size, "%s", x->name);
		return;
	}
	memcpy(a.addr, x->addr, sizeof(a.addr));
	net_addr_text(&a, text);
}

/* By a name, the address is one of ours: what it led to is in the reason alone. */
static bool is_private(const struct egress_stream *x)
{
	struct net_addr a = { .family = x->family };
	const char *what;

	memcpy(a.addr, x->addr, sizeof(a.addr));
	return *x->name ? strstr(x->reason, " resolves to ") != NULL : x->family && !net_addr_public(&a, &what);
}

static struct net_refusal *same_refusal(struct net_state *s, const struct egress_stream *x, const char *target,
					bool kernel)
{
	for (uint32_t i = 0; i < NET_REFUSALS; i++) {
		struct net_refusal *r = &s->refusal[i];

		/* Whose it was is not always found out: that makes no other of it. */
		if (r->target && r->port == x->port && r->verdict == x->verdict && r->kernel == kernel &&
		    !strcmp(r->target, target) && (!*r->command || !*x->command || !strcmp(r->command, x->command)) &&
		    !strcmp(r->reason, x->reason))
			return r;
	}
	return NULL;
}

void net_state_refuse(struct net_state *s, const struct egress_stream *x, uint64_t kernel_ns)
{
	const uint64_t at = kernel_ns ? kernel_ns : clock_real_ns();
	char target[NET_NAME_MAX + 64];
	struct net_refusal *r;

	s = net_state_now(s);
	target_of(x, target, sizeof(target));
	r = same_refusal(s, x, target, kernel_ns != 0);
	if (r && kernel_ns) { /* the kernel's counter is the total */
		if (r->times != x->times)
			r->at_ns = at;
		r->times = x->times;
		return;
	}
	if (!r) {
		r = &s->refusal[s->nrefusals++ % NET_REFUSALS];
		refusal_done(r);
		*r = (struct net_refusal){
			.verdict = x->verdict, .port = x->port, .kernel = kernel_ns != 0, .private = is_private(x)
		};
		r->first_ns = at;
		r->target = copy(target);
		r->rule = copy(x->rule);
		r->reason = copy(x->reason);
		r->command = copy(x->command);
	}
	if (*x->command && !*r->command) {
		free(r->command);
		r->command = copy(x->command);
	}
	r->at_ns = at;
	if (x->pid)
		r->pid = x->pid;
	r->times += x->times ? x->times : 1;
}

/* --- what was needed --- */

void net_state_observe(struct net_state *s, const char *rule)
{
	s = net_state_now(s);
	for (uint32_t i = 0; i < s->nobserved; i++)
		if (!strcmp(s->observed[i], rule))
			return;
	if (s->nobserved == NET_OBSERVED) {
		s->observed_all = true;
		return;
	}
	if (!s->observed)
		s->observed = calloc(NET_OBSERVED, sizeof(*s->observed));
	if (!s->observed)
		abort();
	s->observed[s->nobserved++] = copy(rule);
	s->dirty = true;
}

void net_state_observed_write(const struct net_state *s, const char *key, struct json *j)
{
	struct net_rule *list = calloc(s->nobserved + 1, sizeof(*list)), r;
	char text[NET_RULE_TEXT];
	uint32_t n = 0, at;

	if (!list)
		abort();
	for (uint32_t i = 0; i < s->nobserved; i++) {
		if (net_rule_parse(s->observed[i], &r, NULL) < 0)
			continue;
		for (at = 0; at < n; at++)
			if (net_rule_join(&list[at], &r))
				break;
		if (at == n)
			list[n++] = r;
	}
	jout_array(j, key);
	for (uint32_t i = 0; i < n; i++) {
		net_rule_text(&list[i], text);
		jout_str(j, NULL, text);
	}
	jout_end(j);
	free(list);
}
