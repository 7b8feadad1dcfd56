/*
 * A writable /usr and dpkg database, for users that may change them. A sandbox without such a user has those of image
 * `host` as plain mounts: two overlays less to make, to pass at every open, and to remove. When such a user comes, the
 * overlays are mounted over them, from outside: the agent has given up the needed rights by then.
 */
#include "base/base.h"
#include "base/sys.h"
#include "engine/sandbox/internal.h"
#include "linux/mount.h"
#include "linux/ns.h"

#include <sched.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#define TMPFS 0x01021994UL
#define OWN_INODES 16 /* at most so many are the overlays' own */

/*
 * What a process does that enters the sandbox's namespaces for a moment: it looks, and copies the mount of the writable
 * layer, which can be done only where that is attached; or it attaches what was made from that.
 */
struct visit {
	int user, mnt; /* the namespaces */
	int writable;
	const struct root *root; /* NULL: the first time */
	unsigned which; /* ROOT_SYSTEM_*: what has to be laid over. Once there: less what is */
	int copy;
	int r;
};

static int lay(int root, const char *target, int mnt)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
	int at = sys_openat2(root, target + 1, &how), r;

	r = at < 0 ? at : mount_attach_at(mnt, at, 0);
	fd_close(at);
	return r;
}

/* Whether a mount is still the read-only one from the start. */
static int is_plain(const char *path)
{
	struct statvfs fs;

	return statvfs(path, &fs) < 0 ? -errno : (fs.f_flag & ST_RDONLY) != 0;
}

static int look(struct visit *v)
{
	static const char *const path[] = { "/usr", ROOT_DPKG };

	for (unsigned i = 0; i < ARRAY_LEN(path); i++) {
		int r = v->which & 1U << i ? is_plain(path[i]) : 0;

		if (r < 0)
			return r;
		if (r == 0)
			v->which &= ~(1U << i);
	}
	if (v->which)
		v->copy = sys_open_tree(v->writable, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	return v->which && v->copy < 0 ? v->copy : 0;
}

/* On the thread's memory and descriptors, while it waits: everything that is opened is closed. */
static int visit(void *arg)
{
	struct visit *v = arg;
	int root;

	/* One after the other: what the second takes comes with the first. */
	v->r = sys_setns(v->user, CLONE_NEWUSER);
	if (v->r == 0)
		v->r = sys_setns(v->mnt, CLONE_NEWNS);
	if (v->r < 0)
		return 0;
	if (!v->root) {
		v->r = look(v);
		return 0;
	}
	root = sys_openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	v->r = root < 0 ? root : 0;
	for (unsigned i = 0; v->r == 0 && i < v->root->setup.mounts.n; i++)
		v->r = lay(root, v->root->setup.mounts.mount[i].target, v->root->fds[i]);
	fd_close(root);
	return 0;
}

static int send_in(struct visit *v, struct err *e)
{
	static _Alignas(16) char stack[NS_STACK_SIZE];
	struct clone_args a = {
		.flags = CLONE_VM | CLONE_VFORK | CLONE_FILES,
		.stack = (uint64_t)(uintptr_t)stack,
		.stack_size = sizeof(stack),
	};
	long pid = ns_clone(&a, visit, v);

	if (pid < 0)
		return err_sys(e, ERR_EXHAUSTED, (int)pid, "start a process");
	while (waitpid((pid_t)pid, NULL, __WALL) < 0 && errno == EINTR)
		;
	return v->r < 0 ? err_sys(e, ERR_INTERNAL, v->r, "mount a writable /usr over the sandbox's /usr") : 0;
}

bool system_later(const struct warden *w, const struct sandbox_spec *spec)
{
	const struct manifest *m;

	/*
	 * The overlays hide mounts below them, and older kernels have no attached layer any more. A disk may be full by
	 * then, and cannot be enlarged as memory can.
	 */
	if (!(spec->flags & SPEC_SYSTEM_WRITABLE) || spec->flags & SPEC_DISK || strcmp(spec->image, "host") ||
	    spec->nmounts || spec->ntmpfs || w->env.rootless || w->env.stage || !w->env.persist)
		return false;
	if (!spec->layers)
		return true;
	/* Its files in /usr may have been changed, by a process that may be in the image. */
	m = w->layers ? layers_find(w->layers, spec->layer[spec->layers - 1]) : NULL;
	return m && m->flags & SPEC_SYSTEM_LATER;
}

/* Gives the layers below to the thread that cleans up behind the sandbox, since closing them may block. */
static void hand_over(struct root *from, int writable, struct root *to)
{
	assert(from->nlayers < ROOT_LAYERS_MAX);
	from->layers[from->nlayers++] = writable;
	for (unsigned i = 0; i < from->nlayers; i++) {
		fd_close(to->layers[i]);
		to->layers[i] = TAKE_FD(from->layers[i]);
	}
}

/* What is inside may have used up all there is: that must neither keep root out nor /usr from being writable for ever. */
static int make_room(int writable)
{
	char size[24], inodes[24];
	struct statfs fs;

	if (fstatfs(writable, &fs) < 0)
		return -errno;
	if ((unsigned long)fs.f_type != TMPFS || !fs.f_files || fs.f_ffree >= OWN_INODES)
		return 0;
	snprintf(size, sizeof(size), "%llu", (unsigned long long)fs.f_blocks * (unsigned long long)fs.f_bsize);
	snprintf(inodes, sizeof(inodes), "%llu", (unsigned long long)fs.f_files + OWN_INODES);
	return mount_resize(writable, size, inodes);
}

/* An overlay that could not make its own folders is there nevertheless, and can only be read. */
static int all_writable(const struct root *root, struct err *e)
{
	for (unsigned i = 0; i < root->setup.mounts.n; i++) {
		struct statvfs fs;

		if (fstatvfs(root->fds[i], &fs) < 0)
			return err_sys(e, ERR_INTERNAL, -errno, "read the status of the new %s",
				       root->setup.mounts.mount[i].target);
		if (fs.f_flag & ST_RDONLY)
			return err_advise(e, ERR_EXHAUSTED, -ENOSPC, "remove files in it",
					  "the sandbox's disk has no space for it");
	}
	return 0;
}

static int lay_over(struct warden *w, struct warden_sandbox *s, struct err *e)
{
	AUTO_CLOSE int mnt = ns_open_mnt(s->blank.pid, s->blank.pidfd);
	struct visit v = { .mnt = mnt,
			   .writable = s->root.premount.writable,
			   .copy = -1,
			   .which = ROOT_SYSTEM_USR | (w->env.image.dpkg < 0 ? 0 : ROOT_SYSTEM_DPKG) };
	struct root root;
	int r = mnt;

	if (r >= 0 && s->blank.userns < 0)
		r = s->blank.userns = ns_open_user(s->blank.pid, s->blank.pidfd);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "open the sandbox's namespaces");
	v.user = s->blank.userns;
	r = send_in(&v, e);
	/* A warden that died, or failed, may have got as far. Two overlays over one writable layer must not be. */
	if (r < 0 || !v.which)
		return r;
	r = make_room(v.copy);
	r = r < 0 ? err_sys(e, ERR_INTERNAL, r, "make space in the writable layer") :
		    root_system(&w->env, &w->env.image, &s->blank, v.copy, v.which, &root, e);
	if (r < 0) {
		fd_close(v.copy);
		return r;
	}
	v.root = &root;
	r = all_writable(&root, e);
	if (r == 0) {
		if (s->sealing)
			seal_system(s->sealing->seal);
		r = send_in(&v, e);
	}
	hand_over(&root, v.copy, &s->root);
	root_done(&root);
	return r;
}

int warden_system(struct warden *w, struct warden_sandbox *s, struct err *e)
{
	const uint32_t flags = s->flags & ~SPEC_SYSTEM_LATER;
	int r;

	if (flags == s->flags)
		return 0;
	if (s->root.premount.writable < 0)
		return err_set(e, ERR_CONFLICT, -EAGAIN, "the sandbox is not ready yet");
	r = lay_over(w, s, e);
	if (r < 0)
		return r;
	r = s->blank.recorded ? records_spec_flags(&w->env.records, s->blank.slot, flags) : 0;
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "write the sandbox's record");
	s->flags = flags;
	return 0;
}
