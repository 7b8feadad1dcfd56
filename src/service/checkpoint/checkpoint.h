/*
 * A checkpoint: what a sandbox had changed at one moment, by a name. Its files are a layer of the warden's with the
 * same id; what else a sandbox is (limits, env, user, …) is kept here.
 */
#pragma once
#include "service/sandbox/sandbox.h"

#define LABEL_MAX 256

/* With memory: connections to the outside are cut in the copy, or a reason to refuse. */
enum network_request { NETWORK_DROP, NETWORK_REFUSE };

struct checkpoint {
	struct service *service;
	char id[ID_SIZE];
	struct tenant *tenant;
	char sandbox[ID_SIZE]; /* the sandbox it is of, which may be gone */
	char sandbox_name[NAME_MAX_LEN + 1];
	char name[NAME_MAX_LEN + 1];
	char label[LABEL_MAX + 1];
	struct kv metadata;
	char parent[ID_SIZE]; /* the checkpoint that sandbox came from, "" = none */
	struct sandbox_spec *chain; /* ->layers and ->layer: what a sandbox from it stands on, its own as the last */
	char *config; /* JSON: what a create takes, without name and key */
	bool memory;
	char *names; /* behind its synthetic addresses, or NULL */
	char *execs; /* then: JSON, those that ran (service/exec/exec.h) */
	char *cut; /* JSON: connections to the outside that its processes do not have any more, or NULL */
	char *refused; /* why it has no memory although it was asked for; NULL = it was not */
	uint64_t size, memory_size, files, pause_ns, created_ns;
	uint8_t sum[32];
	enum network_request network; /* as it was asked for */
	bool soon; /* its layer is safe on the disk only a moment after it is there */
	bool listed; /* in the store */
	bool held; /* its layer is */
	bool damaged;
	bool seen; /* by the sweep under way */
	bool counted; /* in its tenant's quotas: with ->size */
	unsigned refs;
};

enum memory_request { MEMORY_NO, MEMORY_YES, MEMORY_AUTO /* if it can be carried */ };

struct checkpoint_request {
	enum memory_request memory;
	enum network_request network;
	const char *name; /* "" = its id */
	const char *label;
	struct kv metadata; /* taken over */
	/* Of one that was imported: its settings, as JSON, and what its sandbox was called elsewhere; else NULL. */
	const char *config, *sandbox_name;
	char idem[KEY_MAX_LEN + 1];
	uint8_t idem_body[32];
};

/* It belongs to a template, and is in nobody's list. */
static inline bool checkpoint_hidden(const struct checkpoint *c)
{
	return c->name[0] == '.';
}

/* @c is NULL when it failed. Borrowed during the call. */
typedef void checkpoint_fn(void *arg, struct checkpoint *c, const struct err *e);

int checkpoint_load_all(struct service *s, struct err *e);
/* Seals the sandbox's files and stores it under a name. The sandbox runs on, whatever happens. */
void checkpoint_make(struct sandbox *b, const struct who *who, struct checkpoint_request *w, checkpoint_fn *fn,
		     void *arg);
/* The same without a name and without a row: for as long as it is referenced, and things stand on it. */
void checkpoint_make_hidden(struct sandbox *b, const struct who *who, enum memory_request memory,
			    enum network_request network, checkpoint_fn *fn, void *arg);
/* The same for sandboxes that run from it at once: those that no power cut leaves do not wait for the disk. */
void checkpoint_make_for_fork(struct sandbox *b, const struct who *who, enum memory_request memory,
			      enum network_request network, checkpoint_fn *fn, void *arg);
void checkpoint_ref(struct checkpoint *c);
void checkpoint_unref(struct checkpoint *c);
/*
 * By id; or by name, of the sandbox @sandbox (an id, also of one that is gone, or a name; NULL: only by id). Of the tenant,
 * any for an admin.
 */
struct checkpoint *checkpoint_find(struct service *s, const struct who *who, const char *text, const char *sandbox,
				   struct err *e);
/* NULL: stays. @metadata is taken over. Stored with the turn. */
int checkpoint_update(struct checkpoint *c, const struct who *who, const char *name, const char *label,
		      struct kv *metadata, struct err *e);
/* What came from it stays. @c is gone, unless it is referenced. */
int checkpoint_remove(struct checkpoint *c, const struct who *who, struct err *e);
/* ERR_REFUSED when it is damaged. */
int checkpoint_ready(const struct checkpoint *c, struct err *e);
/* The warden did not let anybody stand on @layer, for @e: if it is not what it was, that is noted and said. */
int checkpoint_blame(struct service *s, const char *layer, int r, struct err *e);

/* From a sweep over the warden's layers. */
void checkpoints_look(struct service *s); /* it begins */
void checkpoint_saw_layer(struct service *s, const char *id, bool bad);
void checkpoints_looked_at(struct service *s); /* every layer was seen */
