/* Any text as a rule: what is read, is written so that it reads as the same; what is a name, is one again. */
#include "proto/net_rule.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[1024], again[NET_RULE_TEXT], name[NET_NAME_MAX], second[NET_NAME_MAX], spelled[64];
	struct net_rule r, q;
	struct net_addr a;
	struct err e;

	if (size >= sizeof(text))
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (net_rule_parse(text, &r, &e) == 0) {
		net_rule_text(&r, again);
		if (net_rule_parse(again, &q, &e) < 0 || memcmp(&r, &q, sizeof(r)))
			abort();
	}
	if (net_name_parse(text, size, name) == 0) {
		if (net_addr_parse(name, &a) == 0 || memchr(data, 0, size))
			abort();
		if (net_name_parse(name, strlen(name), second) < 0 || strcmp(name, second))
			abort();
	}
	if (net_addr_parse(text, &a) == 0) {
		net_addr_public(&a, NULL);
		net_addr_text(&a, spelled);
		if (net_addr_parse(spelled, &a) < 0)
			abort();
	}
	return 0;
}
