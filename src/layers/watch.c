/* Inotify watches on the folders of layers, shared fairly between them. */
#include "layers/watch.h"
#include "base/base.h"
#include "base/id.h"
#include "base/log.h"
#include "base/map.h"
#include "base/sys.h"
#include "layers/walk.h"

#include <pthread.h>
#include <sys/inotify.h>
#include <unistd.h>

#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define WHAT                                                                                                           \
	(IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE |                \
	 IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)
#define LEAST 8192U /* the kernel's default minimum of watches */

struct watched {
	char id[ID_SIZE];
	/* never used twice: a thread that has walked a large tree checks by it whether the entry is still the same */
	uint64_t number;
	bool whole; /* all its folders are watched, or are being added */
	bool touched;
	/* Its watches. Numbers rise, and one thread adds at a time: those of other layers are not among them. */
	int first, last;
	size_t count;
};

struct watch {
	pthread_mutex_t adding; /* held while the watches of one layer are added; taken before ->lock */
	pthread_mutex_t lock; /* protects all below; held from adding a watch until its layer has it */
	int fd; /* or -errno */
	struct map by_id; /* of a layer → struct watched */
	uint64_t last; /* the last ->number */
	size_t count, most; /* watches in use, and the limit */
	bool told; /* the warning about missing watches was logged */
};

/* The kernel counts watches per user, which is root here: other programs of root, the host's own, need some, too. */
static size_t half(void)
{
	unsigned long long all;

	if (fd_get_u64(AT_FDCWD, "/proc/sys/fs/inotify/max_user_watches", &all) < 0)
		all = LEAST;
	return (size_t)all / 2;
}

struct watch *watch_new(size_t most)
{
	struct watch *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	if (map_init(&w->by_id) < 0) {
		free(w);
		return NULL;
	}
	pthread_mutex_init(&w->lock, NULL);
	pthread_mutex_init(&w->adding, NULL);
	w->most = most ? most : half();
	w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (w->fd < 0) {
		w->fd = -errno;
		log_warn("inotify: %s: layers are verified against their manifests whenever they are used",
			 strerror(-w->fd));
	}
	return w;
}

static void watched_clear(struct watch *w, struct watched *x)
{
	for (int wd = x->first; x->count && wd <= x->last; wd++)
		inotify_rm_watch(w->fd, wd);
	w->count -= x->count;
	x->count = 0;
}

static void tell(struct watch *w, const char *id, int why)
{
	if (!w->told)
		log_warn("layer '%s' cannot be watched: %s: it is verified against its manifest whenever it is used%s",
			 id, strerror(-why), why == -ENOSPC ? " (raise fs.inotify.max_user_watches)" : "");
	w->told = true;
}

/* Called with ->lock held. */
static void forget(struct watch *w, const char *id)
{
	struct watched *x = map_del(&w->by_id, id);

	if (!x)
		return;
	watched_clear(w, x);
	free(x);
}

void watch_free(struct watch *w)
{
	struct watched *x;
	size_t at = 0;

	if (!w)
		return;
	while ((x = map_next(&w->by_id, &at)))
		free(x);
	map_done(&w->by_id);
	fd_close(w->fd);
	pthread_mutex_destroy(&w->lock);
	pthread_mutex_destroy(&w->adding);
	free(w);
}

/*
 * Makes room for one more watch of @x. When there is none, the layer with the most folders loses its watches, so that a
 * tenant with a very large layer does not take those of all others.
 */
static int make_place(struct watch *w, const struct watched *x)
{
	const struct watched *is, *largest = x;
	size_t at = 0;

	if (w->count < w->most)
		return 0;
	while ((is = map_next(&w->by_id, &at)))
		largest = is->count > largest->count ? is : largest;
	if (largest == x)
		return -ENOSPC;
	tell(w, largest->id, -ENOSPC);
	forget(w, largest->id);
	return 0;
}

/* Adds a watch on the folder @fd. Called with ->lock held. */
static int add(struct watch *w, struct watched *x, int fd)
{
	int wd, r = make_place(w, x);
	char path[32];

	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	wd = inotify_add_watch(w->fd, path, WHAT);
	if (wd < 0)
		return -errno;
	if (x->count && wd <= x->last) {
		/* A folder that was moved meanwhile, and has one; or the numbers begin again, after 2^31 of them. */
		if (wd < x->first)
			inotify_rm_watch(w->fd, wd);
		return wd < x->first ? -ERANGE : 0;
	}
	x->first = x->count ? x->first : wd;
	x->last = wd;
	x->count++;
	w->count++;
	return 0;
}

/* Adds a watch if the entry of @id is still the same: it may be forgotten, or started anew, while this thread walks. */
static int add_if(struct watch *w, const char *id, uint64_t number, int fd)
{
	struct watched *is;
	int r = -ESTALE;

	pthread_mutex_lock(&w->lock);
	is = map_get(&w->by_id, id);
	if (is && is->number == number)
		r = add(w, is, fd);
	pthread_mutex_unlock(&w->lock);
	return r;
}

static int add_all(struct watch *w, int store, const char *id, uint64_t number)
{
	int top = sys_openat(store, id, FOLDER, 0), r;
	struct walk v;

	if (top < 0)
		return top;
	r = add_if(w, id, number, top);
	if (r < 0) {
		fd_close(top);
		return r;
	}
	r = walk_begin(&v, top, false);
	while (r == 0) {
		const char *name = walk_next(&v);

		if (!name) {
			if (v.depth == 1)
				break;
			r = walk_up(&v);
			continue;
		}
		r = walk_down(&v, name);
		if (r == -ENOTDIR || r == -ELOOP)
			r = 0;
		else if (r == 0)
			r = add_if(w, id, number, v.fd);
	}
	walk_done(&v);
	return r;
}

/* Adds a new entry without watches. NULL: no memory, and there is no entry of that id. */
static struct watched *begin(struct watch *w, const char *id)
{
	struct watched *x;

	forget(w, id);
	x = calloc(1, sizeof(*x));
	if (x && map_put(&w->by_id, id, x) < 0) {
		free(x);
		x = NULL;
	}
	if (x) {
		snprintf(x->id, sizeof(x->id), "%s", id);
		x->number = ++w->last;
	}
	return x;
}

static void blind(struct watch *w, const char *id, uint64_t number, int why)
{
	const struct watched *is;

	pthread_mutex_lock(&w->lock);
	is = map_get(&w->by_id, id);
	if (is && is->number == number)
		forget(w, id);
	if (why != -ESTALE && why != -ENOENT)
		tell(w, id, why);
	pthread_mutex_unlock(&w->lock);
}

void watch_expect(struct watch *w, const char *id)
{
	struct watched *x;

	if (!w || w->fd < 0)
		return;
	pthread_mutex_lock(&w->lock);
	x = begin(w, id);
	if (x)
		x->whole = true;
	pthread_mutex_unlock(&w->lock);
}

/* Adds all watches of an entry: a @fresh one, or the one that was expected, unless another thread has done it. */
static void watch_all(struct watch *w, int store, const char *id, bool fresh)
{
	struct watched *x;
	uint64_t number;
	int r;

	if (!w || w->fd < 0)
		return;
	pthread_mutex_lock(&w->adding);
	pthread_mutex_lock(&w->lock);
	x = fresh ? begin(w, id) : map_get(&w->by_id, id);
	number = x && (fresh || (x->whole && !x->count)) ? x->number : 0;
	pthread_mutex_unlock(&w->lock);
	r = number ? add_all(w, store, id, number) : 0;
	if (r < 0)
		blind(w, id, number, r);
	pthread_mutex_lock(&w->lock);
	x = map_get(&w->by_id, id);
	if (r == 0 && x && x->number == number)
		x->whole = true;
	pthread_mutex_unlock(&w->lock);
	pthread_mutex_unlock(&w->adding);
}

void watch_expected(struct watch *w, int store, const char *id)
{
	watch_all(w, store, id, false);
}

void watch_layer(struct watch *w, int store, const char *id)
{
	watch_all(w, store, id, true);
}

static void take(struct watch *w, const struct inotify_event *e)
{
	struct watched *x;
	size_t at = 0;

	while ((x = map_next(&w->by_id, &at)))
		if (e->mask & IN_Q_OVERFLOW || (x->count && x->first <= e->wd && e->wd <= x->last))
			x->touched = true;
}

static void take_all(struct watch *w)
{
	_Alignas(struct inotify_event) char buf[16384];
	ssize_t n;

	while ((n = read(w->fd, buf, sizeof(buf))) > 0)
		for (ssize_t at = 0; at < n;) {
			const struct inotify_event *e = (const void *)(buf + at);

			take(w, e);
			at += (ssize_t)(sizeof(*e) + e->len);
		}
}

enum watch_state watch_look(struct watch *w, const char *id)
{
	const struct watched *x;
	enum watch_state s;

	if (w->fd < 0)
		return WATCH_BLIND;
	pthread_mutex_lock(&w->lock);
	take_all(w);
	x = map_get(&w->by_id, id);
	s = !x || !x->whole ? WATCH_BLIND : x->touched ? WATCH_TOUCHED : WATCH_QUIET;
	pthread_mutex_unlock(&w->lock);
	return s;
}

void watch_forget(struct watch *w, const char *id)
{
	pthread_mutex_lock(&w->lock);
	forget(w, id);
	pthread_mutex_unlock(&w->lock);
}
