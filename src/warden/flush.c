#include "warden/flush.h"
#include "base/base.h"
#include "base/sys.h"

#include <pthread.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define EXT4 0xef53

struct flush {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool started; /* ->thread: only for what takes long */
	int fd[FLUSH_FILES]; /* all that were added */
	unsigned count;
	int more; /* one to begin with, or -1: ours */
	bool all; /* of the filesystem */
	bool end, quit;
	int dir; /* not ours */
	int result;
};

static void begin(int fd)
{
	/* Only ever a head start: what goes wrong is told by fsync. */
	(void)!sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

static void *flush_main(void *arg)
{
	struct flush *f = arg;

	pthread_mutex_lock(&f->lock);
	while (!f->quit && !f->end) {
		AUTO_CLOSE int fd = TAKE_FD(f->more);

		if (fd < 0) {
			pthread_cond_wait(&f->moved, &f->lock);
			continue;
		}
		pthread_mutex_unlock(&f->lock);
		begin(fd);
		pthread_mutex_lock(&f->lock);
	}
	pthread_mutex_unlock(&f->lock);
	if (f->end && f->all)
		f->result = syncfs(f->dir) < 0 ? -errno : 0;
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
	f->more = f->dir = -1;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->moved, NULL);
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

void flush_add(struct flush *f, int fd)
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

void flush_other(struct flush *f)
{
	if (f)
		f->all = true;
}

void flush_end(struct flush *f, int dir)
{
	if (!f)
		return;
	for (unsigned i = 0; !f->all && i < f->count; i++)
		begin(f->fd[i]);
	f->dir = dir;
	if (f->all && !start(f))
		return;
	tell(f, &f->end);
}

/*
 * What ext4 commits to its journal holds all that was done before: with one file made sure of, so are the folders, and
 * only what is in files is left. Elsewhere that is nobody's promise.
 */
bool flush_ordered(int fd)
{
	struct statfs st;

	return fstatfs(fd, &st) == 0 && st.f_type == EXT4;
}

static int write_each(const struct flush *f, int dir)
{
	bool ordered = flush_ordered(dir);

	for (unsigned i = 0; i < f->count; i++) {
		struct stat st;

		if (fstat(f->fd[i], &st) < 0)
			return -errno;
		if ((!ordered || S_ISREG(st.st_mode)) && fsync(f->fd[i]) < 0)
			return -errno;
	}
	return !ordered && fsync(dir) < 0 ? -errno : 0;
}

int flush_wait(struct flush *f, int dir)
{
	if (!f || (f->all && !f->started))
		return syncfs(dir) < 0 ? -errno : 0;
	join(f);
	return f->all ? f->result : write_each(f, dir);
}
