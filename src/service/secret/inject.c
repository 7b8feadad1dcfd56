/* What cloche-egress adds to requests, and the CA by which it can. */
#include "base/base.h"
#include "base/base64.h"
#include "base/log.h"
#include "service/network/network.h"
#include "service/secret/struct.h"
#include "service/secret/give.h"
#include "tls/ca.h"

#define CA_DAYS 3650U
#define CA_ROOM (2 * CA_PEM_MAX)
#define VALUE_MAX 4096U /* servers take no longer lines */
#define TOLD_MAX (EGRESS_INJECTS_MAX * (VALUE_MAX + 2048U))

bool secrets_need_ca(const struct sandbox_request *w)
{
	const struct secret_uses *u = &w->secrets;

	for (uint32_t i = 0; i < u->n; i++)
		if (secret_injected(&u->use[i]) && !u->use[i].plain)
			return true;
	return net_request_terminates(w->net);
}

/* The end of a line is no part of what is sent. */
static size_t sent_len(const struct buf *value)
{
	size_t n = value->len;

	while (n && (value->data[n - 1] == '\n' || value->data[n - 1] == '\r'))
		n--;
	return n;
}

/* Why a value cannot be part of a request: egress would refuse it, and the whole policy with it. */
static const char *unfit(const struct secret_use *u, const struct buf *value)
{
	size_t n = sent_len(value);

	for (size_t i = 0; i < n; i++)
		if ((unsigned char)value->data[i] < 0x20 || value->data[i] == 0x7f)
			return "contains control characters";
	if (u->as == SECRET_HEADER && n && (value->data[0] == ' ' || value->data[n - 1] == ' '))
		return "begins or ends with a space";
	return n > VALUE_MAX ? "is too long" : NULL;
}

int secrets_check_inject(struct service *s, const struct sandbox_request *w, const struct secret_use *u,
			 const struct buf *value, struct err *e)
{
	const char *why = unfit(u, value);

	if (sent_len(value) > VALUE_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "secret '%s' as %s: must be at most %u bytes", u->name,
			       secret_as_name(u->as), VALUE_MAX);
	if (why)
		return err_set(e, ERR_INVALID, -EINVAL, "secret '%s' %s: it cannot be passed as %s", u->name, why,
			       secret_as_name(u->as));
	/*
	 * The policy of a sandbox that continues may have changed since: then its connections are refused, and nothing
	 * is sent.
	 */
	if (w->wake || w->spec->layers || net_request_lets(s->o.net, w->net, u->host, u->port))
		return 0;
	err_set(e, ERR_INVALID, -ENETUNREACH,
		"secret '%s' is for %.120s:%u, which the sandbox's network does not allow", u->name, u->host, u->port);
	err_remedy(e, "allow it: --allow (in `network.allow`) %.120s:%u", u->host, u->port);
	return -ENETUNREACH;
}

/* --- the CA --- */

static struct vault_name ca_name(const struct sandbox *b, char name[ID_SIZE + 4])
{
	snprintf(name, ID_SIZE + 4, "ca %s", b->id); /* no secret's name has a space */
	return (struct vault_name){ b->tenant->id, name, 0 };
}

/* As it is kept in the sandbox's row. */
static int seal_ca(const struct sandbox *b, struct sandbox_secrets *x, struct err *e)
{
	AUTO(buf_done) struct buf sealed = BUF_INIT(CA_ROOM + VAULT_OVERHEAD + 1);
	AUTO(vault_wipe) struct buf both = BUF_INIT(CA_ROOM + 1);
	char name[ID_SIZE + 4];
	struct vault_name n = ca_name(b, name);
	int r = buf_add(&both, x->ca_cert, strlen(x->ca_cert) + 1);

	if (r == 0)
		r = buf_adds(&both, x->ca_key);
	if (r == 0)
		r = vault_seal(b->service->vault, &n, both.data, both.len, &sealed, e);
	if (r < 0)
		return r;
	free(x->ca_sealed);
	x->ca_sealed = malloc(BASE64_SIZE(sealed.len));
	if (!x->ca_sealed)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	base64_encode(sealed.data, sealed.len, x->ca_sealed);
	return 0;
}

static int keep_ca(struct sandbox_secrets *x, const char *cert, const char *key, struct err *e)
{
	x->ca_cert = strdup(cert);
	x->ca_key = strdup(key);
	return x->ca_cert && x->ca_key ? 0 : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
}

int secrets_make_ca(struct sandbox *b, const struct sandbox *like, struct err *e)
{
	AUTO(buf_done) struct buf cert = BUF_INIT(CA_PEM_MAX);
	struct buf key = BUF_INIT(CA_PEM_MAX);
	struct sandbox_secrets *x = b->secrets;
	int r;

	if (!x || !secrets_need_ca(b->request))
		return 0;
	/* The same sandbox continues: its programs may have stored its CA. */
	if (like && like->secrets && like->secrets->ca_cert) {
		r = keep_ca(x, like->secrets->ca_cert, like->secrets->ca_key, e);
	} else {
		r = ca_make(b->id, CA_DAYS, &cert, &key, e);
		if (r == 0)
			r = keep_ca(x, buf_str(&cert), buf_str(&key), e);
		ca_wipe(&key);
	}
	x->ca_fresh = true;
	return r;
}

void secrets_store(struct sandbox *b, struct json *j)
{
	struct sandbox_secrets *x = b->secrets;
	struct err e = { 0 };

	if (!x || !x->ca_cert)
		return;
	/* Sealed for this sandbox's id: a sandbox that replaced another has a new id. */
	if (!x->ca_sealed && seal_ca(b, x, &e) < 0)
		log_error("sandbox %s: %s", b->id, e.msg);
	if (x->ca_sealed)
		jout_str(j, "ca", x->ca_sealed);
}

static int open_ca(struct sandbox *b, const char *text, struct err *e)
{
	AUTO(vault_wipe) struct buf both = BUF_INIT(CA_ROOM + 2);
	AUTO_FREE char *raw = malloc(strlen(text) + 1);
	ssize_t n = raw ? base64_decode(text, strlen(text), raw) : -ENOMEM;
	char name[ID_SIZE + 4];
	struct vault_name v = ca_name(b, name);
	int r = n < 0 ? (int)n : vault_open(b->service->vault, &v, raw, (size_t)n, &both, e);

	if (r == 0 && !memchr(both.data, '\0', both.len))
		r = -EBADMSG;
	b->secrets->ca_old = r == 0 && vault_opened_old(b->service->vault);
	return r < 0 ? r : keep_ca(b->secrets, both.data, both.data + strlen(both.data) + 1, e);
}

int secrets_found(struct sandbox *b, const char *ca, struct err *e)
{
	struct err why = { 0 };

	if (!b->secrets || !secrets_need_ca(b->request))
		return 0;
	if (ca && open_ca(b, ca, &why) == 0)
		return 0;
	log_warn("sandbox %s gets a new CA: %s", b->id, why.msg[0] ? why.msg : "its CA is not in the store");
	return secrets_make_ca(b, NULL, e);
}

/* --- the message to egress --- */

static int add_value(const struct secret_use *u, const struct buf *value, struct buf *to, size_t *ret_at)
{
	const char *at = u->format ? strstr(u->format, "{}") : NULL;
	int r = 0;

	*ret_at = to->len;
	if (at)
		r = buf_add(to, u->format, (size_t)(at - u->format));
	if (r == 0)
		r = buf_add(to, value->data, sent_len(value));
	if (r == 0 && at)
		r = buf_adds(to, at + 2);
	return r < 0 ? r : buf_addc(to, '\0');
}

void secrets_inject(struct sandbox *b, struct egress_sandbox *to)
{
	static const uint8_t kinds[] = {
		[SECRET_HEADER] = EGRESS_HEADER, [SECRET_BASIC] = EGRESS_BASIC, [SECRET_QUERY] = EGRESS_QUERY
	};
	const struct secret_uses *u = &b->request->secrets;
	struct sandbox_secrets *x = b->secrets;
	size_t at[EGRESS_INJECTS_MAX];
	uint32_t n = 0;

	if (!x)
		return;
	vault_wipe(&x->told);
	x->told = (struct buf)BUF_INIT(TOLD_MAX);
	for (uint32_t i = 0; i < u->n && n < EGRESS_INJECTS_MAX; i++) {
		AUTO(vault_wipe) struct buf value = BUF_INIT(VAULT_VALUE_MAX + 1);
		const struct secret *c = secret_any(b->service, b->tenant, u->use[i].name);
		const char *why = NULL;
		struct err e = { 0 };

		/* One that was deleted goes out no more. */
		if (!secret_injected(&u->use[i]) || !c || c->gone)
			continue;
		/* A value that was rotated in may be of a kind that cannot. */
		if (secret_read(c, &value, &e) < 0 || (why = unfit(&u->use[i], &value)) ||
		    add_value(&u->use[i], &value, &x->told, &at[n]) < 0) {
			log_error("sandbox %s: secret '%s' is not sent: %s%s", b->id, u->use[i].name, why ? "it " : "",
				  why	   ? why :
				  e.msg[0] ? e.msg :
					     "it does not fit");
			continue;
		}
		to->inject[n++] = (struct egress_inject){
			.kind = kinds[u->use[i].as],
			.tls = !u->use[i].plain,
			.port = u->use[i].port,
			.host = u->use[i].host,
			.field = u->use[i].field,
			.secret = u->use[i].name,
			.bare = u->use[i].format ? (uint32_t)(strstr(u->use[i].format, "{}") - u->use[i].format) : 0,
			.bare_len = (uint32_t)sent_len(&value),
		};
	}
	for (uint32_t i = 0; i < n; i++)
		to->inject[i].value = x->told.data + at[i];
	to->injects = n;
	if (x->ca_cert) {
		to->ca_cert = x->ca_cert;
		to->ca_key = x->ca_key;
	}
}
