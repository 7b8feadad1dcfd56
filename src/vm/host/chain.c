/*
 * A machine's own disks: the files that it has written to, one more after each seal, "d-HANDLE.NUMBER". The number of
 * seals has no limit, but a chain of disks has one: when it is long, its newest disks become one (VM_JOIN),and, if
 * necessary, the layers below are joined as well.
 */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/log.h"
#include "base/sys.h"
#include "layers/seal_impl.h"
#include "vm/host/host.h"

#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#define PINNED_MAX 32U /* templates that the layers of one tenant may be based on */
/* times the disk's size: above this a separate chain is not worth its bytes, which no quota counts */
#define HEAVY_DISKS 2U
#define ABOVE_STACK 4U /* layers that a machine may have above those of its image, at least */
#define LONG_CHAIN 12U /* length of the chain of a new layer from which on disks are joined */

void seal_disk_done(struct seal_disk *d)
{
	fd_close(TAKE_FD(d->fd));
	fd_close(TAKE_FD(d->copy));
	fd_close(TAKE_FD(d->sums));
}

static void disk_name(const struct warden_sandbox *s, uint32_t number, char *name, size_t size)
{
	snprintf(name, size, "d-%016llx.%u", (unsigned long long)s->handle, number);
}

/* A disk with a name can be found by the next warden. */
static int make_disk(struct warden *w, const struct warden_sandbox *s, uint32_t number, struct err *e)
{
	char name[48];
	int fd;

	disk_name(s, number, name, sizeof(name));
	fd = w->env.persist ? sys_openat(w->vms->dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600) :
			      sys_openat(w->vms->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	return fd < 0 ? err_sys(e, ERR_EXHAUSTED, fd, "make a disk in %s", w->vms->path) : fd;
}

static void remove_disk(struct warden *w, const struct warden_sandbox *s, uint32_t number)
{
	char name[48];

	disk_name(s, number, name, sizeof(name));
	if (w->env.persist && w->vms)
		sys_unlinkat(w->vms->dir, name, 0);
}

void vm_own_remove_all(struct warden *w, struct machine *m)
{
	for (unsigned i = 0; i < m->nown; i++)
		remove_disk(w, m->sandbox, m->own[i].number);
	if (m->saving)
		remove_disk(w, m->sandbox, m->next_disk);
}

int vm_own_first(struct warden *w, struct machine *m, unsigned below, struct err *e)
{
	int fd = make_disk(w, m->sandbox, below, e);

	if (fd < 0)
		return fd;
	m->own[0] = (struct seal_disk){ .number = below, .fd = fd, .copy = -1, .sums = -1 };
	m->nown = 1;
	m->next_disk = below + 1;
	return 0;
}

void vm_own_record(const struct machine *m, struct record_vm *ret)
{
	*ret = (struct record_vm){
		.own = m->nown, .cold = m->role == VM_COLD, .next = m->next_disk, .joined = m->joined
	};
	for (unsigned i = 0; i < m->nown; i++)
		ret->disk[i] = m->own[i].number;
}

static int write_down(struct warden *w, const struct machine *m)
{
	struct record_vm now;

	vm_own_record(m, &now);
	return m->sandbox->blank.recorded ? records_vm(&w->env.records, m->sandbox->blank.slot, &now) : 0;
}

/*
 * A warden that was killed during a seal leaves one more disk than it had recorded. cloche-vmm may still use it, so it
 * always counts: whether empty or in use, it hides nothing that is below. Disks that were joined meanwhile are still
 * there, too; the one above them has their content.
 */
int vm_own_find(struct warden *w, struct warden_sandbox *s, const struct record_vm *rec)
{
	struct machine *m = s->vm;
	char name[48];

	if (rec->own > VM_OWN_MAX || rec->joined > s->layers)
		return -EBADMSG;
	m->next_disk = rec->next;
	m->joined = rec->joined;
	for (uint32_t i = 0; i <= rec->own && m->nown < VM_OWN_MAX; i++) {
		const uint32_t number = i < rec->own ? rec->disk[i] : rec->next;
		int fd;

		disk_name(s, number, name, sizeof(name));
		fd = sys_openat(w->vms->dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
		if (fd == -ENOENT && i == rec->own)
			break;
		if (fd < 0)
			return fd;
		m->own[m->nown++] = (struct seal_disk){ .number = number, .fd = fd, .copy = -1, .sums = -1 };
		m->next_disk = number + 1 > m->next_disk ? number + 1 : m->next_disk;
	}
	return m->next_disk > rec->next ? write_down(w, m) : 0;
}

/* --- what is joined --- */

/* A disk that could be joined: the machine's own, or one of a layer, from the newest on. */
struct piece {
	uint64_t size;
	uint32_t disks;
	uint32_t below; /* the number of the disk below it */
};

static uint64_t size_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
}

/* Lists them from the oldest on; returns how many. */
static int find_pieces(struct warden *w, const struct warden_sandbox *s, struct piece *ret, struct err *e)
{
	const struct machine *m = s->vm;
	const uint32_t layers = s->layers - m->joined;
	uint32_t below = 0;
	int n = 0;

	for (uint32_t i = m->stack; i < layers; i++) {
		const struct manifest *facts = layers_find(w->layers, s->layer[i]);
		int fds[VM_CHAIN_MAX], disks = vm_layer_disks(w, &s->layer[i], 1, fds, VM_CHAIN_MAX, e);

		if (disks < 0)
			return disks;
		fd_close_many(fds, (size_t)disks);
		ret[n++] = (struct piece){ facts ? facts->size + facts->pages : 0, (uint32_t)disks, below };
		below += (uint32_t)disks;
	}
	for (unsigned i = 0; i < m->nown; i++) {
		ret[n++] = (struct piece){ size_of(m->own[i].fd), 1, below };
		below = m->own[i].number;
	}
	return n;
}

/*
 * As for layers of containers (choose_joins): at least the newest disk, and further ones while they are not much larger
 * than what is joined so far. So each byte is copied a few times in all, however often the machine is sealed. A paused
 * machine would have to be thawed for that, so its disks are only joined when the chain is full. Where the same blocks
 * are written again and again between seals, a machine's own disks are joined earlier: their bytes are the host's, and
 * not in the machine's quota.
 */
static int choose(struct warden *w, const struct warden_sandbox *s, struct seal_source *from, struct err *e)
{
	struct piece piece[SPEC_LAYERS + VM_OWN_MAX];
	const struct machine *m = s->vm;
	uint32_t disks = 2, layers = s->layers - m->joined; /* the template's, and the next one */
	const unsigned most = from->paused ? VM_CHAIN_MAX : LONG_CHAIN;
	/* Those of its image cannot be joined, and there is room for some above them. */
	const uint32_t depth = m->stack + ABOVE_STACK > SEAL_LAYERS ? m->stack + ABOVE_STACK : SEAL_LAYERS;
	const int first = (int)(layers - m->stack); /* the first that is the machine's own */
	uint64_t sum = 0, own = 0;
	int n = find_pieces(w, s, piece, e), joined = 0;
	bool heavy;

	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		disks += piece[i].disks;
		own += i < first ? 0 : piece[i].size;
	}
	heavy = m->spec.limits.disk && m->nown > 1 && own / HEAVY_DISKS > m->spec.limits.disk;
	/* There is always room for the next disk and for one that a killed warden did not record: see vm_own_find(). */
	from->joins_or_not = disks <= VM_CHAIN_MAX && m->nown + 1 < VM_OWN_MAX;
	for (int i = n - 1; i >= 0; i--) {
		const bool fits = disks <= most && layers + 1 < depth &&
				  m->nown + 2 <= VM_OWN_MAX + (joined > 1 ? (unsigned)joined - 1 : 0);

		if (fits && !(heavy && i >= first) && (!joined || piece[i].size / 2 > sum))
			break;
		sum += piece[i].size;
		/* The top one stays: the others are joined into it. */
		if (joined++)
			disks -= piece[i].disks;
		from->base = piece[i].below;
		if (i < first) {
			layers--;
			from->joins_or_not = false;
		}
	}
	from->joins_disks = joined > 1;
	from->joins = s->layers - layers;
	for (uint32_t i = 0; i < from->joins; i++)
		memcpy(from->join[i], s->layer[s->layers - 1 - i], ID_SIZE);
	return 0;
}

/* --- a seal --- */

static void take_back(struct seal_source *from)
{
	for (uint32_t i = 0; i < from->disks; i++)
		seal_disk_done(&from->disk[i]);
	from->disks = 0;
}

static int give_disks(struct warden *w, struct machine *m, struct seal_source *from, struct err *e)
{
	struct seal_disk *top = &from->disk[m->nown];
	int r = 0;

	for (unsigned i = 0; r >= 0 && i < m->nown; i++) {
		struct seal_disk *d = &from->disk[i];

		*d = m->own[i];
		d->copy = -1;
		d->sums = -1;
		r = d->fd = sys_fcntl(m->own[i].fd, F_DUPFD_CLOEXEC, 3);
		if (r < 0)
			break;
		from->disks++;
	}
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "open the disk of a virtual machine");
	r = make_disk(w, m->sandbox, m->next_disk, e);
	if (r < 0)
		return r;
	*top = (struct seal_disk){ .number = m->next_disk, .fd = r, .copy = -1, .sums = -1 };
	from->disks++;
	/* Descriptors of copies and their sums go to the seal, and come back. */
	for (unsigned i = 0; i < m->nown; i++) {
		from->disk[i].copy = TAKE_FD(m->own[i].copy);
		from->disk[i].sums = TAKE_FD(m->own[i].sums);
	}
	return 0;
}

/* A template stays as long as a layer is based on it, and no quota counts it: so their number is limited. */
static int check_templates(struct warden *w, const struct warden_sandbox *s, struct err *e)
{
	if (layers_templates(w->layers, s->tenant, s->vm->template->key, PINNED_MAX) < PINNED_MAX)
		return 0;
	return err_advise(e, ERR_REFUSED, -EDQUOT,
			  "delete those of other images, sizes or settings, or of earlier versions of cloche",
			  "the tenant's checkpoints are of %u kinds of virtual machines, which is the limit",
			  PINNED_MAX);
}

int vm_seal_begin(struct warden *w, struct warden_sandbox *s, struct seal_source *from, struct err *e)
{
	struct machine *m = s->vm;
	int r;

	if (m->role != VM_CLONE)
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
			       "a virtual machine that was booted without a template cannot be sealed");
	if (m->dead)
		return err_set(e, ERR_LOST, -EPIPE, "the virtual machine has ended");
	r = check_templates(w, s, e);
	if (r == 0)
		r = choose(w, s, from, e);
	if (r == 0)
		r = give_disks(w, m, from, e);
	if (r < 0) {
		take_back(from);
		return r;
	}
	from->side = m->side;
	from->memory = m->spec.limits.memory / MIB * MIB;
	memcpy(from->key, m->template->key, sizeof(from->key));
	epoll_ctl(w->vms->epoll, EPOLL_CTL_DEL, m->side, NULL);
	m->saving = true;
	return 0;
}

void vm_seal_end(struct warden *w, struct warden_sandbox *s, struct seal_source *from, const struct seal *seal)
{
	struct epoll_event in = { .events = EPOLLIN, .data.ptr = s->vm };
	const enum seal_save save = seal ? seal->impl->save : SEAL_NOT_ASKED;
	struct seal_disk was[VM_OWN_MAX];
	struct machine *m = s->vm;
	const unsigned nwas = m->nown;

	from = seal ? &seal->impl->from : from;
	memcpy(was, m->own, sizeof(was));
	/*
	 * When cloche-vmm was not asked, or refused, the last disk was never put on top; without an answer, it may
	 * still be. A disk that was created but not used hides nothing of those below.
	 */
	if (save == SEAL_NOT_ASKED || save == SEAL_REFUSED) {
		struct seal_disk *top = &from->disk[--from->disks];

		remove_disk(w, s, top->number);
		seal_disk_done(top);
	}
	m->nown = from->disks;
	memcpy(m->own, from->disk, m->nown * sizeof(*m->own));
	for (unsigned i = m->nown; i < VM_OWN_MAX; i++)
		m->own[i] = (struct seal_disk){ .fd = -1, .copy = -1, .sums = -1 };
	m->next_disk++;
	if (seal && seal->impl->joined)
		m->joined = from->joins;
	/*
	 * First the new list is recorded, then joined disks are deleted: a disk that is not in the record has no
	 * content of its own.
	 */
	if (write_down(w, m) < 0)
		log_error("slot %u: its record does not contain its newest disk", s->blank.slot);
	for (unsigned i = 0; i < nwas; i++) {
		uint32_t k = 0;

		while (k < from->disks && from->disk[k].number != was[i].number)
			k++;
		if (k == from->disks)
			remove_disk(w, s, was[i].number);
		seal_disk_done(&was[i]);
	}
	from->disks = 0;
	m->saving = false;
	epoll_ctl(w->vms->epoll, EPOLL_CTL_ADD, m->side, &in);
}
