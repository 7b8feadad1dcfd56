/* Fills what sandboxes start from in this process. */
#include "engine/image/fill.h"
#include "base/base.h"
#include "engine/image/cpu_files.h"
#include "engine/image/disk.h"
#include "engine/image/host_image.h"

int image_fill_here(int program, const struct image_fill *x, struct err *e)
{
	int r;

	(void)program;
	switch (x->what) {
	case IMAGE_HOST:
	case IMAGE_DEVICES:
		return host_image_fill(x->fd, x->what == IMAGE_DEVICES, e);
	case IMAGE_CPUS:
		r = cpu_files_fill(x->fd, (unsigned)x->n);
		return r < 0 ? err_sys(e, ERR_INTERNAL, r, "make the files of %u processors", (unsigned)x->n) : 0;
	case IMAGE_DISK:
		return disk_format(x->fd, x->n, (unsigned)x->journal, e);
	}
	return -EINVAL;
}
