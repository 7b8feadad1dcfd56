/*
 * /etc/resolv.conf of a sandbox with a network. Image `host` has it already. Another image may have none, the file
 * of the machine it was built on, or a dangling link to a service's file: names could not be resolved with any of
 * these.
 */
#include "agent/agent.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/steer.h"

#include <sys/stat.h>

#define PLACE "/etc/resolv.conf"

static bool says_it(void)
{
	const struct open_how how = {
		.flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC,
		.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	AUTO_CLOSE int fd = sys_openat2(AT_FDCWD, PLACE, &how);
	char text[sizeof(STEER_RESOLV_CONF) + 1];
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	       sys_read(fd, text, sizeof(text)) == sizeof(STEER_RESOLV_CONF) - 1 &&
	       !memcmp(text, STEER_RESOLV_CONF, sizeof(STEER_RESOLV_CONF) - 1);
}

int resolver_make(void)
{
	const struct open_how how = {
		.flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
		.mode = 0644,
		.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	AUTO_CLOSE int fd = -1;
	int r;

	if (says_it())
		return 0;
	r = sys_mkdirat(AT_FDCWD, "/etc", 0755);
	if (r < 0 && r != -EEXIST)
		return r;
	r = sys_unlinkat(AT_FDCWD, PLACE, 0);
	if (r < 0 && r != -ENOENT)
		return r;
	fd = sys_openat2(AT_FDCWD, PLACE, &how);
	return fd < 0 ? fd : fd_write_all(fd, STEER_RESOLV_CONF, sizeof(STEER_RESOLV_CONF) - 1);
}
