/* What went through, and what was refused: audit records and events. Values of secrets are in neither. */
#include "base/base.h"
#include "base/buf.h"
#include "service/network/internal.h"
#include "service/state/event.h"
#include "base/mask.h"
#include "service/secret/give.h"

static const char *verdict_name(uint8_t v)
{
	static const char *const names[] = {
		[EGRESS_V_OK] = "ok",	      [EGRESS_V_CUT] = "cut",	    [EGRESS_V_FAILED] = "failed",
		[EGRESS_V_DENIED] = "denied", [EGRESS_V_BUDGET] = "budget",
	};

	return v < ARRAY_LEN(names) ? names[v] : "unknown";
}

static bool refused(const struct egress_stream *x)
{
	return x->verdict == EGRESS_V_DENIED || x->verdict == EGRESS_V_BUDGET;
}

/* The texts that a name can be in, masked: a program may put a secret's value into a name by accident. */
struct masked {
	struct buf name, rule, reason;
};

static void masked_done(struct masked *m)
{
	buf_done(&m->name);
	buf_done(&m->rule);
	buf_done(&m->reason);
}

static const char *without(struct mask *m, const char *text, struct buf *to)
{
	*to = (struct buf)BUF_INIT(strlen(text) + 64);
	return !m || !*text ? text : mask_text(m, text, strlen(text), to) < 0 ? MASK_TEXT : buf_str(to);
}

static struct egress_stream mask_stream_of(const struct net_run *r, const struct egress_stream *x, struct masked *room)
{
	struct mask *m = r->sandbox ? sandbox_mask(r->sandbox) : r->mask;
	struct egress_stream y = *x;

	y.name = without(m, x->name, &room->name);
	y.rule = without(m, x->rule, &room->rule);
	y.reason = without(m, x->reason, &room->reason);
	return y;
}

static void write_fields(const struct egress_stream *x, bool lookup, struct json *j)
{
	struct net_addr a = { .family = x->family };
	char text[64];

	if (*x->name)
		jout_str(j, "name", x->name);
	if (x->family) {
		memcpy(a.addr, x->addr, sizeof(a.addr));
		net_addr_text(&a, text);
		jout_str(j, "address", text);
	}
	if (!lookup)
		jout_u64(j, "port", x->port);
	jout_str(j, "verdict", verdict_name(x->verdict));
	if (!refused(x) && !lookup) {
		jout_u64(j, "bytes_out", x->out);
		jout_u64(j, "bytes_in", x->in);
		jout_u64(j, "duration_ms", x->usec / 1000);
		if (x->requests)
			jout_u64(j, "requests", x->requests);
		if (x->times > 1)
			jout_u64(j, "times", x->times);
	} else {
		jout_u64(j, "times", x->times ? x->times : 1);
	}
	if (*x->rule)
		jout_str(j, "rule", x->rule);
	if (*x->reason)
		jout_str(j, "reason", x->reason);
	if (x->pid)
		jout_u64(j, "pid", x->pid);
	if (*x->command)
		jout_str(j, "command", x->command);
	if (*x->secrets)
		jout_str(j, "secrets", x->secrets);
}

static const char *kind_of(const struct egress_stream *x, bool lookup)
{
	return lookup ? "network.lookup" : refused(x) ? "network.refused" : "network.stream";
}

static void audit(struct service *s, const struct audit_rec *rec, const struct egress_stream *x, bool lookup)
{
	struct json *j = audit_begin(s->audit, rec);

	write_fields(x, lookup, j);
	audit_end(s->audit, NULL);
	turn_dirty(s->turn);
}

void net_log_seen(struct net_run *r, const char *rule)
{
	const struct sandbox *b = r->sandbox;
	AUTO(buf_done) struct buf room = BUF_INIT(0);

	if (!*rule || !b || !b->request->net || b->request->net->mode != EGRESS_OBSERVE)
		return;
	net_state_observe(r->state, without(sandbox_mask(b), rule, &room));
	nets_soon(r->nets);
}

void net_log_stream(struct net_run *r, const struct egress_stream *told, bool lookup)
{
	struct masked room;
	struct egress_stream y = mask_stream_of(r, told, &room), *x = &y;
	struct service *s = r->nets->service;
	struct audit_rec rec = { .kind = kind_of(x, lookup), .tenant = r->tenant, .sandbox = r->id };
	struct sandbox *b = r->sandbox;
	bool no = refused(x) || lookup;

	audit(s, &rec, x, lookup);
	if (no || egress_stream_unreached(x)) /* `why` also lists connections that failed */
		net_state_refuse(r->state, x, 0);
	if (!no)
		net_log_seen(r, x->rule);
	if (no && b) {
		AUTO(buf_done) struct buf text = BUF_INIT(16 * KIB);
		struct json j = JSON_INIT(&text);

		jout_object(&j, NULL);
		write_fields(x, lookup, &j);
		jout_end(&j);
		if (jout_done(&j) == 0 && text.len > 2) { /* without its braces */
			text.data[text.len - 1] = '\0';
			event_add(s, b, rec.kind, text.data + 1);
		}
	}
	masked_done(&room);
	nets_soon(r->nets);
}

/* A stream that ended while this process was away: its process is not known any more. */
void net_log_unknown(struct service *s, const struct egress_stream *x)
{
	struct audit_rec rec = { .kind = kind_of(x, false) };

	audit(s, &rec, x, false);
}
