#include "warden/flush.h"
#include "base/base.h"
#include "base/sys.h"

#include <pthread.h>
#include <unistd.h>

struct flush {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	int fd[FLUSH_FILES]; /* all that were added */
	unsigned count;
	unsigned begun; /* of those, writing was begun */
	int more; /* the one being copied, or -1: ours */
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

/* What to begin with next, or -1. */
static int next(struct flush *f)
{
	int fd = TAKE_FD(f->more);

	if (fd < 0 && !f->all && f->begun < f->count)
		fd = sys_fcntl(f->fd[f->begun++], F_DUPFD_CLOEXEC, 3);
	return fd;
}

static void *flush_main(void *arg)
{
	struct flush *f = arg;

	pthread_mutex_lock(&f->lock);
	while (!f->quit && !f->end) {
		int fd = next(f);

		if (fd < 0 && (f->all || f->begun == f->count)) {
			pthread_cond_wait(&f->moved, &f->lock);
			continue;
		}
		pthread_mutex_unlock(&f->lock);
		if (fd >= 0)
			begin(fd);
		fd_close(fd);
		pthread_mutex_lock(&f->lock);
	}
	pthread_mutex_unlock(&f->lock);
	if (f->end && f->all)
		f->result = syncfs(f->dir) < 0 ? -errno : 0;
	return NULL;
}

struct flush *flush_new(void)
{
	struct flush *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->more = f->dir = -1;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->moved, NULL);
	if (pthread_create(&f->thread, NULL, flush_main, f) != 0) {
		pthread_cond_destroy(&f->moved);
		pthread_mutex_destroy(&f->lock);
		free(f);
		return NULL;
	}
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
	if (f->thread) {
		pthread_join(f->thread, NULL);
		f->thread = 0;
	}
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
	if (!f)
		return;
	pthread_mutex_lock(&f->lock);
	if (!f->all && f->more < 0) {
		f->more = sys_fcntl(fd, F_DUPFD_CLOEXEC, 3);
		pthread_cond_signal(&f->moved);
	}
	pthread_mutex_unlock(&f->lock);
}

void flush_add(struct flush *f, int fd)
{
	int own;

	if (!f)
		return;
	pthread_mutex_lock(&f->lock);
	own = f->all || f->count == FLUSH_FILES ? -1 : sys_fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (own < 0)
		f->all = true;
	else
		f->fd[f->count++] = own;
	pthread_cond_signal(&f->moved);
	pthread_mutex_unlock(&f->lock);
}

void flush_other(struct flush *f)
{
	if (f)
		tell(f, &f->all);
}

void flush_end(struct flush *f, int dir)
{
	if (!f)
		return;
	f->dir = dir;
	tell(f, &f->end);
}

int flush_wait(struct flush *f, int dir)
{
	if (!f)
		return syncfs(dir) < 0 ? -errno : 0;
	join(f);
	for (unsigned i = 0; !f->all && i < f->count; i++)
		if (fsync(f->fd[i]) < 0)
			return -errno;
	return f->result < 0 ? f->result : fsync(dir) < 0 ? -errno : 0;
}
