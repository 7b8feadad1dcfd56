/* A sandbox's first frames: whether its agent has the right version, and how its setup ended. */
#include "base/base.h"
#include "base/clock.h"
#include "proto/wire.h"
#include "run/engine.h"

static int on_ready(struct engine_sandbox *s, const struct frame *f, struct err *e)
{
	struct wire_in r = { f->payload, f->payload + f->len, false };
	uint32_t version = wire_get_u32(&r), abi = wire_get_u32(&r);

	if (r.bad || version != FRAME_VERSION) {
		err_set(e, ERR_INTERNAL, -EPROTO, "the agent speaks protocol version %u, expected %u", version,
			FRAME_VERSION);
		err_remedy(e, "install cloche and cloche-agent of the same version");
		return -EPROTO;
	}
	s->receipt.landlock_abi = abi;
	return 1;
}

int engine_frame(struct engine_sandbox *s, const struct frame *f, struct err *e)
{
	if (f->id != 0)
		return 0;
	if (f->type == FRAME_READY)
		return on_ready(s, f, e);
	if (f->type == FRAME_UP) {
		s->up = true;
		return 1;
	}
	if (f->type == FRAME_FAILED)
		return link_error(f, "make the sandbox", e, NULL);
	return 0;
}

static int lost(struct engine_sandbox *s, int r, struct err *e)
{
	int why = s->engine ? warden_start_error(engine_warden(s->engine)) : 0;

	if (why < 0)
		return err_sys(e, ERR_UNSUPPORTED, why, "start the agent in its namespaces");
	return err_set(e, ERR_LOST, r, "the agent %s before the sandbox was ready",
		       r == -EBADMSG ? "sent an invalid message" : "died");
}

int engine_wait_up(struct engine_sandbox *s, int timeout_ms, struct err *e)
{
	uint64_t end = clock_mono_ns() + (uint64_t)timeout_ms * 1000000ULL;

	while (!s->up) {
		uint64_t now = clock_mono_ns();
		struct frame f;
		int fd = -1, r;

		r = now >= end ? 0 : link_next(&s->link, (int)((end - now) / 1000000ULL) + 1, &f, &fd);
		if (r == 0 && clock_mono_ns() >= end)
			return err_set(e, ERR_TIMEOUT, -ETIMEDOUT, "sandbox not ready after %d ms", timeout_ms);
		if (r < 0)
			return lost(s, r, e);
		if (r == 0)
			continue;
		fd_close(fd);
		r = engine_frame(s, &f, e);
		if (r < 0)
			return r;
	}
	return 0;
}
