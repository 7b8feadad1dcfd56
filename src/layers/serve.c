/* Receives requests for cloche-layers, runs them, and sends the answers. */
#include "layers/serve.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/making.h"
#include "layers/settle_work.h"

#include <unistd.h>

#define FDS 3U

struct request {
	struct layer_ask ask;
	int fd[FDS];
	struct layer_answer answer;
	int ret[2]; /* sent with the answer: -1, or closed afterwards */
};

static int verify(int store, const struct manifest *m, const int *stop)
{
	AUTO_CLOSE int dir = sys_openat(store, m->id, MAKING_FOLDER, 0);
	struct manifest is;
	int r = dir < 0 ? dir : manifest_read(dir, m->id, &is);

	if (r == 0 && memcmp(&is, m, sizeof(is)))
		r = -EBADMSG;
	return r == 0 ? manifest_verify(dir, stop, m) : r;
}

/* Answers with the folder "mem", which the warden has encrypted and cloche-dump writes to. */
static int with_mem(const struct making *x, struct request *q, int r)
{
	if (r == 0 && x->mem >= 0)
		r = q->ret[0] = sys_fcntl(x->mem, F_DUPFD_CLOEXEC, 3);
	return r < 0 ? r : 0;
}

static int handle(struct making *x, struct request *q)
{
	struct err *e = &q->answer.e;

	switch ((enum layer_op)q->ask.op) {
	case LAYER_VERIFY:
		return verify(x->store, &q->ask.m, x->stop);
	case LAYER_SETTLE:
		return settle_work(x->store, &q->ask.m, q->ask.boot, x->stop, &q->answer.m);
	case LAYER_FILL:
		return making_fill(x, q->answer.name);
	case LAYER_BEGIN:
		return with_mem(x, q, making_begin(x, &q->ask, e));
	case LAYER_COPY:
		return making_copy(x, q->fd[0], e);
	case LAYER_ANEW:
		return with_mem(x, q, making_anew(x, e));
	case LAYER_DISK:
		return making_disk(x, q->fd[0], q->fd[1], q->fd[2], q->ret, e);
	case LAYER_WRITE:
		return making_write(x, &q->ask, q->fd, &q->answer);
	}
	return -ENOSYS;
}

/* Receives a request. 0: the socket has ended. */
static int take(int control, struct request *q)
{
	size_t nfds = 0;
	ssize_t n;

	memset(q, 0, sizeof(*q));
	q->fd[0] = q->fd[1] = q->fd[2] = q->ret[0] = q->ret[1] = -1;
	do
		n = fd_recv(control, &q->ask, sizeof(q->ask), q->fd, FDS, &nfds);
	while (n == -EINTR);
	if (n > 0 && n != (ssize_t)sizeof(q->ask))
		n = -EBADMSG;
	return n < 0 ? (int)n : n > 0;
}

static int give(int control, struct request *q)
{
	const unsigned fds = (q->ret[0] >= 0) + (q->ret[1] >= 0);
	int r;

	fd_close_many(q->fd, FDS); /* before the answer: after it the sandbox that they belong to may end */
	r = fd_send(control, &q->answer, sizeof(q->answer), q->ret, fds);
	fd_close_many(q->ret, ARRAY_LEN(q->ret));
	return r;
}

int serve(int control, int store, bool makes, int *stop)
{
	static struct request q;
	struct making x = { .store = store, .stop = stop };
	int r;

	if (makes)
		making_init(&x, store, stop);
	while ((r = take(control, &q)) > 0) {
		__atomic_store_n(stop, 0, __ATOMIC_RELAXED);
		r = makes || q.ask.op == LAYER_VERIFY ? handle(&x, &q) : -EPERM;
		q.answer.result = r;
		r = give(control, &q);
		if (r < 0)
			break;
	}
	if (makes)
		making_done(&x);
	return r;
}

int serve_refusal(int control, int r, const char *msg)
{
	static struct request q;
	int n;

	while ((n = take(control, &q)) > 0) {
		q.answer.result = err_sys(&q.answer.e, ERR_INTERNAL, r, "%s", msg);
		n = give(control, &q);
		if (n < 0)
			break;
	}
	return n;
}
