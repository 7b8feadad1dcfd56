#include "vm/vmm/qcow.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"

#include <sys/mman.h>
#include <unistd.h>

TEST(an_empty_disk_says_its_size_and_where_its_tables_are)
{
	AUTO_CLOSE int fd = sys_memfd_create("disk", MFD_CLOEXEC);
	uint8_t head[104];

	CHECK(fd >= 0);
	CHECK_EQ(qcow_format(fd, 5ULL << 30), 0);
	CHECK_EQ(pread(fd, head, sizeof(head), 0), sizeof(head));
	CHECK(!memcmp(head, "QFI\xfb\0\0\0\3", 8));
	CHECK(!memcmp(head + 24, "\0\0\0\1\x40\0\0\0", 8));
	CHECK_EQ(head[39], 10); /* 512 MiB each */
	CHECK_EQ(lseek(fd, 0, SEEK_END), 4 * 65536);
}

TEST(sizes_that_no_disk_has_are_refused)
{
	AUTO_CLOSE int fd = sys_memfd_create("disk", MFD_CLOEXEC);

	CHECK_EQ(qcow_format(fd, 0), -EINVAL);
	CHECK_EQ(qcow_format(fd, 1000), -EINVAL);
	CHECK_EQ(qcow_format(fd, QCOW_SIZE_MAX + 512), -EINVAL);
}
