/*
 * RUN --mount. A folder (bind of a folder, cache, tmpfs) is a tmpfs of the step's sandbox that is filled before the
 * command runs; a bound file is put in its place, and removed before the layer is sealed. A secret is a file of /dev/shm,
 * which is in memory and in no layer, with a symbolic link at its place: the command cannot make it a part of the layer by
 * another name. A cache is
 * kept as a layer of its own, which the build cache names: each step works on a copy, and the result of the last one to
 * end is kept.
 */
#include "base/base.h"
#include "base/base64.h"
#include "service/file/file.h"
#include "service/image/build_impl.h"

#include <sys/stat.h>

#define SIZE (1ULL << 30) /* of a tmpfs without a size */
#define CACHE_FOLDER "/cache"
#define SECRETS "/dev/shm/build-secret"

struct mount {
	struct run_mount m;
	char *target; /* absolute */
	char *secret; /* decoded */
	bool skip; /* nothing to be done */
	bool put; /* a secret: its file is there, the link is not yet */
	bool file; /* a file that is put in place and removed again */
	char *made; /* and: the topmost folder that was made for it */
	struct build_box *from;
	char chain[OCI_DIGEST_SIZE]; /* of ->from */
	char key[BUILD_KEY]; /* of a cache */
};

struct build_mounts {
	struct build *b;
	size_t n, at;
	struct mount mount[BUILD_BOX_TMPFS];
	enum { SELECT, FILL, REMOVE, SAVE } phase;
	char *key; /* SELECT: the key that digests are added to */
	struct build_box *box; /* SAVE: the cache's sandbox */
	struct buf spec;
	struct file_op *op;
	build_mounts_fn *then;
	struct turn_wait wait;
};

static void step(struct build_mounts *x);
static void put_secret(struct build_mounts *x);

static void fail(struct build_mounts *x, int r, const struct err *e)
{
	struct err why = *e;

	err_wrap(&why, r, "line %u: RUN --mount of '%.100s'", x->b->step.in->line,
		 x->at < x->n && x->mount[x->at].target ? x->mount[x->at].target : "");
	build_fail(x->b, r, &why);
}

void build_mounts_free(struct build_mounts *x)
{
	if (!x)
		return;
	for (size_t i = 0; i < x->n; i++) {
		struct mount *m = &x->mount[i];

		run_mount_done(&m->m);
		build_box_free(m->from);
		free(m->target);
		free(m->secret);
		free(m->made);
	}
	if (x->op)
		file_cancel(x->op);
	build_box_free(x->box);
	buf_done(&x->spec);
	turn_cancel(&x->wait);
	free(x);
}

/* --- options --- */

static int secret_of(struct build *b, struct mount *m, struct err *e)
{
	const char *id = m->m.id		   ? m->m.id :
			 m->m.source		   ? m->m.source :
			 strrchr(m->m.target, '/') ? strrchr(m->m.target, '/') + 1 :
						     m->m.target;
	const char *coded = json_string_value(json_object_get(json_object_get(b->request, "secrets"), id));
	ssize_t n;

	if (!coded && m->m.required)
		return err_set(e, ERR_INVALID, -EINVAL,
			       "--mount=type=secret: the build was not given the secret '%.60s'", id);
	if (!coded) {
		m->skip = true;
		return 0;
	}
	m->secret = calloc(1, strlen(coded) + 1);
	n = m->secret ? base64_decode(coded, strlen(coded), m->secret) : -ENOMEM;
	if (n < 0 || memchr(m->secret, '\0', (size_t)n))
		return err_set(e, ERR_INVALID, -EINVAL, "the secret '%.60s' must be base64 of text without NUL bytes",
			       id);
	if (!m->m.target && m->m.env)
		m->skip = true; /* only as a variable */
	else if (!m->m.target && asprintf(&m->m.target, "/run/secrets/%s", id) < 0)
		m->m.target = NULL;
	m->file = true;
	return 0;
}

static int one(struct build_mounts *x, const char *text, struct err *e)
{
	struct mount *m = &x->mount[x->n];
	const struct expand ex = build_expand(x->b);
	const char *chain;
	int r;

	if (x->n == BUILD_BOX_TMPFS)
		return err_set(e, ERR_UNSUPPORTED, -ENOTSUP, "more than %u --mount", BUILD_BOX_TMPFS);
	r = run_mount_parse(text, &ex, &m->m, e);
	if (r < 0)
		return r;
	x->n++;
	if (m->m.type == MOUNT_SECRET)
		r = secret_of(x->b, m, e);
	if (r == 0 && m->m.target)
		m->target = build_absolute(x->b, m->m.target);
	if (r == 0 && !m->target && !m->skip)
		r = err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a build");
	if (r == 0 && m->m.from) {
		r = build_from(x->b, m->m.from, &chain, e);
		snprintf(m->chain, sizeof(m->chain), "%s", r == 0 ? chain : "");
	}
	if (r == 0 && m->m.type == MOUNT_BIND && !m->m.from && !x->b->has_context)
		r = err_set(e, ERR_INVALID, -EINVAL, "the build has no context to mount");
	if (r == 0 && m->m.type == MOUNT_CACHE) {
		const char *all[] = { "cache mount", m->m.id ? m->m.id : m->target };

		build_key(m->key, all, ARRAY_LEN(all));
	}
	return r;
}

int build_mounts_new(struct build *b, struct build_mounts **ret, struct err *e)
{
	struct build_mounts *x = calloc(1, sizeof(*x));
	const char *text;
	size_t at = 0;
	int r = 0;

	if (!x)
		abort();
	x->b = b;
	x->spec = (struct buf)BUF_INIT(4U << 20);
	while (r == 0 && (text = instruction_flag(b->step.in, "mount", &at)))
		r = one(x, text, e);
	if (r < 0)
		build_mounts_free(x);
	else
		*ret = x;
	return r;
}

void build_mounts_plan(const struct build_mounts *x, struct build_box_plan *p)
{
	unsigned n = 0;

	for (size_t i = 0; i < x->n; i++) {
		const struct mount *m = &x->mount[i];

		if (m->skip || m->file)
			continue;
		p->tmpfs[n] = m->target;
		p->tmpfs_size[n++] = m->m.size ? m->m.size : SIZE;
	}
}

void build_mounts_env(const struct build_mounts *x, json_t *env)
{
	for (size_t i = 0; i < x->n; i++)
		if (x->mount[i].m.env && x->mount[i].secret)
			json_object_set_new(env, x->mount[i].m.env, json_string(x->mount[i].secret));
}

/* --- the phases: one mount after the other --- */

static void over(void *arg)
{
	struct build_mounts *x = arg;

	x->then(x->b);
}

static void go_on(void *arg)
{
	struct build_mounts *x = arg;

	x->at++;
	step(x);
}

/* Continues later, not from within a callback. */
static void next(struct build_mounts *x)
{
	turn_after(x->b->s->turn, &x->wait, go_on, x);
}

static void begin(struct build_mounts *x, build_mounts_fn *then)
{
	x->then = then;
	x->at = (size_t)-1;
	next(x);
}

/* The specification without the destination. @ret_source: whose files. */
static int source_spec(struct build_mounts *x, struct mount *m, struct build_box **ret_source)
{
	struct buf *s = &x->spec;
	bool context = m->m.type == MOUNT_BIND && !m->m.from;
	int r = 0;

	buf_clear(s);
	*ret_source = context ? x->b->context : m->from;
	if (context) {
		r = build_pair(s, "under", "/context");
		if (r == 0)
			r = build_pair(s, "ignore", "1");
		if (r == 0)
			r = build_pair(s, "owner", "1");
	} else if (m->m.type == MOUNT_CACHE) {
		r = build_pair(s, "under", CACHE_FOLDER);
	}
	if (r == 0)
		r = build_pair(s, "source", m->m.type == MOUNT_CACHE || !m->m.source ? "." : m->m.source);
	return r;
}

static void on_tar(void *arg, int r, json_t *result, const struct err *e)
{
	struct build *b = arg;
	struct build_mounts *x = b->mounts;
	struct mount *m;

	b->child = NULL;
	if (b->ended) {
		build_child_gone(b);
		return;
	}
	if (r < 0) {
		fail(x, r, e);
		return;
	}
	m = &x->mount[x->at];
	if (x->phase == SELECT) {
		const char *all[] = { "mount", json_string_value(json_object_get(result, "digest")) };

		if (all[1])
			build_key(x->key, all, ARRAY_LEN(all));
		m->file = json_is_true(json_object_get(result, "file"));
	} else if (x->phase == FILL && m->m.type == MOUNT_SECRET && !m->put) {
		m->put = true;
		put_secret(x);
		return;
	} else if (x->phase == FILL && m->file) {
		const char *made = json_string_value(json_object_get(result, "made"));

		m->made = made ? strdup(made) : NULL;
	}
	next(x);
}

static void tar(struct build_mounts *x, struct build_box *source, struct build_box *to)
{
	struct err e = { 0 };
	int r = build_tar(x->b, source, to, &x->spec, on_tar, &e);

	if (r < 0)
		fail(x, r, &e);
}

/* Called when the source's sandbox is ready. */
static void with_source(struct build_mounts *x)
{
	struct mount *m = &x->mount[x->at];
	struct build_box *source, *to = x->phase == FILL ? x->b->step.box : NULL;
	struct err e = { 0 };
	int r = source_spec(x, m, &source);

	if (r == 0 && to)
		r = build_pair(&x->spec, "dest", m->target);
	if (r == 0 && to && !m->file)
		r = build_pair(&x->spec, "folder", "1");
	if (r == 0 && to && m->file)
		r = build_pair(&x->spec, "absent", "1");
	if (r < 0) {
		err_set(&e, ERR_EXHAUSTED, r, "no memory for a build");
		fail(x, r, &e);
		return;
	}
	tar(x, source, to);
}

static void on_source(void *arg, const struct err *e)
{
	struct build_mounts *x = arg;

	if (x->b->ended)
		return;
	if (e)
		fail(x, -EIO, e);
	else
		with_source(x);
}

static void open_source(struct build_mounts *x, const char *chain)
{
	struct mount *m = &x->mount[x->at];
	const struct build_box_plan p = { .chain = chain, .memory = true };
	struct err e = { 0 };
	int r;

	if (m->from) {
		with_source(x);
		return;
	}
	r = build_box_make(x->b->s, &x->b->who, &p, on_source, x, &m->from, &e);
	if (r < 0)
		fail(x, r, &e);
}

static void put_secret(struct build_mounts *x)
{
	struct mount *m = &x->mount[x->at];
	struct err e = { 0 };
	char file[64], owner[32], mode[16];
	int r;

	snprintf(file, sizeof(file), SECRETS "-%zu", x->at);
	snprintf(owner, sizeof(owner), "%u:%u", m->m.has_uid ? m->m.uid : 0, m->m.has_gid ? m->m.gid : 0);
	snprintf(mode, sizeof(mode), "%o", m->m.has_mode ? m->m.mode & 07777 : 0400);
	buf_clear(&x->spec);
	r = build_pair(&x->spec, "here", "secret");
	if (r == 0)
		r = build_pair(&x->spec, "content", m->put ? file : m->secret);
	if (r == 0 && m->put)
		r = build_pair(&x->spec, "symlink", "1");
	if (r == 0 && !m->put)
		r = build_pair(&x->spec, "chown", owner);
	if (r == 0 && !m->put)
		r = build_pair(&x->spec, "chmod", mode);
	if (r == 0)
		r = build_pair(&x->spec, "dest", m->put ? m->target : file);
	if (r == 0)
		r = build_pair(&x->spec, "absent", "1");
	if (r < 0) {
		err_set(&e, ERR_TOO_LARGE, r, "the secret is too long");
		fail(x, r, &e);
		return;
	}
	tar(x, NULL, x->b->step.box);
}

static void fill(struct build_mounts *x)
{
	struct mount *m = &x->mount[x->at];
	char chain[OCI_DIGEST_SIZE];
	uint64_t used;

	switch (m->m.type) {
	case MOUNT_SECRET:
		put_secret(x);
		return;
	case MOUNT_TMPFS:
		break;
	case MOUNT_CACHE:
		if (build_cache_get(x->b->s->db, x->b->who.tenant->id, m->key, chain, sizeof(chain), &used) <= 0 ||
		    !image_chain_find(x->b->s, chain))
			break;
		open_source(x, chain);
		return;
	case MOUNT_BIND:
		if (m->m.from)
			open_source(x, m->chain);
		else
			with_source(x);
		return;
	}
	next(x);
}

/* --- after the command --- */

static void remove_next(struct build_mounts *x);

static void on_removed(void *arg, int r, const struct file_end *end, unsigned flags, const struct err *e)
{
	struct build_mounts *x = arg;
	struct mount *m = &x->mount[x->at];
	const uint32_t errnum = end ? end->errnum : 0;

	(void)flags;
	x->op = NULL;
	/*
	 * The file itself must be removed, if the command has not done that; a folder that was made for it stays if the
	 * command has put something there.
	 */
	if (r < 0 && (!errnum || (m->file && errnum != ENOENT))) {
		fail(x, r, e);
		return;
	}
	if (!m->file && errnum) {
		next(x);
		return;
	}
	m->file = false;
	remove_next(x);
}

static const struct file_calls remove_calls = { .done = on_removed };

/* Removes the file, then the folders above it that were made for it. */
static void remove_next(struct build_mounts *x)
{
	const struct user_request root = { .text = "root" };
	struct mount *m = &x->mount[x->at];
	struct file_request q = { .path = m->target };
	struct sandbox *b = build_box_sandbox(x->b->step.box);
	struct err e = { 0 };
	char *slash;
	int r;

	if (!m->file) {
		slash = m->made ? strrchr(m->target, '/') : NULL;
		if (!slash || slash == m->target || strlen(m->target) - strlen(slash) < strlen(m->made) + 1) {
			next(x);
			return;
		}
		*slash = '\0';
	}
	if (!b)
		r = err_set(&e, WHY_SANDBOX_LOST, -EIO, "the sandbox of the step has ended");
	else
		r = file_begin(b, &root, FILE_REMOVE, 0, &q, &remove_calls, x, &x->op, &e);
	if (r < 0)
		fail(x, r, &e);
}

static void on_saved(void *arg, struct image_chain *c, const struct err *e)
{
	struct build_mounts *x = arg;
	struct err why = { 0 };
	int r;

	if (!c) {
		fail(x, -EIO, e);
		return;
	}
	r = build_note_step(x->b, x->mount[x->at].key, c->id, &why);
	image_chain_unpin(c);
	if (r < 0) {
		fail(x, r, &why);
		return;
	}
	build_box_free(TAKE_PTR(x->box));
	next(x);
}

static void on_gathered(void *arg, int r, json_t *result, const struct err *e)
{
	struct build *b = arg;

	(void)result;
	b->child = NULL;
	if (b->ended)
		build_child_gone(b);
	else if (r < 0)
		fail(b->mounts, r, e);
	else
		build_box_seal(b->mounts->box, on_saved, b->mounts);
}

static void on_cache_box(void *arg, const struct err *e)
{
	struct build_mounts *x = arg;
	struct err why = { 0 };
	int r = 0;

	if (x->b->ended)
		return;
	if (e) {
		fail(x, -EIO, e);
		return;
	}
	buf_clear(&x->spec);
	r = build_pair(&x->spec, "under", x->mount[x->at].target);
	if (r == 0)
		r = build_pair(&x->spec, "source", ".");
	if (r == 0)
		r = build_pair(&x->spec, "dest", CACHE_FOLDER);
	if (r == 0)
		r = build_tar(x->b, x->b->step.box, x->box, &x->spec, on_gathered, &why);
	if (r < 0)
		fail(x, r, &why);
}

static void save(struct build_mounts *x)
{
	const struct build_box_plan p = { .chain = "" };
	struct err e = { 0 };
	int r;

	if (x->mount[x->at].m.type != MOUNT_CACHE || x->mount[x->at].m.readonly) {
		next(x);
		return;
	}
	r = build_box_make(x->b->s, &x->b->who, &p, on_cache_box, x, &x->box, &e);
	if (r < 0)
		fail(x, r, &e);
}

static void step(struct build_mounts *x)
{
	struct mount *m;

	if (x->b->ended)
		return;
	if (x->at >= x->n) {
		if (x->phase == REMOVE) {
			x->phase = SAVE;
			begin(x, x->then);
			return;
		}
		over(x);
		return;
	}
	m = &x->mount[x->at];
	if (m->skip) {
		next(x);
		return;
	}
	switch (x->phase) {
	case SELECT:
		if (m->m.type != MOUNT_BIND)
			next(x);
		else if (m->m.from)
			open_source(x, m->chain);
		else
			with_source(x);
		return;
	case FILL:
		fill(x);
		return;
	case REMOVE:
		if (m->file)
			remove_next(x);
		else
			next(x);
		return;
	case SAVE:
		save(x);
		return;
	}
}

void build_mounts_key(struct build_mounts *x, char key[BUILD_KEY], build_mounts_fn *then)
{
	x->phase = SELECT;
	x->key = key;
	begin(x, then);
}

void build_mounts_fill(struct build_mounts *x, build_mounts_fn *then)
{
	x->phase = FILL;
	begin(x, then);
}

void build_mounts_empty(struct build_mounts *x, build_mounts_fn *then)
{
	x->phase = REMOVE;
	begin(x, then);
}
