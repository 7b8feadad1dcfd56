/*
 * Locks and leases of files, from fdinfo of each descriptor: those that belong to the open file (flock, OFD, leases)
 * and those that this process has through it (POSIX). Calls that wait for a lock are restarted, like all others.
 */
#include "memory/object.h"
#include "base/base.h"
#include "base/sys.h"

#include <fcntl.h>

static const struct {
	const char *word;
	uint32_t kind;
} kinds[] = {
	{ "FLOCK", MEM_LOCK_FLOCK },
	{ "OFDLCK", MEM_LOCK_OFD },
	{ "POSIX", MEM_LOCK_POSIX },
	{ "LEASE", MEM_LOCK_LEASE },
};

/*
 * A lease that its holder was asked to give up and still has: fdinfo shows only its future type. A lease that becomes a
 * read lease conflicts with no reader, and a file that is open for writing can have no such lease. The remaining time
 * is not shown: it starts anew in the copy.
 */
static int breaking(const struct opened *x, bool to_read, struct mem_lock *k, struct err *e)
{
	const mode_t needs = to_read ? S_IRUSR : S_IWUSR;
	char path[64];
	int fd;

	k->kind = MEM_LOCK_BREAKING;
	k->start = to_read;
	k->type = 1;
	if (!to_read && (x->d->object[k->object].rec.flags & O_ACCMODE) == O_RDONLY) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", x->d->object[k->object].fd);
		fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
		fd_close(fd);
		if (fd < 0 && fd != -EWOULDBLOCK)
			return err_sys(e, ERR_INTERNAL, fd, "read a lease");
		k->type = fd < 0;
	}
	/* The agent will break the lease by opening the file once more, so its user must be allowed to. */
	if (x->p->rec.uid[3] && !(x->f.st.st_mode & needs))
		return proc_refuse(
			x->p, e,
			"has a lease of %.100s that another process is breaking, and cannot open that file again",
			x->f.path);
	return 0;
}

/* "1: POSIX  ADVISORY  WRITE 17 00:2f:4711 0 EOF" */
static int parse(const struct opened *x, const char *line, struct mem_lock *k, int *ret_by, struct err *e)
{
	char kind[16], state[16], type[16], last[32];
	unsigned long long start;
	size_t i = 0;

	if (sscanf(line, "%*d: %15s %15s %15s %d %*s %llu %31s", kind, state, type, ret_by, &start, last) != 6)
		return err_set(e, ERR_INTERNAL, -EINVAL, "fdinfo of a lock is invalid");
	while (i < ARRAY_LEN(kinds) && strcmp(kinds[i].word, kind) != 0)
		i++;
	if (i == ARRAY_LEN(kinds))
		return proc_refuse(x->p, e, "holds a lock of %.100s of an unknown kind (%s)", x->f.path, kind);
	k->kind = kinds[i].kind;
	k->type = !strcmp(type, "WRITE");
	k->start = start;
	if (!strcmp(state, "BREAKING"))
		return breaking(x, !strcmp(type, "READ"), k, e);
	if (strcmp(last, "EOF") != 0)
		k->len = strtoull(last, NULL, 10) - start + 1;
	return 0;
}

/*
 * The locked file must be the sandbox's own: a copy would compete with its source for the lock of a file that they
 * share.
 */
static int check(const struct opened *x, const struct object *o, const struct mem_lock *k, struct err *e)
{
	uint32_t owner;

	if (k->kind == MEM_LOCK_POSIX && share_has(x->d, x->p))
		return proc_refuse(x->p, e, "holds a POSIX lock of %.100s, and shares its descriptors (CLONE_FILES)",
				   x->f.path);
	if (o->rec.kind != MEM_OBJ_SHMEM && (o->rec.kind != MEM_OBJ_FILE || !x->f.own))
		return proc_refuse(x->p, e, "holds a lock of %.100s, which is not a file of the sandbox", x->f.path);
	if ((k->kind == MEM_LOCK_LEASE || k->kind == MEM_LOCK_BREAKING) &&
	    (!proc_map(&x->d->uids, x->f.st.st_uid, &owner) || owner != x->p->rec.uid[3]))
		return proc_refuse(x->p, e, "has a lease of %.100s, which is a file of another user", x->f.path);
	return 0;
}

static bool known(const struct dump *d, const struct mem_lock *k)
{
	const struct buf *b = &d->image.section[MEM_S_LOCK];

	for (size_t at = 0; at < b->len; at += sizeof(*k))
		if (!memcmp(b->data + at, k, sizeof(*k)))
			return true;
	return false;
}

static void take_over(struct dump *d, const struct mem_lock *k)
{
	for (uint32_t i = 0; i < image_count(&d->image, MEM_S_LOCK); i++) {
		struct mem_lock *have = image_at(&d->image, MEM_S_LOCK, i), as = *k;

		as.pid = have->pid;
		if (!memcmp(have, &as, sizeof(as)))
			have->pid = k->pid;
	}
}

int lock_read(struct opened *x, uint32_t object, bool first, struct err *e)
{
	int r = 0;

	for (const char *line = x->info; r == 0 && (line = strstr(line, "lock:\t")); line += 6) {
		struct mem_lock k = { .object = object, .pid = x->p->pid };
		int by = 0;

		r = parse(x, line + 6, &k, &by, e);
		if (r < 0)
			return r;
		/*
		 * Locks of the open file are listed by each of its descriptors. The process that took the lock becomes
		 * its holder, if it still exists.
		 */
		if (k.kind != MEM_LOCK_POSIX && !first) {
			if (by == x->p->host)
				take_over(x->d, &k);
			continue;
		}
		if (known(x->d, &k))
			continue;
		r = check(x, &x->d->object[object], &k, e);
		if (r == 0)
			r = image_add(&x->d->image, MEM_S_LOCK, &k, NULL, e);
	}
	return r;
}
