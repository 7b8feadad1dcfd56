/* START: descriptors, QEMU, and the state that a clone continues from. */
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "vm/vmm/vmm.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EPOCH 1
#define MEMORY_MAX (1U << 20) /* memory of a machine in MiB, at most */
#define CPUS_MAX 64U
#define COUNT_NS 25000000L
#define FILES_OVER (64 * MIB)
#define KHZ_OFF 500U /* clock frequencies that differ by more than a 500th are different speeds */

/* The descriptors that a role must have, besides VM_FD_USR, which is optional. */
static uint32_t needs(uint32_t role)
{
	return role == VM_CLONE	   ? VM_FD_STAT | VM_FD_META | VM_FD_RAM | VM_FD_ROOT :
	       role == VM_TEMPLATE ? VM_FD_STAT | VM_FD_META | VM_FD_RAM | VM_FD_ROOT | VM_FD_INITRD :
				     VM_FD_STAT | VM_FD_ROOT | VM_FD_INITRD;
}

static bool makes_sense(const struct vm_start *s)
{
	return s->role >= VM_COLD && s->role <= VM_CLONE && s->accel >= VM_TCG && s->accel <= VM_KVM && s->memory_mib &&
	       s->memory_mib <= MEMORY_MAX && s->cpus && s->cpus <= CPUS_MAX &&
	       !(s->flags & ~(VM_KEEP | VM_WAY_OTHER << VM_WAY_SHIFT)) && (s->fds & ~VM_FD_USR) == needs(s->role) &&
	       s->disks && s->disks <= VM_CHAIN_MAX &&
	       (s->role == VM_CLONE ? s->disks > 1 && !s->spec_len :
				      s->disks == 1 && s->spec_len && s->spec_len <= VM_SPEC_MAX);
}

static int take_fds(struct vmm *v, int *fds, size_t nfds)
{
	struct qemu_opts *o = &v->machine.opts;
	int stat = -1, *to[] = { &stat, &v->meta, &o->ram, &o->initrd, &o->root, &o->usr };
	size_t at = 0;

	if (nfds != (size_t)__builtin_popcount(v->start.fds) + v->start.disks)
		return err_set(&v->e, ERR_INTERNAL, -EPROTO, "START came with %zu descriptors", nfds);
	for (size_t i = 0; i < ARRAY_LEN(to); i++)
		if (v->start.fds & 1U << i) {
			*to[i] = TAKE_FD(fds[at]);
			at++;
		}
	for (size_t i = 0; i < v->start.disks; i++)
		o->disk[i] = TAKE_FD(fds[at + i]);
	o->disks = v->start.disks;
	v->stat = mmap(NULL, sizeof(*v->stat), PROT_READ | PROT_WRITE, MAP_SHARED, stat, 0);
	fd_close(stat);
	if (v->stat == MAP_FAILED)
		return err_sys(&v->e, ERR_INTERNAL, -errno, "map the page for usage");
	return 0;
}

static int check_ram(struct vmm *v)
{
	const uint64_t want = v->start.memory_mib * MIB;
	struct stat st;

	if (fstat(v->machine.opts.ram, &st) < 0 || (uint64_t)st.st_size != want)
		return err_set(&v->e, ERR_INVALID, -EINVAL,
			       "the memory file of the virtual machine has the wrong size");
	/* QEMU opens it for writing, whatever its options: only a seal keeps a template unchanged. */
	if (v->start.role == VM_CLONE && (sys_fcntl(v->machine.opts.ram, F_GET_SEALS, 0) &
					  (F_SEAL_WRITE | F_SEAL_SHRINK)) != (F_SEAL_WRITE | F_SEAL_SHRINK))
		return err_set(&v->e, ERR_INVALID, -EINVAL, "the memory to clone is not sealed");
	return 0;
}

/*
 * Bounds the size of files in this jail: no file becomes larger than the machine's disk or memory with its tables, not
 * by QEMU either, if a guest has taken it over. Larger writes fail with EFBIG.
 */
static int bound_files(struct vmm *v)
{
	uint64_t most = v->start.memory_mib * MIB;
	struct rlimit limit;
	struct stat st;

	if (fstat(v->machine.opts.disk[0], &st) < 0)
		return err_sys(&v->e, ERR_INTERNAL, -errno, "read the status of the virtual machine's disk");
	if ((uint64_t)st.st_size > most)
		most = (uint64_t)st.st_size;
	limit.rlim_cur = limit.rlim_max = most + most / 128 + FILES_OVER;
	signal(SIGXFSZ, SIG_IGN);
	if (setrlimit(RLIMIT_FSIZE, &limit) < 0)
		return err_sys(&v->e, ERR_INTERNAL, -errno, "limit the size of the virtual machine's files");
	return 0;
}

static int differs(struct vmm *v, const char *what, const char *was, const char *is)
{
	err_set(&v->e, WHY_MADE_ELSEWHERE, -ESTALE, "this state was made with another %s: %s, not %s", what, was, is);
	err_remedy(&v->e, "use the program that it was made with, or make another state");
	return -ESTALE;
}

/* Checks that the state was made by an equal machine. */
static int check_was(struct vmm *v, uint32_t khz)
{
	char machine[QEMU_MACHINE], was[32], is[32];
	const struct vm_meta *m = &v->was;

	qemu_machine(&v->machine.opts, machine);
	if (strcmp(m->qemu, v->machine.version))
		return differs(v, "QEMU", m->qemu, v->machine.version);
	if (strcmp(m->machine, machine))
		return differs(v, "machine", m->machine, machine);
	if (m->memory_mib != v->start.memory_mib || m->cpus != v->start.cpus || m->accel != v->start.accel) {
		snprintf(was, sizeof(was), "%uM, %u CPUs", m->memory_mib, m->cpus);
		snprintf(is, sizeof(is), "%uM, %u CPUs", v->start.memory_mib, v->start.cpus);
		return differs(v, "size", was, is);
	}
	if (m->tsc_khz > khz + khz / KHZ_OFF || khz > m->tsc_khz + m->tsc_khz / KHZ_OFF) {
		snprintf(was, sizeof(was), "%u kHz", m->tsc_khz);
		snprintf(is, sizeof(is), "%u kHz", khz);
		return differs(v, "processor", was, is);
	}
	return 0;
}

static int make_port(struct vmm *v)
{
	int r = carry_init(&v->carry, CARRY_HOST, v->machine.port, -1, EPOCH);

	v->carry.keeps = v->start.flags & VM_KEEP || v->start.role == VM_TEMPLATE;
	if (r == 0)
		r = kept_new(&v->carry, &v->kept);
	return r < 0 ? err_sys(&v->e, ERR_EXHAUSTED, r, "make the virtual machine's port") : 0;
}

static int start_boot(struct vmm *v)
{
	const struct timespec nap = { .tv_nsec = COUNT_NS };
	struct counted before, after;
	int r;

	counted_look(&before);
	nanosleep(&nap, NULL);
	counted_look(&after);
	v->machine.opts.tsc_khz = counted_khz(&before, &after);
	r = machine_start(&v->machine, &v->e);
	if (r == 0)
		r = make_port(v);
	v->was = (struct vm_meta){
		.tsc_khz = v->machine.opts.tsc_khz,
		.accel = v->start.accel,
		.memory_mib = v->start.memory_mib,
		.cpus = v->start.cpus,
		.way = v->start.flags >> VM_WAY_SHIFT,
		.what = v->start.what,
	};
	memcpy(v->was.qemu, v->machine.version, sizeof(v->was.qemu));
	qemu_machine(&v->machine.opts, v->was.machine);
	v->state = VMM_BOOTS;
	return r;
}

static int start_clone(struct vmm *v)
{
	AUTO_FREE uint8_t *rest = NULL;
	struct counted before, after;
	int r = meta_load(v->meta, &v->was, &rest, &v->e);

	if (r < 0)
		return r;
	/* The clock frequency is measured while QEMU starts, which takes long enough. */
	counted_look(&before);
	r = machine_start(&v->machine, &v->e);
	counted_look(&after);
	if (r == 0)
		r = check_was(v, counted_khz(&before, &after));
	if (r == 0) {
		r = machine_load(&v->machine, rest + v->was.carry_len, v->was.state_len, &v->e);
		v->unloadable = r < 0;
	}
	if (r == 0)
		r = make_port(v);
	if (r < 0)
		return r;
	r = kept_load(v->kept, rest, v->was.carry_len);
	if (r < 0)
		return err_sys(&v->e, WHY_MADE_ELSEWHERE, r, "the state of the virtual machine's port");
	v->state = VMM_LOADED;
	vmm_say(&(struct vm_msg){ .type = VM_LOADED });
	return 0;
}

int vmm_start(struct vmm *v, const struct vm_msg *m, int *fds, size_t nfds)
{
	struct qemu_opts *o = &v->machine.opts;
	int r;

	v->start = m->start;
	*o = (struct qemu_opts){ .role = (enum vm_role)m->start.role,
				 .accel = (enum vm_accel)m->start.accel,
				 .memory_mib = m->start.memory_mib,
				 .cpus = m->start.cpus,
				 .io_bps = m->start.io_bps,
				 .ram = -1,
				 .initrd = -1,
				 .root = -1,
				 .usr = -1 };
	if (!makes_sense(&v->start))
		return err_set(&v->e, ERR_INTERNAL, -EPROTO, "the START message is invalid");
	r = take_fds(v, fds, nfds);
	if (r == 0 && o->ram >= 0)
		r = check_ram(v);
	if (r == 0)
		r = bound_files(v);
	if (r < 0)
		return r;
	return v->start.role == VM_CLONE ? start_clone(v) : start_boot(v);
}

int vmm_begin(struct vmm *v, const uint8_t seed[32])
{
	struct mux_start s = { .real_ns = clock_real_ns(), .spec_len = v->start.spec_len };
	AUTO_FREE uint8_t *out = malloc(MUX_START_LEN + v->start.spec_len);
	int r = out ? 0 : -ENOMEM;

	if (r == 0) {
		memcpy(s.seed, seed, sizeof(s.seed));
		mux_start_encode(&s, out);
		memcpy(out + MUX_START_LEN, v->spec, v->start.spec_len);
		r = carry_say(&v->carry, MUX_START, 0, out, MUX_START_LEN + v->start.spec_len);
	}
	v->state = VMM_RISES;
	return r < 0 ? err_sys(&v->e, ERR_LOST, r, "send the guest its settings") : 0;
}
