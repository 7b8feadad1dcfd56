/* Tells a refused client why, in its own protocol. */
#include "egress/refuse.h"
#include "base/base.h"
#include "base/json.h"
#include "egress/dns.h"
#include "egress/head.h"
#include "egress/report.h"
#include "egress/socks.h"

#include <sys/socket.h>

#define WHO_PATIENCE (500 * LOOP_MS) /* a busy machine's; it takes a millisecond as a rule */
#define SAY_PATIENCE LOOP_SEC
#define LISTEN_PATIENCE (100 * LOOP_MS) /* at ports that seldom have HTTP: a client of HTTP sends its request at once */
#define DRAIN_MAX (256U * 1024U)
#define AT_ONCE 64U /* of a sandbox: more of them get their reset at once */

struct refused {
	uint8_t verdict;
	bool fresh; /* it must be reported */
	bool counted; /* in ->refusing */
	bool listening; /* for a request, to answer it */
	bool said; /* an answer was given; the rest is thrown away */
	bool draining; /* the server's last words go first */
	uint32_t drained; /* bytes of them */
	uint64_t drain_until;
	uint32_t who; /* seq of the EGRESS_WHO; 0: none */
	uint32_t pid;
	uint64_t until; /* deadline for the answer to EGRESS_WHO */
	char reason[EGRESS_TEXT_MAX], rule[NET_RULE_TEXT], command[EGRESS_TEXT_MAX];
};

static struct egress_stream as_report(const struct stream *s, const struct refused *f)
{
	struct egress_stream e = { .out = s->bytes_out,
				   .in = s->bytes_in,
				   .verdict = f->verdict,
				   .family = s->addr.family,
				   .port = s->port,
				   .pid = f->pid,
				   .requests = s->requests,
				   .name = s->name ? s->name->text : "",
				   .rule = f->rule,
				   .reason = f->reason,
				   .command = f->command };

	if (f->verdict == EGRESS_V_FAILED)
		e.usec = (s->sandbox->g->loop.now - s->began) / 1000;
	memcpy(e.addr, s->addr.addr, sizeof(e.addr));
	return e;
}

static void tell(struct stream *s)
{
	struct refused *f = s->refused;
	struct egress_stream e = as_report(s, f);

	f->fresh = false;
	if (f->verdict == EGRESS_V_FAILED)
		report_stream(s->sandbox, &e);
	else
		report_refused(s->sandbox, &e, false);
}

void refuse_free(struct stream *s)
{
	struct refused *f = s->refused;
	struct egress *g = s->sandbox->g;

	if (f->fresh)
		tell(s);
	sandbox_report_again(s->sandbox);
	g->asked -= f->who != 0;
	s->sandbox->refusing -= f->counted;
	free(f);
	s->refused = NULL;
}

static void finish(struct stream *s)
{
	/* The answer has to arrive, so no reset then. */
	stream_end(s, s->refused->said ? EGRESS_V_OK : s->refused->verdict, "");
}

/* ---- in-band ----------------------------------------------------------------------------------------------------- */

static void remedy_text(const struct stream *s, const struct refused *f, char *out, size_t size)
{
	if (f->verdict == EGRESS_V_FAILED)
		snprintf(out, size, "try again later, or another host");
	else if (f->verdict == EGRESS_V_BUDGET)
		snprintf(out, size, "request a larger network budget for the sandbox");
	else if (f->rule[0])
		snprintf(out, size, "add '%s' to the sandbox's network rules", f->rule);
	else
		snprintf(out, size, "%s",
			 s->name ? "use the host that the connection is made to" :
				   "an administrator can allow such addresses in the configuration");
}

static void say_http(struct stream *s)
{
	static const struct {
		const char *line, *code;
	} as[] = {
		[EGRESS_V_FAILED] = { "502 Bad Gateway", "unreachable" },
		[EGRESS_V_DENIED] = { "403 Forbidden", "denied" },
		[EGRESS_V_BUDGET] = { "429 Too Many Requests", "quota" },
	};
	AUTO(buf_done) struct buf body = BUF_INIT(4 * KIB);
	AUTO(buf_done) struct buf all = BUF_INIT(8 * KIB);
	struct json j = JSON_INIT(&body);
	struct refused *f = s->refused;
	char remedy[NET_RULE_TEXT + 64], to[NET_RULE_TEXT], message[NET_RULE_TEXT + EGRESS_TEXT_MAX + 32];

	policy_wish(s->name ? s->name->text : "", &s->addr, s->port, to);
	snprintf(message, sizeof(message), "%s: %s", s->stage == STREAM_REFUSED && s->port ? to : "request", f->reason);
	remedy_text(s, f, remedy, sizeof(remedy));
	jout_object(&j, NULL);
	jout_str(&j, "code", as[f->verdict].code);
	jout_str(&j, "message", message);
	jout_str(&j, "remedy", remedy);
	jout_end(&j);
	if (jout_done(&j) < 0 ||
	    buf_addf(&all,
		     "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n"
		     "X-Cloche-Egress: %s\r\n\r\n%s",
		     as[f->verdict].line, body.len, as[f->verdict].code, buf_str(&body)) < 0)
		return;
	f->said = send(s->client.fd, all.data, all.len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)all.len;
}

static void say_socks(struct stream *s)
{
	uint8_t reply[SOCKS_REPLY];
	struct refused *f = s->refused;

	socks_reply(f->verdict != EGRESS_V_FAILED ? SOCKS_NOT_ALLOWED : SOCKS_HOST_UNREACHABLE, reply);
	f->said = send(s->client.fd, reply, sizeof(reply), MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(reply);
}

/* Answers the refusal in the client's protocol where that is still possible, now or after its first request. */
static void say(struct stream *s, uint8_t stage)
{
	struct refused *f = s->refused;

	if (stage == STREAM_HTTP_PROXY || ((s->asked == STREAM_CONNECT || s->asked == STREAM_ABSOLUTE) && !s->up))
		say_http(s);
	else if (s->asked == STREAM_SOCKS && !s->up)
		say_socks(s);
	else if (stage == STREAM_SOCKS_GREET || stage == STREAM_SOCKS_ASK)
		f->said = true; /* the parser of SOCKS has answered */
	else if (s->http && !s->requests && !s->bytes_in)
		say_http(s);
	else if (s->http && s->requests == 1 && !s->up && f->verdict == EGRESS_V_FAILED)
		say_http(s);
	else
		/* Past a budget no byte was inspected yet: at any port the client may use HTTP. */
		f->listening =
			!s->http && !s->bytes_in && !s->bytes_out && (s->port == 80 || f->verdict == EGRESS_V_BUDGET);
	if (f->said)
		shutdown(s->client.fd, SHUT_WR);
}

/*
 * A later request of a connection is answered after the answers to earlier ones. Only the server knows where those end,
 * and it closes the connection when the request side is shut down. A client that pipelines requests could take the
 * refusal for the answer to an earlier request: it gets a reset.
 */
static bool has_answers(const struct stream *s, uint8_t verdict)
{
	const struct stream_http *h = s->http;

	return h && h->at_head && !h->ahead && s->requests && s->up && s->b.fd >= 0 && s->bytes_in > h->answered &&
	       s->asked != STREAM_ABSOLUTE && !s->out.pass && !s->out.in_pipe && !s->in.held && !s->in.eof &&
	       verdict != EGRESS_V_FAILED;
}

static void drain_begin(struct stream *s)
{
	struct refused *f = s->refused;

	f->draining = true;
	f->drain_until = s->sandbox->g->loop.now + SAY_PATIENCE;
	s->in.shut = true; /* the answer shows the client the end */
	shutdown(s->b.fd, SHUT_WR);
	stream_queue(s);
}

/* False: the stream has ended. */
static bool drain(struct stream *s)
{
	struct refused *f = s->refused;
	size_t n = 0;
	int r = stream_drain(s, &n);

	f->drained += (uint32_t)n;
	if (r < 0 || f->drained > DRAIN_MAX) {
		finish(s);
		return false;
	}
	if (r == 0)
		return true;
	f->draining = false;
	loop_close(&s->sandbox->g->loop, &s->b);
	s->last = s->sandbox->g->loop.now;
	say_http(s);
	if (f->said)
		shutdown(s->client.fd, SHUT_WR);
	return true;
}

static void listen_for_request(struct stream *s)
{
	struct refused *f = s->refused;
	AUTO_FREE struct head *h = malloc(sizeof(*h));
	const char *why;
	enum look look = LOOK_MORE;

	if (s->client.in && relay_hold(&s->sandbox->g->relay, &s->out, &s->client, HEAD_MAX) == 0)
		look = LOOK_NOT;
	if (!h)
		look = LOOK_NOT;
	else if (s->out.len)
		look = head_look(s->out.buf + s->out.off, s->out.len, h, &why);
	if (look == LOOK_MORE)
		return;
	f->listening = false;
	if (look == LOOK_YES)
		say_http(s);
	if (f->said)
		shutdown(s->client.fd, SHUT_WR);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

static bool asks(const struct stream *s)
{
	const struct refused *f = s->refused;

	return f->who && !f->pid && f->until > s->sandbox->g->loop.now;
}

bool refuse_told(struct stream *s)
{
	struct refused *f = s->refused;

	if (!f || !f->fresh)
		return true;
	if (asks(s))
		return false;
	tell(s);
	return true;
}

static uint64_t patience(const struct stream *s)
{
	const struct refused *f = s->refused;

	return f->listening && !s->out.len && s->port != 80 ? LISTEN_PATIENCE : SAY_PATIENCE;
}

/* Ends it, unless there is something to wait for. */
static void go_on(struct stream *s)
{
	struct refused *f = s->refused;
	uint64_t until = f->draining ? f->drain_until : f->listening || f->said ? s->last + patience(s) : f->until;

	if ((f->said && s->out.eof && !asks(s)) || (!f->draining && !f->listening && !f->said && !asks(s)) ||
	    s->sandbox->g->loop.now >= until || loop_timer_set(&s->sandbox->g->loop, &s->timer, until) < 0)
		finish(s);
}

void refuse_ready(struct stream *s)
{
	struct refused *f = s->refused;

	if (f->draining && !drain(s))
		return;
	if (f->listening)
		listen_for_request(s);
	for (int i = 0; f->said && s->client.in && !s->out.eof && i < 16; i++) {
		ssize_t n = recv(s->client.fd, s->sandbox->g->relay.bytes, RELAY_READ, MSG_DONTWAIT);

		if (n < 0)
			s->client.in = false;
		if (n == 0 || (n < 0 && errno != EAGAIN))
			s->out.eof = true;
	}
	go_on(s);
}

void refuse_due(struct stream *s)
{
	/* Only whose it is was awaited: a request may still come. */
	if (s->refused->listening && s->sandbox->g->loop.now < s->last + patience(s))
		go_on(s);
	else
		finish(s);
}

void refuse_they(struct egress *g, uint32_t seq, const struct egress_they *t)
{
	struct sandbox *b = egress_sandbox(g, t->sandbox);

	for (struct stream *s = b ? b->streams : NULL; s; s = s->next) {
		struct refused *f = s->refused;

		if (!f || f->who != seq)
			continue;
		f->who = 0;
		g->asked--;
		f->pid = t->pid;
		snprintf(f->command, sizeof(f->command), "%s", t->command);
		sandbox_report_again(b);
		go_on(s);
		return;
	}
	if (b)
		dns_they(b, seq, t);
}

static void ask_who(struct stream *s)
{
	struct egress_who w = { .sandbox = s->sandbox->number,
				.family = s->client_addr.family,
				.client_port = s->client_port,
				.port = s->port };
	struct refused *f = s->refused;

	memcpy(w.client, s->client_addr.addr, sizeof(w.client));
	memcpy(w.addr, s->addr.addr, sizeof(w.addr));
	f->who = report_who(s->sandbox, &w);
	s->sandbox->g->asked += f->who != 0;
	f->until = s->sandbox->g->loop.now + WHO_PATIENCE;
}

void refuse(struct stream *s, uint8_t verdict, const char *reason)
{
	struct sandbox *b = s->sandbox;
	struct refused *f;
	uint8_t stage = s->stage;
	uint16_t rule;
	bool later;

	if (s->stage == STREAM_REFUSED)
		return;
	s->stage = STREAM_REFUSED;
	resolve_cancel(s->query);
	s->query = NULL;
	upstream_cancel(s->upstream);
	s->upstream = NULL;
	later = has_answers(s, verdict) && b->refusing < AT_ONCE;
	if (s->b.fd >= 0 && !later)
		loop_close(&b->g->loop, &s->b);
	s->looking = false;
	s->last = b->g->loop.now;
	if (verdict != EGRESS_V_FAILED) {
		b->meter.counts.refused++;
		b->tree->meter.counts.refused++;
		report_counts(b);
	}
	f = calloc(1, sizeof(*f));
	s->refused = f;
	if (!f) {
		stream_end(s, verdict, reason);
		return;
	}
	f->verdict = verdict;
	f->counted = true;
	b->refusing++;
	snprintf(f->reason, sizeof(f->reason), "%s", reason);
	/* What would help is a rule only where one is missing. */
	if (verdict == EGRESS_V_DENIED && stage == STREAM_AIMED && names_index(&s->addr) != -2 &&
	    (s->name || policy_addr_open(b->policy, &b->g->own, &s->addr, s->port, NULL)) &&
	    !(s->name ? policy_has_name(b->policy, sandbox_outer(b), s->name->text, s->port, &rule) :
			policy_has_addr(b->policy, sandbox_outer(b), &s->addr, s->port, &rule)))
		policy_wish(s->name ? s->name->text : "", &s->addr, s->port, f->rule);
	/* Repeated attempts at an unreachable server are folded in the log like refusals. */
	f->fresh = true;
	if (verdict != EGRESS_V_FAILED || !s->up) {
		struct egress_stream e = as_report(s, f);

		f->fresh = report_is_new(b, &e, false);
	}
	if (b->refusing <= AT_ONCE) {
		if (f->fresh && verdict != EGRESS_V_FAILED)
			ask_who(s);
		if (later)
			drain_begin(s);
		else
			say(s, stage);
	}
	if (f->listening && s->out.len)
		listen_for_request(s);
	go_on(s);
}
