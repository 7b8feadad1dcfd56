/* Sets the priority of the calling thread. */
#include "engine/kernel_memory/quick.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

void kernel_quick(bool quick)
{
	const struct sched_param p = { .sched_priority = quick };

	/* musl has no sched_setscheduler. */
	if (syscall(SYS_sched_setscheduler, 0, (quick ? SCHED_FIFO : SCHED_OTHER) | SCHED_RESET_ON_FORK, &p) < 0)
		setpriority(PRIO_PROCESS, 0, -19);
}
