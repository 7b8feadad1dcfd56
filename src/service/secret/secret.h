/*
 * Secrets of a tenant, by name. A value goes in, is sealed (service/secret/vault.h), and comes out again for sandboxes only
 * (service/secret/give.h): no call of the API returns it. Setting it again rotates it: the version counts, and values
 * from before are kept for a while, so that what still shows them is masked.
 */
#pragma once
#include "service/service.h"
#include "service/state/named.h"
#include "service/secret/vault.h"
#include "service/sandbox/request.h"

#define SECRETS_MAX 1000U /* of one tenant, whatever its quota says */
#define SECRET_VERSIONS 16U /* values kept, the newest counted */
#define SECRET_DESCRIPTION_MAX 1024U

struct secret;

/* All that are stored. */
int secrets_load(struct service *s, struct err *e);
/*
 * What was sealed with a key of before is sealed with today's, all at once, and the keys of before are forgotten; when it
 * returns, that is on the disk. When sandboxes are loaded, too: their CAs are among it. (service/secret/rekey.c)
 */
int secrets_rekey(struct service *s, struct err *e);
/* NULL and ERR_NOT_FOUND, also for one that is gone. */
struct secret *secret_find(struct service *s, const struct tenant *t, const char *name, struct err *e);
/* The same, gone ones too. */
struct secret *secret_any(struct service *s, const struct tenant *t, const char *name);
/* Adds or rotates. @description NULL: stays. Stored with the turn. */
int secret_put(struct service *s, const struct who *who, struct tenant *t, const char *name, const void *value,
	       size_t len, const char *description, struct secret **ret, bool *ret_created, struct err *e);
/* Its newest value, added to @ret (followed by a NUL that does not count): wiped by the caller. */
int secret_read(const struct secret *c, struct buf *ret, struct err *e);
/* What is written of one is never the value. */
extern const struct named_kind secret_kind;
/* Those that are gone, and that no sandbox or checkpoint can show any more, are forgotten. */
void secrets_sweep(struct service *s);
/* The tenant goes, and its rows with it. */
void secrets_forget(struct service *s, const struct tenant *t);
/* The device of the filesystem that @b has its secrets on, as it is called inside: hidden from callers of the API. 0: none. */
uint64_t secrets_dev(const struct sandbox *b);
/* One audit record: it was given to a sandbox, as @how says ("file", "env", …), or withheld. */
void secret_note_use(const struct secret *c, const struct who *who, const char *sandbox, const char *how);
