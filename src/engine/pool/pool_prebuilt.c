/*
 * Makes prebuilt sandboxes, in the maker's thread. For a request that is repeated, up to half of the pool is prebuilt, each
 * sandbox as soon as its agent is ready. For requests on layers there is one prebuilt sandbox per request; it is made of a
 * ready blank a moment after the last one was taken, because making it at once would slow down the create that took it.
 */
#include "engine/pool/internal.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/blank/persist.h"
#include "engine/pool/limit.h"
#include "layers/memory.h"
#include "linux/mount.h"
#include "proto/frame.h"

#include <unistd.h>

#define LATER_NS 15000000ULL
#define AGAIN_NS 500000000ULL /* no blank was fit for it */
#define LOOK_NS 30000000000ULL
#define IDLE_NS (20 * LOOK_NS) /* nobody has asked for it in so long: it goes */
#define SHORT_PART 16U /* of all memory, that should be left */

/* The request that this blank is prebuilt for: *ret and its number, or 0. Half of the pool stays usable for any request. */
static uint64_t prebuilt_for(struct pool *p, const struct pool_item *it, struct sandbox_spec *ret)
{
	unsigned prebuilt = 0;
	uint64_t number;

	pool_lock(p);
	number = p->prebuilt.number;
	for (unsigned i = 0; i < p->ready; i++)
		prebuilt += p->items[(p->first + i) % p->target].prebuilt != 0;
	/* Who waits may want something else. */
	if (prebuilt >= p->target / 2 || p->waiting || p->env->stage || it->premount.writable < 0)
		number = 0;
	if (number)
		*ret = p->prebuilt.spec;
	pool_unlock(p);
	if (number) {
		const struct cgroup_limits want = limit_groups(&ret->limits);

		number = pool_limits_same(&it->blank, &want) ? number : 0;
	}
	return number;
}

int pool_open_pages(const struct pool *p, const struct sandbox_spec *spec, const char *id)
{
	char path[ID_SIZE + 16];

	for (uint32_t i = 0; i < spec->layers; i++) {
		if (strcmp(spec->layer[i], id) != 0)
			continue;
		snprintf(path, sizeof(path), "%s/mem/pages", id);
		return mount_open_file(p->img.layers, path);
	}
	return -EBADMSG;
}

/* All that RESTORE carries but the image itself, which is ret[0]: how many, or -errno. */
static int open_all(const struct pool *p, const struct pool_item *it, const struct sandbox_spec *spec,
		    struct frame_restore *x, int *ret)
{
	struct err e = { 0 };
	struct mem_head h;
	int r = pool_open_pages(p, spec, spec->layer[spec->layers - 1]);

	if (r < 0)
		return r;
	ret[1] = r;
	r = memory_head(ret[0], ret[1], &h, &e);
	if (r == 0)
		r = memory_fits(&h, spec->limits.memory, &e);
	/* More groups are made when it is somebody's. */
	if (r == 0 && h.section[MEM_S_EXEC].n > 1)
		r = -EOPNOTSUPP;
	for (x->pages = 1; r >= 0 && x->pages < h.page_files; x->pages += r >= 0)
		r = ret[1 + x->pages] = pool_open_pages(p, spec, h.ancestor[x->pages]);
	if (r < 0)
		return r;
	x->groups = it->blank.grouped ? (uint32_t)h.section[MEM_S_EXEC].n : 0;
	if (x->groups)
		ret[frame_restore_fds(x).groups] = it->blank.group;
	return (int)frame_restore_fds(x).n;
}

/* Its processes, too: the agent makes them, and holds them before their first instruction. Or it only opens their files. */
static int send_restore(struct pool *p, const struct pool_item *it, const struct sandbox_spec *spec, struct err *e)
{
	const char *newest = spec->layer[spec->layers - 1];
	AUTO_CLOSE int dir = sys_openat(p->img.layers, newest, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	AUTO_CLOSE int meta = dir < 0 ? dir : memory_open(dir, "meta");
	int fds[FRAME_FDS_MAX], n, r = meta;
	struct frame_restore x = { 0 };
	uint8_t out[FRAME_HEAD + 128];
	long len = 0;

	if (r >= 0) {
		memset(fds, 0xff, sizeof(fds));
		fds[0] = meta;
		n = open_all(p, it, spec, &x, fds);
		if (n > 0)
			len = frame_restore_encode(&x, out + FRAME_HEAD, sizeof(out) - FRAME_HEAD);
		assert(len >= 0);
		frame_head(out, FRAME_RESTORE, n > 0 ? (uint8_t)n : 1, FRAME_RESTORE_AHEAD, (uint32_t)len);
		r = fd_send(it->blank.sock, out, FRAME_HEAD + (size_t)len, fds, n > 0 ? (unsigned)n : 1);
		if (x.groups)
			fds[frame_restore_fds(&x).groups] = -1; /* its own */
		fd_close_many(fds + 1, MEM_PAGE_FILES);
	}
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "prepare a memory image") : 0;
}

/* All that a create would do but handing it out. One that fails is no loss: whoever comes is told why. */
static int build(struct pool *p, struct pool_item *it, const struct sandbox_spec *spec, uint64_t number)
{
	struct err e = { 0 };
	int r = root_build(p->env, &p->img, &it->blank, spec, &it->premount, &it->root, &e);

	if (r == 0) {
		it->root.setup.flags |= FRAME_SETUP_AHEAD;
		r = root_send(&it->root, it->blank.sock, &e);
	}
	if (r == 0 && p->env->persist)
		r = persist_ahead(p->env, &it->blank, it->root.premount.meminfo, it->root.premount.writable, &e);
	if (r == 0 && p->env->persist && spec->flags & SPEC_MEMORY)
		r = send_restore(p, it, spec, &e);
	if (r < 0) {
		log_warn("no sandbox can be prebuilt: %s", e.msg);
		return r;
	}
	fd_close(TAKE_FD(it->root.store));
	fd_close_many(it->root.fds, it->root.setup.mounts.n);
	it->root.setup = (struct frame_setup){ 0 };
	it->prebuilt = number;
	return 0;
}

int pool_prebuild(struct pool *p, struct pool_item *it)
{
	struct sandbox_spec spec;
	uint64_t number = prebuilt_for(p, it, &spec);
	int r = number ? build(p, it, &spec, number) : 0;

	if (r < 0) {
		pool_lock(p);
		prebuilt_forget(&p->prebuilt);
		pool_unlock(p);
	}
	return r;
}

/* --- on layers --- */

/* Who has none, or NULL. Called locked. */
static const struct prebuilt_layered *lacking(const struct pool *p)
{
	for (unsigned i = 0; i < PREBUILT_KNOWN; i++) {
		const struct prebuilt_layered *l = &p->prebuilt.layered[i];
		bool there = !l->number;

		for (unsigned k = 0; !there && k < p->ready; k++)
			there = p->items[(p->first + k) % p->target].prebuilt == l->number;
		if (!there)
			return l;
	}
	return NULL;
}

/* Called locked. */
static bool any(const struct pool *p)
{
	for (unsigned i = 0; i < PREBUILT_KNOWN; i++)
		if (p->prebuilt.layered[i].number)
			return true;
	return false;
}

uint64_t pool_prebuilt_wait(struct pool *p)
{
	uint64_t now = clock_mono_ns();

	if (p->env->stage || !lacking(p)) {
		p->prebuilt_due = 0;
		return any(p) ? LOOK_NS : UINT64_MAX;
	}
	if (!p->prebuilt_due)
		p->prebuilt_due = now + LATER_NS;
	return now < p->prebuilt_due ? p->prebuilt_due - now : 0;
}

static uint64_t meminfo(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* What only saves time is the first to go. */
bool pool_memory_short(void)
{
	char text[4096];

	return fd_get(AT_FDCWD, "/proc/meminfo", text, sizeof(text)) > 0 &&
	       meminfo(text, "MemAvailable:") < meminfo(text, "MemTotal:") / SHORT_PART;
}

static void expire(struct pool *p, uint64_t time)
{
	pool_lock(p);
	prebuilt_expire(&p->prebuilt, time);
	pool_unlock(p);
}

void pool_prebuilt_check(struct pool *p)
{
	const uint64_t now = clock_mono_ns();

	if (now < p->prebuilt_check)
		return;
	p->prebuilt_check = now + LOOK_NS;
	expire(p, pool_memory_short() ? UINT64_MAX : now > IDLE_NS ? now - IDLE_NS : 0);
}

/* One that can be made what @spec asks for. The others stay as they are, in their order but for the first. Called locked. */
static bool take_blank(struct pool *p, const struct sandbox_spec *spec, struct pool_item *ret)
{
	const struct cgroup_limits want = limit_groups(&spec->limits);
	const bool net = spec->flags & SPEC_NET;

	for (unsigned i = 0; i < p->ready; i++) {
		struct pool_item *it = &p->items[(p->first + i) % p->target];

		if (it->prebuilt || (it->blank.used && it->blank.tenant != spec->tenant) ||
		    pool_limits_lifted(&it->blank, &want) || it->blank.steered != net ||
		    (net && !steer_same(&it->blank.rules, &spec->net)))
			continue;
		*ret = *it;
		*it = p->items[p->first];
		pool_pop(p);
		return true;
	}
	return false;
}

/* Ends the oldest blank that is not prebuilt. */
bool pool_make_room(struct pool *p)
{
	struct pool_item it;
	bool full, drop;

	pool_lock(p);
	full = p->ready + pool_busy(p) >= p->target;
	drop = full && p->ready;
	for (unsigned i = 0; drop && i < p->ready; i++) {
		struct pool_item *x = &p->items[(p->first + i) % p->target], first = p->items[p->first];

		if (x->prebuilt)
			continue;
		p->items[p->first] = *x;
		*x = first;
		break;
	}
	if (drop)
		it = pool_pop(p);
	pool_unlock(p);
	if (drop)
		pool_give_up(p, &it);
	return drop || !full;
}

void pool_prebuild_layered(struct pool *p)
{
	const struct prebuilt_layered *l;
	struct sandbox_spec spec;
	struct cgroup_limits want;
	struct pool_item it;
	struct err e = { 0 };
	uint64_t number = 0;
	bool got;
	int r = 0;

	if (pool_memory_short())
		expire(p, UINT64_MAX);
	pool_lock(p);
	l = lacking(p);
	if (l) {
		number = l->number;
		spec = l->spec;
	}
	pool_unlock(p);
	/* One that shares its memory is best. */
	got = number && pool_share_make(p, &spec, &it);
	if (got && !pool_make_room(p)) {
		pool_give_up(p, &it);
		got = false;
	}
	pool_lock(p);
	if (!got && number)
		got = take_blank(p, &spec, &it);
	/* The next one's turn, or another try. */
	p->prebuilt_due = got ? 0 : clock_mono_ns() + AGAIN_NS;
	pool_unlock(p);
	if (!got)
		return;
	want = limit_groups(&spec.limits);
	if (!pool_limits_same(&it.blank, &want)) {
		r = cgroup_limit(&p->env->cgroups, &it.blank.cgroup, &want, &e);
		it.blank.limits = want;
		it.blank.limited = r == 0;
		if (r < 0)
			log_warn("no sandbox can be prebuilt: %s", e.msg);
	}
	it.blank.tenant = spec.tenant;
	if (r == 0)
		r = build(p, &it, &spec, number);
	if (r == 0) {
		pool_admit(p, &it);
		return;
	}
	pool_lock(p);
	prebuilt_forget_layered(&p->prebuilt, number);
	pool_unlock(p);
	pool_item_end(p, &it);
}

void pool_drop_prebuilt(struct pool *p, const char *layer)
{
	pool_lock(p);
	pool_share_forget(p, layer);
	if (prebuilt_forget_layer(&p->prebuilt, layer) || p->share.look)
		pthread_cond_signal(&p->work);
	pool_unlock(p);
}
