/*
 * The automaton of Aho and Corasick. It takes one step per byte for any set of values, since the same user may choose a
 * secret and write the output. There are usually some thousand nodes; lists of children are short but for the root's.
 */
#include "base/mask.h"
#include "base/base.h"

#define ROOM 64 /* for what a text may become longer by */
#define WHOLE_FORMS 4096U /* longer values are found in fewer forms */
#define FORM_MIN 6U /* of forms that are not the value itself */
#define LINE_MIN 16U
#define WRAP 76U /* base64(1) */
#define HELD_MAX (8 * MIB)

struct node {
	uint32_t child, next; /* 0 = none: the root is not a child */
	uint32_t fail;
	uint32_t depth;
	uint32_t match; /* length of the longest value that ends here, 0 = none */
	uint8_t byte;
};

struct mask {
	unsigned refs;
	struct node *node;
	uint32_t n, room;
	uint32_t root[256];
	uint8_t pair[8192]; /* a bit for each two bytes that something begins with: most text is passed over by it */
	int r;
};

/* --- making one --- */

static uint32_t child_of(const struct mask *m, uint32_t s, uint8_t c)
{
	uint32_t t;

	if (!s)
		return m->root[c];
	for (t = m->node[s].child; t && m->node[t].byte != c; t = m->node[t].next)
		;
	return t;
}

static uint32_t node_add(struct mask *m, uint32_t parent, uint8_t c)
{
	struct node *more;
	uint32_t room;

	if (m->n == m->room) {
		room = m->room ? m->room * 2 : 256;
		more = malloc(room * sizeof(*more));
		if (!more) {
			m->r = -ENOMEM;
			return 0;
		}
		if (m->node) {
			memcpy(more, m->node, m->n * sizeof(*more));
			explicit_bzero(m->node, m->n * sizeof(*more));
			free(m->node);
		}
		m->node = more;
		m->room = room;
	}
	m->node[m->n] = (struct node){ .byte = c, .next = m->node[parent].child, .depth = m->node[parent].depth + 1 };
	m->node[parent].child = m->n;
	if (!parent)
		m->root[c] = m->n;
	return m->n++;
}

static void add(struct mask *m, const char *data, size_t len)
{
	uint32_t s = 0;

	for (size_t i = 0; i < len && m->r == 0; i++) {
		uint32_t t = child_of(m, s, (uint8_t)data[i]);

		s = t ? t : node_add(m, s, (uint8_t)data[i]);
	}
	if (m->r == 0 && s)
		m->node[s].match = m->node[s].depth;
}

static void add_form(struct mask *m, const struct buf *b)
{
	if (b->len >= FORM_MIN)
		add(m, b->data, b->len);
}

static int link_fails(struct mask *m)
{
	uint32_t *queue = malloc((m->n + 1) * sizeof(*queue)), at = 0, n = 0;

	if (!queue)
		return -ENOMEM;
	for (uint32_t t = m->node[0].child; t; t = m->node[t].next) {
		queue[n++] = t;
		for (uint32_t u = m->node[t].child; u; u = m->node[u].next)
			m->pair[m->node[t].byte << 5 | m->node[u].byte >> 3] |= (uint8_t)(1U << (m->node[u].byte & 7));
	}
	while (at < n) {
		uint32_t s = queue[at++];

		for (uint32_t t = m->node[s].child; t; t = m->node[t].next) {
			uint32_t f = m->node[s].fail, to;

			while (!(to = child_of(m, f, m->node[t].byte)) && f)
				f = m->node[f].fail;
			m->node[t].fail = to;
			if (!m->node[t].match)
				m->node[t].match = m->node[to].match;
			queue[n++] = t;
		}
	}
	free(queue);
	return 0;
}

/* --- forms of a value --- */

static void wipe(struct buf *b)
{
	if (b->data)
		explicit_bzero(b->data, b->cap);
	buf_done(b);
}

static int form_json(struct buf *to, const char *p, size_t len)
{
	static const char from[] = "\n\r\t\"\\\b\f", as[] = "nrt\"\\bf";
	int r = 0;

	for (size_t i = 0; r == 0 && i < len; i++) {
		const char *at = p[i] ? strchr(from, p[i]) : NULL;

		if (at)
			r = buf_addf(to, "\\%c", as[at - from]);
		else if ((unsigned char)p[i] < 0x20)
			r = buf_addf(to, "\\u%04x", (unsigned char)p[i]);
		else
			r = buf_addc(to, p[i]);
	}
	return r;
}

/* @safe beginning with "+": as forms are sent, a space is that. */
static int form_url(struct buf *to, const char *p, size_t len, const char *safe, bool upper)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~";
	bool form = *safe == '+';
	int r = 0;

	safe += form;
	for (size_t i = 0; r == 0 && i < len; i++) {
		if (p[i] && (strchr(plain, p[i]) || strchr(safe, p[i])))
			r = buf_addc(to, p[i]);
		else if (p[i] == ' ' && form)
			r = buf_addc(to, '+');
		else
			r = buf_addf(to, upper ? "%%%02X" : "%%%02x", (unsigned char)p[i]);
	}
	return r;
}

static int form_hex(struct buf *to, const char *p, size_t len, bool upper)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < len; i++)
		r = buf_addf(to, upper ? "%02X" : "%02x", (unsigned char)p[i]);
	return r;
}

/* Of @skip bytes that are not known and then the value: the characters that only depend on the value. */
static int form_base64(struct buf *to, const char *p, size_t len, unsigned skip, bool url, bool rest)
{
	static const char std[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	static const char web[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	const char *set = url ? web : std;
	size_t bits = 8 * (len + skip), first = skip ? skip + 1 : 0, n = rest ? (bits + 5) / 6 : bits / 6;
	int r = 0;

	for (size_t i = first; r == 0 && i < n; i++) {
		unsigned v = 0;

		for (size_t b = i * 6; b < i * 6 + 6; b++) {
			size_t at = b / 8;
			unsigned bit =
				at < skip || at - skip >= len ? 0 : (unsigned char)p[at - skip] >> (7 - b % 8) & 1;

			v = v << 1 | bit;
		}
		r = buf_addc(to, set[v]);
	}
	return r;
}

static void add_base64(struct mask *m, const char *p, size_t len)
{
	/* In the middle of something, and at its end. */
	for (unsigned i = 0; i < 12 && m->r == 0; i++) {
		struct buf b = BUF_INIT(HELD_MAX);

		m->r = form_base64(&b, p, len, i % 3, i % 6 >= 3, i >= 6);
		add_form(m, &b);
		wipe(&b);
		if (len > WHOLE_FORMS)
			i += 2;
	}
	/* Alone, with its last character and what fills it up; also with the newline that `echo` adds. */
	for (unsigned i = 0; i < 4 && m->r == 0; i++) {
		struct buf b = BUF_INIT(HELD_MAX), v = BUF_INIT(HELD_MAX);

		m->r = buf_add(&v, p, len);
		if (m->r == 0 && i >= 2)
			m->r = buf_addc(&v, '\n');
		if (m->r == 0)
			m->r = form_base64(&b, v.data, v.len, 0, i % 2, true);
		add_form(m, &b);
		for (size_t at = 0; m->r == 0 && b.len > WRAP && at < b.len; at += WRAP)
			if (b.len - at >= LINE_MIN)
				add(m, b.data + at, b.len - at < WRAP ? b.len - at : WRAP);
		while (m->r == 0 && b.len % 4)
			m->r = buf_addc(&b, '=');
		add_form(m, &b);
		wipe(&b);
		wipe(&v);
	}
}

static void add_text_forms(struct mask *m, const char *p, size_t len)
{
	static const char *const safe[] = { "", "/", "!'()*", "+" };

	for (size_t i = 0; i < ARRAY_LEN(safe) * 2 && m->r == 0; i++) {
		struct buf b = BUF_INIT(HELD_MAX);

		m->r = form_url(&b, p, len, safe[i / 2], i % 2 == 0);
		add_form(m, &b);
		wipe(&b);
		if (len > WHOLE_FORMS)
			break;
	}
	for (unsigned i = 0; i < 3 && m->r == 0; i++) {
		struct buf b = BUF_INIT(HELD_MAX);

		if (i == 0)
			m->r = form_json(&b, p, len);
		else if (len <= WHOLE_FORMS)
			m->r = form_hex(&b, p, len, i == 2);
		add_form(m, &b);
		wipe(&b);
	}
}

/* A terminal ends lines with CR LF, and programs often print a file line by line. */
static void add_lines(struct mask *m, const char *p, size_t len)
{
	const char *end = p + len, *nl;

	if (!memchr(p, '\n', len))
		return;
	for (; p < end; p = nl + 1) {
		size_t n;

		nl = memchr(p, '\n', (size_t)(end - p));
		if (!nl)
			nl = end;
		n = (size_t)(nl - p);
		if (n && p[n - 1] == '\r')
			n--;
		if (n >= LINE_MIN && strncmp(p, "-----", 5) != 0)
			add(m, p, n);
	}
}

static void add_value(struct mask *m, const char *p, size_t len, bool few)
{
	AUTO(buf_done) struct buf json = BUF_INIT(HELD_MAX);

	while (len && (p[len - 1] == '\n' || p[len - 1] == '\r'))
		len--;
	if (len < MASK_VALUE_MIN)
		return;
	add(m, p, len);
	if (few) {
		m->r = m->r < 0 ? m->r : form_json(&json, p, len);
		add_form(m, &json);
		wipe(&json);
		return;
	}
	add_text_forms(m, p, len);
	add_base64(m, p, len);
	add_lines(m, p, len);
}

int mask_new(const struct mask_value *v, size_t n, struct mask **ret)
{
	struct mask *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	m->refs = 1;
	m->room = 256;
	m->node = calloc(m->room, sizeof(*m->node));
	m->n = 1;
	m->r = m->node ? 0 : -ENOMEM;
	for (size_t i = 0; i < n && m->r == 0; i++)
		add_value(m, v[i].data, v[i].len, v[i].few);
	r = m->r == 0 ? link_fails(m) : m->r;
	if (r < 0) {
		mask_unref(m);
		return r;
	}
	*ret = m;
	return 0;
}

struct mask *mask_ref(struct mask *m)
{
	if (m)
		m->refs++;
	return m;
}

void mask_unref(struct mask *m)
{
	if (!m || --m->refs)
		return;
	if (m->node)
		explicit_bzero(m->node, m->n * sizeof(*m->node));
	free(m->node);
	explicit_bzero(m->pair, sizeof(m->pair));
	free(m);
}

size_t mask_bytes(const struct mask *m)
{
	return sizeof(*m) + m->room * sizeof(*m->node);
}

/* --- a stream --- */

void mask_stream_init(struct mask_stream *x, struct mask *m)
{
	*x = (struct mask_stream){ .m = mask_ref(m), .held = BUF_INIT(HELD_MAX) };
}

void mask_stream_done(struct mask_stream *x)
{
	wipe(&x->held);
	free(x->span);
	mask_unref(x->m);
	*x = (struct mask_stream){ 0 };
}

/* A value ended at @to. Ends grow, so what is joined is at the end of the list (mask_stream_change: joined generously). */
static int found(struct mask_stream *x, uint64_t from, uint64_t to)
{
	while (x->nspans && x->span[x->nspans - 1].to >= from) {
		if (x->span[x->nspans - 1].from < from)
			from = x->span[x->nspans - 1].from;
		if (x->span[x->nspans - 1].to > to)
			to = x->span[x->nspans - 1].to;
		x->nspans--;
	}
	if (x->nspans == x->room) {
		uint32_t room = x->room ? x->room * 2 : 8;
		struct mask_span *more = realloc(x->span, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		x->span = more;
		x->room = room;
	}
	x->span[x->nspans++] = (struct mask_span){ from, to };
	return 0;
}

/* Adds everything before @until to @out, with masked values. */
static int tell(struct mask_stream *x, uint64_t until, struct buf *out)
{
	uint64_t at = x->base;
	uint32_t i = 0;
	int r = 0;

	while (r == 0 && at < until) {
		const struct mask_span *s = i < x->nspans ? &x->span[i] : NULL;
		uint64_t plain = s && s->from < until ? s->from : until;

		if (at < plain) {
			r = buf_add(out, x->held.data + (at - x->base), (size_t)(plain - at));
			at = plain;
			continue;
		}
		for (uint64_t k = at; r == 0 && x->same_length && k < s->to && k < until; k++)
			r = buf_addc(out, '*');
		/* MASK_TEXT was already written for a value that was masked in part. */
		if (x->same_length)
			;
		else if (!x->shown || x->shown < at)
			r = buf_adds(out, MASK_TEXT);
		at = s->to < until ? s->to : until;
		x->shown = at;
		i += s->to <= until;
	}
	if (r < 0)
		return r;
	if (i)
		memmove(x->span, x->span + i, (x->nspans - i) * sizeof(*x->span));
	x->nspans -= i;
	if (x->nspans && x->span[0].from < until)
		x->span[0].from = until;
	buf_drop(&x->held, (size_t)(until - x->base));
	x->base = until;
	return 0;
}

int mask_feed(struct mask_stream *x, const void *data, size_t len, struct buf *out)
{
	const struct mask *m = x->m;
	const uint8_t *p = data;
	uint32_t s = x->state;
	int r = buf_add(&x->held, data, len);

	for (size_t i = 0; r == 0 && i < len; i++) {
		uint32_t t = 0;

		/* Nothing is shorter than two bytes; the last one is looked at in any case. */
		while (!s && i + 1 < len && !(m->pair[p[i] << 5 | p[i + 1] >> 3] >> (p[i + 1] & 7) & 1))
			i++;
		while (s && !(t = child_of(m, s, p[i])))
			s = m->node[s].fail;
		s = s ? t : m->root[p[i]];
		if (m->node[s].match)
			r = found(x, x->pos + i + 1 - m->node[s].match, x->pos + i + 1);
	}
	if (r < 0)
		return r;
	x->state = s;
	x->pos += len;
	/* What was shown already (mask_show) cannot be held any more. */
	return x->pos - m->node[s].depth > x->base ? tell(x, x->pos - m->node[s].depth, out) : 0;
}

int mask_end(struct mask_stream *x, struct buf *out)
{
	x->state = 0;
	return tell(x, x->pos, out);
}

int mask_end_cut(struct mask_stream *x, size_t most, struct buf *out)
{
	size_t begun = mask_begun(x);
	int r = begun >= most ? found(x, x->pos - begun, x->pos) : 0;

	return r < 0 ? r : mask_end(x, out);
}

size_t mask_begun(const struct mask_stream *x)
{
	return x->m->node[x->state].depth;
}

int mask_show(struct mask_stream *x, struct buf *out)
{
	return tell(x, x->pos, out);
}

int mask_stream_change(struct mask_stream *x, struct mask *m, struct buf *out)
{
	struct mask_stream fresh;
	int r;

	mask_stream_init(&fresh, m);
	/* What the old one has found stays found. */
	fresh.base = fresh.pos = x->base;
	fresh.shown = x->shown;
	fresh.same_length = x->same_length;
	fresh.span = TAKE_PTR(x->span);
	fresh.nspans = x->nspans;
	fresh.room = x->room;
	x->nspans = x->room = 0;
	r = mask_feed(&fresh, buf_str(&x->held), x->held.len, out);
	mask_stream_done(x);
	*x = fresh;
	return r;
}

static int whole(struct mask *m, const void *data, size_t len, bool cut, struct buf *out)
{
	struct mask_stream x;
	int r;

	if (!m)
		return buf_add(out, data, len);
	mask_stream_init(&x, m);
	x.held.max = len > HELD_MAX ? len : HELD_MAX;
	r = mask_feed(&x, data, len, out);
	if (r == 0)
		r = cut && mask_begun(&x) ? buf_adds(out, MASK_TEXT) : mask_end(&x, out);
	mask_stream_done(&x);
	return r;
}

int mask_text(struct mask *m, const void *data, size_t len, struct buf *out)
{
	return whole(m, data, len, false, out);
}

int mask_cut_text(struct mask *m, const void *data, size_t len, struct buf *out)
{
	return whole(m, data, len, true, out);
}

void mask_field(struct mask *m, char *text, size_t size)
{
	size_t len = strnlen(text, size);
	AUTO(buf_done) struct buf b = BUF_INIT(len + ROOM);

	if (!m)
		return;
	if (whole(m, text, len, len + 1 >= size, &b) < 0) {
		buf_clear(&b);
		buf_adds(&b, MASK_TEXT);
	}
	snprintf(text, size, "%s", buf_str(&b));
}

void mask_write(struct mask *m, const char *key, const char *text, struct json *j)
{
	AUTO(buf_done) struct buf b = BUF_INIT(strlen(text) + ROOM);

	if (!m)
		jout_str(j, key, text);
	else if (mask_text(m, text, strlen(text), &b) == 0)
		jout_strn(j, key, buf_str(&b), b.len);
	else
		jout_str(j, key, MASK_TEXT);
}
