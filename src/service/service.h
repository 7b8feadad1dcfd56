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
#include "service/access/access.h"

struct net_conf;
struct db;
struct sandbox;
struct signer;
struct turn;

/* Bounds and defaults, from the configuration. 0 max = none of ours. */
#define SERVICE_MOUNTS 16U
struct service_opts {
	uint64_t memory, memory_max, disk, disk_max, output_limit;
	uint32_t cpu_milli, cpu_milli_max, pids, pids_max, nofile;
	uint64_t exec_timeout_ms, exec_timeout_max_ms;
	unsigned sandboxes_max;
	unsigned warm_contexts; /* kept ready for runs, of each kind; 0 = none */
	uint64_t spool_time_ms, spool_max, spool_total;
	const char *data; /* the data folder */
	const char *images; /* folder of images, "" = none */
	unsigned nmounts; /* see service/access/mount_may.h */
	const char *mount_path[SERVICE_MOUNTS], *mount_tenant[SERVICE_MOUNTS]; /* tenant "": all of them */
	unsigned ndevices; /* see service/access/device_may.h */
	const char *device_name[SERVICE_MOUNTS], *device_tenant[SERVICE_MOUNTS];
	const char *cdi; /* folders of specifications of devices; NULL = the usual ones */
	int devices_program; /* cloche-devices, open; -1: not there */
	unsigned ntrusted; /* see service/checkpoint/signer.h */
	const char *trusted[SERVICE_MOUNTS];
	const char *image_auth, *image_ca, *image_registries; /* those files of the configuration; "" = none */
	uint64_t image_stall_ms; /* a registry that is silent for longer has failed */
	const char *tar; /* cloche-tar's path */
	int shell_kernel; /* cloche-shell-kernel, open for reading; <= 0: it is not there */
	int warden_place, egress_place; /* see daemon.h */
	const struct net_conf *net; /* what the administrator says about networks */
	bool audit_output;
	bool kvm; /* machines are as fast as this host: a trial or the administrator says so, the warden holds it */
	/* what the trial said; NULL: nothing. Both as the warden says once it has made a machine */
	const char *accel_why;
	const void *secrets_key; /* from secrets_key_command, NULL = none; not needed after service_new */
	size_t secrets_key_len;
	const void *secrets_old_key; /* from secrets_old_key_command, likewise */
	size_t secrets_old_key_len;
	bool recover; /* the database was rebuilt: what it does not know is left alone */
};

struct service;
#define SCRATCH (256U * 1024U)

/*
 * @d, @a, @t and @x stay the caller's. service_start connects to the warden, then finds again what was there before:
 * @ready is called with 0 when every sandbox is known again, or with an error nothing can be done about.
 */
int service_new(uv_loop_t *loop, const struct service_opts *o, struct db *d, struct audit *a, struct turn *t,
		struct access *x, struct service **ret, struct err *e);
const struct service_opts *service_opts(const struct service *s); /* as they are now */
struct signer *service_signer(const struct service *s); /* of exports */
char *service_scratch(const struct service *s); /* SCRATCH bytes for reading output, used within one call only */
struct service_counts {
	size_t sandboxes, execs; /* execs that run */
	uint64_t spooled; /* bytes of output in files */
};
struct service_counts service_counts(const struct service *s);
/* The process is about to end: no more creates and execs. */
void service_drain(struct service *s);
/*
 * Whether the disk has room for what comes of new work. Below that it is refused, so that what runs can still be noted,
 * and deleted. ERR_EXHAUSTED.
 */
int service_room(struct service *s, struct err *e);
/* Nothing was begun that is not finished: no sandbox is half-made, and the warden has heard of all that end. */
bool service_settled(const struct service *s);
void service_start(struct service *s, void (*ready)(void *arg, int r, const struct err *e), void *arg);
