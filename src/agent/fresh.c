/*
 * What must differ between two sandboxes that start from the same layer: the machine id, and a number by which a
 * program sees that it runs in a copy. The files belong to a hostile image: an unexpected kind of file is left alone. A
 * failure does not end the sandbox; it is reported in the answer.
 */
#include "agent/agent.h"
#include "base/base.h"
#include "base/sys.h"

#include <sys/stat.h>
#include <unistd.h>

static int open_plain(int dir, const char *path, uint64_t flags, uint64_t mode)
{
	const struct open_how how = {
		.flags = flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
		.mode = mode,
		.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	return sys_openat2(dir, path, &how);
}

static int write_random(int fd)
{
	static const char digits[] = "0123456789abcdef";
	uint8_t random[16];
	char text[33];

	if (sys_getrandom(random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	for (unsigned i = 0; i < sizeof(random); i++) {
		text[2 * i] = digits[random[i] >> 4];
		text[2 * i + 1] = digits[random[i] & 15];
	}
	text[32] = '\n';
	return fd_write_all(fd, text, sizeof(text));
}

static int machine_id(void)
{
	AUTO_CLOSE int fd = open_plain(AT_FDCWD, "/etc/machine-id", O_WRONLY, 0);
	struct stat st;
	int r;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	r = sys_ftruncate(fd, 0);
	return r < 0 ? r : write_random(fd);
}

static int generation(void)
{
	AUTO_CLOSE int dir = -1, fd = -1;
	int r = sys_mkdirat(AT_FDCWD, "/run/cloche", 0755);

	if (r == -ENOENT && sys_mkdirat(AT_FDCWD, "/run", 0755) == 0)
		r = sys_mkdirat(AT_FDCWD, "/run/cloche", 0755);
	if (r < 0 && r != -EEXIST)
		return r;
	dir = open_plain(AT_FDCWD, "/run/cloche", O_RDONLY | O_DIRECTORY, 0);
	if (dir < 0)
		return dir;
	r = sys_unlinkat(dir, "generation", 0);
	if (r < 0 && r != -ENOENT)
		return r;
	fd = open_plain(dir, "generation", O_WRONLY | O_CREAT | O_EXCL, 0444);
	return fd < 0 ? fd : write_random(fd);
}

uint32_t fresh_make(void)
{
	uint32_t done = machine_id() == 0 ? FRAME_RESTORED_MACHINE_ID : 0;

	return done | (generation() == 0 ? FRAME_RESTORED_GENERATION : 0);
}
