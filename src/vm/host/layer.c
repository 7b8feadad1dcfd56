/* Layers of virtual machines: fs/u/disk.NN are disks, each on the one before; mem/meta and mem/pages the machine's state. */
#include "engine/sandbox/internal.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/memory.h"
#include "vm/host/host.h"

static int open_layer(struct warden *w, const char *id)
{
	return sys_openat(w->env.layers, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
}

static int open_disk(int layer, unsigned n)
{
	char path[32];

	snprintf(path, sizeof(path), "fs/%s/disk.%02u", layer_trees[0], n);
	return layer_open_file(layer, path);
}

int vm_layer_disks(struct warden *w, const char (*ids)[ID_SIZE], uint32_t n, int *ret, unsigned max, struct err *e)
{
	unsigned found = 0;
	int r = 0;

	for (uint32_t i = 0; r >= 0 && i < n; i++) {
		AUTO_CLOSE int layer = open_layer(w, ids[i]);
		unsigned k = 0;

		r = layer;
		while (r >= 0 && (r = open_disk(layer, k)) >= 0) {
			if (found == max) {
				fd_close(r);
				r = -E2BIG;
				break;
			}
			ret[found++] = r;
			k++;
		}
		/* There is at least one disk; the first missing number is the end. */
		if (r == -ENOENT && k)
			r = 0;
		if (r < 0)
			err_sys(e, WHY_DAMAGED, r, "layer '%s': its disks", ids[i]);
	}
	if (r < 0) {
		fd_close_many(ret, found);
		return r;
	}
	return (int)found;
}

static int open_memory(struct warden *w, const char *id, const char *name, struct err *e)
{
	AUTO_CLOSE int layer = open_layer(w, id);
	int r = layer < 0 ? layer : memory_open(layer, name);

	return r < 0 ? err_sys(e, WHY_DAMAGED, r, "layer '%s': its memory", id) : r;
}

int vm_layer_meta(struct warden *w, const char *id, struct err *e)
{
	return open_memory(w, id, "meta", e);
}

int vm_layer_pages(struct warden *w, const char *id, struct err *e)
{
	return open_memory(w, id, "pages", e);
}
