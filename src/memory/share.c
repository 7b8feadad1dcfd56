/*
 * What processes share that a fork would have copied: tables of descriptors (CLONE_FILES), and folders with the umask (CLONE_FS).
 * The kernel orders them, so each is compared with a few others. Of those that share a table, the one whose parent has
 * another is the first, and the image has the descriptors with that one.
 */
#include "memory/dump.h"
#include "base/base.h"
#include "base/score.h"
#include "base/sys.h"

#include <linux/kcmp.h>

/* @of: index of some process with the same table, in [0..n_procs) */
static int share_groups(const struct dump *d, int kind, uint32_t *of, struct err *e)
{
	uint32_t order[MEM_PROCS_MAX + 1];
	size_t n = 0;

	for (uint32_t i = 1; i < d->n_procs; i++) {
		size_t low = 0, high = n;

		of[i] = i;
		if (d->proc[i].zombie)
			continue;
		while (low < high && of[i] == i) {
			const size_t mid = low + (high - low) / 2;
			const int r = sys_kcmp(d->proc[order[mid]].host, d->proc[i].host, kind, 0, 0);

			if (r < 0)
				return err_sys(e, ERR_INTERNAL, r, "compare processes");
			if (r == 0)
				of[i] = order[mid];
			else if (r == 1)
				low = mid + 1;
			else
				high = mid;
		}
		if (of[i] != i)
			continue;
		memmove(&order[low + 1], &order[low], (n - low) * sizeof(*order));
		order[low] = i;
		n++;
	}
	return 0;
}

/* Of those that share with @i, the first whose parent does not; 0: that is @i itself. */
static uint32_t share_first(const struct dump *d, const uint32_t *of, uint32_t i)
{
	for (uint32_t k = 1; k < d->n_procs; k++)
		if (of[k] == of[i] && !d->proc[k].zombie && (!d->proc[k].parent || of[d->proc[k].parent] != of[k]))
			return k == i ? 0 : k;
	return 0;
}

static int share_threads(const struct proc *p, struct err *e)
{
	static const struct {
		int kind;
		const char *what;
	} kinds[] = { { KCMP_VM, "memory" },
		      { KCMP_FILES, "descriptors (CLONE_FILES)" },
		      { KCMP_FS, "folders (CLONE_FS)" } };

	for (size_t t = 1; t < p->n_threads; t++)
		for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
			if (sys_kcmp(p->host, p->thread[t].host, kinds[k].kind, 0, 0) != 0)
				return proc_refuse(p, e, "has a thread with its own %s", kinds[k].what);
	return 0;
}

int share_read(struct dump *d, struct err *e)
{
	uint32_t of[MEM_PROCS_MAX + 1];
	int r = share_groups(d, KCMP_VM, of, e);

	for (uint32_t i = 1; r == 0 && i < d->n_procs; i++)
		if (of[i] != i)
			r = proc_refuse(&d->proc[i], e, "shares its memory with process %u (%s)", d->proc[of[i]].pid,
					d->proc[of[i]].name);
	if (r == 0)
		r = share_groups(d, KCMP_FILES, of, e);
	for (uint32_t i = 1; r == 0 && i < d->n_procs; i++)
		d->proc[i].files = share_first(d, of, i);
	if (r == 0)
		r = share_groups(d, KCMP_FS, of, e);
	for (uint32_t i = 1; r == 0 && i < d->n_procs; i++) {
		struct proc *p = &d->proc[i];

		p->folders = share_first(d, of, i);
		p->rec.files = p->files ? d->proc[p->files].pid : 0;
		p->rec.folders = p->folders ? d->proc[p->folders].pid : 0;
		r = share_threads(p, e);
	}
	return r;
}

bool share_has(const struct dump *d, const struct proc *p)
{
	for (size_t i = 1; i < d->n_procs; i++)
		if (d->proc[i].files == (uint32_t)(p - d->proc))
			return true;
	return p->files;
}

int share_check(const struct dump *d, const struct proc *p, struct err *e)
{
	/* It opens files of its own for these on the way, under a number that must be known. */
	if ((int32_t)p->rec.oom_score_adj != SCORE_SANDBOX || p->rec.loginuid != MEM_NONE)
		return proc_refuse(p, e,
				   "shares its descriptors (CLONE_FILES) with process %u, but has another "
				   "oom_score_adj or login user",
				   d->proc[p->files].pid);
	return 0;
}
