/* What the network has to do at each step of a sandbox's life. */
#include "base/base.h"
#include "service/network/network.h"
#include "service/sandbox/part.h"

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
	.loaded = sandbox_net_load,
	.lost = on_lost,
	.ended = sandbox_net_end,
	.freed = sandbox_net_free,
};
