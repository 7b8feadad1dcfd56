#include "warden/msg.h"
#include "base/base.h"
#include "base/test.h"
#include "layers/diff.h"
#include "warden/warden_test.h"

static void hello(struct warden_req *q)
{
	memset(q, 0, sizeof(*q));
	q->version = MSG_VERSION;
	q->op = WARDEN_HELLO;
	q->seq = 1;
}

static void create(struct warden_req *q)
{
	struct sandbox_spec s;

	hello(q);
	q->op = WARDEN_CREATE;
	wt_spec(&s);
	spec_put(&s, &q->spec);
}

static int check(const struct warden_req *q)
{
	return msg_check_req(q, sizeof(*q), NULL);
}

TEST(whole_requests_pass)
{
	static struct warden_req q;

	hello(&q);
	CHECK_EQ(check(&q), 0);
	create(&q);
	CHECK_EQ(check(&q), 0);
	hello(&q);
	q.op = WARDEN_STAT;
	q.handle = 5;
	CHECK_EQ(check(&q), 0);
}

TEST(wrong_sizes_and_versions_are_refused)
{
	static struct warden_req q;

	hello(&q);
	CHECK_EQ(msg_check_req(&q, sizeof(q) - 1, NULL), -EMSGSIZE);
	CHECK_EQ(msg_check_req(&q, sizeof(q) + 1, NULL), -EMSGSIZE);
	CHECK_EQ(msg_check_req(&q, 0, NULL), -EMSGSIZE);
	q.version = MSG_VERSION + 1;
	CHECK_EQ(check(&q), -EPROTO);
}

TEST(only_what_has_nothing_behind_its_head_may_end_there)
{
	static struct warden_req q;
	static struct warden_rep p = { .version = MSG_VERSION };

	for (uint32_t op = 1; op < WARDEN_OP_END; op++) {
		hello(&q);
		q.op = p.op = op;
		q.seq = p.seq = op;
		q.handle = op != WARDEN_HELLO;
		q.arg = op == WARDEN_GROUP_KILL || op == WARDEN_GROUP_END;
		p.arg = op == WARDEN_GROUP;
		CHECK_EQ(msg_check_req(&q, MSG_REQ_HEAD, NULL), msg_brief(op) ? 0 : -EMSGSIZE);
		CHECK_EQ(msg_check_req(&q, MSG_REQ_HEAD - 1, NULL), -EMSGSIZE);
		CHECK_EQ(msg_check_rep(&p, MSG_REP_HEAD, op == WARDEN_GROUP, &q, NULL), msg_brief(op) ? 0 : -EBADMSG);
	}
	CHECK(msg_brief(WARDEN_GROUP) && !msg_brief(WARDEN_CREATE) && !msg_brief(WARDEN_STAT));
	hello(&q);
	q.op = WARDEN_GROUP;
	q.handle = 1;
	q.ended = UINT32_MAX;
	CHECK_EQ(msg_check_req(&q, MSG_REQ_HEAD, NULL), 0);
	q.ended++;
	CHECK_EQ(msg_check_req(&q, MSG_REQ_HEAD, NULL), -EINVAL);
	q.ended = 1;
	q.op = WARDEN_THAW;
	CHECK_EQ(msg_check_req(&q, MSG_REQ_HEAD, NULL), -EINVAL);
}

TEST(unknown_operations_and_misplaced_handles_are_refused)
{
	static struct warden_req q;

	hello(&q);
	q.op = 0;
	CHECK_EQ(check(&q), -EINVAL);
	q.op = WARDEN_OP_END;
	CHECK_EQ(check(&q), -EINVAL);
	hello(&q);
	q.handle = 1;
	CHECK_EQ(check(&q), -EINVAL);
	for (uint32_t op = WARDEN_ATTACH; op < WARDEN_COUNTS; op++) {
		hello(&q);
		q.op = op;
		CHECK_EQ(check(&q), -EINVAL);
	}
	create(&q);
	q.handle = 1;
	CHECK_EQ(check(&q), -EINVAL);
}

TEST(limits_come_alone_and_only_those_that_can_change)
{
	static struct warden_req q;

	hello(&q);
	q.op = WARDEN_LIMITS;
	q.handle = 5;
	q.spec.limits = (struct spec_limits){ .memory = 64 * MIB, .pids = 9, .cpu_milli = 500 };
	CHECK_EQ(check(&q), 0);
	q.spec.limits.pids = 1;
	CHECK_EQ(check(&q), -EINVAL);
	q.spec.limits = (struct spec_limits){ .disk = GIB };
	CHECK_EQ(check(&q), -EINVAL);
	q.spec.limits = (struct spec_limits){ .memory = 64 * MIB };
	q.spec.flags = 1;
	CHECK_EQ(check(&q), -EINVAL);
	q.spec.flags = 0;
	q.spec.net.mode = STEER_OPEN;
	CHECK_EQ(check(&q), -EINVAL);
}

TEST(a_group_is_named_exactly_where_one_is_needed)
{
	static struct warden_req q;

	for (uint32_t op = WARDEN_HELLO; op < WARDEN_OP_END; op++) {
		bool takes = op == WARDEN_GROUP_KILL || op == WARDEN_GROUP_END;
		bool may = op == WARDEN_SEAL || op == WARDEN_UNSEAL || op == WARDEN_NET || op == WARDEN_DISK_REMOVE;

		/* these have an argument of their own: a family, a user */
		if (op == WARDEN_SOCKET || op == WARDEN_GROUP)
			continue;

		if (op == WARDEN_CREATE || op == WARDEN_DIFF)
			create(&q);
		else
			hello(&q);
		q.op = op;
		q.handle = op == WARDEN_HELLO || op == WARDEN_CREATE || op == WARDEN_COUNTS || op == WARDEN_MACHINES ||
					   op == WARDEN_UNSEAL || op == WARDEN_LAYERS || op == WARDEN_DISKS ||
					   op == WARDEN_DISK_REMOVE ?
				   0 :
				   5;
		q.who.family = op == WARDEN_WHO ? 4 : 0;
		if (op == WARDEN_SEAL || op == WARDEN_UNSEAL || op == WARDEN_DISK_REMOVE)
			memcpy(q.id, "0000abcdefghjkmnpqrstvwx", 24);
		CHECK_EQ(check(&q), takes ? -EINVAL : 0);
		q.arg = 1; /* a group, or with memory, or to the quarantine, or new sockets */
		CHECK_EQ(check(&q), takes || may ? 0 : -EINVAL);
		q.arg = 2; /* or with memory, and soon */
		CHECK_EQ(check(&q), takes || op == WARDEN_SEAL ? 0 : -EINVAL);
		q.arg = 3;
		CHECK_EQ(check(&q), takes ? 0 : -EINVAL);
		q.arg = WARDEN_REFUSE_NETWORK; /* which is only valid with memory */
		CHECK_EQ(check(&q), takes ? 0 : -EINVAL);
		q.arg = WARDEN_REFUSE_NETWORK | WARDEN_MEMORY_SOON;
		CHECK_EQ(check(&q), takes || op == WARDEN_SEAL ? 0 : -EINVAL);
		q.arg = 2 * WARDEN_REFUSE_NETWORK;
		CHECK_EQ(check(&q), takes ? 0 : -EINVAL);
		q.arg = 1ULL << 32;
		CHECK_EQ(check(&q), -EINVAL);
	}
	/* A new group may be joined by a user inside, but never by the agent. */
	hello(&q);
	q.op = WARDEN_GROUP;
	q.handle = 5;
	for (uint64_t user = 0; user <= 65537; user++) {
		q.arg = user;
		CHECK_EQ(check(&q), user <= 65536 && user != AGENT_UID + 1 ? 0 : -EINVAL);
	}
	/* All fields of a layer, and only in these replies. */
	hello(&q);
	memcpy(q.id, "0000abcdefghjkmnpqrstvwx", 24);
	CHECK_EQ(check(&q), -EINVAL);
	q.op = WARDEN_LAYERS;
	CHECK_EQ(check(&q), 0);
	q.op = WARDEN_UNSEAL;
	CHECK_EQ(check(&q), 0);
	q.id[30] = 'x';
	CHECK_EQ(check(&q), -EINVAL);
	q.id[30] = q.id[3] = 0;
	CHECK_EQ(check(&q), -EINVAL);
	memcpy(q.id, "../../abcdefghjkmnpqrstvwx", 24);
	CHECK_EQ(check(&q), -EINVAL);
	/* The first NEXT has no handle. */
	hello(&q);
	q.op = WARDEN_NEXT;
	CHECK_EQ(check(&q), 0);
}

TEST(every_byte_that_is_not_used_must_be_zero)
{
	static struct warden_req q;
	unsigned char *bytes = (unsigned char *)&q.spec;
	unsigned refused = 0;

	/* A request without a spec: the whole spec must be zero. */
	hello(&q);
	for (size_t i = 0; i < sizeof(q.spec); i++) {
		bytes[i] = 1;
		CHECK_EQ(check(&q), -EINVAL);
		bytes[i] = 0;
	}
	/* A spec: bytes after the end of each text, unused mounts, and padding. */
	create(&q);
	for (size_t i = 0; i < sizeof(q.spec); i++) {
		unsigned char was = bytes[i];

		if (was)
			continue;
		bytes[i] = 'x';
		refused += check(&q) < 0;
		bytes[i] = was;
	}
	CHECK(refused > sizeof(q.spec) - 150);
	q.spec.layers = 1;
	CHECK_EQ(check(&q), -EINVAL);
	memcpy(q.spec.layer[0], "0000abcdefghjkmnpqrstvwx", 24);
	CHECK_EQ(check(&q), 0);
	memcpy(q.spec.layer[1], "0", 1);
	CHECK_EQ(check(&q), -EINVAL);
	create(&q);
	q.spec.layers = SPEC_LAYERS + 1;
	CHECK_EQ(check(&q), -E2BIG);
	create(&q);
	q.spec.image[200] = 'x';
	CHECK_EQ(check(&q), -EINVAL);
	create(&q);
	q.spec.mount[7].read_only = 1;
	CHECK_EQ(check(&q), -EINVAL);
	create(&q);
	q.spec.tmpfs[3].size = 1;
	CHECK_EQ(check(&q), -EINVAL);
}

TEST(packing_a_spec_drops_what_is_not_used)
{
	static struct sandbox_spec s;
	static struct warden_req q;

	memset(&s, 0xff, sizeof(s));
	hello(&q);
	q.op = WARDEN_CREATE;
	s.tenant = 9;
	snprintf(s.image, sizeof(s.image), "host");
	snprintf(s.hostname, sizeof(s.hostname), "h");
	snprintf(s.workdir, sizeof(s.workdir), "/w");
	s.uid = s.gid = 1;
	s.flags = SPEC_DISK;
	s.nmounts = s.ntmpfs = s.layers = s.ndevices = 1;
	snprintf(s.layer[0], ID_SIZE, "0000abcdefghjkmnpqrstvwx");
	snprintf(s.device[0], DEVICE_NAME, "example.com/gpu=0");
	snprintf(s.disk, sizeof(s.disk), "0000abcdefghjkmnpqrstvwx");
	memset(&s.limits, 0, sizeof(s.limits));
	snprintf(s.mount[0].src, SPEC_PATH, "/a");
	snprintf(s.mount[0].dst, SPEC_PATH, "/b");
	snprintf(s.tmpfs[0].path, SPEC_PATH, "/c");
	s.tmpfs[0].size = 4096;
	spec_put(&s, &q.spec);
	CHECK_EQ(check(&q), 0);
	CHECK_EQ(q.spec.tenant, 9);
	CHECK_EQ(q.spec.mount[0].read_only, 1);
	CHECK_STR(q.spec.mount[0].src, "/a");
	CHECK_STR(q.spec.mount[0].dst, "/b");
	CHECK_STR(q.spec.tmpfs[0].path, "/c");
	CHECK_EQ(q.spec.tmpfs[0].size, 4096);
	CHECK_STR(q.spec.device[0], "example.com/gpu=0");
}

TEST(texts_without_an_end_are_refused)
{
	static struct warden_req q;

	create(&q);
	memset(q.spec.image, 'a', sizeof(q.spec.image));
	CHECK_EQ(check(&q), -EINVAL);
	create(&q);
	memset(q.spec.hostname, 'a', sizeof(q.spec.hostname));
	CHECK_EQ(check(&q), -EINVAL);
	create(&q);
	q.spec.nmounts = 1;
	memset(q.spec.mount[0].src, '/', SPEC_PATH);
	CHECK_EQ(check(&q), -EINVAL);
	create(&q);
	q.spec.nmounts = UINT32_MAX;
	CHECK_EQ(check(&q), -EINVAL);
}

static void reply(struct warden_rep *p, const struct warden_req *q)
{
	memset(p, 0, sizeof(*p));
	p->version = MSG_VERSION;
	p->op = q->op;
	p->seq = q->seq;
	p->handle = 77;
}

TEST(replies_are_checked_too)
{
	static struct warden_req q;
	static struct warden_rep p;

	create(&q);
	reply(&p, &q);
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 2, &q, NULL), 0);
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 1, &q, NULL), -EBADMSG);
	CHECK_EQ(msg_check_rep(&p, sizeof(p) - 1, 2, &q, NULL), -EBADMSG);
	p.handle = 0;
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 2, &q, NULL), -EBADMSG);
	reply(&p, &q);
	p.seq++;
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 2, &q, NULL), -EBADMSG);
	reply(&p, &q);
	p.op = WARDEN_HELLO;
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 2, &q, NULL), -EBADMSG);
	reply(&p, &q);
	p.result = 1;
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 2, &q, NULL), -EBADMSG);
	p.result = -EPERM;
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 0, &q, NULL), 0);
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 2, &q, NULL), -EBADMSG);
	p.what = 1000;
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 0, &q, NULL), -EBADMSG);
	p.what = 0;
	memset(p.msg, 'x', sizeof(p.msg));
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 0, &q, NULL), -EBADMSG);
	reply(&p, &q);
	p.receipt.flags = MSG_RECEIPT_FLAGS + 1;
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 2, &q, NULL), -EBADMSG);
}

TEST(states_to_compare_are_named_whole_or_not_at_all)
{
	static struct warden_req q;

	create(&q);
	q.op = WARDEN_DIFF;
	CHECK_EQ(check(&q), 0);
	q.handle = 5;
	CHECK_EQ(check(&q), 0);
	q.diff.from = 6;
	q.diff.flags = 3;
	q.diff.max = 10;
	CHECK_EQ(check(&q), 0);
	q.diff.layers = 1;
	memcpy(q.diff.layer[0], "0000abcdefghjkmnpqrstvwx", 24);
	CHECK_EQ(check(&q), -EINVAL); /* either a sandbox or layers */
	q.diff.from = 0;
	CHECK_EQ(check(&q), 0);
	q.diff.layers = 0;
	CHECK_EQ(check(&q), -EINVAL); /* unused bytes */
	q.diff.layers = 17;
	CHECK_EQ(check(&q), -EINVAL);
	q.diff.layers = 1;
	q.diff.layer[0][3] = '/';
	CHECK_EQ(check(&q), -EINVAL);
	q.diff.layer[0][3] = '0';
	q.diff.flags = DIFF_FLAGS + 1;
	CHECK_EQ(check(&q), -EINVAL);
	q.diff.flags = 0;
	q.diff.zero = 1;
	CHECK_EQ(check(&q), -EINVAL);
	q.diff.zero = 0;
	q.spec.layers = 1;
	memcpy(q.spec.layer[0], "0000abcdefghjkmnpqrstvwx", 24);
	CHECK_EQ(check(&q), -EINVAL); /* a sandbox has its own layers */
	q.handle = 0;
	CHECK_EQ(check(&q), 0);
	q.op = WARDEN_CREATE;
	CHECK_EQ(check(&q), -EINVAL);
}

TEST(each_reply_has_its_own_number_of_descriptors)
{
	static struct warden_req q;
	static struct warden_rep p;

	for (uint32_t op = WARDEN_HELLO; op < WARDEN_OP_END; op++) {
		hello(&q);
		q.op = op;
		q.handle = op == WARDEN_NEXT ? 76 : 77;
		reply(&p, &q);
		p.arg = op == WARDEN_GROUP;
		for (unsigned n = 0; n <= MSG_FDS; n++) {
			unsigned want = op == WARDEN_CREATE || op == WARDEN_ATTACH ?
						2 :
						op == WARDEN_GROUP || op == WARDEN_DIFF || op == WARDEN_SOCKET;

			CHECK_EQ(msg_check_rep(&p, sizeof(p), n, &q, NULL), n == want ? 0 : -EBADMSG);
		}
	}
	create(&q);
	reply(&p, &q);
	p.arg = 1;
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 2, &q, NULL), -EBADMSG);
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 3, &q, NULL), 0);
	p.arg = 2;
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 3, &q, NULL), -EBADMSG);
	/* With a network, the sockets come as well. */
	q.spec.flags |= SPEC_NET;
	p.arg = 1;
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 3, &q, NULL), -EBADMSG);
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 6, &q, NULL), 0);
	p.arg = 0;
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 5, &q, NULL), 0);
	hello(&q);
	q.op = WARDEN_NET;
	q.handle = 77;
	q.arg = 1;
	reply(&p, &q);
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 0, &q, NULL), -EBADMSG);
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 3, &q, NULL), 0);
}

static void rules(struct warden_req *q)
{
	hello(q);
	q->op = WARDEN_NET;
	q->handle = 5;
	q->spec.net = (struct steer_rules){ .mode = STEER_ALLOW, .n = 2 };
	q->spec.net.rule[0] =
		(struct steer_rule){ .family = 4, .prefix = 12, .first = 80, .last = 81, .addr = { 172, 16 } };
	q->spec.net.rule[1] = (struct steer_rule){
		.family = 6, .prefix = 128, .first = 1, .last = 65535, .addr = { 0xfd, [15] = 1 }
	};
}

TEST(rules_of_a_network_come_alone_and_whole)
{
	static struct warden_req q;
	unsigned char *bytes = (unsigned char *)&q.spec;

	rules(&q);
	CHECK_EQ(check(&q), 0);
	q.arg = 1;
	CHECK_EQ(check(&q), 0);
	q.arg = 2;
	CHECK_EQ(check(&q), -EINVAL);
	for (size_t i = 0; i < offsetof(struct sandbox_spec, net); i++) {
		rules(&q);
		bytes[i] = 1;
		CHECK_EQ(check(&q), -EINVAL);
		bytes[i] = 0;
	}
	for (size_t i = offsetof(struct sandbox_spec, net.rule[2]); i < sizeof(q.spec); i++) {
		rules(&q);
		bytes[i] = 1;
		CHECK_EQ(check(&q), -EINVAL);
		bytes[i] = 0;
	}
	rules(&q);
	q.spec.net.mode = STEER_OPEN; /* this mode has no rules */
	CHECK_EQ(check(&q), -EINVAL);
	rules(&q);
	q.spec.net.mode = STEER_OBSERVE + 1;
	CHECK_EQ(check(&q), -EINVAL);
	rules(&q);
	q.spec.net.n = STEER_RULES + 1;
	CHECK_EQ(check(&q), -E2BIG);
	rules(&q);
	q.spec.net.n = UINT32_MAX;
	CHECK_EQ(check(&q), -E2BIG);
	rules(&q);
	q.spec.net.rule[0].addr[1] = 17; /* the address has more bits than the prefix */
	CHECK_EQ(check(&q), -EINVAL);
	rules(&q);
	q.spec.net.rule[0].addr[9] = 1;
	CHECK_EQ(check(&q), -EINVAL);
	rules(&q);
	q.spec.net.rule[0].prefix = 33;
	CHECK_EQ(check(&q), -EINVAL);
	rules(&q);
	q.spec.net.rule[0].family = 5;
	CHECK_EQ(check(&q), -EINVAL);
	rules(&q);
	q.spec.net.rule[1].first = 0;
	CHECK_EQ(check(&q), -EINVAL);
	rules(&q);
	q.spec.net.rule[0].last = 79;
	CHECK_EQ(check(&q), -EINVAL);
	/* In a spec, there are rules if and only if the flag is set. */
	rules(&q);
	struct steer_rules net = q.spec.net;
	create(&q);
	q.spec.net = net;
	CHECK_EQ(check(&q), -EINVAL);
	q.spec.flags |= SPEC_NET;
	CHECK_EQ(check(&q), 0);
	q.spec.net.rule[5].family = 4;
	CHECK_EQ(check(&q), -EINVAL);
}

TEST(a_connection_and_a_family_are_asked_for_exactly)
{
	static struct warden_req q;

	for (uint64_t arg = 0; arg < 8; arg++) {
		hello(&q);
		q.op = WARDEN_SOCKET;
		q.handle = 5;
		q.arg = arg;
		CHECK_EQ(check(&q), arg == 4 || arg == 6 ? 0 : -EINVAL);
	}
	hello(&q);
	q.who.port = 1;
	CHECK_EQ(check(&q), -EINVAL);
	q.op = WARDEN_WHO;
	q.handle = 5;
	CHECK_EQ(check(&q), -EINVAL);
	q.who.family = 4;
	CHECK_EQ(check(&q), 0);
	q.who.addr[4] = 1;
	CHECK_EQ(check(&q), -EINVAL);
	q.who.family = 6;
	CHECK_EQ(check(&q), 0);
	q.who.udp = 1;
	CHECK_EQ(check(&q), 0);
	q.who.udp = 2;
	CHECK_EQ(check(&q), -EINVAL);
	q.who.udp = 0;
	q.who.zero2 = 1;
	CHECK_EQ(check(&q), -EINVAL);
}

TEST(handles_are_told_in_order_and_no_other_than_asked)
{
	static struct warden_req q;
	static struct warden_rep p;

	hello(&q);
	q.op = WARDEN_NEXT;
	q.handle = 77;
	reply(&p, &q);
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 0, &q, NULL), -EBADMSG);
	p.handle = 78;
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 0, &q, NULL), 0);
	p.handle = 0;
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 0, &q, NULL), 0);
	q.op = p.op = WARDEN_ATTACH;
	p.handle = 78;
	CHECK_EQ(msg_check_rep(&p, sizeof(p), 2, &q, NULL), -EBADMSG);
}

TEST(a_receipt_survives_the_way)
{
	const struct warden_receipt from = {
		.cgroup_version = 1,
		.controllers = 5,
		.filter_len = 99,
		.idmapped = true,
		.disk = 1ULL << 40,
		.inodes = 12,
		.tenant_share = 50,
	};
	struct warden_receipt to;
	struct msg_receipt wire;

	msg_put_receipt(&from, &wire);
	msg_get_receipt(&wire, &to);
	CHECK(to.cgroup_version == 1 && to.controllers == 5 && to.filter_len == 99 && to.idmapped && !to.rootless);
	CHECK(to.disk == from.disk && to.inodes == 12 && to.tenant_share == 50);
}
