/*
 * The verbs of the product, without a wire: sandboxes, execs, files, for a tenant that was let in. One loop thread owns
 * everything here, until the process ends: there is nothing to free. What takes time ends in a callback, which is never
 * called from within the call that asked for it.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "audit/audit.h"
#include "base/err.h"
#include "base/map.h"
#include "service/access/access.h"
#include "service/exec/spool.h"
#include "service/state/turn.h"
#include "store/db.h"

struct warden_link;
struct events;
struct adopt;
struct layer_book;
struct vault;
struct nets;
struct net_conf;
struct sandbox;
struct egress_sandbox;
struct sandbox_part;

/* Bounds and defaults, from the configuration. 0 max = none of ours. */
#define SERVICE_MOUNTS 16U
struct service_opts {
	uint64_t memory, memory_max, disk, disk_max, output_limit;
	uint32_t cpu_milli, cpu_milli_max, pids, pids_max, nofile;
	uint64_t exec_timeout_ms, exec_timeout_max_ms;
	unsigned sandboxes_max;
	uint64_t spool_time_ms, spool_max, spool_total;
	const char *data; /* the data folder */
	const char *images; /* folder of images, "" = none */
	unsigned nmounts; /* see service/access/mount_may.h */
	const char *mount_path[SERVICE_MOUNTS], *mount_tenant[SERVICE_MOUNTS]; /* tenant "": all of them */
	unsigned ntrusted; /* see service/checkpoint/signer.h */
	const char *trusted[SERVICE_MOUNTS];
	const char *tar; /* cloche-tar's path */
	int warden_place, egress_place; /* see daemon.h */
	const struct net_conf *net; /* what the administrator says about networks */
	bool audit_output;
	bool kvm; /* machines are as fast as this host: a trial or the administrator says so, the warden holds it */
	const char *accel_why; /* what the trial said; NULL: nothing. Both as the warden says once it has made a machine */
	const void *secrets_key; /* from secrets_key_command, NULL = none; not needed after service_new */
	size_t secrets_key_len;
	const void *secrets_old_key; /* from secrets_old_key_command, likewise */
	size_t secrets_old_key_len;
	bool recover; /* the database was rebuilt: what it does not know is left alone */
};

struct service {
	uv_loop_t *loop;
	struct service_opts o;
	struct db *db;
	struct audit *audit;
	struct turn *turn;
	struct access *access;
	struct warden_link *warden;
	struct events *events;
	const struct sandbox_part *const *parts; /* of every sandbox: service/sandbox/part.h; the last is NULL */
	struct map sandboxes; /* by id */
	struct map names; /* by "tenant/name" */
	struct map keys; /* by "tenant/key" */
	struct map execs; /* by id, of all sandboxes */
	struct map templates, pool_names; /* by "tenant/name" */
	struct map pools; /* by id */
	struct map warming; /* templates whose image is being made, by "tenant/name" */
	struct refill *refill; /* what keeps pools filled */
	uint64_t called_ns; /* monotonic: when somebody last wanted a sandbox */
	struct map secrets; /* by "tenant/name" */
	struct vault *vault; /* what seals them */
	struct signer *signer; /* of exports */
	struct map checkpoints; /* by id */
	struct map checkpoint_names; /* by "sandbox id/name" */
	struct layer_book *layers;
	struct disk_sweep *disks;
	struct nets *nets; /* service/network/network.h; */
	void (*net_inject)(struct sandbox *b,
			   struct egress_sandbox *to); /* see sandbox_net_inject_fn; NULL = nobody adds anything */
	unsigned running_execs;
	unsigned ending; /* sandboxes whose end the warden is still to hear of */
	unsigned fresh; /* things put off since the last look: rows of execs, what agents and the warden need not know at once */
	struct exec *unwatched; /* begun a moment ago: their output is not watched yet */
	uv_timer_t watch;
	struct spool_room spooled; /* in all spool files */
	unsigned port_uses; /* that wait for their minute's end */
	struct exec *kept, **kept_last; /* ended ones whose output is in memory, oldest first */
	size_t kept_bytes;
	void (*on_tick)(uv_timer_t *t);
	uv_timer_t tick; /* TTLs, idle times, old spools; runs while there are any */
	char accel_why[160]; /* what ->o.accel_why is once the warden has told */
	bool soon; /* it comes within a quarter of a second */
	uint64_t pruned_ns;
	int64_t wall_ahead; /* service/state/wall.h: as the clock was when last looked at */
	bool wall_moved;
	unsigned comparing, children,
		scratch_sandboxes; /* under way: service/checkpoint/compare.h, tar_child.h, scratch_sandbox.h */
	bool draining; /* no more creates and execs */
	struct adopt *adopting; /* finding again what was there */
	const struct map *unread; /* by handle: rows that could not be read; NULL: not all have been looked at */
	uint64_t room_at, room, room_low; /* of the data folder's disk: when it was looked at; what is left, and what is too little */
	char *scratch; /* SCRATCH bytes for reading output, used within one call only */
};
#define SCRATCH (256U * 1024U)

/* Who calls. A copy is good for as long as the tenant has a sandbox, or one in the making. */
struct who {
	struct tenant *tenant;
	char token[ID_SIZE]; /* "" = by the unix socket's credentials */
	enum scope scope;
	char request_id[65]; /* "" = the daemon itself */
	struct token_mark mark; /* of the text that let it in */
};

/* The common fields of an audit record; refers to @w. */
static inline struct audit_rec who_rec(const struct who *w, const char *kind)
{
	return (struct audit_rec){
		.kind = kind,
		.tenant = w->tenant ? w->tenant->id : NULL,
		.token = w->token[0] ? w->token : NULL,
		.request_id = w->request_id[0] ? w->request_id : NULL,
	};
}

/*
 * @d, @a, @t and @x stay the caller's. service_start connects to the warden, then finds again what was there before:
 * @ready is called with 0 when every sandbox is known again, or with an error nothing can be done about.
 */
int service_new(uv_loop_t *loop, const struct service_opts *o, struct db *d, struct audit *a, struct turn *t,
		struct access *x, struct service **ret, struct err *e);
/*
 * Whether the disk has room for what comes of new work. Below that it is refused, so that what runs can still be noted,
 * and deleted. ERR_EXHAUSTED.
 */
int service_room(struct service *s, struct err *e);
/* Nothing was begun that is not finished: no sandbox is half-made, and the warden has heard of all that end. */
bool service_settled(const struct service *s);
void service_start(struct service *s, void (*ready)(void *arg, int r, const struct err *e), void *arg);
