/*
 * Memory images that are encrypted on the disk: each image's folder is encrypted by the file system (fscrypt:
 * AES-256-XTS, a key of its own for each file) before a file is created in it. A process that has the folder open reads
 * plain bytes, so comparing, sharing and mapping pages work as before. Without its key, a folder has neither names nor
 * bytes.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CRYPT_KEY 32U
#define CRYPT_KEYS_MAX 4U

struct crypt { /* All zeros: nothing is encrypted. */
	unsigned n; /* number of keys */
	uint8_t id[CRYPT_KEYS_MAX][16]; /* the kernel's names of the keys; the first key is for new folders */
};

/*
 * Gives @n keys to the file system of @dir: the first is for new folders, the others open what older ones have made.
 * ERR_UNSUPPORTED when the file system cannot: then nothing may be kept there.
 */
int crypt_open(int dir, const uint8_t (*key)[CRYPT_KEY], unsigned n, struct crypt *ret, struct err *e);
/* Removes the keys from the kernel: files that no process has open cannot be read any more. */
void crypt_close(struct crypt *c, int dir);
int crypt_folder(const struct crypt *c, int folder); /* encrypts an empty folder; 0 or -errno */
bool crypt_locked(int dir, const char *name); /* whether the folder @name is encrypted, and its key is not available */
