#include "store/spare.h"
#include "base/base.h"
#include "base/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static int fresh(void)
{
	int dir;

	snprintf(folder, sizeof(folder), "/tmp/cloche-spare-XXXXXX");
	if (!mkdtemp(folder) || (dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		abort();
	return dir;
}

static void gone(int dir)
{
	char name[16];

	for (unsigned n = 0; n < SPARES_MAX; n++) {
		snprintf(name, sizeof(name), ".spare-%u", n);
		unlinkat(dir, name, 0);
	}
	close(dir);
	CHECK_EQ(rmdir(folder), 0);
}

static void put_text(int dir, const char *name, const char *text)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0)
		abort();
	close(fd);
}

static off_t size_of(int dir, const char *name, ino_t *ret)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (ret)
		*ret = st.st_ino;
	return st.st_size;
}

TEST(a_file_that_was_removed_is_the_next_one_and_empty)
{
	int dir = fresh(), fd;
	struct spares s, again;
	ino_t was = 0, is = 0;
	unsigned n;

	spares_init(&s, dir);
	CHECK_EQ(spare_take(&s, &n), -ENOENT);
	put_text(dir, "one", "words");
	CHECK_EQ(size_of(dir, "one", &was), 5);
	CHECK_EQ(spare_put(&s, "one"), 0);
	CHECK_EQ(size_of(dir, "one", NULL), -ENOENT);
	CHECK_EQ(size_of(dir, ".spare-0", NULL), 0);
	spares_init(&again, dir); /* a restart */
	CHECK_EQ(again.have, 1);
	fd = spare_take(&again, &n);
	CHECK(fd >= 0);
	CHECK_EQ(again.have, 0);
	CHECK_EQ(fd_write_all(fd, "other", 5), 0);
	close(fd);
	CHECK_EQ(spare_name(&again, n, "two"), 0);
	CHECK_EQ(size_of(dir, "two", &is), 5);
	CHECK_EQ(is, was);
	CHECK_EQ(spare_put(&again, "not there"), -ENOENT);
	CHECK_EQ(again.have, 0);
	unlinkat(dir, "two", 0);
	gone(dir);
}

TEST(what_was_left_with_content_is_emptied_first)
{
	int dir = fresh(), fd;
	struct spares s;
	unsigned n;

	put_text(dir, ".spare-3", "left by one that was killed");
	spares_init(&s, dir);
	CHECK_EQ(s.have, 8);
	fd = spare_take(&s, &n);
	CHECK(fd >= 0);
	CHECK_EQ(n, 3);
	CHECK_EQ(size_of(dir, ".spare-3", NULL), 0);
	close(fd);
	spare_drop(&s, n);
	CHECK_EQ(size_of(dir, ".spare-3", NULL), -ENOENT);
	gone(dir);
}

TEST(a_few_are_made_ahead)
{
	int dir = fresh();
	struct spares s;

	spares_init(&s, dir);
	spares_add(&s);
	CHECK_EQ(s.have, 15);
	for (unsigned i = 0; i < SPARES_LEAST; i++)
		spares_add(&s);
	CHECK_EQ(s.have, (1ULL << SPARES_LEAST) - 1);
	CHECK_EQ(size_of(dir, ".spare-23", NULL), 0);
	gone(dir);
}

TEST(no_more_are_kept_than_there_may_be)
{
	int dir = fresh();
	struct spares s;
	char name[16];

	spares_init(&s, dir);
	for (unsigned n = 0; n < SPARES_MAX + 3; n++) {
		snprintf(name, sizeof(name), "f%u", n);
		put_text(dir, name, "x");
		CHECK_EQ(spare_put(&s, name), 0);
		CHECK_EQ(size_of(dir, name, NULL), -ENOENT);
	}
	CHECK_EQ(s.have, UINT64_MAX);
	gone(dir);
}
