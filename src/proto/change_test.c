#include "proto/change.h"
#include "base/base.h"
#include "base/test.h"

static uint8_t out[CHANGE_FRAME_MAX];

static long put(const struct change_entry *x)
{
	long n = change_entry_encode(x, out + CHANGE_HEAD, CHANGE_PAYLOAD_MAX);

	if (n >= 0)
		change_head(out, CHANGE_ENTRY, (uint32_t)n);
	return n < 0 ? n : n + CHANGE_HEAD;
}

static int path_is(const char *path)
{
	const struct change_entry x = { .what = CHANGE_ADDED, .path = path };
	struct change_entry y;
	struct change_frame f;
	long n = put(&x);

	return n < 0 || change_decode(out, (size_t)n, &f) != n ? -EIO : change_entry_decode(&f, &y);
}

TEST(an_entry_comes_back_as_it_was)
{
	uint8_t xattrs[64], extents[32];
	const struct change_xattr a = { "user.x", (const uint8_t *)"ab\0c", 4 };
	long len = change_xattr_encode(&a, xattrs, sizeof(xattrs));
	struct change_entry x = { .what = CHANGE_CHANGED,
				  .flags = CHANGE_CONTENT,
				  .mode = 0100644,
				  .old_mode = 0100600,
				  .uid = 1,
				  .gid = 2,
				  .nlink = 3,
				  .size = 100,
				  .old_size = 5,
				  .mtime = -7,
				  .dev = 8,
				  .ino = 9,
				  .path = "/a/b",
				  .target = "",
				  .xattrs = xattrs,
				  .xattrs_len = (uint32_t)len,
				  .extents = extents,
				  .nextents = 2 };
	struct change_xattr b;
	struct change_entry y;
	struct change_frame f;
	uint64_t at, n;
	uint32_t next = 0;
	long got;

	change_extent_put(extents, 0, 10, 5);
	change_extent_put(extents, 1, 50, 50);
	got = put(&x);
	CHECK(got > 0);
	for (long i = 0; i < got; i++)
		CHECK_EQ(change_decode(out, (size_t)i, &f), 0);
	CHECK_EQ(change_decode(out, (size_t)got, &f), got);
	CHECK_EQ(change_entry_decode(&f, &y), 0);
	CHECK_STR(y.path, "/a/b");
	CHECK_EQ(y.mtime, -7);
	CHECK_EQ(change_xattr_next(&y, &next, &b), 1);
	CHECK_STR(b.name, "user.x");
	CHECK_EQ(b.len, 4);
	CHECK_EQ(change_xattr_next(&y, &next, &b), 0);
	change_extent(&y, 1, &at, &n);
	CHECK_EQ(at, 50);
	CHECK_EQ(n, 50);
}

TEST(paths_that_lead_elsewhere_are_refused)
{
	static const char *const bad[] = { "", "a", "/", "/..", "/a/../b", "/a/..", "//a", "/a/", "/./a", "/a/." };

	CHECK_EQ(path_is("/a"), 0);
	CHECK_EQ(path_is("/..a/b..c/..."), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		CHECK_EQ(path_is(bad[i]), -EBADMSG);
}

TEST(extents_outside_of_the_file_are_refused)
{
	uint8_t extents[32];
	struct change_entry x = { .what = CHANGE_ADDED, .path = "/a", .size = 100, .extents = extents, .nextents = 2 },
			    y;
	struct change_frame f;
	long n;

	change_extent_put(extents, 0, 10, 50);
	change_extent_put(extents, 1, 40, 10); /* within the first */
	n = put(&x);
	CHECK_EQ(change_decode(out, (size_t)n, &f), n);
	CHECK_EQ(change_entry_decode(&f, &y), -EBADMSG);
	change_extent_put(extents, 1, 90, 11);
	n = put(&x);
	CHECK_EQ(change_decode(out, (size_t)n, &f), n);
	CHECK_EQ(change_entry_decode(&f, &y), -EBADMSG);
	change_extent_put(extents, 1, 90, UINT64_MAX);
	n = put(&x);
	CHECK_EQ(change_decode(out, (size_t)n, &f), n);
	CHECK_EQ(change_entry_decode(&f, &y), -EBADMSG);
}

TEST(an_end_comes_back_and_rubbish_does_not)
{
	const struct change_end x = {
		.errnum = 5, .kind = 1, .truncated = true, .added = 1, .changed = 2, .removed = 3, .msg = "no"
	};
	long n = change_end_encode(&x, out + CHANGE_HEAD, 1000);
	struct change_frame f;
	struct change_end y;

	change_head(out, CHANGE_END, (uint32_t)n);
	CHECK_EQ(change_decode(out, CHANGE_HEAD + (size_t)n, &f), CHANGE_HEAD + n);
	CHECK_EQ(change_end_decode(&f, &y), 0);
	CHECK_EQ(y.removed, 3);
	CHECK_STR(y.msg, "no");
	out[CHANGE_HEAD + 8] = 2;
	CHECK_EQ(change_end_decode(&f, &y), -EBADMSG);
	out[1] = 9;
	CHECK_EQ(change_decode(out, 2, &f), -EBADMSG);
	out[1] = CHANGE_END;
	memset(out + 4, 0xff, 4);
	CHECK_EQ(change_decode(out, CHANGE_HEAD, &f), -EBADMSG);
}

TEST(data_has_an_offset_and_at_least_a_byte)
{
	struct change_frame f;
	const uint8_t *p;
	uint64_t at;
	size_t len;

	change_data_head(out, CHANGE_DATA, 77, 1);
	CHECK_EQ(change_decode(out, CHANGE_DATA_HEAD + 1, &f), CHANGE_DATA_HEAD + 1);
	CHECK_EQ(change_data_decode(&f, &at, &p, &len), 0);
	CHECK_EQ(at, 77);
	CHECK_EQ(len, 1);
	change_data_head(out, CHANGE_DATA, 77, 0);
	CHECK_EQ(change_decode(out, CHANGE_DATA_HEAD, &f), CHANGE_DATA_HEAD);
	CHECK_EQ(change_data_decode(&f, &at, &p, &len), -EBADMSG);
}
