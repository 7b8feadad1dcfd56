/* Makes and ends hidden sandboxes for commands. */
#include "service/image/work_sandbox.h"
#include "base/base.h"
#include "service/sandbox/struct.h"

struct work_sandbox {
	struct sandbox *sandbox; /* referenced; NULL: not ready yet, or failed */
	bool making, freed;
	work_sandbox_fn *fn;
	void *arg;
};

static bool lives(const struct sandbox *b)
{
	return b->state == SANDBOX_RUNNING;
}

static void on_made(void *arg, struct sandbox *b, bool found, const struct err *e)
{
	struct work_sandbox *w = arg;

	(void)found;
	w->making = false;
	if (b && w->freed) {
		sandbox_discard(b, "it is not needed any longer");
	} else if (b) {
		sandbox_ref(b);
		w->sandbox = b;
	}
	if (w->freed) {
		free(w);
		return;
	}
	w->fn(w->arg, b, e);
}

struct work_sandbox *work_sandbox_make(struct service *s, const struct who *who, struct sandbox_request *request,
				       work_sandbox_fn *fn, void *arg)
{
	struct work_sandbox *w = calloc(1, sizeof(*w));

	if (!w)
		abort(); /* a few dozen bytes: without memory for these nothing works */
	*w = (struct work_sandbox){ .making = true, .fn = fn, .arg = arg };
	request->origin.ready = request->origin.work = true;
	sandbox_create(s, who, request, on_made, w);
	return w;
}

struct sandbox *work_sandbox_get(const struct work_sandbox *w)
{
	return w->sandbox && lives(w->sandbox) ? w->sandbox : NULL;
}

void work_sandbox_free(struct work_sandbox *w)
{
	if (!w)
		return;
	if (w->making) { /* on_made frees it */
		w->freed = true;
		return;
	}
	if (w->sandbox && lives(w->sandbox))
		sandbox_discard(w->sandbox, "its work is done");
	if (w->sandbox)
		sandbox_unref(w->sandbox);
	free(w);
}
