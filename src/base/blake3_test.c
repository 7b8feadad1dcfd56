#include "base/blake3.h"
#include "base/base.h"
#include "base/test.h"

static bool is(const uint8_t sum[BLAKE3_SIZE], const char *want)
{
	char text[2 * BLAKE3_SIZE + 1];

	for (unsigned i = 0; i < BLAKE3_SIZE; i++)
		snprintf(text + (size_t)i * 2, 3, "%02x", sum[i]);
	if (strcmp(text, want))
		printf("# %s, not %s\n", text, want);
	return !strcmp(text, want);
}

/* Those published with the specification: bytes 0 to 250 again and again. */
TEST(the_specifications_examples_come_out)
{
	static const struct {
		size_t len;
		const char *sum;
	} known[] = {
		{ 0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262" },
		{ 1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213" },
		{ 63, "e9bc37a594daad83be9470df7f7b3798297c3d834ce80ba85d6e207627b7db7b" },
		{ 64, "4eed7141ea4a5cd4b788606bd23f46e212af9cacebacdc7d1f4c6dc7f2511b98" },
		{ 65, "de1e5fa0be70df6d2be8fffd0e99ceaa8eb6e8c93a63f2d8d1c30ecb6b263dee" },
		{ 1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11" },
		{ 1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7" },
		{ 1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444" },
		{ 2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a" },
		{ 2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030" },
		{ 3073, "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3" },
		{ 5121, "628bd2cb2004694adaab7bbd778a25df25c47b9d4155a55f8fbd79f2fe154cff" },
		{ 7169, "a003fc7a51754a9b3c7fae0367ab3d782dccf28855a03d435f8cfe74605e7817" },
		{ 8193, "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b" },
		{ 16384, "f875d6646de28985646f34ee13be9a576fd515f76b5b0a26bb324735041ddde4" },
		{ 31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47" },
		{ 102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085" },
	};
	static uint8_t data[BLAKE3_MOST];
	uint8_t sum[BLAKE3_SIZE];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i % 251);
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		blake3(data, known[i].len, sum);
		CHECK(is(sum, known[i].sum));
		blake3_plain(data, known[i].len, sum);
		CHECK(is(sum, known[i].sum));
	}
}

TEST(all_ways_agree_wherever_it_begins_and_ends)
{
	static uint8_t data[BLAKE3_MOST + 64];
	uint8_t a[BLAKE3_SIZE], b[BLAKE3_SIZE];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 2654435761U >> 13);
	for (size_t n = 0; n <= BLAKE3_MOST; n += n < 200 ? 1 : n < 40000 ? 511 : 4093) {
		blake3(data + n % 64, n, a);
		blake3_plain(data + n % 64, n, b);
		CHECK(!memcmp(a, b, sizeof(a)));
	}
}
