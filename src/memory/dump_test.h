/* For tests: a substitute for an agent, processes below it, and a real cloche-dump that reads them. */
#pragma once
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "proto/memory.h"
#include "proto/table.h"

#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What tests and the processes they look at share. */
struct dt_shared {
	volatile uint64_t count, bad, stop, ready, value[16];
};

struct dt {
	pid_t agent; /* 0: none */
	pid_t middle; /* its parent, our child */
	int pidfd, table;
	struct dt_shared *shared;
	char dir[64];
	int out;
	pid_t dump; /* 0: not running */
	int control;
	char said[512]; /* its last word */
	uint64_t pause_ns; /* from its start until it let go */
	void *meta;
	size_t meta_len;
	struct mem_image image;
};

static inline bool dt_program(const char *name, char *buf, size_t size)
{
	static const char *const folders[] = { "", "../", "../build/" };
	char self[400], path[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return false;
	self[n] = '\0';
	*(strrchr(self, '/') + 1) = '\0';
	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		snprintf(path, sizeof(path), "%s%s%s", self, folders[i], name);
		if (access(path, X_OK) == 0)
			return (size_t)snprintf(buf, size, "%s", path) < size;
	}
	return false;
}

static inline void dt_sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
		;
}

/* Waits until *@what is at least @least. */
static inline bool dt_reaches(const volatile uint64_t *what, uint64_t least)
{
	for (int i = 0; i < 5000; i++) {
		if (*what >= least)
			return true;
		dt_sleep_ms(1);
	}
	printf("# is %llu, not %llu\n", (unsigned long long)*what, (unsigned long long)least);
	return false;
}

/* Mounts the folder of the test's own program inside: a checkpoint refuses files outside of the root's mount. */
static inline void dt_bind_self(void)
{
	char dir[512];
	ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);

	if (n <= 0)
		return;
	dir[n] = '\0';
	*strrchr(dir, '/') = '\0';
	mount(dir, dir, NULL, MS_BIND, NULL);
	mount(NULL, dir, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL);
}

/* Namespaces, and a first process that only reaps. @fn runs in a child of it, which leads a session. */
static inline bool dt_start(struct dt *t, void (*fn)(struct dt_shared *s))
{
	int up[2];

	*t = (struct dt){ .pidfd = -1, .table = -1, .out = -1, .control = -1 };
	t->shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (t->shared == MAP_FAILED || pipe2(up, O_CLOEXEC) < 0)
		return false;
	t->middle = fork();
	if (t->middle == 0) {
		pid_t first;

		if (unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
			_exit(1);
		first = fork();
		if (first == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			sys_close_range(3, ~0U, 0);
			for (int i = 0, null = open("/dev/null", O_RDWR); i < 3; i++)
				dup2(null, i);
			close(3);
			mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
			mount("proc", "/proc", "proc", 0, NULL);
			dt_bind_self();
			if (fork() == 0) {
				setsid();
				fn(t->shared);
				_exit(0);
			}
			for (;;)
				if (wait(NULL) < 0)
					pause();
		}
		if (write(up[1], &first, sizeof(first)) != sizeof(first))
			_exit(1);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		waitpid(first, NULL, 0);
		_exit(0);
	}
	close(up[1]);
	if (read(up[0], &t->agent, sizeof(t->agent)) != sizeof(t->agent))
		return false;
	close(up[0]);
	t->pidfd = sys_pidfd_open(t->agent, 0);
	t->table = table_new();
	if (t->pidfd < 0 || t->table < 0)
		return false;
	return pwrite(t->table, &(uint32_t){ TABLE_MAGIC }, 4, 0) == 4;
}

static inline void dt_forget(struct dt *t)
{
	static const char *const names[] = { "meta", "pages" };

	if (t->meta)
		munmap(t->meta, t->meta_len);
	t->meta = NULL;
	for (size_t i = 0; t->out >= 0 && i < ARRAY_LEN(names); i++)
		unlinkat(t->out, names[i], 0);
	fd_close(t->out);
	fd_close(t->control);
	t->out = t->control = -1;
	if (t->dir[0])
		rmdir(t->dir);
	t->dir[0] = '\0';
}

static inline void dt_end(struct dt *t)
{
	if (t->dump > 0) {
		kill(t->dump, SIGKILL);
		waitpid(t->dump, NULL, 0);
	}
	dt_forget(t);
	if (t->agent > 0)
		kill(t->agent, SIGKILL);
	if (t->middle > 0)
		waitpid(t->middle, NULL, 0);
	fd_close(t->pidfd);
	fd_close(t->table);
	if (t->shared)
		munmap(t->shared, 4096);
	*t = (struct dt){ .pidfd = -1, .table = -1, .out = -1, .control = -1 };
}

/* Other builds of the same test use the same names, and may run beside it: not before this program has ended. */
static inline void dt_alone(void)
{
	static int fd = -1;

	if (fd >= 0)
		return;
	fd = open("/tmp/dump-test-alone", O_RDONLY | O_CREAT | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
}

/* Starts it; @more: "base=FD ID:FD" or NULL. */
static inline bool dt_launch_as(struct dt *t, const char *name, const char *more)
{
	char program[512], arg[6][16], base[16];
	const char *argv[10] = { program };
	int pair[2];

	dt_forget(t);
	snprintf(t->dir, sizeof(t->dir), "/tmp/dump-test-XXXXXX");
	if (!dt_program(name, program, sizeof(program)) || !mkdtemp(t->dir) ||
	    (t->out = open(t->dir, O_RDONLY | O_DIRECTORY)) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
		return false;
	const int number[] = { t->pidfd, t->agent, t->table, t->out, t->out, pair[1] };

	for (int i = 0; i < 6; i++) {
		snprintf(arg[i], sizeof(arg[i]), "%d", number[i]);
		argv[i + 1] = arg[i];
	}
	if (more && sscanf(more, "%15s", base) == 1) {
		argv[7] = base;
		argv[8] = strchr(more, ' ') + 1;
	}
	fcntl(pair[0], F_SETFD, FD_CLOEXEC);
	t->dump = fork();
	if (t->dump == 0) {
		fcntl(t->pidfd, F_SETFD, 0);
		fcntl(t->table, F_SETFD, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execv(program, (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	close(pair[1]);
	t->control = pair[0];
	return send(t->control, "begin", 5, 0) == 5;
}

static inline bool dt_launch(struct dt *t, const char *more)
{
	return dt_launch_as(t, "cloche-dump", more);
}

/* Its next word. */
static inline bool dt_hear(struct dt *t)
{
	struct pollfd p = { .fd = t->control, .events = POLLIN };
	ssize_t n;

	t->said[0] = '\0';
	if (poll(&p, 1, 20000) != 1)
		return false;
	n = recv(t->control, t->said, sizeof(t->said) - 1, 0);
	if (n <= 0)
		return false;
	t->said[n] = '\0';
	return true;
}

static inline bool dt_hears(struct dt *t, const char *word)
{
	if (dt_hear(t) && !strcmp(t->said, word))
		return true;
	printf("# said '%s', not '%s'\n", t->said, word);
	return false;
}

static inline bool dt_reap(struct dt *t)
{
	int status = -1;

	waitpid(t->dump, &status, 0);
	t->dump = 0;
	return status == 0;
}

static inline bool dt_load(struct dt *t)
{
	AUTO_CLOSE int fd = openat(t->out, "meta", O_RDONLY | O_CLOEXEC);
	struct err e = { 0 };
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return false;
	t->meta_len = (size_t)st.st_size;
	t->meta = mmap(NULL, t->meta_len, PROT_READ, MAP_PRIVATE, fd, 0);
	if (t->meta == MAP_FAILED) {
		t->meta = NULL;
		return false;
	}
	if (mem_check(t->meta, t->meta_len, &t->image, &e) < 0) {
		printf("# %s\n", e.msg);
		return false;
	}
	if (fstatat(t->out, "pages", &st, 0) < 0 || (uint64_t)st.st_size != t->image.head->pages) {
		printf("# pages is of another size\n");
		return false;
	}
	return true;
}

/* All of it, as the warden does; then the image is read and checked. */
static inline bool dt_dump_on(struct dt *t, const char *more)
{
	uint64_t start = clock_mono_ns();

	if (!dt_launch(t, more) || !dt_hears(t, "seized") || !dt_hears(t, "ready") ||
	    send(t->control, "go", 2, 0) != 2 || !dt_hears(t, "copied"))
		return false;
	t->pause_ns = clock_mono_ns() - start;
	return dt_hears(t, "done") && dt_reap(t) && dt_load(t);
}

static inline bool dt_dump(struct dt *t)
{
	return dt_dump_on(t, NULL);
}

/* It refuses, with @part in what it says. */
static inline bool dt_refuses(struct dt *t, const char *part)
{
	bool ok = dt_launch(t, NULL);

	while (ok && dt_hear(t)) {
		if (!strncmp(t->said, "refused ", 8)) {
			ok = strstr(t->said, part) != NULL;
			break;
		}
		ok = strcmp(t->said, "ready") != 0 && strncmp(t->said, "failed", 6) != 0;
	}
	waitpid(t->dump, NULL, 0);
	t->dump = 0;
	if (!ok || !strstr(t->said, part)) {
		printf("# said '%s', without '%s'\n", t->said, part);
		return false;
	}
	return true;
}

/* What the image says is at an address of a process. */
static inline bool dt_peek(const struct dt *t, const struct mem_proc *p, uint64_t at, void *to, size_t len)
{
	AUTO_CLOSE int pages = openat(t->out, "pages", O_RDONLY | O_CLOEXEC);

	memset(to, 0, len);
	for (uint32_t i = 0; i < p->vma.n; i++) {
		const struct mem_vma *v = &t->image.vma[p->vma.first + i];

		if (at < v->start || at >= v->end)
			continue;
		for (uint32_t k = 0; k < v->run.n; k++) {
			const struct mem_run *r = &t->image.run[v->run.first + k];

			if (at >= r->start && at + len <= r->start + r->len)
				return r->file == 0 &&
				       pread(pages, to, len, (off_t)(r->off + (at - r->start))) == (ssize_t)len;
		}
		return true; /* zeros */
	}
	return false;
}

static inline const struct mem_fd *dt_fd(const struct dt *t, const struct mem_proc *p, uint32_t num)
{
	for (uint32_t i = 0; i < p->fd.n; i++)
		if (t->image.fd[p->fd.first + i].num == num)
			return &t->image.fd[p->fd.first + i];
	return NULL;
}

static inline const struct mem_object *dt_object(const struct dt *t, const struct mem_proc *p, uint32_t num)
{
	const struct mem_fd *f = dt_fd(t, p, num);

	return f ? &t->image.object[f->object] : NULL;
}
