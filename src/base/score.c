/* Writes oom_score_adj. */
#include "base/score.h"
#include "base/base.h"
#include "base/sys.h"

#include <fcntl.h>
#include <unistd.h>

#define SELF "/proc/self/oom_score_adj"

static int write_score(int fd, int score)
{
	char text[16];
	int n = snprintf(text, sizeof(text), "%d", score);
	ssize_t r = pwrite(fd, text, (size_t)n, 0);

	return r < 0 ? -errno : r == n ? 0 : -EIO;
}

int score_sandbox(int fd)
{
	char text[16] = "";
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	long now = strtol(text, NULL, 10);

	if (n < 0)
		return -errno;
	return write_score(fd, now > SCORE_SANDBOX ? (int)now : SCORE_SANDBOX);
}

int score_sandbox_self(const char *path)
{
	AUTO_CLOSE int fd = sys_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);

	return fd < 0 ? fd : score_sandbox(fd);
}

int score_daemon_self(void)
{
	AUTO_CLOSE int fd = sys_openat(AT_FDCWD, SELF, O_RDWR | O_CLOEXEC, 0);

	return fd < 0 ? fd : write_score(fd, SCORE_DAEMON);
}
