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
#define CHECKPOINT _IOW('f', 43, uint32_t) /* of ext4: EXT4_IOC_CHECKPOINT */
#define CHECKPOINT_DRY_RUN 4U /* only whether it could: not without a journal */

struct flush {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool started; /* ->thread: only for what takes long */
	int fd[FLUSH_FILES]; /* all that were added */
	bool holds[FLUSH_FILES]; /* a folder, with files in it or below */
	unsigned count;
	unsigned files, before[FLUSH_FILES], depth; /* files so far; and when each folder we are in was entered */
	bool brings; /* flush_brings_folders() */
	unsigned first; /* of ->fd, that is a folder; not below ->count: there is none */
	int ahead; /* or -1: not ours, until ->end */
	unsigned folders; /* of these, up to here, are made sure of already */
	bool copied; /* no more of them, and folders are as they will be */
	int more; /* one to begin with, or -1: ours */
	bool all; /* of the filesystem */
	bool end, quit;
	bool own; /* ->thread does what is left, and tells ->result */
	int dir; /* not ours */
	int result;
};

static void begin(int fd)
{
	/* Only ever a head start: what goes wrong is told by fsync. */
	(void)!sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

static bool is_file(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 || S_ISREG(st.st_mode);
}

/* Files, or folders that no file brings: each is a wait for all the disk is doing. */
static bool is_due(const struct flush *f, unsigned i, bool files)
{
	return is_file(f->fd[i]) == files && !(f->brings && f->holds[i]);
}

/*
 * While content is on its way. A folder that files bring, and those above it: then there is less that they have to bring
 * at the end. One of these does for all but rare trees.
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

	(void)sched_slice_short(); /* each wait for the disk would be one for a processor, too */
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
	(void)start(f); /* now: one that is new may stand for milliseconds behind who made it. Or when it is needed. */
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
		f->all = true; /* so many folders are more than are written one by one */
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
	if (!f->copied) /* else its thread may be looking */
		f->brings = flush_brings_folders(dir);
	f->own = f->all || !flush_ordered(dir);
	if (f->own && !start(f)) {
		f->own = false;
		return;
	}
	tell(f, &f->end);
}

/*
 * What ext4 commits to its journal holds all that was done before, and the disk's own cache is emptied first: what was
 * written and waited for needs no commit of its own, and one at last is good for all. Elsewhere, and on one that was
 * made without a journal, that is nobody's promise.
 */
bool flush_ordered(int fd)
{
	uint32_t look = CHECKPOINT_DRY_RUN;
	struct statfs st;

	return fstatfs(fd, &st) == 0 && st.f_type == EXT4 && sys_ioctl(fd, CHECKPOINT, &look) == 0;
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
	/* The folder that holds it all was never added. */
	if (r == 0 && !f->all && !(f->brings && f->files) && !flush_ordered(dir) && fsync(dir) < 0)
		r = -errno;
	return r;
}
