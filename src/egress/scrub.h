/*
 * The answers on one connection to a server that was sent secrets, with the values masked: every byte of a value becomes
 * "*", in heads, bodies, trailers and what follows an upgrade, in the forms of base/mask.h. Lengths stay, so bodies keep
 * their framing; chunks are cut anew, so that a value across two of them is found.
 *
 * Bytes that may begin a value are held until the following bytes decide, or scrub_pause() is called. Compressed answers
 * are refused: the request did not accept them. Answers whose end is ambiguous are refused, too.
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
 * Takes all bytes and adds to @out what may be forwarded, at most SCRUB_HEAD_MAX and the held bytes more than came in.
 * -EBADMSG: *why is set, and the stream cannot continue; when scrub_owes(), an error can be answered in place of the
 * invalid answer. -ENOMEM, -E2BIG.
 */
int scrub_feed(struct scrub *s, const char *data, size_t len, struct buf *out, const char **why);
bool scrub_owes(const struct scrub *s); /* a request was sent, and no byte of its answer was forwarded yet */
/* The server has closed the connection, @torn: by a reset. Held bytes are added if the answer may end, else dropped. */
int scrub_end(struct scrub *s, bool torn, struct buf *out);
bool scrub_held(const struct scrub *s); /* scrub_pause() would add bytes */
int scrub_pause(struct scrub *s, struct buf *out);
