#include "engine/image/host_image.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "engine/image/device_folder.h"
#include "layers/tree.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static struct err e;
static char path[64];

static int make(void)
{
	snprintf(path, sizeof(path), "/tmp/cloche-skeleton-%d", (int)getpid());
	tree_remove(AT_FDCWD, path);
	return mkdir(path, 0755) < 0 ? -errno : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static mode_t mode_of(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : st.st_mode;
}

TEST(a_skeleton_has_what_programs_expect_and_nothing_private)
{
	static const char *const missing[] = { "root/etc/shadow",  "root/etc/ssh",	   "root/etc/machine-id",
					       "root/etc/sudoers", "root/etc/ssl/private", "root/etc/gshadow",
					       "root/etc/crontab" };
	AUTO_CLOSE int dir = make();
	char text[4096];
	struct stat st;

	CHECK(dir >= 0);
	CHECK_EQ(host_image_fill(dir, geteuid() == 0, &e), 0);
	CHECK_EQ(mode_of(dir, "root/tmp"), S_IFDIR | 01777);
	CHECK_EQ(mode_of(dir, "root/root"), S_IFDIR | 0700);
	CHECK_EQ(mode_of(dir, "root/proc"), S_IFDIR | 0555);
	CHECK(S_ISLNK(mode_of(dir, "root/bin")) || S_ISDIR(mode_of(dir, "root/bin")));
	CHECK(fd_get(dir, "root/etc/passwd", text, sizeof(text)) > 0);
	CHECK_CONTAINS(text, "user:x:1000:1000:");
	CHECK(fd_get(dir, "root/etc/resolv.conf", text, sizeof(text)) > 0);
	CHECK_CONTAINS(text, "nameserver 198.18.0.1\n");
	for (size_t i = 0; i < ARRAY_LEN(missing); i++)
		CHECK_EQ(mode_of(dir, missing[i]), 0);
	if (geteuid() == 0) {
		CHECK_EQ(fstatat(dir, "root/home/user", &st, 0), 0);
		CHECK_EQ(st.st_uid, 1000);
		CHECK_EQ(mode_of(dir, "dev/null"), S_IFCHR | 0666);
		CHECK_EQ(mode_of(dir, "dev/kmsg"), 0);
	}
	CHECK_EQ(tree_remove(AT_FDCWD, path), 0);
	CHECK_EQ(access(path, F_OK), -1);
}

TEST(a_device_folder_with_kvm_is_one_users_alone)
{
	const unsigned attrs = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
	AUTO_CLOSE int dev = -1, null = -1;
	struct stat st;

	if (geteuid())
		SKIP("root");
	dev = device_folder_own(&device_kvm, &(struct device_owner){ 122000, 1000, 1000 }, attrs);
	CHECK(dev >= 0);
	CHECK_EQ(fstatat(dev, "kvm", &st, AT_SYMLINK_NOFOLLOW), 0);
	CHECK_EQ(st.st_mode, S_IFCHR | 0600);
	CHECK_EQ(st.st_uid, 123000);
	CHECK_EQ(st.st_gid, 123000);
	CHECK(st.st_rdev == makedev(10, 232));
	CHECK_EQ(mode_of(dev, "null"), S_IFCHR | 0666);
	CHECK_EQ(mode_of(dev, "pts") & S_IFMT, S_IFDIR);
	/* Its nodes work, and none can be added. */
	null = openat(dev, "null", O_RDWR | O_CLOEXEC);
	CHECK_EQ(write(null, "x", 1), 1);
	CHECK_EQ(sys_mknodat(dev, "more", S_IFCHR | 0600, (unsigned)makedev(1, 5)), -EROFS);
	CHECK_EQ(sys_unlinkat(dev, "kvm", 0), -EROFS);
	/* Another one is another folder. */
	fd_close(TAKE_FD(null));
	null = device_folder_own(&device_kvm, &(struct device_owner){ 123000, 1000, 1000 }, attrs);
	CHECK_EQ(fstatat(null, "kvm", &st, AT_SYMLINK_NOFOLLOW), 0);
	CHECK_EQ(st.st_uid, 124000);
	CHECK_EQ(fstatat(dev, "kvm", &st, AT_SYMLINK_NOFOLLOW), 0);
	CHECK_EQ(st.st_uid, 123000);
}

TEST(a_fill_that_fails_says_so)
{
	static const enum sys_id ids[] = { SYSID_mkdirat, SYSID_openat, SYSID_symlinkat,
					   SYSID_fchmod,  SYSID_read,	SYSID_write };

	for (size_t i = 0; i < ARRAY_LEN(ids); i++)
		for (unsigned nth = 1; nth <= 21; nth += 10) {
			AUTO_CLOSE int dir = make();

			CHECK(dir >= 0);
			e = (struct err){ 0 };
			sys_test_fail(ids[i], EIO, nth);
			if (host_image_fill(dir, false, &e) != -EIO || !e.msg[0])
				TEST_FAIL("%s #%u is ignored", sys_name(ids[i]), nth);
			sys_test_fail(ids[i], EIO, 0); /* disarm */
			CHECK_EQ(tree_remove(AT_FDCWD, path), 0);
		}
}
