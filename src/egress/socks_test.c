#include "egress/socks.h"

#include "base/base.h"
#include "base/test.h"

static struct look_to to;
static uint8_t code;
static const char *why;
static size_t used;

static enum look ask(const char *data, size_t len)
{
	memset(&to, 0xaa, sizeof(to));
	code = 0xaa;
	why = "";
	used = 0;
	return socks_ask((const uint8_t *)data, len, &used, &to, &code, &why);
}

static enum look ask_name(const char *name, size_t n)
{
	char all[300] = { 5, 1, 0, 3, (char)n };

	memcpy(all + 5, name, n);
	all[5 + n] = 1;
	all[6 + n] = (char)0xbb;
	for (size_t i = 0; i < 7 + n; i++) {
		enum look r = ask(all, i);

		if (r != LOOK_MORE)
			return LOOK_NOT;
	}
	return ask(all, 7 + n);
}

TEST(a_greeting_without_passwords_is_taken)
{
	CHECK_EQ(socks_greet((const uint8_t *)"\5\1\0", 3, &used, &why), LOOK_YES);
	CHECK_EQ(used, 3);
	CHECK_EQ(socks_greet((const uint8_t *)"\5\3\2\1\0\5", 6, &used, &why), LOOK_YES);
	CHECK_EQ(used, 5);
	CHECK_EQ(socks_greet((const uint8_t *)"\5\3\2\1", 4, &used, &why), LOOK_MORE);
	CHECK_EQ(socks_greet((const uint8_t *)"\5", 1, &used, &why), LOOK_MORE);
	CHECK_EQ(socks_greet((const uint8_t *)"", 0, &used, &why), LOOK_MORE);
	CHECK_EQ(socks_greet((const uint8_t *)"\4\1", 2, &used, &why), LOOK_NOT);
	CHECK_EQ(socks_greet((const uint8_t *)"\5\1\2", 3, &used, &why), LOOK_BAD);
	CHECK_EQ(socks_greet((const uint8_t *)"\5\0", 2, &used, &why), LOOK_BAD);
}

TEST(names_and_addresses_are_taken)
{
	CHECK_EQ(ask_name("A.Example.TEST", 14), LOOK_YES);
	CHECK_STR(to.name, "a.example.test");
	CHECK_EQ(to.addr.family, 0);
	CHECK_EQ(to.port, 443);
	CHECK_EQ(used, 21);
	CHECK_EQ(ask("\5\1\0\1\1\2\3\4\0\x50 behind", 17), LOOK_YES);
	CHECK_EQ(used, 10);
	CHECK_EQ(to.addr.family, 4);
	CHECK(!memcmp(to.addr.addr, "\1\2\3\4", 4));
	CHECK_EQ(to.port, 80);
	CHECK_STR(to.name, "");
	CHECK_EQ(ask("\5\1\0\4\x20\1\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\1\0\x50", 22), LOOK_YES);
	CHECK_EQ(to.addr.family, 6);
}

TEST(an_address_as_text_or_mapped_is_that_address)
{
	CHECK_EQ(ask_name("127.0.0.1", 9), LOOK_YES);
	CHECK_EQ(to.addr.family, 4);
	CHECK_STR(to.name, "");
	CHECK_EQ(ask_name("::1", 3), LOOK_YES);
	CHECK_EQ(to.addr.family, 6);
	CHECK_EQ(ask("\5\1\0\4\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1\0\x50", 22), LOOK_YES);
	CHECK_EQ(to.addr.family, 4);
	CHECK(!memcmp(to.addr.addr, "\x7f\0\0\1", 4));
}

TEST(forged_names_are_refused)
{
	static const char *const bad[] = { "2130706433", "0x7f000001",	"0177.0.0.1", "127.1",	      "a.test.",
					   "a b.test",	 "user@a.test", "a.test#x",   "[::1]",	      "a.test:80",
					   "..",	 "-a.test",	"fe80::1%1",  "\xc3\xb6.test" };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		CHECK_EQ(ask_name(bad[i], strlen(bad[i])), LOOK_BAD);
		CHECK_EQ(code, SOCKS_NOT_ALLOWED);
	}
	CHECK_EQ(ask_name("evil.test\0.good.test", 20), LOOK_BAD);
	CHECK_EQ(ask_name("127.0.0.1\0.good.test", 20), LOOK_BAD);
	CHECK_EQ(ask_name("", 0), LOOK_BAD);
}

TEST(other_commands_are_refused_with_their_code)
{
	CHECK_EQ(ask("\5\2\0\1", 4), LOOK_BAD);
	CHECK_EQ(code, SOCKS_COMMAND);
	CHECK_EQ(ask("\5\3\0\1", 4), LOOK_BAD);
	CHECK_EQ(code, SOCKS_COMMAND);
	CHECK_EQ(ask("\5\1\0\2", 4), LOOK_BAD);
	CHECK_EQ(code, SOCKS_ADDRESS);
	CHECK_EQ(ask("\4\1\0\1", 4), LOOK_BAD);
	CHECK_EQ(ask("\5\1\1\1", 4), LOOK_BAD);
	CHECK_EQ(ask("\5\1\0\1\1\2\3\4\0\0", 10), LOOK_BAD);
	CHECK_EQ(code, SOCKS_NOT_ALLOWED);
}

TEST(a_reply_has_its_code)
{
	uint8_t out[SOCKS_REPLY];

	socks_reply(SOCKS_REFUSED, out);
	CHECK(!memcmp(out, "\5\5\0\1\0\0\0\0\0\0", 10));
}
