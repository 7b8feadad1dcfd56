/*
 * Finding again what was there: after our own restart the rows of the store against the handles the warden has; after the warden's restart what we
 * know against what it has. A handle nobody knows was half-made and is ended; a row without a handle is lost.
 */
#include "base/base.h"
#include "base/log.h"
#include "service/box.h"
#include "service/exec.h"
#include "service/service_impl.h"
#include "service/wlink.h"

#define HANDLE_KEY 24

struct adopt {
	struct service *s;
	struct map known; /* handle → box */
	unsigned attaching; /* under way */
	unsigned lost, ended;
	bool listed; /* every handle was seen */
	bool again; /* the warden's restart, not ours */
	void (*ready)(void *arg, int r, const struct err *e);
	void *arg;
};

static void handle_key(uint64_t handle, char key[HANDLE_KEY])
{
	snprintf(key, HANDLE_KEY, "%016llx", (unsigned long long)handle);
}

static void finish(struct adopt *a)
{
	struct service *s = a->s;
	void (*ready)(void *arg, int r, const struct err *e) = a->ready;
	void *arg = a->arg;
	struct box *b;
	size_t at = 0;

	if (!a->listed || a->attaching)
		return;
	/* Whom the warden did not name is gone. */
	while ((b = map_next(&a->known, &at))) {
		a->lost++;
		b->handle = 0;
		box_lose(b, "the warden does not know it any more");
	}
	if (a->again || a->lost || a->ended || s->boxes.count)
		log_info("%zu sandboxes found again, %u lost, %u half-made ones ended", s->boxes.count, a->lost, a->ended);
	map_done(&a->known);
	free(a);
	wlink_go(s->warden);
	if (ready)
		ready(arg, 0, NULL);
}

struct attaching {
	struct adopt *a;
	struct box *b;
};

static void on_attached(void *arg, int r, const struct wlink_answer *w, const struct err *e)
{
	struct attaching *t = arg;
	struct box *b = t->b;
	struct err why = { 0 };

	if (e)
		why = *e;
	if (r == 0 && w->nfds) {
		r = box_attach(b, w->fds[0], &w->rep->receipt, &why);
		if (r == 0) {
			w->fds[0] = -1;
			exec_sync(b);
		}
	}
	if (r < 0 && r != -EPIPE && r != -ECANCELED)
		box_lose(b, why.msg[0] ? why.msg : "it could not be attached to");
	t->a->attaching--;
	finish(t->a);
	box_unref(b);
	free(t);
}

static void attach(struct adopt *a, struct box *b)
{
	struct attaching *t = malloc(sizeof(*t));

	if (!t)
		abort();
	*t = (struct attaching){ .a = a, .b = b };
	box_ref(b);
	a->attaching++;
	wlink_call_first(a->s->warden, WARDEN_ATTACH, b->handle, 0, on_attached, t);
}

static void on_next(void *arg, int r, const struct wlink_answer *w, const struct err *e)
{
	struct adopt *a = arg;
	char key[HANDLE_KEY];
	struct box *b;

	if (r < 0) {
		/* Gone again on the way: it starts anew when the link is back. */
		log_warn("could not ask the warden what it has: %s", e && e->msg[0] ? e->msg : "it is gone");
		if (a->again) {
			map_done(&a->known);
			free(a);
		} else {
			a->s->adopting = a;
		}
		return;
	}
	if (!w->rep->handle) {
		a->listed = true;
		finish(a);
		return;
	}
	handle_key(w->rep->handle, key);
	b = map_del(&a->known, key);
	if (!b) {
		a->ended++;
		wlink_call_first(a->s->warden, WARDEN_DESTROY, w->rep->handle, 0, NULL, NULL);
	} else if (!a->again) {
		attach(a, b);
	}
	wlink_call_first(a->s->warden, WARDEN_NEXT, w->rep->handle, 0, on_next, a);
}

static int know(struct adopt *a, struct box *b)
{
	char key[HANDLE_KEY];

	if (!b->handle || b->state == BOX_LOST)
		return 0;
	handle_key(b->handle, key);
	return map_put(&a->known, key, b);
}

static struct adopt *adopt_new(struct service *s)
{
	struct adopt *a = calloc(1, sizeof(*a));

	if (!a || map_init(&a->known) < 0)
		abort();
	a->s = s;
	return a;
}

/* The link to the warden stands, for the first time or again. */
static void on_back(void *arg)
{
	struct service *s = arg;
	struct adopt *a = s->adopting;
	struct box *b;
	size_t at = 0;

	s->adopting = NULL;
	if (!a) {
		a = adopt_new(s);
		a->again = true;
		while ((b = map_next(&s->boxes, &at)))
			if (know(a, b) < 0)
				abort();
	}
	wlink_call_first(s->warden, WARDEN_NEXT, 0, 0, on_next, a);
}

static int on_box(void *arg, const struct box_row *row)
{
	struct adopt *a = arg;
	struct err e = { 0 };
	struct box *b = box_load(a->s, row, &e);

	if (!b) {
		log_error("sandbox %s can not be read from the store: %s", row->id, e.msg);
		return 0;
	}
	return know(a, b);
}

static int on_exec(void *arg, const struct exec_row *row)
{
	struct adopt *a = arg;
	struct box *b = map_get(&a->s->boxes, row->box);
	struct err e = { 0 };

	if (b && exec_load(b, row, &e) < 0)
		log_error("exec %s can not be read from the store: %s", row->id, e.msg);
	return 0;
}

void service_start(struct service *s, void (*ready)(void *arg, int r, const struct err *e), void *arg)
{
	struct adopt *a = adopt_new(s);
	struct err e = { 0 };
	int r;

	a->ready = ready;
	a->arg = arg;
	s->adopting = a;
	r = boxes_each(s->db, on_box, a, &e);
	if (r == 0)
		r = execs_each(s->db, on_exec, a, &e);
	if (r == 0)
		r = wlink_new(s->loop, s->o.warden_place, on_back, s, &s->warden, &e);
	if (r < 0)
		ready(arg, r, &e);
	else
		service_ticks(s);
}
