/*
 * System V objects, made in the sandbox's IPC namespace before its processes: each with its old id, by a child that has
 * become its creator. Every user may use them at first, since a process may have an attachment that it could not get
 * again. They get their owners and modes when every process has attached what it had.
 */
#include "agent/restore/restore.h"
#include "base/base.h"
#include "base/sys.h"

#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <time.h>
#include <unistd.h>

#define OPEN_TO_ALL 0666
#define UNDO_WAIT_US 50
#define UNDO_TRIES 400000

union value {
	int val;
	struct semid_ds *ds;
};

struct maker {
	struct restore *r;
	const struct mem_object *o;
	struct mem_sysv s;
	const uint8_t *rest; /* the data that follows ->s in the image */
	bool last; /* all processes have attached: set owner and mode */
	int error;
};

static bool is_sysv(const struct mem_object *o, struct mem_sysv *ret, const struct restore *r)
{
	if (o->kind != MEM_OBJ_SYSV)
		return false;
	memcpy(ret, restore_bytes(r, o->data), sizeof(*ret));
	return true;
}

static struct mem_sem sem_of(const struct maker *m, uint32_t i)
{
	struct mem_sem x;

	memcpy(&x, m->rest + i * sizeof(x), sizeof(x));
	return x;
}

/* Sets the id that the next object of this kind gets. Only the agent can: it takes CAP_CHECKPOINT_RESTORE. */
static int choose_id(const struct restore *r, const struct mem_sysv *s)
{
	static const char *const names[MEM_SYSV_KINDS] = { "shm_next_id", "sem_next_id", "msg_next_id" };
	AUTO_CLOSE int fd = sys_openat(r->agent->sysctl, names[s->kind], O_WRONLY | O_CLOEXEC, 0);
	char text[16];
	ssize_t n;

	if (fd < 0)
		return fd;
	n = sys_write(fd, text, (size_t)snprintf(text, sizeof(text), "%u", s->id));
	return n < 0 ? (int)n : 0;
}

static int same_id(int got, const struct mem_sysv *s)
{
	return got < 0 ? -errno : got == (int)s->id ? 0 : -EEXIST;
}

/* ---- making them ------------------------------------------------------------------------------------------------- */

static int fill_memory(const struct maker *m)
{
	uint8_t *at = shmat((int)m->s.id, NULL, 0);
	int x = 0;

	if (at == MAP_FAILED)
		return -errno;
	for (uint32_t i = 0; x == 0 && i < m->o->run.n; i++) {
		const struct mem_run *run = &m->r->m.run[m->o->run.first + i];
		uint64_t done = 0;

		while (x == 0 && done < run->len) {
			ssize_t n = pread(m->r->pages[run->file], at + run->start + done, run->len - done,
					  (off_t)(run->off + done));

			x = n < 0 ? -errno : n == 0 ? -EIO : 0;
			done += n > 0 ? (uint64_t)n : 0;
		}
	}
	return shmdt(at) < 0 && x == 0 ? -errno : x;
}

static int make_memory(const struct maker *m)
{
	int x = same_id(shmget((key_t)m->s.key, m->o->a, IPC_CREAT | IPC_EXCL | OPEN_TO_ALL), &m->s);

	return x == 0 && m->o->run.n ? fill_memory(m) : x;
}

/*
 * Two operations at once that leave the value as it is; @flags are those of the second. With SEM_UNDO, @by is what is added when
 * the process ends. The one that adds comes first, where there is room for that.
 */
static int push(int id, uint32_t num, uint32_t value, int by, int flags)
{
	const bool up = value + (uint32_t)abs(by) <= MEM_SYSV_VALUE_MAX, first = (by > 0) == up;
	struct sembuf op[2];

	op[!first] = (struct sembuf){ (unsigned short)num, (short)by, IPC_NOWAIT };
	op[first] = (struct sembuf){ (unsigned short)num, (short)-by, (short)(IPC_NOWAIT | flags) };
	return semop(id, op, 2) < 0 ? -errno : 0;
}

static int make_semaphores(const struct maker *m)
{
	int x = same_id(semget((key_t)m->s.key, (int)m->s.n, IPC_CREAT | IPC_EXCL | OPEN_TO_ALL), &m->s);
	uint32_t used = 0;

	/* Programs wait for the time of the first operation to be set. */
	while (used + 1 < m->s.n && !sem_of(m, used).pid && !sem_of(m, used).value)
		used++;
	if (x == 0 && m->s.flags & MEM_SYSV_USED)
		x = push((int)m->s.id, used, 0, 1, 0);
	for (uint32_t i = 0; x == 0 && i < m->s.n; i++)
		if (sem_of(m, i).value &&
		    semctl((int)m->s.id, (int)i, SETVAL, (union value){ .val = (int)sem_of(m, i).value }) < 0)
			x = -errno;
	return x;
}

static int make_queue(const struct maker *m)
{
	int x = same_id(msgget((key_t)m->s.key, IPC_CREAT | IPC_EXCL | OPEN_TO_ALL), &m->s);
	const uint8_t *at = m->rest;

	for (uint32_t i = 0; x == 0 && i < m->s.n; i++) {
		struct mem_sysv_message g;

		/* What the kernel takes begins with the type, too; but the bytes are to follow that at once. */
		struct {
			long type;
			uint8_t bytes[];
		} * text;

		memcpy(&g, at, sizeof(g));
		text = malloc(sizeof(*text) + g.len);
		if (!text)
			return -ENOMEM;
		text->type = (long)g.type;
		memcpy(text->bytes, at + sizeof(g), g.len);
		x = msgsnd((int)m->s.id, text, g.len, IPC_NOWAIT) < 0 ? -errno : 0;
		free(text);
		at += sizeof(g) + ((g.len + 7) & ~7U);
	}
	return x;
}

/* ---- when every process is there --------------------------------------------------------------------------------- */

static struct ipc_perm owner(const struct mem_sysv *s)
{
	return (struct ipc_perm){ .uid = s->uid, .gid = s->gid, .mode = s->mode };
}

static int settle_memory(const struct maker *m)
{
	struct shmid_ds ds = { .shm_perm = owner(&m->s) };
	struct rlimit lim;
	int x = 0;

	if (m->s.flags & MEM_SYSV_LOCKED) {
		if (getrlimit(RLIMIT_MEMLOCK, &lim) == 0)
			sys_prlimit(RLIMIT_MEMLOCK, lim.rlim_max, lim.rlim_max);
		x = shmctl((int)m->s.id, SHM_LOCK, NULL) < 0 ? -errno : 0;
	}
	if (x == 0 && shmctl((int)m->s.id, IPC_SET, &ds) < 0)
		x = -errno;
	if (x == 0 && m->s.flags & MEM_SYSV_REMOVED && shmctl((int)m->s.id, IPC_RMID, NULL) < 0)
		x = -errno;
	return x;
}

static int settle(const struct maker *m)
{
	struct semid_ds sem = { .sem_perm = owner(&m->s) };
	struct msqid_ds msg = { .msg_perm = owner(&m->s), .msg_qbytes = m->s.qbytes };

	switch ((enum mem_sysv_kind)m->s.kind) {
	case MEM_SYSV_SHM:
		return settle_memory(m);
	case MEM_SYSV_SEM:
		return semctl((int)m->s.id, 0, IPC_SET, (union value){ .ds = &sem }) < 0 ? -errno : 0;
	case MEM_SYSV_MSG:
		return msgctl((int)m->s.id, IPC_SET, &msg) < 0 ? -errno : 0;
	case MEM_SYSV_KINDS:
		break;
	}
	return -EINVAL;
}

static int make(const struct maker *m)
{
	switch ((enum mem_sysv_kind)m->s.kind) {
	case MEM_SYSV_SHM:
		return make_memory(m);
	case MEM_SYSV_SEM:
		return make_semaphores(m);
	case MEM_SYSV_MSG:
		return make_queue(m);
	case MEM_SYSV_KINDS:
		break;
	}
	return -EINVAL;
}

static int as_creator(void *arg)
{
	struct maker *m = arg;
	int x = exec_become_with(m->r->agent, m->s.cuid, m->s.cgid, NULL, 0);

	m->error = x < 0 ? x : m->last ? settle(m) : make(m);
	return 0;
}

static int all(struct restore *r, bool last, struct err *e)
{
	static const char *const names[MEM_SYSV_KINDS] = { "shared memory", "semaphores", "message queue" };

	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++) {
		struct maker m = { .r = r, .o = &r->m.object[i], .last = last };
		int x;

		if (!is_sysv(m.o, &m.s, r))
			continue;
		m.rest = (const uint8_t *)restore_bytes(r, m.o->data) + sizeof(m.s);
		x = last ? 0 : choose_id(r, &m.s);
		if (x == 0)
			x = restore_as_user(as_creator, &m);
		if (x == 0)
			x = m.error;
		if (x < 0)
			return err_sys(e, ERR_UNSUPPORTED, x, "%s System V %s with its id %u",
				       last ? "set the owner of" : "make", names[m.s.kind], m.s.id);
	}
	return 0;
}

int restore_sysv(struct restore *r, struct err *e)
{
	return all(r, false, e);
}

int restore_sysv_settle(struct restore *r, struct err *e)
{
	return all(r, true, e);
}

/* ---- in a process ------------------------------------------------------------------------------------------------ */

/* By steps that each leave the value in its range, whichever comes first. */
static int undo(int id, const struct mem_undo *u, uint32_t value)
{
	int32_t left = u->add, most = (int32_t)(value > MEM_SYSV_VALUE_MAX / 2 ? value : MEM_SYSV_VALUE_MAX - value);
	int x = 0;

	while (x == 0 && left) {
		int32_t by = left > most ? most : left < -most ? -most : left;

		x = push(id, u->num, value, by, SEM_UNDO);
		left -= by;
	}
	return x;
}

/* Restores all adjustments that @pid has for one set. Returns how many, or -errno. */
static int undo_all(const struct mem_sysv *s, const uint8_t *rest, uint32_t pid, bool set)
{
	const uint8_t *at = rest + s->n * sizeof(struct mem_sem);
	int n = 0, x = 0;

	for (uint32_t i = 0; x == 0 && i < s->undos; i++) {
		struct mem_undo u;
		struct mem_sem sem;

		memcpy(&u, at + i * sizeof(u), sizeof(u));
		if (u.pid != pid)
			continue;
		memcpy(&sem, rest + u.num * sizeof(sem), sizeof(sem));
		n++;
		x = set ? undo((int)s->id, &u, sem.value) : 0;
	}
	return x < 0 ? x : n;
}

static int undos_of(const struct restore *r, uint32_t pid, bool set)
{
	int n = 0;

	for (uint32_t i = 0; n >= 0 && i < r->m.n[MEM_S_OBJECT]; i++) {
		const uint8_t *rest = (const uint8_t *)restore_bytes(r, r->m.object[i].data) + sizeof(struct mem_sysv);
		struct mem_sysv s;
		int x = is_sysv(&r->m.object[i], &s, r) && s.undos ? undo_all(&s, rest, pid, set) : 0;

		n = x < 0 ? x : n + x;
	}
	return n;
}

static bool any_undo(const struct restore *r)
{
	struct mem_sysv s;

	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++)
		if (is_sysv(&r->m.object[i], &s, r) && s.undos)
			return true;
	return false;
}

/*
 * Marks one semaphore as used by this process, without changing its value. One whose value was only set (SETVAL) is
 * left out: an operation would leave a trace that it did not have.
 */
static int touch(const struct maker *m, uint32_t k)
{
	const uint32_t value = sem_of(m, k).value;

	if (m->s.flags & MEM_SYSV_USED)
		return push((int)m->s.id, k, value, 1, 0);
	return semctl((int)m->s.id, (int)k, SETVAL, (union value){ .val = (int)value }) < 0 ? -errno : 0;
}

/* The last process that changed a semaphore is recorded in it (sempid), so this comes after all other changes. */
static int touch_all(const struct restore *r, const struct mem_proc *p)
{
	int x = 0;

	for (uint32_t i = 0; x == 0 && i < r->m.n[MEM_S_OBJECT]; i++) {
		struct maker m = { .o = &r->m.object[i] };

		if (!is_sysv(m.o, &m.s, r) || m.s.kind != MEM_SYSV_SEM)
			continue;
		m.rest = (const uint8_t *)restore_bytes(r, m.o->data) + sizeof(m.s);
		for (uint32_t k = 0; x == 0 && k < m.s.n; k++)
			if (sem_of(&m, k).pid == p->pid)
				x = touch(&m, k);
	}
	return x;
}

int restore_sysv_own(const struct restore *r, const struct mem_proc *p)
{
	const bool any = any_undo(r);
	uint32_t *done = &r->shared->undone, expected = 0;
	int x = undos_of(r, p->pid, true);

	if (x < 0)
		return x;
	if (x > 0)
		__atomic_add_fetch(done, 1, __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; any && i < r->m.n[MEM_S_PROC]; i++)
		expected += r->m.proc[i].state == MEM_ALIVE && undos_of(r, r->m.proc[i].pid, false) > 0;
	for (unsigned tries = 0; __atomic_load_n(done, __ATOMIC_SEQ_CST) < expected; tries++) {
		if (tries == UNDO_TRIES)
			return -ETIMEDOUT;
		usleep(UNDO_WAIT_US);
	}
	return touch_all(r, p);
}
