/* Moves the bytes of a terminated stream between its two TLS connections. */
#include "egress/mitm.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include "base/base.h"
#include "base/json.h"
#include "egress/request.h"
#include "egress/scrub.h"
#include "egress/tls_end.h"

#define PIECE 16384U /* read and written at a time: a TLS record */
#define ROUNDS 32 /* of one stream before others have their turn */
#define SHAKE_TIME (20 * LOOP_SEC)
/* as for any stream: an answer may take long, and pending answers are not counted */
#define IDLE_TIME (3600 * LOOP_SEC)
#define DRAIN_TIME (1 * LOOP_SEC)
#define DRAIN_MAX (256U * 1024U)
#define QUIET_TIME (100 * LOOP_MS) /* then a few held bytes that could begin a value are forwarded all the same */
#define DOWN_MAX (512U * 1024U) /* a piece, a head, and what may be held of a value in its longest form */

struct refusal {
	int status; /* 0: none */
	uint8_t verdict;
	const char *code, *remedy;
	char why[EGRESS_TEXT_MAX];
};

struct mitm {
	struct loop *loop; /* not a loop_fd: the loop overwrites the first word of what is buried */
	struct tls_end client, server;
	struct loop_timer timer, again, quiet;
	const struct mitm_ops *ops;
	void *arg;
	SSL *later; /* for the server, until it is connected: the trusted authorities are fixed at the start */
	struct inject *inject;
	struct scrub *scrub; /* of the answers; NULL: nothing is injected */
	char name[NET_NAME_MAX];
	uint16_t port;
	bool tls;
	struct request request;
	struct buf in; /* from the sandbox, not looked at yet */
	struct buf out; /* to the server: holds values, and is never moved while it does */
	struct buf down; /* to the sandbox */
	uint64_t last; /* when something moved */
	uint32_t drained;
	bool some; /* a request went to the server */
	bool answered; /* and it has said something since */
	bool closing; /* what is in ->down is the last */
	bool draining; /* the server has closed: the sandbox must read the rest before it gets a reset */
	bool gone;
	struct refusal refusal;
};

static void release(struct mitm *m, bool reset)
{
	m->gone = true;
	tls_end_close(&m->client, m->loop, reset);
	tls_end_close(&m->server, m->loop, reset);
	SSL_free(TAKE_PTR(m->later));
	loop_timer_stop(m->loop, &m->timer);
	loop_timer_stop(m->loop, &m->again);
	loop_timer_stop(m->loop, &m->quiet);
	scrub_free(TAKE_PTR(m->scrub));
	buf_done(&m->in);
	buf_done(&m->down);
	ca_wipe(&m->out);
	inject_unref(TAKE_PTR(m->inject));
	loop_bury(m->loop, m);
}

static void end(struct mitm *m, uint8_t verdict, const char *reason)
{
	const struct mitm_ops *ops = m->ops;
	void *arg = m->arg;
	char text[EGRESS_TEXT_MAX];

	snprintf(text, sizeof(text), "%s", reason);
	release(m, verdict == EGRESS_V_CUT || verdict == EGRESS_V_FAILED);
	ops->ended(arg, verdict, text);
}

/* ---- answers to the sandbox -------------------------------------------------------------------------------------- */

static const char *status_text(int status)
{
	switch (status) {
	case 400:
		return "Bad Request";
	case 403:
		return "Forbidden";
	case 421:
		return "Misdirected Request";
	case 429:
		return "Too Many Requests";
	case 504:
		return "Gateway Timeout";
	default:
		return "Bad Gateway";
	}
}

/* Remembered until a request is there that can be answered; the first one counts. */
static void refuse(struct mitm *m, int status, uint8_t verdict, const char *why, const char *remedy)
{
	struct refusal *r = &m->refusal;

	if (r->status)
		return;
	*r = (struct refusal){ .status = status, .verdict = verdict, .remedy = remedy };
	r->code = verdict == EGRESS_V_BUDGET ? "budget" : verdict == EGRESS_V_DENIED ? "denied" : "unreachable";
	snprintf(r->why, sizeof(r->why), "%s", why);
}

/* The answer to the request that is there, behind what is in ->down, and the end. */
static void put_answer(struct mitm *m)
{
	AUTO(buf_done) struct buf body = BUF_INIT(4096);
	struct json j = JSON_INIT(&body);
	const struct refusal *r = &m->refusal;

	jout_object(&j, NULL);
	jout_str(&j, "code", r->code);
	jout_str(&j, "message", r->why);
	jout_str(&j, "remedy", r->remedy);
	jout_end(&j);
	buf_clear(&m->in);
	ca_wipe(&m->out);
	tls_end_close(&m->server, m->loop, true);
	m->closing = true;
	if (jout_done(&j) < 0 || buf_addf(&m->down,
					  "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
					  "Connection: close\r\n\r\n%s",
					  r->status, status_text(r->status), body.len, buf_str(&body)) < 0)
		end(m, r->verdict, r->why);
}

static void answer(struct mitm *m)
{
	/* An error cannot be inserted into the middle of another answer. */
	if (m->down.len || (m->some && !m->answered))
		end(m, EGRESS_V_CUT, m->refusal.why);
	else
		put_answer(m);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* A Host without a port is also what some clients say of servers on other ports than the usual one. */
static bool host_fits(const struct mitm *m, const struct look_to *to)
{
	return !strcmp(to->name, m->name) && (!to->port || to->port == m->port);
}

static void pass_head(struct mitm *m, const struct head *h)
{
	const char *why;

	if (!host_fits(m, &h->host)) {
		refuse(m, 421, EGRESS_V_DENIED, "the request names another host than the connection",
		       "open a separate connection for each host");
		answer(m);
		return;
	}
	/* Whose answer is the request as it came, value and all. */
	if (h->method_len == 5 && (!memcmp(m->in.data, "TRACE", 5) || !memcmp(m->in.data, "TRACK", 5))) {
		refuse(m, 403, EGRESS_V_DENIED, "TRACE would reveal the added secrets", "use another method");
		answer(m);
		return;
	}
	why = m->ops->request ? m->ops->request(m->arg, !m->some) : NULL;
	if (why) {
		refuse(m, 429, EGRESS_V_BUDGET, why, "wait, or request a larger budget");
		answer(m);
		return;
	}
	/* All the memory it will need, at once: what grows leaves copies of what it held. */
	ca_wipe(&m->out);
	if (!buf_room(&m->out, h->len + inject_size(m->inject) + 128) ||
	    inject_head(m->inject, m->name, m->port, m->tls, buf_str(&m->in), h, &m->out) < 0) {
		end(m, EGRESS_V_FAILED, "no memory for a request's head");
		return;
	}
	if (m->scrub)
		scrub_asked(m->scrub, h->method_len == 4 && !memcmp(m->in.data, "HEAD", 4),
			    h->upgrade != HEAD_NO_UPGRADE);
	buf_drop(&m->in, h->len);
	m->some = true;
	m->answered = false;
}

/* How much of a body fits, without moving what is there. */
static size_t out_room(struct mitm *m)
{
	if (!m->out.data && !buf_room(&m->out, PIECE))
		return 0;
	return m->out.cap > m->out.len + 1 ? m->out.cap - m->out.len - 1 : 0;
}

/* Takes what the sandbox sent and can pass. true: something happened. */
static bool take_requests(struct mitm *m)
{
	enum request_step step;
	const char *why = "";
	struct head h;
	size_t n = 0, len = m->in.len;

	if (!len || m->closing || (!m->server.ready && !m->refusal.status))
		return false;
	/* A head needs a buffer of its own; nothing of one is taken before what is in it has gone. */
	if (request_between(&m->request) && (m->out.len || (m->scrub && scrub_full(m->scrub))))
		return false;
	if (request_plain(&m->request) || !request_between(&m->request))
		len = len < out_room(m) ? len : out_room(m);
	if (!len)
		return false;
	step = request_step(&m->request, m->in.data, len, &h, &n, &why);
	switch (step) {
	case REQUEST_MORE:
		if (m->client.eof)
			buf_clear(&m->in); /* a part of a head is nothing */
		return false;
	case REQUEST_WAIT:
		return false;
	case REQUEST_HEAD:
		if (m->refusal.status)
			answer(m);
		else
			pass_head(m, &h);
		return true;
	case REQUEST_BODY:
		if (buf_add(&m->out, m->in.data, n) < 0) {
			end(m, EGRESS_V_FAILED, "no memory for a request's body");
			return true;
		}
		buf_drop(&m->in, n);
		return true;
	case REQUEST_LAST:
		buf_clear(&m->in);
		return false;
	case REQUEST_BAD:
		refuse(m, 400, EGRESS_V_DENIED, why, "send requests that follow HTTP/1.1");
		answer(m);
		return true;
	}
	return false;
}

/* ---- moving bytes: each says whether it did something ------------------------------------------------------------ */

static bool shake(struct mitm *m)
{
	char why[EGRESS_TEXT_MAX];
	bool moved = false;
	int r;

	r = tls_end_shake(&m->client);
	if (r < 0) {
		bool h2 = ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_NO_APPLICATION_PROTOCOL;

		end(m, EGRESS_V_FAILED,
		    h2 ? "the program inside speaks HTTP/2 only: TLS is terminated here, which needs HTTP/1.1" :
			 "the program inside closed the connection early, in the TLS handshake; does it trust "
			 "the sandbox's CA (SSL_CERT_FILE)?");
		return true;
	}
	moved |= r > 0;
	r = m->server.f.fd < 0 ? 0 : tls_end_shake(&m->server);
	if (r < 0) {
		trust_why(m->server.ssl, m->name, why, sizeof(why));
		refuse(m, 502, EGRESS_V_FAILED, why,
		       "the administrator's setting network_ca names the trusted authorities");
		tls_end_close(&m->server, m->loop, true);
		moved = true;
	}
	return moved || r > 0;
}

static bool read_client(struct mitm *m)
{
	size_t want = HEAD_MAX - m->in.len < PIECE ? HEAD_MAX - m->in.len : PIECE;
	char *p;
	ssize_t n;

	if (!m->client.ready || m->client.eof || m->closing || m->in.len >= HEAD_MAX)
		return false;
	p = buf_room(&m->in, want);
	if (!p) {
		end(m, EGRESS_V_FAILED, "no memory");
		return true;
	}
	n = tls_end_read(&m->client, p, want);
	if (n == -EAGAIN)
		return false;
	if (n < 0) {
		end(m, EGRESS_V_OK, "");
		return true;
	}
	buf_added(&m->in, (size_t)n);
	return true;
}

static size_t may(struct mitm *m, size_t want)
{
	if (want > PIECE)
		want = PIECE;
	return want && m->ops->may ? m->ops->may(m->arg, want) : want;
}

static bool write_server(struct mitm *m)
{
	size_t want = m->server.ready && !m->closing ? may(m, m->out.len) : 0;
	ssize_t n;

	if (!want)
		return false;
	n = tls_end_write(&m->server, m->out.data, want);
	if (n == -EAGAIN)
		return false;
	if (n < 0) {
		/* It may have said why, and not listen any more: that is still to be read. */
		ca_wipe(&m->out);
		m->server.shut = true;
		return true;
	}
	OPENSSL_cleanse(m->out.data, (size_t)n);
	buf_drop(&m->out, (size_t)n);
	if (!m->out.len)
		ca_wipe(&m->out);
	if (!m->ops->moved(m->arg, (size_t)n, 0))
		end(m, EGRESS_V_CUT, "a budget is used up");
	return true;
}

/* What was read goes to the sandbox, masked where a value may be in it. */
static void take_answer(struct mitm *m, const char *data, size_t len)
{
	const char *why = "no memory for an answer";
	int r = scrub_feed(m->scrub, data, len, &m->down, &why);

	if (r == -EBADMSG && scrub_owes(m->scrub)) {
		refuse(m, 502, EGRESS_V_DENIED, why, "request uncompressed content, or use a server that sends it");
		put_answer(m);
	} else if (r < 0) {
		end(m, EGRESS_V_CUT, why);
	}
}

static bool read_server(struct mitm *m)
{
	char piece[PIECE];
	size_t want;
	ssize_t n;
	char *p;

	if (!m->server.ready || m->server.eof || m->closing || m->down.len >= PIECE)
		return false;
	want = may(m, PIECE - m->down.len);
	if (!want)
		return false;
	p = m->scrub ? piece : buf_room(&m->down, want);
	n = p ? tls_end_read(&m->server, p, want) : -ENOMEM;
	if (n == -EAGAIN)
		return false;
	if (n < 0) {
		if (m->some && m->answered)
			end(m, EGRESS_V_FAILED, "the server closed the connection early");
		else
			m->server.eof = m->server.torn = true;
		return true;
	}
	if (!n) {
		if (m->scrub && scrub_end(m->scrub, m->server.torn, &m->down) < 0)
			end(m, EGRESS_V_CUT, "no memory for an answer");
		return true;
	}
	m->answered = true;
	if (m->scrub) {
		take_answer(m, piece, (size_t)n);
		OPENSSL_cleanse(piece, (size_t)n);
		if (m->gone)
			return true;
	} else {
		buf_added(&m->down, (size_t)n);
	}
	if (request_waits(&m->request) && m->down.len)
		(void)request_answer(&m->request, m->down.data, m->down.len);
	if (!m->ops->moved(m->arg, 0, (size_t)n))
		end(m, EGRESS_V_CUT, "a budget is used up");
	return true;
}

static bool write_client(struct mitm *m)
{
	ssize_t n;

	if (!m->down.len || !m->client.ready || (request_waits(&m->request) && !m->closing && !m->server.eof))
		return false;
	n = tls_end_write(&m->client, m->down.data, m->down.len < PIECE ? m->down.len : PIECE);
	if (n == -EAGAIN)
		return false;
	if (n < 0) {
		end(m, EGRESS_V_OK, ""); /* the client has closed before the answer */
		return true;
	}
	buf_drop(&m->down, (size_t)n);
	return true;
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

/* All was said: what the sandbox still sends is thrown away until it has seen the end. */
static bool drain(struct mitm *m)
{
	char junk[4096];
	ssize_t n;

	while (m->drained < DRAIN_MAX) {
		n = m->client.eof ? 0 : tls_end_read(&m->client, junk, sizeof(junk));
		if (n == -EAGAIN)
			return false;
		if (n <= 0)
			break;
		m->drained += (uint32_t)n;
	}
	end(m, m->refusal.status ? m->refusal.verdict : EGRESS_V_OK, m->refusal.why);
	return true;
}

static bool finish(struct mitm *m)
{
	bool said = !m->down.len && (m->closing || m->server.eof);

	if (m->draining)
		return drain(m);
	if (said) {
		/* An answer whose end is not sure stays one: no farewell in TLS. */
		if (m->server.torn && m->client.ssl)
			m->client.shut = true, (void)shutdown(m->client.f.fd, SHUT_WR);
		else
			tls_end_shut(&m->client);
		tls_end_close(&m->server, m->loop, true);
		m->closing = m->draining = true;
		m->last = m->loop->now;
		return true;
	}
	if (!m->client.eof || m->server.shut)
		return false;
	if (m->refusal.status || m->server.f.fd < 0) {
		end(m, m->refusal.status ? m->refusal.verdict : EGRESS_V_OK, m->refusal.why);
		return true;
	}
	if (!m->server.ready || m->in.len || m->out.len || request_waits(&m->request))
		return false;
	tls_end_shut(&m->server);
	return true;
}

static void set_timer(struct mitm *m)
{
	uint64_t at = m->last + IDLE_TIME;

	if (m->draining)
		at = m->last + DRAIN_TIME;
	else if (!m->client.ready || (m->server.f.fd >= 0 && !m->server.ready))
		at = m->last + SHAKE_TIME;
	if (loop_timer_set(m->loop, &m->timer, at) < 0)
		end(m, EGRESS_V_FAILED, "no memory for a timer");
}

static void pump(struct mitm *m)
{
	static bool (*const steps[])(struct mitm * m) = { shake,       read_client,  take_requests, write_server,
							  read_server, write_client, finish };
	bool moved = true;

	for (unsigned round = 0; moved && round < ROUNDS; round++) {
		moved = false;
		for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
			moved |= steps[i](m);
			if (m->gone)
				return;
		}
		if (moved && !m->draining)
			m->last = m->loop->now;
	}
	if (!m->in.len)
		buf_done(&m->in);
	if (!m->out.len)
		ca_wipe(&m->out);
	if (!m->down.len)
		buf_done(&m->down);
	set_timer(m);
	if (!m->gone && m->scrub && scrub_held(m->scrub) &&
	    loop_timer_set(m->loop, &m->quiet, m->loop->now + QUIET_TIME) < 0)
		end(m, EGRESS_V_FAILED, "no memory for a timer");
	if (!m->gone && moved && loop_timer_set(m->loop, &m->again, m->loop->now + 1) < 0) /* not in this turn */
		end(m, EGRESS_V_FAILED, "no memory for a timer");
}

static void due(struct loop_timer *t)
{
	struct mitm *m = (struct mitm *)((char *)t - offsetof(struct mitm, timer));

	if (m->draining)
		end(m, m->refusal.status ? m->refusal.verdict : EGRESS_V_OK, m->refusal.why);
	else if (m->client.ready && m->server.f.fd >= 0 && !m->server.ready) {
		refuse(m, 504, EGRESS_V_FAILED, "the server did not finish the TLS handshake", "try again later");
		tls_end_close(&m->server, m->loop, true);
		pump(m);
	} else if (!m->client.ready)
		end(m, EGRESS_V_FAILED, "the program inside did not finish the TLS handshake");
	else
		end(m, EGRESS_V_CUT, "the connection was idle for too long");
}

static void due_quiet(struct loop_timer *t)
{
	struct mitm *m = (struct mitm *)((char *)t - offsetof(struct mitm, quiet));

	if (scrub_pause(m->scrub, &m->down) < 0)
		end(m, EGRESS_V_CUT, "no memory for an answer");
	else
		pump(m);
}

static void due_again(struct loop_timer *t)
{
	pump((struct mitm *)((char *)t - offsetof(struct mitm, again)));
}

static void client_ready(struct loop_fd *f, uint32_t events)
{
	(void)events;
	pump((struct mitm *)((char *)f - offsetof(struct mitm, client.f)));
}

static void server_ready(struct loop_fd *f, uint32_t events)
{
	(void)events;
	pump((struct mitm *)((char *)f - offsetof(struct mitm, server.f)));
}

int mitm_new(const struct mitm_opts *o, struct mitm **ret, struct err *e)
{
	SSL_CTX *ctx = NULL;
	struct mitm *m;
	SSL *ssl = NULL;
	int r;

	if (o->tls) {
		r = o->ca ? ca_context(o->ca, o->name, &ctx, e) :
			    err_set(e, ERR_INVALID, -EINVAL, "no CA for the sandbox");
		if (r < 0)
			return r;
		ssl = SSL_new(ctx);
	}
	m = calloc(1, sizeof(*m));
	if (!m || (o->tls && !ssl) || o->first_len >= HEAD_MAX) {
		SSL_free(ssl);
		free(m);
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "terminate a stream");
	}
	if (ssl)
		SSL_set_accept_state(ssl);
	if (inject_wants(o->inject, o->name, o->port, o->tls)) {
		struct mask *mask = inject_mask(o->inject);

		m->scrub = mask ? scrub_new(mask) : NULL;
		if (!m->scrub) {
			SSL_free(ssl);
			free(m);
			return err_sys(e, ERR_INTERNAL, -ENOMEM, "terminate a stream");
		}
	}
	if (o->tls && o->trust)
		m->later = trust_connect(o->trust, o->name);
	m->loop = o->loop;
	m->ops = o->ops;
	m->arg = o->arg;
	m->port = o->port;
	m->tls = o->tls;
	m->in.max = HEAD_MAX + 1;
	m->out.max = HEAD_MAX + INJECT_ADDED_MAX + 192;
	m->down.max = DOWN_MAX;
	m->last = o->loop->now;
	m->timer.due = due;
	m->again.due = due_again;
	m->quiet.due = due_quiet;
	m->client.f = (struct loop_fd){ client_ready, -1 };
	m->server.f = (struct loop_fd){ server_ready, -1 };
	snprintf(m->name, sizeof(m->name), "%s", o->name);
	r = o->first_len ? buf_add(&m->in, o->first, o->first_len) : 0;
	if (!r)
		r = loop_timer_set(m->loop, &m->timer, m->last + SHAKE_TIME);
	if (!r)
		r = tls_end_open(&m->client, m->loop, o->client, ssl);
	if (r < 0) {
		SSL_free(ssl);
		SSL_free(m->later);
		loop_timer_stop(m->loop, &m->timer);
		buf_done(&m->in);
		scrub_free(m->scrub);
		free(m);
		return err_sys(e, ERR_INTERNAL, r, "terminate a stream");
	}
	m->inject = inject_ref(o->inject);
	*ret = m;
	return 0;
}

void mitm_connected(struct mitm *m, int fd, const char *why)
{
	SSL *ssl = TAKE_PTR(m->later);

	if (fd < 0) {
		refuse(m, 502, EGRESS_V_FAILED, why, "check whether the server is running");
	} else if (m->tls && !ssl) {
		refuse(m, 502, EGRESS_V_FAILED, "no CA certificates are installed to verify the server with",
		       "the administrator can install ca-certificates, or set network_ca");
	} else if (tls_end_open(&m->server, m->loop, fd, ssl) < 0) {
		refuse(m, 502, EGRESS_V_FAILED, "no memory for a connection", "try again later");
	} else {
		ssl = NULL; /* taken */
	}
	SSL_free(ssl);
	if (fd >= 0 && m->server.f.fd < 0)
		fd_close(fd);
	pump(m);
}

void mitm_go(struct mitm *m)
{
	pump(m);
}

bool mitm_set_inject(struct mitm *m, struct inject *in)
{
	bool wants = inject_wants(in, m->name, m->port, m->tls);
	struct mask *mask = wants ? inject_mask(in) : NULL;

	/* Where answers were not searched before, it is not known where in one we are. */
	if (wants && (!m->scrub || !mask || scrub_set_mask(m->scrub, mask, &m->down) < 0))
		return false;
	inject_ref(in);
	inject_unref(m->inject);
	m->inject = in;
	return true;
}

size_t mitm_holds(const struct mitm *m, int fd[2])
{
	fd[0] = m->client.f.fd;
	fd[1] = m->server.f.fd;
	return m->in.len + m->out.len + m->down.len;
}

void mitm_free(struct mitm *m)
{
	if (m && !m->gone)
		release(m, true);
}
