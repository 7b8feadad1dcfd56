/* Reads and writes little-endian fields. */
#include "proto/wire.h"
#include "base/base.h"

static void put(struct wire_out *w, uint64_t v, size_t n)
{
	if (w->bad || (size_t)(w->end - w->at) < n) {
		w->bad = true;
		return;
	}
	for (size_t i = 0; i < n; i++)
		*w->at++ = (uint8_t)(v >> (8 * i));
}

static uint64_t get(struct wire_in *r, size_t n)
{
	uint64_t v = 0;

	if (r->bad || (size_t)(r->end - r->at) < n) {
		r->bad = true;
		return 0;
	}
	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)*r->at++ << (8 * i);
	return v;
}

void wire_put_u8(struct wire_out *w, uint8_t v)
{
	put(w, v, 1);
}

void wire_put_u32(struct wire_out *w, uint32_t v)
{
	put(w, v, 4);
}

void wire_put_u64(struct wire_out *w, uint64_t v)
{
	put(w, v, 8);
}

void wire_put_str(struct wire_out *w, const char *s)
{
	size_t n = strlen(s) + 1;

	if (n > UINT32_MAX)
		w->bad = true;
	put(w, n - 1, 4);
	if (w->bad || (size_t)(w->end - w->at) < n) {
		w->bad = true;
		return;
	}
	memcpy(w->at, s, n);
	w->at += n;
}

uint8_t wire_get_u8(struct wire_in *r)
{
	return (uint8_t)get(r, 1);
}

uint32_t wire_get_u32(struct wire_in *r)
{
	return (uint32_t)get(r, 4);
}

uint64_t wire_get_u64(struct wire_in *r)
{
	return get(r, 8);
}

const char *wire_get_str(struct wire_in *r)
{
	size_t n = wire_get_u32(r);
	const uint8_t *s = r->at;

	if (r->bad || n >= (size_t)(r->end - r->at) || memchr(s, 0, n + 1) != s + n) {
		r->bad = true;
		return "";
	}
	r->at += n + 1;
	return (const char *)s;
}
