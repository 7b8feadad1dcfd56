/* Streams into which something is injected, or whose TLS is terminated by their rule, belong to egress/mitm.h from their first bytes on. */
#include "base/base.h"
#include "egress/refuse.h"
#include "egress/report.h"
#include "egress/stream.h"

bool stream_terminates(const struct stream *s)
{
	return s->name && policy_name_options(s->sandbox->policy, sandbox_outer(s->sandbox), s->name->text, s->port) &
				  NET_RULE_TERMINATE;
}

bool stream_wants_mitm(const struct stream *s, bool tls)
{
	if (s->name && inject_wants(s->sandbox->inject, s->name->text, s->port, tls))
		return true;
	return tls && stream_terminates(s);
}

static const char *on_request(void *arg, bool first)
{
	struct stream *s = arg;

	s->secrets |= first;
	return stream_charge(s) ? NULL : "too many requests per minute to this host";
}

static size_t on_may(void *arg, size_t want)
{
	struct stream *s = arg;
	struct sandbox *b = s->sandbox;
	uint64_t wait, n;
	const char *why;

	/* on_moved() handles a budget that is used up: here only the time matters. */
	n = meter_bytes(&b->meter, &b->tree->meter, true, b->g->loop.now, &wait, &why);
	if (!n && !why) {
		b->late = loop_timer_set(&b->g->loop, &b->timer, b->g->loop.now + wait) == 0;
		stream_queue(s);
		return 0;
	}
	return !n || n > want ? want : (size_t)n;
}

static bool on_moved(void *arg, size_t out, size_t in)
{
	struct stream *s = arg;
	struct sandbox *b = s->sandbox;
	uint64_t wait;
	const char *why_out, *why_in;

	meter_used(&b->meter, true, out);
	meter_used(&b->tree->meter, true, out);
	meter_used(&b->meter, false, in);
	meter_used(&b->tree->meter, false, in);
	s->bytes_out += out;
	s->bytes_in += in;
	s->last = b->g->loop.now;
	room_touch(b);
	report_counts(b);
	meter_bytes(&b->meter, &b->tree->meter, true, b->g->loop.now, &wait, &why_out);
	meter_bytes(&b->meter, &b->tree->meter, false, b->g->loop.now, &wait, &why_in);
	return !why_out && !why_in;
}

static void on_ended(void *arg, uint8_t verdict, const char *reason)
{
	struct stream *s = arg;

	s->mitm = NULL; /* it frees itself */
	stream_end(s, verdict, reason);
}

void stream_mitm(struct stream *s, bool tls)
{
	static const struct mitm_ops ops = { on_request, on_may, on_moved, on_ended };
	struct egress *g = s->sandbox->g;
	int client = s->a.fd, server = s->b.fd;
	struct mitm_opts o = { .loop = &g->loop,
			       .client = client,
			       .name = s->name->text,
			       .port = s->port,
			       .tls = tls,
			       .ca = tls ? s->sandbox->ca : NULL,
			       .trust = g->trust,
			       .inject = s->sandbox->inject,
			       .ops = &ops,
			       .arg = s };
	struct err e = { 0 };
	int r;

	/* Of a proxy's client the request is here already. */
	if (!tls && s->out.len) {
		o.first = s->out.buf + s->out.off;
		o.first_len = s->out.len;
	}
	s->looking = false;
	loop_forget(&g->loop, &s->a);
	r = mitm_new(&o, &s->mitm, &e);
	relay_half_done(&g->relay, &s->out);
	relay_half_init(&s->out);
	if (r < 0) {
		s->a.fd = client; /* not watched: it only has to be closed */
		s->mitm = NULL;
		stream_end(s, EGRESS_V_FAILED, e.msg);
		return;
	}
	if (!s->up)
		return;
	loop_forget(&g->loop, &s->b);
	s->up = false;
	mitm_connected(s->mitm, server, NULL);
}
