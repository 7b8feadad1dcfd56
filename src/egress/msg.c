/* Writes and reads messages between cloche-egress and its owner. */
#include "egress/msg.h"
#include "base/base.h"
#include "proto/net_rule.h"
#include "proto/wire.h"

#define HOST_TEXT (NET_NAME_MAX + 64U) /* "name address" */
#define PEM_MAX (16U * 1024U)

/* ---- heads ------------------------------------------------------------------------------------------------------- */

static struct wire_out begin(enum egress_type type, uint32_t seq, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_u8(&w, EGRESS_VERSION);
	wire_put_u8(&w, (uint8_t)type);
	wire_put_u8(&w, 0);
	wire_put_u8(&w, 0);
	wire_put_u32(&w, seq);
	return w;
}

static long end(const struct wire_out *w, const uint8_t *out)
{
	return w->bad || (size_t)(w->at - out) > EGRESS_MSG_MAX ? -EMSGSIZE : w->at - out;
}

static bool plain(uint8_t type)
{
	return type == EGRESS_GONE || type == EGRESS_KEEP || type == EGRESS_HELLO || type == EGRESS_HAVE ||
	       type == EGRESS_DONE || type == EGRESS_TELL || type == EGRESS_TOLD;
}

static bool known(uint8_t type)
{
	return (type >= EGRESS_CONFIG && type <= EGRESS_TELL) || (type >= EGRESS_HELLO && type <= EGRESS_TOLD);
}

static struct wire_in open_payload(const struct egress_msg *m)
{
	return (struct wire_in){ m->payload, m->payload + m->len, false };
}

/* Nothing missing and nothing behind. */
static int closed(const struct wire_in *r)
{
	return r->bad || r->at != r->end ? -EBADMSG : 0;
}

int egress_decode(const uint8_t *data, size_t len, struct egress_msg *ret)
{
	struct egress_msg m = { 0 };
	struct wire_in r = { data, data + len, false };
	uint8_t version = wire_get_u8(&r);

	m.type = wire_get_u8(&r);
	if (wire_get_u8(&r))
		return -EBADMSG;
	if (wire_get_u8(&r))
		return -EBADMSG;
	m.seq = wire_get_u32(&r);
	if (r.bad || version != EGRESS_VERSION || !known(m.type) || len > EGRESS_MSG_MAX)
		return -EBADMSG;
	m.payload = r.at;
	m.len = (size_t)(r.end - r.at);
	if (plain(m.type)) {
		m.sandbox = wire_get_u64(&r);
		m.arg = wire_get_u64(&r);
		if (closed(&r) < 0)
			return -EBADMSG;
	}
	*ret = m;
	return 0;
}

long egress_plain_encode(enum egress_type type, uint32_t seq, uint64_t sandbox, uint64_t arg, uint8_t *out, size_t size)
{
	struct wire_out w = begin(type, seq, out, size);

	wire_put_u64(&w, sandbox);
	wire_put_u64(&w, arg);
	return end(&w, out);
}

/* ---- fields ------------------------------------------------------------------------------------------------------ */

/* A string that is no longer than @max bytes, its NUL included. */
static const char *get_str(struct wire_in *r, size_t max)
{
	const char *s = wire_get_str(r);

	if (strlen(s) >= max)
		r->bad = true;
	return r->bad ? "" : s;
}

static uint16_t get_u16(struct wire_in *r)
{
	uint32_t v = wire_get_u32(r);

	if (v > UINT16_MAX)
		r->bad = true;
	return (uint16_t)v;
}

static uint8_t get_upto(struct wire_in *r, uint8_t max)
{
	uint8_t v = wire_get_u8(r);

	if (v > max)
		r->bad = true;
	return v;
}

static uint32_t get_count(struct wire_in *r, uint32_t max)
{
	uint32_t n = wire_get_u32(r);

	if (n > max)
		r->bad = true;
	return r->bad ? 0 : n;
}

static void put_addr(struct wire_out *w, const uint8_t addr[16])
{
	for (size_t i = 0; i < 16; i++)
		wire_put_u8(w, addr[i]);
}

static void get_addr(struct wire_in *r, uint8_t addr[16])
{
	for (size_t i = 0; i < 16; i++)
		addr[i] = wire_get_u8(r);
}

static uint8_t get_family(struct wire_in *r)
{
	uint8_t v = wire_get_u8(r);

	if (v != 0 && v != 4 && v != 6)
		r->bad = true;
	return v;
}

static void put_list(struct wire_out *w, const char *const *list, uint32_t n, uint32_t max)
{
	if (n > max)
		w->bad = true;
	wire_put_u32(w, n);
	for (uint32_t i = 0; i < n && !w->bad; i++)
		wire_put_str(w, list[i]);
}

static uint32_t get_list(struct wire_in *r, const char **list, uint32_t max, size_t text)
{
	uint32_t n = get_count(r, max);

	for (uint32_t i = 0; i < n; i++)
		list[i] = get_str(r, text);
	return n;
}

static void put_budget(struct wire_out *w, const struct egress_budget *b)
{
	wire_put_u64(w, b->bytes_out);
	wire_put_u64(w, b->bytes_in);
	wire_put_u64(w, b->connections);
	wire_put_u64(w, b->bandwidth);
	wire_put_u64(w, b->dns);
	wire_put_u32(w, b->concurrent);
	wire_put_u32(w, b->requests);
}

static void get_budget(struct wire_in *r, struct egress_budget *b)
{
	b->bytes_out = wire_get_u64(r);
	b->bytes_in = wire_get_u64(r);
	b->connections = wire_get_u64(r);
	b->bandwidth = wire_get_u64(r);
	b->dns = wire_get_u64(r);
	b->concurrent = wire_get_u32(r);
	b->requests = wire_get_u32(r);
}

static void put_counts(struct wire_out *w, const struct egress_counts *c)
{
	wire_put_u64(w, c->sandbox);
	wire_put_u64(w, c->bytes_out);
	wire_put_u64(w, c->bytes_in);
	wire_put_u64(w, c->connections);
	wire_put_u64(w, c->refused);
	wire_put_u64(w, c->dns);
	wire_put_u64(w, c->dns_refused);
	wire_put_u32(w, c->concurrent);
}

static void get_counts(struct wire_in *r, struct egress_counts *c)
{
	c->sandbox = wire_get_u64(r);
	c->bytes_out = wire_get_u64(r);
	c->bytes_in = wire_get_u64(r);
	c->connections = wire_get_u64(r);
	c->refused = wire_get_u64(r);
	c->dns = wire_get_u64(r);
	c->dns_refused = wire_get_u64(r);
	c->concurrent = wire_get_u32(r);
}

static void put_inject(struct wire_out *w, const struct egress_inject *i)
{
	wire_put_u8(w, i->kind);
	wire_put_u8(w, i->tls);
	wire_put_u32(w, i->port);
	wire_put_str(w, i->host);
	wire_put_str(w, i->field);
	wire_put_str(w, i->value);
	wire_put_str(w, i->secret);
	wire_put_u32(w, i->bare);
	wire_put_u32(w, i->bare_len);
}

static void get_inject(struct wire_in *r, struct egress_inject *i)
{
	i->kind = get_upto(r, EGRESS_QUERY);
	if (!i->kind)
		r->bad = true;
	i->tls = get_upto(r, 1);
	i->port = get_u16(r);
	i->host = get_str(r, NET_NAME_MAX);
	i->field = get_str(r, EGRESS_TEXT_MAX);
	i->value = get_str(r, PEM_MAX);
	i->secret = get_str(r, EGRESS_TEXT_MAX);
	i->bare = wire_get_u32(r);
	i->bare_len = wire_get_u32(r);
	if (!r->bad && (uint64_t)i->bare + i->bare_len > strlen(i->value))
		r->bad = true;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

long egress_config_encode(const struct egress_config *c, uint8_t *out, size_t size)
{
	struct wire_out w = begin(EGRESS_CONFIG, 0, out, size);

	wire_put_str(&w, c->resolver);
	put_list(&w, c->host, c->hosts, EGRESS_RULES_MAX);
	put_list(&w, c->rule, c->outer, EGRESS_RULES_MAX);
	wire_put_str(&w, c->ca_file);
	return end(&w, out);
}

int egress_config_decode(const struct egress_msg *m, struct egress_config *ret)
{
	struct wire_in r = open_payload(m);

	memset(ret, 0, sizeof(*ret));
	ret->resolver = get_str(&r, 1024);
	ret->hosts = get_list(&r, ret->host, EGRESS_RULES_MAX, HOST_TEXT);
	ret->outer = get_list(&r, ret->rule, EGRESS_RULES_MAX, NET_RULE_TEXT);
	ret->ca_file = get_str(&r, 4096);
	return closed(&r);
}

long egress_sandbox_encode(const struct egress_sandbox *b, uint32_t seq, uint8_t *out, size_t size)
{
	struct wire_out w = begin(EGRESS_SANDBOX, seq, out, size);

	wire_put_u64(&w, b->sandbox);
	wire_put_u64(&w, b->tree);
	wire_put_u64(&w, b->tenant);
	wire_put_str(&w, b->id);
	wire_put_u8(&w, b->mode);
	put_list(&w, b->rule, b->rules, EGRESS_RULES_MAX);
	put_list(&w, b->private, b->privates, EGRESS_RULES_MAX);
	if (b->injects > EGRESS_INJECTS_MAX)
		return -EMSGSIZE;
	wire_put_u32(&w, b->injects);
	for (uint32_t i = 0; i < b->injects; i++)
		put_inject(&w, &b->inject[i]);
	put_budget(&w, &b->budget);
	put_budget(&w, &b->tree_budget);
	put_counts(&w, &b->counts);
	put_counts(&w, &b->tree_counts);
	wire_put_str(&w, b->ca_cert);
	wire_put_str(&w, b->ca_key);
	return end(&w, out);
}

int egress_sandbox_decode(const struct egress_msg *m, struct egress_sandbox *ret)
{
	struct wire_in r = open_payload(m);
	const char *id;

	memset(ret, 0, sizeof(*ret));
	ret->sandbox = wire_get_u64(&r);
	ret->tree = wire_get_u64(&r);
	ret->tenant = wire_get_u64(&r);
	id = get_str(&r, ID_SIZE);
	snprintf(ret->id, sizeof(ret->id), "%s", id);
	ret->mode = get_upto(&r, EGRESS_OBSERVE);
	ret->rules = get_list(&r, ret->rule, EGRESS_RULES_MAX, NET_RULE_TEXT);
	ret->privates = get_list(&r, ret->private, EGRESS_RULES_MAX, NET_RULE_TEXT);
	ret->injects = get_count(&r, EGRESS_INJECTS_MAX);
	for (uint32_t i = 0; i < ret->injects; i++)
		get_inject(&r, &ret->inject[i]);
	get_budget(&r, &ret->budget);
	get_budget(&r, &ret->tree_budget);
	get_counts(&r, &ret->counts);
	get_counts(&r, &ret->tree_counts);
	ret->ca_cert = get_str(&r, PEM_MAX);
	ret->ca_key = get_str(&r, PEM_MAX);
	return !ret->sandbox || !ret->tree ? -EBADMSG : closed(&r);
}

long egress_names_encode(enum egress_type type, const struct egress_names *n, uint8_t *out, size_t size)
{
	struct wire_out w = begin(type, 0, out, size);

	if (n->n > EGRESS_BATCH)
		return -EMSGSIZE;
	wire_put_u64(&w, n->sandbox);
	wire_put_u32(&w, n->n);
	for (uint32_t i = 0; i < n->n; i++) {
		wire_put_u32(&w, n->name[i].index);
		wire_put_str(&w, n->name[i].name);
	}
	return end(&w, out);
}

int egress_names_decode(const struct egress_msg *m, struct egress_names *ret)
{
	struct wire_in r = open_payload(m);

	memset(ret, 0, sizeof(*ret));
	ret->sandbox = wire_get_u64(&r);
	ret->n = get_count(&r, EGRESS_BATCH);
	for (uint32_t i = 0; i < ret->n; i++) {
		ret->name[i].index = wire_get_u32(&r);
		if (ret->name[i].index >= EGRESS_NAMES_MAX)
			r.bad = true;
		ret->name[i].name = get_str(&r, NET_NAME_MAX);
	}
	return closed(&r);
}

long egress_stream_encode(enum egress_type type, const struct egress_stream *s, uint8_t *out, size_t size)
{
	struct wire_out w = begin(type, 0, out, size);

	wire_put_u64(&w, s->sandbox);
	wire_put_u64(&w, s->out);
	wire_put_u64(&w, s->in);
	wire_put_u64(&w, s->usec);
	wire_put_u8(&w, s->verdict);
	wire_put_u8(&w, s->family);
	wire_put_u32(&w, s->port);
	put_addr(&w, s->addr);
	wire_put_u32(&w, s->pid);
	wire_put_u32(&w, s->requests);
	wire_put_u32(&w, s->times);
	wire_put_str(&w, s->name);
	wire_put_str(&w, s->rule);
	wire_put_str(&w, s->reason);
	wire_put_str(&w, s->command);
	wire_put_str(&w, s->secrets);
	return end(&w, out);
}

int egress_stream_decode(const struct egress_msg *m, struct egress_stream *ret)
{
	struct wire_in r = open_payload(m);

	memset(ret, 0, sizeof(*ret));
	ret->sandbox = wire_get_u64(&r);
	ret->out = wire_get_u64(&r);
	ret->in = wire_get_u64(&r);
	ret->usec = wire_get_u64(&r);
	ret->verdict = get_upto(&r, EGRESS_V_BUDGET);
	ret->family = get_family(&r);
	ret->port = get_u16(&r);
	get_addr(&r, ret->addr);
	ret->pid = wire_get_u32(&r);
	ret->requests = wire_get_u32(&r);
	ret->times = wire_get_u32(&r);
	ret->name = get_str(&r, NET_NAME_MAX);
	ret->rule = get_str(&r, NET_RULE_TEXT);
	ret->reason = get_str(&r, EGRESS_TEXT_MAX);
	ret->command = get_str(&r, EGRESS_TEXT_MAX);
	ret->secrets = get_str(&r, EGRESS_INJECTS_MAX * EGRESS_TEXT_MAX);
	return closed(&r);
}

bool egress_stream_unreached(const struct egress_stream *s)
{
	return s->verdict == EGRESS_V_FAILED && !s->in && *s->reason && !strstr(s->reason, EGRESS_CLOSED_EARLY);
}

long egress_counts_encode(const struct egress_counts *c, uint8_t *out, size_t size)
{
	struct wire_out w = begin(EGRESS_COUNTS, 0, out, size);

	put_counts(&w, c);
	return end(&w, out);
}

int egress_counts_decode(const struct egress_msg *m, struct egress_counts *ret)
{
	struct wire_in r = open_payload(m);

	memset(ret, 0, sizeof(*ret));
	get_counts(&r, ret);
	return closed(&r);
}

long egress_who_encode(const struct egress_who *q, uint32_t seq, uint8_t *out, size_t size)
{
	struct wire_out w = begin(EGRESS_WHO, seq, out, size);

	wire_put_u64(&w, q->sandbox);
	wire_put_u8(&w, q->family);
	wire_put_u8(&w, q->udp);
	wire_put_u32(&w, q->client_port);
	wire_put_u32(&w, q->port);
	put_addr(&w, q->client);
	put_addr(&w, q->addr);
	return end(&w, out);
}

int egress_who_decode(const struct egress_msg *m, struct egress_who *ret)
{
	struct wire_in r = open_payload(m);

	memset(ret, 0, sizeof(*ret));
	ret->sandbox = wire_get_u64(&r);
	ret->family = get_family(&r);
	ret->udp = get_upto(&r, 1);
	ret->client_port = get_u16(&r);
	ret->port = get_u16(&r);
	get_addr(&r, ret->client);
	get_addr(&r, ret->addr);
	return closed(&r);
}

long egress_they_encode(const struct egress_they *t, uint32_t seq, uint8_t *out, size_t size)
{
	struct wire_out w = begin(EGRESS_THEY, seq, out, size);

	wire_put_u64(&w, t->sandbox);
	wire_put_u32(&w, t->pid);
	wire_put_str(&w, t->command);
	return end(&w, out);
}

int egress_they_decode(const struct egress_msg *m, struct egress_they *ret)
{
	struct wire_in r = open_payload(m);

	memset(ret, 0, sizeof(*ret));
	ret->sandbox = wire_get_u64(&r);
	ret->pid = wire_get_u32(&r);
	ret->command = get_str(&r, EGRESS_TEXT_MAX);
	return closed(&r);
}
