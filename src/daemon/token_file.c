/* Writes the first admin token to a file. */
#include "daemon/token_file.h"
#include "base/base.h"
#include "base/sys.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int token_new(char text[TOKEN_FILE_SIZE], struct err *e)
{
	static const char symbols[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	unsigned char bytes[33] = { 0 }; /* the last is padding: 32 bytes are 42 symbols and two thirds */
	size_t n;
	ssize_t got;

	do {
		got = sys_getrandom(bytes, 32, 0);
	} while (got == -EINTR);
	if (got != 32)
		return err_sys(e, ERR_INTERNAL, got < 0 ? (int)got : -EIO, "random bytes for a token");
	n = (size_t)snprintf(text, TOKEN_FILE_SIZE, "cloche_");
	for (size_t i = 0; i < 43; i++) {
		size_t bit = i * 6, at = bit / 8, shift = bit % 8;
		unsigned pair = (unsigned)bytes[at] << 8 | bytes[at + 1];

		text[n++] = symbols[pair >> (10 - shift) & 63];
	}
	text[n] = '\0';
	explicit_bzero(bytes, sizeof(bytes));
	return 0;
}

static int check_text(char *text, struct err *e)
{
	size_t n = strcspn(text, "\r\n");

	text[n] = '\0';
	for (size_t i = 0; i < n; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return err_set(e, ERR_INVALID, -EINVAL,
				       "its first line is not a token: it contains a space or control byte");
	if (n < TOKEN_FILE_MIN || n > TOKEN_FILE_MAX)
		return err_set(e, ERR_INVALID, -EINVAL,
			       "its first line is not a token: it has %zu characters, expected %d to %d", n,
			       TOKEN_FILE_MIN, TOKEN_FILE_MAX);
	return 0;
}

static int read_token(int fd, char text[TOKEN_FILE_SIZE], struct err *e)
{
	struct stat st;
	char buf[TOKEN_FILE_SIZE] = "";
	ssize_t n;
	int r;

	if (fstat(fd, &st) < 0)
		return err_sys(e, ERR_INVALID, -errno, "stat");
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, -EINVAL, "not a regular file");
	/* With more than one name, the file may be a link to a secret that is not meant as a token. */
	if (st.st_nlink != 1)
		return err_set(e, ERR_INVALID, -EMLINK, "it has more than one hard link");
	if (st.st_mode & 077) {
		err_set(e, ERR_DENIED, -EACCES, "other users may read or change it (mode %04o)", st.st_mode & 07777);
		err_remedy(e, "chmod 600");
		return -EACCES;
	}
	n = sys_read(fd, buf, sizeof(buf) - 1);
	if (n < 0)
		return err_sys(e, ERR_INVALID, (int)n, "read");
	if ((size_t)n != strlen(buf))
		return err_set(e, ERR_INVALID, -EINVAL, "it contains a NUL byte");
	r = check_text(buf, e);
	if (r == 0)
		memcpy(text, buf, sizeof(buf));
	explicit_bzero(buf, sizeof(buf));
	return r;
}

static int write_token(int dirfd, const char *name, const char *text, struct err *e)
{
	char temporary[64], line[TOKEN_FILE_SIZE + 1];
	AUTO_CLOSE int fd = -1;
	int n, r;

	snprintf(temporary, sizeof(temporary), ".cloche-token-%d", getpid());
	sys_unlinkat(dirfd, temporary, 0); /* of a process that had our number and died here */
	fd = sys_openat(dirfd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, ERR_DENIED, fd, "write it");
	n = snprintf(line, sizeof(line), "%s\n", text);
	r = sys_fchmod(fd, 0600); /* whatever the mask is */
	if (r == 0)
		r = fd_write_all(fd, line, (size_t)n);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r == 0 && renameat2(dirfd, temporary, dirfd, name, RENAME_NOREPLACE) < 0)
		r = -errno;
	explicit_bzero(line, sizeof(line));
	if (r < 0) {
		sys_unlinkat(dirfd, temporary, 0);
		return err_sys(e, ERR_DENIED, r, "write it");
	}
	fsync(dirfd);
	return 0;
}

static int open_folder(const char *path, const char **ret_name, struct err *e)
{
	const char *slash = strrchr(path, '/');
	char dir[1024];
	int r;

	if (!slash || !slash[1] || (size_t)(slash - path) + 2 > sizeof(dir))
		return err_set(e, ERR_INVALID, -EINVAL, "must be the absolute path of a file");
	snprintf(dir, sizeof(dir), "%.*s/", (int)(slash - path), path);
	r = sys_openat(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (r < 0)
		return err_sys(e, ERR_NOT_FOUND, r, "open its parent folder");
	*ret_name = slash + 1;
	return r;
}

int token_file_get(const char *path, char text[TOKEN_FILE_SIZE], struct err *e)
{
	AUTO_CLOSE int dirfd = -1, fd = -1;
	char made[TOKEN_FILE_SIZE];
	const char *name = NULL;
	int r;

	r = dirfd = open_folder(path, &name, e);
	if (r < 0)
		goto out;
	fd = sys_openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	if (fd >= 0) {
		r = read_token(fd, text, e);
	} else if (fd == -ENOENT) {
		r = token_new(made, e);
		if (r == 0)
			r = write_token(dirfd, name, made, e);
		if (r == 0)
			memcpy(text, made, sizeof(made));
		explicit_bzero(made, sizeof(made));
	} else {
		r = fd == -ELOOP ? err_set(e, ERR_INVALID, fd, "it is a link, not a regular file") :
				   err_sys(e, ERR_DENIED, fd, "open it");
	}
out:
	return r < 0 ? err_wrap(e, r, "token file '%.120s'", path) : 0;
}
