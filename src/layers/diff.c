/* Starts cloche-layers for a comparison, and notices when it has ended. */
#include "layers/diff.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/diff_task.h"
#include "linux/spawn.h"

#include <poll.h>

struct diff {
	pid_t pid;
	int control; /* the other end is closed when the program does not need the caller's folders any more */
};

static void fill(struct diff_task *t, const struct diff_opts *o, const int fd[static DIFF_PLACES])
{
	const struct diff_state *const state[] = { &o->from, &o->to };

	*t = (struct diff_task){ .flags = o->flags, .max = o->max, .spec_flags = o->spec_flags };
	for (unsigned i = 0; i < DIFF_PLACES; i++)
		t->places |= fd[i] >= 0 || i == DIFF_CONTROL ? 1U << i : 0;
	for (unsigned i = 0; i < 2; i++) {
		t->uid_base[i] = state[i]->uid_base;
		t->layers[i] = state[i]->layers;
		memcpy(t->layer[i], state[i]->layer, sizeof(t->layer[i]));
	}
	snprintf(t->workdir, sizeof(t->workdir), "%s", o->workdir);
	snprintf(t->opaque, sizeof(t->opaque), "%s", o->opaque);
}

static int launch(const struct diff_opts *o, int out, int *ret_sock)
{
	char name[] = "cloche-layers", what[] = "diff";
	char *argv[] = { name, what, NULL };
	int fd[DIFF_PLACES] = {
		[DIFF_CONTROL] = -1,	    [DIFF_OUT] = out,
		[DIFF_STORE] = o->store,    [DIFF_FROM] = o->from.writable,
		[DIFF_TO] = o->to.writable, [DIFF_IMAGE] = o->image,
		[DIFF_USR] = o->usr,	    [DIFF_DPKG] = o->dpkg,
	};
	struct spawn s = { .program = o->program, .fd = fd, .fds = DIFF_PLACES, .argv = argv };
	struct diff_task t;
	int pid, r;

	fill(&t, o, fd);
	pid = spawn_talking(&s, ret_sock);
	r = pid < 0 ? pid : fd_send_now(*ret_sock, &t, sizeof(t), NULL, 0);
	if (r < 0)
		spawn_end(pid);
	return r < 0 ? r : pid;
}

int diff_start(const struct diff_opts *o, struct diff **ret, int *ret_fd, struct err *e)
{
	AUTO_CLOSE int sock = -1, from = -1, to = -1;
	AUTO_FREE struct diff *d = NULL;
	int pair[2] = { -1, -1 }, r;

	if (o->program < 0)
		return err_advise(e, ERR_UNSUPPORTED, -EOPNOTSUPP, "install it beside cloche-warden",
				  "files cannot be compared: cloche-layers is not installed");
	d = calloc(1, sizeof(*d));
	if (!d)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to compare");
	r = ret_fd ? sys_pipe2(pair, O_CLOEXEC) : 0;
	if (r == 0) {
		from = pair[0];
		to = pair[1];
		r = launch(o, ret_fd ? to : o->out, &sock);
	}
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "start cloche-layers");
	*d = (struct diff){ r, TAKE_FD(sock) };
	*ret = TAKE_PTR(d);
	if (ret_fd)
		*ret_fd = TAKE_FD(from);
	return 0;
}

bool diff_over(const struct diff *d)
{
	struct pollfd p = { .fd = d->control };

	return poll(&p, 1, 0) == 1;
}

void diff_free(struct diff *d)
{
	if (!d)
		return;
	spawn_end(d->pid);
	fd_close(d->control);
	free(d);
}
