/* Finds the files that virtual machines need, and identifies them. */
#include "vm/host/files.h"
#include "base/base.h"
#include "base/sys.h"
#include "config.h"
#include "engine/program.h"
#include "vm/vmm/qemu.h"

#include <sys/stat.h>
#include <unistd.h>

int vm_file(const char *name, char *buf, size_t size, struct err *e)
{
	char below[64];

	snprintf(below, sizeof(below), "vm/%s", name);
	if (program_file(below, R_OK, buf, size))
		return 0;
	return err_advise(e, ERR_UNSUPPORTED, -ENOENT,
			  "run `cloche image vm-kernel` (in the tree: `make vm-kernel`), or use isolation container",
			  "the kernel for virtual machines is missing: no vm/%s beside this program or in %s", name,
			  CLOCHE_LIBEXEC);
}

/* Looks in two places, as Debian has moved some programs. */
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
	if (r == 0 && geteuid() != 0)
		r = err_advise(e, ERR_UNSUPPORTED, -EPERM, "run as root", "needs root in this version");
	return r;
}

/* Replacing a file changes at least one of these attributes. */
int vm_add_identity(struct sha256 *s, const char *path, struct err *e)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return err_sys(e, ERR_UNSUPPORTED, -errno, "%s", path);
	sha256_add(s, path, strlen(path) + 1);
	sha256_add(s,
		   (const uint64_t[]){ st.st_dev, st.st_ino, (uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec,
				       (uint64_t)st.st_mtim.tv_nsec, (uint64_t)st.st_ctim.tv_sec,
				       (uint64_t)st.st_ctim.tv_nsec },
		   7 * sizeof(uint64_t));
	return 0;
}

int vm_identity(uint8_t ret[SHA256_SIZE], struct err *e)
{
	static const char *const names[] = { "kernel",	     "modules.cpio",  "cloche-guest",
					     "cloche-agent", "cloche-layers", "cloche-vmm" };
	char path[512];
	struct sha256 s;
	int r;

	sha256_init(&s);
	r = vm_add_identity(&s, QEMU_PROGRAM, e);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(names); i++) {
		r = (i < 2 ? vm_file : program_path)(names[i], path, sizeof(path), e);
		if (r == 0)
			r = vm_add_identity(&s, path, e);
	}
	if (r == 0)
		sha256_end(&s, ret);
	return r;
}

int vm_cache_open(char *folder, size_t size, struct err *e)
{
	int fd, r = program_cache("/vm", folder, size, e);

	if (r < 0)
		return r;
	r = sys_mkdirat(AT_FDCWD, folder, 0700);
	if (r < 0 && r != -EEXIST)
		return err_sys(e, ERR_INTERNAL, r, "make %s", folder);
	fd = sys_openat(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	return fd < 0 ? err_sys(e, ERR_INTERNAL, fd, "open %s", folder) : fd;
}
