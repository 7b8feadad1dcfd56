/* Keeps the beginning and the end of a stream. */
#include "cli/capture.h"
#include "base/base.h"

#define KEEP_ALL_MAX (512 * MIB)

int capture_init(struct capture *c, uint64_t limit, size_t head_max)
{
	*c = (struct capture){ .limit = limit, .head_max = head_max };
	c->head = (struct buf)BUF_INIT(limit ? limit + 1 : KEEP_ALL_MAX);
	if (!limit)
		return 0;
	if (head_max > limit)
		c->head_max = (size_t)limit;
	c->tail_max = (size_t)(limit - c->head_max);
	return 0;
}

void capture_done(struct capture *c)
{
	buf_done(&c->head);
	free(c->tail);
	c->tail = NULL;
}

static void ring_add(struct capture *c, const char *data, size_t len)
{
	if (len > c->tail_max) {
		data += len - c->tail_max;
		len = c->tail_max;
	}
	while (len) {
		size_t n = c->tail_max - c->tail_at;

		if (n > len)
			n = len;
		memcpy(c->tail + c->tail_at, data, n);
		c->tail_at = (c->tail_at + n) % c->tail_max;
		c->tail_len = c->tail_len + n > c->tail_max ? c->tail_max : c->tail_len + n;
		data += n;
		len -= n;
	}
}

long capture_add(struct capture *c, const char *data, size_t len, bool keep_head)
{
	size_t head = len;
	int r;

	if (c->limit) {
		uint64_t left = c->total < c->head_max ? c->head_max - c->total : 0;

		head = left < len ? (size_t)left : len;
	}
	if (head < len && c->tail_max && !c->tail) {
		c->tail = malloc(c->tail_max);
		if (!c->tail)
			return -ENOMEM;
	}
	if (keep_head && head) {
		r = buf_add(&c->head, data, head);
		if (r < 0)
			return r;
	}
	c->total += len;
	if (head < len && c->tail_max)
		ring_add(c, data + head, len - head);
	return (long)head;
}

bool capture_truncated(const struct capture *c)
{
	return c->limit && c->total > c->limit;
}

uint64_t capture_dropped(const struct capture *c)
{
	return capture_truncated(c) ? c->total - c->limit : 0;
}

int capture_tail(const struct capture *c, int (*fn)(void *arg, const char *data, size_t len), void *arg)
{
	size_t start;
	int r = 0;

	if (!c->tail_len)
		return 0;
	start = (c->tail_at + c->tail_max - c->tail_len) % c->tail_max;
	if (start + c->tail_len <= c->tail_max)
		return fn(arg, c->tail + start, c->tail_len);
	r = fn(arg, c->tail + start, c->tail_max - start);
	return r < 0 ? r : fn(arg, c->tail, c->tail_at);
}
