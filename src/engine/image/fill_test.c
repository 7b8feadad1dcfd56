#include "engine/image/fill.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "engine/program.h"
#include "layers/tree.h"

#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct err e;
static char path[64];

static int make(void)
{
	snprintf(path, sizeof(path), "/tmp/cloche-fill-%d", (int)getpid());
	tree_remove(AT_FDCWD, path);
	return mkdir(path, 0755) < 0 ? -errno : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int open_program(const char *program)
{
	return sys_openat(AT_FDCWD, program, O_PATH | O_CLOEXEC, 0);
}

static int open_ours(void)
{
	char program[512];

	return program_path("cloche-files", program, sizeof(program), &e) < 0 ? -1 : open_program(program);
}

static uint64_t total;

/* In any order. The text of /proc/stat has a time. */
static int add(const char *name, const struct stat *st, int type, struct FTW *at)
{
	char line[512];
	int n = snprintf(line, sizeof(line), "%s %d %o %u %llx %lld ", name, type, st->st_mode, st->st_uid,
			 (unsigned long long)st->st_rdev,
			 S_ISREG(st->st_mode) && strcmp(name + at->base, "stat") ? (long long)st->st_size : 0);
	ssize_t len = type == FTW_SL ? readlink(name, line + n, sizeof(line) - (size_t)n) : 0;
	uint64_t h = 5381;

	for (ssize_t i = 0; i < n + (len > 0 ? len : 0); i++)
		h = h * 33 + (unsigned char)line[i];
	total += h;
	return 0;
}

TEST(a_child_makes_the_same_files)
{
	const bool root = geteuid() == 0;
	const struct image_fill what[] = { { .what = root ? IMAGE_DEVICES : IMAGE_HOST },
					   { .what = IMAGE_CPUS, .n = 1 },
					   { .what = IMAGE_CPUS, .n = 5 } };
	AUTO_CLOSE int program = open_ours();

	CHECK(program >= 0);
	for (size_t i = 0; i < ARRAY_LEN(what); i++) {
		uint64_t sums[2];

		for (unsigned child = 0; child < 2; child++) {
			struct image_fill x = what[i];
			AUTO_CLOSE int dir = x.fd = make();

			CHECK(dir >= 0);
			e = (struct err){ 0 };
			if ((child ? image_fill_child : image_fill_here)(program, &x, &e) != 0)
				TEST_FAIL("%zu, %u: %s", i, child, e.msg);
			total = 0;
			CHECK_EQ(nftw(path, add, 16, FTW_PHYS), 0);
			sums[child] = total;
			CHECK_EQ(tree_remove(AT_FDCWD, path), 0);
		}
		CHECK(sums[0] == sums[1]);
	}
}

TEST(what_went_wrong_in_the_child_is_reported)
{
	AUTO_CLOSE int program = open_ours(), dir = make();
	struct image_fill x = { .fd = dir };

	CHECK(dir >= 0);
	CHECK_EQ(mkdirat(dir, "root", 0755), 0);
	CHECK_EQ(image_fill_child(program, &x, &e), -EEXIST);
	CHECK_CONTAINS(e.msg, "make the root of image 'host': File exists");
	x.what = IMAGE_CPUS;
	x.n = 2;
	CHECK_EQ(mkdirat(dir, "sys", 0755), 0);
	CHECK_EQ(image_fill_child(program, &x, &e), -EEXIST);
	CHECK_CONTAINS(e.msg, "make the files of 2 processors: File exists");
	CHECK_EQ(tree_remove(AT_FDCWD, path), 0);
}

TEST(a_child_that_is_missing_or_dies_is_an_error_and_leaves_no_process)
{
	AUTO_CLOSE int dir = make(), other = open_program("/bin/true"), text = open_program("/etc/hostname");
	const struct image_fill x = { .fd = dir };

	CHECK(image_fill_child(-1, &x, &e) == -ENOENT);
	CHECK_CONTAINS(e.msg, "cloche-files is not installed");
	CHECK(image_fill_child(text, &x, &e) < 0);
	CHECK_CONTAINS(e.msg, "start cloche-files");
	CHECK(image_fill_child(other, &x, &e) < 0);
	CHECK_CONTAINS(e.msg, "cloche-files ended without an answer");
	CHECK_EQ(waitpid(-1, NULL, WNOHANG), -1);
	CHECK_EQ(errno, ECHILD);
	CHECK_EQ(rmdir(path), 0);
}

TEST(a_disk_is_made_by_a_child)
{
	AUTO_CLOSE int program = open_ours(), file = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	uint8_t magic[2];

	CHECK(file >= 0);
	CHECK_EQ(ftruncate(file, 64 << 20), 0);
	for (unsigned journal = 0; journal <= 4; journal += 4) {
		e = (struct err){ 0 };
		if (image_fill_child(program, &(struct image_fill){ IMAGE_DISK, file, 512, journal }, &e) < 0)
			TEST_FAIL("%u: %s", journal, e.msg);
		CHECK_EQ(pread(file, magic, 2, 1024 + 56), 2);
		CHECK(magic[0] == 0x53 && magic[1] == 0xef);
	}
	CHECK_EQ(ftruncate(file, 4096), 0);
	CHECK_EQ(image_fill_child(program, &(struct image_fill){ IMAGE_DISK, file, 512, 4 }, &e), -EIO);
	CHECK_CONTAINS(e.msg, "mke2fs failed");
}
