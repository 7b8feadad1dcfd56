/* Moves all streams of `cloche run` until the command ends. */
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "cli/run.h"

#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define GRACE_NS 2000000000ULL /* after a kill, for the agent to report the exit */
#define CPU_STEP_NS 20000000ULL

enum { P_LINK, P_SIGNALS, P_OUT, P_ERR, P_STDIN, P_TO, P_NETWORK, P_COUNT };

/* Everything in the sandbox, not only the command: daemons it left too. */
static void kill_all(struct run *r)
{
	if (r->cut)
		return;
	r->cut = true;
	r->cut_ns = clock_mono_ns();
	link_signal(&r->sandbox.link, RUN_EXEC, SIGKILL, FRAME_SCOPE_ALL);
}

static int on_started(struct run *r, int fd, struct err *e)
{
	int rc;

	/* A terminal comes once, and only when one was asked for. */
	if (fd < 0 || !r->tty || r->out.from >= 0) {
		fd_close(fd);
		return err_set(e, ERR_LOST, -EBADMSG, "protocol error from the agent");
	}
	r->out.from = fd;
	rc = fd_set_nonblock(fd);
	if (rc == 0)
		rc = r->in.to = sys_fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return rc < 0 ? err_sys(e, ERR_EXHAUSTED, rc, "take the terminal") : 0;
}

static int on_frame(struct run *r, const struct frame *f, int fd, struct err *e)
{
	int rc = engine_frame(&r->sandbox, f, e);

	if (rc != 0) {
		fd_close(fd);
		return rc < 0 ? rc : 0;
	}
	if (f->id != RUN_EXEC) {
		fd_close(fd);
		return 0;
	}
	if (f->type == FRAME_STARTED)
		return on_started(r, fd, e);
	fd_close(fd);
	if (f->type == FRAME_EXITED && frame_exited_decode(f, &r->exit) == 0)
		r->exited = true;
	if (f->type == FRAME_FAILED) {
		r->failed = true;
		rc = link_error(f, r->o.argv[0], e, &r->failure);
		if (r->failure.stage == FRAME_STAGE_ACCOUNT || r->failure.stage == FRAME_STAGE_ACCOUNT_GROUP)
			return link_error(f, r->o.name ? r->o.name : "", e, NULL);
		return r->failure.stage == FRAME_STAGE_CWD ? link_error(f, r->o.spec.workdir, e, NULL) : rc;
	}
	return 0;
}

static int read_link(struct run *r, struct err *e)
{
	for (;;) {
		struct frame f;
		int fd = -1, rc;

		if (r->exited)
			return 0;
		rc = link_next(&r->sandbox.link, 0, &f, &fd);
		if (rc == 0)
			return 0;
		if (rc < 0 && !r->sandbox.up)
			return engine_wait_up(&r->sandbox, 1, e); /* says why */
		if (rc < 0) {
			r->lost = true;
			return 0;
		}
		rc = on_frame(r, &f, fd, e);
		if (rc < 0)
			return rc;
	}
}

static void resize(const struct run *r)
{
	struct winsize ws;

	if (r->tty && r->out.from >= 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0)
		ioctl(r->out.from, TIOCSWINSZ, &ws);
}

static void on_signal(struct run *r, int sig)
{
	if (sig == SIGWINCH) {
		resize(r);
		return;
	}
	/* Asked twice, or by a terminal that went away: the command has no more say. */
	if (sig == SIGTERM || sig == SIGINT || sig == SIGQUIT || sig == SIGHUP) {
		if (r->term_signals++ >= 2 || sig == SIGHUP) {
			r->killed = true;
			kill_all(r);
			return;
		}
	}
	link_signal(&r->sandbox.link, RUN_EXEC, sig, FRAME_SCOPE_GROUP);
}

static void read_signals(struct run *r)
{
	struct signalfd_siginfo si;

	while (read(r->signals, &si, sizeof(si)) == sizeof(si))
		on_signal(r, (int)si.ssi_signo);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

/* When something must happen next by itself, 0 = never. */
static uint64_t deadline(const struct run *r)
{
	uint64_t at = 0;

	if (r->cut)
		return r->cut_ns + GRACE_NS;
	if (r->o.timeout_ms)
		at = r->start_ns + r->o.timeout_ms * 1000000ULL;
	return r->o.cpu_ms ? earlier(at, r->cpu_next_ns) : at;
}

/* The CPU time of every process together: counted by the cgroup, looked at no later than it could be used up. */
static void check_cpu(struct run *r, uint64_t now)
{
	uint64_t used, left;
	struct warden_stat st;

	if (!r->o.cpu_ms || now < r->cpu_next_ns || engine_stat(&r->sandbox, &st, NULL) < 0)
		return;
	used = (st.group.cpu_usec - r->cpu_base_usec) / 1000;
	if (used >= r->o.cpu_ms) {
		r->cpu_out = true;
		kill_all(r);
		return;
	}
	left = (r->o.cpu_ms - used) * 1000000ULL / 8;
	r->cpu_next_ns = now + (left < CPU_STEP_NS ? CPU_STEP_NS : left);
}

static void check_time(struct run *r)
{
	uint64_t now = clock_mono_ns();

	if (r->cut) {
		r->lost = r->lost || now >= r->cut_ns + GRACE_NS;
		return;
	}
	if (r->o.timeout_ms && now >= r->start_ns + r->o.timeout_ms * 1000000ULL) {
		r->timed_out = true;
		kill_all(r);
		return;
	}
	check_cpu(r, now);
}

static int wait_ms(const struct run *r)
{
	uint64_t at = deadline(r), now;

	if (!at)
		return -1;
	now = clock_mono_ns();
	if (at <= now)
		return 0;
	return (at - now) / 1000000ULL < INT_MAX ? (int)((at - now) / 1000000ULL) + 1 : INT_MAX;
}

static int read_out(struct out_stream *s)
{
	int rc = out_stream_read(s);

	return rc < 0 ? rc : 0;
}

/* While our own output is blocked, timers and signals are still served. */
static void held_up(void *arg)
{
	struct run *r = arg;

	read_signals(r);
	if (r->cut)
		r->cut_ns = clock_mono_ns(); /* the agent's time to answer is when we listen */
	else if (r->exited)
		kill_all(r); /* processes that were left behind would have ended by now */
	else
		check_time(r);
}

static void listen_meanwhile(struct run *r, void (*fn)(void *arg))
{
	r->out.waiting = r->err.waiting = fn;
	r->out.arg = r->err.arg = r;
}

static int relay_loop(struct run *r, struct err *e)
{
	int rc = 0;

	while (!r->exited && !r->lost) {
		struct pollfd p[P_COUNT] = {
			[P_LINK] = { .fd = r->sandbox.link.sock, .events = POLLIN },
			[P_SIGNALS] = { .fd = r->signals, .events = POLLIN },
			[P_OUT] = { .fd = r->out.from, .events = POLLIN },
			[P_ERR] = { .fd = r->err.from, .events = POLLIN },
			[P_STDIN] = { .fd = in_stream_wants_read(&r->in) && r->in.to >= 0 ? r->in.from : -1,
				      .events = POLLIN },
			[P_TO] = { .fd = r->in.at < r->in.len ? r->in.to : -1, .events = POLLOUT },
			[P_NETWORK] = { .fd = r->network.closed ? -1 : r->network.fd, .events = POLLIN },
		};

		if (poll(p, P_COUNT, wait_ms(r)) < 0 && errno != EINTR)
			return err_sys(e, ERR_INTERNAL, -errno, "poll");
		if (p[P_OUT].revents)
			rc = read_out(&r->out);
		if (rc == 0 && p[P_ERR].revents)
			rc = read_out(&r->err);
		if (rc < 0)
			return err_sys(e, ERR_INTERNAL, rc, "read the command's output");
		if (p[P_SIGNALS].revents)
			read_signals(r);
		if (p[P_STDIN].revents)
			in_stream_read(&r->in);
		if (p[P_TO].revents)
			in_stream_write(&r->in);
		if (p[P_NETWORK].revents)
			network_read(&r->network, &r->sandbox);
		if (p[P_LINK].revents) {
			rc = read_link(r, e);
			if (rc < 0)
				return rc;
		}
		check_time(r);
	}
	r->end_ns = clock_mono_ns();
	rc = out_stream_drain(&r->out);
	if (rc == 0)
		rc = out_stream_drain(&r->err);
	return rc < 0 ? err_sys(e, ERR_INTERNAL, rc, "read the command's output") : 0;
}

int relay_run(struct run *r, struct err *e)
{
	int rc;

	listen_meanwhile(r, held_up);
	rc = relay_loop(r, e);
	listen_meanwhile(r, NULL);
	return rc;
}
