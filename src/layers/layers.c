/* The warden's list of stored layers: which exist, which are in use, and which are known to be undamaged. */
#include "layers/layers.h"
#include "base/base.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/file_lock.h"
#include "layers/layer_prealloc.h"
#include "layers/memory.h"
#include "layers/seal.h"
#include "layers/settle.h"
#include "layers/tree.h"
#include "layers/walk.h"
#include "layers/watch.h"
#include "linux/mount.h"
#include "vm/vmm/meta.h"

#include <sys/stat.h>
#include <unistd.h>

#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

#define LAYERS_TEMPLATES 64U

enum verdict { UNKNOWN, GOOD, BAD };

/* Files of a layer whose times show whether it was changed since it was compared. */
static const char *const marks[] = { "fs", "manifest", "mem/meta", "mem/pages" };
enum { MARK_MANIFEST = 1, MARKS_FILES = 2, MARK_META = 2, MARK_PAGES = 3 };

struct layer {
	char id[ID_SIZE];
	struct manifest m; /* zeros: cannot be read */
	unsigned sandboxes, children;
	enum verdict verdict;
	bool failed; /* it could not be settled */
	bool fresh; /* compared since the last sandbox was based on it */
	struct stat mark[ARRAY_LEN(marks)]; /* when it was compared */
	int meta, pages; /* open for agents, or -1 */
	uint8_t key[SHA256_SIZE]; /* of a machine: its template; zeros: unknown */
};

struct layers {
	int dir, lock;
	struct workers *workers;
	struct watch *watch;
	struct layer **by_id; /* sorted */
	size_t count, room;
};

int layers_open_dir(const char *path, struct err *e)
{
	const struct open_how how = {
		.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_NO_SYMLINKS,
	};
	AUTO_CLOSE int dir = -1;
	struct stat st;
	int r = sys_mkdirat(AT_FDCWD, path, 0700);

	if (r < 0 && r != -EEXIST)
		return err_sys(e, ERR_INVALID, r, "make the folder '%s'", path);
	dir = sys_openat2(AT_FDCWD, path, &how);
	if (dir == -ELOOP)
		return err_set(e, ERR_DENIED, dir, "'%s': symbolic links are not followed", path);
	if (dir < 0)
		return err_sys(e, ERR_INVALID, dir, "open the folder '%s'", path);
	if (fstat(dir, &st) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "read the status of '%s'", path);
	if (st.st_uid || st.st_gid || st.st_mode & 077)
		return err_advise(e, ERR_DENIED, -EPERM,
				  "what is in it may have any owner and mode: it must belong to root, mode 0700",
				  "'%s': other users may enter", path);
	return TAKE_FD(dir);
}

/* The index of @id in the list, or where it belongs. */
static size_t place(const struct layers *l, const char *id, bool *ret_there)
{
	size_t low = 0, high = l->count;

	*ret_there = false;
	while (low < high && !*ret_there) {
		size_t mid = low + (high - low) / 2;
		int c = strcmp(id, l->by_id[mid]->id);

		*ret_there = c == 0;
		if (c < 0)
			high = mid;
		else
			low = c ? mid + 1 : mid;
		if (*ret_there)
			return mid;
	}
	return low;
}

static struct layer *get(const struct layers *l, const char *id)
{
	bool there;
	size_t at = place(l, id, &there);

	return there ? l->by_id[at] : NULL;
}

/* Reads which template the machine was cloned from: it must stay as long as the layer does. */
static void read_key(const struct layers *l, struct layer *x)
{
	AUTO_CLOSE int dir = sys_openat(l->dir, x->id, FOLDER, 0), fd = -1;
	struct vm_meta m;

	fd = dir < 0 ? dir : memory_open(dir, "meta");
	if (fd >= 0 && meta_head(fd, &m, NULL) == 0)
		memcpy(x->key, m.what.key, sizeof(x->key));
	else
		log_error("layer '%s': cannot read which machine it belongs to", x->id);
}

static int put(struct layers *l, const char *id, const struct manifest *m, struct layer **ret)
{
	bool there;
	size_t at = place(l, id, &there);
	struct layer *x;

	if (l->count == l->room) {
		size_t room = l->room ? l->room * 2 : 64;
		struct layer **more = realloc(l->by_id, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		l->by_id = more;
		l->room = room;
	}
	x = calloc(1, sizeof(*x));
	if (!x)
		return -ENOMEM;
	memcpy(x->id, id, ID_LEN);
	x->meta = x->pages = -1;
	if (m)
		x->m = *m;
	if (manifest_of_machine(&x->m))
		read_key(l, x);
	memmove(l->by_id + at + 1, l->by_id + at, (l->count - at) * sizeof(*l->by_id));
	l->by_id[at] = x;
	l->count++;
	*ret = x;
	return 0;
}

static void count_children(struct layers *l, const struct layer *x, int by)
{
	struct layer *parent = x->m.parent[0] ? get(l, x->m.parent) : NULL;

	if (parent)
		parent->children = (unsigned)((int)parent->children + by);
}

/* Removing a folder that is already hidden. */
struct removal {
	struct work work;
	int dir;
	char name[ID_SIZE + 8];
};

static void removal_run(struct work *w)
{
	struct removal *x = (struct removal *)(void *)w;
	int r;

	/*
	 * The renaming must be on the disk before the first file is deleted: otherwise a half-deleted layer could come
	 * back after a power cut.
	 */
	r = fsync(x->dir) < 0 ? -errno : tree_remove(x->dir, x->name);
	if (r < 0)
		log_error("cannot remove layer folder '%s': %s", x->name, strerror(-r));
}

static void work_free(struct work *w)
{
	free(w);
}

/* If it cannot be removed now, the next warden's start does it. */
static void remove_later(struct layers *l, const char *name)
{
	struct removal *x = calloc(1, sizeof(*x));

	if (!x)
		return;
	x->work.run = removal_run;
	x->work.end = work_free;
	x->work.quiet = true;
	x->dir = l->dir;
	snprintf(x->name, sizeof(x->name), "%s", name);
	workers_add(l->workers, &x->work);
}

static int look_at(struct layers *l, const char *name)
{
	size_t n = strlen(name);
	struct manifest m;
	struct layer *x;
	int r;

	if (!strcmp(name, "lock") || !strcmp(name, LAYERS_QUARANTINE))
		return 0;
	if ((n < ID_LEN && !strncmp(name, LAYER_PREALLOC_PREFIX, strlen(LAYER_PREALLOC_PREFIX))) ||
	    (n > ID_LEN && n < ID_SIZE + 8 && (!strcmp(name + ID_LEN, ".tmp") || !strcmp(name + ID_LEN, ".gone")))) {
		remove_later(l, name);
		return 0;
	}
	if (!id_valid(name)) {
		log_warn("'%s' is not a layer", name);
		return 0;
	}
	{
		AUTO_CLOSE int dir = sys_openat(l->dir, name, FOLDER, 0);

		r = dir < 0 ? dir : manifest_read(dir, name, &m);
	}
	/* It was answered before it was safe on the disk, for sandboxes that have ended since. */
	if (r == 0 && manifest_unsettled(&m) && !settle_this_boot(&m)) {
		log_warn("layer '%s' was incomplete when the machine stopped, and is removed", name);
		remove_later(l, name);
		return 0;
	}
	if (r < 0)
		log_error("layer '%s' is unusable: %s", name, strerror(-r));
	r = put(l, name, r < 0 ? NULL : &m, &x);
	if (r == 0 && !x->m.version)
		x->verdict = BAD;
	return r;
}

static int scan(struct layers *l, struct err *e)
{
	struct walk w;
	int top = sys_openat(l->dir, ".", FOLDER, 0), r;
	const char *name;

	if (top < 0)
		return err_sys(e, ERR_INTERNAL, top, "open the layers");
	r = walk_begin(&w, top, true);
	while (r == 0 && (name = walk_next(&w)))
		r = look_at(l, name);
	walk_done(&w);
	for (size_t i = 0; i < l->count; i++)
		count_children(l, l->by_id[i], 1);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "read the layers") : 0;
}

int layers_new(int dir, struct workers *workers, struct layers **ret, struct err *e)
{
	struct layers *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for layers");
	l->dir = dir;
	l->workers = workers;
	l->lock = -1;
	l->watch = watch_new(0);
	if (!l->watch) {
		layers_free(l);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for layers");
	}
	r = l->lock = sys_openat(dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (r >= 0)
		r = file_lock(l->lock);
	if (r == -EAGAIN || r == -EACCES)
		err_set(e, ERR_CONFLICT, r, "another warden uses these layers");
	else if (r < 0)
		err_sys(e, ERR_INTERNAL, r, "lock the layers");
	else
		r = scan(l, e);
	if (r < 0) {
		layers_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

static void close_memory(struct layer *x)
{
	fd_close(TAKE_FD(x->meta));
	fd_close(TAKE_FD(x->pages));
}

static void layer_free(struct layer *x)
{
	close_memory(x);
	free(x);
}

void layers_free(struct layers *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->count; i++)
		layer_free(l->by_id[i]);
	free(l->by_id);
	watch_free(l->watch);
	fd_close(l->lock);
	free(l);
}

struct watch *layers_watch(const struct layers *l)
{
	return l->watch;
}

const struct manifest *layers_find(const struct layers *l, const char *id)
{
	const struct layer *x = get(l, id);

	return x ? &x->m : NULL;
}

unsigned layers_templates(const struct layers *l, uint64_t tenant, const uint8_t key[SHA256_SIZE], unsigned max)
{
	const uint8_t *seen[LAYERS_TEMPLATES];
	unsigned n = 0;

	max = max < LAYERS_TEMPLATES ? max : LAYERS_TEMPLATES;
	for (size_t i = 0; n < max && i < l->count; i++) {
		const struct layer *x = l->by_id[i];
		unsigned k = 0;

		if (!manifest_of_machine(&x->m) || x->m.tenant != tenant || !memcmp(x->key, key, sizeof(x->key)))
			continue;
		while (k < n && memcmp(seen[k], x->key, sizeof(x->key)))
			k++;
		if (k == n)
			seen[n++] = x->key;
	}
	return n;
}

bool layers_of_template(const struct layers *l, const uint8_t *key, size_t len)
{
	for (size_t i = 0; i < l->count; i++)
		if (manifest_of_machine(&l->by_id[i]->m) && !memcmp(l->by_id[i]->key, key, len))
			return true;
	return false;
}

bool layers_next(const struct layers *l, const char *id, struct layer_facts *ret)
{
	bool there;
	size_t at = place(l, id, &there);
	const struct layer *x;

	at += there;
	if (at >= l->count)
		return false;
	x = l->by_id[at];
	*ret = (struct layer_facts){ .users = x->sandboxes + x->children, .bad = x->verdict == BAD, .m = &x->m };
	memcpy(ret->id, x->id, ID_SIZE);
	return true;
}

static int check_one(const struct layer *x, const struct sandbox_spec *spec, uint32_t i, struct err *e)
{
	const char *below = i ? spec->layer[i - 1] : "";
	const uint32_t ro = SPEC_READ_ONLY, sys = SPEC_SYSTEM_WRITABLE;
	/* The files of a stored image belong to no tenant, and sandboxes of all kinds start from them. */
	const bool image = !x->m.tenant && !manifest_of_machine(&x->m) && !strcmp(x->m.image, SPEC_SCRATCH);

	if (x->verdict == BAD)
		return err_advise(e, WHY_DAMAGED, -EBADMSG, "remove it, and restore it from a copy if there is one",
				  "layer '%s': its files have changed since it was sealed", x->id);
	if (strcmp(x->m.parent, below))
		return err_set(e, ERR_INVALID, -EINVAL, "layer '%s': is not based on %s%s", x->id,
			       i ? "layer " : "the image", below);
	if (strcmp(x->m.image, spec->image))
		return err_set(e, ERR_INVALID, -EINVAL, "layer '%s': is of image '%.80s'", x->id, x->m.image);
	if (x->m.tenant && x->m.tenant != spec->tenant)
		return err_set(e, ERR_DENIED, -EACCES, "layer '%s': belongs to another tenant", x->id);
	if (image)
		return 0;
	if ((x->m.flags ^ spec->flags) & SPEC_TIERS)
		return err_advise(e, ERR_INVALID, -EINVAL, "use the same isolation as its sandbox",
				  "layer '%s': belongs to a %s", x->id,
				  manifest_of_machine(&x->m) ? "virtual machine" : "container");
	if ((x->m.flags ^ spec->flags) & ro || x->m.flags & ~spec->flags & sys)
		return err_advise(e, ERR_INVALID, -EINVAL, "use the same settings as its sandbox",
				  "layer '%s': made with a %s", x->id,
				  (x->m.flags ^ spec->flags) & ro ? "root of another kind (read-only or not)" :
								    "writable /usr");
	return 0;
}

int layers_check(const struct layers *l, const struct sandbox_spec *spec, struct err *e)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < spec->layers; i++) {
		const struct layer *x = get(l, spec->layer[i]);

		r = x ? check_one(x, spec, i, e) : err_set(e, ERR_NOT_FOUND, -ENOENT, "no layer '%s'", spec->layer[i]);
		if (r == 0 && spec->flags & SPEC_MEMORY && i + 1 == spec->layers && !x->m.meta)
			r = err_set(e, ERR_INVALID, -EINVAL, "layer '%s': was sealed without memory", x->id);
	}
	return r;
}

/* Compares by ctime: mtime can be set by users. */
static bool same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static int look(const struct layers *l, const struct layer *x, struct stat ret[ARRAY_LEN(marks)])
{
	char path[ID_SIZE + 16];

	memset(ret, 0, sizeof(*ret) * ARRAY_LEN(marks));
	for (size_t i = 0; i < (x->m.meta ? ARRAY_LEN(marks) : MARKS_FILES); i++) {
		snprintf(path, sizeof(path), "%s/%s", x->id, marks[i]);
		if (fstatat(l->dir, path, &ret[i], AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
	}
	return 0;
}

static bool untouched(const struct layers *l, const struct layer *x)
{
	struct stat now[ARRAY_LEN(marks)];
	enum watch_state s = watch_look(l->watch, x->id);
	bool ok = s == WATCH_QUIET || (s == WATCH_BLIND && x->fresh);

	ok = ok && look(l, x, now) == 0;
	for (size_t i = 0; ok && i < ARRAY_LEN(marks); i++)
		ok = same(&now[i], &x->mark[i]);
	return ok;
}

const char *layers_unverified(struct layers *l, const struct sandbox_spec *spec)
{
	for (uint32_t i = 0; i < spec->layers; i++) {
		struct layer *x = get(l, spec->layer[i]);

		/* It has changed, so it must be compared before others use it as well. */
		if (x->verdict == GOOD && !untouched(l, x))
			x->verdict = UNKNOWN;
		if (x->verdict == UNKNOWN)
			return spec->layer[i];
	}
	return NULL;
}

bool layers_good(const struct layers *l, const struct sandbox_spec *spec)
{
	for (uint32_t i = 0; i < spec->layers; i++)
		if (get(l, spec->layer[i])->verdict != GOOD)
			return false;
	return true;
}

void layers_verdict(struct layers *l, const char *id, bool good)
{
	struct layer *x = get(l, id);

	if (!x)
		return;
	x->verdict = good && look(l, x, x->mark) == 0 ? GOOD : BAD;
	x->fresh = x->verdict == GOOD;
	close_memory(x);
}

void layers_settled(struct layers *l, const struct manifest *m, int result)
{
	struct layer *x = get(l, m->id);
	struct stat now[ARRAY_LEN(marks)];

	/* The layer may have been removed meanwhile. */
	if (!x || !manifest_unsettled(&x->m) || settle_passes(result) || result == -ESRCH)
		return;
	if (result < 0) {
		log_error("layer '%s' cannot be settled: %s", x->id, strerror(-result));
		x->failed = true;
		if (result == -EBADMSG)
			x->verdict = BAD;
		return;
	}
	x->m = *m;
	if (x->verdict != GOOD)
		return;
	/* The change of the marks that settling itself made. */
	if (look(l, x, now) == 0)
		x->mark[MARK_MANIFEST] = now[MARK_MANIFEST];
	else
		x->verdict = UNKNOWN;
}

int layers_unsettled(const struct layers *l, const char *id)
{
	const struct layer *x = get(l, id);

	return !x || !manifest_unsettled(&x->m) ? 0 : x->failed ? -EIO : 1;
}

/*
 * Opens the file through a detached mount of that one file: then the path of a mapping shows nothing of the host inside
 * a sandbox. Closing such a mount waits for the kernel, so a worker does it.
 */
static int open_lone(struct layers *l, const struct layer *x, unsigned mark)
{
	char path[ID_SIZE + 16], self[32];
	AUTO_CLOSE int fd = -1;
	struct stat st;
	int mnt;

	snprintf(path, sizeof(path), "%s/%s", x->id, marks[mark]);
	mnt = mount_clone(l->dir, path, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, -1);
	if (mnt < 0)
		return mnt;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", mnt);
	fd = sys_openat(AT_FDCWD, self, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
	seal_close(l->workers, mnt);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) && same(&st, &x->mark[mark]) ? TAKE_FD(fd) : -EBADMSG;
}

static int open_memory(struct layers *l, struct layer *x, struct err *e)
{
	int r = x->pages < 0 ? open_lone(l, x, MARK_PAGES) : x->pages;

	x->pages = r < 0 ? -1 : r;
	if (r >= 0) {
		r = x->meta < 0 ? open_lone(l, x, MARK_META) : x->meta;
		x->meta = r < 0 ? -1 : r;
	}
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "open the memory of layer '%s'", x->id) : 0;
}

int layers_memory(struct layers *l, const char (*ids)[ID_SIZE], uint32_t n, struct layers_memory *ret, struct err *e)
{
	struct layer *x = n ? get(l, ids[n - 1]) : NULL;
	struct mem_head head;
	int r;

	if (!x || !x->m.meta)
		return err_set(e, ERR_INVALID, -EINVAL, "there is no memory image to start from");
	r = open_memory(l, x, e);
	if (r == 0)
		r = memory_head(x->meta, x->pages, &head, e);
	if (r < 0)
		return err_wrap(e, r, "layer '%s'", x->id);
	*ret = (struct layers_memory){ .meta = x->meta, .execs = (uint32_t)head.section[MEM_S_EXEC].n, .head = head };
	ret->pages[ret->npages++] = x->pages;
	/* Layers whose pages it uses are below it, so they stay; if not, the file was not written by cloche-dump. */
	for (uint32_t i = 1; r == 0 && i < head.page_files; i++) {
		struct layer *below = NULL;

		for (uint32_t k = 0; !below && k + 1 < n; k++)
			below = strcmp(ids[k], head.ancestor[i]) ? NULL : get(l, ids[k]);
		if (!below || !below->m.meta)
			return err_set(e, WHY_DAMAGED, -EBADMSG,
				       "layer '%s': its memory is based on '%s', which is not below it", x->id,
				       head.ancestor[i]);
		r = open_memory(l, below, e);
		ret->pages[ret->npages++] = below->pages;
	}
	return r;
}

void layers_hold(struct layers *l, const char (*ids)[ID_SIZE], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct layer *x = get(l, ids[i]);

		if (x) {
			x->sandboxes++;
			x->fresh = false;
		} else {
			log_error("a sandbox is based on layer '%s', which does not exist", ids[i]);
		}
	}
}

void layers_drop(struct layers *l, const char (*ids)[ID_SIZE], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct layer *x = get(l, ids[i]);

		if (x && x->sandboxes)
			x->sandboxes--;
	}
}

int layers_add(struct layers *l, const struct manifest *m, struct err *e)
{
	struct layer *x;
	int r = put(l, m->id, m, &x);

	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "remember layer '%s'", m->id);
	count_children(l, x, 1);
	layers_verdict(l, x->id, true);
	return 0;
}

/* Removes it from the list, and renames its folder to @to. */
static int take_out(struct layers *l, const char *id, const char *to, struct err *e)
{
	bool there;
	size_t at = place(l, id, &there);
	struct layer *x = there ? l->by_id[at] : NULL;

	if (!x)
		return err_set(e, ERR_NOT_FOUND, -ESRCH, "no layer '%s'", id);
	if (x->sandboxes || x->children)
		return err_advise(e, ERR_CONFLICT, -EBUSY, "remove those first",
				  "layer '%s': %u sandboxes and %u layers are based on it", id, x->sandboxes,
				  x->children);
	if (renameat(l->dir, id, l->dir, to) < 0 && errno != ENOENT)
		return err_sys(e, ERR_INTERNAL, -errno, "remove layer '%s'", id);
	count_children(l, x, -1);
	memmove(l->by_id + at, l->by_id + at + 1, (l->count - at - 1) * sizeof(*l->by_id));
	l->count--;
	watch_forget(l->watch, id);
	layer_free(x);
	return 0;
}

int layers_remove(struct layers *l, const char *id, struct err *e)
{
	char gone[ID_SIZE + 8];
	int r;

	snprintf(gone, sizeof(gone), "%s.gone", id);
	r = take_out(l, id, gone, e);
	if (r == 0)
		remove_later(l, gone);
	return r;
}

int layers_put_aside(struct layers *l, const char *id, struct err *e)
{
	char to[sizeof(LAYERS_QUARANTINE) + ID_SIZE + 1];
	int r = sys_mkdirat(l->dir, LAYERS_QUARANTINE, 0700);

	if (r < 0 && r != -EEXIST)
		return err_sys(e, ERR_INTERNAL, r, "make the quarantine");
	snprintf(to, sizeof(to), LAYERS_QUARANTINE "/%s", id);
	return take_out(l, id, to, e);
}
