/*
 * Isolation tiers: what is done in another way than for a container, which every sandbox is from the outside. A warden is given
 * a list of them (warden_opts.tiers); which one a sandbox has is decided once, by the flags of its spec. What a tier
 * leaves out (NULL) is done as for a container.
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

struct tier_ops {
	const char *name;
	uint32_t flag; /* of the spec: it asks for this tier; 0: of the container's */
	/*
	 * What runs inside are no processes of this host: its kernel memory, connections and limits are not what the host sees, and
	 * all that was opened for it stays open.
	 */
	bool machine;

	/* --- of a warden --- */
	void (*open)(struct warden *w); /* when all sandboxes of an earlier warden were found */
	void (*close)(struct warden *w); /* before its sandboxes end: nobody hears of one that is being made */
	void (*free)(struct warden *w); /* behind them, and behind its workers */
	/* Some of its work (work.h) is done; and whether something is to be told by warden_done(). */
	void (*worked)(struct warden *w, struct work *work);
	bool (*done)(struct warden *w, struct warden_done *ret);

	/* --- the life of a sandbox --- */
	int (*create)(struct warden *w, const struct sandbox_spec *spec, struct warden_sandbox **ret, struct err *e); /* as warden_create() */
	int (*adopt)(struct warden *w, struct warden_sandbox *s, const struct record *rec, struct err *e);
	void (*forget)(struct warden *w, struct warden_sandbox *s); /* it goes on without us */
	void (*end)(struct warden *w, struct warden_sandbox *s); /* before the container ends */
	/* Its part of the record, and @more that the agent holds (FRAME_KEEP_VM_FDS). */
	void (*record)(const struct warden_sandbox *s, struct record *rec, int *more);
	int (*thaw)(struct warden_sandbox *s, struct err *e); /* behind that of its groups */

	/* --- what others ask of it --- */
	void (*set_tag)(struct warden_sandbox *s, void *tag); /* warden_restoring() */
	int *(*sock)(const struct warden_sandbox *s); /* where its agent's socket is kept */
	int (*attach)(struct warden_sandbox *s, int *ret_sock, struct err *e);
	int (*steer)(struct warden_sandbox *s, const struct steer_rules *rules, struct err *e); /* before the container's network */
	int (*stat)(struct warden *w, const struct warden_sandbox *s, struct warden_stat *ret);
	int (*first_group)(struct warden_sandbox *s);
	int (*group_new)(struct warden_sandbox *s, uint32_t *ret, int *ret_fd, struct err *e);
	int (*group_open)(uint32_t group, struct err *e);
	int (*group_kill)(struct warden_sandbox *s, uint32_t group, struct err *e);
	int (*group_end)(struct warden_sandbox *s, uint32_t group, struct err *e);
	int (*seal_begin)(struct warden *w, struct warden_sandbox *s, struct seal_source *from, struct err *e);
	void (*seal_end)(struct warden *w, struct warden_sandbox *s, struct seal_source *from, const struct seal *seal);
};
