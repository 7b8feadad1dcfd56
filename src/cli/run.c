/* Runs one command in a sandbox of its own. */
#include "cli/run.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/score.h"
#include "base/sys.h"
#include "cli/commands.h"
#include "cli/devices.h"
#include "engine/sandbox/enforced.h"
#include "linux/caps.h"

#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define HEAD_SHARE 2 /* kept output: half head, half tail */
#define STREAM_TAIL (64U * 1024U) /* streamed output: so much is held back until the end is known */

static void print_error(const struct options *o, const struct err *e)
{
	char line[sizeof(e->msg) + sizeof(e->remedy) + 16];

	if (o->json)
		result_print_error(e);
	snprintf(line, sizeof(line), "%s%s%s", e->msg, e->remedy[0] ? "; " : "", e->remedy);
	/* Names are printed as given, without line feeds and escapes: the message is one line, perhaps on a terminal. */
	for (char *p = line; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	fprintf(stderr, "cloche: %s\n", line);
}

static int open_signals(struct run *r, struct err *e)
{
	static const int wanted[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
		struct sigaction now;

		/* Ignored by nohup or for a shell's background job: a signalfd would receive it nevertheless. */
		if (sigaction(wanted[i], NULL, &now) < 0 || now.sa_handler != SIG_IGN)
			sigaddset(&set, wanted[i]);
	}
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* `ulimit -f` is an error of a write, which is printed */
	/* An inherited "ignore" would make the kernel reap our children. */
	signal(SIGCHLD, SIG_DFL);
	r->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return r->signals < 0 ? err_sys(e, ERR_EXHAUSTED, -errno, "make a signalfd") : 0;
}

/* Programs open /dev/stdout by name, and that asks for rights on the pipe itself. */
static int give(const struct run *r, int fd)
{
	const uint32_t base = r->sandbox.receipt.uid_base;

	if (r->o.name)
		return sys_fchmod(fd, 0666); /* for any uid of the sandbox's user */
	return base ? sys_fchownat(fd, "", base + r->o.spec.uid, base + r->o.spec.gid, AT_EMPTY_PATH) : 0;
}

static int open_streams(struct run *r, int theirs[3], struct err *e)
{
	int p[2], rc;

	for (int i = 0; i < 3; i++) {
		rc = sys_pipe2(p, O_CLOEXEC);
		if (rc < 0)
			return err_sys(e, ERR_EXHAUSTED, rc, "make a pipe");
		theirs[i] = p[i == 0 ? 0 : 1];
		p[0] = p[i == 0 ? 1 : 0]; /* ours */
		if (i == 0)
			r->in.to = p[0];
		else
			*(i == 1 ? &r->out.from : &r->err.from) = p[0];
		rc = give(r, theirs[i]);
		if (rc < 0)
			return err_sys(e, ERR_INTERNAL, rc, "give a pipe to the sandbox's user");
		/* Otherwise a process that has the other end open after the command ended could block this program. */
		rc = fd_set_nonblock(p[0]);
		if (rc < 0)
			return err_sys(e, ERR_INTERNAL, rc, "make a pipe non-blocking");
	}
	return 0;
}

static int open_captures(struct run *r, struct err *e)
{
	uint64_t limit = r->tty ? 0 : r->o.output; /* on a terminal the reader is there, and slows the writer down */
	size_t tail = limit / 4 < STREAM_TAIL ? (size_t)(limit / 4) : STREAM_TAIL;
	size_t head = r->o.json ? (size_t)(limit / HEAD_SHARE) : (size_t)limit - tail;
	int rc = capture_init(&r->out.capture, limit, head);

	if (rc == 0)
		rc = capture_init(&r->err.capture, limit, head);
	r->out.to = r->o.json ? -1 : STDOUT_FILENO;
	r->err.to = r->o.json ? -1 : STDERR_FILENO;
	return rc < 0 ? err_sys(e, ERR_EXHAUSTED, rc, "no memory for output") : 0;
}

static void raw_terminal(struct run *r)
{
	struct termios t;

	if (!r->tty || tcgetattr(STDIN_FILENO, &r->saved) < 0)
		return;
	t = r->saved;
	cfmakeraw(&t);
	r->raw = tcsetattr(STDIN_FILENO, TCSANOW, &t) == 0;
}

static void cooked_terminal(struct run *r)
{
	if (r->raw)
		tcsetattr(STDIN_FILENO, TCSANOW, &r->saved);
	r->raw = false;
}

static bool fd_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void start_terminal(struct run *r, struct exec_spec *x)
{
	struct winsize ws;

	if (r->tty && ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0) {
		x->rows = ws.ws_row;
		x->cols = ws.ws_col;
	}
	raw_terminal(r);
}

/* Makes the sandbox and sends the command at once, without waiting for answers in between. */
static int start(struct run *r, struct exec_spec *x, struct err *e)
{
	int theirs[3] = { -1, -1, -1 }, rc = 0;
	struct engine_opts g = {
		.one_shot = true, .cdi = r->o.cdi, .accounting = r->o.json || r->o.cpu_ms, .waits = wait_tell, .arg = r
	};

	rc = exec_check(x, e);
	if (rc == 0 && r->o.seccomp)
		rc = filter_load(r->o.seccomp, &r->filter, e);
	if (rc == 0)
		rc = network_start(&r->network, &r->o.spec, e);
	if (rc == 0)
		rc = open_signals(r, e);
	/* The sandbox inherits it. We exist for this one alone, and may go with it. */
	if (rc == 0)
		score_sandbox_self("/proc/self/oom_score_adj");
	if (rc == 0)
		rc = engine_new(&g, &r->engine, e);
	if (rc == 0)
		rc = engine_create(r->engine, &r->o.spec, &r->sandbox, e);
	if (rc < 0)
		return rc;
	r->made = true;
	rc = network_give(&r->network, &r->o.network, &r->sandbox, e);
	if (rc < 0)
		return rc;
	if (r->o.cpu_ms && !(r->sandbox.receipt.controllers & CGROUP_BIT(CGROUP_CPUACCT))) {
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
			"--cpu-time: this host cannot count the CPU time of a whole sandbox");
		err_remedy(e,
			   "run as root, with the cpuacct controller mounted, or remove the limit with --cpu-time 0");
		return -EOPNOTSUPP;
	}
	x->filter = r->filter;
	if (!r->tty)
		rc = open_streams(r, theirs, e);
	if (rc == 0)
		rc = open_captures(r, e);
	start_terminal(r, x);
	r->start_ns = clock_mono_ns();
	r->start_real_ns = clock_real_ns();
	r->cpu_next_ns = r->start_ns + 20000000ULL;
	if (rc == 0)
		rc = exec_send(&r->sandbox.link, RUN_EXEC, x, theirs, e);
	/* An agent that failed before it read the command has reported the reason. */
	if ((rc == -EPIPE || rc == -ECONNRESET) && !r->sandbox.up) {
		int why = engine_wait_up(&r->sandbox, 1000, e);

		rc = why < 0 ? why : rc;
	}
	fd_close_many(theirs, 3);
	if (rc == 0 && fd_open(STDIN_FILENO))
		r->in.from = STDIN_FILENO;
	if (r->in.from < 0) {
		fd_close(r->in.to);
		r->in.to = -1;
	}
	return rc;
}

static void judge(struct run *r)
{
	const struct warden_stat *st = &r->stat;
	const struct cgroup_stat *g = &st->group;
	struct verdict_in in = {
		.status = r->exit.status,
		.lost = r->lost && !r->exited,
		.timed_out = r->timed_out,
		.cpu_out = r->cpu_out,
		.killed = r->killed,
		.oom_kills = g->oom_kills > r->exit.oom_kills ? g->oom_kills : r->exit.oom_kills,
		.oom_kind = kernel_kind_name(st->kernel.killed_by),
		.pids_refused = g->pids_refused,
		.memory = r->o.spec.limits.memory,
		.memory_peak = g->memory_peak,
		.memory_files = g->memory_files,
		.pids = r->o.spec.limits.pids,
		.pids_peak = g->pids_peak,
		.disk = r->sandbox.receipt.disk ? st->disk_size : 0,
		.disk_used = st->disk_used,
		.disk_file = r->o.spec.flags & SPEC_DISK || r->sandbox.tier->machine,
		.inodes = r->sandbox.receipt.inodes ? st->inodes_size : 0,
		.inodes_used = st->inodes_used,
		.timeout_ms = r->o.timeout_ms,
		.wall_ms = (r->end_ns - r->start_ns) / 1000000ULL,
		.cpu_limit_ms = r->o.cpu_ms,
		.cpu_ms = (g->cpu_usec - r->cpu_base_usec) / 1000,
		.output_limit = r->out.capture.limit,
		.output = r->out.capture.total > r->err.capture.total ? r->out.capture.total : r->err.capture.total,
		.truncated = capture_truncated(&r->out.capture) || capture_truncated(&r->err.capture),
	};

	verdict_make(&in, &r->verdict);
}

static void note_cpus(void *arg, const char *name, const char *how)
{
	(void)arg;
	if (!strcmp(name, "cpus") && strstr(how, ENFORCED_HOST_HAS))
		fprintf(stderr, "cloche: note: --cpus: %s\n", how);
}

/* One line on stderr when it did not just end by itself. An error when output was lost on the way. */
static int tell(struct run *r, struct err *e)
{
	const struct verdict *v = &r->verdict;
	char dropped[64] = "";

	out_stream_finish(&r->out);
	out_stream_finish(&r->err);
	if (!r->o.json)
		enforced_say(r->sandbox.tier, &r->sandbox.receipt, &r->o.spec, note_cpus, NULL);
	if (r->out.error || r->err.error)
		return err_sys(e, ERR_INTERNAL, r->out.error ? r->out.error : r->err.error,
			       "write the command's output");
	if (v->warning[0])
		fprintf(stderr, "cloche: warning: %s\n", v->warning);
	if (v->cause == VERDICT_EXITED || v->cause == VERDICT_SIGNALED)
		return 0;
	if (v->cause == VERDICT_OUTPUT)
		snprintf(dropped, sizeof(dropped), " (%llu bytes left out)",
			 (unsigned long long)(capture_dropped(&r->out.capture) + capture_dropped(&r->err.capture)));
	fprintf(stderr, "cloche: %s: %s%s\n", verdict_name(v->cause), v->detail, dropped);
	return 0;
}

static int end(struct run *r, int rc, struct err *e)
{
	struct err own = { 0 };
	int ended = 0;

	cooked_terminal(r);
	if (r->made && rc == 0) {
		/* Usage is only read when it is printed, or when it may explain a failure. */
		if (r->o.json || !r->exited || r->exit.status)
			rc = engine_stat(&r->sandbox, &r->stat, e);
		judge(r);
	}
	if (r->made)
		network_finish(&r->network, &r->o.network, &r->sandbox);
	if (r->made)
		ended = engine_destroy(&r->sandbox, &own);
	if (rc == 0 && ended < 0) {
		*e = own;
		rc = ended;
	}
	return rc;
}

static int exit_of_failure(const struct run *r)
{
	if (r->ended_by)
		return 128 + r->ended_by;
	if (!r->failed || r->failure.stage != FRAME_STAGE_EXECVE)
		return 125;
	return r->failure.errnum == ENOENT || r->failure.errnum == ENOTDIR ? 127 : 126;
}

/* What our own surroundings forbid fails at whatever step comes to it first, which says little about the reason. */
static void tell_surroundings(const struct run *r, struct err *e)
{
	if (r->failed || r->exited)
		return;
	if (e->errnum == EMFILE) {
		e->remedy[0] = '\0'; /* the warden's is for the daemon: here, the limit is the caller's */
		err_remedy(e, "allow more open files here: `ulimit -n 1024`");
	} else if (e->errnum == EFBIG)
		err_remedy(e, "allow larger files here: `ulimit -f unlimited`");
}

/* Root of a container often has not all of root's power. The step that fails of it first says little about that. */
static void tell_power(const struct run *r, struct err *e)
{
	static const struct {
		unsigned bit;
		const char *name;
	} needed[] = { { 21, "SYS_ADMIN" },   { 12, "NET_ADMIN" }, { 19, "SYS_PTRACE" }, { 0, "CHOWN" },
		       { 1, "DAC_OVERRIDE" }, { 6, "SETGID" },	   { 7, "SETUID" } };
	char names[128] = "";
	uint64_t have;

	if (r->failed || r->exited || geteuid() != 0 || (e->errnum != EPERM && e->errnum != EACCES) ||
	    caps_permitted(&have) < 0)
		return;
	for (size_t i = 0; i < ARRAY_LEN(needed); i++)
		if (!(have >> needed[i].bit & 1))
			snprintf(names + strlen(names), sizeof(names) - strlen(names), "%sCAP_%s", names[0] ? ", " : "",
				 needed[i].name);
	if (names[0])
		err_remedy(
			e,
			"root lacks %s here: give it to this container (as with --privileged), or run as another user",
			names);
}

/* The command is a file of this machine, or looks like an image: what those who know docker type first. */
static void tell_missing(const struct run *r, struct err *e)
{
	const char *name = r->o.argc ? r->o.argv[0] : "";
	const bool path = strchr(name, '/') && access(name, F_OK) == 0;

	if (!r->failed || r->failure.stage != FRAME_STAGE_EXECVE || r->failure.errnum != ENOENT ||
	    (!path && !strchr(name, ':')))
		return;
	e->remedy[0] = '\0';
	if (path)
		err_remedy(
			e,
			"this file is not in the sandbox: mount its folder, as with --mount .:/work --workdir /work");
	else
		err_remedy(e, "for an image: `cloche image pull %.80s`, then `cloche run --image %.80s -- COMMAND`",
			   name, name);
}

static void run_done(struct run *r)
{
	capture_done(&r->out.capture);
	capture_done(&r->err.capture);
	fd_close(r->in.to);
	fd_close(r->out.from);
	fd_close(r->err.from);
	fd_close(r->filter);
	fd_close(r->signals);
	network_done(&r->network);
	engine_free(r->engine);
	options_done(&r->o);
}

int cmd_run(int argc, char **argv)
{
	static struct run r = { .signals = -1,
				.network = { .fd = -1 },
				.filter = -1,
				.in = { .from = -1, .to = -1 },
				.out.from = -1,
				.err.from = -1 };
	AUTO_FREE const char **env = NULL;
	struct exec_spec x = { .filter = -1 };
	struct err e = { 0 };
	int rc;

#ifdef CLOCHE_FAULTS
	sys_test_parse(getenv("CLOCHE_FAULT_HOST"));
#endif
	if (options_language(argc, argv)) {
		argv[0] = (char[]){ "run-code" };
		return cmd_client(argc, argv);
	}
	if (options_stored_image(argc, argv))
		return cmd_client(argc, argv);
	rc = options_parse(argc, argv, &r.o, &e);
	if (rc < 0) {
		/* Whether errors should be JSON is itself an option. */
		for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
			r.o.json = r.o.json || !strcmp(argv[i], "--json");
		print_error(&r.o, &e);
		return 125;
	}
	if (r.o.help) {
		options_help();
		return 0;
	}
	r.tty = r.o.tty == TTY_YES ||
		(r.o.tty == TTY_AUTO && !r.o.json && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO));
	rc = devices_env(&r.o, &e);
	env = options_env(&r.o, r.tty, &x.envc);
	x.argv = (const char *const *)r.o.argv;
	x.argc = r.o.argc;
	x.envp = env;
	x.cwd = r.o.spec.workdir;
	x.user = r.o.name;
	x.uid = r.o.spec.uid;
	x.gid = r.o.spec.gid;
	x.tty = r.tty;
	x.nofile = r.o.nofile;
	x.cpu_ms = r.o.cpu_ms;
	if (rc == 0)
		rc = env ? start(&r, &x, &e) : err_set(&e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	if (rc == 0)
		rc = relay_run(&r, &e);
	rc = end(&r, rc, &e);
	if (rc == 0 && r.o.json)
		rc = result_print(&r, &e);
	else if (rc == 0)
		rc = tell(&r, &e);
	network_tell(&r.network);
	if (rc < 0) {
		tell_missing(&r, &e);
		tell_power(&r, &e);
		tell_surroundings(&r, &e);
		print_error(&r.o, &e);
	}
	rc = rc < 0 ? exit_of_failure(&r) : r.verdict.exit_code;
	run_done(&r);
	return rc;
}
