/* Runs skopeo in a hidden sandbox (work_sandbox.h). Its output is hostile, since it talks to registries. */
#pragma once
#include "base/buf.h"
#include "service/image/registry_conf.h"
#include "service/sandbox/sandbox.h"

struct skopeo;

/* Called once, when it has ended; not from within skopeo_run. @out is valid during the call. It may free the run. */
typedef void skopeo_fn(void *arg, int r, const struct buf *out, const struct err *e);

struct skopeo_plan {
	const struct registry_conf *conf; /* outlives the run */
	/* of skopeo, NULL-terminated; "--authfile" and other options are added after the first */
	const char *const *args;
	int stdin_fd; /* -1 = /dev/null; taken over */
	const char *what; /* for messages: "library/python:3.12" */
};

int skopeo_run(struct sandbox *b, const struct who *who, const struct skopeo_plan *p, skopeo_fn *fn, void *arg,
	       struct skopeo **ret, struct err *e);
void skopeo_free(struct skopeo *x); /* ends it if it runs, without a callback; NULL is allowed */
/* Turns skopeo's output on stderr into an error, without the logins of @conf: always < 0. */
int skopeo_error(const struct registry_conf *conf, const char *said, const char *what, struct err *e);
