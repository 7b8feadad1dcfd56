#include "engine/blank/env.h"
#include "base/base.h"
#include "base/log.h"
#include "base/sys.h"
#include "engine/image/host_image.h"
#include "layers/layers.h"
#include "linux/mount.h"
#include "linux/net_limits.h"
#include "linux/ns.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Covered in our own mount namespace once the cgroups are open: nothing else there is needed. */
#define STAGE "/sys"

/* From 6.15 on overlay takes layers that are attached nowhere, and such mounts can be copied. */
static bool detached_layers(void)
{
	unsigned major = 0, minor = 0;
	struct utsname u;

	return uname(&u) == 0 && sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 15));
}

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
	/* Each takes a wait in the kernel, for nothing when the whole namespace ends with us. */
	while (!v->one_shot && v->stage_next > v->stage_keep) {
		char path[48];
		int r;

		snprintf(path, sizeof(path), STAGE "/%llu", (unsigned long long)--v->stage_next);
		r = sys_umount2(path, 2 /* MNT_DETACH */);
		if (r == 0 || r == -EINVAL) /* not attached any more, or never */
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
 * Root of a namespace that has none of the ids sandboxes get (unshare -r, a rootless container) can give them none: it is
 * no more than the user who made that namespace.
 */
static bool root_with_ids(void)
{
	unsigned long long inside, outside, count;
	char map[4096], *at = map;
	int used;

	if (geteuid() != 0)
		return false;
	if (fd_get(AT_FDCWD, "/proc/self/uid_map", map, sizeof(map)) < 0)
		return true; /* what is wrong with /proc is told by whoever needs it */
	for (; sscanf(at, "%llu %llu %llu%n", &inside, &outside, &count, &used) == 3; at += used)
		if (inside <= SLOT_UID_BASE && inside + count > SLOT_UID_BASE)
			return true;
	return false;
}

/* Without root: a user namespace in which we are root, mapping nobody but ourselves. */
static int become_root(struct err *e)
{
	unsigned uid = geteuid(), gid = getegid();
	char text[48];
	int r;

	r = sys_unshare(CLONE_NEWUSER | CLONE_NEWNS);
	if (r < 0) {
		err_sys(e, ERR_UNSUPPORTED, r, "not root, and user namespaces cannot be made");
		err_remedy(e, "run as root, or allow them: sysctl kernel.unprivileged_userns_clone=1 (Debian), "
			      "kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), user.max_user_namespaces>0");
		return r;
	}
	r = fd_put(AT_FDCWD, "/proc/self/setgroups", "deny");
	snprintf(text, sizeof(text), "0 %u 1", uid);
	if (r == 0)
		r = fd_put(AT_FDCWD, "/proc/self/uid_map", text);
	snprintf(text, sizeof(text), "0 %u 1", gid);
	if (r == 0)
		r = fd_put(AT_FDCWD, "/proc/self/gid_map", text);
	return r < 0 ? err_sys(e, ERR_UNSUPPORTED, r, "map our user id into a user namespace") : 0;
}

/* Without mknod: the host's own nodes, each bound to a file. */
static int stage_devices(struct env *v, struct err *e)
{
	static const char *const nodes[] = { "null", "zero", "full", "random", "urandom", "tty" };
	char place[48], host[32], here[64];
	AUTO_CLOSE int dir = -1;
	int r = env_stage_place(v, place, sizeof(place));

	if (r == 0)
		r = dir = sys_openat(AT_FDCWD, place, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (r >= 0 && fchmod(dir, 0755) < 0)
		r = -errno;
	for (size_t i = 0; r >= 0 && i < ARRAY_LEN(nodes); i++) {
		AUTO_CLOSE int mnt = -1;

		snprintf(host, sizeof(host), "/dev/%s", nodes[i]);
		snprintf(here, sizeof(here), "%s/%s", place, nodes[i]);
		r = mnt = mount_clone(AT_FDCWD, host, 0, -1);
		if (r >= 0)
			r = sys_mknodat(dir, nodes[i], S_IFREG | 0666, 0);
		if (r >= 0)
			r = mount_attach(mnt, here, 0);
	}
	if (r >= 0)
		r = host_image_link_devices(dir);
	if (r < 0)
		return err_sys(e, ERR_UNSUPPORTED, r, "bind device nodes");
	v->image.dev = TAKE_FD(dir);
	return 0;
}

static int default_cache(bool rootless, char *buf, size_t size, struct err *e)
{
	const char *own = getenv("CLOCHE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int n;

	if (own && own[0] == '/')
		n = snprintf(buf, size, "%s", own);
	else if (!rootless)
		n = snprintf(buf, size, "/var/cache/cloche");
	else if (xdg && xdg[0] == '/')
		n = snprintf(buf, size, "%s/cloche", xdg);
	else if (home && home[0] == '/' && access(home, W_OK) == 0)
		n = snprintf(buf, size, "%s/.cache/cloche", home);
	else
		n = snprintf(buf, size, "/tmp/cloche-%u", (unsigned)geteuid());
	return (size_t)n < size ? 0 : err_set(e, ERR_INVALID, -ENAMETOOLONG, "cache folder: the path is too long");
}

/*
 * The agent, as a file that may be run but not read. The kernel then gives its memory, and all of /proc/1, to a user
 * namespace that could read it: ours, not the sandbox's, whose root would otherwise own them.
 */
static int open_agent(const char *path, int *ret)
{
	AUTO_CLOSE int from = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), copy = -1;
	char self[32];
	int r;

	if (from < 0)
		return from;
	copy = sys_memfd_create("cloche-agent", MFD_CLOEXEC);
	if (copy < 0)
		return copy;
	for (;;) {
		ssize_t n = sendfile(copy, from, NULL, 1 << 20);

		if (n < 0)
			return -errno;
		if (n == 0)
			break;
	}
	r = sys_fchmod(copy, 0111);
	if (r < 0)
		return r;
	/* A file open for writing cannot be run. */
	snprintf(self, sizeof(self), "/proc/self/fd/%d", copy);
	r = sys_openat(AT_FDCWD, self, O_PATH | O_CLOEXEC, 0);
	if (r < 0)
		return r;
	*ret = r;
	return 0;
}

/* Opened before we enter any namespace of our own, where paths may read differently. */
static int open_files(struct env *v, const struct env_opts *o, struct err *e)
{
	int r = open_agent(o->agent, &v->agent);

	if (r < 0) {
		err_sys(e, r == -ENOENT ? ERR_NOT_FOUND : ERR_INTERNAL, r, "agent %s", o->agent);
		if (r == -ENOENT)
			err_remedy(e, "install cloche-agent beside cloche or in its libexec folder");
		return r;
	}
	r = o->dump ? sys_openat(AT_FDCWD, o->dump, O_PATH | O_CLOEXEC, 0) : -ENOENT;
	if (r < 0 && r != -ENOENT)
		return err_sys(e, ERR_INTERNAL, r, "open %s", o->dump);
	v->dump = r < 0 ? -1 : r;
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

/*
 * A network namespace takes as long to make as everything else we do before the first clone, so a thread makes it
 * meanwhile. Only the thread enters it.
 */
struct net_ahead {
	pthread_t maker;
	int fd;
};

static void *make_net(void *arg)
{
	struct net_ahead *a = arg;
	int r = sys_unshare(CLONE_NEWNET);

	if (r == 0)
		r = ns_loopback_up();
	if (r == 0)
		net_limits_set();
	a->fd = r < 0 ? r : sys_openat(AT_FDCWD, "/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC, 0);
	return NULL;
}

static struct net_ahead *start_net(void)
{
	struct net_ahead *a = malloc(sizeof(*a));

	if (a && pthread_create(&a->maker, NULL, make_net, a)) {
		free(a);
		a = NULL;
	}
	return a;
}

int env_take_net(struct env *v)
{
	struct net_ahead *a = TAKE_PTR(v->ahead);
	int fd;

	if (!a)
		return -1;
	pthread_join(a->maker, NULL);
	fd = a->fd;
	free(a);
	return fd < 0 ? -1 : fd;
}

static int fill(struct env *v, const struct env_opts *o, struct err *e)
{
	char cache[384];
	int r;

	v->stage = v->rootless || !detached_layers();
#ifdef CLOCHE_FAULTS
	/* The way of older kernels works on newer ones, too: so it can be tested there. */
	v->stage = v->stage || getenv("CLOCHE_STAGE");
#endif
	r = default_cache(v->rootless, cache, sizeof(cache), e);
	if (r == 0)
		r = open_files(v, o, e);
	if (r == 0)
		r = cgroup_host_open(&v->cgroups, e);
	if (r < 0)
		return r;
	if (v->rootless)
		r = become_root(e);
	else if (v->stage && (r = sys_unshare(CLONE_NEWNS)) < 0)
		r = err_sys(e, ERR_UNSUPPORTED, r, "make a mount namespace");
	if (r == 0 && !v->rootless)
		r = open_slots(v, e);
	if (r < 0)
		return r;
	v->net = sys_openat(AT_FDCWD, "/proc/self/ns/net", O_RDONLY | O_CLOEXEC, 0);
	if (v->net < 0)
		return err_sys(e, ERR_INTERNAL, v->net, "open the host's network namespace");
	r = image_host_open(o->cache ? o->cache : cache, !v->rootless, &v->image, e);
	if (r == 0 && v->stage)
		r = open_stage(e);
	if (r == 0 && v->rootless)
		r = stage_devices(v, e);
	/* In the mount namespace we work in, whose mounts can be copied. */
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
	struct env v = { .agent = -1, .dump = -1, .null = -1, .net = -1, .slots.fd = -1, .records.fd = -1, .layers = -1, .disks = -1 };
	int r;

	v.policy = o->policy ? *o->policy : policy_all;
	v.disk = o->disk;
	v.resolver = o->resolver;
	if (o->vm && (size_t)snprintf(v.vm, sizeof(v.vm), "%s", o->vm) >= sizeof(v.vm))
		return err_set(e, ERR_INVALID, -ENAMETOOLONG, "folder of templates: the path is too long");
	v.vm_ready = o->vm_ready;
	v.accel = o->accel;
	image_host_init(&v.image);
	for (size_t i = 0; i < CGROUP_CONTROLLERS; i++)
		v.cgroups.base[i] = -1;
	v.rootless = !root_with_ids();
	if (o->one_shot && !v.rootless)
		v.ahead = start_net();
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
	fd_close(v->layers);
	fd_close(v->disks);
	fd_close(v->agent);
	fd_close(v->dump);
	fd_close(v->null);
	fd_close(v->net);
	fd_close(env_take_net(v));
}
