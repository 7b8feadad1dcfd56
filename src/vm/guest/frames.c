/*
 * Frames between host and agent that the guest itself handles: exec groups, connections into the sandbox, comparisons,
 * usage.
 */
#include "base/base.h"
#include "base/sys.h"
#include "layers/diff.h"
#include "proto/change.h"
#include "vm/guest/guest.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define GROUPS_MAX 4096U

/* Sends FAILED to the host, as if the agent had sent it. */
static int refuse(struct guest *g, uint32_t id, enum frame_stage stage, int r)
{
	const struct frame_failed f = { .stage = stage, .errnum = (uint32_t)-r };
	uint8_t out[FRAME_HEAD + 16];
	long n = frame_failed_encode(&f, out + FRAME_HEAD, sizeof(out) - FRAME_HEAD);

	frame_head(out, FRAME_FAILED, 0, id, (uint32_t)n);
	r = carry_tell(&g->carry, out, FRAME_HEAD + (size_t)n);
	return r < 0 ? r : CARRY_TAKEN;
}

/* A group that the host names is made when it is first named. */
static int open_group(struct guest *g, uint32_t key, int *ret)
{
	struct guest_group *more;
	struct guest_group new = { .key = key };
	int r;

	for (size_t i = 0; i < g->ngroup; i++)
		if (g->group[i].key == key)
			return -EEXIST; /* each exec has its own */
	if (g->ngroup == GROUPS_MAX)
		return -ENOSPC;
	more = realloc(g->group, (g->ngroup + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	g->group = more;
	r = warden_group(g->warden, g->sandbox, &new.number, ret, NULL);
	if (r == 0)
		g->group[g->ngroup++] = new;
	return r;
}

static int exec_group(struct guest *g, const struct carry_frame *f)
{
	struct frame_exec_fds at;
	struct frame_exec x;
	uint8_t key[4];
	int fd = -1, r;

	g->watch = true;
	if (frame_exec_decode(&f->f, &x) < 0)
		return 0; /* the agent reports the error */
	at = frame_exec_fds(x.flags);
	if (at.group < 0)
		return 0;
	r = pread(f->fds[at.group], key, sizeof(key), 0) == (ssize_t)sizeof(key) ? 0 : -EBADF;
	if (r == 0)
		r = open_group(g, mux_u32(key), &fd);
	if (r < 0)
		return refuse(g, f->f.id, FRAME_STAGE_GROUP, r);
	fd_close(f->fds[at.group]);
	f->fds[at.group] = fd;
	return 0;
}

int frames_group(struct guest *g, const struct mux *m)
{
	uint32_t key, what;

	if (m->len != 8 || !g->sandbox)
		return -EBADMSG;
	key = mux_u32(m->payload);
	what = mux_u32(m->payload + 4);
	for (size_t i = 0; i < g->ngroup; i++) {
		if (g->group[i].key != key)
			continue;
		if (what == MUX_GROUP_KILL)
			warden_group_kill(g->warden, g->sandbox, g->group[i].number, NULL);
		if (what == MUX_GROUP_END) {
			warden_group_end(g->warden, g->sandbox, g->group[i].number, NULL);
			g->group[i] = g->group[--g->ngroup];
		}
		break;
	}
	return 0;
}

static int connect_inside(struct guest *g, const struct frame_connect *to)
{
	struct sockaddr_in in4 = { .sin_family = AF_INET,
				   .sin_port = htons((uint16_t)to->port),
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6,
				    .sin6_port = htons((uint16_t)to->port),
				    .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int fd = -1, r = warden_socket(g->warden, g->sandbox, to->family, &fd, NULL);

	if (r < 0)
		return r;
	r = to->family == 4 ? connect(fd, (struct sockaddr *)&in4, sizeof(in4)) :
			      connect(fd, (struct sockaddr *)&in6, sizeof(in6));
	if (r < 0 && errno != EINPROGRESS) {
		r = -errno;
		fd_close(fd);
		return r;
	}
	return fd;
}

static int connect_inwards(struct guest *g, const struct carry_frame *f)
{
	struct frame_connect to;
	int r;

	if (frame_connect_decode(&f->f, &to) < 0 || !f->chan[0])
		return -EBADMSG;
	r = chan_connect(&g->carry, f->chan[0], connect_inside(g, &to));
	return r < 0 ? r : CARRY_TAKEN;
}

/* Reports the error to the reader in the stream; it is small enough for an empty pipe. */
static void refuse_changes(int fd, int r, const struct err *e)
{
	const struct change_end end = { .errnum = (uint32_t)-r, .kind = (uint32_t)e->kind, .msg = e->msg };
	uint8_t out[CHANGE_HEAD + 512];
	long n = change_end_encode(&end, out + CHANGE_HEAD, sizeof(out) - CHANGE_HEAD);

	if (n < 0)
		return;
	change_head(out, CHANGE_END, (uint32_t)n);
	fd_write_all(fd, out, CHANGE_HEAD + (size_t)n);
}

/* Sends the differences. Only the guest may parse this disk: a kernel outside would have to trust it. */
static int tell_changes(struct guest *g, const struct carry_frame *f)
{
	struct warden_compare c = { .to = g->sandbox, .from_spec = g->spec, .to_spec = g->spec, .out = f->fds[0] };
	struct frame_changes x;
	struct err e = { 0 };
	int r = frame_changes_decode(&f->f, &x);

	if (r < 0 || x.flags & ~DIFF_FLAGS || !g->spec)
		return -EBADMSG;
	if (lie_changes(g, f->fds[0]))
		return CARRY_TAKEN;
	c.flags = x.flags;
	c.max = x.max;
	r = warden_compare(g->warden, &c, NULL, &e);
	if (r < 0)
		refuse_changes(f->fds[0], r, &e);
	return CARRY_TAKEN;
}

static int tell_who(struct guest *g, const struct carry_frame *f)
{
	struct socket_owner they;

	if (f->f.len != 4 || f->f.nfds != 1)
		return -EBADMSG;
	/* An empty pipe has room for it. */
	if (net_who(g, mux_u32(f->f.payload), &they) == 0 && they.pid)
		dprintf(f->fds[0], "%u %.*s", they.pid, (int)sizeof(they.command), they.command);
	return CARRY_TAKEN;
}

int frames_to_agent(void *arg, struct carry_frame *f)
{
	struct guest *g = arg;

	if (f->f.type == FRAME_EXEC)
		return exec_group(g, f);
	if (f->f.type == FRAME_CHANGES)
		return tell_changes(g, f);
	if (f->f.type == FRAME_WHO)
		return tell_who(g, f);
	return f->f.type == FRAME_CONNECT ? connect_inwards(g, f) : 0;
}

/* Usage is sent ahead of EXITED, since the verdict is made from it. */
int frames_from_agent(void *arg, struct carry_frame *f)
{
	struct guest *g = arg;
	int r;

	if (f->f.type != FRAME_EXITED)
		return 0;
	/*
	 * Sent ahead of EXITED: a client that gets it may ask at once what was refused, and which resources were
	 * used.
	 */
	r = net_denied(g);
	return r < 0 ? r : guest_say_stat(g);
}
