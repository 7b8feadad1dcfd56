/* Makes what an archive contains, through a file worker. */
#include "tar/tar.h"
#include "base/base.h"

#include <sys/stat.h>

struct folder {
	struct folder *next;
	const char *under;
	int64_t mtime;
	uint32_t mode, uid, gid, xattrs_len;
	char *name;
	uint8_t xattrs[];
};

/* What a worker's answer means: every refusal is the end. */
static int judge(const struct maker *m, int r, const char *path, struct err *e)
{
	if (r == 0 || r == -EREMOTEIO)
		return r; /* e is set */
	return err_sys(e, r == -ENOSPC || r == -EDQUOT || r == -ENOMEM || r == -EFBIG ? ERR_TOO_LARGE : ERR_INVALID, r,
		       "'/%.100s': cannot %s", path, file_step_text(m->h->end.step));
}

/* The oldest answer that is due. */
static int settle_one(struct maker *m, struct err *e)
{
	struct due d = m->due[0];
	int r;

	memmove(m->due, m->due + 1, --m->ndue * sizeof(m->due[0]));
	m->h->expect = d.tag;
	r = host_wait(m->h, e);
	m->h->expect = m->h->tag;
	if (d.may_miss && (r == -ENOENT || r == -ENOTDIR))
		r = 0;
	r = judge(m, r, d.path, e);
	free(d.path);
	return r;
}

static int settle(struct maker *m, unsigned left, struct err *e)
{
	int r = 0;

	while (r == 0 && m->ndue > left)
		r = settle_one(m, e);
	return r;
}

/* The answer to what was sent last is looked at later. There is room: settle() came before. */
static int owe(struct maker *m, const char *path, bool may_miss, struct err *e)
{
	char *copy = strdup(path);

	if (!copy)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory");
	m->due[m->ndue++] = (struct due){ m->h->tag, may_miss, copy };
	return 0;
}

static const char *under(const struct thing *t)
{
	return t->under ? t->under : "/";
}

/* Of every operation. */
static unsigned usual(const struct maker *m)
{
	return FILE_BENEATH | (m->rooted ? FILE_ROOTED : 0U);
}

static int ask_ahead(struct maker *m, enum file_type type, unsigned flags, struct file_request *q, struct err *e)
{
	int r = settle(m, MAKE_AHEAD - 1, e);

	if (r == 0)
		r = host_ask(m->h, type, flags | usual(m), q, e);
	return r < 0 ? r : owe(m, q->path, type == FILE_REMOVE, e);
}

/* One whose answer is needed now: what the worker says of it; -EREMOTEIO: @e says what is wrong with that or others. */
static int ask(struct maker *m, enum file_type type, unsigned flags, struct file_request *q, struct err *e)
{
	int r;

	r = host_ask(m->h, type, flags | usual(m), q, e);
	if (r == 0)
		r = settle(m, 0, e);
	return r < 0 ? -EREMOTEIO : host_wait(m->h, e);
}

static int dress(struct maker *m, const struct thing *t, struct err *e)
{
	const struct file_dress x = { .mode = t->mode & 07777,
				      .uid = t->uid,
				      .gid = t->gid,
				      .mtime = t->mtime,
				      .path = t->path,
				      .under = under(t),
				      .xattrs = t->xattrs,
				      .xattrs_len = t->xattrs_len };
	int r = settle(m, MAKE_AHEAD - 1, e);

	if (r == 0)
		r = host_dress(m->h, &x, usual(m), e);
	return r < 0 ? r : owe(m, t->path, m->rooted && S_ISDIR(t->mode), e); /* one that a later entry has removed */
}

/* What is not there is gone already. */
static int make_none(struct maker *m, const struct thing *t, struct err *e)
{
	struct file_request q = { .path = t->path, .under = under(t) };

	return ask_ahead(m, FILE_REMOVE, FILE_RECURSIVE, &q, e);
}

static int make_file(struct maker *m, const struct thing *t, struct err *e)
{
	static uint8_t piece[FILE_DATA_MAX];
	struct file_request q = { .path = t->path, .mode = 0600, .under = under(t) };
	int r = settle(m, MAKE_AHEAD - 1, e);
	bool sent = false;
	uint64_t bytes = 0;

	if (r == 0)
		r = host_ask(m->h, FILE_WRITE,
			     usual(m) | FILE_PARENTS | FILE_MODE | FILE_SPARSE |
				     (m->rooted || m->over ? FILE_OVER : 0U),
			     &q, e);
	while (r == 0 && !sent) {
		ssize_t n;

		while (r == 0 && m->ndue && host_answered(m->h))
			r = settle_one(m, e);
		/* With none before it this is its own, and too early: it failed. */
		if (r < 0 || (!m->ndue && host_answered(m->h)))
			break;
		n = t->read(t->arg, piece, sizeof(piece), e);
		if (n > 0 && m->max_bytes && (uint64_t)n > m->max_bytes - m->r->bytes - bytes)
			n = err_set(e, ERR_TOO_LARGE, -EFBIG, "more than %llu bytes", (unsigned long long)m->max_bytes);
		if (n < 0) {
			host_send(m->h, FILE_ABORT, NULL, 0, NULL);
			return (int)n;
		}
		bytes += (uint64_t)n;
		r = host_send(m->h, n ? FILE_DATA : FILE_END, piece, (size_t)n, e);
		sent = n == 0;
	}
	if (r == 0)
		r = sent ? owe(m, t->path, false, e) : judge(m, host_wait(m->h, e), t->path, e);
	if (r < 0)
		return r;
	m->r->bytes += bytes;
	m->r->files++;
	return dress(m, t, e);
}

/* At the end, when nothing is made in it any more. */
static int remember(struct maker *m, const struct thing *t, struct err *e)
{
	size_t n = strlen(t->path) + 1;
	struct folder *f = malloc(sizeof(*f) + t->xattrs_len + n);

	if (!f)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory");
	*f = (struct folder){ m->folders, t->under, t->mtime, t->mode, t->uid, t->gid, t->xattrs_len, NULL };
	if (t->xattrs_len)
		memcpy(f->xattrs, t->xattrs, t->xattrs_len);
	f->name = (char *)f->xattrs + t->xattrs_len;
	memcpy(f->name, t->path, n);
	m->folders = f;
	return 0;
}

int make_root(struct maker *m, const struct thing *t, struct err *e)
{
	return remember(m, t, e);
}

int make_settle(struct maker *m, struct err *e)
{
	return settle(m, 0, e);
}

static int make_folder(struct maker *m, const struct thing *t, struct err *e)
{
	struct file_request q = { .path = t->path, .mode = 0700, .under = under(t) };
	int r = ask(m, FILE_MKDIR, FILE_PARENTS, &q, e);

	if (r == -EEXIST) { /* of another type */
		r = make_none(m, t, e);
		if (r == 0)
			r = ask(m, FILE_MKDIR, FILE_PARENTS, &q, e);
	}
	r = judge(m, r, t->path, e);
	return r < 0 ? r : remember(m, t, e);
}

static int make_name(struct maker *m, enum file_type type, const struct thing *t, const char *to, struct err *e)
{
	struct file_request q = { .path = t->path, .to = to, .mode = t->mode & 0777, .under = under(t) };
	int r = ask_ahead(m, type, FILE_PARENTS | (m->rooted || m->over ? FILE_OVER : 0U), &q, e);

	if (r < 0)
		return r;
	m->r->files++;
	return type == FILE_LINK ? 0 : dress(m, t, e);
}

static int clear_folder(struct maker *m, const struct thing *t, struct err *e)
{
	struct file_request q = { .path = t->path, .under = under(t) };
	int r = ask(m, FILE_LIST, 0, &q, e); /* only of a folder */

	return r == 0 ? make_none(m, t, e) : r == -EREMOTEIO ? r : 0;
}

int make_thing(struct maker *m, const struct thing *t, struct err *e)
{
	if (m->max_entries && m->entries++ >= m->max_entries)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "more than %llu entries", (unsigned long long)m->max_entries);
	if (!tar_name_ok(t->path) || strlen(t->path) >= FILE_PATH_MAX || (t->link && !tar_name_ok(t->link)))
		return err_set(e, ERR_INVALID, -EXDEV, "the name '%.100s' points outside the folder", t->path);
	if (!t->mode)
		return make_none(m, t, e);
	if (m->replace && !S_ISDIR(t->mode)) {
		int r = clear_folder(m, t, e);

		if (r < 0)
			return r;
	}
	if (t->link)
		return make_name(m, FILE_LINK, t, t->link, e);
	switch (t->mode & S_IFMT) {
	case S_IFREG:
		return make_file(m, t, e);
	case S_IFDIR:
		return make_folder(m, t, e);
	case S_IFLNK:
		if (!t->target || !*t->target || strlen(t->target) >= FILE_PATH_MAX)
			return err_set(e, ERR_INVALID, -EINVAL, "'%.100s': a link without a target", t->path);
		return make_name(m, FILE_SYMLINK, t, t->target, e);
	case S_IFIFO:
		return make_name(m, FILE_FIFO, t, NULL, e);
	default:
		return err_set(e, ERR_INVALID, -EINVAL, "'%.100s': a type of file that is not allowed in a sandbox",
			       t->path);
	}
}

/* The first first: of a folder that an archive has twice the last counts. */
static void turn_round(struct maker *m)
{
	struct folder *f, *back = NULL;

	while ((f = m->folders)) {
		m->folders = f->next;
		f->next = back;
		back = f;
	}
	m->folders = back;
}

int make_finish(struct maker *m, struct err *e)
{
	int r = 0;

	/* The last first: children before parents. */
	if (m->rooted)
		turn_round(m);
	for (const struct folder *f = m->folders; r == 0 && f; f = f->next) {
		const struct thing t = { .path = f->name,
					 .under = f->under,
					 .mode = f->mode,
					 .uid = f->uid,
					 .gid = f->gid,
					 .mtime = f->mtime,
					 .xattrs = f->xattrs,
					 .xattrs_len = f->xattrs_len };

		r = dress(m, &t, e);
	}
	return r < 0 ? r : settle(m, 0, e);
}
