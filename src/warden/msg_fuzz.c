#include "warden/msg.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * One byte selects the side; a request that is accepted must be accepted again when it is packed anew, with the same
 * meaning.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct warden_req q, again;
	static struct warden_rep p;
	struct warden_receipt receipt;
	struct err e;

	if (!size)
		return 0;
	if (data[0] & 1) {
		memset(&p, 0, sizeof(p));
		memcpy(&p, data + 1, size - 1 < sizeof(p) ? size - 1 : sizeof(p));
		memset(&q, 0, sizeof(q));
		q.version = MSG_VERSION;
		q.op = (data[0] >> 4) % WARDEN_OP_END;
		q.seq = p.seq;
		q.handle = p.arg;
		if (msg_check_rep(&p, sizeof(p), (data[0] >> 1) & 7, &q, &e) == 0) {
			msg_get_receipt(&p.receipt, &receipt);
			assert(strlen(p.msg) < sizeof(p.msg) && strlen(p.remedy) < sizeof(p.remedy));
		}
		return 0;
	}
	/* Missing bytes are zero, so that short inputs get far. */
	memset(&q, 0, sizeof(q));
	memcpy(&q, data + 1, size - 1 < sizeof(q) ? size - 1 : sizeof(q));
	if (data[0] & 2)
		q.version = MSG_VERSION;
	if (data[0] & 4)
		q.op = WARDEN_CREATE;
	if (data[0] & 8)
		q.op = WARDEN_NET;
	if (msg_check_req(&q, sizeof(q), &e) == 0 && (q.op == WARDEN_CREATE || q.op == WARDEN_NET)) {
		again = q;
		if (q.op == WARDEN_CREATE)
			spec_put(&q.spec, &again.spec);
		else
			spec_put_net(&q.spec.net, &again.spec.net);
		assert(!memcmp(&q, &again, sizeof(q)));
	}
	msg_check_req(&q, size, &e);
	return 0;
}
