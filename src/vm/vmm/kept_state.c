/*
 * Saves and loads the host's half of a machine's port: channels with their content, frames that were not taken yet,
 * execs with KEEP. What is read was written by a process that shared its jail with a guest: all of it is hostile.
 */
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "proto/wire.h"
#include "vm/vmm/kept_impl.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATE_VERSION 1U

/* Flags of a channel in the state. */
#define HAS_FD 1U
#define TTY 2U
#define NET 4U
#define SENDS 8U
#define TAKES 16U
#define END_SENT 32U
#define END_GOT 64U
#define STOP_SENT 128U
#define CLOSED_SENT 256U
#define CLOSED_GOT 512U
#define FILE_REST 1024U /* it sends a file, whose remaining bytes follow */
#define CHAN_FLAGS 2047U
/* Flags of an exec in the state. */
#define EXEC_KEEP 1U
#define EXEC_TTY 2U
#define EXEC_STDIN 4U
#define EXEC_FLAGS 7U

static void put_bytes(struct wire_out *w, const void *data, size_t len)
{
	wire_put_u32(w, (uint32_t)len);
	if (w->bad || (size_t)(w->end - w->at) < len) {
		w->bad = true;
		return;
	}
	if (len)
		memcpy(w->at, data, len);
	w->at += len;
}

/* Points into the input. */
static const uint8_t *get_bytes(struct wire_in *r, size_t max, size_t *ret_len)
{
	const uint8_t *at;
	size_t len = wire_get_u32(r);

	*ret_len = 0;
	if (r->bad || len > max || len > (size_t)(r->end - r->at)) {
		r->bad = true;
		return NULL;
	}
	at = r->at;
	r->at += len;
	*ret_len = len;
	return at;
}

/*
 * The position and length of the rest of a file that is being sent, such as a stdin. False: the channel sends no file.
 */
static bool rest_of(const struct chan *x, off_t *ret_at, size_t *ret_len)
{
	struct stat st;

	*ret_at = 0;
	*ret_len = 0;
	if (x->fd < 0 || !x->sends || x->takes || x->end_sent || fstat(x->fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	*ret_at = lseek(x->fd, 0, SEEK_CUR);
	*ret_len = *ret_at >= 0 && st.st_size > *ret_at ? (size_t)(st.st_size - *ret_at) : 0;
	return *ret_at >= 0;
}

/* The file cannot change after its size was read: its writer has given up its descriptor. */
static void put_rest(struct wire_out *w, int fd, off_t at, size_t len)
{
	wire_put_u32(w, (uint32_t)len);
	if (w->bad || (size_t)(w->end - w->at) < len) {
		w->bad = true;
		return;
	}
	while (len) {
		ssize_t n = pread(fd, w->at, len, at);

		if (n <= 0) {
			w->bad = true;
			return;
		}
		w->at += n;
		at += n;
		len -= (size_t)n;
	}
}

static void put_chan(struct wire_out *w, const struct chan *x, uint32_t n)
{
	size_t len;
	off_t at;
	const bool file = rest_of(x, &at, &len);

	wire_put_u32(w, n);
	wire_put_u32(w, (x->fd >= 0 ? HAS_FD : 0) | (x->tty ? TTY : 0) | (x->net ? NET : 0) | (x->sends ? SENDS : 0) |
				(file ? FILE_REST : 0) | (x->takes ? TAKES : 0) | (x->end_sent ? END_SENT : 0) |
				(x->end_got ? END_GOT : 0) | (x->stop_sent ? STOP_SENT : 0) |
				(x->closed_sent ? CLOSED_SENT : 0) | (x->closed_got ? CLOSED_GOT : 0));
	wire_put_u32(w, x->credit);
	wire_put_u32(w, x->window);
	wire_put_u32(w, x->owed);
	wire_put_u32(w, x->exec);
	wire_put_u32(w, x->place);
	wire_put_u64(w, x->due);
	put_bytes(w, x->buf ? x->buf + x->at : NULL, x->len - x->at);
	if (file)
		put_rest(w, x->fd, at, len);
}

/* Writes the frames that no client has seen yet; the others are in the table of execs. */
static void put_frames(struct wire_out *w, const struct carry *c)
{
	size_t skip = 0, nfds = 0;
	uint32_t n = 0;
	struct frame f;

	for (size_t i = 0; i < c->nheld; i++)
		n += !c->held[i].seen;
	wire_put_u32(w, n);
	for (size_t i = 0; i < c->nheld; i++)
		if (!c->held[i].seen)
			put_bytes(w, c->held[i].data, c->held[i].len);
	put_bytes(w, c->out + c->out_stop, c->out_len - c->out_stop);
	if (c->to_seen) {
		skip = (size_t)frame_decode(c->to.data, c->to.len, &f);
		nfds = f.nfds;
	}
	put_bytes(w, c->to.data + skip, c->to.len - skip);
	wire_put_u32(w, (uint32_t)(c->to.nfds - nfds));
	for (size_t i = nfds; i < c->to.nfds; i++)
		wire_put_u32(w, c->to.chan[i]);
}

static void put_carry(struct wire_out *w, const struct carry *c)
{
	uint32_t n = 0;

	wire_put_u32(w, c->epoch);
	wire_put_u32(w, c->chan[0].credit);
	wire_put_u32(w, c->chan[0].window);
	wire_put_u32(w, c->chan[0].owed);
	for (uint32_t i = 1; i < c->top; i++)
		n += c->chan[i].used;
	wire_put_u32(w, n);
	for (uint32_t i = 1; i < c->top; i++)
		if (c->chan[i].used)
			put_chan(w, &c->chan[i], i);
	put_frames(w, c);
}

static void put_kept(struct wire_out *w, const struct kept *k)
{
	uint32_t n = 0;

	wire_put_u32(w, k->landlock);
	wire_put_u32(w, k->last_key);
	for (size_t i = 0; i < k->top; i++)
		n += k->exec[i].used && !k->exec[i].ended;
	wire_put_u32(w, n);
	for (size_t i = 0; i < k->top; i++) {
		const struct kept_exec *x = &k->exec[i];

		if (!x->used || x->ended)
			continue;
		wire_put_u32(w, x->id);
		wire_put_u32(w,
			     (x->keep ? EXEC_KEEP : 0) | (x->tty ? EXEC_TTY : 0) | (x->fds[2] >= 0 ? EXEC_STDIN : 0));
		wire_put_u32(w, x->group);
	}
	wire_put_u32(w, (uint32_t)k->ngroup);
	for (size_t i = 0; i < k->ngroup; i++)
		wire_put_u32(w, k->group[i].key);
}

int kept_save(const struct kept *k, size_t max, uint8_t **ret, size_t *ret_len)
{
	AUTO_FREE uint8_t *data = NULL;
	size_t size = 4096 + k->c->out_len + k->c->to.len + k->c->nheld * (sizeof(k->c->held[0]) + 4) + k->top * 16 +
		      k->ngroup * 8;
	struct wire_out w;

	if (!k->up || !k->c->quiet)
		return -EBUSY;
	for (uint32_t i = 1; i < k->c->top; i++) {
		size_t rest;
		off_t at;

		if (!k->c->chan[i].used)
			continue;
		rest_of(&k->c->chan[i], &at, &rest);
		if (rest > max)
			return -ENOBUFS;
		size += 64 + k->c->chan[i].len + rest;
	}
	if (size > max)
		return -ENOBUFS;
	data = malloc(size);
	if (!data)
		return -ENOMEM;
	w = (struct wire_out){ data, data + size, false };
	wire_put_u32(&w, STATE_VERSION);
	put_carry(&w, k->c);
	put_kept(&w, k);
	if (w.bad)
		return -EIO;
	*ret_len = (size_t)(w.at - data);
	*ret = TAKE_PTR(data);
	return 0;
}

/* The far ends of loaded channels, for those that keep them; those that are left are closed. */
struct far {
	int fd[MUX_CHANNELS];
};

static bool chan_ok(const struct carry *c, const struct chan *x, uint32_t n, uint32_t flags, size_t len)
{
	const bool ours = n & 1;

	if (!n || n >= MUX_CHANNELS || c->chan[n].used || flags & ~CHAN_FLAGS || x->credit > MUX_WINDOW ||
	    x->window > MUX_WINDOW || x->owed > MUX_WINDOW - x->window || len > MUX_WINDOW - x->window - x->owed)
		return false;
	if (!x->sends && !x->takes)
		return false;
	if ((!x->takes && (len || !x->end_got)) || (!x->sends && !x->end_sent))
		return false;
	if (flags & FILE_REST && (!(flags & HAS_FD) || !ours || !x->sends || x->takes || x->end_sent))
		return false;
	/* Whether a channel can exist: the guest opens terminals and connections, the host all others. */
	return ours ? !x->tty && !x->net : (x->tty || x->net) && x->sends && x->takes;
}

/* Loads the rest of a file, as a file. */
static int load_rest(struct wire_in *r)
{
	AUTO_CLOSE int fd = sys_memfd_create("rest", MFD_CLOEXEC);
	size_t len;
	const uint8_t *data = get_bytes(r, SIZE_MAX, &len);
	int e = fd < 0 ? fd : r->bad ? -EBADMSG : fd_write_all(fd, data, len);

	if (e == 0 && lseek(fd, 0, SEEK_SET) < 0)
		e = -errno;
	return e < 0 ? e : TAKE_FD(fd);
}

static int load_chan(struct carry *c, struct wire_in *r, struct far *far)
{
	const uint32_t n = wire_get_u32(r), flags = wire_get_u32(r);
	struct chan x = { .used = true, .fd = -1 };
	int ends[2] = { -1, -1 }, e;
	const uint8_t *data;
	size_t len;

	x.credit = wire_get_u32(r);
	x.window = wire_get_u32(r);
	x.owed = wire_get_u32(r);
	x.exec = wire_get_u32(r);
	x.place = wire_get_u32(r);
	x.due = wire_get_u64(r);
	data = get_bytes(r, MUX_WINDOW, &len);
	x.tty = flags & TTY;
	x.net = flags & NET;
	x.sends = flags & SENDS;
	x.takes = flags & TAKES;
	x.end_sent = flags & END_SENT;
	x.end_got = flags & END_GOT;
	x.stop_sent = flags & STOP_SENT;
	x.closed_sent = flags & CLOSED_SENT;
	x.closed_got = flags & CLOSED_GOT;
	if (r->bad || !chan_ok(c, &x, n, flags, len))
		return -EBADMSG;
	x.due = x.due < len ? x.due : len;
	if (x.takes) {
		x.buf = malloc(MUX_WINDOW);
		if (!x.buf)
			return -ENOMEM;
		if (len)
			memcpy(x.buf, data, len);
		x.len = len;
	}
	/* A connection does not outlive its machine: see cut_net(). */
	if (flags & FILE_REST) {
		ends[0] = load_rest(r);
		e = ends[0] < 0 ? ends[0] : 0;
	} else {
		e = flags & HAS_FD && !x.net ? chan_ends(c, &x, n, ends) : 0;
	}
	if (e == 0 && ends[0] >= 0)
		e = fd_set_nonblock(ends[0]);
	x.fd = ends[0];
	far->fd[n] = ends[1];
	if (e < 0) {
		chan_free(&x);
		return e;
	}
	c->chan[n] = x;
	c->top = n >= c->top ? n + 1 : c->top;
	return 0;
}

static int load_held(struct carry *c, struct wire_in *r)
{
	uint32_t n = wire_get_u32(r);

	for (uint32_t i = 0; i < n; i++) {
		struct carry_held *h = &c->held[c->nheld];
		struct frame f;
		const uint8_t *data;

		if (r->bad || c->nheld == CARRY_HELD)
			return -EBADMSG;
		data = get_bytes(r, sizeof(h->data), &h->len);
		if (r->bad || frame_decode(data, h->len, &f) != (long)h->len || f.type != FRAME_EXITED || f.nfds)
			return -EBADMSG;
		memcpy(h->data, data, h->len);
		h->exec = f.id;
		c->nheld++;
	}
	return 0;
}

/* Frames that were not sent: only whole ones, since none was in transit. */
static int load_to(struct carry *c, struct wire_in *r, struct far *far)
{
	size_t len, at = 0, nfds = 0;
	const uint8_t *data = get_bytes(r, CARRY_FRAME, &len);
	struct frame f;
	uint32_t n;
	long k;

	while (!r->bad && at < len) {
		k = frame_decode(data + at, len - at, &f);
		if (k <= 0)
			return -EBADMSG;
		at += (size_t)k;
		nfds += f.nfds;
	}
	n = wire_get_u32(r);
	if (r->bad || n != nfds || n > CARRY_FDS)
		return -EBADMSG;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t number = wire_get_u32(r);
		int fd;

		if (r->bad || !number || number >= MUX_CHANNELS || !c->chan[number].tty || far->fd[number] < 0)
			return -EBADMSG;
		fd = sys_fcntl(far->fd[number], F_DUPFD_CLOEXEC, 0);
		if (fd < 0)
			return fd;
		c->to.chan[i] = number;
		c->to.fds[c->to.nfds++] = fd;
	}
	if (len)
		memcpy(c->to.data, data, len);
	c->to.len = len;
	return 0;
}

static int load_carry(struct carry *c, struct wire_in *r, struct far *far)
{
	struct chan *ctl = &c->chan[0];
	size_t len, at = 0;
	const uint8_t *out;
	uint32_t n;
	int e = 0;

	c->epoch = wire_get_u32(r);
	ctl->credit = wire_get_u32(r);
	ctl->window = wire_get_u32(r);
	ctl->owed = wire_get_u32(r);
	n = wire_get_u32(r);
	if (r->bad || ctl->credit > MUX_WINDOW || ctl->window > MUX_WINDOW || ctl->owed > MUX_WINDOW - ctl->window)
		return -EBADMSG;
	for (uint32_t i = 0; e == 0 && i < n; i++)
		e = load_chan(c, r, far);
	if (e == 0)
		e = load_held(c, r);
	if (e < 0)
		return e;
	out = get_bytes(r, CARRY_OUT - CARRY_SPARE / 2, &len);
	while (!r->bad && at < len) {
		struct mux m;
		long k = mux_decode(out + at, len - at, &m);

		if (k <= 0)
			return -EBADMSG;
		at += (size_t)k;
	}
	if (r->bad)
		return -EBADMSG;
	if (len)
		memcpy(c->out, out, len);
	c->out_len = len;
	return load_to(c, r, far);
}

/* Loads an exec's descriptors: the far ends of its channels. */
static int load_ends(struct kept *k, struct kept_exec *x, struct far *far)
{
	struct carry *c = k->c;

	for (uint32_t n = 1; n < c->top; n++) {
		const struct chan *ch = &c->chan[n];
		const int at = x->tty ? 0 : ch->place == 0 ? 2 : (int)ch->place - 1;

		if (!ch->used || ch->exec != x->id || far->fd[n] < 0 || ch->tty != x->tty || (!x->tty && ch->place > 2))
			continue;
		if (x->fds[at] < 0)
			x->fds[at] = TAKE_FD(far->fd[n]);
	}
	if (!x->with_stdin)
		fd_close(TAKE_FD(x->fds[2]));
	/* A stream that was closed before has no channel: it gets a pipe that has ended. */
	for (int i = 0; i < (x->tty ? 0 : 2); i++) {
		int p[2], r;

		if (x->fds[i] >= 0)
			continue;
		r = sys_pipe2(p, O_CLOEXEC);
		if (r < 0)
			return r;
		x->fds[i] = p[0];
		fd_close(p[1]);
	}
	return 0;
}

static int load_execs(struct kept *k, struct wire_in *r, struct far *far)
{
	uint32_t n = wire_get_u32(r), before = 0;
	int e = 0;

	for (uint32_t i = 0; e == 0 && i < n; i++) {
		const uint32_t id = wire_get_u32(r), flags = wire_get_u32(r), key = wire_get_u32(r);
		struct kept_exec *x = r->bad || flags & ~EXEC_FLAGS || kept_find(k, id) ? NULL : kept_place(k);

		if (!x)
			return -EBADMSG;
		*x = (struct kept_exec){ .used = true,
					 .keep = flags & EXEC_KEEP,
					 .tty = flags & EXEC_TTY,
					 .with_stdin = flags & EXEC_STDIN,
					 .id = id,
					 .group = key,
					 .fds = { -1, -1, -1 } };
		k->running++;
		k->ttys += x->tty;
		e = x->keep ? load_ends(k, x, far) : 0;
	}
	/* The i-th by its id is in group i + 1. */
	for (uint32_t i = 1; e == 0; i++) {
		struct kept_exec *next = NULL;

		for (size_t j = 0; j < k->top; j++)
			if (k->exec[j].keep && (i == 1 || k->exec[j].id > before) &&
			    (!next || k->exec[j].id < next->id))
				next = &k->exec[j];
		if (!next)
			break;
		before = next->id;
		if (next->group)
			e = kept_add_group(k, i, next->group);
	}
	return e;
}

/* Loads the exec groups. */
static int load_groups(struct kept *k, struct wire_in *r)
{
	uint32_t n = wire_get_u32(r);

	for (uint32_t i = 0; i < n && !r->bad; i++) {
		uint32_t key = wire_get_u32(r);
		uint8_t out[8];
		bool used = false;

		for (size_t j = 0; j < k->ngroup; j++)
			used = used || k->group[j].key == key;
		if (used || r->bad)
			continue;
		mux_put_u32(out, key);
		mux_put_u32(out + 4, MUX_GROUP_END);
		if (carry_say(k->c, MUX_GROUP, 0, out, sizeof(out)) < 0)
			return -ENOBUFS;
	}
	return r->bad ? -EBADMSG : 0;
}

/* Resets connections: they belong to the source machine. */
static int cut_net(struct carry *c)
{
	int r = 0;

	for (uint32_t n = 2; r == 0 && n < c->top; n += 2)
		if (c->chan[n].used && c->chan[n].net && !c->chan[n].closed_sent)
			r = chan_reset(c, n);
	return r;
}

int kept_load(struct kept *k, const uint8_t *data, size_t len)
{
	struct wire_in r = { data, data + len, false };
	struct far far;
	int e;

	if (k->up || k->c->top > 1 || k->c->out_len)
		return -EBUSY;
	for (uint32_t n = 0; n < MUX_CHANNELS; n++)
		far.fd[n] = -1;
	e = wire_get_u32(&r) == STATE_VERSION ? load_carry(k->c, &r, &far) : -EBADMSG;
	if (e == 0) {
		k->landlock = wire_get_u32(&r);
		k->last_key = wire_get_u32(&r);
		e = load_execs(k, &r, &far);
	}
	if (e == 0)
		e = load_groups(k, &r);
	if (e == 0)
		e = cut_net(k->c);
	if (e == 0 && r.at != r.end)
		e = -EBADMSG;
	fd_close_many(far.fd, MUX_CHANNELS);
	if (e < 0)
		return e;
	k->ready = k->up = k->loaded = true;
	k->c->still = k->c->quiet = true;
	return 0;
}

static void drop_all(struct kept *k)
{
	for (size_t i = 0; i < k->top; i++) {
		struct kept_exec *x = &k->exec[i];

		if (!x->used || x->dropped)
			continue;
		fd_close_many(x->fds, ARRAY_LEN(x->fds));
		x->keep = false;
		x->dropped = true;
		k->dropped++;
	}
	/* The host's numbers begin anew, so no loaded group has a number. */
	k->ngroup = 0;
}

int kept_resume(struct kept *k, const struct mux_resume *who)
{
	struct mux_resume w = *who;
	uint8_t out[MUX_RESUME_LEN];
	int r;

	if (!k->loaded || k->c->resuming)
		return -EBUSY;
	if (w.flags & MUX_RESUME_DROP)
		drop_all(k);
	do {
		if (sys_getrandom(&w.epoch, sizeof(w.epoch), 0) != (ssize_t)sizeof(w.epoch))
			return -EIO;
	} while (w.epoch == k->c->epoch);
	k->c->epoch = w.epoch;
	mux_resume_encode(&w, out);
	r = still_end(k->c, MUX_RESUME, out, sizeof(out));
	k->c->resuming = r == 0;
	return r;
}
