/*
 * Makes prebuilt sandboxes, in a maker's thread. Up to half of the pool is prebuilt, shared by the requests that are repeated
 * (prebuilt_wishes()), each sandbox as soon as its agent is ready. Requests on layers do not wait until the pool is filled
 * again: what they lack is made of ready blanks, a moment after one was taken, because making it at once would slow down
 * the create that took it.
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

#define LATER_NS 5000000ULL
#define AGAIN_NS 500000000ULL /* no blank was fit for it */
#define LOOK_NS 30000000000ULL
#define IDLE_NS (20 * LOOK_NS) /* prebuilt sandboxes are ended when they were not requested for so long */
#define SHORT_PART 16U /* prebuilt sandboxes are ended when less than this part of all memory is free */

/* Counts ready items that are prebuilt under @number; 0: under any number. Called locked. */
static unsigned count(const struct pool *p, uint64_t number)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->ready; i++) {
		const uint64_t x = pool_at(p, i)->prebuilt;

		n += number ? x == number : x != 0;
	}
	return n;
}

/* Half of the pool stays usable for any request. */
static unsigned places(const struct pool *p)
{
	return p->depth / 2;
}

/* Whether the blank can become a sandbox of @spec with the limits that are in force for it. */
static bool is_fit(const struct pool_item *it, const struct sandbox_spec *spec)
{
	const struct cgroup_limits want = limit_groups(&spec->limits);
	const bool net = spec->flags & SPEC_NET;

	if (!spec->layers)
		return pool_limits_same(&it->blank, &want);
	return (!it->blank.used || it->blank.tenant == spec->tenant) && it->blank.steered == net &&
	       (!net || steer_same(&it->blank.rules, &spec->net)) && !pool_limits_lifted(&it->blank.ground, &want);
}

/*
 * Chooses the request that this new blank is prebuilt for: *ret, and returns its number, or 0. Of the requests that the
 * blank fits, the one that lacks most sandboxes.
 */
static uint64_t prebuilt_for(struct pool *p, const struct pool_item *it, struct sandbox_spec *ret)
{
	struct prebuilt_wish wish[PREBUILT_WISHES];
	unsigned n, most = 0;
	uint64_t number = 0;

	pool_lock(p);
	n = prebuilt_wishes(&p->prebuilt, places(p), wish);
	/* The waiting request may need another kind. */
	if (count(p, 0) >= places(p) || p->waiting || p->env->stage || it->premount.writable < 0)
		n = 0;
	for (unsigned i = 0; i < n; i++) {
		const unsigned have = count(p, wish[i].number);

		/* Restoring memory would take too long here, while the next blank waits. */
		if (wish[i].spec->flags & SPEC_MEMORY || have >= wish[i].most || wish[i].most - have <= most ||
		    !is_fit(it, wish[i].spec))
			continue;
		most = wish[i].most - have;
		number = wish[i].number;
		*ret = *wish[i].spec;
	}
	pool_unlock(p);
	return number;
}

/*
 * Opens the pages of layer @id of @spec, below the mount of the layers, so that no path of the host appears in the
 * sandbox's processes.
 */
static int open_pages(const struct pool *p, const struct sandbox_spec *spec, const char *id)
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

int pool_open_image(const struct pool *p, const struct sandbox_spec *spec, int *fds, struct mem_head *ret)
{
	const char *newest = spec->layer[spec->layers - 1];
	AUTO_CLOSE int dir = sys_openat(p->img.layers, newest, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	struct err e = { 0 };
	int n = 2, r;

	memset(fds, 0xff, (1 + MEM_PAGE_FILES) * sizeof(*fds));
	r = fds[0] = dir < 0 ? dir : memory_open(dir, "meta");
	if (r >= 0)
		r = fds[1] = open_pages(p, spec, newest);
	if (r >= 0)
		r = memory_head(fds[0], fds[1], ret, &e);
	for (; r >= 0 && n < 1 + (int)ret->page_files; n += r >= 0)
		r = fds[n] = open_pages(p, spec, ret->ancestor[n - 1]);
	return r < 0 ? r : n;
}

/*
 * Sends RESTORE ahead: the agent makes the processes, and holds them before their first instruction; or it only opens
 * their files.
 */
static int send_restore(struct pool *p, const struct pool_item *it, const struct sandbox_spec *spec, struct err *e)
{
	struct frame_restore x = { 0 };
	uint8_t out[FRAME_HEAD + 128];
	struct err none = { 0 };
	int fds[FRAME_FDS_MAX], r;
	struct mem_head h;
	unsigned n = 1;
	long len = 0;

	r = pool_open_image(p, spec, fds, &h);
	/* More groups are made when it is handed out. */
	if (r > 0 && memory_fits(&h, spec->limits.memory, &none) == 0 && h.section[MEM_S_EXEC].n <= 1) {
		x.pages = (uint32_t)r - 1;
		x.groups = it->blank.grouped ? (uint32_t)h.section[MEM_S_EXEC].n : 0;
		n = frame_restore_fds(&x).n;
		if (x.groups)
			fds[frame_restore_fds(&x).groups] = it->blank.group;
		len = frame_restore_encode(&x, out + FRAME_HEAD, sizeof(out) - FRAME_HEAD);
	}
	if (fds[0] >= 0) {
		assert(len >= 0);
		frame_head(out, FRAME_RESTORE, (uint8_t)n, FRAME_RESTORE_AHEAD, (uint32_t)len);
		r = fd_send(it->blank.sock, out, FRAME_HEAD + (size_t)len, fds, n);
	}
	if (x.groups)
		fds[frame_restore_fds(&x).groups] = -1; /* its own */
	fd_close_many(fds, 1 + MEM_PAGE_FILES);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "prepare a memory image") : 0;
}

/* Does all that a create does except handing the sandbox out. A failure is harmless: a request gets its own error. */
static int build(struct pool *p, struct pool_item *it, const struct sandbox_spec *spec, uint64_t number)
{
	struct err e = { 0 };
	int r = root_build(p->env, &p->img, &it->blank, spec, NULL, &it->premount, &it->root, &e);

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

/* The same for a sandbox on layers, whose limits may differ from those that the blank was made with. */
static int build_layered(struct pool *p, struct pool_item *it, const struct sandbox_spec *spec, uint64_t number)
{
	const struct cgroup_limits want = limit_groups(&spec->limits);
	struct err e = { 0 };
	int r = 0;

	if (!pool_limits_same(&it->blank, &want)) {
		r = cgroup_limit(&p->env->cgroups, &it->blank.cgroup, &want, &e);
		it->blank.limits = want;
		it->blank.limited = r == 0;
		if (r < 0)
			log_warn("no sandbox can be prebuilt: %s", e.msg);
	}
	it->blank.tenant = spec->tenant;
	return r == 0 ? build(p, it, spec, number) : r;
}

static void forget(struct pool *p, uint64_t number)
{
	pool_lock(p);
	prebuilt_forget(&p->prebuilt, number);
	pool_unlock(p);
}

int pool_prebuild(struct pool *p, struct pool_item *it)
{
	struct sandbox_spec spec;
	uint64_t number = prebuilt_for(p, it, &spec);
	int r;

	if (!number)
		return 0;
	r = spec.layers ? build_layered(p, it, &spec, number) : build(p, it, &spec, number);
	if (r < 0)
		forget(p, number);
	return r;
}

bool pool_prebuilt_surplus(struct pool *p, uint64_t number)
{
	struct prebuilt_wish wish[PREBUILT_WISHES];
	const unsigned n = prebuilt_wishes(&p->prebuilt, places(p), wish);
	bool lacks = false, over = false;

	if (count(p, 0) < places(p))
		return false;
	for (unsigned i = 0; i < n; i++) {
		const unsigned have = count(p, wish[i].number);

		lacks = lacks || have < wish[i].most;
		over = over || (wish[i].number == number && have > wish[i].most);
	}
	return lacks && over;
}

/* --- on layers --- */

/* A spec on layers that has fewer sandboxes than it should have, one that has none first; or NULL. Called locked. */
static const struct sandbox_spec *lacking(const struct pool *p, uint64_t *ret_number)
{
	const struct sandbox_spec *found = NULL;
	struct prebuilt_wish wish[PREBUILT_WISHES];
	const unsigned n = prebuilt_wishes(&p->prebuilt, places(p), wish), all = count(p, 0);

	for (unsigned i = 0; i < n; i++) {
		const unsigned have = count(p, wish[i].number);

		if (!wish[i].spec->layers || have >= wish[i].most || (have && (found || all >= places(p))))
			continue;
		found = wish[i].spec;
		*ret_number = wish[i].number;
		if (!have)
			break;
	}
	return found;
}

uint64_t pool_prebuilt_wait(struct pool *p)
{
	uint64_t now = clock_mono_ns(), number;

	if (p->env->stage || !lacking(p, &number)) {
		p->prebuilt_due = 0;
		return p->prebuilt.asked ? LOOK_NS : UINT64_MAX;
	}
	if (!p->prebuilt_due)
		p->prebuilt_due = now + LATER_NS;
	return now < p->prebuilt_due ? p->prebuilt_due - now : 0;
}

/* What only saves time is the first to go. */
bool pool_memory_short(void)
{
	const char *left, *all;
	char text[4096];

	if (fd_get(AT_FDCWD, "/proc/meminfo", text, sizeof(text)) < 0)
		return false;
	all = strstr(text, "MemTotal:");
	left = strstr(text, "MemAvailable:");
	return left && all && strtoull(left + 13, NULL, 10) < strtoull(all + 9, NULL, 10) / SHORT_PART;
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

/*
 * Takes a blank that can become a sandbox of @spec. The order of the others stays, except that of the first. Called
 * locked.
 */
static bool take_blank(struct pool *p, const struct sandbox_spec *spec, struct pool_item *ret)
{
	for (unsigned i = 0; i < p->ready; i++) {
		if (pool_at(p, i)->prebuilt || !is_fit(pool_at(p, i), spec))
			continue;
		*ret = pool_pop(p, i);
		return true;
	}
	return false;
}

/* Ends the oldest blank that is not prebuilt. */
bool pool_make_room(struct pool *p)
{
	struct pool_item it;
	bool full, drop;
	unsigned i = 0;

	pool_lock(p);
	full = p->ready + p->busy >= p->target;
	drop = full && p->ready;
	while (i < p->ready && pool_at(p, i)->prebuilt)
		i++;
	if (drop)
		it = pool_pop(p, i < p->ready ? i : 0);
	p->busy += drop || !full;
	pool_unlock(p);
	if (drop)
		pool_give_up(p, &it);
	return drop || !full;
}

void pool_prebuild_layered(struct pool *p)
{
	const struct sandbox_spec *l;
	struct sandbox_spec spec;
	struct pool_item it;
	uint64_t number = 0;
	bool got;

	if (pool_memory_short())
		expire(p, UINT64_MAX);
	pool_lock(p);
	l = lacking(p, &number);
	if (l)
		spec = *l;
	pool_unlock(p);
	/* A sandbox that shares its memory is preferred. */
	got = l && pool_share_make(p, &spec, &it);
	if (got && !pool_make_room(p)) {
		pool_give_up(p, &it);
		got = false;
	}
	pool_lock(p);
	if (!got && l) {
		got = take_blank(p, &spec, &it);
		p->busy += got;
	}
	/* Others that lack one are due as well: creates that come without a pause take some in each moment. */
	p->prebuilt_due = got ? p->prebuilt_due : clock_mono_ns() + AGAIN_NS;
	pool_unlock(p);
	if (!got)
		return;
	if (build_layered(p, &it, &spec, number) == 0) {
		pool_admit(p, &it);
		return;
	}
	pool_unplace(p);
	forget(p, number);
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
