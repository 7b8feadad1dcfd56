/*
 * Values are stored sealed: AES-256-GCM with a nonce of its own each, bound to the tenant, the name and the version. A
 * value that was changed, or moved to another row, does not open.
 *
 * The key is `secrets.key` in the data folder (32 bytes, 0600, made when the first value is sealed), or comes from
 * outside (secrets_key_command): 32 bytes are the key; anything else is a passphrase, stretched by scrypt with
 * `secrets.salt` of the data folder.
 *
 * Earlier keys open what was sealed with them, until vault_settle(): one from outside (secrets_old_key_command),
 * `secrets.key.old`, and `secrets.key` where the key now comes from outside. Nothing is sealed with those any more.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"

struct vault;

#define VAULT_KEY 32U
#define VAULT_PASSPHRASE_MIN 12U
#define VAULT_GIVEN_MAX 1024U
#define VAULT_VALUE_MAX (64U * 1024U)
#define VAULT_OVERHEAD 28U /* nonce and tag */

struct vault_opts {
	const char *data; /* the data folder */
	const void *given; /* from outside, NULL = none */
	size_t given_len;
	const void *old; /* the one of before, likewise */
	size_t old_len;
};

/* Copies what it needs. A passphrase is stretched here, which takes a moment. */
int vault_new(const struct vault_opts *o, struct vault **ret, struct err *e);
void vault_free(struct vault *v); /* and wipes it */
DEFINE_AUTO(struct vault, vault_free)
/* Something was sealed before: a key that is missing now is an error, and no new one is made. */
void vault_in_use(struct vault *v);
/* There are keys of before, or there were when something was opened with one last: then it is to be sealed again. */
bool vault_has_old(const struct vault *v);
bool vault_opened_old(const struct vault *v);
/*
 * Keys for memory images: of the vault's own key, which is made when there is none, then of those of before. Their number. They
 * are of no use to find the vault's.
 */
#define VAULT_MEMORY_KEYS 4U
int vault_memory_keys(struct vault *v, uint8_t ret[VAULT_MEMORY_KEYS][VAULT_KEY], struct err *e);
/* Keys of before are forgotten. */
void vault_settle(struct vault *v);

struct vault_name {
	const char *tenant, *name;
	uint64_t version;
};
/* Adds to @ret. */
int vault_seal(struct vault *v, const struct vault_name *n, const void *value, size_t len, struct buf *ret,
	       struct err *e);
/* Opens a value. ERR_INTERNAL that names the secret when that fails. The caller wipes @ret: vault_wipe. */
int vault_open(struct vault *v, const struct vault_name *n, const void *sealed, size_t len, struct buf *ret,
	       struct err *e);
void vault_wipe(struct buf *b);

/* A file of a key: exactly @size bytes, the daemon's user's alone. -ENOENT without a word: it is not there. */
int vault_file_read(const char *path, void *to, size_t size, struct err *e);
int vault_file_write(const char *path, const void *data, size_t size, struct err *e); /* on the disk when it returns */
static inline void vault_wipep(struct buf *b)
{
	vault_wipe(b);
}
