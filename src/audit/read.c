/* Finds and reads lines of the audit log, through an index of its files. */
#include "audit/impl.h"
#include "base/base.h"
#include "base/room.h"

#include <inttypes.h>
#include <unistd.h>

#define STRETCH (256 * KIB)
_Static_assert(STRETCH > AUDIT_LINE_MAX, "a line fits a stretch");

int audit_index_add(struct audit *a, uint64_t seq, uint64_t offset)
{
	if ((seq - 1) % INDEX_EVERY)
		return 0;
	assert((seq - 1) / INDEX_EVERY == a->nindex);
	if (a->nindex == a->index_cap) {
		size_t cap = a->index_cap ? 2 * a->index_cap : 64;
		uint64_t *p = reallocarray(a->index, cap, sizeof(*p));

		if (!p)
			return -ENOMEM;
		a->index = p;
		a->index_cap = cap;
	}
	a->index[a->nindex++] = offset;
	return 0;
}

/* A filter's text in the form that it has in the log: escaped, between quotes. */
static int quote(struct buf *b, const char *text)
{
	struct json j = JSON_INIT(b);

	if (!text)
		return 0;
	jout_str(&j, NULL, text);
	return jout_done(&j);
}

static bool fits(const struct buf *want, const struct audit_text *is)
{
	return !want->len || (is->p && is->n == want->len - 2 && !memcmp(is->p, want->data + 1, is->n));
}

struct reading {
	struct buf kind, sandbox, tenant;
	uint64_t after, left, last;
	int (*fn)(void *arg, uint64_t seq, const char *line, size_t len);
	void *arg;
};

static void reading_done(struct reading *g)
{
	buf_done(&g->kind);
	buf_done(&g->sandbox);
	buf_done(&g->tenant);
}

static void reading_donep(struct reading *g)
{
	reading_done(g);
}

/* 1: enough. */
static int one(struct reading *g, const char *line, size_t len, struct err *e)
{
	struct audit_line l;
	int r;

	if (audit_line_parse(line, len, &l) < 0)
		return err_set(e, ERR_INTERNAL, -EBADMSG, "audit log: the record after %" PRIu64 " is malformed",
			       g->last);
	if (l.seq <= g->after)
		return 0;
	g->last = l.seq;
	if (!fits(&g->kind, &l.kind) || !fits(&g->sandbox, &l.sandbox) || !fits(&g->tenant, &l.tenant))
		return 0;
	r = g->fn(g->arg, l.seq, line, len);
	if (r)
		return r;
	return --g->left ? 0 : 1;
}

/* Everything from @at, up to the end or as much as one call may look at. */
static int walk(struct audit *a, struct reading *g, uint64_t at, struct err *e)
{
	AUTO_FREE char *buf = malloc(STRETCH);
	uint64_t end = at + AUDIT_READ_MAX;

	if (!buf)
		return err_sys(e, ERR_EXHAUSTED, -ENOMEM, "read the audit log");
	while (at < a->size && (at < end || g->last == g->after)) {
		uint64_t left = a->size - at;
		ssize_t n = pread(a->fd, buf, left < STRETCH ? (size_t)left : STRETCH, (off_t)at);
		const char *p = buf, *nl;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, ERR_INTERNAL, -errno, "read the audit log");
		while ((nl = memchr(p, '\n', (size_t)(buf + n - p)))) {
			int r = one(g, p, (size_t)(nl - p), e);

			if (r)
				return r;
			p = nl + 1;
		}
		if (p == buf)
			return err_set(e, ERR_INTERNAL, -EBADMSG, "audit log: no complete record at byte %" PRIu64, at);
		at += (uint64_t)(p - buf);
	}
	return 0;
}

int audit_read(struct audit *a, uint64_t after, uint64_t limit, const struct audit_filter *f,
	       int (*fn)(void *arg, uint64_t seq, const char *line, size_t len), void *arg, uint64_t *ret_last,
	       struct err *e)
{
	AUTO(reading_done)
	struct reading g = {
		.kind = BUF_INIT(AUDIT_LINE_MAX),
		.sandbox = BUF_INIT(AUDIT_LINE_MAX),
		.tenant = BUF_INIT(AUDIT_LINE_MAX),
		.after = after,
		.left = limit,
		.last = after,
		.fn = fn,
		.arg = arg,
	};
	int r = audit_flush(a, e);

	if (r < 0 && !room_lacks(r))
		return r;
	r = 0; /* on a full disk, those that are stored */
	if (f) {
		r = quote(&g.kind, f->kind);
		r = r < 0 ? r : quote(&g.sandbox, f->sandbox);
		r = r < 0 ? r : quote(&g.tenant, f->tenant);
		if (r < 0)
			return err_set(e, ERR_INVALID, r, "the audit log's filter is too long");
	}
	if (limit && after < a->written)
		r = walk(a, &g, a->index[after / INDEX_EVERY], e);
	if (ret_last)
		*ret_last = g.last;
	return r == 1 && !g.left ? 0 : r;
}
