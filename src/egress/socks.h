/* SOCKS5 (RFC 1928), the server's side: no authentication, CONNECT only. */
#pragma once
#include <stddef.h>

#include "egress/look.h"

#define SOCKS_GREET_MAX 257U
#define SOCKS_ASK_MAX 262U
#define SOCKS_REPLY 10U

enum socks_code {
	SOCKS_OK,
	SOCKS_FAILED,
	SOCKS_NOT_ALLOWED,
	SOCKS_NET_UNREACHABLE,
	SOCKS_HOST_UNREACHABLE,
	SOCKS_REFUSED,
	SOCKS_EXPIRED,
	SOCKS_COMMAND,
	SOCKS_ADDRESS,
};

/* The greeting. YES: *ret_len bytes of it; answer "\x05\x00". BAD: answer "\x05\xff" and end. */
enum look socks_greet(const uint8_t *data, size_t len, size_t *ret_len, const char **ret_why);
/* The request behind it. BAD: answer *ret_code and end. */
enum look socks_ask(const uint8_t *data, size_t len, size_t *ret_len, struct look_to *ret_to, uint8_t *ret_code,
		    const char **ret_why);
void socks_reply(uint8_t code, uint8_t out[SOCKS_REPLY]);
