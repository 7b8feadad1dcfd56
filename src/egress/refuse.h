/*
 * The end of a stream that may not be. Who speaks HTTP is told why (403 and JSON), a proxy's client in the proxy's way,
 * all others get a reset. Meanwhile the owner is asked whose connection it is: the socket has to be there for that, so
 * the first of its kind waits a moment for the answer; those that follow do not.
 */
#pragma once
#include "egress/stream.h"

/* @verdict DENIED or BUDGET, or FAILED: then it is an error of the other side. @reason is copied. */
void refuse(struct stream *s, uint8_t verdict, const char *reason);
void refuse_ready(struct stream *s); /* bytes came */
void refuse_due(struct stream *s); /* its timer */
void refuse_they(struct egress *g, uint32_t seq, const struct egress_they *t);
/* It is told now, if it was not and nobody is asked whose it is. False: he is, so it will be. Also of streams that are not refused. */
bool refuse_told(struct stream *s);
void refuse_free(struct stream *s);
