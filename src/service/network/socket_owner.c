/*
 * Finds the process of a machine that a refused connection belongs to. The jail's end of the connection is
 * cloche-vmm's; only the machine knows the other end, and answers `PID COMMAND` in a pipe that its agent's link carries
 * in. The answer may be false, and may never come.
 */
#include "base/base.h"
#include "base/sys.h"
#include "proto/mux.h"
#include "service/network/internal.h"

#include <unistd.h>

#define ANSWER_MS 2000 /* egress does not wait so long, so the answer is dropped then */
#define ASKED_MAX 8U /* of one machine, at once */

struct vm_who {
	struct nets *nets;
	uint64_t number;
	uint32_t seq;
	int fd;
	uv_poll_t poll;
	uv_timer_t timer;
	unsigned open; /* handles */
	size_t len;
	char text[16 + WARDEN_COMMAND];
};

static void on_closed(uv_handle_t *h)
{
	struct vm_who *q = h->data;

	if (--q->open)
		return;
	fd_close(q->fd);
	free(q);
}

/* Masks control characters, so that the text is harmless in a terminal. */
static uint32_t parse(struct vm_who *q, const char **ret_command)
{
	unsigned long pid;
	char *end;

	q->text[q->len] = '\0';
	for (size_t i = 0; i < q->len; i++)
		if (q->text[i] < ' ' || q->text[i] > '~')
			q->text[i] = '?';
	pid = strtoul(q->text, &end, 10);
	*ret_command = *end == ' ' ? end + 1 : "";
	return end == q->text || pid > INT32_MAX || *end != ' ' ? 0 : (uint32_t)pid;
}

static void finish(struct vm_who *q)
{
	struct net_run *r = net_run_of(q->nets, q->number);
	const char *command;
	uint32_t pid = parse(q, &command);

	if (r && r->whos)
		r->whos--;
	net_they(q->nets, q->number, q->seq, pid, pid ? command : "");
	uv_close((uv_handle_t *)&q->poll, on_closed);
	uv_close((uv_handle_t *)&q->timer, on_closed);
}

static void on_readable(uv_poll_t *p, int status, int events)
{
	struct vm_who *q = p->data;
	ssize_t n = status < 0 ? 0 : read(q->fd, q->text + q->len, sizeof(q->text) - 1 - q->len);

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	q->len += n > 0 ? (size_t)n : 0;
	if (n <= 0 || q->len == sizeof(q->text) - 1)
		finish(q);
}

static void on_late(uv_timer_t *t)
{
	finish(t->data);
}

int net_vm_who(struct net_run *r, uint32_t seq, uint16_t port)
{
	struct vm_who *q = r->whos < ASKED_MAX ? calloc(1, sizeof(*q)) : NULL;
	uv_loop_t *loop = r->nets->service->loop;
	uint8_t out[4];
	int p[2], e;

	if (!q)
		return -EBUSY;
	e = sys_pipe2(p, O_CLOEXEC | O_NONBLOCK);
	if (e < 0) {
		free(q);
		return e;
	}
	*q = (struct vm_who){ .nets = r->nets, .number = r->number, .seq = seq, .fd = p[0] };
	mux_put_u32(out, port);
	e = agent_link_send(&r->sandbox->link, FRAME_WHO, 0, out, sizeof(out), &p[1], 1);
	fd_close(p[1]);
	if (e == 0)
		e = uv_poll_init(loop, &q->poll, q->fd);
	if (e < 0) {
		fd_close(q->fd);
		free(q);
		return e;
	}
	uv_timer_init(loop, &q->timer);
	q->poll.data = q->timer.data = q;
	q->open = 2;
	r->whos++;
	uv_poll_start(&q->poll, UV_READABLE | UV_DISCONNECT, on_readable);
	uv_timer_start(&q->timer, on_late, ANSWER_MS, 0);
	return 0;
}
