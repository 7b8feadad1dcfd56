/* What is copied: paths and patterns of a copy_spec, found among the files of a worker and read from it. */
#pragma once
#include "tar/copy_spec.h"
#include "tar/tar.h"

#define LINKS_FOLLOWED 40

/* A path below @under, after following links, its last part too. */
struct found {
	char path[FILE_PATH_MAX]; /* relative, "" = @under itself */
	uint32_t mode; /* 0: there is nothing */
	size_t there; /* so much of ->path exists */
};
/* 0 or -errno with @e set. Links never lead out of @under. */
int host_find(struct host *h, const char *under, const char *path, struct found *ret, struct err *e);

struct match {
	char *path; /* as the pattern has it, relative */
	char *real; /* where it is */
	size_t pivot; /* --parents: what is before is not kept */
	uint32_t mode;
};

struct source {
	struct host *h;
	const struct copy_spec *spec;
	struct ignore file; /* .dockerignore */
	struct match *match;
	size_t matches;
	uint64_t left; /* of the file under way */
	uint8_t xattrs[FILE_DATA_MAX]; /* of the present entry, as proto/change.h has them */
	uint32_t xattrs_len;
	const uint8_t *data; /* received and not given yet */
	size_t have;
};

/* Finds what @spec selects; nothing at all is an error. */
int source_open(struct source *s, struct host *h, const struct copy_spec *spec, struct err *e);

struct visit {
	const struct match *match;
	const struct file_entry *entry;
	const char *rel; /* below the match, "" = itself */
};
typedef int visit_fn(void *arg, const struct visit *v, struct err *e);
/* Calls @fn for all of a match, folders first; it may read a file's content. */
int source_visit(struct source *s, const struct match *m, visit_fn *fn, void *arg, struct err *e);
/* Content of the file that is being visited, or opened: bytes, 0 at its end, -errno. */
ssize_t source_read(struct source *s, const void **ret, size_t room, struct err *e);
/* A match that is a file, alone, as often as it is asked for. It is then read to its end, or source_close() is called. */
int source_file(struct source *s, const struct match *m, struct file_entry *ret, struct err *e);
int source_close(struct source *s, struct err *e);
