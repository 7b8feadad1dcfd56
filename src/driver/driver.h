/*
 * Isolation tiers behind one table. A tier that lacks an ability says so by a flag, and asking for it is a clear
 * `unsupported`, never a silent downgrade. What runs inside is spoken to through the agent's link, the same for all.
 */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "driver/link.h"
#include "engine/program.h"
#include "engine/sandbox/sandbox.h"
#include "vm/host/files.h"

enum { DRIVER_FREEZE = 1 };

struct engine; /* what a tier needs to work: made once */
struct tier_sandbox {
	const struct driver *driver;
	struct engine *engine;
	struct link link;
	int pidfd; /* of its first process, owned by the tier */
	struct warden_receipt receipt;
	bool up;
	int net[STEER_SOCKETS]; /* its way out, with SPEC_NET: for who takes them. -1 */
	void *tier; /* the tier's own */
};

struct driver {
	const char *name;
	unsigned abilities;
	/* Returns as soon as execs can be sent; sandbox_wait_up() tells how it went. */
	int (*create)(struct engine *g, const struct sandbox_spec *spec, struct tier_sandbox *ret, struct err *e);
	int (*destroy)(struct tier_sandbox *s, struct err *e);
	int (*stat)(struct tier_sandbox *s, struct warden_stat *ret, struct err *e);
	int (*freeze)(struct tier_sandbox *s, struct err *e);
	int (*thaw)(struct tier_sandbox *s, struct err *e);
	/* Brings what /proc shows up to date; called before an exec. */
	int (*refresh)(struct tier_sandbox *s);
	/* Of the way out: see engine/sandbox/sandbox.h. */
	int (*who)(struct tier_sandbox *s, const struct warden_who *who, struct socket_owner *ret, struct err *e);
	int (*denied)(struct tier_sandbox *s, struct steer_denied ret[STEER_DENIED], struct err *e);
};

extern const struct driver container_driver;
/* A virtual machine, jailed as a container of its own. */
extern const struct driver vm_driver;
/* NULL and ERR_UNSUPPORTED or ERR_INVALID for what is not there. */
const struct driver *driver_find(const char *name, struct err *e);

struct engine_opts {
	unsigned pool;
	bool freezer; /* sandboxes can be paused */
	bool accounting; /* CPU time is counted */
	bool one_shot; /* for one sandbox only */
	const char *agent; /* NULL: beside the running program, else in the libexec folder */
	/* Instead of a warden in this process, whose matter is then all of the above. @maker_arg is the engine's own: @maker_free ends it. */
	const struct driver *maker;
	void *maker_arg;
	void (*maker_free)(void *arg);
	/*
	 * Called some times a second while a create takes long, and once behind it with NULL. @doing: one line for people of what is
	 * waited for. Negative gives up, and is what the create returns, with ->e. Of a warden in this process only; NULL: nobody asks
	 */
	int (*waits)(void *arg, const char *doing, struct err *e);
	void *arg;
};
/* Without ->maker: also sets this process' umask to 022. */
int engine_new(const struct engine_opts *o, struct engine **ret, struct err *e);
void engine_free(struct engine *g);
DEFINE_AUTO(struct engine, engine_free)
/* How virtual machines run here, and why, one line: tried where nobody has yet, which takes seconds. Of a warden in this process. */
int engine_accel(struct engine *g, bool *ret_kvm, char *why, size_t size, struct err *e);
/* As in engine_opts, 0 when nobody is there to ask. */
int engine_waits(struct engine *g, const char *doing, struct err *e);
bool engine_asks(const struct engine *g);
struct warden *engine_warden(struct engine *g); /* NULL: there is a maker */
const struct driver *engine_maker(const struct engine *g);
void *engine_maker_arg(const struct engine *g);

/* Consumes READY and UP. An error when the agent failed, died or does not answer in time. */
int sandbox_wait_up(struct tier_sandbox *s, int timeout_ms, struct err *e);
/* Takes in a frame that belongs to the sandbox itself (READY, UP, FAILED of id 0): 1 when it did, 0 when not its. */
int sandbox_frame(struct tier_sandbox *s, const struct frame *f, struct err *e);
/* In the word on cpus, when more were asked for than there are. */
#define SANDBOX_HOST_HAS "this host has"
/* What is in force, one line each, as "name: how". Calls @fn for each. */
void sandbox_enforced(const struct tier_sandbox *s, const struct sandbox_spec *spec,
		      void (*fn)(void *arg, const char *name, const char *how), void *arg);
