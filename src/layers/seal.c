/* Sealing a sandbox into a layer, and verifying layers, in the warden's worker threads. */
#include "layers/seal_impl.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/room.h"
#include "base/step.h"
#include "base/sys.h"
#include "layers/memory.h"
#include "layers/settle.h"
#include "layers/settle_mark.h"
#include "layers/tree.h"
#include "layers/watch.h"
#include "memory/crypt.h"

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
		i->fd = i->mem = i->table = i->from.side = i->saved[0] = i->saved[1] = -1;
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
		layer_child_give(i->from.children, i->child);
		dump_end(&i->dump);
		fd_close_many((int[]){ i->fd, i->mem, i->table, i->source.base }, 4);
		fd_close_many(i->source.pages, MEM_PAGE_FILES);
		for (uint32_t n = 0; n < i->from.disks; n++)
			seal_disk_done(&i->from.disk[n]);
		fd_close_many(i->saved, 2);
		pthread_cond_destroy(&i->moved);
		pthread_mutex_destroy(&i->lock);
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

int seal_ask(struct seal *x, const struct layer_ask *ask, const int *fds, unsigned n, struct layer_answer *ret,
	     int *ret_fds, unsigned max)
{
	int r = layer_child_ask(x->impl->child, ask, fds, n, &x->work.stop, ret, ret_fds, max);

	if (r < 0)
		return __atomic_load_n(&x->work.stop, __ATOMIC_RELAXED) ?
			       seal_given_up(x) :
			       err_set(&x->e, WHY_SERVICE_LOST, r, "make layer '%s': cloche-layers was killed",
				       x->m.id);
	if (ret->result == -ECANCELED)
		return seal_given_up(x);
	if (ret->result < 0 && ret->e.msg[0])
		x->e = ret->e;
	else if (ret->result < 0)
		err_sys(&x->e, ERR_INTERNAL, ret->result, "make layer '%s'", x->m.id);
	return ret->result;
}

/* Sends @ask (BEGIN or ANEW), and gets an empty folder for memory. */
static int ask_folder(struct seal *x, const struct layer_ask *ask)
{
	struct seal_impl *i = x->impl;
	struct layer_answer a;
	int r;

	fd_close(TAKE_FD(i->mem));
	r = seal_ask(x, ask, NULL, 0, &a, &i->mem, 1);
	if (r < 0 || i->mem < 0)
		return r;
	r = crypt_folder(i->from.crypt, i->mem);
	return r < 0 ? err_sys(&x->e, ERR_EXHAUSTED, r, "make a folder for layer '%s'", x->m.id) : 0;
}

int seal_begin_anew(struct seal *x)
{
	return ask_folder(x, &(struct layer_ask){ .op = LAYER_ANEW });
}

/* Called before the sandbox is stopped. */
static int prepare(struct seal *x)
{
	struct seal_impl *i = x->impl;
	const struct seal_source *f = &i->from;
	const bool machine = f->side >= 0, memory = i->table >= 0;
	struct layer_ask ask = {
		.op = LAYER_BEGIN,
		.flags = (machine ? LAYER_MACHINE :
			  memory  ? LAYER_MEMORY :
				    0) |
			 (f->soon ? LAYER_SOON : 0),
		.uid_base = f->uid_base,
		.below = f->below,
		.joins = f->joins,
		.m = x->m,
	};
	int r = -ECHILD;

	snprintf(ask.name, sizeof(ask.name), "%s", i->tmp_name);
	memcpy(ask.join, f->join, sizeof(ask.join));
	/* A process that was kept may have been killed a moment ago: nothing was copied yet, so another is tried. */
	for (unsigned tries = 0; r == -ECHILD && tries < 2; tries++) {
		layer_child_give(f->children, TAKE_PTR(i->child));
		x->e = (struct err){ 0 };
		r = tries ? tree_remove(f->dir, i->tmp_name) : 0;
		if (r == 0)
			r = layer_child_take(f->children, x->m.tenant, &i->child, &x->e);
		i->made = i->made || r == 0;
		if (r == 0)
			r = ask_folder(x, &ask);
	}
	return r == 0 && memory && !machine ? seal_memory_prepare(x) : r;
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

/*
 * An upper bound of the bytes that the layer may take. Files on the store's own filesystem are not included: how much of
 * that belongs to the sandbox is unknown.
 */
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
	if (fstat(f->writable, &ours) == 0 && fstat(f->dir, &store) == 0 && ours.st_dev != store.st_dev &&
	    fstatvfs(f->writable, &v) == 0)
		all = (uint64_t)(v.f_blocks - v.f_bfree) * v.f_frsize;
	/* Files in tmpfs are included in this. */
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
	/*
	 * In two steps: for the sum that an atomic add returns, gcc 12 produces twice the old value ("lock xadd %rbx;
	 * add %rbx, %rbx").
	 */
	if (i->from.promised) {
		__atomic_add_fetch(i->from.promised, need, __ATOMIC_SEQ_CST);
		all = __atomic_load_n(i->from.promised, __ATOMIC_SEQ_CST);
	}
	leave = r == 0 ? room_low(&disk, ROOM_LAYERS) : 0;
	if (r < 0 || (disk.left >= leave && disk.left - leave >= all))
		return 0;
	return err_advise(
		&x->e, ERR_EXHAUSTED, -ENOSPC, "delete checkpoints, or free space on the disk of the data folder",
		"the disk of the checkpoints is full: %llu KiB are left, of which %llu are reserved, and this may need %llu",
		(unsigned long long)(disk.left / KIB), (unsigned long long)(leave / KIB),
		(unsigned long long)(all / KIB));
}

int seal_copy_files(struct seal *x)
{
	struct layer_answer a;

	return seal_ask(x, &(struct layer_ask){ .op = LAYER_COPY }, &x->impl->from.writable, 1, &a, NULL, 0);
}

/* Thaws the sandbox in any case, even after other errors. */
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

/* Settles unsettled layers that this one is based on: a persistent layer must not depend on them. */
static int settle_below(struct seal *x)
{
	const struct seal_source *f = &x->impl->from;
	struct manifest m;

	for (uint32_t n = 0; n < f->unsettled; n++) {
		int r = settle_do(f->settles, f->unsettled_id[n], &x->work.stop, &m);

		if (r == -EBADMSG)
			return err_set(&x->e, WHY_DAMAGED, r, "layer '%s', which the sandbox is based on, is damaged",
				       f->unsettled_id[n]);
		if (r < 0 && r != -ESRCH)
			return err_sys(&x->e, ERR_INTERNAL, r, "write layer '%s', which the sandbox is based on",
				       f->unsettled_id[n]);
	}
	return 0;
}

/*
 * Completes the layer, and brings it to the disk unless the caller cannot wait for that; it still has its temporary
 * name.
 */
static int write_layer(struct seal *x)
{
	struct seal_impl *i = x->impl;
	const bool machine = i->from.side >= 0;
	struct layer_ask ask = { .op = LAYER_WRITE, .limit = machine ? i->from.memory : i->from.limit };
	struct layer_answer a;
	int r;

	/* Changes of /usr before the files were copied have been reported by now; later ones do not matter. */
	if (__atomic_load_n(&i->opened, __ATOMIC_ACQUIRE))
		x->m.flags &= ~SPEC_SYSTEM_LATER;
	ask.m = x->m;
	if (machine) {
		memcpy(ask.sum, i->from.key, sizeof(ask.sum));
	} else if (i->source.sums) {
		ask.flags = LAYER_SUMS;
		memcpy(ask.sum, i->pages_sum, sizeof(ask.sum));
	}
	seal_memory_ancestors(x, &ask);
	r = i->from.soon ? mark_boot(&ask.boot) : 0;
	if (r < 0)
		return err_sys(&x->e, ERR_INTERNAL, r, "make layer '%s'", x->m.id);
	r = seal_ask(x, &ask, i->saved, machine ? ARRAY_LEN(i->saved) : 0, &a, NULL, 0);
	fd_close_many(i->saved, ARRAY_LEN(i->saved));
	if (r == 0)
		r = manifest_is_made_of(&a.m, &x->m);
	if (r == 0)
		r = memory_cuts_ok(&a.cuts);
	if (r == -EPROTO)
		return err_set(&x->e, ERR_INTERNAL, r, "make layer '%s': protocol error", x->m.id);
	if (r < 0)
		return r;
	x->m = a.m;
	x->cuts = a.cuts;
	return 0;
}

/* One journal commit covers the new name and, if flush_ordered(), all content. */
static int commit(struct seal *x)
{
	const struct seal_impl *i = x->impl;
	int r = fsync(i->from.dir) < 0 ? -errno : 0;

	/* It could not be made durable, so it fails. Under its old name it is removed. */
	if (r < 0 && renameat(i->from.dir, x->m.id, i->from.dir, i->tmp_name) < 0)
		log_error("cannot remove layer '%s', which is incomplete: %s", x->m.id, strerror(errno));
	return r;
}

static int take_name(struct seal *x)
{
	struct seal_impl *i = x->impl;
	int r = 0;

	STEP("seal.written");
	/* Never replaces another layer: that folder is not empty, so the rename fails. */
	if (renameat(i->from.dir, i->tmp_name, i->from.dir, x->m.id) < 0)
		return -errno;
	r = i->from.soon ? settle_add(i->from.settles, &x->m) : commit(x);
	if (r < 0 && i->from.soon && renameat(i->from.dir, x->m.id, i->from.dir, i->tmp_name) < 0)
		log_error("cannot remove layer '%s', which is not used: %s", x->m.id, strerror(errno));
	return r;
}

static int finish(struct seal *x)
{
	struct seal_impl *i = x->impl;
	int r = i->from.side >= 0 ? seal_machine_finish(x) : i->table >= 0 ? seal_memory_finish(x) : 0;

	/* A layer that was joined with others is verified by its manifest, so the manifest must be on the disk. */
	if (r == 0 && (!i->from.soon || i->from.joins))
		r = settle_below(x);
	if (r == 0)
		r = write_layer(x);
	if (r < 0)
		return r;
	r = take_name(x);
	STEP("seal.named");
	return r < 0 ? err_sys(&x->e, r == -ENOSPC || r == -ENOMEM || r == -EDQUOT ? ERR_EXHAUSTED : ERR_INTERNAL, r,
			       "write layer '%s'", x->m.id) :
		       0;
}

/* Whether the seal is still needed. From then on the sandbox waits for it. */
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
	/* It waits until the guest is stopped, which a hostile guest may delay. */
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
	/* A seal that is still queued is cancelled at once, without waiting for those before it. */
	while (x->impl->begun && !x->impl->left)
		pthread_cond_wait(&x->impl->moved, &x->impl->lock);
	pthread_mutex_unlock(&x->impl->lock);
}

/* -EIO also when the layer cannot be read. */
static int verify(struct seal *x)
{
	const struct layer_ask ask = { .op = LAYER_VERIFY, .m = x->m };
	struct layer_answer a;

	return layer_children_do(x->impl->from.children, LAYER_CHECKS, &ask, &x->work.stop, &a) < 0 ? -EIO : a.result;
}

static void run_verify(struct work *w)
{
	struct seal *x = (struct seal *)(void *)w;
	const struct seal_source *f = &x->impl->from;
	int r = manifest_unsettled(&x->m) ? settle_do(f->settles, x->m.id, &w->stop, &x->m) : 0;

	/* Before comparing: a change during the comparison counts as a change. */
	watch_layer(f->watch, f->dir, x->m.id);
	/* It was settled meanwhile, by its own work item; the caller looks again. */
	x->result = r == -ESRCH ? -EAGAIN : r == 0 ? verify(x) : r;
}

static struct seal *seal_of(enum seal_kind kind, void (*run)(struct work *w), const struct seal_source *of,
			    const struct manifest *m)
{
	struct seal *x = seal_new(kind, run);

	if (x) {
		x->m = *m;
		x->impl->from.dir = of->dir;
		x->impl->from.watch = of->watch;
		x->impl->from.settles = of->settles;
		x->impl->from.children = of->children;
	}
	return x;
}

int seal_verify(struct workers *s, const struct seal_source *of, const struct manifest *m, void *tag, struct err *e)
{
	struct seal *x = seal_of(SEAL_VERIFY, run_verify, of, m);

	if (!x)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to read a layer");
	x->tag = tag;
	workers_add(s, &x->work);
	return 0;
}

static void run_settle(struct work *w)
{
	struct seal *x = (struct seal *)(void *)w;

	x->result = settle_do(x->impl->from.settles, x->m.id, &w->stop, &x->m);
}

void seal_settle(struct workers *s, struct seal *x)
{
	x->work = (struct work){ .run = run_settle, .end = end };
	x->kind = SEAL_SETTLE;
	workers_add(s, &x->work);
}

int seal_settle_found(struct workers *s, const struct seal_source *of, const struct manifest *m)
{
	struct seal *x = seal_of(SEAL_SETTLE, run_settle, of, m);
	int r = x ? settle_add(of->settles, m) : -ENOMEM;

	if (r < 0) {
		seal_free(x);
		return r;
	}
	workers_add(s, &x->work);
	return 0;
}

/* Closing descriptors and freeing memory waits for the kernel; the caller has its answer already. */
static void run_retire(struct work *w)
{
	struct seal *x = (struct seal *)(void *)w;
	struct watch *watch = x->impl->from.watch;
	struct layer_children *children = x->impl->from.children;
	const bool made = x->impl->child;
	const int store = x->impl->from.dir;

	impl_free(TAKE_PTR(x->impl));
	if ((x->kind == SEAL_LAYER || x->kind == SEAL_SETTLE) && x->result == 0)
		watch_expected(watch, store, x->m.id);
	if (made)
		layer_children_fill(children);
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
	struct seal *x = fd < 0 || !s ? NULL : seal_new(SEAL_CLOSE, run_close);

	if (!x) {
		fd_close(fd);
		return;
	}
	x->work.quiet = true;
	x->impl->fd = fd;
	workers_add(s, &x->work);
}

static void run_fill(struct work *w)
{
	struct seal_impl *i = ((struct seal *)(void *)w)->impl;

	layer_child_give(i->from.children, TAKE_PTR(i->child));
	layer_children_fill(i->from.children);
}

void seal_fill(struct workers *s, struct layer_children *children, struct seal *x)
{
	struct seal *f = children ? seal_new(SEAL_FILL, run_fill) : NULL;

	if (!f)
		return;
	f->work.quiet = true;
	f->impl->from.children = children;
	if (x)
		f->impl->child = TAKE_PTR(x->impl->child);
	workers_add(s, &f->work);
}
