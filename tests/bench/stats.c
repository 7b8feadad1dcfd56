/* Sorts samples, and finds percentiles. */
#include "bench.h"
#include "base/base.h"

void samples_init(struct samples *s, const char *name)
{
	*s = (struct samples){ .name = name };
}

void samples_done(struct samples *s)
{
	free(s->ns);
	samples_init(s, s->name);
}

void samples_add(struct samples *s, uint64_t ns)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 1024;
		uint64_t *more = realloc(s->ns, cap * sizeof(*more));

		if (!more)
			return;
		s->ns = more;
		s->cap = cap;
	}
	s->ns[s->n++] = ns;
	s->sorted = false;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

uint64_t samples_at(struct samples *s, unsigned permille)
{
	if (!s->n)
		return 0;
	if (!s->sorted)
		qsort(s->ns, s->n, sizeof(*s->ns), compare);
	s->sorted = true;
	return s->ns[(s->n - 1) * permille / 1000];
}

double ratio(double a, double b)
{
	return b > 0 ? a / b : 0;
}
