/* Writes a task of cloche-vm-files into a message, and reads it from one. */
#include "vm/host/task.h"
#include "base/base.h"

static void places(struct vm_work *x, int *ret[VM_TASK_PLACES])
{
	int *const all[VM_TASK_PLACES] = { &x->dir, &x->root, &x->usr,	  &x->meta,
					   &x->ram, &x->disk, &x->initrd, &x->folder };

	memcpy(ret, all, sizeof(all));
}

size_t vm_task_put(struct vm_work *x, enum vm_task_kind kind, struct vm_task_msg *m, int fds[static VM_TASK_FDS])
{
	int *at[VM_TASK_PLACES];
	size_t n = 0;

	*m = (struct vm_task_msg){ .kind = kind,
				   .task = x->task,
				   .memory = x->memory,
				   .size = x->size,
				   .inodes = x->inodes,
				   .result = x->result };
	m->flags = (x->template_wanted ? VM_TASK_WANTED : 0) | (x->found ? VM_TASK_FOUND : 0);
	m->err_what = err_what(&x->e);
	m->err_num = (uint64_t)x->e.errnum;
	memcpy(m->root_id, x->root_id, sizeof(m->root_id));
	memcpy(m->usr_id, x->usr_id, sizeof(m->usr_id));
	memcpy(m->kernel, x->kernel, sizeof(m->kernel));
	memcpy(m->initrd_sum, x->initrd_sum, sizeof(m->initrd_sum));
	memcpy(m->path, x->path, sizeof(m->path));
	memcpy(m->cache, x->cache, sizeof(m->cache));
	memcpy(m->name, x->name, sizeof(m->name));
	memcpy(m->part, x->part, sizeof(m->part));
	memcpy(m->msg, x->e.msg, sizeof(m->msg));
	memcpy(m->remedy, x->e.remedy, sizeof(m->remedy));
	places(x, at);
	for (unsigned i = kind == VM_TASK_DO ? 0 : 1; i < VM_TASK_PLACES; i++)
		if (*at[i] >= 0) {
			m->places |= 1U << i;
			fds[n++] = *at[i];
		}
	for (unsigned i = 0; kind == VM_TASK_DO && i < x->npages; i++)
		fds[n++] = x->pages[i];
	m->npages = kind == VM_TASK_DO ? x->npages : 0;
	return n;
}

/* Whether all texts are terminated, and all numbers within their enumerations. */
static bool is_whole(const struct vm_task_msg *m, enum vm_task_kind kind, size_t nfds)
{
	const char *const ends[] = { &m->path[sizeof(m->path) - 1], &m->cache[sizeof(m->cache) - 1],
				     &m->name[sizeof(m->name) - 1], &m->part[sizeof(m->part) - 1],
				     &m->msg[sizeof(m->msg) - 1],   &m->remedy[sizeof(m->remedy) - 1] };

	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		if (*ends[i])
			return false;
	return m->kind == kind && m->task <= VM_REMEMBER && m->err_what < UINT32_MAX &&
	       err_what_ok((unsigned)m->err_what) && m->npages <= SPEC_LAYERS && m->result <= 0 && m->result >= -4095 &&
	       !(m->places >> VM_TASK_PLACES) && (size_t)__builtin_popcountll(m->places) + m->npages == nfds;
}

int vm_task_take(struct vm_work *x, enum vm_task_kind kind, const struct vm_task_msg *m, const int *fds, size_t nfds)
{
	int *at[VM_TASK_PLACES];
	size_t n = 0;

	if (!is_whole(m, kind, nfds) || (kind == VM_TASK_DONE && (m->task != x->task || m->npages || m->places & 1)))
		return -EBADMSG;
	if (kind == VM_TASK_DO) {
		x->task = (enum vm_task)m->task;
		x->template_wanted = m->flags & VM_TASK_WANTED;
		x->memory = m->memory;
		x->size = m->size;
		x->inodes = m->inodes;
		memcpy(x->path, m->path, sizeof(x->path));
		memcpy(x->cache, m->cache, sizeof(x->cache));
		memcpy(x->name, m->name, sizeof(x->name));
		memcpy(x->part, m->part, sizeof(x->part));
	}
	x->found = m->flags & VM_TASK_FOUND;
	x->result = (int)m->result;
	err_set(&x->e, (unsigned)m->err_what, -(int)m->err_num, "%s", m->msg);
	memcpy(x->e.remedy, m->remedy, sizeof(x->e.remedy));
	memcpy(x->root_id, m->root_id, sizeof(x->root_id));
	memcpy(x->usr_id, m->usr_id, sizeof(x->usr_id));
	memcpy(x->kernel, m->kernel, sizeof(x->kernel));
	memcpy(x->initrd_sum, m->initrd_sum, sizeof(x->initrd_sum));
	places(x, at);
	for (unsigned i = kind == VM_TASK_DO ? 0 : 1; i < VM_TASK_PLACES; i++) {
		fd_close(*at[i]);
		*at[i] = m->places & 1U << i ? fds[n++] : -1;
	}
	for (unsigned i = 0; i < m->npages; i++)
		x->pages[i] = fds[n++];
	if (kind == VM_TASK_DO)
		x->npages = (unsigned)m->npages;
	return 0;
}
