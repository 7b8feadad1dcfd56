#include "linux/landlock.h"
#include "base/base.h"
#include "base/sys.h"

/* The header of Debian 12 stops at ABI 2, so the bits are spelled out. */
#define FS_ALL_V1 ((1ULL << 13) - 1)
#define FS_MAKE_CHAR (1ULL << 6)
#define FS_MAKE_BLOCK (1ULL << 11)
#define FS_REFER (1ULL << 13)
#define FS_TRUNCATE (1ULL << 14)
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

int landlock_restrict(void)
{
	int abi = landlock_abi();
	struct ruleset a = { .fs = FS_ALL_V1 | FS_REFER };
	AUTO_CLOSE int rules = -1, root = -1;
	int r;

	if (abi <= 0)
		return abi < 0 ? abi : -EOPNOTSUPP;
	if (abi >= 3)
		a.fs |= FS_TRUNCATE;
	if (abi >= 6)
		a.scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL;
	/* An older kernel refuses the longer struct only if the part it does not know is not zero. */
	rules = sys_landlock_create_ruleset(&a, abi >= 6 ? sizeof(a) : sizeof(a.fs), 0);
	if (rules < 0)
		return rules;
	root = sys_openat(AT_FDCWD, "/", O_PATH | O_CLOEXEC | O_DIRECTORY, 0);
	if (root < 0)
		return root;
	r = sys_landlock_add_rule(rules, RULE_PATH_BENEATH,
				  &(struct path_beneath){ a.fs & ~(FS_MAKE_CHAR | FS_MAKE_BLOCK), root });
	if (r < 0)
		return r;
	return sys_landlock_restrict_self(rules);
}
