/* Starts the process that reads System V objects, and asks it. */
#include "memory/sysv_reader.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/sys.h"
#include "linux/caps.h"
#include "proto/memory.h"

#include <sched.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define IPC_OWNER (1ULL << 15)
#define OBJECTS_MAX 4096
#define MESSAGES_MAX 65536U
#define PAGE_MASK 4095ULL
#ifndef MSG_COPY
#define MSG_COPY 040000
#endif
#ifndef SHM_DEST
#define SHM_DEST 01000
#endif
#ifndef SHM_LOCKED
#define SHM_LOCKED 02000
#endif

union value {
	int val;
	struct semid_ds *ds;
	unsigned short *array;
	struct seminfo *info;
};

/* ---- the process itself ------------------------------------------------------------------------------------------ */

static struct mem_sysv begin(uint32_t kind, int id, key_t key, const struct ipc_perm *p)
{
	return (struct mem_sysv){
		.kind = kind,
		.id = (uint32_t)id,
		.key = (uint32_t)key,
		.mode = p->mode & 0777,
		.uid = p->uid,
		.gid = p->gid,
		.cuid = p->cuid,
		.cgid = p->cgid,
	};
}

static int add(struct buf *out, struct sysv_told *t, const struct mem_sysv *s, const struct buf *rest)
{
	static const char zeros[8];
	size_t pad = -rest->len & 7;
	int r;

	t->len = sizeof(*s) + rest->len + pad;
	r = buf_add(out, t, sizeof(*t));
	if (r == 0)
		r = buf_add(out, s, sizeof(*s));
	if (r == 0)
		r = buf_add(out, rest->data, rest->len);
	return r == 0 ? buf_add(out, zeros, pad) : r;
}

static int read_memory(int index, struct buf *out, struct err *e)
{
	AUTO(buf_done) struct buf none = BUF_INIT(8);
	struct sysv_told t = { 0 };
	struct mem_sysv s;
	struct shmid_ds ds;
	int id = shmctl(index, SHM_STAT, &ds);
	void *at;

	if (id < 0)
		return errno == EINVAL || errno == EIDRM ?
			       0 :
			       err_sys(e, ERR_INTERNAL, -errno, "list System V shared memory");
	s = begin(MEM_SYSV_SHM, id, ds.shm_perm.__key, &ds.shm_perm);
	s.flags = (ds.shm_perm.mode & SHM_DEST ? MEM_SYSV_REMOVED : 0) |
		  (ds.shm_perm.mode & SHM_LOCKED ? MEM_SYSV_LOCKED : 0);
	t.size = ds.shm_segsz;
	t.attached = ds.shm_nattch;
	if (!t.attached) {
		at = shmat(id, NULL, SHM_RDONLY);
		if (at == MAP_FAILED)
			return err_sys(e, ERR_INTERNAL, -errno, "attach System V shared memory with id %d", id);
		t.at = (uintptr_t)at;
		t.end = t.at + ((t.size + PAGE_MASK) & ~PAGE_MASK);
	}
	return add(out, &t, &s, &none) < 0 ? err_set(e, ERR_TOO_LARGE, -E2BIG, "too much System V memory") : 0;
}

static int read_semaphores(int index, struct buf *out, struct err *e)
{
	AUTO(buf_done) struct buf rest = BUF_INIT(MEM_SYSV_SEMS_MAX * sizeof(struct mem_sem));
	AUTO_FREE unsigned short *values = NULL;
	struct sysv_told t = { 0 };
	struct semid_ds ds;
	struct mem_sysv s;
	int id = semctl(index, 0, SEM_STAT, (union value){ .ds = &ds }), r = 0;

	if (id < 0)
		return errno == EINVAL || errno == EIDRM ? 0 :
							   err_sys(e, ERR_INTERNAL, -errno, "list System V semaphores");
	s = begin(MEM_SYSV_SEM, id, ds.sem_perm.__key, &ds.sem_perm);
	s.n = (uint32_t)ds.sem_nsems;
	s.flags = ds.sem_otime ? MEM_SYSV_USED : 0;
	values = calloc(s.n + 1UL, sizeof(*values));
	if (!values || semctl(id, 0, GETALL, (union value){ .array = values }) < 0)
		return err_sys(e, ERR_INTERNAL, values ? -errno : -ENOMEM, "read System V semaphores with id %d", id);
	for (uint32_t i = 0; r == 0 && i < s.n; i++) {
		int pid = semctl(id, (int)i, GETPID, (union value){ 0 });
		struct mem_sem x = { values[i], pid > 0 ? (uint32_t)pid : 0 };

		r = buf_add(&rest, &x, sizeof(x));
	}
	if (r == 0)
		r = add(out, &t, &s, &rest);
	return r < 0 ? err_set(e, ERR_TOO_LARGE, -E2BIG, "System V semaphore set %d has too many semaphores", id) : 0;
}

/* Reads messages without removing them: MSG_COPY copies the nth one. */
static int read_messages(int id, struct mem_sysv *s, uint64_t n, size_t max, struct buf *rest, struct err *e)
{
	static const char zeros[8];
	AUTO_FREE long *text = malloc(sizeof(long) + max);
	int r = text && n <= MESSAGES_MAX ? 0 : -E2BIG;

	for (long i = 0; r == 0 && i < (long)n; i++) {
		ssize_t got = msgrcv(id, text, max, i, IPC_NOWAIT | MSG_COPY);
		struct mem_sysv_message m = { .type = text[0], .len = (uint32_t)got };

		if (got < 0 && errno == ENOSYS)
			return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
				       "the sandbox has a System V message queue (id %d) with messages, which this "
				       "kernel cannot list",
				       id);
		if (got < 0)
			return err_sys(e, ERR_INTERNAL, -errno, "read System V message queue with id %d", id);
		r = buf_add(rest, &m, sizeof(m));
		if (r == 0)
			r = buf_add(rest, text + 1, (size_t)got);
		if (r == 0)
			r = buf_add(rest, zeros, (size_t)-got & 7);
		s->n++;
	}
	return r < 0 ? err_set(e, ERR_TOO_LARGE, r, "System V message queue with id %d holds too much data", id) : 0;
}

static int read_queue(int index, size_t max, struct buf *out, struct err *e)
{
	AUTO(buf_done) struct buf rest = BUF_INIT(MEM_META_MAX / 4);
	struct sysv_told t = { 0 };
	struct msqid_ds ds;
	struct mem_sysv s;
	int id = msgctl(index, MSG_STAT, &ds), r;

	if (id < 0)
		return errno == EINVAL || errno == EIDRM ?
			       0 :
			       err_sys(e, ERR_INTERNAL, -errno, "list System V message queues");
	s = begin(MEM_SYSV_MSG, id, ds.msg_perm.__key, &ds.msg_perm);
	s.qbytes = ds.msg_qbytes;
	r = read_messages(id, &s, ds.msg_qnum, max, &rest, e);
	if (r == 0 && add(out, &t, &s, &rest) < 0)
		r = err_set(e, ERR_TOO_LARGE, -E2BIG, "System V message queue with id %d holds too much data", id);
	return r;
}

static int read_all(struct buf *out, struct err *e)
{
	struct shm_info shm = { 0 };
	struct seminfo sem = { 0 };
	struct msginfo msg = { 0 }, limits = { 0 };
	/* Each returns the highest index in use, or fails and fills in nothing. */
	int shms = shmctl(0, SHM_INFO, (struct shmid_ds *)(void *)&shm),
	    sems = semctl(0, 0, SEM_INFO, (union value){ .info = &sem });
	int msgs = msgctl(0, MSG_INFO, (struct msqid_ds *)(void *)&msg), r = 0;

	if (msgctl(0, IPC_INFO, (struct msqid_ds *)(void *)&limits) < 0 || limits.msgmax < 0 ||
	    (unsigned)limits.msgmax > MEM_SYSV_MESSAGE_MAX)
		limits.msgmax = (int)MEM_SYSV_MESSAGE_MAX;
	if (shm.used_ids + sem.semusz + msg.msgpool > OBJECTS_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "more than %d System V objects", OBJECTS_MAX);
	for (int i = 0; r == 0 && i <= shms; i++)
		r = read_memory(i, out, e);
	for (int i = 0; r == 0 && i <= sems; i++)
		r = read_semaphores(i, out, e);
	for (int i = 0; r == 0 && i <= msgs; i++)
		r = read_queue(i, (size_t)limits.msgmax, out, e);
	return r;
}

static _Noreturn void serve(int s)
{
	char word;
	size_t nfds = 0;

	while (fd_recv(s, &word, 1, NULL, 0, &nfds) == 1) {
		AUTO(buf_done) struct buf out = BUF_INIT(MEM_META_MAX);
		AUTO_CLOSE int file = memfd_create("sysv", MFD_CLOEXEC);
		struct err e = { 0 };
		int r = file < 0 ? err_sys(&e, ERR_INTERNAL, -errno, "make a file") : read_all(&out, &e);

		if (r == 0) {
			r = fd_write_all(file, buf_str(&out), out.len);
			if (r < 0)
				err_sys(&e, ERR_INTERNAL, r, "write a file");
		}
		if (fd_send(s, &e, sizeof(e), &file, r == 0 ? 1 : 0) < 0)
			break;
	}
	_exit(0);
}

int sysv_reader_start(struct sysv_reader *g, int agent_pidfd, struct err *e)
{
	int pair[2], r = sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
	pid_t pid;

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "make a socket");
	pid = fork();
	if (pid < 0) {
		r = -errno;
		fd_close_many(pair, 2);
		return err_sys(e, ERR_INTERNAL, r, "start a process");
	}
	if (pid == 0) {
		r = sys_setns(agent_pidfd, CLONE_NEWUSER);
		if ((r < 0 && r != -EINVAL /* it is ours */) || dup2(pair[1], 0) < 0 ||
		    sys_close_range(1, ~0U, 0) < 0 || caps_drop_bounding(0) < 0 || caps_set(IPC_OWNER, 0) < 0 ||
		    sys_prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
			_exit(1);
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
		alarm(0);
		serve(0);
	}
	fd_close(pair[1]);
	g->fd = pair[0];
	g->pid = pid;
	return 0;
}

/* ---- cloche-dump's side ------------------------------------------------------------------------------------------ */

int sysv_reader_ask(struct sysv_reader *g, int *ret_file, struct err *e)
{
	struct err told = { 0 };
	size_t nfds = 0;
	int file = -1, r = fd_send(g->fd, "r", 1, NULL, 0);
	ssize_t n = r < 0 ? r : fd_recv(g->fd, &told, sizeof(told), &file, 1, &nfds);

	if (n == (ssize_t)sizeof(told) && nfds == 1) {
		*ret_file = file;
		return 0;
	}
	fd_close(file);
	if (n != (ssize_t)sizeof(told) || !told.errnum)
		return err_sys(e, ERR_INTERNAL, n < 0 ? (int)n : -EPIPE, "read System V objects");
	*e = told;
	return -told.errnum;
}

void sysv_reader_stop(struct sysv_reader *g)
{
	if (g->fd < 0)
		return;
	fd_close(TAKE_FD(g->fd));
	while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
		;
}
