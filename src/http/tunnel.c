/* A connection after its upgrade to another protocol. */
#include "http/conn.h"

#include <sys/socket.h>

#include "base/base.h"

struct tunnel {
	struct conn *conn;
	struct tunnel_calls calls;
	void *arg;
	bool paused, closed, told, shuts, above, drain_due;
};

int tunnel_accept(struct http_req *q, const char *protocol, const struct tunnel_calls *calls, void *arg,
		  struct tunnel **ret)
{
	static const char head[] = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ";
	struct conn *c = q->conn;
	struct tunnel *t;
	int one = 1;

	if (!http_is_upgrade(q) || q->res != RES_NONE)
		return -EPROTO;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	*t = (struct tunnel){ .conn = c, .calls = *calls, .arg = arg };
	/* A tunnel has no pings of its own: the kernel's keepalive finds out whether the other side is alive. */
	(void)setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	conn_write(c,
		   (struct out_piece[]){ { .data = head, .len = sizeof(head) - 1 },
					 { .data = protocol, .len = strlen(protocol) },
					 { .data = "\r\n", .len = 2 },
					 { .data = buf_str(&q->set), .len = q->set.len },
					 { .data = "\r\n", .len = 2 } },
		   5);
	q->res = RES_ENDED;
	c->tunnel = t;
	c->started = false;
	if (c->state != CONN_DEAD)
		c->state = CONN_TUNNEL;
	*ret = t;
	conn_after(c);
	if (!c->turn) /* what came early waits to be delivered */
		conn_kick(c);
	return 0;
}

size_t tunnel_feed(struct tunnel *t, const char *p, size_t n)
{
	if (!tunnel_wants(t))
		return 0;
	t->calls.data(t->arg, p, n);
	return n;
}

bool tunnel_callbacks(struct tunnel *t)
{
	if (!t->drain_due)
		return false;
	t->drain_due = false;
	t->calls.drain(t->arg);
	return true;
}

bool tunnel_eof(struct tunnel *t)
{
	if (t->told || t->closed)
		return false;
	t->told = true;
	t->calls.eof(t->arg);
	return true;
}

bool tunnel_wants(const struct tunnel *t)
{
	return !t->paused && !t->closed;
}

bool tunnel_shuts(const struct tunnel *t)
{
	return t->shuts;
}

void tunnel_queue_fell(struct tunnel *t)
{
	if (t->above && t->conn->queued < HTTP_HIGH / 2) {
		t->above = false;
		t->drain_due = true;
	}
}

void tunnel_gone(struct tunnel *t)
{
	if (!t->closed) {
		t->closed = true;
		t->calls.gone(t->arg);
	}
	free(t);
}

/* ---- what the layer above does ---------------------------------------------------------------------------------- */

void tunnel_write(struct tunnel *t, const void *data, size_t len)
{
	struct conn *c = t->conn;

	if (t->closed || t->shuts || c->state != CONN_TUNNEL || !len)
		return;
	conn_write(c, &(struct out_piece){ .data = data, .len = len }, 1);
	if (c->queued >= HTTP_HIGH / 2)
		t->above = true;
	conn_after(c);
}

size_t tunnel_queued(const struct tunnel *t)
{
	return t->conn->queued;
}

void tunnel_pause(struct tunnel *t)
{
	t->paused = true;
	conn_after(t->conn);
}

void tunnel_resume(struct tunnel *t)
{
	if (!t->paused)
		return;
	t->paused = false;
	if (!t->conn->turn)
		conn_kick(t->conn);
}

void tunnel_shut(struct tunnel *t)
{
	t->shuts = true;
	conn_after(t->conn);
}

void tunnel_end(struct tunnel *t)
{
	struct conn *c = t->conn;

	if (t->closed)
		return;
	t->closed = true;
	conn_stop(c);
	if (!c->turn)
		conn_kick(c);
}

void tunnel_cut(struct tunnel *t)
{
	if (t->closed)
		return;
	t->closed = true;
	t->conn->reset = true;
	conn_kill(t->conn);
}
