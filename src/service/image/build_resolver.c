/*
 * A step with a network gets its resolver in /etc/resolv.conf, where the agent puts it. That is not part of the image:
 * before the layer is sealed, the file is set back to its content in the layers below, whatever the command wrote to
 * it.
 */
#include "base/base.h"
#include "service/file/file.h"
#include "service/image/build_impl.h"

#define PLACE "/etc/resolv.conf"

struct build_resolver {
	struct build *b;
	struct file_op *op;
	struct build_box *below;
	struct buf spec;
};

void build_resolver_free(struct build_resolver *x)
{
	if (!x)
		return;
	if (x->op)
		file_cancel(x->op);
	build_box_free(x->below);
	buf_done(&x->spec);
	free(x);
}

static void fail(struct build_resolver *x, int r, const struct err *e)
{
	struct err why = *e;

	err_wrap(&why, r, "line %u: RUN: " PLACE, x->b->step.in->line);
	build_fail(x->b, r, &why);
}

static void done(struct build *b)
{
	build_resolver_free(TAKE_PTR(b->resolver));
	build_step_seal(b);
}

static void on_copied(void *arg, int r, json_t *result, const struct err *e)
{
	struct build *b = arg;

	(void)result;
	b->child = NULL;
	if (b->ended)
		build_child_gone(b);
	else if (r < 0 && e->kind != ERR_NOT_FOUND) /* the file did not exist */
		fail(b->resolver, r, e);
	else
		done(b);
}

static void on_below(void *arg, const struct err *e)
{
	struct build_resolver *x = arg;
	struct err why = { 0 };
	int r = 0;

	if (x->b->ended)
		return;
	if (e) {
		fail(x, -EIO, e);
		return;
	}
	r = build_pair(&x->spec, "source", PLACE);
	if (r == 0)
		r = build_pair(&x->spec, "dest", PLACE);
	if (r == 0)
		r = build_tar(x->b, x->below, x->b->step.box, &x->spec, on_copied, &why);
	if (r < 0)
		fail(x, r, &why);
}

static void on_removed(void *arg, int r, const struct file_end *end, unsigned flags, const struct err *e)
{
	struct build_resolver *x = arg;
	struct build *b = x->b;
	const struct build_box_plan p = { .chain = build_chain(build_stage_now(b)), .memory = true };
	struct err why = { 0 };

	(void)flags;
	(void)end;
	x->op = NULL;
	if (r < 0 && e && e->kind != ERR_NOT_FOUND) {
		fail(x, r, e);
		return;
	}
	if (!*p.chain) {
		done(b);
		return;
	}
	r = build_box_make(b->s, &b->who, &p, on_below, x, &x->below, &why);
	if (r < 0)
		fail(x, r, &why);
}

static const struct file_calls calls = { .done = on_removed };

void build_resolver_undo(struct build *b)
{
	const struct file_request q = { .path = PLACE };
	const struct user_request root = { .text = "root" };
	struct build_resolver *x = calloc(1, sizeof(*x));
	struct err e = { 0 };
	int r;

	if (!x)
		abort();
	*x = (struct build_resolver){ .b = b, .spec = BUF_INIT(4096) };
	b->resolver = x;
	if (!build_box_sandbox(b->step.box))
		r = err_set(&e, WHY_SANDBOX_LOST, -EIO, "the sandbox of the step has ended");
	else
		r = file_begin(build_box_sandbox(b->step.box), &root, FILE_REMOVE, 0, &q, &calls, x, &x->op, &e);
	if (r < 0)
		fail(x, r, &e);
}
