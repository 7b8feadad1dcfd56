/* Locks a file for an open file description. */
#include "engine/file_lock.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"

#include <time.h>

#define LOCK_MS 10000 /* a warden that was killed lets go of it when the kernel has taken its memory apart */

/* Of this process, not of the descriptor: a copy that a child has for a moment must not hold it. */
int file_lock(int fd)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	const uint64_t until = clock_mono_ns() + LOCK_MS * 1000000ULL;
	int r;

	while ((r = sys_fcntl(fd, F_SETLK, (long)&l)) == -EAGAIN && clock_mono_ns() < until)
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	return r;
}
