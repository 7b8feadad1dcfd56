/*
 * Stored images for virtual machines. Such an image is a stack of layers, which are folders: an overlay merges them, and
 * cloche-vm-files makes one erofs of what that shows. It is named by the uppermost layer, "l-ID.erofs", in the folder of
 * templates: layers never change, so it is right as long as that layer exists, and it is removed together with it. An
 * image without files has "l-empty.erofs".
 */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/sys.h"
#include "linux/mount.h"
#include "vm/host/host.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "l-"
#define SUFFIX ".erofs"
#define ATTRS (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define OLD_SECONDS (30LL * 24 * 3600)
#define EMPTY "empty" /* in place of a layer's id: an image without any files */
#define SPARE (64 * MIB) /* room on the disk that is left to others */

static_assert(sizeof(PREFIX SUFFIX) + ID_LEN <= VM_KEY_NAME, "its name fits");

uint32_t vm_stack(const struct warden *w, const struct warden_sandbox *s)
{
	uint32_t n = 0;

	while (w->layers && n < s->layers) {
		const struct manifest *m = layers_find(w->layers, s->layer[n]);

		if (!m || manifest_of_machine(m))
			break;
		n++;
	}
	return n;
}

uint32_t vm_disks(const struct warden_sandbox *s)
{
	return s->layers - s->vm->stack;
}

void vm_stack_key(const char *layer, char ret[SPEC_PATH])
{
	snprintf(ret, SPEC_PATH, "layer %s", layer);
}

static void put_name(const char *layer, char ret[VM_KEY_NAME])
{
	snprintf(ret, VM_KEY_NAME, PREFIX "%s" SUFFIX, layer);
}

static int open_folder(struct warden *w, const char *layer)
{
	char path[ID_SIZE + 16];

	snprintf(path, sizeof(path), "%s/fs/%s", layer, layer_trees[0]);
	return sys_openat(w->env.layers, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
}

/* A mount of all that the layers of @s show together. */
static int open_merged(struct warden *w, const struct warden_sandbox *s, struct err *e)
{
	/* What a layer may hold was made by others: nothing in it leads to another place. */
	static const struct mount_opt opts[] = { { "source", "overlay" },	 { "xino", "off" },
						 { "metacopy", "off" },		 { "index", "off" },
						 { "redirect_dir", "nofollow" }, { NULL, NULL } };
	int fds[SPEC_LAYERS], r = 0;
	unsigned n = 0;

	for (uint32_t i = s->vm->stack; r >= 0 && i-- > 0;) {
		r = open_folder(w, s->layer[i]);
		if (r >= 0)
			fds[n++] = r;
		else if (r == -ENOENT)
			r = 0;
		else
			err_sys(e, ERR_INTERNAL, r, "open layer '%s'", s->layer[i]);
	}
	if (r >= 0 && !n) {
		r = mount_new_err("tmpfs", NULL, ATTRS, e);
	} else if (r >= 0 && n == 1) {
		r = mount_clone(fds[0], "", ATTRS, -1);
		if (r < 0)
			err_sys(e, ERR_INTERNAL, r, "copy the mount of a layer");
	} else if (r >= 0) {
		r = mount_overlay(fds, n, opts, ATTRS, e);
	}
	fd_close_many(fds, n);
	return r < 0 ? err_wrap(e, r, "the layers of the image") : r;
}

/* The erofs is about as large as its layers: better refused than a full disk. */
static int check_room(struct warden *w, const struct warden_sandbox *s, struct err *e)
{
	uint64_t needed = SPARE, left;
	struct statvfs v;

	for (uint32_t i = 0; i < s->vm->stack; i++)
		needed += layers_find(w->layers, s->layer[i])->size;
	if (fstatvfs(w->vms->dir, &v) < 0)
		return 0;
	left = (uint64_t)v.f_bavail * v.f_frsize;
	if (left >= needed)
		return 0;
	return err_advise(e, ERR_EXHAUSTED, -ENOSPC,
			  "remove images or checkpoints that are not needed, or use isolation 'container'",
			  "a disk image for virtual machines needs %llu MB of room (%llu MB are left)",
			  (unsigned long long)(needed / 1000000), (unsigned long long)(left / 1000000));
}

int vm_stack_look(struct warden *w, const struct warden_sandbox *s, struct vm_work *x, struct err *e)
{
	static const char what[] = "cloche layers 1";
	const char *top = s->vm->stack ? s->layer[s->vm->stack - 1] : NULL;
	struct sha256 sum;
	int r;

	put_name(top ? top : EMPTY, x->given.name);
	if (faccessat(w->vms->dir, x->given.name, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		r = check_room(w, s, e);
		if (r < 0)
			return r;
	}
	r = x->fd[VM_FILE_ROOT] = open_merged(w, s, e);
	if (r < 0)
		return r;
	r = x->fd[VM_FILE_FOLDER] = sys_fcntl(w->vms->dir, F_DUPFD_CLOEXEC, 3);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "open %s", w->vms->path);
	snprintf(x->given.cache, sizeof(x->given.cache), "%s", w->vms->path);
	sha256_init(&sum);
	sha256_add(&sum, what, sizeof(what));
	if (top)
		sha256_add(&sum, layers_find(w->layers, top)->self, SHA256_SIZE);
	sha256_end(&sum, x->made.root_id);
	return 0;
}

bool vm_stack_unused(struct warden *w, const char *name)
{
	const size_t n = strlen(name), prefix = strlen(PREFIX);
	char layer[ID_SIZE];
	struct stat st;

	if (strncmp(name, PREFIX, prefix) || n != prefix + ID_LEN + strlen(SUFFIX) ||
	    strcmp(name + prefix + ID_LEN, SUFFIX))
		return false;
	memcpy(layer, name + prefix, ID_LEN);
	layer[ID_LEN] = '\0';
	return !w->layers || !layers_find(w->layers, layer) ||
	       (fstatat(w->vms->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_mtime < time(NULL) - OLD_SECONDS);
}

void vm_stack_gone(struct warden *w, const char *layer)
{
	char name[VM_KEY_NAME], key[SPEC_PATH];

	if (!w->vms)
		return;
	put_name(layer, name);
	sys_unlinkat(w->vms->dir, name, 0);
	vm_stack_key(layer, key);
	vm_picture_drop(w, key);
}
