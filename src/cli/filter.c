/* Loads a user's seccomp profile, which cloche-seccomp translates. */
#include "base/base.h"
#include "base/sys.h"
#include "cli/run.h"
#include "engine/program.h"
#include "linux/seccomp.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the compiler says on stderr, as our own error. */
static int explain(int from, const char *path, struct err *e)
{
	char text[200];
	ssize_t n = read(from, text, sizeof(text) - 1);
	char *start = text;

	if (n <= 0)
		return err_set(e, ERR_INVALID, -EINVAL, "--seccomp '%s': cannot compile the profile", path);
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (!strncmp(start, "cloche-seccomp: ", 16))
		start += 16;
	return err_set(e, ERR_INVALID, -EINVAL, "--seccomp '%s': %s", path, start);
}

static int compile(const char *program, int profile, int out, const char *path, struct err *e)
{
	AUTO_CLOSE int read_end = -1, write_end = -1;
	char *argv[] = { (char *)(uintptr_t) "cloche-seccomp", NULL }, *envp[] = { NULL };
	int pipefd[2], status = -1, r;
	pid_t pid;

	r = sys_pipe2(pipefd, O_CLOEXEC);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make a pipe");
	read_end = pipefd[0];
	write_end = pipefd[1];
	pid = fork();
	if (pid == 0) {
		if (dup2(profile, 0) == 0 && dup2(out, 1) == 1 && dup2(write_end, 2) == 2)
			execve(program, argv, envp);
		_exit(127);
	}
	if (pid < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "start cloche-seccomp");
	fd_close(TAKE_FD(write_end));
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : explain(read_end, path, e);
}

int filter_load(const char *path, int *ret_fd, struct err *e)
{
	AUTO_CLOSE int profile = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
	AUTO_CLOSE int out = -1;
	char program[512];
	struct stat st;
	int r;

	if (profile < 0)
		return err_sys(e, ERR_NOT_FOUND, profile, "--seccomp '%s'", path);
	if (fstat(profile, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, -EINVAL, "--seccomp '%s': not a regular file", path);
	r = program_path("cloche-seccomp", program, sizeof(program), e);
	if (r < 0)
		return r;
	out = sys_memfd_create("seccomp", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (out < 0)
		return err_sys(e, ERR_EXHAUSTED, out, "make an in-memory file");
	r = compile(program, profile, out, path, e);
	if (r < 0)
		return r;
	if (fstat(out, &st) < 0 || st.st_size <= 0 || st.st_size % (off_t)sizeof(struct sock_filter) ||
	    st.st_size > (off_t)(SECCOMP_PROFILE_MAX * sizeof(struct sock_filter)))
		return err_set(e, ERR_INVALID, -EINVAL, "--seccomp '%s': the compiled program is invalid", path);
	/* The agent reads it later, at every exec: it must not change in between. */
	r = sys_fcntl(out, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "seal the compiled profile");
	*ret_fd = TAKE_FD(out);
	return 0;
}
