/* What sandboxes, checkpoints, templates and pools are asked for alike: to be shown, and to be removed. */
#pragma once
#include "client/client.h"
#include "client/conn.h"

struct thing {
	const char *word; /* for errors: "SANDBOX" */
	int (*url)(struct buf *b, const char *word);
};
extern const struct thing thing_sandbox, thing_checkpoint, thing_template, thing_pool, thing_secret;

/* A command that shows everything known about those named, as JSON; several become one array. */
int thing_inspect(struct args *a, const struct thing *t, struct err *e);

/* Several are removed; one that fails does not keep the others. */
struct removal {
	const struct thing *thing;
	struct conn *conn;
	bool force; /* one that is not there is no error */
	json_t *removed;
	int bad; /* of the first that failed, and why */
	struct err why;
};
void removal_one(struct removal *m, const char *word);
/* Shows what was removed. What the command returns. */
int removal_end(struct args *a, struct removal *m, struct err *e);
/* A command that removes those named; its only option is -f. */
int thing_rm(struct args *a, const struct thing *t, struct err *e);
extern const struct option thing_rm_options[];
