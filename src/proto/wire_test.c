#include "proto/wire.h"
#include "base/base.h"
#include "base/test.h"

TEST(numbers_come_back_as_they_went)
{
	uint8_t bytes[32];
	struct wire_out w = { bytes, bytes + sizeof(bytes), false };
	struct wire_in r;

	wire_put_u8(&w, 0xfe);
	wire_put_u32(&w, 0x01020304);
	wire_put_u64(&w, UINT64_MAX - 1);
	CHECK(!w.bad);
	CHECK_EQ(w.at - bytes, 13);
	CHECK(!memcmp(bytes, "\xfe\x04\x03\x02\x01", 5));
	r = (struct wire_in){ bytes, w.at, false };
	CHECK_EQ(wire_get_u8(&r), 0xfe);
	CHECK_EQ(wire_get_u32(&r), 0x01020304);
	CHECK(wire_get_u64(&r) == UINT64_MAX - 1);
	CHECK(!r.bad && r.at == r.end);
}

TEST(a_string_carries_its_length_and_a_nul)
{
	uint8_t bytes[32];
	struct wire_out w = { bytes, bytes + sizeof(bytes), false };
	struct wire_in r;

	wire_put_str(&w, "abc");
	wire_put_str(&w, "");
	CHECK_EQ(w.at - bytes, 13);
	CHECK(!memcmp(bytes, "\3\0\0\0abc\0\0\0\0\0\0", 13));
	r = (struct wire_in){ bytes, w.at, false };
	CHECK_STR(wire_get_str(&r), "abc");
	CHECK_STR(wire_get_str(&r), "");
	CHECK(!r.bad && r.at == r.end);
}

TEST(a_writer_that_ran_over_writes_no_more)
{
	uint8_t bytes[8] = { 0 };
	struct wire_out w = { bytes, bytes + 6, false };

	wire_put_u32(&w, 1);
	wire_put_u32(&w, 2); /* two bytes short */
	CHECK(w.bad);
	CHECK_EQ(w.at - bytes, 4);
	wire_put_u8(&w, 9); /* would fit, but what came before did not */
	CHECK_EQ(w.at - bytes, 4);
	CHECK_EQ(bytes[4] | bytes[5] | bytes[6] | bytes[7], 0);
}

TEST(a_string_that_does_not_fit_leaves_its_room_alone)
{
	uint8_t bytes[9] = { 0 };
	struct wire_out w = { bytes, bytes + 8, false };

	wire_put_str(&w, "abcd"); /* needs 9 */
	CHECK(w.bad);
	CHECK_EQ(bytes[8], 0);
}

TEST(a_reader_that_ran_over_reads_zeros)
{
	const uint8_t bytes[5] = { 1, 1, 1, 1, 1 };
	struct wire_in r = { bytes, bytes + 5, false };

	CHECK(wire_get_u64(&r) == 0);
	CHECK(r.bad);
	CHECK_EQ(wire_get_u8(&r), 0);
	CHECK_EQ(wire_get_u32(&r), 0);
	CHECK_STR(wire_get_str(&r), "");
}

TEST(hostile_strings_are_bad)
{
	static const struct {
		const char *what, *bytes;
		size_t len;
	} cases[] = {
		{ "no NUL at the end", "\3\0\0\0abcd", 8 },
		{ "a NUL inside", "\3\0\0\0a\0c\0", 8 },
		{ "ends before its NUL", "\3\0\0\0abc", 7 },
		{ "longer than what is there", "\4\0\0\0abc\0", 8 },
		{ "the longest length", "\377\377\377\377abc\0", 8 },
		{ "half a length", "\3\0\0", 3 },
		{ "nothing", "", 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const uint8_t *b = (const uint8_t *)cases[i].bytes;
		struct wire_in r = { b, b + cases[i].len, false };

		CHECK_STR(wire_get_str(&r), "");
		if (!r.bad)
			TEST_FAIL("%s: taken", cases[i].what);
	}
}
