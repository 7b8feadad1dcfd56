/* Attaches files to loop devices. */
#include "linux/loop.h"
#include "base/base.h"
#include "base/sys.h"

#include <linux/loop.h>

/* Another process may take the free number before we do: then the next one. */
int loop_attach(int file, char *path, size_t size, struct err *e)
{
	AUTO_CLOSE int ctl = sys_openat(AT_FDCWD, "/dev/loop-control", O_RDWR | O_CLOEXEC, 0);
	int r = ctl;

	for (unsigned tries = 0; ctl >= 0 && tries < 64; tries++) {
		struct loop_config c = { .fd = (uint32_t)file, .info.lo_flags = LO_FLAGS_AUTOCLEAR };
		AUTO_CLOSE int dev = -1;
		int n = sys_ioctl(ctl, LOOP_CTL_GET_FREE, NULL);

		if (n < 0) {
			r = n;
			break;
		}
		snprintf(path, size, "/dev/loop%d", n);
		r = dev = sys_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
		if (r >= 0)
			r = sys_ioctl(dev, LOOP_CONFIGURE, &c);
		if (r == 0)
			return TAKE_FD(dev);
		if (r != -EBUSY)
			break;
	}
	err_sys(e, ERR_UNSUPPORTED, r, "disk layer: loop device");
	err_remedy(e, "load the loop module (modprobe loop), or leave the layer in memory (no --storage disk)");
	return r;
}
