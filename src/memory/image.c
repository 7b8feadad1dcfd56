/* Collects the records of a memory image. */
#include "memory/dump.h"
#include "base/base.h"
#include "base/sys.h"
#include "proto/memory_fds.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* clang-format off */
static const uint32_t sizes[MEM_SECTIONS] = {
	[MEM_S_PROC] = sizeof(struct mem_proc),	    [MEM_S_THREAD] = sizeof(struct mem_thread),
	[MEM_S_VMA] = sizeof(struct mem_vma),	    [MEM_S_RUN] = sizeof(struct mem_run),
	[MEM_S_FD] = sizeof(struct mem_fd),	    [MEM_S_OBJECT] = sizeof(struct mem_object),
	[MEM_S_WATCH] = sizeof(struct mem_watch),   [MEM_S_ACTION] = sizeof(struct mem_action),
	[MEM_S_TIMER] = sizeof(struct mem_timer),   [MEM_S_EXEC] = sizeof(struct mem_exec),
	[MEM_S_FILE] = sizeof(struct mem_file),	    [MEM_S_LOCK] = sizeof(struct mem_lock),
	[MEM_S_NODE] = sizeof(struct mem_node),	    [MEM_S_CUT] = sizeof(struct mem_cut),
	[MEM_S_BYTES] = 1,
};
/* clang-format on */

void image_init(struct image *m)
{
	for (unsigned i = 0; i < MEM_SECTIONS; i++)
		m->section[i] = (struct buf)BUF_INIT(MEM_META_MAX);
}

uint32_t image_count(const struct image *m, enum mem_section s)
{
	return (uint32_t)(m->section[s].len / sizes[s]);
}

void *image_at(struct image *m, enum mem_section s, uint32_t i)
{
	assert(i < image_count(m, s));
	return m->section[s].data + (size_t)i * sizes[s];
}

static int too_large(int r, struct err *e)
{
	if (r == -E2BIG)
		return err_set(e, ERR_TOO_LARGE, r, "more than %u MiB of records", MEM_META_MAX >> 20);
	return err_sys(e, ERR_INTERNAL, r, "keep a record");
}

int image_add(struct image *m, enum mem_section s, const void *record, uint32_t *ret_index, struct err *e)
{
	int r = buf_add(&m->section[s], record, sizes[s]);

	if (r < 0)
		return too_large(r, e);
	if (ret_index)
		*ret_index = image_count(m, s) - 1;
	return 0;
}

int image_bytes(struct image *m, const void *data, size_t len, struct mem_span *ret, struct err *e)
{
	struct buf *b = &m->section[MEM_S_BYTES];
	static const char zeros[8];
	size_t pad = -b->len & 7; /* so that records in it are aligned, and can be read in place */
	int r;

	if (!len) {
		*ret = (struct mem_span){ 0 };
		return 0;
	}
	r = buf_add(b, zeros, pad);
	if (r == 0)
		r = buf_add(b, data, len);
	if (r < 0)
		return too_large(r, e);
	*ret = (struct mem_span){ b->len - len, len };
	return 0;
}

/* Whether the file was removed: a file that has its name now is another one. */
static bool removed(struct image *m, const struct mem_file *f)
{
	return f->node != MEM_NONE &&
	       ((const struct mem_node *)image_at(m, MEM_S_NODE, f->node))->flags & MEM_NODE_REMOVED;
}

int image_file(struct image *m, const char *path, const struct stat *st, uint32_t flags, uint32_t *ret, struct err *e)
{
	for (uint32_t i = 0; i < image_count(m, MEM_S_FILE); i++) {
		struct mem_file *have = image_at(m, MEM_S_FILE, i);

		if (have->path.len == strlen(path) && !removed(m, have) &&
		    !memcmp(m->section[MEM_S_BYTES].data + have->path.off, path, have->path.len)) {
			have->flags |= flags;
			*ret = i;
			return 0;
		}
	}
	return image_new_file(m, path, st, flags, MEM_NONE, ret, e);
}

int image_new_file(struct image *m, const char *path, const struct stat *st, uint32_t flags, uint32_t node,
		   uint32_t *ret, struct err *e)
{
	struct mem_file f = {
		.size = (uint64_t)st->st_size,
		.mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000ULL + (uint64_t)st->st_mtim.tv_nsec,
		.mode = st->st_mode,
		.flags = flags,
		.node = node,
	};
	int r = image_bytes(m, path, strlen(path), &f.path, e);

	return r < 0 ? r : image_add(m, MEM_S_FILE, &f, ret, e);
}

static int open_out(const struct dump *d, const char *name, struct err *e)
{
	int fd = sys_openat(d->out, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

	return fd < 0 ? err_sys(e, ERR_INTERNAL, fd, "create %s", name) : fd;
}

/*
 * Makes the same checks as a restore does first, so that an invalid image is refused now, and not when its source is
 * gone.
 */
static int image_check(int fd, uint64_t size, struct err *e)
{
	void *at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	struct mem_image m;
	struct rlimit files; /* the same limit as the warden's and an agent's */
	struct err why = { 0 };
	int r;

	if (at == MAP_FAILED)
		return err_sys(e, ERR_INTERNAL, -errno, "map the image");
	r = mem_check(at, size, &m, &why);
	if (r == 0 && getrlimit(RLIMIT_NOFILE, &files) == 0 && mem_fds_needed(&m) > files.rlim_max)
		r = err_set(&why, ERR_EXHAUSTED, -EMFILE,
			    "it needs %llu descriptors, but the limit here is %llu (ulimit -Hn)",
			    (unsigned long long)mem_fds_needed(&m), (unsigned long long)files.rlim_max);
	munmap(at, size);
	return r < 0 ? err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "it cannot be restored: %s", why.msg) : 0;
}

int image_write(struct dump *d, struct err *e)
{
	struct mem_head h = {
		.magic = MEM_MAGIC,
		.version = MEM_VERSION,
#ifdef __aarch64__
		.arch = MEM_AARCH64,
#else
		.arch = MEM_X86_64,
#endif
		.page_size = PAGE,
		.page_files = 1 + (d->flat ? 0 : d->ancestors),
		.pages = pages_end(&d->pages),
		.realtime = d->realtime,
		.monotonic = d->monotonic,
		.boottime = d->boottime,
	};
	AUTO_CLOSE int fd = -1;
	static const char zeros[8];
	uint64_t at = sizeof(h);
	int r = mem_host(h.host, e);

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < image_count(&d->image, MEM_S_RUN); i++)
		h.own += ((const struct mem_run *)image_at(&d->image, MEM_S_RUN, i))->len;
	for (uint32_t i = 1; i < h.page_files; i++)
		memcpy(h.ancestor[i], d->ancestor[i - 1].id, sizeof(h.ancestor[i]));
	for (unsigned i = 0; i < MEM_SECTIONS; i++) {
		h.section[i].off = at;
		h.section[i].n = image_count(&d->image, i);
		at += (d->image.section[i].len + 7) & ~7ULL;
	}
	h.size = at;
	if (at > MEM_META_MAX)
		return too_large(-E2BIG, e);
	fd = open_out(d, "meta", e);
	if (fd < 0)
		return fd;
	r = fd_write_all(fd, &h, sizeof(h));
	for (unsigned i = 0; r == 0 && i < MEM_SECTIONS; i++) {
		r = fd_write_all(fd, buf_str(&d->image.section[i]), d->image.section[i].len);
		if (r == 0)
			r = fd_write_all(fd, zeros, -d->image.section[i].len & 7);
	}
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "write meta") : image_check(fd, h.size, e);
}
