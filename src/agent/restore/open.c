/*
 * Files by their path, below the sandbox's own root, which is the agent's root. Each is opened as the user of the
 * process that had it, so that a restore never gives a process a file that its user could not open. The opening is done
 * by a child that shares the agent's memory and descriptors, one for each user.
 */
#include "agent/restore/restore.h"
#include "agent/restore/socket.h"
#include "base/base.h"
#include "base/sys.h"
#include "proto/socket_option.h"

#include <sched.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define IN_PLACE (RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS)
#define KEEP_FLAGS                                                                                                     \
	(O_ACCMODE | O_APPEND | O_NONBLOCK | O_DIRECTORY | O_PATH | O_SYNC | O_DSYNC | O_NOATIME | O_DIRECT |          \
	 O_ASYNC | O_NOFOLLOW)
#define MACHINE_ID "/etc/machine-id"
#define GENERATION "/run/cloche/generation"

struct opener {
	struct restore *r;
	const uint32_t *file_of, *object_of; /* for each file and object, the first process that has it */
	uint32_t user; /* a process with the user as whom files are opened now */
	uint32_t index; /* what was being opened */
	bool object, differs, named;
	int error;
	char path[MEM_PATH_MAX + 1];
};

static _Alignas(16) char stack[65536];

/*
 * Opens a file whose mode refuses its own owner (git creates read-only files and writes to them). The owner may change
 * the mode, so it is changed for the moment of opening: no other process runs yet.
 */
static int open_own(const char *path, struct open_how *how)
{
	struct stat st;
	int fd;

	if (lstat(path, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
		return -EACCES;
	if (chmod(path, (st.st_mode & 07777) | 0600) < 0)
		return -errno;
	fd = sys_openat2(AT_FDCWD, path, how);
	if (chmod(path, st.st_mode & 07777) < 0) {
		int r = -errno;

		fd_close(fd);
		return r;
	}
	return fd;
}

static int open_path(struct opener *o, uint32_t file, int flags)
{
	const struct mem_file *f = &o->r->m.file[file];
	struct open_how how = { .resolve = IN_PLACE };
	int fd;

	/* openat2 takes no flag that means nothing. */
	if (S_ISREG(f->mode))
		flags &= ~O_DIRECTORY; /* O_DIRECTORY is part of O_TMPFILE */
	flags = flags & O_PATH ? flags & (O_PATH | O_DIRECTORY | O_NOFOLLOW) : (flags & ~O_NOFOLLOW) | O_NOCTTY;
	how.flags = (uint64_t)(flags | O_CLOEXEC);

	memcpy(o->path, restore_bytes(o->r, f->path), f->path.len);
	o->path[f->path.len] = '\0';
	/* A removed file is there as a descriptor, and every process that had it may have it again. */
	if (f->node != MEM_NONE && o->r->m.node[f->node].flags & MEM_NODE_REMOVED) {
		const struct restore_node *n = &o->r->node[f->node];
		char at[32];

		snprintf(at, sizeof(at), "/proc/self/fd/%d", n->fd);
		if (flags & O_NOFOLLOW) /* or that would be what is opened */
			fd = sys_openat(n->folder, n->name, (int)how.flags, 0);
		else
			fd = sys_openat(AT_FDCWD, at, (int)how.flags, 0);
		if (fd < 0 && flags & O_NOFOLLOW)
			fd = sys_fcntl(n->fd, F_DUPFD_CLOEXEC, o->r->base);
		return fd < 0 ? fd : restore_high(o->r, fd);
	}
	fd = sys_openat2(AT_FDCWD, o->path, &how);
	if (fd == -EACCES)
		fd = open_own(o->path, &how);
	return fd < 0 ? fd : restore_high(o->r, fd);
}

/*
 * Checks that an opened file is the one in the image. If its content is part of a process's memory, all attributes must
 * be the same.
 */
static int compare(struct opener *o, uint32_t file, int fd)
{
	const struct mem_file *f = &o->r->m.file[file];
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	o->differs = (st.st_mode & S_IFMT) != (f->mode & S_IFMT) ||
		     (f->flags & 1 &&
		      ((uint64_t)st.st_size != f->size || st.st_mode != f->mode ||
		       (uint64_t)st.st_mtim.tv_sec * 1000000000ULL + (uint64_t)st.st_mtim.tv_nsec != f->mtime_ns));
	o->named = st.st_nlink > 0;
	if (f->ino && st.st_ino != f->ino)
		o->r->done |= FRAME_RESTORED_NUMBERS_LOST;
	return o->differs ? -ESTALE : 0;
}

static int open_file(struct opener *o, uint32_t i)
{
	uint8_t need = o->r->file_need[i];
	int flags = need & NEED_WRITE ? O_RDWR : need & NEED_READ ? O_RDONLY : O_PATH;
	int fd = open_path(o, i, flags);

	o->r->file[i] = fd < 0 ? -1 : fd;
	return fd < 0 ? fd : compare(o, i, fd);
}

/* Binds a unix socket whose file exists already: a process that has ended has left it. */
static int open_socket(struct opener *o, const struct mem_object *x)
{
	struct restore_socket s;
	const struct sockaddr_un *un = (const struct sockaddr_un *)&s.addr;
	struct stat st;
	int fd, r;

	restore_socket_read(o->r, x, &s);
	fd = socket(AF_UNIX, (int)s.k.type | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	fd = restore_high(o->r, fd);
	r = fd < 0 ? fd : socket_option_set(fd, s.options, s.k.options, 0, &s.failed);
	if (r < 0)
		return r;
	if (x->file != MEM_NONE) {
		memcpy(o->path, restore_bytes(o->r, o->r->m.file[x->file].path), o->r->m.file[x->file].path.len);
		o->path[o->r->m.file[x->file].path.len] = '\0';
		r = chdir(o->path) < 0 ? -errno : 0;
	}
	if (r == 0)
		r = lstat(un->sun_path, &st) < 0 ? -errno : S_ISSOCK(st.st_mode) ? 0 : -EEXIST;
	if (r == 0)
		r = unlink(un->sun_path) < 0 || bind(fd, (const struct sockaddr *)&s.addr, s.k.addr_len) < 0 ||
				    chmod(un->sun_path, st.st_mode & 07777) < 0 ?
			    -errno :
			    0;
	if (x->file != MEM_NONE && chdir("/") < 0)
		r = -errno;
	return r < 0 ? r : fd;
}

static int open_object(struct opener *o, uint32_t i)
{
	const struct mem_object *x = &o->r->m.object[i];
	int fd;

	if (x->kind == MEM_OBJ_SOCKET)
		fd = open_socket(o, x);
	else if (x->kind == MEM_OBJ_FIFO)
		fd = open_path(o, x->file, O_RDWR | O_NONBLOCK); /* does not block; object.c restores its flags */
	else
		fd = open_path(o, x->file, (int)x->flags & KEEP_FLAGS);
	o->r->object[i] = fd < 0 ? -1 : fd;
	if (fd < 0 || x->kind == MEM_OBJ_SOCKET)
		return fd < 0 ? fd : 0;
	/* Devices and pipes have no position. */
	if (x->kind == MEM_OBJ_FILE && x->pos && lseek(fd, (off_t)x->pos, SEEK_SET) < 0)
		return -errno;
	return compare(o, x->file, fd);
}

static bool same_user(const struct restore *r, uint32_t a, uint32_t b)
{
	const struct mem_proc *x = &r->m.proc[a], *y = &r->m.proc[b];

	return x->uid[3] == y->uid[3] && x->gid[3] == y->gid[3] && x->groups.len == y->groups.len &&
	       !memcmp(restore_bytes(r, x->groups), restore_bytes(r, y->groups), x->groups.len);
}

static int open_all(struct opener *o)
{
	const struct restore *r = o->r;
	int x = 0;

	o->object = false;
	for (uint32_t i = 0; i < r->m.n[MEM_S_FILE]; i++) {
		o->index = i;
		if (!r->file_need[i] || r->file[i] >= 0 || !same_user(r, o->file_of[i], o->user))
			continue;
		x = open_file(o, i);
		if (x < 0)
			return x;
	}
	o->object = true;
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++) {
		const struct mem_object *b = &r->m.object[i];

		o->index = i;
		if (b->kind != MEM_OBJ_FILE && b->kind != MEM_OBJ_DEV && b->kind != MEM_OBJ_FIFO &&
		    !restore_unix_has_file(r, b) && (b->kind != MEM_OBJ_PROC || restore_is_own(r, b)))
			continue;
		if (r->object[i] >= 0 || !same_user(r, o->object_of[i], o->user))
			continue;
		x = open_object(o, i);
		if (x < 0)
			return x;
	}
	return 0;
}

static int child(void *arg)
{
	struct opener *o = arg;
	const struct mem_proc *p = &o->r->m.proc[o->user];
	int r = exec_become_with(o->r->agent, p->uid[3], p->gid[3], restore_bytes(o->r, p->groups), p->groups.len / 4);

	o->error = r < 0 ? r : open_all(o);
	return 0;
}

int restore_as_user(int (*fn)(void *), void *arg)
{
	int status;
	pid_t pid = clone(fn, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, arg);

	if (pid < 0)
		return -errno;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -ECHILD;
}

static int say(const struct opener *o, struct err *e)
{
	const struct restore *r = o->r;
	const struct mem_object *x = o->object ? &r->m.object[o->index] : NULL;
	uint32_t file = x ? x->file : o->index;

	if (x && x->kind == MEM_OBJ_SOCKET)
		return err_sys(e, ERR_UNSUPPORTED, o->error, "recreate a unix socket");
	if (file >= r->m.n[MEM_S_FILE])
		return err_sys(e, ERR_INTERNAL, o->error, "open files as their user");
	if (o->differs)
		return err_set(e, ERR_CONFLICT, o->error, "'%.160s' is not the same file as when the image was taken",
			       o->path);
	return err_sys(e, ERR_CONFLICT, o->error, "reopen '%.160s'", o->path);
}

/*
 * Notes how each file has to be opened: for writing if a shared mapping needs that; a folder that is only entered, with
 * O_PATH.
 */
static void note_needs(struct restore *r, uint32_t *file_of, uint32_t *object_of)
{
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++)
		object_of[i] = MEM_NONE;
	for (uint32_t p = r->m.n[MEM_S_PROC]; p-- > 0;) {
		const struct mem_proc *x = &r->m.proc[p];

		if (x->state != MEM_ALIVE)
			continue;
		for (uint32_t v = 0; v < x->vma.n; v++) {
			const struct mem_vma *m = &r->m.vma[x->vma.first + v];

			if (m->file == MEM_NONE)
				continue;
			file_of[m->file] = p;
			r->file_need[m->file] |=
				m->kind == MEM_VMA_FILE_SHARED && (m->prot & 2 || m->flags & MEM_VMA_MAY_WRITE) ?
					NEED_WRITE :
					NEED_READ;
		}
		file_of[x->exe] = file_of[x->cwd] = p;
		r->file_need[x->exe] |= NEED_READ;
		r->file_need[x->cwd] |= NEED_PATH;
		for (uint32_t f = 0; f < x->fd.n; f++)
			object_of[r->m.fd[x->fd.first + f].object] = p;
	}
}

static int first_alive(const struct restore *r)
{
	for (uint32_t p = 0; p < r->m.n[MEM_S_PROC]; p++)
		if (r->m.proc[p].state == MEM_ALIVE)
			return (int)p;
	return -ESRCH;
}

static int put_line(const char *path, const char *text, int flags)
{
	AUTO_CLOSE int fd = sys_openat(AT_FDCWD, path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | flags, 0444);
	ssize_t n;

	if (fd < 0)
		return fd;
	if (sys_ftruncate(fd, 0) < 0)
		return -EIO;
	n = sys_write(fd, text, strlen(text));
	return n == (ssize_t)strlen(text) ? 0 : -EIO;
}

/* Runs as root of the sandbox, or as its single user: renews what must differ between two copies. */
static int renumber(void *arg)
{
	struct restore *r = arg;
	uint32_t id = r->agent->single_id ? r->agent->single_id - 1 : 0;
	static const char hex[] = "0123456789abcdef";
	char text[34];

	if (exec_become(r->agent, id, id) < 0)
		return 0;
	for (unsigned i = 0; i < 32; i++)
		text[i] = hex[r->frame->generation[i / 16] >> (4 * (i % 16)) & 15];
	text[32] = '\n';
	text[33] = '\0';
	sys_mkdirat(AT_FDCWD, "/run/cloche", 0755);
	if (put_line(GENERATION, text, O_CREAT) == 0)
		r->done |= FRAME_RESTORED_GENERATION;
	if (put_line(MACHINE_ID, text, 0) == 0)
		r->done |= FRAME_RESTORED_MACHINE_ID;
	return 0;
}

int restore_open(struct restore *r, struct err *e)
{
	AUTO_FREE uint32_t *file_of = calloc(r->m.n[MEM_S_FILE] + 1, sizeof(uint32_t));
	AUTO_FREE uint32_t *object_of = calloc(r->m.n[MEM_S_OBJECT] + 1, sizeof(uint32_t));
	struct opener o = { .r = r, .file_of = file_of, .object_of = object_of };
	int first = first_alive(r), x;

	if (!file_of || !object_of)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	if (first < 0)
		return err_set(e, ERR_INVALID, first, "the image has no live process");
	note_needs(r, file_of, object_of);
	/* What is only waited for, or only mapped, is the first one's. */
	for (uint32_t i = 0; i < r->m.n[MEM_S_OBJECT]; i++)
		if (object_of[i] == MEM_NONE)
			object_of[i] = (uint32_t)first;
	for (uint32_t p = 0; p < r->m.n[MEM_S_PROC]; p++) {
		bool seen = r->m.proc[p].state != MEM_ALIVE;

		for (uint32_t q = 0; !seen && q < p; q++)
			seen = r->m.proc[q].state == MEM_ALIVE && same_user(r, p, q);
		if (seen)
			continue;
		o.user = p;
		o.index = MEM_NONE;
		o.object = false;
		x = restore_as_user(child, &o);
		if (x == 0)
			x = o.error;
		if (x < 0)
			return say(&o, e);
	}
	return 0;
}

bool restore_unchanged(struct restore *r)
{
	struct opener o = { .r = r };

	for (uint32_t i = 0; i < r->m.n[MEM_S_FILE]; i++)
		if (r->file[i] >= 0 && r->m.file[i].node == MEM_NONE && (compare(&o, i, r->file[i]) < 0 || !o.named))
			return false;
	return true;
}

int restore_renew(struct restore *r, struct err *e)
{
	int x;

	/* SETUP has done it, where files were another's: that could write where the root is read-only by now. */
	r->done |= r->agent->fresh;
	x = r->agent->fresh ? 0 : restore_as_user(renumber, r);
	return x < 0 ? err_sys(e, ERR_INTERNAL, x, "renew the machine's ids") : 0;
}
