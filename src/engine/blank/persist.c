/* Keeps what a later warden needs in descriptors of a sandbox's agent. */
#include "engine/blank/persist.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/pidfd.h"
#include "base/sys.h"
#include "proto/frame.h"
#include "proto/table.h"

#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#define HEARD_MS 2000 /* by then an agent has received a KEEP that was sent */

int persist_prepare(struct env *v, struct blank *s, struct err *e)
{
	int pair[2], r = record_start(s->pid, &s->started);

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read the start time of the agent");
	r = sys_socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make a socket pair");
	s->take = pair[0];
	s->give = pair[1];
	r = table_new();
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make the agent's table");
	s->table = r;
	r = s->grouped ? cgroup_child_open(&v->cgroups, &s->cgroup, PERSIST_FIRST_GROUP, blank_agent_uid(s)) :
			 cgroup_child_make(&v->cgroups, &s->cgroup, PERSIST_FIRST_GROUP, blank_agent_uid(s));
	if (r == -EOPNOTSUPP)
		return 0; /* this host has no control groups, so execs have none of their own */
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "make an exec group");
	s->group = r;
	s->grouped = true;
	return 0;
}

static int tell(struct blank *s, uint32_t id, int slot, int meminfo, int writable, const int *more, struct err *e)
{
	AUTO_CLOSE int top = sys_openat(writable, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	int fds[FRAME_KEEP_FDS + FRAME_KEEP_VM_FDS] = { slot, s->take, s->give, meminfo, top, s->table }, r;
	const unsigned n = FRAME_KEEP_FDS + (more ? FRAME_KEEP_VM_FDS : 0);
	uint8_t out[FRAME_HEAD];

	if (top < 0)
		return err_sys(e, ERR_INTERNAL, top, "open the writable layer");
	if (more)
		memcpy(fds + FRAME_KEEP_FDS, more, FRAME_KEEP_VM_FDS * sizeof(int));
	frame_head(out, FRAME_KEEP, (uint8_t)n, id, 0);
	r = fd_send(s->sock, out, sizeof(out), fds, n);
	if (r < 0)
		return err_sys(e, ERR_LOST, r, "send the agent the command to persist");
	/* The agent's end is the agent's; the other end stays here as well. */
	fd_close(TAKE_FD(s->take));
	return 0;
}

/*
 * The agent gets an open file for the slot that does not hold the lock yet: an agent in the pool that outlives us for a
 * moment must not hold its slot.
 */
int persist_ahead(struct env *v, struct blank *s, int meminfo, int writable, struct err *e)
{
	AUTO_CLOSE int again = slots_again(&v->slots);
	int r = again < 0 ? again : table_set_ahead(s->table, true);

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "open the agent's persistent files");
	r = tell(s, FRAME_KEEP_AHEAD, again, meminfo, writable, NULL, e);
	if (r == 0)
		s->again = TAKE_FD(again);
	return r;
}

int persist_start(struct env *v, struct blank *s, int meminfo, int writable, const int *more, struct record *rec,
		  struct err *e)
{
	int r;

	rec->slot = s->slot;
	rec->uid_base = s->uid_base;
	rec->pid = (uint32_t)s->pid;
	rec->start = s->started;
	rec->mask = s->cgroup.mask;
	rec->cpu_base = s->cgroup.cpu_base;
	rec->throttled_base = s->cgroup.throttled_base;
	rec->tenant = s->tenant;
	r = records_write(&v->records, rec);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "write the sandbox's record");
	s->recorded = true;
	r = s->again >= 0 ? slots_share(s->again, s->slot) : 0;
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "hold slot %u", s->slot);
	if (s->again < 0)
		r = tell(s, 0, s->slot_fd, meminfo, writable, more, e);
	else if ((r = table_set_ahead(s->table, false)) < 0)
		err_sys(e, ERR_INTERNAL, r, "send the agent the command to persist");
	if (r < 0)
		return r;
	fd_close(TAKE_FD(s->again));
	fd_close(TAKE_FD(s->table));
	return 0;
}

/* The type of each descriptor that is taken from the agent is checked: hostile processes run beside the agent. */
static int take_socket(int pidfd, int place)
{
	AUTO_CLOSE int fd = sys_pidfd_getfd(pidfd, place);
	int type = 0, domain = 0;
	socklen_t len = sizeof(int);

	if (fd < 0)
		return fd;
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_SEQPACKET ||
	    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) < 0 || domain != AF_UNIX)
		return -ENOTSOCK;
	return TAKE_FD(fd);
}

int persist_attach_by(int to, const void *say, size_t size, int *ret, struct err *e)
{
	AUTO_CLOSE int ours = -1, theirs = -1;
	int pair[2], r = sys_socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);

	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make a socket pair");
	ours = pair[0];
	theirs = pair[1];
	r = fd_send_now(to, say, size, &theirs, 1);
	if (r == -EAGAIN)
		return err_set(e, ERR_CONFLICT, r, "too many connections to the sandbox were made while it was paused");
	if (r < 0)
		return err_sys(e, ERR_LOST, r, "connect to the agent");
	*ret = TAKE_FD(ours);
	return 0;
}

int persist_attach(struct blank *s, int *ret, struct err *e)
{
	if (s->give < 0) {
		int fd = take_socket(s->pidfd, FRAME_KEEP_GIVE);

		s->give = fd < 0 ? -1 : fd;
	}
	return s->give < 0 ? err_set(e, ERR_CONFLICT, -EAGAIN, "the sandbox is not ready yet") :
			     persist_attach_by(s->give, "a", 1, ret, e);
}

void persist_park(struct blank *s)
{
	int fd = s->give < 0 ? -1 : take_socket(s->pidfd, FRAME_KEEP_GIVE);

	if (fd < 0)
		return;
	fd_close(fd);
	fd_close(TAKE_FD(s->give));
	s->heard = true;
}

static int take_slot(const struct env *v, int pidfd)
{
	AUTO_CLOSE int fd = sys_pidfd_getfd(pidfd, FRAME_KEEP_SLOT);
	struct stat a, b;

	if (fd < 0)
		return fd;
	if (fstat(fd, &a) < 0 || fstat(v->slots.fd, &b) < 0 || a.st_dev != b.st_dev || a.st_ino != b.st_ino)
		return -ESTALE;
	return TAKE_FD(fd);
}

static int take_layer(int pidfd, int place, mode_t type)
{
	AUTO_CLOSE int fd = sys_pidfd_getfd(pidfd, place);
	struct statfs fs;
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || (st.st_mode & S_IFMT) != type || fstatfs(fd, &fs) < 0 ||
	    (fs.f_type != 0x01021994 /* tmpfs */ && fs.f_type != 0xef53 /* ext4 */))
		return -ESTALE;
	return TAKE_FD(fd);
}

int persist_table(const struct blank *s)
{
	AUTO_CLOSE int fd = sys_pidfd_getfd(s->pidfd, FRAME_KEEP_TABLE);
	int r = fd < 0 ? fd : table_is(fd);

	return r < 0 ? r : TAKE_FD(fd);
}

int persist_vm(const struct blank *s, int place)
{
	return place == FRAME_KEEP_SIDE ? take_socket(s->pidfd, place) : sys_pidfd_getfd(s->pidfd, place);
}

/* KEEP may still be in transit; an agent whose warden died without sending it dies as well. */
static int wait_heard(int pidfd)
{
	const uint64_t until = clock_mono_ns() + HEARD_MS * 1000000ULL;
	int fd;

	while ((fd = take_socket(pidfd, FRAME_KEEP_GIVE)) == -ENOTSOCK && !pidfd_ended(pidfd) &&
	       clock_mono_ns() < until)
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	return fd;
}

/* Waits for the end of an agent that received KEEP ahead, and whose warden died before KEEP took effect: it exits. */
static void wait_nobodys(int pidfd)
{
	AUTO_CLOSE int table = sys_pidfd_getfd(pidfd, FRAME_KEEP_TABLE);

	if (table >= 0 && table_is(table) == 0 && table_ahead(table) == 1)
		pidfd_wait(pidfd, HEARD_MS);
}

void persist_settle(struct blank *s)
{
	int fd;

	if (!s->recorded || s->heard)
		return;
	fd = wait_heard(s->pidfd);
	if (fd >= 0)
		fd_close(fd);
	s->heard = fd >= 0;
}

/* Removes what is left of a recorded sandbox, unless the lock shows that its slot has another owner by now. */
static void bury(struct env *v, const struct record *rec)
{
	struct err e = { 0 };
	struct cgroup c;
	char name[48];

	snprintf(name, sizeof(name), "s%u", rec->slot);
	if (slots_claim(&v->slots, rec->slot) == 0) {
		if (cgroup_open(&v->cgroups, name, rec->mask, &c) == 0) {
			cgroup_kill(&v->cgroups, &c);
			cgroup_done(&c);
		}
		if (cgroup_remove_wait(&v->cgroups, name, v->cgroups.have, HEARD_MS, &e) < 0)
			log_error("a sandbox whose warden has ended: %s", e.msg);
		slots_give(&v->slots, rec->slot, -1);
	}
	records_clear(&v->records, rec->slot);
}

static bool same_process(const struct record *rec, int pidfd)
{
	uint64_t start;

	return record_start((pid_t)rec->pid, &start) == 0 && start == rec->start && !pidfd_ended(pidfd);
}

int persist_adopt(struct env *v, const struct record *rec, struct blank *ret, int *ret_meminfo, int *ret_writable,
		  struct err *e)
{
	AUTO_CLOSE int pidfd = sys_pidfd_open((pid_t)rec->pid, 0), give = -1, meminfo = -1, writable = -1;
	struct blank s;
	char name[48];
	int r;

	blank_init(&s);
	if (pidfd < 0 || rec->uid_base != slot_uid(rec->slot) || rec->mask & ~v->cgroups.have ||
	    !same_process(rec, pidfd)) {
		bury(v, rec);
		return -ESRCH;
	}
	give = wait_heard(pidfd);
	if (give >= 0)
		wait_nobodys(pidfd);
	if (pidfd_ended(pidfd)) {
		bury(v, rec);
		return -ESRCH;
	}
	snprintf(name, sizeof(name), "s%u", rec->slot);
	r = rec->mask ? cgroup_open(&v->cgroups, name, rec->mask, &s.cgroup) : 0;
	if (r == 0)
		r = slots_adopt(&v->slots, rec->slot);
	if (r < 0) {
		cgroup_done(&s.cgroup);
		return err_sys(e, ERR_INTERNAL, r, "take over the sandbox in slot %u", rec->slot);
	}
	s.cgroup.cpu_base = rec->cpu_base;
	s.cgroup.throttled_base = rec->throttled_base;
	s.adopted = s.recorded = s.grouped = true;
	s.heard = give >= 0;
	s.slot = rec->slot;
	r = take_slot(v, pidfd);
	s.slot_fd = r < 0 ? -1 : r;
	s.uid_base = rec->uid_base;
	s.pid = (pid_t)rec->pid;
	s.started = rec->start;
	s.tenant = rec->tenant;
	s.limited = true;
	s.limits = (struct cgroup_limits){ rec->memory, rec->pids, rec->cpu_milli, rec->io_bps, { { 0, 0 } }, 0 };
	s.give = give < 0 ? -1 : TAKE_FD(give);
	meminfo = take_layer(pidfd, FRAME_KEEP_MEMINFO, S_IFREG);
	*ret_meminfo = meminfo < 0 ? -1 : TAKE_FD(meminfo);
	writable = take_layer(pidfd, FRAME_KEEP_UPPER, S_IFDIR);
	*ret_writable = writable < 0 ? -1 : TAKE_FD(writable);
	s.pidfd = TAKE_FD(pidfd);
	*ret = s;
	return 0;
}
