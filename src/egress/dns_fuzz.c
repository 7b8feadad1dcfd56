/* A query from a sandbox: what is answered is an answer to it, and never longer than it may be. */
#include "egress/dns.h"

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned get16(const uint8_t *p)
{
	return (unsigned)(p[0] << 8 | p[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum dns_code codes[] = { DNS_OK, DNS_FAILED, DNS_NO_NAME, DNS_REFUSED };
	static const uint8_t addr[16] = { 198, 18, 1, 0 };
	uint8_t out[DNS_ANSWER_MAX];
	struct dns_question q;
	char again[NET_NAME_MAX];
	int r = dns_parse(data, size, &q);

	assert(r == 0 || r == -EBADMSG || r == -EINVAL);
	if (r == -EINVAL)
		return 0;
	if (r < 0)
		q = (struct dns_question){ 0 };
	assert(q.end <= size);
	if (r == 0 && *q.name)
		assert(!net_name_parse(q.name, strlen(q.name), again) && !strcmp(again, q.name));
	for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
		bool with = !codes[i] && (q.type == DNS_A || q.type == DNS_AAAA);
		size_t n = dns_answer(data, size, &q, codes[i], with ? addr : NULL, out);

		assert(n >= 12 && n <= DNS_ANSWER_MAX);
		assert(!memcmp(out, data, 2) && out[2] & 0x80 && (out[3] & 0x0f) == codes[i]);
		assert(get16(out + 4) <= 1 && get16(out + 6) == (with && q.end) && !get16(out + 8) && !get16(out + 10));
		/* No amplification: an answer is not longer than the question and one record. */
		assert(n <= size + 12 + 16);
	}
	return 0;
}
