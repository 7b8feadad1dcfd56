/* Opens our other programs, which are beside this one. */
#include "engine/program.h"
#include "base/base.h"
#include "config.h"

#include <unistd.h>

/* @below: of the folder that this program is in. */
static bool is_near(const char *below, const char *name, int mode, char *buf, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", buf, size - 1);
	char *slash;
	size_t room;

	if (n <= 0)
		return false;
	buf[n] = '\0';
	slash = strrchr(buf, '/');
	if (!slash)
		return false;
	room = size - (size_t)(slash + 1 - buf);
	return (size_t)snprintf(slash + 1, room, "%s%s", below, name) < room && access(buf, mode) == 0;
}

bool program_file(const char *name, int mode, char *buf, size_t size)
{
	/* PREFIX/bin/cloche, wherever that was moved or installed to. */
	return is_near("", name, mode, buf, size) || is_near("../libexec/cloche/", name, mode, buf, size) ||
	       ((size_t)snprintf(buf, size, "%s/%s", CLOCHE_LIBEXEC, name) < size && access(buf, mode) == 0);
}

int program_path(const char *name, char *buf, size_t size, struct err *e)
{
	if (program_file(name, X_OK, buf, size))
		return 0;
	return err_advise(e, ERR_NOT_FOUND, -ENOENT, "run `make install`, or start cloche from its build folder",
			  "%s is neither beside this program nor in %s", name, CLOCHE_LIBEXEC);
}

int program_cache(const char *below, char *buf, size_t size, struct err *e)
{
	const char *own = getenv("CLOCHE_CACHE");

	return (size_t)snprintf(buf, size, "%s%s", own && own[0] == '/' ? own : "/var/cache/cloche", below) < size ?
		       0 :
		       err_set(e, ERR_INVALID, -ENAMETOOLONG, "cache folder: the path is too long");
}
