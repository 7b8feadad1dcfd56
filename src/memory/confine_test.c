#include "memory/confine.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Bits of what went wrong. */
static int inside(void)
{
	struct err e = { 0 };
	char *const none[] = { NULL };
	struct sockaddr sa = { .sa_family = AF_UNIX };
	char byte;
	int bad = 0, fd;

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (confine(&e) < 0)
		return 1;
	bad |= execve("/bin/false", none, none) < 0 && errno == EPERM ? 0 : 2;
	bad |= syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) < 0 && errno == EPERM ? 0 : 4;
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	bad |= bind(fd, &sa, sizeof(sa)) < 0 && errno == EPERM ? 0 : 8;
	bad |= syscall(SYS_unlinkat, AT_FDCWD, "/nowhere", 0) < 0 && errno == EPERM ? 0 : 16;
	bad |= syscall(SYS_capset, NULL, NULL) < 0 && errno == EPERM ? 0 : 32;
	fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	bad |= fd >= 0 && read(fd, &byte, 1) == 1 ? 0 : 64;
	return bad;
}

TEST(confined_it_reads_and_starts_nothing)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(inside());
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 0);
}
