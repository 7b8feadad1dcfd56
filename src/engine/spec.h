/*
 * What a sandbox should be: one fixed-size record, filled by the CLI or the daemon, checked and applied by the warden.
 * It holds no pointers, so it is also what travels to a warden in another process.
 */
#pragma once
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "linux/steer.h"
#include "proto/device_plan.h"

#define SPEC_PATH 256
#define SPEC_MOUNTS 8
#define SPEC_TMPFS 8
/* the place of a tmpfs for files of secrets: what a machine's checkpoint had there is not kept */
#define SPEC_SECRETS "/run/secrets"
#define SPEC_LAYERS 16
#define SPEC_PATH_DEFAULT "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define SPEC_PATH_HOST SPEC_PATH_DEFAULT ":/opt/cloche/bin" /* image host: `python`, if the host has only python3 */
#define SPEC_SCRATCH "scratch" /* the image without any files: all of them are in layers */

#define SPEC_READ_ONLY 1U /* root read-only; the work folder and /tmp stay writable */
#define SPEC_DISK 2U /* changes go to a disk file of the given size instead of memory */
#define SPEC_SYSTEM_WRITABLE 4U /* image host: /usr can be changed (for root's package managers) */
#define SPEC_MEMORY 8U /* restores its newest layer's memory, too: the processes in it continue */
#define SPEC_NET 16U /* it has a way out (docs/design/0010-egress.md), as ->net says; without it ->net is zero */
#define SPEC_VM 32U /* the tier of virtual machines (docs/design/0011-vm.md) */
/*
 * The bits that choose a tier: each tier names one of them as its own (->flag in engine/tier.h), a container none. That a
 * spec has one is no promise that there is such a tier: the list of tiers says so (tier/tiers.h)
 */
#define SPEC_TIERS (SPEC_VM | 0xf0000U)
/*
 * With SYSTEM_WRITABLE: made writable only when a user comes that may change it (engine/sandbox/system.c). A hint:
 * where that is not possible, it is writable from the start
 */
#define SPEC_SYSTEM_LATER 64U
#define SPEC_DISK_AGAIN 128U /* ->disk exists already, with the content of an earlier sandbox, and is used again */
/* With MEMORY: one of many that are asked for at once. Their memory is to be shared, where that can be (engine/pool/share.c) */
#define SPEC_MANY 256U
#define SPEC_ONCE 512U /* its newest layer will not be requested again (a fork's): no sandbox is prebuilt for it */
#define SPEC_BARE 1024U /* nothing is added to its files: neither a user, nor names of hosts, nor folders to write to */
#define SPEC_FLAGS                                                                                                     \
	(SPEC_BARE | SPEC_ONCE | SPEC_MANY | SPEC_DISK_AGAIN | SPEC_READ_ONLY | SPEC_DISK | SPEC_SYSTEM_WRITABLE |     \
	 SPEC_MEMORY | SPEC_NET | SPEC_TIERS | SPEC_SYSTEM_LATER)
#define SPEC_JAIL (1U << 31) /* never in a request: the jail of a virtual machine */
#define SPEC_KVM (1U << 30) /* likewise: a jail with a /dev/kvm */

struct spec_limits { /* 0 = not limited */
	uint64_t memory, disk, inodes, io_bps;
	uint32_t cpu_milli, pids;
};

struct spec_mount {
	char src[SPEC_PATH], dst[SPEC_PATH];
	uint32_t read_only;
};

struct spec_tmpfs {
	char path[SPEC_PATH];
	uint64_t size;
};

struct sandbox_spec {
	uint64_t tenant;
	char image[SPEC_PATH]; /* "host", SPEC_SCRATCH, or the absolute path of a root filesystem folder */
	char hostname[64];
	char workdir[SPEC_PATH];
	uint32_t uid, gid; /* owner of the work folder and of mounted folders inside */
	uint32_t flags;
	uint32_t ndevices, reserved; /* reserved: 0 */
	uint32_t nmounts, ntmpfs;
	uint32_t layers; /* how many of ->layer */
	struct spec_limits limits;
	char layer[SPEC_LAYERS][ID_SIZE]; /* sealed layers that it is based on, above the image: the oldest first */
	char disk[32]; /* with SPEC_DISK: an id, the name of a disk that outlives the sandbox; "": one that does not */
	struct spec_mount mount[SPEC_MOUNTS];
	struct spec_tmpfs tmpfs[SPEC_TMPFS];
	/* what they are is found out by cloche-devices (docs/design/0021-devices.md) */
	char device[DEVICE_NAMES][DEVICE_NAME];
	struct steer_rules net;
};

/*
 * Checks every field as if a stranger had written it: strings end, paths are absolute and without "..", counts and
 * flags are in range, ids are mapped, limits are ones that can be set.
 */
int spec_check_limits(const struct spec_limits *l, struct err *e); /* those alone */
int spec_check(const struct sandbox_spec *s, struct err *e);
/* Copies a spec with zeros in its unused bytes, as messages have it (msg_check_req). */
void spec_put(const struct sandbox_spec *from, struct sandbox_spec *to);
void spec_put_net(const struct steer_rules *from, struct steer_rules *to);
