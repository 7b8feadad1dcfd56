/* Comparisons of a warden: which layers each side has, and that those stay until it is over. */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/diff.h"

#include <unistd.h>

#define AT_ONCE 32

struct comparing {
	struct comparing *next;
	struct diff *diff;
	uint32_t layers[2];
	char layer[2][SPEC_LAYERS][ID_SIZE];
};

static void let_go(struct warden *w, const struct comparing *x)
{
	for (unsigned i = 0; w->layers && i < 2; i++)
		layers_drop(w->layers, x->layer[i], x->layers[i]);
}

static unsigned reap(struct warden *w, bool all)
{
	unsigned left = 0;

	for (struct comparing **p = &w->comparing; *p;) {
		struct comparing *x = *p;

		if (!all && !diff_over(x->diff)) {
			left++;
			p = &x->next;
			continue;
		}
		*p = x->next;
		diff_free(x->diff);
		let_go(w, x);
		free(x);
	}
	return left;
}

unsigned warden_compare_reap(struct warden *w)
{
	return reap(w, false);
}

void warden_compare_end(struct warden *w)
{
	reap(w, true);
}

static const uint32_t root_kind = SPEC_READ_ONLY | SPEC_SYSTEM_WRITABLE;

static int live_state(const struct warden_sandbox *s, const struct sandbox_spec *spec, struct diff_state *ret,
		      struct err *e)
{
	if (strcmp(s->image, spec->image) || (s->flags & root_kind) != (spec->flags & root_kind))
		return err_set(e, ERR_REFUSED, -EINVAL,
			       "only states of the same image and kind of root can be compared");
	if (s->root.premount.writable < 0)
		return err_set(e, ERR_CONFLICT, -EAGAIN, "the sandbox is not ready yet");
	ret->writable = s->root.premount.writable;
	ret->uid_base = s->blank.uid_base;
	ret->layers = s->layers;
	memcpy(ret->layer, s->layer, sizeof(ret->layer));
	return 0;
}

/* What was not looked at before (warden_layers_ready) is not believed. */
static int sealed_state(struct warden *w, const struct sandbox_spec *spec, struct diff_state *ret, struct err *e)
{
	ret->writable = -1;
	ret->layers = spec->layers;
	memcpy(ret->layer, spec->layer, sizeof(ret->layer));
	return spec->layers ? sealing_check(w, spec, e) : 0;
}

static int open_image(struct warden *w, const struct sandbox_spec *spec, struct diff_opts *o, struct err *e)
{
	int r;

	o->usr = o->dpkg = -1;
	if (!strcmp(spec->image, SPEC_SCRATCH))
		return 0; /* there is nothing in it */
	if (strcmp(spec->image, "host")) {
		r = o->image = w->env.policy.image(w->env.policy.arg, spec->image, e);
		return r < 0 ? r : 0;
	}
	o->image = sys_fcntl(w->env.image.root, F_DUPFD_CLOEXEC, 3);
	if (o->image >= 0 && spec->flags & SPEC_SYSTEM_WRITABLE) {
		o->usr = sys_fcntl(w->env.image.usr, F_DUPFD_CLOEXEC, 3);
		o->dpkg = sys_openat(AT_FDCWD, "/var/lib/dpkg", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
		if (o->dpkg == -ENOENT)
			o->dpkg = -1;
	}
	r = o->image < 0 ? o->image : o->usr < -1 ? o->usr : o->dpkg < -1 ? o->dpkg : 0;
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "open image 'host'") : 0;
}

static int start(struct warden *w, const struct warden_compare *c, struct comparing *x, int *ret_fd, struct err *e)
{
	struct diff_opts o = {
		.program = w->env.program[ENV_LAYERS],
		.flags = c->flags,
		.max = c->max,
		.spec_flags = c->to_spec->flags & root_kind,
		.store = w->env.layers,
		.image = -1,
		.workdir = c->to_spec->workdir,
		.out = c->out,
		.opaque = w->env.rootless ? "user.overlay.opaque" : "trusted.overlay.opaque",
	};
	int r = c->from ? live_state(c->from, c->to_spec, &o.from, e) : sealed_state(w, c->from_spec, &o.from, e);

	if (r == 0)
		r = c->to ? live_state(c->to, c->to_spec, &o.to, e) : sealed_state(w, c->to_spec, &o.to, e);
	if (r == 0)
		r = open_image(w, c->to_spec, &o, e);
	if (r == 0)
		r = diff_start(&o, &x->diff, ret_fd, e);
	if (o.image >= 0)
		fd_close_many((int[]){ o.image, o.usr, o.dpkg }, 3);
	if (r < 0)
		return r;
	x->layers[0] = o.from.layers;
	x->layers[1] = o.to.layers;
	memcpy(x->layer[0], o.from.layer, sizeof(x->layer[0]));
	memcpy(x->layer[1], o.to.layer, sizeof(x->layer[1]));
	for (unsigned i = 0; w->layers && i < 2; i++)
		layers_hold(w->layers, x->layer[i], x->layers[i]);
	return 0;
}

int warden_compare(struct warden *w, const struct warden_compare *c, int *ret_fd, struct err *e)
{
	struct comparing *x;
	int r;

	if ((c->to_spec->flags | c->from_spec->flags) & SPEC_TIERS || (c->from && c->from->tier->machine) ||
	    (c->to && c->to->tier->machine))
		return err_advise(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
				  "use isolation 'container', or compare inside the sandbox",
				  "only files of containers can be compared");
	if (reap(w, false) >= AT_ONCE)
		return err_advise(e, ERR_EXHAUSTED, -EAGAIN, "try again in a moment",
				  "too many comparisons are in progress");
	x = calloc(1, sizeof(*x));
	if (!x)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to compare");
	r = start(w, c, x, ret_fd, e);
	if (r < 0) {
		free(x);
		return r;
	}
	x->next = w->comparing;
	w->comparing = x;
	return 0;
}
