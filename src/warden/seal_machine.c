/*
 * Sealing a virtual machine: cloche-vmm saves it (vm/side.h) while its side socket is ours. What it wrote is then no longer
 * written, and is copied, disks and memory: QEMU and cloche-vmm may still have them open, and what they might do to them must
 * not reach a layer.
 */
#include "warden/seal_impl.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "vm/meta.h"
#include "warden/memory.h"
#include "warden/vm_copy.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAVED_NS (120ULL * 1000000000ULL)
#define LOOK_MS 20 /* so long the warden may have to wait for who gives up */
#define OTHERS_MAX 4U

static const char *const saved_names[] = { "meta", "pages" };

int seal_machine_prepare(struct seal *x)
{
	struct seal_impl *i = x->impl;
	int r = sys_mkdirat(i->tmp, "mem", 0700);

	if (r == 0)
		r = i->mem = sys_openat(i->tmp, "mem", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (r >= 0)
		r = sys_mkdirat(i->fs, layer_trees[0], 0755);
	return r < 0 ? err_sys(&x->e, ERR_EXHAUSTED, r, "make a folder for layer '%s'", x->m.id) : 0;
}

static int failed(struct seal *x, const struct vm_failed *f)
{
	char text[sizeof(f->text) + 1];

	snprintf(text, sizeof(text), "%.*s", (int)sizeof(f->text), f->text);
	for (char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	return err_set(&x->e, f->errnum == EBUSY || f->errnum == EAGAIN ? ERR_CONFLICT : ERR_INTERNAL,
		       f->errnum > 0 && f->errnum < 4096 ? -f->errnum : -EIO, "save the machine: %.200s", text);
}

/* What it says is said also of a save that another warden, now dead, had asked for: then ours has not begun. */
static bool is_ours(const struct seal *x)
{
	struct stat st;

	return fstat(x->impl->saved[0], &st) == 0 && st.st_size > 0 && fstat(x->impl->saved[1], &st) == 0 && st.st_size > 0;
}

static int wait_saved(struct seal *x)
{
	const uint64_t since = clock_mono_ns();
	unsigned others = 0;
	const int side = x->impl->from.side;

	for (;;) {
		struct pollfd p = { .fd = side, .events = POLLIN };
		struct vm_msg in = { 0 };
		size_t nfds = 0;
		ssize_t n;

		if (__atomic_load_n(&x->work.stop, __ATOMIC_RELAXED))
			return seal_given_up(x);
		if (clock_mono_ns() - since > SAVED_NS)
			return err_set(&x->e, ERR_TIMEOUT, -ETIMEDOUT, "save the machine: it does not answer");
		if (poll(&p, 1, LOOK_MS) <= 0)
			continue;
		n = fd_recv(side, &in, sizeof(in), NULL, 0, &nfds);
		if (n == -EAGAIN || n == -EINTR)
			continue;
		if (n != (ssize_t)sizeof(in) || in.version != VM_SIDE_VERSION)
			return err_set(&x->e, ERR_LOST, -EPIPE, "save the machine: it has ended");
		if (in.type == VM_FAILED)
			return failed(x, &in.failed);
		if (in.type == VM_SAVED && !is_ours(x) && others++ < OTHERS_MAX)
			continue;
		if (in.type == VM_SAVED) {
			const uint64_t all = clock_mono_ns() - since;

			x->pause = in.saved.pause_ns < all ? in.saved.pause_ns : all;
			return 0;
		}
		return err_set(&x->e, ERR_LOST, -EPROTO, "save the machine: it talks nonsense");
	}
}

/* Without a name: it is not the layer's. */
static int scratch(int dir, const char *name)
{
	AUTO_CLOSE int fd = sys_openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int r = fd < 0 ? fd : sys_unlinkat(dir, name, 0);

	return r < 0 ? r : TAKE_FD(fd);
}

static int save(struct seal *x)
{
	const struct vm_msg m = { .version = VM_SIDE_VERSION, .type = VM_SAVE };
	const struct seal_source *f = &x->impl->from;
	int *saved = x->impl->saved, r;

	r = saved[0] = scratch(x->impl->mem, saved_names[0]);
	if (r >= 0)
		r = saved[1] = scratch(x->impl->mem, saved_names[1]);
	if (r < 0)
		return err_sys(&x->e, ERR_EXHAUSTED, r, "make files for layer '%s'", x->m.id);
	r = fd_send_now(f->side, &m, sizeof(m), (int[]){ saved[0], saved[1], f->disk[f->disks - 1] }, 3);
	if (r < 0)
		return err_sys(&x->e, ERR_LOST, r, "reach the machine");
	return wait_saved(x);
}

int seal_machine_copy(struct seal *x)
{
	const struct seal_source *f = &x->impl->from;
	struct err e = { 0 };
	int r;

	/* Who is frozen can not save anything. So the guest runs for the moments until it stands still, and until it is frozen. */
	if (f->paused) {
		r = cgroup_thaw(f->cgroups, f->cgroup, &x->e);
		if (r < 0)
			return r;
	}
	r = save(x);
	if (f->paused) {
		x->pause = 0;
		if (cgroup_freeze(f->cgroups, f->cgroup, &e) < 0)
			log_error("a paused sandbox that was sealed runs: %s", e.msg);
	}
	return r;
}

static int check_meta(struct seal *x)
{
	AUTO_CLOSE int meta = memory_open(x->impl->tmp, saved_names[0]);
	struct vm_meta head;
	int r = meta < 0 ? err_sys(&x->e, ERR_INTERNAL, meta, "open what was saved") : meta_head(meta, &head, &x->e);

	if (r == 0 && memcmp(head.what.key, x->impl->from.key, sizeof(head.what.key)))
		r = err_set(&x->e, ERR_INTERNAL, -EBADMSG, "what was saved is of another template");
	return r;
}

static int copy(struct seal *x, int from, int dir, const char *path)
{
	AUTO_CLOSE int to = sys_openat(dir, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r = to < 0 ? to : vm_copy(from, to, &x->work.stop);

	return r == 0 && fsync(to) < 0 ? -errno : r;
}

static int copy_disks(struct seal *x)
{
	const struct seal_impl *i = x->impl;
	unsigned copied = 0;
	int r = 0;

	/* But for the newest, which is written to now. */
	for (uint32_t n = 0; r == 0 && n + 1 < i->from.disks; n++) {
		struct stat st;
		char path[32];

		if (fstat(i->from.disk[n], &st) < 0)
			return -errno;
		/* Of a seal that nobody lived or waited to see: it was never put on top. */
		if (!st.st_size)
			continue;
		snprintf(path, sizeof(path), "%s/disk.%02u", layer_trees[0], copied++);
		r = copy(x, i->from.disk[n], i->fs, path);
	}
	return r;
}

int seal_machine_finish(struct seal *x)
{
	struct seal_impl *i = x->impl;
	int r = 0;

	for (unsigned n = 0; r == 0 && n < ARRAY_LEN(saved_names); n++) {
		r = copy(x, i->saved[n], i->mem, saved_names[n]);
		fd_close(TAKE_FD(i->saved[n]));
	}
	if (r == 0) {
		int bad = check_meta(x);

		if (bad < 0)
			return bad;
		r = copy_disks(x);
	}
	if (r == -ECANCELED)
		return seal_given_up(x);
	return r < 0 ? err_sys(&x->e, r == -ENOSPC || r == -EDQUOT ? ERR_EXHAUSTED : ERR_INTERNAL, r, "copy what a machine saved") : 0;
}
