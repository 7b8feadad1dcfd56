#include "layers/memory.h"
#include "base/base.h"
#include "base/id.h"
#include "base/sys.h"
#include "layers/digests.h"
#include "layers/tree.h"
#include "memory/crypt.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define STRETCH (1U << 18) /* bytes read in one go for a whole SHA-256 */
#define WINDOW 4096U /* sums of pieces that are held at a time: of 256 MiB */
#define THREADS 4U
#define ALONE (8U << 20) /* bytes for which starting threads takes longer than it saves */
#define TABLES_MIN (1U << 20) /* page tables and the like, at least */

int memory_open(int dir, const char *name)
{
	const struct open_how how = {
		.flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	AUTO_CLOSE int fd = -1;
	struct stat st;
	char path[16];

	snprintf(path, sizeof(path), "mem/%s", name);
	fd = sys_openat2(dir, path, &how);
	if (fd == -ENOENT && crypt_locked(dir, "mem"))
		return -ENOKEY;
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? TAKE_FD(fd) : -EBADMSG;
}

static int bad(struct err *e, const char *why)
{
	return err_set(e, ERR_REFUSED, -EBADMSG, "memory image: %s", why);
}

static bool zeros(const char *text, size_t n)
{
	while (n--)
		if (*text++)
			return false;
	return true;
}

static bool ancestors_ok(const struct mem_head *h)
{
	for (unsigned i = 0; i < MEM_PAGE_FILES; i++) {
		const char *id = h->ancestor[i];
		bool used = i && i < h->page_files;

		if (used ? strnlen(id, sizeof(h->ancestor[0])) != ID_LEN || !id_valid(id) ||
				   !zeros(id + ID_LEN, sizeof(h->ancestor[0]) - ID_LEN) :
			   !zeros(id, sizeof(h->ancestor[0])))
			return false;
	}
	return true;
}

int memory_head(int meta, int pages, struct mem_head *ret, struct err *e)
{
	struct stat m, p;
	struct mem_head h;
	ssize_t n;

	if (fstat(meta, &m) < 0 || fstat(pages, &p) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "read the status of a memory image");
	n = pread(meta, &h, sizeof(h), 0);
	if (n < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "read a memory image");
	if (n != sizeof(h) || h.magic != MEM_MAGIC)
		return bad(e, "not a memory image");
	if (h.version != MEM_VERSION)
		return bad(e, "another version");
	if (h.size != (uint64_t)m.st_size || h.size > MEM_META_MAX || h.pages != (uint64_t)p.st_size)
		return bad(e, "incomplete, or with extra data at the end");
	if (h.page_files < 1 || h.page_files > MEM_PAGE_FILES || !ancestors_ok(&h))
		return bad(e, "the images it is based on are invalid");
	for (unsigned i = 0; i < MEM_SECTIONS; i++)
		if (h.section[i].off > h.size || h.section[i].n > h.size)
			return bad(e, "a part is outside of the image");
	if (h.section[MEM_S_EXEC].n > MEMORY_EXECS_MAX)
		return bad(e, "too many execs");
	*ret = h;
	return 0;
}

int memory_cuts(int meta, const struct mem_head *h, struct memory_cuts *ret, struct err *e)
{
	const uint64_t n = h->section[MEM_S_CUT].n;
	struct memory_cuts c = { .n = (uint32_t)n, .told = n < MEMORY_CUTS ? (uint32_t)n : MEMORY_CUTS };
	const size_t size = c.told * sizeof(c.cut[0]);

	if (pread(meta, c.cut, size, (off_t)h->section[MEM_S_CUT].off) != (ssize_t)size)
		return bad(e, "a part is outside of the image");
	for (uint32_t i = 0; i < c.told; i++)
		if (!mem_cut_ok(&c.cut[i]))
			return bad(e, "a connection that was cut is invalid");
	*ret = c;
	return 0;
}

int memory_fits(const struct mem_head *h, uint64_t limit, struct err *e)
{
	const uint64_t tables = h->own / 256 + TABLES_MIN;

	if (!limit || (h->own < limit && tables < limit - h->own))
		return 0;
	err_set(e, ERR_REFUSED, -ENOMEM,
		"its processes need %llu MiB of memory when they are restored, but the limit is %llu MiB",
		(unsigned long long)(h->own + tables + MIB - 1) / MIB, (unsigned long long)limit / MIB);
	err_remedy(e, "raise the sandbox's memory limit, or end processes: memory that they share since a fork counts "
		      "for each of them");
	return -ENOMEM;
}

/* As MANIFEST_VERSION_VM has it: the SHA-256 of the whole file. */
static int sum_whole(int fd, const int *stop, uint64_t *ret_size, uint8_t *ret_sum)
{
	AUTO_FREE char *buf = malloc(STRETCH);
	struct sha256 s;
	uint64_t at = 0;
	ssize_t n;

	if (!buf)
		return -ENOMEM;
	sha256_init(&s);
	while ((n = pread(fd, buf, STRETCH, (off_t)at)) > 0) {
		if (stop && __atomic_load_n(stop, __ATOMIC_RELAXED))
			return -ECANCELED;
		sha256_add(&s, buf, (size_t)n);
		at += (uint64_t)n;
	}
	if (n < 0)
		return -errno;
	sha256_end(&s, ret_sum);
	*ret_size = at;
	return 0;
}

/* A part of a file, taken apart by several threads: each takes the next buffer's length of it until none is left. */
struct window {
	int fd;
	uint64_t size, from, end;
	const int *stop;
	uint8_t (*sum)[SHA256_SIZE]; /* of the pieces from ->from on */
	uint64_t next; /* atomic: where nobody is yet */
	int result; /* atomic */
};

static void *sum_some(void *arg)
{
	AUTO_FREE char *buf = malloc(TREE_BUF);
	struct window *w = arg;
	int r = buf ? 0 : -ENOMEM;

	while (r >= 0 && !__atomic_load_n(&w->result, __ATOMIC_RELAXED)) {
		const uint64_t at = __atomic_fetch_add(&w->next, TREE_BUF, __ATOMIC_RELAXED);

		if (at >= w->end)
			break;
		r = digests_pieces(w->fd, w->size, at, w->stop, buf, w->sum + (at - w->from) / DIGESTS_PIECE);
	}
	if (r < 0)
		__atomic_store_n(&w->result, r, __ATOMIC_RELAXED);
	return NULL;
}

static int sum_window(struct window *w)
{
	const long processors = w->end - w->from < ALONE ? 1 : sysconf(_SC_NPROCESSORS_ONLN);
	const unsigned most = processors < 1 ? 1 : processors < THREADS ? (unsigned)processors : THREADS;
	pthread_t thread[THREADS];
	unsigned n = 0;

	while (n + 1 < most && pthread_create(&thread[n], NULL, sum_some, w) == 0)
		n++;
	sum_some(w);
	while (n)
		pthread_join(thread[--n], NULL);
	return w->result;
}

/* The SHA-256 of its size, and of the BLAKE3 of each of its pieces, in their order. */
static int sum_pieces(int fd, const int *stop, uint64_t *ret_size, uint8_t *ret_sum)
{
	uint8_t (*sum)[SHA256_SIZE] = NULL;
	AUTO_FREE void *all = NULL;
	struct sha256 s;
	struct stat st;
	uint64_t size;

	if (fstat(fd, &st) < 0)
		return -errno;
	size = (uint64_t)st.st_size;
	sum = all = malloc((size_t)(size / DIGESTS_PIECE < WINDOW ? size / DIGESTS_PIECE + 1 : WINDOW) * SHA256_SIZE);
	if (!all)
		return -ENOMEM;
	sha256_init(&s);
	sha256_add(&s, &size, sizeof(size));
	for (uint64_t at = 0; at < size; at += (uint64_t)WINDOW * DIGESTS_PIECE) {
		const uint64_t most = (uint64_t)WINDOW * DIGESTS_PIECE, len = size - at < most ? size - at : most;
		struct window w = { .fd = fd, .size = size, .from = at, .end = at + len, .stop = stop, .sum = sum, .next = at };
		int r = sum_window(&w);

		if (r < 0)
			return r;
		sha256_add(&s, sum, (size_t)((len + DIGESTS_PIECE - 1) / DIGESTS_PIECE) * SHA256_SIZE);
	}
	sha256_end(&s, ret_sum);
	*ret_size = size;
	return 0;
}

static int sum_file(int dir, const char *name, uint32_t version, const int *stop, uint64_t *ret_size, uint8_t *ret_sum)
{
	AUTO_CLOSE int fd = memory_open(dir, name);

	if (fd < 0)
		return fd;
	return version == MANIFEST_VERSION_VM ? sum_whole(fd, stop, ret_size, ret_sum) : sum_pieces(fd, stop, ret_size, ret_sum);
}

/* One without a head is none; and ->meta tells whether there is one. */
static int with_head(const struct manifest *m, int r)
{
	return r == -ENOENT || (r == 0 && !m->meta) ? -EBADMSG : r;
}

int memory_sum_meta(int dir, const int *stop, const uint8_t pages[SHA256_SIZE], struct manifest *m)
{
	AUTO_CLOSE int fd = memory_open(dir, "pages");
	struct stat st;
	int r = fd < 0 ? fd : sum_file(dir, "meta", m->version, stop, &m->meta, m->meta_sum);

	if (r < 0)
		return with_head(m, r);
	if (fstat(fd, &st) < 0)
		return -errno;
	m->pages = (uint64_t)st.st_size;
	memcpy(m->pages_sum, pages, sizeof(m->pages_sum));
	return with_head(m, 0);
}

int memory_sum(int dir, const int *stop, struct manifest *m)
{
	struct stat st;
	int r;

	m->meta = m->pages = 0;
	memset(m->meta_sum, 0, sizeof(m->meta_sum));
	memset(m->pages_sum, 0, sizeof(m->pages_sum));
	if (fstatat(dir, "mem", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	r = sum_file(dir, "meta", m->version, stop, &m->meta, m->meta_sum);
	if (r == 0)
		r = sum_file(dir, "pages", m->version, stop, &m->pages, m->pages_sum);
	return with_head(m, r);
}
