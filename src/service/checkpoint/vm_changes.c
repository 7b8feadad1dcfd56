/* Reads the changes that a guest lists. */
#include "service/checkpoint/vm_changes.h"
#include "base/base.h"
#include "service/sandbox/scratch_sandbox.h"
#include "service/checkpoint/layer.h"
#include "service/checkpoint/restore.h"
#include "service/file/bounded_pipe.h"
#include "service/sandbox/struct.h"
#include "service/checkpoint/struct.h"

#include <fcntl.h>
#include <unistd.h>

#define SILENT_MS 120000 /* emulated, it may compare large files that turn out to be the same */
#define ALL_MS 3600000 /* as much as a disk of 64G takes at the port's speed */
#define UNREAD_MS 600000 /* as layers/diff_out.c */
/* A file's bytes are sent for each of its names; a guest may send its disk's size so many times, and its lists. */
#define TIMES 16U
#define LISTS (1ULL << 30)
#define DISK_MAX (16ULL << 30) /* where none was asked for */

struct asking {
	struct service *s;
	struct sandbox *sandbox; /* that is asked, in use and referenced; NULL: the hidden one */
	struct checkpoint *c; /* that one is of; referenced */
	struct scratch_sandbox *scratch;
	struct bounded_pipe *pipe;
	struct frame_changes what;
	uint64_t max;
	compare_fn *fn;
	void *arg;
	int fd; /* the stream, until it is handed out */
	bool told, over; /* all has gone through */
	struct err e;
	struct turn_wait wait;
};

static void asking_free(struct asking *a)
{
	scratch_sandbox_free(a->scratch);
	if (a->sandbox) {
		sandbox_rest(a->sandbox);
		sandbox_unref(a->sandbox);
	}
	checkpoint_unref(a->c);
	free(a);
}

static void over(void *arg)
{
	struct asking *a = arg;

	a->over = true;
	if (a->told)
		asking_free(a);
}

static void on_told(void *arg)
{
	struct asking *a = arg;
	const bool failed = a->fd < 0;

	a->told = true;
	a->fn(a->arg, TAKE_FD(a->fd), failed ? &a->e : NULL);
	if (failed || a->over)
		asking_free(a);
}

/* Never from within the call that began it. */
static void tell(struct asking *a)
{
	turn_after(a->s->turn, &a->wait, on_told, a);
}

static int ask(struct asking *a, struct sandbox *b, struct err *e)
{
	const struct bounded_pipe_opts o = {
		.max = a->max, .silent_ms = SILENT_MS, .unread_ms = UNREAD_MS, .all_ms = ALL_MS, .over = over, .arg = a
	};
	AUTO_CLOSE int from = -1, to = -1;
	uint8_t out[16];
	long len = frame_changes_encode(&a->what, out, sizeof(out));
	int pipes[2], r;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a pipe");
	from = pipes[0];
	to = pipes[1];
	r = agent_link_send(&b->link, FRAME_CHANGES, 0, out, (size_t)len, &to, 1);
	if (r < 0) {
		err_sys(e, WHY_SANDBOX_LOST, r, "read the differences from the virtual machine");
		err_remedy(e, "try again");
		return r;
	}
	r = bounded_pipe_open(a->s->loop, from, &o, &a->pipe, &a->fd);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "make a pipe");
	(void)TAKE_FD(from);
	return 0;
}

static void on_scratch_sandbox(void *arg, struct sandbox *b, const struct err *e)
{
	struct asking *a = arg;

	if (!b)
		a->e = *e;
	else
		ask(a, b, &a->e);
	tell(a);
}

/* Its processes end before anything of it runs: nothing changes what it is asked for. */
static int clone_it(struct asking *a, struct err *e)
{
	AUTO(sandbox_request_free) struct sandbox_request *w = NULL;
	int r = checkpoint_ready(a->c, e);

	if (r == 0)
		r = restore_request(a->c, NULL, true, &w, e);
	if (r < 0)
		return r;
	w->memory = false;
	free(TAKE_PTR(w->execs));
	r = scratch_sandbox_make(a->s, a->c->tenant, w, on_scratch_sandbox, a, &a->scratch, e);
	if (r == 0)
		(void)TAKE_PTR(w);
	return r;
}

static void on_sealed(void *arg, struct checkpoint *c, const struct err *e)
{
	struct asking *a = arg;

	sandbox_rest(a->sandbox);
	sandbox_unref(TAKE_PTR(a->sandbox));
	if (!c) {
		a->e = *e;
		tell(a);
		return;
	}
	a->c = c;
	checkpoint_ref(c);
	layer_loose(c->service, c->tenant, c->size + c->memory_size);
	if (clone_it(a, &a->e) < 0)
		tell(a);
}

/* A stopped machine cannot answer, so a hidden checkpoint is made, and a clone of it is asked. */
static void seal_it(struct asking *a)
{
	const struct who who = { .tenant = a->sandbox->tenant };

	checkpoint_make_hidden(a->sandbox, &who, MEMORY_NO, NETWORK_DROP, on_sealed, a);
}

static int begin(struct asking *a, struct err *e)
{
	int r = 0;

	if (a->c)
		return clone_it(a, e);
	if (a->sandbox->state == SANDBOX_PAUSED) {
		seal_it(a);
		return 0;
	}
	r = ask(a, a->sandbox, e);
	if (r == 0)
		tell(a);
	return r;
}

int vm_changes_open(struct service *s, const struct state *of, unsigned flags, uint32_t max, compare_fn *fn, void *arg,
		    struct err *e)
{
	struct asking *a;
	struct sandbox_spec spec;
	int r = state_spec(of, &spec, e);

	if (r < 0)
		return r;
	a = calloc(1, sizeof(*a));
	if (!a)
		abort();
	*a = (struct asking){
		.s = s, .sandbox = of->sandbox, .c = of->checkpoint, .what = { flags, max }, .fn = fn, .arg = arg
	};
	a->fd = -1;
	a->max = (spec.limits.disk ? spec.limits.disk : DISK_MAX) * TIMES + LISTS;
	if (a->sandbox) {
		sandbox_ref(a->sandbox);
		sandbox_use(a->sandbox);
	}
	if (a->c)
		checkpoint_ref(a->c);
	r = begin(a, e);
	if (r < 0)
		asking_free(a);
	return r;
}
