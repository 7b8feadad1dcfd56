#include "layers/diff.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/diff_walk.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#define FOLDER (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define STACK (512U << 10)

struct diff {
	struct diff_opts o;
	char workdir[SPEC_PATH], opaque[64];
	pthread_t thread;
	int stop, over; /* atomic */
	struct diff_out out;
	struct diff_walk walk;
	struct change_end end;
	char buf[2 * DIFF_BUF];
};

/* A folder of the sandbox's that has a stack of layers of its own. */
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

static int open_side(const struct diff *d, const struct diff_state *st, const struct tree *t, struct diff_side *s)
{
	char path[ID_SIZE + 16];
	int r = 0;

	s->n = 0;
	if (st->writable >= 0)
		r = add_layer(s, st->writable, t->name, st->uid_base, true);
	for (uint32_t i = st->layers; r == 0 && i-- > 0;) {
		snprintf(path, sizeof(path), "%s/fs/%s", st->layer[i], t->name);
		r = add_layer(s, d->o.store, path, 0, false);
	}
	if (r == 0 && t->image >= 0)
		r = add_layer(s, t->image, ".", 0, false);
	return r;
}

/* How many at the bottom both stand on. */
static unsigned count_shared(const struct diff *d, const struct tree *t)
{
	const struct diff_state *a = &d->o.from, *b = &d->o.to;
	unsigned n = 0;

	while (n < a->layers && n < b->layers && !memcmp(a->layer[n], b->layer[n], ID_SIZE))
		n++;
	return n + (t->image >= 0);
}

static int walk_tree(struct diff *d, const struct tree *t)
{
	struct diff_walk *w = &d->walk;
	int r = open_side(d, &d->o.from, t, &w->side[0]);

	if (r == 0)
		r = open_side(d, &d->o.to, t, &w->side[1]);
	if (r == 0) {
		w->prefix = t->prefix;
		w->shared = count_shared(d, t);
		r = diff_walk(w);
	}
	side_done(&w->side[0]);
	side_done(&w->side[1]);
	return r;
}

static int walk_all(struct diff *d)
{
	const bool usr = d->o.spec_flags & SPEC_SYSTEM_WRITABLE, fixed = d->o.spec_flags & SPEC_READ_ONLY;
	const struct tree trees[] = {
		/* Of a fixed root only we make something there: folders to mount on. */
		{ fixed ? NULL : "u", "", d->o.image },
		{ usr ? "uu" : NULL, "/usr", d->o.usr },
		{ usr ? "ud" : NULL, "/var/lib/dpkg", d->o.dpkg },
		{ fixed ? "t" : NULL, "/tmp", -1 },
		{ fixed ? "k" : NULL, d->workdir, -1 },
	};
	int r = 0;

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
		d->end.kind = r == -ENAMETOOLONG || r == -EMSGSIZE || r == -E2BIG ? ERR_TOO_LARGE
			      : r == -ENOMEM					  ? ERR_EXHAUSTED
										  : ERR_INTERNAL;
	}
	to = out_room(&d->out, &r);
	if (!to)
		return;
	n = change_end_encode(&d->end, to + CHANGE_HEAD, CHANGE_PAYLOAD_MAX);
	change_head(to, CHANGE_END, (uint32_t)n);
	out_added(&d->out, CHANGE_HEAD + (size_t)n);
	out_flush(&d->out);
}

static void close_all(struct diff *d)
{
	const int fds[] = { d->o.from.writable, d->o.to.writable, d->o.image, d->o.usr, d->o.dpkg, d->out.fd };

	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fd_close(fds[i]);
	d->o.from.writable = d->o.to.writable = d->o.image = d->o.usr = d->o.dpkg = d->out.fd = -1;
}

static void *run(void *arg)
{
	struct diff *d = arg;
	int r = walk_all(d);

	if (r != -EPIPE && r != -ECANCELED)
		say_end(d, r);
	/* Here, not when somebody comes to look: a reader waits for the end, a sandbox's layer to be let go. */
	close_all(d);
	__atomic_store_n(&d->over, 1, __ATOMIC_RELEASE);
	return NULL;
}

static int copy_fd(int *fd)
{
	if (*fd >= 0)
		*fd = sys_fcntl(*fd, F_DUPFD_CLOEXEC, 3);
	return *fd < -1 ? *fd : 0;
}

/* As paths are told: one slash before each name, none behind; @to has SPEC_PATH bytes. */
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

static int copy_all(struct diff *d, const struct diff_opts *o)
{
	int *const fds[] = { &d->o.from.writable, &d->o.to.writable, &d->o.image, &d->o.usr, &d->o.dpkg };
	int r = 0;

	d->o = *o;
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		if (r < 0)
			*fds[i] = -1;
		else
			r = copy_fd(fds[i]);
	}
	put_prefix(d->workdir, o->workdir);
	snprintf(d->opaque, sizeof(d->opaque), "%s", o->opaque);
	d->walk.flags = o->flags;
	d->walk.max = o->max;
	d->walk.opaque = d->opaque;
	d->walk.stop = d->out.stop = &d->stop;
	d->walk.out = &d->out;
	d->walk.sum = &d->end;
	d->walk.buf = d->buf;
	return r;
}

/* No signal is for this thread: SIGPIPE of a reader that is gone is an error of its write. */
static int start_thread(struct diff *d)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&d->thread, &attr, run, d);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -r;
}

static int open_out(struct diff *d, int *ret_from)
{
	int pipes[2], r;

	if (ret_from) {
		r = sys_pipe2(pipes, O_CLOEXEC);
		if (r < 0)
			return r;
		*ret_from = pipes[0];
		d->out.fd = pipes[1];
	} else {
		r = sys_fcntl(d->o.out, F_DUPFD_CLOEXEC, 3);
		if (r < 0)
			return r;
		d->out.fd = r;
	}
	return fd_set_nonblock(d->out.fd);
}

int diff_start(const struct diff_opts *o, struct diff **ret, int *ret_fd, struct err *e)
{
	struct diff *d = calloc(1, sizeof(*d));
	AUTO_CLOSE int from = -1;
	int r;

	if (!d)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to compare");
	d->out.fd = -1;
	r = copy_all(d, o);
	if (r == 0)
		r = open_out(d, ret_fd ? &from : NULL);
	if (r == 0)
		r = start_thread(d);
	if (r < 0) {
		close_all(d);
		free(d);
		return err_sys(e, ERR_EXHAUSTED, r, "start to compare");
	}
	*ret = d;
	if (ret_fd)
		*ret_fd = TAKE_FD(from);
	return 0;
}

bool diff_over(const struct diff *d)
{
	return __atomic_load_n(&d->over, __ATOMIC_ACQUIRE);
}

void diff_free(struct diff *d)
{
	if (!d)
		return;
	__atomic_store_n(&d->stop, 1, __ATOMIC_RELAXED);
	pthread_join(d->thread, NULL);
	free(d);
}
