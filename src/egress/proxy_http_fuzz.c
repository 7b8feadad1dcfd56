/* What a proxy is asked by a stranger; an absolute request that is rewritten is one for servers, for the same host. */
#include "egress/proxy_http.h"

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf out = BUF_INIT(2 * HEAD_MAX);
	struct head h, again;
	const char *why = NULL;
	enum look r = proxy_http_look((const char *)data, size, &h, &why);

	assert(r != LOOK_BAD || why);
	if (r == LOOK_YES) {
		assert(h.connect != h.absolute && h.host.port && h.len <= size);
		assert((*h.host.name != 0) != (h.host.addr.family != 0));
	}
	if (r == LOOK_YES && h.absolute) {
		if (proxy_http_rewrite((const char *)data, &h, &out) < 0)
			abort();
		/* A line was added: a head with as many as there may be has too many then. */
		if (head_look(out.data, out.len, &again, &why) == LOOK_BAD && strstr(why, "too "))
			goto out;
		assert(head_look(out.data, out.len, &again, &why) == LOOK_YES);
		assert(again.len == out.len && !again.absolute && !again.connect);
		assert(!strcmp(again.host.name, h.host.name) && again.body == h.body && again.length == h.length);
		assert(!memcmp(&again.host.addr, &h.host.addr, sizeof(h.host.addr)));
	}
out:
	buf_done(&out);
	return 0;
}
