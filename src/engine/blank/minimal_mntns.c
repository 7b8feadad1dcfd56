/* Makes a mount namespace with few mounts, which is cheap to copy. */
#include "engine/blank/minimal_mntns.h"
#include "base/base.h"
#include "base/log.h"
#include "base/sys.h"
#include "linux/mount.h"

#include <sched.h>

/* A new root with /proc, a place to step on, @image and @layers, if there are any; the old one is let go. */
static int enter(int image, int layers, struct err *e)
{
	static const struct mount_opt opts[] = { { "size", "16k" }, { "mode", "0755" }, { NULL, NULL } };
	static const char *const places[] = { "usr", "proc", "image", "layers" };
	AUTO_CLOSE int root = -1, proc = -1;
	int r;

	r = root = mount_new_err("tmpfs", opts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, e);
	if (r >= 0)
		r = proc = mount_new_err("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, e);
	if (r < 0)
		return r;
	r = 0;
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(places); i++)
		r = sys_mkdirat(root, places[i], 0755);
	if (r == 0)
		r = mount_attach(root, "/usr", 0);
	if (r == 0)
		r = mount_attach(proc, "/usr/proc", 0);
	if (r == 0)
		r = mount_attach(image, "/usr/image", 0);
	if (r == 0 && layers >= 0)
		r = mount_attach(layers, "/usr/layers", 0);
	if (r == 0)
		r = sys_chdir("/usr");
	if (r == 0)
		r = sys_pivot_root(".", ".");
	if (r == 0)
		r = sys_umount2(".", 2 /* MNT_DETACH */);
	if (r == 0)
		r = sys_chdir("/");
	return r < 0 ? err_sys(e, ERR_UNSUPPORTED, r, "pool: make a minimal root") : 0;
}

int minimal_mntns_enter(const struct env *v, struct image_host *ret, struct err *e)
{
	AUTO_CLOSE int image = mount_clone(v->image.lock, "", 0, -1);
	AUTO_CLOSE int layers = v->layers < 0 ? -1 : mount_clone(v->layers, "", 0, -1);
	struct image_host img;
	int r, grouped;

	if (image < 0)
		return err_sys(e, ERR_UNSUPPORTED, image, "pool: copy the mount of image 'host'");
	if (layers < 0 && v->layers >= 0)
		return err_sys(e, ERR_UNSUPPORTED, layers, "pool: copy the mount of the layers");
	r = sys_unshare(CLONE_FS | CLONE_NEWNS);
	if (r == 0)
		r = mount_tree_private();
	if (r < 0)
		return err_sys(e, ERR_UNSUPPORTED, r, "pool: make a mount namespace");
	/* Mounts that were copied in this namespace can be copied again in it, and need not be attached for that. */
	image_host_init(&img);
	img.usr = mount_clone(AT_FDCWD, "/usr", 0, -1);
	if (img.usr < 0)
		return err_sys(e, ERR_UNSUPPORTED, img.usr, "pool: copy the mount of /usr");
	if (v->image.dpkg >= 0)
		img.dpkg = mount_clone(AT_FDCWD, "/var/lib/dpkg", 0, -1);
	grouped = group_stock_open(&img.groups, &v->cgroups, v->controllers);
	r = enter(image, layers, e);
	if (r == 0) {
		r = img.dev = sys_openat(image, "dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
		if (r >= 0)
			r = img.base = sys_openat(image, "base", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
		if (r >= 0)
			r = img.root = sys_openat(image, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
		if (r < 0)
			err_sys(e, ERR_UNSUPPORTED, r, "pool: open image 'host'");
		else if (grouped == 0)
			grouped = group_stock_fill(&img.groups, img.base, img.dev);
		/* Without trees, agents mount what they need one by one. */
		if (r >= 0 && grouped < 0)
			log_warn("pool: cannot prepare a tree of mounts: %s", strerror(-grouped));
		if (r >= 0)
			image_host_join(&img);
	}
	if (r < 0) {
		image_host_done(&img);
		return r;
	}
	img.filler = v->image.filler;
	img.lock = TAKE_FD(image);
	img.layers = TAKE_FD(layers);
	*ret = img;
	return 0;
}
