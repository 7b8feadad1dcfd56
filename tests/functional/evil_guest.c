/*
 * PID 1 of a guest in somebody else's hands. It is put in the place of cloche-guest, with the real one appended to it (the
 * last eight bytes: how long that is), becomes that, and leaves a child behind that watches the names of all processes in
 * the machine: "evil-panic" and the like say what the guest's kernel is to do to its host.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void unpack(const char *from, const char *to)
{
	static char data[1 << 16];
	int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	uint64_t len = 0;
	off_t end = lseek(in, -8, SEEK_END);
	ssize_t n;

	if (in < 0 || out < 0 || end < 0 || read(in, &len, 8) != 8)
		_exit(1);
	lseek(in, end - (off_t)len, SEEK_SET);
	while (len && (n = read(in, data, len < sizeof(data) ? len : sizeof(data))) > 0) {
		if (write(out, data, (size_t)n) != n)
			_exit(1);
		len -= (uint64_t)n;
	}
	close(in);
	close(out);
}

/* The guest's own end of the port, which nobody else may open. */
static int port(void)
{
	int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);

	for (int fd = 0; fd < 256; fd++) {
		char path[64], to[64] = "";

		snprintf(path, sizeof(path), "/p/1/fd/%d", fd);
		if (readlink(path, to, sizeof(to) - 1) > 0 && strstr(to, "vport"))
			return (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	}
	return -1;
}

static void flood(int fd, const void *data, size_t len)
{
	fcntl(fd, F_SETFL, 0);
	for (;;)
		if (write(fd, data, len) < 0 && errno != EINTR && errno != EAGAIN)
			_exit(1);
}

static void obey(const char *what)
{
	static char noise[1 << 15];

	if (!strcmp(what, "evil-poweroff"))
		reboot(RB_POWER_OFF);
	if (!strcmp(what, "evil-reboot"))
		reboot(RB_AUTOBOOT);
	if (!strcmp(what, "evil-panic")) {
		int fd = open("/p/sysrq-trigger", O_WRONLY);

		if (write(fd, "c", 1) < 0)
			_exit(1);
	}
	if (!strcmp(what, "evil-noise")) { /* nothing that is a message */
		memset(noise, 'x', sizeof(noise));
		flood(port(), noise, sizeof(noise));
	}
	if (!strcmp(what, "evil-deaf")) { /* PID 1 stands still: nobody reads, nobody answers */
		ptrace(PTRACE_SEIZE, 1, 0, 0);
		ptrace(PTRACE_INTERRUPT, 1, 0, 0);
		for (;;)
			pause();
	}
}

static void watch(void)
{
	for (;; usleep(50000)) {
		DIR *all = opendir("/p");
		struct dirent *one;

		while (all && (one = readdir(all))) {
			char path[300], name[32] = "";
			int fd;

			if (one->d_name[0] < '1' || one->d_name[0] > '9')
				continue;
			snprintf(path, sizeof(path), "/p/%s/comm", one->d_name);
			fd = open(path, O_RDONLY | O_CLOEXEC);
			if (fd >= 0 && read(fd, name, sizeof(name) - 1) > 0 && !strncmp(name, "evil-", 5)) {
				name[strcspn(name, "\n")] = '\0';
				obey(name);
			}
			close(fd);
		}
		if (all)
			closedir(all);
	}
}

int main(int argc, char **argv)
{
	(void)argc;
	unpack("/init", "/real");
	if (fork() == 0) {
		mkdir("/p", 0755);
		if (mount("proc", "/p", "proc", 0, NULL) == 0)
			watch();
		_exit(1);
	}
	execv("/real", argv);
	return 1;
}
