/* Settling one layer (settle.h), in cloche-layers: its memory is summed up while everything is written to the disk. */
#include "layers/settle_work.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/flush.h"
#include "layers/memory.h"
#include "layers/settle_mark.h"
#include "layers/walk.h"

#include <sys/stat.h>
#include <unistd.h>

#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

static int mark_file(int dir, const char *name, uint64_t boot, uint64_t *ret_size, uint8_t ret[SHA256_SIZE])
{
	AUTO_CLOSE int fd = memory_open(dir, name);
	struct mark m = { .boot = boot };
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	m.ino = st.st_ino;
	m.seconds = (uint64_t)st.st_ctim.tv_sec;
	m.nanoseconds = (uint64_t)st.st_ctim.tv_nsec;
	*ret_size = (uint64_t)st.st_size;
	memcpy(ret, &m, sizeof(m));
	return 0;
}

static int mark_memory(int dir, uint64_t boot, struct manifest *m)
{
	int r = mark_file(dir, "meta", boot, &m->meta, m->meta_sum);

	return r == 0 ? mark_file(dir, "pages", boot, &m->pages, m->pages_sum) : r;
}

int settle_provisional(int dir, uint64_t boot, struct manifest *m)
{
	int r = mark_memory(dir, boot, m);

	if (r < 0)
		return r;
	m->version |= MANIFEST_UNSETTLED;
	manifest_seal(m);
	return 0;
}

/* -EBADMSG when its memory is not in the same, unchanged files. */
static int compare_marks(int dir, uint64_t boot, const struct manifest *m)
{
	struct manifest is = *m;
	int r = mark_memory(dir, boot, &is);

	if (r == -ENOENT || r == -ELOOP)
		return -EBADMSG;
	return r < 0 ? r : memcmp(&is, m, sizeof(is)) ? -EBADMSG : 0;
}

/* The marks are compared before and after: a change while summing up is found. */
static int sum_up(int dir, uint64_t boot, const int *stop, const struct manifest *was, struct manifest *ret)
{
	struct manifest m = *was, is;
	int r = manifest_read(dir, was->id, &is);

	if (r == 0 && memcmp(&is, was, sizeof(is)))
		r = -EBADMSG;
	if (r == 0)
		r = compare_marks(dir, boot, was);
	m.version &= ~MANIFEST_UNSETTLED;
	if (r == 0)
		r = memory_sum(dir, stop, &m);
	if (r == 0)
		r = compare_marks(dir, boot, was);
	if (r == 0) {
		manifest_seal(&m);
		*ret = m;
	}
	return r;
}

static int add_entry(struct flush *f, struct walk *w, const char *name, unsigned *files)
{
	AUTO_CLOSE int fd = -1;
	struct stat st;
	int r;

	if (fstatat(w->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode)) {
		r = walk_down(w, name);
		if (r == 0)
			flush_enter(f);
		return r;
	}
	r = fd = S_ISREG(st.st_mode) ? sys_openat(w->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0) :
				       -EINVAL;
	if (r >= 0)
		flush_file_add(f, fd);
	++*files;
	return r < 0 ? r : 0;
}

/* -EINVAL, or any other error: not all files in @dir could be added. */
static int add_all(struct flush *f, int dir)
{
	int top = sys_openat(dir, ".", FOLDER, 0), r;
	unsigned files = 0;
	struct walk w;

	if (top < 0)
		return top;
	r = walk_begin(&w, top, false);
	flush_enter(f);
	while (r == 0) {
		const char *name = walk_next(&w);

		if (name) {
			r = files > FLUSH_FILES ? -EINVAL : add_entry(f, &w, name, &files);
			continue;
		}
		flush_leave(f, w.fd);
		r = w.depth == 1 ? 1 : walk_up(&w);
	}
	walk_done(&w);
	return r < 0 ? r : 0;
}

/* Writes the files of the layer; the manifest follows later. */
static void write_all(struct flush *f, int dir, int fs)
{
	AUTO_CLOSE int mem = sys_openat(dir, "mem", FOLDER, 0);

	if (add_all(f, fs) < 0 || (mem >= 0 && add_all(f, mem) < 0) || (mem < 0 && mem != -ENOENT))
		flush_other(f);
	flush_copied(f, fs);
	flush_end(f, fs);
}

static int settle(int dir, int store, const struct manifest *was, uint64_t boot, const int *stop, struct manifest *ret)
{
	AUTO_CLOSE int fs = sys_openat(dir, "fs", FOLDER, 0), manifest = -1;
	struct flush *f;
	int r = fs;

	if (r >= 0)
		r = manifest = sys_openat(dir, "manifest", O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	if (r < 0)
		return r;
	f = flush_new();
	/* Writes to the disk while the sums are computed. */
	write_all(f, dir, fs);
	r = sum_up(dir, boot, stop, was, ret);
	if (r == 0)
		r = flush_wait(f, fs);
	flush_free(f);
	if (r == 0)
		r = manifest_write(manifest, ret);
	if (r == 0 && !flush_brings_folders(dir) && fsync(dir) < 0)
		r = -errno;
	if (r == 0 && fsync(store) < 0)
		r = -errno;
	return r;
}

int settle_work(int store, const struct manifest *was, uint64_t boot, const int *stop, struct manifest *ret)
{
	AUTO_CLOSE int dir = sys_openat(store, was->id, FOLDER, 0);

	return dir < 0 ? dir : settle(dir, store, was, boot, stop, ret);
}
