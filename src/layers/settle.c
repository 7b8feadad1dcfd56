#include "layers/settle.h"
#include "base/base.h"
#include "base/step.h"
#include "base/sys.h"
#include "layers/flush.h"
#include "layers/memory.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

enum state { UNSETTLED, UNDER_WAY, SETTLED, FAILED };

struct item {
	struct item *next;
	struct manifest m; /* provisional, then as it is settled */
	struct settle_files files;
	enum state state;
	int result; /* FAILED: why */
};

struct settles {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	struct item *first;
};

/* In place of a sum: which file it is, and when it was changed last. */
struct mark {
	uint64_t boot, ino, seconds, nanoseconds;
};
static_assert(sizeof(struct mark) == SHA256_SIZE, "it takes a sum's place");

struct settles *settles_new(void)
{
	struct settles *s = calloc(1, sizeof(*s));

	if (s) {
		pthread_mutex_init(&s->lock, NULL);
		pthread_cond_init(&s->moved, NULL);
	}
	return s;
}

static void files_done(struct settle_files *f)
{
	flush_free(TAKE_PTR(f->flush)); /* first: its thread may be at the manifest */
	fd_close(TAKE_FD(f->dir));
	fd_close(TAKE_FD(f->fs));
	fd_close(TAKE_FD(f->manifest));
}

void settles_free(struct settles *s)
{
	struct item *x;

	while (s && (x = s->first)) {
		s->first = x->next;
		files_done(&x->files);
		free(x);
	}
	if (s) {
		pthread_cond_destroy(&s->moved);
		pthread_mutex_destroy(&s->lock);
	}
	free(s);
}

static int this_boot(uint64_t *ret)
{
	uint8_t sum[SHA256_SIZE];
	struct sha256 s;
	char text[64];
	ssize_t n = fd_get(AT_FDCWD, "/proc/sys/kernel/random/boot_id", text, sizeof(text));

	if (n <= 0)
		return n < 0 ? (int)n : -EIO;
	sha256_init(&s);
	sha256_add(&s, text, (size_t)n);
	sha256_end(&s, sum);
	memcpy(ret, sum, sizeof(*ret));
	return 0;
}

static int mark_file(int dir, const char *name, uint64_t *ret_size, uint8_t ret[SHA256_SIZE])
{
	AUTO_CLOSE int fd = memory_open(dir, name);
	struct mark m;
	struct stat st;
	int r = fd < 0 ? fd : this_boot(&m.boot);

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return -errno;
	m.ino = st.st_ino;
	m.seconds = (uint64_t)st.st_ctim.tv_sec;
	m.nanoseconds = (uint64_t)st.st_ctim.tv_nsec;
	*ret_size = (uint64_t)st.st_size;
	memcpy(ret, &m, sizeof(m));
	return 0;
}

static int mark_memory(int dir, struct manifest *m)
{
	int r = mark_file(dir, "meta", &m->meta, m->meta_sum);

	return r == 0 ? mark_file(dir, "pages", &m->pages, m->pages_sum) : r;
}

int settle_provisional(int dir, struct manifest *m)
{
	int r = mark_memory(dir, m);

	if (r < 0)
		return r;
	m->version |= MANIFEST_UNSETTLED;
	manifest_seal(m);
	return 0;
}

bool settle_this_boot(const struct manifest *m)
{
	struct mark mark;
	uint64_t boot;

	memcpy(&mark, m->meta_sum, sizeof(mark));
	return this_boot(&boot) == 0 && mark.boot == boot;
}

/* -EBADMSG when its memory is not in the files it was in, as they were. */
static int compare_marks(int dir, const struct manifest *m)
{
	struct manifest is = *m;
	int r = mark_memory(dir, &is);

	if (r == -ENOENT || r == -ELOOP)
		return -EBADMSG;
	return r < 0 ? r : memcmp(&is, m, sizeof(is)) ? -EBADMSG : 0;
}

static int open_files(struct settle_files *f, int store, const char *id)
{
	const int folder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int r = 0;

	if (f->dir < 0)
		r = f->dir = sys_openat(store, id, folder, 0);
	if (r >= 0 && f->fs < 0)
		r = f->fs = sys_openat(f->dir, "fs", folder, 0);
	if (r >= 0 && f->manifest < 0)
		r = f->manifest = sys_openat(f->dir, "manifest", O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	return r < 0 ? r : 0;
}

/* Looked at before and after: what is changed meanwhile is changed. */
static int sum_up(int dir, const int *stop, const struct manifest *was, struct manifest *ret)
{
	struct manifest m = *was, is;
	int r = manifest_read(dir, was->id, &is);

	if (r == 0 && memcmp(&is, was, sizeof(is)))
		r = -EBADMSG;
	if (r == 0)
		r = compare_marks(dir, was);
	m.version &= ~MANIFEST_UNSETTLED;
	if (r == 0)
		r = memory_sum(dir, stop, &m);
	if (r == 0)
		r = compare_marks(dir, was);
	if (r == 0) {
		manifest_seal(&m);
		*ret = m;
	}
	return r;
}

static int settle(struct settle_files *f, int store, const int *stop, const struct manifest *was, struct manifest *ret)
{
	int r = open_files(f, store, was->id);

	if (r < 0)
		return r;
	/* The disk is written to while sums are taken. */
	flush_copied(f->flush, f->fs);
	flush_end(f->flush, f->fs);
	r = sum_up(f->dir, stop, was, ret);
	if (r == 0)
		r = flush_wait(f->flush, f->fs);
	STEP("settle.written");
	if (r == 0)
		r = manifest_write(f->manifest, ret);
	STEP("settle.named");
	if (r == 0 && !flush_brings_folders(f->dir) && fsync(f->dir) < 0)
		r = -errno;
	if (r == 0 && fsync(store) < 0)
		r = -errno;
	return r;
}

bool settle_passes(int r)
{
	return r == -ECANCELED || r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EINTR;
}

static struct item *find(const struct settles *s, const char *id)
{
	struct item *x = s ? s->first : NULL;

	while (x && strcmp(x->m.id, id))
		x = x->next;
	return x;
}

int settle_add(struct settles *s, const struct manifest *m, const struct settle_files *files)
{
	struct item *x = s ? calloc(1, sizeof(*x)) : NULL;

	if (!x)
		return -ENOMEM;
	x->m = *m;
	x->files = *files;
	pthread_mutex_lock(&s->lock);
	x->next = s->first;
	s->first = x;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* ->lock is held, but not while it is under way. */
static void settle_item(struct settles *s, struct item *x, int store, const int *stop)
{
	struct manifest m;
	int r;

	x->state = UNDER_WAY;
	pthread_mutex_unlock(&s->lock);
	r = settle(&x->files, store, stop, &x->m, &m);
	if (r == -ECANCELED)
		flush_free(TAKE_PTR(x->files.flush)); /* good for one time */
	else
		files_done(&x->files);
	pthread_mutex_lock(&s->lock);
	if (r == 0)
		x->m = m;
	x->result = r;
	x->state = r == 0 ? SETTLED : settle_passes(r) ? UNSETTLED : FAILED;
	pthread_cond_broadcast(&s->moved);
}

int settle_do(struct settles *s, int store, const char *id, const int *stop, struct manifest *ret)
{
	struct item *x;
	int r;

	if (!s)
		return -ESRCH;
	pthread_mutex_lock(&s->lock);
	/* Looked for again: it may be forgotten meanwhile. */
	while ((x = find(s, id)) && x->state == UNDER_WAY)
		pthread_cond_wait(&s->moved, &s->lock);
	if (x && x->state == UNSETTLED)
		settle_item(s, x, store, stop);
	r = x ? x->result : -ESRCH;
	if (r == 0)
		*ret = x->m;
	pthread_mutex_unlock(&s->lock);
	return r;
}

void settle_forget(struct settles *s, const char *id, bool gone)
{
	struct item *x = NULL;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	for (struct item **at = &s->first; *at; at = &(*at)->next)
		if (!strcmp((*at)->m.id, id)) {
			if ((*at)->state == SETTLED || (gone && (*at)->state != UNDER_WAY)) {
				x = *at;
				*at = x->next;
			}
			break;
		}
	pthread_mutex_unlock(&s->lock);
	if (x)
		files_done(&x->files);
	free(x);
}
