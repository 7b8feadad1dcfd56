/* Makes files with the inode numbers that open files had (numbers.h): erofs images, each with a list of its numbers. */
#include "layers/numbers.h"
#include "base/base.h"
#include "base/fd.h"
#include "base/sys.h"
#include "layers/numbers_list.h"

#include <sys/stat.h>
#include <unistd.h>

#define BLOCK 4096U
#define SUPER 1024U /* offset of the superblock */
#define INODE 32U
#define NUMBER_MAX (1ULL << 38) /* numbers of files that start in the first 16 TiB */
#define EROFS_MAGIC 0xe0f5e1e2U
#define EROFS_INLINE (2U << 1) /* a small inode, with its data after it */

struct erofs_super {
	uint32_t magic, checksum, compat;
	uint8_t block_bits, slots;
	uint16_t root;
	uint64_t inodes, time;
	uint32_t time_ns, blocks, meta, xattrs;
	uint8_t uuid[16], name[16];
	uint32_t incompat;
	uint8_t rest[44];
};
static_assert(sizeof(struct erofs_super) == 128, "as on disk");

struct erofs_inode {
	uint16_t format, xattrs, mode, nlink;
	uint32_t size, zero, data, number;
	uint16_t uid, gid;
	uint32_t zero2;
};
static_assert(sizeof(struct erofs_inode) == INODE, "as on disk");

static_assert(LIST + sizeof(struct list) <= BLOCK && SUPER + sizeof(struct erofs_super) <= LIST, "in the first block");

static bool has(const struct list *l, uint64_t number)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->number[i] == number)
			return true;
	return false;
}

static void add(struct list *l, uint64_t number)
{
	for (unsigned i = 0; i < NUMBERS_SETS; i++, l++) {
		if (has(l, number))
			continue;
		if (l->n < NUMBERS_MAX)
			l->number[l->n++] = number;
		return;
	}
}

static int collect(int meta, const struct mem_head *h, bool joins, struct list *l)
{
	const uint64_t n = h->section[MEM_S_FILE].n, off = h->section[MEM_S_FILE].off;

	for (uint64_t i = 0; i < n; i++) {
		struct mem_file f;

		if (pread(meta, &f, sizeof(f), (off_t)(off + i * sizeof(f))) != sizeof(f))
			return -EBADMSG;
		if (f.ino && f.ino < NUMBER_MAX && (joins || f.flags & MEM_FILE_UPPER))
			add(l, f.ino);
	}
	return 0;
}

static int put(int fd, const void *data, size_t len, uint64_t at)
{
	ssize_t n = pwrite(fd, data, len, (off_t)at);

	return n == (ssize_t)len ? 0 : n < 0 ? -errno : -EIO;
}

static int put_inode(int fd, uint64_t number, uint16_t mode)
{
	const struct erofs_inode x = {
		.format = EROFS_INLINE, .mode = mode, .nlink = S_ISDIR(mode) ? 2 : 1, .number = (uint32_t)number
	};

	return put(fd, &x, sizeof(x), BLOCK + number * INODE);
}

static int put_all(int fd, struct list *l)
{
	struct erofs_super s = { .magic = EROFS_MAGIC, .block_bits = 12, .root = 1, .meta = 1 };
	uint64_t top;
	int r = 0;

	/* The empty root folder needs a number that is not in the list. */
	while (has(l, s.root))
		s.root++;
	top = s.root;
	for (uint32_t i = 0; r == 0 && i < l->n; i++) {
		top = l->number[i] > top ? l->number[i] : top;
		r = put_inode(fd, l->number[i], S_IFREG | 0600);
	}
	if (r == 0)
		r = put_inode(fd, s.root, S_IFDIR | 0755);
	if (sys_getrandom(s.uuid, sizeof(s.uuid), 0) != sizeof(s.uuid))
		return -EIO;
	memcpy(l->uuid, s.uuid, sizeof(l->uuid));
	l->magic = LIST_MAGIC;
	s.inodes = l->n + 1;
	s.blocks = (uint32_t)(1 + top * INODE / BLOCK + 1);
	if (r == 0)
		r = put(fd, &s, sizeof(s), SUPER);
	if (r == 0)
		r = put(fd, l, sizeof(*l), LIST);
	return r == 0 ? sys_ftruncate(fd, (off_t)((uint64_t)s.blocks * BLOCK)) : r;
}

int numbers_write(int mem, int meta, const struct mem_head *h, bool joins, int ret[static NUMBERS_SETS], struct err *e)
{
	AUTO_FREE struct list *l = calloc(NUMBERS_SETS, sizeof(*l));
	int r = l ? collect(meta, h, joins, l) : -ENOMEM;
	char name[16];

	for (unsigned i = 0; i < NUMBERS_SETS; i++)
		ret[i] = -1;
	for (unsigned i = 0; r >= 0 && i < NUMBERS_SETS && l[i].n; i++) {
		r = ret[i] =
			sys_openat(mem, set_name(i, name), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (r >= 0)
			r = put_all(ret[i], &l[i]);
	}
	if (r >= 0)
		return 0;
	fd_close_many(ret, NUMBERS_SETS);
	return err_sys(e, ERR_INTERNAL, r, "save the inode numbers of open files");
}
