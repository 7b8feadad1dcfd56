#include "vm/host/verdict.h"
#include "base/base.h"
#include "base/sha256.h"
#include "base/sys.h"
#include "vm/host/files.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD "cloche: machines and KVM, 1\n"
#define FILE_MAX 512U
#define BOOT_HEX 8U
#define KEY_HEX 32U
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

struct place {
	char folder[400];
	char name[64]; /* "kvm-BOOT-KEY" */
	int fd; /* the folder */
};

static void put_hex(char *out, const uint8_t *sum, unsigned digits)
{
	for (unsigned i = 0; i < digits / 2; i++)
		snprintf(out + 2 * i, 3, "%02x", sum[i]);
}

static int read_boot(char *ret, size_t size)
{
	AUTO_CLOSE int fd = sys_openat(AT_FDCWD, BOOT_ID, O_RDONLY | O_CLOEXEC, 0);
	ssize_t n = fd < 0 ? fd : read(fd, ret, size - 1);

	if (n <= 0)
		return n < 0 ? -errno : -EIO;
	ret[n] = '\0';
	return 0;
}

/* ->fd is the caller's. */
static int find(struct place *p, struct err *e)
{
	char boot[64], part[BOOT_HEX + 1], key[KEY_HEX + 1];
	uint8_t id[SHA256_SIZE], sum[SHA256_SIZE];
	struct sha256 s;
	int r = read_boot(boot, sizeof(boot));

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read " BOOT_ID);
	r = vm_board_id(id, e);
	if (r < 0)
		return r;
	sha256_init(&s);
	sha256_add(&s, boot, strlen(boot));
	sha256_end(&s, sum);
	put_hex(part, sum, BOOT_HEX);
	sha256_init(&s);
	sha256_add(&s, boot, strlen(boot));
	sha256_add(&s, id, sizeof(id));
	sha256_end(&s, sum);
	put_hex(key, sum, KEY_HEX);
	snprintf(p->name, sizeof(p->name), "kvm-%s-%s", part, key);
	r = p->fd = vm_cache_open(p->folder, sizeof(p->folder), e);
	return r < 0 ? r : 0;
}

/* The whole file, NUL-ended, as far as nobody else can have written it. */
static int read_own(int dir, const char *name, char text[FILE_MAX + 1])
{
	AUTO_CLOSE int fd = sys_openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 022)
		return -EPERM;
	n = read(fd, text, FILE_MAX + 1);
	if (n <= 0 || n > (ssize_t)FILE_MAX)
		return -EBADMSG;
	text[n] = '\0';
	return strlen(text) == (size_t)n ? 0 : -EBADMSG;
}

/* "HEAD NAME\n kvm|tcg\n why\n", to the last byte. */
static int parse(const char *text, const char *name, struct vm_verdict *ret)
{
	const size_t head = strlen(HEAD), n = strlen(name);
	struct vm_verdict v = { 0 };
	size_t len;

	if (strncmp(text, HEAD, head) || strncmp(text + head, name, n) || text[head + n] != '\n')
		return -EBADMSG;
	text += head + n + 1;
	v.kvm = !strncmp(text, "kvm\n", 4);
	if (!v.kvm && strncmp(text, "tcg\n", 4))
		return -EBADMSG;
	text += 4;
	len = strcspn(text, "\n");
	if (!len || len >= sizeof(v.why) || text[len] != '\n' || text[len + 1])
		return -EBADMSG;
	for (size_t i = 0; i < len; i++)
		if (text[i] < ' ' || text[i] > '~')
			return -EBADMSG;
	memcpy(v.why, text, len);
	*ret = v;
	return 0;
}

int vm_verdict_load(struct vm_verdict *ret)
{
	struct place p = { .fd = -1 };
	char text[FILE_MAX + 1];
	struct err e = { 0 };
	int r = find(&p, &e);

	if (r == 0)
		r = read_own(p.fd, p.name, text);
	if (r == 0)
		r = parse(text, p.name, ret);
	fd_close(p.fd);
	return r < 0 ? -ENOENT : 0;
}

/* Of earlier boots nobody asks again. */
static void sweep(const struct place *p)
{
	int fd = sys_openat(p->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;

	if (!dir) {
		fd_close(fd);
		return;
	}
	while ((d = readdir(dir)))
		if (!strncmp(d->d_name, "kvm-", 4) && strncmp(d->d_name, p->name, 4 + BOOT_HEX))
			sys_unlinkat(p->fd, d->d_name, 0);
	closedir(dir);
}

static int write_new(const struct place *p, const char *text)
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

int vm_verdict_store(const struct vm_verdict *v, struct err *e)
{
	struct place p = { .fd = -1 };
	char text[FILE_MAX], why[sizeof(v->why)];
	int r = find(&p, e);

	if (r < 0)
		return r;
	snprintf(why, sizeof(why), "%s", v->why[0] ? v->why : "-");
	for (char *c = why; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	snprintf(text, sizeof(text), HEAD "%s\n%s\n%s\n", p.name, v->kvm ? "kvm" : "tcg", why);
	r = write_new(&p, text);
	if (r < 0)
		err_sys(e, ERR_INTERNAL, r, "write %s/%s", p.folder, p.name);
	else
		sweep(&p);
	fd_close(p.fd);
	return r;
}

void vm_verdict_path(char *ret, size_t size)
{
	struct place p = { .fd = -1 };
	struct err e = { 0 };

	ret[0] = '\0';
	if (find(&p, &e) == 0 && (size_t)snprintf(ret, size, "%s/%s", p.folder, p.name) >= size)
		ret[0] = '\0';
	fd_close(p.fd);
}
