/* Runs mke2fs. */
#include "engine/image/disk.h"
#include "base/base.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

int disk_format(int file, uint64_t inodes, unsigned journal, struct err *e)
{
	char path[32], count[24], size[16];
	char *kept[] = { (char *)(uintptr_t) "mke2fs",
			 (char *)(uintptr_t) "-q",
			 (char *)(uintptr_t) "-F",
			 (char *)(uintptr_t) "-t",
			 (char *)(uintptr_t) "ext4",
			 (char *)(uintptr_t) "-m",
			 (char *)(uintptr_t) "0",
			 (char *)(uintptr_t) "-O",
			 (char *)(uintptr_t) "has_journal,^resize_inode",
			 (char *)(uintptr_t) "-E",
			 (char *)(uintptr_t) "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0",
			 (char *)(uintptr_t) "-J",
			 size,
			 (char *)(uintptr_t) "-b",
			 (char *)(uintptr_t)(journal == 1 ? "1024" : "4096"),
			 (char *)(uintptr_t) "-N",
			 count,
			 path,
			 NULL };
	char *argv[] = { (char *)(uintptr_t) "mke2fs",
			 (char *)(uintptr_t) "-q",
			 (char *)(uintptr_t) "-F",
			 (char *)(uintptr_t) "-t",
			 (char *)(uintptr_t) "ext4",
			 (char *)(uintptr_t) "-m",
			 (char *)(uintptr_t) "0",
			 (char *)(uintptr_t) "-O",
			 (char *)(uintptr_t) "^has_journal,^resize_inode",
			 (char *)(uintptr_t) "-E",
			 (char *)(uintptr_t) "lazy_itable_init=1,nodiscard,root_owner=0:0",
			 (char *)(uintptr_t) "-N",
			 count,
			 path,
			 NULL };
	char *envp[] = { (char *)(uintptr_t) "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
	int status = -1;
	pid_t pid;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	snprintf(count, sizeof(count), "%llu", (unsigned long long)inodes + 64);
	snprintf(size, sizeof(size), "size=%u", journal);
	pid = fork();
	if (pid == 0) {
		fcntl(file, F_SETFD, 0);
		execve("/usr/sbin/mke2fs", journal ? kept : argv, envp);
		execve("/sbin/mke2fs", journal ? kept : argv, envp);
		_exit(127);
	}
	if (pid < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "start mke2fs");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	err_set(e, ERR_UNSUPPORTED, -EIO, "disk layer: mke2fs failed (status %d)",
		WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	err_remedy(e, "install e2fsprogs, or leave the layer in memory (no --storage disk)");
	return -EIO;
}
