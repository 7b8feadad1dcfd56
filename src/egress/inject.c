/* Adds headers with secrets to requests. */
#include "egress/inject.h"

#include <openssl/crypto.h>
#include <strings.h>

#include "base/base.h"
#include "base/base64.h"

#define FIELD_MAX 128U
#define VALUE_MAX (32U * 1024U)

struct item {
	uint8_t kind; /* EGRESS_HEADER or EGRESS_QUERY: BASIC is a header like others, once it is made */
	bool tls;
	uint16_t port;
	char *host, *field, *secret;
	char *value; /* as it is sent */
	char *bare;
};

#define PAST_MAX 16U /* values of before that answers are still searched for */
#define FORMS_MAX (8U * 1024U) /* bytes of values in all, up to which they are searched for in every form */

struct inject {
	unsigned refs;
	uint32_t n;
	size_t size;
	struct mask *mask;
	uint32_t npast;
	char *past[PAST_MAX]; /* the youngest first */
	struct item item[];
};

static void wipe(char *p)
{
	if (p)
		OPENSSL_cleanse(p, strlen(p));
	free(p);
}

static bool is_token(const char *p)
{
	if (!*p || strlen(p) > FIELD_MAX)
		return false;
	for (; *p; p++)
		if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f || strchr("()<>@,;:\\\"/[]?={}", *p))
			return false;
	return true;
}

/* Headers that decide where a request ends or which host it is for. */
static bool frames(const char *field)
{
	static const char *const own[] = {
		"host", "content-length", "transfer-encoding", "connection",	  "upgrade", "expect",
		"te",	"trailer",	  "keep-alive",	       "proxy-connection"
	};

	for (size_t i = 0; i < ARRAY_LEN(own); i++)
		if (!strcasecmp(field, own[i]))
			return true;
	return false;
}

static bool is_value(const char *p)
{
	if (!*p || strlen(p) > VALUE_MAX || *p == ' ' || *p == '\t')
		return false;
	for (; *p; p++)
		if (((unsigned char)*p < 0x20 && *p != '\t') || *p == 0x7f)
			return false;
	return p[-1] != ' ' && p[-1] != '\t';
}

static char *basic_value(const char *user, const char *password)
{
	size_t n = strlen(user) + 1 + strlen(password), size = 6 + BASE64_SIZE(n);
	char *plain = malloc(n + 1), *out = malloc(size);

	if (plain && out) {
		snprintf(plain, n + 1, "%s:%s", user, password);
		memcpy(out, "Basic ", 6);
		base64_encode(plain, n, out + 6);
	} else {
		free(out);
		out = NULL;
	}
	wipe(plain);
	return out;
}

static bool is_plain(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c && strchr("-._~", c));
}

static char *encoded(const char *text)
{
	char *out = malloc(3 * strlen(text) + 1), *p = out;

	if (!out)
		return NULL;
	for (; *text; text++) {
		if (is_plain((unsigned char)*text))
			*p++ = *text;
		else
			p += snprintf(p, 4, "%%%02X", (unsigned char)*text);
	}
	*p = '\0';
	return out;
}

static int fill(struct item *it, const struct egress_inject *from, struct err *e)
{
	char host[NET_NAME_MAX];
	bool ok;

	if (net_name_parse(from->host, strlen(from->host), host) < 0 || !from->port)
		return err_set(e, ERR_INVALID, -EINVAL, "inject '%s': the server must be a name with a port",
			       from->secret);
	switch (from->kind) {
	case EGRESS_HEADER:
		ok = is_token(from->field) && !frames(from->field) && is_value(from->value);
		break;
	case EGRESS_BASIC:
		ok = strlen(from->field) <= FIELD_MAX && !strchr(from->field, ':') && *from->value &&
		     strlen(from->value) <= VALUE_MAX / 2;
		break;
	case EGRESS_QUERY:
		ok = is_token(from->field) && *from->value && strlen(from->value) <= VALUE_MAX / 3;
		break;
	default:
		ok = false;
	}
	if (!ok)
		return err_set(e, ERR_INVALID, -EINVAL, "inject '%s': the name or value contains an invalid character",
			       from->secret);
	it->kind = from->kind == EGRESS_QUERY ? EGRESS_QUERY : EGRESS_HEADER;
	it->tls = from->tls;
	it->port = from->port;
	it->host = strdup(host);
	it->secret = strdup(from->secret);
	it->bare = from->bare_len ? strndup(from->value + from->bare, from->bare_len) : strdup(from->value);
	if (from->kind == EGRESS_BASIC) {
		it->field = strdup("Authorization");
		it->value = basic_value(from->field, from->value);
	} else {
		it->field = from->kind == EGRESS_QUERY ? encoded(from->field) : strdup(from->field);
		it->value = from->kind == EGRESS_QUERY ? encoded(from->value) : strdup(from->value);
	}
	if (!it->host || !it->secret || !it->field || !it->value || !it->bare)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "inject");
	return 0;
}

static bool has_bare(const struct inject *in, const char *value)
{
	for (uint32_t i = 0; i < in->n; i++)
		if (!strcmp(in->item[i].bare, value))
			return true;
	for (uint32_t i = 0; i < in->npast; i++)
		if (!strcmp(in->past[i], value))
			return true;
	return false;
}

static int add_past(struct inject *in, const char *value)
{
	if (in->npast == PAST_MAX || has_bare(in, value))
		return 0;
	in->past[in->npast] = strdup(value);
	return in->past[in->npast] ? (int)(in->npast++ & 0) : -ENOMEM;
}

/* Keeps the values of the policy before: an answer to an earlier request may still arrive. */
static int remember(struct inject *in, const struct inject *before)
{
	int r = 0;

	for (uint32_t i = 0; before && i < before->n && !r; i++)
		r = add_past(in, before->item[i].bare);
	for (uint32_t i = 0; before && i < before->npast && !r; i++)
		r = add_past(in, before->past[i]);
	return r;
}

struct mask *inject_mask(struct inject *in)
{
	struct mask_value v[EGRESS_INJECTS_MAX + PAST_MAX];
	size_t n = 0, total = 0;

	if (in->mask)
		return in->mask;
	for (uint32_t i = 0; i < in->n; i++)
		v[n++] = (struct mask_value){ in->item[i].bare, strlen(in->item[i].bare), false };
	for (uint32_t i = 0; i < in->npast; i++)
		v[n++] = (struct mask_value){ in->past[i], strlen(in->past[i]), false };
	for (size_t i = 0; i < n; i++) {
		total += v[i].len;
		v[i].few = total > FORMS_MAX;
	}
	return mask_new(v, n, &in->mask) == 0 ? in->mask : NULL;
}

int inject_new(const struct egress_inject *list, uint32_t n, const struct inject *before, struct inject **ret,
	       struct err *e)
{
	struct inject *in;
	int r = 0;

	if (n > EGRESS_INJECTS_MAX)
		return err_set(e, ERR_INVALID, -EINVAL, "inject: at most %u", EGRESS_INJECTS_MAX);
	in = calloc(1, sizeof(*in) + n * sizeof(in->item[0]));
	if (!in)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "inject");
	in->refs = 1;
	for (in->n = 0; in->n < n && !r;) {
		struct item *it = &in->item[in->n++];

		r = fill(it, &list[in->n - 1], e);
		if (!r)
			in->size += strlen(it->field) + strlen(it->value) + 4;
	}
	if (!r && remember(in, before) < 0)
		r = err_sys(e, ERR_INTERNAL, -ENOMEM, "inject");
	if (!r && in->size > INJECT_ADDED_MAX)
		r = err_set(e, ERR_INVALID, -EINVAL, "inject: the values are too long together");
	if (r < 0) {
		inject_unref(in);
		return r;
	}
	*ret = in;
	return 0;
}

size_t inject_size(const struct inject *in)
{
	return in ? in->size : 0;
}

struct inject *inject_ref(struct inject *in)
{
	if (in)
		in->refs++;
	return in;
}

void inject_unref(struct inject *in)
{
	if (!in || --in->refs)
		return;
	for (uint32_t i = 0; i < in->n; i++) {
		struct item *it = &in->item[i];

		wipe(it->value);
		wipe(it->bare);
		free(it->host);
		free(it->field);
		free(it->secret);
	}
	for (uint32_t i = 0; i < in->npast; i++)
		wipe(in->past[i]);
	mask_unref(in->mask);
	free(in);
}

static bool is_for(const struct item *it, const char *name, uint16_t port, bool tls)
{
	return it->tls == tls && it->port == port && !strcmp(it->host, name);
}

bool inject_wants(const struct inject *in, const char *name, uint16_t port, bool tls)
{
	for (uint32_t i = 0; in && i < in->n; i++)
		if (is_for(&in->item[i], name, port, tls))
			return true;
	return false;
}

void inject_secrets(const struct inject *in, const char *name, uint16_t port, bool tls, char *out, size_t size)
{
	size_t n = 0;

	*out = '\0';
	for (uint32_t i = 0; in && i < in->n && n < size; i++)
		if (is_for(&in->item[i], name, port, tls))
			n += (size_t)snprintf(out + n, size - n, "%s%s", n ? " " : "", in->item[i].secret);
}

static uint32_t count(const struct inject *in)
{
	return in ? in->n : 0;
}

struct job {
	const struct inject *in;
	const char *name;
	uint16_t port;
	bool tls;
	struct buf *out;
	bool added; /* something is */
};

static bool same_field(const char *a, size_t n, const char *b)
{
	if (n != strlen(b))
		return false;
	for (size_t i = 0; i < n; i++) {
		char x = a[i] == '_' ? '-' : a[i], y = b[i] == '_' ? '-' : b[i];

		if (strncasecmp(&x, &y, 1) != 0)
			return false;
	}
	return true;
}

static int add_field(void *arg, const char *data, const struct head_field *f)
{
	struct job *j = arg;

	/* In what is compressed, no value can be found. */
	if (j->added && (head_field_is(data, f, "accept-encoding") || head_field_is(data, f, "te") ||
			 head_field_is(data, f, "sec-websocket-extensions")))
		return 0;
	for (uint32_t i = 0; i < count(j->in); i++) {
		const struct item *it = &j->in->item[i];

		if (it->kind == EGRESS_HEADER && is_for(it, j->name, j->port, j->tls) &&
		    same_field(data + f->line, f->name_len, it->field))
			return 0;
	}
	return buf_add(j->out, data + f->line, f->line_len);
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Whether a parameter's name, however it is encoded, is @field (which is encoded in one way). */
static bool same_parameter(const char *p, size_t n, const char *field)
{
	for (; n; field++) {
		char got = *p++, want = *field;

		n--;
		if (got == '%' && n >= 2 && digit(p[0]) >= 0 && digit(p[1]) >= 0) {
			got = (char)(digit(p[0]) << 4 | digit(p[1]));
			p += 2;
			n -= 2;
		} else if (got == '+') {
			got = ' ';
		}
		if (!want)
			return false;
		if (want == '%') {
			want = (char)((unsigned)digit(field[1]) << 4 |
				      (unsigned)digit(field[2])); /* encoded() writes no others */
			field += 2;
		}
		if (got != want)
			return false;
	}
	return !*field;
}

static bool replaced(const struct job *j, const char *p, size_t n)
{
	const char *eq = memchr(p, '=', n);

	for (uint32_t i = 0; i < count(j->in); i++) {
		const struct item *it = &j->in->item[i];

		if (it->kind == EGRESS_QUERY && is_for(it, j->name, j->port, j->tls) &&
		    same_parameter(p, eq ? (size_t)(eq - p) : n, it->field))
			return true;
	}
	return false;
}

/* Parameters: those that stay, then ours. Some servers take ";" between them as well. */
static int add_query(struct job *j, const char *p, const char *end)
{
	const char *sep = "?";
	int r = 0;

	while (p < end && !r) {
		const char *stop = p;

		while (stop < end && *stop != '&' && *stop != ';')
			stop++;
		if (!replaced(j, p, (size_t)(stop - p))) {
			r = buf_adds(j->out, sep);
			if (!r)
				r = buf_add(j->out, p, (size_t)(stop - p));
			sep = stop < end && *stop == ';' ? ";" : "&";
		}
		p = stop + 1;
	}
	for (uint32_t i = 0; i < count(j->in) && !r; i++) {
		const struct item *it = &j->in->item[i];

		if (it->kind != EGRESS_QUERY || !is_for(it, j->name, j->port, j->tls))
			continue;
		r = buf_adds(j->out, *sep == '?' ? "?" : "&");
		sep = "&";
		if (!r)
			r = buf_adds(j->out, it->field);
		if (!r)
			r = buf_addc(j->out, '=');
		if (!r)
			r = buf_adds(j->out, it->value);
	}
	return r;
}

static int add_target(struct job *j, const char *data, const struct head *h)
{
	const char *p = data + h->path, *end = data + h->target + h->target_len, *query;
	int r = 0;

	query = memchr(p, '?', (size_t)(end - p));
	if (!query)
		query = end;
	if (query == p) /* "http://host", "http://host?query" */
		r = buf_addc(j->out, '/');
	if (!r)
		r = buf_add(j->out, p, (size_t)(query - p));
	if (r < 0 || (query == end && *p == '*')) /* OPTIONS of the whole server has no parameters */
		return r;
	return add_query(j, query < end ? query + 1 : end, end);
}

static int add_values(struct job *j)
{
	int r = 0;

	for (uint32_t i = 0; i < count(j->in) && !r; i++) {
		const struct item *it = &j->in->item[i];

		if (it->kind != EGRESS_HEADER || !is_for(it, j->name, j->port, j->tls))
			continue;
		r = buf_adds(j->out, it->field);
		if (!r)
			r = buf_adds(j->out, ": ");
		if (!r)
			r = buf_adds(j->out, it->value);
		if (!r)
			r = buf_adds(j->out, "\r\n");
	}
	return r;
}

int inject_head(const struct inject *in, const char *name, uint16_t port, bool tls, const char *data,
		const struct head *h, struct buf *out)
{
	struct job j = { in, name, port, tls, out, inject_wants(in, name, port, tls) };
	size_t before = out->len;
	int r;

	r = buf_add(out, data, h->target);
	if (!r)
		r = add_target(&j, data, h);
	if (!r)
		r = buf_adds(out, h->v10 ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n");
	if (!r)
		r = head_each(data, h, add_field, &j);
	if (!r)
		r = add_values(&j);
	if (!r && j.added)
		r = buf_adds(out, "Accept-Encoding: identity\r\n");
	if (!r)
		r = buf_adds(out, "\r\n");
	if (r < 0) {
		OPENSSL_cleanse(out->data + before, out->len - before);
		buf_cut(out, before);
	}
	return r;
}
