#include "base/sha256.h"
#include "base/base.h"
#include "base/test.h"

static bool is(struct sha256 *s, const char *want)
{
	uint8_t sum[SHA256_SIZE];
	char text[2 * SHA256_SIZE + 1];

	sha256_end(s, sum);
	for (unsigned i = 0; i < SHA256_SIZE; i++)
		snprintf(text + (size_t)i * 2, 3, "%02x", sum[i]);
	if (strcmp(text, want))
		printf("# %s, not %s\n", text, want ? want : "-");
	return !strcmp(text, want);
}

static void begin(struct sha256 *s, bool plain)
{
	if (plain)
		sha256_init_plain(s);
	else
		sha256_init(s);
}

/* Examples that NIST publishes with the standard. */
TEST(the_standards_examples_come_out)
{
	static const struct {
		const char *text, *sum;
	} known[] = {
		{ "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
		{ "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
		{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
		  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
		{ "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrst"
		  "nopqrstu",
		  "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
	};
	struct sha256 s;

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		for (int plain = 0; plain < 2; plain++) {
			begin(&s, plain);
			sha256_add(&s, known[i].text, strlen(known[i].text));
			CHECK(is(&s, known[i].sum));
		}
}

TEST(a_million_a_in_pieces_of_any_size_comes_out)
{
	static char text[1000];
	struct sha256 s;

	memset(text, 'a', sizeof(text));
	for (size_t piece = 1; piece <= sizeof(text); piece += 37) {
		size_t left = 1000000;

		begin(&s, piece % 2);
		while (left) {
			size_t n = piece < left ? piece : left;

			sha256_add(&s, text, n);
			left -= n;
		}
		CHECK(is(&s, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
	}
}

TEST(both_ways_agree_on_every_length)
{
	uint8_t data[300], a[SHA256_SIZE], b[SHA256_SIZE];
	struct sha256 s;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + 1);
	for (size_t n = 0; n <= sizeof(data); n++) {
		sha256_init(&s);
		sha256_add(&s, data, n);
		sha256_end(&s, a);
		sha256_init_plain(&s);
		sha256_add(&s, data, n);
		sha256_end(&s, b);
		CHECK(!memcmp(a, b, sizeof(a)));
	}
}
