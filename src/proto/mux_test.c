#include "proto/mux.h"
#include "base/base.h"
#include "base/test.h"

static size_t put(uint8_t *out, enum mux_type type, uint32_t channel, const char *text)
{
	mux_head(out, type, 7, channel, (uint32_t)strlen(text));
	memcpy(out + MUX_HEAD, text, strlen(text));
	return MUX_HEAD + strlen(text);
}

TEST(a_message_comes_back_as_it_went)
{
	uint8_t data[64];
	size_t n = put(data, MUX_DATA, 3, "hello");
	struct mux m;

	CHECK_EQ(mux_decode(data, n, &m), (long)n);
	CHECK_EQ(m.type, MUX_DATA);
	CHECK_EQ(m.epoch, 7);
	CHECK_EQ(m.channel, 3);
	CHECK_EQ(m.len, 5);
	CHECK(!memcmp(m.payload, "hello", 5));
}

TEST(a_part_of_a_message_asks_for_more)
{
	uint8_t data[64];
	size_t n = put(data, MUX_DATA, 3, "hello");
	struct mux m;

	for (size_t i = 0; i < n; i++)
		CHECK_EQ(mux_decode(data, i, &m), 0);
}

TEST(any_changed_byte_of_a_head_makes_it_none)
{
	uint8_t data[64];
	size_t n = put(data, MUX_DATA, 3, "hello");
	struct mux m;

	for (size_t i = 0; i < MUX_HEAD; i++) {
		data[i] ^= 0x10;
		CHECK_EQ(mux_decode(data, n, &m), -EBADMSG);
		data[i] ^= 0x10;
	}
	CHECK_EQ(mux_decode(data, n, &m), (long)n);
}

TEST(sizes_types_and_channels_out_of_range_are_none)
{
	uint8_t data[MUX_HEAD];
	struct mux m;

	mux_head(data, MUX_DATA, 0, 0, MUX_PAYLOAD_MAX + 1);
	CHECK_EQ(mux_decode(data, sizeof(data), &m), -EBADMSG);
	mux_head(data, MUX_DATA, 0, MUX_CHANNELS, 0);
	CHECK_EQ(mux_decode(data, sizeof(data), &m), -EBADMSG);
	mux_head(data, (enum mux_type)(MUX_TYPE_LAST + 1), 0, 0, 0);
	CHECK_EQ(mux_decode(data, sizeof(data), &m), -EBADMSG);
	mux_head(data, (enum mux_type)0, 0, 0, 0);
	CHECK_EQ(mux_decode(data, sizeof(data), &m), -EBADMSG);
}

/* A checkpoint may cut a message anywhere; the next whole one must be found, also when the rest looks like a magic. */
TEST(after_a_cut_the_next_message_is_found)
{
	uint8_t data[256];
	struct mux m;

	for (size_t cut = 1; cut < MUX_HEAD + 6; cut++) {
		size_t n = put(data, MUX_DATA, 1, "A\x41\x5e\x0c\xc1Z"), at = 0, end = n - cut;
		long r;

		memmove(data, data + cut, end);
		end += put(data + end, MUX_END, 9, "");
		while ((r = mux_decode(data + at, end - at, &m)) <= 0 && at < end)
			at += r < 0 ? mux_skip(data + at, end - at) : 1;
		CHECK_EQ(r, MUX_HEAD);
		CHECK_EQ(m.channel, 9);
		CHECK_EQ(at, end - MUX_HEAD);
	}
}

TEST(start_and_stat_are_exactly_as_long_as_they_say)
{
	uint8_t data[MUX_HEAD + MUX_START_LEN + 4 + MUX_STAT_LEN];
	struct mux_start s = { .real_ns = 12345, .seed = { 1, 2, 3 }, .spec_len = 4 }, t;
	struct mux_stat a = { .oom_kills = 3, .inodes_size = UINT64_MAX }, b;
	const uint8_t *spec;
	struct mux m = { .payload = data };

	mux_start_encode(&s, data);
	memcpy(data + MUX_START_LEN, "spec", 4);
	m.len = MUX_START_LEN + 4;
	CHECK_EQ(mux_start_decode(&m, &t, &spec), 0);
	CHECK(t.real_ns == 12345 && t.seed[2] == 3 && t.spec_len == 4 && !memcmp(spec, "spec", 4));
	m.len--;
	CHECK_EQ(mux_start_decode(&m, &t, &spec), -EBADMSG);
	m.len = 8;
	CHECK_EQ(mux_start_decode(&m, &t, &spec), -EBADMSG);
	mux_stat_encode(&a, data);
	m.len = MUX_STAT_LEN;
	CHECK_EQ(mux_stat_decode(&m, &b), 0);
	CHECK(b.oom_kills == 3 && b.inodes_size == UINT64_MAX);
	m.len++;
	CHECK_EQ(mux_stat_decode(&m, &b), -EBADMSG);
}

TEST(resume_and_net_are_exactly_as_they_went)
{
	uint8_t data[256];
	struct mux_resume a = {
		.epoch = 9, .flags = MUX_RESUME_DROP, .real_ns = 5, .seed = { 7 }, .generation = { 8 }, .hostname = "h"
	};
	struct mux_resume b;
	struct mux_net n = { .family = 6, .port = 443, .addr = { [15] = 1 } }, o;
	struct mux m = { .payload = data, .len = MUX_RESUME_LEN };

	mux_resume_encode(&a, data);
	CHECK_EQ(mux_resume_decode(&m, &b), 0);
	CHECK(!memcmp(&a, &b, sizeof(a)));
	memset(data + MUX_RESUME_LEN - 64, 'x', 64); /* a name without an end */
	CHECK_EQ(mux_resume_decode(&m, &b), -EBADMSG);
	mux_net_encode(&n, data);
	m.len = MUX_NET_LEN;
	CHECK_EQ(mux_net_decode(&m, &o), 0);
	CHECK(!memcmp(&n, &o, sizeof(n)));
	m.len++;
	CHECK_EQ(mux_net_decode(&m, &o), -EBADMSG);
	n.family = 5;
	mux_net_encode(&n, data);
	m.len = MUX_NET_LEN;
	CHECK_EQ(mux_net_decode(&m, &o), -EBADMSG);
}
