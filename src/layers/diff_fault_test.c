/* A comparison when system calls fail: it says so, or says the same as ever. In this process, on plain folders. */
#include "layers/diff.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "proto/change.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];
static char told[65536];
static size_t len;

static bool shell(const char *script)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		if (*dir && chdir(dir) < 0)
			_exit(126);
		execl("/bin/sh", "sh", "-c", script, NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	return status == 0;
}

static unsigned open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static int folder(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* All bytes of the stream in told[]. */
static int compare(unsigned flags)
{
	AUTO_CLOSE int image = folder("image"), upper = folder("upper"), fd = -1;
	const struct diff_opts o = {
		.from.writable = -1, .to.writable = upper, .flags = flags, .store = -1, .image = image, .usr = -1, .dpkg = -1,
		.workdir = "/w", .opaque = "trusted.overlay.opaque",
	};
	struct diff *d = NULL;
	ssize_t n;
	int r = diff_start(&o, &d, &fd, NULL);

	if (r < 0)
		return r;
	len = 0;
	while (len < sizeof(told) && (n = read(fd, told + len, sizeof(told) - len)) > 0)
		len += (size_t)n;
	diff_free(d);
	return 0;
}

/* 1: it says that it is whole. */
static int says_whole(void)
{
	struct change_frame f;
	struct change_end end;
	size_t at = 0;
	long n;

	while ((n = change_decode((const uint8_t *)told + at, len - at, &f)) > 0) {
		at += (size_t)n;
		if (f.type == CHANGE_END)
			return change_end_decode(&f, &end) == 0 && at == len && !end.errnum;
	}
	return 0;
}

static const char tree[] =
	"mkdir -p image/a/b image/c upper/u/a/b upper/u/n/m && echo 1 > image/a/f && echo 2 > image/a/b/g && echo 3 > image/c/h && "
	"echo 1 > upper/u/a/f && echo changed > upper/u/a/b/g && echo new > upper/u/n/m/x && ln -s x upper/u/n/l && "
	"mknod upper/u/c c 0 0 && truncate -s 1M upper/u/n/hole";

TEST(a_call_that_fails_is_told_and_nothing_is_left_open)
{
	static const enum sys_id ids[] = { SYSID_openat, SYSID_openat2, SYSID_getdents64, SYSID_fcntl, SYSID_pipe2, SYSID_write };
	static const int errors[] = { EIO, ENOMEM, EMFILE };
	static char right[65536];
	unsigned hits = 0, before;
	char cmd[96];

	snprintf(dir, sizeof(dir), "/var/tmp/cloche-diff-fault-%d", (int)getpid());
	CHECK(mkdir(dir, 0700) == 0 && shell(tree));
	for (unsigned flags = 0; flags <= DIFF_DATA; flags++) {
		size_t whole;

		CHECK_EQ(compare(flags), 0);
		CHECK(says_whole());
		whole = len;
		memcpy(right, told, len);
		before = open_fds();
		for (size_t i = 0; i < ARRAY_LEN(ids) * ARRAY_LEN(errors); i++) {
			for (unsigned nth = 1; nth < 60; nth++) {
				unsigned had = sys_test_count(ids[i % ARRAY_LEN(ids)]);

				sys_test_fail(ids[i % ARRAY_LEN(ids)], errors[i / ARRAY_LEN(ids)], nth);
				if (compare(flags) == 0 && says_whole())
					CHECK(len == whole && !memcmp(right, told, len));
				else
					hits++;
				sys_test_fail(ids[i % ARRAY_LEN(ids)], 0, 0);
				CHECK_EQ(open_fds(), before);
				if (sys_test_count(ids[i % ARRAY_LEN(ids)]) - had < nth)
					break; /* it is not called that often */
			}
		}
	}
	printf("# %u calls were made to fail\n", hits);
	CHECK(hits > 100);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	dir[0] = '\0';
	CHECK(shell(cmd));
}
