/* cloche-tar for what is not a call about one path: a child that gets descriptors and says in one line how it went. */
#pragma once
#include <jansson.h>

#include "service/service.h"

#define TAR_CHILD_FDS 3
#define TAR_CHILD_ARGS 8
#define TAR_CHILD_BYTES (64ULL << 30)
#define TAR_CHILD_ENTRIES "4000000"

struct tar_child;

/* Called once, later, also when it was killed. @result is what it said, NULL when r < 0. */
typedef void tar_child_fn(void *arg, int r, json_t *result, const struct err *e);

struct tar_child_plan {
	const char *mode; /* pack, unpack, apply */
	const char *option[TAR_CHILD_FDS]; /* "--stream", ...: what each descriptor is; NULL: no more */
	int fd[TAR_CHILD_FDS]; /* stay the caller's */
	const char *arg[TAR_CHILD_ARGS]; /* further options and their values; NULL: no more */
	uint64_t max_bytes; /* how many it may make; 0 = TAR_CHILD_BYTES */
	struct tenant *tenant; /* has at most a few at once */
};

int tar_child_start(struct service *s, const struct tar_child_plan *p, tar_child_fn *fn, void *arg,
		    struct tar_child **ret, struct err *e);
void tar_child_kill(struct tar_child *x);
