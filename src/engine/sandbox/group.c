/* Makes, kills and drops exec groups. */
#include "engine/sandbox/group.h"
#include "base/base.h"

int groups_init(struct groups *g, const struct cgroup_host *h, const struct cgroup *c)
{
	int r;

	*g = (struct groups){ 0 };
	r = cgroup_children(h, c, &g->last, &g->count);
	return r == -EOPNOTSUPP ? 0 : r;
}

void groups_done(struct groups *g)
{
	free(g->late);
	*g = (struct groups){ 0 };
}

static bool listed(const uint32_t *list, unsigned len, uint32_t n)
{
	for (unsigned i = 0; i < len; i++)
		if (list[i] == n)
			return true;
	return false;
}

/* An ended group: kept for the next exec, or removed, or -EBUSY. */
static int put_away(struct groups *g, const struct cgroup_host *h, const struct cgroup *c, uint32_t n)
{
	int r;

	if (g->nfree < GROUPS_FREE) {
		r = cgroup_child_reset(h, c, n);
		if (r == 0)
			g->free[g->nfree++] = n;
		return r;
	}
	r = cgroup_child_remove(h, c, n);
	if (r == 0)
		g->count--;
	return r;
}

static void try_late(struct groups *g, const struct cgroup_host *h, const struct cgroup *c)
{
	for (unsigned i = 0; i < g->nlate;) {
		const int r = put_away(g, h, c, g->late[i]);
		if (r == 0 || r == -ENOENT)
			g->late[i] = g->late[--g->nlate];
		else
			i++;
	}
}

int groups_new(struct groups *g, const struct cgroup_host *h, const struct cgroup *c, uid_t by, uint32_t *ret,
	       struct err *e)
{
	int fd;

	if (!g->nfree)
		try_late(g, h, c);
	if (g->nfree) {
		uint32_t n = g->free[g->nfree - 1];

		fd = cgroup_child_open(h, c, n, by);
		if (fd < 0)
			return err_sys(e, ERR_INTERNAL, fd, "open an exec group");
		g->nfree--;
		*ret = n;
		return fd;
	}
	if (g->count >= GROUPS_MAX || g->last == UINT32_MAX)
		return err_advise(e, ERR_EXHAUSTED, -EAGAIN,
				  "end execs that are no longer needed, or processes that they left running",
				  "the sandbox has %u exec groups", g->count);
	fd = cgroup_child_make(h, c, g->last + 1, by);
	if (fd == -EOPNOTSUPP)
		return err_set(e, ERR_UNSUPPORTED, fd, "exec groups: the pids controller is not available");
	if (fd < 0)
		return err_sys(e, ERR_INTERNAL, fd, "make an exec group");
	g->count++;
	*ret = ++g->last;
	return fd;
}

int groups_kill(const struct groups *g, const struct cgroup_host *h, const struct cgroup *c, uint32_t n, struct err *e)
{
	int r = n > g->last || listed(g->free, g->nfree, n) ? -ENOENT : cgroup_child_kill(h, c, n);

	if (r == -ENOENT)
		return err_set(e, ERR_NOT_FOUND, r, "no exec group with this number");
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "end an exec group") : 0;
}

int groups_end(struct groups *g, const struct cgroup_host *h, const struct cgroup *c, uint32_t n, struct err *e)
{
	uint32_t *late;
	int r;

	if (n > g->last)
		return err_set(e, ERR_NOT_FOUND, -ENOENT, "no exec group with this number");
	if (listed(g->free, g->nfree, n) || listed(g->late, g->nlate, n))
		return 0;
	r = put_away(g, h, c, n);
	if (r == 0 || r == -ENOENT)
		return 0;
	if (r != -EBUSY)
		return err_sys(e, ERR_INTERNAL, r, "remove an exec group");
	late = realloc(g->late, (g->nlate + 1) * sizeof(*late));
	if (!late)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for an exec group");
	g->late = late;
	g->late[g->nlate++] = n;
	return 0;
}
