/* What a sandbox uses, and what it is shown of that. */
#include "base/base.h"
#include "base/sys.h"
#include "engine/rootfs/premount.h"
#include "engine/rootfs/shown.h"
#include "engine/sandbox/internal.h"

#include <sys/statfs.h>

int warden_stat(struct warden *w, const struct warden_sandbox *s, struct warden_stat *ret)
{
	struct warden_stat st = { 0 };
	struct statfs fs;
	int r;

	if (s->tier->stat)
		return s->tier->stat(w, s, ret);
	if (s->blank.cgroup.mask) {
		r = cgroup_stat(&w->env.cgroups, &s->blank.cgroup, &st.group);
		if (r < 0)
			return r;
	}
	kernel_watch_usage(w->kernel, s->watched, &st.kernel);
	st.group.oom_kills += st.kernel.kills;
	/* A file of the writable layer tells as well, and one that was taken over has nothing else. */
	if (fstatfs(s->root.premount.meminfo, &fs) < 0)
		return -errno;
	/* What ext4 keeps back for itself cannot be written: a disk with only that left is full. */
	st.disk_size = (uint64_t)(fs.f_blocks - (fs.f_bfree - fs.f_bavail)) * (uint64_t)fs.f_bsize;
	st.disk_used = (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
	st.inodes_size = fs.f_files;
	st.inodes_used = fs.f_files - fs.f_ffree;
	*ret = st;
	return 0;
}

int warden_memory_stat(const struct warden_sandbox *s, char *text, size_t size)
{
	ssize_t n = s->blank.cgroup.dir[0] < 0 ? -ENOENT : fd_get(s->blank.cgroup.dir[0], "memory.stat", text, size);

	return n < 0 ? (int)n : 0;
}

int warden_refresh(struct warden *w, const struct warden_sandbox *s)
{
	struct procfs_memory m = { .limit = s->memory };
	char text[PROCFS_MAX];

	if (s->tier->machine)
		return 0; /* the guest's own warden does it */
	shown_memory(&w->env.cgroups, &s->blank.cgroup, &m);
	return shown_write(s->root.premount.writable, "meminfo", text, procfs_meminfo(text, sizeof(text), &m));
}
