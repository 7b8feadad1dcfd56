/* A sandbox under the warden, for a measurement. */
#include "bench.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "proto/exec.h"

#include <poll.h>
#include <sys/wait.h>

#define UP_MS 10000
#define EXEC_MS 10000
#define FLIGHT_MAX 64

const struct sandbox_spec box_spec = {
	.image = "host",
	.hostname = "sandbox",
	.workdir = "/home/user",
	.uid = 1000,
	.gid = 1000,
	.limits = { .memory = 512 * MIB, .disk = GIB, .cpu_milli = 1000, .pids = 256 },
};

int box_create(struct engine *g, struct box *b, struct err *e)
{
	int r = engine_create(g, &box_spec, &b->s, e);

	b->made = r == 0;
	return r;
}

int box_up(struct box *b, struct err *e)
{
	return engine_wait_up(&b->s, UP_MS, e);
}

int box_destroy(struct box *b, struct err *e)
{
	if (!b->made)
		return 0;
	b->made = false;
	return engine_destroy(&b->s, e);
}

int box_exec_send(struct box *b, struct err *e)
{
	static const char *const argv[] = { "/bin/true" };
	static const char *const envp[] = { "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/user", "USER=user",
					    "LANG=C.UTF-8" };
	static int null = -1;
	const struct exec_spec x = {
		.argv = argv,
		.argc = ARRAY_LEN(argv),
		.envp = envp,
		.envc = ARRAY_LEN(envp),
		.cwd = "/home/user",
		.uid = 1000,
		.gid = 1000,
		.nofile = 1024,
		.filter = -1,
	};

	if (null < 0)
		null = sys_openat(AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);
	return exec_send(&b->s.link, 1, &x, (const int[3]){ null, null, null }, e);
}

int box_frame(struct box *b, const struct frame *f, struct err *e)
{
	struct frame_exited x;
	int r = engine_frame(&b->s, f, e);

	if (r < 0)
		return r;
	if (r > 0 || f->type == FRAME_STARTED)
		return 0;
	if (f->type == FRAME_FAILED)
		return link_error(f, "/bin/true", e, NULL);
	if (f->type != FRAME_EXITED)
		return err_set(e, ERR_LOST, -EBADMSG, "unexpected frame %u", f->type);
	if (frame_exited_decode(f, &x) < 0 || x.status)
		return err_set(e, ERR_LOST, -EIO, "/bin/true did not end well");
	return 1;
}

int box_exec(struct box *b, struct err *e)
{
	int r = box_exec_send(b, e);

	while (r == 0) {
		struct frame f;
		int fd = -1;

		r = link_next(&b->s.link, EXEC_MS, &f, &fd);
		if (r <= 0)
			return err_set(e, ERR_LOST, r < 0 ? r : -ETIMEDOUT, "the agent does not answer");
		fd_close(fd);
		r = box_frame(b, &f, e);
	}
	return r < 0 ? r : 0;
}

int box_lifecycle(struct engine *g, uint64_t *ret_ns, struct err *e)
{
	uint64_t t = clock_mono_ns();
	struct box b = { .made = false };
	int r = box_create(g, &b, e);

	/* The command goes right behind, as `cloche run` sends it: the agent serves one after the other. */
	if (r == 0)
		r = box_exec(&b, e);
	if (r < 0) {
		box_destroy(&b, NULL);
		return r;
	}
	r = box_destroy(&b, e);
	*ret_ns = clock_mono_ns() - t;
	return r;
}

/* What has arrived for one of those in flight: 1 when its life is over. */
static int step(struct box *b, struct err *e)
{
	for (;;) {
		struct frame f;
		int fd = -1, r = link_next(&b->s.link, 0, &f, &fd);

		if (r == 0)
			return 0;
		if (r < 0)
			return err_set(e, ERR_LOST, r, "an agent is gone");
		fd_close(fd);
		r = box_frame(b, &f, e);
		if (r != 0)
			return r;
	}
}

int box_flight(struct engine *g, unsigned count, unsigned flight, struct err *e)
{
	static struct box boxes[FLIGHT_MAX];
	struct pollfd p[FLIGHT_MAX];
	unsigned started = 0, ended = 0;
	int r = 0;

	assert(flight <= FLIGHT_MAX);
	while (r == 0 && ended < count) {
		for (unsigned i = 0; r == 0 && i < flight; i++) {
			if (!boxes[i].made && started < count) {
				r = box_create(g, &boxes[i], e);
				if (r == 0)
					r = box_exec_send(&boxes[i], e);
				started += r == 0;
			}
			p[i] = (struct pollfd){ .fd = boxes[i].made ? boxes[i].s.link.sock : -1, .events = POLLIN };
		}
		if (r < 0)
			break;
		if (poll(p, flight, EXEC_MS) <= 0) {
			r = err_set(e, ERR_TIMEOUT, -ETIMEDOUT, "no sandbox in flight makes progress");
			break;
		}
		for (unsigned i = 0; r == 0 && i < flight; i++) {
			if (!p[i].revents)
				continue;
			r = step(&boxes[i], e);
			if (r <= 0)
				continue;
			r = box_destroy(&boxes[i], e);
			ended++;
		}
	}
	for (unsigned i = 0; i < flight; i++)
		box_destroy(&boxes[i], NULL);
	return r;
}
