/* Requests of the warden that make a layer, in cloche-layers: BEGIN, COPY, WRITE and so on. */
#include "layers/making.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "layers/settle_work.h"
#include "layers/tree.h"

#include <sys/stat.h>
#include <unistd.h>

enum err_kind making_kind(int r)
{
	return r == -ENOSPC || r == -ENOMEM || r == -EDQUOT ? ERR_EXHAUSTED : ERR_INTERNAL;
}

void making_init(struct making *x, int store, const int *stop)
{
	*x = (struct making){ .store = store, .stop = stop };
	x->tmp = x->fs = x->links = x->mem = x->manifest = -1;
	x->spare = copy_pipeline_spare_new();
	x->prealloc = layer_prealloc_new(store);
}

void making_end(struct making *x)
{
	int *const fds[] = { &x->tmp, &x->fs, &x->links, &x->mem, &x->manifest };

	flush_free(TAKE_PTR(x->flush)); /* first: its thread may be writing the manifest */
	copy_pipeline_free(TAKE_PTR(x->pipeline));
	digests_free(TAKE_PTR(x->digests));
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fd_close(TAKE_FD(*fds[i]));
	free(TAKE_PTR(x->buf));
	x->disks = 0;
}

void making_done(struct making *x)
{
	making_end(x);
	copy_pipeline_spare_free(TAKE_PTR(x->spare));
	layer_prealloc_free(TAKE_PTR(x->prealloc));
}

int making_fill(struct making *x, char *name)
{
	making_end(x);
	layer_prealloc_fill(x->prealloc);
	return layer_prealloc_name(x->prealloc, name, LAYER_NAME) ? 0 : -EIO;
}

static bool is(const struct making *x, uint32_t flag)
{
	return x->ask.flags & flag;
}

/* Gets the layer's folder with its fixed content: the one that was made ahead, or a new one. */
static int begin_folder(struct making *x)
{
	struct layer_prealloc_item ready;
	int r;

	if (layer_prealloc_take(x->prealloc, x->ask.name, &ready)) {
		x->tmp = ready.tmp;
		x->fs = ready.fs;
		x->manifest = ready.manifest;
		x->buf = ready.buf;
		x->flush = ready.flush;
		return 0;
	}
	r = sys_mkdirat(x->store, x->ask.name, 0700);
	if (r == 0)
		r = x->tmp = sys_openat(x->store, x->ask.name, MAKING_FOLDER, 0);
	if (r >= 0)
		r = tree_make_folder(x->tmp, "fs", &x->fs);
	if (r == 0)
		r = x->manifest = manifest_make(x->tmp);
	if (r < 0)
		return r;
	x->buf = malloc(TREE_BUF);
	x->flush = flush_new();
	flush_ahead(x->flush, x->manifest);
	return x->buf ? 0 : -ENOMEM;
}

static void begin_copies(struct making *x)
{
	x->pipeline = copy_pipeline_new(x->stop, x->spare);
	x->digests = digests_new(is(x, LAYER_MACHINE) ? DIGESTS_LARGE : DIGESTS_PIECE);
}

int making_begin(struct making *x, const struct layer_ask *ask, struct err *e)
{
	int r;

	making_end(x);
	x->ask = *ask;
	r = begin_folder(x);
	if (r == 0)
		begin_copies(x);
	/* A machine's files are written by cloche-vmm, and joining returns to folders that were left. */
	if (ask->joins || is(x, LAYER_MACHINE))
		flush_other(x->flush);
	if (r == 0 && is(x, LAYER_MEMORY | LAYER_MACHINE))
		r = tree_make_folder(x->tmp, "mem", &x->mem);
	if (r == 0 && is(x, LAYER_MACHINE))
		r = sys_mkdirat(x->fs, layer_trees[0], 0755);
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "make a folder for layer '%s'", ask->m.id) : 0;
}

int making_anew(struct making *x, struct err *e)
{
	static const char *const names[] = { "fs", "mem", "links" };
	int *const fds[] = { &x->fs, &x->mem, &x->links };
	int r = 0;

	flush_other(x->flush); /* a file that was added is removed */
	/* Files are identified by inode numbers, which are reused. */
	copy_pipeline_free(TAKE_PTR(x->pipeline));
	digests_free(TAKE_PTR(x->digests));
	begin_copies(x);
	for (unsigned n = 0; r == 0 && n < ARRAY_LEN(names); n++) {
		fd_close(TAKE_FD(*fds[n]));
		r = tree_remove(x->tmp, names[n]);
		if (r == 0 && fds[n] != &x->links)
			r = tree_make_folder(x->tmp, names[n], fds[n]);
	}
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "make a folder for layer '%s'", x->ask.m.id) : 0;
}

static int copy_tree(struct making *x, int writable, unsigned n, struct err *e)
{
	/* By their index in layer_trees[]; the last is the work folder. */
	static const char *const places[LAYER_TREES] = { "/", "/usr/", "/var/lib/dpkg/", "/tmp/", "./" };
	const char *name = layer_trees[n];
	char odd[TREE_ODD] = "";
	const struct tree_copy c = { x->ask.uid_base, x->tmp,	   &x->links,  x->stop, x->buf,
				     x->flush,	      x->pipeline, x->digests, false,	odd };
	AUTO_CLOSE int from = sys_openat(writable, name, MAKING_FOLDER, 0), to = -1;
	int r;

	/* The folder is empty; but without it a layer below would decide its owner and mode. */
	if (from == -ENOENT || (from >= 0 && n && !(x->ask.below & 1U << n) && tree_is_bare(from, x->ask.uid_base)))
		return 0;
	r = from < 0 ? from : tree_make_folder(x->fs, name, &to);
	if (r == 0)
		r = tree_copy(&c, from, to);
	if (r == -ERANGE) {
		err_set(e, ERR_REFUSED, r,
			"%s%s has more extended attributes than the file system of the checkpoints stores for one file",
			places[n], odd);
		err_remedy(e, "remove some of them (ext4 stores about 4 KiB for a file)");
	}
	return r;
}

int making_copy(struct making *x, int writable, struct err *e)
{
	int r = 0;

	for (unsigned n = 0; r == 0 && n < LAYER_TREES; n++)
		r = copy_tree(x, writable, n, e);
	if (r == -E2BIG)
		return err_set(e, ERR_TOO_LARGE, r, "the sandbox has too many files to be sealed");
	if (r == 0 || r == -ERANGE || r == -ECANCELED)
		return r;
	return err_sys(e, making_kind(r), r, "copy the changed files of the sandbox");
}

static void write_out(void *arg)
{
	const struct making *x = arg;

	flush_end(x->flush, x->fs);
}

/* Files get their sum, from the bytes that were written. The rest is done when the layer is settled. */
static int sum_soon(struct making *x, uint64_t boot, struct manifest *m)
{
	ssize_t n;
	int r = copy_pipeline_end(x->pipeline, NULL, NULL);

	if (r == 0)
		r = manifest_sum_files(x->tmp, x->stop, x->digests, m);
	m->made = clock_real_ns();
	if (r == 0)
		r = settle_provisional(x->tmp, boot, m);
	if (r < 0)
		return r;
	n = pwrite(x->manifest, m, sizeof(*m), 0);
	return n == (ssize_t)sizeof(*m) ? 0 : n < 0 ? -errno : -EIO;
}

/* Writes to the disk while the sums are computed. */
static int sum_and_write(struct making *x, const uint8_t *pages, struct manifest *m)
{
	int r;

	flush_copied(x->flush, x->fs);
	r = copy_pipeline_end(x->pipeline, write_out, x);
	if (r == 0)
		r = manifest_sum_files(x->tmp, x->stop, x->digests, m);
	if (r == 0)
		r = pages ? memory_sum_meta(x->tmp, x->stop, pages, m) : memory_sum(x->tmp, x->stop, m);
	if (r == 0) {
		m->made = clock_real_ns();
		manifest_seal(m);
		r = manifest_write(x->manifest, m);
	}
	if (r == 0)
		r = flush_wait(x->flush, x->fs);
	if (r == 0 && !flush_brings_folders(x->tmp) && fsync(x->tmp) < 0)
		r = -errno;
	return r;
}

int making_write(struct making *x, const struct layer_ask *ask, const int saved[static 2], struct layer_answer *ret)
{
	int r = is(x, LAYER_MACHINE) ? making_saved(x, ask, saved, &ret->e) :
		is(x, LAYER_MEMORY)  ? making_memory(x, ask, &ret->cuts, &ret->e) :
				       0;

	if (r < 0)
		return r;
	fd_close(TAKE_FD(x->links));
	r = tree_remove(x->tmp, "links");
	if (r == 0 && x->ask.joins && !is(x, LAYER_MACHINE)) {
		r = making_join(x, &ret->e);
		if (r < 0)
			return r;
	}
	ret->m = ask->m;
	ret->m.version = is(x, LAYER_MACHINE) ? MANIFEST_VERSION_VM : MANIFEST_VERSION;
	if (r == 0)
		r = is(x, LAYER_SOON) ? sum_soon(x, ask->boot, &ret->m) :
					sum_and_write(x, ask->flags & LAYER_SUMS ? ask->sum : NULL, &ret->m);
	return r == 0 || r == -ECANCELED ? r : err_sys(&ret->e, making_kind(r), r, "write layer '%s'", ask->m.id);
}
