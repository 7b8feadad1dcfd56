/* Has cloche-devices say what devices are, and believes none of it. */
#include "engine/image/devices.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/spawn.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#define LIMIT_MS 10000

int devices_ask(const struct devices_from *from, const char (*names)[DEVICE_NAME], unsigned n, struct device_plan *ret,
		struct err *e)
{
	char name[] = "cloche-devices", folder[] = "--folder", host[] = "--host", rootless[] = "--rootless",
	     plan[] = "plan", copy[DEVICE_NAMES][DEVICE_NAME];
	char *argv[DEVICE_NAMES + 7];
	unsigned argc = 0;
	int fd[1] = { -1 }, r;
	struct spawn s = { .program = from->program, .fd = fd, .fds = 1, .argv = argv };

	if (from->program < 0) {
		err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "devices: cloche-devices is not installed");
		err_remedy(e, "install it beside cloche-warden");
		return -EOPNOTSUPP;
	}
	argv[argc++] = name;
	argv[argc++] = folder;
	argv[argc++] = (char *)(uintptr_t)(from->folders ? from->folders : "/etc/cdi:/var/run/cdi");
	if (from->host)
		argv[argc++] = host;
	if (from->rootless)
		argv[argc++] = rootless;
	argv[argc++] = plan;
	for (unsigned i = 0; i < n && i < DEVICE_NAMES; i++) {
		memcpy(copy[i], names[i], DEVICE_NAME);
		argv[argc++] = copy[i];
	}
	argv[argc] = NULL;
	r = spawn_ask(&s, ret, sizeof(*ret), LIMIT_MS, e);
	if (r == 0 && !spawn_answered(ret->result, &ret->e))
		r = err_set(e, ERR_INTERNAL, -EIO, "invalid answer from cloche-devices");
	if (r < 0)
		return r;
	if (ret->result < 0 && e)
		*e = ret->e;
	return ret->result;
}

int devices_open(const char *path)
{
	return sys_openat2(AT_FDCWD, path,
			   &(struct open_how){ .flags = O_PATH | O_CLOEXEC,
					       .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS });
}

static int check_node(struct device_node *n, const char (*names)[DEVICE_NAME], unsigned count, struct err *e)
{
	AUTO_CLOSE int fd = -1;
	bool named = false;
	struct stat st;

	for (unsigned i = 0; i < count; i++)
		named = named || !strcmp(names[i], n->from);
	fd = devices_open(n->from);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, ERR_NOT_FOUND, fd < 0 ? fd : -errno, "device node '%s'", n->from);
	if ((n->block ? !S_ISBLK(st.st_mode) : !S_ISCHR(st.st_mode)) || major(st.st_rdev) != n->major ||
	    minor(st.st_rdev) != n->minor)
		return err_set(e, ERR_CONFLICT, -ENODEV, "device node '%s': changed in the meantime", n->from);
	if (n->block ? !named : n->major == 1 && (n->minor == 1 || n->minor == 2 || n->minor == 4)) {
		err_set(e, WHY_HOST_FORBIDS, -EACCES, "device node '%s': %s", n->from,
			n->block ? "a disk" : "memory of the kernel, which no sandbox gets");
		err_remedy(e, "a disk must be allowed, and asked for, by its path");
		return -EACCES;
	}
	if (n->mode == DEVICE_NO_ID)
		n->mode = st.st_mode & 0777;
	n->mode &= 0777;
	return 0;
}

int devices_check(struct device_plan *p, const char (*names)[DEVICE_NAME], unsigned n, struct err *e)
{
	int r = device_plan_check(p);

	if (r < 0)
		return err_set(e, ERR_DENIED, r, "device: cloche-devices gave an invalid answer");
	for (uint32_t i = 0; r == 0 && i < p->nnodes; i++)
		r = check_node(&p->node[i], names, n, e);
	return r;
}
