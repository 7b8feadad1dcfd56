/* Runs maintenance at intervals, in workers. */
#include "service/state/upkeep.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/note.h"
#include "store/db.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>
#include <uv.h>

#define TRIM_EVERY 5U /* ticks */
#define TRIM_BYTES (4 * MIB)
#define PRUNE_EVERY_NS (600ULL * 1000000000)

struct upkeep {
	struct db *db;
	struct audit *audit;
	struct turn *turn;
	uv_loop_t *loop;
	uv_timer_t timer;
	uv_work_t sync, checkpoint;
	char *path;
	int fd, db_fd; /* the log's and the state's (or -1), copies */
	int sync_r, checkpoint_r;
	uint64_t synced; /* the record that was the last when the last sync began */
	uint64_t pruned_ns;
	bool syncing, moving, freed;
	unsigned ticks;
	size_t loose; /* free bytes in malloc after the last malloc_trim() */
	unsigned held; /* by libuv: the timer and two workers */
};

static void let_go(struct upkeep *u)
{
	if (--u->held)
		return;
	fd_close(u->fd);
	fd_close(u->db_fd);
	free(u->path);
	free(u);
}

static void sync_work(uv_work_t *w)
{
	struct upkeep *u = w->data;

	u->sync_r = turn_sync(u->fd, u->db_fd);
}

static void sync_done(uv_work_t *w, int status)
{
	struct upkeep *u = w->data;

	u->syncing = false;
	if (status == 0 && u->sync_r < 0) {
		log_error("sync the audit log and the state: %s: changes that cannot be stored are not made, so this "
			  "process ends",
			  strerror(-u->sync_r));
		_exit(turn_exit_of(u->sync_r));
	}
	let_go(u);
}

static void checkpoint_work(uv_work_t *w)
{
	struct upkeep *u = w->data;

	u->checkpoint_r = db_checkpoint(u->path);
}

static void checkpoint_done(uv_work_t *w, int status)
{
	struct upkeep *u = w->data;

	u->moving = false;
	/* Nothing is lost, the log only grows: it is tried again in a second. */
	if (status == 0 && u->checkpoint_r < 0)
		log_warn("state: move the log into the file: %s", strerror(-u->checkpoint_r));
	let_go(u);
}

static bool start(struct upkeep *u, uv_work_t *w, uv_work_cb work, uv_after_work_cb done)
{
	w->data = u;
	if (uv_queue_work(u->loop, w, work, done) < 0)
		return false;
	u->held++;
	return true;
}

static void prune(struct upkeep *u)
{
	uint64_t mono = clock_mono_ns(), real = clock_real_ns();
	struct err e;

	if (u->pruned_ns && mono - u->pruned_ns < PRUNE_EVERY_NS)
		return;
	u->pruned_ns = mono;
	if (real > UPKEEP_ANSWERS_NS && idem_prune(u->db, real - UPKEEP_ANSWERS_NS, &e) < 0)
		log_warn("%s", e.msg);
	turn_dirty(u->turn);
}

/* Sandboxes that live longer than most. */
static void settle(struct upkeep *u)
{
	struct err e = { 0 };
	int r = db_settle(u->db, &e);

	if (r < 0)
		log_warn("%s", e.msg); /* nothing is lost: it is tried again in a second */
	if (r != 0)
		turn_dirty(u->turn);
}

/* A tenant that is gone, or has read its answers at last, leaves much that libc would keep for a next one. */
static void give_memory_back(struct upkeep *u)
{
	size_t loose = mallinfo2().fordblks;

	if (loose < u->loose)
		u->loose = loose;
	if (loose < u->loose + TRIM_BYTES)
		return;
	malloc_trim(MIB);
	u->loose = mallinfo2().fordblks;
}

/* Some at a time: this is the loop's own time. */
static void shrink(struct upkeep *u)
{
	struct err e = { 0 };

	if (db_shrink(u->db, &e) < 0)
		log_warn("%s", e.msg); /* it only stays larger */
}

static void tick(uv_timer_t *t)
{
	struct upkeep *u = t->data;
	uint64_t seq = audit_head(u->audit)->seq;

	prune(u);
	settle(u);
	shrink(u);
	notes_ahead(u->db);
	if (++u->ticks % TRIM_EVERY == 0)
		give_memory_back(u);
	if (!u->syncing && seq != u->synced) {
		u->syncing = start(u, &u->sync, sync_work, sync_done);
		/* What is not flushed yet waits for the next second. */
		if (u->syncing)
			u->synced = audit_written(u->audit);
	}
	if (!u->moving && db_log_bytes(u->db) > DB_LOG_MAX)
		u->moving = start(u, &u->checkpoint, checkpoint_work, checkpoint_done);
}

static void timer_closed(uv_handle_t *h)
{
	let_go(h->data);
}

int upkeep_new(struct uv_loop_s *loop, struct db *d, const char *db_path, struct audit *a, struct turn *t,
	       struct upkeep **ret, struct err *e)
{
	AUTO_FREE struct upkeep *u = calloc(1, sizeof(*u));
	AUTO_FREE char *path = strdup(db_path);
	AUTO_CLOSE int fd = fcntl(audit_fd(a), F_DUPFD_CLOEXEC, 3);

	if (!u || !path || fd < 0)
		return err_sys(e, ERR_EXHAUSTED, fd < 0 ? -errno : -ENOMEM, "upkeep");
	u->db = d;
	u->audit = a;
	u->turn = t;
	u->loop = loop;
	u->held = 1;
	uv_timer_init(loop, &u->timer);
	u->timer.data = u;
	uv_timer_start(&u->timer, tick, UPKEEP_MS, UPKEEP_MS);
	uv_unref((uv_handle_t *)&u->timer);
	u->path = TAKE_PTR(path);
	u->fd = TAKE_FD(fd);
	u->db_fd = db_log_fd(d) < 0 ? -1 : fcntl(db_log_fd(d), F_DUPFD_CLOEXEC, 3);
	*ret = TAKE_PTR(u);
	return 0;
}

void upkeep_free(struct upkeep *u)
{
	if (!u || u->freed)
		return;
	u->freed = true;
	uv_close((uv_handle_t *)&u->timer, timer_closed);
}
