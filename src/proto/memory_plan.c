/* The plan is made from the youngest process to the oldest: what a child needs decides where its parent has to be started. */
#include "proto/memory_plan.h"
#include "base/base.h"

#define FIRST_TEMP 300U /* ids of processes that end at once begin here; any id that is free will do */

struct planner {
	const struct mem_proc *proc;
	const struct mem_thread *thread;
	uint32_t n, n_threads, next_temp;
	struct mem_plan *plan;
	struct err *e;
};

static uint32_t plan_index(const struct planner *l, uint32_t pid)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->proc[i].pid == pid)
			return i;
	return MEM_NONE;
}

static bool plan_id_used(const struct planner *l, uint32_t id)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->proc[i].pid == id)
			return true;
	for (uint32_t i = 0; i < l->n_threads; i++)
		if (l->thread[i].tid == id)
			return true;
	return false;
}

static bool plan_leads(const struct planner *l, uint32_t i)
{
	return l->proc[i].sid == l->proc[i].pid;
}

static int plan_refuse(const struct planner *l, uint32_t i, const char *why)
{
	const struct mem_proc *p = &l->proc[i];

	return err_set(l->e, ERR_UNSUPPORTED, -EOPNOTSUPP, "process %u (%.15s): %s (session %u, group %u)", p->pid,
		       p->comm[0] ? p->comm : "ended", why, p->sid, p->pgid);
}

/* @born: the session it has to be started in, 0: any. Also what the parent then has to be born into. */
static int plan_one(struct planner *l, uint32_t i, uint32_t *born)
{
	const struct mem_proc *p = &l->proc[i];
	struct mem_plan *plan = &l->plan[i];
	const uint32_t need = plan_leads(l, i) ? born[i] : p->sid;

	*plan = (struct mem_plan){ .creator = p->parent };
	if (p->parent == MEM_NONE) {
		if (!need)
			return 0;
		plan->creator = plan_index(l, need);
		if (plan->creator == MEM_NONE)
			return plan_refuse(l, i, "its session has no first process");
		while (plan_id_used(l, l->next_temp))
			l->next_temp++;
		plan->temp = l->next_temp++;
		return 0;
	}
	if (!need || need == l->proc[p->parent].sid)
		return 0;
	if (!plan_leads(l, p->parent))
		return plan_refuse(l, i, "is in a session that its parent was never in");
	if (born[p->parent] && born[p->parent] != need)
		return plan_refuse(
			l, i,
			"is in another session than the children that its parent had before it made its own session");
	born[p->parent] = need;
	plan->early = true;
	return 0;
}

/* A group has to be there, and of the same session, for a process to join it. */
static int plan_group(const struct planner *l, uint32_t i)
{
	const struct mem_proc *p = &l->proc[i];
	const uint32_t at = plan_index(l, p->pgid);

	if (at == MEM_NONE || l->proc[at].sid != p->sid)
		return plan_refuse(l, i, "is in a process group of another session");
	if (l->proc[at].pgid != l->proc[at].pid)
		return plan_refuse(l, i, "is in a process group that its first process has left");
	return 0;
}

/* A table is shared from birth on: the process that starts it has to be one of those that share it. */
static int plan_shared(const struct planner *l, uint32_t i)
{
	const struct mem_proc *p = &l->proc[i];
	struct mem_plan *plan = &l->plan[i];
	const struct mem_proc *by = plan->creator == MEM_NONE || plan->temp ? NULL : &l->proc[plan->creator];

	plan->files = p->files && by && (by->pid == p->files || by->files == p->files);
	plan->folders = p->folders && by && (by->pid == p->folders || by->folders == p->folders);
	if ((p->files && !plan->files) || (p->folders && !plan->folders))
		return plan_refuse(
			l, i,
			p->files && !plan->files ?
				"shares its descriptors (CLONE_FILES) with a process that is not its parent" :
				"shares its folders (CLONE_FS) with a process that is not its parent");
	return 0;
}

int mem_plan(const struct mem_proc *proc, uint32_t n, const struct mem_thread *thread, uint32_t n_threads,
	     struct mem_plan *ret, struct err *e)
{
	struct planner l = { proc, thread, n, n_threads, FIRST_TEMP, ret, e };
	uint32_t born[MEM_PROCS_MAX] = { 0 };
	int r = n <= MEM_PROCS_MAX ? 0 : -E2BIG;

	for (uint32_t i = n; r == 0 && i-- > 0;)
		r = plan_one(&l, i, born);
	for (uint32_t i = 0; r == 0 && i < n; i++)
		r = plan_group(&l, i);
	for (uint32_t i = 0; r == 0 && i < n; i++)
		r = plan_shared(&l, i);
	for (uint32_t i = 0; r == 0 && i < n; i++) {
		uint32_t up = i;

		for (uint32_t steps = 0; up != MEM_NONE && steps <= n; steps++)
			up = ret[up].creator;
		if (up != MEM_NONE)
			r = plan_refuse(&l, i, "would have to be started by itself");
	}
	return r;
}
