/*
 * A record that can be added to and never rewritten unnoticed: one JSON object per line, each with a sequence number
 * and the hash of the line before it.
 *
 *	{"seq":7,"time":"…","mono_ns":…,"kind":"…",…,"prev":"<64 hex>","hash":"<64 hex>"}
 *
 * hash = SHA-256 over the line's bytes up to and without `,"hash":"…"}`; since `prev` is in them, each hash covers all
 * before it. The first record's prev is 64 zeros. Records are collected in memory and written by audit_flush, one
 * write() for all: before any answer that depends on them.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/json.h"

struct audit;

struct audit_head {
	uint64_t seq; /* 0 = empty */
	char hash[65];
};

/*
 * Opens or makes (0600) the log. Reads all of it: a torn last line (no newline, or not whole) is cut off and noted by a
 * record of kind audit.cut; anything else that is wrong stops with -EBADMSG, naming the record, and changes nothing.
 * Fast: 1 GB in a few seconds.
 */
int audit_open(const char *path, struct audit **ret, struct err *e);
void audit_close(struct audit *a); /* flushes and syncs */
DEFINE_AUTO(struct audit, audit_close)

/* Common fields; NULL and 0 are left out. Text from users is escaped by json.h. */
struct audit_rec {
	const char *kind, *tenant, *token, *request_id, *sandbox, *exec;
};
/*
 * Starts a record; the caller adds its own fields to what is returned (it is inside the record's object; names other
 * than the common ones and prev, hash, cut) and ends with audit_end. Never fails half-way: a record that does not fit
 * (64 KiB) is written with its common fields and "cut":true. A failure of memory or disk is returned by the next flush.
 */
struct json *audit_begin(struct audit *a, const struct audit_rec *r);
void audit_end(struct audit *a, struct audit_head *ret); /* @ret may be NULL: the head with this record */

/*
 * Writes what was collected. On a full disk (-ENOSPC, -EDQUOT) all of that stays collected, and the next call tries again.
 * Any other error is fatal to the daemon: it must not answer what it could not note.
 */
int audit_flush(struct audit *a, struct err *e);
/* Bytes that can be written on a full disk, as far as they were taken before. */
uint64_t audit_room(const struct audit *a);
int audit_fd(const struct audit *a); /* for fdatasync in a worker */
uint64_t audit_written(const struct audit *a); /* the last record that is in the file */
const struct audit_head *audit_head(const struct audit *a);

/*
 * Hands out stored records as raw lines (without newline), after seq @after, at most @limit that fit the filter (NULL =
 * any). Uses an index of offsets kept in memory (one per 256 records). @fn may stop it by anything but 0, which is then
 * returned. A call looks at no more than AUDIT_READ_MAX bytes, so that it never holds up the loop: *ret_last (may be
 * NULL) is the last record looked at; a caller that has not reached the head's seq calls again with it as @after.
 */
#define AUDIT_READ_MAX (8 * MIB)
struct audit_filter {
	const char *kind, *sandbox, *tenant;
};
int audit_read(struct audit *a, uint64_t after, uint64_t limit, const struct audit_filter *f,
	       int (*fn)(void *arg, uint64_t seq, const char *line, size_t len), void *arg, uint64_t *ret_last,
	       struct err *e);

/*
 * Checks all of a log, also one that is being written. 0, or -EBADMSG naming the first bad record, or a torn last one
 * (->torn is then not 0). *ret is written in each case, and describes the good part.
 */
struct audit_verdict {
	struct audit_head head;
	uint64_t records;
	uint64_t torn; /* bytes behind the last whole record */
};
int audit_verify(const char *path, struct audit_verdict *ret, struct err *e);
/* Likewise; and @kept, the head of some time before, must be in it: otherwise its end was cut off, or it is another log. */
int audit_verify_kept(const char *path, const struct audit_head *kept, struct audit_verdict *ret, struct err *e);
