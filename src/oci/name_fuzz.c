#include "oci/name.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same(const struct oci_name *a, const struct oci_name *b)
{
	return !strcmp(a->registry, b->registry) && !strcmp(a->repository, b->repository) && !strcmp(a->tag, b->tag) &&
	       !strcmp(a->digest, b->digest);
}

/* What is accepted is written in both forms, and each is read as the same name again. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[1024], out[OCI_NAME_MAX];
	struct oci_name n, again;

	if (size >= sizeof(text))
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (oci_name_parse(text, &n, NULL) < 0)
		return 0;
	oci_name_full(&n, out);
	assert(oci_name_parse(out, &again, NULL) == 0 && same(&n, &again));
	oci_name_short(&n, out);
	assert(oci_name_parse(out, &again, NULL) == 0 && same(&n, &again));
	return 0;
}
