/*
 * A connection's requests from a stranger, in pieces of a size that the first byte says, against one in a single piece:
 * where requests begin must not depend on how the bytes came.
 */
#include "base/base.h"
#include "egress/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct trace {
	size_t passed;
	unsigned heads;
	uint64_t sum;
	enum request_step last;
};

static void run(const uint8_t *data, size_t size, size_t piece, struct trace *t)
{
	static char hold[2 * HEAD_MAX];
	struct request q = { 0 };
	struct head h;
	const char *why = NULL;
	size_t have = 0, at = 0, n;

	*t = (struct trace){ .last = REQUEST_MORE };
	while (at < size) {
		n = size - at < piece ? size - at : piece;
		if (n > sizeof(hold) - have)
			n = sizeof(hold) - have;
		memcpy(hold + have, data + at, n);
		at += n;
		have += n;
		do {
			n = 0;
			t->last = request_step(&q, hold, have, &h, &n, &why);
			assert(n <= have);
			assert(t->last != REQUEST_BAD || why);
			if (t->last == REQUEST_HEAD) {
				t->heads++;
				t->sum = t->sum * 31 + t->passed;
				assert(h.len == n && (*h.host.name != 0) != (h.host.addr.family != 0) && !h.connect);
				assert(h.path >= h.target && h.path <= h.target + h.target_len);
			}
			if (t->last == REQUEST_WAIT)
				(void)request_answer(&q, "HTTP/1.1 200 OK", 15);
			if (t->last == REQUEST_HEAD || t->last == REQUEST_BODY) {
				assert(n);
				t->passed += n;
				have -= n;
				memmove(hold, hold + n, have);
			}
		} while (have && (t->last == REQUEST_HEAD || t->last == REQUEST_BODY || t->last == REQUEST_WAIT));
		assert(t->last != REQUEST_MORE || have < HEAD_MAX);
		if (t->last == REQUEST_BAD || t->last == REQUEST_LAST)
			return;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct head_late late = { 0 };
	struct trace whole, parts;
	struct head h;
	const char *why;

	if (size < 2 || size > HEAD_MAX)
		return 0;
	run(data + 1, size - 1, size, &whole);
	run(data + 1, size - 1, 1U + data[0], &parts);
	assert(whole.heads == parts.heads && whole.sum == parts.sum);
	assert((whole.last == REQUEST_BAD) == (parts.last == REQUEST_BAD));
	/* A request that is taken for one when it comes at once is found out when it comes slowly. */
	if (head_look((const char *)data + 1, size - 1, &h, &why) == LOOK_YES)
		assert(!head_late(&late, (const char *)data + 1, size - 1));
	return 0;
}
