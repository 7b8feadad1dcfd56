#include "audit/line.h"
#include "base/base.h"
#include "audit/chain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool inside(const struct audit_text *t, const char *line, size_t len)
{
	return !t->p || (t->p > line && t->p + t->n < line + len);
}

/* A line, with an end in the right form put behind it half of the time: random bytes would never have one. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char line[AUDIT_LINE_MAX + 4096];
	struct audit_line l;
	struct chain c;
	struct err e;
	size_t n = 0;

	if (!size || size > AUDIT_LINE_MAX + 1000)
		return 0;
	memcpy(line, data + 1, size - 1);
	n = size - 1;
	if (data[0] & 1) {
		n += (size_t)snprintf(line + n, 100, ",\"prev\":\"%064d", 0);
		n += (size_t)snprintf(line + n, 100, "\",\"hash\":\"%064d\"}", 0);
	}
	if (audit_line_parse(line, n, &l) == 0) {
		assert(n < AUDIT_LINE_MAX && !memchr(line, '\n', n) && !memchr(line, '\0', n));
		assert(l.body < n && l.prev > line && l.hash + AUDIT_HEX < line + n);
		assert(l.kind.p && l.time.p);
		assert(inside(&l.time, line, n) && inside(&l.kind, line, n) && inside(&l.tenant, line, n) &&
		       inside(&l.token, line, n) && inside(&l.request_id, line, n) && inside(&l.sandbox, line, n) &&
		       inside(&l.exec, line, n));
	}
	/* No input contains a line whose hash fits, so the chain never advances. */
	if (chain_init(&c, &e) == 0) {
		assert(chain_step(&c, line, n, &e) == -EBADMSG && c.head.seq == 0);
		chain_done(&c);
	}
	return 0;
}
