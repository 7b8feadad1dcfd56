/*
 * Checks a memory image. One pass over every record; a record that has passed can be used without another check: its
 * indices exist, its ranges are within their sections, its addresses can belong to a process.
 */
#include "proto/memory.h"
#include "base/base.h"
#include "proto/frame.h"
#include "proto/memory_advice.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define ID_MAX 4194304U /* the kernel's own limit of process ids */
#define IDS 8192U /* places of the table of ids: a power of two, and many more than there can be ids */
#define FD_NUM_MAX (1U << 20)
#define SIGNALS_MAX 1024U
#define PTS_MAX 4096U
#define SIZE_MAX_FILE ((uint64_t)1 << 62)
#define FP_MAX 65536U
#define EXTRA_MAX 32768U
#define AUXV_MAX 1024U
#ifdef __aarch64__
#define TASK_END (1ULL << 48)
#define ARCH MEM_AARCH64
#define REGS_SIZE (34U * 8U)
#define FP_MIN 528U
#else
#define TASK_END 0x7ffffffff000ULL
#define ARCH MEM_X86_64
#define REGS_SIZE (27U * 8U)
#define FP_MIN 576U
#endif

#define VMA_FLAGS                                                                                                      \
	(MEM_VMA_GROWSDOWN | MEM_VMA_LOCKED | MEM_VMA_NORESERVE | MEM_VMA_HEAP | MEM_VMA_ONFAULT | MEM_VMA_DROPPABLE | \
	 MEM_VMA_MAY_WRITE)
#define PROC_FLAGS                                                                                                     \
	(MEM_PROC_DUMPABLE | MEM_PROC_SUBREAPER | MEM_PROC_NO_NEW_PRIVS | MEM_PROC_THP_DISABLE | MEM_PROC_STOPPED |    \
	 MEM_PROC_BARRIER(0) | MEM_PROC_BARRIER(1) | MEM_PROC_BARRIER(2) | MEM_PROC_BARRIER(3) | MEM_PROC_CONTINUED)
#define GUARDS_MAX (1U << 20) /* bytes of places */
#define EXEC_FLAGS (MEM_EXEC_TTY | MEM_EXEC_STDIN | MEM_EXEC_WARM)

/* clang-format off */
static const uint32_t sizes[MEM_SECTIONS] = {
	[MEM_S_PROC] = sizeof(struct mem_proc),	  [MEM_S_THREAD] = sizeof(struct mem_thread),
	[MEM_S_VMA] = sizeof(struct mem_vma),	  [MEM_S_RUN] = sizeof(struct mem_run),
	[MEM_S_FD] = sizeof(struct mem_fd),	  [MEM_S_OBJECT] = sizeof(struct mem_object),
	[MEM_S_WATCH] = sizeof(struct mem_watch), [MEM_S_ACTION] = sizeof(struct mem_action),
	[MEM_S_TIMER] = sizeof(struct mem_timer), [MEM_S_EXEC] = sizeof(struct mem_exec),
	[MEM_S_FILE] = sizeof(struct mem_file),	  [MEM_S_LOCK] = sizeof(struct mem_lock),
	[MEM_S_NODE] = sizeof(struct mem_node),	  [MEM_S_CUT] = sizeof(struct mem_cut),
	[MEM_S_BYTES] = 1,
};
/* clang-format on */

/* The image, how much of each section was claimed by a range, and where we are, for the message. */
struct check {
	struct mem_image m;
	uint64_t used[MEM_SECTIONS];
	uint32_t ids[IDS];
	const char *what;
	uint32_t at;
	struct err *e;
};

static int bad(const struct check *c, const char *why)
{
	return err_set(c->e, ERR_INVALID, -EBADMSG, "memory image: %s %u: %s", c->what, c->at, why);
}

#define NEED(c, cond, why)                                                                                             \
	do {                                                                                                           \
		if (!(cond))                                                                                           \
			return bad(c, why);                                                                            \
	} while (0)

bool mem_span_ok(const struct mem_image *m, struct mem_span s)
{
	return s.off <= m->n[MEM_S_BYTES] && s.len <= m->n[MEM_S_BYTES] - s.off;
}

static bool span_ok(const struct check *c, struct mem_span s)
{
	return mem_span_ok(&c->m, s);
}

/* No record is claimed twice, at least in number: so the work for an image is bounded by its size. */
static bool range_ok(struct check *c, enum mem_section s, struct mem_range r)
{
	if (!r.n)
		return true;
	c->used[s] += r.n;
	return r.first <= c->m.n[s] && r.n <= c->m.n[s] - r.first && c->used[s] <= c->m.n[s];
}

static bool index_ok(const struct check *c, enum mem_section s, uint32_t i)
{
	return i < c->m.n[s];
}

static bool index_or_none(const struct check *c, enum mem_section s, uint32_t i)
{
	return i == MEM_NONE || index_ok(c, s, i);
}

static bool text_ok(const char *s, size_t size)
{
	return memchr(s, 0, size) != NULL;
}

static bool zeros(const void *p, size_t n)
{
	const uint8_t *b = p;

	while (n--)
		if (*b++)
			return false;
	return true;
}

static bool aligned(const struct check *c, uint64_t v)
{
	return !(v & (c->m.head->page_size - 1));
}

/* False when it is taken, or none. */
static bool take_id(struct check *c, uint32_t id)
{
	uint32_t i = id * 2654435761U % IDS;

	if (id < 2 || id >= ID_MAX)
		return false;
	for (; c->ids[i]; i = (i + 1) % IDS)
		if (c->ids[i] == id)
			return false;
	c->ids[i] = id;
	return true;
}

static const struct mem_proc *proc_of(const struct check *c, uint32_t pid)
{
	for (uint32_t i = 0; i < c->m.n[MEM_S_PROC]; i++)
		if (c->m.proc[i].pid == pid)
			return &c->m.proc[i];
	return NULL;
}

static int check_head(struct check *c, const void *data, size_t len)
{
	const struct mem_head *h = data;

	c->what = "head";
	NEED(c, len >= sizeof(*h) && len <= MEM_META_MAX && !((uintptr_t)data & 7), "size");
	c->m.head = h;
	NEED(c, h->magic == MEM_MAGIC, "invalid");
	NEED(c, h->version == MEM_VERSION, "another version");
	NEED(c, h->arch == ARCH, "another architecture");
	NEED(c, h->page_size >= 4096 && h->page_size <= 65536 && !(h->page_size & (h->page_size - 1)), "page size");
	NEED(c, h->page_files >= 1 && h->page_files <= MEM_PAGE_FILES, "number of pages files");
	NEED(c, h->size == len && aligned(c, h->pages) && h->pages < SIZE_MAX_FILE, "sizes");
	NEED(c, zeros(h->ancestor[0], sizeof(h->ancestor[0])), "ancestor 0");
	for (unsigned i = 1; i < MEM_PAGE_FILES; i++) {
		c->at = i;
		NEED(c, text_ok(h->ancestor[i], sizeof(h->ancestor[i])), "ancestor");
		NEED(c, !*h->ancestor[i] == (i >= h->page_files), "ancestor");
	}
	return 0;
}

static int check_sections(struct check *c, const void *data, size_t len)
{
	/* clang-format off */
	const void **at[MEM_SECTIONS] = {
		(const void **)&c->m.proc,  (const void **)&c->m.thread, (const void **)&c->m.vma,
		(const void **)&c->m.run,   (const void **)&c->m.fd,	 (const void **)&c->m.object,
		(const void **)&c->m.watch, (const void **)&c->m.action, (const void **)&c->m.timer,
		(const void **)&c->m.exec,  (const void **)&c->m.file,	 (const void **)&c->m.lock,
		(const void **)&c->m.node,  (const void **)&c->m.cut,
		(const void **)&c->m.bytes,
	};
	/* clang-format on */
	uint64_t end = sizeof(struct mem_head);

	c->what = "section";
	for (unsigned i = 0; i < MEM_SECTIONS; i++) {
		uint64_t off = c->m.head->section[i].off, n = c->m.head->section[i].n;

		c->at = i;
		NEED(c, off >= end && off <= len && !(off & 7), "place");
		NEED(c, n <= (len - off) / sizes[i], "length");
		*at[i] = (const uint8_t *)data + off;
		c->m.n[i] = (uint32_t)n;
		end = off + n * sizes[i];
	}
	NEED(c, c->m.n[MEM_S_PROC] <= MEM_PROCS_MAX && c->m.n[MEM_S_THREAD] <= MEM_THREADS_MAX, "too many");
	return 0;
}

static int check_run(const struct check *c, const struct mem_run *r, uint64_t *from, uint64_t end)
{
	NEED(c, r->len && aligned(c, r->start) && aligned(c, r->len) && aligned(c, r->off) && !r->zero, "run: aligned");
	NEED(c, r->start >= *from && r->start < end && r->len <= end - r->start, "run: place");
	NEED(c, r->file < c->m.head->page_files, "run: file");
	NEED(c,
	     r->off < SIZE_MAX_FILE && (r->file || (r->off <= c->m.head->pages && r->len <= c->m.head->pages - r->off)),
	     "run: outside of its file");
	*from = r->start + r->len;
	return 0;
}

static int check_runs(struct check *c, struct mem_range range, uint64_t from, uint64_t end)
{
	int r = 0;

	NEED(c, range_ok(c, MEM_S_RUN, range), "runs");
	for (uint32_t i = 0; r == 0 && i < range.n; i++)
		r = check_run(c, &c->m.run[range.first + i], &from, end);
	return r;
}

/* The first mapping of an attachment represents all of it: the others follow it, without a gap. */
static bool attachment_ok(const struct check *c, const struct mem_vma *v, uint64_t from)
{
	const struct mem_object *o = &c->m.object[v->object];

	if (o->kind != MEM_OBJ_SYSV || !o->a || v->offset >= o->a || o->a > TASK_END - v->start)
		return false;
	return !v->offset || (from == v->start && v[-1].kind == MEM_VMA_SYSV && v[-1].object == v->object &&
			      v[-1].offset + (v[-1].end - v[-1].start) == v->offset &&
			      !((v[-1].flags ^ v->flags) & MEM_VMA_MAY_WRITE));
}

static int check_vma(struct check *c, const struct mem_vma *v, uint64_t *from)
{
	NEED(c,
	     aligned(c, v->start) && aligned(c, v->end) && v->start >= *from && v->start && v->start < v->end &&
		     v->end <= TASK_END,
	     "place");
	NEED(c,
	     v->prot <= 7 && !(v->flags & ~(VMA_FLAGS | (MEM_PKEYS - 1) << MEM_VMA_KEY_SHIFT)) &&
		     !(v->advice & ~mem_advices()),
	     "flags");
	NEED(c, v->kind <= MEM_VMA_SYSV, "kind");
	NEED(c,
	     (v->kind == MEM_VMA_FILE || v->kind == MEM_VMA_FILE_SHARED) ? index_ok(c, MEM_S_FILE, v->file) :
									   v->file == MEM_NONE,
	     "file");
	NEED(c,
	     v->kind == MEM_VMA_SHMEM || v->kind == MEM_VMA_OBJECT ?
		     index_ok(c, MEM_S_OBJECT, v->object) && c->m.object[v->object].kind == MEM_OBJ_SHMEM :
	     v->kind == MEM_VMA_SYSV ? index_ok(c, MEM_S_OBJECT, v->object) && attachment_ok(c, v, *from) :
				       v->object == MEM_NONE,
	     "object");
	NEED(c, aligned(c, v->offset) && v->offset < SIZE_MAX_FILE, "offset");
	NEED(c, !v->run.n || v->kind == MEM_VMA_ANON || v->kind == MEM_VMA_FILE || v->kind == MEM_VMA_OBJECT, "runs");
	NEED(c, !(v->flags & (MEM_VMA_GROWSDOWN | MEM_VMA_DROPPABLE)) || v->kind == MEM_VMA_ANON, "grows");
	NEED(c, span_ok(c, v->name) && v->name.len <= MEM_VMA_NAME_MAX && (!v->name.len || v->kind == MEM_VMA_ANON),
	     "name");
	NEED(c, !memchr(c->m.bytes + v->name.off, 0, v->name.len), "name");
	*from = v->end;
	return check_runs(c, v->run, v->start, v->end);
}

static bool pending_ok(const struct check *c, struct mem_span s)
{
	return span_ok(c, s) && !(s.len % 128) && s.len / 128 <= SIGNALS_MAX;
}

/* Notes of aarch64: number, length, bytes. */
static bool extra_ok(const struct check *c, struct mem_span s)
{
	uint64_t at = 0;

	if (!span_ok(c, s) || s.len > (ARCH == MEM_AARCH64 ? EXTRA_MAX : 0))
		return false;
	while (at < s.len) {
		uint32_t n;

		if (s.len - at < 8)
			return false;
		memcpy(&n, c->m.bytes + s.off + at + 4, 4);
		if (n > s.len - at - 8)
			return false;
		at += 8 + (uint64_t)n;
	}
	return true;
}

static int check_thread(struct check *c, const struct mem_thread *t)
{
	NEED(c, take_id(c, t->tid), "id");
	NEED(c, text_ok(t->comm, sizeof(t->comm)), "name");
	NEED(c,
	     t->tid_address < TASK_END && t->robust_list < TASK_END && t->rseq < TASK_END &&
		     t->altstack[0] < TASK_END && t->altstack[2] < TASK_END,
	     "address");
	NEED(c, t->rseq_len <= 4096 && t->robust_len <= 4096, "lengths");
	NEED(c, span_ok(c, t->regs) && t->regs.len == REGS_SIZE, "registers");
	NEED(c, span_ok(c, t->fp) && t->fp.len >= FP_MIN && t->fp.len <= FP_MAX && !(t->fp.len & 7),
	     "vector registers");
	NEED(c, extra_ok(c, t->extra) && pending_ok(c, t->pending), "spans");
	NEED(c,
	     t->sched_policy <= 7 && t->sched_priority <= 99 && t->nice >= -20 && t->nice <= 19 && t->sched_reset <= 1,
	     "scheduling");
	for (uint32_t i = 0; i < MEM_SETTINGS_MAX; i++)
		NEED(c,
		     i < mem_settings_n ?
			     t->setting[i] == mem_settings[i].normal || t->setting[i] <= mem_settings[i].most :
			     !t->setting[i],
		     "settings");
	return 0;
}

static int check_threads(struct check *c, const struct mem_proc *p)
{
	int r = 0;

	NEED(c, range_ok(c, MEM_S_THREAD, p->thread) && p->thread.n, "threads");
	NEED(c, c->m.thread[p->thread.first].tid == p->pid, "its first thread is not its leader");
	c->what = "thread";
	for (uint32_t i = 0; r == 0 && i < p->thread.n; i++) {
		c->at = p->thread.first + i;
		r = check_thread(c, &c->m.thread[c->at]);
	}
	return r;
}

static bool guards_ok(const struct check *c, struct mem_span s)
{
	uint64_t from = 0;

	if (!span_ok(c, s) || s.len % 16 || s.len > GUARDS_MAX)
		return false;
	for (uint64_t at = 0; at < s.len; at += 16) {
		uint64_t place[2];

		memcpy(place, c->m.bytes + s.off + at, sizeof(place));
		if (!aligned(c, place[0]) || !aligned(c, place[1]) || place[0] < from || place[0] >= place[1] ||
		    place[1] > TASK_END)
			return false;
		from = place[1];
	}
	return true;
}

static int check_memory(struct check *c, const struct mem_proc *p)
{
	uint64_t from = 0;
	int r = 0;

	NEED(c, range_ok(c, MEM_S_VMA, p->vma) && p->vma.n, "mappings");
	c->what = "mapping";
	for (uint32_t i = 0; r == 0 && i < p->vma.n; i++) {
		const uint32_t key = c->m.vma[p->vma.first + i].flags >> MEM_VMA_KEY_SHIFT;

		c->at = p->vma.first + i;
		NEED(c, !key || (key < MEM_PKEYS && p->pkeys >> key & 1), "key");
		r = check_vma(c, &c->m.vma[c->at], &from);
	}
	return r;
}

static int check_fds(struct check *c, const struct mem_proc *p)
{
	NEED(c, range_ok(c, MEM_S_FD, p->fd), "descriptors");
	c->what = "descriptor";
	for (uint32_t i = 0; i < p->fd.n; i++) {
		const struct mem_fd *f = &c->m.fd[p->fd.first + i];

		c->at = p->fd.first + i;
		NEED(c, f->num < FD_NUM_MAX && (!i || f->num > f[-1].num) && f->cloexec <= 1 && !f->zero, "number");
		NEED(c, index_ok(c, MEM_S_OBJECT, f->object), "object");
	}
	return 0;
}

static int check_timers(struct check *c, const struct mem_proc *p)
{
	NEED(c, range_ok(c, MEM_S_TIMER, p->timer), "timers");
	c->what = "timer";
	for (uint32_t i = 0; i < p->timer.n; i++) {
		const struct mem_timer *t = &c->m.timer[p->timer.first + i];

		c->at = p->timer.first + i;
		NEED(c, t->id < INT32_MAX && t->clock < 16 && t->signo <= 64, "numbers");
		NEED(c,
		     t->interval_ns < 1000000000 && t->value_ns < 1000000000 && t->interval_s < SIZE_MAX_FILE &&
			     t->value_s < SIZE_MAX_FILE,
		     "time");
	}
	return 0;
}

static int check_alive(struct check *c, const struct mem_proc *p)
{
	uint32_t me = c->at;
	int r;

	NEED(c, span_ok(c, p->groups) && !(p->groups.len % 4) && p->groups.len <= 65536 * 4, "groups");
	for (unsigned i = 0; i < 4; i++)
		NEED(c,
		     p->uid[i] != UINT32_MAX && p->gid[i] != UINT32_MAX && p->uid[i] != AGENT_UID &&
			     p->gid[i] != AGENT_UID,
		     "user");
	NEED(c,
	     p->umask <= 0777 && (int32_t)p->oom_score_adj >= -1000 && (int32_t)p->oom_score_adj <= 1000 &&
		     !(p->flags & ~PROC_FLAGS),
	     "settings");
	NEED(c, index_ok(c, MEM_S_FILE, p->exe) && index_ok(c, MEM_S_FILE, p->cwd) && p->root == MEM_NONE, "files");
	NEED(c, span_ok(c, p->auxv) && p->auxv.len <= AUXV_MAX && !(p->auxv.len % 16), "auxv");
	for (unsigned i = 0; i < 12; i++)
		NEED(c, p->mm[i] < TASK_END, "addresses");
	NEED(c, pending_ok(c, p->pending), "signals");
	NEED(c, guards_ok(c, p->guards), "guards");
	NEED(c, p->action.n == 64 && range_ok(c, MEM_S_ACTION, p->action), "signal actions");
	r = check_threads(c, p);
	if (r < 0)
		return r;
	c->what = "process";
	c->at = me;
	r = check_memory(c, p);
	if (r < 0)
		return r;
	c->what = "process";
	c->at = me;
	r = check_fds(c, p);
	if (r < 0)
		return r;
	c->what = "process";
	c->at = me;
	return check_timers(c, p);
}

/* Whose groups and sessions they are must be there, and of one mind. */
static int check_family(const struct check *c, const struct mem_proc *p)
{
	const struct mem_proc *group = proc_of(c, p->pgid), *session = proc_of(c, p->sid);

	NEED(c, group && session, "its group or session does not exist");
	NEED(c, session->sid == session->pid && session->pgid == session->pid, "session");
	NEED(c, group->pgid == group->pid && group->sid == p->sid, "group");
	NEED(c, p->parent == MEM_NONE || (p->parent < c->at && c->m.proc[p->parent].state == MEM_ALIVE), "parent");
	NEED(c,
	     p->tty == MEM_NONE ||
		     (index_ok(c, MEM_S_OBJECT, p->tty) &&
		      (c->m.object[p->tty].kind == MEM_OBJ_PTS || c->m.object[p->tty].kind == MEM_OBJ_EXTERNAL)),
	     "terminal");
	NEED(c, index_or_none(c, MEM_S_EXEC, p->exec), "exec");
	NEED(c,
	     !p->files || (p->state == MEM_ALIVE && p->files != p->pid && proc_of(c, p->files) &&
			   !proc_of(c, p->files)->files && !p->fd.n),
	     "shared descriptors");
	NEED(c,
	     !p->folders || (p->state == MEM_ALIVE && p->folders != p->pid && proc_of(c, p->folders) &&
			     !proc_of(c, p->folders)->folders),
	     "shared folders");
	return 0;
}

static int check_procs(struct check *c)
{
	int r = 0;

	c->what = "process";
	c->at = 0;
	NEED(c, c->m.n[MEM_S_PROC], "missing");
	for (uint32_t i = 0; r == 0 && i < c->m.n[MEM_S_PROC]; i++) {
		const struct mem_proc *p = &c->m.proc[i];

		c->what = "process";
		c->at = i;
		NEED(c, p->state <= MEM_PLACEHOLDER, "state");
		NEED(c, text_ok(p->comm, sizeof(p->comm)), "name");
		NEED(c, !(p->pkeys & ~(((1U << MEM_PKEYS) - 1) & ~1U)), "keys");
		NEED(c, p->exit_signal <= 64 && p->stop_signal <= 64, "signals");
		r = check_family(c, p);
		if (r < 0)
			return r;
		if (p->state == MEM_ALIVE) {
			r = check_alive(c, p);
			continue;
		}
		NEED(c, take_id(c, p->pid), "id");
		NEED(c, !p->thread.n && !p->vma.n && !p->fd.n && !p->action.n && !p->timer.n, "it has no parts");
		NEED(c, p->state == MEM_ZOMBIE || p->parent == MEM_NONE, "parent");
	}
	return r;
}

static int check_files(struct check *c)
{
	c->what = "file";
	for (uint32_t i = 0; i < c->m.n[MEM_S_FILE]; i++) {
		const struct mem_file *f = &c->m.file[i];
		const char *path;

		c->at = i;
		NEED(c, span_ok(c, f->path) && f->path.len && f->path.len < MEM_PATH_MAX, "path");
		path = (const char *)c->m.bytes + f->path.off;
		NEED(c, path[0] == '/' && !memchr(path, 0, f->path.len), "path");
		NEED(c, f->flags <= (1 | MEM_FILE_UPPER) && !f->zero && f->size < SIZE_MAX_FILE, "numbers");
		NEED(c, f->ino ? S_ISREG(f->mode) && f->node == MEM_NONE : !(f->flags & MEM_FILE_UPPER),
		     "inode number");
		NEED(c, f->node == MEM_NONE || (index_ok(c, MEM_S_NODE, f->node) && c->m.node[f->node].file == i),
		     "node");
	}
	return 0;
}

static int check_execs(struct check *c)
{
	c->what = "exec";
	for (uint32_t i = 0; i < c->m.n[MEM_S_EXEC]; i++) {
		const struct mem_exec *x = &c->m.exec[i];
		const struct mem_proc *p = proc_of(c, x->pid);

		c->at = i;
		NEED(c, !i || x->id > x[-1].id, "id");
		NEED(c, p && p->parent == MEM_NONE && p->state == MEM_ALIVE, "process");
		NEED(c, !(x->flags & ~EXEC_FLAGS) && !x->zero && x->rows <= 65535 && x->cols <= 65535, "numbers");
		NEED(c, x->flags & MEM_EXEC_TTY ? x->tty < PTS_MAX : x->tty == MEM_NONE, "terminal");
		for (unsigned s = 0; s < 3; s++)
			NEED(c, span_ok(c, x->queued[s]), "queued bytes");
	}
	return 0;
}

static bool inotify_ok(const struct check *c, struct mem_span s)
{
	for (uint64_t at = 0; at < s.len; at += 12) {
		uint32_t w[3];

		if (s.len - at < 12)
			return false;
		memcpy(w, c->m.bytes + s.off + at, 12);
		if (!w[0] || w[0] > INT32_MAX || !index_ok(c, MEM_S_FILE, w[2]))
			return false;
	}
	return true;
}

static bool exec_exists(const struct check *c, uint64_t id)
{
	for (uint32_t i = 0; i < c->m.n[MEM_S_EXEC]; i++)
		if (c->m.exec[i].id == id)
			return true;
	return false;
}

/* What only its kind knows. */
static bool kind_ok(const struct check *c, const struct mem_object *o)
{
	switch ((enum mem_object_kind)o->kind) {
	case MEM_OBJ_FILE:
	case MEM_OBJ_DEV:
	case MEM_OBJ_PROC:
		return index_ok(c, MEM_S_FILE, o->file) && !o->data.len;
	case MEM_OBJ_FIFO:
		return index_ok(c, MEM_S_FILE, o->file) && o->a <= (1U << 30) && o->b <= !o->data.len;
	case MEM_OBJ_PIPE:
		return o->pair != MEM_NONE && o->a <= (1U << 30) && !(o->b & 0xf000);
	case MEM_OBJ_EVENTFD:
		return o->a < UINT64_MAX && o->b <= 1;
	case MEM_OBJ_EPOLL:
	case MEM_OBJ_SIGNALFD:
		return !o->data.len;
	case MEM_OBJ_TIMERFD:
		return o->a < 16 && o->b <= 3 && o->data.len == 40;
	case MEM_OBJ_INOTIFY:
		return inotify_ok(c, o->data);
	case MEM_OBJ_PTMX:
		return o->a < PTS_MAX && o->data.len >= sizeof(struct mem_pty);
	case MEM_OBJ_PTS:
		return o->a < PTS_MAX && o->b <= 1 && !o->data.len;
	case MEM_OBJ_SHMEM:
		return o->a < SIZE_MAX_FILE && o->b <= 63 && o->data.len < 250 && o->pair != MEM_NONE &&
		       (o->file == MEM_NONE ||
			(index_ok(c, MEM_S_NODE, o->file) && c->m.node[o->file].file == MEM_NONE)) &&
		       !memchr(c->m.bytes + o->data.off, 0, o->data.len);
	case MEM_OBJ_SOCKET:
		return mem_socket_ok(&c->m, o);
	case MEM_OBJ_PIDFD:
		return o->a < ID_MAX && (o->a || (o->pair != MEM_NONE && o->b <= UINT16_MAX));
	case MEM_OBJ_EXTERNAL:
		return o->b <= MEM_WARM && exec_exists(c, o->a) &&
		       (!o->data.len || (o->b == MEM_TTY && o->data.len == sizeof(struct mem_pty)));
	case MEM_OBJ_SYSV:
		return mem_sysv_ok(c->m.bytes + o->data.off, o->data.len, o->a);
	}
	return false;
}

static int check_objects(struct check *c)
{
	int r = 0;

	c->what = "object";
	for (uint32_t i = 0; r == 0 && i < c->m.n[MEM_S_OBJECT]; i++) {
		const struct mem_object *o = &c->m.object[i];
		bool runs = o->kind == MEM_OBJ_SHMEM || o->kind == MEM_OBJ_SYSV;
		uint64_t mask = c->m.head->page_size - 1;

		c->at = i;
		NEED(c, span_ok(c, o->data) && o->pos <= INT64_MAX && !o->zero, "numbers");
		NEED(c, kind_ok(c, o), "of another kind");
		NEED(c, o->owner_type <= 2 && o->owner_sig <= 64, "owner");
		NEED(c, range_ok(c, MEM_S_WATCH, o->watch) && (!o->watch.n || o->kind == MEM_OBJ_EPOLL), "watches");
		NEED(c, runs || !o->run.n, "runs");
		for (uint32_t w = 0; w < o->watch.n; w++) {
			const struct mem_watch *x = &c->m.watch[o->watch.first + w];

			NEED(c,
			     index_ok(c, MEM_S_OBJECT, x->object) && x->fd_num < FD_NUM_MAX &&
				     !(x->flags & ~MEM_WATCH_TOLD),
			     "watch");
		}
		if (runs)
			r = check_runs(c, o->run, 0, (o->a + mask) & ~mask);
	}
	return r;
}

static bool has_open(const struct check *c, uint32_t pid, uint32_t object)
{
	const struct mem_proc *p = proc_of(c, pid);

	for (uint32_t i = 0; p && i < p->fd.n; i++)
		if (c->m.fd[p->fd.first + i].object == object)
			return true;
	return false;
}

static int check_locks(struct check *c)
{
	c->what = "lock";
	for (uint32_t i = 0; i < c->m.n[MEM_S_LOCK]; i++) {
		const struct mem_lock *k = &c->m.lock[i];
		uint32_t kind;

		c->at = i;
		NEED(c,
		     k->kind <= MEM_LOCK_BREAKING && k->type <= 1 &&
			     (k->kind != MEM_LOCK_BREAKING || k->start <= k->type),
		     "kind");
		NEED(c, index_ok(c, MEM_S_OBJECT, k->object), "object");
		kind = c->m.object[k->object].kind;
		NEED(c, kind == MEM_OBJ_FILE || kind == MEM_OBJ_SHMEM, "object");
		NEED(c, k->start <= INT64_MAX && k->len <= INT64_MAX - k->start, "range");
		NEED(c, has_open(c, k->pid, k->object), "process");
	}
	return 0;
}

static bool xattrs_ok(const struct check *c, struct mem_span s)
{
	uint64_t at = 0;

	while (at < s.len) {
		uint32_t n[2];

		if (s.len - at < sizeof(n))
			return false;
		memcpy(n, c->m.bytes + s.off + at, sizeof(n));
		at += sizeof(n);
		if (n[0] < 6 || n[0] > 255 || n[1] > 65536 || (uint64_t)n[0] + n[1] > s.len - at ||
		    memcmp(c->m.bytes + s.off + at, "user.", 5) != 0 || memchr(c->m.bytes + s.off + at, 0, n[0]))
			return false;
		at += (uint64_t)n[0] + n[1];
	}
	return true;
}

static bool node_type_ok(const struct mem_node *x)
{
	switch (x->mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFIFO:
		return true;
	case S_IFLNK:
		return true;
	case S_IFSOCK:
		return !(x->flags & MEM_NODE_REMOVED);
	}
	return false;
}

static int check_node(struct check *c, uint32_t i)
{
	const struct mem_node *x = &c->m.node[i];
	const struct mem_file *f = x->file == MEM_NONE ? NULL : &c->m.file[x->file];
	uint64_t mask = c->m.head->page_size - 1;

	c->what = "node";
	c->at = i;
	NEED(c,
	     !(x->flags & ~(MEM_NODE_REMOVED | MEM_NODE_LINKABLE)) && !(x->mode & ~(S_IFMT | 07777U)) &&
		     node_type_ok(x),
	     "kind");
	NEED(c, x->file == MEM_NONE || (index_ok(c, MEM_S_FILE, x->file) && f->node == i), "name");
	NEED(c,
	     !f || x->flags & MEM_NODE_REMOVED ||
		     (f->path.len > sizeof(MEM_NODE_ROOM) - 1 &&
		      !memcmp(c->m.bytes + f->path.off, MEM_NODE_ROOM, sizeof(MEM_NODE_ROOM) - 1)),
	     "place");
	NEED(c, x->uid != UINT32_MAX && x->gid != UINT32_MAX && x->uid != AGENT_UID && x->gid != AGENT_UID, "owner");
	NEED(c, x->link == MEM_NONE || (x->link < i && S_ISREG(x->mode) && c->m.node[x->link].link == MEM_NONE),
	     "link");
	NEED(c, span_ok(c, x->xattrs) && xattrs_ok(c, x->xattrs), "attributes");
	NEED(c, span_ok(c, x->target) && x->target.len < MEM_PATH_MAX && !x->target.len == !S_ISLNK(x->mode), "target");
	NEED(c, x->size < SIZE_MAX_FILE && (!x->run.n || (S_ISREG(x->mode) && f && x->link == MEM_NONE)), "content");
	return check_runs(c, x->run, 0, (x->size + mask) & ~mask);
}

static int check_nodes(struct check *c)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < c->m.n[MEM_S_NODE]; i++)
		r = check_node(c, i);
	return r;
}

static int check_cuts(struct check *c)
{
	c->what = "cut";
	for (c->at = 0; c->at < c->m.n[MEM_S_CUT]; c->at++)
		NEED(c, mem_cut_ok(&c->m.cut[c->at]), "connection");
	return 0;
}

bool mem_cut_ok(const struct mem_cut *x)
{
	return (x->family == AF_INET || x->family == AF_INET6) &&
	       (x->protocol == IPPROTO_TCP || x->protocol == IPPROTO_UDP) && x->pid < ID_MAX &&
	       text_ok(x->comm, sizeof(x->comm));
}

int mem_check(const void *data, size_t len, struct mem_image *ret, struct err *e)
{
	struct check c = { .what = "head", .e = e };
	int r = check_head(&c, data, len);

	if (r == 0)
		r = check_sections(&c, data, len);
	if (r == 0)
		r = check_files(&c);
	if (r == 0)
		r = check_nodes(&c);
	if (r == 0)
		r = check_procs(&c);
	if (r == 0)
		r = check_execs(&c);
	if (r == 0)
		r = check_objects(&c);
	if (r == 0)
		r = check_locks(&c);
	if (r == 0)
		r = check_cuts(&c);
	if (r == 0)
		*ret = c.m;
	return r;
}
