/* How a prebuilt sandbox of a pool is handed out. */
#include "base/base.h"
#include "service/sandbox/internal.h"
#include "service/template/pool.h"
#include "service/secret/give.h"
#include "service/internal.h"
#include "service/state/wall.h"

/* One that was ready becomes the caller's: what may differ is the caller's, the rest is as it was made. */
static int hand_over(struct sandbox *b, const struct who *who, struct sandbox_request *request, struct err *e)
{
	struct service *s = b->service;
	struct sandbox_request *made = b->request;
	int r;

	if (!request->name[0])
		snprintf(request->name, sizeof(request->name), "%s", b->id);
	sandbox_unlist(b);
	memcpy(request->disk, made->disk, sizeof(request->disk));
	b->request = request;
	r = sandbox_list(b, e);
	if (r == 0) {
		b->pooled = false;
		b->created_ns = b->used_ns = wall_now(b->service);
		b->expires_ns = request->timeout_ms ? b->created_ns + request->timeout_ms * 1000000ULL : 0;
		r = sandbox_store(b, e);
		if (r == 0 && request->idem[0])
			r = idem_note(s, b->tenant, request->idem, request->idem_body, b->id, e);
	}
	if (r < 0) {
		sandbox_unlist(b);
		b->request = made;
		b->pooled = true;
		sandbox_discard(b, "it could not be handed out");
		return r;
	}
	sandbox_request_free(made);
	sandbox_note_state(b, who, "sandbox.create");
	secrets_note(b, who);
	service_soon(s);
	return 0;
}

int sandbox_from_pool(struct service *s, const struct who *who, struct sandbox_request *request, struct sandbox **ret,
		      struct err *e)
{
	struct sandbox *b = NULL;
	int r;

	if (!request->origin.template[0] || request->origin.ready)
		return 0;
	if (s->draining)
		return err_set(e, WHY_STOPPING, -ESHUTDOWN, "the daemon is stopping");
	r = sandbox_name_free(s, who->tenant, request->name, e);
	if (r == 0)
		r = secrets_check(s, who->tenant, request, e);
	if (r == 0)
		r = pools_take(s, who, request, &b, e);
	if (r <= 0)
		return r;
	r = hand_over(b, who, request, e);
	if (r < 0)
		return r;
	sandbox_ref(b);
	*ret = b;
	return 1;
}
