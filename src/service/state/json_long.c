/* Reads long strings of JSON by itself, the rest by the library. */
#include "service/state/json_long.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/id.h"

struct cut {
	const char *at; /* behind the quote */
	size_t len;
};

struct cutting {
	size_t flags;
	struct cut *cut;
	unsigned n, room;
	char mark[ID_SIZE]; /* what stands for the first is this and ".0" */
};

const char *json_string_end(const char *at, const char *end)
{
	for (;;) {
		const char *quote = memchr(at, '"', (size_t)(end - at)), *slash;

		if (!quote)
			quote = end;
		while (at < quote && (slash = memchr(at, '\\', (size_t)(quote - at))))
			at = slash + 2 <= end ? slash + 2 : end;
		if (at <= quote)
			return quote;
	}
}

static int hex4(const char *at, const char *end)
{
	int v = 0;

	if (end - at < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		const char c = at[i];

		v = v * 16 + (c >= '0' && c <= '9' ? c - '0' :
			      c >= 'a' && c <= 'f' ? c - 'a' + 10 :
			      c >= 'A' && c <= 'F' ? c - 'A' + 10 :
						     -(1 << 24));
	}
	return v;
}

static size_t put_utf8(char *to, int c)
{
	if (c < 0x80)
		return to[0] = (char)c, 1;
	if (c < 0x800)
		return to[0] = (char)(0xc0 | c >> 6), to[1] = (char)(0x80 | (c & 63)), 2;
	if (c < 0x10000) {
		to[0] = (char)(0xe0 | c >> 12);
		to[1] = (char)(0x80 | (c >> 6 & 63));
		to[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	to[0] = (char)(0xf0 | c >> 18);
	to[1] = (char)(0x80 | (c >> 12 & 63));
	to[2] = (char)(0x80 | (c >> 6 & 63));
	to[3] = (char)(0x80 | (c & 63));
	return 4;
}

/* What is behind "\u", and maybe its second half. -1: none. */
static int unicode(const char **at, const char *end)
{
	int c = hex4(*at, end), low;

	if (c < 0 || (c >= 0xdc00 && c < 0xe000))
		return -1;
	*at += 4;
	if (c < 0xd800 || c >= 0xdc00)
		return c;
	low = end - *at >= 6 && (*at)[0] == '\\' && (*at)[1] == 'u' ? hex4(*at + 2, end) : -1;
	if (low < 0xdc00 || low >= 0xe000)
		return -1;
	*at += 6;
	return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
}

/* The string that is written as @c; NULL: none. UTF-8 is checked by the library. */
static json_t *decode(const struct cut *c, size_t flags)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at = c->at, *end = at + c->len, *known;
	AUTO_FREE char *out = malloc(c->len + 1);
	size_t n = 0;
	int u;

	while (out && at < end) {
		const char *slash = memchr(at, '\\', (size_t)(end - at));
		const size_t plain = (size_t)((slash ? slash : end) - at);
		bool bad = false;

		for (size_t i = 0; i < plain; i++)
			bad |= (unsigned char)at[i] < 0x20;
		if (bad)
			return NULL;
		memcpy(out + n, at, plain);
		n += plain;
		at += plain;
		if (!slash)
			break;
		if (++at == end)
			return NULL;
		if (*at == 'u') {
			at++;
			u = unicode(&at, end);
			if (u < 0 || (u == 0 && !(flags & JSON_ALLOW_NUL)))
				return NULL;
			n += put_utf8(out + n, u);
			continue;
		}
		known = *at ? strchr(from, *at) : NULL;
		if (!known)
			return NULL;
		out[n++] = to[known - from];
		at++;
	}
	return out ? json_stringn(out, n) : NULL;
}

static int keep(struct cutting *x, const char *at, size_t len)
{
	void *more;

	if (x->n == x->room) {
		x->room = x->room ? 2 * x->room : 16;
		more = realloc(x->cut, x->room * sizeof(*x->cut));
		if (!more)
			return -ENOMEM;
		x->cut = more;
	}
	x->cut[x->n++] = (struct cut){ at, len };
	return 0;
}

/* @text with a short string instead of each long one. -E2BIG: too much of it is names. */
static int cut_all(struct cutting *x, const char *text, size_t len, struct buf *ret)
{
	const char *at = text, *end = text + len, *done = text, *last;
	size_t names = 0;
	int r = id_new(x->mark, sizeof(x->mark));

	for (; r == 0 && (at = memchr(at, '"', (size_t)(end - at))); at = last < end ? last + 1 : end) {
		const char *next;

		last = json_string_end(++at, end);
		if (last == end || (size_t)(last - at) < JSON_LONG)
			continue;
		next = last + 1;
		while (next < end && (*next == ' ' || *next == '\t' || *next == '\r' || *next == '\n'))
			next++;
		if (next < end && *next == ':') {
			names += (size_t)(last - at);
			r = names > JSON_NAMES ? -E2BIG : 0;
			continue;
		}
		r = buf_add(ret, done, (size_t)(at - done));
		if (r == 0)
			r = buf_addf(ret, "%s.%u", x->mark, x->n);
		if (r == 0)
			r = keep(x, at, (size_t)(last - at));
		done = last;
	}
	return r == 0 ? buf_add(ret, done, (size_t)(end - done)) : r;
}

/* The string that @v stands for. *ret NULL: for none. */
static int whole(const struct cutting *x, const json_t *v, json_t **ret, struct err *e)
{
	const char *text = json_string_value(v);
	unsigned long i;

	*ret = NULL;
	if (!text || json_string_length(v) > ID_LEN + 12 || strncmp(text, x->mark, ID_LEN) || text[ID_LEN] != '.')
		return 0;
	i = strtoul(text + ID_LEN + 1, NULL, 10);
	if (i < x->n)
		*ret = decode(&x->cut[i], x->flags);
	return *ret ? 0 :
		      err_set(e, WHY_BAD_JSON, -EINVAL, "JSON: a string of %zu bytes is not valid",
			      i < x->n ? x->cut[i].len : 0);
}

static int put_back(const struct cutting *x, json_t *in, struct err *e)
{
	const char *key;
	json_t *v, *new;
	void *next;
	size_t i;
	int r;

	json_object_foreach_safe(in, next, key, v)
	{
		r = whole(x, v, &new, e);
		if (r == 0 && new)
			r = json_object_set_new_nocheck(in, key, new);
		else if (r == 0)
			r = put_back(x, v, e);
		if (r < 0)
			return r;
	}
	json_array_foreach(in, i, v)
	{
		r = whole(x, v, &new, e);
		if (r == 0 && new)
			r = json_array_set_new(in, i, new);
		else if (r == 0)
			r = put_back(x, v, e);
		if (r < 0)
			return r;
	}
	return 0;
}

json_t *json_long_load(const char *text, size_t len, size_t flags, struct err *e)
{
	struct cutting x = { .flags = flags };
	AUTO(buf_done) struct buf rest = BUF_INIT(len + ID_SIZE + 16);
	json_error_t why;
	json_t *o = NULL;
	int r = len >= JSON_SMALL ? cut_all(&x, text, len, &rest) : 0;

	if (r < 0) {
		err_set(e, r == -E2BIG ? WHY_BAD_JSON : ERR_EXHAUSTED, r,
			r == -E2BIG ? "JSON: names of more than 2 MiB" : "no memory for a request");
	} else {
		o = x.n ? json_loadb(buf_str(&rest), rest.len, flags, &why) : json_loadb(text, len, flags, &why);
		if (!o)
			err_set(e, WHY_BAD_JSON, -EINVAL, "JSON: %.120s (line %d, column %d)", why.text, why.line,
				why.column);
	}
	if (o && x.n && put_back(&x, o, e) < 0) {
		json_decref(o);
		o = NULL;
	}
	free(x.cut);
	return o;
}
