/* Parses the head of an HTTP/1 request, and writes it again. */
#include "egress/head.h"

#include <llhttp.h>
#include <strings.h>

#include "base/base.h"

/*
 * A head is judged when it is whole: first that it is spelled as the standard says and no looser, byte by byte, then by
 * llhttp, then by what its fields mean. Servers differ in what they forgive; what one of them could read otherwise than
 * we do is refused here.
 */
#define METHOD_MAX 1024U /* no server takes a longer one */
#define LATE_MAX (1U << 20) /* no server waits longer than that for the end of a first line */

static const char *const methods[] = { "GET ",	   "HEAD ",  "POST ",  "PUT ",	   "DELETE ",
				       "OPTIONS ", "PATCH ", "TRACE ", "CONNECT ", "PRI " };

static enum look bad(const char **ret_why, const char *why)
{
	*ret_why = why;
	return LOOK_BAD;
}

static bool is_token(char c)
{
	if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
		return true;
	return c && strchr("!#$%&'*+-.^_`|~", c);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_control(char c)
{
	return ((unsigned char)c < 0x20 && !is_blank(c)) || c == 0x7f;
}

/* What one server or another takes for a space in a request's first line: Python's split at all of these. */
static bool is_space(char c)
{
	unsigned char u = (unsigned char)c;

	return is_blank(c) || c == '\v' || c == '\f' || (u >= 0x1c && u <= 0x1f) || u == 0x85 || u == 0xa0;
}

/* Whether the bytes begin with a known method and a space, or could. */
static bool known_method(const char *p, size_t n)
{
	for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
		size_t m = strlen(methods[i]) - 1;

		if (!memcmp(p, methods[i], n < m ? n : m) && (n <= m || is_space(p[m])))
			return true;
	}
	return false;
}

static bool says_http(const char *p, size_t n)
{
	for (; n >= 5; p++, n--)
		if (!strncasecmp(p, "HTTP/", 5))
			return true;
	return false;
}

/* YES: the first line is a request's, whatever else is wrong with it. */
static enum look first_line(const char *data, size_t len, const char **ret_why)
{
	const char *p = data, *end = data + len, *stop;
	bool word = false; /* a method and a space were read: any bytes may follow, up to "HTTP/" */

	while (p < end && is_space(*p))
		p++;
	if (p < end && !is_token(*p))
		return LOOK_NOT;
	for (stop = p; stop < end && *stop != '\n' && (word || is_space(*stop) || !is_control(*stop)); stop++)
		word |= is_space(*stop);
	if (says_http(p, (size_t)(stop - p)) || (stop < end && known_method(p, (size_t)(stop - p + 1))))
		return p == data ? LOOK_YES : bad(ret_why, "unexpected bytes before the HTTP request");
	if (stop < end)
		return LOOK_NOT;
	for (stop = p; stop < end && is_token(*stop); stop++)
		;
	if (len >= HEAD_MAX && stop - p > METHOD_MAX)
		return LOOK_NOT; /* one long word is no request, whatever follows it */
	return len >= HEAD_MAX ? bad(ret_why, "the first line is too long") : LOOK_MORE;
}

bool head_begun(const char *data, size_t len)
{
	const char *why;

	return len && (first_line(data, len, &why) == LOOK_YES || known_method(data, len));
}

bool head_late(struct head_late *l, const char *data, size_t len)
{
	static const char http[] = "http/";

	for (; len && !l->done; data++, len--) {
		char c = *data, low = (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);

		if (++l->seen > LATE_MAX || (is_control(c) && !is_space(c) && !l->space))
			l->done = true;
		else if (!l->text && is_space(c))
			continue;
		else if (!l->text && !is_token(c))
			l->done = true;
		if (l->done)
			break;
		l->text = true;
		l->space |= is_space(c);
		if (l->words < sizeof(l->word))
			l->word[l->words++] = c;
		if (c == '\n') {
			l->done = true;
			return !known_method(l->word, l->words);
		}
		l->matched = low == http[l->matched] ? (uint8_t)(l->matched + 1) : low == 'h';
		if (l->matched == 5)
			return false;
	}
	return true;
}

/* The length of a head that is there as a whole; 0: more is needed; -1: refused. */
static long head_end(const char *data, size_t len, const char **ret_why)
{
	size_t line = 0, lines = 0, max = len < HEAD_MAX ? len : HEAD_MAX;

	for (size_t i = 0; i < max; i++) {
		char c = data[i];

		if (i && data[i - 1] == '\r') {
			if (c != '\n')
				return bad(ret_why, "a line of the head does not end with CR and LF"), -1;
			if (!line)
				return (long)i + 1;
			line = 0;
			if (++lines > HEAD_HEADERS_MAX + 1)
				return bad(ret_why, "the head has too many lines"), -1;
		} else if (c == '\n' || is_control(c)) {
			return bad(ret_why, "the head contains a control byte"), -1;
		} else if (c != '\r') {
			if (!line++ && (c == ' ' || c == '\t'))
				return bad(ret_why, "the head has a folded line"), -1;
		}
	}
	return max == HEAD_MAX ? bad(ret_why, "the head is too large"), -1 : 0;
}

/* "METHOD target HTTP/1.x", with one space each. */
static const char *read_line(const char *data, size_t len, struct head *h)
{
	const char *end = memchr(data, '\r', len), *space, *last;

	if (!end)
		return "a line of the head does not end with CR and LF";
	space = memchr(data, ' ', (size_t)(end - data));
	last = memrchr(data, ' ', (size_t)(end - data));
	if (!space || last == space || end - last != 9 || memcmp(last + 1, "HTTP/1.", 7) != 0 ||
	    (last[8] != '0' && last[8] != '1'))
		return "the request line is not that of HTTP/1.1";
	h->v10 = last[8] == '0';
	h->method_len = (size_t)(space - data);
	h->target = h->method_len + 1;
	h->target_len = (size_t)(last - space - 1);
	for (const char *p = data; p < space; p++)
		if (!is_token(*p))
			return "the method is invalid";
	for (const char *p = space + 1; p < last; p++)
		if (*p == ' ' || *p == '\t' || *p == '#')
			return "the request's target is invalid";
	return h->target_len ? NULL : "the request has no target";
}

/* The authority of an absolute target, or of a CONNECT. */
static const char *read_target(const char *data, struct head *h)
{
	const char *t = data + h->target, *end = t + h->target_len, *p;

	h->path = h->target;
	if (h->connect) {
		if (look_authority(t, h->target_len, &h->host) < 0 || !h->host.port)
			return "CONNECT needs a host name or an address, a colon and a port";
		return NULL;
	}
	if (*t == '/' || (h->target_len == 1 && *t == '*' && h->method_len == 7 && !memcmp(data, "OPTIONS", 7)))
		return NULL;
	if (h->target_len < 8 || strncasecmp(t, "http://", 7) != 0)
		return "the request's target is neither a path nor an http:// address";
	for (p = t + 7; p < end && *p != '/' && *p != '?'; p++)
		;
	if (look_authority(t + 7, (size_t)(p - t - 7), &h->host) < 0)
		return "the request's target has an invalid host name";
	h->absolute = true;
	h->path = (size_t)(p - data);
	return NULL;
}

static bool same_host(const struct look_to *a, const struct look_to *b)
{
	return !strcmp(a->name, b->name) && a->addr.family == b->addr.family &&
	       !memcmp(a->addr.addr, b->addr.addr, sizeof(a->addr.addr));
}

struct seen {
	struct head *head;
	const char *why;
	unsigned hosts, lengths, codings, upgrades;
};

static bool value_is(const char *data, const struct head_field *f, const char *text)
{
	return f->value_len == strlen(text) && !strncasecmp(data + f->value, text, f->value_len);
}

static const char *see_host(struct seen *s, const char *data, const struct head_field *f)
{
	struct head *h = s->head;
	struct look_to to;

	if (s->hosts++)
		return "there must be exactly one Host header";
	if (look_authority(data + f->value, f->value_len, &to) < 0)
		return "the Host header is not a valid host name";
	if (h->absolute &&
	    (!same_host(&to, &h->host) || (to.port ? to.port : 80) != (h->host.port ? h->host.port : 80)))
		return "the Host header differs from the target";
	if (h->connect && (!same_host(&to, &h->host) || (to.port && to.port != h->host.port)))
		return "the Host header differs from the target of CONNECT";
	if (!h->connect)
		h->host = to;
	return NULL;
}

static const char *see_length(struct seen *s, const char *data, const struct head_field *f)
{
	const char *p = data + f->value;
	uint64_t v = 0;

	if (s->lengths++ || s->codings || s->head->connect)
		return "the body's length is given twice";
	if (!f->value_len || f->value_len > 18)
		return "Content-Length is not a number";
	for (size_t i = 0; i < f->value_len; i++) {
		if (p[i] < '0' || p[i] > '9')
			return "Content-Length is not a number";
		v = v * 10 + (uint64_t)(p[i] - '0');
	}
	s->head->length = v;
	s->head->body = v ? HEAD_LENGTH : HEAD_NO_BODY;
	return NULL;
}

static const char *see_coding(struct seen *s, const char *data, const struct head_field *f)
{
	if (s->codings++ || s->lengths || s->head->connect || s->head->v10)
		return "the body's length is given twice";
	if (!value_is(data, f, "chunked"))
		return "Transfer-Encoding must be chunked";
	s->head->body = HEAD_CHUNKED;
	return NULL;
}

static const char *see_upgrade(struct seen *s, const char *data, const struct head_field *f)
{
	if (s->upgrades++)
		return "there is more than one Upgrade header";
	if (value_is(data, f, "h2c"))
		s->head->upgrade = HEAD_H2C;
	else if (value_is(data, f, "websocket") && s->head->method_len == 3 && !memcmp(data, "GET", 3))
		s->head->upgrade = HEAD_WEBSOCKET;
	else
		return "the Upgrade header may only name websocket";
	return NULL;
}

static int see_field(void *arg, const char *data, const struct head_field *f)
{
	struct seen *s = arg;

	if (!f->name_len)
		s->why = "a header's name contains an invalid character";
	else if (head_field_is(data, f, "host"))
		s->why = see_host(s, data, f);
	else if (head_field_is(data, f, "content-length"))
		s->why = see_length(s, data, f);
	else if (head_field_is(data, f, "transfer-encoding"))
		s->why = see_coding(s, data, f);
	else if (head_field_is(data, f, "upgrade"))
		s->why = see_upgrade(s, data, f);
	else if (head_field_is(data, f, "expect"))
		s->head->expect = value_is(data, f, "100-continue");
	return s->why != NULL;
}

static int on_head(llhttp_t *l)
{
	(void)l;
	return HPE_PAUSED;
}

/* A second opinion, of the parser that most servers' clients are tested with; it knows the methods, and Connection. */
static bool second_opinion(const char *data, struct head *h)
{
	static const llhttp_settings_t settings = { .on_headers_complete = on_head };
	llhttp_t l;

	llhttp_init(&l, HTTP_REQUEST, &settings);
	if (llhttp_execute(&l, data, h->len) != HPE_PAUSED || l.http_major != 1 || l.http_minor != !h->v10)
		return false;
	h->keep = llhttp_should_keep_alive(&l);
	return (l.method == HTTP_CONNECT) == h->connect;
}

enum look head_look(const char *data, size_t len, struct head *ret, const char **ret_why)
{
	struct head h = { 0 };
	struct seen s = { .head = &h };
	enum look r;
	long end;

	r = first_line(data, len, ret_why);
	if (r != LOOK_YES)
		return r;
	if (len >= 4 && !memcmp(data, "PRI ", 4))
		return bad(ret_why, "HTTP/2 without TLS is not supported");
	/* The line alone: a request of HTTP/0.9 has nothing behind it. */
	if (memchr(data, '\n', len))
		s.why = read_line(data, len, &h);
	if (s.why)
		return bad(ret_why, s.why);
	end = head_end(data, len, ret_why);
	if (end <= 0)
		return end ? LOOK_BAD : LOOK_MORE;
	h.len = (size_t)end;
	h.connect = h.method_len == 7 && !memcmp(data, "CONNECT", 7);
	s.why = read_target(data, &h);
	if (!s.why)
		(void)head_each(data, &h, see_field, &s);
	if (s.why)
		return bad(ret_why, s.why);
	if (!s.hosts && !h.connect)
		return bad(ret_why, "there must be exactly one Host header");
	if (h.upgrade && (h.v10 || h.connect || (h.upgrade == HEAD_WEBSOCKET && h.body)))
		return bad(ret_why, "the Upgrade header is not supported here");
	if (!second_opinion(data, &h))
		return bad(ret_why, "not an HTTP/1.1 request");
	*ret = h;
	return LOOK_YES;
}

bool head_field_is(const char *data, const struct head_field *f, const char *name)
{
	return f->name_len == strlen(name) && !strncasecmp(data + f->line, name, f->name_len);
}

int head_each(const char *data, const struct head *h,
	      int (*each)(void *arg, const char *data, const struct head_field *f), void *arg)
{
	const char *p = data, *end = data + h->len, *cr;
	int r;

	p = (const char *)memchr(p, '\n', h->len) + 1; /* behind the request line */
	while (end - p > 2) {
		struct head_field f = { .line = (size_t)(p - data) };
		const char *q = p;

		cr = memchr(p, '\r', (size_t)(end - p));
		f.line_len = (size_t)(cr + 2 - p);
		while (q < cr && is_token(*q))
			q++;
		if (q < cr && *q == ':') {
			f.name_len = (size_t)(q - p);
			for (q++; q < cr && (*q == ' ' || *q == '\t'); q++)
				;
			f.value = (size_t)(q - data);
			while (cr > q && (cr[-1] == ' ' || cr[-1] == '\t'))
				cr--;
			f.value_len = (size_t)(cr - q);
		}
		r = each(arg, data, &f);
		if (r)
			return r;
		p += f.line_len;
	}
	return 0;
}
