/*
 * COPY and ADD: files of a context, a stage or an image are made in a sandbox; or only their digest is computed, which
 * says whether a step of a build would do the same again. The digest is of names, modes, owners where they are kept, link
 * targets, extended attributes and contents; not of times.
 */
#include "base/base.h"
#include "base/sha256.h"
#include "proto/account.h"
#include "tar/source.h"

#include <sys/stat.h>
#include <time.h>

#define ENTRIES_MAX (1U << 20)

struct copy {
	struct copy_spec spec;
	struct source from;
	struct maker m;
	struct host *to;
	struct links *links;
	struct found dest;
	char top[FILE_PATH_MAX + 1]; /* that with a slash before it, where archives are unpacked */
	bool folder; /* the destination is one, or becomes one */
	bool chown;
	uint32_t uid, gid;
	int64_t now;
	uint8_t (*sum)[SHA256_SIZE]; /* of each entry */
	size_t sums;
	const void *data; /* of a file under way */
	size_t have;
};

static int out_of_memory(struct err *e)
{
	return err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory");
}

/* Where an entry comes below the destination: "" = it is the destination itself. */
static int below(const struct copy *c, const struct visit *v, char ret[FILE_PATH_MAX], struct err *e)
{
	const struct match *m = v->match;
	const char *base = strrchr(m->path, '/') ? strrchr(m->path, '/') + 1 : m->path, *top = "";
	int n;

	if (c->spec.parents)
		top = m->path + m->pivot + (m->pivot > 0);
	else if (!S_ISDIR(m->mode))
		top = base;
	n = snprintf(ret, FILE_PATH_MAX, "%s%s%s", top, *top && *v->rel ? "/" : "", v->rel);
	return n >= (int)FILE_PATH_MAX ? err_set(e, ERR_INVALID, -ENAMETOOLONG, "'%.100s' is too long", m->path) : 0;
}

/* --- the digest --- */

static int sum_add(struct copy *c, struct sha256 *s, struct err *e)
{
	if (c->sums == ENTRIES_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "more than %u files are copied", ENTRIES_MAX);
	if ((c->sums & (c->sums - 1)) == 0) {
		void *more = realloc(c->sum, (c->sums ? 2 * c->sums : 1) * sizeof(*c->sum));

		if (!more)
			return out_of_memory(e);
		c->sum = more;
	}
	sha256_end(s, c->sum[c->sums++]);
	return 0;
}

static int visit_sum(void *arg, const struct visit *v, struct err *e)
{
	struct copy *c = arg;
	const struct file_entry *x = v->entry;
	char name[FILE_PATH_MAX], head[128];
	bool owner = !c->spec.owner && !c->spec.chown;
	struct sha256 s;
	const void *p;
	ssize_t n;
	int r = below(c, v, name, e), len;

	if (r < 0)
		return r;
	c->m.r->files += !S_ISDIR(x->mode);
	sha256_init(&s);
	sha256_add(&s, name, strlen(name) + 1);
	len = snprintf(head, sizeof(head), "%o %u %u %llu", x->mode, owner ? x->uid : 0, owner ? x->gid : 0,
		       S_ISREG(x->mode) ? (unsigned long long)x->size : 0);
	sha256_add(&s, head, (size_t)len + 1);
	sha256_add(&s, x->target, strlen(x->target) + 1);
	sha256_add(&s, c->from.xattrs, c->from.xattrs_len);
	while (S_ISREG(x->mode) && (n = source_read(&c->from, &p, FILE_DATA_MAX, e)) != 0) {
		if (n < 0)
			return (int)n;
		sha256_add(&s, p, (size_t)n);
		c->m.r->bytes += (uint64_t)n;
	}
	return sum_add(c, &s, e);
}

static int by_bytes(const void *a, const void *b)
{
	return memcmp(a, b, SHA256_SIZE);
}

static int digest(struct copy *c, struct err *e)
{
	uint8_t sum[SHA256_SIZE];
	struct sha256 s;
	int r = 0;

	for (size_t i = 0; r == 0 && i < c->from.matches; i++)
		r = source_visit(&c->from, &c->from.match[i], visit_sum, c, e);
	if (r < 0)
		return r;
	c->m.r->one_file = c->from.matches == 1 && S_ISREG(c->from.match[0].mode);
	/* Folders are listed in no order. */
	if (c->sums)
		sort(c->sum, c->sums, SHA256_SIZE, by_bytes);
	sha256_init(&s);
	sha256_add(&s, c->sum, c->sums * SHA256_SIZE);
	sha256_end(&s, sum);
	for (size_t i = 0; i < SHA256_SIZE; i++)
		snprintf(c->m.r->digest + 2 * i, 3, "%02x", sum[i]);
	return 0;
}

/* --- owners by name --- */

/* The content of a file of the destination, "" when there is none. */
static int dest_file(struct copy *c, const char *path, struct buf *ret, struct err *e)
{
	struct file_request q = { .under = "/", .length = ACCOUNT_FILE_MAX };
	struct file_frame f;
	struct found at;
	int r = host_find(c->to, "/", path, &at, e);

	if (r < 0 || !S_ISREG(at.mode))
		return r;
	q.path = at.path;
	r = host_ask(c->to, FILE_READ, FILE_BENEATH, &q, e);
	while (r == 0) {
		r = host_next(c->to, &f, e);
		if (r < 0 || f.type == FILE_END)
			break;
		if (f.type == FILE_DATA && buf_add(ret, f.payload, f.len) < 0)
			r = err_set(e, ERR_TOO_LARGE, -EFBIG, "'%s' is larger than 1 MiB", path);
	}
	if (r == 0 && c->to->end.errnum)
		r = err_sys(e, ERR_INVALID, -(int)c->to->end.errnum, "read '%s'", path);
	return r;
}

static bool number(const char *text, size_t len, uint32_t *ret)
{
	uint32_t v = 0;

	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9' || i > 5)
			return false;
		v = 10 * v + (uint32_t)(text[i] - '0');
	}
	*ret = v;
	return len > 0;
}

static int chown_find(struct copy *c, struct err *e)
{
	AUTO(buf_done) struct buf passwd = BUF_INIT(ACCOUNT_FILE_MAX), group = BUF_INIT(ACCOUNT_FILE_MAX);
	const char *text = c->spec.chown, *colon = strchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : strlen(text);
	struct account_files files;
	struct account is = { 0 };
	bool about_group = false;
	int r;

	c->chown = true;
	if (number(text, n, &c->uid) && (!colon || number(colon + 1, strlen(colon + 1), &c->gid))) {
		if (!colon)
			c->gid = c->uid;
		return account_id_ok(c->uid) && account_id_ok(c->gid) ?
			       0 :
			       err_set(e, ERR_INVALID, -ERANGE, "--chown=%.60s: ids of a sandbox are at most 65535",
				       text);
	}
	r = dest_file(c, "etc/passwd", &passwd, e);
	if (r == 0)
		r = dest_file(c, "etc/group", &group, e);
	if (r < 0)
		return r;
	files = (struct account_files){ buf_str(&passwd), buf_str(&group), passwd.len, group.len };
	r = account_check(text);
	if (r == 0)
		r = account_find(&files, text, &is, &about_group);
	if (r < 0) {
		err_set(e, ERR_INVALID, r,
			c->spec.mkdir ? "the folder would belong to '%.60s': the image has no such %s" :
					"--chown=%.60s: the image has no such %s",
			text, r == -ENOENT && about_group ? "group" : "user");
		err_remedy(e, "use ids, or add the user in a RUN before");
		return r;
	}
	c->uid = is.uid;
	c->gid = is.gid;
	return 0;
}

/* --- copying --- */

static int join(const struct copy *c, const char *name, char ret[FILE_PATH_MAX], struct err *e)
{
	int n = snprintf(ret, FILE_PATH_MAX, "%s%s%s", c->dest.path, *c->dest.path && *name ? "/" : "", name);

	return n >= (int)FILE_PATH_MAX ? err_set(e, ERR_INVALID, -ENAMETOOLONG, "'%.100s' is too long", name) : 0;
}

static ssize_t read_content(void *arg, uint8_t *buf, size_t room, struct err *e)
{
	struct copy *c = arg;
	const void *p;
	ssize_t n = source_read(&c->from, &p, room, e);

	if (n > 0)
		memcpy(buf, p, (size_t)n);
	return n;
}

static int visit_copy(void *arg, const struct visit *v, struct err *e)
{
	struct copy *c = arg;
	const struct file_entry *x = v->entry;
	char name[FILE_PATH_MAX], path[FILE_PATH_MAX], target[FILE_PATH_MAX];
	struct thing t = {
		.path = path, .mode = x->mode, .mtime = x->mtime, .target = target, .read = read_content, .arg = c
	};
	int r = below(c, v, name, e);

	if (r < 0)
		return r;
	/* One file that is not put into a folder becomes the destination. */
	r = !c->folder && !S_ISDIR(v->match->mode) ? join(c, "", path, e) : join(c, name, path, e);
	if (r < 0)
		return r;
	if (!*path || (!*name && S_ISDIR(x->mode)))
		return 0; /* the destination is there, or was just made, and stays what it is */
	if (tar_is_mounted(path)) {
		if (!S_ISDIR(x->mode))
			tar_skip(c->m.r, path, "sandboxes have their own");
		return 0;
	}
	memcpy(target, x->target, strlen(x->target) + 1);
	t.uid = c->chown ? c->uid : c->spec.owner ? 0 : x->uid;
	t.gid = c->chown ? c->gid : c->spec.owner ? 0 : x->gid;
	if (c->spec.has_mode && !S_ISLNK(x->mode))
		t.mode = (x->mode & S_IFMT) | c->spec.mode;
	t.xattrs = c->from.xattrs;
	t.xattrs_len = c->from.xattrs_len;
	if (S_ISREG(x->mode) && x->nlink > 1)
		t.link = links_find(c->links, x->dev, x->ino, path);
	return make_thing(&c->m, &t, e);
}

/* Folders above the destination, or it itself, that are missing. */
static int make_missing(struct copy *c, bool itself, struct err *e)
{
	char path[FILE_PATH_MAX];
	size_t at = c->dest.there;
	int r = 0;

	memcpy(path, c->dest.path, strlen(c->dest.path) + 1);
	while (r == 0 && path[at]) {
		struct thing t = {
			.path = path, .mode = S_IFDIR | 0755, .uid = c->uid, .gid = c->gid, .mtime = c->now
		};
		size_t end = at + 1 + strcspn(path + at + 1, "/");
		char saved = path[end];

		if (!saved && !itself)
			break;
		path[end] = '\0';
		if (!c->m.r->made[0])
			snprintf(c->m.r->made, sizeof(c->m.r->made), "%s", path);
		r = make_thing(&c->m, &t, e);
		path[end] = saved;
		at = end;
	}
	return r;
}

static int make_dest(void *arg, struct err *e)
{
	struct copy *c = arg;
	int r = make_missing(c, true, e);

	c->dest.there = strlen(c->dest.path);
	return r;
}

static ssize_t read_archive(void *arg, const void **ret, struct err *e)
{
	struct copy *c = arg;

	return source_read(&c->from, ret, FILE_DATA_MAX, e);
}

/* A file that ADD unpacks, if it is an archive. *ret: whether it was one. */
static int unpack(struct copy *c, const struct match *m, bool *ret, struct err *e)
{
	/* What a link in the archive leads to is in the destination, too. */
	struct tree_in t = {
		.read = read_archive, .arg = c, .prefix = "", .under = c->top, .begin = make_dest, .ret_is = ret
	};
	struct file_entry x;
	int r = source_file(&c->from, m, &x, e);

	*ret = true;
	if (c->chown) {
		t.uid = &c->uid;
		t.gid = &c->gid;
	}
	c->m.rooted = true; /* as tar would unpack it there */
	snprintf(c->top, sizeof(c->top), "/%s", c->dest.path);
	if (r == 0)
		r = tree_in(&t, &c->m, e);
	return r < 0 ? r : source_close(&c->from, e);
}

struct text {
	const char *p;
};

static ssize_t read_text(void *arg, uint8_t *buf, size_t room, struct err *e)
{
	struct text *t = arg;
	size_t n = strnlen(t->p, room);

	(void)e;
	memcpy(buf, t->p, n);
	t->p += n;
	return (ssize_t)n;
}

static int make_here(struct copy *c, size_t i, struct err *e)
{
	struct text text = { c->spec.content.at[i] };
	char path[FILE_PATH_MAX];
	const struct thing t = { .path = path,
				 .mode = c->spec.symlink ? S_IFLNK | 0777U :
							   S_IFREG | (c->spec.has_mode ? c->spec.mode : 0644),
				 .target = text.p,
				 .uid = c->uid,
				 .gid = c->gid,
				 .mtime = c->now,
				 .read = read_text,
				 .arg = &text };
	int r = join(c, c->folder ? c->spec.here.at[i] : "", path, e);

	return r < 0 ? r : make_thing(&c->m, &t, e);
}

/* Which form the copy has, by what is there. */
static int plan(struct copy *c, struct err *e)
{
	const struct source *s = &c->from;
	const bool many = s->matches + c->spec.here.n > 1;
	bool tree = false; /* a folder's content comes right into the destination */
	int r = host_find(c->to, "/", c->spec.dest, &c->dest, e);

	if (r < 0)
		return r;
	if (c->spec.absent && c->dest.mode)
		return err_set(e, ERR_CONFLICT, -EEXIST, "'%.100s' exists already", c->spec.dest);
	for (size_t i = 0; i < s->matches; i++)
		tree |= S_ISDIR(s->match[i].mode);
	c->folder = c->spec.folder || c->spec.parents || S_ISDIR(c->dest.mode) || tree;
	if (many && !c->folder)
		return err_set(e, ERR_INVALID, -EINVAL,
			       "several files are copied, so the destination '%.100s' must be a folder: it must end "
			       "with a slash",
			       c->spec.dest);
	if (c->folder && c->dest.mode && !S_ISDIR(c->dest.mode))
		return err_set(e, ERR_INVALID, -ENOTDIR, "the destination '%.100s' exists, and is not a folder",
			       c->spec.dest);
	return make_missing(c, c->folder, e);
}

static int copy_all(struct copy *c, struct err *e)
{
	struct timespec now;
	int r = c->spec.chown ? chown_find(c, e) : 0;

	clock_gettime(CLOCK_REALTIME, &now);
	c->now = now.tv_sec * 1000000000LL + now.tv_nsec;
	c->links = links_new();
	if (!c->links)
		return out_of_memory(e);
	if (r == 0)
		r = plan(c, e);
	for (size_t i = 0; r == 0 && i < c->from.matches; i++) {
		const struct match *m = &c->from.match[i];
		bool done = false;

		/* Each source is a copy of its own: names of one file in two of them become two files. */
		links_clear(c->links);
		if (c->spec.unpack && S_ISREG(m->mode))
			r = unpack(c, m, &done, e);
		if (r == 0 && !done)
			r = source_visit(&c->from, m, visit_copy, c, e);
	}
	for (size_t i = 0; r == 0 && i < c->spec.here.n; i++)
		r = make_here(c, i, e);
	return r < 0 ? r : make_finish(&c->m, e);
}

/* WORKDIR. A folder that is made counts as a file, so that the caller knows. */
static int make_folder_alone(struct copy *c, struct err *e)
{
	struct timespec now;
	int r = c->spec.chown ? chown_find(c, e) : 0;

	if (r == 0)
		r = host_find(c->to, "/", c->spec.mkdir, &c->dest, e);

	clock_gettime(CLOCK_REALTIME, &now);
	c->now = now.tv_sec * 1000000000LL + now.tv_nsec;
	if (r == 0 && c->dest.mode && !S_ISDIR(c->dest.mode))
		r = err_set(e, ERR_INVALID, -ENOTDIR, "'%.100s' exists, and is not a folder", c->spec.mkdir);
	if (r < 0 || c->dest.mode)
		return r;
	c->m.r->files = 1;
	r = make_missing(c, true, e);
	return r < 0 ? r : make_finish(&c->m, e);
}

int tar_copy(const struct tar_opts *o, struct host *from, struct host *to, struct tar_result *r, struct err *e)
{
	static struct copy c;
	int k;

	c.to = to;
	c.m = (struct maker){ .h = to, .r = r, .max_bytes = o->max_bytes, .max_entries = o->max_entries, .over = true };
	k = copy_spec_read(TAR_SPEC, &c.spec, e);
	if (k == 0 && to && c.spec.mkdir)
		return make_folder_alone(&c, e);
	if (k == 0 && to && !c.spec.dest)
		k = err_set(e, ERR_INTERNAL, -EINVAL, "no destination");
	if (k == 0)
		k = source_open(&c.from, from, &c.spec, e);
	return k < 0 ? k : to ? copy_all(&c, e) : digest(&c, e);
}
