/* Mappings, as /proc/PID/smaps lists them. */
#include "memory/dump.h"
#include "base/base.h"
#include "base/sys.h"
#include "proto/memory_advice.h"

#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define SMAPS_MAX (64U << 20)
#define VMAS_MAX 32768U /* half of what the kernel allows: they take some more while they are restored */
#define NAMELESS_MAX (1ULL << 30) /* limit for a file that is copied whole because it has no name */

/* The name of a mapping: what follows the first fields of its first line in smaps. */
static const char *name_of(const char *line)
{
	for (unsigned i = 0; i < 5; i++) {
		line += strcspn(line, " \n");
		line += strspn(line, " ");
	}
	return line;
}

/* The part of a mapping's first line from the device number on. */
static const char *device_of(const char *line)
{
	for (unsigned i = 0; i < 3; i++) {
		line += strcspn(line, " \n");
		line += strspn(line, " ");
	}
	return line;
}

static bool named(const char *name, const char *what)
{
	size_t n = strlen(what);

	return !strncmp(name, what, n) && (name[n] == '\n' || !name[n]);
}

/* Parses the first line of a mapping. -1: it is another line. 0: the mapping is to be skipped. */
static int head_line(const char *line, struct vma *v, const char **ret_name, bool *ret_file)
{
	unsigned long long start, end, off, ino;
	unsigned major, minor;
	char perms[5];

	if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu", &start, &end, perms, &off, &major, &minor, &ino) != 7)
		return -1;
	*v = (struct vma){ .start = start, .end = end, .offset = off, .file = MEM_NONE, .object = MEM_NONE };
	v->prot = (perms[0] == 'r' ? PROT_READ : 0U) | (perms[1] == 'w' ? PROT_WRITE : 0U) |
		  (perms[2] == 'x' ? PROT_EXEC : 0U);
	v->shared = perms[3] == 's';
	*ret_name = name_of(line);
	*ret_file = ino != 0 || **ret_name == '/';
	return !named(*ret_name, "[vsyscall]");
}

static bool has_flag(const char *flags, const char *two)
{
	for (; flags[0] && flags[0] != '\n' && flags[1] && flags[2]; flags += 3)
		if (flags[0] == two[0] && flags[1] == two[1])
			return true;
	return false;
}

/* The two-letter words of VmFlags. */
static int flag_line(const struct proc *p, struct vma *v, const char *flags, struct err *e)
{
	static const struct {
		char word[3];
		uint32_t flag;
	} keep[] = {
		{ "gd", MEM_VMA_GROWSDOWN }, { "lo", MEM_VMA_LOCKED },	  { "nr", MEM_VMA_NORESERVE },
		{ "lf", MEM_VMA_ONFAULT },   { "dp", MEM_VMA_DROPPABLE },
	};
	static const struct {
		char word[3];
		const char *why;
	} refuse[] = {
		{ "ht", "uses huge pages (hugetlb)" }, { "um", "uses userfaultfd" },
		{ "uw", "uses userfaultfd" },	       { "ui", "uses userfaultfd" },
		{ "mt", "uses memory tagging" },       { "ss", "has a shadow stack" },
		{ "sl", "has sealed memory (mseal)" }, { "io", "maps memory of a device" },
		{ "pf", "maps memory of a device" },
	};

	flags += strspn(flags, " ");
	if (v->kind == MEM_VMA_VDSO || v->kind == MEM_VMA_VVAR)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(keep); i++)
		if (has_flag(flags, keep[i].word))
			v->flags |= keep[i].flag;
	for (size_t i = 0; i < MEM_ADVICES; i++)
		if (has_flag(flags, mem_advice[i].word))
			v->advice |= mem_advice[i].bit;
	for (size_t i = 0; i < ARRAY_LEN(refuse); i++)
		if (has_flag(flags, refuse[i].word))
			return proc_refuse(p, e, "%s", refuse[i].why);
	if ((v->kind == MEM_VMA_FILE_SHARED || v->kind == MEM_VMA_SYSV) && has_flag(flags, "mw"))
		v->flags |= MEM_VMA_MAY_WRITE;
	v->guards = has_flag(flags, "gu");
	v->in_source = v->advice & (MEM_VMA_DONTFORK | MEM_VMA_WIPEONFORK);
	return 0;
}

static int shared_file(struct dump *d, struct proc *p, struct vma *v, const char *link, const struct found *f,
		       struct err *e)
{
	if (!f->named && f->st.st_nlink == 0 && !strncmp(f->path, "/SYSV", 5)) {
		v->kind = MEM_VMA_SYSV;
		return sysv_vma(d, p, link, f, &v->object, e);
	}
	if (f->st.st_dev == d->shm_dev) {
		v->kind = MEM_VMA_SHMEM;
		return object_shmem(d, p, link, f, &v->object, e);
	}
	if (!f->named && f->st.st_nlink == 0 && S_ISREG(f->st.st_mode)) {
		v->kind = MEM_VMA_FILE_SHARED;
		return node_removed(d, p, p->dir, link, f, &v->file, e);
	}
	if (!f->named || !S_ISREG(f->st.st_mode))
		return proc_refuse(p, e, "maps %.100s, which has no name in the sandbox", f->path);
	if (!f->own && (v->prot & PROT_WRITE || !f->carried))
		return proc_refuse(p, e, "shares memory through %.100s, which is not part of a checkpoint", f->path);
	if (!file_may_open(d, p, &f->st, v->prot & PROT_WRITE ? 6 : 4))
		return proc_refuse(p, e, "maps %.100s, which it cannot open again", f->path);
	v->kind = MEM_VMA_FILE_SHARED;
	return image_file(&d->image, f->path, &f->st, v->prot & PROT_WRITE ? 0 : 1, &v->file, e);
}

/* Anonymous memory that has a name by which it is known: "[anon:NAME]". */
static int keep_name(struct dump *d, struct vma *v, const char *name, struct err *e)
{
	size_t n = strcspn(name, "\n");

	if (strncmp(name, "[anon:", 6) != 0 || n < 8 || name[n - 1] != ']' || n - 7 > MEM_VMA_NAME_MAX)
		return 0;
	return image_bytes(&d->image, name + 6, n - 7, &v->name, e);
}

/*
 * What was found lately. A library has five mappings, and all say the same of themselves: device, inode and name, which
 * is @key up to the end of its line.
 */
#define SEEN 32U
struct seen {
	struct {
		const char *key;
		struct found f;
	} file[SEEN];
	unsigned next;
};

static const struct found *look_up(const struct seen *s, const char *key)
{
	size_t n = strcspn(key, "\n");

	for (unsigned i = 0; i < SEEN; i++)
		if (s->file[i].key && !strncmp(s->file[i].key, key, n + 1))
			return &s->file[i].f;
	return NULL;
}

/* A private mapping of what cannot be opened by name again. /dev/zero's is anonymous memory. */
static int nameless(struct dump *d, struct proc *p, struct vma *v, const char *link, const struct found *f,
		    struct err *e)
{
	if (S_ISCHR(f->st.st_mode) && f->st.st_rdev == makedev(1, 5)) {
		v->kind = MEM_VMA_ANON;
		return 0;
	}
	if (!S_ISREG(f->st.st_mode))
		return proc_refuse(p, e, "maps %.100s, which is not a file", f->path);
	if (!f->named && !f->st.st_nlink && f->st.st_dev != d->shm_dev) {
		v->kind = MEM_VMA_FILE;
		return node_removed(d, p, p->dir, link, f, &v->file, e);
	}
	if ((uint64_t)f->st.st_size > NAMELESS_MAX)
		return proc_refuse(p, e, "maps %.100s, which is not part of a checkpoint and is larger than %llu MiB",
				   f->path, NAMELESS_MAX >> 20);
	v->kind = MEM_VMA_OBJECT;
	return object_backing(d, p, link, f, &v->object, e);
}

static int file_vma(struct dump *d, struct proc *p, struct vma *v, const char *key, struct seen *seen, struct err *e)
{
	const struct found *have = look_up(seen, key);
	struct found *f = &seen->file[seen->next].f;
	char link[64];
	int r;

	snprintf(link, sizeof(link), "map_files/%llx-%llx", (unsigned long long)v->start, (unsigned long long)v->end);
	if (!have) {
		seen->file[seen->next].key = NULL;
		r = file_find(d, p->dir, link, f, e);
		if (r < 0)
			return r;
		seen->file[seen->next].key = key;
		seen->next = (seen->next + 1) % SEEN;
		have = f;
	}
	if (v->shared)
		return shared_file(d, p, v, link, have, e);
	if (!have->named || !have->carried || !S_ISREG(have->st.st_mode))
		return nameless(d, p, v, link, have, e);
	if (!file_may_open(d, p, &have->st, 4))
		return proc_refuse(p, e, "maps %.100s, which it cannot open again", have->path);
	v->kind = MEM_VMA_FILE;
	return image_file(&d->image, have->path, &have->st, 1, &v->file, e);
}

/* Begins a mapping by its first line. 1: it is recorded. */
static int begin(struct dump *d, struct proc *p, const char *line, struct vma *v, struct seen *seen, struct err *e)
{
	const char *name;
	bool file;
	int r = head_line(line, v, &name, &file);

	if (r <= 0)
		return r < 0 ? err_set(e, ERR_INTERNAL, -EINVAL, "smaps is invalid") : 0;
	if (file) {
		r = file_vma(d, p, v, device_of(line), seen, e);
		return r < 0 ? r : 1;
	}
	if (named(name, "[vdso]")) {
		v->kind = MEM_VMA_VDSO;
		if (p->vdso != v->start || p->vdso_end != v->end)
			return proc_refuse(p, e, "has moved its vdso");
		/* The vdso must be readable and executable: injected code runs in it. */
		if ((v->prot & (PROT_READ | PROT_EXEC)) != (PROT_READ | PROT_EXEC))
			return proc_refuse(p, e, "has made its vdso non-executable");
	} else if (!strncmp(name, "[vvar", 5)) {
		v->kind = MEM_VMA_VVAR;
	} else if (v->shared || named(name, "[uprobes]")) {
		return proc_refuse(p, e, "has an unknown kind of mapping");
	} else {
		v->kind = MEM_VMA_ANON;
	}
	if (v->kind != MEM_VMA_ANON)
		v->offset = 0;
	r = keep_name(d, v, name, e);
	return r < 0 ? r : 1;
}

static int keep_vma(struct proc *p, const struct vma *v, size_t *room, struct err *e)
{
	if (p->n_vmas == *room) {
		size_t more = *room ? *room * 2 : 256;
		struct vma *list = more > VMAS_MAX ? NULL : reallocarray(p->vma, more, sizeof(*list));

		if (!list)
			return err_set(e, ERR_TOO_LARGE, -E2BIG, "process %u (%s) has too many mappings", p->pid,
				       p->name);
		p->vma = list;
		*room = more;
	}
	p->vma[p->n_vmas++] = *v;
	return 0;
}

static int detail(struct proc *p, struct vma *v, const char *line, struct err *e)
{
	if (!strncmp(line, "VmFlags:", 8))
		return flag_line(p, v, line + 8, e);
	if (!strncmp(line, "ProtectionKey:", 14)) {
		const unsigned long key = strtoul(line + 14, NULL, 10);

		if (key >= MEM_PKEYS)
			return proc_refuse(p, e, "uses memory protection key %lu", key);
		v->flags |= (uint32_t)key << MEM_VMA_KEY_SHIFT;
		p->keyed |= key != 0;
	}
	if (!strncmp(line, "Shared_Dirty:", 13) && strtoull(line + 13, NULL, 10))
		v->cow = true;
	if (!strncmp(line, "Anonymous:", 10) && !v->shared)
		p->dirty += strtoull(line + 10, NULL, 10) * 1024;
	return 0;
}

int vma_read(struct dump *d, struct proc *p, struct err *e)
{
	AUTO_FREE struct seen *seen = calloc(1, sizeof(*seen));
	AUTO_FREE char *text = NULL;
	struct vma *v = NULL, skipped;
	size_t room = 0;
	int r = seen ? proc_text(p->dir, "smaps", SMAPS_MAX, &text, NULL) : -ENOMEM;

	if (r < 0)
		return err_sys(e, r == -EFBIG ? ERR_TOO_LARGE : ERR_INTERNAL, r, "mappings of process %u", p->pid);
	for (const char *line = text; r >= 0 && *line;) {
		const char *next = strchr(line, '\n');

		if (*line >= 'A' && *line <= 'Z') {
			r = v ? detail(p, v, line, e) : 0;
		} else {
			r = begin(d, p, line, &skipped, seen, e);
			v = NULL;
			if (r > 0) {
				r = keep_vma(p, &skipped, &room, e);
				v = r < 0 ? NULL : &p->vma[p->n_vmas - 1];
			}
		}
		line = next ? next + 1 : line + strlen(line);
	}
	if (r >= 0)
		r = vma_guards(d, p, e);
	for (size_t i = 0; r >= 0 && i < p->n_vmas; i++)
		if (p->vma[i].kind == MEM_VMA_VDSO)
			return sysv_attached(d, p, e);
	return r < 0 ? r : proc_refuse(p, e, "has unmapped its vdso");
}
