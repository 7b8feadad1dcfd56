/*
 * Contexts of a sandbox: each keeps the state of an interpreter between calls. A kernel (docs/design/0019-interpreter.md) is an
 * exec of the sandbox, started and ended by this room; what a context is, is kept in that exec's row, so that contexts are found
 * again after a restart, in a memory image, and in forks.
 *
 * Calls on one context are done one after the other, in the order in which they came. All callbacks come later, never from
 * within the call that asked for them.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "service/sandbox/sandbox.h"

enum context_language { CONTEXT_PYTHON, CONTEXT_JAVASCRIPT, CONTEXT_TYPESCRIPT, CONTEXT_SHELL, CONTEXT_R };
#define CONTEXT_LANGUAGES 5U
#define CONTEXT_NAMES "python, javascript (js), typescript (ts), shell (bash, sh) or r"
#define CONTEXTS_MAX 32U /* of one sandbox, the default ones included */
#define CONTEXT_QUEUE_MAX 64U /* calls that wait for one context */
#define CONTEXT_CODE_MAX (32U * 1024U * 1024U)
#define CONTEXT_OUTPUT_MAX (16ULL * 1024 * 1024) /* of `output_limit`: text of one execution, both streams */
#define CONTEXT_RESULT_MAX (10ULL * 1024 * 1024) /* of `result_limit`: one result, in all its formats */

/* In any case: names, and their short forms. */
bool context_language_parse(const char *text, enum context_language *ret);
const char *context_language_name(enum context_language l);

struct context;
struct context_task;

/* --- making one --- */

struct context_spec {
	enum context_language language;
	char *cwd; /* NULL: the sandbox's */
	json_t *env, *restricted; /* or NULL */
	uint64_t output_limit, result_limit;
};
/* {language?, cwd?, env?, restrict?, output_limit?, result_limit?}; ERR_INVALID. */
int context_spec_read(const struct sandbox *b, const json_t *from, struct context_spec **ret, struct err *e);
void context_spec_free(struct context_spec *s);
DEFINE_AUTO(struct context_spec, context_spec_free)

/* @c is referenced by nobody: it is good during the call. NULL: *e says why, and there is no such context (any more). */
typedef void context_ready_fn(void *arg, struct context *c, const struct err *e);
/* Takes @spec over on success. @fn is called when its kernel is ready. */
int context_make(struct sandbox *b, const struct who *who, struct context_spec *spec, context_ready_fn *fn, void *arg,
		 struct err *e);
/*
 * For a memory image: the default one of that language is made, of an interpreter that has imported what plots and tables need. The
 * sandbox is the daemon's own, and its origin says ->reseeds in copies: then they begin with other random numbers.
 */
int context_warm(struct sandbox *b, const char *language, context_ready_fn *fn, void *arg, struct err *e);
/* By id; or the default one of a language, by its name: that is made by its first use. NULL and ERR_NOT_FOUND. */
struct context *context_find(struct sandbox *b, const char *id, struct err *e);
void context_ref(struct context *c);
void context_unref(struct context *c);

/* Python's and JavaScript's default ones first, then in the order in which they were made. Each as one object. */
void contexts_write(struct sandbox *b, struct json *j);
void context_write(const struct context *c, const char *key, struct json *j);
const char *context_id(const struct context *c);

/* --- running code --- */

struct context_request {
	const char *code;
	size_t code_len;
	const json_t *env; /* for this execution; or NULL */
	uint64_t timeout_ms; /* 0 = none; from when it begins */
};
struct json_read;
/* The same fields out of an object that has others as well. ->timeout_ms is the default of `timeout`; @j keeps the error. */
void context_request_fields(const struct service_opts *o, struct json_read *j, struct context_request *ret);
/* {code, timeout?, env?}, from the text of a body: `code` may have NULs. ->code and ->env are good as long as *ret_o. */
int context_request_read(const struct sandbox *b, const char *data, size_t len, struct context_request *ret,
			 json_t **ret_o, struct err *e);
/* The same from an object, which must stay as long. */
int context_request_from(const struct sandbox *b, const json_t *o, struct context_request *ret, struct err *e);

enum context_event_kind { CONTEXT_STDOUT, CONTEXT_STDERR, CONTEXT_RESULT, CONTEXT_ERROR, CONTEXT_CLEAR };
const char *context_event_name(enum context_event_kind k);
/* What the code does, as it does it: masked, checked, and bounded by the context's limits. Good during the call. */
struct context_event {
	enum context_event_kind kind;
	const char *json; /* one object: {text}, {mime, is_main, …}, {name, value, traceback, …}, {wait} */
	size_t len;
	const char *text; /* of an output: the inside of a JSON string, to be joined with others */
	size_t text_len;
};

struct context_end {
	const struct err *failed; /* it was not run: why. NULL: it was */
	/* "ok", "error", "interrupted", "timeout", "result", "protocol", "restarted", "deleted" or one of a verdict */
	const char *cause;
	char detail[240];
	bool lost; /* of the variables: the context begins anew */
	bool has_limit;
	uint64_t limit, peak;
	uint64_t oom_kills; /* processes that the memory limit killed while it ran; 0 = none is known */
	uint64_t count; /* of the execution; 0 = not known */
	uint64_t dropped; /* bytes of output beyond the limit */
	unsigned left_out; /* results beyond the limit */
	uint64_t wall_ms;
	bool measured; /* by the kernel itself: */
	uint64_t cpu_ms, memory_peak;
	const char *reply; /* of a question: the answer's members, as one JSON object; else NULL */
	size_t reply_len;
};
void context_end_write(const struct context_end *end, struct json *j); /* execution_count, verdict, dropped, usage */

struct context_reader {
	void (*begun)(void *arg); /* it is with the kernel, which is ready; or NULL */
	void (*event)(void *arg, const struct context_event *ev);
	void (*end)(void *arg, const struct context_end *end); /* the last call; the task is gone then */
	void *arg;
};
/* *ret is good until ->end, or context_task_leave(). */
int context_execute(struct context *c, const struct who *who, const struct context_request *request,
		    const struct context_reader *reader, struct context_task **ret, struct err *e);
/*
 * A question: `complete`, `is_complete`, `inspect`, `history`, with the members that docs/design/0019-interpreter.md says, as an
 * object. Taken over.
 */
int context_ask(struct context *c, const struct who *who, const char *type, json_t *members,
		const struct context_reader *reader, struct context_task **ret, struct err *e);
/* No more events until context_task_go(): the code waits. */
void context_task_hold(struct context_task *t);
void context_task_go(struct context_task *t);
/* As context_interrupt(), for this one alone: if it waits, it ends without having begun. */
void context_task_interrupt(struct context_task *t);
/* Its caller is gone, and is not called again: what runs is interrupted, and the context takes the next call within seconds. */
void context_task_leave(struct context_task *t);

/* --- what else can be done to one --- */

/* What runs gets SIGINT; returns whether something does. */
int context_interrupt(struct context *c, const struct who *who, bool *ret_busy, struct err *e);
/* Its kernel is ended, what runs with it, and a new one is started; calls that wait stay. */
int context_restart(struct context *c, const struct who *who, context_ready_fn *fn, void *arg, struct err *e);
/* A default one is there again, by its next use. */
int context_delete(struct context *c, const struct who *who, struct err *e);
