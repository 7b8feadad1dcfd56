/* What every mode does with names: lists those that it has left out, and refuses those that lead out of the folder. */
#include "tar/tar.h"
#include "base/base.h"

#include <stdarg.h>

void tar_skip(struct tar_result *r, const char *name, const char *fmt, ...)
{
	va_list ap;

	if (r->skipped < TAR_SKIPPED_NAMED) {
		struct tar_skipped *s = &r->named[r->skipped];

		s->name = strndup(name, FILE_PATH_MAX);
		va_start(ap, fmt);
		vsnprintf(s->why, sizeof(s->why), fmt, ap);
		va_end(ap);
	}
	r->skipped++;
}

bool tar_name_ok(const char *name)
{
	if (!*name || *name == '/')
		return false;
	for (const char *p = name; *p; p += *p == '/') {
		size_t n = strcspn(p, "/");

		if (n == 2 && !memcmp(p, "..", 2))
			return false;
		p += n;
	}
	return true;
}
