/*
 * What a process becomes, as a list of system calls that blob.c makes from a place that is free in our memory and in
 * the one that replaces it. memory.c adds those that make and fill its mappings.
 */
#include "agent/restore/build.h"
#include "agent/restore/stash.h"
#include "base/base.h"
#include "base/score.h"
#include "base/sys.h"
#include "linux/caps.h"
#include "proto/nofile.h"

#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOWEST 0x1000000ULL /* lowest address for the code and data of the restore */
#define GUARD (16ULL * MIB) /* distance below a stack, which may still grow */
#ifdef __aarch64__
#define TASK_END (1ULL << 48)
#else
#define TASK_END 0x7ffffffff000ULL
#endif
#define STACK 4096U
#ifndef PR_SET_MM
#define PR_SET_MM 35
#endif
#define SET_MM_MAP 14
#define TIMER_RESTORE_IDS 77
#define RLIMITS 16
#define GUARD_INSTALL 102 /* MADV_GUARD_INSTALL */
#define RESET_ON_FORK 0x40000000U

/* ---- the old memory goes ---------------------------------------------------------------------------------------- */

static uint64_t vdso_len(const struct restore *r)
{
	const unsigned last = r->n_vdso - 1;

	return r->vdso[last].start + r->vdso[last].len - r->vdso[0].start;
}

static void unmap(struct build *b, uint64_t from, uint64_t to)
{
	if (from < to)
		add(b, RESTORE_UNMAP, BLOB_OK, SYS_munmap, from, to - from, 0, 0, 0, 0);
}

static void unmap_all(struct build *b)
{
	const struct stash *s = b->r->stash;
	const struct {
		uint64_t from, to;
	} keep[] = {
		{ b->start, b->start + b->len },
		{ b->r->vdso[0].start, b->r->vdso[0].start + vdso_len(b->r) },
		{ s ? s->start : 0, s ? s->start + s->len : 0 },
	};
	uint64_t at = 0;

	while (at < TASK_END) {
		uint64_t from = TASK_END, to = TASK_END;

		for (size_t i = 0; i < ARRAY_LEN(keep); i++)
			if (keep[i].to > at && keep[i].from < from) {
				from = keep[i].from;
				to = keep[i].to;
			}
		unmap(b, at, from);
		at = to;
	}
}

/* Moves the vdso and the mappings that it reads, in one step or two for each. */
static void move_vdso(struct build *b)
{
	const struct restore *r = b->r;
	uint64_t to = 0, from = r->vdso[0].start, len = vdso_len(r), hop = b->start + b->len;
	unsigned seen = 0;

	for (uint32_t v = 0; v < b->p->vma.n; v++) {
		const struct mem_vma *m = &r->m.vma[b->p->vma.first + v];

		if (m->kind != MEM_VMA_VDSO && m->kind != MEM_VMA_VVAR)
			continue;
		if (!seen)
			to = m->start;
		if (seen == r->n_vdso || m->end - m->start != r->vdso[seen].len ||
		    m->start - to != r->vdso[seen].start - from)
			restore_die(r, b->proc, RESTORE_VDSO, -ESTALE, seen);
		seen++;
	}
	/* A process without a vdso has unmapped it. */
	if (seen && seen != r->n_vdso)
		restore_die(r, b->proc, RESTORE_VDSO, -ESTALE, seen);
	if (!seen || to == from) {
		if (!seen)
			unmap(b, from, from + len);
		return;
	}
	for (unsigned step = to < from + len && from < to + len ? 0 : 1; step < 2; step++) {
		uint64_t next = step ? to : hop;

		for (unsigned i = 0; i < r->n_vdso; i++) {
			uint64_t rel = r->vdso[i].start - r->vdso[0].start;

			add(b, RESTORE_VDSO, BLOB_FIFTH, SYS_mremap, from + rel, r->vdso[i].len, r->vdso[i].len,
			    MREMAP_MAYMOVE | MREMAP_FIXED, next + rel, 0);
		}
		from = next;
	}
}

/* Guards are set after all memory is filled. */
static void set_guards(struct build *b)
{
	const uint8_t *bytes = restore_bytes(b->r, b->p->guards);

	for (uint64_t at = 0; at < b->p->guards.len; at += 16) {
		uint64_t place[2];

		memcpy(place, bytes + at, sizeof(place));
		add(b, RESTORE_MAP, BLOB_OK, SYS_madvise, place[0], place[1] - place[0], GUARD_INSTALL, 0, 0, 0);
	}
}

/* ---- what belongs to the process, not to its memory ------------------------------------------------------------- */

static void set_mm(struct build *b)
{
	struct {
		uint64_t value[11];
		uint64_t auxv;
		uint32_t auxv_size, exe_fd;
	} m;
	uint64_t at;

	memcpy(m.value, b->p->mm, sizeof(m.value));
	m.auxv = b->p->auxv.len ? copy(b, restore_bytes(b->r, b->p->auxv), b->p->auxv.len) : 0;
	m.auxv_size = (uint32_t)b->p->auxv.len;
	m.exe_fd = (uint32_t)b->r->file[b->p->exe];
	at = copy(b, &m, sizeof(m));
	add(b, RESTORE_MM, BLOB_OK, SYS_prctl, PR_SET_MM, SET_MM_MAP, at, sizeof(m), 0, b->r->agent->cookie);
}

static void set_actions(struct build *b)
{
	const struct mem_action *a = &b->r->m.action[b->p->action.first];

	for (uint64_t sig = 1; sig <= 64; sig++, a++)
		if (sig != SIGKILL && sig != SIGSTOP && (a->handler || a->flags))
			add(b, RESTORE_SIGNALS, BLOB_OK, SYS_rt_sigaction, sig, copy(b, a, sizeof(*a)), 0, 8, 0, 0);
}

static void queue(struct build *b, struct mem_span s, uint32_t tid)
{
	const uint8_t *info = restore_bytes(b->r, s);

	for (uint64_t at = 0; at < s.len; at += 128) {
		uint64_t copied = copy(b, info + at, 128);
		uint32_t sig;

		memcpy(&sig, info + at, 4);
		if (sig == SIGSTOP)
			continue; /* it cannot be blocked: the agent sends it again (trace.c) */
		if (tid)
			add(b, RESTORE_SIGNALS, BLOB_OK, SYS_rt_tgsigqueueinfo, b->p->pid, tid, sig, copied, 0, 0);
		else
			add(b, RESTORE_SIGNALS, BLOB_OK, SYS_rt_sigqueueinfo, b->p->pid, sig, copied, 0, 0, 0);
	}
}

static void set_timers(struct build *b)
{
	for (uint32_t i = 0; i < b->p->timer.n; i++) {
		const struct mem_timer *t = &b->r->m.timer[b->p->timer.first + i];
		struct {
			uint64_t value;
			int32_t signo, notify, tid;
			int32_t zero[11];
		} event = { .value = t->value,
			    .signo = (int32_t)t->signo,
			    .notify = (int32_t)t->notify,
			    .tid = (int32_t)t->tid };
		uint64_t spec[4] = { t->interval_s, t->interval_ns, t->value_s, t->value_ns };
		uint64_t id = copy(b, &t->id, 4);

		if (!i)
			add(b, RESTORE_TIMER, BLOB_OK, SYS_prctl, TIMER_RESTORE_IDS, 1, 0, 0, 0, 0);
		add(b, RESTORE_TIMER, BLOB_OK, SYS_timer_create, t->clock, copy(b, &event, sizeof(event)), id, 0, 0, 0);
		add(b, RESTORE_TIMER, BLOB_SAME, 0, id, t->id, 0, 0, 0, 0);
		add(b, RESTORE_TIMER, BLOB_OK, SYS_timer_settime, t->id, 0, copy(b, spec, sizeof(spec)), 0, 0, 0);
	}
	if (b->p->timer.n)
		add(b, RESTORE_TIMER, BLOB_OK, SYS_prctl, TIMER_RESTORE_IDS, 0, 0, 0, 0, 0);
	for (uint64_t i = 0; i < 3; i++)
		if (b->p->itimer[i][2] || b->p->itimer[i][3])
			add(b, RESTORE_TIMER, BLOB_OK, SYS_setitimer, i, copy(b, b->p->itimer[i], 32), 0, 0, 0, 0);
}

/* Limits are never higher than those of an exec in this sandbox. */
static void set_limits(struct build *b)
{
	const struct frame_restore *f = b->r->frame;

	for (int i = 0; i < RLIMITS; i++) {
		uint64_t want[2] = { b->p->rlimit[i][0], b->p->rlimit[i][1] };
		struct rlimit now;
		uint64_t top;

		if (getrlimit(i, &now) < 0)
			restore_die(b->r, b->proc, RESTORE_LIMITS, -errno, (uint32_t)i);
		top = now.rlim_max;
		if (i == RLIMIT_NOFILE && f->nofile && nofile_hard(f->nofile) < top)
			top = nofile_hard(f->nofile);
		if (i == RLIMIT_CPU && f->cpu_seconds && f->cpu_seconds + 2 < top)
			top = f->cpu_seconds + 2;
		if (want[1] > top)
			want[1] = top;
		if (want[0] > want[1])
			want[0] = want[1];
		if (want[0] == now.rlim_cur && want[1] == now.rlim_max)
			continue;
		add(b, RESTORE_LIMITS, BLOB_OK, SYS_prlimit64, 0, (uint64_t)i, copy(b, want, sizeof(want)), 0, 0, 0);
	}
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

/* Fewer processors than the sandbox has were its own choice, and stay so where they exist; else it is pinned as an exec is. */
static void set_cpus(struct build *b, const struct mem_thread *t)
{
	uint64_t now[MEM_CPU_WORDS] = { 0 }, want[MEM_CPU_WORDS];
	long n = syscall(SYS_sched_getaffinity, 0, sizeof(now), now);

	if (n > 0 && mem_cpus_chosen(t->cpus, b->r->agent->cpu_mask ? b->r->agent->cpus : NULL, now, want))
		add(b, RESTORE_THREAD_SET, BLOB_ANY, SYS_sched_setaffinity, 0, sizeof(want),
		    copy(b, want, sizeof(want)), 0, 0, 0);
}

static void set_settings(struct build *b, const struct mem_thread *t)
{
	for (uint32_t i = 0; i < mem_settings_n; i++) {
		const struct mem_setting *s = &mem_settings[i];
		uint64_t a[3] = { s->set[0], s->set[1], s->set[2] };

		if (!s->set_nr ||
		    (s->pointer < 0 && (uint64_t)syscall(s->get_nr, s->get[0], s->get[1]) == t->setting[i]))
			continue;
		if (s->pointer >= 0 && t->setting[i] == s->normal)
			continue;
		a[s->place] = t->setting[i];
		add(b, RESTORE_THREAD_SET, BLOB_OK, s->set_nr, a[0], a[1], a[2], 0, 0, 0);
	}
}

static void set_thread(struct build *b, const struct mem_thread *t)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };
	uint64_t caps = restore_caps(b->r, b->p) & t->caps[1], effective = caps & t->caps[2];
	uint64_t inheritable = restore_inheritable(b->r, b->p);
	uint64_t on_its_own = 1ULL << 31; /* SS_AUTODISARM */

	add(b, RESTORE_THREAD_SET, BLOB_OK, SYS_prctl, PR_SET_NAME, copy(b, t->comm, sizeof(t->comm)), 0, 0, 0, 0);
	add(b, RESTORE_THREAD_SET, BLOB_OK, SYS_set_tid_address, t->tid_address, 0, 0, 0, 0, 0);
	if (t->robust_list)
		add(b, RESTORE_THREAD_SET, BLOB_OK, SYS_set_robust_list, t->robust_list, t->robust_len, 0, 0, 0, 0);
	if (t->rseq)
		add(b, RESTORE_THREAD_SET, BLOB_OK, SYS_rseq, t->rseq, t->rseq_len, 0, t->rseq_sig, 0, 0);
	if (t->altstack[0] && !(t->altstack[1] & SS_DISABLE)) {
		uint64_t ss[3] = { t->altstack[0], t->altstack[1] & on_its_own, t->altstack[2] };

		add(b, RESTORE_THREAD_SET, BLOB_OK, SYS_sigaltstack, copy(b, ss, sizeof(ss)), 0, 0, 0, 0, 0);
	}
	set_cpus(b, t);
	if (t->sched_policy || t->sched_priority || t->sched_reset)
		add(b, RESTORE_THREAD_SET, BLOB_OK, SYS_sched_setscheduler, 0,
		    t->sched_policy | (t->sched_reset ? RESET_ON_FORK : 0), copy(b, &t->sched_priority, 4), 0, 0, 0);
	if (t->nice)
		add(b, RESTORE_THREAD_SET, BLOB_OK, SYS_setpriority, PRIO_PROCESS, 0, (uint64_t)(int64_t)t->nice, 0, 0,
		    0);
	queue(b, t->pending, t->tid);
	set_settings(b, t);
	for (unsigned i = 0; i < 2; i++)
		data[i] = (struct __user_cap_data_struct){ (uint32_t)(effective >> (32 * i)),
							   (uint32_t)(caps >> (32 * i)),
							   (uint32_t)((inheritable & t->caps[0]) >> (32 * i)) };
	add(b, RESTORE_CAPS, BLOB_OK, SYS_capset, copy(b, &head, sizeof(head)), copy(b, data, sizeof(data)), 0, 0, 0,
	    0);
}

/* The filter comes last: after it, the process only waits. */
static void set_filter(struct build *b)
{
	struct {
		unsigned short len;
		uint64_t at;
	} f = { (unsigned short)b->r->filter_len, 0 };

	if (!b->r->filter_len)
		return;
	f.at = copy(b, b->r->filter, b->r->filter_len * sizeof(struct sock_filter));
	add(b, RESTORE_FILTER, BLOB_OK, SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, copy(b, &f, sizeof(f)), 0, 0, 0);
}

static uint64_t thread_ops(const struct mem_thread *t)
{
	return 16 + MEM_SETTINGS_MAX + t->pending.len / 128;
}

static uint64_t list(struct build *b, const struct blob_op *op, uint64_t n)
{
	struct blob_list l = { b->r->shared, op, n, b->proc, 0 };

	return copy(b, &l, sizeof(l));
}

/* Writes the list of calls of a thread, and adds the call that starts it to the process's list. */
static void start_thread(struct build *b, const struct mem_thread *t)
{
	struct build own = *b;
	struct clone_args c = {
		.flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM,
		.stack_size = STACK,
		.set_tid_size = 1,
	};
	uint64_t l;

	own.max_ops = thread_ops(t);
	own.op = room(&own, own.max_ops * sizeof(struct blob_op));
	own.n_ops = 0;
	set_thread(&own, t);
	set_filter(&own);
	l = list(&own, own.op, own.n_ops);
	c.stack = (uint64_t)(uintptr_t)room(&own, STACK);
	c.set_tid = copy(&own, &t->tid, 4);
	b->at = own.at;
	add(b, RESTORE_THREAD, BLOB_SPAWN, SYS_clone3, copy(b, &c, sizeof(c)), sizeof(c), l, 0, 0, b->r->agent->cookie);
}

/* ---- all of it -------------------------------------------------------------------------------------------------- */

static uint64_t pages_up(uint64_t n)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return (n + page - 1) & ~(page - 1);
}

/* The number of calls of the first thread, at most. */
static uint64_t count_ops(const struct restore *r, const struct mem_proc *p)
{
	uint64_t n = 256 + 2 * MEM_PKEYS + p->vma.n + 8 * RESTORE_VDSO_MAX + 4ULL * p->timer.n + p->pending.len / 128 +
		     p->thread.n + r->m.n[MEM_S_LOCK] + p->guards.len / 16;

	return n + restore_memory_ops(r, p) + thread_ops(&r->m.thread[p->thread.first]);
}

/* Bytes that the calls and their data need. */
static uint64_t count_bytes(const struct restore *r, const struct mem_proc *p, uint64_t ops)
{
	uint64_t filter = r->filter_len * sizeof(struct sock_filter) + 64;
	uint64_t n = ops * sizeof(struct blob_op) + 64 * 48 + RLIMITS * 16 + p->auxv.len + p->pending.len +
		     p->timer.n * 160ULL + r->m.n[MEM_S_LOCK] * 48ULL + STACK + filter + 4096;

	for (uint32_t t = 0; t < p->thread.n; t++) {
		const struct mem_thread *x = &r->m.thread[p->thread.first + t];

		n += thread_ops(x) * sizeof(struct blob_op) + STACK + filter + x->pending.len + 1024;
	}
	return n + restore_memory_bytes(r, p);
}

/* Bytes behind the restore's own place: used to move the vdso, and later for the window. */
static uint64_t behind(const struct restore *r)
{
	return vdso_len(r) > RESTORE_WINDOW ? vdso_len(r) : RESTORE_WINDOW;
}

/* Finds an address range that neither the agent's nor the process's memory uses, with room behind it. */
static uint64_t find_place(const struct restore *r, const struct mem_proc *p, uint64_t len)
{
	uint64_t from = LOWEST, need = len + behind(r) + 2 * GUARD;

	for (uint32_t v = 0; v <= p->vma.n; v++) {
		const struct mem_vma *m = v < p->vma.n ? &r->m.vma[p->vma.first + v] : NULL;
		uint64_t to = m ? m->start : TASK_END;

		for (uint64_t at = from + GUARD; to > from && to - from > need && at + need - GUARD < to;
		     at += 64 * GUARD) {
			uint64_t all = len + behind(r);
			void *got = mmap((void *)(uintptr_t)at, all, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);

			if (got == (void *)(uintptr_t)at) {
				munmap((void *)(uintptr_t)(at + len), all - len);
				return at;
			}
			if (got != MAP_FAILED)
				munmap(got, all);
		}
		if (m && m->end > from)
			from = m->end;
	}
	return 0;
}

static _Noreturn void jump(uint64_t code, uint64_t stack, uint64_t list_at)
{
#if defined(__x86_64__)
	__asm__ volatile("mov %0, %%rsp\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %2, %%rdi\n\t"
			 "call *%1"
			 :
			 : "r"(stack), "r"(code), "r"(list_at)
			 : "memory", "rdi");
#else
	__asm__ volatile("mov sp, %0\n\t"
			 "mov x0, %2\n\t"
			 "blr %1"
			 :
			 : "r"(stack), "r"(code), "r"(list_at)
			 : "memory", "x0", "x30");
#endif
	__builtin_unreachable();
}

/* A file of our own below /proc: only here is it ours, and the lowest free number is what opening it gives. */
static void write_own(struct build *b, const char *path, const char *text)
{
	const uint64_t len = strlen(text);
	uint64_t fd = 0;

	for (uint32_t i = 0; i < b->p->fd.n && b->r->m.fd[b->p->fd.first + i].num == fd; i++)
		fd++;
	add(b, RESTORE_SETTINGS, BLOB_OK, SYS_openat, (uint64_t)AT_FDCWD, copy(b, path, strlen(path) + 1),
	    O_WRONLY | O_CLOEXEC, 0, 0, 0);
	add(b, RESTORE_SETTINGS, BLOB_OK, SYS_write, fd, copy(b, text, len), len, 0, 0, 0);
	add(b, RESTORE_SETTINGS, BLOB_OK, SYS_close, fd, 0, 0, 0, 0, 0);
}

/* POSIX locks are taken after the last descriptor was closed, since closing one would drop them. */
static void set_locks(struct build *b)
{
	for (uint32_t i = 0; i < b->r->m.n[MEM_S_LOCK]; i++) {
		const struct mem_lock *k = &b->r->m.lock[i];
		const struct flock range = restore_flock(k);

		if (k->kind == MEM_LOCK_POSIX && k->pid == b->p->pid)
			add(b, RESTORE_LOCK, BLOB_OK, SYS_fcntl, restore_number(b->r, b->p, k->object), F_SETLK,
			    copy(b, &range, sizeof(range)), 0, 0, 0);
	}
}

static void write_owns(struct build *b)
{
	char text[16];

	/* Less than an exec has only where the kernel let its source set that, too: where the warden could not set the least. */
	snprintf(text, sizeof(text), "%d", (int)b->p->oom_score_adj);
	if ((int32_t)b->p->oom_score_adj != SCORE_SANDBOX)
		write_own(b, "/proc/self/oom_score_adj", text);
	snprintf(text, sizeof(text), "%u", b->p->loginuid);
	if (b->p->loginuid != MEM_NONE)
		write_own(b, "/proc/self/loginuid", text);
}

/* Lower keys are given first, so all are asked for up to the highest, and those that it did not have are given back. */
static void take_keys(struct build *b)
{
	for (uint32_t key = 1; key < MEM_PKEYS && b->p->pkeys >> key; key++)
		add(b, RESTORE_MAP, BLOB_FIFTH, SYS_pkey_alloc, 0, 0, 0, 0, key, 0);
	for (uint32_t key = 1; key < MEM_PKEYS && b->p->pkeys >> key; key++)
		if (!(b->p->pkeys >> key & 1))
			add(b, RESTORE_MAP, BLOB_OK, SYS_pkey_free, key, 0, 0, 0, 0, 0);
}

static void set_keys(struct build *b)
{
	for (uint32_t v = 0; v < b->p->vma.n; v++) {
		const struct mem_vma *m = &b->r->m.vma[b->p->vma.first + v];
		const uint32_t key = m->flags >> MEM_VMA_KEY_SHIFT;

		if (key)
			add(b, RESTORE_MAP, BLOB_OK, SYS_pkey_mprotect, m->start, m->end - m->start, m->prot, key, 0,
			    0);
	}
}

static void build_list(struct build *b)
{
	const struct restore *r = b->r;
	const struct mem_proc *p = b->p;

	unmap_all(b);
	move_vdso(b);
	take_keys(b);
	restore_memory(b);
	set_guards(b);
	set_keys(b);
	set_mm(b);
	set_actions(b);
	for (uint32_t t = 1; t < p->thread.n; t++)
		start_thread(b, &r->m.thread[p->thread.first + t]);
	set_timers(b);
	queue(b, p->pending, 0);
	if (!restore_shares(r, p))
		add(b, RESTORE_FDS, BLOB_OK, SYS_close_range, (uint64_t)r->base, UINT32_MAX, 0, 0, 0, 0);
	/* Until it has its registers; trace.c takes it back from one that was not. */
	add(b, RESTORE_SETTINGS, BLOB_OK, SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0, 0);
	write_owns(b);
	set_locks(b);
	set_limits(b);
	set_thread(b, &r->m.thread[p->thread.first]);
	set_filter(b);
}

void restore_enter(struct restore *r, uint32_t i)
{
	const struct mem_proc *p = &r->m.proc[i];
	struct build b = { .r = r, .p = p, .proc = i, .max_ops = count_ops(r, p) };
	uint64_t code = pages_up((uint64_t)(__stop_cloche_blob - __start_cloche_blob));
	uint64_t shared = r->shared_len, stack, at;
	void *moved;

	b.len = code + pages_up(count_bytes(r, p, b.max_ops)) + shared;
	b.start = find_place(r, p, b.len);
	if (!b.start)
		restore_die(r, i, RESTORE_AREA, -ENOMEM, 2);
	memcpy((void *)(uintptr_t)b.start, __start_cloche_blob, (size_t)(__stop_cloche_blob - __start_cloche_blob));
	__builtin___clear_cache((char *)(uintptr_t)b.start, (char *)(uintptr_t)(b.start + code));
	if (mprotect((void *)(uintptr_t)b.start, code, PROT_READ | PROT_EXEC) < 0)
		restore_die(r, i, RESTORE_AREA, -errno, 3);
	r->places[2 * i] = b.start;
	r->places[2 * i + 1] = b.len;
	moved = mremap(r->shared, shared, shared, MREMAP_MAYMOVE | MREMAP_FIXED,
		       (void *)(uintptr_t)(b.start + b.len - shared));
	if (moved == MAP_FAILED)
		restore_die(r, i, RESTORE_AREA, -errno, 4);
	r->shared = moved;
	b.at = (uint8_t *)(uintptr_t)(b.start + code);
	b.end = (uint8_t *)(uintptr_t)(b.start + b.len - shared);
	b.op = room(&b, b.max_ops * sizeof(struct blob_op));
	stack = (uint64_t)(uintptr_t)room(&b, STACK) + STACK;
	b.window = b.start + b.len;
	restore_fill_open(&b);
	build_list(&b);
	at = list(&b, b.op, b.n_ops);
	jump(b.start + (uint64_t)((uintptr_t)blob_run - (uintptr_t)__start_cloche_blob), stack, at);
}
