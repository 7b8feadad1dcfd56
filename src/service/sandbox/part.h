/*
 * A part of a sandbox: a room that has something of each (its execs, its network, its secrets). Every step of a sandbox's life
 * is announced to all parts, in the order of their table (service/service.c), and the sandbox's own code names none of them.
 * A hook that a part does not have is NULL.
 */
#pragma once
#include "service/sandbox/sandbox.h"

/* How what it has inside goes away. The sandbox may stay. */
enum sandbox_loss {
	LOSS_LOST, /* its first process has died */
	LOSS_STOPPED, /* it was ended, and its disk is there */
	LOSS_CLOSED, /* it was there for its files only, and nobody uses them */
	LOSS_ASLEEP, /* it was hibernated */
	LOSS_REPLACED, /* another agent takes the place of its own, and knows nothing of what ran */
	LOSS_TURNED, /* another agent takes the place of its own: who talks to the old one lets go */
	LOSS_DELETED, /* its row goes, with this turn */
	LOSS_DESTROYED, /* the warden is about to end it */
	LOSS_UNDONE, /* it was entered, and could not be stored: it is in the making again */
};

struct sandbox_part {
	const char *name;
	/*
	 * From its row, before it is listed; @field is what ->store wrote, NULL when it is not there. Then, when it is listed and
	 * counted: ->loaded.
	 */
	const char *field; /* of the row's JSON, besides what a create says; NULL = none */
	int (*load)(struct sandbox *b, const json_t *field, struct err *e);
	void (*loaded)(struct sandbox *b);
	void (*store)(struct sandbox *b, struct json *j); /* adds ->field to its row */
	void (*lost)(struct sandbox *b, enum sandbox_loss how);
	void (*left)(struct sandbox *b); /* nobody finds it any more, and its room is others' */
	void (*ended)(
		struct sandbox *b); /* for good: lets go of it. It is freed when the last that has it has let go */
	void (*freed)(struct sandbox *b); /* with its memory */
};

extern const struct sandbox_part network_part, secret_part, file_part, exec_part, port_part, template_part;

/* Takes the fields of all parts out of a row's JSON: referenced, NULL without memory. */
json_t *sandbox_parts_take_fields(const struct service *s, json_t *row);
int sandbox_parts_load(struct sandbox *b, json_t *fields, struct err *e);
void sandbox_parts_loaded(struct sandbox *b);
void sandbox_parts_store(struct sandbox *b, struct json *j);
void sandbox_parts_lost(struct sandbox *b, enum sandbox_loss how);
void sandbox_parts_left(struct sandbox *b);
void sandbox_parts_ended(struct sandbox *b);
void sandbox_parts_freed(struct sandbox *b);
