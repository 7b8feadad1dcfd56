/*
 * A comparison, and its start, when system calls fail: the result is an error, or the same stream as without failures.
 * On plain folders.
 */
#include "layers/diff.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "layers/diff_task.h"
#include "proto/change.h"
#include "warden/warden_test.h"

#include <dirent.h>
#include <pthread.h>
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

static void read_all(int fd)
{
	ssize_t n;

	len = 0;
	while (len < sizeof(told) && (n = read(fd, told + len, sizeof(told) - len)) > 0)
		len += (size_t)n;
}

struct task {
	struct diff_task t;
	int fd[DIFF_PLACES];
};

static void *run(void *arg)
{
	struct task *x = arg;

	diff_run(&x->t, x->fd);
	close(x->fd[DIFF_OUT]);
	return NULL;
}

/* Compares in this process, which counts the calls. The whole stream is in told[]. */
static int compare(unsigned flags)
{
	AUTO_CLOSE int image = folder("image"), upper = folder("upper"), from = -1;
	struct task x = { .t = { .flags = flags, .workdir = "/w", .opaque = "trusted.overlay.opaque" } };
	pthread_t thread;
	int pipes[2];

	for (unsigned i = 0; i < DIFF_PLACES; i++)
		x.fd[i] = -1;
	x.fd[DIFF_IMAGE] = image;
	x.fd[DIFF_TO] = upper;
	if (pipe2(pipes, O_CLOEXEC) < 0)
		return -errno;
	from = pipes[0];
	x.fd[DIFF_OUT] = pipes[1];
	if (pthread_create(&thread, NULL, run, &x)) {
		close(pipes[1]);
		return -EAGAIN;
	}
	read_all(from);
	pthread_join(thread, NULL);
	return 0;
}

/* Compares with the program. */
static int start(unsigned flags, int program)
{
	AUTO_CLOSE int image = folder("image"), upper = folder("upper"), fd = -1;
	const struct diff_opts o = {
		.program = program,
		.from.writable = -1,
		.to.writable = upper,
		.flags = flags,
		.store = -1,
		.image = image,
		.usr = -1,
		.dpkg = -1,
		.workdir = "/w",
		.opaque = "trusted.overlay.opaque",
	};
	struct diff *d = NULL;
	int r = diff_start(&o, &d, &fd, NULL);

	if (r < 0)
		return r;
	read_all(fd);
	diff_free(d);
	return 0;
}

/* 1: the stream has an end, so it is complete. */
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
	static const enum sys_id ids[] = { SYSID_openat, SYSID_openat2, SYSID_getdents64, SYSID_write };
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
					break; /* the system call is not called that often */
			}
		}
	}
	printf("# %u calls were made to fail\n", hits);
	CHECK(hits > 100);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	dir[0] = '\0';
	CHECK(shell(cmd));
}

TEST(a_start_that_fails_leaves_no_process_and_nothing_open)
{
	static const enum sys_id ids[] = { SYSID_socketpair, SYSID_pipe2,	SYSID_prctl,   SYSID_fcntl,
					   SYSID_dup3,	     SYSID_close_range, SYSID_execveat };
	static char right[65536];
	char path[512], cmd[96];
	AUTO_CLOSE int program = -1;
	unsigned hits = 0, before;
	size_t whole;

	CHECK(wt_program("cloche-layers", path, sizeof(path)));
	program = open(path, O_PATH | O_CLOEXEC);
	snprintf(dir, sizeof(dir), "/var/tmp/cloche-diff-fault-%d", (int)getpid());
	CHECK(mkdir(dir, 0700) == 0 && shell(tree));
	CHECK_EQ(start(DIFF_DATA, -1), -EOPNOTSUPP);
	CHECK_EQ(start(DIFF_DATA, program), 0);
	CHECK(says_whole());
	whole = len;
	memcpy(right, told, len);
	CHECK_EQ(compare(DIFF_DATA), 0);
	CHECK(len == whole && !memcmp(right, told, len));
	before = open_fds();
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		for (unsigned nth = 1; nth < 60; nth++) {
			unsigned had = sys_test_count(ids[i]);

			sys_test_fail(ids[i], EMFILE, nth);
			if (start(DIFF_DATA, program) == 0)
				CHECK(len == whole && !memcmp(right, told, len));
			else
				hits++;
			sys_test_fail(ids[i], 0, 0);
			CHECK_EQ(open_fds(), before);
			CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
			if (sys_test_count(ids[i]) - had < nth)
				break;
		}
	}
	printf("# %u calls were made to fail\n", hits);
	CHECK(hits > 10);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	dir[0] = '\0';
	CHECK(shell(cmd));
}
