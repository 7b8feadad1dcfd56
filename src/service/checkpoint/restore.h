/* Sandboxes from checkpoints: new ones, one or many, or in the place of one that is there; forks of a running one. */
#pragma once
#include "service/checkpoint/checkpoint.h"

#define RESTORE_MAX 256U

/*
 * What a sandbox from @c should be: the checkpoint's settings, those of @body (a create's, NULL = none) above them.
 * @admin as sandbox_request_parse.
 */
int restore_request(struct checkpoint *c, const json_t *body, bool admin, struct sandbox_request **ret, struct err *e);

struct restore_plan {
	unsigned count; /* 1 to RESTORE_MAX */
	const char *names[RESTORE_MAX]; /* NULL: its id */
	const json_t *body; /* as restore_request; without a name when count > 1. NULL: none */
	bool admin;
	enum memory_request memory; /* of a fork */
	enum network_request network; /* likewise */
	json_t *secrets; /* as a create's, of a fork or in place; NULL: as they were */
	char idem[KEY_MAX_LEN + 1];
	uint8_t idem_body[32];
};
/* All are ready and stored, or none is left: then @sandbox is NULL. The list is the callee's, good during the call. */
typedef void restored_fn(void *arg, struct sandbox **sandbox, unsigned n, const struct err *e);
/* New ones, of the checkpoint's tenant. @plan is not needed when this returns. */
void restore_new(struct checkpoint *c, const struct who *who, const struct restore_plan *plan, restored_fn *fn,
		 void *arg);
/* In place: @secrets as of a create, NULL: as they were. @b keeps id, name, key, metadata and times; its execs end. */
void restore_in_place(struct sandbox *b, struct checkpoint *c, const struct who *who, const json_t *secrets,
		      sandbox_done_fn *fn, void *arg);
/* Of a running or paused one: sealed, and then as many new ones. ->body is not used. */
void restore_fork(struct sandbox *b, const struct who *who, const struct restore_plan *plan, restored_fn *fn,
		  void *arg);
