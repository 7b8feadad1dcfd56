#include "engine/kernel_memory/files.h"
#include "base/base.h"
#include "base/test.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EVENTFD_BYTES 96U
#define MANY 30000
#define LOCKS 12000
#define LOCKS_EACH 500

/* A folder that looks like a version 2 group with one process. */
struct place {
	char path[64];
	struct cgroup_host host;
	struct cgroup group;
	struct kernel_files_host *files;
};

static bool put_process(const struct place *p, int pid)
{
	AUTO_CLOSE int fd = openat(p->host.base[0], "box/cgroup.procs", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	return dprintf(fd, "%d\n", pid) > 0;
}

static bool make(struct place *p)
{
	*p = (struct place){ .path = "/var/tmp/cloche-kernel-files-test-XXXXXX",
			     .host = { .version = 2 },
			     .group = { .name = "box", .parked = true } };
	p->host.base[0] = mkdtemp(p->path) ? open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	p->files = kernel_files_host_new(&p->host);
	return p->files && mkdirat(p->host.base[0], "box", 0700) == 0;
}

static void done(struct place *p)
{
	kernel_files_host_free(p->files);
	unlinkat(p->host.base[0], "box/cgroup.procs", 0);
	unlinkat(p->host.base[0], "box", AT_REMOVEDIR);
	fd_close(p->host.base[0]);
	CHECK_EQ(rmdir(p->path), 0);
}

/* Starts a process with @n descriptors of an eventfd, or as many as it may have. -1: it did not start. */
static pid_t holder(int n, int *ret_n)
{
	int pipefd[2], have = 0;
	pid_t pid;

	if (pipe2(pipefd, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		struct rlimit r = { MANY + 100, MANY + 100 };
		const int fd = eventfd(0, EFD_CLOEXEC);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setrlimit(RLIMIT_NOFILE, &r);
		for (have = 1; have < n && dup(fd) >= 0; have++)
			;
		(void)!write(pipefd[1], &have, sizeof(have));
		for (;;)
			pause();
	}
	close(pipefd[1]);
	if (read(pipefd[0], &have, sizeof(have)) != (ssize_t)sizeof(have))
		have = 0;
	close(pipefd[0]);
	*ret_n = have;
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Sets locks on a file system that only this process has mounted. */
static bool lock_in_own_file_system(void)
{
	if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) < 0 ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("none", "/tmp", "tmpfs", 0, NULL) < 0)
		return false;
	for (unsigned i = 0; i < LOCKS / LOCKS_EACH; i++) {
		struct flock l = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1 };
		char path[32];
		int fd;

		snprintf(path, sizeof(path), "/tmp/%u", i);
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* kept open for the life of the process */
		for (; l.l_start < 2 * LOCKS_EACH; l.l_start += 2)
			if (fcntl(fd, F_OFD_SETLK, &l) < 0)
				return false;
	}
	return true;
}

/* Starts a process that does that. -1: it did not start, or has no file system of its own. */
static pid_t locker(void)
{
	int pipefd[2];
	char ok = 0;
	pid_t pid;

	if (pipe2(pipefd, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ok = lock_in_own_file_system();
		(void)!write(pipefd[1], &ok, 1);
		for (;;)
			pause();
	}
	close(pipefd[1]);
	if (read(pipefd[0], &ok, 1) != 1)
		ok = 0;
	close(pipefd[0]);
	return ok ? pid : -1;
}

/* Looks until locks are found on its own file systems, 60 s at most. */
static bool look_for_locks(struct kernel_look *l)
{
	for (int i = 0; i < 12000 && l->files->hidden.own < (uint64_t)LOCKS / 2 * KERNEL_LOCK_BYTES; i++) {
		kernel_files_look(l);
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	return l->files->hidden.own >= (uint64_t)LOCKS / 2 * KERNEL_LOCK_BYTES;
}

/*
 * Looks until one more walk is complete, 60 s at most; returns how often it was cut before: never, where 20 ms are
 * enough. -1: it is not complete.
 */
static int look(struct kernel_look *l)
{
	uint64_t last = l->files->looked_ns;
	int cuts = 0;

	for (int i = 0; i < 12000; i++) {
		kernel_files_look(l);
		if (l->files->looked_ns != last) {
			if (!l->files->cut)
				return cuts;
			cuts++;
		}
		last = l->files->looked_ns;
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	return -1;
}

TEST(a_walk_that_is_cut_continues_where_it_was_and_counts_each_descriptor_once)
{
	struct kernel_files f = { 0 };
	struct place p;
	struct kernel_look l = { .host = &p.host, .cgroup = &p.group, .files = &f };
	int n = 0;
	pid_t pid;

	CHECK(make(&p));
	l.files_host = p.files;
	pid = l.pid = holder(MANY, &n);
	CHECK(pid > 0 && n > 0 && put_process(&p, pid));
	kernel_files_look(&l); /* the first one sets the clock */
	CHECK_EQ(f.descriptors, 0);
	CHECK(look(&l) >= 0);
	CHECK_EQ(f.objects, (uint64_t)n * EVENTFD_BYTES);
	end(pid);
	kernel_files_done(&f);
	done(&p);
}

TEST(a_group_that_is_used_again_starts_with_no_figures)
{
	struct kernel_files first = { 0 }, second = { 0 };
	struct place p;
	struct kernel_look l = { .host = &p.host, .cgroup = &p.group, .files = &first };
	int n = 0, few = 0;
	pid_t pid;

	CHECK(make(&p));
	l.files_host = p.files;
	pid = l.pid = holder(500, &n);
	CHECK(pid > 0 && n == 500 && put_process(&p, pid));
	kernel_files_look(&l);
	CHECK(look(&l) >= 0);
	CHECK_EQ(first.objects, 500 * EVENTFD_BYTES);
	end(pid);
	/* The same name, another sandbox. */
	pid = l.pid = holder(3, &few);
	CHECK(pid > 0 && few == 3 && put_process(&p, pid));
	l.files = &second;
	kernel_files_look(&l);
	CHECK(second.objects <= 3 * EVENTFD_BYTES);
	CHECK(look(&l) >= 0);
	CHECK_EQ(second.objects, 3 * EVENTFD_BYTES);
	CHECK(first.id && second.id != first.id);
	end(pid);
	kernel_files_done(&first);
	kernel_files_done(&second);
	done(&p);
}

/* Memory that a sandbox took before cloche-watch was restarted still counts, and is searched for at once. */
TEST(what_was_counted_from_is_kept_by_a_process_that_looks_in_the_place_of_another)
{
	struct kernel_files first = { 0 }, second = { 0 };
	struct kernel_base base, kept;
	struct place p;
	struct kernel_look l = { .host = &p.host, .cgroup = &p.group, .files = &first };
	int n = 0;
	pid_t pid;

	CHECK(make(&p));
	l.files_host = p.files;
	pid = l.pid = holder(500, &n);
	CHECK(pid > 0 && n == 500 && put_process(&p, pid));
	kernel_files_look(&l);
	CHECK_EQ(first.objects, 0); /* the first look at an unknown sandbox sets the clock */
	kernel_files_base(&l, &base);
	base.files -= 64 * MIB;
	base.pipes -= 32 * MIB;
	base.code -= MIB;
	base.machine -= 2 * MIB;
	kernel_files_host_free(p.files);
	l.files_host = p.files = kernel_files_host_new(&p.host);
	second.seen = &base;
	l.files = &second;
	kernel_files_look(&l);
	CHECK_EQ(second.objects, 500 * EVENTFD_BYTES);
	kernel_files_base(&l, &kept);
	CHECK(kept.files == base.files && kept.pipes == base.pipes && kept.code == base.code &&
	      kept.machine == base.machine);
	end(pid);
	kernel_files_done(&first);
	kernel_files_done(&second);
	done(&p);
}

/*
 * The device number of a file system is reused as soon as it has ended: earlier locks on it belong to another sandbox,
 * or another warden.
 */
TEST(locks_that_were_listed_before_a_sandbox_was_there_are_not_its_own)
{
	struct kernel_files first = { 0 }, second = { 0 };
	struct place p;
	struct kernel_look l = { .host = &p.host, .cgroup = &p.group, .files = &first };
	int n = 0;
	pid_t pid, other;

	CHECK(make(&p));
	l.files_host = p.files;
	pid = locker();
	other = l.pid = holder(3, &n);
	CHECK(pid > 0 && other > 0 && put_process(&p, other));
	for (int i = 0; i < 12000 && !first.hidden.sample; i++) {
		kernel_files_look(&l);
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	CHECK(first.hidden.sample > 0);
	CHECK_EQ(first.hidden.own, 0);
	l.pid = pid;
	l.files = &second;
	CHECK(put_process(&p, pid));
	kernel_files_look(&l);
	CHECK_EQ(second.hidden.own, 0);
	CHECK(look_for_locks(&l)); /* in a later sample */
	end(pid);
	end(other);
	kernel_files_done(&first);
	kernel_files_done(&second);
	done(&p);
}

TEST(a_look_that_is_stopped_finds_nothing_more)
{
	struct kernel_files f = { 0 };
	struct place p;
	struct kernel_look l = { .host = &p.host, .cgroup = &p.group, .files = &f };
	int n = 0;
	pid_t pid;

	CHECK(make(&p));
	l.files_host = p.files;
	pid = l.pid = holder(3, &n);
	CHECK(pid > 0 && put_process(&p, pid));
	kernel_files_stop(&f);
	for (int i = 0; i < 3; i++)
		kernel_files_look(&l);
	CHECK_EQ(f.looked_ns, 0);
	CHECK_EQ(f.descriptors, 0);
	end(pid);
	kernel_files_done(&f);
	done(&p);
}
