/*
 * Sealing a virtual machine: cloche-vmm saves it (vm/vmm/side.h) while its side socket is ours. What it wrote is then no longer
 * written, and is copied, disks and memory: QEMU and cloche-vmm may still have them open, and what they might do to them must
 * not reach a layer.
 */
#include "layers/seal_impl.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sys.h"
#include "layers/memory.h"
#include "layers/sparse_copy.h"
#include "memory/crypt.h"
#include "vm/vmm/meta.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAVED_NS (120ULL * 1000000000ULL)
#define JOINED_NS (900ULL * 1000000000ULL) /* as much as a disk has */
#define LOOK_MS 20 /* so long the warden may have to wait for who gives up */
#define OTHERS_MAX 16U
#define BUSY_NS (25ULL * 1000000000ULL)
#define BUSY_MS 100

static const char *const saved_names[] = { "meta", "pages" };

int seal_machine_prepare(struct seal *x)
{
	struct seal_impl *i = x->impl;
	int r = sys_mkdirat(i->tmp, "mem", 0700);

	if (r == 0)
		r = i->mem = sys_openat(i->tmp, "mem", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (r >= 0)
		r = crypt_folder(i->from.crypt, i->mem);
	if (r >= 0)
		r = sys_mkdirat(i->fs, layer_trees[0], 0755);
	return r < 0 ? err_sys(&x->e, ERR_EXHAUSTED, r, "make a folder for layer '%s'", x->m.id) : 0;
}

static int failed(struct seal *x, const char *what, const struct vm_failed *f)
{
	char text[sizeof(f->text) + 1];

	snprintf(text, sizeof(text), "%.*s", (int)sizeof(f->text), f->text);
	for (char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	return err_set(&x->e, f->errnum == EBUSY || f->errnum == EAGAIN ? ERR_CONFLICT : f->errnum == ENOSPC ? ERR_EXHAUSTED : ERR_INTERNAL,
		       f->errnum > 0 && f->errnum < 4096 ? -f->errnum : -EIO, "%s: %.200s", what, text);
}

/* Which question an answer is to: another warden, now dead, may have asked before us, or we, and not have waited. */
static uint64_t answers(const struct vm_msg *m)
{
	return m->type == VM_SAVED ? m->saved.id : m->type == VM_JOINED ? m->joined.id : m->type == VM_FAILED ? m->failed.id : 0;
}

/* 0: @want, in *ret; 1: it could not, and ->e says why. Negative: nobody knows. */
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

/* Without a name: it is not the layer's. */
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

/* Of the disks above ->base only the one that is written is left, and the one to come. */
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

/* The machine runs on meanwhile, unless it was paused. */
static int join(struct seal *x)
{
	struct seal_source *f = &x->impl->from;
	struct vm_msg m = { .version = VM_SIDE_VERSION, .type = VM_JOIN,
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

/* As wait_for(). */
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
	/* Now it does nothing else first. */
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
	r = saved[0] = scratch(x->impl->mem, saved_names[0]);
	if (r >= 0)
		r = saved[1] = scratch(x->impl->mem, saved_names[1]);
	if (r < 0)
		return err_sys(&x->e, ERR_EXHAUSTED, r, "make files for layer '%s'", x->m.id);
	/* One that another warden, now dead, has asked for may still be under way. */
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

	/* Who is frozen cannot save anything. So the guest runs for the moments until it stands still, the first time. */
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

static int check_meta(struct seal *x)
{
	AUTO_CLOSE int meta = memory_open(x->impl->tmp, saved_names[0]);
	struct vm_meta head;
	int r = meta < 0 ? err_sys(&x->e, ERR_INTERNAL, meta, "open the saved state") : meta_head(meta, &head, &x->e);

	if (r == 0 && memcmp(head.what.key, x->impl->from.key, sizeof(head.what.key)))
		r = err_set(&x->e, ERR_INTERNAL, -EBADMSG, "the saved state belongs to another template");
	return r;
}

static int copy(struct seal *x, int from, int dir, const char *path)
{
	AUTO_CLOSE int to = sys_openat(dir, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r = to < 0 ? to : vm_copy(from, to, &x->work.stop);

	return r == 0 && fsync(to) < 0 ? -errno : r;
}

/* For who has the same disk below a later one: its copy is never written again, and one file can be part of several layers. */
static int keep_copy(struct seal *x, struct seal_disk *d, const char *path)
{
	struct seal_impl *i = x->impl;
	AUTO_CLOSE int fd = sys_openat(i->fs, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
	struct stat st;
	uint64_t pieces;
	int r = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		return fd < 0 ? fd : -errno;
	pieces = ((uint64_t)st.st_size + DIGESTS_LARGE - 1) / DIGESTS_LARGE;
	free(d->sum);
	d->sum = calloc(pieces, SHA256_SIZE);
	if (!d->sum)
		return -ENOMEM;
	for (uint64_t n = 0; r == 0 && n < pieces; n++)
		r = digests_piece(fd, (uint64_t)st.st_size, n, DIGESTS_LARGE, &x->work.stop, i->buf, d->sum[n]);
	if (r == 0)
		d->copy = TAKE_FD(fd);
	return r;
}

static bool link_copy(struct seal *x, struct seal_disk *d, const char *path)
{
	char self[32];

	if (d->copy < 0)
		return false;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", d->copy);
	if (linkat(AT_FDCWD, self, x->impl->fs, path, AT_SYMLINK_FOLLOW) == 0)
		return true;
	/* All layers that had it are gone, or too many have it. */
	fd_close(TAKE_FD(d->copy));
	return false;
}

/* What is known of it needs not be read again. */
static void tell_sums(struct seal *x, const struct seal_disk *d)
{
	uint8_t(*to)[SHA256_SIZE];
	struct stat st;

	if (fstat(d->copy, &st) < 0)
		return;
	to = digests_add(x->impl->digests, st.st_ino, (uint64_t)st.st_size);
	if (to)
		memcpy(to, d->sum, ((uint64_t)st.st_size + DIGESTS_LARGE - 1) / DIGESTS_LARGE * SHA256_SIZE);
}

static int copy_disks(struct seal *x)
{
	struct seal_impl *i = x->impl;
	unsigned copied = 0;
	int r = 0;

	/* But for the newest, which is written to now. */
	for (uint32_t n = 0; r == 0 && n + 1 < i->from.disks; n++) {
		struct seal_disk *d = &i->from.disk[n];
		struct stat st;
		char path[32];

		if (fstat(d->fd, &st) < 0)
			return -errno;
		/* Of a seal that nobody lived or waited to see: it was never put on top. */
		if (!st.st_size)
			continue;
		snprintf(path, sizeof(path), "%s/disk.%02u", layer_trees[0], copied++);
		if (!link_copy(x, d, path)) {
			r = copy(x, d->fd, i->fs, path);
			if (r == 0)
				r = keep_copy(x, d, path);
		}
		if (r == 0)
			tell_sums(x, d);
	}
	return r;
}

/* The memory of layers whose disks the machine has joined; they are looked at first: what is damaged must not get a new sum. */
static int open_joined(struct seal *x, const char *id, int *ret)
{
	AUTO_CLOSE int dir = sys_openat(x->impl->from.dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	struct manifest m, is;
	int r = dir < 0 ? dir : manifest_read(dir, id, &m);

	if (r == 0) {
		is = m;
		r = memory_sum(dir, &x->work.stop, &is);
	}
	if (r == 0 && memcmp(&is, &m, sizeof(m)))
		r = -EBADMSG;
	if (r == 0)
		r = *ret = memory_open(dir, saved_names[1]);
	if (r == -EBADMSG)
		return err_set(&x->e, ERR_REFUSED, r, "layer '%s', which the sandbox is based on, is damaged", id);
	return r < 0 ? err_sys(&x->e, ERR_INTERNAL, r, "open layer '%s'", id) : 0;
}

static int join_pages(struct seal *x)
{
	struct seal_impl *i = x->impl;
	const uint32_t joins = i->from.joins;
	int fds[SPEC_LAYERS + 1], r = 0;
	AUTO_CLOSE int to = -1;

	for (uint32_t n = 0; n <= joins; n++)
		fds[n] = -1;
	for (uint32_t n = 0; r == 0 && n < joins; n++)
		r = open_joined(x, i->from.join[joins - 1 - n], &fds[n]);
	if (r == 0) {
		to = sys_openat(i->mem, saved_names[1], O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		fds[joins] = i->saved[1];
		r = to < 0 ? err_sys(&x->e, ERR_EXHAUSTED, to, "write layer '%s'", x->m.id) :
			     pages_join(fds, joins + 1, i->from.memory, to, &x->e);
	}
	if (r == 0 && fsync(to) < 0)
		r = err_sys(&x->e, ERR_EXHAUSTED, -errno, "write layer '%s'", x->m.id);
	fd_close_many(fds, joins);
	return r;
}

int seal_machine_finish(struct seal *x)
{
	struct seal_impl *i = x->impl;
	int r = copy(x, i->saved[0], i->mem, saved_names[0]);

	if (r == 0) {
		int bad = i->from.joins ? join_pages(x) : 0;

		if (bad < 0)
			return bad;
		r = i->from.joins ? 0 : copy(x, i->saved[1], i->mem, saved_names[1]);
	}
	fd_close_many(i->saved, ARRAY_LEN(i->saved));
	if (r == 0) {
		int bad = check_meta(x);

		if (bad < 0)
			return bad;
		r = copy_disks(x);
	}
	if (r == -ECANCELED)
		return seal_given_up(x);
	return r < 0 ? err_sys(&x->e, r == -ENOSPC || r == -EDQUOT ? ERR_EXHAUSTED : ERR_INTERNAL, r,
			       "copy the saved state of a virtual machine") :
		       0;
}
