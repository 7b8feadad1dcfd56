/*
 * Preloaded into the API process by test_clock.py: a wall clock that is ahead by as many seconds as the file CLOCHE_TEST_CLOCK has as its
 * first eight bytes. The machine's own clock is left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead;

__attribute__((constructor)) static void open_shift(void)
{
	const char *path = getenv("CLOCHE_TEST_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *p = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

	if (p != MAP_FAILED)
		ahead = p;
	if (fd >= 0)
		close(fd);
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
	int r = (int)syscall(SYS_clock_gettime, id, ts);

	if (r == 0 && ahead && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		ts->tv_sec += *ahead;
	return r;
}
