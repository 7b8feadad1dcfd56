/*
 * Signatures of exports: Ed25519 over the SHA-256 of all bytes before. They follow the export as a frame that zstd skips:
 *
 *	0x184d2a5c u32 | length u32 | "cloche-ed25519-1\n" | public key 32 | signature 64
 *
 * What is signed is "cloche export 1" with its NUL, then the sum. The daemon's key is `export.key` in the data folder (32
 * bytes, 0600, made with the first export). A key is written "ed25519:" and its public half in base64.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

#define SIGNER_BLOCK 121U
#define SIGNER_TEXT 64U

struct signer;

/* Neither reads nor makes a key yet. @trusted: keys of others, as texts that signer_key_ok() took; copied. */
int signer_new(const char *data, const char *const *trusted, unsigned n, struct signer **ret, struct err *e);
void signer_free(struct signer *s);
int signer_key_ok(const char *text); /* 0 or -EINVAL */

/* Our own key; made when there is none. */
int signer_public(struct signer *s, char ret[SIGNER_TEXT], struct err *e);
int signer_sign(struct signer *s, const uint8_t sum[32], uint8_t ret[SIGNER_BLOCK], struct err *e);

bool signer_is_block(const uint8_t *data); /* SIGNER_BLOCK bytes that begin as one does */
/* @ret_key: whose it is. 0: ours or a trusted one's; ERR_REFUSED: -EKEYREJECTED it does not fit the sum, -ENOKEY a stranger's. */
int signer_check(struct signer *s, const uint8_t block[SIGNER_BLOCK], const uint8_t sum[32], char ret_key[SIGNER_TEXT],
		 struct err *e);
