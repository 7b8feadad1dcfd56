/* Does once at the end of a turn what was asked for during it. */
#include "service/state/turn.h"
#include "base/base.h"
#include "base/log.h"
#include "base/room.h"
#include "store/db.h"

#include <fcntl.h>
#include <unistd.h>
#include <uv.h>

/*
 * The check handle runs right behind the poll, that is after every callback of the iteration but those of closing
 * handles. The idle handle does nothing: while it is active the poll does not wait, so what was registered before the
 * poll is stored in the same iteration. Both are active only while there is something to do.
 */
#define AGAIN_MS 100

struct turn {
	struct db *db;
	struct audit *audit;
	uv_loop_t *loop;
	uv_check_t check;
	uv_idle_t idle;
	uv_timer_t again;
	bool (*lacks)(void *arg);
	void *lacks_arg;
	uv_work_t work;
	struct turn_wait waiting; /* heads of rings: for the next store, */
	struct turn_wait stored; /* stored, for the next sync, */
	struct turn_wait syncing; /* for the sync under way, */
	struct turn_wait running; /* being called */
	bool active, dirty, always, at_work, freed, stuck;
	int fd, db_fd, sync_r; /* the log's and the state's, ours for the worker */
	unsigned held; /* by libuv: three handles, and the worker */
};

static void ring_init(struct turn_wait *head)
{
	head->next = head->prev = head;
}

static bool ring_empty(const struct turn_wait *head)
{
	return head->next == head;
}

static void ring_add(struct turn_wait *head, struct turn_wait *w)
{
	w->next = head;
	w->prev = head->prev;
	head->prev->next = w;
	head->prev = w;
}

/* All of @from behind what is in @to. */
static void ring_move(struct turn_wait *to, struct turn_wait *from)
{
	if (ring_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	ring_init(from);
}

void turn_cancel(struct turn_wait *w)
{
	if (!w->next)
		return;
	w->prev->next = w->next;
	w->next->prev = w->prev;
	w->next = w->prev = NULL;
}

static void let_go(struct turn *t)
{
	if (--t->held)
		return;
	fd_close(t->fd);
	fd_close(t->db_fd);
	free(t);
}

static void handle_closed(uv_handle_t *h)
{
	let_go(h->data);
}

int turn_exit_of(int errnum)
{
	return room_lacks(errnum) ? EXIT_NO_ROOM : EXIT_FAILURE;
}

static _Noreturn void die(const char *what, int errnum)
{
	log_error("%s: changes that cannot be stored are not made, so this process ends", what);
	_exit(turn_exit_of(errnum));
}

/* The log first: a record of something that did not happen is better than something that has none. */
static int try_store(struct turn *t, struct err *e)
{
	int r = audit_flush(t->audit, e);

	return r < 0 ? r : db_commit(t->db, e);
}

/*
 * Whether all is stored. On a full disk it is not, and nothing is lost by that: changes stay in memory, calls that
 * depend on them wait, and all others continue.
 */
static bool store(struct turn *t)
{
	struct err e = { 0 };
	int r = try_store(t, &e);

	if (r < 0 && room_lacks(r) && db_whole(t->db) && t->lacks && t->lacks(t->lacks_arg))
		r = try_store(t, &e);
	if (r < 0 && (!room_lacks(r) || !db_whole(t->db) || !t->lacks))
		die(e.msg, e.errnum);
	if (r < 0 && !t->stuck)
		log_error("%s: changes wait until there is space", e.msg);
	else if (r == 0 && t->stuck)
		log_warn("there is space again: waiting changes continue");
	t->stuck = r < 0;
	t->dirty = t->dirty && t->stuck;
	return !t->stuck;
}

static void call(struct turn *t, struct turn_wait *ring)
{
	ring_move(&t->running, ring);
	while (!ring_empty(&t->running)) {
		struct turn_wait *w = t->running.next;

		turn_cancel(w);
		w->fn(w->arg);
	}
}

/* In the order they were written. */
int turn_sync(int audit, int db)
{
	return fdatasync(audit) < 0 || (db >= 0 && fdatasync(db) < 0) ? -errno : 0;
}

static void sync_work(uv_work_t *work)
{
	struct turn *t = work->data;

	t->sync_r = turn_sync(t->fd, t->db_fd);
}

static void sync_start(struct turn *t);

static void sync_done(uv_work_t *work, int status)
{
	struct turn *t = work->data;

	t->at_work = false;
	if (t->sync_r < 0 || status < 0)
		die("sync the audit log and the state", -t->sync_r);
	if (!t->freed) {
		call(t, &t->syncing);
		sync_start(t);
	}
	let_go(t);
}

static void sync_start(struct turn *t)
{
	if (t->at_work || t->freed || ring_empty(&t->stored))
		return;
	ring_move(&t->syncing, &t->stored);
	t->work.data = t;
	if (uv_queue_work(t->loop, &t->work, sync_work, sync_done) < 0)
		die("sync the audit log", 0);
	t->at_work = true;
	t->held++;
}

static void rest(struct turn *t)
{
	t->active = false;
	uv_check_stop(&t->check);
	uv_idle_stop(&t->idle);
}

static void arm(struct turn *t);

static void on_again(uv_timer_t *h)
{
	arm(h->data);
}

static void run(uv_check_t *h)
{
	struct turn *t = h->data;

	if (!store(t)) {
		rest(t);
		uv_timer_start(&t->again, on_again, AGAIN_MS, 0);
		return;
	}
	if (t->always) {
		ring_move(&t->stored, &t->waiting);
		sync_start(t);
	} else {
		call(t, &t->waiting);
	}
	if (t->freed || !ring_empty(&t->waiting) || t->dirty)
		return; /* the callbacks brought more: the loop comes back at once */
	rest(t);
}

static void nothing(uv_idle_t *h)
{
	(void)h;
}

static void arm(struct turn *t)
{
	if (t->active || t->freed)
		return;
	t->active = true;
	uv_check_start(&t->check, run);
	uv_idle_start(&t->idle, nothing);
}

int turn_new(struct uv_loop_s *loop, struct db *d, struct audit *a, struct turn **ret, struct err *e)
{
	struct turn *t = calloc(1, sizeof(*t));

	if (!t)
		return err_sys(e, ERR_EXHAUSTED, -ENOMEM, "turn");
	t->db = d;
	t->audit = a;
	t->loop = loop;
	t->fd = t->db_fd = -1;
	ring_init(&t->waiting);
	ring_init(&t->stored);
	ring_init(&t->syncing);
	ring_init(&t->running);
	uv_check_init(loop, &t->check); /* these three cannot fail */
	uv_idle_init(loop, &t->idle);
	uv_timer_init(loop, &t->again);
	t->check.data = t->idle.data = t->again.data = t;
	t->held = 3;
	*ret = t;
	return 0;
}

static void forget(struct turn_wait *ring)
{
	while (!ring_empty(ring))
		turn_cancel(ring->next);
}

void turn_free(struct turn *t)
{
	struct err e = { 0 };
	int r;

	if (!t || t->freed)
		return;
	r = try_store(t, &e);
	if (r < 0)
		die(e.msg, e.errnum);
	t->freed = true;
	forget(&t->waiting);
	forget(&t->stored);
	forget(&t->syncing);
	forget(&t->running);
	uv_close((uv_handle_t *)&t->check, handle_closed);
	uv_close((uv_handle_t *)&t->idle, handle_closed);
	uv_close((uv_handle_t *)&t->again, handle_closed);
}

void turn_on_full(struct turn *t, bool (*fn)(void *arg), void *arg)
{
	t->lacks = fn;
	t->lacks_arg = arg;
}

bool turn_stuck(const struct turn *t)
{
	return t->stuck;
}

int turn_sync_always(struct turn *t, struct err *e)
{
	t->fd = fcntl(audit_fd(t->audit), F_DUPFD_CLOEXEC, 3);
	if (t->fd < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "sync the audit log");
	if (db_log_fd(t->db) >= 0) {
		t->db_fd = fcntl(db_log_fd(t->db), F_DUPFD_CLOEXEC, 3);
		if (t->db_fd < 0)
			return err_sys(e, ERR_INTERNAL, -errno, "sync the state");
	}
	t->always = true;
	return 0;
}

void turn_after(struct turn *t, struct turn_wait *w, void (*fn)(void *arg), void *arg)
{
	turn_cancel(w);
	w->fn = fn;
	w->arg = arg;
	if (t->freed)
		return;
	ring_add(&t->waiting, w);
	arm(t);
}

void turn_dirty(struct turn *t)
{
	t->dirty = true;
	arm(t);
}
