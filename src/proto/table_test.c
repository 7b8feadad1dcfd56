#include "proto/table.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"

#include <sys/mman.h>
#include <unistd.h>

static struct table is;

static struct table *map(int fd)
{
	return mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

TEST(a_new_one_is_no_table_before_the_agent_wrote_it)
{
	AUTO_CLOSE int fd = table_new();

	CHECK(fd >= 0);
	CHECK_EQ(table_is(fd), 0);
	CHECK_EQ(table_read(fd, &is), -EBADMSG);
}

TEST(it_keeps_its_size)
{
	AUTO_CLOSE int fd = table_new();

	CHECK_EQ(sys_ftruncate(fd, 0), -EPERM);
	CHECK_EQ(sys_ftruncate(fd, 1 << 20), -EPERM);
}

TEST(what_is_not_sealed_or_no_memfd_is_none)
{
	AUTO_CLOSE int fd = sys_memfd_create("other", 3), null = sys_openat(AT_FDCWD, "/dev/null", O_RDWR, 0);

	CHECK_EQ(sys_ftruncate(fd, sizeof(struct table)), 0);
	CHECK_EQ(table_is(fd), -EBADMSG);
	CHECK(table_is(null) < 0);
}

TEST(a_busy_agent_is_asked_again)
{
	AUTO_CLOSE int fd = table_new();
	struct table *t = map(fd);

	CHECK(t != MAP_FAILED);
	t->magic = TABLE_MAGIC;
	t->busy = 3;
	CHECK_EQ(table_read(fd, &is), -EAGAIN);
	t->busy = 4;
	CHECK_EQ(table_read(fd, &is), 0);
	munmap(t, sizeof(*t));
}

TEST(nonsense_is_refused)
{
	/* clang-format off */
	static const struct table_exec bad[] = {
		{ 1, 7, TABLE_KEEP, { -1, -1, -1, -1, -1 } }, /* not used */
		{ 1, 7, TABLE_USED | 128, { -1, -1, -1, -1, -1 } },
		{ 1, 7, TABLE_USED | TABLE_KEEP, { -2, -1, -1, -1, -1 } },
		{ 1, 7, TABLE_USED | TABLE_KEEP, { -1, 1 << 20, -1, -1, -1 } },
		{ 1, 7, TABLE_USED, { 12, -1, -1, -1, -1 } }, /* a descriptor without KEEP */
		{ 1, 0, TABLE_USED | TABLE_KEEP, { -1, -1, -1, -1, -1 } },
		{ 1, 7, TABLE_USED | TABLE_ENDED, { -1, -1, -1, -1, -1 } },
		{ 1, 1U << 22, TABLE_USED, { -1, -1, -1, -1, -1 } },
	};
	/* clang-format on */
	AUTO_CLOSE int fd = table_new();
	struct table *t = map(fd);

	CHECK(t != MAP_FAILED);
	t->magic = TABLE_MAGIC;
	t->exec[511] = (struct table_exec){ 1, 7, TABLE_USED | TABLE_KEEP, { 12, 13, 14, -1, -1 } };
	CHECK_EQ(table_read(fd, &is), 0);
	CHECK_EQ(is.exec[511].fd[2], 14);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		t->exec[3] = bad[i];
		CHECK_EQ(table_read(fd, &is), -EBADMSG);
	}
	memset(&t->exec[3], 0, sizeof(t->exec[3]));
	CHECK_EQ(table_read(fd, &is), 0);
	t->worker[5] = UINT32_MAX;
	CHECK_EQ(table_read(fd, &is), -EBADMSG);
	munmap(t, sizeof(*t));
}
