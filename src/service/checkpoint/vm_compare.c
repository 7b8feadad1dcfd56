/* Compares two states of machines. */
#include "service/checkpoint/vm_compare.h"
#include "base/base.h"
#include "service/checkpoint/vm_mirror.h"
#include "service/file/bounded_pipe.h"
#include "service/checkpoint/vm_changes.h"
#include "service/struct.h"

#define SILENT_MS 600000 /* the warden's own end comes first */

struct pairing {
	struct service *s;
	struct compare_request w; /* referenced states */
	struct vm_mirror *from, *to;
	struct bounded_pipe *pipe;
	compare_fn *fn;
	void *arg;
};

static void pairing_free(struct pairing *p)
{
	vm_mirror_free(p->from);
	vm_mirror_free(p->to);
	state_unref(&p->w.from);
	state_unref(&p->w.to);
	free(p);
}

static void over(void *arg)
{
	pairing_free(arg);
}

static void fail(struct pairing *p, const struct err *e)
{
	p->fn(p->arg, -1, e);
	pairing_free(p);
}

/* The mirrors stay until all was read. */
static void on_stream(void *arg, int fd, const struct err *e)
{
	struct pairing *p = arg;
	const struct bounded_pipe_opts o = {
		.max = UINT64_MAX, .silent_ms = SILENT_MS, .unread_ms = SILENT_MS, .over = over, .arg = p
	};
	struct err why = { 0 };
	int ret = -1, r;

	if (fd < 0) {
		fail(p, e);
		return;
	}
	r = bounded_pipe_open(p->s->loop, fd, &o, &p->pipe, &ret);
	if (r < 0) {
		fd_close(fd);
		err_sys(&why, ERR_EXHAUSTED, r, "make a pipe");
		fail(p, &why);
		return;
	}
	p->fn(p->arg, ret, NULL);
}

static void on_mirror(void *arg, struct vm_mirror *m, const struct err *e);

static int go_on(struct pairing *p, struct err *e)
{
	struct compare_request w = { .flags = p->w.flags, .max = p->w.max };

	if (!p->from && (p->w.from.sandbox || p->w.from.checkpoint))
		return vm_mirror_make(p->s, &p->w.from, on_mirror, p, e);
	if (!p->to)
		return vm_mirror_make(p->s, &p->w.to, on_mirror, p, e);
	w.from.chain = p->w.from.chain;
	w.from.sandbox = p->from ? vm_mirror_sandbox(p->from) : NULL;
	w.to.sandbox = vm_mirror_sandbox(p->to);
	if ((p->from && !w.from.sandbox) || !w.to.sandbox)
		return err_set(e, WHY_SANDBOX_LOST, -EIO, "a scratch sandbox for the files has ended");
	return compare_open(p->s, &w, on_stream, p, e);
}

static void on_mirror(void *arg, struct vm_mirror *m, const struct err *e)
{
	struct pairing *p = arg;
	struct err why = { 0 };

	if (!m) {
		fail(p, e);
		return;
	}
	if (!p->from && !p->w.from.chain)
		p->from = m;
	else
		p->to = m;
	if (go_on(p, &why) < 0)
		fail(p, &why);
}

int vm_compare_open(struct service *s, const struct compare_request *w, compare_fn *fn, void *arg, struct err *e)
{
	return !w->from.sandbox && !w->from.checkpoint ? vm_changes_open(s, &w->to, w->flags, w->max, fn, arg, e) :
							 vm_compare_whole(s, w, fn, arg, e);
}

int vm_compare_whole(struct service *s, const struct compare_request *w, compare_fn *fn, void *arg, struct err *e)
{
	struct pairing *p;
	int r;

	p = calloc(1, sizeof(*p));
	if (!p)
		abort();
	*p = (struct pairing){ .s = s, .w = *w, .fn = fn, .arg = arg };
	state_ref(&p->w.from);
	state_ref(&p->w.to);
	r = go_on(p, e);
	if (r < 0)
		pairing_free(p);
	return r;
}
