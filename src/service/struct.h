/* The members of the service: for its rooms. Others use the functions of service.h and of the rooms. */
#pragma once
#include "base/map.h"
#include "service/access/struct.h"
#include "service/exec/spool.h"
#include "service/service.h"
#include "service/state/turn.h"
#include "store/db.h"

struct warden_link;
struct events;
struct layer_book;
struct image_book;
struct sandbox_spec;
struct vault;
struct nets;
struct egress_sandbox;
struct device_ahead;
struct device_found;
struct sandbox_commands;
struct sandbox_part;
struct adopt;
struct signer;

#define FORGOTTEN_MAX 64

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
	const struct sandbox_commands *commands; /* likewise */
	struct device_ahead *device_ahead; /* creates for which cloche-devices is asked, in their order */
	const struct device_found *device_found; /* what it said for the request that is checked now; NULL: nothing */
	struct map sandboxes; /* by id */
	struct map names; /* by "tenant/name" */
	struct map keys; /* by "tenant/key" */
	struct map execs; /* by id, of all sandboxes */
	struct map templates, pool_names; /* by "tenant/name" */
	struct map pools; /* by id */
	struct map warming; /* templates whose image is being made, by "tenant/name" */
	struct package_set *packages; /* service/run/packages.h: those that are there */
	struct warm_contexts *warm_contexts; /* service/run/warm_context.h, or NULL */
	struct refill *refill; /* what keeps pools filled */
	uint64_t called_ns; /* monotonic: the last create */
	struct map secrets; /* by "tenant/name" */
	struct vault *vault; /* what seals them */
	struct signer *signer; /* of exports */
	struct map checkpoints; /* by id */
	struct map checkpoint_names; /* by "sandbox id/name" */
	struct layer_book *layers;
	struct image_book *images; /* service/image/image.h */
	/* Of the layers of @of those that are an image's, into @ret: image_layers_of(). NULL: there are none. */
	void (*image_layers)(struct service *s, const struct sandbox_spec *of, struct sandbox_spec *ret);
	void (*image_hold)(struct service *s, struct tenant *t, const struct sandbox_spec *of, uint32_t n, char **held);
	struct disk_sweep *disks;
	struct nets *nets; /* service/network/network.h; */
	void (*net_inject)(struct sandbox *b,
			   struct egress_sandbox *to); /* see sandbox_net_inject_fn; NULL = nothing is injected */
	unsigned running_execs;
	unsigned ending; /* sandboxes whose end the warden is still to hear of */
	/* things put off since the last look: rows of execs, what agents and the warden need not know at once */
	unsigned fresh;
	char forgotten[FORGOTTEN_MAX][ID_SIZE]; /* execs whose rows go with the next look */
	unsigned nforgotten;
	struct exec *unwatched; /* begun a moment ago: their output is not watched yet */
	uv_timer_t watch;
	struct spool_room spooled; /* in all spool files */
	unsigned port_uses; /* that wait for their minute's end */
	struct exec *kept, **kept_last; /* ended ones whose output is in memory, oldest first */
	size_t kept_bytes;
	void (*on_tick)(uv_timer_t *t);
	uv_timer_t tick; /* TTLs, idle times, old spools; runs while there are any */
	char accel_why[160]; /* copied to ->o.accel_why when the warden has reported it */
	bool soon; /* it comes within a quarter of a second */
	uint64_t pruned_ns;
	int64_t wall_ahead; /* service/state/wall.h: as the clock was when last looked at */
	bool wall_moved;
	unsigned comparing, children,
		scratch_sandboxes; /* under way: service/checkpoint/compare.h, tar_child.h, scratch_sandbox.h */
	bool draining; /* no more creates and execs */
	struct adopt *adopting; /* finding again what was there */
	const struct map *unread; /* by handle: rows that could not be read; NULL: not all have been looked at */
	/* of the data folder's disk: when it was looked at; what is left, and what is too little */
	uint64_t room_at, room, room_low;
	char *scratch; /* SCRATCH bytes for reading output, used within one call only */
};
