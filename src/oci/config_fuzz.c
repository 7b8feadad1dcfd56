#include "oci/config.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is accepted and written is read as an equal configuration, and written as the same text again. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4 * OCI_CONFIG_MAX), again = BUF_INIT(4 * OCI_CONFIG_MAX);
	AUTO(oci_config_done) struct oci_config c, copy;

	oci_config_init(&copy);
	if (oci_config_parse((const char *)data, size, &c, NULL) < 0)
		return 0;
	assert(oci_config_write(&c, &b, NULL) == 0);
	if (oci_config_parse(buf_str(&b), b.len, &copy, NULL) < 0)
		return 0; /* invalid UTF-8 became longer */
	assert(oci_config_write(&copy, &again, NULL) == 0 && !strcmp(buf_str(&b), buf_str(&again)));
	return 0;
}
