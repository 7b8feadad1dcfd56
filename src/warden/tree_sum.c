#include "warden/tree.h"
#include "base/base.h"
#include "base/sys.h"
#include "warden/walk.h"
#include "warden/xattr.h"

#include <sys/stat.h>
#include <unistd.h>

#define BLOCK 4096U

/* Files with several names, by number: content is read once however many there are. */
struct seen {
	struct {
		uint64_t ino, which;
	} *slot;
	size_t count, room; /* room: a power of two */
};

struct sum {
	struct sha256 *s;
	const int *stop;
	char *buf;
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

/* Which one it is, counting from 1; *ret_first when it was not seen before. Or -errno. */
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

static bool all_zero(const char *p, size_t n)
{
	return !p[0] && (n == 1 || !memcmp(p, p + 1, n - 1));
}

/* Runs of blocks that are not zeros: where each begins, what is in it, how long it was. */
static void sum_piece(struct sum *m, const char *data, size_t len, uint64_t at, uint64_t *run)
{
	size_t from = 0;

	for (size_t i = 0; i < len; i += BLOCK) {
		size_t n = len - i < BLOCK ? len - i : BLOCK;
		bool empty = all_zero(data + i, n);

		if (!empty && *run == UINT64_MAX) {
			*run = at + i;
			add_u64(m, *run);
			from = i;
		} else if (empty && *run != UINT64_MAX) {
			sha256_add(m->s, data + from, i - from);
			add_u64(m, at + i - *run);
			*run = UINT64_MAX;
		}
	}
	if (*run != UINT64_MAX)
		sha256_add(m->s, data + from, len - from);
}

static int sum_data(struct sum *m, int fd, uint64_t size)
{
	uint64_t at = 0, run = UINT64_MAX;

	while (at < size) {
		off_t data = lseek(fd, (off_t)at, SEEK_DATA);
		ssize_t n;

		if (data < 0 && errno != ENXIO)
			return -errno;
		if ((data < 0 || (uint64_t)data > at) && run != UINT64_MAX) {
			add_u64(m, at - run);
			run = UINT64_MAX;
		}
		if (data < 0)
			break;
		at = (uint64_t)data - (uint64_t)data % BLOCK;
		n = pread(fd, m->buf, TREE_BUF, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ESTALE;
		if (m->stop && __atomic_load_n(m->stop, __ATOMIC_RELAXED))
			return -ECANCELED;
		sum_piece(m, m->buf, (size_t)n, at, &run);
		at += (uint64_t)n;
	}
	if (run != UINT64_MAX)
		add_u64(m, size - run);
	add_u64(m, UINT64_MAX);
	return 0;
}

static int sum_file(struct sum *m, int dir, const char *name, const struct stat *st)
{
	AUTO_CLOSE int fd = sys_openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return fd;
	m->facts.files++;
	m->facts.size += (uint64_t)st->st_size;
	r = xattr_sum(fd, m->buf, m->s);
	return r == 0 ? sum_data(m, fd, (uint64_t)st->st_size) : r;
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

		return r == 0 ? xattr_sum(w->fd, m->buf, m->s) : r;
	}
	if (st.st_nlink > 1)
		which = see(&m->seen, st.st_ino, &first);
	if (which < 0)
		return (int)which;
	add_u64(m, (uint64_t)which);
	if (!first)
		return 0;
	return S_ISREG(st.st_mode) ? sum_file(m, w->fd, name, &st) : S_ISLNK(st.st_mode) ? sum_symlink(m, w->fd, name) : 0;
}

int tree_sum(int dir, const int *stop, char *buf, struct sha256 *s, struct tree_facts *ret)
{
	struct sum m = { .s = s, .stop = stop, .buf = buf };
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
	r = xattr_sum(top, buf, s);
	if (r < 0) {
		fd_close(top);
		return r;
	}
	r = walk_begin(&w, top, true);
	while (r == 0) {
		const char *name = walk_next(&w);

		if (name) {
			r = stop && __atomic_load_n(stop, __ATOMIC_RELAXED) ? -ECANCELED : sum_entry(&m, &w, name);
			continue;
		}
		add_u64(&m, UINT64_MAX); /* the end of a folder: no name is as long */
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
