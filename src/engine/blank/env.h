/* What one warden knows of its host, found once: the ground every sandbox is built on. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/blank/alone.h"
#include "engine/blank/record.h"
#include "engine/blank/slot.h"
#include "engine/image/image.h"
#include "engine/image/path_policy.h"
#include "linux/cgroup.h"
#include "memory/crypt.h"

struct env {
	bool rootless; /* we are root only of a user namespace of our own, which maps one id */
	bool stage; /* this kernel (or rootless) needs mounts attached before they can be copied or stacked */
	uint64_t stage_next, stage_keep; /* the next place there, and the first that is not ours for good */
	bool one_shot; /* as in env_opts */
	unsigned controllers; /* cgroup controllers every sandbox joins */
	struct cgroup_host cgroups;
	struct slots slots;
	bool persist; /* sandboxes outlive us */
	bool no_share; /* as in env_opts */
	struct records records; /* of those */
	int layers; /* the folder of sealed layers, -1: none */
	struct crypt crypt; /* of their memory images */
	int disks; /* the folder of disks that stay, -1: none */
	const char *disk; /* as in env_opts */
	bool resolver; /* likewise */
	bool stored_image; /* likewise */
	char vm[400]; /* "": the default */
	unsigned vm_ready;
	unsigned accel; /* enum env_accel */
	struct image_host image;
	struct env_policy policy; /* how images and mount sources are opened */
	int agent; /* the program */
	int dump; /* cloche-dump, -1: not here */
	int layers_program; /* cloche-layers, likewise */
	int watch_program; /* cloche-watch, likewise */
	int files_program; /* cloche-files, likewise */
	int devices_program; /* cloche-devices, likewise */
	const char *cdi; /* as in env_opts */
	int null; /* /dev/null */
	int net; /* our own network namespace, to come back to */
	struct net_ahead *ahead; /* one being made for the first sandbox, or NULL */
	const struct env_alone *alone; /* as in env_opts */
	uint64_t cleanup_retries, cleanup_failures; /* of any thread: atomic */
	char fault[64]; /* test builds: handed to the agent */
};

struct env_opts {
	const char *agent; /* path of cloche-agent */
	const char *dump; /* path of cloche-dump; NULL, or nothing there: memory cannot be saved */
	const char *layers_program; /* path of cloche-layers; likewise: files cannot be compared */
	/* path of cloche-watch, where that looks at sandboxes (engine/kernel_memory/looker.h) */
	const char *watch_program;
	/* How folders of the cache are filled: image_fill_here, or NULL, then by cloche-files, which is beside this program. */
	int (*image_fill)(int program, const struct image_fill *x, struct err *e);
	const char *cdi; /* folders of specifications of devices (engine/image/devices.h) */
	const char *cache; /* NULL: the default for this user */
	const struct env_alone *alone; /* NULL: there is a daemon, and we are root */
	const struct env_policy *policy; /* NULL: policy_all */
	bool freezer; /* also join the freezer (pause, checkpoints) */
	bool accounting; /* also count CPU time per sandbox where that takes a group of its own (version 1) */
	const char *state; /* keep sandboxes, and their records in this folder; NULL: they end with us */
	const char *layers; /* where sealed layers are (root only); NULL: none */
	unsigned memory_keys; /* with which memory images of layers are encrypted; 0: they are not */
	uint8_t memory_key[CRYPT_KEYS_MAX][CRYPT_KEY];
	const char *disks; /* where disks are that outlive their sandboxes (root only); NULL: none */
	/*
	 * An ext4 block device that layers on disk go to, for the only sandbox there is: a VM's. Not copied. NULL: each gets a
	 * nameless file.
	 */
	const char *disk;
	bool resolver; /* /etc/resolv.conf is ours also in a sandbox without a network: it may get one */
	bool stored_image; /* a folder that is an image has the files of a stored one: no user is added to it */
	/* Of virtual machines: the folder of templates (root only; NULL: /var/cache/cloche/vm), clones kept ready per template, */
	const char *vm;
	unsigned vm_ready;
	/* AUTO: KVM where a trial shows that it works */
	enum env_accel { ENV_ACCEL_AUTO, ENV_ACCEL_TCG, ENV_ACCEL_KVM } accel;
	bool no_share; /* memory of sandboxes from one image is not shared: each has its own */
	bool one_shot; /* one sandbox, as soon as possible: make its network namespace while the rest is opened */
};

int env_open(const struct env_opts *o, struct env *ret, struct err *e);
void env_done(struct env *v);

/* The network namespace made ahead, now the caller's; -1 when there is none (any more). Waits until it is made. */
int env_take_net(struct env *v);
/* A new empty folder below the private staging mount, in @path. Only when ->stage. */
int env_stage_place(struct env *v, char *path, size_t size);
/* Attaches @mnt in the stage when this host needs that; otherwise does nothing. */
int env_stage(struct env *v, int mnt);
/* Detaches what was attached since env_open: mounts that were copied or stacked hold it themselves. */
void env_stage_clear(struct env *v);
