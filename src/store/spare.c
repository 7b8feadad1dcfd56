/* Keeps files that are not needed any more, and uses them again. */
#include "store/spare.h"
#include "base/base.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define ADD_ONCE 4U

static_assert(SPARES_MAX <= 64, "a bit each");

struct name {
	char text[16];
};

static struct name name_of(unsigned n)
{
	struct name x;

	snprintf(x.text, sizeof(x.text), ".spare-%u", n);
	return x;
}

void spares_init(struct spares *s, int dir)
{
	struct stat st;

	*s = (struct spares){ .dir = dir };
	for (unsigned n = 0; n < SPARES_MAX; n++)
		if (fstatat(dir, name_of(n).text, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
			s->have |= 1ULL << n;
}

void spares_add(struct spares *s)
{
	for (unsigned i = 0; i < ADD_ONCE && __builtin_popcountll(s->have) < (int)SPARES_LEAST; i++) {
		const unsigned n = (unsigned)__builtin_ctzll(~s->have);
		const int fd =
			openat(s->dir, name_of(n).text, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

		if (fd < 0)
			return;
		fd_close(fd);
		s->have |= 1ULL << n;
	}
}

/* Not with O_TRUNC: of one that is empty already, too, that makes ext4 write to the disk when it is closed. */
static int open_empty(const struct spares *s, unsigned n)
{
	AUTO_CLOSE int fd = openat(s->dir, name_of(n).text, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || (st.st_size && ftruncate(fd, 0) < 0))
		return -errno;
	return TAKE_FD(fd);
}

int spare_take(struct spares *s, unsigned *ret_n)
{
	unsigned n = (unsigned)__builtin_ffsll((long long)s->have);
	int fd;

	if (!n)
		return -ENOENT;
	n--;
	s->have &= ~(1ULL << n);
	fd = open_empty(s, n);
	if (fd < 0)
		return -ENOENT;
	*ret_n = n;
	return fd;
}

int spare_name(const struct spares *s, unsigned n, const char *name)
{
	return renameat(s->dir, name_of(n).text, s->dir, name) < 0 ? -errno : 0;
}

void spare_drop(const struct spares *s, unsigned n)
{
	unlinkat(s->dir, name_of(n).text, 0);
}

int spare_put(struct spares *s, const char *name)
{
	unsigned n = ~s->have ? (unsigned)__builtin_ctzll(~s->have) + 1 : 0;
	int fd;

	if (!n || n > SPARES_MAX)
		return unlinkat(s->dir, name, 0) < 0 ? -errno : 0;
	n--;
	if (renameat(s->dir, name, s->dir, name_of(n).text) < 0)
		return -errno;
	fd = open_empty(s, n);
	if (fd < 0) {
		spare_drop(s, n);
		return 0;
	}
	fd_close(fd);
	s->have |= 1ULL << n;
	return 0;
}
