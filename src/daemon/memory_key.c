/* Reads or makes the keys of memory images. */
#include "daemon/memory_key.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

/* What it could not do is said in @said. */
_Noreturn static void child(const struct vault_opts *o, const struct identity *who, pid_t parent, int to,
			    struct err *said)
{
	uint8_t key[VAULT_MEMORY_KEYS][VAULT_KEY];
	struct vault *v = NULL;
	int r = identity_become(who, parent, said);

	if (r == 0)
		r = vault_new(o, &v, said);
	if (r == 0)
		r = vault_memory_keys(v, key, said);
	if (r > 0)
		r = fd_write_all(to, key, (size_t)r * VAULT_KEY);
	explicit_bzero(key, sizeof(key));
	vault_free(v);
	_exit(r < 0);
}

int memory_keys_get(const struct vault_opts *o, const struct identity *who, int *ret_fd, struct err *e)
{
	struct err *said = mmap(NULL, sizeof(*said), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	AUTO_CLOSE int fd = memfd_create("memory keys", MFD_CLOEXEC);
	pid_t parent = getpid(), pid;
	int status = 0, r = 0;

	if (said == MAP_FAILED)
		return err_sys(e, ERR_EXHAUSTED, -errno, "encrypt_memory");
	pid = fd < 0 ? -1 : fork();
	if (pid == 0)
		child(o, who, parent, fd, said);
	if (pid < 0)
		r = err_sys(e, ERR_EXHAUSTED, -errno, "encrypt_memory");
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (r == 0 && (!WIFEXITED(status) || WEXITSTATUS(status))) {
		*e = *said;
		e->msg[sizeof(e->msg) - 1] = '\0';
		r = e->msg[0] ? -EIO : err_set(e, ERR_INTERNAL, -EIO, "its key cannot be made");
		r = err_wrap(e, r, "encrypt_memory");
	}
	munmap(said, sizeof(*said));
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}
