/*
 * System V objects: semaphores, message queues and shared memory belong to the sandbox's IPC namespace and to no process.
 * They are carried whole, whether a process uses them or not.
 */
#include "memory/object.h"
#include "base/base.h"
#include "base/sys.h"

#include <sched.h>
#include <unistd.h>

#define LIST_MAX (1U << 20)

int sysv_enter(struct dump *d, struct err *e)
{
	AUTO_CLOSE int ns = -1;
	struct stat mine, theirs;
	char path[64];
	int r;

	snprintf(path, sizeof(path), "/proc/%d/ns/ipc", (int)d->agent);
	if (stat(path, &theirs) < 0 || stat("/proc/self/ns/ipc", &mine) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "read the status of %s", path);
	/* A sandbox that shares the host's IPC namespace sees objects that are not its own. */
	if (theirs.st_ino == mine.st_ino)
		return 0;
	ns = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	r = ns < 0 ? ns : sys_setns(ns, CLONE_NEWIPC);
	d->sysv = r == 0;
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "enter the sandbox's IPC namespace") : 0;
}

/* Whether the IPC namespace has any object. */
static int any(struct err *e)
{
	static const char *const lists[] = { "/proc/sysvipc/sem", "/proc/sysvipc/msg", "/proc/sysvipc/shm" };

	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		AUTO_FREE char *text = NULL;
		int r = proc_text(AT_FDCWD, lists[i], LIST_MAX, &text, NULL);
		const char *line;

		if (r == -ENOENT) /* a kernel without them */
			continue;
		if (r < 0)
			return err_sys(e, ERR_INTERNAL, r, "read %s", lists[i]);
		line = strchr(text, '\n'); /* skips the names of the columns */
		if (line && line[1])
			return 1;
	}
	return 0;
}

int sysv_start(struct dump *d, struct err *e)
{
	int r = d->sysv ? any(e) : 0;

	if (r <= 0)
		return r;
	if (access("/proc/sys/kernel/shm_next_id", F_OK) < 0)
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
			       "the sandbox has System V objects, and this kernel does not allow choosing their ids");
	return sysv_reader_start(&d->sysv_reader, d->agent_pidfd, e);
}

/* Finds a process that is part of the image. */
static const struct proc *find_proc(const struct dump *d, uint32_t pid)
{
	for (size_t i = 1; i < d->n_procs; i++)
		if (d->proc[i].pid == pid && !d->proc[i].zombie)
			return &d->proc[i];
	return NULL;
}

static int keep(struct dump *d, const struct sysv_told *t, uint8_t *data, struct err *e)
{
	const struct mem_sysv *s = (const void *)data;
	struct mem_sem *sem = (void *)(data + sizeof(*s));
	struct object *o = object_new(d, e);

	if (!o)
		return -E2BIG;
	o->rec.kind = MEM_OBJ_SYSV;
	o->rec.a = t->size;
	o->rec.b = s->id;
	/* The last process that changed a semaphore may have ended: then it has no id any more. */
	for (uint32_t i = 0; s->kind == MEM_SYSV_SEM && i < s->n; i++)
		if (!find_proc(d, sem[i].pid))
			sem[i].pid = 0;
	if (t->at) {
		char path[96];

		snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", (int)d->sysv_reader.pid,
			 (unsigned long long)t->at, (unsigned long long)t->end);
		o->fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
		if (o->fd < 0)
			return err_sys(e, ERR_INTERNAL, o->fd, "open System V shared memory with id %u", s->id);
	}
	if (!mem_sysv_ok(data, t->len, t->size))
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
			       "the sandbox has a System V object (id %u) that cannot be saved", s->id);
	return image_bytes(&d->image, data, t->len, &o->rec.data, e);
}

int sysv_read(struct dump *d, struct err *e)
{
	AUTO_CLOSE int file = -1;
	AUTO_FREE uint64_t *all = NULL;
	struct stat st;
	size_t len, at = 0;
	bool sems = false;
	int r = d->sysv ? any(e) : 0;

	/* The object was made after the first look, by a process that was not held yet. */
	if (r > 0 && d->sysv_reader.fd < 0)
		return err_set(e, ERR_CONFLICT, -EBUSY, "System V objects are being created at the same time");
	if (r <= 0)
		return r;
	r = sysv_reader_ask(&d->sysv_reader, &file, e);
	if (r < 0)
		return r;
	if (fstat(file, &st) < 0 || st.st_size > (off_t)MEM_META_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "System V objects are too large");
	len = (size_t)st.st_size;
	all = malloc(len + 8);
	if (!all || pread(file, all, len, 0) != (ssize_t)len)
		return err_sys(e, ERR_INTERNAL, -EIO, "read System V objects");
	while (r == 0 && at + sizeof(struct sysv_told) + sizeof(struct mem_sysv) <= len) {
		struct sysv_told t;
		uint8_t *data = (uint8_t *)all + at + sizeof(t);

		memcpy(&t, (uint8_t *)all + at, sizeof(t));
		at += sizeof(t) + t.len;
		r = t.len <= len && at <= len ?
			    keep(d, &t, data, e) :
			    err_set(e, ERR_INTERNAL, -EBADMSG, "the list of System V objects is invalid");
		sems |= r == 0 && ((const struct mem_sysv *)(const void *)data)->kind == MEM_SYSV_SEM;
	}
	return r == 0 && sems ? sysv_undo_check(d, e) : r;
}

int sysv_vma(struct dump *d, struct proc *p, const char *link, const struct found *f, uint32_t *ret, struct err *e)
{
	if (f->st.st_dev != d->shm_dev)
		return proc_refuse(p, e, "uses System V shared memory of huge pages (SHM_HUGETLB)");
	/* The inode's number is the id, and has nothing to do with those of other files there. */
	for (size_t i = 0; i < d->n_objects; i++) {
		struct object *o = &d->object[i];

		if (o->rec.kind != MEM_OBJ_SYSV || !o->rec.a || o->rec.b != f->st.st_ino)
			continue;
		if (o->fd < 0)
			o->fd = sys_openat(p->dir, link, O_RDONLY | O_CLOEXEC, 0);
		*ret = (uint32_t)i;
		return o->fd < 0 ? err_sys(e, ERR_INTERNAL, o->fd, "shared memory of process %u", p->pid) : 0;
	}
	return proc_refuse(p, e, "uses System V shared memory of another IPC namespace");
}

int sysv_attached(const struct dump *d, const struct proc *p, struct err *e)
{
	uint64_t seen = 0;

	for (size_t i = 0; i < p->n_vmas; i++) {
		const struct vma *v = &p->vma[i], *before = i ? v - 1 : NULL;
		uint64_t size;

		if (v->kind != MEM_VMA_SYSV)
			continue;
		size = (d->object[v->object].rec.a + PAGE - 1) & ~(PAGE - 1);
		seen = v->offset ? seen : 0;
		if (v->offset != seen || (seen && (before->object != v->object || before->end != v->start)) ||
		    v->end - v->start > size - seen ||
		    (v->end - v->start < size - seen &&
		     (i + 1 == p->n_vmas || v[1].kind != MEM_VMA_SYSV || v[1].start != v->end)))
			return proc_refuse(p, e, "has attached only a part of System V shared memory (id %u)",
					   (unsigned)d->object[v->object].rec.b);
		seen += v->end - v->start;
	}
	return 0;
}

int sysv_content(struct dump *d, uint32_t object, struct err *e)
{
	struct object *o = &d->object[object];
	const unsigned id = (unsigned)o->rec.b;
	struct stat st;

	o->rec.b = 0;
	if (!o->rec.a)
		return 0;
	if (o->fd < 0)
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
			       "System V shared memory (id %u) is attached by a process outside the sandbox", id);
	if (fstat(o->fd, &st) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "read the status of System V shared memory (id %u)", id);
	if (st.st_dev != d->shm_dev)
		return err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
			       "the sandbox has System V shared memory of huge pages (id %u), which cannot be saved",
			       id);
	return pages_file(d, o->fd, o->rec.a, &o->rec.run, e);
}
