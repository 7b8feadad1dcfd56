/*
 * A checkpoint: what a sandbox had changed at one moment, by a name. Its files are a layer of the warden's with the
 * same id; what else a sandbox is (limits, env, user, …) is kept here.
 */
#pragma once
#include "service/sandbox/sandbox.h"

#define LABEL_MAX 256

/* With memory: connections to the outside are cut in the copy, or a reason to refuse. */
enum network_request { NETWORK_DROP, NETWORK_REFUSE };

struct checkpoint;

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

/* @c is NULL when it failed. Borrowed during the call. */
typedef void checkpoint_fn(void *arg, struct checkpoint *c, const struct err *e);

int checkpoint_load_all(struct service *s, struct err *e);
/* Seals the sandbox's files and stores it under a name. The sandbox runs on, whatever happens. */
void checkpoint_make(struct sandbox *b, const struct who *who, struct checkpoint_request *w, checkpoint_fn *fn,
		     void *arg);
/*
 * The same without a name and without a row: kept as long as it is referenced, or sandboxes or layers are based on
 * it.
 */
void checkpoint_make_hidden(struct sandbox *b, const struct who *who, enum memory_request memory,
			    enum network_request network, checkpoint_fn *fn, void *arg);
/* The same for sandboxes that run from it at once: those that no power cut leaves do not wait for the disk. */
void checkpoint_make_for_fork(struct sandbox *b, const struct who *who, enum memory_request memory,
			      enum network_request network, checkpoint_fn *fn, void *arg);
void checkpoint_ref(struct checkpoint *c);
void checkpoint_unref(struct checkpoint *c);
/* Those that are listed, of all tenants, in no order; *at is 0 at first. NULL: that were all. */
struct checkpoint *checkpoint_next(const struct service *s, size_t *at);
struct checkpoint *checkpoint_by_id(const struct service *s, const char *id); /* of those; NULL: it is none */
bool checkpoint_listed(const struct checkpoint *c); /* it was not deleted meanwhile */
struct tenant *checkpoint_tenant(const struct checkpoint *c);
/* What callers see of it. Texts are good until it changes. */
struct checkpoint_view {
	const char *id, *name, *label;
	const char *sandbox, *sandbox_name; /* what it is of, which may be gone; the name may be "" */
	const char *parent; /* the checkpoint that sandbox came from, "" = none */
	const struct kv *metadata;
	const char *tenant;
	const char *config; /* JSON: what a create takes, without name and key */
	bool memory, damaged;
	const char *refused; /* why it has no memory although it was asked for, or NULL */
	const char *cut; /* JSON: connections to the outside that its processes do not have any more, or NULL */
	uint64_t size, memory_size, files, pause_ns, created_ns;
	unsigned depth; /* of its chain of layers */
};
struct checkpoint_view checkpoint_view(const struct checkpoint *c);
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
/*
 * The warden refused @layer with @e: if the layer is damaged or gone, its checkpoints are marked, and the error says
 * so.
 */
int checkpoint_blame(struct service *s, const char *layer, int r, struct err *e);

/* From a sweep over the warden's layers. */
void checkpoints_look(struct service *s); /* it begins */
void checkpoint_saw_layer(struct service *s, const char *id, bool bad);
void checkpoints_looked_at(struct service *s); /* every layer was seen */
