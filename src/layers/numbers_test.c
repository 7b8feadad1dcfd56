#include "layers/numbers.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "layers/tree.h"
#include "linux/mount.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID "0123456789abcdef01234567"

struct place {
	char path[64];
	int store, mem, meta;
	struct mem_head head;
};

/* Makes a layer whose image has files with these numbers. Every second one is in the writable layer. */
static bool make(struct place *p, const uint64_t *number, unsigned n)
{
	bool ok;

	memset(p, 0, sizeof(*p));
	snprintf(p->path, sizeof(p->path), "/var/tmp/cloche-numbers-test-XXXXXX");
	p->store = mkdtemp(p->path) ? open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	ok = p->store >= 0 && mkdirat(p->store, ID, 0700) == 0 && mkdirat(p->store, ID "/mem", 0700) == 0;
	p->mem = ok ? openat(p->store, ID "/mem", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	p->meta = ok ? openat(p->mem, "meta", O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	p->head.section[MEM_S_FILE].off = 64;
	p->head.section[MEM_S_FILE].n = n;
	for (unsigned i = 0; ok && i < n; i++) {
		struct mem_file f = { .ino = number[i], .flags = i % 2 ? 0 : MEM_FILE_UPPER, .mode = S_IFREG };

		ok = pwrite(p->meta, &f, sizeof(f), (off_t)(64 + i * sizeof(f))) == sizeof(f);
	}
	return ok && p->meta >= 0;
}

static void done(struct place *p)
{
	fd_close(p->meta);
	fd_close(p->mem);
	fd_close(p->store);
	CHECK_EQ(tree_remove(AT_FDCWD, p->path), 0);
}

static unsigned write_sets(struct place *p, bool joins)
{
	int fds[NUMBERS_SETS];
	unsigned n = 0;

	if (numbers_write(p->mem, p->meta, &p->head, joins, fds, NULL) < 0)
		return 99;
	while (n < NUMBERS_SETS && fds[n] >= 0)
		n++;
	fd_close_many(fds, NUMBERS_SETS);
	return n;
}

static uint64_t number_of(int root, const char *name)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), FRAME_NUMBERS "/%s", name);
	return fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_size || st.st_uid != 1000 ? 0 : st.st_ino;
}

TEST(overlay_shows_any_number_also_twice)
{
	/* The last of them is in no upper layer, so no number is needed. */
	static const uint64_t want[] = { 1, 0, 36, 0, 57, 0, 57, 0, 70000, 0, 12345678, 0, 5000000000ULL, 99 };
	const struct mount_opt tmpfs[] = { { "size", "1m" }, { NULL, NULL } };
	char lower[2][32], upper[40], work[40];
	const struct mount_opt opts[] = {
		{ "lowerdir+", lower[0] }, { "lowerdir+", lower[1] }, { "upperdir", upper }, { "workdir", work },
		{ "xino", "off" },	   { "index", "off" },	      { NULL, NULL }
	};
	struct numbers x[2];
	struct place p;
	int top, u, root;

	CHECK(make(&p, want, ARRAY_LEN(want)));
	CHECK_EQ(write_sets(&p, false), 2);
	top = mount_new("tmpfs", tmpfs, 0);
	CHECK(top >= 0 && mkdirat(top, "u", 0755) == 0 && mkdirat(top, "w", 0700) == 0);
	u = openat(top, "u", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (unsigned i = 0; i < 2; i++) {
		numbers_open(p.store, ID, i, &x[i]);
		CHECK(x[i].mnt >= 0);
		CHECK_EQ(x[i].n, i ? 1 : 6);
		numbers_lay_out(&x[i], u, 1000);
		snprintf(lower[i], sizeof(lower[i]), "/proc/self/fd/%d", x[i].mnt);
	}
	snprintf(upper, sizeof(upper), "/proc/self/fd/%d/u", top);
	snprintf(work, sizeof(work), "/proc/self/fd/%d/w", top);
	root = mount_new("overlay", opts, 0);
	CHECK(root >= 0);
	CHECK_EQ(number_of(root, "1.0"), 1);
	CHECK_EQ(number_of(root, "36.0"), 36);
	CHECK_EQ(number_of(root, "57.0"), 57);
	CHECK_EQ(number_of(root, "57.1"), 57);
	CHECK_EQ(number_of(root, "70000.0"), 70000);
	CHECK_EQ(number_of(root, "12345678.0"), 12345678);
	CHECK_EQ(number_of(root, "5000000000.0"), 5000000000ULL);
	CHECK_EQ(number_of(root, "99.0"), 0);
	CHECK_EQ(number_of(root, "36.1"), 0);
	fd_close(root);
	fd_close(u);
	fd_close(top);
	for (unsigned i = 0; i < 2; i++)
		numbers_done(&x[i]);
	done(&p);
}

static int cut_off(int mem)
{
	AUTO_CLOSE int fd = openat(mem, "numbers0", O_WRONLY | O_TRUNC | O_CLOEXEC);

	return fd;
}

TEST(joined_layers_ask_for_all_numbers_and_nothing_for_none)
{
	static const uint64_t want[] = { 0, 99, 0, 0 };
	struct numbers x;
	struct place p;
	struct stat st;

	CHECK(make(&p, want, ARRAY_LEN(want)));
	CHECK_EQ(write_sets(&p, false), 0);
	CHECK(fstatat(p.mem, "numbers0", &st, 0) < 0);
	numbers_open(p.store, ID, 0, &x);
	CHECK_EQ(x.mnt, -1);
	CHECK_EQ(write_sets(&p, true), 1);
	numbers_open(p.store, ID, 0, &x);
	CHECK(x.mnt >= 0 && x.n == 1 && x.number[0] == 99);
	numbers_done(&x);
	/* A damaged file is treated as a missing one. */
	CHECK(cut_off(p.mem) >= 0);
	numbers_open(p.store, ID, 0, &x);
	CHECK_EQ(x.mnt, -1);
	done(&p);
}
