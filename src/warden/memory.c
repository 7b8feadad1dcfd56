#include "warden/memory.h"
#include "base/base.h"
#include "base/id.h"
#include "base/sys.h"

#include <sys/stat.h>
#include <unistd.h>

#define STRETCH (1U << 18)

int memory_open(int dir, const char *name)
{
	const struct open_how how = {
		.flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	AUTO_CLOSE int fd = -1;
	struct stat st;
	char path[16];

	snprintf(path, sizeof(path), "mem/%s", name);
	fd = sys_openat2(dir, path, &how);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? TAKE_FD(fd) : -EBADMSG;
}

static int bad(struct err *e, const char *why)
{
	return err_set(e, ERR_REFUSED, -EBADMSG, "memory image: %s", why);
}

static bool zeros(const char *text, size_t n)
{
	while (n--)
		if (*text++)
			return false;
	return true;
}

static bool ancestors_ok(const struct mem_head *h)
{
	for (unsigned i = 0; i < MEM_PAGE_FILES; i++) {
		const char *id = h->ancestor[i];
		bool used = i && i < h->page_files;

		if (used ? strnlen(id, sizeof(h->ancestor[0])) != ID_LEN || !id_valid(id) ||
				   !zeros(id + ID_LEN, sizeof(h->ancestor[0]) - ID_LEN) :
			   !zeros(id, sizeof(h->ancestor[0])))
			return false;
	}
	return true;
}

int memory_head(int meta, int pages, struct mem_head *ret, struct err *e)
{
	struct stat m, p;
	struct mem_head h;
	ssize_t n;

	if (fstat(meta, &m) < 0 || fstat(pages, &p) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "look at a memory image");
	n = pread(meta, &h, sizeof(h), 0);
	if (n < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "read a memory image");
	if (n != sizeof(h) || h.magic != MEM_MAGIC)
		return bad(e, "not one");
	if (h.version != MEM_VERSION)
		return bad(e, "of another version");
	if (h.size != (uint64_t)m.st_size || h.size > MEM_META_MAX || h.pages != (uint64_t)p.st_size)
		return bad(e, "cut off, or with something behind it");
	if (h.page_files < 1 || h.page_files > MEM_PAGE_FILES || !ancestors_ok(&h))
		return bad(e, "the images it stands on make no sense");
	for (unsigned i = 0; i < MEM_SECTIONS; i++)
		if (h.section[i].off > h.size || h.section[i].n > h.size)
			return bad(e, "a part lies outside of it");
	if (h.section[MEM_S_EXEC].n > MEMORY_EXECS_MAX)
		return bad(e, "too many execs");
	*ret = h;
	return 0;
}

static int sum_file(int dir, const char *name, const int *stop, char *buf, uint64_t *ret_size, uint8_t *ret_sum)
{
	AUTO_CLOSE int fd = memory_open(dir, name);
	struct sha256 s;
	uint64_t at = 0;
	ssize_t n;

	if (fd < 0)
		return fd;
	sha256_init(&s);
	while ((n = pread(fd, buf, STRETCH, (off_t)at)) > 0) {
		if (__atomic_load_n(stop, __ATOMIC_RELAXED))
			return -ECANCELED;
		sha256_add(&s, buf, (size_t)n);
		at += (uint64_t)n;
	}
	if (n < 0)
		return -errno;
	sha256_end(&s, ret_sum);
	*ret_size = at;
	return 0;
}

int memory_sum(int dir, const int *stop, struct manifest *m)
{
	AUTO_FREE char *buf = NULL;
	struct stat st;
	int r;

	m->meta = m->pages = 0;
	memset(m->meta_sum, 0, sizeof(m->meta_sum));
	memset(m->pages_sum, 0, sizeof(m->pages_sum));
	if (fstatat(dir, "mem", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	buf = malloc(STRETCH);
	if (!buf)
		return -ENOMEM;
	r = sum_file(dir, "meta", stop, buf, &m->meta, m->meta_sum);
	if (r == 0)
		r = sum_file(dir, "pages", stop, buf, &m->pages, m->pages_sum);
	/* One without a head is none; and ->meta tells whether there is one. */
	return r == -ENOENT || (r == 0 && !m->meta) ? -EBADMSG : r;
}
