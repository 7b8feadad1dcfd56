/*
 * What sandboxes, checkpoints, templates, pools and others are asked for alike: to be listed, to be shown, and to be removed. A
 * thing is one description; the commands of a noun name it, and differ in their help only.
 */
#pragma once
#include "client/client.h"
#include "client/conn.h"
#include "client/table.h"

struct column {
	const char *title;
	void (*cell)(struct table *t, const json_t *one, const char *field); /* adds one */
	const char *field;
};
/* Cells: the field's text; a number, to the right; the time since then; a size. */
void cell_text(struct table *t, const json_t *one, const char *field);
void cell_number(struct table *t, const json_t *one, const char *field);
void cell_age(struct table *t, const json_t *one, const char *field);
void cell_size(struct table *t, const json_t *one, const char *field);

struct thing {
	const char *word; /* for errors: "TEMPLATE" */
	const char *path; /* of all of them: "/v1/templates" */
	const char *key; /* of their list in an answer */
	int (*url)(struct buf *b, const char *word); /* of one; NULL: its name behind ->path */
	const struct column *columns; /* of a list; ended by zeros */
	unsigned right; /* bit per column: aligned to the right */
};
extern const struct thing thing_sandbox;

int thing_url(const struct thing *t, const char *word, struct buf *to);
/* A list as a table, or with --json as it is. */
int thing_print(const struct args *a, const struct thing *t, const json_t *list, struct err *e);
/* Commands of a noun, for the thing that the command names. They have no options but -f of rm. */
int thing_ls(struct args *a, struct err *e);
/* Everything known about those named, as JSON; several become one array. */
int thing_inspect(struct args *a, struct err *e);
/* Removes those named. */
int thing_rm(struct args *a, struct err *e);
extern const struct option thing_rm_options[];
/* Gives the one that the command's only word names this content, and prints the answer if it is to be JSON. */
int thing_put(const struct args *a, struct conn *c, const struct thing *t, const json_t *body, struct err *e);

/* These commands of a noun: the variable of its thing has the noun's name. */
#define THING_LS(noun, text_, help_)                                                                                   \
	{                                                                                                              \
		.name = #noun " ls", .text = text_, .help = help_, .thing = &(noun), .run = thing_ls                   \
	}
#define THING_INSPECT(noun, text_, help_)                                                                              \
	{                                                                                                              \
		.name = #noun " inspect", .text = text_, .help = help_, .complete = COMPLETE_NAMES, .names = #noun,    \
		.thing = &(noun), .run = thing_inspect                                                                 \
	}
#define THING_RM(noun, text_, help_)                                                                                   \
	{                                                                                                              \
		.name = #noun " rm", .text = text_, .help = help_, .letters = "f", .options = thing_rm_options,        \
		.complete = COMPLETE_NAMES, .names = #noun, .thing = &(noun), .run = thing_rm                          \
	}

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
