/*
 * A long stream, counted as it comes. What a client of a stream pays is the read; taking the protocol off must cost as
 * little as can be, or this would measure itself: everything below looks at whole pieces, and at single bytes only
 * where the protocol has some of its own.
 */
#include "daemon.h"
#include "base/base.h"

#include <unistd.h>

#define READ_SIZE (256 * KIB)
#define KEEP 64 /* of a line's start, or of a text frame's */

struct flow {
	enum flow_kind kind;
	uint64_t got; /* bytes of stdout */
	bool over, bad;
	char note[KEEP * 4]; /* what the stream said about its end */
	size_t note_len;
	struct chunks { /* chunked bodies */
		enum { CHUNK_SIZE, CHUNK_DATA, CHUNK_BEHIND } at;
		uint64_t left;
		bool last, skip; /* skip: behind the size's digits */
	} c;
	struct line { /* server-sent events */
		char start[KEEP];
		uint64_t len, escapes;
		bool result;
	} l;
	struct frame_in { /* WebSocket */
		unsigned char head[10];
		unsigned have, need;
		uint64_t left;
		unsigned op; /* of the message */
		bool first; /* the byte that says which stream comes next */
		bool ours;
	} w;
};

static void note(struct flow *f, const char *p, size_t n)
{
	size_t room = sizeof(f->note) - 1 - f->note_len;

	n = n < room ? n : room;
	memcpy(f->note + f->note_len, p, n);
	f->note_len += n;
}

/* ---- server-sent events ---- */

/* Sixteen at a time: byte by byte this loop alone would take longer than the reads. */
static uint64_t count_escapes(const char *p, size_t n)
{
	typedef unsigned char lanes __attribute__((vector_size(16)));
	uint64_t sum = 0;

	while (n >= sizeof(lanes)) {
		lanes found = { 0 }, v;

		for (unsigned i = 0; i < 255 && n >= sizeof(lanes); i++, p += sizeof(lanes), n -= sizeof(lanes)) {
			memcpy(&v, p, sizeof(v));
			found -= (lanes)(v == '\\'); /* a hit is all ones: minus one */
		}
		for (unsigned i = 0; i < sizeof(lanes); i++)
			sum += found[i];
	}
	while (n--)
		sum += *p++ == '\\';
	return sum;
}

/* The commands here print text whose only escape is "\n". */
static void end_line(struct flow *f)
{
	static const char data[] = "data: {\"data\":\"", result[] = "event: result", error[] = "event: error";
	struct line *l = &f->l;

	if (l->len >= sizeof(data) + 1 && !memcmp(l->start, data, sizeof(data) - 1))
		f->got += l->len - (sizeof(data) - 1) - 2 - l->escapes;
	else if (l->len == sizeof(result) - 1 && !memcmp(l->start, result, sizeof(result) - 1))
		l->result = true;
	else if (l->len == sizeof(error) - 1 && !memcmp(l->start, error, sizeof(error) - 1))
		f->bad = true;
	else if (l->result || f->bad)
		note(f, l->start, l->len < KEEP ? l->len : KEEP);
	l->len = l->escapes = 0;
}

static void take_lines(struct flow *f, const char *p, size_t n)
{
	struct line *l = &f->l;

	while (n) {
		const char *end = memchr(p, '\n', n);
		size_t part = end ? (size_t)(end - p) : n;

		if (l->len < KEEP)
			memcpy(l->start + l->len, p, part < KEEP - l->len ? part : KEEP - l->len);
		l->len += part;
		l->escapes += count_escapes(p, part);
		if (!end)
			return;
		end_line(f);
		p += part + 1;
		n -= part + 1;
	}
}

/* ---- chunks ---- */

static void chunk_size(struct flow *f, char ch)
{
	struct chunks *c = &f->c;

	if (ch == '\n') {
		c->last = !c->left;
		c->at = c->last ? CHUNK_BEHIND : CHUNK_DATA;
		c->skip = false;
	} else if (ch >= '0' && ch <= '9' && !c->skip) {
		c->left = c->left * 16 + (uint64_t)(ch - '0');
	} else if ((ch | 32) >= 'a' && (ch | 32) <= 'f' && !c->skip) {
		c->left = c->left * 16 + (uint64_t)((ch | 32) - 'a' + 10);
	} else {
		c->skip = true;
	}
}

static void take_chunks(struct flow *f, const char *p, size_t n)
{
	struct chunks *c = &f->c;

	while (n && !f->over) {
		size_t part = 1;

		switch (c->at) {
		case CHUNK_SIZE:
			chunk_size(f, *p);
			break;
		case CHUNK_DATA:
			part = c->left < n ? (size_t)c->left : n;
			c->left -= part;
			if (f->kind == FLOW_SSE)
				take_lines(f, p, part);
			else
				f->got += part;
			if (!c->left)
				c->at = CHUNK_BEHIND;
			break;
		case CHUNK_BEHIND:
			if (*p == '\n') {
				f->over = c->last;
				c->at = CHUNK_SIZE;
			}
			break;
		}
		p += part;
		n -= part;
	}
}

/* ---- WebSocket ---- */

static void frame_begin(struct flow *f)
{
	struct frame_in *w = &f->w;
	unsigned op = w->head[0] & 15;

	w->left = w->head[1] & 127;
	if (w->need > 2)
		w->left = 0;
	for (unsigned i = 2; i < w->need; i++)
		w->left = w->left << 8 | w->head[i];
	w->have = 0;
	if (op) {
		w->op = op;
		w->first = op == 2;
		f->note_len = 0;
	}
	f->over = op == 8;
}

static void frame_data(struct flow *f, const char *p, size_t n)
{
	struct frame_in *w = &f->w;

	w->left -= n;
	if (w->op == 1)
		note(f, p, n);
	if (w->op != 2 || !n)
		return;
	if (w->first) {
		w->ours = *p == 1;
		w->first = false;
		n--;
	}
	f->got += w->ours ? n : 0;
}

static void take_frames(struct flow *f, const char *p, size_t n)
{
	struct frame_in *w = &f->w;

	while (n && !f->over) {
		size_t part;

		if (w->left) {
			part = w->left < n ? (size_t)w->left : n;
			frame_data(f, p, part);
			p += part;
			n -= part;
			continue;
		}
		w->head[w->have++] = (unsigned char)*p++;
		n--;
		if (w->have == 2)
			w->need = (w->head[1] & 127) == 126 ? 4 : (w->head[1] & 127) == 127 ? 10 : 2;
		if (w->have >= 2 && w->have == w->need)
			frame_begin(f);
	}
}

static void take(struct flow *f, const char *p, size_t n, uint64_t want)
{
	switch (f->kind) {
	case FLOW_RAW:
		f->got += n;
		break;
	case FLOW_COUNTED:
		f->got += n;
		f->over = f->got >= want;
		break;
	case FLOW_CHUNKED:
	case FLOW_SSE:
		take_chunks(f, p, n);
		break;
	case FLOW_WEBSOCKET:
		take_frames(f, p, n);
		break;
	}
}

int flow_drain(int fd, enum flow_kind kind, const struct buf *first, uint64_t want, struct err *e)
{
	static char data[READ_SIZE];
	struct flow f = { .kind = kind };

	if (first && first->len)
		take(&f, first->data, first->len, want);
	while (!f.over) {
		ssize_t n = read(fd, data, sizeof(data));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, ERR_LOST, -errno, "a stream broke after %llu bytes",
				       (unsigned long long)f.got);
		if (n == 0) {
			f.over = kind == FLOW_RAW;
			break;
		}
		take(&f, data, (size_t)n, want);
	}
	if (f.got == want && f.over && !f.bad)
		return 0;
	return err_set(e, ERR_LOST, -EIO, "a stream %s after %llu bytes, want %llu: %s", f.over ? "ended" : "was cut",
		       (unsigned long long)f.got, (unsigned long long)want, f.note);
}
