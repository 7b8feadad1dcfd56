/* What a server answers, in pieces of any size. */
#include "http/answer.h"

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *why = NULL;
	struct answer a;
	size_t at = 2, len;
	unsigned step;

	if (size < 2)
		return 0;
	answer_init(&a);
	a.no_body = data[0] & 1;
	a.may_upgrade = data[0] & 2;
	step = data[1] ? data[1] : 256;
	while (at < size && a.state != ANSWER_END && a.state != ANSWER_UPGRADED) {
		size_t n = size - at < step ? size - at : step;
		char *p = malloc(n); /* its own, so that a step beyond is seen */
		ssize_t used;

		memcpy(p, data + at, n);
		used = answer_feed(&a, p, n, &len, &why);
		free(p);
		if (used < 0) {
			assert(why);
			break;
		}
		assert(used > 0 && (size_t)used <= n && len <= (size_t)used);
		at += (size_t)used;
	}
	if (a.state != ANSWER_HEAD) {
		for (unsigned i = 0; i < a.n; i++)
			assert(a.header[i].name[0] && !strpbrk(a.header[i].value, "\r\n"));
	}
	(void)answer_eof(&a);
	answer_done(&a);
	return 0;
}
