#include "engine/rootfs/unmerged.h"
#include "base/base.h"
#include "base/sys.h"
#include "base/test.h"
#include "layers/tree.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MARK "trusted.overlay.opaque"

struct place {
	char path[64];
	int top, lower[2];
	struct unmerged u;
};

/* A writable layer "u" above the layers "a" and "b", which have "var/tmp". */
static bool make(struct place *p)
{
	static const char *const names[] = { "u", "a", "b", "a/var", "b/var", "b/var/tmp" };
	bool ok;

	*p = (struct place){ .path = "/var/tmp/cloche-unmerged-test-XXXXXX" };
	p->top = mkdtemp(p->path) ? open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	ok = p->top >= 0;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		ok = ok && mkdirat(p->top, names[i], 0755) == 0;
	p->u.upper = openat(p->top, "u", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	p->lower[0] = openat(p->top, "a", O_PATH | O_DIRECTORY | O_CLOEXEC);
	p->lower[1] = openat(p->top, "b", O_PATH | O_DIRECTORY | O_CLOEXEC);
	p->u.lower = p->lower;
	p->u.n = 2;
	p->u.opaque = MARK;
	return ok && fchmodat(p->top, "b/var/tmp", 01777, 0) == 0 && fchmodat(p->top, "a/var", 0711, 0) == 0;
}

static void done(struct place *p)
{
	fd_close(p->u.upper);
	fd_close_many(p->lower, 2);
	fd_close(p->top);
	CHECK_EQ(tree_remove(AT_FDCWD, p->path), 0);
}

static bool is_there(const struct place *p, const char *name)
{
	return faccessat(p->top, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool is_marked(const struct place *p, const char *name)
{
	AUTO_CLOSE int fd = openat(p->top, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char v = 0;

	return fgetxattr(fd, MARK, &v, 1) == 1 && v == 'y';
}

static bool mark(const struct place *p, const char *name)
{
	AUTO_CLOSE int fd = openat(p->top, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fsetxattr(fd, MARK, "y", 1, 0) == 0;
}

static bool same(const struct place *p, const char *a, const char *b)
{
	struct stat x, y;

	return fstatat(p->top, a, &x, 0) == 0 && fstatat(p->top, b, &y, 0) == 0 && x.st_mode == y.st_mode &&
	       x.st_uid == y.st_uid && x.st_gid == y.st_gid && x.st_mtim.tv_sec == y.st_mtim.tv_sec &&
	       x.st_mtim.tv_nsec == y.st_mtim.tv_nsec;
}

TEST(an_empty_folder_is_made_with_its_owner_mode_and_times)
{
	struct place p;

	if (geteuid() != 0)
		SKIP("needs root");
	CHECK(make(&p));
	CHECK_EQ(fchownat(p.top, "b/var/tmp", 70000, 70001, 0), 0);
	CHECK_EQ(fchmodat(p.top, "b/var/tmp", 01777, 0), 0);
	CHECK_EQ(unmerged_make(&p.u, "/var//tmp/"), 0);
	CHECK(is_marked(&p, "u/var/tmp") && !is_marked(&p, "u/var"));
	CHECK(same(&p, "u/var/tmp", "b/var/tmp"));
	/* The topmost part of a folder is the one that is shown. */
	CHECK(same(&p, "u/var", "a/var"));
	/* A second one beside it, and the same again. */
	CHECK_EQ(mkdirat(p.top, "b/var/lock", 0750), 0);
	CHECK_EQ(unmerged_make(&p.u, "var/lock"), 0);
	CHECK_EQ(unmerged_make(&p.u, "var/tmp"), 0);
	CHECK(same(&p, "u/var", "a/var") && same(&p, "u/var/lock", "b/var/lock") && same(&p, "u/var/tmp", "b/var/tmp"));
	done(&p);
}

TEST(what_is_not_an_empty_folder_below_stays_merged)
{
	static const char *const paths[] = { "var/tmp",	 "var/none", "var/file", "var/link", "var/gone",
					     "none/tmp", "",	     "/",	 "..",	     "var/../var" };
	struct place p;

	if (geteuid() != 0)
		SKIP("needs root");
	CHECK(make(&p));
	CHECK_EQ(mknodat(p.top, "b/var/tmp/x", S_IFREG | 0600, 0), 0);
	CHECK_EQ(mknodat(p.top, "b/var/file", S_IFREG | 0600, 0), 0);
	CHECK_EQ(symlinkat("tmp", p.top, "b/var/link"), 0);
	/* The upper one of both layers says that it was removed. */
	CHECK_EQ(mkdirat(p.top, "b/var/gone", 0755), 0);
	CHECK_EQ(mknodat(p.top, "a/var/gone", S_IFCHR, makedev(0, 0)), 0);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		CHECK_EQ(unmerged_make(&p.u, paths[i]), 0);
	CHECK(!is_there(&p, "u/var"));
	done(&p);
}

TEST(a_layers_own_mark_hides_what_is_below_it_and_is_not_copied)
{
	struct place p;

	if (geteuid() != 0)
		SKIP("needs root");
	CHECK(make(&p));
	CHECK_EQ(mknodat(p.top, "b/var/tmp/x", S_IFREG | 0600, 0), 0);
	CHECK(mark(&p, "a/var"));
	CHECK_EQ(unmerged_make(&p.u, "var/tmp"), 0);
	CHECK(!is_there(&p, "u/var"));
	CHECK_EQ(mkdirat(p.top, "a/var/tmp", 0700), 0);
	CHECK_EQ(unmerged_make(&p.u, "var/tmp"), 0);
	CHECK(is_marked(&p, "u/var/tmp") && !is_marked(&p, "u/var") && same(&p, "u/var/tmp", "a/var/tmp"));
	done(&p);
}

TEST(a_folder_with_attributes_of_users_stays_merged)
{
	struct place p;
	AUTO_CLOSE int fd = -1;

	if (geteuid() != 0)
		SKIP("needs root");
	CHECK(make(&p));
	fd = openat(p.top, "b/var/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK_EQ(fsetxattr(fd, "user.x", "1", 1, 0), 0);
	CHECK_EQ(unmerged_make(&p.u, "var/tmp"), 0);
	CHECK(!is_there(&p, "u/var"));
	done(&p);
}

TEST(a_call_that_fails_leaves_no_half_made_folder)
{
	static const enum sys_id ids[] = { SYSID_openat, SYSID_getdents64, SYSID_mkdirat, SYSID_fchownat,
					   SYSID_fchmod };
	struct place p;

	if (geteuid() != 0)
		SKIP("needs root");
	for (size_t i = 0; i < ARRAY_LEN(ids); i++)
		for (unsigned nth = 1; nth < 3; nth++) {
			CHECK(make(&p));
			sys_test_fail(ids[i], ENOSPC, nth);
			(void)unmerged_make(&p.u, "var/tmp");
			sys_test_fail(ids[i], 0, 0);
			CHECK(!is_there(&p, "u/var") || same(&p, "u/var", "a/var"));
			CHECK(!is_there(&p, "u/var/tmp") || same(&p, "u/var/tmp", "b/var/tmp"));
			done(&p);
		}
}
