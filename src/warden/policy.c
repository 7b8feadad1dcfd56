/* Opens images and mounts for the warden, below allowed folders only. */
#include "warden/policy.h"
#include "base/base.h"
#include "base/sys.h"

/* The part of @path below @dir: "" for the folder itself, NULL when it is elsewhere. */
static const char *below(const char *dir, const char *path)
{
	size_t n = strlen(dir);

	while (n > 1 && dir[n - 1] == '/')
		n--;
	if (strncmp(dir, path, n) || (path[n] && path[n] != '/'))
		return NULL;
	path += n;
	return path + strspn(path, "/");
}

/* Opens the folder anew each time: it may have been mounted over, or the mount namespace may have changed. */
static int open_below(const char *dir, const char *rest, uint64_t flags)
{
	const struct open_how how = {
		.flags = O_PATH | O_CLOEXEC | flags,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	AUTO_CLOSE int base = sys_openat(AT_FDCWD, dir, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);

	return base < 0 ? base : sys_openat2(base, rest[0] ? rest : ".", &how);
}

static int refuse(struct err *e, int r, const char *what, const char *path)
{
	if (r == -ENOENT || r == -ENOTDIR)
		return err_advise(e, ERR_NOT_FOUND, r, "check its name, or make the folder on the daemon's host",
				  "%s '%s': does not exist", what, path);
	if (r == -ELOOP || r == -EXDEV)
		return err_set(e, ERR_DENIED, r, "%s '%s': symbolic links are not followed", what, path);
	return err_sys(e, ERR_DENIED, r, "%s '%s'", what, path);
}

static int listed_image(const void *arg, const char *path, struct err *e)
{
	const struct policy *p = arg;
	const char *rest = p->images ? below(p->images, path) : NULL;
	int fd;

	if (!rest || !rest[0] || strchr(rest, '/') || !strcmp(rest, "."))
		return err_advise(e, ERR_DENIED, -EACCES,
				  "use `host`, or a folder directly in the one given by --images",
				  "image '%s': not an image of this warden", path);
	fd = open_below(p->images, rest, O_DIRECTORY);
	return fd < 0 ? refuse(e, fd, "image", path) : fd;
}

static int listed_mount(const void *arg, const char *path, struct err *e)
{
	const struct policy *p = arg;

	for (unsigned i = 0; i < p->nmounts; i++) {
		const char *rest = below(p->mounts[i], path);
		int fd = rest ? open_below(p->mounts[i], rest, 0) : -EACCES;

		if (rest)
			return fd < 0 ? refuse(e, fd, "mount source", path) : fd;
	}
	return err_advise(e, ERR_DENIED, -EACCES,
			  "start the daemon with --allow-mount, or add it to its configuration (allow_mount)",
			  "mount source '%s': not below an allowed folder", path);
}

bool policy_device_fits(const char *allowed, const char *name)
{
	const size_t n = strlen(allowed);

	if (!strcmp(allowed, "gpu"))
		return name[0] != '/' && (!strncmp(name, "gpu=", 4) || strstr(name, "/gpu="));
	return n && allowed[n - 1] == '*' ? !strncmp(allowed, name, n - 1) : !strcmp(allowed, name);
}

static int listed_device(const void *arg, const char *name, struct err *e)
{
	const struct policy *p = arg;

	for (unsigned i = 0; i < p->ndevices; i++)
		if (policy_device_fits(p->devices[i], name))
			return 0;
	err_set(e, WHY_HOST_FORBIDS, -EACCES, "device '%s': not one that sandboxes may have", name);
	err_remedy(e, "an administrator can allow it with --allow-device (allow_device = %.80s)", name);
	return -EACCES;
}

struct env_policy policy_of(const struct policy *p)
{
	return (struct env_policy){ .image = listed_image, .mount = listed_mount, .device = listed_device, .arg = p };
}
