/* Inode numbers of open files: reading the file of numbers for a sandbox that is restored. numbers_write.c makes it. */
#include "layers/numbers.h"
#include "base/base.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/sys.h"
#include "layers/memory.h"
#include "layers/numbers_list.h"
#include "linux/mount.h"

#include <inttypes.h>
#include <sys/xattr.h>
#include <unistd.h>

#define INO32_GEN 1 /* types of file handles in the kernel */
#define INO64_GEN 0x81
#define OVL_MAGIC 0xfbU
#define ORIGIN "trusted.overlay.origin"

/* The content of the attribute ORIGIN: overlay's struct ovl_fb. */
struct __attribute__((packed)) origin {
	uint8_t version, magic, len, flags, type, uuid[16];
	uint32_t id[3];
};
static_assert(sizeof(struct origin) == 33, "as the kernel has it");

/* Mounts a file as erofs without a loop device: that takes Linux 6.12. */
static int mount_numbers(int file)
{
	char path[32];
	const struct mount_opt opts[] = { { "source", path }, { "ro", NULL }, { NULL, NULL } };
	struct err e = { 0 };
	int mnt;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	mnt = mount_new_err("erofs", opts, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
			    &e);
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

/* The type of file handles of this kernel's erofs: INO32_GEN, INO64_GEN or a newer one. */
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
