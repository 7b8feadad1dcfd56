#include "base/base64.h"
#include "base/base.h"
#include "base/test.h"

/* Of RFC 4648. */
static const char *const known[][2] = {
	{ "", "" },
	{ "f", "Zg==" },
	{ "fo", "Zm8=" },
	{ "foo", "Zm9v" },
	{ "foob", "Zm9vYg==" },
	{ "fooba", "Zm9vYmE=" },
	{ "foobar", "Zm9vYmFy" },
};

TEST(the_examples_of_the_rfc_come_out_in_both_directions)
{
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		const size_t len = strlen(known[i][0]);
		char text[16], back[16];

		CHECK_EQ(base64_encode(known[i][0], len, text), strlen(known[i][1]));
		CHECK(!strcmp(text, known[i][1]) && strlen(text) + 1 == BASE64_SIZE(len));
		CHECK_EQ(base64_decode(text, strlen(text), back), len);
		CHECK(!memcmp(back, known[i][0], len));
	}
}

TEST(every_byte_survives_at_every_place)
{
	unsigned char data[256 + 2];
	char text[BASE64_SIZE(sizeof(data))], back[sizeof(text)];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)i;
	for (size_t from = 0; from < 3; from++) {
		size_t n = base64_encode(data + from, sizeof(data) - from, text);

		CHECK_EQ(base64_decode(text, n, back), sizeof(data) - from);
		CHECK(!memcmp(back, data + from, sizeof(data) - from));
	}
}

TEST(both_alphabets_are_read_and_nothing_else)
{
	char back[16];

	CHECK(base64_decode("-_8", 3, back) == 2 && !memcmp(back, "\xfb\xff", 2));
	CHECK(base64_decode("+/8=", 4, back) == 2 && !memcmp(back, "\xfb\xff", 2));
	CHECK_EQ(base64_decode("Zm9v YmFy", 9, back), -EINVAL);
	CHECK_EQ(base64_decode("Zm=v", 4, back), -EINVAL);
	CHECK_EQ(base64_decode("Z", 1, back), -EINVAL);
	CHECK_EQ(base64_decode("Zm9vY", 5, back), -EINVAL);
	CHECK_EQ(base64_decode("====", 4, back), 0);
}
