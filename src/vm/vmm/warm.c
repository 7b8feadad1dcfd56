/*
 * A template runs one small command before it is saved. Clones then find in memory what every first command needs (the
 * shell's pages, the kernel's caches), and need not read and translate it each: this saves a third of the time to their
 * first answer, and of their own pages.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "vm/vmm/vmm.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#define WARM_EXEC 1U
#define WARM_UID 1000U
#define WARM_NS (5ULL * 1000000000ULL) /* time after which the command is killed, */
#define WARM_END_NS (60ULL * 1000000000ULL) /* since no clone may contain it; and time for its end */
#define FRAME_SIZE 512

/* An empty stdin, and outputs that are not read: the command prints nothing. */
static int make_stdio(int ret[3])
{
	int in[2], out[2], r = sys_pipe2(in, O_CLOEXEC);

	if (r < 0)
		return r;
	fd_close(in[1]);
	ret[0] = in[0];
	r = sys_pipe2(out, O_CLOEXEC);
	if (r < 0)
		return r;
	fd_close(out[0]);
	ret[1] = out[1];
	ret[2] = sys_fcntl(out[1], F_DUPFD_CLOEXEC, 3);
	return ret[2] < 0 ? ret[2] : 0;
}

static int send_exec(int sock, const int fds[3])
{
	static const char *const argv[] = { "/bin/sh", "-c", ":" }, *const envp[] = { "PATH=/bin:/usr/bin" };
	const struct frame_exec x = {
		.uid = WARM_UID,
		.gid = WARM_UID,
		.cwd = "/",
		.argc = ARRAY_LEN(argv),
		.envc = ARRAY_LEN(envp),
		.argv = argv,
		.envp = envp,
	};
	uint8_t out[FRAME_HEAD + FRAME_SIZE];
	long n = frame_exec_encode(&x, out + FRAME_HEAD, FRAME_SIZE);

	if (n < 0)
		return (int)n;
	frame_head(out, FRAME_EXEC, 3, WARM_EXEC, (uint32_t)n);
	return fd_send_now(sock, out, FRAME_HEAD + (size_t)n, fds, 3);
}

int vmm_warm(struct vmm *v)
{
	int pair[2] = { -1, -1 }, fds[3] = { -1, -1, -1 };
	int r = sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);

	if (r == 0)
		r = make_stdio(fds);
	if (r == 0)
		r = send_exec(pair[0], fds);
	if (r == 0)
		r = kept_attach(v->kept, pair[1], 0);
	fd_close_many(fds, ARRAY_LEN(fds));
	if (r < 0) {
		fd_close_many(pair, ARRAY_LEN(pair));
		return err_sys(&v->e, ERR_INTERNAL, r, "run the template's command");
	}
	v->warm = pair[0];
	v->until = clock_mono_ns() + WARM_NS;
	v->state = VMM_WARMS;
	return 0;
}

/* Whether the command has ended, or never began: an image may have no shell. */
static bool ended(struct vmm *v)
{
	uint8_t data[FRAME_SIZE];
	size_t len = 0;

	for (;;) {
		struct frame f;
		ssize_t n = recv(v->warm, data, sizeof(data), MSG_DONTWAIT | MSG_PEEK);
		long used;

		if (n <= 0)
			return !n || (errno != EAGAIN && errno != EINTR);
		len = (size_t)n;
		used = frame_decode(data, len, &f);
		if (used == 0 && len < sizeof(data))
			return false;
		if (used <= 0 || recv(v->warm, data, (size_t)used, MSG_DONTWAIT) != used)
			return true;
		if (f.id == WARM_EXEC && (f.type == FRAME_EXITED || f.type == FRAME_FAILED))
			return true;
	}
}

/* Kills the command: an image's shell may be any program, and the host may be very slow. */
static int give_up(struct vmm *v)
{
	const uint32_t what[2] = { SIGKILL, FRAME_SCOPE_ALL }; /* both architectures are little-endian */
	uint8_t out[FRAME_HEAD + sizeof(what)];
	int r;

	if (v->killed)
		return err_set(&v->e, ERR_TIMEOUT, -ETIMEDOUT, "the template's command does not end");
	frame_head(out, FRAME_SIGNAL, 0, WARM_EXEC, sizeof(what));
	memcpy(out + FRAME_HEAD, what, sizeof(what));
	r = fd_send_now(v->warm, out, sizeof(out), NULL, 0);
	v->killed = true;
	v->until = clock_mono_ns() + WARM_END_NS;
	return r < 0 ? err_sys(&v->e, ERR_LOST, r, "end the template's command") : 0;
}

int vmm_warm_turn(struct vmm *v)
{
	if (v->warm >= 0 && ended(v))
		fd_close(TAKE_FD(v->warm));
	else if (v->warm >= 0 && clock_mono_ns() >= v->until)
		return give_up(v);
	/* The end of our socket is noticed in a turn; only then has the client gone. */
	return v->warm >= 0 || v->carry.ctl >= 0 ? 0 : vmm_save_template(v);
}
