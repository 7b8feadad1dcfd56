/*
 * Follows what a client sends on one plain HTTP connection, so that each request is checked and no byte passes that is
 * not part of one. The caller has the bytes; this returns how many of them may pass:
 *
 *	switch (request_step(&q, data, len, &head, &n, &why)) {
 *	case REQUEST_MORE:	nothing yet: get more bytes (there is never more than HEAD_MAX to hold)
 *	case REQUEST_HEAD:	the first n are a head; check head->host; forward them, and continue with the rest
 *	case REQUEST_BODY:	the first n (not 0) may pass as they are
 *	case REQUEST_WAIT:	nothing, until request_answer() gets the server's answer to an Upgrade
 *	case REQUEST_LAST: no further request may follow: further bytes must not reach the server
 *	case REQUEST_BAD: end it; *why is the reason
 *	}
 *
 * request_plain() returns how many of the next bytes need no check (for splice); request_passed() counts those
 * that were spliced.
 */
#pragma once
#include "egress/head.h"

enum request_step { REQUEST_MORE, REQUEST_HEAD, REQUEST_BODY, REQUEST_WAIT, REQUEST_LAST, REQUEST_BAD };

struct request { /* zeroed = a new connection; 24 bytes */
	uint64_t left; /* of the body or of the chunk */
	uint32_t line; /* length of the line so far, of a chunk's head or trailer */
	uint16_t lines; /* trailers */
	uint8_t state;
	bool some; /* there was a request before */
	bool close; /* the one that runs is the last */
};

/*
 * @data may be changed: the header of an offer of h2c is renamed to an unknown one ("Xpgrade"), since requests of h2c
 * could not be inspected; clients that offer it continue with HTTP/1.1.
 */
enum request_step request_step(struct request *q, char *data, size_t len, struct head *ret_head, size_t *ret_n,
			       const char **ret_why);
uint64_t request_plain(const struct request *q); /* UINT64_MAX: all that comes */
void request_passed(struct request *q, uint64_t n); /* @n is at most that */
bool request_between(const struct request *q); /* no request is under way: a good place to end */
bool request_waits(const struct request *q); /* for request_answer() */

/*
 * The server's first bytes while request_waits(): LOOK_MORE up to 16 bytes; LOOK_YES: status 101, both directions are
 * free now; LOOK_NOT: an ordinary answer, the client's next request may follow.
 */
enum look request_answer(struct request *q, const char *data, size_t len);
