#include "base/fd.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static unsigned count_open(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += is_open(fd);
	return n;
}

/* A file in memory with a path, for the functions that open by name. */
static int file_with(const char *text, char *path, size_t size)
{
	int fd = sys_memfd_create("fd_test", MFD_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		return -1;
	snprintf(path, size, "/proc/self/fd/%d", fd);
	return fd;
}

TEST(close_ignores_minus_one_and_keeps_errno)
{
	errno = EXDEV;
	fd_close(-1);
	fd_close(999999);
	CHECK_EQ(errno, EXDEV);
}

TEST(locals_close_themselves_and_moves_do_not)
{
	unsigned before = count_open();
	int kept = -1;

	{
		AUTO_CLOSE int a = sys_memfd_create("a", MFD_CLOEXEC);
		AUTO_CLOSE int b = sys_memfd_create("b", MFD_CLOEXEC);

		CHECK(a >= 0 && b >= 0);
		kept = TAKE_FD(b);
		CHECK_EQ(b, -1);
	}
	CHECK_EQ(count_open(), before + 1);
	fd_close_many(&kept, 1);
	CHECK_EQ(kept, -1);
	CHECK_EQ(count_open(), before);
}

TEST(get_reads_a_whole_file_and_ends_it)
{
	char path[64], buf[8];
	AUTO_CLOSE int fd = file_with("1234567", path, sizeof(path));

	CHECK(fd >= 0);
	CHECK_EQ(fd_get(AT_FDCWD, path, buf, sizeof(buf)), 7);
	CHECK_STR(buf, "1234567");
}

TEST(get_refuses_what_does_not_fit)
{
	char path[64], buf[8];
	AUTO_CLOSE int fd = file_with("12345678", path, sizeof(path));
	unsigned before = count_open();

	CHECK(fd >= 0);
	CHECK_EQ(fd_get(AT_FDCWD, path, buf, sizeof(buf)), -EFBIG);
	CHECK_EQ(fd_get(AT_FDCWD, "/does/not/exist", buf, sizeof(buf)), -ENOENT);
	CHECK_EQ(count_open(), before);
}

TEST(get_tells_of_a_failing_read)
{
	char path[64], buf[8];
	AUTO_CLOSE int fd = file_with("1234", path, sizeof(path));
	unsigned before = count_open();

	CHECK(fd >= 0);
	sys_test_fail(SYSID_read, EIO, 2);
	CHECK_EQ(fd_get(AT_FDCWD, path, buf, sizeof(buf)), -EIO);
	CHECK_EQ(count_open(), before);
}

static int get_number(const char *text, unsigned long long *ret)
{
	char path[64];
	AUTO_CLOSE int fd = file_with(text, path, sizeof(path));

	return fd < 0 ? -EIO : fd_get_u64(AT_FDCWD, path, ret);
}

TEST(numbers_in_files_are_read)
{
	unsigned long long v = 7;

	CHECK_EQ(get_number("", &v), -EINVAL);
	CHECK_EQ(get_number("abc\n", &v), -EINVAL);
	CHECK_EQ(get_number("99999999999999999999\n", &v), -EINVAL);
	CHECK_EQ(v, 7);
	CHECK_EQ(get_number("4096\n", &v), 0);
	CHECK_EQ(v, 4096);
	CHECK_EQ(get_number("max\n", &v), 0);
	CHECK(v == UINT64_MAX);
}

TEST(put_writes_and_a_short_write_is_an_error)
{
	char path[64], buf[8];
	AUTO_CLOSE int fd = file_with("", path, sizeof(path));

	CHECK(fd >= 0);
	CHECK_EQ(fd_put(AT_FDCWD, path, "42"), 0);
	CHECK_EQ(fd_get(AT_FDCWD, path, buf, sizeof(buf)), 2);
	CHECK_STR(buf, "42");
	CHECK_EQ(fd_put(AT_FDCWD, "/does/not/exist", "1"), -ENOENT);
	CHECK_EQ(fd_put(AT_FDCWD, "/dev/full", "1"), -ENOSPC);
}

TEST(write_all_waits_for_a_slow_reader)
{
	static char data[300000], back[sizeof(data)];
	int fds[2];
	size_t have = 0;
	pid_t pid;
	int status;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7);
	CHECK_EQ(sys_pipe2(fds, O_CLOEXEC), 0);
	CHECK_EQ(fd_set_nonblock(fds[1]), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		fd_close(fds[0]);
		_exit(fd_write_all(fds[1], data, sizeof(data)) ? 1 : 0);
	}
	fd_close(fds[1]);
	for (;;) {
		ssize_t n = read(fds[0], back + have, sizeof(back) - have);

		if (n <= 0)
			break;
		have += (size_t)n;
	}
	fd_close(fds[0]);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(have, sizeof(data));
	CHECK(!memcmp(data, back, sizeof(data)));
}

TEST(interrupted_writes_go_on)
{
	AUTO_CLOSE int fd = sys_memfd_create("x", MFD_CLOEXEC);

	sys_test_fail(SYSID_write, EINTR, 1);
	CHECK_EQ(fd_write_all(fd, "abc", 3), 0);
	CHECK_EQ(lseek(fd, 0, SEEK_END), 3);
}

TEST(messages_carry_descriptors_close_on_exec)
{
	int s[2], fds[FD_MSG_MAX], got[FD_MSG_MAX];
	unsigned before = count_open();
	char buf[16];
	size_t n;

	CHECK_EQ(sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
	for (unsigned i = 0; i < FD_MSG_MAX; i++)
		fds[i] = sys_memfd_create("x", 0);
	CHECK_EQ(fd_send(s[0], "hello", 5, fds, FD_MSG_MAX), 0);
	CHECK_EQ(fd_recv(s[1], buf, sizeof(buf), got, FD_MSG_MAX, &n), 5);
	CHECK_EQ(n, FD_MSG_MAX);
	for (unsigned i = 0; i < FD_MSG_MAX; i++)
		CHECK(fcntl(got[i], F_GETFD) & FD_CLOEXEC);
	fd_close_many(got, n);
	fd_close_many(fds, FD_MSG_MAX);
	fd_close_many(s, 2);
	CHECK_EQ(count_open(), before);
}

TEST(unwanted_descriptors_are_closed)
{
	int s[2], fds[3], got[2] = { -1, -1 };
	unsigned before = count_open();
	char buf[16];
	size_t n = 99;

	CHECK_EQ(sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
	for (unsigned i = 0; i < 3; i++)
		fds[i] = sys_memfd_create("x", MFD_CLOEXEC);
	CHECK_EQ(fd_send(s[0], "x", 1, fds, 3), 0);
	fd_close_many(fds, 3);
	CHECK_EQ(fd_recv(s[1], buf, sizeof(buf), got, 2, &n), -EMSGSIZE);
	CHECK_EQ(n, 0);
	CHECK_EQ(fd_send(s[0], "y", 1, NULL, 0), 0);
	CHECK_EQ(fd_recv(s[1], buf, sizeof(buf), NULL, 0, &n), 1);
	fd_close_many(s, 1);
	CHECK_EQ(fd_recv(s[1], buf, sizeof(buf), NULL, 0, &n), 0);
	fd_close_many(s, 2);
	CHECK_EQ(count_open(), before);
}

TEST(a_gone_reader_is_an_error_not_a_signal)
{
	int s[2];

	CHECK_EQ(sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	fd_close(s[1]);
	CHECK_EQ(fd_send(s[0], "x", 1, NULL, 0), -EPIPE);
	fd_close(s[0]);
}

TEST(write_all_to_a_gone_socket_is_an_error_not_a_signal)
{
	int s[2], status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		if (sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s) < 0)
			_exit(2);
		fd_close(s[1]);
		_exit(fd_write_all(s[0], "x", 1) == -EPIPE ? 0 : 1);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
}
