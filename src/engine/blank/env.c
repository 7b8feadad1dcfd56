/* Finds what the host offers, once at the start. */
#include "engine/blank/env.h"
#include "base/base.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/program.h"
#include "layers/layers.h"
#include "linux/mount.h"
#include "linux/ns.h"
#include "linux/spawn.h"

#include <sched.h>
#include <unistd.h>

/* The stage is mounted over this folder in our own mount namespace, after the cgroups were opened below it. */
#define STAGE "/sys"

static int open_stage(struct err *e)
{
	static const struct mount_opt opts[] = { { "size", "1m" }, { "mode", "0700" }, { NULL, NULL } };
	AUTO_CLOSE int mnt = -1;
	int r;

	r = mount_tree_private();
	if (r < 0)
		return err_sys(e, ERR_UNSUPPORTED, r, "make mounts private");
	mnt = mount_new_err("tmpfs", opts, MOUNT_ATTR_NOSUID, e);
	if (mnt < 0)
		return mnt;
	r = mount_attach(mnt, STAGE, 0);
	return r < 0 ? err_sys(e, ERR_UNSUPPORTED, r, "attach the staging folder") : 0;
}

int env_stage_place(struct env *v, char *path, size_t size)
{
	snprintf(path, size, STAGE "/%llu", (unsigned long long)v->stage_next++);
	return sys_mkdirat(AT_FDCWD, path, 0700);
}

int env_stage(struct env *v, int mnt)
{
	char path[48];
	int r;

	if (!v->stage)
		return 0;
	r = env_stage_place(v, path, sizeof(path));
	return r < 0 ? r : mount_attach(mnt, path, 0);
}

void env_stage_clear(struct env *v)
{
	/* Each detaching waits in the kernel. That is not worth it if the whole namespace ends with this process. */
	while (!v->one_shot && v->stage_next > v->stage_keep) {
		char path[48];
		int r;

		snprintf(path, sizeof(path), STAGE "/%llu", (unsigned long long)--v->stage_next);
		r = sys_umount2(path, 2 /* MNT_DETACH */);
		if (r == 0 || r == -EINVAL) /* it is not attached */
			r = sys_unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
		if (r < 0) {
			__atomic_fetch_add(&v->cleanup_failures, 1, __ATOMIC_RELAXED);
			log_error("cannot remove %s: %s", path, strerror(-r));
			v->stage_keep = ++v->stage_next;
			break;
		}
	}
}

/*
 * Whether the ids of sandboxes exist here. Root of a namespace without them (unshare -r, a rootless container) cannot
 * give them to a sandbox: it has no more rights than the user that made the namespace.
 */
static bool root_with_ids(void)
{
	unsigned long long inside, outside, count;
	char map[4096], *at = map;
	int used;

	if (geteuid() != 0)
		return false;
	if (fd_get(AT_FDCWD, "/proc/self/uid_map", map, sizeof(map)) < 0)
		return true; /* a broken /proc is reported where it is needed */
	for (; sscanf(at, "%llu %llu %llu%n", &inside, &outside, &count, &used) == 3; at += used)
		if (inside <= SLOT_UID_BASE && inside + count > SLOT_UID_BASE)
			return true;
	return false;
}

static int default_cache(const struct env *v, char *buf, size_t size, struct err *e)
{
	const char *own = getenv("CLOCHE_CACHE");

	return v->rootless && !(own && own[0] == '/') ? v->alone->cache(buf, size, e) : program_cache("", buf, size, e);
}

/* Opens our other programs, any of which may be missing. */
static int open_programs(struct env *v, const struct env_opts *o, struct err *e)
{
	const struct {
		const char *path;
		bool beside; /* this program, if there is no path */
		const char *name;
	} from[ENV_PROGRAMS] = {
		[ENV_DUMP] = { o->dump, o->all_programs, "cloche-dump" },
		[ENV_LAYERS] = { o->layers_program, o->all_programs, "cloche-layers" },
		[ENV_WATCH] = { o->watch_program, o->all_programs, "cloche-watch" },
		[ENV_FILES] = { NULL, !o->image_fill, "cloche-files" },
		[ENV_DEVICES] = { NULL, true, "cloche-devices" },
	};
	char beside[512];

	for (unsigned i = 0; i < ENV_PROGRAMS; i++) {
		const char *path = from[i].path;
		int fd;

		if (!path && from[i].beside && program_path(from[i].name, beside, sizeof(beside), NULL) == 0)
			path = beside;
		fd = path ? sys_openat(AT_FDCWD, path, O_PATH | O_CLOEXEC, 0) : -ENOENT;
		if (fd < 0 && fd != -ENOENT)
			return err_sys(e, ERR_INTERNAL, fd, "open %s", path);
		v->program[i] = fd < 0 ? -1 : fd;
	}
	return 0;
}

/* Opened before we enter any namespace of our own, where paths may read differently. */
static int open_files(struct env *v, const struct env_opts *o, struct err *e)
{
	char beside[512];
	const char *agent = o->agent ? o->agent : beside;
	int r = o->agent ? 0 : program_path("cloche-agent", beside, sizeof(beside), e);

	if (r < 0)
		return r;
	/*
	 * The kernel gives the memory of what cannot be read, and all of /proc/1, to a user namespace that could read it: ours, not
	 * the sandbox's, whose root would otherwise own them.
	 */
	r = v->agent = spawn_unreadable("cloche-agent", agent);
	if (r < 0) {
		err_sys(e, r == -ENOENT ? ERR_NOT_FOUND : ERR_INTERNAL, r, "agent %s", agent);
		if (r == -ENOENT)
			err_remedy(e, "install cloche-agent beside cloche or in its libexec folder");
		return r;
	}
	r = open_programs(v, o, e);
	if (r < 0)
		return r;
	v->null = sys_openat(AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);
	if (v->null < 0)
		return err_sys(e, ERR_INTERNAL, v->null, "open /dev/null");
	v->persist = o->state;
	return v->persist ? records_open(&v->records, o->state, e) : 0;
}

static int open_slots(struct env *v, struct err *e)
{
	int r = sys_mkdirat(AT_FDCWD, "/run/cloche", 0755);

	if (r < 0 && r != -EEXIST)
		return err_sys(e, ERR_INTERNAL, r, "make /run/cloche");
	return slots_open(&v->slots, "/run/cloche/slots", e);
}

int env_take_net(struct env *v)
{
	return v->ahead ? v->alone->net_take(TAKE_PTR(v->ahead)) : -1;
}

static int fill(struct env *v, const struct env_opts *o, struct err *e)
{
	char cache[384];
	int r;

	v->stage = v->rootless || !mount_detached_copies();
#ifdef CLOCHE_FAULTS
	/* The stage, which older kernels need, also works on newer ones: this variable is for tests of it. */
	v->stage = v->stage || getenv("CLOCHE_STAGE");
#endif
	r = default_cache(v, cache, sizeof(cache), e);
	if (r == 0)
		r = open_files(v, o, e);
	if (r == 0)
		r = cgroup_host_open(&v->cgroups, e);
	if (r < 0)
		return r;
	if (v->rootless)
		r = v->alone->become_root(e);
	else if (v->stage && (r = sys_unshare(CLONE_NEWNS)) < 0)
		r = err_sys(e, ERR_UNSUPPORTED, r, "make a mount namespace");
	if (r == 0 && !v->rootless)
		r = open_slots(v, e);
	if (r < 0)
		return r;
	v->net = sys_openat(AT_FDCWD, "/proc/self/ns/net", O_RDONLY | O_CLOEXEC, 0);
	if (v->net < 0)
		return err_sys(e, ERR_INTERNAL, v->net, "open the host's network namespace");
	r = image_host_open(
		o->cache ? o->cache : cache, !v->rootless,
		&(struct image_filler){ o->image_fill ? o->image_fill : image_fill_child, v->program[ENV_FILES] },
		&v->image, e);
	if (r == 0 && v->stage)
		r = open_stage(e);
	else if (r == 0 && !o->one_shot)
		image_host_join(&v->image);
	if (r == 0 && v->rootless)
		r = v->alone->stage_devices(v, NULL, &v->image.dev, e);
	/* Only mounts of the mount namespace that we work in can be copied, so this folder is opened there. */
	if (r == 0 && o->layers)
		r = v->layers = layers_open_dir(o->layers, e);
	if (r >= 0 && o->memory_keys)
		r = v->layers < 0 ? err_set(e, ERR_INVALID, -EINVAL, "memory keys without a folder of layers") :
				    crypt_open(v->layers, o->memory_key, o->memory_keys, &v->crypt, e);
	if (r >= 0 && o->disks)
		r = v->disks = layers_open_dir(o->disks, e);
	if (r > 0)
		r = 0;
	v->one_shot = o->one_shot;
	v->no_share = o->no_share;
	v->stage_keep = v->stage_next;
	v->controllers = v->cgroups.have & (CGROUP_BIT(CGROUP_MEMORY) | CGROUP_BIT(CGROUP_PIDS) |
					    CGROUP_BIT(CGROUP_CPU) | (o->accounting ? CGROUP_BIT(CGROUP_CPUACCT) : 0) |
					    (o->freezer ? CGROUP_BIT(CGROUP_FREEZER) : 0));
	return r;
}

int env_open(const struct env_opts *o, struct env *ret, struct err *e)
{
	struct env v = {
		.agent = -1, .null = -1, .net = -1, .slots.fd = -1, .records.fd = -1, .layers = -1, .disks = -1
	};
	int r;

	memset(v.program, 0xff, sizeof(v.program)); /* -1 */
	if (o->policy || o->alone)
		v.policy = o->policy ? *o->policy : *o->alone->policy;
	v.disk = o->disk;
	v.cdi = o->cdi;
	v.resolver = o->resolver;
	v.stored_image = o->stored_image;
	if (o->vm && (size_t)snprintf(v.vm, sizeof(v.vm), "%s", o->vm) >= sizeof(v.vm))
		return err_set(e, ERR_INVALID, -ENAMETOOLONG, "folder of templates: the path is too long");
	v.vm_ready = o->vm_ready;
	v.accel = o->accel;
	image_host_init(&v.image);
	for (size_t i = 0; i < CGROUP_CONTROLLERS; i++)
		v.cgroups.base[i] = -1;
	v.rootless = !root_with_ids();
	v.alone = o->alone;
	if (v.rootless && !v.alone)
		return err_set(e, ERR_DENIED, -EPERM, "needs root, with the user ids of sandboxes");
	if (o->one_shot && v.alone && !v.rootless)
		v.ahead = v.alone->net_start();
	r = fill(&v, o, e);
	if (r < 0) {
		env_done(&v);
		return r;
	}
#ifdef CLOCHE_FAULTS
	snprintf(v.fault, sizeof(v.fault), "%s", getenv("CLOCHE_FAULT_AGENT") ? getenv("CLOCHE_FAULT_AGENT") : "");
#endif
	*ret = v;
	return 0;
}

void env_done(struct env *v)
{
	cgroup_host_done(&v->cgroups);
	slots_done(&v->slots);
	records_done(&v->records);
	image_host_done(&v->image);
	crypt_close(&v->crypt, v->layers);
	fd_close_many(v->program, ENV_PROGRAMS);
	fd_close_many((int[]){ v->layers, v->disks, v->agent, v->null, v->net, env_take_net(v) }, 6);
}
