/*
 * A hint of the sandbox's memory for each exec: three quarters of it as the soft limit RLIMIT_RSS, which Linux does not
 * enforce. sysinfo(2) returns the host's memory (docs/design/0014-what-programs-see.md says why). GNU sort and gcc size
 * themselves by the smaller of the two. The last quarter is for the other processes and for the kernel's own use.
 */
#include "agent/agent.h"
#include "base/base.h"
#include "base/sys.h"

#include <sys/resource.h>

int memory_size_read(uint64_t *ret)
{
	AUTO_CLOSE int fd = sys_openat(AT_FDCWD, "/proc/meminfo", O_RDONLY | O_CLOEXEC, 0);
	unsigned long long kib;
	char text[64];
	ssize_t n;

	if (fd < 0)
		return fd;
	n = sys_read(fd, text, sizeof(text) - 1);
	if (n < 0)
		return (int)n;
	text[n] = '\0';
	if (sscanf(text, "MemTotal: %llu kB", &kib) != 1)
		return -EBADMSG;
	*ret = kib * KIB;
	return 0;
}

int memory_size_hint(uint64_t bytes)
{
	const uint64_t soft = bytes - bytes / 4;
	struct rlimit now;

	if (getrlimit(RLIMIT_RSS, &now) < 0)
		return -errno;
	/* The hard limit stays, since a restore in a larger sandbox could not raise it again. */
	return now.rlim_cur <= soft ? 0 : sys_prlimit(RLIMIT_RSS, soft, now.rlim_max);
}
