/* Stops and starts sandboxes whose files are on a disk. */
#include "service/sandbox/disk.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/sandbox/internal.h"
#include "service/sandbox/part.h"
#include "service/internal.h"
#include "service/link/warden_link.h"
#include "store/note.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define AGAIN_MS 100
#define TRIES 300U /* the process that has the disk closes it when its last process is gone */
#define OPEN_NS (5ULL * 1000000000ULL) /* without a call */
#define AGAIN_MAX 16
#define AGAIN_BYTES (64U * KIB) /* of one: it is kept, in memory and with its sandbox's row */
#define AGAIN_TENANT_BYTES (8U * MIB)
#define LOOSE NOTE_LOOSE "disk-" /* and the disk's id */

struct start_op {
	struct start_op *next;
	sandbox_done_fn *fn;
	void *arg;
};

struct sandbox_starting {
	struct sandbox *b;
	struct who who;
	bool open; /* for its files only */
	unsigned tries;
	uv_timer_t *timer;
	struct start_op *ops; /* callers that wait for its start */
	int r;
	struct err e;
	struct turn_wait wait;
};

/* --- stopped --- */

/* What does not run uses neither memory nor CPUs. */
static void uncharge(struct sandbox *b)
{
	struct tenant_quota less = b->charged;

	less.memory = less.cpu_milli = less.gpus = 0;
	tenant_give(b->tenant, &b->charged);
	tenant_force(b->tenant, &less);
	b->charged = less;
}

static void become_stopped(struct sandbox *b, const struct who *who, const char *why)
{
	log_info("sandbox %s is stopped: %s", b->id, why);
	sandbox_set_state(b, SANDBOX_STOPPED);
	agent_link_close(&b->link);
	sandbox_parts_lost(b, LOSS_STOPPED);
	sandbox_revive_over(b);
	b->handle = 0;
	b->found = b->synced = b->idle_paused = false;
	uncharge(b);
	sandbox_store(b, NULL);
	sandbox_note_state(b, who, "sandbox.stop");
}

void sandbox_stopped(struct sandbox *b, const char *why)
{
	const struct who nobody = { .tenant = b->tenant };

	become_stopped(b, &nobody, why);
}

static void on_ended(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct sandbox_op *op = arg;

	/* A warden that died on the way ends it when it finds it again: no row has its handle. */
	(void)r;
	(void)a;
	(void)e;
	sandbox_tell(op->sandbox->service, op, 0, NULL);
}

static int may_stop(const struct sandbox *b, struct err *e)
{
	if (!b->request->disk[0]) {
		err_set(e, WHY_FILES_IN_MEMORY, -EINVAL, "sandbox '%s' has its files in memory: they would be gone",
			b->request->name);
		err_remedy(e, "hibernate or delete it; only a sandbox with storage \"disk\" and isolation "
			      "\"container\" can be stopped");
		return -EINVAL;
	}
	if (b->state == SANDBOX_STOPPED || b->state == SANDBOX_LOST)
		return b->starting && b->starting->ops ?
			       err_set(e, WHY_BUSY, -EBUSY, "sandbox '%s' is being started", b->request->name) :
			       0;
	if ((b->state != SANDBOX_RUNNING && b->state != SANDBOX_PAUSED) || b->sleep || b->waking || b->swap)
		return err_set(e, WHY_WRONG_STATE, -EBUSY, "sandbox '%s' is %s, or changing its state",
			       b->request->name, sandbox_state_name(b->state));
	return 1;
}

void sandbox_stop(struct sandbox *b, const struct who *who, sandbox_done_fn *fn, void *arg)
{
	struct sandbox_op *op = sandbox_op_new(b, who, fn, arg);
	const uint64_t handle = b->handle;
	struct err e = { 0 };
	int r = may_stop(b, &e);

	if (r <= 0) {
		sandbox_tell(b->service, op, r, &e);
		return;
	}
	become_stopped(b, who, "stopped by a caller");
	warden_link_call(b->service->warden, WARDEN_DESTROY, handle, 0, NULL, on_ended, op);
}

/* --- started --- */

static void try_start(struct sandbox_starting *x);

static void free_timer(uv_handle_t *h)
{
	free(h);
}

static void begin_again(struct sandbox *b);

static void on_again(uv_timer_t *t)
{
	try_start(t->data);
}

static void on_stored(void *arg)
{
	struct sandbox_starting *x = arg;
	struct sandbox *b = x->b;
	struct start_op *op;

	b->starting = NULL;
	while ((op = x->ops)) {
		x->ops = op->next;
		if (op->fn)
			op->fn(op->arg, x->r, x->r < 0 ? &x->e : NULL);
		free(op);
	}
	sandbox_tell_waiters(b, x->r, x->r < 0 ? &x->e : NULL);
	uv_close((uv_handle_t *)x->timer, free_timer);
	sandbox_unref(b);
	free(x);
}

/* It was opened for its files, and now it is to be started. */
static void become_running(struct sandbox *b, const struct who *who)
{
	b->opened = false;
	sandbox_set_state(b, SANDBOX_RUNNING);
	b->synced = true;
	if (sandbox_store(b, NULL) == 0)
		sandbox_note_state(b, who, "sandbox.start");
}

static void on_made(void *arg, int r, const struct err *e)
{
	struct sandbox_starting *x = arg;
	struct sandbox *b = x->b;

	if (r == -EBUSY && ++x->tries < TRIES && (b->state == SANDBOX_STOPPED || b->state == SANDBOX_LOST)) {
		uv_timer_start(x->timer, on_again, AGAIN_MS, 0);
		return;
	}
	x->r = r;
	if (e)
		x->e = *e;
	/* It may have been deleted while the start was stored. */
	if (r == 0 && x->ops && b->opened && b->state != SANDBOX_ENDING)
		become_running(b, &x->who);
	if (r == 0 && b->state == SANDBOX_RUNNING)
		begin_again(b);
	turn_after(b->service->turn, &x->wait, on_stored, x);
}

static void try_start(struct sandbox_starting *x)
{
	struct sandbox *b = x->b;
	struct sandbox_request *w = NULL;
	struct err e = { 0 };
	int r = sandbox_request_again(b, &w, &e);

	if (r < 0) {
		on_made(x, r, &e);
		return;
	}
	w->memory = false;
	memcpy(w->disk, b->request->disk, sizeof(w->disk));
	w->disk_again = true;
	w->open = x->open;
	sandbox_replace(b, &x->who, w, on_made, x);
}

static struct sandbox_starting *starting_new(struct sandbox *b, const struct who *who)
{
	struct sandbox_starting *x = calloc(1, sizeof(*x));

	if (x)
		x->timer = malloc(sizeof(*x->timer));
	if (!x || !x->timer)
		abort();
	x->b = b;
	x->who = *who;
	uv_timer_init(b->service->loop, x->timer);
	x->timer->data = x;
	sandbox_ref(b);
	b->starting = x;
	return x;
}

void sandbox_start(struct sandbox *b, const struct who *who, sandbox_done_fn *fn, void *arg)
{
	struct sandbox_starting *x = b->starting;
	struct start_op *op;
	struct err e = { 0 };
	int r = 1;

	if (b->state == SANDBOX_RUNNING && !b->sleep && !b->waking)
		r = 0;
	else if (b->state != SANDBOX_STOPPED && b->state != SANDBOX_LOST) {
		r = err_set(&e, WHY_WRONG_STATE, -EBUSY, "sandbox '%s' is %s, not stopped", b->request->name,
			    sandbox_state_name(b->state));
		err_remedy(&e, "resume it");
	} else if (!b->request->disk[0])
		r = sandbox_lost(b, &e);
	else if (b->swap && !x)
		r = err_set(&e, WHY_BUSY, -EBUSY, "sandbox '%s' is being restored", b->request->name);
	else if (b->service->draining)
		r = err_set(&e, WHY_STOPPING, -ESHUTDOWN, "the daemon is stopping");
	if (r == 1 && !x && b->opened) {
		become_running(b, who);
		begin_again(b);
		r = 0;
	}
	if (r <= 0) {
		sandbox_tell(b->service, sandbox_op_new(b, who, fn, arg), r, &e);
		return;
	}
	op = calloc(1, sizeof(*op));
	if (!op)
		abort();
	op->fn = fn;
	op->arg = arg;
	if (x) {
		op->next = x->ops;
		x->ops = op;
		return;
	}
	x = starting_new(b, who);
	x->ops = op;
	try_start(x);
}

/* --- its files alone --- */

bool sandbox_open(struct sandbox *b, struct sandbox_waiter *w)
{
	const struct who daemon = { .tenant = b->tenant };
	struct sandbox_starting *x = b->starting;
	struct sandbox_waiter **last = &b->waiters;

	if ((b->state != SANDBOX_STOPPED && b->state != SANDBOX_LOST) || !b->request->disk[0] || b->opened ||
	    (b->swap && !x))
		return true;
	while (*last)
		last = &(*last)->next;
	w->next = NULL;
	*last = w;
	if (!x) {
		x = starting_new(b, &daemon);
		x->open = true;
		try_start(x);
	}
	return false;
}

void sandbox_close(struct sandbox *b)
{
	if (!b->opened)
		return;
	b->opened = false;
	agent_link_close(&b->link);
	sandbox_parts_lost(b, LOSS_CLOSED);
	if (b->handle)
		warden_link_call(b->service->warden, WARDEN_DESTROY, b->handle, 0, NULL, NULL, NULL);
	b->handle = 0;
	uncharge(b);
}

bool sandbox_open_tick(struct sandbox *b, uint64_t now)
{
	if (b->opened && !b->calls && !b->starting && now > b->used_ns + OPEN_NS)
		sandbox_close(b);
	return b->opened;
}

/* --- commands that are begun again --- */

static size_t again_bytes(struct service *s, const struct tenant *t)
{
	size_t at = 0, n = 0;
	struct sandbox *b;

	while ((b = map_next(&s->sandboxes, &at)))
		if (b->tenant == t && b->request->again)
			n += json_dumpb(b->request->again, NULL, 0, JSON_COMPACT);
	return n;
}

int sandbox_again_check(const struct sandbox *b, const json_t *spec, struct err *e)
{
	const size_t bytes = json_dumpb(spec, NULL, 0, JSON_COMPACT);

	if (!b->request->disk[0]) {
		err_set(e, ERR_INVALID, -EINVAL, "restart: sandbox '%s' does not survive a reboot", b->request->name);
		err_remedy(e, "create it with storage \"disk\" and isolation \"container\"");
		return -EINVAL;
	}
	if (json_array_size(b->request->again) >= AGAIN_MAX)
		return err_set(e, ERR_EXHAUSTED, -EAGAIN, "restart: at most %d commands of a sandbox", AGAIN_MAX);
	if (bytes > AGAIN_BYTES) {
		err_set(e, ERR_TOO_LARGE, -E2BIG, "restart: the command has %zu bytes; at most %llu can be stored",
			bytes, AGAIN_BYTES);
		err_remedy(e, "put its text into a file of the sandbox");
		return -E2BIG;
	}
	if (again_bytes(b->service, b->tenant) + bytes > AGAIN_TENANT_BYTES) {
		err_set(e, WHY_LIMIT, -EDQUOT,
			"restart: the commands of tenant '%s' take %llu bytes, which is the limit", b->tenant->id,
			AGAIN_TENANT_BYTES);
		err_remedy(e, "end commands that have `restart`, or delete their sandboxes");
		return -EDQUOT;
	}
	return 0;
}

int sandbox_again_add(struct sandbox *b, const char *exec, json_t *spec, struct err *e)
{
	json_t *one = json_pack("{s:s,s:o}", "exec", exec, "spec", spec);

	if (!b->request->again)
		b->request->again = json_array();
	if (!one || json_array_append_new(b->request->again, one) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a command");
	return sandbox_store(b, e);
}

void sandbox_again_drop(struct sandbox *b, const char *exec, const char *was)
{
	for (size_t i = 0; i < json_array_size(b->request->again); i++) {
		const char *id = json_string_value(json_object_get(json_array_get(b->request->again, i), "exec"));

		if (!id || (strcmp(id, exec) != 0 && strcmp(id, was) != 0))
			continue;
		json_array_remove(b->request->again, i);
		if (b->state != SANDBOX_ENDING)
			sandbox_store(b, NULL);
		return;
	}
}

static void begin_again(struct sandbox *b)
{
	json_t *list = b->request->again, *one;
	size_t i;

	json_array_foreach(list, i, one)
	{
		char id[ID_SIZE];
		struct err e = { 0 };

		if (b->service->commands->again(b, json_object_get(one, "spec"), id, &e) < 0) {
			log_warn("sandbox %s: cannot start a command again: %s", b->id, e.msg);
			continue;
		}
		json_object_set_new(one, "exec", json_string(id));
	}
	if (json_array_size(list))
		sandbox_store(b, NULL);
}

void sandbox_again_start_all(struct service *s)
{
	struct sandbox *b;
	size_t at = 0;

	while ((b = map_next(&s->sandboxes, &at))) {
		const struct who daemon = { .tenant = b->tenant };

		if ((b->state == SANDBOX_STOPPED || b->state == SANDBOX_LOST) && b->request->disk[0] &&
		    json_array_size(b->request->again))
			sandbox_start(b, &daemon, NULL, NULL);
	}
}

/* --- unused disks --- */

struct disk_sweep {
	struct service *s;
	bool due, busy;
	int notes; /* the folder, or -1 */
	struct map seen; /* disks that this sweep has come to */
	char at[ID_SIZE];
	struct turn_wait wait;
};

static void loose_name(const char *id, char ret[sizeof(LOOSE) + ID_SIZE])
{
	snprintf(ret, sizeof(LOOSE) + ID_SIZE, LOOSE "%s", id);
}

void disk_may_go(struct service *s, const char *id)
{
	char name[sizeof(LOOSE) + ID_SIZE];

	loose_name(id, name);
	fd_close(openat(s->disks->notes, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
	disk_sweep_soon(s);
}

static bool is_loose(const struct disk_sweep *d, const char *id)
{
	char name[sizeof(LOOSE) + ID_SIZE];
	struct stat st;

	loose_name(id, name);
	return fstatat(d->notes, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void forget_loose(const struct disk_sweep *d, const char *id)
{
	char name[sizeof(LOOSE) + ID_SIZE];

	loose_name(id, name);
	unlinkat(d->notes, name, 0);
}

int disk_sweep_new(struct service *s, struct disk_sweep **ret, struct err *e)
{
	struct disk_sweep *d = calloc(1, sizeof(*d));
	char path[1100];

	if (!d)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for disks");
	snprintf(path, sizeof(path), "%s/" NOTES_FOLDER, s->o.data);
	d->notes = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	d->s = s;
	d->due = true; /* of sandboxes that were half-made when we died */
	*ret = d;
	return 0;
}

void disk_sweep_soon(struct service *s)
{
	s->disks->due = true;
	service_soon(s);
}

static const struct sandbox *disk_user(const struct service *s, const char *id)
{
	const struct sandbox *b;
	size_t at = 0;

	while ((b = map_next(&s->sandboxes, &at)))
		if (b->request && !strcmp(b->request->disk, id))
			return b;
	return NULL;
}

/* Of one that is made it says nothing any more. */
static void look_at_used(const struct disk_sweep *d, const struct sandbox *b)
{
	if (!is_loose(d, d->at))
		return;
	if (b->state == SANDBOX_MAKING)
		disk_sweep_soon(d->s);
	else if (b->state != SANDBOX_ENDING)
		forget_loose(d, d->at);
}

static void ask_next(struct disk_sweep *d);

struct removal {
	struct disk_sweep *d;
	char id[ID_SIZE];
};

static void on_removed(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	AUTO_FREE struct removal *x = arg;

	(void)a;
	if (r == 0)
		forget_loose(x->d, x->id);
	else if (r == -EBUSY) /* its last process has not ended yet */
		disk_sweep_soon(x->d->s);
	else
		log_warn("cannot remove a disk: %s", e ? e->msg : "the warden has ended");
}

static void remove_disk(struct disk_sweep *d)
{
	const bool loose = is_loose(d, d->at);
	struct removal *x = calloc(1, sizeof(*x));

	if (!x)
		abort();
	x->d = d;
	memcpy(x->id, d->at, sizeof(x->id));
	if (!loose)
		log_warn("disk %s is in no row and is not marked for removal: it is moved to the quarantine", d->at);
	warden_link_call_layer(d->s->warden, WARDEN_DISK_REMOVE, 0, !loose, d->at, on_removed, x);
}

/* Everything up to now is stored: no row will use the disk again. */
static void on_settled(void *arg)
{
	struct disk_sweep *d = arg;

	if (!disk_user(d->s, d->at))
		remove_disk(d);
	ask_next(d);
}

/* Of files whose disk is not there: it was never made, or its end was not noted any more. */
static void drop_unseen(const struct disk_sweep *d)
{
	const size_t skip = strlen(LOOSE);
	int fd = d->notes < 0 ? -1 : openat(d->notes, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *x;

	if (!dir) {
		fd_close(fd);
		return;
	}
	while ((x = readdir(dir))) {
		const char *id = x->d_name + skip;

		if (!strncmp(x->d_name, LOOSE, skip) && id_valid(id) && !map_get(&d->seen, id) && !disk_user(d->s, id))
			forget_loose(d, id);
	}
	closedir(dir);
}

static void on_disk(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct disk_sweep *d = arg;
	const struct sandbox *b;

	if (r < 0 || !a || !a->rep->id[0]) {
		if (r < 0)
			log_warn("cannot list the disks: %s", e ? e->msg : "the warden has ended");
		else
			drop_unseen(d);
		d->busy = false;
		return;
	}
	memcpy(d->at, a->rep->id, ID_LEN);
	if (map_put(&d->seen, d->at, d) < 0)
		abort();
	b = disk_user(d->s, d->at);
	if (!b) {
		turn_after(d->s->turn, &d->wait, on_settled, d);
		return;
	}
	look_at_used(d, b);
	ask_next(d);
}

static void ask_next(struct disk_sweep *d)
{
	warden_link_call_layer(d->s->warden, WARDEN_DISKS, 0, 0, d->at[0] ? d->at : NULL, on_disk, d);
}

bool disk_sweep_tick(struct service *s)
{
	struct disk_sweep *d = s->disks;

	if (!s->warden || !d->due || d->busy || s->o.recover || service_unread(s))
		return d->busy;
	d->due = false;
	d->busy = true;
	map_done(&d->seen);
	if (map_init(&d->seen) < 0)
		abort();
	memset(d->at, 0, sizeof(d->at));
	ask_next(d);
	return true;
}
