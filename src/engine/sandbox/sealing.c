/* Layers, from the view of sandboxes: sealing one into a layer, and the layers that it is based on. */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "engine/blank/persist.h"
#include "layers/settle.h"

#include <sys/timerfd.h>
#include <unistd.h>

#define LATER_NS 20000000 /* settling leaves the processors to those that are made from the layer */
#define LATEST_NS 1000000000ULL

static void sealing_free(struct warden *w, struct sealing *x)
{
	layers_drop(w->layers, x->layer, x->layers);
	LIST_REMOVE(x);
	free(x);
}

void sealing_end_all(struct warden *w)
{
	while (w->sealings)
		sealing_free(w, w->sealings);
	/* The next warden settles them. */
	while (w->unsettled) {
		struct seal *x = w->unsettled;

		w->unsettled = (struct seal *)(void *)x->work.next;
		seal_free(x);
	}
}

static void settle_in_a_moment(const struct warden *w)
{
	struct itimerspec t = { .it_value.tv_nsec = LATER_NS };

#ifdef CLOCHE_FAULTS
	/* So that a test finds the moment in between. */
	if (getenv("CLOCHE_SETTLE_SECONDS"))
		t.it_value.tv_sec = strtol(getenv("CLOCHE_SETTLE_SECONDS"), NULL, 10);
#endif
	timerfd_settime(w->later, 0, &t, NULL);
}

static void settle_later(struct warden *w, struct seal *x)
{
	x->work.next = (struct work *)w->unsettled;
	w->unsettled = x;
	settle_in_a_moment(w);
	seal_fill(w->workers, w->children, x); /* the next layer's folder need not wait for it */
}

/* Those whose time has come; not while sandboxes are made from layers, unless they have waited for long. */
static void settle_due(struct warden *w)
{
	const uint64_t now = clock_real_ns();
	uint64_t n;

	if (!w->unsettled || read(w->later, &n, sizeof(n)) < 0)
		return;
	for (struct seal **at = &w->unsettled; *at;) {
		struct seal *x = *at;

		if (w->restorings && now - x->m.made < LATEST_NS) {
			at = (struct seal **)(void *)&x->work.next;
			continue;
		}
		*at = (struct seal *)(void *)x->work.next;
		seal_settle(w->workers, x);
	}
	if (w->unsettled)
		settle_in_a_moment(w);
}

/* What is the store's, and not a sandbox's. */
static struct seal_source store_of(const struct warden *w)
{
	return (struct seal_source){
		.dir = w->env.layers, .watch = layers_watch(w->layers), .children = w->children, .settles = w->settles
	};
}

void sealing_settle_found(struct warden *w)
{
	const struct seal_source of = store_of(w);
	struct layer_facts f = { .id = "" };

	while (layers_next(w->layers, f.id, &f)) {
		int r = manifest_unsettled(f.m) ? seal_settle_found(w->workers, &of, f.m) : 0;

		if (r < 0)
			log_error("layer '%s' remains unsettled: %s", f.id, strerror(-r));
	}
}

void sealing_leave(struct warden *w, struct warden_sandbox *s)
{
	if (s->sealing) {
		seal_leave(s->sealing->seal);
		s->sealing->sandbox = NULL;
		s->sealing = NULL;
	}
	if (w->layers)
		layers_drop(w->layers, s->layer, s->layers);
}

static int no_layers(struct err *e)
{
	return err_advise(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "start it with --layers", "this warden has no layers");
}

int sealing_check(struct warden *w, const struct sandbox_spec *spec, struct err *e)
{
	int r = w->layers ? layers_check(w->layers, spec, e) : no_layers(e);

	if (r == 0 && !layers_good(w->layers, spec))
		r = err_set(e, ERR_REFUSED, -EAGAIN,
			    "the files of a layer have not been verified against its manifest");
	return r;
}

static int seal_allowed(struct warden *w, const struct warden_sandbox *s, const char *id, struct err *e)
{
	if (!w->layers)
		return no_layers(e);
	if (tier_needs(s->tier, TIER_CHECKPOINTS, e) < 0)
		return -EOPNOTSUPP;
	if (s->sealing)
		return err_advise(e, ERR_CONFLICT, -EBUSY, "try again in a moment",
				  "the sandbox is already being sealed");
	if (layers_find(w->layers, id))
		return err_set(e, ERR_CONFLICT, -EEXIST, "layer '%s' already exists", id);
	if (s->root.premount.writable < 0)
		return err_set(e, ERR_CONFLICT, -EAGAIN, "the sandbox is not ready yet");
	return 0;
}

/* What taking its memory needs, besides. */
static int source_memory(struct warden *w, struct warden_sandbox *s, struct seal_source *from, struct err *e)
{
	int table;

	if (!(s->blank.cgroup.mask & CGROUP_BIT(CGROUP_FREEZER)))
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "memory cannot be saved: the sandbox has no freezer");
	table = s->blank.recorded ? persist_table(&s->blank) : -EOPNOTSUPP;
	if (table == -EOPNOTSUPP || table == -EBADF || table == -EBADMSG)
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
			       "memory cannot be saved: its agent has no table of execs");
	if (table < 0)
		return err_sys(e, ERR_INTERNAL, table, "take the agent's table");
	from->table = table;
	from->program = w->env.program[ENV_DUMP];
	from->limit = s->memory;
	from->pidfd = s->blank.pidfd;
	from->pid = s->blank.pid;
	if (s->flags & SPEC_MEMORY)
		memcpy(from->restored, s->layer[s->layers - 1], ID_SIZE);
	return 0;
}

/* Adds the layers below that are not safe on the disk yet. */
static int source_unsettled(const struct warden *w, const struct warden_sandbox *s, struct seal_source *from,
			    struct err *e)
{
	for (uint32_t n = 0; n < s->layers; n++) {
		int r = layers_unsettled(w->layers, s->layer[n]);

		if (r < 0)
			return err_sys(e, ERR_INTERNAL, r,
				       "layer '%s', which the sandbox is based on, cannot be written", s->layer[n]);
		if (r)
			memcpy(from->unsettled_id[from->unsettled++], s->layer[n], ID_SIZE);
	}
	return 0;
}

/*
 * The number of layers of a sandbox is limited. When it has many, the newest become part of the new one: one at least,
 * and further ones while they are not much larger than what is joined so far. So a large old layer is not copied for
 * every small new one, and each byte is copied a few times in all, however often the sandbox is sealed.
 */
static void choose_joins(const struct warden *w, const struct warden_sandbox *s, struct seal_source *from)
{
	uint64_t sum = 0;

	if (s->layers < SEAL_LAYERS)
		return;
	for (uint32_t n = s->layers; n-- > 0;) {
		const struct manifest *m = layers_find(w->layers, s->layer[n]);
		uint64_t size = m ? m->size + m->entries * 4096 : 0;

		if (from->joins && s->layers - from->joins < SEAL_LAYERS && size / 2 > sum)
			break;
		sum += size;
		memcpy(from->join[from->joins++], s->layer[n], ID_SIZE);
	}
	from->join_bytes = sum;
}

int warden_seal(struct warden *w, struct warden_sandbox *s, const char *id, uint32_t what, void *tag, struct err *e)
{
	struct seal_source from = {
		.dir = w->env.layers,
		.watch = w->layers ? layers_watch(w->layers) : NULL,
		.writable = s->root.premount.writable,
		.uid_base = s->blank.uid_base,
		.children = w->children,
		.promised = &w->promised,
		.settles = w->settles,
		.soon = (what & ~WARDEN_REFUSE_NETWORK) == WARDEN_MEMORY_SOON && !s->tier->machine,
		.refuses_network = what & WARDEN_REFUSE_NETWORK,
		.paused = s->frozen,
		.cgroups = &w->env.cgroups,
		.cgroup = &s->blank.cgroup,
		.crypt = &w->env.crypt,
		.table = -1,
		.side = -1,
	};
	struct manifest m = {
		.flags = s->flags & (SPEC_READ_ONLY | SPEC_SYSTEM_WRITABLE | SPEC_SYSTEM_LATER | SPEC_TIERS),
		.tenant = s->tenant,
	};
	int r = seal_allowed(w, s, id, e);
	struct sealing *x;

	if (r < 0)
		return r;
	snprintf(m.id, sizeof(m.id), "%s", id);
	memcpy(m.image, s->image, strlen(s->image));
	x = calloc(1, sizeof(*x));
	if (!x)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to seal a sandbox");
	persist_settle(&s->blank);
	/* A machine's memory is always part of it: its disk alone is in the middle of something. */
	if (s->tier->machine && from.refuses_network) {
		r = err_advise(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "leave `network` out",
			       "connections of a virtual machine are not visible from outside");
	} else if (s->tier->seal_begin) {
		r = s->tier->seal_begin(w, s, &from, e);
	} else {
		choose_joins(w, s, &from);
		for (uint32_t n = 0; n < s->layers; n++) {
			const struct manifest *l = layers_find(w->layers, s->layer[n]);

			from.below |= l ? l->trees : ~0U;
		}
		r = source_unsettled(w, s, &from, e);
		if (r == 0 && what != WARDEN_FILES)
			r = source_memory(w, s, &from, e);
	}
	m.depth = s->layers - from.joins + 1;
	if (m.depth > 1)
		snprintf(m.parent, sizeof(m.parent), "%s", s->layer[m.depth - 2]);
	if (r == 0)
		r = seal_start(w->workers, &from, &m, x, &x->seal, e);
	if (r < 0) {
		if (s->tier->seal_end && from.disks)
			s->tier->seal_end(w, s, &from, NULL);
		fd_close(from.table);
		free(x);
		return r;
	}
	x->tag = tag;
	x->sandbox = s;
	x->layers = s->layers;
	memcpy(x->layer, s->layer, sizeof(x->layer));
	layers_hold(w->layers, x->layer, x->layers);
	LIST_ADD(&w->sealings, x);
	s->sealing = x;
	return 0;
}

int warden_layers_ready(struct warden *w, const struct sandbox_spec *spec, void *tag, struct err *e)
{
	struct seal_source of;
	const char *id;
	int r;

	if (!spec->layers)
		return 0;
	r = w->layers ? layers_check(w->layers, spec, e) : no_layers(e);
	if (r < 0)
		return r;
	id = layers_unverified(w->layers, spec);
	if (!id)
		return 0;
	of = store_of(w);
	r = seal_verify(w->workers, &of, layers_find(w->layers, id), tag, e);
	return r < 0 ? r : 1;
}

static int unseal(struct warden *w, const char *id, int (*how)(struct layers *l, const char *id, struct err *e),
		  struct err *e)
{
	int r;

	warden_compare_reap(w);
	r = w->layers ? how(w->layers, id, e) : no_layers(e);
	if (r == 0 && w->pool)
		pool_drop_prebuilt(w->pool, id);
	for (const struct tier_ops *const *t = w->tiers; r == 0 && t && *t; t++)
		if ((*t)->unsealed)
			(*t)->unsealed(w, id);
	return r;
}

int warden_unseal(struct warden *w, const char *id, struct err *e)
{
	return unseal(w, id, layers_remove, e);
}

int warden_put_aside(struct warden *w, const char *id, struct err *e)
{
	return unseal(w, id, layers_put_aside, e);
}

bool warden_layer_next(struct warden *w, const char *id, struct layer_facts *ret)
{
	/*
	 * Ends comparisons that are over: they would still hold their layers, and a caller that removes unused layers
	 * would skip those.
	 */
	unsigned left = id[0] ? 0 : warden_compare_reap(w);

	if (w->layers && layers_next(w->layers, id, ret))
		return true;
	*ret = (struct layer_facts){ .users = id[0] ? warden_compare_reap(w) : left };
	return false;
}

int warden_done_fd(const struct warden *w)
{
	return w->done;
}

/* Whether that is what it was: then it is over. */
static bool settled(struct warden *w, struct work *work)
{
	struct seal *x = (struct seal *)(void *)work;

	if (work->tier || x->kind != SEAL_SETTLE)
		return false;
	layers_settled(w->layers, &x->m, x->result);
	settle_forget(w->settles, x->m.id, layers_unsettled(w->layers, x->m.id) == 0);
	seal_retire(w->workers, x);
	return true;
}

static bool tier_done(struct warden *w, struct warden_done *ret)
{
	for (const struct tier_ops *const *t = w->tiers; t && *t; t++)
		if ((*t)->done && (*t)->done(w, ret))
			return true;
	return false;
}

bool warden_done(struct warden *w, struct warden_done *ret)
{
	struct work *work;
	struct seal *x;

	/* Not before the last one is answered: it would take a processor that the answer's way needs. */
	if (w->retired)
		seal_retire(w->workers, TAKE_PTR(w->retired));
	settle_due(w);
	while ((work = w->workers ? workers_done(w->workers) : NULL)) {
		if (work->tier)
			work->tier->worked(w, work);
		else if (!settled(w, work)) /* else it may be freed by now */
			break;
	}
	if (!work)
		return (w->workers && restoring_done(w, ret)) || tier_done(w, ret);
	x = (struct seal *)(void *)work;
	*ret = (struct warden_done){ .what = WARDEN_DONE_LOOKED, .tag = x->tag, .result = x->result };
	if (x->kind == SEAL_VERIFY) {
		const int r = x->result;

		/* Only what was looked at has a verdict; and then that is what counts. */
		if (r == -EAGAIN) {
			ret->result = 0; /* it is looked at again */
		} else if (r == -ECANCELED || r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EIO) {
			err_sys(&ret->e, r == -EIO ? ERR_INTERNAL : ERR_EXHAUSTED, r, "read the status of layer '%s'",
				x->m.id);
		} else {
			layers_settled(w->layers, &x->m, r);
			layers_verdict(w->layers, x->m.id, r == 0);
			ret->result = 0;
		}
	} else {
		struct sealing *s = x->tag;

		ret->tag = s->tag;
		ret->what = WARDEN_DONE_SEALED;
		ret->e = x->e;
		ret->layer = x->m;
		ret->pause = x->pause;
		ret->cuts = x->cuts;
		if (x->result == 0)
			ret->result = layers_add(w->layers, &x->m, &ret->e);
		if (s->sandbox) {
			s->sandbox->sealing = NULL;
			if (s->sandbox->tier->seal_end)
				s->sandbox->tier->seal_end(w, s->sandbox, NULL, x);
		}
		sealing_free(w, s);
		if (ret->result == 0 && manifest_unsettled(&x->m)) {
			settle_later(w, x);
			return true;
		}
	}
	w->retired = x;
	return true;
}
