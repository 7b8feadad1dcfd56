/* Capabilities. Numbers only, no libcap: this runs in the agent between clone and exec. */
#pragma once
#include <stdint.h>

/*
 * What root of a sandbox keeps, inside its own user namespace only: what dpkg, apt-get and pip need to unpack files
 * with owners and modes and to drop to other users. No SYS_ADMIN, SYS_PTRACE, NET_ADMIN, NET_RAW, MKNOD, SYS_CHROOT.
 */
#define CAPS_ROOT                                                                                                      \
	((1ULL << 0) /* CHOWN */ | (1ULL << 1) /* DAC_OVERRIDE */ | (1ULL << 3) /* FOWNER */ |                         \
	 (1ULL << 4) /* FSETID */ | (1ULL << 5) /* KILL */ | (1ULL << 6) /* SETGID */ | (1ULL << 7) /* SETUID */ |     \
	 (1ULL << 10) /* NET_BIND_SERVICE */ | (1ULL << 31) /* SETFCAP */)
/* What lets a file outlive its writer's rights: taken from root too where it can write files of the host. */
#define CAPS_FILE_RIGHTS ((1ULL << 4) /* FSETID */ | (1ULL << 31) /* SETFCAP */)
/*
 * What the agent keeps once the sandbox is up: to start execs as any user with what they may have, and to signal them.
 */
#define CAPS_AGENT CAPS_ROOT
/* And until the first of them starts: to restore processes, with their ids and registers. */
#define CAPS_RESTORE ((1ULL << 40) /* CHECKPOINT_RESTORE */)
#define CAPS_AGENT_FIRST (CAPS_AGENT | CAPS_RESTORE | (1ULL << 19) /* SYS_PTRACE */)

/* All return 0 or -errno. */
int caps_set(uint64_t permitted_effective, uint64_t inheritable);
int caps_permitted(uint64_t *ret);
int caps_raise_effective(void); /* all that are permitted */
int caps_inherit(uint64_t inheritable); /* the other sets stay */
int caps_drop_bounding(uint64_t keep); /* drops all others, up to the kernel's last */
int caps_raise_ambient(uint64_t set);
