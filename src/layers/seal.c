#include "layers/seal_impl.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/room.h"
#include "base/step.h"
#include "base/sys.h"
#include "layers/layer_prealloc.h"
#include "layers/memory.h"
#include "layers/settle.h"
#include "layers/tree.h"
#include "layers/watch.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define THAW_TRIES 50

static struct seal_impl *impl_new(void)
{
	struct seal_impl *i = calloc(1, sizeof(*i));

	if (i) {
		i->fd = i->tmp = i->manifest = i->fs = i->links = i->mem = i->table = i->from.side = i->saved[0] = i->saved[1] = -1;
		dump_init(&i->dump);
		i->source.base = -1;
		for (unsigned n = 0; n < MEM_PAGE_FILES; n++)
			i->source.pages[n] = -1;
		pthread_mutex_init(&i->lock, NULL);
		pthread_cond_init(&i->moved, NULL);
	}
	return i;
}

static void impl_free(struct seal_impl *i)
{
	if (i) {
		flush_free(i->flush);
		copy_pipeline_free(i->pipeline);
		digests_free(i->digests);
		fd_close(i->fd);
		fd_close(i->tmp);
		fd_close(i->fs);
		fd_close(i->manifest);
		fd_close(i->links);
		fd_close(i->mem);
		fd_close(i->table);
		dump_end(&i->dump);
		fd_close(i->source.base);
		fd_close_many(i->source.pages, MEM_PAGE_FILES);
		for (uint32_t n = 0; n < i->from.disks; n++)
			seal_disk_done(&i->from.disk[n]);
		fd_close_many(i->saved, 2);
		pthread_cond_destroy(&i->moved);
		pthread_mutex_destroy(&i->lock);
		free(i->buf);
		free(i);
	}
}

void seal_free(struct seal *x)
{
	impl_free(x ? x->impl : NULL);
	free(x);
}

static void end(struct work *w)
{
	seal_free((struct seal *)(void *)w);
}

static struct seal *seal_new(enum seal_kind kind, void (*run)(struct work *w))
{
	struct seal *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	x->work.run = run;
	x->work.end = end;
	x->kind = kind;
	x->impl = impl_new();
	if (!x->impl) {
		free(x);
		return NULL;
	}
	return x;
}

int seal_begin_anew(struct seal *x)
{
	static const char *const names[] = { "fs", "mem", "links" };
	struct seal_impl *i = x->impl;
	int *const fds[] = { &i->fs, &i->mem, &i->links };
	int r = 0;

	flush_other(i->flush); /* what it was told of goes */
	/* Files are known by their numbers, and those come again. */
	copy_pipeline_free(i->pipeline);
	digests_free(i->digests);
	i->pipeline = copy_pipeline_new(&x->work.stop, i->from.spare);
	i->digests = digests_new(i->from.side >= 0 ? DIGESTS_LARGE : DIGESTS_PIECE);
	for (unsigned n = 0; r == 0 && n < ARRAY_LEN(names); n++) {
		fd_close(TAKE_FD(*fds[n]));
		r = tree_remove(i->tmp, names[n]);
		if (r == 0 && fds[n] != &i->links)
			r = tree_make_folder(i->tmp, names[n], fds[n]);
	}
	return r < 0 ? err_sys(&x->e, ERR_EXHAUSTED, r, "make a folder for layer '%s'", x->m.id) : 0;
}

/* Its folder and what is always in that: what lies ready, or made now. */
static int begin_folder(struct seal *x)
{
	struct seal_impl *i = x->impl;
	struct layer_prealloc_item ready;
	int r;

	if (layer_prealloc_take(i->from.prealloc, i->tmp_name, &ready)) {
		i->made = true;
		i->tmp = ready.tmp;
		i->fs = ready.fs;
		i->manifest = ready.manifest;
		i->buf = ready.buf;
		i->flush = ready.flush;
		return 0;
	}
	r = sys_mkdirat(i->from.dir, i->tmp_name, 0700);
	i->made = r == 0;
	if (r == 0)
		r = i->tmp = sys_openat(i->from.dir, i->tmp_name, FOLDER, 0);
	if (r >= 0)
		r = tree_make_folder(i->tmp, "fs", &i->fs);
	if (r == 0)
		r = i->manifest = manifest_make(i->tmp);
	if (r < 0)
		return r;
	i->buf = malloc(TREE_BUF);
	i->flush = flush_new();
	flush_ahead(i->flush, i->manifest);
	return i->buf ? 0 : -ENOMEM;
}

/* Before the sandbox is stopped. */
static int prepare(struct seal *x)
{
	struct seal_impl *i = x->impl;
	int r = begin_folder(x);

	if (r == 0) {
		i->pipeline = copy_pipeline_new(&x->work.stop, i->from.spare);
		i->digests = digests_new(i->from.side >= 0 ? DIGESTS_LARGE : DIGESTS_PIECE);
	}
	/* A machine's files are written by cloche-vmm, and joining goes back to folders that were left. */
	if (i->from.joins || i->from.side >= 0)
		flush_other(i->flush);
	if (r < 0)
		return err_sys(&x->e, ERR_EXHAUSTED, r, "make a folder for layer '%s'", x->m.id);
	if (i->from.side >= 0)
		return seal_machine_prepare(x);
	return i->table >= 0 ? seal_memory_prepare(x) : 0;
}

static int copy_tree(struct seal *x, unsigned n)
{
	struct seal_impl *i = x->impl;
	/* By their numbers in layer_trees[]; the last is the work folder. */
	static const char *const places[LAYER_TREES] = { "/", "/usr/", "/var/lib/dpkg/", "/tmp/", "./" };
	const char *name = layer_trees[n];
	char odd[TREE_ODD] = "";
	const struct tree_copy c = { i->from.uid_base, i->tmp, &i->links, &x->work.stop, i->buf,
				     i->flush, i->pipeline, i->digests, false, odd };
	AUTO_CLOSE int from = sys_openat(i->from.writable, name, FOLDER, 0), to = -1;
	int r;

	/* Nothing is in it; but what a layer below says of its owner and mode would count again. */
	if (from == -ENOENT || (from >= 0 && n && !(i->from.below & 1U << n) && tree_is_bare(from, i->from.uid_base)))
		return 0;
	r = from < 0 ? from : tree_make_folder(i->fs, name, &to);
	if (r == 0)
		r = tree_copy(&c, from, to);
	if (r == -ERANGE) {
		err_set(&x->e, ERR_REFUSED, r, "%s%s has more extended attributes than the file system of the checkpoints stores for one file", places[n], odd);
		err_remedy(&x->e, "remove some of them (ext4 stores about 4 KiB for a file)");
	}
	return r;
}

int seal_given_up(struct seal *x)
{
	return err_set(&x->e, ERR_CONFLICT, -ECANCELED, "sealing was cancelled: the sandbox is ending");
}

static void take_back(struct seal_impl *i)
{
	if (i->from.promised)
		__atomic_sub_fetch(i->from.promised, i->promise, __ATOMIC_RELAXED);
	i->promise = 0;
}

/* What it may come to, rather too much: its own file system's contents, or of one that is also others' nothing is known. */
static uint64_t most(const struct seal_source *f)
{
	struct cgroup_stat st = { 0 };
	struct stat ours, store;
	struct statvfs v;
	uint64_t all = 0;

	if (f->side >= 0) {
		all = f->memory;
		for (uint32_t n = 0; n < f->disks; n++)
			all += fstat(f->disk[n].fd, &ours) == 0 ? (uint64_t)ours.st_blocks * 512 : 0;
		return all;
	}
	if (fstat(f->writable, &ours) == 0 && fstat(f->dir, &store) == 0 && ours.st_dev != store.st_dev && fstatvfs(f->writable, &v) == 0)
		all = (uint64_t)(v.f_blocks - v.f_bfree) * v.f_frsize;
	/* Files in memory are part of this. */
	if (f->table >= 0 && cgroup_stat(f->cgroups, f->cgroup, &st) == 0 && st.memory > all)
		all = st.memory;
	return all + f->join_bytes;
}

int seal_room(struct seal *x)
{
	struct seal_impl *i = x->impl;
	uint64_t need = most(&i->from), all = need, leave;
	struct room disk;
	int r = room_of_fd(i->from.dir, &disk);

	take_back(i);
	i->promise = need;
	/* In two steps: of the sum that adding tells gcc 12 makes twice what was there before ("lock xadd %rbx; add %rbx, %rbx"). */
	if (i->from.promised) {
		__atomic_add_fetch(i->from.promised, need, __ATOMIC_SEQ_CST);
		all = __atomic_load_n(i->from.promised, __ATOMIC_SEQ_CST);
	}
	leave = r == 0 ? room_low(&disk, ROOM_LAYERS) : 0;
	if (r < 0 || (disk.left >= leave && disk.left - leave >= all))
		return 0;
	err_set(&x->e, ERR_EXHAUSTED, -ENOSPC,
		"the disk of the checkpoints is full: %llu KiB are left, of which %llu are reserved, and this may need "
		"%llu",
		(unsigned long long)(disk.left / KIB), (unsigned long long)(leave / KIB),
		(unsigned long long)(all / KIB));
	err_remedy(&x->e, "delete checkpoints, or free space on the disk of the data folder");
	return -ENOSPC;
}

int seal_copy_files(struct seal *x)
{
	int r = 0;

	for (unsigned n = 0; r == 0 && n < LAYER_TREES; n++)
		r = copy_tree(x, n);
	if (r == -ECANCELED)
		return seal_given_up(x);
	if (r == -E2BIG)
		return err_set(&x->e, ERR_TOO_LARGE, r, "the sandbox has too many files to be sealed");
	if (r == -ERANGE)
		return r;
	return r < 0 ? err_sys(&x->e, r == -ENOSPC || r == -ENOMEM || r == -EDQUOT ? ERR_EXHAUSTED : ERR_INTERNAL, r,
			       "copy the changed files of the sandbox")
		     : 0;
}

/* It must run again, whatever else went wrong. */
void seal_thaw(struct seal *x)
{
	const struct seal_source *f = &x->impl->from;
	struct err e = { 0 };

	for (unsigned tries = 0; cgroup_thaw(f->cgroups, f->cgroup, &e) < 0; tries++) {
		if (tries == THAW_TRIES) {
			log_error("a sealed sandbox remains frozen: %s", e.msg);
			break;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	}
}

static void leave(struct seal *x)
{
	pthread_mutex_lock(&x->impl->lock);
	x->impl->left = true;
	pthread_cond_broadcast(&x->impl->moved);
	pthread_mutex_unlock(&x->impl->lock);
}

static int copy_frozen(struct seal *x)
{
	const struct seal_source *f = &x->impl->from;
	uint64_t from = clock_mono_ns();
	int r = f->paused ? 0 : cgroup_freeze(f->cgroups, f->cgroup, &x->e);

	if (r < 0)
		return r;
	STEP("seal.frozen");
	r = seal_room(x);
	if (r == 0)
		r = seal_copy_files(x);
	if (!f->paused) {
		seal_thaw(x);
		x->pause = clock_mono_ns() - from;
	}
	return r;
}

/* One layer's files below those that are there. They are looked at first: what is damaged must not get a new sum. */
static int join_layer(struct seal *x, const char *id)
{
	struct seal_impl *i = x->impl;
	const struct tree_copy c = { 0, i->tmp, &i->links, &x->work.stop, i->buf, i->flush, i->pipeline, i->digests, false, NULL };
	AUTO_CLOSE int dir = sys_openat(i->from.dir, id, FOLDER, 0), fs = -1;
	struct manifest m;
	int r = dir < 0 ? dir : manifest_read(dir, id, &m);

	if (r == 0)
		r = manifest_verify(dir, &x->work.stop, &m);
	if (r == 0)
		r = fs = sys_openat(dir, "fs", FOLDER, 0);
	for (unsigned n = 0; r >= 0 && n < LAYER_TREES; n++) {
		AUTO_CLOSE int from = sys_openat(fs, layer_trees[n], FOLDER, 0), to = -1;

		if (from == -ENOENT)
			continue;
		r = to = from < 0 ? from : sys_openat(i->fs, layer_trees[n], FOLDER, 0);
		if (r == -ENOENT) {
			r = tree_make_folder(i->fs, layer_trees[n], &to);
			if (r == 0)
				r = tree_copy(&c, from, to);
		} else if (r >= 0) {
			r = tree_join(&c, from, to);
		}
	}
	return r < 0 ? r : 0;
}

/* Its names of one file have nothing to do with those of another. */
static int join_all(struct seal *x)
{
	struct seal_impl *i = x->impl;
	int r = 0;

	for (uint32_t n = 0; r == 0 && n < i->from.joins; n++) {
		fd_close(TAKE_FD(i->links));
		r = join_layer(x, i->from.join[n]);
		if (r == -EBADMSG)
			return err_set(&x->e, ERR_REFUSED, r, "layer '%s', which the sandbox is based on, is damaged",
				       i->from.join[n]);
		if (r == 0)
			r = tree_remove(i->tmp, "links");
	}
	if (r == 0)
		r = tree_mark_whiteouts(i->fs, &x->work.stop);
	if (r == -ECANCELED)
		return seal_given_up(x);
	return r < 0 ? err_sys(&x->e, r == -ENOSPC || r == -ENOMEM || r == -EDQUOT ? ERR_EXHAUSTED : ERR_INTERNAL, r,
			       "join the layers that the sandbox is based on")
		     : 0;
}

static void write_out(void *arg)
{
	const struct seal *x = arg;

	flush_end(x->impl->flush, x->impl->fs);
}

static void sum_begin(struct seal *x)
{
	/* Whoever came before the files were copied has been told of by now; who came since does no harm. */
	if (__atomic_load_n(&x->impl->opened, __ATOMIC_ACQUIRE))
		x->m.flags &= ~SPEC_SYSTEM_LATER;
	x->m.version = x->impl->from.side >= 0 ? MANIFEST_VERSION_VM : MANIFEST_VERSION;
}

/* What it stands on that does not last yet: what lasts must not depend on that. */
static int settle_below(struct seal *x)
{
	const struct seal_source *f = &x->impl->from;
	struct manifest m;

	for (uint32_t n = 0; n < f->unsettled; n++) {
		int r = settle_do(f->settles, f->dir, f->unsettled_id[n], &x->work.stop, &m);

		if (r == -EBADMSG)
			return err_set(&x->e, ERR_REFUSED, r, "layer '%s', which the sandbox is based on, is damaged",
				       f->unsettled_id[n]);
		if (r < 0 && r != -ESRCH)
			return err_sys(&x->e, ERR_INTERNAL, r, "write layer '%s', which the sandbox is based on",
				       f->unsettled_id[n]);
	}
	return 0;
}

/* Files have their sum, from the bytes that were written. The rest is settle.c's. */
static int sum_soon(struct seal *x)
{
	struct seal_impl *i = x->impl;
	ssize_t n;
	int r = copy_pipeline_end(i->pipeline, NULL, NULL);

	if (r < 0)
		return r;
	sum_begin(x);
	r = manifest_sum_files(i->tmp, &x->work.stop, i->digests, &x->m);
	x->m.made = clock_real_ns();
	if (r == 0)
		r = settle_provisional(i->tmp, &x->m);
	if (r < 0)
		return r;
	n = pwrite(i->manifest, &x->m, sizeof(x->m), 0);
	return n == (ssize_t)sizeof(x->m) ? 0 : n < 0 ? -errno : -EIO;
}

/* It is under its name, and others may settle it from now on. */
static int hand_over(struct seal *x)
{
	struct seal_impl *i = x->impl;
	const struct settle_files files = { i->tmp, i->fs, i->manifest, i->flush };
	int r = settle_add(i->from.settles, &x->m, &files);

	if (r < 0)
		return r;
	i->tmp = i->fs = i->manifest = -1;
	i->flush = NULL;
	return 0;
}

/* The disk is written to while sums are taken. */
static int sum_and_write(struct seal *x)
{
	struct seal_impl *i = x->impl;
	int r;

	flush_copied(i->flush, i->fs);
	r = copy_pipeline_end(i->pipeline, write_out, x);
	if (r < 0)
		return r;
	sum_begin(x);
	r = manifest_sum_files(i->tmp, &x->work.stop, i->digests, &x->m);
	if (r == 0)
		r = i->source.sums ? memory_sum_meta(i->tmp, &x->work.stop, i->pages_sum, &x->m) : memory_sum(i->tmp, &x->work.stop, &x->m);
	if (r == 0) {
		x->m.made = clock_real_ns();
		manifest_seal(&x->m);
		r = manifest_write(i->manifest, &x->m);
	}
	return r == 0 ? flush_wait(i->flush, i->fs) : r;
}

/* One commit of the journal for the new name and, where flush_ordered(), for all that is in it. */
static int commit(struct seal *x)
{
	const struct seal_impl *i = x->impl;
	int r = fsync(i->from.dir) < 0 ? -errno : 0;

	/* Not for good: then not at all. Under its old name it is removed. */
	if (r < 0 && renameat(i->from.dir, x->m.id, i->from.dir, i->tmp_name) < 0)
		log_error("cannot remove layer '%s', which is incomplete: %s", x->m.id, strerror(errno));
	return r;
}

static int take_name(struct seal *x)
{
	struct seal_impl *i = x->impl;
	int r = 0;

	if (!i->from.soon && !flush_brings_folders(i->tmp) && fsync(i->tmp) < 0)
		return -errno;
	STEP("seal.written");
	/* Never over another: one that is there is not empty, and stays. */
	if (renameat(i->from.dir, i->tmp_name, i->from.dir, x->m.id) < 0)
		return -errno;
	r = i->from.soon ? hand_over(x) : commit(x);
	if (r < 0 && i->from.soon && renameat(i->from.dir, x->m.id, i->from.dir, i->tmp_name) < 0)
		log_error("cannot remove layer '%s', which is not used: %s", x->m.id, strerror(errno));
	return r;
}

static int finish(struct seal *x)
{
	struct seal_impl *i = x->impl;
	int r = i->from.side >= 0 ? seal_machine_finish(x) : i->table >= 0 ? seal_memory_finish(x) : 0;

	if (r < 0)
		return r;
	/* What is joined is compared with its manifest, so that it needs one. */
	if (!i->from.soon || i->from.joins) {
		r = settle_below(x);
		if (r < 0)
			return r;
	}
	r = tree_remove(i->tmp, "links");
	if (r == 0 && i->from.joins && i->from.side < 0) {
		r = join_all(x);
		if (r < 0)
			return r;
	}
	if (r == 0)
		r = i->from.soon ? sum_soon(x) : sum_and_write(x);
	if (r == 0)
		r = take_name(x);
	STEP("seal.named");
	return r < 0 ? err_sys(&x->e, r == -ENOSPC || r == -ENOMEM || r == -EDQUOT ? ERR_EXHAUSTED : ERR_INTERNAL, r,
			       "write layer '%s'", x->m.id)
		     : 0;
}

/* Whether it is still wanted. From then on the sandbox is waited for. */
static bool begin(struct seal *x)
{
	struct seal_impl *i = x->impl;

	pthread_mutex_lock(&i->lock);
	i->begun = !__atomic_load_n(&x->work.stop, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&i->lock);
	return i->begun;
}

static void run_seal(struct work *w)
{
	struct seal *x = (struct seal *)(void *)w;
	int r = begin(x) ? prepare(x) : seal_given_up(x);

	STEP("seal.begun");
	if (r == 0)
		r = x->impl->from.side >= 0 ? seal_machine_copy(x) :
		    x->impl->table >= 0	    ? seal_memory_copy(x) :
					      copy_frozen(x);
	leave(x);
	if (r == 0)
		r = finish(x);
	if (r == 0)
		watch_expect(x->impl->from.watch, x->m.id);
	x->result = r;
	if (r < 0 && x->impl->made && (r = tree_remove(x->impl->from.dir, x->impl->tmp_name)) < 0)
		log_error("cannot remove '%s' before the next start: %s", x->impl->tmp_name, strerror(-r));
	take_back(x->impl);
}

int seal_start(struct workers *s, const struct seal_source *from, const struct manifest *m, void *tag,
	       struct seal **ret, struct err *e)
{
	struct seal *x = seal_new(SEAL_LAYER, run_seal);

	if (!x)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to seal a sandbox");
	x->m = *m;
	x->tag = tag;
	x->impl->from = *from;
	x->impl->table = from->table;
	/* Its guest may not stand still for as long as it is waited for. */
	x->work.waits = from->side >= 0;
	x->work.tenant = m->tenant;
	snprintf(x->impl->tmp_name, sizeof(x->impl->tmp_name), "%.24s.tmp", m->id);
	*ret = x;
	workers_add(s, &x->work);
	return 0;
}

bool seal_busy(struct seal *x)
{
	bool left;

	pthread_mutex_lock(&x->impl->lock);
	left = x->impl->left;
	pthread_mutex_unlock(&x->impl->lock);
	return !left;
}

void seal_system(struct seal *x)
{
	__atomic_store_n(&x->impl->opened, true, __ATOMIC_RELEASE);
}

void seal_leave(struct seal *x)
{
	pthread_mutex_lock(&x->impl->lock);
	if (!x->impl->left)
		__atomic_store_n(&x->work.stop, 1, __ATOMIC_RELAXED);
	/* One that still stands behind others never begins: nobody has to wait for those. */
	while (x->impl->begun && !x->impl->left)
		pthread_cond_wait(&x->impl->moved, &x->impl->lock);
	pthread_mutex_unlock(&x->impl->lock);
}

static void run_verify(struct work *w)
{
	struct seal *x = (struct seal *)(void *)w;
	AUTO_CLOSE int dir = sys_openat(x->impl->from.dir, x->m.id, FOLDER, 0);
	int r = manifest_unsettled(&x->m) ? settle_do(x->impl->from.settles, x->impl->from.dir, x->m.id, &w->stop, &x->m) : 0;
	struct manifest is;

	/* First: what is changed while it is being compared counts as changed. */
	watch_layer(x->impl->from.watch, x->impl->from.dir, x->m.id);
	/* Settled since, and its own work has come back: who asked looks again. */
	if (r == -ESRCH)
		r = -EAGAIN;
	if (r == 0)
		r = dir < 0 ? dir : manifest_read(dir, x->m.id, &is);
	if (r == 0 && memcmp(&is, &x->m, sizeof(is)))
		r = -EBADMSG;
	x->result = r == 0 ? manifest_verify(dir, &w->stop, &x->m) : r;
}

static struct seal *seal_of(enum seal_kind kind, void (*run)(struct work *w), int dir, struct watch *watch,
			    struct settles *settles, const struct manifest *m)
{
	struct seal *x = seal_new(kind, run);

	if (x) {
		x->m = *m;
		x->impl->from.dir = dir;
		x->impl->from.watch = watch;
		x->impl->from.settles = settles;
	}
	return x;
}

int seal_verify(struct workers *s, int dir, struct watch *watch, struct settles *settles, const struct manifest *m, void *tag,
		struct err *e)
{
	struct seal *x = seal_of(SEAL_VERIFY, run_verify, dir, watch, settles, m);

	if (!x)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to read a layer");
	x->tag = tag;
	workers_add(s, &x->work);
	return 0;
}

static void run_settle(struct work *w)
{
	struct seal *x = (struct seal *)(void *)w;

	x->result = settle_do(x->impl->from.settles, x->impl->from.dir, x->m.id, &w->stop, &x->m);
}

void seal_settle(struct workers *s, struct seal *x)
{
	x->work = (struct work){ .run = run_settle, .end = end };
	x->kind = SEAL_SETTLE;
	workers_add(s, &x->work);
}

int seal_settle_found(struct workers *s, int dir, struct watch *watch, struct settles *settles, const struct manifest *m)
{
	struct seal *x = seal_of(SEAL_SETTLE, run_settle, dir, watch, settles, m);
	int r = x ? settle_add(settles, m, &(struct settle_files){ -1, -1, -1, NULL }) : -ENOMEM;

	if (r < 0) {
		seal_free(x);
		return r;
	}
	workers_add(s, &x->work);
	return 0;
}

/* Closing, and giving memory back, waits for the kernel; who has the answer does not. */
static void run_retire(struct work *w)
{
	struct seal *x = (struct seal *)(void *)w;
	struct watch *watch = x->impl->from.watch;
	struct layer_prealloc *prealloc = x->impl->from.prealloc;
	const int store = x->impl->from.dir;

	impl_free(TAKE_PTR(x->impl));
	if ((x->kind == SEAL_LAYER || x->kind == SEAL_SETTLE) && x->result == 0)
		watch_expected(watch, store, x->m.id);
	layer_prealloc_fill(prealloc);
}

void seal_retire(struct workers *s, struct seal *x)
{
	x->work = (struct work){ .run = run_retire, .end = end, .quiet = true };
	workers_add(s, &x->work);
}

static void run_close(struct work *w)
{
	struct seal_impl *i = ((struct seal *)(void *)w)->impl;

	fd_close(TAKE_FD(i->fd));
}

void seal_close(struct workers *s, int fd)
{
	struct seal *x = fd < 0 ? NULL : seal_new(SEAL_CLOSE, run_close);

	if (!x) {
		fd_close(fd);
		return;
	}
	x->work.quiet = true;
	x->impl->fd = fd;
	workers_add(s, &x->work);
}

static void run_prealloc(struct work *w)
{
	layer_prealloc_fill(((struct seal *)(void *)w)->impl->from.prealloc);
}

void seal_prealloc(struct workers *s, struct layer_prealloc *prealloc)
{
	struct seal *x = prealloc ? seal_new(SEAL_PREALLOC, run_prealloc) : NULL;

	if (!x)
		return;
	x->work.quiet = true;
	x->impl->from.prealloc = prealloc;
	workers_add(s, &x->work);
}
