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

/* Programs of ours, besides the agent. */
enum env_program { ENV_DUMP, ENV_LAYERS, ENV_WATCH, ENV_FILES, ENV_DEVICES, ENV_PROGRAMS };

struct env {
	bool rootless; /* we are root only of a user namespace of our own, which maps one id */
	/*
	 * mounts must be attached (below the stage) before they can be copied or stacked: older kernels, or without
	 * root
	 */
	bool stage;
	/* numbers of folders in the stage: the next one; those from ->stage_keep on are detached again */
	uint64_t stage_next, stage_keep;
	bool one_shot; /* as in env_opts */
	unsigned controllers; /* cgroup controllers every sandbox joins */
	struct cgroup_host cgroups;
	struct slots slots;
	bool persist; /* sandboxes outlive us */
	bool no_share; /* the block device for the writable layer, as in env_opts */
	struct records records; /* the records of persistent sandboxes */
	int layers; /* the folder of sealed layers, -1: none */
	struct crypt crypt; /* keys of the memory images in ->layers */
	int disks; /* the folder of disks that outlive their sandboxes; -1: none */
	const char *disk; /* as in env_opts */
	bool resolver; /* /etc/resolv.conf is always ours, as in env_opts */
	bool stored_image; /* image folders are stored images, as in env_opts */
	char vm[400]; /* the folder of templates of virtual machines; "": the default */
	unsigned vm_ready;
	unsigned accel; /* enum env_accel */
	struct image_host image;
	struct env_policy policy; /* how images and mount sources are opened */
	int agent; /* the program */
	int program[ENV_PROGRAMS]; /* open, or -1: not here */
	const char *cdi; /* as in env_opts */
	int null; /* /dev/null */
	int net; /* our own network namespace, to come back to */
	struct net_ahead *ahead; /* a network namespace that is being made for the first sandbox, or NULL */
	const struct env_alone *alone; /* as in env_opts */
	uint64_t cleanup_retries, cleanup_failures; /* counters that all threads add to: atomic */
	char fault[64]; /* test builds: handed to the agent */
};

struct env_opts {
	const char *agent; /* path of cloche-agent; NULL: beside this program */
	bool all_programs; /* those below that are not named are beside this program, too */
	const char *dump; /* path of cloche-dump; NULL, or nothing there: memory cannot be saved */
	const char *layers_program; /* path of cloche-layers; NULL, or nothing there: files cannot be compared */
	/* path of cloche-watch, where that looks at sandboxes (engine/kernel_memory/looker.h) */
	const char *watch_program;
	/* How folders of the cache are filled: image_fill_here, or NULL, then by cloche-files, which is beside this program. */
	int (*image_fill)(int program, const struct image_fill *x, struct err *e);
	const char *cdi; /* folders of specifications of devices (engine/image/devices.h) */
	const char *cache; /* NULL: the default for this user */
	const struct env_alone *alone; /* NULL: there is a daemon, and we are root */
	const struct env_policy *policy; /* NULL: that of ->alone */
	bool freezer; /* also join the freezer (pause, checkpoints) */
	bool accounting; /* also count CPU time per sandbox where that takes a group of its own (version 1) */
	const char *state; /* keep sandboxes, and their records in this folder; NULL: they end with us */
	const char *layers; /* where sealed layers are (root only); NULL: none */
	/* how many keys ->memory_key has, to encrypt memory images with; 0: they are not encrypted */
	unsigned memory_keys;
	uint8_t memory_key[CRYPT_KEYS_MAX][CRYPT_KEY];
	const char *disks; /* the folder of disks that outlive their sandboxes (root only); NULL: none */
	/*
	 * An ext4 block device for the writable layer of the only sandbox, inside a virtual machine. The string is not
	 * copied. NULL: each writable layer on disk is a nameless file.
	 */
	const char *disk;
	/* /etc/resolv.conf is ours even in a sandbox without a network, since it may get a network later */
	bool resolver;
	bool stored_image; /* a folder that is an image has the files of a stored one: no user is added to it */
	/*
	 * The folder of templates of virtual machines (root only; NULL: /var/cache/cloche/vm), and the number of clones
	 * that are kept ready for each template.
	 */
	const char *vm;
	unsigned vm_ready;
	/* How virtual machines run. AUTO: with KVM where a trial shows that it works. */
	enum env_accel { ENV_ACCEL_AUTO, ENV_ACCEL_TCG, ENV_ACCEL_KVM } accel;
	bool no_share; /* memory of sandboxes from one image is not shared: each has its own */
	bool one_shot; /* one sandbox, as soon as possible: make its network namespace while the rest is opened */
};

int env_open(const struct env_opts *o, struct env *ret, struct err *e);
void env_done(struct env *v);

/*
 * Returns the network namespace that was made ahead; the caller closes it. -1: there is none, or it was taken. Waits
 * until it is made.
 */
int env_take_net(struct env *v);
/* Makes an empty folder in the stage and writes its path to @path. Only if ->stage is set. */
int env_stage_place(struct env *v, char *path, size_t size);
/* Attaches @mnt in the stage if ->stage is set; otherwise does nothing. */
int env_stage(struct env *v, int mnt);
/*
 * Detaches all that was attached in the stage since env_open(). Copies of these mounts, and overlays on them, stay
 * valid.
 */
void env_stage_clear(struct env *v);
