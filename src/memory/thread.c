/* A stopped thread: registers, and what ptrace and /proc report of it. */
#include "memory/dump.h"
#include "base/base.h"
#include "base/sys.h"
#include "memory/arch.h"

#include <elf.h>
#include <linux/ptrace.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SIGNALS_MAX 1024U
#define INFO_SIZE 128U

struct peek { /* the kernel's struct ptrace_peeksiginfo_args */
	uint64_t off;
	uint32_t flags;
	int32_t nr;
};

struct rseq_conf { /* the kernel's struct ptrace_rseq_configuration */
	uint64_t pointer;
	uint32_t size, signature, flags, pad;
};

#ifndef SCHED_DEADLINE
#define SCHED_DEADLINE 6
#endif
#ifndef PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG
#define PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG 0x4211
#endif
#ifndef PTRACE_GET_RSEQ_CONFIGURATION
#define PTRACE_GET_RSEQ_CONFIGURATION 0x420f
#endif

int thread_pending(struct dump *d, pid_t tid, bool shared, struct mem_span *ret, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(SIGNALS_MAX * INFO_SIZE);
	struct peek p = { .flags = shared ? PTRACE_PEEKSIGINFO_SHARED : 0, .nr = 32 };
	uint8_t info[32 * INFO_SIZE];
	long n;

	for (;;) {
		n = sys_ptrace(PTRACE_PEEKSIGINFO, tid, (uintptr_t)&p, info);
		if (n < 0)
			return err_sys(e, ERR_INTERNAL, (int)n, "pending signals");
		if (n == 0)
			break;
		if (buf_add(&b, info, (size_t)n * INFO_SIZE) < 0)
			return err_set(e, ERR_TOO_LARGE, -E2BIG, "more than %u pending signals", SIGNALS_MAX);
		p.off += (uint64_t)n;
	}
	return image_bytes(&d->image, b.data, b.len, ret, e);
}

/*
 * Inside a restartable sequence a stop means that it is to be begun anew. The kernel would see to that when the thread
 * runs on, but only as long as the thread is still seen there, and what we let it do first would hide it.
 */
static int leave_sequence(const struct proc *p, struct thread *t)
{
	struct {
		uint32_t version, flags;
		uint64_t start, length, abort;
	} cs;
	uint64_t at = 0, ip = arch_ip(t->regs);

	if (!t->rec.rseq || pread(p->mem, &at, 8, (off_t)(t->rec.rseq + 8)) != 8 || !at)
		return 0;
	if (pread(p->mem, &cs, sizeof(cs), (off_t)at) != sizeof(cs) || cs.version)
		return 0;
	if (ip >= cs.start && ip - cs.start < cs.length)
		arch_set_ip(t->regs, cs.abort);
	return 0;
}

#define RESET_ON_FORK 0x40000000

static int schedule(const struct proc *p, struct thread *t, struct err *e)
{
	struct sched_param sp = { 0 };
	int policy = (int)syscall(SYS_sched_getscheduler, t->host), nice;

	if (policy < 0 || syscall(SYS_sched_getparam, t->host, &sp) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "scheduling");
	nice = (int)syscall(SYS_getpriority, PRIO_PROCESS, t->host); /* 20 - nice */
	if (nice < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "priority");
	if ((policy & 0xffff) == SCHED_DEADLINE)
		return proc_refuse(p, e, "uses deadline scheduling");
	if (syscall(SYS_sched_getaffinity, t->host, sizeof(t->rec.cpus), t->rec.cpus) < 0)
		return errno == EINVAL ? proc_refuse(p, e, "may run on more than %u CPUs", MEM_CPU_WORDS * 64U) :
					 err_sys(e, ERR_INTERNAL, -errno, "affinity");
	t->rec.sched_reset = !!(policy & RESET_ON_FORK);
	t->rec.sched_policy = (uint32_t)policy & 0xffff;
	t->rec.sched_priority = (uint32_t)sp.sched_priority;
	t->rec.nice = 20 - nice;
	return 0;
}

/* Refuses a thread whose rights differ from those of the first thread, since a restore sets these for all. */
static int same_rights(const struct proc *p, const char *status, struct err *e)
{
	static const char *const keys[] = { "Uid", "Gid", "Groups", "CapBnd", "CapAmb", "NoNewPrivs" };

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const char *a, *b;

		if (!proc_field(p->status, keys[i], &a) || !proc_field(status, keys[i], &b))
			continue;
		if (strcspn(a, "\n") != strcspn(b, "\n") || strncmp(a, b, strcspn(a, "\n")) != 0)
			return proc_refuse(p, e, "has a thread with another user, group or capability (%s)", keys[i]);
	}
	return 0;
}

/* Reads the thread's capabilities. A restore gives the process those of all its threads first. */
static int capabilities(struct proc *p, struct thread *t, const char *status, struct err *e)
{
	static const char *const keys[] = { "CapInh", "CapPrm", "CapEff" };

	for (unsigned i = 0; i < ARRAY_LEN(keys); i++)
		t->rec.caps[i] = proc_number(status, keys[i], 16, 0);
	if (p->rec.uid[0] && p->rec.uid[1] && p->rec.uid[2] && t->rec.caps[1])
		return proc_refuse(p, e, "has a thread with capabilities that cannot be restored (permitted %llx)",
				   (unsigned long long)t->rec.caps[1]);
	p->rec.caps[0] |= t->rec.caps[0];
	p->rec.caps[1] |= t->rec.caps[1];
	return 0;
}

static int names(struct proc *p, struct thread *t, struct err *e)
{
	AUTO_FREE char *status = NULL;
	char name[64], comm[64];
	ssize_t n;
	int r;

	snprintf(name, sizeof(name), "task/%d/status", (int)t->host);
	r = proc_text(p->dir, name, DUMP_TEXT_MAX, &status, NULL);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read status of a thread");
	t->tid = t->rec.tid = proc_inside(status, "NSpid");
	/* Whether only our stop has interrupted its system call. */
	if (!((proc_number(status, "SigPnd", 16, 0) | proc_number(status, "ShdPnd", 16, 0)) & ~t->mask))
		arch_again(t->regs);
	if (proc_number(status, "Seccomp_filters", 10, 0) != proc_number(p->status, "Seccomp_filters", 10, 0))
		return proc_refuse(p, e, "has its own system call filter");
	r = same_rights(p, status, e);
	if (r == 0)
		r = capabilities(p, t, status, e);
	if (r < 0)
		return r;
	snprintf(name, sizeof(name), "task/%d/comm", (int)t->host);
	n = fd_get(p->dir, name, comm, sizeof(comm));
	if (n < 0)
		return err_sys(e, ERR_INTERNAL, (int)n, "read a thread's name");
	n -= n > 0 && comm[n - 1] == '\n';
	memcpy(t->rec.comm, comm, n < 15 ? (size_t)n : 15);
	return 0;
}

int thread_read(struct dump *d, struct proc *p, struct thread *t, struct err *e)
{
	struct iovec io = { t->regs, sizeof(t->regs) };
	struct rseq_conf rc = { 0 };
	struct {
		uint64_t mode, selector, offset, len;
	} dispatch = { 0 };
	uint64_t image[DUMP_REGS_MAX];
	long r = sys_ptrace(PTRACE_GETREGSET, t->host, NT_PRSTATUS, &io);

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, (int)r, "registers");
	t->regs_len = io.iov_len;
	if (arch_check(t->regs))
		return proc_refuse(p, e, "%s", arch_check(t->regs));
	r = sys_ptrace(PTRACE_GETSIGMASK, t->host, sizeof(t->mask), &t->mask);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, (int)r, "signal mask");
	t->rec.sigmask = t->mask;
	r = sys_ptrace(PTRACE_GET_RSEQ_CONFIGURATION, t->host, sizeof(rc), &rc);
	if (r < 0 && r != -EIO && r != -EINVAL) /* a kernel without rseq */
		return err_sys(e, ERR_INTERNAL, (int)r, "restartable sequences");
	t->rec.rseq = rc.pointer;
	r = sys_ptrace(PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG, t->host, sizeof(dispatch), &dispatch);
	if (r >= 0 && dispatch.mode) /* kernels before 6.4 do not report it */
		return proc_refuse(p, e, "handles its system calls itself (PR_SET_SYSCALL_USER_DISPATCH)");
	t->rec.rseq_len = rc.pointer ? rc.size : 0;
	t->rec.rseq_sig = rc.pointer ? rc.signature : 0;
	r = sys_get_robust_list(t->host, &t->rec.robust_list, &t->rec.robust_len);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, (int)r, "robust list");
	leave_sequence(p, t);
	r = names(p, t, e);
	if (r == 0)
		r = schedule(p, t, e);
	if (r == 0)
		r = arch_state(d, t, e);
	memcpy(image, t->regs, sizeof(image));
	arch_restart_later(image, proc_handles_signals(p));
	return r == 0 ? image_bytes(&d->image, image, t->regs_len, &t->rec.regs, e) : (int)r;
}
