/* What the network has to do at each step of a sandbox's life. */
#include "base/base.h"
#include "service/link/warden_link.h"
#include "service/network/cut.h"
#include "service/network/network.h"
#include "service/sandbox/part.h"

/* One that wakes up has what it had, or less: see net_request_policy(). */
static int check(struct service *s, const struct tenant *t, struct sandbox_request *request, struct err *e)
{
	(void)t;
	return request->wake ? 0 : net_request_check(s->o.net, request->net, e);
}

static void on_begun(struct sandbox *b, const struct sandbox_plan *p, struct sandbox_spec *spec)
{
	sandbox_net_begin(b, p->like, spec);
}

static void on_made(struct sandbox *b, const struct warden_link_answer *a)
{
	sandbox_net_made(b, a->fds, a->nfds);
	b->cut = cut_text(&a->rep->cuts, b->net);
}

static void on_lost(struct sandbox *b, enum sandbox_loss how)
{
	switch (how) {
	case LOSS_LOST:
	case LOSS_STOPPED:
	case LOSS_CLOSED:
	case LOSS_ASLEEP:
	case LOSS_DESTROYED:
		sandbox_net_end(b);
		break;
	case LOSS_REPLACED:
	case LOSS_TURNED:
	case LOSS_DELETED:
	case LOSS_UNDONE:
		break;
	}
}

const struct sandbox_part network_part = {
	.name = "network",
	.check = check,
	.begun = on_begun,
	.made = on_made,
	.entered = sandbox_net_entered,
	.moved = sandbox_net_move,
	.loaded = sandbox_net_load,
	.lost = on_lost,
	.ended = sandbox_net_end,
	.freed = sandbox_net_free,
};
