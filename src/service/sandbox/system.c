/* Asks for a writable /usr when a user needs it. */
#include "service/sandbox/system.h"
#include "base/base.h"
#include "base/log.h"
#include "service/sandbox/internal.h"
#include "service/sandbox/part.h"
#include "service/internal.h"
#include "service/link/warden_link.h"

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
	sandbox_parts_writable(b, same ? USR_OWN : USR_OTHER, r, e);
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
