/* The sums of a layer's memory image. */
#include "layers/memory.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/digests.h"
#include "layers/tree.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#define STRETCH (1U << 18) /* bytes read at a time for the SHA-256 of a whole file */
#define WINDOW 4096U /* sums of pieces that are held at a time: those of 256 MiB */
#define THREADS 4U
#define ALONE (8U << 20) /* files up to this size are summed up without other threads */

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

/* A part of a file that several threads share: each takes the next buffer's length of it until none is left. */
struct window {
	int fd;
	uint64_t size, from, end;
	const int *stop;
	uint8_t (*sum)[SHA256_SIZE]; /* of the pieces from number ->from on */
	uint64_t next; /* atomic: the next piece that no thread has taken */
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

/* The SHA-256 of the file's size, and of the BLAKE3 of each piece, in order. */
static int sum_pieces(int fd, const int *stop, uint64_t *ret_size, uint8_t *ret_sum)
{
	uint8_t(*sum)[SHA256_SIZE] = NULL;
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
		struct window w = {
			.fd = fd, .size = size, .from = at, .end = at + len, .stop = stop, .sum = sum, .next = at
		};
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
	return version == MANIFEST_VERSION_VM ? sum_whole(fd, stop, ret_size, ret_sum) :
						sum_pieces(fd, stop, ret_size, ret_sum);
}

/* A missing "meta" means a layer without memory, and the manifest's ->meta must agree with that. */
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
