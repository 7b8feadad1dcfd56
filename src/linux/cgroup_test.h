/* What the tests on real groups share. */
#pragma once
#include <dirent.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "linux/cgroup.h"
#include "linux/cgroup_impl.h"
#include "linux/cgroup_parse.h"

#define ALL                                                                                                            \
	(CGROUP_BIT(CGROUP_MEMORY) | CGROUP_BIT(CGROUP_PIDS) | CGROUP_BIT(CGROUP_CPU) | CGROUP_BIT(CGROUP_CPUACCT) |   \
	 CGROUP_BIT(CGROUP_FREEZER))

__attribute__((unused)) static struct cgroup_host host;
static char base[32];
__attribute__((unused)) static struct err err;

static inline unsigned open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static inline int count_one(const char *name, void *arg)
{
	(void)name;
	++*(unsigned *)arg;
	return 0;
}

static inline unsigned groups(const struct cgroup_host *h)
{
	unsigned n = 0;

	return cgroup_each(h, count_one, &n) < 0 ? 9999 : n;
}

/* Runs @body in a child that is in @c. The child's exit status is what @body returns. */
static inline pid_t spawn(const struct cgroup_host *h, const struct cgroup *c, int (*body)(void *arg), void *arg)
{
	struct clone_args a = { .exit_signal = SIGCHLD };
	pid_t pid;

	if (h->version == 2) {
		a.flags = CLONE_INTO_CGROUP;
		a.cgroup = (uint64_t)c->dir[0];
	}
	pid = (pid_t)sys_clone3(&a, sizeof(a));
	if (pid)
		return pid;
	if (cgroup_join_self(c->join, c->njoin) < 0)
		_exit(99);
	_exit(body(arg));
}

static inline int finish(pid_t pid)
{
	int status = -1;

	return waitpid(pid, &status, 0) == pid ? status : -1;
}

static inline bool is_member(int dir, pid_t pid)
{
	char text[4096];
	pid_t list[512];
	ssize_t n = fd_get(dir, "cgroup.procs", text, sizeof(text));
	size_t m = n > 0 ? cgroup_parse_pids(text, (size_t)n, list, ARRAY_LEN(list)) : 0;

	while (m--)
		if (list[m] == pid)
			return true;
	return false;
}

static inline void nap_ms(long ms)
{
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* A child counts in memory shared with us, so that joined, running and frozen can be distinguished. */
static inline volatile unsigned *shared(void)
{
	static volatile unsigned *p;

	if (!p)
		p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return p;
}

static inline int count_forever(void *arg)
{
	volatile unsigned *n = arg;

	for (;; nap_ms(1))
		++*n;
	return 0;
}

static inline bool rises(volatile unsigned *n)
{
	const unsigned was = *n;

	for (int i = 0; i < 2000; i++) {
		if (*n != was)
			return true;
		nap_ms(1);
	}
	return false;
}

/* Everything a test may have left of a group. */
static inline int clear(const struct cgroup_host *h, struct cgroup *c)
{
	int r = cgroup_kill(h, c);

	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	cgroup_done(c);
	return r < 0 ? r : cgroup_remove_wait(h, c->name, h->have, 2000, NULL);
}

/* Kills and removes what failed tests left, then the base folder itself; still fails if there was anything. */
static int sweep_one(const char *name, void *arg)
{
	const struct cgroup_host *h = arg;
	struct cgroup c;

	printf("# left over: %s\n", name);
	cgroup_init(&c);
	c.mask = h->have;
	for (unsigned i = 0; i < CGROUP_CONTROLLERS; i++)
		c.dir[i] = h->base[i] < 0 ? -1 : sys_openat(h->base[i], name, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	memcpy(c.name, name, strnlen(name, sizeof(c.name) - 1));
	return clear(h, &c);
}

static inline void end_host(struct cgroup_host *h)
{
	const unsigned left = groups(h);

	cgroup_each(h, sweep_one, h);
	CHECK_EQ(cgroup_host_erase(h, base), 0);
	cgroup_host_done(h);
	CHECK_EQ(left, 0);
}
