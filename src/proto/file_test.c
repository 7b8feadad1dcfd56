#include "proto/file.h"
#include "base/base.h"
#include "base/test.h"

#include <sys/stat.h>

static uint8_t bytes[FILE_FRAME_MAX + 64];

/* A frame with that payload in bytes[]; its length. */
static size_t frame(enum file_type type, unsigned flags, const void *payload, size_t len)
{
	file_head(bytes, type, flags, 7, (uint32_t)len);
	if (len)
		memmove(bytes + FILE_HEAD, payload, len);
	return FILE_HEAD + len;
}

TEST(a_frame_comes_back_whole_and_only_when_it_is_whole)
{
	size_t n = frame(FILE_DATA, 0, "abc", 3);
	struct file_frame f;

	for (size_t i = 0; i < n; i++)
		CHECK_EQ(file_decode(FILE_FROM_HOST, bytes, i, &f), 0);
	CHECK_EQ(file_decode(FILE_FROM_HOST, bytes, n + 5, &f), (long)n);
	CHECK_EQ(f.type, FILE_DATA);
	CHECK_EQ(f.tag, 7);
	CHECK_EQ(f.len, 3);
	CHECK(!memcmp(f.payload, "abc", 3));
	n = frame(FILE_END, FILE_TRUNCATED, "x", 1);
	CHECK_EQ(file_decode(FILE_FROM_WORKER, bytes, n, &f), (long)n);
	CHECK_EQ(f.flags, FILE_TRUNCATED);
}

TEST(each_type_has_its_direction)
{
	struct file_frame f;

	for (unsigned type = 0; type < 256; type++) {
		bool host = (type >= FILE_STAT && type <= FILE_DRESS) || (type >= FILE_ABORT && type <= FILE_END);
		bool worker = type >= FILE_DATA && type <= FILE_XATTR_LIST;

		file_head(bytes, (enum file_type)type, 0, 1, type == FILE_DATA);
		CHECK_EQ(file_decode(FILE_FROM_HOST, bytes, 2, &f), host ? 0 : -EBADMSG);
		CHECK_EQ(file_decode(FILE_FROM_HOST, bytes, FILE_HEAD + 1, &f) > 0, host);
		CHECK_EQ(file_decode(FILE_FROM_WORKER, bytes, 2, &f), worker ? 0 : -EBADMSG);
		CHECK_EQ(file_decode(FILE_FROM_WORKER, bytes, FILE_HEAD + 1, &f) > 0, worker);
	}
}

TEST(what_can_never_become_a_frame_is_refused_at_once)
{
	static const struct {
		enum file_from from;
		enum file_type type;
		unsigned flags;
		uint32_t len;
	} bad[] = {
		{ FILE_FROM_HOST, FILE_DATA, 0, FILE_DATA_MAX + 1 },
		{ FILE_FROM_HOST, FILE_DATA, 0, 0 },
		{ FILE_FROM_HOST, FILE_DATA, FILE_APPEND, 1 },
		{ FILE_FROM_HOST, FILE_END, 0, 1 },
		{ FILE_FROM_HOST, FILE_ABORT, 0, 1 },
		{ FILE_FROM_HOST, FILE_STAT, 0, FILE_SMALL_MAX + 1 },
		{ FILE_FROM_HOST, FILE_WRITE, FILE_TRUNCATED, 1 },
		{ FILE_FROM_HOST, FILE_WRITE, 1U << 15, 1 },
		{ FILE_FROM_WORKER, FILE_ENTRY, 0, FILE_SMALL_MAX + 1 },
		{ FILE_FROM_WORKER, FILE_ENTRY, FILE_TRUNCATED, 1 },
		{ FILE_FROM_WORKER, FILE_END, FILE_APPEND, 1 },
		{ FILE_FROM_WORKER, FILE_DATA, 0, UINT32_MAX },
	};
	struct file_frame f;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		file_head(bytes, bad[i].type, bad[i].flags, 1, bad[i].len);
		CHECK_EQ(file_decode(bad[i].from, bytes, FILE_HEAD, &f), -EBADMSG);
	}
	bytes[0] = FILE_VERSION + 1;
	CHECK_EQ(file_decode(FILE_FROM_HOST, bytes, 1, &f), -EBADMSG);
}

static struct file_frame payload(const uint8_t *data, long len)
{
	return (struct file_frame){ .len = (uint32_t)len, .payload = data };
}

TEST(a_request_says_what_was_asked)
{
	const struct file_request q = { .mode = 01777,
					.depth = 3,
					.max = 10000,
					.offset = 1ULL << 40,
					.length = FILE_ALL,
					.mtime = -1500,
					.path = "/a b/\n",
					.to = "",
					.under = "u" };
	uint8_t out[FILE_SMALL_MAX];
	long n = file_request_encode(&q, out, sizeof(out));
	struct file_frame f = payload(out, n);
	struct file_request got;

	CHECK(n > 0);
	CHECK_EQ(file_request_decode(&f, &got), 0);
	CHECK_EQ(got.mode, q.mode);
	CHECK_EQ(got.depth, 3);
	CHECK_EQ(got.max, 10000);
	CHECK_EQ(got.offset, q.offset);
	CHECK_EQ(got.length, FILE_ALL);
	CHECK_EQ(got.mtime, -1500);
	CHECK_STR(got.path, q.path);
	CHECK_STR(got.to, "");
	CHECK_STR(got.under, "u");
	for (long i = 0; i < n; i++) {
		f = payload(out, i);
		CHECK_EQ(file_request_decode(&f, &got), -EBADMSG);
	}
	out[n] = 0;
	f = payload(out, n + 1); /* a byte too many */
	CHECK_EQ(file_request_decode(&f, &got), -EBADMSG);
	CHECK_EQ(file_request_encode(&q, out, (size_t)n - 1), -EMSGSIZE);
	CHECK_EQ(file_request_encode(&(struct file_request){ .path = NULL }, out, sizeof(out)) > 0, true);
}

TEST(a_path_has_its_most_and_no_nul)
{
	static char path[FILE_PATH_MAX + 1];
	uint8_t out[FILE_SMALL_MAX];
	struct file_request got;
	struct file_frame f;
	long n;

	memset(path, 'x', FILE_PATH_MAX);
	CHECK_EQ(file_request_encode(&(struct file_request){ .path = path }, out, sizeof(out)), -EMSGSIZE);
	path[FILE_PATH_MAX - 1] = '\0';
	n = file_request_encode(&(struct file_request){ .path = path, .to = path, .under = path }, out, sizeof(out));
	CHECK(n > 0 && n <= (long)FILE_SMALL_MAX);
	f = payload(out, n);
	CHECK_EQ(file_request_decode(&f, &got), 0);
	out[60] = 0; /* inside the first path */
	CHECK_EQ(file_request_decode(&f, &got), -EBADMSG);
	out[60] = 'x';
	out[0] = 0xff; /* a mode beyond 07777 */
	out[1] = 0xff;
	CHECK_EQ(file_request_decode(&f, &got), -EBADMSG);
}

TEST(answers_say_what_was_found)
{
	const struct file_entry x = { .mode = S_IFLNK | 0777,
				      .uid = 1000,
				      .gid = 5,
				      .nlink = 2,
				      .errnum = 13,
				      .size = 11,
				      .dev = 1ULL << 60,
				      .ino = 99,
				      .mtime = 1500000000123456789,
				      .path = "p",
				      .target = "t" };
	const struct file_end d = { .errnum = ENOENT, .step = FILE_STEP_PATH, .count = 12 };
	const struct file_event v = { .kind = FILE_EVENT_MOVED, .type = S_IFREG, .path = "a", .to = "b" };
	uint8_t out[FILE_SMALL_MAX];
	struct file_entry entry;
	struct file_event event;
	struct file_end end;
	struct file_frame f;

	f = payload(out, file_entry_encode(&x, out, sizeof(out)));
	CHECK_EQ(file_entry_decode(&f, &entry), 0);
	CHECK_EQ(entry.mode, x.mode);
	CHECK_EQ(entry.mtime, x.mtime);
	CHECK_EQ(entry.dev, x.dev);
	CHECK_EQ(entry.size, 11);
	CHECK_STR(entry.path, "p");
	CHECK_STR(entry.target, "t");
	out[27] = 0x80; /* a size that no file has */
	CHECK_EQ(file_entry_decode(&f, &entry), -EBADMSG);
	f = payload(out, file_end_encode(&d, out, sizeof(out)));
	CHECK_EQ(file_end_decode(&f, &end), 0);
	CHECK_EQ(end.errnum, ENOENT);
	CHECK_EQ(end.count, 12);
	CHECK_STR(file_step_text(end.step), "find the path");
	out[4] = FILE_STEP_COUNT;
	CHECK_EQ(file_end_decode(&f, &end), -EBADMSG);
	CHECK_STR(file_step_text(FILE_STEP_COUNT), "?");
	f = payload(out, file_event_encode(&v, out, sizeof(out)));
	CHECK_EQ(file_event_decode(&f, &event), 0);
	CHECK_EQ(event.kind, FILE_EVENT_MOVED);
	CHECK_STR(event.to, "b");
	out[0] = 9;
	CHECK_EQ(file_event_decode(&f, &event), -EBADMSG);
}
