/* Reads what the configuration says about registries. */
#include "daemon/image_files.h"
#include "base/base.h"

#include <fcntl.h>

static int read_one(const char *key, const char *path, char text[IMAGE_FILE_MAX + 1], struct err *e)
{
	ssize_t n = *path ? fd_get(AT_FDCWD, path, text, IMAGE_FILE_MAX + 1) : 0;

	if (n == -EFBIG)
		return err_set(e, ERR_INVALID, -EFBIG, "%s: '%.150s' is larger than 96 KiB", key, path);
	if (n < 0)
		return err_sys(e, ERR_INVALID, (int)n, "%s: read '%.150s'", key, path);
	if (strlen(text) != (size_t)n)
		return err_set(e, ERR_INVALID, -EINVAL, "%s: '%.150s' contains a NUL byte", key, path);
	return 0;
}

int image_files_read(const struct daemon_config *c, struct image_files *ret, struct err *e)
{
	int r = read_one("image_auth", c->image_auth, ret->auth, e);

	if (r == 0)
		r = read_one("image_ca", c->image_ca, ret->ca, e);
	if (r == 0)
		r = read_one("image_registries", c->image_registries, ret->registries, e);
	return r;
}
