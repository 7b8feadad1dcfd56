/* Landlock: a second lock on the filesystem, signals and abstract sockets, held by the kernel apart from mounts. */
#pragma once

/*
 * The kernel's ABI version, 0 when it has none (version 1 forbids every rename between folders, so it counts as none),
 * or -errno when it would not say: that is no reason to go without.
 */
int landlock_abi(void);
/*
 * Everything below / stays as permissions say, but no device node can be made, no mount changed, and from ABI 6 no
 * signal sent and no abstract socket reached outside. Needs no_new_privs. Returns 0 or -errno.
 */
int landlock_restrict(void);
