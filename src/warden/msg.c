/* Checks requests to the warden, and writes receipts: the warden's side of its protocol. */
#include "warden/msg.h"
#include "base/base.h"
#include "base/id.h"
#include "layers/diff.h"
#include "proto/frame.h"

static bool zero(const void *p, size_t n)
{
	const unsigned char *b = p;
	unsigned char sum = 0;

	for (size_t i = 0; i < n; i++)
		sum |= b[i];
	return !sum;
}

static bool zero_tail(const char *s, size_t size)
{
	size_t n = strnlen(s, size);

	return zero(s + n, size - n);
}

static_assert(offsetof(struct sandbox_spec, limits) == offsetof(struct sandbox_spec, layers) + sizeof(uint32_t) &&
		      offsetof(struct sandbox_spec, mount) % 8 == 0,
	      "the compiler leaves no hole in a spec");

static bool unused_zero(const struct sandbox_spec *s)
{
	struct sandbox_spec one;

	spec_put(s, &one);
	return !memcmp(s, &one, sizeof(one));
}

static bool wants_handle(uint32_t op)
{
	return op != WARDEN_HELLO && op != WARDEN_CREATE && op != WARDEN_COUNTS && op != WARDEN_MACHINES &&
	       op != WARDEN_UNSEAL && op != WARDEN_LAYERS && op != WARDEN_DISKS && op != WARDEN_DISK_REMOVE;
}

static bool id_ok(const struct warden_req *q)
{
	if (q->op == WARDEN_SEAL || q->op == WARDEN_UNSEAL || q->op == WARDEN_DISK_REMOVE ||
	    ((q->op == WARDEN_LAYERS || q->op == WARDEN_DISKS) && q->id[0]))
		return zero_tail(q->id, sizeof(q->id)) && strnlen(q->id, sizeof(q->id)) == ID_LEN && id_valid(q->id);
	return zero(q->id, sizeof(q->id));
}

static bool wants_arg(uint32_t op)
{
	return op == WARDEN_GROUP_KILL || op == WARDEN_GROUP_END;
}

static bool arg_ok(const struct warden_req *q)
{
	if (q->op == WARDEN_SEAL)
		return q->arg <= WARDEN_MEMORY_SOON ||
		       (q->arg > WARDEN_REFUSE_NETWORK && q->arg <= (WARDEN_REFUSE_NETWORK | WARDEN_MEMORY_SOON));
	if (q->op == WARDEN_UNSEAL || q->op == WARDEN_NET || q->op == WARDEN_DISK_REMOVE)
		return q->arg <= 1;
	if (q->op == WARDEN_SOCKET)
		return q->arg == 4 || q->arg == 6;
	if (q->op == WARDEN_GROUP)
		return q->arg <= 65536 && q->arg != AGENT_UID + 1;
	return wants_arg(q->op) == (q->arg != 0) && q->arg <= UINT32_MAX;
}

static bool who_ok(const struct warden_req *q)
{
	const struct warden_who *w = &q->who;

	if (q->op != WARDEN_WHO)
		return zero(w, sizeof(*w));
	if (w->udp > 1 || w->zero2 || (w->family != 4 && w->family != 6))
		return false;
	return w->family == 6 || (zero(w->client + 4, 12) && zero(w->addr + 4, 12));
}

/* In a request with network rules, all other fields of the spec must be zero. */
static int check_net(const struct sandbox_spec *s, struct err *e)
{
	const size_t behind = offsetof(struct sandbox_spec, net) + sizeof(s->net);
	struct steer_rules one;
	int r;

	if (!zero(s, offsetof(struct sandbox_spec, net)) || behind != sizeof(*s))
		return err_set(e, ERR_INVALID, -EINVAL, "request: unused bytes");
	r = steer_check(&s->net, e);
	if (r < 0)
		return r;
	spec_put_net(&s->net, &one);
	return memcmp(&s->net, &one, sizeof(one)) ? err_set(e, ERR_INVALID, -EINVAL, "rules: unused bytes") : 0;
}

/* In a request with limits, all other fields of the spec must be zero, and only limits that can change may be set. */
static int check_limits(const struct sandbox_spec *s, struct err *e)
{
	const size_t at = offsetof(struct sandbox_spec, limits), behind = at + sizeof(s->limits);

	if (!zero(s, at) || !zero((const char *)s + behind, sizeof(*s) - behind) || s->limits.disk ||
	    s->limits.inodes || s->limits.io_bps)
		return err_set(e, ERR_INVALID, -EINVAL, "request: unused bytes");
	return spec_check_limits(&s->limits, e);
}

static bool diff_ok(const struct warden_req *q)
{
	const struct msg_diff *d = &q->diff;

	if (q->op != WARDEN_DIFF)
		return zero(d, sizeof(*d));
	if (d->flags & ~DIFF_FLAGS || d->layers > SPEC_LAYERS || d->zero || (d->from && d->layers) ||
	    (q->handle && q->spec.layers))
		return false;
	for (uint32_t i = 0; i < d->layers; i++)
		if (strnlen(d->layer[i], ID_SIZE) != ID_LEN || !id_valid(d->layer[i]))
			return false;
	return zero(d->layer[d->layers], (SPEC_LAYERS - d->layers) * sizeof(d->layer[0]));
}

bool msg_brief(uint32_t op)
{
	return op == WARDEN_HELLO || op == WARDEN_DESTROY || op == WARDEN_FREEZE || op == WARDEN_THAW ||
	       op == WARDEN_GROUP || op == WARDEN_GROUP_KILL || op == WARDEN_GROUP_END;
}

int msg_check_req(const struct warden_req *q, size_t len, struct err *e)
{
	const bool brief = len == MSG_REQ_HEAD && msg_brief(q->op);
	int r;

	if (len != sizeof(*q) && !brief)
		return err_set(e, ERR_INVALID, -EMSGSIZE, "request of %zu bytes, expected %zu", len, sizeof(*q));
	if (q->version != MSG_VERSION)
		return err_advise(e, ERR_INVALID, -EPROTO, "install all programs of the same version",
				  "request of version %u; this warden supports %u", q->version, MSG_VERSION);
	if (q->op == 0 || q->op >= WARDEN_OP_END)
		return err_set(e, ERR_INVALID, -EINVAL, "request: unknown operation %u", q->op);
	/* NEXT starts without a handle, and a side of DIFF need not be a sandbox. */
	if (q->op != WARDEN_NEXT && q->op != WARDEN_DIFF && wants_handle(q->op) != (q->handle != 0))
		return err_set(e, ERR_INVALID, -EINVAL, "request: a handle %s",
			       q->handle ? "is not used" : "is required");
	if (!arg_ok(q) || (q->ended && (q->op != WARDEN_GROUP || q->ended > UINT32_MAX)))
		return err_set(e, ERR_INVALID, -EINVAL, "request: invalid group or argument");
	if (!id_ok(q))
		return err_set(e, ERR_INVALID, -EINVAL, "request: invalid id of a layer");
	if (brief)
		return 0;
	if (!diff_ok(q))
		return err_set(e, ERR_INVALID, -EINVAL, "request: invalid states to compare");
	if (!who_ok(q))
		return err_set(e, ERR_INVALID, -EINVAL, "request: invalid connection");
	if (q->op == WARDEN_UNSEAL || q->op == WARDEN_NET)
		return check_net(&q->spec, e);
	if (q->op == WARDEN_LIMITS)
		return check_limits(&q->spec, e);
	if (q->op != WARDEN_CREATE && q->op != WARDEN_DIFF)
		return zero(&q->spec, sizeof(q->spec)) ? 0 : err_set(e, ERR_INVALID, -EINVAL, "request: unused bytes");
	r = spec_check(&q->spec, e);
	if (r < 0)
		return r;
	return unused_zero(&q->spec) ? 0 : err_set(e, ERR_INVALID, -EINVAL, "spec: unused bytes");
}

#define FRESH_BITS                                                                                                     \
	(FRAME_RESTORED_MACHINE_ID | FRAME_RESTORED_GENERATION | FRAME_RESTORED_CLOCK_BACK |                           \
	 FRAME_RESTORED_NUMBERS_LOST)
#define FRESH_STEP MSG_NEW_MACHINE_ID
static_assert(FRAME_RESTORED_MACHINE_ID * FRESH_STEP == MSG_NEW_MACHINE_ID &&
		      FRAME_RESTORED_GENERATION * FRESH_STEP == MSG_NEW_GENERATION &&
		      FRAME_RESTORED_CLOCK_BACK * FRESH_STEP == MSG_CLOCK_BACK &&
		      FRAME_RESTORED_NUMBERS_LOST * FRESH_STEP == MSG_NUMBERS_LOST,
	      "the same in the same order");

void msg_put_receipt(const struct warden_receipt *from, struct msg_receipt *to)
{
	*to = (struct msg_receipt){
		.cgroup_version = from->cgroup_version,
		.controllers = from->controllers,
		.filter_len = from->filter_len,
		.flags = (from->idmapped ? MSG_IDMAPPED : 0) | (from->rootless ? MSG_ROOTLESS : 0) |
			 (from->kvm ? MSG_KVM : 0) | (from->restored ? MSG_RESTORED : 0) |
			 (from->restored & FRESH_BITS) * FRESH_STEP,
		.uid_base = from->uid_base,
		.disk = from->disk,
		.inodes = from->inodes,
		.sockets = from->sockets,
		.tenant_share = from->tenant_share,
	};
}
