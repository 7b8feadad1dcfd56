#include "vm/host/files.h"
#include "base/base.h"
#include "base/sys.h"
#include "config.h"
#include "engine/image/disk.h"
#include "engine/program.h"
#include "vm/vmm/qemu.h"

#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define DISK_DEFAULT (16ULL * GIB)

int vm_file(const char *name, char *buf, size_t size, struct err *e)
{
	char below[64];

	snprintf(below, sizeof(below), "vm/%s", name);
	if (program_file(below, R_OK, buf, size))
		return 0;
	if ((size_t)snprintf(buf, size, "%s/vm/%s", CLOCHE_LIBEXEC, name) < size && access(buf, R_OK) == 0)
		return 0;
	err_set(e, ERR_UNSUPPORTED, -ENOENT,
		"the kernel for virtual machines is missing: no vm/%s beside this program or in %s", name,
		CLOCHE_LIBEXEC);
	err_remedy(e, "run `cloche image vm-kernel` (in the tree: `make vm-kernel`), or use isolation container");
	return -ENOENT;
}

/* One of two places, as Debian moved some. */
static bool installed(const char *name)
{
	static const char *const folders[] = { "/usr/bin", "/usr/sbin", "/sbin" };
	char path[64];

	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		snprintf(path, sizeof(path), "%s/%s", folders[i], name);
		if (access(path, X_OK) == 0)
			return true;
	}
	return false;
}

int vm_ready(struct err *e)
{
	static const struct {
		const char *program, *package;
	} needs[] = { { QEMU_NAME, QEMU_PACKAGE }, { "mkfs.erofs", "erofs-utils" }, { "mke2fs", "e2fsprogs" } };
	char path[512];
	int r = vm_file("kernel", path, sizeof(path), e);

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(needs); i++) {
		if (installed(needs[i].program))
			continue;
		r = err_set(e, ERR_UNSUPPORTED, -ENOENT, "%s is missing", needs[i].program);
		err_remedy(e, "install %s", needs[i].package);
	}
	if (r == 0 && geteuid() != 0) {
		r = err_set(e, ERR_UNSUPPORTED, -EPERM, "needs root in this version");
		err_remedy(e, "run as root");
	}
	return r;
}

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

/* An entry of the kernel's own archive format ("newc"): a head of hexadecimal numbers, the name, the data. */
static int entry(int to, unsigned ino, const char *name, unsigned mode, size_t size)
{
	char head[111 + 64];
	int n = snprintf(head, sizeof(head), "070701%08x%08x%08x%08x%08x%08x%08zx%08x%08x%08x%08x%08zx%08x%s", ino, mode, 0U, 0U, 1U,
			 0U, size, 0U, 0U, 0U, 0U, strlen(name) + 1, 0U, name);
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
	if (r < 0)
		return r;
	r = entry(fd, 0x10003, "TRAILER!!!", 0, 0);
	/* It is opened again by name where nobody may change it. */
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
	return r < 0 ? r : disk_format(fd, inodes ? inodes : size / 8192, e);
}

/* Who replaces a file changes one of these. */
static int add_identity(struct sha256 *s, const char *path, struct err *e)
{
	struct stat st;
	uint64_t facts[7];

	if (stat(path, &st) < 0)
		return err_sys(e, ERR_UNSUPPORTED, -errno, "%s", path);
	facts[0] = st.st_dev;
	facts[1] = st.st_ino;
	facts[2] = (uint64_t)st.st_size;
	facts[3] = (uint64_t)st.st_mtim.tv_sec;
	facts[4] = (uint64_t)st.st_mtim.tv_nsec;
	facts[5] = (uint64_t)st.st_ctim.tv_sec;
	facts[6] = (uint64_t)st.st_ctim.tv_nsec;
	sha256_add(s, path, strlen(path) + 1);
	sha256_add(s, facts, sizeof(facts));
	return 0;
}

int vm_identity(uint8_t ret[SHA256_SIZE], struct err *e)
{
	static const char *const files[] = { "kernel", "modules.cpio" };
	static const char *const programs[] = { "cloche-guest", "cloche-agent", "cloche-vmm" };
	char path[512];
	struct sha256 s;
	int r;

	sha256_init(&s);
	r = add_identity(&s, QEMU_PROGRAM, e);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(files); i++) {
		r = vm_file(files[i], path, sizeof(path), e);
		if (r == 0)
			r = add_identity(&s, path, e);
	}
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(programs); i++) {
		r = program_path(programs[i], path, sizeof(path), e);
		if (r == 0)
			r = add_identity(&s, path, e);
	}
	if (r == 0)
		sha256_end(&s, ret);
	return r;
}

int vm_board_id(uint8_t ret[SHA256_SIZE], struct err *e)
{
	char path[512];
	struct sha256 s;
	int r;

	sha256_init(&s);
	r = add_identity(&s, QEMU_PROGRAM, e);
	if (r == 0)
		r = vm_file("kernel", path, sizeof(path), e);
	if (r == 0)
		r = add_identity(&s, path, e);
	if (r == 0)
		sha256_end(&s, ret);
	return r;
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
