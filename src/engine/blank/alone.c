/* What only an engine without a daemon needs. */
#include "engine/blank/alone.h"
#include "base/base.h"
#include "base/sys.h"
#include "engine/blank/env.h"
#include "engine/image/device_folder.h"
#include "engine/image/path_policy.h"
#include "linux/mount.h"
#include "linux/net_limits.h"
#include "linux/ns.h"
#include "proto/device_plan.h"

#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* @name below @place, whose folders are made. */
static int bind_node(const char *place, int dir, const char *host, const char *name)
{
	char here[64 + DEVICE_PATH], path[DEVICE_PATH];
	AUTO_CLOSE int mnt = mount_clone(AT_FDCWD, host, 0, -1);
	int r = mnt < 0 ? mnt : 0;

	snprintf(path, sizeof(path), "%s", name);
	for (char *p = path; r == 0 && (p = strchr(p, '/')); *p++ = '/') {
		*p = '\0';
		r = sys_mkdirat(dir, path, 0755);
		r = r == -EEXIST ? 0 : r;
	}
	snprintf(here, sizeof(here), "%s/%s", place, path);
	if (r == 0)
		r = sys_mknodat(dir, path, S_IFREG | 0666, 0);
	return r == 0 ? mount_attach(mnt, here, 0) : r;
}

static int stage_devices(struct env *v, const struct device_plan *more, int *ret, struct err *e)
{
	static const char *const nodes[] = { "null", "zero", "full", "random", "urandom", "tty" };
	char place[48], host[32];
	AUTO_CLOSE int dir = -1;
	int r = env_stage_place(v, place, sizeof(place));

	if (r == 0)
		r = dir = sys_openat(AT_FDCWD, place, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (r >= 0 && fchmod(dir, 0755) < 0)
		r = -errno;
	for (size_t i = 0; r >= 0 && i < ARRAY_LEN(nodes); i++) {
		snprintf(host, sizeof(host), "/dev/%s", nodes[i]);
		r = bind_node(place, dir, host, nodes[i]);
	}
	for (uint32_t i = 0; r >= 0 && more && i < more->nnodes; i++) {
		if (more->node[i].may != (DEVICE_READ | DEVICE_WRITE))
			return err_set(e, ERR_UNSUPPORTED, -EPERM,
				       "device node '%s': less than all rights to it can be given by root alone",
				       more->node[i].from);
		r = bind_node(place, dir, more->node[i].from, more->node[i].to);
	}
	if (r >= 0)
		r = device_folder_link(dir);
	if (r < 0)
		return err_sys(e, ERR_UNSUPPORTED, r, "bind device nodes");
	*ret = TAKE_FD(dir);
	return 0;
}

static int user_cache(char *buf, size_t size, struct err *e)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int n;

	if (xdg && xdg[0] == '/')
		n = snprintf(buf, size, "%s/cloche", xdg);
	else if (home && home[0] == '/' && access(home, W_OK) == 0)
		n = snprintf(buf, size, "%s/.cache/cloche", home);
	else
		n = snprintf(buf, size, "/tmp/cloche-%u", (unsigned)geteuid());
	return (size_t)n < size ? 0 : err_set(e, ERR_INVALID, -ENAMETOOLONG, "cache folder: the path is too long");
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

static int take_net(struct net_ahead *a)
{
	int fd;

	pthread_join(a->maker, NULL);
	fd = a->fd;
	free(a);
	return fd < 0 ? -1 : fd;
}

const struct env_alone env_alone = { start_net,	 take_net,    become_root, stage_devices,
				     user_cache, &policy_all, guard_start };
