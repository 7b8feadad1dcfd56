#include "engine/kernel_memory/files.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/fd.h"
#include "engine/kernel_memory/ids.h"
#include "engine/kernel_memory/machine.h"
#include "engine/kernel_memory/mounts.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define GROWN (6U << 20) /* bytes: worth a look */
#define GROWN_FAST (12U << 20)
#define SLOW_NS 250000000ULL /* however little the machine lost */
#define STARVED_NS 100000000ULL /* nobody came to take its turn */
#define BUDGET_NS 20000000ULL /* of one walk: the watch looks at no other sandbox meanwhile */
#define SHORT_NS 2000000ULL /* a walk that delays nobody */
#define WHOLE_NS 2000000000ULL /* a walk that came to its end is of late */
#define ALL_DESCRIPTORS 32
#define SOME_DESCRIPTORS 8
#define FILTER_BYTES (128U << 10) /* one of 4,096 instructions; a task has 32,768 at most */
#define FILTERS_MOST 8U /* of them a task */
#define FILTERS_OURS 3U /* the warden's, the sandbox's, and one that an exec can have beside them */
#define NAME_BYTES 88U /* of an entry of a listing, beside the name */
#define NAME_USUAL 160U /* with it, and what the kernel rounds up */
#define NAME_MOST 512U
#define NAME_SIZE 20U /* by which a name makes a folder of tmpfs larger */
#define NAMES_LEAST 1024U /* of a folder that is not measured yet */
#define POS_MOST (1U << 24) /* beyond that it is no number of names */
#define MEASURED 8 /* folders at a time, one of a sandbox */
#define LONG_READ_NS 50000ULL /* of fdinfo: the inode has many locks */
#define LONG_READS 32
#define OBJECT_MOST 288U /* of a descriptor that a walk has not come to */
#define TEXT KERNEL_TEXT

/* A folder that is measured, by a thread of its own. The host and the thread share it. */
struct measured {
	unsigned refs; /* __atomic, as the next two */
	bool done, stop;
	int fd;
	uint64_t owner; /* kernel_files.id */
	struct kernel_files_folder folder;
};

struct kernel_files_host {
	const struct cgroup_host *cgroups;
	struct measured *measured[MEASURED];
	uint64_t ids;
	struct kernel_machine machine;
	uint64_t oldest; /* when the one was looked at that waits longest; UINT64_MAX: nobody does */
	uint64_t walked_ns, cost_ns; /* the last walk that was long, or that nothing urged */
	struct kernel_mounts mounts; /* of the sandbox that is walked */
	struct kernel_locks *locks; /* those that no descriptor shows */
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

	if (!h || !(h->locks = kernel_locks_new())) {
		free(h);
		return NULL;
	}
	h->cgroups = c;
	kernel_machine_init(&h->machine, c);
	h->oldest = UINT64_MAX;
	return h;
}

void kernel_files_done(struct kernel_files *f)
{
	kernel_pipes_done(&f->pipes);
}

void kernel_files_stop(struct kernel_files *f)
{
	__atomic_store_n(&f->stop, true, __ATOMIC_SEQ_CST);
}

static bool stopped(const struct kernel_files *f)
{
	return __atomic_load_n(&f->stop, __ATOMIC_SEQ_CST);
}

static void measured_unref(struct measured *m)
{
	if (__atomic_sub_fetch(&m->refs, 1, __ATOMIC_SEQ_CST))
		return;
	fd_close(m->fd);
	free(m);
}

/* Does not wait for threads that measure. */
void kernel_files_host_free(struct kernel_files_host *h)
{
	if (!h)
		return;
	for (unsigned i = 0; i < MEASURED; i++)
		if (h->measured[i]) {
			__atomic_store_n(&h->measured[i]->stop, true, __ATOMIC_SEQ_CST);
			measured_unref(h->measured[i]);
		}
	kernel_locks_free(h->locks);
	kernel_machine_done(&h->machine);
	free(h);
}

uint64_t kernel_files_code(struct kernel_files_host *h)
{
	const int64_t now = kernel_machine_code(&h->machine);

	return now > h->machine.least_code ? (uint64_t)(now - h->machine.least_code) : 0;
}

bool kernel_files_grown(struct kernel_files_host *h)
{
	return kernel_machine_grown(&h->machine, KERNEL_FILES_GROWN);
}

void kernel_files_mark(struct kernel_files_host *h)
{
	kernel_machine_mark(&h->machine);
}

/* ---- one sandbox ------------------------------------------------------------------------------------------------ */

struct walk {
	struct kernel_files_host *h;
	struct kernel_files *f;
	int pid; /* the sandbox's first process */
	uint64_t until_ns;
	bool mounts; /* are read */
	uint64_t random;
	struct {
		uint64_t link; /* its hash */
		unsigned shift; /* of so many descriptors, as a power of 2, one is read */
	} longs[LONG_READS];
};

static bool walk_over(const struct walk *w)
{
	return stopped(w->f) || clock_mono_ns() > w->until_ns;
}

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

	while (!__atomic_load_n(&m->stop, __ATOMIC_SEQ_CST) && (n = syscall(SYS_getdents64, m->fd, text, sizeof(text))) > 0)
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *d = (const struct dirent64 *)(const void *)(text + at);

			bytes += rounded(NAME_BYTES + strlen(d->d_name) + 1);
			at += d->d_reclen;
		}
	close(m->fd);
	m->fd = -1;
	m->folder.bytes = bytes;
	__atomic_store_n(&m->done, true, __ATOMIC_SEQ_CST);
	measured_unref(m);
	return NULL;
}

static struct kernel_files_folder *folder_find(struct kernel_files *f, uint64_t dev, uint64_t ino)
{
	for (unsigned i = 0; i < KERNEL_FILES_FOLDERS && i < f->nfolders; i++)
		if (f->folder[i].dev == dev && f->folder[i].ino == ino)
			return &f->folder[i];
	return NULL;
}

/* Takes what was measured for @f into its table. */
static void measured_take(struct kernel_files_host *h, struct kernel_files *f)
{
	for (unsigned i = 0; i < MEASURED; i++) {
		struct measured *m = h->measured[i];
		struct kernel_files_folder *x;

		if (!m || m->owner != f->id || !__atomic_load_n(&m->done, __ATOMIC_SEQ_CST))
			continue;
		x = folder_find(f, m->folder.dev, m->folder.ino);
		if (!x)
			x = &f->folder[f->nfolders++ % KERNEL_FILES_FOLDERS];
		*x = m->folder;
		measured_unref(m);
		h->measured[i] = NULL;
	}
}

/* A place for one more folder of the sandbox @owner. One that is done and was not taken belongs to a sandbox that has ended. NULL: none. */
static struct measured **measured_place(struct kernel_files_host *h, uint64_t owner)
{
	struct measured **at = NULL;

	for (unsigned i = 0; i < MEASURED; i++) {
		if (h->measured[i] && h->measured[i]->owner == owner)
			return NULL;
		if (!h->measured[i] || (!at && __atomic_load_n(&h->measured[i]->done, __ATOMIC_SEQ_CST)))
			at = &h->measured[i];
	}
	if (at && *at) {
		measured_unref(*at);
		*at = NULL;
	}
	return at;
}

static void measured_start(struct walk *w, int dir, const char *number, const struct kernel_files_folder *folder)
{
	struct measured **at = measured_place(w->h, w->f->id), *m;
	pthread_attr_t a;
	pthread_t t;

	m = at ? calloc(1, sizeof(*m)) : NULL;
	if (!m)
		return;
	m->refs = 2;
	m->owner = w->f->id;
	m->folder = *folder;
	m->fd = openat(dir, number, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	pthread_attr_init(&a);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	if (m->fd < 0 || pthread_create(&t, &a, measure_folder, m) != 0) {
		m->refs = 1;
		measured_unref(m);
	} else {
		*at = m;
	}
	pthread_attr_destroy(&a);
}

/* @pos: how many names were read. Measured again when the folder is larger by a quarter; until then its new names are long ones. */
static uint64_t listing_of(struct walk *w, int dir, const char *number, const struct kernel_files_folder *now, uint64_t pos)
{
	const struct kernel_files_folder *x = folder_find(w->f, now->dev, now->ino);
	uint64_t names = now->size / NAME_SIZE;

	if (!x || now->size > x->size + x->size / 4)
		measured_start(w, dir, number, now);
	if (x)
		return x->bytes + (now->size > x->size ? (now->size - x->size) / NAME_SIZE * NAME_MOST : 0);
	names = names > pos || pos > POS_MOST ? names : pos;
	return (uint64_t)NAMES_LEAST * NAME_USUAL + (names > NAMES_LEAST ? (names - NAMES_LEAST) * NAME_MOST : 0);
}

/* Whether the descriptor is a folder of an overlay that keeps its listing. Overlay does not count the links of a merged folder. */
static bool is_merged(struct walk *w, int fds, const char *number, const char *link, struct kernel_files_folder *ret)
{
	struct stat st;
	uint64_t dev;

	if (!w->mounts)
		kernel_mounts_read(&w->h->mounts, w->pid);
	w->mounts = true;
	dev = kernel_mounts_overlay(&w->h->mounts, link);
	if (!dev || fstatat(fds, number, &st, AT_STATX_DONT_SYNC) < 0 || !S_ISDIR(st.st_mode) || st.st_nlink != 1 || st.st_dev != dev)
		return false;
	*ret = (struct kernel_files_folder){ .dev = dev, .ino = st.st_ino, .size = (uint64_t)st.st_size + 1 };
	return true;
}

/* ---- descriptors ------------------------------------------------------------------------------------------------ */

/* Reads @number of the folder fdinfo: how far it has been read, its locks, and what waits in its queue, each of which counts @times. */
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
		if (first)
			w->f->sum.sent += (uint64_t)kernel_text_field(w->h->text, "scm_fds:") * times;
		for (const char *p = w->h->text; (p = strstr(p, "lock:\t")); p++)
			w->f->sum.locks += (uint64_t)KERNEL_LOCK_BYTES * times;
		first = false;
	}
	return pos;
}

/*
 * The locks of a descriptor. /proc/locks would wait for all that lock. Of a table with many descriptors: some, which the program
 * cannot foresee. The kernel goes through all locks of the file, whoever holds them. So of a file where that took long and found
 * nothing, fewer and fewer descriptors are read, and each counts for more.
 */
static void walk_locks(struct walk *w, int info, const char *number, const char *link)
{
	unsigned times = w->f->ndescriptors++ < ALL_DESCRIPTORS ? 1 : SOME_DESCRIPTORS;
	const uint64_t before = w->f->sum.locks;
	uint64_t hash = 14695981039346656037ULL, began;
	size_t at;

	for (const char *p = link; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 1099511628211ULL;
	at = hash % LONG_READS;
	if (w->longs[at].link == hash)
		times <<= w->longs[at].shift;
	w->random = w->random * 6364136223846793005ULL + 1442695040888963407ULL;
	if (times > 1 && (w->random >> 33) % times)
		return;
	began = clock_mono_ns();
	read_info(w, info, number, times);
	if (link[0] != '/' || !strncmp(link, "/memfd:", 7))
		w->f->sum.shared += w->f->sum.locks - before;
	if (w->f->sum.locks != before || clock_mono_ns() - began < LONG_READ_NS)
		return;
	w->longs[at].shift = w->longs[at].link == hash ? w->longs[at].shift + (w->longs[at].shift < 6) : 1;
	w->longs[at].link = hash;
}

static void walk_descriptor(struct walk *w, int fds, int info, const char *number)
{
	struct kernel_files_folder folder;
	char link[512];
	const ssize_t n = readlinkat(fds, number, link, sizeof(link) - 1);

	w->f->sum.seen++;
	if (n <= 0)
		return;
	link[n] = 0;
	if (!strncmp(link, "anon_inode:", 11)) {
		for (size_t i = 0; i < ARRAY_LEN(objects); i++)
			if (!strcmp(link + 11, objects[i].name))
				w->f->sum.objects += objects[i].bytes;
	} else if (link[0] == '/' && is_merged(w, fds, number, link, &folder)) {
		const uint64_t pos = read_info(w, info, number, 1);

		w->f->sum.listings += pos ? listing_of(w, fds, number, &folder, pos) : 0;
	} else {
		kernel_pipes_add(&w->f->pipes, fds, w->f->pid, w->f->tid, number, link);
		walk_locks(w, info, number, link);
	}
}

/* "@key:\t<number>" of a file like /proc/PID/status; 0 when there is none. */
static unsigned status_field(const char *text, const char *key)
{
	const char *p = strstr(text, key);

	return p ? (unsigned)strtoul(p + strlen(key), NULL, 10) : 0;
}

/*
 * True once for each table of descriptors: threads, and processes by CLONE_FILES, share one. Where the kernel has no kcmp, a
 * thread has that of its process.
 */
static bool table_is_new(struct kernel_files *f, int pid, int tid)
{
	unsigned low = 0, high = f->ntables;

	if (tid != pid && syscall(SYS_kcmp, pid, tid, KCMP_FILES, 0, 0) == 0)
		return false;
	while (low < high) {
		const unsigned mid = (low + high) / 2;
		const long r = syscall(SYS_kcmp, f->table[mid], tid, KCMP_FILES, 0, 0);

		if (r == 0)
			return false;
		if (r < 0 && errno != ESRCH)
			return tid == pid;
		if (r < 0) { /* that one has ended, or this one, which has no descriptors then */
			memmove(&f->table[mid], &f->table[mid + 1], (--f->ntables - mid) * sizeof(f->table[0]));
			high--;
		} else if (r == 1) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	if (f->ntables < KERNEL_FILES_TABLES) {
		memmove(&f->table[low + 1], &f->table[low], (f->ntables++ - low) * sizeof(f->table[0]));
		f->table[low] = tid;
	}
	return true;
}

/* From ->at on. False: the walk is over before the end. */
static bool walk_descriptors(struct walk *w, int pid, int tid)
{
	struct kernel_files *f = w->f;
	char path[64];
	AUTO_CLOSE int info = -1;
	struct dirent *d;
	bool over = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/fd", pid, tid);
	dir = opendir(path);
	if (!dir)
		return true;
	if (f->at)
		seekdir(dir, f->at);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/fdinfo", pid, tid);
	info = openat(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	/* Too many are too many: how many does not matter, but how soon does. */
	while (!over && f->sum.locks <= KERNEL_LOCKS_MOST && (d = readdir(dir))) {
		if (isdigit((unsigned char)d->d_name[0]))
			walk_descriptor(w, dirfd(dir), info, d->d_name);
		f->at = telldir(dir);
		over = walk_over(w);
	}
	closedir(dir);
	return !over;
}

/* Filters of others that this task has got by fork count again: nothing tells them from its own. */
static bool walk_task(struct walk *w, int pid, int tid)
{
	struct kernel_files *f = w->f;
	char path[64];

	if (!f->begun) {
		unsigned n = 0;

		f->begun = true;
		f->at = 0;
		f->ndescriptors = 0;
		snprintf(path, sizeof(path), "/proc/%d/task/%d/status", pid, tid);
		if (kernel_text_of(AT_FDCWD, path, w->h->text, sizeof(w->h->text)) > 0)
			n = status_field(w->h->text, "\nSeccomp_filters:\t");
		n = n > FILTERS_OURS ? n - FILTERS_OURS : 0;
		f->sum.filters += (uint64_t)(n < FILTERS_MOST ? n : FILTERS_MOST) * FILTER_BYTES;
		if (!table_is_new(f, pid, tid))
			return !walk_over(w);
	}
	return walk_descriptors(w, pid, tid);
}

/* From where the last walk was cut. False: it is cut again. */
static bool walk_process(struct walk *w, int pid)
{
	__attribute__((cleanup(kernel_ids_done))) struct kernel_ids tasks = { 0 };
	struct kernel_files *f = w->f;
	const uint64_t began = clock_mono_ns();

	kernel_tasks_of(pid, &tasks);
	w->until_ns += clock_mono_ns() - began; /* else one with very many threads would never get further */
	for (size_t i = 0; i < tasks.n; i++) {
		if (f->pid == pid && tasks.id[i] < f->tid)
			continue;
		if (f->pid != pid || tasks.id[i] != f->tid)
			f->begun = false;
		f->pid = pid;
		f->tid = tasks.id[i];
		if (!walk_task(w, pid, tasks.id[i]))
			return false;
		if (f->sum.locks > KERNEL_LOCKS_MOST)
			return true;
	}
	return true;
}

static bool walk_sandbox(struct walk *w, int base, const char *name, unsigned depth)
{
	__attribute__((cleanup(kernel_ids_done))) struct kernel_ids pids = { 0 };
	struct kernel_files *f = w->f;

	kernel_processes_of(base, name, depth, w->h->text, sizeof(w->h->text), &pids);
	kernel_ids_sort(&pids);
	measured_take(w->h, f);
	if (!f->cut) {
		f->sum = (struct kernel_files_sum){ 0 };
		f->pid = f->tid = 0;
		f->begun = false;
		f->ntables = 0;
		kernel_pipes_begin(&f->pipes, w->h->machine.have);
	}
	w->until_ns = clock_mono_ns() + BUDGET_NS;
	for (size_t i = 0; i < pids.n && f->sum.locks <= KERNEL_LOCKS_MOST; i++)
		if (pids.id[i] >= f->pid && !walk_process(w, pids.id[i]))
			return false;
	return true;
}

/* Descriptors in a task's table. Before Linux 6.2 the folder has no size: then as many as the table has room for. */
static uint64_t descriptors_of(struct kernel_files_host *h, int pid, int tid)
{
	struct stat st;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/fd", pid, tid);
	if (stat(path, &st) < 0)
		return 0;
	if (st.st_size)
		return (uint64_t)st.st_size;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", pid, tid);
	return kernel_text_of(AT_FDCWD, path, h->text, sizeof(h->text)) > 0 ? status_field(h->text, "\nFDSize:\t") : 0;
}

uint64_t kernel_files_open(const struct kernel_look *l)
{
	__attribute__((cleanup(kernel_ids_done))) struct kernel_ids pids = { 0 };
	struct kernel_files_host *h = l->files_host;
	const bool v2 = h->cgroups->version == 2;
	struct kernel_files seen = { 0 };
	uint64_t n = 0;

	if (h->cgroups->base[v2 ? 0 : CGROUP_MEMORY] < 0)
		return 0;
	kernel_processes_of(h->cgroups->base[v2 ? 0 : CGROUP_MEMORY], l->cgroup->name, v2 ? 2 : 0, h->text, sizeof(h->text), &pids);
	for (size_t i = 0; i < pids.n; i++) {
		__attribute__((cleanup(kernel_ids_done))) struct kernel_ids tasks = { 0 };

		kernel_tasks_of(pids.id[i], &tasks);
		for (size_t k = 0; k < tasks.n; k++)
			n += table_is_new(&seen, pids.id[i], tasks.id[k]) ? descriptors_of(h, pids.id[i], tasks.id[k]) : 0;
	}
	return n;
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

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/*
 * What pipes keep beside what is counted: not more than they have buffers for, and not more than the machine has lost since they
 * held little. Descriptors that were sent and not received cannot be seen: each may be a pipe. Where a walk was cut, what it has
 * not come to holds as much as what it has seen, and an eighth may have come since.
 */
static void add_pipes(struct kernel_files *f, int64_t have)
{
	const bool whole = kernel_pipes_take(&f->pipes);
	uint64_t most = f->pipes.bytes;

	if (have - f->least_pipes >= (int64_t)KERNEL_PIPES_FEW)
		kernel_pipes_ask(&f->pipes);
	if (f->cut && f->sum.seen && f->open > f->sum.seen)
		most = larger(most, f->pipes.found * f->open / f->sum.seen);
	most += f->sent * KERNEL_PIPES_FULL;
	if (!whole)
		most += most / 8;

	if (whole && most < KERNEL_PIPES_FEW)
		f->least_pipes = f->pipes.have;
	f->least_pipes = have < f->least_pipes ? have : f->least_pipes;
	f->descriptors = f->objects + at_most(most, have - f->least_pipes);
}

/*
 * What descriptors may hold that a walk has not come to, of @open in all: a program with millions of them must not outrun it. Not
 * more than the machine has lost.
 */
static uint64_t not_walked(const struct kernel_files *f, uint64_t open, int64_t have)
{
	return open > f->sum.seen ? at_most((open - f->sum.seen) * OBJECT_MOST, have - f->least) : 0;
}

/* The figures after a walk; after a cut one, of a sandbox with @open descriptors, none is less than before. */
static void figures(struct kernel_files_host *h, struct kernel_files *f, uint64_t open, int64_t have)
{
	const uint64_t both = f->sum.listings < f->listed ? f->sum.listings : f->listed;
	const int64_t code = kernel_machine_code(&h->machine);
	uint64_t filters;

	f->least_code = code < f->least_code ? code : f->least_code;
	/* How long a filter is cannot be seen, nor how many tasks share it. */
	filters = at_most(at_most(f->sum.filters, have - f->least), code - f->least_code);
	f->shown = f->cut ? larger(f->shown, f->sum.locks) : f->sum.locks;
	f->shared = f->cut ? larger(f->shared, f->sum.shared) : f->sum.shared;
	/* Opens that saw the same names share a list. Those of programs that read and close are gone at the next look. */
	f->listings = f->cut ? larger(f->listings, both) : both;
	f->listed = f->cut ? larger(f->listed, f->sum.listings) : f->sum.listings;
	f->objects = f->cut ? larger(f->objects, f->sum.objects + not_walked(f, open, have)) : f->sum.objects;
	f->sent = f->cut ? larger(f->sent, f->sum.sent) : f->sum.sent;
	f->open = open;
	kernel_pipes_end(&f->pipes, f->cut);
	add_pipes(f, have);
	f->filters = f->cut ? larger(f->filters, filters) : filters;
}

/*
 * A look into /proc/locks delays all that lock. So descriptors first, and only what they do not explain is looked for there at once.
 * What others give back may hide that a sandbox takes more: so now and then in any case.
 */
static enum kernel_locks_when when_to_look(struct kernel_files *f, uint64_t now, int64_t lost, int64_t grown)
{
	if (lost - (int64_t)(f->shown + f->listings + f->descriptors + f->filters) < (int64_t)GROWN) {
		f->unexplained_ns = 0;
		return KERNEL_LOCKS_SLOWLY;
	}
	f->unexplained_ns = f->unexplained_ns ? f->unexplained_ns : now;
	if (grown < (int64_t)GROWN || f->whole_ns <= f->unexplained_ns)
		return KERNEL_LOCKS_SLOWLY;
	return f->hid_ns && now - f->hid_ns < WHOLE_NS ? KERNEL_LOCKS_NOW : KERNEL_LOCKS_SOON;
}

/* Locks that no descriptor shows. @grown: what the machine has lost of late. */
static void look_for_hidden(const struct kernel_look *l, int base, uint64_t now, int64_t grown)
{
	struct kernel_files_host *h = l->files_host;
	struct kernel_files *f = l->files;
	const int64_t lost = h->machine.have - f->least;
	uint64_t dev[KERNEL_LOCKS_DEVICES];
	struct kernel_locks_owner o = { .id = f->id, .device = dev };
	struct kernel_locks_shown shown;
	__attribute__((cleanup(kernel_ids_done))) struct kernel_ids pids = { 0 };

	kernel_locks_start(h->locks, when_to_look(f, now, lost, grown));
	if (kernel_locks_news(h->locks, &f->hidden)) {
		kernel_mounts_read(&h->mounts, l->pid);
		o.ndevices = kernel_mounts_own(&h->mounts, dev, ARRAY_LEN(dev));
		kernel_processes_of(base, l->cgroup->name, h->cgroups->version == 2 ? 2 : 0, h->text, sizeof(h->text), &pids);
		o.pid = pids.id;
		o.npids = pids.n;
		kernel_locks_assign(h->locks, &o, &f->hidden);
	}
	shown = (struct kernel_locks_shown){ .all = f->shown, .shared = f->shared < f->shown ? f->shared : f->shown,
					     .whole = f->whole_ns && f->whole_ns + WHOLE_NS > clock_mono_ns() };
	f->locks = kernel_locks_bytes_of(&f->hidden, &shown);
	f->hid_ns = f->locks > f->shown ? now : f->hid_ns;
}

static void walk_if_due(const struct kernel_look *l, int base, uint64_t now, int64_t grown)
{
	struct kernel_files_host *h = l->files_host;
	struct kernel_files *f = l->files;
	struct walk w = { .h = h, .f = f, .pid = l->pid, .random = now };
	bool urgent, shared;
	unsigned rest;

	urgent = grown >= (int64_t)GROWN || has_much(f);
	rest = grown >= (int64_t)GROWN_FAST || has_much(f) || (f->cut && h->machine.have - f->least_pipes >= (int64_t)GROWN_FAST) ? 3 : 19;
	if (f->cut && grown >= (int64_t)GROWN_FAST)
		rest = 1; /* what it takes may be in the part that the walk has not come to */
	f->due_ns = urgent || f->cut ? now + 1 : 0;
	if (now < f->looked_ns + f->cost_ns * rest || (!urgent && !f->cut && now - f->looked_ns < SLOW_NS)) {
		f->due_ns = f->due_ns ? f->looked_ns + f->cost_ns * rest : 0;
		return;
	}
	/* One after the other, if they are many: the one that waits longest is next. */
	shared = !urgent || f->cost_ns > SHORT_NS;
	if (shared && (now < h->walked_ns + h->cost_ns * rest || (f->looked_ns > h->oldest && now - h->walked_ns < STARVED_NS))) {
		h->oldest = f->looked_ns < h->oldest ? f->looked_ns : h->oldest;
		return;
	}
	f->cut = !walk_sandbox(&w, base, l->cgroup->name, h->cgroups->version == 2 ? 2 : 0);
	figures(h, f, f->cut && !stopped(f) ? kernel_files_open(l) : 0, h->machine.have);
	f->looked_ns = clock_mono_ns();
	f->cost_ns = f->looked_ns - now;
	f->whole_ns = f->cut ? f->whole_ns : f->looked_ns;
	f->due_ns = f->cut ? f->looked_ns + f->cost_ns * rest : 0;
	if (shared) {
		h->oldest = UINT64_MAX;
		h->walked_ns = f->looked_ns;
		h->cost_ns = f->cost_ns;
	}
}

void kernel_files_look(const struct kernel_look *l)
{
	struct kernel_files_host *h = l->files_host;
	struct kernel_files *f = l->files;
	const int base = h->cgroups->base[h->cgroups->version == 2 ? 0 : CGROUP_MEMORY];
	const uint64_t now = clock_mono_ns();
	int64_t grown;

	if (base < 0 || stopped(f))
		return;
	kernel_machine_read(&h->machine, now);
	if (!f->looked_ns) {
		f->id = ++h->ids;
		f->least = f->least_pipes = h->machine.have;
		f->least_code = kernel_machine_code(&h->machine);
		f->hidden.since_ns = f->looked_ns = now;
	}
	f->least = h->machine.have < f->least ? h->machine.have : f->least;
	add_pipes(f, h->machine.have);
	grown = kernel_machine_growth(&h->machine, now);
	walk_if_due(l, base, now, grown);
	look_for_hidden(l, base, now, grown);
}

int kernel_locks_bytes(const struct kernel_look *l, uint64_t *ret)
{
	kernel_files_look(l);
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
