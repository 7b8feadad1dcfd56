/*
 * Quiescence for a checkpoint. Each side announces its last byte (QUIESCE, QUIET), and later messages wait in ->out
 * behind ->out_stop. So when the host has got QUIET, no byte is in transit, and both ends' state is whole: the guest's
 * in its memory, the host's in what kept_save() writes.
 */
#include "base/base.h"
#include "base/clock.h"
#include "vm/vmm/carry.h"

int carry_quiesce(struct carry *c)
{
	if (c->stop || c->still)
		return -EALREADY;
	c->stop = true;
	c->quiet = false;
	c->refused = 0;
	return 0;
}

static void keep_still(struct carry *c)
{
	c->still = true;
	c->out_stop = c->out_len;
}

int still_begin(struct carry *c)
{
	int r;

	if (!c->stop || c->still || c->from_begun)
		return 0;
	r = carry_say(c, MUX_QUIESCE, 0, NULL, 0);
	if (r < 0)
		return r;
	c->quiet_due++;
	keep_still(c);
	return 0;
}

int carry_quiet(const struct carry *c)
{
	return c->refused ? c->refused : c->quiet;
}

bool carry_resumed(const struct carry *c, uint32_t *ret_restored)
{
	*ret_restored = c->restored;
	return c->resumed;
}

/* Gives messages that have waited the present epoch. */
static void stamp(struct carry *c)
{
	struct mux m;
	long n;

	for (size_t at = c->out_stop; (n = mux_decode(c->out + at, c->out_len - at, &m)) > 0; at += (size_t)n)
		mux_head(c->out + at, (enum mux_type)m.type, c->epoch, m.channel, m.len);
}

int still_end(struct carry *c, enum mux_type type, const void *payload, size_t len)
{
	const size_t size = MUX_HEAD + len;
	uint8_t *at;

	if (CARRY_OUT - c->out_len < size)
		return -ENOBUFS;
	stamp(c);
	at = c->out + c->out_stop;
	memmove(at + size, at, c->out_len - c->out_stop);
	mux_head(at, type, c->epoch, 0, (uint32_t)len);
	if (len)
		memcpy(at + MUX_HEAD, payload, len);
	c->out_len += size;
	c->still = c->stop = c->quiet = false;
	return 0;
}

int carry_go_on(struct carry *c)
{
	if (c->still) {
		const uint64_t real = clock_real_ns();
		uint8_t now[8];

		mux_put_u32(now, (uint32_t)real);
		mux_put_u32(now + 4, (uint32_t)(real >> 32));
		return still_end(c, MUX_GO_ON, now, sizeof(now));
	}
	c->stop = false;
	return 0;
}

static int take_quiesce(struct carry *c, const struct mux *m)
{
	uint8_t out[4];
	int r = c->other ? c->other(c->arg, m) : 0;

	mux_put_u32(out, (uint32_t)-r);
	r = carry_say(c, MUX_QUIET, 0, out, sizeof(out));
	/* Also if the guest could not become quiet: the host sends GO_ON in any case. */
	if (r == 0)
		keep_still(c);
	return r;
}

static int take_quiet(struct carry *c, const struct mux *m)
{
	uint32_t why;

	if (!c->quiet_due || m->len != 4)
		return -EBADMSG;
	why = mux_u32(m->payload);
	c->quiet_due--;
	if (!c->still || c->quiet_due)
		return 0; /* an answer to a save that was given up */
	if (why)
		c->refused = why < 4096 ? -(int)why : -EBADMSG;
	else
		c->quiet = true;
	return 0;
}

static int take_resume(struct carry *c, const struct mux *m)
{
	struct mux_resume who;
	uint8_t out[4];
	int r = mux_resume_decode(m, &who);

	if (r < 0)
		return r;
	c->epoch = who.epoch;
	r = c->other ? c->other(c->arg, m) : 0;
	if (r < 0)
		return r;
	mux_put_u32(out, (uint32_t)r);
	return still_end(c, MUX_RESUMED, out, sizeof(out));
}

int still_take(struct carry *c, const struct mux *m)
{
	int r;

	if (c->side == CARRY_GUEST) {
		if (m->type == MUX_QUIESCE)
			return take_quiesce(c, m);
		if (m->type == MUX_RESUME && c->still)
			return take_resume(c, m);
		if (m->type != MUX_GO_ON || !c->still || m->len != 8)
			return -EBADMSG;
		r = c->other ? c->other(c->arg, m) : 0;
		c->still = false;
		return r;
	}
	if (m->type == MUX_QUIET)
		return take_quiet(c, m);
	if (m->type != MUX_RESUMED || m->len != 4 || c->resumed || !c->resuming)
		return -EBADMSG;
	c->restored = mux_u32(m->payload);
	c->resumed = true;
	return 0;
}
