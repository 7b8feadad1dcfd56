/* The sum of a tree of files: names, attributes and content. */
#include "layers/tree.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/digests.h"
#include "layers/walk.h"
#include "layers/xattr.h"

#include <sys/stat.h>
#include <unistd.h>

/* Files with several names, by inode number: the content is read once for all names. */
struct seen {
	struct {
		uint64_t ino, which;
	} * slot;
	size_t count, room; /* slots: a power of two */
};

struct sum {
	const struct tree_sum *how;
	struct sha256 *s;
	struct seen seen;
	struct tree_facts facts;
};

static size_t hash(uint64_t x)
{
	return (size_t)(x * 0x9e3779b97f4a7c15ULL >> 20);
}

static int grow(struct seen *n)
{
	struct seen more = { .count = n->count, .room = n->room ? n->room * 2 : 256 };

	more.slot = calloc(more.room, sizeof(*more.slot));
	if (!more.slot)
		return -ENOMEM;
	for (size_t i = 0; i < n->room; i++) {
		size_t at = hash(n->slot[i].ino);

		if (!n->slot[i].which)
			continue;
		while (more.slot[at & (more.room - 1)].which)
			at++;
		more.slot[at & (more.room - 1)] = n->slot[i];
	}
	free(n->slot);
	*n = more;
	return 0;
}

/* Returns the file's number, counting from 1; *ret_first when it is new. Or -errno. */
static int64_t see(struct seen *n, uint64_t ino, bool *ret_first)
{
	size_t at = hash(ino);
	int r = n->count * 2 >= n->room ? grow(n) : 0;

	if (r < 0)
		return r;
	while (n->slot[at & (n->room - 1)].which && n->slot[at & (n->room - 1)].ino != ino)
		at++;
	at &= n->room - 1;
	*ret_first = !n->slot[at].which;
	if (*ret_first) {
		n->slot[at].ino = ino;
		n->slot[at].which = ++n->count;
	}
	return (int64_t)n->slot[at].which;
}

static void add_u64(struct sum *m, uint64_t v)
{
	sha256_add(m->s, &v, sizeof(v));
}

static int sum_large(struct sum *m, int fd, const struct stat *st)
{
	uint64_t size = (uint64_t)st->st_size;
	int r = 0;

	for (uint64_t n = 0; r == 0 && n * DIGESTS_LARGE < size; n++) {
		uint8_t sum[SHA256_SIZE];

		if (!digests_find(m->how->known, st->st_ino, size, n, sum))
			r = digests_piece(fd, size, n, DIGESTS_LARGE, m->how->stop, m->how->buf, sum);
		if (r == 0)
			sha256_add(m->s, sum, sizeof(sum));
	}
	return r;
}

static void add_piece(struct sum *m, uint64_t n, const uint8_t sum[SHA256_SIZE])
{
	if (digests_is_none(sum))
		return;
	add_u64(m, n);
	sha256_add(m->s, sum, SHA256_SIZE);
}

static int sum_pieces(struct sum *m, int fd, const struct stat *st)
{
	uint64_t size = (uint64_t)st->st_size, at = 0;
	uint8_t sum[DIGESTS_AT_ONCE][SHA256_SIZE];

	if (digests_find(m->how->known, st->st_ino, size, 0, sum[0]))
		for (uint64_t n = 0;
		     n * DIGESTS_PIECE < size && digests_find(m->how->known, st->st_ino, size, n, sum[0]); n++)
			add_piece(m, n, sum[0]);
	else
		while (at < size) {
			int64_t data = digests_data(fd, at, size);
			int count;

			if (data < 0)
				return (int)data;
			if ((uint64_t)data == size)
				break;
			at = (uint64_t)data / DIGESTS_PIECE * DIGESTS_PIECE;
			count = digests_pieces(fd, size, at, m->how->stop, m->how->buf, sum);
			if (count < 0)
				return count;
			for (int i = 0; i < count; i++)
				add_piece(m, at / DIGESTS_PIECE + (unsigned)i, sum[i]);
			at += TREE_BUF;
		}
	add_u64(m, UINT64_MAX);
	return 0;
}

/* Files above this size have sums of pieces. */
static uint64_t least(const struct sum *m)
{
	return m->how->large ? DIGESTS_LARGE : 0;
}

static int sum_data(struct sum *m, int fd, const struct stat *st)
{
	uint64_t size = (uint64_t)st->st_size;

	if (size <= least(m))
		return digests_sum(m->s, fd, size, m->how->stop, m->how->buf);
	return m->how->large ? sum_large(m, fd, st) : sum_pieces(m, fd, st);
}

/* Files with known sums have no attributes, so they need not be opened. */
static bool is_known(const struct sum *m, const struct stat *st)
{
	uint8_t sum[SHA256_SIZE];

	return (uint64_t)st->st_size > least(m) &&
	       digests_find(m->how->known, st->st_ino, (uint64_t)st->st_size, 0, sum);
}

static int sum_file(struct sum *m, int dir, const char *name, const struct stat *st)
{
	AUTO_CLOSE int fd = -1;
	int r;

	m->facts.files++;
	m->facts.size += (uint64_t)st->st_size;
	if (is_known(m, st))
		return sum_data(m, -1, st);
	r = fd = sys_openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	if (r < 0)
		return r;
	r = xattr_sum(fd, m->how->buf, m->s);
	return r == 0 ? sum_data(m, fd, st) : r;
}

static int sum_symlink(struct sum *m, int dir, const char *name)
{
	char target[4097];
	ssize_t n = readlinkat(dir, name, target, sizeof(target));

	if (n < 0)
		return -errno;
	add_u64(m, (uint64_t)n);
	sha256_add(m->s, target, (size_t)n);
	return 0;
}

static void sum_stat(struct sum *m, const struct stat *st)
{
	const bool sized = S_ISREG(st->st_mode) || S_ISLNK(st->st_mode);

	add_u64(m, st->st_mode);
	add_u64(m, st->st_uid);
	add_u64(m, st->st_gid);
	add_u64(m, st->st_rdev);
	add_u64(m, sized ? (uint64_t)st->st_size : 0);
	add_u64(m, (uint64_t)st->st_mtim.tv_sec);
	add_u64(m, (uint64_t)st->st_mtim.tv_nsec);
}

static int sum_entry(struct sum *m, struct walk *w, const char *name)
{
	struct stat st;
	bool first = true;
	int64_t which = 0;

	if (fstatat(w->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	m->facts.entries++;
	add_u64(m, strlen(name));
	sha256_add(m->s, name, strlen(name));
	sum_stat(m, &st);
	if (S_ISDIR(st.st_mode)) {
		int r = walk_down(w, name);

		return r == 0 ? xattr_sum(w->fd, m->how->buf, m->s) : r;
	}
	if (st.st_nlink > 1 && !m->how->lone)
		which = see(&m->seen, st.st_ino, &first);
	if (which < 0)
		return (int)which;
	add_u64(m, (uint64_t)which);
	if (!first)
		return 0;
	return S_ISREG(st.st_mode) ? sum_file(m, w->fd, name, &st) :
	       S_ISLNK(st.st_mode) ? sum_symlink(m, w->fd, name) :
				     0;
}

int tree_sum(const struct tree_sum *how, int dir, struct sha256 *s, struct tree_facts *ret)
{
	struct sum m = { .how = how, .s = s };
	int top = sys_openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), r;
	struct stat st;
	struct walk w;

	if (top < 0)
		return top;
	if (fstat(top, &st) < 0) {
		r = -errno;
		fd_close(top);
		return r;
	}
	sum_stat(&m, &st);
	r = xattr_sum(top, how->buf, s);
	if (r < 0) {
		fd_close(top);
		return r;
	}
	r = walk_begin(&w, top, true);
	while (r == 0) {
		const char *name = walk_next(&w);

		if (name) {
			r = how->stop && __atomic_load_n(how->stop, __ATOMIC_RELAXED) ? -ECANCELED :
											sum_entry(&m, &w, name);
			continue;
		}
		add_u64(&m, UINT64_MAX); /* marks the end of a folder: no name has this length */
		r = w.depth == 1 ? 1 : walk_up(&w);
	}
	walk_done(&w);
	free(m.seen.slot);
	if (r < 0)
		return r;
	ret->entries += m.facts.entries;
	ret->files += m.facts.files;
	ret->size += m.facts.size;
	return 0;
}
