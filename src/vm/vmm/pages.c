/*
 * Finds and writes the pages of a machine that differ from its file. A private mapping of a file shows the file's pages
 * until they are written; then they are anonymous. So the kernel lists a machine's own pages (/proc/PID/pagemap), and
 * no write had to be watched.
 */
#include "vm/vmm/pages.h"
#include "base/base.h"
#include "base/sys.h"
#include "vm/vmm/meta.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define PAGE 4096U
#define PAGE_HERE (1ULL << 63)
#define PAGE_SWAPPED (1ULL << 62)
#define PAGE_FILE (1ULL << 61)
#define MAPS_MAX 64 /* mappings of one file, which QEMU may have split */
#define MAPS_LINE 512
#define BUF_PAGES 256U
#define RUNS_STEP 1024U

struct area {
	uint64_t addr, start, count; /* its address; in pages: its place in the machine's memory, and its length */
};

struct runs {
	struct pages_run *run;
	uint64_t *addr; /* address of each run in the process */
	size_t n, max;
	uint64_t pages;
};

static void runs_free(struct runs *x)
{
	free(x->run);
	free(x->addr);
}

static int runs_grow(struct runs *x)
{
	size_t max = x->max ? 2 * x->max : RUNS_STEP;
	void *a = realloc(x->run, max * sizeof(*x->run)), *b;

	if (!a)
		return -ENOMEM;
	x->run = a;
	b = realloc(x->addr, max * sizeof(*x->addr));
	if (!b)
		return -ENOMEM;
	x->addr = b;
	x->max = max;
	return 0;
}

static int runs_add(struct runs *x, uint64_t page, uint64_t addr)
{
	struct pages_run *last = x->n ? &x->run[x->n - 1] : NULL;

	x->pages++;
	if (last && last->start + last->count == page && x->addr[x->n - 1] + last->count * PAGE == addr) {
		last->count++;
		return 0;
	}
	if (x->n == x->max && runs_grow(x) < 0)
		return -ENOMEM;
	x->run[x->n] = (struct pages_run){ page, 1 };
	x->addr[x->n++] = addr;
	return 0;
}

/* Where @pid has the file mapped, in the order of the file. */
static int find_areas(pid_t pid, const struct stat *st, struct area *ret, size_t *ret_n)
{
	char path[64], line[MAPS_LINE];
	size_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f)) {
		unsigned long long from, to, offset, ino;
		unsigned major, minor;
		size_t i;

		if (sscanf(line, "%llx-%llx %*4s %llx %x:%x %llu", &from, &to, &offset, &major, &minor, &ino) != 6)
			continue;
		if (ino != st->st_ino || makedev(major, minor) != st->st_dev)
			continue;
		if (n == MAPS_MAX || from >= to) {
			fclose(f);
			return -E2BIG;
		}
		for (i = n; i && ret[i - 1].start > offset / PAGE; i--)
			ret[i] = ret[i - 1];
		ret[i] = (struct area){ from, offset / PAGE, (to - from) / PAGE };
		n++;
	}
	fclose(f);
	*ret_n = n;
	return 0;
}

static int read_full(int fd, void *data, size_t len, uint64_t at)
{
	while (len) {
		ssize_t n = pread(fd, data, len, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		data = (uint8_t *)data + n;
		at += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int write_full(int fd, const void *data, size_t len, uint64_t at)
{
	while (len) {
		ssize_t n = pwrite(fd, data, len, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		data = (const uint8_t *)data + n;
		at += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int look(int map, const struct area *a, struct runs *ret)
{
	uint64_t entry[512];
	int r = 0;

	for (uint64_t done = 0; r == 0 && done < a->count;) {
		uint64_t n = a->count - done < ARRAY_LEN(entry) ? a->count - done : ARRAY_LEN(entry);

		r = read_full(map, entry, n * sizeof(*entry), (a->addr / PAGE + done) * sizeof(*entry));
		for (uint64_t i = 0; r == 0 && i < n; i++)
			if (entry[i] & (PAGE_HERE | PAGE_SWAPPED) && !(entry[i] & PAGE_FILE))
				r = runs_add(ret, a->start + done + i, a->addr + (done + i) * PAGE);
		done += n;
	}
	return r;
}

static int find_runs(pid_t pid, int ram, uint64_t ram_size, struct runs *ret)
{
	struct area area[MAPS_MAX];
	AUTO_CLOSE int map = -1;
	char path[64];
	uint64_t end = 0;
	struct stat st;
	size_t n = 0;
	int r = fstat(ram, &st) < 0 ? -errno : find_areas(pid, &st, area, &n);

	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
	map = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (map < 0)
		return map;
	for (size_t i = 0; r == 0 && i < n; i++) {
		/*
		 * Exactly one mapping must cover all of it: with a hole or two views, it is unknown what the guest
		 * sees.
		 */
		if (area[i].start != end)
			return -EBADMSG;
		end += area[i].count;
		r = look(map, &area[i], ret);
	}
	return r < 0 ? r : end == ram_size / PAGE ? 0 : -EBADMSG;
}

static int copy_runs(pid_t pid, const struct runs *x, int out, uint64_t at)
{
	AUTO_FREE uint8_t *buf = malloc((size_t)BUF_PAGES * PAGE);
	AUTO_CLOSE int mem = -1;
	char path[64];
	size_t held = 0; /* bytes in buf */
	int r = buf ? 0 : -ENOMEM;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	mem = r < 0 ? -1 : sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (r == 0 && mem < 0)
		r = mem;
	for (size_t i = 0; r == 0 && i < x->n; i++) {
		uint64_t left = x->run[i].count * PAGE, from = x->addr[i];

		while (r == 0 && left) {
			size_t n = (size_t)BUF_PAGES * PAGE - held;

			n = left < n ? (size_t)left : n;
			r = read_full(mem, buf + held, n, from);
			held += n;
			from += n;
			left -= n;
			if (r == 0 && held == (size_t)BUF_PAGES * PAGE) {
				r = write_full(out, buf, held, at);
				at += held;
				held = 0;
			}
		}
	}
	return r < 0 ? r : write_full(out, buf, held, at);
}

int pages_write(pid_t pid, int ram, uint64_t ram_size, int out, uint64_t *ret, struct err *e)
{
	struct runs x = { 0 };
	struct pages_head h;
	int r = sysconf(_SC_PAGESIZE) == PAGE ? find_runs(pid, ram, ram_size, &x) : -EOPNOTSUPP;

	if (r < 0) {
		err_sys(e, ERR_INTERNAL, r, "read the status of the virtual machine's memory");
		goto out;
	}
	h = (struct pages_head){ .magic = PAGES_MAGIC, .page = PAGE, .runs = x.n, .pages = x.pages };
	r = write_full(out, &h, sizeof(h), 0);
	if (r == 0)
		r = write_full(out, x.run, x.n * sizeof(*x.run), sizeof(h));
	if (r == 0)
		r = copy_runs(pid, &x, out, sizeof(h) + x.n * sizeof(*x.run));
	if (r < 0)
		err_sys(e, ERR_EXHAUSTED, r, "write the virtual machine's memory");
	else
		*ret = x.pages;
out:
	runs_free(&x);
	return r;
}

/* Ascending, apart from each other, inside the memory; and as many pages as the head says. */
static bool runs_make_sense(const struct pages_run *run, const struct pages_head *h, uint64_t ram_pages)
{
	uint64_t end = 0, sum = 0;

	for (uint64_t i = 0; i < h->runs; i++) {
		if (run[i].start < end || run[i].start >= ram_pages || !run[i].count ||
		    run[i].count > ram_pages - run[i].start)
			return false;
		end = run[i].start + run[i].count;
		sum += run[i].count;
	}
	return sum == h->pages;
}

static int read_runs(int fd, uint64_t ram_size, struct pages_head *h, struct pages_run **ret, struct err *e)
{
	AUTO_FREE struct pages_run *run = NULL;
	uint64_t ram_pages = ram_size / PAGE;
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : read_full(fd, h, sizeof(*h), 0);

	if (r == 0 &&
	    (h->magic != PAGES_MAGIC || h->page != PAGE || h->zero || h->pages > ram_pages || h->runs > h->pages))
		r = -EBADMSG;
	if (r == 0 && (uint64_t)st.st_size != sizeof(*h) + h->runs * sizeof(*run) + h->pages * PAGE)
		r = -EBADMSG;
	if (r == 0) {
		run = malloc((size_t)h->runs * sizeof(*run) + 1);
		r = run ? read_full(fd, run, (size_t)h->runs * sizeof(*run), sizeof(*h)) : -ENOMEM;
	}
	if (r == 0 && !runs_make_sense(run, h, ram_pages))
		r = -EBADMSG;
	if (r < 0)
		return err_sys(e, r == -ENOMEM ? ERR_EXHAUSTED : ERR_REFUSED, r,
			       "the pages of a virtual machine are damaged");
	*ret = run;
	run = NULL;
	return 0;
}

int pages_apply(int fd, int ram, uint64_t ram_size, struct err *e)
{
	AUTO_FREE uint8_t *buf = malloc((size_t)BUF_PAGES * PAGE);
	AUTO_FREE struct pages_run *run = NULL;
	struct pages_head h;
	uint64_t at;
	int r;

	if (!buf)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for pages");
	r = read_runs(fd, ram_size, &h, &run, e);
	if (r < 0)
		return r;
	at = sizeof(h) + h.runs * sizeof(*run);
	for (uint64_t i = 0; r == 0 && i < h.runs; i++) {
		uint64_t to = run[i].start * PAGE, left = run[i].count * PAGE;

		while (r == 0 && left) {
			size_t n = left < (uint64_t)BUF_PAGES * PAGE ? (size_t)left : (size_t)BUF_PAGES * PAGE;

			r = read_full(fd, buf, n, at);
			if (r == 0)
				r = write_full(ram, buf, n, to);
			at += n;
			to += n;
			left -= n;
		}
	}
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "write the memory of a virtual machine") : 0;
}

/* Makes one table of runs from the owner of each page (0: none). */
static int join_runs(const uint8_t *owner, uint64_t ram_pages, struct runs *ret)
{
	int r = 0;

	for (uint64_t p = 0; r == 0 && p < ram_pages; p++)
		if (owner[p])
			r = runs_add(ret, p, p * PAGE);
	return r;
}

/* Of one file those pages that are its own in @owner; @at: where the first page of all is in @out. */
static int join_file(int fd, uint8_t mine, const uint8_t *owner, uint64_t ram_size, int out, uint64_t at, struct err *e)
{
	AUTO_FREE uint8_t *buf = malloc((size_t)BUF_PAGES * PAGE);
	AUTO_FREE struct pages_run *run = NULL;
	uint64_t from, rank = 0, seen = 0; /* number of owned pages before page ->seen */
	struct pages_head h;
	int r = read_runs(fd, ram_size, &h, &run, e);

	if (r < 0)
		return r;
	if (!buf)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for pages");
	from = sizeof(h) + h.runs * sizeof(*run);
	for (uint64_t i = 0; r == 0 && i < h.runs; i++) {
		const uint64_t end = run[i].start + run[i].count;

		for (; seen < run[i].start; seen++)
			rank += owner[seen] != 0;
		while (r == 0 && seen < end) {
			uint64_t n = 0;

			while (seen + n < end && n < BUF_PAGES && owner[seen + n] == mine)
				n++;
			if (n) {
				r = read_full(fd, buf, n * PAGE, from + (seen - run[i].start) * PAGE);
				if (r == 0)
					r = write_full(out, buf, n * PAGE, at + rank * PAGE);
			}
			/* A page that a newer file owns is counted as well. */
			n += n == 0;
			rank += n;
			seen += n;
		}
		from += run[i].count * PAGE;
	}
	return r < 0 ? err_sys(e, ERR_EXHAUSTED, r, "write the pages of a virtual machine") : 0;
}

int pages_join(const int *fds, unsigned n, uint64_t ram_size, int out, struct err *e)
{
	AUTO_FREE uint8_t *owner = calloc(1, ram_size / PAGE + 1);
	struct runs x = { 0 };
	struct pages_head h;
	int r = owner && n < UINT8_MAX ? 0 : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for pages");

	for (unsigned i = 0; r == 0 && i < n; i++) {
		AUTO_FREE struct pages_run *run = NULL;

		r = read_runs(fds[i], ram_size, &h, &run, e);
		for (uint64_t k = 0; r == 0 && k < h.runs; k++)
			memset(owner + run[k].start, (int)i + 1, run[k].count);
	}
	if (r < 0)
		return r;
	r = join_runs(owner, ram_size / PAGE, &x);
	h = (struct pages_head){ .magic = PAGES_MAGIC, .page = PAGE, .runs = x.n, .pages = x.pages };
	if (r == 0)
		r = write_full(out, &h, sizeof(h), 0);
	if (r == 0)
		r = write_full(out, x.run, x.n * sizeof(*x.run), sizeof(h));
	if (r < 0)
		err_sys(e, ERR_EXHAUSTED, r, "write the pages of a virtual machine");
	for (unsigned i = 0; r == 0 && i < n; i++)
		r = join_file(fds[i], (uint8_t)(i + 1), owner, ram_size, out, sizeof(h) + x.n * sizeof(*x.run), e);
	runs_free(&x);
	return r;
}
