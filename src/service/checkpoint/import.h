/*
 * Imports a checkpoint from an exported file. The file is parsed by cloche-tar alone, and its content is created by a
 * file worker in a hidden sandbox, which is then sealed like any other. After a failure nothing is kept.
 */
#pragma once
#include "service/checkpoint/checkpoint.h"

struct import;

/* Called once, later, unless import_cancel() was called. @c is NULL when it failed; *e says why. */
typedef void import_fn(void *arg, struct checkpoint *c, const struct err *e);

/* Instead of what the file says, each; NULL: that. */
struct import_request {
	const char *name, *label;
	const char *isolation; /* only files are imported: a container's may become a machine's, and vice versa */
	/* as the file says; else none, since the author of the file is not the caller */
	bool keep_network, keep_mounts;
};

/* @ret_stream: where the file's bytes go, the caller's; shut down or closed behind the last. */
int import_start(struct service *s, const struct who *who, const struct import_request *w, import_fn *fn, void *arg,
		 struct import **ret, int *ret_stream, struct err *e);
void import_cancel(struct import *x);

/* What goes into an exported file first: see docs/design/0008-diff.md. */
int export_manifest(const struct checkpoint *c, struct buf *out, struct err *e);
