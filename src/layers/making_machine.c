/*
 * What cloche-vmm has saved of a virtual machine becomes part of the layer: disks and memory are copied. QEMU and
 * cloche-vmm may still have the originals open, and writes to those must not reach a layer.
 */
#include "layers/making.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/sparse_copy.h"
#include "vm/vmm/meta.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const saved_names[] = { "meta", "pages" };

static int failed(int r, struct err *e)
{
	if (r == 0 || r == -ECANCELED)
		return r;
	return err_sys(e, r == -ENOSPC || r == -EDQUOT ? ERR_EXHAUSTED : ERR_INTERNAL, r,
		       "copy the saved state of a virtual machine");
}

static int copy(const struct making *x, int from, int dir, const char *path)
{
	AUTO_CLOSE int to = sys_openat(dir, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r = to < 0 ? to : vm_copy(from, to, x->stop);

	return r == 0 && fsync(to) < 0 ? -errno : r;
}

static uint64_t pieces_of(const struct stat *st)
{
	return ((uint64_t)st->st_size + DIGESTS_LARGE - 1) / DIGESTS_LARGE;
}

/* Writes the sums of the pieces of @fd into a file without a name. */
static int sums_of(const struct making *x, int fd, const struct stat *st, int *ret)
{
	AUTO_CLOSE int sums = sys_memfd_create("cloche-sums", MFD_CLOEXEC);
	uint8_t sum[SHA256_SIZE];
	int r = sums < 0 ? sums : 0;

	for (uint64_t n = 0; r == 0 && n < pieces_of(st); n++) {
		r = digests_piece(fd, (uint64_t)st->st_size, n, DIGESTS_LARGE, x->stop, x->buf, sum);
		if (r == 0)
			r = fd_write_all(sums, sum, sizeof(sum));
	}
	if (r == 0)
		*ret = TAKE_FD(sums);
	return r;
}

/* For later layers with the same disk: its copy is never written again, and one file can be part of several layers. */
static int keep_copy(const struct making *x, const char *path, int ret[static 2])
{
	AUTO_CLOSE int fd = sys_openat(x->fs, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return fd < 0 ? fd : -errno;
	r = sums_of(x, fd, &st, &ret[1]);
	if (r == 0)
		ret[0] = TAKE_FD(fd);
	return r;
}

/* False when all layers that had it are gone, or too many have it. */
static bool link_copy(const struct making *x, int copy, const char *path)
{
	return copy >= 0 && linkat(copy, "", x->fs, path, AT_EMPTY_PATH) == 0;
}

/* Uses sums that are known, so that the disk needs not be read again. */
static void tell_sums(struct making *x, int copy, int sums)
{
	uint8_t(*to)[SHA256_SIZE];
	struct stat st, is;

	if (fstat(copy, &st) < 0 || fstat(sums, &is) < 0 || (uint64_t)is.st_size != pieces_of(&st) * SHA256_SIZE)
		return;
	to = digests_add(x->digests, st.st_ino, (uint64_t)st.st_size);
	if (to && pread(sums, to, (size_t)is.st_size, 0) != is.st_size)
		memset(to, 0, (size_t)is.st_size); /* then the layer is refused when it is verified */
}

int making_disk(struct making *x, int fd, int of, int sums, int ret[static 2], struct err *e)
{
	struct stat st;
	char path[32];
	int r = 0;

	ret[0] = ret[1] = -1;
	if (fstat(fd, &st) < 0)
		return failed(-errno, e);
	/* An empty disk of a seal whose warden died or gave up: it was never put on top. */
	if (!st.st_size)
		return 0;
	snprintf(path, sizeof(path), "%s/disk.%02u", layer_trees[0], x->disks++);
	if (sums < 0 || !link_copy(x, of, path)) {
		r = copy(x, fd, x->fs, path);
		if (r == 0)
			r = keep_copy(x, path, ret);
		of = ret[0];
		sums = ret[1];
	}
	if (r == 0)
		tell_sums(x, of, sums);
	return failed(r, e);
}

static int check_meta(const struct making *x, const struct layer_ask *ask, struct err *e)
{
	AUTO_CLOSE int meta = memory_open(x->tmp, saved_names[0]);
	struct vm_meta head;
	int r = meta < 0 ? err_sys(e, ERR_INTERNAL, meta, "open the saved state") : meta_head(meta, &head, e);

	if (r == 0 && memcmp(head.what.key, ask->sum, sizeof(head.what.key)))
		r = err_set(e, ERR_INTERNAL, -EBADMSG, "the saved state belongs to another template");
	return r;
}

/*
 * Opens the memory of layers whose disks the machine has joined; they are verified first: damaged files must not get a
 * new sum.
 */
static int open_joined(const struct making *x, const char *id, int *ret, struct err *e)
{
	AUTO_CLOSE int dir = sys_openat(x->store, id, MAKING_FOLDER, 0);
	struct manifest m, is;
	int r = dir < 0 ? dir : manifest_read(dir, id, &m);

	if (r == 0) {
		is = m;
		r = memory_sum(dir, x->stop, &is);
	}
	if (r == 0 && memcmp(&is, &m, sizeof(m)))
		r = -EBADMSG;
	if (r == 0)
		r = *ret = memory_open(dir, saved_names[1]);
	if (r == -EBADMSG)
		return err_set(e, WHY_DAMAGED, r, "layer '%s', which the sandbox is based on, is damaged", id);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "open layer '%s'", id) : 0;
}

static int join_pages(const struct making *x, uint64_t memory, int pages, struct err *e)
{
	const uint32_t joins = x->ask.joins;
	int fds[SPEC_LAYERS + 1], r = 0;
	AUTO_CLOSE int to = -1;

	for (uint32_t n = 0; n <= joins; n++)
		fds[n] = -1;
	for (uint32_t n = 0; r == 0 && n < joins; n++)
		r = open_joined(x, x->ask.join[joins - 1 - n], &fds[n], e);
	if (r == 0) {
		to = sys_openat(x->mem, saved_names[1], O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		fds[joins] = pages;
		r = to < 0 ? err_sys(e, ERR_EXHAUSTED, to, "write layer '%s'", x->ask.m.id) :
			     pages_join(fds, joins + 1, memory, to, e);
	}
	if (r == 0 && fsync(to) < 0)
		r = err_sys(e, ERR_EXHAUSTED, -errno, "write layer '%s'", x->ask.m.id);
	fd_close_many(fds, joins);
	return r;
}

int making_saved(struct making *x, const struct layer_ask *ask, const int saved[static 2], struct err *e)
{
	int r = copy(x, saved[0], x->mem, saved_names[0]);

	if (r < 0)
		return failed(r, e);
	r = x->ask.joins ? join_pages(x, ask->limit, saved[1], e) :
			   failed(copy(x, saved[1], x->mem, saved_names[1]), e);
	return r == 0 ? check_meta(x, ask, e) : r;
}
