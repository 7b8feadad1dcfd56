/* Packs messages for a serial port, and unpacks them. */
#include "proto/mux.h"
#include "base/base.h"
#include "proto/wire.h"

/* Not against forgers: so that payload bytes are not taken for a head after a cut. */
static uint32_t check(const uint8_t *head)
{
	uint32_t h = 2166136261U;

	for (unsigned i = 0; i < MUX_HEAD - 4; i++)
		h = (h ^ head[i]) * 16777619U;
	return h;
}

void mux_head(uint8_t *out, enum mux_type type, uint32_t epoch, uint32_t channel, uint32_t len)
{
	struct wire_out w = { out, out + MUX_HEAD, false };

	wire_put_u32(&w, MUX_MAGIC);
	wire_put_u32(&w, epoch);
	wire_put_u32(&w, channel);
	wire_put_u32(&w, len);
	wire_put_u32(&w, (uint32_t)type);
	wire_put_u32(&w, check(out));
}

long mux_decode(const uint8_t *data, size_t len, struct mux *ret)
{
	struct wire_in r = { data, data + (len < MUX_HEAD ? len : MUX_HEAD), false };
	uint32_t magic, type, sum;
	struct mux m = { 0 };

	/*
	 * The first bytes are checked at once: a sender of a few wrong bytes must not make the receiver wait for the
	 * rest.
	 */
	for (size_t i = 0; i < len && i < 4; i++)
		if (data[i] != (uint8_t)(MUX_MAGIC >> (8 * i)))
			return -EBADMSG;
	if (len < MUX_HEAD)
		return 0;
	magic = wire_get_u32(&r);
	m.epoch = wire_get_u32(&r);
	m.channel = wire_get_u32(&r);
	m.len = wire_get_u32(&r);
	type = wire_get_u32(&r);
	sum = wire_get_u32(&r);
	if (magic != MUX_MAGIC || sum != check(data) || m.len > MUX_PAYLOAD_MAX || m.channel >= MUX_CHANNELS ||
	    type < MUX_HELLO || type > MUX_TYPE_LAST)
		return -EBADMSG;
	if (len < MUX_HEAD + (size_t)m.len)
		return 0;
	m.type = (uint8_t)type;
	m.payload = data + MUX_HEAD;
	*ret = m;
	return (long)(MUX_HEAD + m.len);
}

size_t mux_skip(const uint8_t *data, size_t len)
{
	size_t i = 1;

	while (i < len && data[i] != (uint8_t)MUX_MAGIC)
		i++;
	return i;
}

void mux_start_encode(const struct mux_start *s, uint8_t out[MUX_START_LEN])
{
	struct wire_out w = { out, out + MUX_START_LEN, false };

	wire_put_u64(&w, s->real_ns);
	for (size_t i = 0; i < sizeof(s->seed); i++)
		wire_put_u8(&w, s->seed[i]);
	wire_put_u32(&w, s->spec_len);
}

int mux_start_decode(const struct mux *m, struct mux_start *ret, const uint8_t **ret_spec)
{
	struct wire_in r = { m->payload, m->payload + m->len, false };
	struct mux_start s;

	s.real_ns = wire_get_u64(&r);
	for (size_t i = 0; i < sizeof(s.seed); i++)
		s.seed[i] = wire_get_u8(&r);
	s.spec_len = wire_get_u32(&r);
	if (r.bad || s.spec_len != (size_t)(r.end - r.at))
		return -EBADMSG;
	*ret = s;
	*ret_spec = r.at;
	return 0;
}

static void put_bytes(struct wire_out *w, const void *data, size_t len)
{
	const uint8_t *at = data;

	for (size_t i = 0; i < len; i++)
		wire_put_u8(w, at[i]);
}

static void get_bytes(struct wire_in *r, void *ret, size_t len)
{
	uint8_t *at = ret;

	for (size_t i = 0; i < len; i++)
		at[i] = wire_get_u8(r);
}

void mux_resume_encode(const struct mux_resume *x, uint8_t out[MUX_RESUME_LEN])
{
	struct wire_out w = { out, out + MUX_RESUME_LEN, false };

	wire_put_u32(&w, x->epoch);
	wire_put_u32(&w, x->flags);
	wire_put_u64(&w, x->real_ns);
	put_bytes(&w, x->seed, sizeof(x->seed));
	put_bytes(&w, x->generation, sizeof(x->generation));
	put_bytes(&w, x->hostname, sizeof(x->hostname));
}

int mux_resume_decode(const struct mux *m, struct mux_resume *ret)
{
	struct wire_in r = { m->payload, m->payload + m->len, false };
	struct mux_resume x = { 0 };

	x.epoch = wire_get_u32(&r);
	x.flags = wire_get_u32(&r);
	x.real_ns = wire_get_u64(&r);
	get_bytes(&r, x.seed, sizeof(x.seed));
	get_bytes(&r, x.generation, sizeof(x.generation));
	get_bytes(&r, x.hostname, sizeof(x.hostname));
	if (r.bad || r.at != r.end || x.flags & ~(MUX_RESUME_DROP | MUX_RESUME_FRESH | MUX_RESUME_SECRETS) ||
	    !memchr(x.hostname, 0, sizeof(x.hostname)))
		return -EBADMSG;
	*ret = x;
	return 0;
}

void mux_net_encode(const struct mux_net *x, uint8_t out[MUX_NET_LEN])
{
	struct wire_out w = { out, out + MUX_NET_LEN, false };

	wire_put_u32(&w, MUX_NET);
	wire_put_u32(&w, x->family);
	wire_put_u32(&w, x->port);
	put_bytes(&w, x->addr, sizeof(x->addr));
}

int mux_net_decode(const struct mux *m, struct mux_net *ret)
{
	struct wire_in r = { m->payload, m->payload + m->len, false };
	uint32_t kind = wire_get_u32(&r);
	struct mux_net x;

	x.family = wire_get_u32(&r);
	x.port = wire_get_u32(&r);
	get_bytes(&r, x.addr, sizeof(x.addr));
	if (r.bad || r.at != r.end || kind != MUX_NET || (x.family != 4 && x.family != 6) || !x.port || x.port > 65535)
		return -EBADMSG;
	*ret = x;
	return 0;
}

void mux_stat_encode(const struct mux_stat *s, uint8_t out[MUX_STAT_LEN])
{
	struct wire_out w = { out, out + MUX_STAT_LEN, false };

#define X(name) wire_put_u64(&w, s->name);
	MUX_STAT_FIELDS(X)
#undef X
}

int mux_stat_decode(const struct mux *m, struct mux_stat *ret)
{
	struct wire_in r = { m->payload, m->payload + m->len, false };
	struct mux_stat s;

#define X(name) s.name = wire_get_u64(&r);
	MUX_STAT_FIELDS(X)
#undef X
	if (r.bad || r.at != r.end)
		return -EBADMSG;
	*ret = s;
	return 0;
}
