/* What only programs ask that have a warden of their own: `cloche run`, the first process of a machine, benchmarks. */
#include "base/base.h"
#include "base/sys.h"
#include "engine/sandbox/internal.h"

pid_t warden_pid(const struct warden_sandbox *s)
{
	return s->blank.pid;
}

int warden_start_error(const struct warden *w)
{
	return w->start.error;
}

void warden_pool_wait(struct warden *w, unsigned n)
{
	if (w->pool)
		pool_wait(w->pool, n);
}

void warden_pool_trim(struct warden *w)
{
	if (w->pool)
		pool_trim(w->pool);
}

int warden_memory_stat(const struct warden_sandbox *s, char *text, size_t size)
{
	ssize_t n = s->blank.cgroup.dir[0] < 0 ? -ENOENT : fd_get(s->blank.cgroup.dir[0], "memory.stat", text, size);

	return n < 0 ? (int)n : 0;
}
