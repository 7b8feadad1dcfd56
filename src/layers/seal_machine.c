/*
 * Sealing a virtual machine: cloche-vmm saves it (vm/vmm/side.h) while its side socket is ours, into files without a name. These, and
 * the disks that are not written any more, are then copied into the layer by cloche-layers (making_machine.c).
 */
#include "layers/seal_impl.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAVED_NS (120ULL * 1000000000ULL)
#define JOINED_NS (900ULL * 1000000000ULL) /* as long as copying a whole disk may take */
#define LOOK_MS 20 /* how long the warden may have to wait until a cancelled seal notices it */
#define OTHERS_MAX 16U
#define BUSY_NS (25ULL * 1000000000ULL)
#define BUSY_MS 100

static int failed(struct seal *x, const char *what, const struct vm_failed *f)
{
	char text[sizeof(f->text) + 1];

	snprintf(text, sizeof(text), "%.*s", (int)sizeof(f->text), f->text);
	err_clean(text);
	return err_set(&x->e,
		       f->errnum == EBUSY || f->errnum == EAGAIN ? ERR_CONFLICT :
		       f->errnum == ENOSPC			 ? ERR_EXHAUSTED :
								   ERR_INTERNAL,
		       f->errnum > 0 && f->errnum < 4096 ? -f->errnum : -EIO, "%s: %.200s", what, text);
}

/*
 * The question that a message answers: an earlier one may have been sent by a warden that died, or by a seal that was
 * cancelled.
 */
static uint64_t answers(const struct vm_msg *m)
{
	return m->type == VM_SAVED  ? m->saved.id :
	       m->type == VM_JOINED ? m->joined.id :
	       m->type == VM_FAILED ? m->failed.id :
				      0;
}

/*
 * 0: the answer is @want, in *ret; 1: cloche-vmm reported a failure, which is in ->e. Negative: no answer, so the state
 * is unknown.
 */
static int wait_for(struct seal *x, const char *what, enum vm_type want, uint64_t id, uint64_t ns, struct vm_msg *ret)
{
	const uint64_t since = clock_mono_ns();
	const int side = x->impl->from.side;
	unsigned others = 0;

	for (;;) {
		struct pollfd p = { .fd = side, .events = POLLIN };
		size_t nfds = 0;
		ssize_t n;

		if (__atomic_load_n(&x->work.stop, __ATOMIC_RELAXED))
			return seal_given_up(x);
		if (clock_mono_ns() - since > ns)
			return err_set(&x->e, ERR_TIMEOUT, -ETIMEDOUT, "%s: no answer", what);
		if (poll(&p, 1, LOOK_MS) <= 0)
			continue;
		*ret = (struct vm_msg){ 0 };
		n = fd_recv(side, ret, sizeof(*ret), NULL, 0, &nfds);
		if (n == -EAGAIN || n == -EINTR)
			continue;
		if (n != (ssize_t)sizeof(*ret) || ret->version != VM_SIDE_VERSION)
			return err_set(&x->e, ERR_LOST, -EPIPE, "%s: the virtual machine has ended", what);
		if (answers(ret) && answers(ret) != id && others++ < OTHERS_MAX)
			continue;
		if (ret->type == VM_FAILED) {
			failed(x, what, &ret->failed);
			return ret->failed.id == id ? 1 : -EPIPE;
		}
		if (ret->type == want && answers(ret) == id)
			return 0;
		return err_set(&x->e, ERR_LOST, -EPROTO, "%s: protocol error", what);
	}
}

static int draw_id(struct seal *x, uint64_t *ret)
{
	*ret = 0;
	while (!*ret)
		if (sys_getrandom(ret, sizeof(*ret), 0) != (ssize_t)sizeof(*ret))
			return err_set(&x->e, ERR_INTERNAL, -EIO, "draw random numbers");
	return 0;
}

/* A file without a name: it does not belong to the layer. */
static int scratch(int dir, const char *name)
{
	AUTO_CLOSE int fd = sys_openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r = fd < 0 ? fd : sys_unlinkat(dir, name, 0);

	return r < 0 ? r : TAKE_FD(fd);
}

static int say(struct seal *x, const struct vm_msg *m, const int *fds, size_t n)
{
	int r = fd_send_now(x->impl->from.side, m, sizeof(*m), fds, n);

	return r < 0 ? err_sys(&x->e, ERR_LOST, r, "connect to the virtual machine") : 0;
}

/* Closes joined disks: above ->base only the one that is written is left, and the next one. */
static int drop_joined(struct seal *x, uint32_t top)
{
	struct seal_source *f = &x->impl->from;
	bool there = false;
	uint32_t left = 0;

	for (uint32_t n = 0; n + 1 < f->disks; n++)
		there = there || (f->disk[n].number == top && top > f->base);
	if (!there)
		return err_set(&x->e, ERR_LOST, -EPROTO, "merge the virtual machine's disks: protocol error");
	for (uint32_t n = 0; n < f->disks; n++) {
		const uint32_t number = f->disk[n].number;

		if (number <= f->base || number == top || n + 1 == f->disks)
			f->disk[left++] = f->disk[n];
		else
			seal_disk_done(&f->disk[n]);
	}
	f->disks = left;
	x->impl->joined = true;
	return 0;
}

/* Joins disks. The machine runs on meanwhile, unless it was paused. */
static int join(struct seal *x)
{
	struct seal_source *f = &x->impl->from;
	struct vm_msg m = { .version = VM_SIDE_VERSION,
			    .type = VM_JOIN,
			    .join = { .base = f->base, .flags = f->paused ? VM_JOIN_STILL : 0 } };
	int r = f->joins_disks ? draw_id(x, &m.join.id) : 0;

	if (r < 0 || !f->joins_disks)
		return r;
	r = say(x, &m, NULL, 0);
	if (r == 0)
		r = wait_for(x, "merge the virtual machine's disks", VM_JOINED, m.join.id, JOINED_NS, &m);
	if (r == 0)
		return drop_joined(x, m.joined.top);
	if (r == 1 && f->joins_or_not) {
		log_warn("layer '%s': %s", x->m.id, x->e.msg);
		x->e = (struct err){ 0 };
		return 0;
	}
	return r == 1 ? -EIO : r;
}

/* Asks for a save; results as of wait_for(). */
static int ask_save(struct seal *x, struct vm_msg *m)
{
	const struct seal_source *f = &x->impl->from;
	const int *saved = x->impl->saved;
	int r = draw_id(x, &m->save.id);
	const uint64_t id = m->save.id;

	if (r == 0)
		r = say(x, m, (int[]){ saved[0], saved[1], f->disk[f->disks - 1].fd }, 3);
	if (r < 0)
		return r;
	x->impl->save = SEAL_ASKED;
	/* From here cloche-vmm saves before it does anything else. */
	if (f->paused)
		r = cgroup_thaw(f->cgroups, f->cgroup, &x->e);
	return r < 0 ? r : wait_for(x, "save the virtual machine", VM_SAVED, id, SAVED_NS, m);
}

static int save(struct seal *x)
{
	struct vm_msg m = { .version = VM_SIDE_VERSION, .type = VM_SAVE };
	const struct seal_source *f = &x->impl->from;
	const uint64_t since = clock_mono_ns();
	int *saved = x->impl->saved, r;
	uint64_t all;

	m.save.disk = f->disk[f->disks - 1].number;
	m.save.flags = f->paused ? VM_SAVE_STAY : 0;
	r = saved[0] = scratch(x->impl->mem, "meta");
	if (r >= 0)
		r = saved[1] = scratch(x->impl->mem, "pages");
	if (r < 0)
		return err_sys(&x->e, ERR_EXHAUSTED, r, "make files for layer '%s'", x->m.id);
	/* A save that an earlier, dead warden asked for may still be under way. */
	do {
		const struct vm_msg ask = m;

		r = ask_save(x, &m);
		if (r != 1 || x->e.errnum != EBUSY)
			break;
		x->impl->save = SEAL_REFUSED;
		x->e = (struct err){ 0 };
		m = ask;
		poll(NULL, 0, BUSY_MS);
	} while (clock_mono_ns() - since < BUSY_NS);
	if (r < 0)
		return r;
	x->impl->save = r == 0 ? SEAL_SAVED : SEAL_REFUSED;
	all = clock_mono_ns() - since;
	x->pause = r == 0 && m.saved.pause_ns < all ? m.saved.pause_ns : all;
	return r ? -EIO : 0;
}

int seal_machine_copy(struct seal *x)
{
	const struct seal_source *f = &x->impl->from;
	struct err e = { 0 };
	int r;

	/*
	 * A frozen cloche-vmm cannot save. So it is thawed, and the guest runs for a moment until cloche-vmm stops it.
	 */
	r = seal_room(x);
	if (r < 0)
		return r;
	r = f->paused && f->joins_disks ? cgroup_thaw(f->cgroups, f->cgroup, &x->e) : 0;
	if (r == 0)
		r = join(x);
	if (r == 0)
		r = save(x);
	if (f->paused) {
		x->pause = 0;
		if (cgroup_freeze(f->cgroups, f->cgroup, &e) < 0)
			log_error("a paused sandbox that was sealed is running: %s", e.msg);
	}
	return r;
}

int seal_machine_finish(struct seal *x)
{
	struct seal_impl *i = x->impl;
	int r = 0;

	/* All but the newest, which is now written to. */
	for (uint32_t n = 0; r == 0 && n + 1 < i->from.disks; n++) {
		struct seal_disk *d = &i->from.disk[n];
		const int fds[] = { d->fd, d->copy, d->sums };
		struct layer_answer a;
		int made[2];

		r = seal_ask(x, &(struct layer_ask){ .op = LAYER_DISK }, fds, d->copy < 0 || d->sums < 0 ? 1 : 3, &a,
			     made, 2);
		if (made[0] < 0)
			continue;
		fd_close(d->copy);
		fd_close(d->sums);
		d->copy = made[0];
		d->sums = made[1];
	}
	return r;
}
