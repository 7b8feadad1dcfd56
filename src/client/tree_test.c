#include "client/tree.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/test.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], victim[128];

static void make_folder(void)
{
	snprintf(folder, sizeof(folder), "/tmp/cloche-test-XXXXXX");
	if (!mkdtemp(folder))
		return;
	snprintf(victim, sizeof(victim), "%s/victim", folder);
	close(open(victim, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

static void drop(const char *path)
{
	char command[256];

	snprintf(command, sizeof(command), "%s", path);
	if (remove(command) < 0 && errno == ENOTEMPTY) {
		/* At most two levels below, all made by these tests. */
		static const char *const names[] = { "dst/a/b",	 "dst/a",    "dst/run",	  "dst/link", "dst/hard",
						     "dst/file", "dst",	     "src/sub/x", "src/sub",  "src/link",
						     "src/run",	 "src/fifo", "src",	  "victim",   "x" };
		char one[512];

		for (size_t i = 0; i < ARRAY_LEN(names); i++) {
			snprintf(one, sizeof(one), "%s/%s", path, names[i]);
			remove(one);
		}
		remove(path);
	}
}

struct feed {
	const struct buf *b;
	size_t at;
};

static ssize_t next(void *arg, const void **ret)
{
	struct feed *f = arg;
	size_t n = f->b->len - f->at < 700 ? f->b->len - f->at : 700;

	*ret = f->b->data + f->at;
	f->at += n;
	return (ssize_t)n;
}

static la_ssize_t collect(struct archive *a, void *arg, const void *data, size_t len)
{
	(void)a;
	return buf_add(arg, data, len) < 0 ? -1 : (la_ssize_t)len;
}

struct item {
	const char *name, *content, *symlink, *hardlink;
	mode_t mode;
};

static void make_tar(const struct item *items, size_t n, struct buf *b)
{
	struct archive *a = archive_write_new();

	archive_write_set_format_pax_restricted(a);
	archive_write_set_bytes_per_block(a, 0);
	archive_write_open(a, b, NULL, collect, NULL);
	for (size_t i = 0; i < n; i++) {
		struct archive_entry *x = archive_entry_new();

		archive_entry_set_pathname(x, items[i].name);
		archive_entry_set_mode(x, items[i].symlink ? AE_IFLNK | 0777 : items[i].mode);
		if (items[i].symlink)
			archive_entry_set_symlink(x, items[i].symlink);
		if (items[i].hardlink)
			archive_entry_set_hardlink(x, items[i].hardlink);
		archive_entry_set_size(x, items[i].content ? (la_int64_t)strlen(items[i].content) : 0);
		archive_write_header(a, x);
		if (items[i].content)
			archive_write_data(a, items[i].content, strlen(items[i].content));
		archive_entry_free(x);
	}
	archive_write_close(a);
	archive_write_free(a);
}

static int unpack(const struct item *items, size_t n, struct tree_stats *s, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(MIB);
	struct feed f = { .b = &b };
	char dst[128];

	snprintf(dst, sizeof(dst), "%s/dst", folder);
	mkdir(dst, 0755);
	make_tar(items, n, &b);
	return tree_unpack(dst, next, &f, s, e);
}

static bool exists(const char *name)
{
	struct stat st;
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return lstat(path, &st) == 0;
}

static off_t size_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_size : -1;
}

TEST(names_that_lead_outside_are_skipped)
{
	const struct item items[] = {
		{ .name = "../x", .content = "evil", .mode = AE_IFREG | 0644 },
		{ .name = "a/../../x", .content = "evil", .mode = AE_IFREG | 0644 },
		{ .name = "/tmp/cloche-test-x", .content = "evil", .mode = AE_IFREG | 0644 },
		{ .name = "file", .content = "good", .mode = AE_IFREG | 0644 },
	};
	struct tree_stats s;
	struct err e = { 0 };
	int r;

	make_folder();
	r = unpack(items, ARRAY_LEN(items), &s, &e);
	CHECK_EQ(r, 0);
	CHECK(!exists("x"));
	CHECK(access("/tmp/cloche-test-x", F_OK) < 0);
	CHECK(exists("dst/file"));
	CHECK_EQ(s.skipped, 3);
	drop(folder);
}

TEST(nothing_is_written_through_a_link)
{
	struct tree_stats s;
	struct err e = { 0 };
	char parent[128];

	make_folder();
	snprintf(parent, sizeof(parent), "%s", folder);
	const struct item items[] = {
		{ .name = "link", .symlink = parent },
		{ .name = "link/victim", .content = "evil", .mode = AE_IFREG | 0644 },
		{ .name = "link/x", .content = "evil", .mode = AE_IFREG | 0644 },
		{ .name = "hard", .hardlink = "../victim", .mode = AE_IFREG | 0644 },
		{ .name = "hard", .hardlink = victim, .mode = AE_IFREG | 0644 },
		{ .name = "hard", .hardlink = "link/victim", .mode = AE_IFREG | 0644 },
		{ .name = "link/sub", .mode = AE_IFDIR | 0755 },
	};
	unpack(items, ARRAY_LEN(items), &s, &e);
	CHECK_EQ(size_of(victim), 0);
	CHECK(!exists("x"));
	CHECK(!exists("sub"));
	CHECK(!exists("dst/hard"));
	drop(folder);
}

TEST(devices_are_skipped_and_set_id_bits_dropped)
{
	const struct item items[] = {
		{ .name = "file", .mode = AE_IFCHR | 0666 },
		{ .name = "run", .content = "#!", .mode = AE_IFREG | 06755 },
	};
	struct tree_stats s;
	struct err e = { 0 };
	struct stat st;
	char path[128];

	make_folder();
	CHECK_EQ(unpack(items, ARRAY_LEN(items), &s, &e), 0);
	CHECK(!exists("dst/file"));
	snprintf(path, sizeof(path), "%s/dst/run", folder);
	CHECK_EQ(stat(path, &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0755);
	drop(folder);
}

TEST(a_stream_that_ends_early_is_an_error)
{
	const struct item items[] = { { .name = "file", .content = "some content", .mode = AE_IFREG | 0644 } };
	AUTO(buf_done) struct buf b = BUF_INIT(MIB);
	struct feed f = { .b = &b };
	struct tree_stats s;
	struct err e = { 0 };
	char dst[128];
	int r;

	make_folder();
	snprintf(dst, sizeof(dst), "%s/dst", folder);
	mkdir(dst, 0755);
	make_tar(items, 1, &b);
	buf_cut(&b, 516);
	r = tree_unpack(dst, next, &f, &s, &e);
	drop(folder);
	CHECK(r < 0);
}

TEST(a_tree_comes_out_as_it_went_in)
{
	AUTO(buf_done) struct buf b = BUF_INIT(MIB);
	struct feed f = { .b = &b };
	struct tree_reader *t = NULL;
	struct tree_stats s;
	struct err e = { 0 };
	struct stat st;
	char path[256], data[100], link[64] = "";
	ssize_t n;
	int fd;

	make_folder();
	snprintf(path, sizeof(path), "%s/src", folder);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/src/run", folder);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0700);
	CHECK_EQ(write(fd, "hello", 5), 5);
	close(fd);
	chmod(path, 0751);
	snprintf(path, sizeof(path), "%s/src/fifo", folder);
	mkfifo(path, 0600); /* is left out, and does not hold us */
	snprintf(path, sizeof(path), "%s/src/link", folder);
	CHECK_EQ(symlink("run", path), 0);
	snprintf(path, sizeof(path), "%s/src/", folder);
	CHECK_EQ(tree_read_open(path, "a", &t, &e), 0);
	while ((n = tree_read(t, data, sizeof(data))) > 0)
		buf_add(&b, data, (size_t)n);
	tree_read_free(t);
	CHECK_EQ(n, 0);
	snprintf(path, sizeof(path), "%s/dst", folder);
	mkdir(path, 0755);
	CHECK_EQ(tree_unpack(path, next, &f, &s, &e), 0);
	CHECK_EQ(s.files, 3); /* a, a/run, a/link */
	CHECK_EQ(s.bytes, 5);
	snprintf(path, sizeof(path), "%s/dst/a/run", folder);
	CHECK_EQ(stat(path, &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0751);
	remove(path);
	snprintf(path, sizeof(path), "%s/dst/a/link", folder);
	CHECK(readlink(path, link, sizeof(link) - 1) == 3 && !strcmp(link, "run"));
	remove(path);
	drop(folder);
}
