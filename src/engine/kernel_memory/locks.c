/* Takes samples of /proc/locks in a thread, and finds the owners of the locks in them. */
#include "engine/kernel_memory/locks.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define PAGE 4096U /* bytes that the kernel returns at a time */
#define FIRST (256U << 10) /* bytes of /proc/locks: the first position at which its end is searched for */
#define LAST (6U << 20) /* nothing is read above this position: a read there takes a tenth of a second */
#define LINE 52U /* approximate bytes of a line */
#define SOON_NS 100000000ULL
#define SLOW_NS 1000000000ULL
#define REST 4 /* after a read, the thread rests this many times its duration */
#define MAPS_NS 1000000000ULL /* time for reading the mappings of a sandbox */
#define SETTLED_NS 60000000ULL /* since then no mappings of another sandbox were read */
#define FRESH_NS 100000000ULL /* results count at the looks within this time only */
#define ENDED_NS 300000000ULL
#define UNSURE (2U << 20)
#define TIMES 4 /* as many more may come until the next look */

/* A sample of some places of /proc/locks. */
struct sample {
	uint64_t began_ns;
	uint64_t count; /* approximate number of locks on the machine */
	uint64_t memfds; /* device number of memfds */
	unsigned n;
	struct kernel_lock lock[KERNEL_LOCKS_LINES];
	bool found[KERNEL_LOCKS_LINES]; /* its owner is known */
};

/* /proc/locks, kept open: tests count descriptors. */
struct list {
	unsigned refs; /* __atomic */
	int fd;
};

/* A task of the thread, shared with struct kernel_locks. */
struct job {
	struct list *list;
	unsigned refs; /* __atomic, as the next two */
	bool done, stop;
	uint64_t began_ns, ended_ns;
	uint64_t owner; /* 0: take a sample; else: read the mappings of this sandbox */
	int *pid;
	size_t npids;
	struct sample s;
};

struct kernel_locks {
	struct list *list;
	struct job *job; /* the present task; NULL: none */
	struct sample s;
	uint64_t sample; /* number of the sample; 0: none yet */
	uint64_t memfds; /* device number of memfds; 0: unknown */
	uint64_t ended_ns, cost_ns; /* end and duration of the last sample */
	uint64_t assigned_ns; /* when an owner was last found */
	struct job *maps; /* finished mappings that were not taken yet. NULL: none */
};

/* ---- lines ------------------------------------------------------------------------------------------------------ */

bool kernel_lock_parse(const char *line, struct kernel_lock *ret)
{
	unsigned major, minor;
	unsigned long long ino;
	char kind[8], hint[12], how[8];
	long pid;

	/* "12: POSIX  ADVISORY  WRITE 4711 fe:00:123 0 EOF"; "12: -> …" is a process that waits for one. */
	if (sscanf(line, "%*d: %7[A-Z] %11s %7s %ld %x:%x:%llu ", kind, hint, how, &pid, &major, &minor, &ino) != 7)
		return false;
	*ret = (struct kernel_lock){ .dev = makedev(major, minor), .ino = ino, .ofd = !strcmp(kind, "OFDLCK") };
	return true;
}

bool kernel_lock_parse_map(const char *line, uint64_t *dev, uint64_t *ino)
{
	unsigned major, minor;
	unsigned long long n;

	if (sscanf(line, "%*x-%*x %*s %*x %x:%x %llu", &major, &minor, &n) != 3 || !n)
		return false;
	*dev = makedev(major, minor);
	*ino = n;
	return true;
}

/* ---- the thread ------------------------------------------------------------------------------------------------- */

static void list_unref(struct list *l)
{
	if (!l || __atomic_sub_fetch(&l->refs, 1, __ATOMIC_SEQ_CST))
		return;
	fd_close(l->fd);
	free(l);
}

static void job_unref(struct job *j)
{
	if (!j || __atomic_sub_fetch(&j->refs, 1, __ATOMIC_SEQ_CST))
		return;
	list_unref(j->list);
	free(j->pid);
	free(j);
}

/* Adds the complete lines of a place; @cut: the first may be incomplete. Returns the bytes of these lines. */
static size_t sample_add(struct sample *s, char *text, bool cut)
{
	char *p = cut ? strchr(text, '\n') : text, *end;
	size_t bytes = 0;

	p = p && cut ? p + 1 : p;
	for (; p && (end = strchr(p, '\n')) && s->n < KERNEL_LOCKS_LINES; p = end + 1) {
		*end = 0;
		bytes += (size_t)(end + 1 - p);
		if (kernel_lock_parse(p, &s->lock[s->n]))
			s->n++;
	}
	return bytes;
}

static ssize_t place(int fd, char *text, uint64_t at)
{
	const ssize_t n = pread(fd, text, PAGE, (off_t)at);

	text[n > 0 ? n : 0] = 0;
	return n;
}

/* The number of locks according to the allocator; 0: unknown. */
static uint64_t allocated(void)
{
	FILE *f = fopen("/proc/slabinfo", "re");
	unsigned long long n = 0;
	char line[512];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "file_lock_cache %llu ", &n) == 1)
			break;
	if (f)
		fclose(f);
	return n;
}

/* A position near the end of the file, not before it, or LAST. */
static uint64_t end_of(const struct job *j, int fd, char *text)
{
	const uint64_t n = allocated();
	uint64_t at = n * LINE;

	if (!n) {
		for (at = FIRST; at < LAST && !__atomic_load_n(&j->stop, __ATOMIC_SEQ_CST) && place(fd, text, at) > 0;)
			at *= 2;
		if (at > FIRST && at < LAST && place(fd, text, at / 4 * 3) <= 0)
			at = at / 4 * 3;
	}
	return at < FIRST ? FIRST : at < LAST ? at : LAST;
}

static void take_sample(struct job *j)
{
	const int fd = j->list->fd;
	struct sample *s = &j->s;
	uint64_t end, random = clock_mono_ns() ^ (uint64_t)(uintptr_t)s, bytes = 0;
	unsigned hits = 0;
	char text[PAGE + 1];

	if (fd < 0 || place(fd, text, KERNEL_LOCKS_WORTH / KERNEL_LOCK_BYTES * LINE) <= 0)
		return; /* a short file is read whole */
	end = end_of(j, fd, text);
	for (unsigned i = 0; i < KERNEL_LOCKS_PAGES && !__atomic_load_n(&j->stop, __ATOMIC_SEQ_CST); i++) {
		/* One place in each part, at a random position. */
		random = random * 6364136223846793005ULL + 1442695040888963407ULL;
		if (place(fd, text, end / KERNEL_LOCKS_PAGES * i + (random >> 33) % (end / KERNEL_LOCKS_PAGES)) <= 0)
			continue;
		hits++;
		bytes += sample_add(s, text, true);
	}
	s->count = s->n ? (uint64_t)((double)end * hits / KERNEL_LOCKS_PAGES * s->n / (double)bytes) : 0;
}

static void sample_found(struct sample *s, uint64_t dev, uint64_t ino)
{
	for (unsigned i = 0; i < s->n; i++)
		s->found[i] |= s->lock[i].ofd && s->lock[i].ino == ino && s->lock[i].dev == dev;
}

/*
 * Memfds only: other shared files are mapped by several sandboxes. Reading may wait for a process that changes its
 * mappings.
 */
static void read_maps(struct job *j)
{
	const uint64_t until = clock_mono_ns() + MAPS_NS;
	uint64_t dev, ino, last = 0;
	char path[40], line[512];

	for (size_t i = 0; i < j->npids; i++) {
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/maps", j->pid[i]);
		f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f) && clock_mono_ns() < until &&
		       !__atomic_load_n(&j->stop, __ATOMIC_SEQ_CST))
			if (kernel_lock_parse_map(line, &dev, &ino) && dev == j->s.memfds && ino != last)
				sample_found(&j->s, dev, last = ino);
		if (f)
			fclose(f);
	}
}

static void *work(void *arg)
{
	struct job *j = arg;

	sys_test_spare();
	setpriority(PRIO_PROCESS, 0, -15); /* this thread goes first, since others wait for the lock that it holds */
	if (j->owner)
		read_maps(j);
	else
		take_sample(j);
	j->ended_ns = clock_mono_ns();
	__atomic_store_n(&j->done, true, __ATOMIC_SEQ_CST);
	job_unref(j);
	return NULL;
}

static bool job_start(struct kernel_locks *k, struct job *j)
{
	pthread_attr_t a;
	pthread_t t;
	bool ok;

	j->refs = 2;
	j->list = k->list;
	__atomic_add_fetch(&j->list->refs, 1, __ATOMIC_SEQ_CST);
	j->began_ns = clock_mono_ns();
	pthread_attr_init(&a);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	ok = pthread_create(&t, &a, work, j) == 0;
	pthread_attr_destroy(&a);
	if (!ok) {
		j->refs = 1;
		job_unref(j);
		return false;
	}
	k->job = j;
	return true;
}

/* ---- samples ---------------------------------------------------------------------------------------------------- */

static uint64_t device_of_memfds(void)
{
	AUTO_CLOSE int fd = memfd_create("device", MFD_CLOEXEC);
	struct stat st;

	return fd < 0 || fstat(fd, &st) < 0 ? 0 : st.st_dev;
}

struct kernel_locks *kernel_locks_new(void)
{
	struct kernel_locks *k = calloc(1, sizeof(*k));

	if (!k || !(k->list = calloc(1, sizeof(*k->list)))) {
		free(k);
		return NULL;
	}
	k->memfds = device_of_memfds();
	k->ended_ns = clock_mono_ns(); /* a sandbox with a short life is only searched when memory grows */
	k->list->refs = 1;
	k->list->fd = openat(AT_FDCWD, "/proc/locks", O_RDONLY | O_CLOEXEC);
	return k;
}

void kernel_locks_free(struct kernel_locks *k)
{
	if (!k)
		return;
	if (k->job)
		__atomic_store_n(&k->job->stop, true, __ATOMIC_SEQ_CST);
	job_unref(k->job);
	job_unref(k->maps);
	list_unref(k->list);
	free(k);
}

static void take(struct kernel_locks *k)
{
	struct job *j = k->job;

	if (!j || !__atomic_load_n(&j->done, __ATOMIC_SEQ_CST))
		return;
	k->job = NULL;
	k->assigned_ns = j->ended_ns;
	if (j->owner) {
		job_unref(k->maps);
		k->maps = j;
		return;
	}
	k->s = j->s;
	k->s.began_ns = j->began_ns;
	k->s.memfds = k->memfds;
	k->sample++;
	k->ended_ns = j->ended_ns;
	k->cost_ns = j->ended_ns - j->began_ns;
	job_unref(j);
}

/* The bytes that a line of the sample stands for. */
static uint64_t weight(const struct sample *s, uint64_t lines)
{
	return s->n ? s->count * KERNEL_LOCK_BYTES / s->n * lines : 0;
}

static bool worth(const struct sample *s)
{
	return s->count * KERNEL_LOCK_BYTES >= KERNEL_LOCKS_WORTH;
}

/* The bytes of memfds without a known owner. */
static uint64_t nobodys(const struct sample *s)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < s->n; i++)
		n += s->lock[i].ofd && s->lock[i].dev == s->memfds && !s->found[i];
	return weight(s, n);
}

void kernel_locks_start(struct kernel_locks *k, enum kernel_locks_when when)
{
	const uint64_t now = clock_mono_ns(), least = when == KERNEL_LOCKS_SLOWLY ? SLOW_NS : SOON_NS;
	const uint64_t rest = (when == KERNEL_LOCKS_NOW ? 1 : REST) * k->cost_ns;
	struct job *j;

	take(k);
	if (k->job || now < k->ended_ns + (rest > least ? rest : least))
		return;
	/* Mappings of other running sandboxes may still have to be read. */
	if (now < k->assigned_ns + SETTLED_NS && nobodys(&k->s) >= KERNEL_LOCKS_WORTH)
		return;
	j = calloc(1, sizeof(*j));
	if (j)
		job_start(k, j);
}

bool kernel_locks_news(struct kernel_locks *k, const struct kernel_locks_of *of)
{
	take(k);
	return k->sample && worth(&k->s) && (of->sample != k->sample || of->mapping != k->sample || k->maps);
}

static uint64_t assign_own(struct sample *s, const struct kernel_locks_owner *o)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < s->n; i++)
		for (size_t d = 0; d < o->ndevices; d++)
			if (s->lock[i].dev == o->device[d] && !s->found[i]) {
				s->found[i] = true;
				n++;
			}
	return weight(s, n);
}

/* Has the thread search files that @o has mapped. False: it is busy. */
static bool start_maps(struct kernel_locks *k, const struct kernel_locks_owner *o)
{
	struct job *j = k->job || k->maps ? NULL : calloc(1, sizeof(*j));

	if (!j)
		return false;
	j->owner = o->id;
	j->s = k->s;
	j->pid = o->npids ? malloc(o->npids * sizeof(*j->pid)) : NULL;
	if (j->pid)
		memcpy(j->pid, o->pid, (j->npids = o->npids) * sizeof(*j->pid));
	return job_start(k, j);
}

/* Takes what the thread has found for @id. */
static bool take_maps(struct kernel_locks *k, uint64_t id, uint64_t *ret)
{
	struct job *j = k->maps;
	uint64_t n = 0;

	/* Results for an owner that has ended are never taken, so they are dropped. */
	if (j && (j->s.began_ns != k->s.began_ns || (j->owner != id && clock_mono_ns() - j->ended_ns > FRESH_NS))) {
		job_unref(j);
		k->maps = j = NULL;
	}
	if (!j || j->owner != id)
		return false;
	for (unsigned i = 0; i < k->s.n; i++)
		if (j->s.found[i] && !k->s.found[i]) {
			k->s.found[i] = true;
			n++;
		}
	*ret = weight(&k->s, n);
	job_unref(j);
	k->maps = NULL;
	return true;
}

void kernel_locks_assign(struct kernel_locks *k, const struct kernel_locks_owner *o, struct kernel_locks_of *of)
{
	const uint64_t now = clock_mono_ns();
	uint64_t bytes;

	if (k->s.began_ns < of->since_ns || k->s.began_ns < of->not_before_ns + ENDED_NS) {
		of->sample = of->mapping = k->sample;
		of->own = of->mapped = 0;
		return;
	}
	if (of->sample != k->sample) {
		of->sample = k->sample;
		of->mapped = 0;
		of->own = assign_own(&k->s, o);
		of->until_ns = now + FRESH_NS;
	}
	if (take_maps(k, o->id, &bytes)) {
		of->mapped = bytes;
		of->until_ns = now + FRESH_NS;
	} else if (of->mapping != k->sample && (nobodys(&k->s) < KERNEL_LOCKS_WORTH || start_maps(k, o))) {
		of->mapping = k->sample;
		k->assigned_ns = now;
	}
}

uint64_t kernel_locks_bytes_of(const struct kernel_locks_of *of, const struct kernel_locks_shown *shown)
{
	const uint64_t on_own = shown->all - shown->shared;
	uint64_t hidden = of->mapped, maybe = 0;

	if (clock_mono_ns() >= of->until_ns)
		return shown->all;
	/* Both figures are estimates. */
	if (of->own > on_own + on_own / 2 + UNSURE)
		*(shown->whole ? &hidden : &maybe) += of->own - on_own;
	return shown->all + TIMES * hidden + maybe;
}

uint64_t kernel_locks_count(const struct kernel_locks *k)
{
	return k->s.count;
}
