/* Worker threads, and which work may begin. */
#include "engine/work.h"
#include "base/base.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WORKERS_MAX 8

struct list {
	struct work *first, **last;
};

struct workers {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct list waiting, done;
	struct work *running[WORKERS_MAX];
	pthread_t thread[WORKERS_MAX];
	unsigned count;
	int fd;
	bool ending;
};

static void add(struct list *l, struct work *w)
{
	w->next = NULL;
	*l->last = w;
	l->last = &w->next;
}

static void add_first(struct list *l, struct work *w)
{
	w->next = l->first;
	if (!w->next)
		l->last = &w->next;
	l->first = w;
}

/* Whether @w has to leave workers to others. */
static bool holds_up(const struct workers *s, const struct work *w, unsigned waiting, unsigned slow)
{
	const unsigned kind = w->waits ? waiting : slow, most = s->count < 6 ? 1 :
								w->waits     ? s->count / 2 - 1 :
									       s->count / 3;
	unsigned same = 0;

	if (!w->waits && !w->slow)
		return false;
	for (unsigned i = 0; w->waits && most > 1 && i < s->count; i++)
		same += s->running[i] && s->running[i]->waits && s->running[i]->tenant == w->tenant;
	return kind >= most || same + 1 > most - (most > 1) || (waiting + slow && waiting + slow + 1 >= s->count);
}

/* The next that may begin: what may take minutes never has all workers. */
static struct work *take_next(struct workers *s)
{
	unsigned waiting = 0, slow = 0;

	for (unsigned i = 0; i < s->count; i++) {
		waiting += s->running[i] && s->running[i]->waits;
		slow += s->running[i] && s->running[i]->slow;
	}
	for (struct work **at = &s->waiting.first; *at; at = &(*at)->next) {
		struct work *w = *at;

		/* At the end, all of them are started, so that they see the end and give up. */
		if (!s->ending && holds_up(s, w, waiting, slow))
			continue;
		*at = w->next;
		if (!w->next)
			s->waiting.last = at;
		return w;
	}
	return NULL;
}

static struct work *take(struct list *l)
{
	struct work *w = l->first;

	if (w) {
		l->first = w->next;
		if (!l->first)
			l->last = &l->first;
	}
	return w;
}

static void *work_main(void *arg)
{
	struct workers *s = arg;
	const uint64_t one = 1;
	unsigned me = 0;

	pthread_mutex_lock(&s->lock);
	while (!pthread_equal(s->thread[me], pthread_self()))
		me++;
	for (;;) {
		struct work *w = take_next(s);

		if (!w && s->ending)
			break;
		if (!w) {
			pthread_cond_wait(&s->more, &s->lock);
			continue;
		}
		s->running[me] = w;
		pthread_mutex_unlock(&s->lock);
		w->run(w);
		pthread_mutex_lock(&s->lock);
		s->running[me] = NULL;
		if (w->quiet) {
			w->end(w);
			continue;
		}
		add(&s->done, w);
		if (write(s->fd, &one, sizeof(one)) < 0)
			continue; /* it only fails when it is readable already */
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

int workers_new(unsigned count, struct workers **ret, struct err *e)
{
	struct workers *s = calloc(1, sizeof(*s));
	int r = 0;

	if (!s)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for workers");
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->more, NULL);
	s->waiting.last = &s->waiting.first;
	s->done.last = &s->done.first;
	s->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->fd < 0)
		r = err_sys(e, ERR_EXHAUSTED, -errno, "make an eventfd");
	/* Locked: no thread looks for work before all have been started. */
	pthread_mutex_lock(&s->lock);
	while (r == 0 && s->count < count && s->count < WORKERS_MAX) {
		r = -pthread_create(&s->thread[s->count], NULL, work_main, s);
		if (r < 0)
			err_sys(e, ERR_EXHAUSTED, r, "start a thread");
		else
			s->count++;
	}
	pthread_mutex_unlock(&s->lock);
	if (r < 0) {
		workers_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void workers_free(struct workers *s)
{
	struct work *w;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->ending = true;
	for (w = s->waiting.first; w; w = w->next)
		__atomic_store_n(&w->stop, 1, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < s->count; i++)
		if (s->running[i])
			__atomic_store_n(&s->running[i]->stop, 1, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&s->more);
	pthread_mutex_unlock(&s->lock);
	for (unsigned i = 0; i < s->count; i++)
		pthread_join(s->thread[i], NULL);
	while ((w = take(&s->done)))
		w->end(w);
	fd_close(s->fd);
	pthread_cond_destroy(&s->more);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void workers_add(struct workers *s, struct work *w)
{
	pthread_mutex_lock(&s->lock);
	/* What gives memory and descriptors back is not put behind what takes more of them. */
	if (w->quiet)
		add_first(&s->waiting, w);
	else
		add(&s->waiting, w);
	pthread_cond_signal(&s->more);
	pthread_mutex_unlock(&s->lock);
}

int workers_fd(const struct workers *s)
{
	return s->fd;
}

struct work *workers_done(struct workers *s)
{
	struct work *w;
	uint64_t n;

	pthread_mutex_lock(&s->lock);
	w = take(&s->done);
	if (!w && read(s->fd, &n, sizeof(n)) < 0)
		w = NULL; /* nothing was there: as it should be */
	pthread_mutex_unlock(&s->lock);
	return w;
}
