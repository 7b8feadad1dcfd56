/* The devices that this machine describes: files of CDI in their folders, and GPUs that no file describes. */
#pragma once
#include <sys/types.h>

#include "base/buf.h"
#include "devices/cdi.h"

#define CATALOG_FILES 64
#define CATALOG_FOLDERS 8
#define DEVICE_KIND_MAX 320
#define CATALOG_FOUND (-1) /* ->priority of what no file describes */

struct catalog_file {
	char path[512];
	int priority; /* the later folder's is higher */
	struct tree_doc doc; /* empty when ->e has a message */
	struct err e;
};

struct catalog {
	struct catalog_file file[CATALOG_FILES];
	unsigned n;
};

struct catalog_opts {
	const char *folder[CATALOG_FOLDERS]; /* the lowest priority first */
	unsigned folders;
	const char *root; /* where /dev, /proc and libraries are looked for: "" */
	uid_t owner; /* of files that are read, beside root */
	bool any_owner; /* in the user namespace of `cloche run`, where root has no number: it has asked before it entered that */
};

/* Files that are wrong are in it, with the reason; only what concerns all of them is an error. */
int catalog_load(const struct catalog_opts *o, struct catalog *ret, struct err *e);
void catalog_done(struct catalog *c);

struct catalog_found {
	const struct catalog_file *file;
	const struct tree *device;
};
/* By "vendor.com/class=name": -ENOENT, or -EEXIST when two files of one folder have it. */
int catalog_find(const struct catalog *c, const char *name, struct catalog_found *ret, struct err *e);
/* Every device once, in the files' order: calls @fn until that returns something else than 0, which it returns. */
int catalog_each(const struct catalog *c, int (*fn)(void *arg, const char *kind, const struct catalog_found *f),
		 void *arg);
const char *catalog_kind(const struct catalog_file *f);

/* GPUs (gpu.c): as text of a CDI file for each vendor that has some; nothing otherwise. */
int gpu_describe_nvidia(const char *root, struct buf *ret);
int gpu_describe_amd(const char *root, struct buf *ret);
/* The minor number of NVIDIA's GPU of that UUID, or -ENOENT. */
int gpu_minor(const char *root, const char *uuid);
/* The number at the end of "/dev/nvidia3", -1: another node. */
int gpu_node_minor(const char *path);
