/*
 * Code that is run once: a sandbox of its own is made, hidden from callers, files are written into it, the code is run in a
 * context (service/context/context.h), what it has left in its working folder is read, and the sandbox ends. Nothing of it
 * stays; a daemon that dies meanwhile ends the sandbox when it starts again.
 */
#pragma once
#include <jansson.h>

#include "service/context/context.h"
#include "service/service.h"

#define RUN_BODY_MAX (64U * 1024U * 1024U)
#define RUN_FILES_MAX 256U
#define RUN_GLOBS_MAX 64U
#define RUN_ARTIFACTS_MAX 100U /* that are listed */
#define RUN_ARTIFACT_MAX (16U * 1024U * 1024U) /* whose content is given */
#define RUN_ARTIFACTS_BYTES (32U * 1024U * 1024U) /* of all contents */

struct run;

struct run_artifact {
	char *path; /* relative to the working folder */
	uint64_t size;
	const char *mime;
	char *content; /* base64, or NULL: it is too large, or could not be read */
};

struct run_result {
	const struct context_end *end; /* ->failed: nothing was run, and why */
	const struct run_artifact *artifact;
	unsigned artifacts;
	uint64_t left_out; /* artifacts beyond RUN_ARTIFACTS_MAX, or that could not be looked for */
	bool listed; /* they were asked for */
};
/* `artifacts` and `artifacts_dropped`, inside of an open object. */
void run_result_write(const struct run_result *r, struct json *j);

struct run_reader {
	void (*begun)(void *arg); /* the code begins; or NULL */
	void (*event)(void *arg, const struct context_event *ev);
	void (*end)(void *arg, const struct run_result *r); /* the last call; the run is gone then */
	void *arg;
};
/*
 * {language?, code, files?, packages?, image?, isolation?, template?, limits?, network?, secrets?, artifacts?, timeout?, env?}, from the
 * text of a body: `code` may have NULs. Nothing of @reader is called from within. *ret is good until ->end, or run_leave().
 */
int run_start(struct service *s, const struct who *who, const char *data, size_t len, const struct run_reader *reader,
	      struct run **ret, struct err *e);
/* As context_task_hold() and context_task_go(). */
void run_hold(struct run *r);
void run_go(struct run *r);
/* Its caller is gone, and is not called again: everything ends. */
void run_leave(struct run *r);
