/* The thread that moves bytes from a pipe into a file. */
#include "service/image/blob_pipe.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE (1U << 20)
#define LOOK_MS 100 /* how often the thread checks whether it was cut */

struct blob_pipe {
	struct blob_pipe_plan plan;
	char what[160];
	uv_thread_t thread;
	uv_async_t over;
	_Atomic uint64_t moved;
	_Atomic bool cut;
	int r;
	struct err err;
	blob_pipe_fn *fn;
	void *arg;
};

/* Waits until there are bytes, or the end: 0; or an error. */
static int wait_for(struct blob_pipe *p, uint64_t since)
{
	struct pollfd f = { .fd = p->plan.from, .events = POLLIN };

	for (;;) {
		int n = poll(&f, 1, LOOK_MS);

		if (atomic_load(&p->cut))
			return err_set(&p->err, WHY_SERVICE_LOST, -ECANCELED, "%s: cancelled", p->what);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return err_sys(&p->err, ERR_INTERNAL, -errno, "%s: wait for a layer", p->what);
		if (clock_mono_ns() - since > p->plan.stall_ms * 1000000ULL) {
			err_set(&p->err, WHY_REGISTRY_SILENT, -ETIMEDOUT, "%s: no bytes from the registry for %llu s",
				p->what, (unsigned long long)(p->plan.stall_ms / 1000));
			err_remedy(&p->err, "try again: layers that were complete are not fetched again");
			return -ETIMEDOUT;
		}
	}
}

/* Moves the expected number of bytes, without reading more: a writer that sends more gets an error. */
static int move(struct blob_pipe *p)
{
	uint64_t since = clock_mono_ns(), moved = 0;
	int r;

	while (moved < p->plan.size) {
		const uint64_t left = p->plan.size - moved;
		ssize_t n;

		r = wait_for(p, since);
		if (r < 0)
			return r;
		n = splice(p->plan.from, NULL, p->plan.to, NULL, left < PIECE ? (size_t)left : PIECE,
			   SPLICE_F_NONBLOCK);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n < 0)
			return err_sys(&p->err, errno == ENOSPC || errno == EDQUOT ? WHY_NO_HOST_SPACE : WHY_INTERNAL,
				       -errno, "%s: write a layer", p->what);
		if (!n)
			return err_set(&p->err, WHY_REGISTRY_FAILED, -EPROTO,
				       "%s: the registry sent %llu bytes of a layer of %llu", p->what,
				       (unsigned long long)moved, (unsigned long long)p->plan.size);
		moved += (uint64_t)n;
		atomic_store(&p->moved, moved);
		since = clock_mono_ns();
	}
	return 0;
}

static void run(void *arg)
{
	struct blob_pipe *p = arg;

	p->r = move(p);
	fd_close(p->plan.from); /* skopeo gets an error if it writes more */
	uv_async_send(&p->over);
}

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

static void on_over(uv_async_t *a)
{
	struct blob_pipe *p = a->data;

	uv_thread_join(&p->thread);
	p->fn(p->arg, atomic_load(&p->moved), p->r, p->r < 0 ? &p->err : NULL);
	uv_close((uv_handle_t *)&p->over, on_closed);
}

int blob_pipe_start(const struct blob_pipe_plan *plan, blob_pipe_fn *fn, void *arg, struct blob_pipe **ret,
		    struct err *e)
{
	struct blob_pipe *p;
	struct stat st;
	int r;

	if (fstat(plan->from, &st) < 0 || !S_ISFIFO(st.st_mode))
		return err_set(e, WHY_REGISTRY_FAILED, -EPROTO, "%.120s: skopeo gave a file and not a pipe",
			       plan->what);
	p = calloc(1, sizeof(*p));
	if (!p)
		abort();
	*p = (struct blob_pipe){ .plan = *plan, .fn = fn, .arg = arg };
	snprintf(p->what, sizeof(p->what), "%.150s", plan->what);
	p->over.data = p;
	r = uv_async_init(plan->loop, &p->over, on_over);
	if (r < 0) {
		free(p);
		return err_sys(e, ERR_EXHAUSTED, r, "make a thread for a layer");
	}
	fcntl(plan->from, F_SETPIPE_SZ, (int)PIECE); /* if it is allowed; else the transfer is slower */
	r = uv_thread_create(&p->thread, run, p);
	if (r < 0) {
		uv_close((uv_handle_t *)&p->over, on_closed);
		return err_sys(e, ERR_EXHAUSTED, r, "make a thread for a layer");
	}
	*ret = p;
	return 0;
}

uint64_t blob_pipe_moved(const struct blob_pipe *p)
{
	return atomic_load(&p->moved);
}

void blob_pipe_cut(struct blob_pipe *p)
{
	atomic_store(&p->cut, true);
}
