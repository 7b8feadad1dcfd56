#include "service/sandbox/system.h"
#include "base/base.h"
#include "base/fd.h"
#include "base/log.h"
#include "service/sandbox/internal.h"
#include "service/exec/internal.h"
#include "service/file/file.h"
#include "service/internal.h"
#include "service/link/warden_link.h"

#include <fcntl.h>

struct sandbox_late {
	struct sandbox_late *next;
	struct user_request user;
	int fd;
};

/* In their order. With an error, or in another sandbox than they were meant for, their callers see the end of a socket. */
static void start_late(struct sandbox *b, int r)
{
	struct sandbox_late *l = b->late;

	b->late = NULL;
	while (l) {
		struct sandbox_late *next = l->next;
		struct err e = { 0 };

		if (r == 0 && file_worker_give(b, &l->user, l->fd, &e) < 0)
			log_warn("sandbox %s: cannot start a file worker: %s", b->id, e.msg);
		fd_close(l->fd);
		free(l);
		l = next;
	}
}

static void on_system(void *arg, int r, const struct warden_link_answer *a, const struct err *e)
{
	struct sandbox_op *op = arg;
	struct sandbox *b = op->sandbox;
	const bool same = b->handle == op->handle;

	(void)a;
	free(op);
	if (same) {
		b->system_asked = 0;
		b->system_open = r == 0 ? b->handle : 0;
		if (r < 0)
			log_warn("sandbox %s: /usr cannot be made writable: %s", b->id,
				 e ? e->msg : "the warden has ended");
	}
	start_late(b, same ? r : -ESTALE);
	exec_system_came(b, same ? r : 0, e);
	sandbox_unref(b);
}

bool sandbox_system_ready(struct sandbox *b, const struct user_request *user)
{
	const struct who nobody = { .tenant = b->tenant };
	struct sandbox_op *op;

	if (!(b->request->spec->flags & SPEC_SYSTEM_LATER) || !user_is_system(user) || !b->handle ||
	    b->system_open == b->handle)
		return true;
	if (b->system_asked != b->handle) {
		b->system_asked = b->handle;
		op = sandbox_op_new(b, &nobody, NULL, NULL);
		warden_link_call(b->service->warden, WARDEN_SYSTEM, b->handle, 0, NULL, on_system, op);
	}
	return false;
}

int sandbox_system_put_off(struct sandbox *b, const struct user_request *user, int fd, struct err *e)
{
	struct sandbox_late *l = calloc(1, sizeof(*l)), **at = &b->late;
	int copy = l ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;

	if (copy < 0) {
		free(l);
		return err_set(e, ERR_EXHAUSTED, l ? -EMFILE : -ENOMEM, "no resources for a file worker");
	}
	*l = (struct sandbox_late){ .user = *user, .fd = copy };
	while (*at)
		at = &(*at)->next;
	*at = l;
	return 0;
}

void sandbox_system_drop(struct sandbox *b)
{
	start_late(b, -ESRCH);
}
