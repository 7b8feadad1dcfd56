#include "egress/confine.h"
#include "egress/egress_test.h"
#include "linux/landlock.h"

#include <sys/prctl.h>

static int opens(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);

	fd_close(fd);
	return fd < 0 ? errno : 0;
}

static int binds(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r = bind(fd, (struct sockaddr *)&any, sizeof(any)) < 0 ? errno : 0;

	close(fd);
	return r;
}

static int connects(uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r = connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 ? errno : 0;

	close(fd);
	return r;
}

/* What it found wrong first: 0, or the line. In a child, which is good for nothing else afterwards. */
static int inside(uint16_t port, int abi)
{
	const struct sched_param none = { 0 };
	struct err e = { 0 };
	int r = 0;

	(void)none;
#define WANT(what)                                                                                                     \
	do {                                                                                                           \
		if (!(what))                                                                                           \
			return __LINE__;                                                                               \
	} while (0)
#ifndef TEST_SANITIZED
	r = confine(&e);
	WANT(sched_setscheduler(0, SCHED_BATCH, &none) == 0 && sched_setscheduler(0, SCHED_OTHER, &none) == 0);
	WANT(sched_setscheduler(0, SCHED_IDLE, &none) < 0 && errno == EPERM);
	WANT(sched_setscheduler(getpid(), SCHED_BATCH, &none) < 0 && errno == EPERM);
#else
	/* The sanitizers need calls that the filter does not let. */
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	r = abi ? landlock_read_only() : 0;
#endif
	WANT(r == 0);
	WANT(opens("/etc/passwd", O_RDONLY) == 0);
	WANT(opens("/var/tmp/cloche-confine-test", O_WRONLY | O_CREAT) != 0);
	WANT(opens("/dev/null", O_WRONLY) != 0);
	WANT(connects(port) == 0);
	WANT(confine_files(&e) == 0);
	WANT(opens("/etc/passwd", O_RDONLY) == (abi ? EACCES : 0));
	WANT(opens("/proc/self/status", O_RDONLY) == (abi ? EACCES : 0));
	WANT(opens(".", O_RDONLY | O_DIRECTORY) == (abi ? EACCES : 0));
	WANT(binds() == (abi >= 4 ? EACCES : 0));
	WANT(connects(port) == 0);
	return 0;
}

TEST(files_are_read_until_they_are_given_up_and_streams_go_on)
{
	int abi = landlock_abi(), status = 0, server;
	uint16_t port = 0;
	int told[2], line = -1;
	pid_t pid;

	server = server_begin("127.0.0.1", &port);
	CHECK(server >= 0 && abi >= 0 && pipe2(told, O_CLOEXEC) == 0);
	pid = fork();
	if (pid == 0) {
		line = inside(port, abi);
		_exit(write(told[1], &line, sizeof(line)) != sizeof(line));
	}
	close(told[1]);
	CHECK_EQ(read(told[0], &line, sizeof(line)), sizeof(line));
	CHECK_EQ(line, 0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	close(told[0]);
	close(server);
}
