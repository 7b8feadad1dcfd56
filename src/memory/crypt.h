/*
 * Memory images that lie encrypted on the disk: the folder of each is made one of the file system's own encryption
 * (fscrypt: AES-256-XTS, a key of its own for each file), before anything is in it. Whoever has it open sees plain bytes, so
 * comparing, sharing and mapping pages stay as they are. Without its key a folder has neither names nor bytes.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CRYPT_KEY 32U
#define CRYPT_KEYS_MAX 4U

struct crypt { /* zeros: nothing is encrypted */
	unsigned n; /* keys */
	uint8_t id[CRYPT_KEYS_MAX][16]; /* as the kernel calls them; the first is for new folders */
};

/*
 * Gives @n keys to the file system of @dir: the first is for new folders, the others open what older ones have made.
 * ERR_UNSUPPORTED when the file system cannot: then nothing may be kept there.
 */
int crypt_open(int dir, const uint8_t (*key)[CRYPT_KEY], unsigned n, struct crypt *ret, struct err *e);
/* The keys are taken back: what nobody has open cannot be read any more. */
void crypt_close(struct crypt *c, int dir);
int crypt_folder(const struct crypt *c, int folder); /* an empty one. 0, or -errno */
bool crypt_locked(int dir, const char *name); /* that folder is encrypted, and its key is not here */
