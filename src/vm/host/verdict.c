/* Stores whether KVM works on this host, in one small file per boot. */
#include "vm/host/verdict.h"
#include "base/base.h"
#include "base/dir.h"
#include "base/sha256.h"
#include "base/sys.h"
#include "vm/host/files.h"
#include "vm/vmm/qemu.h"

#include <sys/stat.h>
#include <unistd.h>

#define HEAD "cloche: machines and KVM, 1\n"
#define FILE_MAX 512U
#define BOOT 12 /* length of "kvm-" and the part of the boot's id that names begin with */
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* Identifies only what decides whether a kernel boots: QEMU and the kernel itself. */
static int board_id(uint8_t ret[SHA256_SIZE], struct err *e)
{
	char path[512];
	struct sha256 s;
	int r;

	sha256_init(&s);
	r = vm_add_identity(&s, QEMU_PROGRAM, e);
	if (r == 0)
		r = vm_file("kernel", path, sizeof(path), e);
	if (r == 0)
		r = vm_add_identity(&s, path, e);
	if (r == 0)
		sha256_end(&s, ret);
	return r;
}

int vm_verdict_place(int cache, struct vm_verdict_place *p, struct err *e)
{
	uint8_t id[SHA256_SIZE], sum[SHA256_SIZE];
	char boot[64];
	struct sha256 s;
	int r = (int)fd_get(AT_FDCWD, BOOT_ID, boot, sizeof(boot));

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read " BOOT_ID);
	r = board_id(id, e);
	if (r < 0)
		return r;
	sha256_init(&s);
	sha256_add(&s, boot, strlen(boot));
	sha256_add(&s, id, sizeof(id));
	sha256_end(&s, sum);
	snprintf(p->name, sizeof(p->name), "kvm-%.8s-", boot);
	for (unsigned i = 0; i < 16; i++)
		snprintf(p->name + BOOT + 1 + 2 * i, 3, "%02x", sum[i]);
	snprintf(p->folder, sizeof(p->folder), "the cache");
	r = p->fd = cache < 0 ? vm_cache_open(p->folder, sizeof(p->folder), e) : sys_fcntl(cache, F_DUPFD_CLOEXEC, 3);
	return r < 0 ? r : 0;
}

/* Parses "HEAD NAME\n kvm|tcg\n why\n", to the last byte. */
static int parse(const char *text, const char *name, struct vm_verdict *ret)
{
	struct vm_verdict v = { 0 };
	char head[128];
	size_t n = (size_t)snprintf(head, sizeof(head), HEAD "%s\n", name);

	if (strncmp(text, head, n) || (strncmp(text + n, "kvm\n", 4) && strncmp(text + n, "tcg\n", 4)))
		return -EBADMSG;
	v.kvm = text[n] == 'k';
	text += n + 4;
	n = strlen(text);
	if (n < 2 || n > sizeof(v.why) || strchr(text, '\n') != text + n - 1)
		return -EBADMSG;
	memcpy(v.why, text, n - 1);
	err_clean(v.why);
	*ret = v;
	return 0;
}

int vm_verdict_load(int cache, struct vm_verdict *ret)
{
	struct vm_verdict_place p = { .fd = -1 };
	char text[FILE_MAX + 1] = "";
	AUTO_CLOSE int fd = -1;
	struct err e = { 0 };
	struct stat st;
	int r = vm_verdict_place(cache, &p, &e);

	if (r == 0)
		r = fd = sys_openat(p.fd, p.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	fd_close(p.fd);
	/* Only this user can have written it. */
	if (r < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 022 ||
	    st.st_size > FILE_MAX || read(fd, text, FILE_MAX) != st.st_size || strlen(text) != (size_t)st.st_size)
		return -ENOENT;
	return parse(text, p.name, ret) < 0 ? -ENOENT : 0;
}

/* Removes verdicts of earlier boots. */
static void sweep(const struct vm_verdict_place *p)
{
	DIR *dir = dir_list(p->fd);
	struct dirent *d;

	while (dir && (d = readdir(dir)))
		if (!strncmp(d->d_name, "kvm-", 4) && strncmp(d->d_name, p->name, BOOT))
			sys_unlinkat(p->fd, d->d_name, 0);
	if (dir)
		closedir(dir);
}

static int write_new(const struct vm_verdict_place *p, const char *text)
{
	char part[96];
	int fd, r;

	snprintf(part, sizeof(part), "%s.%d", p->name, (int)getpid());
	sys_unlinkat(p->fd, part, 0);
	r = fd = sys_openat(p->fd, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (r < 0)
		return r;
	r = fd_write_all(fd, text, strlen(text));
	fd_close(fd);
	if (r == 0 && renameat(p->fd, part, p->fd, p->name) < 0)
		r = -errno;
	if (r < 0)
		sys_unlinkat(p->fd, part, 0);
	return r;
}

int vm_verdict_store(int cache, const struct vm_verdict *v, struct err *e)
{
	struct vm_verdict_place p = { .fd = -1 };
	char text[FILE_MAX], why[sizeof(v->why)];
	int r = vm_verdict_place(cache, &p, e);

	if (r < 0)
		return r;
	snprintf(why, sizeof(why), "%s", v->why[0] ? v->why : "-");
	err_clean(why);
	snprintf(text, sizeof(text), HEAD "%s\n%s\n%s\n", p.name, v->kvm ? "kvm" : "tcg", why);
	r = write_new(&p, text);
	if (r < 0)
		err_sys(e, ERR_INTERNAL, r, "write %s/%s", p.folder, p.name);
	else
		sweep(&p);
	fd_close(p.fd);
	return r;
}
