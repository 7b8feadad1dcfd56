/* Names of files that are known by number. */
#pragma once
#include "memory/dump.h"

struct wanted {
	dev_t dev;
	ino_t ino;
	uint32_t handle_len; /* 0: not known */
	int32_t handle_type;
	uint8_t handle[128];
	char *path; /* as it was found, the caller's to free; NULL: not found */
	struct stat st;
};

/* Whether @name in @dir (or @dir itself, when it is empty) is that file, where its filesystem can say. */
bool search_same(const struct wanted *w, int dir, const char *name);
/* All processes must be held. @hint: a path, may be NULL: its folder is searched first. Gives up after some seconds. */
void search_names(const struct dump *d, struct wanted *want, size_t n, const char *hint);
