/* Writes a task of cloche-vm-files into a message, and reads it from one. */
#include "vm/host/task.h"
#include "base/base.h"
#include "linux/spawn.h"

/* How many places there are in a message of @kind. */
static unsigned places(enum vm_task_kind kind)
{
	return kind == VM_TASK_DO ? VM_FILE_OF_WORK : VM_FILE_DIR;
}

size_t vm_task_put(struct vm_work *x, enum vm_task_kind kind, struct vm_task_msg *m, int fds[static VM_TASK_FDS])
{
	size_t n = 0;

	*m = (struct vm_task_msg){ .kind = kind, .task = x->task, .given = x->given, .made = x->made };
	for (unsigned i = 0; i < places(kind); i++)
		if (x->fd[i] >= 0) {
			m->places |= 1U << i;
			fds[n++] = x->fd[i];
		}
	for (unsigned i = 0; kind == VM_TASK_DO && i < x->npages; i++)
		fds[n++] = x->pages[i];
	m->npages = kind == VM_TASK_DO ? x->npages : 0;
	return n;
}

/* Whether all texts are terminated, and all numbers within their enumerations. */
static bool is_whole(struct vm_task_msg *m, enum vm_task_kind kind, size_t nfds)
{
	const struct vm_given *g = &m->given;
	const char *const ends[] = { &g->path[sizeof(g->path) - 1], &g->cache[sizeof(g->cache) - 1],
				     &g->name[sizeof(g->name) - 1], &g->part[sizeof(g->part) - 1] };

	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		if (*ends[i])
			return false;
	return m->kind == kind && m->task <= VM_REMEMBER && m->npages <= SPEC_LAYERS &&
	       spawn_answered(m->made.result, &m->made.e) && !(m->places >> places(kind)) &&
	       (size_t)__builtin_popcountll(m->places) + m->npages == nfds;
}

int vm_task_take(struct vm_work *x, enum vm_task_kind kind, struct vm_task_msg *m, const int *fds, size_t nfds)
{
	size_t n = 0;

	if (!is_whole(m, kind, nfds) || (kind == VM_TASK_DONE && (m->task != x->task || m->npages)))
		return -EBADMSG;
	if (kind == VM_TASK_DO) {
		x->task = (enum vm_task)m->task;
		x->given = m->given;
	}
	x->made = m->made;
	for (unsigned i = 0; i < places(kind); i++) {
		fd_close(x->fd[i]);
		x->fd[i] = m->places & 1U << i ? fds[n++] : -1;
	}
	for (unsigned i = 0; i < m->npages; i++)
		x->pages[i] = fds[n++];
	if (kind == VM_TASK_DO)
		x->npages = (unsigned)m->npages;
	return 0;
}
