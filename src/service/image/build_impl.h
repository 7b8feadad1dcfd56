/*
 * Shared by the parts of the builder: build.c (start, events, end), build_plan.c, build_config.c, build_step.c,
 * build_copy.c, build_run.c.
 */
#pragma once
#include "dockerfile/check.h"
#include "dockerfile/expand.h"
#include "dockerfile/mount.h"
#include "service/file/tar_child.h"
#include "service/image/build.h"
#include "service/image/build_box.h"
#include "service/image/struct.h"
#include "service/struct.h"

#define BUILD_KEY 65U /* hexadecimal SHA-256 and NUL */
#define BUILD_COPY_BOXES 4U

struct build_stage {
	struct oci_config config;
	struct oci_list args; /* NAME=VALUE declared by ARG */
	struct image_chain *chain; /* pinned; NULL: no files */
	char key[BUILD_KEY]; /* key of the chain of steps */
	int parent; /* the stage it is based on, or -1 */
	struct image *image; /* or the image it is based on, referenced; NULL: scratch */
	bool needed, begun, cmd_set;
	bool no_cache; /* an earlier step was made without the cache */
};

/* State of the present step. */
struct build_step {
	const struct instruction *in;
	uint64_t begun_ns;
	char key[BUILD_KEY]; /* key of its result */
	bool cached;
	struct build_box *box; /* the sandbox that it runs in */
	struct build_box *from; /* whose files are copied; NULL: the context's */
	struct buf spec; /* specification of a copy, in the format of tar/copy_spec.h */
	bool no_source; /* copies nothing from elsewhere */
	bool network; /* of a RUN: it had a network */
	bool small; /* its result can stay in memory until it is sealed */
};

struct build {
	struct service *s;
	struct who who;
	const struct build_calls *calls;
	void *arg;
	/* The request. */
	json_t *request;
	const json_t *network; /* NULL: none */
	bool no_cache;
	const char *target;
	char missing[OCI_NAME_MAX]; /* a missing image that the plan needs; "" = none */
	/* The plan. */
	struct dockerfile *file;
	struct stages stages;
	struct build_stage *stage; /* one per stage */
	struct oci_list meta; /* values of ARG before the first FROM */
	unsigned at, total, number; /* index of the stage; number of all steps; the present step's number */
	size_t next; /* index of the next instruction */
	struct dockerfile **trigger; /* ONBUILD of base images: parsed, one instruction each */
	size_t triggers, trigger_at;
	struct operation *operation;
	struct build_step step;
	struct build_box *context;
	bool context_ready, has_context;
	int context_worker; /* the tar child's other end until the sandbox is up */
	struct tar_child *child; /* of the context, or of the step */
	struct build_run *run;
	struct build_mounts *mounts; /* of a RUN */
	struct build_resolver *resolver; /* likewise, at its end */
	bool ended, told, counted;
	uint64_t work; /* steps that are left for what is computed of the Dockerfile's text */
	uint64_t taken; /* bytes of the context that count for the tenant */
	uint64_t kept; /* bytes of the stages' configurations so far */
	int r;
	struct err e;
	struct assembly *assembly; /* the image being completed */
	struct image *image; /* referenced */
	struct turn_wait wait;
};

static inline struct build_stage *build_stage_now(const struct build *b)
{
	return &b->stage[b->at];
}
static inline const char *build_chain(const struct build_stage *g)
{
	return g->chain ? g->chain->id : "";
}

/* build.c */
void build_fail(struct build *b, int r, const struct err *e); /* ends the build soon, with an error */
void build_event(struct build *b, struct buf *object);
void build_output(struct build *b, const char *stream, const char *p, size_t len);
void build_warn(struct build *b, unsigned line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void build_go_on(struct build *b); /* continues soon with the next step */
/* Extends @key by @n texts. */
void build_key(char key[BUILD_KEY], const char *const *text, size_t n);

void build_child_gone(struct build *b); /* for callbacks of ->child after the end */

/* build_plan.c */
int build_plan(struct build *b, struct err *e);
void build_plan_done(struct build *b);
struct expand build_expand(struct build *b); /* variables of the present stage */
/* Expands a word of the step's instruction; to be freed. */
int build_word(struct build *b, const char *text, char **ret, struct err *e);
int build_arg(struct build *b, const struct instruction *in, bool meta,
	      struct err *e); /* @meta: before the first FROM */
int build_stage_begin(struct build *b, struct err *e);

/* build_config.c: the instructions that only change the configuration */
int build_config(struct build *b, const struct instruction *in, struct err *e);
int build_history(struct build *b, const char *by, bool empty, struct err *e);
int build_set(char **to, const char *value);
/* What computing with a Dockerfile costs, and what it leaves in memory, has bounds. ERR_TOO_LARGE. */
int build_spend(struct build *b, uint64_t steps, struct err *e);
int build_keep(struct build *b, uint64_t bytes, struct err *e);

/* build_step.c */
/* adds it to the cache. ERR_QUOTA */
int build_note_step(struct build *b, const char *key, const char *chain, struct err *e);
/* The step's files are complete: seals its sandbox, and the result becomes the stage's chain. */
void build_step_seal(struct build *b);
void build_step_over(struct build *b, struct image_chain *c); /* taken over */
/* 1: the step's key is in the cache, and it is finished. 0: it has to be run. */
int build_step_cached(struct build *b);

/* build_copy.c */
void build_copy(struct build *b);
int build_not_remote(const char *text, struct err *e); /* refuses a source that is a URL or a repository */
int build_pair(struct buf *to, const char *key, const char *value); /* of a copy_spec */
char *build_absolute(const struct build *b,
		     const char *path); /* below the working folder, if it is relative; to be freed */
/* Runs cloche-tar copy, or select without @to; @fn gets the build. @source NULL: nothing is read. */
int build_tar(struct build *b, struct build_box *source, struct build_box *to, const struct buf *text, tar_child_fn *fn,
	      struct err *e);
int build_from(struct build *b, const char *from, const char **ret_chain,
	       struct err *e); /* the files of a stage or an image */
void build_workdir(struct build *b, const char *path);

/* build_mount.c: RUN --mount */
struct build_mounts;
/* Called when a phase is finished; not from within the call that began it. */
typedef void build_mounts_fn(struct build *b);
int build_mounts_new(struct build *b, struct build_mounts **ret, struct err *e);
void build_mounts_free(struct build_mounts *m);
/* Adds everything that decides the step's result to @key. */
void build_mounts_key(struct build_mounts *m, char key[BUILD_KEY], build_mounts_fn *then);
void build_mounts_plan(const struct build_mounts *m, struct build_box_plan *p);
void build_mounts_fill(struct build_mounts *m, build_mounts_fn *then); /* to be called when the sandbox is ready */
void build_mounts_empty(struct build_mounts *m, build_mounts_fn *then); /* to be called when the command has ended */
void build_mounts_env(const struct build_mounts *m, json_t *env);

/* build_resolver.c: to be called before the layer is sealed */
void build_resolver_undo(struct build *b);
void build_resolver_free(struct build_resolver *x);

/* build_run.c */
void build_run(struct build *b);
void build_run_read(struct build_run *r); /* its output is wanted again. NULL: nothing */
void build_run_free(struct build_run *r);
