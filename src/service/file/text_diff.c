/* Finds and prints the difference of two texts. */
#include "service/file/text_diff.h"
#include "base/base.h"

#define STEPS_MAX 1024 /* lines added and removed that are searched for the shortest way */
#define AROUND 3U

struct line {
	const char *text;
	uint32_t len; /* with its end */
	uint32_t id; /* the same for the same bytes */
};

struct side {
	struct line *line;
	size_t n;
};

struct match { /* lines that stay, in order */
	size_t a, b, n;
};

struct work {
	struct side a, b;
	struct match *match;
	size_t nmatch, room;
};

bool text_is(const char *p, size_t len)
{
	const unsigned char *s = (const unsigned char *)p, *end = s + len;

	while (s < end) {
		unsigned more = *s < 0x80		? 0 :
				*s >= 0xc2 && *s < 0xe0 ? 1 :
				*s >= 0xe0 && *s < 0xf0 ? 2 :
				*s >= 0xf0 && *s < 0xf5 ? 3 :
							  9;

		if (!*s || more == 9 || (size_t)(end - s) <= more)
			return false;
		if ((*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] > 0x9f) || (*s == 0xf0 && s[1] < 0x90) ||
		    (*s == 0xf4 && s[1] > 0x8f))
			return false;
		for (s++; more; more--, s++)
			if ((*s & 0xc0) != 0x80)
				return false;
	}
	return true;
}

static int split(const char *p, size_t len, struct side *s)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += p[i] == '\n';
	n += len && p[len - 1] != '\n';
	s->line = malloc((n + 1) * sizeof(*s->line));
	if (!s->line)
		return -ENOMEM;
	while (len) {
		const char *end = memchr(p, '\n', len);
		size_t have = end ? (size_t)(end - p) + 1 : len;

		s->line[s->n++] = (struct line){ p, (uint32_t)have, 0 };
		p += have;
		len -= have;
	}
	return 0;
}

/* Numbers the lines, so that comparing two is comparing numbers. */
static int number(struct work *w)
{
	size_t all = w->a.n + w->b.n, size = 16;
	AUTO_FREE struct line **at = NULL;
	uint32_t next = 0;

	while (size < all * 2)
		size *= 2;
	at = calloc(size, sizeof(*at));
	if (!at)
		return -ENOMEM;
	for (size_t i = 0; i < all; i++) {
		struct line *l = i < w->a.n ? &w->a.line[i] : &w->b.line[i - w->a.n];
		uint64_t h = 0xcbf29ce484222325ULL;
		size_t slot, tries = 0;

		for (uint32_t k = 0; k < l->len; k++)
			h = (h ^ (unsigned char)l->text[k]) * 0x100000001b3ULL;
		slot = (h ^ h >> 29) & (size - 1);
		/*
		 * Hostile lines may collide here: then some equal lines count as different, which only makes the diff
		 * longer.
		 */
		while (at[slot] && tries++ < 64 && (at[slot]->len != l->len || memcmp(at[slot]->text, l->text, l->len)))
			slot = (slot + 1) & (size - 1);
		if (!at[slot]) {
			at[slot] = l;
			l->id = ++next;
		} else {
			l->id = tries > 64 ? ++next : at[slot]->id;
		}
	}
	return 0;
}

static int add_match(struct work *w, size_t a, size_t b, size_t n)
{
	if (!n)
		return 0;
	if (w->nmatch == w->room) {
		size_t room = w->room ? w->room * 2 : 64;
		struct match *more = realloc(w->match, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->match = more;
		w->room = room;
	}
	w->match[w->nmatch++] = (struct match){ a, b, n };
	return 0;
}

static bool same(const struct work *w, size_t i, size_t j)
{
	return w->a.line[i].id == w->b.line[j].id;
}

struct search {
	size_t a, b; /* where the middle begins */
	long n, m; /* its lines on each side */
	int32_t *trace; /* for each number of steps d: how far each way has come, 2d+1 numbers */
	int32_t v[2 * STEPS_MAX + 3];
};

/* Ways are numbered by how many more lines they have left behind in a than in b. The steps taken, or -1. */
static long search(const struct work *w, struct search *s)
{
	int32_t *v = s->v + STEPS_MAX + 1, *out = s->trace;

	v[1] = 0;
	for (long d = 0; d <= STEPS_MAX && d <= s->n + s->m; d++) {
		for (long k = -d; k <= d; k += 2) {
			long x = k == -d || (k != d && v[k - 1] < v[k + 1]) ? v[k + 1] : v[k - 1] + 1;
			long y = x - k;

			while (x < s->n && y < s->m && same(w, s->a + (size_t)x, s->b + (size_t)y))
				x++, y++;
			v[k] = (int32_t)x;
			if (x >= s->n && y >= s->m)
				return d;
		}
		memcpy(out, v - d, (size_t)(2 * d + 1) * sizeof(*out));
		out += 2 * d + 1;
	}
	return -1;
}

/* Back along the way that was found: what stayed, the last first. */
static int trace_back(struct work *w, const struct search *s, long d)
{
	long x = s->n, y = s->m;

	for (; d >= 0; d--) {
		const int32_t *v = d ? s->trace + (d - 1) * (d - 1) + (d - 1) : NULL;
		long k = x - y, from_k, from_x, from_y, mid_x;
		int r;

		if (!d)
			return add_match(w, s->a, s->b, (size_t)x);
		from_k = k == -d || (k != d && v[k - 1] < v[k + 1]) ? k + 1 : k - 1;
		from_x = v[from_k];
		from_y = from_x - from_k;
		mid_x = from_k == k + 1 ? from_x : from_x + 1;
		r = add_match(w, s->a + (size_t)mid_x, s->b + (size_t)(mid_x - k), (size_t)(x - mid_x));
		if (r < 0)
			return r;
		x = from_x;
		y = from_y;
	}
	return 0;
}

static int find_matches(struct work *w)
{
	size_t head = 0, tail = 0, found;
	AUTO_FREE struct search *s = calloc(1, sizeof(*s));
	long d;
	int r;

	if (!s)
		return -ENOMEM;
	while (head < w->a.n && head < w->b.n && same(w, head, head))
		head++;
	while (tail < w->a.n - head && tail < w->b.n - head && same(w, w->a.n - 1 - tail, w->b.n - 1 - tail))
		tail++;
	r = add_match(w, 0, 0, head);
	s->a = s->b = head;
	s->n = (long)(w->a.n - head - tail);
	s->m = (long)(w->b.n - head - tail);
	if (r == 0 && s->n && s->m) {
		s->trace = malloc((size_t)(STEPS_MAX + 1) * (STEPS_MAX + 1) * sizeof(*s->trace));
		if (!s->trace)
			return -ENOMEM;
		d = search(w, s);
		found = w->nmatch;
		if (d >= 0)
			r = trace_back(w, s, d);
		free(s->trace);
		for (size_t i = found, j = w->nmatch; r == 0 && i + 1 < j; i++, j--) {
			struct match t = w->match[i];

			w->match[i] = w->match[j - 1];
			w->match[j - 1] = t;
		}
	}
	if (r == 0)
		r = add_match(w, w->a.n - tail, w->b.n - tail, tail);
	return r;
}

static int put_line(struct buf *out, char mark, const struct line *l)
{
	int r = buf_addc(out, mark);

	if (r == 0)
		r = buf_add(out, l->text, l->len);
	if (r == 0 && l->text[l->len - 1] != '\n')
		r = buf_adds(out, "\n\\ No newline at end of file\n");
	return r;
}

static int put_lines(struct buf *out, char mark, const struct side *s, size_t from, size_t to)
{
	int r = 0;

	for (size_t i = from; r == 0 && i < to; i++)
		r = put_line(out, mark, &s->line[i]);
	return r;
}

static int put_range(struct buf *out, char mark, size_t from, size_t n)
{
	/* Of nothing: the line before it. */
	size_t first = n ? from + 1 : from;

	return n == 1 ? buf_addf(out, "%c%zu", mark, first) : buf_addf(out, "%c%zu,%zu", mark, first, n);
}

struct gap { /* between two matches */
	size_t a, a_end, b, b_end;
};

static struct gap gap_after(const struct work *w, size_t m)
{
	const struct match *at = m ? &w->match[m - 1] : NULL, *to = m < w->nmatch ? &w->match[m] : NULL;

	return (struct gap){ at ? at->a + at->n : 0, to ? to->a : w->a.n, at ? at->b + at->n : 0, to ? to->b : w->b.n };
}

static bool empty(const struct gap *g)
{
	return g->a == g->a_end && g->b == g->b_end;
}

/* The gaps @first to @last are one hunk: fewer than twice the context lines are between them. */
static int put_hunk(const struct work *w, size_t first, size_t last, struct buf *out)
{
	struct gap g = gap_after(w, first), end = gap_after(w, last);
	size_t before = g.a < AROUND ? g.a : AROUND, after = w->a.n - end.a_end < AROUND ? w->a.n - end.a_end : AROUND;
	size_t a = g.a - before, b = g.b - before;
	int r = buf_adds(out, "@@ ");

	if (r == 0)
		r = put_range(out, '-', a, end.a_end + after - a);
	if (r == 0)
		r = buf_addc(out, ' ');
	if (r == 0)
		r = put_range(out, '+', b, end.b_end + after - b);
	if (r == 0)
		r = buf_adds(out, " @@\n");
	for (size_t m = first; r == 0 && m <= last; m++) {
		g = gap_after(w, m);
		r = put_lines(out, ' ', &w->a, a, g.a);
		if (r == 0)
			r = put_lines(out, '-', &w->a, g.a, g.a_end);
		if (r == 0)
			r = put_lines(out, '+', &w->b, g.b, g.b_end);
		a = g.a_end;
	}
	return r == 0 ? put_lines(out, ' ', &w->a, a, a + after) : r;
}

static int put_hunks(const struct work *w, struct buf *out)
{
	int r = 0;

	for (size_t m = 0; r == 0 && m <= w->nmatch; m++) {
		struct gap g = gap_after(w, m);
		size_t last = m;

		if (empty(&g))
			continue;
		for (size_t n = m + 1; n <= w->nmatch; n++) {
			struct gap more = gap_after(w, n);

			if (more.a - gap_after(w, last).a_end > 2 * (size_t)AROUND)
				break;
			if (!empty(&more))
				last = n;
		}
		r = put_hunk(w, m, last, out);
		m = last;
	}
	return r;
}

int text_diff(const char *a, size_t alen, const char *b, size_t blen, struct buf *out)
{
	struct work w = { 0 };
	int r = split(a, alen, &w.a);

	if (r == 0)
		r = split(b, blen, &w.b);
	if (r == 0)
		r = number(&w);
	if (r == 0)
		r = find_matches(&w);
	if (r == 0)
		r = put_hunks(&w, out);
	free(w.a.line);
	free(w.b.line);
	free(w.match);
	return r;
}
