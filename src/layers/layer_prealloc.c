/* Makes the folder, buffer and thread of the next layer ahead. */
#include "layers/layer_prealloc.h"
#include "base/base.h"
#include "base/id.h"
#include "base/sys.h"
#include "layers/flush.h"
#include "layers/manifest.h"
#include "layers/tree.h"

#include <linux/fs.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TOUCHED (64U << 10) /* enough for most files: otherwise these pages would be allocated during the pause */
#define WARM (1 << 20) /* bytes; smaller allocations come from a nearby area */
#define RANDOM 12U /* random characters at an id's end */
#define NOREPLACE 1U /* RENAME_NOREPLACE, which some C libraries lack */
#define TOP_OF_TREES 0x00020000U /* FS_TOPDIR_FL */

struct layer_prealloc {
	int dir;
	pthread_mutex_t lock; /* protects ->item; and held while one is made */
	bool full;
	char name[sizeof(LAYER_PREALLOC_PREFIX) + ID_LEN]; /* of the folder that is ready, or that was made last */
	struct layer_prealloc_item item;
};

static_assert(sizeof(LAYER_PREALLOC_PREFIX) + RANDOM <= ID_LEN, "a layer's name is longer");

/*
 * Layers are independent of each other: ext4 is asked to put each into a part of the disk of its own. Among recently
 * removed files, most of them other layers, it would search for free inodes one by one.
 */
static void spread(int dir)
{
	unsigned flags = 0;

	if (!flush_brings_folders(dir) || sys_ioctl(dir, FS_IOC_GETFLAGS, &flags) < 0 || flags & TOP_OF_TREES)
		return;
	flags |= TOP_OF_TREES;
	(void)sys_ioctl(dir, FS_IOC_SETFLAGS, &flags); /* without it, only time is lost */
}

static void item_done(struct layer_prealloc_item *x)
{
	flush_free(TAKE_PTR(x->flush));
	free(TAKE_PTR(x->buf));
	fd_close(TAKE_FD(x->manifest));
	fd_close(TAKE_FD(x->fs));
	fd_close(TAKE_FD(x->tmp));
}

/*
 * A large file's blocks are in another part of the disk than a folder's. Before the first block is allocated there, the
 * filesystem has to read and compute for as long as writing a megabyte takes. So that is done ahead, by an allocation
 * that is given back.
 */
static void warm(int dir)
{
	AUTO_CLOSE int fd = sys_openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

	if (fd >= 0)
		(void)!fallocate(fd, 0, 0, WARM);
}

static int item_make(int dir, const char *name, struct layer_prealloc_item *x)
{
	int r = tree_make_folder(dir, name, &x->tmp);

	if (r == 0)
		r = tree_make_folder(x->tmp, "fs", &x->fs);
	if (r == 0)
		r = x->manifest = manifest_make(x->tmp);
	/* With the folders in it, so that later only changes are to be synced. */
	if (r >= 0)
		r = fsync(x->fs) < 0 || fsync(x->manifest) < 0 || fsync(x->tmp) < 0 ? -errno : 0;
	if (r < 0)
		return r;
	x->buf = malloc(TREE_BUF);
	x->flush = flush_new();
	if (!x->buf || !x->flush)
		return -ENOMEM;
	warm(x->fs);
	memset(x->buf, 0, TOUCHED);
	return 0;
}

struct layer_prealloc *layer_prealloc_new(int dir)
{
	struct layer_prealloc *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->dir = dir;
	s->item = (struct layer_prealloc_item){ .tmp = -1, .fs = -1, .manifest = -1 };
	pthread_mutex_init(&s->lock, NULL);
	spread(dir);
	return s;
}

void layer_prealloc_free(struct layer_prealloc *s)
{
	if (!s)
		return;
	item_done(&s->item);
	if (s->full)
		(void)tree_remove(s->dir, s->name); /* or the next start removes it */
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* A new name each time: the place on the disk depends on the name. */
static int new_name(struct layer_prealloc *s)
{
	char id[ID_SIZE];
	int r = id_new(id, sizeof(id));

	if (r == 0)
		snprintf(s->name, sizeof(s->name), LAYER_PREALLOC_PREFIX "%s", id + ID_LEN - RANDOM);
	return r;
}

void layer_prealloc_fill(struct layer_prealloc *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	if (!s->full && new_name(s) == 0) {
		s->full = item_make(s->dir, s->name, &s->item) == 0;
		if (!s->full) {
			item_done(&s->item);
			(void)tree_remove(s->dir, s->name);
		}
	}
	pthread_mutex_unlock(&s->lock);
}

bool layer_prealloc_name(struct layer_prealloc *s, char *ret, size_t size)
{
	bool full;

	if (!s)
		return false;
	pthread_mutex_lock(&s->lock);
	full = s->full;
	snprintf(ret, size, "%s", s->name);
	pthread_mutex_unlock(&s->lock);
	return full;
}

bool layer_prealloc_take(struct layer_prealloc *s, const char *name, struct layer_prealloc_item *ret)
{
	struct layer_prealloc_item x = { .tmp = -1, .fs = -1, .manifest = -1 };
	bool taken = false;

	/* If another thread makes one now, this does not wait for it. */
	if (!s || pthread_mutex_trylock(&s->lock) != 0)
		return false;
	if (s->full) {
		x = s->item;
		s->item = (struct layer_prealloc_item){ .tmp = -1, .fs = -1, .manifest = -1 };
		s->full = false;
		taken = syscall(SYS_renameat2, s->dir, s->name, s->dir, name, NOREPLACE) == 0;
		if (!taken) {
			item_done(&x);
			(void)tree_remove(s->dir, s->name);
		}
	}
	pthread_mutex_unlock(&s->lock);
	if (taken)
		*ret = x;
	return taken;
}
