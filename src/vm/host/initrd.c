/* What a machine boots with: its initramfs, its disk, and their sums. Made in cloche-vm-files (main.c). */
#include "base/base.h"
#include "base/sys.h"
#include "engine/image/disk.h"
#include "engine/program.h"
#include "vm/host/files.h"

#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define DISK_DEFAULT (16ULL * GIB)

static int append(int to, const char *path, size_t *ret_len, struct err *e)
{
	AUTO_CLOSE int from = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	size_t sum = 0;
	ssize_t n = from;

	while (n >= 0) {
		n = sendfile(to, from, NULL, 1 << 20);
		if (n < 0)
			n = -errno;
		if (n <= 0)
			break;
		sum += (size_t)n;
	}
	*ret_len = sum;
	return n < 0 ? err_sys(e, ERR_INTERNAL, (int)n, "copy %s into the initramfs", path) : 0;
}

static int pad(int to, size_t len)
{
	return fd_write_all(to, "\0\0\0", (4 - len % 4) % 4);
}

/* Writes an entry of the kernel's archive format ("newc"): a header of hexadecimal numbers, the name, the data. */
static int entry(int to, unsigned ino, const char *name, unsigned mode, size_t size)
{
	char head[111 + 64];
	int n = snprintf(head, sizeof(head), "070701%08x%08x%08x%08x%08x%08x%08zx%08x%08x%08x%08x%08zx%08x%s", ino,
			 mode, 0U, 0U, 1U, 0U, size, 0U, 0U, 0U, 0U, strlen(name) + 1, 0U, name);
	int r = fd_write_all(to, head, (size_t)n + 1);

	return r < 0 ? r : pad(to, (size_t)n + 1);
}

static int add_program(int to, unsigned ino, const char *program, const char *name, struct err *e)
{
	char path[512];
	struct stat st;
	size_t len;
	int r = program_path(program, path, sizeof(path), e);

	if (r < 0)
		return r;
	if (stat(path, &st) < 0)
		return err_sys(e, ERR_NOT_FOUND, -errno, "%s", path);
	r = entry(to, ino, name, S_IFREG | 0755, (size_t)st.st_size);
	if (r == 0) {
		r = append(to, path, &len, e);
		if (r == 0 && len != (size_t)st.st_size)
			r = err_set(e, ERR_CONFLICT, -ESTALE, "%s was changed while it was being read", path);
		if (r < 0)
			return r;
		r = pad(to, len);
	}
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "write the initramfs") : 0;
}

int vm_initrd(int *ret, struct err *e)
{
	AUTO_CLOSE int fd = -1;
	char path[512];
	size_t len;
	int r = vm_file("modules.cpio", path, sizeof(path), e);

	if (r < 0)
		return r;
	fd = sys_memfd_create("initrd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return err_sys(e, ERR_EXHAUSTED, fd, "make an in-memory file");
	r = append(fd, path, &len, e);
	if (r == 0)
		r = add_program(fd, 0x10001, "cloche-guest", "init", e);
	if (r == 0)
		r = add_program(fd, 0x10002, "cloche-agent", "cloche-agent", e);
	if (r == 0)
		r = add_program(fd, 0x10003, "cloche-layers", "cloche-layers", e);
	if (r < 0)
		return r;
	r = entry(fd, 0x10004, "TRAILER!!!", 0, 0);
	/* It is opened again by name, in a folder that no other user can change. */
	if (r == 0)
		r = sys_fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "write the initramfs");
	*ret = TAKE_FD(fd);
	return 0;
}

int vm_disk(int fd, uint64_t size, uint64_t inodes, struct err *e)
{
	int r;

	size = size ? size : DISK_DEFAULT;
	r = disk_size(fd, size & ~4095ULL, e);
	return r < 0 ? r : disk_format(fd, inodes ? inodes : size / 8192, 0, e);
}

int vm_sum(int fd, uint8_t ret[SHA256_SIZE])
{
	AUTO_FREE char *buf = malloc(1 << 18);
	struct sha256 s;
	off_t at = 0;
	ssize_t n;

	if (!buf)
		return -ENOMEM;
	sha256_init(&s);
	while ((n = pread(fd, buf, 1 << 18, at)) > 0) {
		sha256_add(&s, buf, (size_t)n);
		at += n;
	}
	if (n < 0)
		return -errno;
	sha256_end(&s, ret);
	return 0;
}

int vm_kernel_sum(uint8_t ret[SHA256_SIZE], struct err *e)
{
	char path[512];
	AUTO_CLOSE int fd = -1;
	int r = vm_file("kernel", path, sizeof(path), e);

	if (r < 0)
		return r;
	r = fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (r >= 0)
		r = vm_sum(fd, ret);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "read %s", path) : 0;
}
