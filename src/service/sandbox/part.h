/*
 * A part of a sandbox: a room that has something of each (its execs, its network, its secrets). Every step of a sandbox's life
 * is announced to all parts, in the order of their table (service/service.c), and the sandbox's own code names none of them.
 * A hook that a part does not have is NULL.
 */
#pragma once
#include "service/checkpoint/checkpoint.h"
#include "service/sandbox/struct.h"

/* How what it has inside goes away. The sandbox may stay. */
enum sandbox_loss {
	LOSS_LOST, /* its first process has died */
	LOSS_STOPPED, /* it was ended, and its disk is there */
	LOSS_CLOSED, /* it was open for its files only, and they are not used */
	LOSS_ASLEEP, /* it was hibernated */
	LOSS_REPLACED, /* another agent takes the place of its own, and knows nothing of what ran */
	LOSS_TURNED, /* another agent replaces its own: clients of the old one disconnect */
	LOSS_DELETED, /* its row goes, with this turn */
	LOSS_DESTROYED, /* the warden is about to end it */
	LOSS_UNDONE, /* it was entered, and could not be stored: it is in the making again */
};

/* Whose /usr the warden has answered about: its own, or, as it was replaced meanwhile, that of the one before. */
enum sandbox_usr { USR_OWN, USR_OTHER };

struct warden_link_answer;

/* A call of sandbox_create(), which is ->create. */
struct sandbox_creation {
	void (*create)(struct service *s, const struct who *who, struct sandbox_request *request, sandbox_made_fn *fn,
		       void *arg);
	sandbox_made_fn *fn;
	void *arg;
};

struct sandbox_part {
	const char *name;

	/* --- it comes into being --- */
	/*
	 * What check() needs takes a while. True: the part takes @request over, and calls ->create with all of this when it has that;
	 * then it returns false. One part may have this.
	 */
	bool (*ahead)(struct service *s, const struct who *who, struct sandbox_request *request,
		      const struct sandbox_creation *c);
	/* Whether @request may be had at all. */
	int (*check)(struct service *s, const struct tenant *t, struct sandbox_request *request, struct err *e);
	int (*begin)(struct sandbox *b, const struct sandbox_plan *p, struct err *e); /* before it is listed */
	/* It is listed and counted, and the warden is about to be asked: what is asked besides. */
	void (*begun)(struct sandbox *b, const struct sandbox_plan *p, struct sandbox_spec *spec);
	void (*answered)(struct sandbox *b); /* the warden has made it, or will not */
	void (*made)(struct sandbox *b, const struct warden_link_answer *a);
	int (*refused)(struct sandbox *b, int r,
		       struct err *e); /* the warden said @e: returns, and says, what was the matter */
	/*
	 * Its agent is there, and nothing was asked of it. True: the part has to do something before anything is, and calls @fn
	 * once, later. One part may have this.
	 */
	bool (*prepare)(struct sandbox *b, void (*fn)(struct sandbox *b, int r, const struct err *e));
	void (*entered)(struct sandbox *b); /* it is there, or what took its place is: stored with this turn */
	int (*start)(struct sandbox *b, struct err *e); /* it was entered for the first time: what it begins with */
	void (*noted)(struct sandbox *b, const struct who *who); /* it was handed out: after the audit record of that */

	/* --- while it is there --- */
	void (*reached)(struct sandbox *b); /* its agent can be talked to again */
	/* one that runs, after a restart or of a memory image: nothing of it was read */
	void (*found)(struct sandbox *b, struct exec *x);
	void (*unblocked)(struct sandbox *b); /* its network is in force: what waited for that may begin */
	/* Users that may change /usr can do so now, or r < 0: it cannot be made writable. */
	void (*writable)(struct sandbox *b, enum sandbox_usr whose, int r, const struct err *e);
	/* it is about to be saved: what is there only to be faster next time goes */
	void (*resting)(struct sandbox *b);
	/* Its files, and with @memory its processes, become a checkpoint that is not listed: @fn as checkpoint_make's. One part has it. */
	void (*save)(struct sandbox *b, const struct who *who, enum memory_request memory, enum network_request network,
		     checkpoint_fn *fn, void *arg);
	/* @b gets what @from has in its place: the requests are still their own. */
	void (*moved)(struct sandbox *b, struct sandbox *from);

	/* --- of the service --- */
	/*
	 * For a create: 1 and a referenced one that is ready already, stored with the turn; then @request is taken over. 0: one has to
	 * be made. One part has it.
	 */
	int (*take)(struct service *s, const struct who *who, struct sandbox_request *request, struct sandbox **ret,
		    struct err *e);
	/* Ends one that nobody has, of the tenant (NULL: of any), so that its room can be used. False: there is none. */
	bool (*yield)(struct service *s, const struct tenant *t);
	/* ERR_CONFLICT: something of the room is based on it */
	int (*based)(struct service *s, const char *checkpoint, struct err *e);
	void (*images_changed)(struct service *s); /* the name of one may mean another now, or none */
	/* Of all sandboxes: what is to be done now and then. Whether it is to be called again within a moment. */
	bool (*tick)(struct service *s, uint64_t now);

	/* --- its row --- */
	/*
	 * From its row, before it is listed; @field is what ->store wrote, NULL when it is not there. Then, when it is listed and
	 * counted: ->loaded.
	 */
	const char *field; /* of the row's JSON, besides what a create says; NULL = none */
	int (*load)(struct sandbox *b, const json_t *field, struct err *e);
	void (*loaded)(struct sandbox *b);
	void (*store)(struct sandbox *b, struct json *j); /* adds ->field to its row */

	/* --- it goes --- */
	void (*lost)(struct sandbox *b, enum sandbox_loss how);
	void (*left)(struct sandbox *b); /* it is not found any more, and its room is free for others */
	void (*ended)(
		struct sandbox *b); /* for good: lets go of it. It is freed when the last that has it has let go */
	void (*freed)(struct sandbox *b); /* with its memory */
};

/* What a sandbox needs of the room that has its execs, beside a part's hooks: service->commands. See service/exec/exec.h. */
struct sandbox_commands {
	void (*frame)(struct sandbox *b, const struct frame *f, int *fds, size_t nfds);
	void (*group)(struct sandbox *b, int r, const struct err *e);
	void (*clock)(struct sandbox *b, bool stop);
	void (*let_go)(struct sandbox *b);
	void (*take_up)(struct sandbox *b, bool ask);
	void (*read_all)(struct sandbox *b);
	bool (*any_read)(const struct sandbox *b);
	bool (*any_between)(const struct sandbox *b);
	void (*expect)(struct sandbox *b);
	void (*sync)(struct sandbox *b);
	bool (*synced)(struct sandbox *b);
	int (*revive)(struct sandbox *b, const char *saved, struct err *e);
	void (*revived)(struct sandbox *b);
	int (*again)(struct sandbox *b, const json_t *spec, char ret_id[ID_SIZE], struct err *e);
};
extern const struct sandbox_commands exec_commands;

extern const struct sandbox_part network_part, secret_part, file_part, exec_part, port_part, template_part,
	checkpoint_part, image_part, context_part, run_part;

bool sandbox_parts_ahead(struct service *s, const struct who *who, struct sandbox_request *request,
			 const struct sandbox_creation *c);
int sandbox_parts_check(struct service *s, const struct tenant *t, struct sandbox_request *request, struct err *e);
int sandbox_parts_begin(struct sandbox *b, const struct sandbox_plan *plan, struct err *e);
void sandbox_parts_begun(struct sandbox *b, const struct sandbox_plan *plan, struct sandbox_spec *spec);
void sandbox_parts_answered(struct sandbox *b);
void sandbox_parts_made(struct sandbox *b, const struct warden_link_answer *a);
int sandbox_parts_refused(struct sandbox *b, int r, struct err *e);
bool sandbox_parts_prepare(struct sandbox *b, void (*fn)(struct sandbox *b, int r, const struct err *e));
void sandbox_parts_entered(struct sandbox *b);
int sandbox_parts_start(struct sandbox *b, struct err *e);
void sandbox_parts_noted(struct sandbox *b, const struct who *who);
void sandbox_parts_reached(struct sandbox *b);
bool sandbox_parts_tick(struct service *s, uint64_t now);
void sandbox_parts_found(struct sandbox *b, struct exec *x);
void sandbox_parts_unblocked(struct sandbox *b);
void sandbox_parts_writable(struct sandbox *b, enum sandbox_usr whose, int r, const struct err *e);
void sandbox_parts_resting(struct sandbox *b);
void sandbox_parts_save(struct sandbox *b, const struct who *who, enum memory_request memory,
			enum network_request network, checkpoint_fn *fn, void *arg);
int sandbox_parts_take(struct service *s, const struct who *who, struct sandbox_request *request, struct sandbox **ret,
		       struct err *e);
bool sandbox_parts_yield(struct service *s, const struct tenant *t);
void sandbox_parts_images_changed(struct service *s);
int sandbox_parts_based(struct service *s, const char *checkpoint, struct err *e);
void sandbox_parts_moved(struct sandbox *b, struct sandbox *from);
/* Takes the fields of all parts out of a row's JSON: referenced, NULL without memory. */
json_t *sandbox_parts_take_fields(const struct service *s, json_t *row);
int sandbox_parts_load(struct sandbox *b, json_t *fields, struct err *e);
void sandbox_parts_loaded(struct sandbox *b);
void sandbox_parts_store(struct sandbox *b, struct json *j);
void sandbox_parts_lost(struct sandbox *b, enum sandbox_loss how);
void sandbox_parts_left(struct sandbox *b);
void sandbox_parts_ended(struct sandbox *b);
void sandbox_parts_freed(struct sandbox *b);
