/* The chain of hashes: what each record must be, given the one before it. */
#pragma once
#include <openssl/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "audit/audit.h"

struct chain {
	EVP_MD_CTX *ctx;
	EVP_MD *md;
	struct audit_head head; /* prev of the next record, "000…" at first */
};

int chain_init(struct chain *c, struct err *e);
void chain_done(struct chain *c);
static inline void chain_donep(struct chain *c)
{
	chain_done(c);
}

/* SHA-256 in hex, with its NUL. -EIO when the library fails. */
int chain_hash(struct chain *c, const void *data, size_t len, char ret[65]);
/* Whether @line is the record after the head, which then moves on. -EBADMSG says what is wrong with it. */
int chain_step(struct chain *c, const char *line, size_t len, struct err *e);

/*
 * Walks a whole log from its start, a stretch at a time. *ret_good is where the last whole record ends. Bytes behind it
 * are a torn end when at most one line is bad and nothing but NULs comes after it (some filesystems leave those after a
 * power cut): then 0 is returned. A bad record that others follow is -EBADMSG, naming it. @fn (may be NULL) gets every
 * record's place.
 */
int chain_scan(struct chain *c, int fd, uint64_t size, int (*fn)(void *arg, uint64_t seq, uint64_t offset), void *arg,
	       uint64_t *ret_good, struct err *e);
