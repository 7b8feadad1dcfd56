/* The first thing a TLS client says, whether it comes in one record or in many. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "egress/look.h"

#define HELLO_MAX 16384U /* bytes, records' heads included; a peek of that size sees every one there is */

#define HELLO_RECORD 22 /* the first byte of one */
#define HELLO_RETRY 43U /* bytes in which hello_retry() knows */

struct hello {
	uint32_t len; /* bytes of its records */
	char name[NET_NAME_MAX]; /* SNI; "" = none */
	bool ech; /* there may be a name inside that we cannot read; ->name is the outer one */
	bool alpn; /* it says which protocols it speaks: */
	bool http1, h2;
};

/* Refused: an SNI that is no strict host name in lower case, two of them, lengths that do not add up, TLS < 1.0. */
enum look hello_look(const uint8_t *data, size_t len, struct hello *ret, const char **ret_why);
/* Whether a server's first bytes ask for a second ClientHello. */
enum look hello_retry(const uint8_t *data, size_t len);
/* Never LOOK_YES: TLS that begins with another byte than hello_look() reads, and that servers take all the same, is refused. */
enum look hello_look_odd(const uint8_t *data, size_t len, const char **ret_why);
