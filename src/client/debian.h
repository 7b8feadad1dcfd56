/* A small Debian as an archive, made by mmdebstrap from the sources of packages that this machine's apt uses. */
#pragma once
#include "base/buf.h"
#include "base/err.h"

#define DEBIAN_SOURCES 16
#define DEBIAN_TEXT 512

struct debian {
	char suite[64]; /* "bookworm" */
	char source[DEBIAN_SOURCES][DEBIAN_TEXT]; /* lines of a sources.list */
	size_t sources;
	char proxy[DEBIAN_TEXT]; /* of apt; "" = none */
	char host[DEBIAN_SOURCES][DEBIAN_TEXT]; /* HOST:PORT that apt connects to */
	size_t hosts;
};

/* @mirror: one URL to use in place of apt's sources, @suite a name there; NULL: as this machine has it. */
int debian_find(const char *mirror, const char *suite, struct debian *ret, struct err *e);
/* A tar in a file that has no name. -EINTR when the caller is to end. */
int debian_make(const struct debian *d, int *ret_fd, struct err *e);
