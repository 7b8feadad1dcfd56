/* Sessions, groups, parents, execs: the records of processes. */
#include "memory/dump.h"
#include "base/base.h"
#include "memory/object.h"
#include "proto/memory_plan.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool is_there(const struct dump *d, uint32_t pid)
{
	for (size_t i = 1; i < d->n_procs; i++)
		if (d->proc[i].pid == pid && d->proc[i].index != MEM_NONE)
			return true;
	for (uint32_t i = 0; i < d->placeholders; i++)
		if (((const struct mem_proc *)(const void *)d->image.section[MEM_S_PROC].data)[i].pid == pid)
			return true;
	return false;
}

/* The id of a group or session whose leader is gone; @sid is its session. */
static int placeholder(struct dump *d, uint32_t pid, uint32_t sid, struct err *e)
{
	struct mem_proc rec = {
		.state = MEM_PLACEHOLDER,
		.parent = MEM_NONE,
		.pid = pid,
		.pgid = pid,
		.sid = sid,
		.tty = MEM_NONE,
		.exec = MEM_NONE,
		.exe = MEM_NONE,
		.cwd = MEM_NONE,
		.root = MEM_NONE,
		.loginuid = MEM_NONE,
		.exit_signal = SIGCHLD,
	};
	int r;

	if (!pid || is_there(d, pid))
		return 0;
	if (d->placeholders + d->n_procs > MEM_PROCS_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "more than %u processes", MEM_PROCS_MAX);
	r = image_add(&d->image, MEM_S_PROC, &rec, NULL, e);
	d->placeholders += r == 0;
	return r;
}

static int placeholders(struct dump *d, struct err *e)
{
	int r = 0;

	for (size_t i = 1; r == 0 && i < d->n_procs; i++)
		if (d->proc[i].index != MEM_NONE)
			r = placeholder(d, d->proc[i].rec.sid, d->proc[i].rec.sid, e);
	for (size_t i = 1; r == 0 && i < d->n_procs; i++)
		if (d->proc[i].index != MEM_NONE)
			r = placeholder(d, d->proc[i].rec.pgid, d->proc[i].rec.sid, e);
	return r;
}

static uint32_t exec_record(struct dump *d, uint32_t pid)
{
	for (uint32_t i = 0; i < image_count(&d->image, MEM_S_EXEC); i++) {
		const struct mem_exec *x = image_at(&d->image, MEM_S_EXEC, i);

		if (x->pid == pid)
			return i;
	}
	return MEM_NONE;
}

static bool same_group(const struct proc *a, const struct proc *b)
{
	AUTO_FREE char *x = NULL, *y = NULL;

	return proc_text(a->dir, "cgroup", DUMP_TEXT_MAX, &x, NULL) == 0 &&
	       proc_text(b->dir, "cgroup", DUMP_TEXT_MAX, &y, NULL) == 0 && !strcmp(x, y);
}

/* Finds the exec of a process: that of its parents, or if they are gone, that of its control group. */
static uint32_t exec_of(struct dump *d, const struct proc *p)
{
	for (const struct proc *up = p; up != d->proc; up = &d->proc[up->parent]) {
		uint32_t x = exec_record(d, up->pid);

		if (x != MEM_NONE)
			return x;
	}
	if (same_group(p, &d->proc[0]))
		return MEM_NONE;
	for (size_t i = 1; i < d->n_procs; i++) {
		uint32_t x = exec_record(d, d->proc[i].pid);

		if (x != MEM_NONE && same_group(p, &d->proc[i]))
			return x;
	}
	return MEM_NONE;
}

/* The number of its controlling terminal. 1, or 0: it has none. */
static int terminal_number(const struct proc *p, uint32_t *ret, struct err *e)
{
	AUTO_FREE char *text = NULL;
	int r = proc_text(p->dir, "stat", DUMP_TEXT_MAX, &text, NULL), tty = 0;
	const char *at = r < 0 ? NULL : strrchr(text, ')');

	if (!at || sscanf(at, ") %*c %*d %*d %*d %d", &tty) != 1)
		return err_set(e, ERR_INTERNAL, -EINVAL, "stat is invalid");
	*ret = ((unsigned)tty & 0xff) | ((unsigned)tty >> 12 & 0xfff00);
	return tty != 0;
}

int tree_terminals(struct dump *d, struct err *e)
{
	uint32_t pts;
	int r = 0;

	for (size_t i = 1; r >= 0 && i < d->n_procs; i++) {
		r = d->proc[i].zombie ? 0 : terminal_number(&d->proc[i], &pts, e);
		if (r == 1)
			r = object_terminal(d, pts, e);
	}
	return r;
}

/* The slave of its controlling terminal, as an object. */
static int terminal(struct dump *d, struct proc *p, struct err *e)
{
	uint32_t pts;
	int r = terminal_number(p, &pts, e);

	p->rec.tty = MEM_NONE;
	if (r <= 0)
		return r;
	for (size_t i = 0; i < d->n_objects; i++) {
		const struct mem_object *o = &d->object[i].rec;
		const struct external *x = external_tty(d, pts);

		if ((o->kind == MEM_OBJ_PTS && o->a == pts) ||
		    (x && o->kind == MEM_OBJ_EXTERNAL && o->b == MEM_TTY && o->a == x->id)) {
			p->rec.tty = (uint32_t)i;
			return 0;
		}
	}
	return proc_refuse(p, e, "has a terminal that no process has open");
}

bool tree_lives(const struct dump *d, uint32_t pid)
{
	for (size_t i = 1; i < d->n_procs; i++)
		if (d->proc[i].pid == pid)
			return !d->proc[i].zombie && !d->proc[i].parent;
	return false;
}

static int exec_queues(struct dump *d, struct mem_exec *rec, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < d->n_external; i++) {
		const struct external *x = &d->external[i];

		if (x->id != rec->id)
			continue;
		if (x->role == MEM_TTY) {
			struct winsize ws = { 0 };

			rec->tty = x->pts;
			if (ioctl(x->fd, TIOCGWINSZ, &ws) == 0) {
				rec->rows = ws.ws_row;
				rec->cols = ws.ws_col;
			}
		} else if (x->role <= MEM_STDERR) {
			int size = fcntl(x->fd, F_GETPIPE_SZ);

			rec->pipe_flags[x->role] = size > 0 ? (uint32_t)size : 0;
			r = pipe_peek(d, x->fd, &rec->queued[x->role], e);
		}
	}
	return r;
}

static int execs(struct dump *d, struct err *e)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < TABLE_EXECS; i++) {
		const struct table_exec *t = &d->table.exec[i];
		struct mem_exec rec = { .id = t->id, .pid = t->pid, .tty = MEM_NONE };

		/* An exec without KEEP is not recorded: no client could take it up again. */
		if (!(t->flags & TABLE_USED) || !(t->flags & TABLE_KEEP) || t->flags & TABLE_ENDED ||
		    !tree_lives(d, t->pid))
			continue;
		rec.flags = (t->flags & TABLE_TTY ? MEM_EXEC_TTY : 0) | (t->flags & TABLE_STDIN ? MEM_EXEC_STDIN : 0) |
			    (t->flags & (TABLE_WARM | TABLE_WARM_HOST) ? MEM_EXEC_WARM : 0);
		r = exec_queues(d, &rec, e);
		if (r == 0)
			r = image_add(&d->image, MEM_S_EXEC, &rec, NULL, e);
	}
	return r;
}

static int by_id(const void *a, const void *b)
{
	const struct mem_exec *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static int add_threads(struct dump *d, struct proc *p, struct err *e)
{
	int r = 0;

	p->rec.thread = (struct mem_range){ image_count(&d->image, MEM_S_THREAD), (uint32_t)p->n_threads };
	for (size_t i = 0; r == 0 && i < p->n_threads; i++)
		r = image_add(&d->image, MEM_S_THREAD, &p->thread[i].rec, NULL, e);
	return r;
}

static int read_proc(struct dump *d, struct proc *p, struct err *e)
{
	int r;

	p->rec.state = p->zombie ? MEM_ZOMBIE : MEM_ALIVE;
	p->rec.pid = p->pid;
	p->rec.parent = p->parent ? d->proc[p->parent].index : MEM_NONE;
	p->rec.exec = exec_of(d, p);
	p->rec.tty = MEM_NONE;
	if (p->zombie) {
		char comm[64];
		ssize_t n = fd_get(p->dir, "comm", comm, sizeof(comm));

		p->rec.exe = p->rec.cwd = p->rec.root = MEM_NONE;
		n -= n > 0 && comm[n - 1] == '\n';
		memcpy(p->rec.comm, comm, n < 0 ? 0 : n < 15 ? (size_t)n : 15);
		return 0;
	}
	memcpy(p->rec.comm, p->thread[0].rec.comm, sizeof(p->rec.comm));
	r = terminal(d, p, e);
	if (r == 0)
		r = thread_pending(d, p->host, true, &p->rec.pending, e);
	for (size_t i = 0; r == 0 && i < p->n_threads; i++)
		r = thread_pending(d, p->thread[i].host, false, &p->thread[i].rec.pending, e);
	if (r == 0)
		timer_settle(d, p);
	return r == 0 ? add_threads(d, p, e) : r;
}

/* Refuses processes that the agent will not be able to start (proto/memory_plan.h). */
static int check_plan(const struct dump *d, struct err *e)
{
	const uint32_t n = d->placeholders + (uint32_t)d->n_procs, threads = image_count(&d->image, MEM_S_THREAD);
	AUTO_FREE struct mem_proc *all = calloc(n, sizeof(*all));
	AUTO_FREE struct mem_plan *plan = calloc(n, sizeof(*plan));
	uint32_t have = d->placeholders;

	if (!all || !plan)
		return err_sys(e, ERR_INTERNAL, -ENOMEM, "plan");
	if (have)
		memcpy(all, d->image.section[MEM_S_PROC].data, have * sizeof(*all));
	for (size_t i = 1; i < d->n_procs; i++)
		if (d->proc[i].index != MEM_NONE)
			all[have++] = d->proc[i].rec;
	return mem_plan(all, have, (const void *)d->image.section[MEM_S_THREAD].data, threads, plan, e);
}

int tree_read(struct dump *d, struct err *e)
{
	struct buf *x = &d->image.section[MEM_S_EXEC];
	uint32_t at = 0;
	int r = execs(d, e);

	if (x->len)
		qsort(x->data, x->len / sizeof(struct mem_exec), sizeof(struct mem_exec), by_id);
	/* A process that has ended, and that only the agent has to reap, gets no record. */
	for (size_t i = 1; i < d->n_procs; i++)
		d->proc[i].index = d->proc[i].gone || (d->proc[i].zombie && !d->proc[i].parent) ? MEM_NONE : 0;
	if (r == 0)
		r = placeholders(d, e);
	for (size_t i = 1; i < d->n_procs; i++)
		if (d->proc[i].index != MEM_NONE)
			d->proc[i].index = d->placeholders + at++;
	for (size_t i = 1; r == 0 && i < d->n_procs; i++)
		if (d->proc[i].index != MEM_NONE)
			r = read_proc(d, &d->proc[i], e);
	return r == 0 ? check_plan(d, e) : r;
}

int tree_records(struct dump *d, struct err *e)
{
	int r = 0;

	for (size_t i = 1; r == 0 && i < d->n_procs; i++)
		if (d->proc[i].index != MEM_NONE)
			r = image_add(&d->image, MEM_S_PROC, &d->proc[i].rec, NULL, e);
	return r;
}
