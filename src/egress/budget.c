/* Counts what is used of a budget, and holds up what is too fast. */
#include "egress/budget.h"
#include "base/base.h"

#define SEC 1000000000ULL
#define BURST_MIN 16384

static bool used_up(uint64_t budget, uint64_t used)
{
	return budget && used >= budget;
}

static const char *one_stream(const struct meter *m, bool tree)
{
	const struct egress_budget *b = &m->budget;
	const struct egress_counts *c = &m->counts;

	if (used_up(b->bytes_out, c->bytes_out))
		return tree ? "the tree's budget of outgoing bytes is used up" :
			      "the budget of outgoing bytes is used up";
	if (used_up(b->bytes_in, c->bytes_in))
		return tree ? "the tree's budget of incoming bytes is used up" :
			      "the budget of incoming bytes is used up";
	if (used_up(b->connections, c->connections))
		return tree ? "the tree's budget of connections is used up" : "the budget of connections is used up";
	if (used_up(b->concurrent, c->concurrent))
		return tree ? "the tree has too many concurrent connections" : "too many concurrent connections";
	return NULL;
}

const char *meter_stream(const struct meter *m, const struct meter *tree)
{
	const char *why = one_stream(m, false);

	return why ? why : one_stream(tree, true);
}

const char *meter_dns(const struct meter *m, const struct meter *tree)
{
	if (used_up(m->budget.dns, m->counts.dns))
		return "the budget of DNS queries is used up";
	if (used_up(tree->budget.dns, tree->counts.dns))
		return "the tree's budget of DNS queries is used up";
	return NULL;
}

static uint64_t burst(const struct meter *m)
{
	uint64_t b = m->budget.bandwidth / 8;

	if (b > INT64_MAX / 16)
		b = INT64_MAX / 16;
	return b < BURST_MIN ? BURST_MIN : b;
}

static void refill(struct meter *m, uint64_t now)
{
	uint64_t most = burst(m), ns = now - m->bucket.at, rate = m->budget.bandwidth;
	const bool full = ns / SEC >= 60;

	if (!m->bucket.at || full || rate > UINT64_MAX / SEC / 64) {
		m->bucket.bytes = (int64_t)most;
	} else {
		uint64_t more = ns * rate / SEC;

		/* Fractions of a byte are not lost: the time only advances by the bytes that were added. */
		if (!more)
			return;
		m->bucket.bytes += (int64_t)more;
		m->bucket.at += more * SEC / rate;
		if (m->bucket.bytes > (int64_t)most)
			m->bucket.bytes = (int64_t)most;
		return;
	}
	m->bucket.at = now;
}

/* Bytes that the bucket has; 0: *ret_wait until it is worth asking again. */
static uint64_t from_bucket(struct meter *m, uint64_t now, uint64_t *ret_wait)
{
	uint64_t rate = m->budget.bandwidth, want;

	if (!rate)
		return UINT64_MAX;
	refill(m, now);
	if (m->bucket.bytes > 0)
		return (uint64_t)m->bucket.bytes;
	want = (uint64_t)-m->bucket.bytes + (rate / 100 ? rate / 100 : 1);
	*ret_wait = want > UINT64_MAX / SEC ? 60 * SEC : want * SEC / rate + 1;
	return 0;
}

static uint64_t left(const struct meter *m, bool out)
{
	uint64_t budget = out ? m->budget.bytes_out : m->budget.bytes_in;
	uint64_t used = out ? m->counts.bytes_out : m->counts.bytes_in;

	return !budget ? UINT64_MAX : used < budget ? budget - used : 0;
}

uint64_t meter_bytes(struct meter *m, struct meter *tree, bool out, uint64_t now, uint64_t *ret_wait,
		     const char **ret_why)
{
	uint64_t a = left(m, out), b = left(tree, out), wait = 0, n, k;

	*ret_wait = 0;
	*ret_why = NULL;
	if (!a || !b) {
		*ret_why = !a  ? out ? "the budget of outgoing bytes is used up" :
				       "the budget of incoming bytes is used up" :
			   out ? "the tree's budget of outgoing bytes is used up" :
				 "the tree's budget of incoming bytes is used up";
		return 0;
	}
	n = a < b ? a : b;
	k = from_bucket(m, now, ret_wait);
	n = k < n ? k : n;
	k = from_bucket(tree, now, &wait);
	if (wait > *ret_wait)
		*ret_wait = wait;
	return k < n ? k : n;
}

void meter_used(struct meter *m, bool out, uint64_t bytes)
{
	if (out)
		m->counts.bytes_out += bytes;
	else
		m->counts.bytes_in += bytes;
	if (m->budget.bandwidth)
		m->bucket.bytes -= (int64_t)bytes;
}

/* Forgets what was longer ago than a minute; how many are left. */
static uint64_t window_move(struct window *w, uint32_t step)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; w->step != step && i < WINDOW_STEPS; i++)
		w->n[++w->step % WINDOW_STEPS] = 0;
	w->step = step;
	for (uint32_t i = 0; i < WINDOW_STEPS; i++)
		sum += w->n[i];
	return sum;
}

bool meter_request(struct name *n, uint32_t most, uint64_t now)
{
	uint32_t step = (uint32_t)(now / SEC / WINDOW_STEP);

	if (!most)
		return true;
	if (!n->window) {
		n->window = calloc(1, sizeof(*n->window));
		if (!n->window)
			return false;
		n->window->step = step;
	}
	if (window_move(n->window, step) >= most)
		return false;
	n->window->n[step % WINDOW_STEPS]++;
	return true;
}
