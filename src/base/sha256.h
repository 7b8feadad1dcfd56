/*
 * SHA-256 (FIPS 180-4), for programs that are linked without OpenSSL, and for what is short: OpenSSL looks its
 * algorithms up by name, which takes longer than hashing a line. Uses the CPU's own instructions where it has them.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define SHA256_SIZE 32
#define SHA256_BLOCK 64

struct sha256 {
	uint32_t state[8];
	uint64_t len; /* bytes so far */
	uint8_t part[SHA256_BLOCK]; /* of a block that is not full yet */
	void (*blocks)(uint32_t state[8], const uint8_t *data, size_t n);
};

void sha256_init(struct sha256 *s);
/* As sha256_init, without the CPU's instructions. */
void sha256_init_plain(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t len);
/* May be called once. */
void sha256_end(struct sha256 *s, uint8_t ret[SHA256_SIZE]);
