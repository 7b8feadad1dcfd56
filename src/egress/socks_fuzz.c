#include "egress/socks.h"

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct look_to to = { 0 };
	const char *why = NULL;
	char again[NET_NAME_MAX];
	uint8_t code = 0;
	size_t n = 0, m = 0;
	enum look r = socks_greet(data, size, &n, &why);

	assert(r != LOOK_BAD || why);
	assert(r != LOOK_MORE || size < SOCKS_GREET_MAX);
	if (r != LOOK_YES)
		n = 0;
	assert(n <= size);
	r = socks_ask(data + n, size - n, &m, &to, &code, &why);
	assert(r != LOOK_NOT && (r != LOOK_BAD || (why && code)));
	assert(r != LOOK_MORE || size - n < SOCKS_ASK_MAX);
	if (r == LOOK_YES) {
		assert(m <= size - n && to.port && (*to.name != 0) != (to.addr.family != 0));
		assert(!*to.name || !net_name_parse(to.name, strlen(to.name), again));
		for (size_t i = 0; i < m; i++)
			assert(socks_ask(data + n, i, &m, &to, &code, &why) == LOOK_MORE);
	}
	return 0;
}
