/* Finds why an exec ended, from what was measured. */
#include "engine/verdict.h"
#include "base/base.h"

#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>

static const char *const names[] = {
#define X(cause, name) [VERDICT_##cause] = name,
	VERDICT_CAUSES(X)
#undef X
};

const char *verdict_name(enum verdict_cause c)
{
	return names[c];
}

static void say(struct verdict *v, enum verdict_cause cause, uint64_t limit, uint64_t peak, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

static void say(struct verdict *v, enum verdict_cause cause, uint64_t limit, uint64_t peak, const char *fmt, ...)
{
	va_list ap;

	v->cause = cause;
	v->has_limit = limit != 0;
	v->limit = limit;
	v->peak = peak;
	va_start(ap, fmt);
	vsnprintf(v->detail, sizeof(v->detail), fmt, ap);
	va_end(ap);
}

#define MB(n) ((unsigned long long)((n) / MIB))
#define ULL(n) ((unsigned long long)(n))

static bool disk_full(const struct verdict_in *in)
{
	/*
	 * With less than a page or an inode left the filesystem refuses writes. Files that were deleted since then are not counted. A
	 * filesystem in a file allocates a whole folio at once, up to 2 MiB, and refuses a write if less than that is left.
	 */
	const uint64_t folio = 2 * MIB + 64 * KIB, left = !in->disk_file       ? 8192 :
							  folio < in->disk / 8 ? folio :
										 in->disk / 8;

	return (in->disk && in->disk_used + left >= in->disk) || (in->inodes && in->inodes_used + 1 >= in->inodes);
}

static void say_disk(const struct verdict_in *in, struct verdict *v)
{
	const bool small = in->disk < 16 * MIB && in->disk % MIB; /* 64K is allowed, and no 0M */

	if (in->inodes && in->inodes_used + 1 >= in->inodes)
		say(v, VERDICT_DISK, in->inodes, in->inodes_used, "all %llu inodes of the disk are in use (--inodes)",
		    ULL(in->inodes));
	else
		say(v, VERDICT_DISK, in->disk, in->disk_used, "the disk of %llu%c is full (--disk%s)",
		    ULL(in->disk / (small ? KIB : MIB)), small ? 'K' : 'M',
		    in->disk_file ? "" : "; in memory it also stays below --memory, see --storage");
}

static void say_oom(const struct verdict_in *in, struct verdict *v)
{
	const char *kind = in->oom_kind ? in->oom_kind : "memory";

	snprintf(v->oom_kind, sizeof(v->oom_kind), "%s", kind);
	if (strcmp(kind, "locks") == 0 || strcmp(kind, "filters") == 0)
		say(v, VERDICT_OOM, in->memory, in->memory_peak,
		    "the kernel used more memory for its %s than a sandbox may have (SECURITY.md)", kind);
	else if (strcmp(kind, "memory") != 0)
		say(v, VERDICT_OOM, in->memory, in->memory_peak,
		    "killed by the memory limit of %lluM: exceeded together with the kernel's memory for %s (--memory)",
		    MB(in->memory), kind);
	else if (in->memory_files > in->memory / 2)
		say(v, VERDICT_OOM, in->memory, in->memory_peak,
		    "killed by the memory limit of %lluM, of which %lluM are files in memory (--memory, --storage "
		    "disk)",
		    MB(in->memory), MB(in->memory_files));
	else
		say(v, VERDICT_OOM, in->memory, in->memory_peak, "killed by the memory limit of %lluM (--memory)",
		    MB(in->memory));
}

/* A limit that was reached, but did not end it: most fork bombs run until their time limit. */
static const char *also_met(const struct verdict_in *in)
{
	return in->oom_kills	? "; a process in it was killed by the memory limit" :
	       in->pids_refused ? "; the pids limit was reached" :
				  "";
}

/* The process ended by itself, not by a limit. */
static void say_own(const struct verdict_in *in, struct verdict *v)
{
	const char *also = also_met(in);

	if (v->signal == SIGSYS)
		say(v, VERDICT_SECCOMP, 0, 0, "killed by SIGSYS: it made a system call that the filter forbids");
	else if (v->signal)
		say(v, VERDICT_SIGNALED, 0, 0, "killed by signal %d%s", v->signal, also);
	else
		say(v, VERDICT_EXITED, 0, 0, "exit code %d%s", v->exit_code, also);
}

/* If the kernel killed a child for its memory, its parent may not have noticed. */
static void warn_oom(const struct verdict_in *in, struct verdict *v)
{
	char limit[32] = "";

	if (in->memory)
		snprintf(limit, sizeof(limit), " of %lluM", MB(in->memory));
	snprintf(v->warning, sizeof(v->warning), "%llu %s killed by the memory limit%s (--memory)", ULL(in->oom_kills),
		 in->oom_kills == 1 ? "process was" : "processes were", limit);
}

void verdict_make(const struct verdict_in *in, struct verdict *ret)
{
	struct verdict v = { 0 };
	bool failed;

	v.signal = !in->lost && WIFSIGNALED(in->status) ? WTERMSIG(in->status) : 0;
	v.exit_code = v.signal ? 128 + v.signal : WEXITSTATUS(in->status);
	failed = v.exit_code != 0;
	if (in->timed_out) {
		say(&v, VERDICT_TIMEOUT, in->timeout_ms, in->wall_ms, "ran longer than %g s (--timeout)%s",
		    (double)in->timeout_ms / 1000, also_met(in));
		v.exit_code = 124;
	} else if (in->cpu_out) {
		say(&v, VERDICT_CPU, in->cpu_limit_ms, in->cpu_ms, "used more than %g s of CPU time (--cpu-time)%s",
		    (double)in->cpu_limit_ms / 1000, also_met(in));
		v.exit_code = 137;
	} else if (in->lost && in->oom_kills) {
		say_oom(in, &v);
		v.exit_code = 137;
	} else if (in->lost) {
		say(&v, VERDICT_LOST, 0, 0, "the sandbox's first process died: all its processes were ended");
		v.exit_code = 125;
	} else if (in->killed) {
		say(&v, VERDICT_KILLED, 0, 0, "killed on request");
		v.exit_code = 137;
	} else if (failed && in->oom_kills) {
		say_oom(in, &v);
	} else if (failed && in->pids_refused) {
		say(&v, VERDICT_PIDS, in->pids, in->pids_peak, "%llu %s refused by the limit of %llu (--pids)",
		    ULL(in->pids_refused), in->pids_refused == 1 ? "fork was" : "forks were", ULL(in->pids));
	} else if (failed && v.signal != SIGSYS && disk_full(in)) {
		say_disk(in, &v);
	} else if (in->truncated && !v.signal) {
		say(&v, VERDICT_OUTPUT, in->output_limit, in->output,
		    "exit code %d; %llu bytes of output, more than the limit: its middle is left out "
		    "(--output-limit)",
		    v.exit_code, ULL(in->output));
	} else {
		say_own(in, &v);
	}
	v.oom_kills = in->oom_kills;
	if (in->oom_kills && v.cause != VERDICT_OOM)
		warn_oom(in, &v);
	*ret = v;
}
