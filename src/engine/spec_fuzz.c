/* Any bytes as a spec: what passes has strings that end, paths that go only down, and no target in our places. */
#include "engine/spec.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_path(const char *s, size_t size)
{
	size_t n = strnlen(s, size);

	if (n == size || s[0] != '/' || strstr(s, "/../") || (n >= 3 && !strcmp(s + n - 3, "/..")))
		abort();
}

/* As the kernel reads it: empty parts and "." are nothing. */
static void check_target(const char *s)
{
	const char *p = s;

	check_path(s, SPEC_PATH);
	while (*p == '/' || (*p == '.' && (p[1] == '/' || !p[1])))
		p++;
	for (const char *const *o = (const char *const[]){ "proc", "dev", "sys", "", NULL }; *o; o++)
		if (strcspn(p, "/") == strlen(*o) && !strncmp(p, *o, strlen(*o)))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct sandbox_spec s;
	struct err e = { 0 };

	memset(&s, 0, sizeof(s));
	snprintf(s.image, sizeof(s.image), "host");
	snprintf(s.workdir, sizeof(s.workdir), "/w");
	/* The first byte says whether the rest is the whole record, or a path for each place. */
	if (size && data[0] & 1) {
		memcpy(&s, data + 1, size - 1 < sizeof(s) ? size - 1 : sizeof(s));
	} else if (size) {
		size_t n = size - 1 < SPEC_PATH ? size - 1 : SPEC_PATH;

		s.nmounts = s.ntmpfs = 1;
		memcpy(s.mount[0].src, data + 1, n);
		memcpy(s.mount[0].dst, data + 1, n);
		memcpy(s.tmpfs[0].path, data + 1, n);
	}
	if (spec_check(&s, &e) < 0) {
		if (!e.msg[0])
			abort();
		return 0;
	}
	check_path(s.workdir, SPEC_PATH);
	for (uint32_t i = 0; i < s.nmounts; i++) {
		check_path(s.mount[i].src, SPEC_PATH);
		check_target(s.mount[i].dst);
	}
	for (uint32_t i = 0; i < s.ntmpfs; i++)
		check_target(s.tmpfs[i].path);
	return 0;
}
