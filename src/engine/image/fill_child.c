/* Has cloche-files fill what sandboxes start from, and waits for it. */
#include "engine/image/fill.h"
#include "base/base.h"
#include "linux/spawn.h"

#define LIMIT_MS 60000 /* it takes some milliseconds, unless a disk or a file system hangs */

int image_fill_child(int program, const struct image_fill *x, struct err *e)
{
	static const char *const names[] = IMAGE_NAMES;
	char name[] = "cloche-files", what[16], n[24], journal[24];
	char *argv[] = { name, what, n, journal, NULL };
	int fd[IMAGE_PLACES] = { [IMAGE_FD] = x->fd }, r;
	struct spawn s = { .program = program, .fd = fd, .fds = IMAGE_PLACES, .argv = argv };
	struct image_answer a;

	if (program < 0)
		return err_advise(e, ERR_NOT_FOUND, -ENOENT, "install it beside cloche-warden",
				  "what sandboxes start from cannot be made: cloche-files is not installed");
	snprintf(what, sizeof(what), "%s", names[x->what]);
	snprintf(n, sizeof(n), "%llu", (unsigned long long)x->n);
	snprintf(journal, sizeof(journal), "%llu", (unsigned long long)x->journal);
	r = spawn_ask(&s, &a, sizeof(a), LIMIT_MS, e);
	if (r == 0 && !spawn_answered(a.result, &a.e))
		r = err_set(e, ERR_INTERNAL, -EIO, "invalid answer from cloche-files");
	if (r < 0)
		return r;
	if (a.result < 0 && e)
		*e = a.e;
	return a.result;
}
