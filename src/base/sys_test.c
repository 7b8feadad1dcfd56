#include "base/sys.h"
#include "base/base.h"
#include "base/test.h"

#include <sys/mman.h>
#include <unistd.h>

TEST(errors_are_returned_and_errno_is_not)
{
	CHECK_EQ(sys_openat(AT_FDCWD, "/does/not/exist", O_RDONLY, 0), -ENOENT);
	CHECK_EQ(sys_read(-1, NULL, 0), -EBADF);
	CHECK_EQ(sys_dup3(0, 0, 0), -EINVAL);
}

TEST(the_nth_call_fails_once)
{
	AUTO_CLOSE int a = -1, b = -1, c = -1;

	sys_test_fail(SYSID_openat, ENOSPC, 2);
	a = sys_openat(AT_FDCWD, "/", O_PATH | O_CLOEXEC, 0);
	CHECK(a >= 0);
	b = sys_openat(AT_FDCWD, "/", O_PATH | O_CLOEXEC, 0);
	CHECK_EQ(b, -ENOSPC);
	c = sys_openat(AT_FDCWD, "/", O_PATH | O_CLOEXEC, 0);
	CHECK(c >= 0);
}

TEST(a_failed_call_never_reaches_the_kernel)
{
	AUTO_CLOSE int fd = sys_memfd_create("x", MFD_CLOEXEC);

	sys_test_fail(SYSID_write, EIO, 1);
	CHECK_EQ(sys_write(fd, "abc", 3), -EIO);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 0);
	CHECK_EQ(sys_write(fd, "abc", 3), 3);
}

TEST(only_the_named_call_fails)
{
	AUTO_CLOSE int fd = -1;

	sys_test_fail(SYSID_openat2, EPERM, 1);
	fd = sys_openat(AT_FDCWD, "/", O_PATH | O_CLOEXEC, 0);
	CHECK(fd >= 0);
	CHECK_EQ(sys_openat2(AT_FDCWD, "/", &(struct open_how){ .flags = O_PATH }), -EPERM);
}

TEST(calls_are_counted)
{
	unsigned before = sys_test_count(SYSID_read);

	sys_read(-1, NULL, 0);
	sys_read(-1, NULL, 0);
	CHECK_EQ(sys_test_count(SYSID_read), before + 2);
	CHECK_EQ(sys_test_count(SYSID_pivot_root), 0);
}

TEST(a_fault_can_be_named_in_text)
{
	int fds[2];

	CHECK_EQ(sys_test_parse("pipe2:24:1"), 0);
	CHECK_EQ(sys_pipe2(fds, O_CLOEXEC), -EMFILE);
	CHECK_EQ(sys_test_parse("nonsense:1:1"), -ENOENT);
	CHECK_EQ(sys_test_parse("pipe2:24"), -EINVAL);
	CHECK_EQ(sys_test_parse(""), -EINVAL);
	CHECK_EQ(sys_test_parse(NULL), -EINVAL);
}

TEST(every_call_has_its_name)
{
	CHECK_STR(sys_name(SYSID_openat), "openat");
	CHECK_STR(sys_name(SYSID_mount_setattr), "mount_setattr");
	CHECK_STR(sys_name(SYSID_getrandom), "getrandom");
}
