/*
 * A growing byte buffer with a hard maximum. An append that fails changes nothing. The bytes are always followed by a
 * NUL that does not count, so text can be used as a C string.
 *
 *	AUTO(buf_done) struct buf b = BUF_INIT(64 * KIB);
 */
#pragma once
#include <stdarg.h>
#include <stddef.h>

struct buf {
	char *data; /* NULL until the first byte: see buf_str() */
	size_t len, cap, max;
};

#define BUF_INIT(max_)                                                                                                 \
	{                                                                                                              \
		.max = (max_)                                                                                          \
	}

/* Frees the memory; the buffer is empty and usable again. */
void buf_done(struct buf *b);
static inline void buf_donep(struct buf *b)
{
	buf_done(b);
}
/* Empties it and keeps the memory. */
void buf_clear(struct buf *b);

/* Return 0, -E2BIG past the maximum, or -ENOMEM. */
int buf_add(struct buf *b, const void *data, size_t len);
int buf_adds(struct buf *b, const char *text);
int buf_addc(struct buf *b, char c);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_addv(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

/*
 * Room for @len bytes to be written at the returned place (by read(2), say) and then counted with buf_added(). NULL
 * when that would pass the maximum or memory is short. The place is good until the next call on @b.
 */
void *buf_room(struct buf *b, size_t len);
void buf_added(struct buf *b, size_t len); /* no more than was asked of buf_room */

/* Removes @len bytes from the front; @len is at most b->len. */
void buf_drop(struct buf *b, size_t len);
/* Forgets everything after the first @len bytes; @len is at most b->len. */
void buf_cut(struct buf *b, size_t len);

/* The content as a string, "" when empty; good until the next call on @b. */
const char *buf_str(const struct buf *b);
/* Hands over the memory (to be freed by the caller) and leaves @b empty. NULL only when memory is short. */
char *buf_take(struct buf *b);
