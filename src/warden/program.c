#include "warden/program.h"
#include "base/base.h"
#include "config.h"

#include <unistd.h>

int program_path(const char *name, char *buf, size_t size, struct err *e)
{
	ssize_t n = readlink("/proc/self/exe", buf, size - 1);
	char *slash;

	if (n > 0) {
		buf[n] = '\0';
		slash = strrchr(buf, '/');
		if (slash && (size_t)snprintf(slash + 1, size - (size_t)(slash + 1 - buf), "%s", name) <
				     size - (size_t)(slash + 1 - buf) && access(buf, X_OK) == 0)
			return 0;
	}
	if ((size_t)snprintf(buf, size, "%s/%s", CLOCHE_LIBEXEC, name) < size && access(buf, X_OK) == 0)
		return 0;
	err_set(e, ERR_NOT_FOUND, -ENOENT, "%s is neither beside this program nor in %s", name, CLOCHE_LIBEXEC);
	err_remedy(e, "run `make install`, or start cloche from its build folder");
	return -ENOENT;
}
