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

TEST(two_at_once_are_as_one_by_one)
{
	static const size_t begun[][2] = { { 0, 0 }, { 8, 8 }, { 64, 0 }, { 3, 7 }, { 63, 127 } };
	uint8_t x[500], y[500], sum[2][SHA256_SIZE], want[2][SHA256_SIZE];
	struct sha256 s[2], one[2];

	for (size_t i = 0; i < sizeof(x); i++) {
		x[i] = (uint8_t)(i * 7 + 1);
		y[i] = (uint8_t)(i * 11 + 5);
	}
	for (size_t k = 0; k < ARRAY_LEN(begun); k++)
		for (size_t n = 0; n <= 300; n += n < 140 ? 1 : 23) {
			for (unsigned w = 0; w < 2; w++) {
				sha256_init(&s[w]);
				sha256_add(&s[w], w ? y : x, begun[k][w]);
				one[w] = s[w];
				sha256_add(&one[w], (w ? y : x) + 150, n);
			}
			sha256_add_two(&s[0], x + 150, &s[1], y + 150, n);
			for (unsigned w = 0; w < 2; w++) {
				sha256_add(&s[w], "end", 3);
				sha256_add(&one[w], "end", 3);
				sha256_end(&s[w], sum[w]);
				sha256_end(&one[w], want[w]);
			}
			CHECK(!memcmp(sum, want, sizeof(sum)));
		}
}

TEST(many_at_once_are_as_one_by_one)
{
	static const size_t lens[] = { 0, 1, 55, 56, 64, 120, 191, 192, 1000 };
	uint8_t data[SHA256_MANY][1000], sum[SHA256_SIZE], want[SHA256_SIZE];
	struct sha256 s[SHA256_MANY], one[SHA256_MANY];
	const void *from[SHA256_MANY];

	for (size_t i = 0; i < SHA256_MANY; i++)
		for (size_t k = 0; k < sizeof(data[i]); k++)
			data[i][k] = (uint8_t)(k * 2654435761U >> (i + 3));
	/* All began alike, or one did not. */
	for (unsigned odd = 0; odd < 2; odd++)
		for (unsigned n = 0; n <= SHA256_MANY; n++)
			for (size_t l = 0; l < ARRAY_LEN(lens); l++) {
				for (unsigned i = 0; i < n; i++) {
					from[i] = data[i];
					sha256_init(&s[i]);
					sha256_add(&s[i], data[i], i == odd * 5 ? 8 + odd : 8);
					one[i] = s[i];
					sha256_add(&one[i], data[i], lens[l]);
				}
				sha256_add_many(s, from, n, lens[l]);
				for (unsigned i = 0; i < n; i++) {
					sha256_add(&s[i], "end", 3);
					sha256_add(&one[i], "end", 3);
					sha256_end(&s[i], sum);
					sha256_end(&one[i], want);
					CHECK(!memcmp(sum, want, sizeof(sum)));
				}
			}
}
