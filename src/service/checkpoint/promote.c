/* Applies a fork's changes to the sandbox it came from. */
#include "service/checkpoint/promote.h"
#include "base/base.h"
#include "base/map.h"
#include "proto/change.h"
#include "service/checkpoint/compare.h"
#include "service/state/event.h"
#include "service/file/file.h"
#include "service/checkpoint/vm_mirror.h"
#include "service/checkpoint/seal.h"
#include "service/file/tar_child.h"
#include "service/sandbox/struct.h"
#include "tier/tiers.h"
#include "service/checkpoint/struct.h"

#include <sys/stat.h>

#define ENTRIES_MAX 200000U

/* What is compared: since the fork, the fork has changed THEIRS and the other OURS; now they differ in APART. */
enum list { THEIRS, OURS, APART, LISTS };
/* What the lists are of. */
enum { BASE, FROM, INTO, MIRRORS };

struct promote {
	struct service *s;
	struct who who;
	struct sandbox *into, *from; /* referenced and in use */
	bool force;
	struct sandbox_spec *base; /* the layers the fork began with */
	struct checkpoint *root; /* machines: as a checkpoint, and of each state */
	struct vm_mirror *mirror[MIRRORS];
	unsigned mirrors; /* that are made */
	enum list at;
	struct buf stream[LISTS];
	uv_work_t work;
	struct change_end end[LISTS];
	uint64_t bytes, nconflicts;
	struct buf conflicts;
	struct json json; /* into it */
	promote_fn *fn;
	void *arg;
	int r;
	struct err e;
	struct turn_wait wait;
};

static void promote_free(struct promote *p)
{
	for (unsigned i = 0; i < LISTS; i++)
		buf_done(&p->stream[i]);
	for (unsigned i = 0; i < MIRRORS; i++)
		vm_mirror_free(p->mirror[i]);
	checkpoint_unref(p->root);
	buf_done(&p->conflicts);
	p->into->promoting = false;
	sandbox_rest(p->into);
	sandbox_rest(p->from);
	sandbox_unref(p->into);
	sandbox_unref(p->from);
	free(p->base);
	free(p);
}

static void on_told(void *arg)
{
	struct promote *p = arg;
	const struct promote_result x = { p->end[THEIRS].added, p->end[THEIRS].changed, p->end[THEIRS].removed,
					  buf_str(&p->conflicts), p->nconflicts };
	bool told = p->r == 0 || p->r == -EEXIST;

	p->fn(p->arg, told ? &x : NULL, p->r < 0 ? &p->e : NULL);
	promote_free(p);
}

static void finish(struct promote *p, int r)
{
	p->r = r;
	turn_after(p->s->turn, &p->wait, on_told, p);
}

/* --- conflicts: in a worker's thread, which sees nothing but streams --- */

struct known {
	uint8_t what;
	bool no_folder; /* it is not one, now: nothing can be below it */
	bool told; /* as a conflict */
};

struct judge {
	struct map by_path[LISTS];
};

/* Calls @fn for each entry of a stream; its end goes to *ret. */
static int each(const struct buf *b, int (*fn)(void *arg, const struct change_entry *x), void *arg,
		struct change_end *ret)
{
	struct change_frame f;
	struct change_entry x;
	size_t at = 0;
	long n;
	int r = 0;

	while (r == 0 && (n = change_decode((const uint8_t *)buf_str(b) + at, b->len - at, &f)) > 0) {
		at += (size_t)n;
		if (f.type == CHANGE_END)
			return change_end_decode(&f, ret);
		r = f.type == CHANGE_ENTRY ? change_entry_decode(&f, &x) : 0;
		if (r == 0 && f.type == CHANGE_ENTRY)
			r = fn(arg, &x);
	}
	return r < 0 ? r : -EBADMSG;
}

static int remember(void *arg, const struct change_entry *x)
{
	struct known *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return -ENOMEM;
	*k = (struct known){ x->what, x->what == CHANGE_REMOVED || !S_ISDIR(x->mode), false };
	r = map_put(arg, x->path, k);
	if (r < 0)
		free(k);
	return r;
}

/* Whether something above @path was taken away, or is no folder any more. */
static bool cut_off(const struct map *m, const char *path)
{
	char above[CHANGE_PATH_MAX];
	size_t n = strlen(path);

	memcpy(above, path, n + 1);
	while (n > 1) {
		const struct known *k;

		for (n--; n && above[n] != '/'; n--)
			;
		above[n] = '\0';
		k = n ? map_get(m, above) : NULL;
		if (k && k->no_folder)
			return true;
	}
	return false;
}

struct looking {
	struct promote *p;
	struct judge *j;
};

static void conflict(struct promote *p, const char *path)
{
	if (p->nconflicts++ < CONFLICTS_TOLD)
		jout_str(&p->json, NULL, path);
}

/* Of a file with holes its data. */
static uint64_t room_for(const struct change_entry *x)
{
	uint64_t at, len, all = 0;

	for (uint32_t i = 0; i < x->nextents; i++) {
		change_extent(x, i, &at, &len);
		all += len;
	}
	return x->nextents ? all : x->size;
}

static int look_theirs(void *arg, const struct change_entry *x)
{
	struct looking *l = arg;
	struct known *ours = map_get(&l->j->by_path[OURS], x->path);

	if (x->what != CHANGE_REMOVED && S_ISREG(x->mode))
		l->p->bytes += room_for(x);
	if ((ours && map_get(&l->j->by_path[APART], x->path)) ||
	    (x->what != CHANGE_REMOVED && cut_off(&l->j->by_path[OURS], x->path))) {
		conflict(l->p, x->path);
		if (ours)
			ours->told = true;
	}
	return 0;
}

static int look_ours(void *arg, const struct change_entry *x)
{
	struct looking *l = arg;
	const struct known *ours = map_get(&l->j->by_path[OURS], x->path);

	if (x->what != CHANGE_REMOVED && !(ours && ours->told) && cut_off(&l->j->by_path[THEIRS], x->path))
		conflict(l->p, x->path);
	return 0;
}

static int judge(struct promote *p, struct judge *j)
{
	struct looking l = { p, j };
	int r = 0;

	for (unsigned i = 0; r == 0 && i < LISTS; i++) {
		r = each(&p->stream[i], remember, &j->by_path[i], &p->end[i]);
		if (r == 0 && p->end[i].errnum)
			return err_set(&p->e,
				       p->end[i].kind < ERR_KIND_COUNT ? (enum err_kind)p->end[i].kind : ERR_INTERNAL,
				       -EIO, "compare: %s", p->end[i].msg);
		if (r == 0 && p->end[i].truncated)
			return err_set(&p->e, ERR_TOO_LARGE, -E2BIG, "more than %u changes", ENTRIES_MAX);
	}
	jout_array(&p->json, NULL);
	if (r == 0)
		r = each(&p->stream[THEIRS], look_theirs, &l, &p->end[THEIRS]);
	if (r == 0)
		r = each(&p->stream[OURS], look_ours, &l, &p->end[OURS]);
	jout_end(&p->json);
	if (r == 0)
		r = jout_done(&p->json);
	return r < 0 ? err_sys(&p->e, ERR_INTERNAL, r, "read the lists of changes") : 0;
}

static void run(uv_work_t *w)
{
	struct promote *p = w->data;
	struct judge j = { 0 };
	int r = 0;

	for (unsigned i = 0; r == 0 && i < LISTS; i++)
		r = map_init(&j.by_path[i]);
	p->r = r < 0 ? err_sys(&p->e, ERR_EXHAUSTED, r, "no memory to compare") : judge(p, &j);
	for (unsigned i = 0; i < LISTS; i++) {
		size_t at = 0;
		void *k;

		while ((k = map_next(&j.by_path[i], &at)))
			free(k);
		map_done(&j.by_path[i]);
		buf_done(&p->stream[i]);
	}
}

/* --- doing it --- */

static void note(struct promote *p)
{
	struct audit_rec rec = who_rec(&p->who, "sandbox.promote");
	struct json *j;
	char from[64];

	rec.tenant = p->into->tenant->id;
	rec.sandbox = p->into->id;
	j = audit_begin(p->s->audit, &rec);
	jout_str(j, "from", p->from->id);
	jout_u64(j, "added", p->end[THEIRS].added);
	jout_u64(j, "changed", p->end[THEIRS].changed);
	jout_u64(j, "removed", p->end[THEIRS].removed);
	jout_u64(j, "conflicts", p->nconflicts);
	jout_bool(j, "done", p->r == 0);
	audit_end(p->s->audit, NULL);
	snprintf(from, sizeof(from), "\"from\":\"%s\"", p->from->id);
	event_add(p->s, p->into, "sandbox.promoted", from);
	turn_dirty(p->s->turn);
}

static void on_applied(void *arg, int r, json_t *result, const struct err *e)
{
	struct promote *p = arg;

	(void)result;
	p->r = r;
	note(p); /* also of half of it: it is not what it was */
	if (r < 0) {
		p->e = *e;
		err_wrap(&p->e, r, "some of the changes may have been applied");
		err_remedy(&p->e, "compare with the fork (diff), and promote again");
		if (p->e.kind == ERR_INVALID || p->e.kind == ERR_TOO_LARGE)
			err_because(&p->e, WHY_REFUSED);
		r = -EIO;
	}
	finish(p, r);
}

static void on_content(void *arg, int fd, const struct err *e)
{
	struct user_request root = { .text = "root" };
	struct promote *p = arg;
	struct tar_child_plan plan = { .mode = "apply",
				       .option = { "--files", "--changes" },
				       .tenant = p->into->tenant };
	AUTO_CLOSE int changes = fd, files = -1;
	struct tar_child *child;
	int r;

	if (fd < 0) {
		p->e = *e;
		finish(p, -EIO);
		return;
	}
	r = file_worker_open(p->into, &root, &files, &p->e);
	if (r == 0) {
		plan.fd[0] = files;
		plan.fd[1] = changes;
		r = tar_child_start(p->s, &plan, on_applied, p, &child, &p->e);
	}
	if (r < 0)
		finish(p, r == -EEXIST ? -EIO : r);
}

/* What has the files of each. */
static int mirrored(struct promote *p, struct compare_request *w)
{
	struct sandbox *base = vm_mirror_sandbox(p->mirror[BASE]), *from = vm_mirror_sandbox(p->mirror[FROM]);
	struct sandbox *into = vm_mirror_sandbox(p->mirror[INTO]);

	if (!base || !from || !into)
		return err_set(&p->e, WHY_SANDBOX_LOST, -ESTALE, "a scratch sandbox for the files has ended");
	w->from.sandbox = w->from.chain ? base : into;
	w->from.chain = NULL;
	w->to.sandbox = w->to.sandbox == p->into ? into : from;
	return 0;
}

static void on_stat(void *arg, int r, const struct err *e)
{
	struct promote *p = arg;
	const struct warden_stat *st = &p->into->stat;
	struct compare_request w = { .from.chain = p->base, .to.sandbox = p->from, .flags = DIFF_DATA };

	if (r < 0)
		p->e = *e;
	else if (st->disk_used + p->bytes > st->disk_size && p->bytes > 65536)
		r = err_set(&p->e, WHY_DISK_FULL, -ENOSPC,
			    "the changes need %llu bytes, but sandbox '%s' has only %llu left",
			    (unsigned long long)p->bytes, p->into->request->name,
			    (unsigned long long)(st->disk_size - st->disk_used));
	if (r == 0 && p->mirrors)
		r = mirrored(p, &w);
	if (r == 0)
		r = compare_open(p->s, &w, on_content, p, &p->e);
	if (r < 0)
		finish(p, r == -EEXIST ? -EIO : r);
}

static void judged(uv_work_t *work, int status)
{
	struct promote *p = work->data;

	(void)status;
	if (p->r < 0) {
		finish(p, p->r == -EEXIST ? -EIO : p->r);
		return;
	}
	if (p->nconflicts && !p->force) {
		err_set(&p->e, WHY_PROMOTE_CONFLICT, 0, "both have changed %llu path%s differently",
			(unsigned long long)p->nconflicts, p->nconflicts == 1 ? "" : "s");
		err_remedy(&p->e, "--force (`force`) uses the fork's version");
		finish(p, -EEXIST);
		return;
	}
	sandbox_stat(p->into, on_stat, p);
}

/* --- the lists --- */

static int next_list(struct promote *p);

static void on_list(void *arg, struct buf *stream, const struct err *e)
{
	struct promote *p = arg;
	int r = 0;

	if (!stream) {
		p->e = *e;
		finish(p, -EIO);
		return;
	}
	p->stream[p->at++] = *stream;
	*stream = (struct buf){ 0 };
	if (p->at < LISTS) {
		r = next_list(p);
		if (r < 0)
			finish(p, r == -EEXIST ? -EIO : r);
		return;
	}
	p->work.data = p;
	uv_queue_work(p->s->loop, &p->work, run, judged);
}

static int next_list(struct promote *p)
{
	struct compare_request w = { .max = ENTRIES_MAX, .to.sandbox = p->at == OURS ? p->into : p->from };
	int r;

	if (p->at == APART)
		w.from.sandbox = p->into;
	else
		w.from.chain = p->base;
	r = p->mirrors ? mirrored(p, &w) : 0;
	return r < 0 ? r : compare_list(p->s, &w, on_list, p, &p->e);
}

/* --- machines: the lists are of what has the same files --- */

static int next_mirror(struct promote *p);

static void on_mirror(void *arg, struct vm_mirror *m, const struct err *e)
{
	struct promote *p = arg;
	int r;

	if (!m) {
		p->e = *e;
		finish(p, -EIO);
		return;
	}
	p->mirror[p->mirrors++] = m;
	r = p->mirrors < MIRRORS ? next_mirror(p) : next_list(p);
	if (r < 0)
		finish(p, r == -EEXIST ? -EIO : r);
}

static int next_mirror(struct promote *p)
{
	const struct state of[MIRRORS] = { { .checkpoint = p->root }, { .sandbox = p->from }, { .sandbox = p->into } };

	return vm_mirror_make(p->s, &of[p->mirrors], on_mirror, p, &p->e);
}

/* A clone of it is asked: as the fork is, but with fewer layers. */
static int begin_machines(struct promote *p)
{
	AUTO(buf_done) struct buf text = BUF_INIT(4 * MIB);
	struct json j = JSON_INIT(&text);

	p->root = checkpoint_alloc(p->s, p->from->tenant);
	memcpy(p->root->id, p->base->layer[p->base->layers - 1], sizeof(p->root->id));
	p->root->chain->layers = p->base->layers;
	memcpy(p->root->chain->layer, p->base->layer, sizeof(p->base->layer));
	jout_object(&j, NULL);
	sandbox_request_write_config(p->from->request, &j);
	jout_end(&j);
	p->root->config = jout_done(&j) < 0 ? NULL : buf_take(&text);
	return p->root->config ? next_mirror(p) : err_set(&p->e, ERR_EXHAUSTED, -ENOMEM, "no memory to compare");
}

/*
 * Finds the state that the fork began with: the layers of the other sandbox, and then the layer that was sealed of
 * it.
 */
static int find_base(const struct sandbox *into, const struct sandbox *from, struct sandbox_spec **ret, struct err *e)
{
	const struct sandbox_spec *a = into->request->spec, *b = from->request->spec;
	struct sandbox_spec *s;
	uint32_t same = 0;

	/*
	 * The fork's next layer is the parent's state at that time. The parent's own layers may be others now, since it
	 * has slept.
	 */
	while (same < a->layers && same < b->layers && !memcmp(a->layer[same], b->layer[same], sizeof(a->layer[0])))
		same++;
	if (into == from || into->tenant != from->tenant || strcmp(a->image, b->image) ||
	    (a->flags ^ b->flags) & SPEC_TIERS || b->layers <= same) {
		err_set(e, WHY_NOT_A_FORK, -EINVAL, "'%s' is not a fork of '%s'", from->request->name,
			into->request->name);
		err_remedy(e, "only a fork of a sandbox can be promoted into it");
		return -EINVAL;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		abort();
	s->layers = same + 1;
	memcpy(s->layer, b->layer, s->layers * sizeof(s->layer[0]));
	*ret = s;
	return 0;
}

int promote_start(const struct promote_request *w, const struct who *who, promote_fn *fn, void *arg, struct err *e)
{
	struct sandbox_spec *base = NULL;
	struct promote *p;
	int r = sandbox_ready(w->into, e);

	if (r == 0 && w->into->promoting)
		r = err_set(e, WHY_BUSY, -EBUSY, "another fork is being promoted into '%s'", w->into->request->name);
	if (r == 0)
		r = find_base(w->into, w->from, &base, e);
	if (r < 0)
		return r;
	p = calloc(1, sizeof(*p));
	if (!p)
		abort();
	*p = (struct promote){
		.s = w->into->service, .who = *who, .into = w->into, .from = w->from, .force = w->force, .base = base
	};
	p->fn = fn;
	p->arg = arg;
	p->conflicts = (struct buf)BUF_INIT(32 * MIB);
	p->json = (struct json)JSON_INIT(&p->conflicts);
	sandbox_ref(p->into);
	sandbox_use(p->into);
	sandbox_ref(p->from);
	sandbox_use(p->from);
	r = tier_is_machine(p->into->request->spec->flags) ? begin_machines(p) : next_list(p);
	if (r < 0) {
		*e = p->e;
		promote_free(p);
		return r;
	}
	p->into->promoting = true;
	return 0;
}
