/* The progress of a task of cloche-vm-files, and whether it should be given up. */
#include "base/fd.h"
#include "vm/host/task.h"

void vm_pace_set(struct vm_pace *p, enum vm_step step, uint64_t bytes)
{
	const struct vm_task_msg m = { .kind = VM_TASK_PACE, .step = step, .bytes = bytes };

	if (p->report < 0 || (p->step == (int)step && p->bytes == bytes))
		return;
	p->step = step;
	p->bytes = bytes;
	fd_send_now(p->report, &m, sizeof(m), NULL, 0);
}

bool vm_pace_stopped(const struct vm_pace *p)
{
	return __atomic_load_n(p->stop, __ATOMIC_RELAXED);
}
