/* A hostile ClientHello, whole and cut at every length: more bytes never change a result that was final. */
#include "egress/hello.h"

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char again[NET_NAME_MAX];
	struct hello h, part;
	const char *why = NULL;
	enum look all = hello_look(data, size, &h, &why), r;

	assert(all != LOOK_BAD || why);
	assert(all != LOOK_MORE || size < HELLO_MAX);
	if (all == LOOK_YES && *h.name)
		assert(net_name_parse(h.name, strlen(h.name), again) == 0 && !strcmp(again, h.name));
	for (size_t i = 0; i < size; i += 1 + i / 16) {
		r = hello_look(data, i, &part, &why);
		assert(r == LOOK_MORE || (r == LOOK_YES ? all == LOOK_YES && !strcmp(part.name, h.name) : r == all));
	}
	all = hello_look_odd(data, size, &why);
	assert(all != LOOK_YES);
	for (size_t i = 0; i < size && i < 16; i++) {
		r = hello_look_odd(data, i, &why);
		assert(r == LOOK_MORE || r == all);
	}
	return 0;
}
