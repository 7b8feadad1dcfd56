/* Whether a process has ended, and waiting for that, by its pidfd. */
#pragma once
#include <errno.h>
#include <poll.h>
#include <stdbool.h>

static inline bool pidfd_ended(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) != 0;
}

/* @ms: -1: as long as it takes. */
static inline void pidfd_wait(int pidfd, int ms)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	while (poll(&p, 1, ms) < 0 && errno == EINTR)
		;
}
