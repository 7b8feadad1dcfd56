/* Sends requests to a warden, and receives checked replies. */
#include "warden/client/client.h"
#include "base/base.h"
#include "warden/msg.h"

#include <poll.h>

/* A create waits for a blank when none is ready; a destroy or a freeze waits for processes that are slow to stop. */
#define ANSWER_MS 60000

struct client {
	int fd; /* -1: the connection was given up */
	uint64_t seq;
	struct warden_req req; /* not on the stack, since they are large */
	struct warden_rep rep;
};

static int give_up(struct client *c, int r)
{
	fd_close(c->fd);
	c->fd = -1;
	return r;
}

/* Receives a reply into ->rep; on success the descriptors are the caller's. */
static int receive(struct client *c, int *fds, size_t *nfds, struct err *e)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };
	ssize_t n;
	int r;

	do {
		r = poll(&p, 1, ANSWER_MS);
	} while (r < 0 && errno == EINTR);
	if (r == 0)
		return err_set(e, ERR_TIMEOUT, -ETIMEDOUT, "the warden does not answer");
	n = fd_recv(c->fd, &c->rep, sizeof(c->rep), fds, MSG_FDS, nfds);
	if (n == 0)
		return err_set(e, ERR_LOST, -EPIPE, "the warden has ended");
	if (n < 0)
		return err_sys(e, ERR_LOST, (int)n, "receive from the warden");
	memset((char *)&c->rep + n, 0, sizeof(c->rep) - (size_t)n);
	r = msg_check_rep(&c->rep, (size_t)n, *nfds, &c->req, e);
	if (r < 0)
		fd_close_many(fds, *nfds);
	return r;
}

/* Sends ->req and waits for ->rep. */
static int call(struct client *c, enum warden_op op, uint64_t handle, int fds[MSG_FDS], struct err *e)
{
	size_t nfds = 0;
	int r;

	if (c->fd < 0)
		return err_set(e, ERR_LOST, -EPIPE, "the connection to the warden was closed");
	c->req.version = MSG_VERSION;
	c->req.op = op;
	c->req.handle = handle;
	c->req.seq = ++c->seq;
	r = fd_send(c->fd, &c->req, msg_brief(op) ? MSG_REQ_HEAD : sizeof(c->req), NULL, 0);
	if (r < 0)
		return give_up(c, err_sys(e, ERR_LOST, r, "send to the warden"));
	r = receive(c, fds, &nfds, e);
	if (r < 0)
		return give_up(c, r);
	if (c->rep.result == 0)
		return 0;
	err_set(e, c->rep.what, c->rep.result, "%s", c->rep.msg);
	if (c->rep.remedy[0])
		err_remedy(e, "%s", c->rep.remedy);
	return c->rep.result;
}

static int call_plain(struct client *c, enum warden_op op, uint64_t handle, struct err *e)
{
	int fds[MSG_FDS] = MSG_NO_FDS;

	memset(&c->req.spec, 0, sizeof(c->req.spec));
	return call(c, op, handle, fds, e);
}

int client_connect(int fd, struct client **ret, struct err *e)
{
	struct client *c = calloc(1, sizeof(*c));
	int r;

	if (!c) {
		fd_close(fd);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a client");
	}
	c->fd = fd;
	r = call_plain(c, WARDEN_HELLO, 0, e);
	if (r < 0) {
		client_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void client_free(struct client *c)
{
	if (!c)
		return;
	fd_close(c->fd);
	free(c);
}

static void take(struct client *c, const int fds[MSG_FDS], struct client_sandbox *ret)
{
	ret->handle = c->rep.handle;
	ret->sock = fds[0];
	ret->pidfd = fds[1];
	ret->group = c->rep.arg ? fds[2] : -1;
	for (unsigned i = 0; i < STEER_SOCKETS; i++)
		ret->net[i] = fds[i + (c->rep.arg ? 3 : 2)];
	msg_get_receipt(&c->rep.receipt, &ret->receipt);
}

int client_create(struct client *c, const struct sandbox_spec *spec, struct client_sandbox *ret, struct err *e)
{
	int fds[MSG_FDS] = MSG_NO_FDS, r;

	spec_put(spec, &c->req.spec);
	r = call(c, WARDEN_CREATE, 0, fds, e);
	if (r == 0)
		take(c, fds, ret);
	return r;
}

int client_attach(struct client *c, uint64_t handle, struct client_sandbox *ret, struct err *e)
{
	int fds[MSG_FDS] = MSG_NO_FDS, r;

	memset(&c->req.spec, 0, sizeof(c->req.spec));
	r = call(c, WARDEN_ATTACH, handle, fds, e);
	if (r == 0)
		take(c, fds, ret);
	return r;
}

void client_sandbox_done(struct client_sandbox *s)
{
	fd_close(s->sock);
	fd_close(s->pidfd);
	fd_close(s->group);
	s->sock = s->pidfd = s->group = -1;
	fd_close_many(s->net, STEER_SOCKETS);
}

int client_destroy(struct client *c, uint64_t handle, struct err *e)
{
	return call_plain(c, WARDEN_DESTROY, handle, e);
}

int client_stat(struct client *c, uint64_t handle, struct warden_stat *ret, struct err *e)
{
	int r = call_plain(c, WARDEN_STAT, handle, e);

	if (r == 0)
		*ret = c->rep.stat;
	return r;
}

int client_freeze(struct client *c, uint64_t handle, struct err *e)
{
	return call_plain(c, WARDEN_FREEZE, handle, e);
}

int client_thaw(struct client *c, uint64_t handle, struct err *e)
{
	return call_plain(c, WARDEN_THAW, handle, e);
}

int client_counts(struct client *c, struct warden_counts *ret, struct err *e)
{
	const struct msg_counts *n = &c->rep.counts;
	int r = call_plain(c, WARDEN_COUNTS, 0, e);

	if (r == 0)
		*ret = (struct warden_counts){
			.alive = (unsigned)n->alive,
			.ready = (unsigned)n->ready,
			.cleaning = (unsigned)n->cleaning,
			.made = n->made,
			.ended = n->ended,
			.cleanup_retries = n->cleanup_retries,
			.cleanup_failures = n->cleanup_failures,
		};
	return r;
}

int client_next(struct client *c, uint64_t after, uint64_t *ret, struct warden_receipt *ret_receipt, struct err *e)
{
	int r = call_plain(c, WARDEN_NEXT, after, e);

	if (r < 0)
		return r;
	*ret = c->rep.handle;
	msg_get_receipt(&c->rep.receipt, ret_receipt);
	return 0;
}

static int group_new(struct client *c, uint64_t handle, uint64_t arg, uint32_t *ret, int *fds, struct err *e)
{
	int r;

	memset(&c->req.spec, 0, sizeof(c->req.spec));
	c->req.arg = arg;
	r = call(c, WARDEN_GROUP, handle, fds, e);
	c->req.arg = 0;
	if (r == 0)
		*ret = (uint32_t)c->rep.arg;
	return r;
}

int client_group(struct client *c, uint64_t handle, uint32_t *ret, int *ret_fd, struct err *e)
{
	int fds[MSG_FDS] = MSG_NO_FDS, r = group_new(c, handle, 0, ret, fds, e);

	if (r == 0)
		*ret_fd = fds[0];
	return r;
}

int client_group_for(struct client *c, uint64_t handle, uint32_t uid, uint32_t *ret, int *ret_fd, int *ret_user,
		     struct err *e)
{
	int fds[MSG_FDS] = MSG_NO_FDS, r = group_new(c, handle, uid + 1, ret, fds, e);

	if (r < 0)
		return r;
	*ret_fd = fds[0];
	*ret_user = fds[1];
	return 0;
}

static int call_group(struct client *c, enum warden_op op, uint64_t handle, uint32_t group, struct err *e)
{
	int r;

	c->req.arg = group;
	r = call_plain(c, op, handle, e);
	c->req.arg = 0;
	return r;
}

int client_group_kill(struct client *c, uint64_t handle, uint32_t group, struct err *e)
{
	return call_group(c, WARDEN_GROUP_KILL, handle, group, e);
}

int client_group_end(struct client *c, uint64_t handle, uint32_t group, struct err *e)
{
	return call_group(c, WARDEN_GROUP_END, handle, group, e);
}

static int call_layer(struct client *c, enum warden_op op, uint64_t handle, const char *id, struct err *e)
{
	int r;

	memcpy(c->req.id, id, strnlen(id, sizeof(c->req.id) - 1));
	r = call_plain(c, op, handle, e);
	memset(c->req.id, 0, sizeof(c->req.id));
	return r;
}

static void take_layer(const struct client *c, const char *id, struct client_layer *ret)
{
	const struct msg_layer *m = &c->rep.layer;

	*ret = (struct client_layer){
		.tenant = m->tenant,
		.made = m->made,
		.entries = m->entries,
		.files = m->files,
		.size = m->size,
		.memory = m->memory,
		.depth = m->depth,
		.users = m->users,
		.bad = m->flags & MSG_LAYER_BAD,
	};
	memcpy(ret->id, id, strnlen(id, ID_LEN));
	memcpy(ret->parent, m->parent, strnlen(m->parent, ID_LEN));
	memcpy(ret->sum, m->sum, sizeof(ret->sum));
}

int client_seal(struct client *c, uint64_t handle, const char *id, struct client_layer *ret, uint64_t *ret_pause,
		struct err *e)
{
	int r = call_layer(c, WARDEN_SEAL, handle, id, e);

	if (r < 0)
		return r;
	take_layer(c, id, ret);
	*ret_pause = c->rep.arg;
	return 0;
}

int client_seal_memory(struct client *c, uint64_t handle, const char *id, struct client_layer *ret, uint64_t *ret_pause,
		       struct err *e)
{
	int r;

	c->req.arg = 1;
	r = client_seal(c, handle, id, ret, ret_pause, e);
	c->req.arg = 0;
	return r;
}

int client_unseal(struct client *c, const char *id, struct err *e)
{
	return call_layer(c, WARDEN_UNSEAL, 0, id, e);
}

int client_layers(struct client *c, const char *after, struct client_layer *ret, struct err *e)
{
	int r = call_layer(c, WARDEN_LAYERS, 0, after, e);

	if (r < 0 || !c->rep.id[0])
		return r;
	take_layer(c, c->rep.id, ret);
	return 1;
}

int client_diff(struct client *c, const struct client_diff *d, int *ret_fd, struct err *e)
{
	int fds[MSG_FDS] = MSG_NO_FDS, r;

	spec_put(d->spec, &c->req.spec);
	msg_put_diff(d->from, d->older, d->flags, d->max, &c->req.diff);
	r = call(c, WARDEN_DIFF, d->to, fds, e);
	memset(&c->req.diff, 0, sizeof(c->req.diff));
	if (r == 0)
		*ret_fd = fds[0];
	return r;
}

int client_net(struct client *c, uint64_t handle, const struct steer_rules *rules, int *ret_sockets, struct err *e)
{
	int fds[MSG_FDS] = MSG_NO_FDS, r;

	memset(&c->req.spec, 0, sizeof(c->req.spec));
	spec_put_net(rules, &c->req.spec.net);
	c->req.arg = ret_sockets != NULL;
	r = call(c, WARDEN_NET, handle, fds, e);
	c->req.arg = 0;
	if (r == 0 && ret_sockets)
		memcpy(ret_sockets, fds, STEER_SOCKETS * sizeof(int));
	return r;
}

int client_socket(struct client *c, uint64_t handle, unsigned family, int *ret_fd, struct err *e)
{
	int fds[MSG_FDS] = MSG_NO_FDS, r;

	memset(&c->req.spec, 0, sizeof(c->req.spec));
	c->req.arg = family;
	r = call(c, WARDEN_SOCKET, handle, fds, e);
	c->req.arg = 0;
	if (r == 0)
		*ret_fd = fds[0];
	return r;
}

int client_who(struct client *c, uint64_t handle, const struct warden_who *who, struct socket_owner *ret, struct err *e)
{
	int r;

	c->req.who = *who;
	r = call_plain(c, WARDEN_WHO, handle, e);
	c->req.who = (struct warden_who){ 0 };
	if (r == 0)
		*ret = c->rep.they;
	return r;
}

int client_denied(struct client *c, uint64_t handle, struct steer_denied ret[STEER_DENIED], struct err *e)
{
	int r = call_plain(c, WARDEN_DENIED, handle, e);

	if (r < 0)
		return r;
	memcpy(ret, c->rep.denied, sizeof(c->rep.denied));
	return (int)c->rep.arg;
}
