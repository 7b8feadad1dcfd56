/*
 * Isolation tiers: what is done in another way than for a container, which every sandbox is from the outside. Which one a
 * sandbox has is decided once, by the flags of its spec, in the list of tiers (tier/tiers.h) that a warden is given
 * (warden_opts.tiers). What a tier leaves out (NULL) is done as for a container.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct record;
struct sandbox_spec;
struct seal;
struct seal_source;
struct steer_rules;
struct warden;
struct warden_done;
struct warden_sandbox;
struct warden_stat;
struct work;

/* What a tier may lack. Asking for it is ERR_UNSUPPORTED, never something weaker. */
enum tier_ability {
	TIER_LIMITS = 1, /* limits that change while the sandbox exists */
	TIER_PAUSE = 2,
	TIER_CHECKPOINTS = 4, /* also forks, hibernation, comparisons */
	TIER_NETWORK = 8, /* a network namespace: policies, ports */
	TIER_FILES = 16, /* file workers */
};

enum tier_group_end {
	TIER_GROUP_KILL, /* ends its processes */
	TIER_GROUP_DONE, /* it is not needed any more */
};

struct tier_ops {
	const char *name; /* the value of `isolation` */
	uint32_t flag; /* of the spec: it asks for this tier; 0: of the container's */
	unsigned lacks; /* bits of enum tier_ability */
	/* NULL; or, in words, that nothing at all is in force: then this is all that a receipt says */
	const char *bare;
	/*
	 * What runs inside are no processes of this host: its kernel memory, connections and limits are not what the host sees, and
	 * all that was opened for it stays open.
	 */
	bool machine;

	/* --- in any process --- */
	/* whether what it takes is installed here: -EPERM when only root could use it. NULL: always */
	int (*ready)(struct err *e);
	/* What a spec of this tier must not ask for, after spec_check(). */
	int (*check)(const struct sandbox_spec *spec, struct err *e);

	/* --- of a warden --- */
	void (*open)(struct warden *w); /* when all sandboxes of an earlier warden were found */
	/* before its sandboxes end: sandboxes that are being made are given up without a report */
	void (*close)(struct warden *w);
	void (*free)(struct warden *w); /* behind them, and behind its workers */
	/* Some of its work (work.h) is done; and whether warden_done() has something to report. */
	void (*worked)(struct warden *w, struct work *work);
	bool (*done)(struct warden *w, struct warden_done *ret);

	void (*unsealed)(struct warden *w, const char *layer); /* a layer was removed */

	/* --- the life of a sandbox --- */
	/* as warden_create() */
	int (*create)(struct warden *w, const struct sandbox_spec *spec, struct warden_sandbox **ret, struct err *e);
	int (*adopt)(struct warden *w, struct warden_sandbox *s, const struct record *rec, struct err *e);
	void (*forget)(struct warden *w, struct warden_sandbox *s); /* it continues without this warden */
	void (*end)(struct warden *w, struct warden_sandbox *s); /* before the container ends */
	/* Its part of the record, and @more that the agent holds (FRAME_KEEP_VM_FDS). */
	void (*record)(const struct warden_sandbox *s, struct record *rec, int *more);
	int (*thaw)(struct warden_sandbox *s, struct err *e); /* behind that of its groups */

	/* --- what others ask of it --- */
	void (*set_tag)(struct warden_sandbox *s, void *tag); /* warden_restoring() */
	int *(*sock)(const struct warden_sandbox *s); /* where its agent's socket is kept */
	int (*attach)(struct warden_sandbox *s, int *ret_sock, struct err *e);
	/* before the container's network */
	int (*steer)(struct warden_sandbox *s, const struct steer_rules *rules, struct err *e);
	int (*stat)(struct warden *w, const struct warden_sandbox *s, struct warden_stat *ret);
	int (*first_group)(struct warden_sandbox *s);
	int (*group_new)(struct warden_sandbox *s, uint32_t *ret, int *ret_fd, struct err *e);
	int (*group_open)(uint32_t group, struct err *e);
	int (*group_end)(struct warden_sandbox *s, enum tier_group_end how, uint32_t group, struct err *e);
	int (*seal_begin)(struct warden *w, struct warden_sandbox *s, struct seal_source *from, struct err *e);
	void (*seal_end)(struct warden *w, struct warden_sandbox *s, struct seal_source *from, const struct seal *seal);
};

extern const struct tier_ops container_tier; /* engine/sandbox/sandbox.c */
/* -EOPNOTSUPP and ERR_UNSUPPORTED when @t lacks it. */
int tier_needs(const struct tier_ops *t, enum tier_ability what, struct err *e);
