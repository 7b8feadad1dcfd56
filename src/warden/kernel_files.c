#include "warden/kernel_files.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/fd.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define OVERLAY_MAGIC 0x794c7630
#define GROWN (6U << 20) /* bytes: worth a look */
#define GROWN_FAST (12U << 20)
#define SETTLE_NS 500000000ULL /* the least of so long is what growth is measured from */
#define SLOW_NS 250000000ULL /* however little the machine lost */
#define STARVED_NS 100000000ULL /* nobody came to take its turn */
#define ALL_DESCRIPTORS 32
#define SOME_DESCRIPTORS 8
#define LOCK_BYTES 224U /* struct file_lock, and its share of the inode's lists */
#define FILTER_BYTES (128U << 10) /* one of 4,096 instructions; a task has 32,768 at most */
#define FILTERS_MOST 8U /* of them a task */
#define PROCS 512 /* whose filters are compared with their parent's */
#define NAME_BYTES 88U /* of an entry of a listing, beside the name */
#define NAME_USUAL 160U /* with it, and what the kernel rounds up */
#define NAMES_LEAST 1024U /* of a folder that is not measured yet */
#define POS_MOST (1U << 24) /* beyond that it is no number of names */
#define SEEN 64
#define TEXT (64U << 10)

struct seen {
	uint64_t dev, ino, size, bytes;
};

/* The folder that is measured. */
struct measured {
	pthread_t thread;
	bool started;
	bool done; /* __atomic */
	int fd;
	uint64_t dev, ino, size, bytes;
};

struct kernel_files_host {
	const struct cgroup_host *cgroups;
	struct seen seen[SEEN]; /* the last folders that were measured */
	unsigned nseen;
	struct measured measured;
	int vmstat; /* -1: not there */
	int64_t least[2]; /* of the machine's uncounted memory, in this span of SETTLE_NS and the one before */
	uint64_t span_ns; /* when this span began */
	uint64_t free_ns; /* no walk before */
	uint64_t oldest; /* when the one was looked at that waits longest; UINT64_MAX: nobody does */
	uint64_t walked_ns;
	char text[TEXT];
};

/* What is kept for an open file, by the name of its kind. Others keep nothing, or it is counted. */
static const struct {
	const char *name;
	unsigned bytes;
} objects[] = {
	{ "[timerfd]", 288 },	   { "[eventfd]", 96 }, { "[signalfd]", 40 },
	{ "[eventpoll]", 288 },	   { "inotify", 288 },	{ "[landlock-ruleset]", 288 },
	{ "[fanotify]", 288 },
};

struct kernel_files_host *kernel_files_host_new(const struct cgroup_host *c)
{
	struct kernel_files_host *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->cgroups = c;
	h->vmstat = openat(AT_FDCWD, "/proc/vmstat", O_RDONLY | O_CLOEXEC);
	h->least[0] = h->least[1] = INT64_MAX;
	h->oldest = UINT64_MAX;
	return h;
}

void kernel_files_host_free(struct kernel_files_host *h)
{
	if (!h)
		return;
	if (h->measured.started)
		pthread_join(h->measured.thread, NULL);
	fd_close(h->vmstat);
	free(h);
}

/* As fd_get. Calls of libc: those of base/sys.h are counted by tests, which do not expect them from another thread. */
static ssize_t text_of(int dirfd, const char *path, char *buf, size_t size)
{
	const int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n = 0;

	if (fd < 0)
		return -1;
	while (len < size - 1 && (n = read(fd, buf + len, size - 1 - len)) > 0)
		len += (size_t)n;
	close(fd);
	buf[len] = 0;
	return n < 0 ? -1 : (ssize_t)len;
}

/* ---- the machine ------------------------------------------------------------------------------------------------ */

/* The number behind "@key " at the start of a line. 0 when there is none. */
static int64_t field(const char *text, const char *key)
{
	const size_t n = strlen(key);

	for (const char *p = text; p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
		if (!strncmp(p, key, n) && p[n] == ' ')
			return strtoll(p + n + 1, NULL, 10);
	return 0;
}

/* Kernel memory that our sandboxes are charged for. */
static int64_t charged(struct kernel_files_host *h)
{
	const bool v2 = h->cgroups->version == 2;
	const int base = h->cgroups->base[v2 ? 0 : CGROUP_MEMORY];

	if (base < 0)
		return 0;
	if (!v2)
		return text_of(base, "memory.kmem.usage_in_bytes", h->text, sizeof(h->text)) < 0 ? 0 : strtoll(h->text, NULL, 10);
	return text_of(base, "memory.stat", h->text, sizeof(h->text)) < 0 ? 0 : field(h->text, "kernel");
}

/* Pages that are neither free nor a process's or file's, less what is charged: only its changes mean something. */
static int64_t uncounted(struct kernel_files_host *h)
{
	static const char *const others[] = { "nr_free_pages",	  "nr_inactive_anon", "nr_active_anon",
					      "nr_inactive_file", "nr_active_file",   "nr_unevictable" };
	const int64_t have = charged(h);
	ssize_t n = h->vmstat < 0 ? -1 : pread(h->vmstat, h->text, sizeof(h->text) - 1, 0);
	int64_t pages = 0;

	if (n <= 0)
		return 0;
	h->text[n] = 0;
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		pages += field(h->text, others[i]);
	return -pages * sysconf(_SC_PAGESIZE) - have;
}

/* How much more it is than the least of the last moments. */
static int64_t growth(struct kernel_files_host *h, int64_t now, uint64_t now_ns)
{
	if (now_ns - h->span_ns > SETTLE_NS) {
		h->span_ns = now_ns;
		h->least[1] = h->least[0];
		h->least[0] = now;
	}
	if (now < h->least[0])
		h->least[0] = now;
	return now - (h->least[1] < h->least[0] ? h->least[1] : h->least[0]);
}

/* ---- one sandbox ------------------------------------------------------------------------------------------------ */

struct walk {
	struct kernel_files_host *h;
	struct kernel_files *f;
	unsigned ndescriptors; /* of the process so far */
	uint64_t random;
	unsigned nprocs;
	struct {
		int pid, parent;
		unsigned filters;
	} proc[PROCS];
	uint64_t sum_locks, sum_listings, sum_objects, sum_filters;
};

/* What the kernel takes for an object of @n bytes. */
static uint64_t rounded(uint64_t n)
{
	uint64_t size = 8;

	while (size < n)
		size *= 2;
	return n <= size * 3 / 4 && size > 64 && size <= 256 ? size * 3 / 4 : size;
}

/* The memory that one listing of the folder takes. It may wait long for those who change the folder, so it has its own thread. */
static void *measure_folder(void *arg)
{
	struct measured *m = arg;
	char text[8 * KIB];
	uint64_t bytes = 0;
	ssize_t n;

	while ((n = syscall(SYS_getdents64, m->fd, text, sizeof(text))) > 0)
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *d = (const struct dirent64 *)(const void *)(text + at);

			bytes += rounded(NAME_BYTES + strlen(d->d_name) + 1);
			at += d->d_reclen;
		}
	fd_close(m->fd);
	m->bytes = bytes;
	__atomic_store_n(&m->done, true, __ATOMIC_SEQ_CST);
	return NULL;
}

/* Takes what was measured into the table. False while that is under way. */
static bool measured_take(struct kernel_files_host *h)
{
	struct measured *m = &h->measured;

	if (!m->started)
		return true;
	if (!__atomic_load_n(&m->done, __ATOMIC_SEQ_CST))
		return false;
	pthread_join(m->thread, NULL);
	m->started = false;
	h->seen[h->nseen++ % SEEN] = (struct seen){ m->dev, m->ino, m->size, m->bytes };
	return true;
}

static void measured_start(struct kernel_files_host *h, int dir, const char *number, const struct stat *st)
{
	struct measured *m = &h->measured;
	struct statfs fs;

	m->fd = openat(dir, number, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	if (m->fd < 0)
		return;
	m->dev = st->st_dev;
	m->ino = st->st_ino;
	m->size = (uint64_t)st->st_size + 1;
	__atomic_store_n(&m->done, false, __ATOMIC_SEQ_CST);
	m->started = fstatfs(m->fd, &fs) == 0 && fs.f_type == OVERLAY_MAGIC && pthread_create(&m->thread, NULL, measure_folder, m) == 0;
	if (!m->started)
		fd_close(m->fd);
}

/* @pos: how many names were read. Measured once; later it is as much more as the folder is larger. */
static uint64_t listing_of(struct walk *w, int dir, const char *number, const struct stat *st, uint64_t pos)
{
	struct kernel_files_host *h = w->h;
	const uint64_t size = (uint64_t)st->st_size + 1;
	uint64_t names = size / 20; /* as tmpfs counts */

	for (unsigned i = 0; i < SEEN && i < h->nseen; i++) {
		const struct seen *x = &h->seen[i];

		if (x->dev == st->st_dev && x->ino == st->st_ino)
			return size > x->size ? x->bytes / x->size * size : x->bytes;
	}
	if (measured_take(h))
		measured_start(h, dir, number, st);
	names = names > pos || pos > POS_MOST ? names : pos;
	return (names > NAMES_LEAST ? names : NAMES_LEAST) * NAME_USUAL;
}

/* Reads @number of the folder fdinfo: how far it has been read, and its locks, each of which counts @times. */
static uint64_t read_info(struct walk *w, int info, const char *number, unsigned times)
{
	AUTO_CLOSE int fd = openat(info, number, O_RDONLY | O_CLOEXEC);
	uint64_t pos = 0;
	bool first = true;
	ssize_t n;

	while (fd >= 0 && (n = read(fd, w->h->text, sizeof(w->h->text) - 1)) > 0) {
		w->h->text[n] = 0;
		if (first && !strncmp(w->h->text, "pos:\t", 5))
			pos = strtoull(w->h->text + 5, NULL, 10);
		for (const char *p = w->h->text; (p = strstr(p, "lock:\t")); p++)
			w->sum_locks += (uint64_t)LOCK_BYTES * times;
		first = false;
	}
	return pos;
}

static void walk_descriptor(struct walk *w, int fds, int info, const char *number)
{
	char link[64];
	const ssize_t n = readlinkat(fds, number, link, sizeof(link) - 1);
	struct stat st;

	if (n <= 0)
		return;
	link[n] = 0;
	if (!strncmp(link, "anon_inode:", 11)) {
		for (size_t i = 0; i < ARRAY_LEN(objects); i++)
			if (!strcmp(link + 11, objects[i].name))
				w->sum_objects += objects[i].bytes;
		return;
	}
	if (link[0] == '/' && fstatat(fds, number, &st, 0) == 0 && S_ISDIR(st.st_mode)) {
		/* Overlay does not count the links of a merged folder. Others are listed as they are, and nothing is kept. */
		if (st.st_nlink == 1) {
			const uint64_t pos = read_info(w, info, number, 1);

			w->sum_listings += pos ? listing_of(w, fds, number, &st, pos) : 0;
		}
	} else {
		/* /proc/locks would wait for all that lock. Of a process with many descriptors: some, which it cannot foresee. */
		const unsigned times = w->ndescriptors++ < ALL_DESCRIPTORS ? 1 : SOME_DESCRIPTORS;

		w->random = w->random * 6364136223846793005ULL + 1442695040888963407ULL;
		if (times == 1 || (w->random >> 33) % SOME_DESCRIPTORS == 0)
			read_info(w, info, number, times);
	}
}

/* "@key:\t<number>" of a file like /proc/PID/status; 0 when there is none. */
static unsigned status_field(const char *text, const char *key)
{
	const char *p = strstr(text, key);

	return p ? (unsigned)strtoul(p + strlen(key), NULL, 10) : 0;
}

/* Filters that a task has and its parent, or its process, has not. Those that a child gets by fork are the parent's. */
static void walk_filters(struct walk *w, const char *pid)
{
	char path[64];
	unsigned own = 0;
	struct dirent *d;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%s/status", pid);
	if (text_of(AT_FDCWD, path, w->h->text, sizeof(w->h->text)) > 0) {
		own = status_field(w->h->text, "\nSeccomp_filters:\t");
		if (w->nprocs < PROCS) {
			w->proc[w->nprocs].pid = (int)strtol(pid, NULL, 10);
			w->proc[w->nprocs].parent = (int)status_field(w->h->text, "\nPPid:\t");
			w->proc[w->nprocs++].filters = own;
		}
		if (status_field(w->h->text, "\nThreads:\t") < 2)
			return;
	}
	snprintf(path, sizeof(path), "/proc/%s/task", pid);
	dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		char file[300];
		unsigned n;

		snprintf(file, sizeof(file), "%s/status", d->d_name);
		if (!isdigit((unsigned char)d->d_name[0]) || text_of(dirfd(dir), file, w->h->text, sizeof(w->h->text)) <= 0)
			continue;
		n = status_field(w->h->text, "\nSeccomp_filters:\t");
		w->sum_filters += n > own ? (n - own < FILTERS_MOST ? n - own : FILTERS_MOST) * FILTER_BYTES : 0;
	}
	if (dir)
		closedir(dir);
}

static void sum_filters(struct walk *w)
{
	for (unsigned i = 0; i < w->nprocs; i++) {
		unsigned had = 3, n = w->proc[i].filters; /* ours, and what an exec can have beside it */

		for (unsigned k = 0; k < w->nprocs; k++)
			if (w->proc[k].pid == w->proc[i].parent)
				had = w->proc[k].filters > had ? w->proc[k].filters : had;
		n = n > had ? n - had : 0;
		w->sum_filters += (n < FILTERS_MOST ? n : FILTERS_MOST) * FILTER_BYTES;
	}
}

static void walk_process(struct walk *w, const char *pid)
{
	char path[40];
	AUTO_CLOSE int info = -1;
	struct dirent *d;
	DIR *dir;

	w->ndescriptors = 0;
	walk_filters(w, pid);
	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	dir = opendir(path);
	if (!dir)
		return;
	snprintf(path, sizeof(path), "/proc/%s/fdinfo", pid);
	info = openat(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	/* Too many are too many: how many does not matter, but how soon does. */
	while (w->sum_locks <= KERNEL_LOCKS_MOST && (d = readdir(dir)))
		if (isdigit((unsigned char)d->d_name[0]))
			walk_descriptor(w, dirfd(dir), info, d->d_name);
	closedir(dir);
}

/* All processes in a group's folder and, on version 2, in those below it. */
static void walk_group(struct walk *w, int base, const char *name, unsigned depth)
{
	AUTO_CLOSE int fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_FREE char *pids = malloc(TEXT);
	char *save = NULL;
	struct dirent *d;
	DIR *dir;

	if (fd < 0 || !pids)
		return;
	if (text_of(fd, "cgroup.procs", pids, TEXT) > 0)
		for (char *p = strtok_r(pids, "\n", &save); p && w->sum_locks <= KERNEL_LOCKS_MOST; p = strtok_r(NULL, "\n", &save))
			walk_process(w, p);
	dir = depth ? fdopendir(fd) : NULL;
	if (!dir)
		return;
	fd = -1;
	while ((d = readdir(dir)))
		if (d->d_type == DT_DIR && d->d_name[0] != '.')
			walk_group(w, dirfd(dir), d->d_name, depth - 1);
	closedir(dir);
}

static uint64_t at_most(uint64_t bytes, int64_t lost)
{
	return lost <= 0 ? 0 : bytes < (uint64_t)lost ? bytes : (uint64_t)lost;
}

/* Worth to be looked at again soon, whatever others have given back meanwhile. */
static bool has_much(const struct kernel_files *f)
{
	return f->locks + f->listed + f->descriptors > GROWN;
}

void kernel_files_look(struct kernel_files_host *h, const char *name, struct kernel_files *f)
{
	const bool v2 = h->cgroups->version == 2;
	const int base = h->cgroups->base[v2 ? 0 : CGROUP_MEMORY];
	uint64_t now = clock_mono_ns(), cost;
	int64_t have, grown;
	struct walk w = { .h = h, .f = f, .random = now };

	if (base < 0)
		return;
	if (f->looked_ns && now < h->free_ns) {
		h->oldest = f->looked_ns < h->oldest ? f->looked_ns : h->oldest;
		return;
	}
	have = uncounted(h);
	if (!f->looked_ns) {
		f->least = have;
		f->looked_ns = now;
	}
	f->least = have < f->least ? have : f->least;
	grown = growth(h, have, now);
	if (grown < (int64_t)GROWN && !has_much(f) && now - f->looked_ns < SLOW_NS)
		return;
	/* One after the other, if they are many: the one that waits longest is next. */
	if (h->oldest != UINT64_MAX && f->looked_ns > h->oldest && now - h->walked_ns < STARVED_NS)
		return;
	h->oldest = UINT64_MAX;
	walk_group(&w, base, name, v2 ? 2 : 0);
	sum_filters(&w);
	f->locks = w.sum_locks;
	/* Opens that saw the same names share a list. Those of programs that read and close are gone at the next look. */
	f->listings = w.sum_listings < f->listed ? w.sum_listings : f->listed;
	f->listed = w.sum_listings;
	f->descriptors = w.sum_objects;
	/* How long a filter is cannot be seen. */
	f->filters = at_most(w.sum_filters, have - f->least);
	f->looked_ns = h->walked_ns = clock_mono_ns();
	cost = f->looked_ns - now;
	h->free_ns = f->looked_ns + cost * (grown >= (int64_t)GROWN_FAST || has_much(f) ? 3 : 19);
}

int kernel_locks_bytes(const struct kernel_look *l, uint64_t *ret)
{
	kernel_files_look(l->files_host, l->cgroup->name, l->files);
	*ret = l->files->locks;
	return 0;
}

int kernel_listings_bytes(const struct kernel_look *l, uint64_t *ret)
{
	*ret = l->files->listings;
	return 0;
}

int kernel_descriptors_bytes(const struct kernel_look *l, uint64_t *ret)
{
	*ret = l->files->descriptors;
	return 0;
}

int kernel_filters_bytes(const struct kernel_look *l, uint64_t *ret)
{
	*ret = l->files->filters;
	return 0;
}
