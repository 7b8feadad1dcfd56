/*
 * What a layer removes: ".wh.NAME" says that NAME of the layers below is gone, ".wh..wh..opq" that all is gone that those
 * have in its folder. Neither means what the layer itself has, wherever it comes in the archive, so what it has made is
 * remembered.
 */
#include "tar/tar.h"
#include "base/base.h"
#include "base/map.h"

#define PREFIX ".wh."
#define OPAQUE ".wh..wh..opq"
#define NAMES_MAX (256 * MIB) /* of what a layer has made; the process has 512 MiB */
#define CHILDREN_MAX 1000000U

struct made {
	struct map names;
	struct map emptied; /* folders in which nothing is left of the layers below */
	size_t bytes;
};

struct made *made_new(void)
{
	struct made *m = calloc(1, sizeof(*m));

	if (m && (map_init(&m->names) < 0 || map_init(&m->emptied) < 0)) {
		free(m);
		return NULL;
	}
	return m;
}

int made_add(struct made *m, const char *path, struct err *e)
{
	char part[FILE_PATH_MAX];
	size_t n = strlen(path);

	memcpy(part, path, n + 1);
	while (*part && !map_get(&m->names, part)) {
		char *slash;

		m->bytes += n + 64;
		if (m->bytes > NAMES_MAX || map_put(&m->names, part, m) < 0)
			return err_set(e, ERR_TOO_LARGE, -E2BIG, "a layer of the image has too many names");
		slash = strrchr(part, '/');
		if (!slash)
			break;
		*slash = '\0';
		n = (size_t)(slash - part);
	}
	return 0;
}

struct children {
	char **path;
	size_t n, room;
};

static void children_done(struct children *c)
{
	for (size_t i = 0; i < c->n; i++)
		free(c->path[i]);
	free(c->path);
}

static int children_add(struct children *c, const char *dir, const char *name, struct err *e)
{
	char path[FILE_PATH_MAX];

	if (c->n == CHILDREN_MAX ||
	    snprintf(path, sizeof(path), "%s%s%s", dir, *dir ? "/" : "", name) >= (int)sizeof(path))
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "'/%.100s': more files than a layer may remove", dir);
	if (c->n == c->room) {
		size_t room = c->room ? 2 * c->room : 64;
		char **more = realloc(c->path, room * sizeof(*more));

		if (!more)
			return err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory");
		c->path = more;
		c->room = room;
	}
	c->path[c->n] = strdup(path);
	if (!c->path[c->n])
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "out of memory");
	c->n++;
	return 0;
}

/* What is in the folder; nothing if it is none. */
static int list(struct maker *m, const char *dir, struct children *c, struct err *e)
{
	const struct file_request q = { .path = dir, .under = "/", .depth = 1 };
	struct file_frame f;
	struct file_entry x;
	int r = make_settle(m, e), bad = 0;

	if (r == 0)
		r = host_ask(m->h, FILE_LIST, FILE_BENEATH | FILE_ROOTED, &q, e);
	while (r == 0) {
		r = host_next(m->h, &f, e);
		if (r < 0 || f.type == FILE_END)
			break;
		if (f.type == FILE_ENTRY && file_entry_decode(&f, &x) == 0 && *x.path && !bad)
			bad = strchr(x.path, '/') ? 0 : children_add(c, dir, x.path, e);
	}
	if (r < 0 || bad < 0)
		return r < 0 ? r : bad;
	r = -(int)m->h->end.errnum;
	return r == 0 || r == -ENOENT || r == -ENOTDIR || r == -ELOOP ?
		       0 :
		       err_sys(e, ERR_INVALID, r, "'/%.100s': cannot %s", dir, file_step_text(m->h->end.step));
}

/* Folders that every sandbox has of its own: no layer has anything in them, or removes them. */
static bool is_of_sandbox(const char *path)
{
	return !strcmp(path, "proc") || !strcmp(path, "sys") || !strcmp(path, "dev");
}

/* Each folder is listed once, however often a layer says that it is opaque, and whatever folders above are. */
static bool was_emptied(struct made *made, const char *dir, int *r, struct err *e)
{
	const char *key = *dir ? dir : "/";

	if (map_get(&made->emptied, key))
		return true;
	made->bytes += strlen(dir) + 64;
	*r = made->bytes > NAMES_MAX || map_put(&made->emptied, key, made) < 0 ?
		     err_set(e, ERR_TOO_LARGE, -E2BIG, "a layer of the image has too many names") :
		     0;
	return false;
}

static int empty(struct made *made, struct maker *m, const char *dir, unsigned depth, struct err *e)
{
	struct children c = { 0 };
	int r = 0;

	if (was_emptied(made, dir, &r, e))
		return 0;
	if (r == 0)
		r = list(m, dir, &c, e);

	for (size_t i = 0; r == 0 && i < c.n; i++) {
		if (is_of_sandbox(c.path[i]))
			continue;
		if (!map_get(&made->names, c.path[i]))
			r = make_thing(m, &(struct thing){ .path = c.path[i] }, e);
		else if (depth < LAYER_DEPTH)
			r = empty(made, m, c.path[i], depth + 1, e);
	}
	children_done(&c);
	return r;
}

int whiteout_apply(struct made *made, struct maker *m, const char *path, struct err *e)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	const int above = slash ? (int)(slash - path) : 0;
	char what[FILE_PATH_MAX];

	if (!strcmp(name, OPAQUE)) {
		snprintf(what, sizeof(what), "%.*s", above, path);
		return empty(made, m, what, 0, e);
	}
	name += strlen(PREFIX);
	if (!strncmp(name, PREFIX, strlen(PREFIX)))
		return 0; /* notes of another program to itself */
	if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
		return err_set(e, WHY_IMAGE_INVALID, -EBADMSG, "'/%.100s': it removes no name", path);
	snprintf(what, sizeof(what), "%.*s%s%s", above, path, above ? "/" : "", name);
	if (is_of_sandbox(what))
		return 0;
	return map_get(&made->names, what) ? empty(made, m, what, 0, e) :
					     make_thing(m, &(struct thing){ .path = what }, e);
}
