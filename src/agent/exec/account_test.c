/* Looking a user up in the files of an image. It needs openat2(), which the emulator of part aarch64 does not have. */
#include "proto/account.h"
#include "base/base.h"
#include "base/test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char passwd[] = "root:x:0:0:root:/root:/bin/sh\n"
			     "app:x:1001:1002:An app:/srv/app:/bin/sh\n";
static const char group[] = "root:x:0:\n"
			    "app:x:1002:app\n"
			    "video:x:44:other,app\n"
			    "audio:x:29:app\n";
static struct account a;
static bool about_group;

static void put(int dir, const char *path, const char *text)
{
	int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

TEST(only_regular_files_inside_of_the_folder_are_read)
{
	char path[] = "/tmp/cloche-account-XXXXXX";
	int root, fd;

	CHECK(mkdtemp(path));
	root = open(path, O_RDONLY | O_DIRECTORY);
	CHECK(root >= 0);
	CHECK_EQ(account_look_up(root, "app", &a, &about_group), -ENOENT);
	CHECK_EQ(mkdirat(root, "etc", 0755), 0);
	put(root, "etc/passwd", passwd);
	CHECK_EQ(account_look_up(root, "app", &a, &about_group), 0);
	CHECK(a.uid == 1001 && !a.ngroups);
	put(root, "etc/group", group);
	CHECK_EQ(account_look_up(root, "app", &a, &about_group), 0);
	CHECK_EQ(a.ngroups, 2);
	/* A link of the image's stays in it, however it is written. */
	CHECK_EQ(renameat(root, "etc/passwd", root, "users"), 0);
	CHECK_EQ(symlinkat("/users", root, "etc/passwd"), 0);
	CHECK_EQ(account_look_up(root, "app", &a, &about_group), 0);
	CHECK_EQ(unlinkat(root, "etc/passwd", 0), 0);
	CHECK_EQ(symlinkat("../../../../../../etc/passwd", root, "etc/passwd"), 0);
	CHECK_EQ(account_look_up(root, "root", &a, &about_group), -ELOOP);
	CHECK_EQ(unlinkat(root, "etc/passwd", 0), 0);
	CHECK_EQ(mkfifoat(root, "etc/passwd", 0644), 0);
	CHECK_EQ(account_look_up(root, "app", &a, &about_group), -EINVAL);
	CHECK(!about_group);
	CHECK_EQ(unlinkat(root, "etc/passwd", 0), 0);
	put(root, "etc/passwd", passwd);
	fd = openat(root, "etc/group", O_WRONLY);
	CHECK_EQ(ftruncate(fd, ACCOUNT_FILE_MAX + 1), 0);
	CHECK_EQ(account_look_up(root, "app", &a, &about_group), -EFBIG);
	CHECK(about_group);
	CHECK_EQ(ftruncate(fd, ACCOUNT_FILE_MAX), 0);
	CHECK_EQ(account_look_up(root, "app", &a, &about_group), 0);
	close(fd);
	unlinkat(root, "etc/passwd", 0);
	unlinkat(root, "etc/group", 0);
	unlinkat(root, "users", 0);
	unlinkat(root, "etc", AT_REMOVEDIR);
	close(root);
	CHECK_EQ(rmdir(path), 0);
}
