/*
 * Adjustments of System V semaphores at the end of a process (SEM_UNDO). The kernel does not show them. But it keeps
 * each adjustment within the range of a short, and an operation that leads out of it fails with ERANGE. So the process
 * makes calls of semop that shift its adjustment by some amount, and whose last operation can never be done: semop does
 * either all of its operations or none. EAGAIN means that the adjustment would have stayed in its range.
 */
#include "base/base.h"
#include "base/sys.h"
#include "memory/inject.h"
#include "memory/object.h"

#include <linux/kcmp.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TOP 32767
#define GROUP 16U /* semaphores that are asked for at once */
#define OPS_MAX (GROUP * 5U + 1U)

struct probe {
	struct proc *p;
	const struct mem_sysv *s;
	const struct mem_sem *sem;
	struct sembuf op[OPS_MAX];
	size_t n;
};

static_assert(sizeof(struct sembuf) * OPS_MAX <= INJECT_INPUT_MAX, "one probe fits");

static void add(struct probe *b, uint32_t num, int op, int flags)
{
	assert(b->n < OPS_MAX);
	if (op)
		b->op[b->n++] = (struct sembuf){ (unsigned short)num, (short)op, (short)flags };
}

/* Adds operations that set the semaphore's value to 0, and lower its adjustment by @by. */
static void lower(struct probe *b, uint32_t num, uint32_t by)
{
	add(b, num, -(int)b->sem[num].value, IPC_NOWAIT);
	while (by) {
		const int step = by > TOP ? TOP : (int)by;

		add(b, num, step, IPC_NOWAIT | SEM_UNDO);
		add(b, num, -step, IPC_NOWAIT);
		by -= (uint32_t)step;
	}
}

/* Adds operations that raise its adjustment by the largest possible value. */
static void raise_all(struct probe *b, uint32_t num)
{
	add(b, num, TOP - (int)b->sem[num].value, IPC_NOWAIT);
	add(b, num, -TOP, IPC_NOWAIT | SEM_UNDO);
}

/* Makes the calls. 1: every adjustment would have stayed in its range; 0: one would not. */
static int ask(struct probe *b, uint32_t num, struct err *e)
{
	AUTO_FREE struct inject *j = calloc(1, sizeof(*j));
	int r;

	if (!j)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "calls");
	add(b, num, -TOP - 1, IPC_NOWAIT); /* no value is that large */
	memcpy(j->input, b->op, b->n * sizeof(*b->op));
	j->input_n = b->n * sizeof(*b->op);
	inject_add(j, &(struct call){ SYS_semop, { b->s->id, 0, b->n }, 0 }, -1, 0);
	b->n = 0;
	r = inject_run(b->p, &b->p->thread[0], j, e);
	if (r < 0)
		return r;
	if (j->result[0] == -EAGAIN || j->result[0] == -ERANGE)
		return j->result[0] == -EAGAIN;
	return proc_refuse(
		b->p, e, "may have operations to undo (SEM_UNDO) of System V semaphores (id %u) that it may not change",
		b->s->id);
}

/* Whether no semaphore of the group has an adjustment. */
static int none(struct probe *b, uint32_t from, uint32_t n, struct err *e)
{
	int r;

	for (uint32_t i = 0; i < n; i++)
		lower(b, from + i, TOP + 1U);
	r = ask(b, from, e);
	if (r <= 0)
		return r;
	for (uint32_t i = 0; i < n; i++)
		raise_all(b, from + i);
	return ask(b, from, e);
}

/* Searches for the adjustment of a semaphore. */
static int search(struct probe *b, uint32_t num, int32_t *ret, struct err *e)
{
	int32_t low = -TOP - 1, high = TOP;

	while (low < high) {
		const int32_t mid = low + (high - low + 1) / 2;
		int r;

		lower(b, num, (uint32_t)(mid + TOP + 1));
		r = ask(b, num, e);
		if (r < 0)
			return r;
		if (r)
			low = mid;
		else
			high = mid - 1;
	}
	*ret = low;
	return 0;
}

static int read_set(struct probe *b, struct buf *undos, struct err *e)
{
	int r = 0;

	for (uint32_t from = 0; r >= 0 && from < b->s->n; from += GROUP) {
		const uint32_t n = b->s->n - from < GROUP ? b->s->n - from : GROUP;

		r = none(b, from, n, e);
		for (uint32_t i = 0; r == 0 && i < n; i++) {
			struct mem_undo u = { .pid = b->p->pid, .num = from + i };

			r = n > 1 ? none(b, u.num, 1, e) : 0;
			if (r != 0) {
				r = r < 0 ? r : 0;
				continue;
			}
			r = search(b, u.num, &u.add, e);
			if (r == 0 && u.add == -TOP - 1)
				r = proc_refuse(b->p, e, "has more operations to undo (SEM_UNDO) than can be restored");
			if (r == 0 && buf_add(undos, &u, sizeof(u)) < 0)
				r = err_set(e, ERR_TOO_LARGE, -E2BIG, "too many operations to undo (SEM_UNDO)");
		}
	}
	return r < 0 ? r : 0;
}

/* Whether the process has a list of adjustments. A process without one compares equal to us, since we have none. */
static int has_list(const struct proc *p, struct err *e)
{
	int r = sys_kcmp(getpid(), p->host, KCMP_SYSVSEM, 0, 0);

	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "compare processes") : r > 0;
}

int sysv_undo_check(const struct dump *d, struct err *e)
{
	for (size_t i = 1; i < d->n_procs; i++) {
		const struct proc *p = &d->proc[i];

		for (size_t t = 1; t < p->n_threads; t++)
			if (sys_kcmp(p->host, p->thread[t].host, KCMP_SYSVSEM, 0, 0) != 0)
				return proc_refuse(p, e, "has a thread with its own operations to undo (SEM_UNDO)");
		for (size_t k = 1; !p->zombie && k < i; k++)
			if (!d->proc[k].zombie && sys_kcmp(p->host, d->proc[k].host, KCMP_SYSVSEM, 0, 0) == 0 &&
			    has_list(p, e) > 0)
				return proc_refuse(p, e,
						   "shares its operations to undo (CLONE_SYSVSEM) with process %u (%s)",
						   d->proc[k].pid, d->proc[k].name);
	}
	return 0;
}

/* Reads the adjustments that all processes have for one set, and appends them to its record. */
static int read_object(struct dump *d, uint32_t object, struct err *e)
{
	AUTO(buf_done) struct buf data = BUF_INIT(MEM_META_MAX), undos = BUF_INIT(MEM_META_MAX);
	struct mem_object *rec = image_at(&d->image, MEM_S_OBJECT, object);
	struct mem_sysv s;
	int r;

	if (rec->kind != MEM_OBJ_SYSV)
		return 0;
	r = buf_add(&data, d->image.section[MEM_S_BYTES].data + rec->data.off, rec->data.len);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "semaphores");
	memcpy(&s, data.data, sizeof(s));
	if (s.kind != MEM_SYSV_SEM)
		return 0;
	for (size_t i = 1; r >= 0 && i < d->n_procs; i++) {
		struct probe b = { .p = &d->proc[i], .s = &s, .sem = (const void *)(data.data + sizeof(s)) };

		r = d->proc[i].zombie ? 0 : has_list(&d->proc[i], e);
		if (r > 0)
			r = read_set(&b, &undos, e);
	}
	if (r < 0 || !undos.len)
		return r < 0 ? r : 0;
	s.undos = (uint32_t)(undos.len / sizeof(struct mem_undo));
	memcpy(data.data, &s, sizeof(s));
	r = buf_add(&data, undos.data, undos.len);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "semaphores") :
		       image_bytes(&d->image, data.data, data.len, &rec->data, e);
}

int sysv_undo(struct dump *d, struct err *e)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && d->sysv && i < image_count(&d->image, MEM_S_OBJECT); i++)
		r = read_object(d, i, e);
	return r;
}
