/* Any bytes as a packet: nothing is read outside them, and what decodes, encodes to the same bytes again. */
#include "egress/msg.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t out[EGRESS_MSG_MAX];

static void same(const struct egress_msg *m, long n)
{
	if (n != (long)m->len + EGRESS_HEAD || memcmp(out + EGRESS_HEAD, m->payload, m->len))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct egress_config c;
	static struct egress_sandbox b;
	static struct egress_names k;
	struct egress_stream s;
	struct egress_counts t;
	struct egress_they y;
	struct egress_who w;
	struct egress_msg m;

	if (egress_decode(data, size, &m) < 0)
		return 0;
	/* Each payload as each of the types: a head is no promise. */
	if (egress_config_decode(&m, &c) == 0)
		same(&m, egress_config_encode(&c, out, sizeof(out)));
	if (egress_sandbox_decode(&m, &b) == 0)
		same(&m, egress_sandbox_encode(&b, m.seq, out, sizeof(out)));
	if (egress_names_decode(&m, &k) == 0)
		same(&m, egress_names_encode(EGRESS_NAMES, &k, out, sizeof(out)));
	if (egress_stream_decode(&m, &s) == 0)
		same(&m, egress_stream_encode(EGRESS_STREAM, &s, out, sizeof(out)));
	if (egress_counts_decode(&m, &t) == 0)
		same(&m, egress_counts_encode(&t, out, sizeof(out)));
	if (egress_who_decode(&m, &w) == 0)
		same(&m, egress_who_encode(&w, m.seq, out, sizeof(out)));
	if (egress_they_decode(&m, &y) == 0)
		same(&m, egress_they_encode(&y, m.seq, out, sizeof(out)));
	return 0;
}
