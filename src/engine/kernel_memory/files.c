/* Walks through the processes and descriptors of a sandbox, and measures what open files hold. */
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

#define GROWN (6U << 20) /* growth in bytes that causes a look */
#define GROWN_FAST (12U << 20)
#define SLOW_NS 250000000ULL /* a look this often in any case */
#define STARVED_NS 100000000ULL /* a sandbox has waited this long for its turn */
#define BUDGET_NS 20000000ULL /* time for one walk: no other sandbox is looked at meanwhile */
#define SHORT_NS 2000000ULL /* a walk up to this long delays nothing else */
#define WHOLE_NS 2000000000ULL /* age up to which a complete walk counts as recent */
#define ALL_DESCRIPTORS 32
#define SOME_DESCRIPTORS 8
#define FILTER_BYTES (128U << 10) /* a filter of 4,096 instructions; a task has 32,768 instructions at most */
#define FILTERS_MOST 8U /* filters of that size per task */
#define FILTERS_OURS 3U /* the warden's, the sandbox's, and one that an exec can add */
#define NAME_BYTES 88U /* bytes of an entry in a listing, without the name */
#define NAME_USUAL 160U /* bytes with the name, and what the kernel rounds up */
#define NAME_MOST 512U
#define NAME_SIZE 20U /* bytes by which a name makes a folder of tmpfs larger */
#define NAMES_LEAST 1024U /* assumed for a folder that is not measured yet */
#define POS_MOST (1U << 24) /* a larger position is not a number of names */
#define MEASURED 8 /* folders measured at the same time, one per sandbox */
#define LONG_READ_NS 50000ULL /* a read of fdinfo that takes longer: the inode has many locks */
#define LONG_READS 32
#define OBJECT_MOST 288U /* assumed for a descriptor that a walk has not reached */
#define TEXT KERNEL_TEXT

/* A folder that is measured by a thread of its own. The host and the thread share this. */
struct measured {
	unsigned refs; /* __atomic, as the next two members */
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
	uint64_t oldest; /* when the sandbox that has waited longest was looked at; UINT64_MAX: none waits */
	uint64_t walked_ns, cost_ns; /* the last walk that was long, or not urgent */
	struct kernel_mounts mounts; /* mounts of the sandbox that is walked */
	struct kernel_locks *locks; /* locks that no descriptor shows */
	char text[TEXT];
};

/* Bytes for an open file, by the name of its kind. Other kinds take none, or are charged. */
static const struct {
	const char *name;
	unsigned bytes;
} objects[] = {
	{ "[timerfd]", 288 }, { "[eventfd]", 96 },	     { "[signalfd]", 40 },  { "[eventpoll]", 288 },
	{ "inotify", 288 },   { "[landlock-ruleset]", 288 }, { "[fanotify]", 288 },
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

/* Does not wait for threads that still measure. */
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
	bool mounts; /* ->mounts were read */
	uint64_t random;
	struct {
		uint64_t link; /* hash of the link's text */
		unsigned shift; /* one of 2^shift descriptors is read */
	} longs[LONG_READS];
};

static bool walk_over(const struct walk *w)
{
	return stopped(w->f) || clock_mono_ns() > w->until_ns;
}

/* The size that the kernel allocates for an object of @n bytes. */
static uint64_t rounded(uint64_t n)
{
	uint64_t size = 8;

	while (size < n)
		size *= 2;
	return n <= size * 3 / 4 && size > 64 && size <= 256 ? size * 3 / 4 : size;
}

/*
 * Measures the memory that one listing of the folder takes. It may wait long for processes that change the folder, so
 * it has its own thread.
 */
static void *measure_folder(void *arg)
{
	struct measured *m = arg;
	char text[8 * KIB];
	uint64_t bytes = 0;
	ssize_t n;

	while (!__atomic_load_n(&m->stop, __ATOMIC_SEQ_CST) &&
	       (n = syscall(SYS_getdents64, m->fd, text, sizeof(text))) > 0)
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

/* Takes a finished measurement of @f into its table. */
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

/*
 * Finds a place for one more folder of the sandbox @owner. A finished measurement that was never taken belongs to a
 * sandbox that has ended. NULL: no place.
 */
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

/*
 * @pos: how many names were read. The folder is measured again when it has grown by a quarter; until then new names
 * count as long ones.
 */
static uint64_t listing_of(struct walk *w, int dir, const char *number, const struct kernel_files_folder *now,
			   uint64_t pos)
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
	if (!dev || fstatat(fds, number, &st, AT_STATX_DONT_SYNC) < 0 || !S_ISDIR(st.st_mode) || st.st_nlink != 1 ||
	    st.st_dev != dev)
		return false;
	*ret = (struct kernel_files_folder){ .dev = dev, .ino = st.st_ino, .size = (uint64_t)st.st_size + 1 };
	return true;
}

/*
 * Reads @number of the folder fdinfo: how far it has been read, its locks, and the length of its queue, each of which
 * counts @times.
 */

/*
 * Reads @number of the folder fdinfo: how far it has been read, its locks, and the length of its queue, each of which
 * counts @times.
 */
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
 * Counts the locks of a descriptor. Reading /proc/locks would delay all processes that lock. Of a table with many
 * descriptors only some are read, which the program cannot foresee. The kernel goes through all locks of the file for
 * each of them. So for a file where that took long and found nothing, fewer and fewer descriptors are read, and each
 * counts for more.
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
 * True once for each table of descriptors: threads, and processes made with CLONE_FILES, share one. Where the kernel
 * has no kcmp, a thread counts as having its process's table.
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
		if (r < 0) { /* one of the two has ended; if it is this one, it has no descriptors */
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

/* Continues at ->at. False: the time was over before the end. */
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
	/* Above the limit the exact number does not matter, but a quick result does. */
	while (!over && f->sum.locks <= KERNEL_LOCKS_MOST && (d = readdir(dir))) {
		if (isdigit((unsigned char)d->d_name[0]))
			walk_descriptor(w, dirfd(dir), info, d->d_name);
		f->at = telldir(dir);
		over = walk_over(w);
	}
	closedir(dir);
	return !over;
}

/* Filters that this task has inherited by fork count again: they cannot be told from its own. */
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

/* Continues where the last walk was cut. False: it is cut again. */
static bool walk_process(struct walk *w, int pid)
{
	__attribute__((cleanup(kernel_ids_done))) struct kernel_ids tasks = { 0 };
	struct kernel_files *f = w->f;
	const uint64_t began = clock_mono_ns();

	kernel_tasks_of(pid, &tasks);
	w->until_ns += clock_mono_ns() - began; /* otherwise a process with very many threads would never get further */
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

/* The number of descriptors in a task's table. Before Linux 6.2 the folder has no size: then the table's capacity. */
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

uint64_t kernel_files_open(struct kernel_look *l)
{
	__attribute__((cleanup(kernel_ids_done))) struct kernel_ids pids = { 0 };
	struct kernel_files_host *h = l->files_host;
	const bool v2 = h->cgroups->version == 2;
	struct kernel_files seen = { 0 };
	uint64_t n = 0;

	if (h->cgroups->base[v2 ? 0 : CGROUP_MEMORY] < 0)
		return 0;
	kernel_processes_of(h->cgroups->base[v2 ? 0 : CGROUP_MEMORY], l->cgroup->name, v2 ? 2 : 0, h->text,
			    sizeof(h->text), &pids);
	for (size_t i = 0; i < pids.n; i++) {
		__attribute__((cleanup(kernel_ids_done))) struct kernel_ids tasks = { 0 };

		kernel_tasks_of(pids.id[i], &tasks);
		for (size_t k = 0; k < tasks.n; k++)
			if (table_is_new(&seen, pids.id[i], tasks.id[k]))
				n += descriptors_of(h, pids.id[i], tasks.id[k]);
	}
	return n;
}

static uint64_t at_most(uint64_t bytes, int64_t lost)
{
	return lost <= 0 ? 0 : bytes < (uint64_t)lost ? bytes : (uint64_t)lost;
}

/* Whether to look again soon, even if others have freed memory meanwhile. */
static bool has_much(const struct kernel_files *f)
{
	return f->locks + f->listed + f->descriptors > GROWN;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/*
 * Estimates what pipes hold beside what is charged: at most what their buffers allow, and at most what the machine has
 * lost since they held little. Descriptors that were sent and not received cannot be seen: each may be a pipe. Where a
 * walk was cut, the rest is assumed to hold as much as the part seen, plus an eighth for new ones.
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
 * Estimates what descriptors hold that a walk has not reached, of @open in all: a program with millions of them must
 * not escape the limit. At most what the machine has lost.
 */
static uint64_t not_walked(const struct kernel_files *f, uint64_t open, int64_t have)
{
	return open > f->sum.seen ? at_most((open - f->sum.seen) * OBJECT_MOST, have - f->least) : 0;
}

/* Updates the figures after a walk; after a cut one, of a sandbox with @open descriptors, no figure decreases. */
static void figures(struct kernel_files_host *h, struct kernel_files *f, uint64_t open, int64_t have)
{
	const uint64_t both = f->sum.listings < f->listed ? f->sum.listings : f->listed;
	const int64_t code = kernel_machine_code(&h->machine);
	uint64_t filters;

	f->least_code = code < f->least_code ? code : f->least_code;
	/* The length of a filter cannot be seen, nor how many tasks share it. */
	filters = at_most(at_most(f->sum.filters, have - f->least), code - f->least_code);
	f->shown = f->cut ? larger(f->shown, f->sum.locks) : f->sum.locks;
	f->shared = f->cut ? larger(f->shared, f->sum.shared) : f->sum.shared;
	/*
	 * Opens that saw the same names share a listing. Listings of programs that read and close are gone at the next
	 * look.
	 */
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
 * Reading /proc/locks delays all processes that lock. So descriptors come first, and only growth that they do not
 * explain causes such a read at once. Memory that others free may hide that a sandbox takes more: so it is read now and
 * then in any case.
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

/* Searches for locks that no descriptor shows. @grown: what the machine has lost recently. */
static void look_for_hidden(struct kernel_look *l, int base, uint64_t now, int64_t grown)
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
		kernel_processes_of(base, l->cgroup->name, h->cgroups->version == 2 ? 2 : 0, h->text, sizeof(h->text),
				    &pids);
		o.pid = pids.id;
		o.npids = pids.n;
		kernel_locks_assign(h->locks, &o, &f->hidden);
	}
	shown = (struct kernel_locks_shown){ .all = f->shown,
					     .shared = f->shared < f->shown ? f->shared : f->shown,
					     .whole = f->whole_ns && f->whole_ns + WHOLE_NS > clock_mono_ns() };
	f->locks = kernel_locks_bytes_of(&f->hidden, &shown);
	f->hid_ns = f->locks > f->shown ? now : f->hid_ns;
}

static void walk_if_due(struct kernel_look *l, int base, uint64_t now, int64_t grown)
{
	struct kernel_files_host *h = l->files_host;
	struct kernel_files *f = l->files;
	struct walk w = { .h = h, .f = f, .pid = l->pid, .random = now };
	bool urgent = grown >= (int64_t)GROWN || has_much(f), shared;
	unsigned rest = 19;

	if (grown >= (int64_t)GROWN_FAST || has_much(f) ||
	    (f->cut && h->machine.have - f->least_pipes >= (int64_t)GROWN_FAST))
		rest = 3;
	if (f->cut && grown >= (int64_t)GROWN_FAST)
		rest = 1; /* the growth may be in the part that the walk has not reached */
	f->due_ns = urgent || f->cut ? now + 1 : 0;
	if (now < f->looked_ns + f->cost_ns * rest || (!urgent && !f->cut && now - f->looked_ns < SLOW_NS)) {
		f->due_ns = f->due_ns ? f->looked_ns + f->cost_ns * rest : 0;
		return;
	}
	/* Urgent walks take turns if they are many: the sandbox that waits longest is next. */
	shared = !urgent || f->cost_ns > SHORT_NS;
	if (shared &&
	    (now < h->walked_ns + h->cost_ns * rest || (f->looked_ns > h->oldest && now - h->walked_ns < STARVED_NS))) {
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

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* What was taken before the first look is found by the first walk, which comes at once. */
static void files_begin(struct kernel_files_host *h, struct kernel_files *f, uint64_t now)
{
	f->id = ++h->ids;
	f->least = f->least_pipes = h->machine.have;
	f->least_code = kernel_machine_code(&h->machine);
	f->hidden.since_ns = f->looked_ns = now;
	if (!f->seen)
		return;
	f->least = smaller(f->least, f->seen->files);
	f->least_pipes = smaller(f->least_pipes, f->seen->pipes);
	f->least_code = smaller(f->least_code, f->seen->code);
	h->machine.least_code = smaller(h->machine.least_code, f->seen->machine);
	f->looked_ns = 1;
}

void kernel_files_base(struct kernel_look *l, struct kernel_base *ret)
{
	const struct kernel_files *f = l->files;

	*ret = (struct kernel_base){ f->least, f->least_pipes, f->least_code, l->files_host->machine.least_code };
}

void kernel_files_look(struct kernel_look *l)
{
	struct kernel_files_host *h = l->files_host;
	struct kernel_files *f = l->files;
	const int base = h->cgroups->base[h->cgroups->version == 2 ? 0 : CGROUP_MEMORY];
	const uint64_t now = clock_mono_ns();
	int64_t grown;

	if (base < 0 || stopped(f))
		return;
	kernel_machine_read(&h->machine, now);
	if (!f->looked_ns)
		files_begin(h, f, now);
	f->least = h->machine.have < f->least ? h->machine.have : f->least;
	add_pipes(f, h->machine.have);
	grown = kernel_machine_growth(&h->machine, now);
	walk_if_due(l, base, now, grown);
	look_for_hidden(l, base, now, grown);
}

int kernel_locks_bytes(struct kernel_look *l, uint64_t *ret)
{
	kernel_files_look(l);
	*ret = l->files->locks;
	return 0;
}

int kernel_listings_bytes(struct kernel_look *l, uint64_t *ret)
{
	*ret = l->files->listings;
	return 0;
}

int kernel_descriptors_bytes(struct kernel_look *l, uint64_t *ret)
{
	*ret = l->files->descriptors;
	return 0;
}

int kernel_filters_bytes(struct kernel_look *l, uint64_t *ret)
{
	*ret = l->files->filters;
	return 0;
}
