/* RUN --mount=type=cache|bind|tmpfs|secret,… */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "dockerfile/expand.h"

enum mount_type { MOUNT_BIND, MOUNT_CACHE, MOUNT_TMPFS, MOUNT_SECRET };
enum mount_sharing { SHARING_SHARED, SHARING_PRIVATE, SHARING_LOCKED };

struct run_mount {
	enum mount_type type;
	char *from; /* a stage or an image; NULL: the context */
	char *source; /* NULL: not given */
	char *target;
	char *id;
	char *env; /* of a secret: the variable that gets it */
	bool readonly, required;
	bool has_mode, has_uid, has_gid;
	uint32_t mode, uid, gid;
	uint64_t size; /* of tmpfs; 0: not given */
	enum mount_sharing sharing;
};

/*
 * @x expands variables in the values; with NULL, values that contain a '$' are not checked. -EINVAL, or -ENOTSUP for
 * valid options that are not supported.
 */
int run_mount_parse(const char *text, const struct expand *x, struct run_mount *ret, struct err *e);
void run_mount_done(struct run_mount *m);
static inline void run_mount_donep(struct run_mount *m)
{
	run_mount_done(m);
}
