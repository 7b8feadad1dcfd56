/* Makes, finds again and ends sandboxes. */
#include "engine/sandbox/sandbox.h"
#include "base/base.h"
#include "base/list.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/blank/persist.h"
#include "engine/blank/score.h"
#include "engine/blank/sweep.h"
#include "engine/image/device_folder.h"
#include "engine/image/devices.h"
#include "engine/image/disk.h"
#include "engine/image/procfs.h"
#include "engine/pool/limit.h"
#include "engine/sandbox/internal.h"
#include "layers/children.h"
#include "layers/settle.h"
#include "linux/seccomp.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORKERS 8
#define DYING_MS 5000
#define UNPARKED(makers)                                                                                               \
	((makers) > 1 ? 48U : 16U) /* the newest ones keep all they were made with: most of them end soon */

const struct tier_ops container_tier = { .name = "container" };

/* NULL: not one of this warden's. */
static const struct tier_ops *find_tier(const struct warden *w, uint32_t flags)
{
	for (const struct tier_ops *const *t = w->tiers; t && *t; t++)
		if ((*t)->flag == (flags & SPEC_TIERS))
			return *t;
	return flags & SPEC_TIERS ? NULL : &container_tier;
}

static void add(struct warden *w, struct warden_sandbox *s)
{
	LIST_ADD(&w->alive, s);
	w->counts.alive++;
	/* A machine's memory is what its process has, and that is counted. */
	if (s->memory && !s->tier->machine && s->blank.cgroup.mask & CGROUP_BIT(CGROUP_MEMORY))
		s->watched = kernel_watch_add(w->kernel, &(struct kernel_watch_add){
								 .pid = s->blank.pid,
								 .pidfd = s->blank.pidfd,
								 .cgroup = &s->blank.cgroup,
								 .memory = s->memory,
								 .tenant = s->tenant,
								 .writable = s->root.premount.writable,
								 .restores = s->restoring,
							 });
	else
		return;
	s->receipt.sockets = kernel_watch_bound(s->watched);
	s->receipt.tenant_share = s->watched ? kernel_watch_share(w->kernel) : 0;
	if (!s->watched) {
		log_error("slot %u cannot be watched, and is ended", s->blank.slot);
		sys_pidfd_send_signal(s->blank.pidfd, SIGKILL);
	}
}

static void take_out(struct warden *w, struct warden_sandbox *s)
{
	kernel_watch_remove(w->kernel, TAKE_PTR(s->watched));
	LIST_REMOVE(s);
	w->counts.alive--;
}

/*
 * Each sandbox keeps a handful of descriptors for its whole life: its first process, its slot, its writable layer and
 * the file with its memory. The others are opened again when they are needed, so that the limit of open files is not
 * the limit of sandboxes. A parked sandbox's network namespace is closed, so it is not recycled.
 */
static void sandbox_park(struct warden_sandbox *s)
{
	if (s->parked || !s->blank.recorded || s->sealing || s->restoring || s->tier->machine)
		return;
	s->parked = true;
	fd_close(TAKE_FD(s->blank.userns));
	fd_close(TAKE_FD(s->blank.net));
	fd_close(TAKE_FD(s->blank.tree));
	persist_park(&s->blank);
	cgroup_park(&s->blank.cgroup);
}

static void park_old(struct warden *w)
{
	struct warden_sandbox *s = w->alive;

	for (unsigned i = 0; s && i < UNPARKED(pool_makers(w->pool)); i++)
		s = s->next;
	/* A few more than one: those that were busy when their turn came. */
	for (unsigned i = 0; s && i < 4; i++, s = s->next)
		sandbox_park(s);
}

/* Lets go of one without ending it: the next warden finds it by its record. */
static void forget(struct warden *w, struct warden_sandbox *s)
{
	struct blank *b = &s->blank;

	take_out(w, s);
	sealing_leave(w, s);
	if (s->tier->forget)
		s->tier->forget(w, s);
	fd_close_many((int[]){ b->sock, b->userns, b->net, b->slot_fd, b->take, b->give, b->group, b->tree, b->pidfd },
		      9);
	fd_close_many(s->blank.way, STEER_SOCKETS);
	cgroup_done(&s->blank.cgroup);
	groups_done(&s->groups);
	root_done(&s->root);
	free(s);
}

static int adopt(struct warden *w, const struct record *rec, struct err *e)
{
	struct warden_sandbox *s = calloc(1, sizeof(*s));
	const struct tier_ops *tier;
	int r;

	if (!s)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	root_init(&s->root);
	r = persist_adopt(&w->env, rec, &s->blank, &s->root.premount.meminfo, &s->root.premount.writable, e);
	if (r < 0) {
		free(s);
		return r == -ESRCH ? 0 : r;
	}
	s->handle = rec->handle;
	s->memory = rec->memory;
	s->frozen = rec->flags & RECORD_FROZEN;
	s->receipt = (struct warden_receipt){
		.cgroup_version = rec->cgroup_version,
		.controllers = rec->mask,
		.filter_len = rec->filter_len,
		.uid_base = rec->uid_base,
		.idmapped = rec->idmapped,
		.kvm = rec->kvm,
		.disk = rec->disk,
		.inodes = rec->inodes,
	};
	s->tenant = rec->spec_tenant;
	s->flags = rec->spec_flags;
	tier = find_tier(w, s->flags);
	s->tier = tier ? tier : &container_tier;
	s->late = rec->flags & RECORD_STEERED;
	s->blank.steered = s->flags & SPEC_NET || s->late;
	s->layers = rec->layers;
	memcpy(s->image, rec->image, sizeof(s->image));
	memcpy(s->layer, rec->layer, sizeof(s->layer));
	if (w->layers)
		layers_hold(w->layers, s->layer, s->layers);
	/* Its warden may have died during a seal, which had frozen the sandbox. Only this thaws it again. */
	if (!s->frozen && s->blank.cgroup.mask & CGROUP_BIT(CGROUP_FREEZER) &&
	    cgroup_thaw(&w->env.cgroups, &s->blank.cgroup, e) < 0)
		log_error("slot %u: %s", rec->slot, e->msg);
	/*
	 * A paused sandbox may have been thawed for its memory image, and runs since the process that held its threads
	 * died.
	 */
	if (s->frozen && s->blank.cgroup.mask & CGROUP_BIT(CGROUP_FREEZER) &&
	    cgroup_freeze(&w->env.cgroups, &s->blank.cgroup, e) < 0)
		log_error("slot %u: %s", rec->slot, e->msg);
	add(w, s);
	r = kernel_watch_mend(w->kernel, s->watched);
	if (r < 0)
		log_error("slot %u: its memory limit may be too low: errno %d", rec->slot, -r);
	if (rec->flags & RECORD_RESTORING) {
		log_warn("slot %u: its warden ended while it was being restored", rec->slot);
		return warden_destroy(w, s, e);
	}
	r = !tier	? err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "its isolation is not one of this warden's") :
	    tier->adopt ? tier->adopt(w, s, rec, e) :
			  0;
	if (r < 0) {
		log_error("slot %u: %s", rec->slot, e->msg);
		return warden_destroy(w, s, e);
	}
	r = groups_init(&s->groups, &w->env.cgroups, &s->blank.cgroup);
	sandbox_park(s);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "list the exec groups of slot %u", rec->slot) : 0;
}

/* A sandbox that cannot be adopted is left as it is, and logged: its work must not be lost. */
static void adopt_all(struct warden *w)
{
	uint32_t end = records_end(&w->env.records);
	struct err e = { 0 };
	struct record rec;

	for (uint32_t slot = 0; slot < end; slot++) {
		int r = records_read(&w->env.records, slot, &rec);

		if (r == 1)
			r = adopt(w, &rec, &e);
		else if (r < 0)
			err_sys(&e, ERR_INTERNAL, r, "read the record of slot %u", slot);
		if (r < 0)
			log_error("%s", e.msg);
	}
}

int sandbox_workers(struct warden *w, struct err *e)
{
	int r = w->workers ? 0 : workers_new(WORKERS, &w->workers, e);

	return r == 0 && w->done < 0 ? restoring_open(w, e) : r;
}

static int open_layers(struct warden *w, struct err *e)
{
	int r = sandbox_workers(w, e);

	w->children = layer_children_new(w->env.program[ENV_LAYERS], w->env.layers);
	if (r == 0)
		r = layers_new(w->env.layers, w->workers, &w->layers, e);
	w->settles = r == 0 && w->children ? settles_new(w->children) : NULL;
	if (r == 0 && !w->settles)
		r = err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for layers");
	if (r < 0)
		return r;
	seal_fill(w->workers, w->children, NULL);
	sealing_settle_found(w);
	return 0;
}

int warden_new(const struct warden_opts *o, struct warden **ret, struct err *e)
{
	struct warden *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a warden");
	w->done = w->timer = w->later = -1;
	w->tiers = o->tiers;
	r = env_open(&o->env, &w->env, e);
	if (r < 0) {
		free(w);
		return r;
	}
	r = kernel_watch_new(
		&(struct kernel_watch_opts){
			.looker = o->looker,
			.host = &w->env.cgroups,
			.net = w->env.net,
			.program = w->env.program[ENV_WATCH],
			.rootless = w->env.rootless,
			.persist = w->env.persist,
			.sockets = o->sockets,
			.percent = o->tenant_share,
		},
		&w->kernel, e);
	if (r == 0 && w->env.layers >= 0)
		r = open_layers(w, e);
	if (r < 0)
		goto fail;
	if (w->env.persist)
		adopt_all(w);
	for (const struct tier_ops *const *t = w->tiers; t && *t; t++)
		if ((*t)->open)
			(*t)->open(w);
	if (o->pool) {
		sweep_groups(&w->env, 0);
		r = w->env.rootless ? err_set(e, ERR_UNSUPPORTED, -EPERM, "a pool needs root") :
				      pool_new(&w->env, o->pool, &w->pool, e);
		if (r < 0)
			goto fail;
	}
	*ret = w;
	return 0;
fail:
	warden_free(w);
	return r;
}

void warden_free(struct warden *w)
{
	if (!w)
		return;
	warden_compare_end(w);
	for (const struct tier_ops *const *t = w->tiers; t && *t; t++)
		if ((*t)->close)
			(*t)->close(w);
	while (w->alive) {
		if (w->env.persist && !w->alive->restoring)
			forget(w, w->alive);
		else
			warden_destroy(w, w->alive, NULL);
	}
	kernel_watch_free(w->kernel);
	guard_end(&w->guard);
	restoring_close(w);
	workers_free(w->workers);
	seal_free(w->retired);
	for (const struct tier_ops *const *t = w->tiers; t && *t; t++)
		if ((*t)->free)
			(*t)->free(w);
	sealing_end_all(w);
	layer_children_free(w->children); /* layers that are not settled give theirs back to it */
	settles_free(w->settles);
	layers_free(w->layers);
	if (w->pool) {
		pool_free(w->pool);
		/* What a killed predecessor kept ready was dying when we began, and may be so still. */
		sweep_groups(&w->env, DYING_MS);
	}
	env_done(&w->env);
	free(w);
}

/* Sandboxes of one host are much alike: the next blanks are prepared for what was asked last. */
static void learn(struct warden *w, const struct sandbox_spec *spec, const struct root *root)
{
	struct pool_guess g = {
		.limits = limit_groups(&spec->limits),
		.size = root->disk,
		.inodes = root->inodes,
		.cpus = procfs_cpus(spec->limits.cpu_milli),
		.tenant = spec->tenant,
		.net = spec->flags & SPEC_NET,
	};

	if (g.net)
		g.rules = spec->net;
	if (w->pool && !spec->limits.io_bps && !spec->ndevices && !(spec->flags & SPEC_DISK))
		pool_learn(w->pool, &g, spec);
}

/* Until the agent speaks, or is dead: then its start is over. */
static void wait_exec(const struct blank *s)
{
	struct pollfd p = { .fd = s->sock, .events = POLLIN };

	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
}

static int take_blank(struct warden *w, const struct sandbox_spec *spec, struct pool_item *ret, struct err *e)
{
	const struct cgroup_limits want = limit_groups(&spec->limits);
	unsigned controllers = w->env.controllers;
	int r;

	/*
	 * The I/O controller makes a group cost more, so only sandboxes that need it have it; they do not come from the
	 * pool.
	 */
	if (spec->limits.io_bps)
		controllers |= w->env.cgroups.have & CGROUP_BIT(CGROUP_IO);
	/* A sandbox with a device of its own does not come from the pool either. */
	else if (w->pool && !w->start.devices) {
		r = pool_take(w->pool, spec, ret, e);
		if (r < 0 || !pool_limits_lifted(&ret->blank.ground, &want))
			return r;
		pool_give_up(w->pool, ret);
	}
	w->start.image = &w->env.image;
	w->start.uid = spec->uid;
	w->start.gid = spec->gid;
	w->start.steer = spec->flags & SPEC_NET ? &spec->net : NULL;
	r = blank_make(&w->env, &w->start, controllers, spec->uid, &ret->blank, e);
	/* The next one starts on the same stack. */
	if (r == 0 && !w->env.one_shot) {
		wait_exec(&ret->blank);
		r = score_set(&ret->blank, e);
		if (r == -ESRCH || r == -ENOENT)
			r = 0; /* its death is found, with the reason, by what waits for it */
		if (r < 0)
			blank_end(&w->env, &ret->blank, NULL);
	}
	return r;
}

static void fill_receipt(const struct warden *w, struct warden_sandbox *s)
{
	s->receipt = (struct warden_receipt){
		.cgroup_version = (uint32_t)w->env.cgroups.version,
		.controllers = s->blank.cgroup.mask,
		.filter_len = (uint32_t)seccomp_program_len(),
		.idmapped = s->root.idmapped,
		.uid_base = s->blank.uid_base,
		.rootless = w->env.rootless,
		.disk = s->root.disk,
		.inodes = s->root.inodes,
	};
}

/* 64 random bits, so that a handle never names another sandbox later, and cannot be guessed. */
static int new_handle(uint64_t *ret, struct err *e)
{
	uint64_t h = 0;

	while (!h) {
		ssize_t n = sys_getrandom(&h, sizeof(h), 0);

		if (n != (ssize_t)sizeof(h))
			return err_sys(e, ERR_INTERNAL, n < 0 ? (int)n : -EIO, "make a handle");
	}
	*ret = h;
	return 0;
}

int sandbox_persist(struct warden *w, struct warden_sandbox *s, struct err *e)
{
	struct record rec = {
		.handle = s->handle,
		.memory = s->memory,
		.io_bps = s->blank.limits.io_bps,
		.pids = s->blank.limits.pids,
		.cpu_milli = s->blank.limits.cpu_milli,
		.cgroup_version = s->receipt.cgroup_version,
		.filter_len = s->receipt.filter_len,
		.idmapped = s->receipt.idmapped,
		.disk = s->receipt.disk,
		.inodes = s->receipt.inodes,
		.spec_tenant = s->tenant,
		.spec_flags = s->flags,
		.layers = s->layers,
		.flags = s->flags & SPEC_MEMORY || s->tier->machine ? RECORD_RESTORING : 0,
	};
	int more[FRAME_KEEP_VM_FDS];

	memcpy(rec.image, s->image, sizeof(rec.image));
	memcpy(rec.layer, s->layer, sizeof(rec.layer));
	s->groups.last = s->groups.count = s->blank.grouped;
	if (s->tier->record)
		s->tier->record(s, &rec, more);
	return persist_start(&w->env, &s->blank, s->root.premount.meminfo, s->root.premount.writable,
			     s->tier->record ? more : NULL, &rec, e);
}

/* Makes its mounts, unless it is prebuilt. */
static int set_up(struct warden *w, struct warden_sandbox *s, const struct sandbox_spec *spec, struct pool_item *it,
		  struct err *e)
{
	int r;

	if (it->prebuilt) {
		s->root = it->root;
		return 0;
	}
	r = root_build(&w->env, &w->env.image, &s->blank, spec, w->start.devices, &it->premount, &s->root, e);
	return r < 0 ? r : root_send(&s->root, s->blank.sock, e);
}

static int make(struct warden *w, const struct sandbox_spec *spec, struct warden_sandbox *s, struct err *e)
{
	struct pool_item it = { 0 };
	int r;

	premount_init(&it.premount);
	root_init(&it.root);
	guard_end(&w->guard);
	w->start.guard = w->pool ? NULL : &w->guard;
	r = take_blank(w, spec, &it, e);
	if (r < 0) {
		guard_end(&w->guard);
		return r;
	}
	s->blank = it.blank;
	r = set_up(w, s, spec, &it, e);
	/* While the agent works. Nothing of the sandbox's own runs before its first exec. */
	if (r == 0)
		r = net_fit(w, &s->blank, spec, e);
	if (r == 0)
		r = limit_set(&w->env, &s->blank, &s->root, &spec->limits, e);
	if (r == 0) {
		fill_receipt(w, s);
		return 0;
	}
	blank_end(&w->env, &s->blank, NULL);
	guard_end(&w->guard);
	root_done(&s->root);
	blank_init(&s->blank);
	root_init(&s->root);
	return r;
}

/* What its devices are; they are the caller's to free. */
static int find_devices(struct warden *w, const struct sandbox_spec *spec, struct device_plan **ret, struct err *e)
{
	const struct devices_from from = { w->env.program[ENV_DEVICES], w->env.cdi, !strcmp(spec->image, "host"),
					   w->env.rootless };
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < spec->ndevices; i++)
		r = w->env.policy.device(w->env.policy.arg, spec->device[i], e);
	if (r == 0)
		*ret = calloc(1, sizeof(**ret));
	if (r == 0 && !*ret)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for devices");
	if (r == 0)
		r = devices_ask(&from, spec->device, spec->ndevices, *ret, e);
	return r == 0 ? devices_check(*ret, spec->device, spec->ndevices, e) : r;
}

int sandbox_make(struct warden *w, const struct sandbox_spec *spec, struct warden_sandbox *s, struct err *e)
{
	AUTO_FREE struct device_plan *devices = NULL;
	int r = spec->ndevices ? find_devices(w, spec, &devices, e) : 0;

	if (r < 0)
		return r;
	w->start.devices = spec->flags & SPEC_KVM ? &device_kvm : devices;
	r = make(w, spec, s, e);
	w->start.devices = NULL;
	return r;
}

int sandbox_new(const struct sandbox_spec *spec, struct warden_sandbox **ret, struct err *e)
{
	struct warden_sandbox *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	root_init(&s->root);
	blank_init(&s->blank);
	s->tier = &container_tier;
	r = new_handle(&s->handle, e);
	if (r < 0) {
		free(s);
		return r;
	}
	s->memory = spec->limits.memory;
	s->tenant = spec->tenant;
	s->flags = spec->flags;
	s->layers = spec->layers;
	memcpy(s->image, spec->image, sizeof(s->image));
	memcpy(s->layer, spec->layer, sizeof(s->layer));
	*ret = s;
	return 0;
}

void sandbox_show(struct warden *w, struct warden_sandbox *s)
{
	fd_close_many(s->root.fds, s->root.setup.mounts.n);
	add(w, s);
	w->counts.made++;
	park_old(w);
}

static int check(struct warden *w, const struct sandbox_spec *spec, struct err *e)
{
	int r = spec_check(spec, e);

	if (r == 0)
		r = limit_check(&w->env, &spec->limits, e);
	if (r == 0 && spec->layers)
		r = sealing_check(w, spec, e);
	if (r == 0 && spec->flags & SPEC_MEMORY && !w->env.persist)
		r = err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
			    "memory can only be restored by a warden that keeps its sandboxes");
	return r;
}

static int create(struct warden *w, const struct sandbox_spec *spec, struct warden_sandbox **ret, struct err *e)
{
	const struct sandbox_spec *asked = spec;
	struct sandbox_spec settled;
	struct warden_sandbox *s;
	const struct tier_ops *tier;
	int r = check(w, spec, e);

	if (r < 0)
		return r;
	if (spec->flags & (SPEC_SYSTEM_LATER | SPEC_MANY | SPEC_ONCE)) {
		settled = *spec;
		settled.flags &= ~(SPEC_MANY | SPEC_ONCE);
		if (spec->flags & SPEC_SYSTEM_LATER && !system_later(w, spec))
			settled.flags &= ~SPEC_SYSTEM_LATER;
		if (spec->flags & SPEC_MANY && w->pool)
			pool_share_many(w->pool, &settled);
		spec = &settled;
	}
	tier = find_tier(w, spec->flags);
	if (!tier)
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "this isolation is not available here");
	r = tier->check ? tier->check(spec, e) : 0;
	if (r < 0)
		return r;
	if (tier->create)
		return tier->create(w, spec, ret, e);
	r = sandbox_new(spec, &s, e);
	if (r < 0)
		return r;
	r = sandbox_make(w, spec, s, e);
	if (r < 0) {
		free(s);
		return r;
	}
	r = w->env.persist ? sandbox_persist(w, s, e) : 0;
	if (r == 0 && spec->flags & SPEC_MEMORY)
		r = restoring_start(w, s, e);
	if (r < 0)
		goto fail;
	learn(w, asked->flags & SPEC_ONCE ? asked : spec, &s->root);
	if (w->layers) {
		seal_close(w->workers, TAKE_FD(s->root.store));
		layers_hold(w->layers, s->layer, s->layers);
	}
	sandbox_show(w, s);
	*ret = s;
	return s->restoring != NULL;
fail:
	blank_end(&w->env, &s->blank, NULL);
	guard_end(&w->guard);
	root_done(&s->root);
	free(s);
	return r;
}

int warden_create(struct warden *w, const struct sandbox_spec *spec, struct warden_sandbox **ret, struct err *e)
{
	struct err own = { 0 };
	int r;

	e = e ? e : &own;
	r = create(w, spec, ret, e);
	/* Whatever was tried when they ran out: the host can do it, and could again. */
	if (r < 0 && (e->errnum == EMFILE || e->errnum == ENFILE)) {
		err_because(e, ERR_EXHAUSTED);
		err_wrap(e, r, "too many open files");
		e->remedy[0] = '\0';
		err_remedy(
			e,
			"delete sandboxes, or raise the limit of open files (LimitNOFILE=, fs.nr_open, fs.file-max)");
	}
	return r;
}

int sandbox_end(struct warden *w, struct warden_sandbox *s, struct err *e)
{
	int r = 0;

	restoring_leave(w, s);
	sealing_leave(w, s);
	if (s->tier->end)
		s->tier->end(w, s);
	groups_done(&s->groups);
	if (s->blank.pidfd < 0) {
		root_done(&s->root);
		free(s);
		return 0;
	}
	sys_pidfd_send_signal(s->blank.pidfd, SIGKILL);
	/* On version 1 what is frozen does not even die. */
	if (s->frozen)
		cgroup_thaw(&w->env.cgroups, &s->blank.cgroup, NULL);
	if (!w->pool || pool_clean(w->pool, &s->blank, &s->root) < 0) {
		r = blank_end(&w->env, &s->blank, e);
		guard_dismiss(&w->guard);
		root_done(&s->root);
	}
	free(s);
	return r;
}

int warden_destroy(struct warden *w, struct warden_sandbox *s, struct err *e)
{
	/* First of all: taking it out may wait for the watch. */
	if (s->watched && !s->restoring)
		sys_pidfd_send_signal(s->blank.pidfd, SIGKILL);
	take_out(w, s);
	w->counts.ended++;
	return sandbox_end(w, s, e);
}

uint64_t warden_handle(const struct warden_sandbox *s)
{
	return s->handle;
}

struct warden_sandbox *warden_next(struct warden *w, struct warden_sandbox *s)
{
	return s ? s->next : w->alive;
}

int warden_sock(const struct warden_sandbox *s)
{
	return s->tier->sock ? *s->tier->sock(s) : s->blank.sock;
}

void warden_let_go(struct warden_sandbox *s)
{
	if (s->blank.recorded)
		fd_close(s->tier->sock ? TAKE_FD(*s->tier->sock(s)) : TAKE_FD(s->blank.sock));
}

int warden_attach(struct warden_sandbox *s, int *ret_sock, struct err *e)
{
	*ret_sock = -1;
	if (s->tier->attach && s->blank.recorded)
		return s->tier->attach(s, ret_sock, e);
	return s->blank.recorded ? persist_attach(&s->blank, ret_sock, e) : 0;
}

int warden_pidfd(const struct warden_sandbox *s)
{
	return s->blank.pidfd;
}

const struct warden_receipt *warden_receipt(const struct warden_sandbox *s)
{
	return &s->receipt;
}

int warden_disk_next(struct warden *w, const char *id, char *ret, struct err *e)
{
	return w->env.disks < 0 ? 0 : disk_next(w->env.disks, id, ret, e);
}

int warden_disk_remove(struct warden *w, const char *id, enum disk_end end, struct err *e)
{
	return w->env.disks < 0 ? err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "this warden keeps no disks") :
				  disk_remove(w->env.disks, id, end, e);
}

static int refuse_busy(const struct warden_sandbox *s, struct err *e)
{
	if (!s->sealing || !seal_busy(s->sealing->seal))
		return 0;
	return err_advise(e, ERR_CONFLICT, -EBUSY, "wait until that is done", "the sandbox is being sealed");
}

static uint32_t late_flag(const struct warden_sandbox *s)
{
	return s->late ? RECORD_STEERED : 0;
}

int warden_freeze(struct warden *w, struct warden_sandbox *s, struct err *e)
{
	int r = tier_needs(s->tier, TIER_PAUSE, e);

	if (r == 0)
		r = refuse_busy(s, e);
	if (r < 0)
		return r;
	persist_settle(&s->blank);
	r = s->blank.recorded ? records_flag(&w->env.records, s->blank.slot, RECORD_FROZEN | late_flag(s)) : 0;
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "write the sandbox's record");
	s->frozen = true; /* also when it fails: some of it may be */
	return cgroup_freeze(&w->env.cgroups, &s->blank.cgroup, e);
}

int warden_thaw(struct warden *w, struct warden_sandbox *s, struct err *e)
{
	int r = refuse_busy(s, e);

	if (r == 0)
		r = cgroup_thaw(&w->env.cgroups, &s->blank.cgroup, e);
	if (r == 0 && s->tier->thaw)
		r = s->tier->thaw(s, e);
	if (r == 0 && s->blank.recorded && records_flag(&w->env.records, s->blank.slot, late_flag(s)) < 0)
		log_error("slot %u: its record still has it as paused", s->blank.slot);
	if (r == 0)
		s->frozen = false;
	return r;
}

void warden_counts(struct warden *w, struct warden_counts *ret)
{
	*ret = w->counts;
	ret->cleanup_retries = __atomic_load_n(&w->env.cleanup_retries, __ATOMIC_RELAXED);
	ret->cleanup_failures = __atomic_load_n(&w->env.cleanup_failures, __ATOMIC_RELAXED);
	if (w->pool) {
		struct pool_counts c;

		pool_counts(w->pool, &c);
		ret->ready = c.ready;
		ret->cleaning = c.cleaning;
		ret->locked_ns = c.locked_ns;
	}
}
