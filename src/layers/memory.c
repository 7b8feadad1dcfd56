/* Reads the head of a layer's memory image, and the list of connections that were cut. */
#include "layers/memory.h"
#include "base/base.h"
#include "base/id.h"
#include "base/sys.h"
#include "memory/crypt.h"

#include <sys/stat.h>
#include <unistd.h>

#define TABLES_MIN (1U << 20) /* page tables and similar kernel memory, at least */

int layer_open_file(int dir, const char *path)
{
	const struct open_how how = {
		.flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	AUTO_CLOSE int fd = sys_openat2(dir, path, &how);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? TAKE_FD(fd) : -EBADMSG;
}

int memory_open(int dir, const char *name)
{
	char path[16];
	int r;

	snprintf(path, sizeof(path), "mem/%s", name);
	r = layer_open_file(dir, path);
	return r == -ENOENT && crypt_locked(dir, "mem") ? -ENOKEY : r;
}

static int bad(struct err *e, const char *why)
{
	return err_set(e, WHY_CANNOT_CARRY, -EBADMSG, "memory image: %s", why);
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
		return err_sys(e, ERR_INTERNAL, -errno, "read the status of a memory image");
	n = pread(meta, &h, sizeof(h), 0);
	if (n < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "read a memory image");
	if (n != sizeof(h) || h.magic != MEM_MAGIC)
		return bad(e, "not a memory image");
	if (h.version != MEM_VERSION)
		return bad(e, "another version");
	if (h.size != (uint64_t)m.st_size || h.size > MEM_META_MAX || h.pages != (uint64_t)p.st_size)
		return bad(e, "incomplete, or with extra data at the end");
	if (h.page_files < 1 || h.page_files > MEM_PAGE_FILES || !ancestors_ok(&h))
		return bad(e, "the images it is based on are invalid");
	for (unsigned i = 0; i < MEM_SECTIONS; i++)
		if (h.section[i].off > h.size || h.section[i].n > h.size)
			return bad(e, "a part is outside of the image");
	if (h.section[MEM_S_EXEC].n > MEMORY_EXECS_MAX)
		return bad(e, "too many execs");
	*ret = h;
	return 0;
}

int memory_cuts(int meta, const struct mem_head *h, struct memory_cuts *ret, struct err *e)
{
	const uint64_t n = h->section[MEM_S_CUT].n;
	struct memory_cuts c = { .n = (uint32_t)n, .told = n < MEMORY_CUTS ? (uint32_t)n : MEMORY_CUTS };
	const size_t size = c.told * sizeof(c.cut[0]);

	if (pread(meta, c.cut, size, (off_t)h->section[MEM_S_CUT].off) != (ssize_t)size)
		return bad(e, "a part is outside of the image");
	for (uint32_t i = 0; i < c.told; i++)
		if (!mem_cut_ok(&c.cut[i]))
			return bad(e, "a connection that was cut is invalid");
	*ret = c;
	return 0;
}

int memory_cuts_ok(const struct memory_cuts *c)
{
	for (uint32_t i = 0; i < c->told && c->told <= MEMORY_CUTS; i++)
		if (!mem_cut_ok(&c->cut[i]))
			return -EPROTO;
	return c->told <= MEMORY_CUTS && c->told <= c->n ? 0 : -EPROTO;
}

int memory_fits(const struct mem_head *h, uint64_t limit, struct err *e)
{
	const uint64_t tables = h->own / 256 + TABLES_MIN;

	if (!limit || (h->own < limit && tables < limit - h->own))
		return 0;
	return err_advise(
		e, WHY_CANNOT_CARRY, -ENOMEM,
		"raise the sandbox's memory limit, or end processes: memory that they share since a fork counts for each of them",
		"its processes need %llu MiB of memory when they are restored, but the limit is %llu MiB",
		(unsigned long long)(h->own + tables + MIB - 1) / MIB, (unsigned long long)limit / MIB);
}
