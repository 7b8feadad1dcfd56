/* Applies rules of Landlock. */
#include "linux/landlock.h"
#include "base/base.h"
#include "base/sys.h"

#include <sys/stat.h>

/* The header of Debian 12 stops at ABI 2, so the bits are spelled out. */
#define FS_ALL_V1 ((1ULL << 13) - 1)
#define FS_EXECUTE (1ULL << 0)
#define FS_MAKE_CHAR (1ULL << 6)
#define FS_MAKE_BLOCK (1ULL << 11)
#define FS_REFER (1ULL << 13)
#define FS_TRUNCATE (1ULL << 14)
#define FS_IOCTL_DEV (1ULL << 15)
#define FS_READ_FILE (1ULL << 2)
#define FS_READ_DIR (1ULL << 3)
#define FS_OF_FILE (FS_EXECUTE | 1ULL << 1 /* write */ | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV)
#define NET_BIND_TCP (1ULL << 0)
#define SCOPE_ABSTRACT_UNIX (1ULL << 0)
#define SCOPE_SIGNAL (1ULL << 1)
#define RULESET_VERSION 1U
#define RULE_PATH_BENEATH 1

struct ruleset {
	uint64_t fs, net, scoped;
};

struct path_beneath {
	uint64_t allowed;
	int32_t parent;
} __attribute__((packed));

int landlock_abi(void)
{
	int abi = sys_landlock_create_ruleset(NULL, 0, RULESET_VERSION);

	if (abi == -ENOSYS || abi == -EOPNOTSUPP)
		return 0;
	return abi == 1 ? 0 : abi;
}

/*
 * mq_open() takes queues from a mount of the kernel's own, which is not below /. It shows the same files as the one at /dev/mqueue,
 * and rules belong to files.
 */
static int allow_queues(int rules, uint64_t what)
{
	AUTO_CLOSE int dir = sys_openat(AT_FDCWD, "/dev/mqueue", O_PATH | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW, 0);

	if (dir == -ENOENT || dir == -ENOTDIR)
		return 0;
	return dir < 0 ? dir : sys_landlock_add_rule(rules, RULE_PATH_BENEATH, &(struct path_beneath){ what, dir });
}

/* Of what @a forbids, @below is allowed below /, and @queues with message queues. */
static int restrict_self(int abi, struct ruleset *a, uint64_t below, uint64_t queues)
{
	/* An older kernel refuses the longer struct only if the part it does not know is not zero. */
	const size_t size = abi >= 6 ? sizeof(*a) : abi >= 4 ? offsetof(struct ruleset, scoped) : sizeof(a->fs);
	AUTO_CLOSE int rules = -1, root = -1;
	int r = 0;

	if (abi >= 3)
		a->fs |= FS_TRUNCATE;
	if (abi >= 6)
		a->scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL;
	rules = sys_landlock_create_ruleset(a, size, 0);
	if (rules < 0)
		return rules;
	if (below) {
		root = sys_openat(AT_FDCWD, "/", O_PATH | O_CLOEXEC | O_DIRECTORY, 0);
		if (root < 0)
			return root;
		r = sys_landlock_add_rule(rules, RULE_PATH_BENEATH, &(struct path_beneath){ below, root });
	}
	if (r == 0 && queues)
		r = allow_queues(rules, queues);
	return r < 0 ? r : sys_landlock_restrict_self(rules);
}

int landlock_restrict(void)
{
	int abi = landlock_abi();
	struct ruleset a = { .fs = FS_ALL_V1 | FS_REFER | (abi >= 3 ? FS_TRUNCATE : 0) };
	const uint64_t allowed = a.fs & ~(FS_MAKE_CHAR | FS_MAKE_BLOCK);

	if (abi <= 0)
		return abi < 0 ? abi : -EOPNOTSUPP;
	return restrict_self(abi, &a, allowed, allowed);
}

/* Of what is not in @free, @what is allowed below /. */
static int allow_files(uint64_t free, uint64_t what)
{
	int abi = landlock_abi();
	struct ruleset a = { .fs = (FS_ALL_V1 & ~free) | FS_REFER | (abi >= 5 ? FS_IOCTL_DEV : 0),
			     .net = abi >= 4 ? NET_BIND_TCP : 0 };

	if (abi <= 0)
		return abi < 0 ? abi : -EOPNOTSUPP;
	return restrict_self(abi, &a, what, 0);
}

int landlock_read_only(void)
{
	return allow_files(0, FS_READ_FILE | FS_READ_DIR);
}

int landlock_no_files(void)
{
	return allow_files(0, 0);
}

int landlock_no_writes(void)
{
	return allow_files(FS_READ_FILE | FS_READ_DIR, 0);
}

int landlock_write_below(const int *dirs, size_t n, unsigned flags)
{
	const uint64_t reads = FS_EXECUTE | FS_READ_FILE | FS_READ_DIR;
	const int abi = landlock_abi();
	struct ruleset a = { .fs = (FS_ALL_V1 & ~reads) | FS_REFER | (abi >= 3 ? FS_TRUNCATE : 0),
			     .scoped = abi >= 6 ? SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL : 0 };
	const uint64_t allowed = a.fs & ~(flags & LANDLOCK_NODES ? 0 : FS_MAKE_CHAR | FS_MAKE_BLOCK);
	AUTO_CLOSE int rules = -1;
	int r = 0;

	if (abi <= 0)
		return abi < 0 ? abi : -EOPNOTSUPP;
	rules = sys_landlock_create_ruleset(&a, abi >= 6 ? sizeof(a) : sizeof(a.fs), 0);
	if (rules < 0)
		return rules;
	for (size_t i = 0; r == 0 && i < n; i++) {
		struct stat st = { 0 };

		if (dirs[i] < 0)
			continue;
		if (fstat(dirs[i], &st) < 0)
			return -errno;
		r = sys_landlock_add_rule(
			rules, RULE_PATH_BENEATH,
			&(struct path_beneath){ S_ISDIR(st.st_mode) ? allowed : allowed & FS_OF_FILE, dirs[i] });
	}
	return r < 0 ? r : sys_landlock_restrict_self(rules);
}
