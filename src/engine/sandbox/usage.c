/* What a sandbox uses. */
#include "base/base.h"
#include "base/sys.h"
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
	/* Any file of the writable layer has these figures, and an adopted sandbox has no other open. */
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
