/* Collects reports for the owner. */
#include "egress/report.h"
#include "base/base.h"

#define FOLDED 32U
#define FOLD_EVERY LOOP_SEC
#define COUNTS_EVERY (250 * LOOP_MS)
#define REPORT_MAX 8192U
#define TOLD_MAX 256U /* different refusals of a sandbox that are reported one by one; more are only counted */
#define TOLD_EVERY (LOOP_SEC / 4) /* and one more */

struct folded {
	struct folded *next;
	struct egress_stream s;
	bool lookup;
	uint64_t at;
	uint32_t times; /* since the last report */
	char name[NET_NAME_MAX], rule[NET_RULE_TEXT], reason[EGRESS_TEXT_MAX];
};

struct fold {
	struct folded *first;
	uint32_t n;
};

static const char *text(const char *s)
{
	return s ? s : "";
}

static void send_stream(struct sandbox *b, enum egress_type type, struct egress_stream *s)
{
	uint8_t packet[REPORT_MAX];
	long n;

	s->sandbox = b->number;
	s->name = text(s->name);
	s->rule = text(s->rule);
	s->reason = text(s->reason);
	s->command = text(s->command);
	s->secrets = text(s->secrets);
	n = egress_stream_encode(type, s, packet, sizeof(packet));
	if (n > 0)
		link_send_soon(&b->g->link, packet, (size_t)n);
}

void report_stream(struct sandbox *b, struct egress_stream *s)
{
	s->times = 1;
	send_stream(b, EGRESS_STREAM, s);
}

void report_seen(struct sandbox *b, struct egress_stream *s)
{
	s->times = 1;
	send_stream(b, EGRESS_SEEN, s);
}

/* ---- folding ----------------------------------------------------------------------------------------------------- */

static bool same(const struct folded *f, const struct egress_stream *s, bool lookup)
{
	return f->lookup == lookup && f->s.verdict == s->verdict && f->s.port == s->port && f->s.family == s->family &&
	       !memcmp(f->s.addr, s->addr, sizeof(s->addr)) && !strcmp(f->name, text(s->name)) &&
	       !strcmp(f->reason, text(s->reason));
}

static void tell_folded(struct sandbox *b, struct folded *f)
{
	if (!f->times)
		return;
	f->s.times = f->times;
	f->times = 0;
	send_stream(b, f->lookup ? EGRESS_LOOKUP : EGRESS_STREAM, &f->s);
}

static void drop_oldest(struct sandbox *b)
{
	struct folded **at = &b->fold->first, **oldest = at, *f;

	for (; *at; at = &(*at)->next)
		if ((*at)->at < (*oldest)->at)
			oldest = at;
	f = *oldest;
	assert(f); /* there are FOLDED of them */
	tell_folded(b, f);
	*oldest = f->next;
	b->fold->n--;
	free(f);
}

static void remember(struct sandbox *b, const struct egress_stream *s, bool lookup)
{
	struct folded *f = calloc(1, sizeof(*f));

	if (!b->fold) {
		b->fold = calloc(1, sizeof(*b->fold));
		if (b->fold) {
			b->fold_next = b->g->folding;
			b->g->folding = b;
		}
	}
	if (!f || !b->fold ||
	    (!b->g->fold_timer.slot &&
	     loop_timer_set(&b->g->loop, &b->g->fold_timer, b->g->loop.now + FOLD_EVERY) < 0)) {
		free(f); /* without folding, each is reported */
		return;
	}
	if (b->fold->n == FOLDED)
		drop_oldest(b);
	f->s = *s;
	f->lookup = lookup;
	f->at = b->g->loop.now;
	snprintf(f->name, sizeof(f->name), "%s", text(s->name));
	snprintf(f->rule, sizeof(f->rule), "%s", text(s->rule));
	snprintf(f->reason, sizeof(f->reason), "%s", text(s->reason));
	f->s.name = f->name;
	f->s.rule = f->rule;
	f->s.reason = f->reason;
	f->s.command = f->s.secrets = "";
	f->s.pid = f->s.requests = 0;
	f->s.usec = f->s.in = f->s.out = 0;
	f->next = b->fold->first;
	b->fold->first = f;
	b->fold->n++;
}

static bool too_many(struct sandbox *b)
{
	uint64_t n = (b->g->loop.now - b->told_at) / TOLD_EVERY;

	b->told = n < b->told ? b->told - (uint32_t)n : 0;
	b->told_at += n * TOLD_EVERY;
	if (b->told >= TOLD_MAX)
		return true;
	b->told++;
	return false;
}

static bool again(struct sandbox *b, const struct egress_stream *s, bool lookup)
{
	for (struct folded *f = b->fold ? b->fold->first : NULL; f; f = f->next)
		if (same(f, s, lookup)) {
			f->times++;
			f->at = b->g->loop.now;
			return true;
		}
	return false;
}

/* Each report becomes a record of the audit log: a sandbox with ever new refusals must not fill the log. */
bool report_is_new(struct sandbox *b, const struct egress_stream *s, bool lookup)
{
	const struct egress_stream others = { .verdict = s->verdict,
					      .name = "*",
					      .reason = "others, too many and too different to be listed" };

	if (again(b, s, lookup))
		return false;
	if (!too_many(b)) {
		remember(b, s, lookup);
		return true;
	}
	if (!again(b, &others, lookup)) {
		remember(b, &others, lookup);
		again(b, &others, lookup);
	}
	return false;
}

void report_refused(struct sandbox *b, struct egress_stream *s, bool lookup)
{
	s->times = 1;
	send_stream(b, lookup ? EGRESS_LOOKUP : EGRESS_STREAM, s);
}

/* Reports what was folded, and drops what was not repeated. True: something is left. */
static bool fold_round(struct sandbox *b, bool all)
{
	for (struct folded **at = &b->fold->first; *at;) {
		struct folded *f = *at;

		tell_folded(b, f);
		if (!all && b->g->loop.now - f->at < FOLD_EVERY) {
			at = &f->next;
			continue;
		}
		*at = f->next;
		b->fold->n--;
		free(f);
	}
	return b->fold->n;
}

static void fold_end(struct sandbox *b)
{
	struct sandbox **at = &b->g->folding;

	while (*at && *at != b)
		at = &(*at)->fold_next;
	if (*at)
		*at = b->fold_next;
	free(b->fold);
	b->fold = NULL;
}

void report_fold_due(struct loop_timer *t)
{
	struct egress *g = (struct egress *)((char *)t - offsetof(struct egress, fold_timer));
	struct sandbox *next;

	for (struct sandbox *b = g->folding; b; b = next) {
		next = b->fold_next;
		if (!fold_round(b, false))
			fold_end(b);
	}
	if (g->folding)
		loop_timer_set(&g->loop, t, g->loop.now + FOLD_EVERY);
}

/* ---- counts and names -------------------------------------------------------------------------------------------- */

static void send_counts(struct sandbox *b)
{
	uint8_t packet[256];
	long n;

	b->meter.counts.sandbox = b->number;
	n = egress_counts_encode(&b->meter.counts, packet, sizeof(packet));
	if (n > 0)
		link_send(&b->g->link, packet, (size_t)n);
}

void report_counts(struct sandbox *b)
{
	struct egress *g = b->g;

	if (b->dirty)
		return;
	b->dirty = true;
	b->dirty_next = g->dirty;
	g->dirty = b;
	if (!g->counts_timer.slot && link_owned(&g->link))
		loop_timer_set(&g->loop, &g->counts_timer, g->loop.now + COUNTS_EVERY);
}

/* Without an owner they wait where they are: only the last ones count. */
void report_counts_due(struct loop_timer *t)
{
	struct egress *g = (struct egress *)((char *)t - offsetof(struct egress, counts_timer));
	struct sandbox *b;

	while (link_owned(&g->link) && link_has_room(&g->link) && (b = g->dirty)) {
		g->dirty = b->dirty_next;
		b->dirty = false;
		send_counts(b);
		report_names(b);
	}
	if (g->dirty && link_owned(&g->link))
		loop_timer_set(&g->loop, t, g->loop.now + COUNTS_EVERY);
}

void report_names(struct sandbox *b)
{
	AUTO_FREE uint8_t *packet = NULL;
	AUTO_FREE struct egress_names *n = NULL;
	long len;

	if (!b->names.untold || !link_owned(&b->g->link) || !link_has_room(&b->g->link))
		return;
	packet = malloc(EGRESS_MSG_MAX);
	n = malloc(sizeof(*n));
	while (packet && n && b->names.untold && link_has_room(&b->g->link)) {
		n->sandbox = b->number;
		names_tell(&b->names, n);
		len = egress_names_encode(EGRESS_NAMED, n, packet, EGRESS_MSG_MAX);
		if (len < 0)
			return;
		link_send(&b->g->link, packet, (size_t)len);
	}
	if (b->names.untold)
		report_counts(b); /* comes back to it */
}

void report_flush(struct sandbox *b)
{
	report_names(b);
	if (b->fold && !fold_round(b, true))
		fold_end(b);
	send_counts(b);
}

void report_now(struct sandbox *b, uint32_t seq)
{
	uint8_t packet[EGRESS_HEAD + 16];
	long n = egress_plain_encode(EGRESS_TOLD, seq, b->number, 0, packet, sizeof(packet));

	report_names(b);
	if (b->fold && !fold_round(b, false))
		fold_end(b);
	send_counts(b);
	link_send(&b->g->link, packet, (size_t)n);
}

void report_done(struct sandbox *b)
{
	struct sandbox **at = &b->g->dirty;

	while (*at && *at != b)
		at = &(*at)->dirty_next;
	if (*at)
		*at = b->dirty_next;
	b->dirty = false;
	if (b->fold) {
		fold_round(b, true);
		fold_end(b);
	}
}

uint32_t report_who(struct sandbox *b, const struct egress_who *w)
{
	uint8_t packet[128];
	struct egress *g = b->g;
	long n;

	if (g->asked >= EGRESS_ASKED || !link_owned(&g->link))
		return 0;
	g->seq += g->seq == UINT32_MAX ? 2 : 1;
	n = egress_who_encode(w, g->seq, packet, sizeof(packet));
	return n > 0 && link_send_now(&g->link, packet, (size_t)n) == 0 ? g->seq : 0;
}
