/* Landlock: a second lock on the filesystem, signals and abstract sockets, held by the kernel apart from mounts. */
#pragma once
#include <stddef.h>

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
/*
 * For programs that need no files: nothing but reading them, or not even that (paths; what is open stays). From ABI 4 no
 * TCP port can be bound either; the rest as above. What is given up once does not come back. -EOPNOTSUPP: the kernel has
 * no Landlock. Needs no_new_privs.
 */
int landlock_read_only(void);
int landlock_no_files(void);
/* Files can be read, in mounts that are attached nowhere, too; nothing else can be done to them. Otherwise as the two above. */
int landlock_no_writes(void);
/* Files can be read as before; they are written, made, renamed and removed below the @n folders (or files) @dirs alone (-1: none). As above. */
#define LANDLOCK_NODES 1U /* flag: devices can be made there, too */
int landlock_write_below(const int *dirs, size_t n, unsigned flags);
