/* Brings a layer in the making to the disk: file by file, or by syncing the filesystem. */
#include "layers/flush.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/sched_slice.h"

#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define EXT4 0xef53
#define CHECKPOINT_DRY_RUN 4U /* only asks whether a checkpoint is possible, which it is not without a journal */

struct flush {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool started; /* ->thread runs; it is started only for slow work */
	int fd[FLUSH_FILES]; /* all files that were added */
	bool holds[FLUSH_FILES]; /* a folder that contains added files, directly or below */
	unsigned count;
	/* files so far; and how many there were when each folder on the path was entered */
	unsigned files, before[FLUSH_FILES], depth;
	bool brings; /* flush_brings_folders() */
	unsigned first; /* index in ->fd of the first folder to sync early; ->count or more: none */
	int ahead; /* a file to sync early, or -1; the caller's, until ->end */
	unsigned folders; /* folders below this index are synced already */
	bool copied; /* all files are added, and the folders are final */
	int more; /* a file whose writing is to be started, or -1; owned */
	bool all; /* the whole filesystem is synced instead */
	bool end, quit;
	bool own; /* ->thread does the rest, and sets ->result */
	int dir; /* the caller's */
	int result;
};

static void begin(int fd)
{
	/* Only starts writing early; fsync reports errors. */
	(void)!sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

static bool is_file(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 || S_ISREG(st.st_mode);
}

/* Files, and folders that no fsync of a file brings along: each fsync waits for everything that the disk is doing. */
static bool is_due(const struct flush *f, unsigned i, bool files)
{
	return is_file(f->fd[i]) == files && !(f->brings && f->holds[i]);
}

/*
 * A folder that can be synced while content is still being written, with those above it: then less is left for the end.
 * One such folder is enough for all but rare trees.
 */
static bool is_early(const struct flush *f, unsigned i)
{
	return is_due(f, i, false) || i == f->first;
}

static int each(const struct flush *f, unsigned from, bool files)
{
	for (unsigned i = from; i < f->count; i++) {
		int r = is_due(f, i, files) ? flush_file(f->fd[i]) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

static void *flush_main(void *arg)
{
	struct flush *f = arg;
	int r = 0;

	(void)sched_slice_short(); /* otherwise each wait for the disk would be followed by one for a processor */
	pthread_mutex_lock(&f->lock);
	while (!f->quit && !f->end) {
		AUTO_CLOSE int fd = TAKE_FD(f->more);
		int ahead = fd < 0 && f->copied && r == 0 ? TAKE_FD(f->ahead) : -1;
		bool folder = fd < 0 && ahead < 0 && f->copied && r == 0 && f->folders < f->count;

		if (fd < 0 && ahead < 0 && !folder) {
			pthread_cond_wait(&f->moved, &f->lock);
			continue;
		}
		pthread_mutex_unlock(&f->lock);
		if (fd >= 0)
			begin(fd);
		else if (ahead >= 0)
			r = flush_file(ahead);
		else if (is_early(f, f->folders))
			r = flush_file(f->fd[f->folders]);
		pthread_mutex_lock(&f->lock);
		f->folders += folder;
	}
	pthread_mutex_unlock(&f->lock);
	if (f->quit || !f->own)
		return NULL;
	if (f->all)
		r = syncfs(f->dir) < 0 ? -errno : 0;
	else if (r == 0)
		r = each(f, 0, true);
	if (r == 0 && !f->all)
		r = each(f, f->folders, false);
	f->result = r;
	return NULL;
}

static bool start(struct flush *f)
{
	if (!f->started)
		f->started = pthread_create(&f->thread, NULL, flush_main, f) == 0;
	return f->started;
}

struct flush *flush_new(void)
{
	struct flush *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->more = f->dir = f->ahead = -1;
	f->first = FLUSH_FILES;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->moved, NULL);
	(void)start(f); /* now, since a new thread may wait for milliseconds behind its creator; if it fails, later */
	return f;
}

static void tell(struct flush *f, bool *what)
{
	pthread_mutex_lock(&f->lock);
	*what = true;
	pthread_cond_signal(&f->moved);
	pthread_mutex_unlock(&f->lock);
}

static void join(struct flush *f)
{
	if (f->started)
		pthread_join(f->thread, NULL);
	f->started = false;
}

void flush_free(struct flush *f)
{
	if (!f)
		return;
	tell(f, &f->quit);
	join(f);
	fd_close(f->more);
	for (unsigned i = 0; i < f->count; i++)
		fd_close(f->fd[i]);
	pthread_cond_destroy(&f->moved);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

void flush_more(struct flush *f, int fd)
{
	if (!f || f->all || !start(f))
		return;
	pthread_mutex_lock(&f->lock);
	if (f->more < 0)
		f->more = sys_fcntl(fd, F_DUPFD_CLOEXEC, 3);
	pthread_cond_signal(&f->moved);
	pthread_mutex_unlock(&f->lock);
}

static void flush_add(struct flush *f, int fd)
{
	int own;

	if (!f || f->all)
		return;
	own = f->count < FLUSH_FILES ? sys_fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
	if (own < 0)
		f->all = true;
	else
		f->fd[f->count++] = own;
}

void flush_file_add(struct flush *f, int fd)
{
	if (f)
		f->files++;
	flush_add(f, fd);
}

void flush_enter(struct flush *f)
{
	if (!f)
		return;
	if (f->depth < FLUSH_FILES)
		f->before[f->depth] = f->files;
	else
		f->all = true; /* so many folders are synced faster all at once */
	f->depth++;
}

void flush_leave(struct flush *f, int fd)
{
	unsigned was = f ? f->count : 0;

	if (!f)
		return;
	assert(f->depth);
	f->depth--;
	flush_add(f, fd);
	if (f->count == was)
		return;
	f->holds[was] = f->files > f->before[f->depth];
	f->first = f->first < was ? f->first : was;
}

void flush_ahead(struct flush *f, int fd)
{
	if (f)
		f->ahead = fd;
}

void flush_other(struct flush *f)
{
	if (f)
		f->all = true;
}

void flush_copied(struct flush *f, int dir)
{
	if (!f || f->all || flush_ordered(dir))
		return;
	f->brings = flush_brings_folders(dir);
	if (start(f))
		tell(f, &f->copied);
}

void flush_end(struct flush *f, int dir)
{
	if (!f)
		return;
	for (unsigned i = 0; !f->all && i < f->count; i++)
		begin(f->fd[i]);
	f->dir = dir;
	if (!f->copied) /* otherwise the thread may be reading them */
		f->brings = flush_brings_folders(dir);
	f->own = f->all || !flush_ordered(dir);
	if (f->own && !start(f)) {
		f->own = false;
		return;
	}
	tell(f, &f->end);
}

/*
 * A commit of ext4's journal contains all changes before it, and empties the disk's own cache first: data that was
 * written and waited for needs no commit of its own, and one commit at the end covers all. Other filesystems, and ext4
 * without a journal, do not promise that.
 */
bool flush_ordered(int fd)
{
	uint32_t look = CHECKPOINT_DRY_RUN;
	struct statfs st;

	return fstatfs(fd, &st) == 0 && st.f_type == EXT4 && sys_ioctl(fd, FLUSH_IOCTL, &look) == 0;
}

int flush_file(int fd)
{
	const unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;

	return (flush_ordered(fd) ? sync_file_range(fd, 0, 0, all) : fsync(fd)) < 0 ? -errno : 0;
}

int flush_data(int fd)
{
	return flush_ordered(fd) ? flush_file(fd) : fdatasync(fd) < 0 ? -errno : 0;
}

bool flush_brings_folders(int fd)
{
	struct statfs st;

	return fstatfs(fd, &st) == 0 && st.f_type == EXT4;
}

int flush_wait(struct flush *f, int dir)
{
	int r;

	if (!f || (f->all && !f->own))
		return syncfs(dir) < 0 ? -errno : 0;
	join(f);
	if (f->own) {
		r = f->result;
	} else {
		r = each(f, 0, true);
		if (r == 0 && !flush_ordered(dir))
			r = each(f, 0, false);
	}
	/* The folder that holds the whole layer was never added. */
	if (r == 0 && !f->all && !(f->brings && f->files) && !flush_ordered(dir) && fsync(dir) < 0)
		r = -errno;
	return r;
}
