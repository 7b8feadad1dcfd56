/* Checks answers of the warden, and reads receipts: its clients' side of the protocol. */
#include "warden/msg.h"
#include "base/base.h"
#include "base/id.h"
#include "proto/frame.h"

static bool text_ok(const char *s, size_t size)
{
	return strnlen(s, size) < size;
}

size_t msg_fds(const struct warden_rep *p, const struct warden_req *q)
{
	switch ((enum warden_op)p->op) {
	case WARDEN_CREATE:
		return (p->arg ? 3 : 2) + (q->spec.flags & SPEC_NET ? STEER_SOCKETS : 0);
	case WARDEN_ATTACH:
		return 2;
	case WARDEN_GROUP:
		return q->arg ? 2 : 1;
	case WARDEN_DIFF:
	case WARDEN_SOCKET:
		return 1;
	case WARDEN_NET:
		return q->arg ? STEER_SOCKETS : 0;
	case WARDEN_HELLO:
	case WARDEN_DESTROY:
	case WARDEN_STAT:
	case WARDEN_FREEZE:
	case WARDEN_THAW:
	case WARDEN_COUNTS:
	case WARDEN_NEXT:
	case WARDEN_GROUP_KILL:
	case WARDEN_GROUP_END:
	case WARDEN_SEAL:
	case WARDEN_UNSEAL:
	case WARDEN_LAYERS:
	case WARDEN_WHO:
	case WARDEN_DENIED:
	case WARDEN_SYSTEM:
	case WARDEN_MACHINES:
	case WARDEN_DISKS:
	case WARDEN_DISK_REMOVE:
	case WARDEN_LIMITS:
	case WARDEN_OP_END:
		break;
	}
	return 0;
}

/* Checks fields that only some operations return on success. */
static bool gives_ok(const struct warden_rep *p, const struct warden_req *q)
{
	if (p->cuts.told > MEMORY_CUTS || p->cuts.told > p->cuts.n)
		return false;
	for (uint32_t i = 0; i < p->cuts.told; i++)
		if (!mem_cut_ok(&p->cuts.cut[i]))
			return false;
	if (p->op == WARDEN_CREATE)
		return p->handle && p->arg <= 1;
	if (p->op == WARDEN_ATTACH)
		return p->handle == q->handle && !p->arg;
	if (p->op == WARDEN_NEXT)
		return (!p->handle || p->handle > q->handle) && !p->arg;
	if (p->op == WARDEN_GROUP)
		return p->arg && p->arg <= UINT32_MAX;
	if (p->op == WARDEN_LAYERS || p->op == WARDEN_DISKS)
		return !p->arg && (!p->id[0] || (strnlen(p->id, sizeof(p->id)) == ID_LEN && id_valid(p->id)));
	if (p->op == WARDEN_DENIED)
		return p->arg <= STEER_DENIED;
	if (p->op == WARDEN_MACHINES)
		return p->arg <= MSG_MACHINES_KVM;
	return p->op == WARDEN_SEAL || !p->arg;
}

int msg_check_rep(const struct warden_rep *p, size_t len, size_t nfds, const struct warden_req *q, struct err *e)
{
	if ((len != sizeof(*p) && (len != MSG_REP_HEAD || !msg_brief(q->op))) || p->version != MSG_VERSION ||
	    p->seq != q->seq || p->op != q->op)
		return err_set(e, ERR_LOST, -EBADMSG, "the warden's answer belongs to another request");
	if (p->result > 0 || p->result < -4095 || !err_what_ok(p->what) || !text_ok(p->msg, sizeof(p->msg)) ||
	    !text_ok(p->remedy, sizeof(p->remedy)) || p->receipt.flags > MSG_RECEIPT_FLAGS ||
	    !text_ok(p->id, sizeof(p->id)) || !text_ok(p->layer.parent, sizeof(p->layer.parent)) ||
	    !text_ok(p->they.command, sizeof(p->they.command)) || p->layer.flags > (MSG_LAYER_BAD | MSG_LAYER_MEMORY))
		return err_set(e, ERR_LOST, -EBADMSG, "the warden's answer is malformed");
	if (nfds != (p->result == 0 ? msg_fds(p, q) : 0U))
		return err_set(e, ERR_LOST, -EBADMSG, "the warden's answer came with %zu descriptors", nfds);
	if (p->result == 0 && !gives_ok(p, q))
		return err_set(e, ERR_LOST, -EBADMSG, "the warden's answer has an unknown handle or group");
	return 0;
}

void msg_put_diff(uint64_t from, const struct sandbox_spec *older, uint32_t flags, uint32_t max, struct msg_diff *to)
{
	*to = (struct msg_diff){ .from = from, .flags = flags, .max = max };
	if (from)
		return;
	to->layers = older->layers;
	for (uint32_t i = 0; i < SPEC_LAYERS && i < older->layers; i++)
		memcpy(to->layer[i], older->layer[i], strnlen(older->layer[i], ID_SIZE));
}

#define FRESH_BITS                                                                                                     \
	(FRAME_RESTORED_MACHINE_ID | FRAME_RESTORED_GENERATION | FRAME_RESTORED_CLOCK_BACK |                           \
	 FRAME_RESTORED_NUMBERS_LOST)
#define FRESH_STEP MSG_NEW_MACHINE_ID
void msg_get_receipt(const struct msg_receipt *from, struct warden_receipt *to)
{
	*to = (struct warden_receipt){
		.cgroup_version = from->cgroup_version,
		.controllers = from->controllers,
		.filter_len = from->filter_len,
		.idmapped = from->flags & MSG_IDMAPPED,
		.rootless = from->flags & MSG_ROOTLESS,
		.kvm = from->flags & MSG_KVM,
		.sockets = from->sockets,
		.tenant_share = from->tenant_share,
		.restored = from->flags & MSG_RESTORED ? WARDEN_RESTORED | (from->flags / FRESH_STEP & FRESH_BITS) : 0,
		.uid_base = (uint32_t)from->uid_base,
		.disk = from->disk,
		.inodes = from->inodes,
	};
}
