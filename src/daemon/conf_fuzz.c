/* Any file: no crash, an error says where, and what was taken is within bounds. */
#include "daemon/conf.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct daemon_config c;
	struct err e = { 0 };

	conf_init(&c);
	if (conf_parse(&c, "f", (const char *)data, size, &e) < 0) {
		if (strncmp(e.msg, "f:", 2) != 0)
			abort();
		return 0;
	}
	if (c.nlisten > DAEMON_LISTENERS || c.nallow_mount > ARRAY_LEN(c.allow_mount) || !c.pool || c.pool > 1024)
		abort();
	if (c.data[0] != '/' || !memchr(c.data, 0, sizeof(c.data)) || !memchr(c.user, 0, sizeof(c.user)))
		abort();
	if (conf_finish(&c, &e) < 0 && !e.msg[0])
		abort();
	return 0;
}
