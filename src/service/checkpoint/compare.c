/* Asks for the comparison of two states. */
#include "service/checkpoint/compare.h"
#include "base/base.h"
#include "service/sandbox/internal.h"
#include "service/checkpoint/restore.h"
#include "service/checkpoint/vm_compare.h"
#include "service/link/warden_link.h"
#include "tier/tiers.h"
#include "service/checkpoint/struct.h"

#include <unistd.h>

#define AT_ONCE 16U
#define AT_ONCE_TENANT 4U

int state_find(struct service *s, const struct who *who, const char *text, struct state *ret, struct err *e)
{
	*ret = (struct state){ 0 };
	if (!strcmp(text, "image"))
		return 0;
	if (!strncmp(text, "checkpoint:", 11)) {
		ret->checkpoint = checkpoint_find(s, who, text + 11, NULL, e);
		return ret->checkpoint ? 0 : -ENOENT;
	}
	if (!strncmp(text, "sandbox:", 8)) {
		ret->sandbox = sandbox_find(s, who, text + 8, e);
		return ret->sandbox ? 0 : -ENOENT;
	}
	return err_set(e, WHY_BAD_FIELD, -EINVAL, "'%.40s': must be \"image\", \"checkpoint:ID\" or \"sandbox:ID\"",
		       text);
}

struct opening {
	struct service *s;
	struct tenant *tenant;
	struct state from, to; /* referenced */
	compare_fn *fn;
	void *arg;
};

void state_ref(const struct state *t)
{
	if (t->sandbox)
		sandbox_ref(t->sandbox);
	if (t->checkpoint)
		checkpoint_ref(t->checkpoint);
}

void state_unref(const struct state *t)
{
	if (t->sandbox)
		sandbox_unref(t->sandbox);
	if (t->checkpoint)
		checkpoint_unref(t->checkpoint);
}

static void on_opened(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct opening *o = arg;
	struct err why = { 0 };
	int fd = -1;

	if (r == 0) {
		fd = a->fds[0];
		a->fds[0] = -1;
	} else if (e && e->msg[0]) {
		const struct state *t = o->to.checkpoint ? &o->to : &o->from;

		why = *e;
		if (t->checkpoint)
			checkpoint_blame(o->s, t->checkpoint->id, r, &why);
		if (r == -ESRCH)
			err_set(&why, WHY_SANDBOX_LOST, r, "the sandbox ended in the meantime");
	} else {
		err_set(&why, WHY_SERVICE_LOST, r, "the warden has ended");
	}
	o->fn(o->arg, fd, fd < 0 ? &why : NULL);
	state_unref(&o->from);
	state_unref(&o->to);
	free(o);
}

static int sandbox_live(const struct sandbox *b, struct err *e)
{
	if (b->opened)
		return 0;
	if (b->state == SANDBOX_LOST)
		return sandbox_lost(b, e);
	if (b->state == SANDBOX_HIBERNATED || b->sleep)
		return sandbox_ready(b, e);
	/* A sandbox in the making is known to its maker alone, which may use it once it is ready. */
	if (b->state == SANDBOX_MAKING && b->maker && b->handle)
		return 0;
	if ((b->state != SANDBOX_RUNNING && b->state != SANDBOX_PAUSED) || !b->handle)
		return err_set(e, WHY_CHANGED_MEANWHILE, -ESRCH, "sandbox '%s' is not available at the moment",
			       b->request->name);
	return 0;
}

int state_spec(const struct state *t, struct sandbox_spec *ret, struct err *e)
{
	AUTO(sandbox_request_free) struct sandbox_request *w = NULL;
	int r;

	if (t->sandbox) {
		r = sandbox_live(t->sandbox, e);
		if (r < 0)
			return r;
		request_spec(t->sandbox->request, ret);
		ret->tenant = t->sandbox->tenant->number;
		ret->layers = 0; /* the warden knows them */
		memset(ret->layer, 0, sizeof(ret->layer));
		return 0;
	}
	if (t->chain) {
		*ret = *t->chain;
		return 0;
	}
	r = checkpoint_ready(t->checkpoint, e);
	if (r == 0)
		r = restore_request(t->checkpoint, NULL, true, &w, e);
	if (r < 0)
		return r;
	request_spec(w, ret);
	ret->tenant = t->checkpoint->tenant->number;
	return 0;
}

static struct tenant *tenant_of(const struct state *t)
{
	return t->sandbox ? t->sandbox->tenant : t->checkpoint ? t->checkpoint->tenant : NULL;
}

static int older_of(const struct state *t, const struct sandbox_spec *spec, struct sandbox_spec *ret, struct err *e)
{
	const uint32_t kind = SPEC_READ_ONLY | SPEC_SYSTEM_WRITABLE;
	int r = 0;

	*ret = *spec;
	ret->layers = 0;
	memset(ret->layer, 0, sizeof(ret->layer));
	if (t->sandbox || t->checkpoint)
		r = state_spec(t, ret, e);
	if (r == 0 && t->chain) {
		ret->layers = t->chain->layers;
		memcpy(ret->layer, t->chain->layer, sizeof(ret->layer));
	}
	if (r < 0)
		return r;
	if ((ret->flags ^ spec->flags) & SPEC_TIERS) {
		r = err_set(e, WHY_NOT_COMPARABLE, -EINVAL, "sandboxes of different isolation cannot be compared");
		err_remedy(e, "export a checkpoint of one, and import it with the isolation of the other");
	} else if (strcmp(ret->image, spec->image)) {
		r = err_set(e, WHY_NOT_COMPARABLE, -EINVAL, "only states of the same image can be compared");
	} else if ((ret->flags ^ spec->flags) & kind) {
		r = err_set(e, WHY_NOT_COMPARABLE, -EINVAL,
			    "only states of the same kind of root (read-only or not) can be compared");
	}
	return r;
}

/* What is compared with the image is what is above its layers, also when no image has them any more. */
static void keep_image(struct service *s, const struct state *to, struct sandbox_spec *older)
{
	const struct sandbox_spec *chain = to->sandbox ? to->sandbox->request->spec : to->checkpoint->chain;
	const uint32_t n = to->sandbox ? to->sandbox->request->image_layers : to->checkpoint->image_layers;

	if (s->image_layers)
		s->image_layers(s, chain, older);
	if (n <= older->layers)
		return;
	older->layers = n;
	memcpy(older->layer, chain->layer, n * sizeof(chain->layer[0]));
}

int compare_open(struct service *s, const struct compare_request *w, compare_fn *fn, void *arg, struct err *e)
{
	struct tenant *t = tenant_of(&w->to), *other = tenant_of(&w->from);
	struct sandbox_spec spec, older;
	struct msg_diff diff;
	struct opening *o;
	int r;

	if (other && other != t)
		return err_set(e, WHY_NOT_COMPARABLE, -EPERM, "both must belong to the same tenant");
	r = state_spec(&w->to, &spec, e);
	if (r == 0)
		r = older_of(&w->from, &spec, &older, e);
	if (r < 0)
		return r;
	if (!w->from.sandbox && !w->from.checkpoint && !w->from.chain && !strcmp(spec.image, SPEC_SCRATCH) && t)
		keep_image(s, &w->to, &older);
	/* All files of a machine of a stored image: its guest lists what differs from the image. */
	if (tier_is_machine(spec.flags) && w->from.chain && !older.layers && !strcmp(spec.image, SPEC_SCRATCH))
		return vm_compare_whole(s, w, fn, arg, e);
	if (tier_is_machine(spec.flags))
		return vm_compare_open(s, w, fn, arg, e);
	msg_put_diff(w->from.sandbox ? w->from.sandbox->handle : 0, &older, w->flags, w->max, &diff);
	o = calloc(1, sizeof(*o));
	if (!o)
		abort();
	*o = (struct opening){ .s = s, .tenant = t, .from = w->from, .to = w->to, .fn = fn, .arg = arg };
	state_ref(&o->from);
	state_ref(&o->to);
	warden_link_diff(s->warden, w->to.sandbox ? w->to.sandbox->handle : 0, &spec, &diff, on_opened, o);
	return 0;
}

/* --- all of it --- */

struct collect {
	struct service *s;
	struct tenant *tenant;
	uv_poll_t *poll;
	int fd;
	struct buf buf;
	compare_list_fn *fn;
	void *arg;
};

static void free_handle(uv_handle_t *h)
{
	free(h);
}

static void collect_end(struct collect *c, const struct err *e)
{
	if (c->poll) {
		uv_poll_stop(c->poll);
		uv_close((uv_handle_t *)c->poll, free_handle);
	}
	fd_close(c->fd);
	c->s->comparing--;
	c->tenant->comparing--;
	c->fn(c->arg, e ? NULL : &c->buf, e);
	buf_done(&c->buf);
	free(c);
}

static void on_readable(uv_poll_t *p, int status, int events)
{
	struct collect *c = p->data;
	struct err e = { 0 };
	char *room = buf_room(&c->buf, 65536);
	ssize_t n;

	(void)events;
	if (!room) {
		err_set(&e, ERR_TOO_LARGE, -E2BIG, "the list of differences does not fit into one answer");
		collect_end(c, &e);
		return;
	}
	n = status < 0 ? 0 : read(c->fd, room, 65536);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		buf_added(&c->buf, (size_t)n);
	else
		collect_end(c, NULL); /* whether it is whole shows its end */
}

static void on_stream(void *arg, int fd, const struct err *e)
{
	struct collect *c = arg;
	struct err why = { 0 };

	c->fd = fd;
	if (fd < 0) {
		collect_end(c, e);
		return;
	}
	fd_set_nonblock(fd);
	c->poll = malloc(sizeof(*c->poll));
	if (!c->poll || uv_poll_init(c->s->loop, c->poll, fd) < 0) {
		free(c->poll);
		c->poll = NULL;
		err_set(&why, ERR_EXHAUSTED, -ENOMEM, "no memory to compare");
		collect_end(c, &why);
		return;
	}
	c->poll->data = c;
	uv_poll_start(c->poll, UV_READABLE, on_readable);
}

int compare_list(struct service *s, const struct compare_request *w, compare_list_fn *fn, void *arg, struct err *e)
{
	struct tenant *t = tenant_of(&w->to);
	struct collect *c;
	int r;

	if (s->comparing >= AT_ONCE || t->comparing >= AT_ONCE_TENANT)
		return err_set(e, ERR_EXHAUSTED, -EAGAIN, "too many comparisons are in progress");
	c = calloc(1, sizeof(*c));
	if (!c)
		abort();
	*c = (struct collect){
		.s = s, .tenant = t, .fd = -1, .buf = BUF_INIT(COMPARE_STREAM_MAX), .fn = fn, .arg = arg
	};
	r = compare_open(s, w, on_stream, c, e);
	if (r < 0) {
		free(c);
		return r;
	}
	s->comparing++;
	t->comparing++;
	return 0;
}
