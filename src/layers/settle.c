/*
 * The list of unsettled layers, and which thread settles each; a process of cloche-layers does the work
 * (settle_work.h).
 */
#include "layers/settle.h"
#include "base/base.h"
#include "layers/children.h"
#include "layers/settle_mark.h"

#include <pthread.h>

enum state { UNSETTLED, UNDER_WAY, SETTLED, FAILED };

struct item {
	struct item *next;
	struct manifest m; /* provisional, or as settled */
	enum state state;
	int result; /* FAILED: the error */
};

struct settles {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	struct layer_children *children;
	struct item *first;
};

struct settles *settles_new(struct layer_children *children)
{
	struct settles *s = calloc(1, sizeof(*s));

	if (s) {
		s->children = children;
		pthread_mutex_init(&s->lock, NULL);
		pthread_cond_init(&s->moved, NULL);
	}
	return s;
}

void settles_free(struct settles *s)
{
	struct item *x;

	while (s && (x = s->first)) {
		s->first = x->next;
		free(x);
	}
	if (s) {
		pthread_cond_destroy(&s->moved);
		pthread_mutex_destroy(&s->lock);
	}
	free(s);
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

int settle_add(struct settles *s, const struct manifest *m)
{
	struct item *x = s ? calloc(1, sizeof(*x)) : NULL;

	if (!x)
		return -ENOMEM;
	x->m = *m;
	pthread_mutex_lock(&s->lock);
	x->next = s->first;
	s->first = x;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static int settle(struct layer_children *c, const struct manifest *was, const int *stop, struct manifest *ret)
{
	struct layer_ask ask = { .op = LAYER_SETTLE, .m = *was };
	struct layer_answer a;
	int r = mark_boot(&ask.boot);

	if (r == 0)
		r = layer_children_do(c, LAYER_MAKES, &ask, stop, &a);

	/* The process could not be started, or was killed, so nothing is known of the layer. */
	if (r < 0)
		return -EINTR;
	r = a.result == 0 ? manifest_is_made_of(&a.m, was) : a.result;
	if (r == 0)
		*ret = a.m;
	return r;
}

/* Called with ->lock held; released while the process works. */
static void settle_item(struct settles *s, struct item *x, const int *stop)
{
	struct manifest m;
	int r;

	x->state = UNDER_WAY;
	pthread_mutex_unlock(&s->lock);
	r = settle(s->children, &x->m, stop, &m);
	pthread_mutex_lock(&s->lock);
	if (r == 0)
		x->m = m;
	x->result = r;
	x->state = r == 0 ? SETTLED : settle_passes(r) ? UNSETTLED : FAILED;
	pthread_cond_broadcast(&s->moved);
}

int settle_do(struct settles *s, const char *id, const int *stop, struct manifest *ret)
{
	struct item *x;
	int r;

	if (!s)
		return -ESRCH;
	pthread_mutex_lock(&s->lock);
	/* Searched again, since it may have been forgotten meanwhile. */
	while ((x = find(s, id)) && x->state == UNDER_WAY)
		pthread_cond_wait(&s->moved, &s->lock);
	if (x && x->state == UNSETTLED)
		settle_item(s, x, stop);
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
	free(x);
}
