/*
 * Finds again what was there: after a restart of the API process, the rows of the store against the handles of the
 * warden; after a restart of the warden, the sandboxes in memory against its handles. A handle that no row names was
 * half-made and is ended; a row without a handle is lost.
 *
 * The warden may die while it is asked. Then everything is asked again when the link is back: a round compares all that
 * is known at its beginning, and sandboxes that an earlier round attached to stay attached.
 */
#include "base/base.h"
#include "base/log.h"
#include "service/sandbox/struct.h"
#include "service/sandbox/disk.h"
#include "service/sandbox/limit.h"
#include "service/network/network.h"
#include "service/checkpoint/checkpoint.h"
#include "service/exec/exec.h"
#include "service/image/image.h"
#include "service/checkpoint/layer.h"
#include "service/template/pool.h"
#include "service/secret/secret.h"
#include "service/port/port.h"
#include "service/internal.h"
#include "service/template/template.h"
#include "service/link/warden_link.h"
#include "store/note.h"

#include <dirent.h>
#include <fcntl.h>

#define HANDLE_KEY 24
#define SYNC_MS 2000 /* agents have listed their execs by then, or are too busy to be waited for */
#define SYNC_STEP_MS 2

struct adopt {
	struct service *s;
	struct map known; /* handle → sandbox, referenced; those not named yet in this round */
	struct map unread; /* handles of rows that could not be read: not ours to judge */
	unsigned attaching; /* under way */
	unsigned lost, ended;
	unsigned round;
	bool busy; /* a round is under way */
	bool listed; /* every handle was seen */
	uv_timer_t *timer; /* until all agents have listed their execs */
	unsigned waited;
	void (*ready)(void *arg, int r, const struct err *e); /* once */
	void *arg;
};

static void handle_key(uint64_t handle, char key[HANDLE_KEY])
{
	snprintf(key, HANDLE_KEY, "%016llx", (unsigned long long)handle);
}

static void forget_known(struct adopt *a)
{
	struct sandbox *b;
	size_t at = 0;

	while ((b = map_next(&a->known, &at)))
		sandbox_unref(b);
	map_done(&a->known);
	if (map_init(&a->known) < 0)
		abort();
}

static bool all_synced(const struct service *s)
{
	struct sandbox *b;
	size_t at = 0;

	while ((b = map_next(&s->sandboxes, &at)))
		if (b->state == SANDBOX_RUNNING && !b->synced)
			return false;
	return true;
}

static void free_timer(uv_handle_t *h)
{
	free(h);
}

/* Callers come when execs are known again, too: theirs would not be found otherwise. */
static void on_wait(uv_timer_t *t)
{
	struct adopt *a = t->data;
	void (*ready)(void *arg, int r, const struct err *e) = a->ready;

	if (!all_synced(a->s) && a->waited < SYNC_MS) {
		a->waited += SYNC_STEP_MS;
		uv_timer_start(t, on_wait, SYNC_STEP_MS, 0);
		return;
	}
	uv_close((uv_handle_t *)t, free_timer);
	a->timer = NULL;
	a->ready = NULL;
	secrets_sweep(a->s);
	turn_dirty(a->s->turn);
	pools_start(a->s);
	sandbox_again_start_all(a->s);
	ready(a->arg, 0, NULL);
}

static void finish(struct adopt *a)
{
	struct service *s = a->s;
	struct sandbox *b;
	size_t at = 0;

	if (!a->busy || !a->listed || a->attaching)
		return;
	a->busy = false;
	/* Sandboxes that the warden did not list are gone. */
	while ((b = map_next(&a->known, &at)))
		a->lost += sandbox_gone(b);
	if (a->round > 1 || a->lost || a->ended || s->sandboxes.count)
		log_info("%zu sandboxes found again, %u lost, %u incomplete ones ended", s->sandboxes.count, a->lost,
			 a->ended);
	forget_known(a);
	layer_warden_back(s);
	warden_link_go(s->warden);
	if (!a->ready || a->timer)
		return;
	a->timer = malloc(sizeof(*a->timer));
	if (!a->timer)
		abort();
	uv_timer_init(s->loop, a->timer);
	a->timer->data = a;
	uv_timer_start(a->timer, on_wait, 0, 0);
}

struct attaching {
	struct adopt *a;
	struct sandbox *b;
	uint64_t handle;
};

static void on_attached(void *arg, int r, const struct warden_link_answer *w, const struct err *e)
{
	struct attaching *t = arg;
	struct adopt *a = t->a;
	struct sandbox *b = t->b;
	struct err why = { 0 };

	bool same = b->handle == t->handle; /* it was not replaced meanwhile */

	free(t);
	if (same)
		b->attaching = false;
	if (e)
		why = *e;
	if (r == 0 && same && w->nfds) {
		r = sandbox_attach(b, w->fds[0], &w->rep->receipt, &why);
		if (r == 0) {
			w->fds[0] = -1;
			exec_sync(b);
		}
	}
	/*
	 * Without an answer the next round tries again. One that is paused takes in only so many: the resume tries
	 * again.
	 */
	if (w && same && r < 0 && r != -EAGAIN)
		sandbox_lose(b, why.msg[0] ? why.msg : "the daemon cannot connect to it");
	a->attaching--;
	if (w)
		finish(a);
	sandbox_unref(b);
}

/* We may have died between the warden's deed and our note of it: what is noted counts. */
static void same_state(struct adopt *a, struct sandbox *b)
{
	if (b->state == SANDBOX_PAUSED)
		warden_link_call_first(a->s->warden, WARDEN_FREEZE, b->handle, 0, NULL, NULL);
	else
		sandbox_thaw(b, true);
	sandbox_limit_again(b);
}

static void attach(struct adopt *a, struct sandbox *b)
{
	struct attaching *t = malloc(sizeof(*t));

	if (!t)
		abort();
	*t = (struct attaching){ .a = a, .b = b, .handle = b->handle };
	sandbox_ref(b);
	a->attaching++;
	b->attaching = true;
	warden_link_call_first(a->s->warden, WARDEN_ATTACH, b->handle, 0, on_attached, t);
}

static int notes_folder(const struct adopt *a)
{
	char path[1100];

	snprintf(path, sizeof(path), "%s/" NOTES_FOLDER, a->s->o.data);
	return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* A sandbox that a recovery found, without a row: a note prevents that a later start ends it. */
static void keep_unknown(struct adopt *a, const char *key)
{
	AUTO_CLOSE int dir = notes_folder(a);
	char name[HANDLE_KEY + 8];

	snprintf(name, sizeof(name), NOTE_KEPT "%s", key);
	fd_close(openat(dir, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (!map_get(&a->unread, key))
		log_warn("recover: the sandbox with handle %s is in no note: it is not touched until '" NOTES_FOLDER
			 "/%s' is removed",
			 key, name);
	if (map_put(&a->unread, key, a) < 0)
		abort();
}

static void read_kept(struct adopt *a)
{
	const size_t skip = strlen(NOTE_KEPT);
	int fd = notes_folder(a);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *x;

	while (dir && (x = readdir(dir)))
		if (!strncmp(x->d_name, NOTE_KEPT, skip) && map_put(&a->unread, x->d_name + skip, a) < 0)
			abort();
	if (dir)
		closedir(dir);
}

static void on_next(void *arg, int r, const struct warden_link_answer *w, const struct err *e)
{
	struct adopt *a = arg;
	char key[HANDLE_KEY];
	struct sandbox *b;

	if (r < 0) {
		/* Gone again on the way: it starts anew when the link is back. */
		log_warn("cannot get the list of sandboxes from the warden: %s",
			 e && e->msg[0] ? e->msg : "it has ended");
		return;
	}
	if (!w->rep->handle) {
		a->listed = true;
		finish(a);
		return;
	}
	handle_key(w->rep->handle, key);
	b = map_del(&a->known, key);
	if (b) {
		if (b->found && !b->link.poll && !b->sleep && b->state != SANDBOX_LOST && b->state != SANDBOX_ENDING) {
			same_state(a, b);
			if (!b->attaching) /* a tick may have asked for that already, while the warden was not there yet */
				attach(a, b);
		}
		sandbox_unref(b);
	} else if (a->s->o.recover) {
		keep_unknown(a, key);
	} else if (!map_get(&a->unread, key)) {
		a->ended++;
		warden_link_call_first(a->s->warden, WARDEN_DESTROY, w->rep->handle, 0, NULL, NULL);
	}
	warden_link_call_first(a->s->warden, WARDEN_NEXT, w->rep->handle, 0, on_next, a);
}

/* The link to the warden is up, for the first time or again. */
static void on_back(void *arg)
{
	struct service *s = arg;
	struct adopt *a = s->adopting;
	char key[HANDLE_KEY];
	struct sandbox *b;
	size_t at = 0;

	forget_known(a);
	a->round++;
	a->busy = true;
	a->listed = false;
	a->lost = a->ended = 0;
	while ((b = map_next(&s->sandboxes, &at))) {
		sandbox_close(b);
		if (!b->handle || b->state == SANDBOX_LOST)
			continue;
		handle_key(b->handle, key);
		if (map_put(&a->known, key, b) < 0)
			abort();
		sandbox_ref(b);
	}
	warden_link_call_first(s->warden, WARDEN_NEXT, 0, 0, on_next, a);
}

static int on_sandbox(void *arg, const struct sandbox_row *row)
{
	struct adopt *a = arg;
	struct err e = { 0 };
	struct sandbox *b = sandbox_load(a->s, row, &e);
	char key[HANDLE_KEY];

	if (b)
		return 0;
	log_error("sandbox %s cannot be read from the store and is not touched: %s", row->id, e.msg);
	handle_key(row->handle, key);
	return row->handle ? map_put(&a->unread, key, a) : 0;
}

static int on_exec(void *arg, const struct exec_row *row)
{
	struct adopt *a = arg;
	struct sandbox *b = map_get(&a->s->sandboxes, row->sandbox);
	struct err e = { 0 };

	if (b && exec_load(b, row, &e) < 0)
		log_error("exec %s cannot be read from the store: %s", row->id, e.msg);
	return 0;
}

void service_start(struct service *s, void (*ready)(void *arg, int r, const struct err *e), void *arg)
{
	struct adopt *a = calloc(1, sizeof(*a));
	struct err e = { 0 };
	int r;

	if (!a || map_init(&a->known) < 0 || map_init(&a->unread) < 0)
		abort();
	*a = (struct adopt){ .s = s, .known = a->known, .unread = a->unread, .ready = ready, .arg = arg };
	s->adopting = a;
	s->unread = &a->unread;
	read_kept(a);
	r = secrets_load(s, &e);
	if (r == 0)
		r = images_load(s, &e);
	if (r == 0)
		r = checkpoint_load_all(s, &e);
	if (r == 0)
		r = templates_load(s, &e);
	if (r == 0)
		r = sandboxes_each(s->db, on_sandbox, a, &e);
	if (r == 0 && !s->o.recover)
		image_sweep(s, NULL); /* removes leftovers of work that a dead daemon did not finish */
	if (r == 0)
		r = secrets_rekey(s, &e);
	if (r == 0)
		r = execs_each(s->db, on_exec, a, &e);
	if (r == 0)
		r = ports_load(s, &e);
	if (r == 0)
		spool_sweep(s);
	if (r == 0)
		r = sandbox_nets_start(s, &e);
	if (r == 0)
		r = warden_link_new(s->loop, s->o.warden_place, on_back, s, &s->warden, &e);
	if (r < 0)
		ready(arg, r, &e);
	else
		service_soon(s);
}
