/*
 * The end of a refused stream. An HTTP client gets the reason (403 and JSON), a proxy's client an answer of the proxy's
 * protocol, all others a reset. Meanwhile the owner is asked which process the connection belongs to: since the socket
 * must still exist for that, the first refusal of its kind waits a moment for the answer; later ones do not.
 */
#pragma once
#include "egress/stream.h"

/* @verdict DENIED or BUDGET, or FAILED: then it is an error of the other side. @reason is copied. */
void refuse(struct stream *s, uint8_t verdict, const char *reason);
void refuse_ready(struct stream *s); /* bytes came */
void refuse_due(struct stream *s); /* its timer */
void refuse_they(struct egress *g, uint32_t seq, const struct egress_they *t);
/*
 * Reports the refusal now, unless it was reported. False: an EGRESS_WHO is not answered yet, and the report follows.
 * May be called for streams that are not refused.
 */
bool refuse_told(struct stream *s);
void refuse_free(struct stream *s);
