#include "layers/numbers.h"
#include "base/base.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/sys.h"
#include "layers/memory.h"
#include "linux/mount.h"
#include "proto/frame.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define BLOCK 4096U
#define SUPER 1024U /* where the superblock is */
#define LIST 2048U /* ours, behind it in the first block, which nothing else uses */
#define LIST_MAGIC 0x736e6c63U
#define INODE 32U
#define NUMBER_MAX (1ULL << 38) /* files of a block less than 16 TiB */
#define EROFS_MAGIC 0xe0f5e1e2U
#define EROFS_INLINE (2U << 1) /* a small inode, its data behind it */
#define INO32_GEN 1 /* kinds of file handles */
#define INO64_GEN 0x81
#define OVL_MAGIC 0xfbU
#define ORIGIN "trusted.overlay.origin"

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

struct list {
	uint32_t magic, n;
	uint8_t uuid[16];
	uint64_t number[NUMBERS_MAX];
};
static_assert(LIST + sizeof(struct list) <= BLOCK && SUPER + sizeof(struct erofs_super) <= LIST, "in the first block");

/* What overlay has in ORIGIN: its struct ovl_fb. */
struct __attribute__((packed)) origin {
	uint8_t version, magic, len, flags, type, uuid[16];
	uint32_t id[3];
};
static_assert(sizeof(struct origin) == 33, "as the kernel has it");

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

	/* The folder that nothing is in has a number nobody wants. */
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

static const char *set_name(unsigned set, char name[static 16])
{
	snprintf(name, 16, "numbers%u", set);
	return name;
}

int numbers_write(int mem, int meta, const struct mem_head *h, bool joins, int ret[static NUMBERS_SETS], struct err *e)
{
	AUTO_FREE struct list *l = calloc(NUMBERS_SETS, sizeof(*l));
	int r = l ? collect(meta, h, joins, l) : -ENOMEM;
	char name[16];

	for (unsigned i = 0; i < NUMBERS_SETS; i++)
		ret[i] = -1;
	for (unsigned i = 0; r >= 0 && i < NUMBERS_SETS && l[i].n; i++) {
		r = ret[i] = sys_openat(mem, set_name(i, name), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (r >= 0)
			r = put_all(ret[i], &l[i]);
	}
	if (r >= 0)
		return 0;
	fd_close_many(ret, NUMBERS_SETS);
	return err_sys(e, ERR_INTERNAL, r, "save the inode numbers of open files");
}

/* From a file: that takes Linux 6.12. */
static int mount_numbers(int file)
{
	char path[32];
	const struct mount_opt opts[] = { { "source", path }, { "ro", NULL }, { NULL, NULL } };
	struct err e = { 0 };
	int mnt;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	mnt = mount_new_err("erofs", opts, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, &e);
	if (mnt < 0)
		log_info("inode numbers of open files are not kept: %s", e.msg);
	return mnt;
}

void numbers_open(int layers, const char *id, unsigned set, struct numbers *ret)
{
	AUTO_CLOSE int dir = sys_openat(layers, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0), file = -1;
	struct list l;
	char name[16];

	*ret = (struct numbers){ .mnt = -1, .set = set };
	file = dir < 0 ? dir : memory_open(dir, set_name(set, name));
	if (file < 0 || pread(file, &l, sizeof(l), LIST) != sizeof(l) || l.magic != LIST_MAGIC || l.n > NUMBERS_MAX)
		return;
	ret->mnt = mount_numbers(file);
	if (ret->mnt < 0)
		return;
	memcpy(ret->uuid, l.uuid, sizeof(ret->uuid));
	memcpy(ret->number, l.number, sizeof(ret->number));
	ret->n = l.n;
}

void numbers_done(struct numbers *x)
{
	fd_close(TAKE_FD(x->mnt));
}

/* How this kernel's erofs tells its files apart: INO32_GEN, INO64_GEN or something new. */
static int handle_type(int mnt)
{
	union {
		struct file_handle h;
		uint8_t room[sizeof(struct file_handle) + 64];
	} x = { .h.handle_bytes = 64 };
	int mount;

	return name_to_handle_at(mnt, "", &x.h, &mount, AT_EMPTY_PATH) < 0 ? -errno : x.h.handle_type;
}

static int lay_one(int folder, unsigned set, uint64_t number, struct origin *o, uint32_t owner)
{
	AUTO_CLOSE int fd = -1;
	char name[32];
	int r;

	if (o->type == INO64_GEN) {
		const uint32_t id[3] = { (uint32_t)(number >> 32), (uint32_t)number, 0 };

		memcpy(o->id, id, sizeof(id));
	} else {
		const uint32_t id[2] = { (uint32_t)number, 0 };

		if (number > UINT32_MAX)
			return 0;
		memcpy(o->id, id, sizeof(id));
	}
	snprintf(name, sizeof(name), "%" PRIu64 ".%u", number, set);
	r = fd = sys_openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (r >= 0)
		r = sys_fchownat(fd, "", owner, owner, AT_EMPTY_PATH);
	return r < 0 ? r : fsetxattr(fd, ORIGIN, o, o->len, 0) < 0 ? -errno : 0;
}

void numbers_lay_out(const struct numbers *x, int root, uint32_t owner)
{
	const int type = handle_type(x->mnt);
	struct origin o = { .magic = OVL_MAGIC, .type = (uint8_t)type, .len = type == INO64_GEN ? 33 : 29 };
	AUTO_CLOSE int folder = -1;
	int r;

	if (type != INO32_GEN && type != INO64_GEN)
		return;
	memcpy(o.uuid, x->uuid, sizeof(o.uuid));
	r = sys_mkdirat(root, FRAME_NUMBERS, 0700);
	if (r == 0 || r == -EEXIST)
		r = folder = sys_openat(root, FRAME_NUMBERS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (r >= 0)
		r = sys_fchownat(folder, "", owner, owner, AT_EMPTY_PATH);
	for (uint32_t i = 0; r >= 0 && i < x->n; i++)
		r = lay_one(folder, x->set, x->number[i], &o, owner);
	if (r < 0)
		log_info("inode numbers of open files: %s", strerror(-r));
}
