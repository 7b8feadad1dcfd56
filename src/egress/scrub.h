/*
 * The answers on one connection to a server that was sent secrets, with the values masked: every byte of a value becomes
 * "*", in heads, bodies, trailers and what follows an upgrade, in the forms of base/mask.h. Lengths stay, so bodies keep
 * their framing; chunks are cut anew, so that a value across two of them is found.
 *
 * Bytes that may be the beginning of a value are held until what follows tells, or scrub_pause(). Answers that are
 * compressed are refused: the server was asked for none. What is ambiguous about where an answer ends is refused, too.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/mask.h"

#define SCRUB_HEAD_MAX 32768U
#define SCRUB_ASKED_MAX 64U
#define SCRUB_SHOWN_MAX 3U /* of a value's beginning, when the server pauses behind it */
#define SCRUB_CUT_MIN 8U /* of a value at the end of a body: masked although the rest is missing */

struct scrub;

struct scrub *scrub_new(struct mask *m); /* refers to @m. NULL: no memory */
void scrub_free(struct scrub *s); /* NULL is fine */
int scrub_set_mask(struct scrub *s, struct mask *m, struct buf *out); /* other values, from the next byte on */

/* A request goes to the server. Not while scrub_full(). */
void scrub_asked(struct scrub *s, bool head, bool upgrade);
bool scrub_full(const struct scrub *s);

/*
 * Takes all of it, adds what can be told to @out: up to SCRUB_HEAD_MAX and what is held more than came. -EBADMSG: *why,
 * and nothing more can be told; another answer can stand in place of the one that is bad when scrub_owes(). -ENOMEM, -E2BIG.
 */
int scrub_feed(struct scrub *s, const char *data, size_t len, struct buf *out, const char **why);
bool scrub_owes(const struct scrub *s); /* an answer, of which nothing was told yet */
/* The server has ended, @torn: without saying so. What is held is told where that is an end, else forgotten. */
int scrub_end(struct scrub *s, bool torn, struct buf *out);
bool scrub_held(const struct scrub *s); /* scrub_pause() would tell something */
int scrub_pause(struct scrub *s, struct buf *out);
