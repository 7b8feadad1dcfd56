/*
 * Little-endian fields in a bounded buffer, for reading and writing. Readers and writers are sticky: after the first
 * overrun every further call does nothing, and one check at the end reports it. No field may be used before that
 * check.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire_out {
	uint8_t *at, *end;
	bool bad;
};

struct wire_in {
	const uint8_t *at, *end;
	bool bad;
};

void wire_put_u8(struct wire_out *w, uint8_t v);
void wire_put_u32(struct wire_out *w, uint32_t v);
void wire_put_u64(struct wire_out *w, uint64_t v);
/* Length, bytes, and a closing NUL, so that the reader can use the string in place. */
void wire_put_str(struct wire_out *w, const char *s);

uint8_t wire_get_u8(struct wire_in *r);
uint32_t wire_get_u32(struct wire_in *r);
uint64_t wire_get_u64(struct wire_in *r);
/* Points into the input. A missing NUL, or one inside, is bad. Never NULL: "" when bad. */
const char *wire_get_str(struct wire_in *r);
