/* Parses SOCKS5 requests, and writes the answers. */
#include "egress/socks.h"

#include "base/base.h"

enum { VERSION = 5, NO_AUTH = 0, CONNECT = 1, ADDR_4 = 1, ADDR_NAME = 3, ADDR_6 = 4 };

enum look socks_greet(const uint8_t *data, size_t len, size_t *ret_len, const char **ret_why)
{
	if (len && data[0] != VERSION)
		return LOOK_NOT;
	if (len < 2 || len < 2U + data[1])
		return LOOK_MORE;
	if (!memchr(data + 2, NO_AUTH, data[1])) {
		*ret_why = "this SOCKS proxy supports no passwords: connect without one";
		return LOOK_BAD;
	}
	*ret_len = 2U + data[1];
	return LOOK_YES;
}

static enum look bad(uint8_t *ret_code, const char **ret_why, uint8_t code, const char *why)
{
	*ret_code = code;
	*ret_why = why;
	return LOOK_BAD;
}

enum look socks_ask(const uint8_t *data, size_t len, size_t *ret_len, struct look_to *ret_to, uint8_t *ret_code,
		    const char **ret_why)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct look_to to = { 0 };
	const uint8_t *at = data + 4;
	size_t n;

	if (len && data[0] != VERSION)
		return bad(ret_code, ret_why, SOCKS_FAILED, "not a SOCKS5 request");
	if (len > 1 && data[1] != CONNECT)
		return bad(ret_code, ret_why, SOCKS_COMMAND, "SOCKS: only CONNECT is supported");
	if (len > 2 && data[2] != 0)
		return bad(ret_code, ret_why, SOCKS_FAILED, "not a SOCKS5 request");
	if (len > 3 && data[3] != ADDR_4 && data[3] != ADDR_6 && data[3] != ADDR_NAME)
		return bad(ret_code, ret_why, SOCKS_ADDRESS, "SOCKS: unknown kind of address");
	if (len < 5)
		return LOOK_MORE;
	n = data[3] == ADDR_4 ? 4 : data[3] == ADDR_6 ? 16 : 1U + data[4];
	if (len < 4 + n + 2)
		return LOOK_MORE;
	if (data[3] == ADDR_NAME) {
		char text[256];

		/* Programs that have no socket address for what the user typed send its text. */
		memcpy(text, at + 1, n - 1);
		text[n - 1] = '\0';
		if ((memchr(text, '\0', n - 1) || net_addr_parse(text, &to.addr) < 0) &&
		    net_name_parse(text, n - 1, to.name) < 0)
			return bad(ret_code, ret_why, SOCKS_NOT_ALLOWED, "SOCKS: the destination is not a host name");
	} else if (data[3] == ADDR_4 || !memcmp(at, mapped, sizeof(mapped))) {
		to.addr.family = 4;
		memcpy(to.addr.addr, data[3] == ADDR_4 ? at : at + 12, 4);
	} else {
		to.addr.family = 6;
		memcpy(to.addr.addr, at, 16);
	}
	to.port = (uint16_t)(at[n] << 8 | at[n + 1]);
	if (!to.port)
		return bad(ret_code, ret_why, SOCKS_NOT_ALLOWED, "SOCKS: invalid port 0");
	*ret_to = to;
	*ret_len = 4 + n + 2;
	return LOOK_YES;
}

void socks_reply(uint8_t code, uint8_t out[SOCKS_REPLY])
{
	/* The reply does not reveal the host's address that the connection was made from. */
	static const uint8_t zero[SOCKS_REPLY] = { VERSION, 0, 0, ADDR_4 };

	memcpy(out, zero, sizeof(zero));
	out[1] = code;
}
