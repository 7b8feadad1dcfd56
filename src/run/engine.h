/*
 * A warden in this process, and its sandboxes: for `cloche run`, `cloche doctor` and benchmarks. Commands are sent
 * through the agent's link, whatever the tier is.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "engine/sandbox/sandbox.h"
#include "proto/link.h"
#include "tier/tiers.h"

struct engine;

struct engine_sandbox {
	struct engine *engine;
	struct warden_sandbox *made;
	const struct tier_ops *tier;
	struct link link;
	int pidfd; /* of its first process, owned by the warden */
	struct warden_receipt receipt;
	bool up;
	int net[STEER_SOCKETS]; /* sockets of its network, with SPEC_NET: the caller may take them over. -1 */
};

struct engine_opts {
	unsigned pool;
	bool freezer; /* sandboxes can be paused */
	bool accounting; /* CPU time is counted */
	bool one_shot; /* for one sandbox only */
	const char *cdi; /* as in struct env_opts */
	const char *agent; /* path of the agent; NULL: beside the running program, else in the libexec folder */
	/*
	 * Called some times a second while a create takes long, and once after it with NULL. @doing: one line for users
	 * about what it waits for. A negative result cancels the create, which returns it with ->e. NULL: not called
	 */
	int (*waits)(void *arg, const char *doing, struct err *e);
	void *arg;
};
/* Also sets this process' umask to 022. */
int engine_new(const struct engine_opts *o, struct engine **ret, struct err *e);
void engine_free(struct engine *g);
DEFINE_AUTO(struct engine, engine_free)
/* How virtual machines run here, and why, in one line: decided by a trial if unknown, which takes seconds. */
int engine_accel(struct engine *g, bool *ret_kvm, char *why, size_t size, struct err *e);
struct warden *engine_warden(struct engine *g);

/* Returns as soon as execs can be sent; engine_wait_up() returns the result of the setup. */
int engine_create(struct engine *g, const struct sandbox_spec *spec, struct engine_sandbox *ret, struct err *e);
int engine_destroy(struct engine_sandbox *s, struct err *e);
int engine_stat(struct engine_sandbox *s, struct warden_stat *ret, struct err *e);
/* Consumes READY and UP. An error when the agent failed, died or does not answer in time. */
int engine_wait_up(struct engine_sandbox *s, int timeout_ms, struct err *e);
/* Handles a frame of the sandbox itself (READY, UP, FAILED of id 0): 1 when it did, 0 for other frames. */
int engine_frame(struct engine_sandbox *s, const struct frame *f, struct err *e);
