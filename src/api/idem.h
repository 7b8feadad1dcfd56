/*
 * Calls that make something and may be repeated: a repetition with the same Idempotency-Key gets the result of the
 * first one.
 */
#pragma once
#include "api/api.h"

/* 1 and fills in the key and the request's hash; 0 when there is no key. */
int idem_read(struct call *c, const char *data, size_t len, char key[KEY_MAX_LEN + 1], uint8_t hash[32], struct err *e);
/*
 * Answers with what the first request made, named by @ids, and ends the call: call_replay() and an answer. -errno and
 * *e when it does not exist any more.
 */
typedef int idem_again_fn(struct call *c, const char *ids, struct err *e);
void call_replay(struct call *c); /* marks the answer as a repetition, in a header */
/*
 * idem_read(), and reserves the key for this call until it ends. 0: continue. Anything else: the call has been answered
 * and ended, by @again, or with an error.
 */
int idem_begin(struct call *c, const struct tenant *t, const char *data, size_t len, char key[KEY_MAX_LEN + 1],
	       uint8_t hash[32], idem_again_fn *again);
