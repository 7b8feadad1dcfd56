/*
 * What this host's kernel can do, found by trying each thing in a child that is gone afterwards, not by a version
 * number. For `cloche doctor`, and for error messages that name what is missing.
 */
#pragma once
#include <stddef.h>

enum feature_state {
	FEATURE_OK,
	FEATURE_MISSING, /* no sandbox without it */
	FEATURE_OPTIONAL_MISSING, /* slower or less without it */
};

struct feature {
	const char *id, *name;
	enum feature_state state;
	char detail[160]; /* what was found */
	char remedy[160]; /* what to do; empty when there is nothing to do */
};

#define FEATURES_MAX 32

/*
 * Fills at most @max entries and returns how many there are to fill. Leaves no process, mount, namespace or file
 * behind; the `cloche` control groups that every engine process makes stay. Blocks for some tens of milliseconds.
 */
size_t features_check(struct feature *out, size_t max);

/* 0 when the filesystem at @dirfd can be mounted with shifted ids, else -errno. */
int feature_idmap(int dirfd);
