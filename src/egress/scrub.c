/* Masks secrets in the answers of a server. */
#include "egress/scrub.h"

#include <strings.h>

#include "base/base.h"

#define LINE_MAX_LEN 4096U /* of a chunk's head and of a trailer */
#define TRAILERS_MAX 64U
#define PIECE_MAX (1024U * 1024U) /* what one call may add to a chunk; more than ever comes at once */

enum state { AT_HEAD, AT_LENGTH, AT_CHUNK, AT_CONTENT, AT_CONTENT_END, AT_TRAILER, AT_REST, AT_TUNNEL };
enum { ASKED_HEAD = 1, ASKED_UPGRADE = 2 };

struct scrub {
	struct mask_stream x; /* of the body */
	struct buf head; /* or a line of framing, as far as it came */
	struct buf clean; /* of a chunk */
	uint64_t left;
	uint8_t state;
	uint16_t lines; /* trailers */
	uint8_t first, count; /* of ->asked */
	uint8_t asked[SCRUB_ASKED_MAX];
};

static void stream_begin(struct scrub *s, struct mask *m)
{
	mask_stream_init(&s->x, m);
	s->x.same_length = true;
}

struct scrub *scrub_new(struct mask *m)
{
	struct scrub *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	stream_begin(s, m);
	s->head = (struct buf)BUF_INIT(SCRUB_HEAD_MAX + 1);
	s->clean = (struct buf)BUF_INIT(PIECE_MAX);
	return s;
}

static void forget(struct buf *b)
{
	if (b->data)
		explicit_bzero(b->data, b->cap);
	buf_done(b);
}

void scrub_free(struct scrub *s)
{
	if (!s)
		return;
	mask_stream_done(&s->x);
	forget(&s->head);
	forget(&s->clean);
	free(s);
}

void scrub_asked(struct scrub *s, bool head, bool upgrade)
{
	if (s->count == SCRUB_ASKED_MAX)
		return;
	s->asked[(s->first + s->count++) % SCRUB_ASKED_MAX] =
		(uint8_t)((head ? ASKED_HEAD : 0) | (upgrade ? ASKED_UPGRADE : 0));
}

bool scrub_full(const struct scrub *s)
{
	return s->count == SCRUB_ASKED_MAX;
}

bool scrub_owes(const struct scrub *s)
{
	return s->state == AT_HEAD && s->count;
}

static int bad(const char **why, const char *text)
{
	*why = text;
	return -EBADMSG;
}

/* ---- heads ------------------------------------------------------------------------------------------------------- */

static int add_masked(const struct scrub *s, const char *p, size_t n, struct buf *out)
{
	struct mask_stream x;
	int r;

	mask_stream_init(&x, s->x.m);
	x.same_length = true;
	r = mask_feed(&x, p, n, out);
	if (r == 0)
		r = mask_end_cut(&x, SCRUB_CUT_MIN, out);
	mask_stream_done(&x);
	return r;
}

struct framing {
	int status;
	bool length, chunked, close;
	uint64_t left;
};

static bool is_named(const char *p, size_t n, const char *name)
{
	return n == strlen(name) && !strncasecmp(p, name, n);
}

static int read_length(const char *p, size_t n, struct framing *f, const char **why)
{
	if (f->length || f->chunked || !n || n > 15)
		return bad(why, "the length of the server's answer is invalid");
	for (size_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return bad(why, "the length of the server's answer is invalid");
		f->left = f->left * 10 + (uint64_t)(p[i] - '0');
	}
	f->length = true;
	return 0;
}

/* Words about the connection itself: they stay, also when one is a part of a value. */
static bool is_usual(const char *p, size_t n)
{
	static const char *const words[] = { "close", "keep-alive", "upgrade", "websocket" };
	const char *end = p + n;

	while (p < end) {
		const char *comma = memchr(p, ',', (size_t)(end - p)), *stop = comma ? comma : end,
			   *next = comma ? comma + 1 : end;
		bool usual = false;

		for (; p < stop && (*p == ' ' || *p == '\t'); p++)
			;
		while (stop > p && (stop[-1] == ' ' || stop[-1] == '\t'))
			stop--;
		for (size_t i = 0; i < ARRAY_LEN(words); i++)
			usual |= is_named(p, (size_t)(stop - p), words[i]);
		if (!usual)
			return false;
		p = next;
	}
	return true;
}

/* A line "name: value", without what ends it. */
static int read_field(const char *p, size_t n, struct framing *f, bool *ret_framing, const char **why)
{
	const char *colon = memchr(p, ':', n), *v, *end = p + n;
	size_t name;

	if (!colon || colon == p || *p == ' ' || *p == '\t' || colon[-1] == ' ' || colon[-1] == '\t')
		return bad(why, "a header of the server's answer is invalid");
	name = (size_t)(colon - p);
	for (v = colon + 1; v < end && (*v == ' ' || *v == '\t'); v++)
		;
	while (end > v && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	*ret_framing = true;
	if (is_named(p, name, "content-length"))
		return read_length(v, (size_t)(end - v), f, why);
	if (is_named(p, name, "transfer-encoding")) {
		if (f->length || f->chunked || !is_named(v, (size_t)(end - v), "chunked"))
			return bad(why, "the server's answer is compressed, or framed in an unknown way: it cannot be "
					"searched for the secret that was sent");
		f->chunked = true;
		return 0;
	}
	*ret_framing =
		(is_named(p, name, "connection") || is_named(p, name, "upgrade")) && is_usual(v, (size_t)(end - v));
	if (is_named(p, name, "content-encoding") && end > v && !is_named(v, (size_t)(end - v), "identity"))
		return bad(why, "the server's answer is compressed despite Accept-Encoding: it cannot be searched for "
				"the secret that was sent");
	return 0;
}

static int read_status(const char *p, size_t n, struct framing *f, const char **why)
{
	if (n < 12 || memcmp(p, "HTTP/1.", 7) || (p[7] != '0' && p[7] != '1') || p[8] != ' ')
		return bad(why, "the server's answer is not HTTP/1.1");
	for (unsigned i = 9; i < 12; i++) {
		if (p[i] < '0' || p[i] > '9')
			return bad(why, "the server's answer has no status");
		f->status = f->status * 10 + (p[i] - '0');
	}
	if (f->status < 100 || f->status > 599 || (n > 12 && p[12] != ' '))
		return bad(why, "the server's answer has no status");
	return 0;
}

/* One line of ->head at @at: its length without its end, and *ret_next. */
static size_t line_at(const struct buf *b, size_t at, size_t *ret_next)
{
	const char *p = b->data + at, *nl = memchr(p, '\n', b->len - at);
	size_t n = (size_t)(nl - p);

	*ret_next = at + n + 1;
	return n && p[n - 1] == '\r' ? n - 1 : n;
}

static void body_begins(struct scrub *s, const struct framing *f)
{
	uint8_t asked = s->count ? s->asked[s->first] : 0;
	struct mask *m;

	if (f->status < 200 && f->status != 101)
		return; /* another follows */
	if (s->count) {
		s->first = (uint8_t)((s->first + 1) % SCRUB_ASKED_MAX);
		s->count--;
	}
	/* What ended the last body is no beginning of a value in this one. */
	m = mask_ref(s->x.m);
	mask_stream_done(&s->x);
	stream_begin(s, m);
	mask_unref(m);
	s->left = f->left;
	if (f->status == 101)
		s->state = AT_TUNNEL;
	else if (asked & ASKED_HEAD || f->status == 204 || f->status == 304 || (f->length && !f->left))
		s->state = AT_HEAD;
	else
		s->state = f->chunked ? AT_CHUNK : f->length ? AT_LENGTH : AT_REST;
}

/* ->head is whole. */
static int take_head(struct scrub *s, struct buf *out, const char **why)
{
	struct framing f = { 0 };
	size_t at = 0, next, n = line_at(&s->head, 0, &next), before = out->len;
	bool framing = false;
	int r = read_status(s->head.data, n, &f, why);

	/* The status stays what it is, whatever the values are. */
	if (r == 0)
		r = buf_add(out, s->head.data, 12);
	if (r == 0)
		r = add_masked(s, s->head.data + 12, n - 12, out);
	if (r == 0)
		r = buf_adds(out, "\r\n");
	for (at = next; r == 0 && (n = line_at(&s->head, at, &next)) > 0; at = next) {
		r = read_field(s->head.data + at, n, &f, &framing, why);
		if (r == 0)
			r = framing ? buf_add(out, s->head.data + at, n) : add_masked(s, s->head.data + at, n, out);
		if (r == 0)
			r = buf_adds(out, "\r\n");
	}
	if (r == 0)
		r = buf_adds(out, "\r\n");
	if (r == 0 && f.status == 101 && !(s->count && s->asked[s->first] & ASKED_UPGRADE))
		r = bad(why, "the server switches protocols without an Upgrade request");
	if (r < 0) {
		buf_cut(out, before);
		return r;
	}
	body_begins(s, &f);
	forget(&s->head);
	return 0;
}

/* ---- framing ----------------------------------------------------------------------------------------------------- */

static int take_chunk_line(struct scrub *s, size_t n, const char **why)
{
	size_t i;

	s->left = 0;
	for (i = 0; i < n; i++) {
		char c = s->head.data[i];
		int v = c >= '0' && c <= '9' ? c - '0' :
			c >= 'a' && c <= 'f' ? c - 'a' + 10 :
			c >= 'A' && c <= 'F' ? c - 'A' + 10 :
					       -1;

		if (v < 0)
			break;
		s->left = s->left << 4 | (uint64_t)v;
	}
	if (!i || i > 15 || (i < n && s->head.data[i] != ';' && s->head.data[i] != ' ' && s->head.data[i] != '\t'))
		return bad(why, "the chunks of the server's answer are invalid");
	s->state = s->left ? AT_CONTENT : AT_TRAILER;
	s->lines = 0;
	return 0;
}

static int add_chunk(struct scrub *s, struct buf *out)
{
	int r = s->clean.len ? buf_addf(out, "%zx\r\n", s->clean.len) : 0;

	if (r == 0 && s->clean.len)
		r = buf_add(out, s->clean.data, s->clean.len);
	if (r == 0 && s->clean.len)
		r = buf_adds(out, "\r\n");
	buf_clear(&s->clean);
	return r;
}

static int take_trailer(struct scrub *s, size_t n, struct buf *out, const char **why)
{
	int r = 0;

	if (!s->lines) { /* the last chunk has come */
		r = mask_end_cut(&s->x, SCRUB_CUT_MIN, &s->clean);
		if (r == 0)
			r = add_chunk(s, out);
		if (r == 0)
			r = buf_adds(out, "0\r\n");
	}
	if (r == 0 && s->lines++ > TRAILERS_MAX)
		return bad(why, "the server's answer has too many trailers");
	if (r == 0)
		r = add_masked(s, s->head.data, n, out);
	if (r == 0)
		r = buf_adds(out, "\r\n");
	if (!n)
		s->state = AT_HEAD;
	return r;
}

static int take_line(struct scrub *s, struct buf *out, const char **why)
{
	size_t next, n = line_at(&s->head, 0, &next);
	int r = 0;

	if (s->state == AT_CHUNK)
		r = take_chunk_line(s, n, why);
	else if (s->state == AT_TRAILER)
		r = take_trailer(s, n, out, why);
	else if (n)
		r = bad(why, "a chunk of the server's answer is longer than its size");
	else
		s->state = AT_CHUNK;
	forget(&s->head);
	return r;
}

/* Bytes of a head, or of a line of framing, up to its end. How many were taken. */
static ssize_t gather(struct scrub *s, const char *p, size_t len, struct buf *out, const char **why)
{
	const char *nl = memchr(p, '\n', len);
	size_t n = nl ? (size_t)(nl - p) + 1 : len, line;
	bool head = s->state == AT_HEAD, end;
	int r = 0;

	for (size_t i = 0; i < n; i++)
		if (((unsigned char)p[i] < 0x20 && p[i] != '\t' && p[i] != '\r' && p[i] != '\n') || p[i] == 0x7f)
			return bad(why, "the head of the server's answer contains an invalid character");
	if (buf_add(&s->head, p, n) < 0 || (!head && s->head.len > LINE_MAX_LEN))
		return bad(why, "the head of the server's answer is too large");
	if (!nl)
		return (ssize_t)n;
	for (line = s->head.len - 1; line && s->head.data[line - 1] != '\n'; line--)
		;
	end = s->head.len - line == 1 || (s->head.len - line == 2 && s->head.data[line] == '\r');
	if (head && !line && end)
		forget(&s->head); /* an empty line before an answer says nothing */
	else if (head && end)
		r = take_head(s, out, why);
	else if (!head)
		r = take_line(s, out, why);
	return r < 0 ? r : (ssize_t)n;
}

/* ---- bodies ------------------------------------------------------------------------------------------------------ */

static int take_body(struct scrub *s, const char *p, size_t n, struct buf *out)
{
	bool chunk = s->state == AT_CONTENT, counted = chunk || s->state == AT_LENGTH;
	int r = mask_feed(&s->x, p, n, chunk ? &s->clean : out);

	if (r < 0 || !counted)
		return r;
	s->left -= n;
	if (s->left)
		return 0;
	if (chunk) {
		s->state = AT_CONTENT_END;
		return 0;
	}
	s->state = AT_HEAD;
	return mask_end_cut(&s->x, SCRUB_CUT_MIN, out);
}

int scrub_feed(struct scrub *s, const char *data, size_t len, struct buf *out, const char **why)
{
	size_t at = 0;

	while (at < len) {
		size_t n = len - at;
		ssize_t took;
		int r;

		if (s->state == AT_LENGTH || s->state == AT_CONTENT || s->state == AT_REST || s->state == AT_TUNNEL) {
			if ((s->state == AT_LENGTH || s->state == AT_CONTENT) && n > s->left)
				n = (size_t)s->left;
			r = take_body(s, data + at, n, out);
			took = (ssize_t)n;
		} else {
			took = gather(s, data + at, n, out, why);
			r = took < 0 ? (int)took : 0;
		}
		if (r < 0)
			return r;
		at += (size_t)took;
	}
	return add_chunk(s, out);
}

int scrub_end(struct scrub *s, bool torn, struct buf *out)
{
	int r = 0;

	if ((s->state == AT_REST || s->state == AT_TUNNEL) && !torn)
		r = mask_end_cut(&s->x, SCRUB_CUT_MIN, out);
	if (s->state == AT_REST)
		s->state = AT_HEAD;
	return r;
}

static bool in_chunks(const struct scrub *s)
{
	return s->state == AT_CHUNK || s->state == AT_CONTENT || s->state == AT_CONTENT_END;
}

bool scrub_held(const struct scrub *s)
{
	return mask_held(&s->x) && mask_begun(&s->x) <= SCRUB_SHOWN_MAX;
}

int scrub_pause(struct scrub *s, struct buf *out)
{
	int r = scrub_held(s) ? mask_show(&s->x, in_chunks(s) ? &s->clean : out) : 0;

	return r < 0 ? r : add_chunk(s, out);
}

int scrub_set_mask(struct scrub *s, struct mask *m, struct buf *out)
{
	int r = m == s->x.m ? 0 : mask_stream_change(&s->x, m, in_chunks(s) ? &s->clean : out);

	return r < 0 ? r : add_chunk(s, out);
}
