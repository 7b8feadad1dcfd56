/*
 * Writes the table of execs that the host reads (proto/table.h). Without KEEP there is no table, and this does
 * nothing.
 */
#include "agent/agent.h"
#include "base/base.h"
#include "proto/memory.h"
#include "proto/table.h"

#include <sys/mman.h>

static_assert(AGENT_EXECS_MAX == TABLE_EXECS && AGENT_WORKERS_MAX == TABLE_WORKERS && MEM_WARM + 1 == TABLE_FDS,
	      "one place each");

int table_open(struct agent *a, int fd)
{
	struct table *t;
	int r = table_is(fd);

	if (r < 0)
		return r;
	t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (t == MAP_FAILED)
		return -errno;
	/* Children do not get this mapping: file workers read hostile bytes. */
	if (madvise(t, sizeof(*t), MADV_DONTFORK) < 0) {
		r = -errno;
		munmap(t, sizeof(*t));
		return r;
	}
	a->table = t;
	t->busy = 1; /* the agent is serving a frame now */
	t->magic = TABLE_MAGIC;
	for (size_t i = 0; i < a->top; i++)
		if (a->execs[i].used)
			table_put(a, &a->execs[i]);
	for (size_t i = 0; i < AGENT_WORKERS_MAX; i++)
		table_put_worker(a, i);
	return 0;
}

/* If the agent is frozen in between, the entry must not look complete, so the order of the stores matters. */
static void turn(struct table *t, uint32_t odd)
{
	if (t && (t->busy & 1) != odd)
		__atomic_store_n(&t->busy, t->busy + 1, __ATOMIC_SEQ_CST);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void table_busy(struct agent *a)
{
	turn(a->table, 1);
}

void table_idle(struct agent *a)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	turn(a->table, 0);
}

void table_put(struct agent *a, const struct agent_exec *x)
{
	struct table_exec *to;

	if (!a->table)
		return;
	to = &a->table->exec[x - a->execs];
	if (!x->used) {
		memset(to, 0, sizeof(*to));
		return;
	}
	*to = (struct table_exec){
		.id = x->id,
		.pid = (uint32_t)x->pid,
		.flags = TABLE_USED | (x->keep ? TABLE_KEEP : 0) | (x->tty ? TABLE_TTY : 0) |
			 (x->with_stdin ? TABLE_STDIN : 0) | (x->pid ? 0 : TABLE_ENDED) | (x->warmed ? TABLE_WARM : 0) |
			 (x->warm >= 0 ? TABLE_WARM_HOST : 0),
		.fd = { -1, -1, -1, -1, -1 },
	};
	if (!x->keep)
		return;
	to->fd[MEM_WARM] = x->warm;
	if (x->tty) {
		to->fd[MEM_TTY] = x->fds[0];
	} else {
		to->fd[MEM_STDIN] = x->fds[2];
		to->fd[MEM_STDOUT] = x->fds[0];
		to->fd[MEM_STDERR] = x->fds[1];
	}
}

void table_put_worker(struct agent *a, size_t i)
{
	if (a->table)
		a->table->worker[i] = (uint32_t)a->workers[i];
}
