/* Mounts by descriptor: made detached, attached by the owner of the mount namespace. All return an fd or -errno. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sys.h"

struct mount_opt {
	const char *key, *value; /* value NULL: a flag */
};

/* A new filesystem instance as a detached mount. @opts ends with a NULL key. */
int mount_new(const char *fs, const struct mount_opt *opts, unsigned attrs);
/* As mount_new, with the kernel's own explanation in @e. */
int mount_new_err(const char *fs, const struct mount_opt *opts, unsigned attrs, struct err *e);
/*
 * An overlay of the folders @lower, the uppermost first, with @opts. At most MOUNT_LOWERS of them; a kernel before 6.5 takes
 * about a dozen.
 */
#define MOUNT_LOWERS 24
int mount_overlay(const int *lower, unsigned n, const struct mount_opt *opts, unsigned attrs, struct err *e);
/* A detached copy of the mount at @path (dirfd when ""), with @attrs set; idmapped to @userns unless that is -1. */
int mount_clone(int dirfd, const char *path, uint64_t attrs, int userns);
/* Also copies what is mounted below. */
int mount_clone_tree(int dirfd, const char *path, uint64_t attrs, int userns);
/* As mount_clone(), of the mount that has the name of the folder @fd in our mount namespace, in which @fd itself cannot be copied. */
int mount_clone_named(int fd, uint64_t attrs);
/*
 * The same for a mount that we made and never attached, which is therefore private. To make it so again would take the kernel's one
 * lock of all mount trees a second time. _tree: with what is mounted below, and with the attributes that all of it has.
 */
int mount_copy(int dirfd, const char *path, uint64_t attrs);
int mount_copy_tree(int mnt, int userns);
/* Gives other ids to a new mount that was not attached or copied yet: see linux/idmap.h. 0 or -errno. */
int mount_map_ids(int mnt, int userns);
int mount_attach(int mnt, const char *target, uint64_t cookie);
int mount_attach_at(int mnt, int target, uint64_t cookie);
/* From Linux 6.15 on overlay takes layers that are attached nowhere, and such mounts can be copied. */
bool mount_detached_copies(void);
/* Attaches @mnt to the folder @place below @tree. A negative @mnt is returned as it is. */
int mount_put(int mnt, int tree, const char *place);
/* The same for a copy of @path below @from: mount_clone(). */
int mount_put_copy(int from, const char *path, uint64_t attrs, int tree, const char *place);
/* Change tmpfs size and inodes of a mounted instance. */
int mount_resize(int mnt, const char *size, const char *inodes);
/*
 * Makes all mounts of this mount namespace private: a mount here does not appear elsewhere, nor one from elsewhere
 * here.
 */
int mount_tree_private(void);
/*
 * Opens a file for reading through a mount of only that file: a process that maps it sees "/" as its path, and no other
 * file can be reached from it.
 */
int mount_open_file(int dirfd, const char *path);
