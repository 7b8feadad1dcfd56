/* One comparison, in cloche-layers: each tree of both states in turn, then the end of the stream. */
#include "base/base.h"
#include "base/sys.h"
#include "layers/diff_task.h"
#include "layers/diff_walk.h"

#include <unistd.h>

#define FOLDER (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

struct diff {
	const struct diff_task *task;
	const int *fd; /* by their places */
	struct diff_out out;
	struct diff_walk walk;
	struct change_end end;
	char buf[2 * DIFF_BUF];
};

/* A folder of the sandbox that is an overlay of its own. */
struct tree {
	const char *name, *prefix;
	int image;
};

static void side_done(struct diff_side *s)
{
	for (unsigned i = 0; i < s->n; i++)
		fd_close(s->layer[i].root);
	s->n = 0;
}

static int add_layer(struct diff_side *s, int dir, const char *path, uint32_t base, bool live)
{
	int fd = sys_openat(dir, path, FOLDER, 0);

	if (fd < 0 && fd != -ENOENT)
		return fd;
	s->layer[s->n++] = (struct diff_layer){ fd < 0 ? -1 : fd, base, live };
	return 0;
}

static int open_side(const struct diff *d, unsigned side, const struct tree *t, struct diff_side *s)
{
	const int writable = d->fd[side ? DIFF_TO : DIFF_FROM];
	char path[ID_SIZE + 16];
	int r = 0;

	s->n = 0;
	if (writable >= 0)
		r = add_layer(s, writable, t->name, d->task->uid_base[side], true);
	for (uint32_t i = d->task->layers[side]; r == 0 && i-- > 0;) {
		snprintf(path, sizeof(path), "%s/fs/%s", d->task->layer[side][i], t->name);
		r = add_layer(s, d->fd[DIFF_STORE], path, 0, false);
	}
	if (r == 0 && t->image >= 0)
		r = add_layer(s, t->image, ".", 0, false);
	return r;
}

/* How many layers at the bottom are the same in both states. */
static unsigned count_shared(const struct diff_task *x, const struct tree *t)
{
	unsigned n = 0;

	while (n < x->layers[0] && n < x->layers[1] && !memcmp(x->layer[0][n], x->layer[1][n], ID_SIZE))
		n++;
	return n + (t->image >= 0);
}

static int walk_tree(struct diff *d, const struct tree *t)
{
	struct diff_walk *w = &d->walk;
	int r = open_side(d, 0, t, &w->side[0]);

	if (r == 0)
		r = open_side(d, 1, t, &w->side[1]);
	if (r == 0) {
		w->prefix = t->prefix;
		w->shared = count_shared(d->task, t);
		r = diff_walk(w);
	}
	side_done(&w->side[0]);
	side_done(&w->side[1]);
	return r;
}

/* One slash before each name, none at the end; @to has SPEC_PATH bytes. */
static void put_prefix(char *to, const char *path)
{
	size_t at = 0;

	while (*path) {
		size_t n = strcspn(path, "/");

		if (n && !(n == 1 && *path == '.') && at + n + 2 <= SPEC_PATH) {
			to[at++] = '/';
			memcpy(to + at, path, n);
			at += n;
		}
		path += n + (path[n] == '/');
	}
	to[at] = '\0';
}

static int walk_all(struct diff *d)
{
	char workdir[SPEC_PATH];
	const bool usr = d->task->spec_flags & SPEC_SYSTEM_WRITABLE, fixed = d->task->spec_flags & SPEC_READ_ONLY;
	const struct tree trees[] = {
		/* Of a fixed root the writable layer holds only folders that the engine made to mount on. */
		{ fixed ? NULL : "u", "", d->fd[DIFF_IMAGE] },
		{ usr ? "uu" : NULL, "/usr", d->fd[DIFF_USR] },
		{ usr ? "ud" : NULL, "/var/lib/dpkg", d->fd[DIFF_DPKG] },
		{ fixed ? "t" : NULL, "/tmp", -1 },
		{ fixed ? "k" : NULL, workdir, -1 },
	};
	int r = 0;

	put_prefix(workdir, d->task->workdir);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(trees); i++)
		if (trees[i].name)
			r = walk_tree(d, &trees[i]);
	return r;
}

static const char *reason(int r)
{
	switch (-r) {
	case ENAMETOOLONG:
		return "a path is longer than 4095 bytes";
	case EMSGSIZE:
		return "a file has too many extended attributes";
	case E2BIG:
		return "there are too many files to compare";
	default:
		return strerror(-r);
	}
}

static void say_end(struct diff *d, int r)
{
	uint8_t *to;
	long n;

	d->end.truncated = d->walk.cut;
	if (r < 0) {
		d->end.errnum = (uint32_t)-r;
		d->end.msg = reason(r);
		d->end.kind = r == -ENAMETOOLONG || r == -EMSGSIZE || r == -E2BIG ? ERR_TOO_LARGE :
			      r == -ENOMEM					  ? ERR_EXHAUSTED :
										    ERR_INTERNAL;
	}
	to = out_room(&d->out, &r);
	if (!to)
		return;
	n = change_end_encode(&d->end, to + CHANGE_HEAD, CHANGE_PAYLOAD_MAX);
	change_head(to, CHANGE_END, (uint32_t)n);
	out_added(&d->out, CHANGE_HEAD + (size_t)n);
	out_flush(&d->out);
}

int diff_run(const struct diff_task *t, const int fd[static DIFF_PLACES])
{
	static const int never;
	AUTO_FREE struct diff *d = calloc(1, sizeof(*d));
	int r;

	if (!d) {
		diff_refuse(fd[DIFF_OUT], -ENOMEM, "no memory to compare");
		return -ENOMEM;
	}
	d->task = t;
	d->fd = fd;
	d->out.fd = fd[DIFF_OUT];
	d->out.stop = d->walk.stop = &never;
	d->walk.flags = t->flags;
	d->walk.max = t->max;
	d->walk.opaque = t->opaque;
	d->walk.out = &d->out;
	d->walk.sum = &d->end;
	d->walk.buf = d->buf;
	r = fd_set_nonblock(d->out.fd);
	if (r == 0)
		r = walk_all(d);
	if (r != -EPIPE)
		say_end(d, r);
	return r;
}

void diff_refuse(int out, int r, const char *msg)
{
	const struct change_end end = { .errnum = (uint32_t)-r, .kind = (uint32_t)ERR_INTERNAL, .msg = msg };
	uint8_t to[CHANGE_HEAD + 512];
	long n = change_end_encode(&end, to + CHANGE_HEAD, sizeof(to) - CHANGE_HEAD);

	if (n < 0)
		return;
	change_head(to, CHANGE_END, (uint32_t)n);
	fd_write_all(out, to, CHANGE_HEAD + (size_t)n);
}
