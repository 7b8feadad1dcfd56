/*
 * A guest that was taken over may send anything. This one is part of build/faulty: it sends the content of a file of
 * the sandbox as the differences, byte by byte.
 */
#include "base/base.h"
#include "vm/guest/guest.h"

#ifdef CLOCHE_FAULTS
#include <fcntl.h>
#include <unistd.h>

bool lie_changes(const struct guest *g, int fd)
{
	AUTO_CLOSE int in = -1;
	char data[4096], path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/root/tmp/what-differs", (int)warden_pid(g->sandbox));
	in = open(path, O_RDONLY | O_CLOEXEC);
	if (in < 0)
		return false;
	if (fork() == 0) {
		while ((n = read(in, data, sizeof(data))) > 0 && fd_write_all(fd, data, (size_t)n) == 0)
			;
		_exit(0);
	}
	return true;
}
#else
bool lie_changes(const struct guest *g, int fd)
{
	(void)g;
	(void)fd;
	return false;
}
#endif
