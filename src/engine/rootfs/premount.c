/* Makes the mounts that need no image. */
#include "engine/rootfs/premount.h"
#include "base/base.h"
#include "base/sys.h"
#include "engine/image/procfs.h"
#include "engine/rootfs/shown.h"
#include "linux/mount.h"
#include "proto/frame.h"

#include <sys/stat.h>
#include <unistd.h>

#define PROCFS_ATTRS (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

void premount_init(struct premount *y)
{
	*y = (struct premount){ .writable = -1, .meminfo = -1 };
}

void premount_done(struct premount *y)
{
	fd_close(y->writable);
	fd_close(y->meminfo);
	premount_init(y);
}

/* Targets are places of the agent's own base (agent/blank.c): p is /proc, e is /dev, s is /sys, c is /sys/fs/cgroup. */
static int send_mounts(int cpus, int writable, int texts, const struct blank *s, bool cpu_max, struct err *e)
{
	struct stat st;
	const struct {
		int from;
		const char *path, *target;
		uint64_t attrs;
	} plan[] = {
		{ cpus, "sys", "s", PROCFS_ATTRS },
		{ cpus, "cpuinfo", "p/cpuinfo", PROCFS_ATTRS },
		{ cpus, "stat", "p/stat", PROCFS_ATTRS },
		{ texts, "meminfo", "p/meminfo", PROCFS_ATTRS },
		{ texts, "loadavg", "p/loadavg", PROCFS_ATTRS },
		{ writable, "shm", "e/shm", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC },
		{ texts, "cpu.max", "c/cpu.max", PROCFS_ATTRS },
	};
	const size_t last = ARRAY_LEN(plan) - !cpu_max;
	struct frame_mounts m = { 0 };
	int fds[ARRAY_LEN(plan)];
	uint8_t out[FRAME_HEAD + 512];
	int r = 0;
	long n;

	/* The files of the processors, which most bases have. */
	for (size_t i = fstat(cpus, &st) == 0 && s->shown == st.st_ino ? 3 : 0; r >= 0 && i < last; i++) {
		r = plan[i].from == cpus ? mount_clone(cpus, plan[i].path, plan[i].attrs, -1) :
					   mount_copy(plan[i].from, plan[i].path, plan[i].attrs);
		if (r < 0)
			break;
		fds[m.n] = r;
		m.mount[m.n].kind = FRAME_MOUNT_BASE;
		m.mount[m.n++].target = plan[i].target;
	}
	if (r >= 0) {
		n = frame_mounts_encode(&m, out + FRAME_HEAD, sizeof(out) - FRAME_HEAD);
		frame_head(out, FRAME_MOUNTS, (uint8_t)m.n, 0, (uint32_t)n);
		r = fd_send(s->sock, out, FRAME_HEAD + (size_t)n, fds, m.n);
	}
	fd_close_many(fds, m.n);
	/* -EPIPE: the agent has failed, and has said why (root_send). */
	return r < 0 && r != -EPIPE ? err_sys(e, ERR_LOST, r, "send the first mounts to the agent") : 0;
}

int premount_make(struct env *v, const struct image_host *img, const struct blank *s, const struct writable_opts *o,
		  unsigned cpus, struct premount *ret, struct err *e)
{
	struct premount y = { .writable = -1, .meminfo = -1, .cpus = cpus, .size = o->size, .inodes = o->inodes };
	AUTO_CLOSE int dir = image_cpus(img, cpus, e), apart = -1;
	int r;

	if (dir < 0)
		return dir;
	r = y.writable = writable_new(v, o, e);
	if (r >= 0 && o->disk && !v->stage) {
		r = apart = sys_openat(y.writable, SHOWN_APART, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
		if (r < 0)
			err_sys(e, ERR_INTERNAL, r, "open the files that show a sandbox its use");
	}
	if (r >= 0)
		r = send_mounts(dir, y.writable, apart >= 0 ? apart : y.writable, s,
				!v->rootless && v->cgroups.version == 1 && s->cgroup.mask & CGROUP_BIT(CGROUP_CPU), e);
	if (r >= 0) {
		r = y.meminfo = sys_openat(y.writable, "meminfo", O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0);
		if (r < 0)
			err_sys(e, ERR_INTERNAL, r, "open meminfo");
	}
	if (r < 0) {
		premount_done(&y);
		return r;
	}
	*ret = y;
	return 0;
}

int premount_show(const struct premount *y, uint64_t memory, uint32_t cpu_milli)
{
	char text[PROCFS_MAX];
	int r = shown_write(y->writable, "meminfo", text,
			    procfs_meminfo(text, sizeof(text), &(struct procfs_memory){ .limit = memory }));

	if (r == 0)
		r = shown_write(y->writable, "loadavg", SHOWN_NO_LOAD, strlen(SHOWN_NO_LOAD));
	return r == 0 ? shown_write(y->writable, "cpu.max", text, procfs_cpu_max(text, sizeof(text), cpu_milli)) : r;
}
