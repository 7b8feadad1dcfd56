/*
 * Values that must not be readable in the output of a sandbox. A mask finds them all in one pass over a stream, however
 * it is cut into pieces, and puts MASK_TEXT in their place: in plain form, as in JSON, URLs, base64 (at each of its
 * three offsets in a longer text) and hex, and line by line.
 *
 * This prevents accidents (a log, an error message, `env`). It does not stop a program that intends to reveal a value:
 * the program can write it backwards.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#define MASK_TEXT "***"
#define MASK_VALUE_MIN 4U /* shorter ones would be found in everything */

struct mask; /* never changes; counted */

struct mask_value {
	const char *data;
	size_t len;
	bool few; /* as it is and as JSON alone: takes a tenth of the memory */
};

/* Values of less than MASK_VALUE_MIN bytes, without what ends their line, are left out. 0 or -ENOMEM. */
int mask_new(const struct mask_value *v, size_t n, struct mask **ret);
struct mask *mask_ref(struct mask *m); /* NULL is fine, likewise: */
void mask_unref(struct mask *m); /* the last one wipes it */
size_t mask_bytes(const struct mask *m); /* memory it takes */

struct mask_span {
	uint64_t from, to;
};

/* One stream. All zeros at first, but for ->m, which it does not count: mask_stream_init. */
struct mask_stream {
	struct mask *m;
	struct buf held; /* bytes from ->base to ->pos: they may be the beginning of a value */
	uint64_t base, pos;
	uint32_t state;
	struct mask_span *span; /* of what is held, to be masked; apart, in order */
	uint32_t nspans, room;
	uint64_t shown; /* up to here there is a MASK_TEXT in the output */
	/* "*" for every byte instead of MASK_TEXT: for what has its length said elsewhere. Set by the caller */
	bool same_length;
};

void mask_stream_init(struct mask_stream *x, struct mask *m); /* refers to @m until mask_stream_done */
void mask_stream_done(struct mask_stream *x); /* what is held is forgotten */
/*
 * Takes @len bytes and adds to @out what can no longer become part of a value, never more bytes than came in so far.
 * -ENOMEM or -E2BIG: the rest of the stream cannot be masked, and must not be shown.
 */
int mask_feed(struct mask_stream *x, const void *data, size_t len, struct buf *out);
int mask_end(struct mask_stream *x, struct buf *out); /* what is held */
/* Like mask_end(), but the stream continues: the rest of a value that has begun is still masked. */
int mask_show(struct mask_stream *x, struct buf *out);
/* There are other values now: what is held is looked at anew. */
int mask_stream_change(struct mask_stream *x, struct mask *m, struct buf *out);
static inline size_t mask_held(const struct mask_stream *x)
{
	return (size_t)(x->pos - x->base);
}

/* How much of a value there may be at the end of what came, shown or held. */
size_t mask_begun(const struct mask_stream *x);
/* As mask_end(); but when as much as @most bytes of a value, or more, are at the end, they are masked. */
int mask_end_cut(struct mask_stream *x, size_t most, struct buf *out);

/* A whole text. NULL mask: as it is. */
int mask_text(struct mask *m, const void *data, size_t len, struct buf *out);
/* One that was cut: what could be the beginning of a value at its end is masked, too. */
int mask_cut_text(struct mask *m, const void *data, size_t len, struct buf *out);
/* In place, in a field of @size bytes; one that is full counts as cut. */
void mask_field(struct mask *m, char *text, size_t size);
static inline void mask_err(struct mask *m, struct err *e)
{
	mask_field(m, e->msg, sizeof(e->msg));
}

/* A field of an object, or with NULL an element of an array. */
void mask_write(struct mask *m, const char *key, const char *text, struct json *j);
