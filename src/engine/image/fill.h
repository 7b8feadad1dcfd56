/*
 * Filling what sandboxes start from, in one of two ways: in this process, or in cloche-files (main.c), which has fewer rights. A
 * program is linked with the ways that it names.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"

enum image_what {
	IMAGE_HOST, /* image `host` */
	IMAGE_DEVICES, /* the same, with device nodes */
	IMAGE_CPUS, /* the files of ->n processors */
	IMAGE_DISK, /* an ext4 filesystem with ->n inodes */
};
#define IMAGE_NAMES                                                                                                    \
	{                                                                                                              \
		"host", "devices", "cpus", "disk"                                                                      \
	}

struct image_fill {
	enum image_what what;
	int fd; /* a folder, or for a disk a file: empty, and removed by the caller after an error */
	uint64_t n;
	uint64_t journal; /* of a disk: MiB; 0: none */
};

struct image_filler {
	int (*fill)(int program, const struct image_fill *x, struct err *e);
	int program; /* cloche-files, open, the caller's; -1: not installed, or not needed */
};

int image_fill_here(int program, const struct image_fill *x, struct err *e);
/* The calling thread must not end meanwhile: the program would end with it. Any number of threads. */
int image_fill_child(int program, const struct image_fill *x, struct err *e);

/* --- between the two processes --- */
/* Places of descriptors from SPAWN_FIRST on. The arguments are a name, ->n and ->journal. */
enum image_place { IMAGE_CONTROL, IMAGE_FD, IMAGE_PLACES };

struct image_answer {
	int32_t result; /* 0 or -errno */
	struct err e;
};
