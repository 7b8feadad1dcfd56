/* Reads /proc of stopped processes. Their names, paths and numbers are chosen by them, so all of it is hostile. */
#include "memory/dump.h"
#include "base/base.h"
#include "base/sys.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

#define TEXT_LONG (64U << 10)

/*
 * Most are a few lines. Every allocation of a page or more is a mapping of its own with this libc, and processes wait: so a
 * short text gets no more room than it has, and a long one much at once.
 */
int proc_text(int dir, const char *name, size_t max, char **ret, size_t *ret_len)
{
	AUTO_CLOSE int fd = sys_openat(dir, name, O_RDONLY | O_CLOEXEC, 0);
	AUTO(buf_done) struct buf b = BUF_INIT(max);
	char some[4096], *text;
	ssize_t n;

	if (fd < 0)
		return fd;
	while ((n = sys_read(fd, some, sizeof(some)))) {
		if (n == -EINTR)
			continue;
		if (n < 0)
			return (int)n;
		if (b.len && b.len < sizeof(some) && max > TEXT_LONG)
			(void)!buf_room(&b, TEXT_LONG); /* only saves reallocations; a failure is harmless */
		if (buf_add(&b, some, (size_t)n) < 0)
			return -EFBIG;
	}
	if (ret_len)
		*ret_len = b.len;
	text = buf_take(&b);
	if (!text)
		return -ENOMEM;
	*ret = text;
	return 0;
}

bool proc_field(const char *status, const char *key, const char **ret)
{
	size_t n = strlen(key);

	for (const char *line = status; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, n) && line[n] == ':') {
			*ret = line + n + 1;
			return true;
		}
		if (!*line)
			break;
	}
	return false;
}

uint64_t proc_number(const char *status, const char *key, int base, uint64_t none)
{
	const char *at;
	char *end;
	uint64_t v;

	if (!proc_field(status, key, &at))
		return none;
	v = strtoull(at, &end, base);
	return end == at ? none : v;
}

bool proc_handles_signals(const struct proc *p)
{
	/* Not those that come from its own instructions, nor those that are the C library's (32 to 34). */
	static const uint8_t others[] = { SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS, 32, 33, 34 };
	uint64_t caught = p->caught;

	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		caught &= ~(1ULL << (others[i] - 1));
	return caught;
}

uint32_t proc_inside(const char *status, const char *key)
{
	const char *at;
	uint32_t last = 0;

	if (!proc_field(status, key, &at))
		return 0;
	while (*at == ' ' || *at == '\t' || isdigit((unsigned char)*at)) {
		char *end;
		unsigned long v = strtoul(at, &end, 10);

		if (end == at)
			break;
		last = (uint32_t)v;
		at = end;
	}
	return last;
}

int proc_map_read(int dir, const char *name, struct idmap *ret, struct err *e)
{
	AUTO_FREE char *text = NULL;
	int r = proc_text(dir, name, DUMP_TEXT_MAX, &text, NULL);
	const char *at = text;
	unsigned in, out, n;

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read %s", name);
	ret->n = 0;
	while (sscanf(at, "%u %u %u", &in, &out, &n) == 3) {
		if (ret->n == DUMP_MAPS_MAX)
			return err_set(e, ERR_UNSUPPORTED, -E2BIG, "more than %d lines in %s", DUMP_MAPS_MAX, name);
		ret->line[ret->n].in = in;
		ret->line[ret->n].out = out;
		ret->line[ret->n++].n = n;
		at = strchr(at, '\n');
		if (!at++)
			break;
	}
	return 0;
}

bool proc_map(const struct idmap *m, uint64_t out, uint32_t *ret)
{
	for (size_t i = 0; i < m->n; i++)
		if (out >= m->line[i].out && out - m->line[i].out < m->line[i].n) {
			*ret = (uint32_t)(m->line[i].in + (out - m->line[i].out));
			return true;
		}
	return false;
}

__attribute__((format(printf, 5, 0))) static int refuse(const struct proc *p, enum err_kind kind, int r, struct err *e,
							const char *fmt, va_list ap)
{
	char why[200];

	vsnprintf(why, sizeof(why), fmt, ap);
	for (char *c = why; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	return err_set(e, kind, r, "process %u (%s): %s", p->pid, p->name, why);
}

int proc_refuse(const struct proc *p, struct err *e, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = refuse(p, ERR_UNSUPPORTED, -EOPNOTSUPP, e, fmt, ap);
	va_end(ap);
	return r;
}

int proc_refuse_now(const struct proc *p, struct err *e, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = refuse(p, ERR_CONFLICT, -EAGAIN, e, fmt, ap);
	va_end(ap);
	return r;
}

static int ids(const struct dump *d, struct proc *p, const char *key, const struct idmap *m, uint32_t ret[4],
	       struct err *e)
{
	const char *at;

	(void)d;
	if (!proc_field(p->status, key, &at))
		return err_set(e, ERR_INTERNAL, -EINVAL, "its status has no %s", key);
	for (unsigned i = 0; i < 4; i++) {
		char *end;
		uint64_t v = strtoull(at, &end, 10);

		if (!proc_map(m, v, &ret[i]))
			return proc_refuse(p, e, "runs as a user that the sandbox does not have");
		at = end;
	}
	return 0;
}

static int groups(struct dump *d, struct proc *p, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(65536 * 4);
	const char *at;
	int r = 0;

	if (!proc_field(p->status, "Groups", &at))
		return 0;
	while (r == 0) {
		uint32_t inside;
		char *end;
		uint64_t v;

		while (*at == ' ' || *at == '\t')
			at++;
		if (!isdigit((unsigned char)*at))
			break;
		v = strtoull(at, &end, 10);
		at = end;
		if (!proc_map(&d->gids, v, &inside))
			return proc_refuse(p, e, "is in a group that the sandbox does not have");
		r = buf_add(&b, &inside, sizeof(inside));
	}
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "groups") : image_bytes(&d->image, b.data, b.len, &p->rec.groups, e);
}

static int limits(struct proc *p, struct err *e)
{
	/* Names of resource limits as the kernel prints them, by number. */
	/* clang-format off */
	static const char *const names[16] = {
		"Max cpu time", "Max file size", "Max data size", "Max stack size", "Max core file size",
		"Max resident set", "Max processes", "Max open files", "Max locked memory", "Max address space",
		"Max file locks", "Max pending signals", "Max msgqueue size", "Max nice priority",
		"Max realtime priority", "Max realtime timeout",
	};
	/* clang-format on */
	AUTO_FREE char *text = NULL;
	int r = proc_text(p->dir, "limits", DUMP_TEXT_MAX, &text, NULL);

	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read limits");
	for (unsigned i = 0; i < ARRAY_LEN(names); i++) {
		const char *at = strstr(text, names[i]);

		if (!at)
			return err_set(e, ERR_INTERNAL, -EINVAL, "limits has no '%s'", names[i]);
		at += strlen(names[i]);
		for (unsigned k = 0; k < 2; k++) {
			char *end;

			while (*at == ' ')
				at++;
			if (!strncmp(at, "unlimited", 9)) {
				p->rec.rlimit[i][k] = UINT64_MAX;
				at += 9;
				continue;
			}
			p->rec.rlimit[i][k] = strtoull(at, &end, 10);
			at = end;
		}
	}
	return 0;
}

/* Fields of /proc/PID/stat, counted from 1 as proc(5) does; [1] and [2] stay 0. */
static int stat_fields(const struct proc *p, uint64_t field[53], struct err *e)
{
	AUTO_FREE char *text = NULL;
	int r = proc_text(p->dir, "stat", DUMP_TEXT_MAX, &text, NULL);
	const char *at = r < 0 ? NULL : strrchr(text, ')');

	if (!at)
		return err_set(e, ERR_INTERNAL, r < 0 ? r : -EINVAL, "read stat");
	memset(field, 0, 53 * sizeof(*field));
	at += 2; /* ") " */
	field[3] = (uint64_t)*at;
	for (unsigned i = 4; i < 53 && (at = strchr(at, ' ')); i++, at++)
		field[i] = strtoull(at + 1, NULL, 10);
	return 0;
}

static int addresses(struct dump *d, struct proc *p, const uint64_t *f, struct err *e)
{
	/* start_code end_code start_data end_data start_brk brk start_stack arg_start arg_end env_start env_end */
	static const unsigned from[] = { 26, 27, 45, 46, 47, 0, 28, 48, 49, 50, 51 };
	AUTO_FREE char *auxv = NULL;
	size_t len = 0;
	int r;

	for (unsigned i = 0; i < ARRAY_LEN(from); i++)
		p->rec.mm[i] = from[i] ? f[from[i]] : 0; /* the end of brk is asked for later */
	r = proc_text(p->dir, "auxv", DUMP_TEXT_MAX, &auxv, &len);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "read auxv");
	return image_bytes(&d->image, auxv, len & ~15UL, &p->rec.auxv, e);
}

static int one_file(struct dump *d, const struct proc *p, const char *link, uint32_t flags, uint32_t *ret,
		    struct err *e)
{
	struct found f;
	int r = file_find(d, p->dir, link, &f, e);

	if (r < 0)
		return r;
	if (!f.named && !f.st.st_nlink && f.st.st_dev != d->shm_dev)
		return node_removed(d, p, p->dir, link, &f, ret, e);
	if (!f.named)
		return proc_refuse(p, e, "its %s was removed or changed",
				   !strcmp(link, "cwd") ? "working folder" : "program file");
	if (!f.carried && S_ISREG(f.st.st_mode))
		return proc_refuse(p, e, "its program is in a folder that is not part of a checkpoint");
	if (!file_may_reach(d, p, f.path, 0))
		return proc_refuse(p, e, "cannot reach its %s again",
				   !strcmp(link, "cwd") ? "working folder" : "program file");
	return image_file(&d->image, f.path, &f.st, flags, ret, e);
}

static int capabilities(struct proc *p, struct err *e)
{
	static const char *const keys[] = { "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb" };
	const char *at;

	for (unsigned i = 0; i < ARRAY_LEN(keys); i++) {
		if (!proc_field(p->status, keys[i], &at))
			return err_set(e, ERR_INTERNAL, -EINVAL, "its status has no %s", keys[i]);
		p->rec.caps[i] = strtoull(at, NULL, 16);
	}
	/* The agent gives a process no more than an exec has: other users than root get none. */
	if (p->rec.caps[4] || (p->rec.uid[0] && p->rec.uid[1] && p->rec.uid[2] && p->rec.caps[1]))
		return proc_refuse(p, e, "has capabilities that cannot be restored (permitted %llx)",
				   (unsigned long long)p->rec.caps[1]);
	return 0;
}

static int settings(struct proc *p, struct err *e)
{
	char text[64];
	ssize_t n = fd_get(p->dir, "oom_score_adj", text, sizeof(text));

	if (n < 0)
		return err_sys(e, ERR_INTERNAL, (int)n, "read oom_score_adj");
	p->rec.oom_score_adj = (uint32_t)strtol(text, NULL, 10);
	p->rec.umask = (uint32_t)proc_number(p->status, "Umask", 8, 022);
	if (proc_number(p->status, "NoNewPrivs", 10, 0))
		p->rec.flags |= MEM_PROC_NO_NEW_PRIVS;
	p->locked = proc_number(p->status, "VmLck", 10, 0);
	if (!proc_number(p->status, "THP_enabled", 10, 1))
		p->rec.flags |= MEM_PROC_THP_DISABLE;
	if (p->stopped)
		p->rec.flags |= MEM_PROC_STOPPED;
	p->caught = proc_number(p->status, "SigCgt", 16, 0);
	p->ignored = proc_number(p->status, "SigIgn", 16, 0);
	p->rec.root = MEM_NONE;
	return limits(p, e);
}

/*
 * The user that an audit says a process belongs to. A process may set it once where nothing has set it before it: what is as
 * the agent's was inherited, and will be.
 */
static int login_uid(const struct dump *d, struct proc *p, struct err *e)
{
	char text[32];
	unsigned long mine, agents;

	p->rec.loginuid = MEM_NONE;
	if (fd_get(p->dir, "loginuid", text, sizeof(text)) < 0) /* a kernel without audits */
		return 0;
	mine = strtoul(text, NULL, 10);
	if (fd_get(d->proc[0].dir, "loginuid", text, sizeof(text)) < 0)
		return err_set(e, ERR_INTERNAL, -EIO, "read loginuid of the agent");
	agents = strtoul(text, NULL, 10);
	if (mine == agents)
		return 0;
	if (agents != UINT32_MAX || !proc_map(&d->uids, mine, &p->rec.loginuid))
		return proc_refuse(p, e, "has a login user id that cannot be restored");
	return 0;
}

/* Refuses settings that a restore cannot set. */
static int check(const struct dump *d, const struct proc *p, struct err *e)
{
	static const char *const spaces[] = {
		"ns/user", "ns/mnt", "ns/net", "ns/ipc", "ns/uts", "ns/cgroup", "ns/pid"
	};
	static const char *const guesses[] = { "Speculation_Store_Bypass", "SpeculationIndirectBranch" };
	const char *features, *mine, *agents;
	struct stat st, agent;

	if (proc_number(p->status, "Seccomp_filters", 10, 0) != d->filters)
		return proc_refuse(p, e, "has its own system call filter");
	for (unsigned i = 0; i < ARRAY_LEN(guesses); i++)
		if (proc_field(p->status, guesses[i], &mine) && proc_field(d->proc[0].status, guesses[i], &agents) &&
		    (strcspn(mine, "\n") != strcspn(agents, "\n") || strncmp(mine, agents, strcspn(mine, "\n")) != 0))
			return proc_refuse(p, e, "has disabled speculative execution (PR_SET_SPECULATION_CTRL)");
	if (proc_field(p->status, "x86_Thread_features", &features) &&
	    !strncmp(features + strspn(features, " \t"), "shstk", 5))
		return proc_refuse(p, e, "has a shadow stack");
	for (unsigned i = 0; i < ARRAY_LEN(spaces); i++)
		if (fstatat(p->dir, spaces[i], &st, 0) < 0 || fstatat(d->proc[0].dir, spaces[i], &agent, 0) < 0)
			return err_sys(e, ERR_INTERNAL, -errno, "read the status of %s", spaces[i]);
		else if (st.st_ino != agent.st_ino)
			return proc_refuse(p, e, "is in its own namespace (%s)", spaces[i]);
	if (fstatat(p->dir, "root", &st, 0) < 0 || st.st_dev != d->root_dev || st.st_ino != d->root_ino)
		return proc_refuse(p, e, "has another root folder");
	return 0;
}

/* The ids of a process that has ended, which its parent finds in the child's siginfo. */
static int zombie(const struct dump *d, struct proc *p, struct err *e)
{
	int r = ids(d, p, "Uid", &d->uids, p->rec.uid, e);

	return r < 0 ? r : ids(d, p, "Gid", &d->gids, p->rec.gid, e);
}

int proc_read(struct dump *d, struct proc *p, struct err *e)
{
	uint64_t f[53];
	int r = p->gone ? 0 : stat_fields(p, f, e);

	if (r < 0 || p->gone)
		return r;
	p->rec.status = (int32_t)f[52];
	p->rec.exit_signal = (uint32_t)f[38];
	p->rec.pgid = proc_inside(p->status, "NSpgid");
	p->rec.sid = proc_inside(p->status, "NSsid");
	p->rec.loginuid = MEM_NONE;
	/* clone() takes such a number, and nothing is sent then; clone3(), which gives a process its old id, does not. */
	if (p->rec.exit_signal > 64)
		return proc_refuse(p, e, "is set up to end with signal %u, which does not exist", p->rec.exit_signal);
	if (p->zombie && p->parent && p->rec.status & 0x80)
		return proc_refuse(p, e, "has ended with a core dump, and its parent has not waited for it yet");
	if (p->zombie)
		return p->parent ? zombie(d, p, e) : 0;
	if (!p->rec.pgid || !p->rec.sid)
		return proc_refuse(p, e, "is in a group or session of the host");
	r = check(d, p, e);
	if (r == 0)
		r = ids(d, p, "Uid", &d->uids, p->rec.uid, e);
	if (r == 0)
		r = ids(d, p, "Gid", &d->gids, p->rec.gid, e);
	if (r == 0)
		r = groups(d, p, e);
	if (r == 0)
		r = capabilities(p, e);
	if (r == 0)
		r = settings(p, e);
	if (r == 0)
		r = login_uid(d, p, e);
	if (r == 0)
		r = addresses(d, p, f, e);
	if (r == 0)
		r = one_file(d, p, "exe", 0, &p->rec.exe, e);
	if (r == 0)
		r = one_file(d, p, "cwd", 0, &p->rec.cwd, e);
	return r;
}
