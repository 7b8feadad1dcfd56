/* Writes and parses frames. */
#include "proto/frame.h"
#include "base/base.h"
#include "proto/wire.h"

static bool known(uint8_t type)
{
	switch ((enum frame_type)type) {
	case FRAME_SETUP:
	case FRAME_EXEC:
	case FRAME_SIGNAL:
	case FRAME_PING:
	case FRAME_MOUNTS:
	case FRAME_KEEP:
	case FRAME_RELEASE:
	case FRAME_CLOSE_STDIN:
	case FRAME_SYNC:
	case FRAME_FILES:
	case FRAME_RESTORE:
	case FRAME_CONNECT:
	case FRAME_CHANGES:
	case FRAME_WHO:
	case FRAME_READY:
	case FRAME_UP:
	case FRAME_STARTED:
	case FRAME_EXITED:
	case FRAME_FAILED:
	case FRAME_PONG:
	case FRAME_HELD:
	case FRAME_SYNCED:
	case FRAME_RESTORED:
	case FRAME_WARM:
		return true;
	}
	return false;
}

long frame_decode(const uint8_t *data, size_t len, struct frame *ret)
{
	struct wire_in r = { data, data + len, false };
	struct frame f;

	/* Refuse as early as the bytes allow: a stranger must not make us wait for a length it made up. */
	if (len >= 1 && data[0] != FRAME_VERSION)
		return -EBADMSG;
	if (len >= 4 && (!known(data[1]) || data[2] > FRAME_FDS_MAX || data[3]))
		return -EBADMSG;
	if (len < FRAME_HEAD)
		return 0;
	r.at += 1;
	f.type = wire_get_u8(&r);
	f.nfds = wire_get_u8(&r);
	r.at += 1;
	f.id = wire_get_u32(&r);
	f.len = wire_get_u32(&r);
	if (f.len > FRAME_PAYLOAD_MAX)
		return -EBADMSG;
	if (len - FRAME_HEAD < f.len)
		return 0;
	f.payload = r.at;
	*ret = f;
	return (long)(FRAME_HEAD + f.len);
}

void frame_head(uint8_t *out, enum frame_type type, uint8_t nfds, uint32_t id, uint32_t len)
{
	struct wire_out w = { out, out + FRAME_HEAD, false };

	wire_put_u8(&w, FRAME_VERSION);
	wire_put_u8(&w, (uint8_t)type);
	wire_put_u8(&w, nfds);
	wire_put_u8(&w, 0);
	wire_put_u32(&w, id);
	wire_put_u32(&w, len);
}

static long done_out(const struct wire_out *w, const uint8_t *start)
{
	return w->bad ? -EMSGSIZE : w->at - start;
}

/* A payload must be read to its last byte: what is left over would be a second meaning. */
static int done_in(const struct wire_in *r)
{
	return r->bad || r->at != r->end ? -EBADMSG : 0;
}

static struct wire_in payload_of(const struct frame *f)
{
	return (struct wire_in){ f->payload, f->payload + f->len, false };
}

static void put_mounts(struct wire_out *w, const struct frame_mounts *m)
{
	if (m->n > FRAME_MOUNTS_MAX)
		w->bad = true;
	wire_put_u32(w, m->n);
	for (uint32_t i = 0; !w->bad && i < m->n; i++) {
		wire_put_u8(w, m->mount[i].kind);
		wire_put_str(w, m->mount[i].target);
	}
}

static void get_mounts(struct wire_in *r, const struct frame *f, struct frame_mounts *m)
{
	m->n = wire_get_u32(r);
	if (m->n > FRAME_MOUNTS_MAX || m->n < 1 || m->n != f->nfds)
		r->bad = true;
	for (uint32_t i = 0; !r->bad && i < m->n; i++) {
		m->mount[i].kind = wire_get_u8(r);
		m->mount[i].target = wire_get_str(r);
		if (m->mount[i].kind > FRAME_MOUNT_PARK)
			r->bad = true;
	}
}

long frame_mounts_encode(const struct frame_mounts *m, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	put_mounts(&w, m);
	return done_out(&w, out);
}

int frame_mounts_decode(const struct frame *f, struct frame_mounts *ret)
{
	struct wire_in r = payload_of(f);
	struct frame_mounts m = { 0 };

	get_mounts(&r, f, &m);
	if (done_in(&r) < 0)
		return -EBADMSG;
	*ret = m;
	return 0;
}

long frame_setup_encode(const struct frame_setup *s, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_str(&w, s->hostname);
	wire_put_str(&w, s->workdir);
	wire_put_u32(&w, s->uid);
	wire_put_u32(&w, s->gid);
	wire_put_u32(&w, s->flags);
	wire_put_u64(&w, s->cpu_mask);
	put_mounts(&w, &s->mounts);
	return done_out(&w, out);
}

int frame_setup_decode(const struct frame *f, struct frame_setup *ret)
{
	struct wire_in r = payload_of(f);
	struct frame_setup s = { 0 };

	s.hostname = wire_get_str(&r);
	s.workdir = wire_get_str(&r);
	s.uid = wire_get_u32(&r);
	s.gid = wire_get_u32(&r);
	s.flags = wire_get_u32(&r);
	s.cpu_mask = wire_get_u64(&r);
	get_mounts(&r, f, &s.mounts);
	if (done_in(&r) < 0 || s.flags & ~FRAME_SETUP_FLAGS)
		return -EBADMSG;
	*ret = s;
	return 0;
}

long frame_exec_encode(const struct frame_exec *x, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_u32(&w, x->flags);
	wire_put_u32(&w, x->uid);
	wire_put_u32(&w, x->gid);
	wire_put_u32(&w, x->rows);
	wire_put_u32(&w, x->cols);
	wire_put_u64(&w, x->nofile);
	wire_put_u64(&w, x->cpu_seconds);
	wire_put_str(&w, x->cwd);
	if (x->flags & FRAME_EXEC_USER)
		wire_put_str(&w, x->user);
	wire_put_u32(&w, x->argc);
	wire_put_u32(&w, x->envc);
	for (uint32_t i = 0; i < x->argc; i++)
		wire_put_str(&w, x->argv[i]);
	for (uint32_t i = 0; i < x->envc; i++)
		wire_put_str(&w, x->envp[i]);
	return done_out(&w, out);
}

#define EXEC_FLAGS                                                                                                     \
	(FRAME_EXEC_TTY | FRAME_EXEC_FILTER | FRAME_EXEC_KEEP | FRAME_EXEC_STDIN | FRAME_EXEC_GROUP |                  \
	 FRAME_EXEC_WARM | FRAME_EXEC_WARM_HOST | FRAME_EXEC_USER | FRAME_EXEC_MERGE)

struct frame_exec_fds frame_exec_fds(uint32_t flags)
{
	struct frame_exec_fds x = { -1, -1, -1, -1, -1, -1, 0 };
	int n = 0;

	if (!(flags & FRAME_EXEC_TTY)) {
		x.stdio = 0;
		n = 3;
	}
	if (flags & FRAME_EXEC_FILTER)
		x.filter = n++;
	if (flags & FRAME_EXEC_GROUP)
		x.group = n++;
	if (flags & FRAME_EXEC_KEEP && !(flags & FRAME_EXEC_TTY)) {
		x.out = n++;
		x.err = n++;
		if (flags & FRAME_EXEC_STDIN)
			x.in = n++;
	}
	x.n = (unsigned)n;
	return x;
}

/* A stdin that is kept belongs to an exec that is, and a terminal has none of its own. */
static bool exec_flags_ok(uint32_t flags)
{
	if (flags & ~EXEC_FLAGS)
		return false;
	if (flags & FRAME_EXEC_WARM && flags & (FRAME_EXEC_WARM_HOST | FRAME_EXEC_FILTER | FRAME_EXEC_USER))
		return false;
	if (flags & FRAME_EXEC_MERGE && flags & FRAME_EXEC_TTY)
		return false;
	return !(flags & FRAME_EXEC_STDIN) || (flags & (FRAME_EXEC_KEEP | FRAME_EXEC_TTY)) == FRAME_EXEC_KEEP;
}

int frame_exec_decode(const struct frame *f, struct frame_exec *ret)
{
	struct wire_in r = payload_of(f);
	struct frame_exec x = { 0 };

	x.flags = wire_get_u32(&r);
	x.uid = wire_get_u32(&r);
	x.gid = wire_get_u32(&r);
	x.rows = wire_get_u32(&r);
	x.cols = wire_get_u32(&r);
	x.nofile = wire_get_u64(&r);
	x.cpu_seconds = wire_get_u64(&r);
	x.cwd = wire_get_str(&r);
	if (x.flags & FRAME_EXEC_USER)
		x.user = wire_get_str(&r);
	x.argc = wire_get_u32(&r);
	x.envc = wire_get_u32(&r);
	if (r.bad || !exec_flags_ok(x.flags) || x.argc < (x.flags & FRAME_EXEC_WARM ? 2U : 1U) ||
	    x.argc > FRAME_STRINGS_MAX || x.envc > FRAME_STRINGS_MAX || x.argc + x.envc > FRAME_STRINGS_MAX ||
	    x.uid == AGENT_UID || x.gid == AGENT_UID)
		return -EBADMSG;
	if (f->nfds != frame_exec_fds(x.flags).n)
		return -EBADMSG;
	x.strings = r.at;
	x.strings_end = r.end;
	for (uint32_t i = 0; i < x.argc + x.envc; i++)
		wire_get_str(&r);
	if (done_in(&r) < 0)
		return -EBADMSG;
	*ret = x;
	return 0;
}

void frame_exec_strings(const struct frame_exec *x, char **argv, char **envp)
{
	struct wire_in r = { x->strings, x->strings_end, false };

	for (uint32_t i = 0; i < x->argc; i++)
		argv[i] = (char *)(uintptr_t)wire_get_str(&r);
	argv[x->argc] = NULL;
	for (uint32_t i = 0; i < x->envc; i++)
		envp[i] = (char *)(uintptr_t)wire_get_str(&r);
	envp[x->envc] = NULL;
}

long frame_files_encode(const struct frame_files *x, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_u32(&w, x->uid);
	wire_put_u32(&w, x->gid);
	wire_put_str(&w, x->cwd);
	return done_out(&w, out);
}

int frame_files_decode(const struct frame *f, struct frame_files *ret)
{
	struct wire_in r = payload_of(f);
	struct frame_files x;

	x.uid = wire_get_u32(&r);
	x.gid = wire_get_u32(&r);
	x.cwd = wire_get_str(&r);
	if (done_in(&r) < 0 || f->nfds != 1 || x.uid == AGENT_UID || x.gid == AGENT_UID)
		return -EBADMSG;
	*ret = x;
	return 0;
}

struct frame_restore_fds frame_restore_fds(const struct frame_restore *x)
{
	struct frame_restore_fds at = { 1, -1, -1, 1 + x->pages };

	if (x->flags & FRAME_RESTORE_FILTER)
		at.filter = (int)at.n++;
	if (x->groups)
		at.groups = (int)at.n;
	at.n += x->groups;
	return at;
}

long frame_connect_encode(const struct frame_connect *x, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_u32(&w, x->family);
	wire_put_u32(&w, x->port);
	return done_out(&w, out);
}

int frame_connect_decode(const struct frame *f, struct frame_connect *ret)
{
	struct wire_in r = { f->payload, f->payload + f->len, false };
	struct frame_connect x;

	x.family = wire_get_u32(&r);
	x.port = wire_get_u32(&r);
	if (done_in(&r) < 0 || f->nfds != 1 || (x.family != 4 && x.family != 6) || !x.port || x.port > 65535)
		return -EBADMSG;
	*ret = x;
	return 0;
}

long frame_changes_encode(const struct frame_changes *x, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_u32(&w, x->flags);
	wire_put_u32(&w, x->max);
	return done_out(&w, out);
}

int frame_changes_decode(const struct frame *f, struct frame_changes *ret)
{
	struct wire_in r = { f->payload, f->payload + f->len, false };
	struct frame_changes x;

	x.flags = wire_get_u32(&r);
	x.max = wire_get_u32(&r);
	if (done_in(&r) < 0 || f->nfds != 1)
		return -EBADMSG;
	*ret = x;
	return 0;
}

long frame_restore_encode(const struct frame_restore *x, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_u32(&w, x->flags);
	wire_put_u32(&w, x->pages);
	wire_put_u32(&w, x->groups);
	wire_put_u64(&w, x->nofile);
	wire_put_u64(&w, x->cpu_seconds);
	wire_put_u64(&w, x->generation[0]);
	wire_put_u64(&w, x->generation[1]);
	return done_out(&w, out);
}

int frame_restore_decode(const struct frame *f, struct frame_restore *ret)
{
	struct wire_in r = payload_of(f);
	struct frame_restore x;

	x.flags = wire_get_u32(&r);
	x.pages = wire_get_u32(&r);
	x.groups = wire_get_u32(&r);
	x.nofile = wire_get_u64(&r);
	x.cpu_seconds = wire_get_u64(&r);
	x.generation[0] = wire_get_u64(&r);
	x.generation[1] = wire_get_u64(&r);
	if (done_in(&r) < 0 || x.flags & ~FRAME_RESTORE_FILTER || x.pages < 1 || x.pages > FRAME_RESTORE_PAGES_MAX ||
	    x.groups > FRAME_RESTORE_GROUPS_MAX || f->nfds != frame_restore_fds(&x).n)
		return -EBADMSG;
	*ret = x;
	return 0;
}

long frame_restored_encode(const struct frame_restored *x, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_u32(&w, x->procs);
	wire_put_u32(&w, x->threads);
	wire_put_u32(&w, x->done);
	wire_put_u32(&w, x->usec);
	return done_out(&w, out);
}

int frame_restored_decode(const struct frame *f, struct frame_restored *ret)
{
	struct wire_in r = payload_of(f);
	struct frame_restored x;

	x.procs = wire_get_u32(&r);
	x.threads = wire_get_u32(&r);
	x.done = wire_get_u32(&r);
	x.usec = wire_get_u32(&r);
	if (done_in(&r) < 0)
		return -EBADMSG;
	*ret = x;
	return 0;
}

static void put_exited(struct wire_out *w, const struct frame_exited *x)
{
	wire_put_u32(w, (uint32_t)x->status);
	wire_put_u64(w, x->cpu_usec);
	wire_put_u64(w, x->maxrss);
	/* Only sent if not zero, as by agents of earlier versions, which do not send it at all. */
	if (x->oom_kills)
		wire_put_u64(w, x->oom_kills);
}

static void get_exited(struct wire_in *r, struct frame_exited *x)
{
	x->status = (int32_t)wire_get_u32(r);
	x->cpu_usec = wire_get_u64(r);
	x->maxrss = wire_get_u64(r);
	x->oom_kills = 0;
	if (r->at < r->end) {
		x->oom_kills = wire_get_u64(r);
		r->bad |= !x->oom_kills;
	}
}

long frame_exited_encode(const struct frame_exited *x, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	put_exited(&w, x);
	return done_out(&w, out);
}

int frame_exited_decode(const struct frame *f, struct frame_exited *ret)
{
	struct wire_in r = payload_of(f);
	struct frame_exited x;

	get_exited(&r, &x);
	if (done_in(&r) < 0)
		return -EBADMSG;
	*ret = x;
	return 0;
}

long frame_held_encode(const struct frame_held *x, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_u32(&w, x->flags);
	put_exited(&w, &x->exited);
	return done_out(&w, out);
}

int frame_held_decode(const struct frame *f, struct frame_held *ret)
{
	struct wire_in r = payload_of(f);
	struct frame_held x;
	unsigned want;

	x.flags = wire_get_u32(&r);
	get_exited(&r, &x.exited);
	want = x.flags & FRAME_HELD_TTY ? 1 : x.flags & FRAME_HELD_STDIN ? 3 : 2;
	if (done_in(&r) < 0 || x.flags & ~(FRAME_HELD_ENDED | FRAME_HELD_TTY | FRAME_HELD_STDIN) || f->nfds != want)
		return -EBADMSG;
	if (x.flags & FRAME_HELD_TTY && x.flags & FRAME_HELD_STDIN)
		return -EBADMSG;
	*ret = x;
	return 0;
}

long frame_failed_encode(const struct frame_failed *x, uint8_t *out, size_t size)
{
	struct wire_out w = { out, out + size, false };

	wire_put_u32(&w, x->stage);
	wire_put_u32(&w, x->errnum);
	wire_put_u32(&w, x->which);
	if (x->stage == FRAME_STAGE_RESTORE)
		wire_put_str(&w, x->text ? x->text : "");
	return done_out(&w, out);
}

/* It ends in messages and logs: nothing in it may be more than a letter. */
static bool plain(const char *text)
{
	size_t n = 0;

	for (; *text >= 0x20 && *text < 0x7f && n <= FRAME_FAILED_TEXT_MAX; text++)
		n++;
	return !*text && n <= FRAME_FAILED_TEXT_MAX;
}

int frame_failed_decode(const struct frame *f, struct frame_failed *ret)
{
	struct wire_in r = payload_of(f);
	struct frame_failed x = { 0 };

	x.stage = wire_get_u32(&r);
	x.errnum = wire_get_u32(&r);
	x.which = wire_get_u32(&r);
	if (x.stage == FRAME_STAGE_RESTORE) {
		x.text = wire_get_str(&r);
		r.bad |= !plain(x.text);
	}
	if (done_in(&r) < 0 || x.stage >= FRAME_STAGE_COUNT || x.errnum > 4095)
		return -EBADMSG;
	*ret = x;
	return 0;
}

static const char *const stages[] = {
#define X(name, text) [FRAME_STAGE_##name] = text,
	FRAME_STAGES(X)
#undef X
};

const char *frame_stage_text(uint32_t stage)
{
	return stage < FRAME_STAGE_COUNT ? stages[stage] : "?";
}
