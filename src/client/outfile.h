/*
 * A local file that is being written: beside its final path, without a name where the filesystem supports that, and
 * linked to the path when it is complete. Until then an earlier file stays intact, and a kill leaves no part behind.
 */
#pragma once
#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct outfile {
	int fd;
	const char *dst;
	bool direct; /* a pipe or a device: written to, not replaced */
	char tmp[PATH_MAX + 32]; /* its name until then, "" when it has none */
};
#define OUTFILE_INIT                                                                                                   \
	{                                                                                                              \
		.fd = -1                                                                                               \
	}

int outfile_open(struct outfile *o, const char *dst, struct err *e);
int outfile_commit(struct outfile *o, mode_t mode, struct err *e);
/* What was not put in place is gone. */
void outfile_done(struct outfile *o);
static inline void outfile_donep(struct outfile *o)
{
	outfile_done(o);
}
