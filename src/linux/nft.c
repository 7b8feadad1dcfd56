/* Builds rules of nftables. */
#include "linux/nft.h"
#include "base/base.h"

#include <endian.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#define TYPE(x) ((NFNL_SUBSYS_NFTABLES << 8) | (x))
#define KEY_TYPE 1 /* only for programs that display sets; the kernel just stores it */

static void begin(struct nft *b, uint16_t type, uint16_t flags, uint8_t family, uint16_t res)
{
	const struct nfgenmsg g = { .nfgen_family = family, .version = NFNETLINK_V0, .res_id = htobe16(res) };

	netlink_begin(b->link, type, flags, &g, sizeof(g));
}

static void object(struct nft *b, uint16_t type, uint16_t flags)
{
	begin(b, TYPE(type), flags, NFPROTO_INET, 0);
}

void nft_begin(struct nft *b, struct netlink *link, const char *table, const char *chain)
{
	memset(b, 0, sizeof(*b));
	b->link = link;
	b->table = table;
	b->chain = chain;
	link->seq = 0;
	begin(b, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
}

static int explain(const struct nft *b, uint32_t seq, int r, struct err *e)
{
	const char *module = seq < ARRAY_LEN(b->needs) ? b->needs[seq] : NULL;

	err_sys(e, ERR_UNSUPPORTED, r, "nftables rules of a sandbox's network (message %u)", seq);
	/* No such object, no such subsystem, and what a kernel says that has it but not for this family and hook. */
	if (r == -ENOENT || r == -EOPNOTSUPP || r == -EINVAL || r == -EAFNOSUPPORT) {
		err_set(e, ERR_UNSUPPORTED, r, "this kernel has no %s, which the network of a sandbox requires",
			module ? module : "nf_tables");
		err_remedy(e, "load it (modprobe %s); see `cloche doctor`", module ? module : "nf_tables");
	}
	return r;
}

int nft_commit(struct nft *b, struct err *e)
{
	/* The last message before the end says whether all was done. */
	struct nlmsghdr *last = (struct nlmsghdr *)(void *)(b->link->out + b->link->msg);
	uint32_t seq = 0;
	int r;

	last->nlmsg_flags |= NLM_F_ACK;
	begin(b, NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
	r = netlink_send(b->link, &seq);
	return r < 0 ? explain(b, seq, r, e) : 0;
}

void nft_table(struct nft *b)
{
	object(b, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL);
	netlink_put_str(b->link, NFTA_TABLE_NAME, b->table);
}

void nft_table_delete(struct nft *b)
{
	object(b, NFT_MSG_DELTABLE, 0);
	netlink_put_str(b->link, NFTA_TABLE_NAME, b->table);
}

void nft_chain(struct nft *b, uint32_t hook, int32_t priority)
{
	size_t at;

	object(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL);
	netlink_put_str(b->link, NFTA_CHAIN_TABLE, b->table);
	netlink_put_str(b->link, NFTA_CHAIN_NAME, b->chain);
	netlink_put_str(b->link, NFTA_CHAIN_TYPE, "filter");
	netlink_put_be32(b->link, NFTA_CHAIN_POLICY, NF_ACCEPT);
	at = netlink_nest(b->link, NFTA_CHAIN_HOOK);
	netlink_put_be32(b->link, NFTA_HOOK_HOOKNUM, hook);
	netlink_put_be32(b->link, NFTA_HOOK_PRIORITY, (uint32_t)priority);
	netlink_close(b->link, at);
}

void nft_flush(struct nft *b)
{
	object(b, NFT_MSG_DELRULE, 0);
	netlink_put_str(b->link, NFTA_RULE_TABLE, b->table);
	netlink_put_str(b->link, NFTA_RULE_CHAIN, b->chain);
}

void nft_set(struct nft *b, const char *name, uint32_t key, uint32_t size, uint64_t msec)
{
	size_t at;

	object(b, NFT_MSG_NEWSET, NLM_F_CREATE | NLM_F_EXCL);
	netlink_put_str(b->link, NFTA_SET_TABLE, b->table);
	netlink_put_str(b->link, NFTA_SET_NAME, name);
	netlink_put_be32(b->link, NFTA_SET_ID, 1);
	netlink_put_be32(b->link, NFTA_SET_FLAGS, NFT_SET_EVAL | NFT_SET_TIMEOUT);
	netlink_put_be32(b->link, NFTA_SET_KEY_TYPE, KEY_TYPE);
	netlink_put_be32(b->link, NFTA_SET_KEY_LEN, key);
	netlink_put_be64(b->link, NFTA_SET_TIMEOUT, msec);
	at = netlink_nest(b->link, NFTA_SET_DESC);
	netlink_put_be32(b->link, NFTA_SET_DESC_SIZE, size);
	netlink_close(b->link, at);
}

void nft_rule(struct nft *b)
{
	object(b, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);
	netlink_put_str(b->link, NFTA_RULE_TABLE, b->table);
	netlink_put_str(b->link, NFTA_RULE_CHAIN, b->chain);
	b->rule = netlink_nest(b->link, NFTA_RULE_EXPRESSIONS);
}

void nft_rule_end(struct nft *b)
{
	netlink_close(b->link, b->rule);
}

struct expr {
	size_t elem, data;
};

static struct expr expr(struct nft *b, const char *name)
{
	struct expr x;

	x.elem = netlink_nest(b->link, NFTA_LIST_ELEM);
	netlink_put_str(b->link, NFTA_EXPR_NAME, name);
	x.data = netlink_nest(b->link, NFTA_EXPR_DATA);
	return x;
}

static void expr_end(struct nft *b, struct expr x)
{
	netlink_close(b->link, x.data);
	netlink_close(b->link, x.elem);
}

static void needs(struct nft *b, const char *module)
{
	if (b->link->seq < ARRAY_LEN(b->needs))
		b->needs[b->link->seq] = module;
}

static void value(struct nft *b, uint16_t type, const void *data, uint32_t len)
{
	size_t at = netlink_nest(b->link, type);

	netlink_put(b->link, NFTA_DATA_VALUE, data, len);
	netlink_close(b->link, at);
}

static uint32_t reg32(unsigned reg)
{
	return NFT_REG32_00 + reg;
}

static void meta(struct nft *b, uint32_t key, unsigned reg)
{
	struct expr x = expr(b, "meta");

	netlink_put_be32(b->link, NFTA_META_KEY, key);
	netlink_put_be32(b->link, NFTA_META_DREG, reg32(reg));
	expr_end(b, x);
}

void nft_cmp(struct nft *b, unsigned reg, enum nft_op op, const void *data, uint32_t len)
{
	struct expr x = expr(b, "cmp");

	netlink_put_be32(b->link, NFTA_CMP_SREG, reg32(reg));
	netlink_put_be32(b->link, NFTA_CMP_OP, op == NFT_IS ? NFT_CMP_EQ : NFT_CMP_NEQ);
	value(b, NFTA_CMP_DATA, data, len);
	expr_end(b, x);
}

void nft_family(struct nft *b, unsigned family)
{
	const uint8_t proto = family == 4 ? NFPROTO_IPV4 : NFPROTO_IPV6;

	meta(b, NFT_META_NFPROTO, 0);
	nft_cmp(b, 0, NFT_IS, &proto, sizeof(proto));
}

void nft_proto(struct nft *b, enum nft_op op, uint8_t proto)
{
	meta(b, NFT_META_L4PROTO, 0);
	nft_cmp(b, 0, op, &proto, sizeof(proto));
}

void nft_load(struct nft *b, unsigned reg, enum nft_head head, uint32_t offset, uint32_t len)
{
	struct expr x = expr(b, "payload");

	netlink_put_be32(b->link, NFTA_PAYLOAD_DREG, reg32(reg));
	netlink_put_be32(b->link, NFTA_PAYLOAD_BASE, head);
	netlink_put_be32(b->link, NFTA_PAYLOAD_OFFSET, offset);
	netlink_put_be32(b->link, NFTA_PAYLOAD_LEN, len);
	expr_end(b, x);
}

void nft_put(struct nft *b, unsigned reg, const void *data, uint32_t len)
{
	struct expr x = expr(b, "immediate");

	netlink_put_be32(b->link, NFTA_IMMEDIATE_DREG, reg32(reg));
	value(b, NFTA_IMMEDIATE_DATA, data, len);
	expr_end(b, x);
}

void nft_mask(struct nft *b, unsigned reg, const void *mask, uint32_t len)
{
	static const uint8_t none[16];
	struct expr x = expr(b, "bitwise");

	assert(len <= sizeof(none));
	netlink_put_be32(b->link, NFTA_BITWISE_SREG, reg32(reg));
	netlink_put_be32(b->link, NFTA_BITWISE_DREG, reg32(reg));
	netlink_put_be32(b->link, NFTA_BITWISE_LEN, len);
	value(b, NFTA_BITWISE_MASK, mask, len);
	value(b, NFTA_BITWISE_XOR, none, len);
	expr_end(b, x);
}

void nft_within(struct nft *b, unsigned reg, const void *first, const void *last, uint32_t len)
{
	struct expr x = expr(b, "range");

	netlink_put_be32(b->link, NFTA_RANGE_SREG, reg32(reg));
	netlink_put_be32(b->link, NFTA_RANGE_OP, NFT_RANGE_EQ);
	value(b, NFTA_RANGE_FROM_DATA, first, len);
	value(b, NFTA_RANGE_TO_DATA, last, len);
	expr_end(b, x);
}

void nft_faster_than(struct nft *b, uint64_t per_second, uint32_t burst)
{
	struct expr x = expr(b, "limit");

	needs(b, "nft_limit");
	netlink_put_be64(b->link, NFTA_LIMIT_RATE, per_second);
	netlink_put_be64(b->link, NFTA_LIMIT_UNIT, 1);
	netlink_put_be32(b->link, NFTA_LIMIT_BURST, burst);
	netlink_put_be32(b->link, NFTA_LIMIT_TYPE, NFT_LIMIT_PKTS);
	netlink_put_be32(b->link, NFTA_LIMIT_FLAGS, NFT_LIMIT_F_INV);
	expr_end(b, x);
}

void nft_count(struct nft *b, const char *set, unsigned reg)
{
	struct expr x = expr(b, "dynset");
	size_t at;

	netlink_put_str(b->link, NFTA_DYNSET_SET_NAME, set);
	netlink_put_be32(b->link, NFTA_DYNSET_OP, NFT_DYNSET_OP_UPDATE);
	netlink_put_be32(b->link, NFTA_DYNSET_SREG_KEY, reg32(reg));
	at = netlink_nest(b->link, NFTA_DYNSET_EXPR);
	netlink_put_str(b->link, NFTA_EXPR_NAME, "counter");
	netlink_close(b->link, netlink_nest(b->link, NFTA_EXPR_DATA));
	netlink_close(b->link, at);
	expr_end(b, x);
}

void nft_tproxy(struct nft *b, uint16_t port)
{
	const uint16_t be = htobe16(port);
	struct expr x;

	nft_put(b, 0, &be, sizeof(be));
	x = expr(b, "tproxy");
	needs(b, "nft_tproxy");
	netlink_put_be32(b->link, NFTA_TPROXY_FAMILY, NFPROTO_UNSPEC);
	netlink_put_be32(b->link, NFTA_TPROXY_REG_PORT, reg32(0));
	expr_end(b, x);
	nft_accept(b);
}

void nft_accept(struct nft *b)
{
	struct expr x = expr(b, "immediate");
	size_t data, verdict;

	netlink_put_be32(b->link, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
	data = netlink_nest(b->link, NFTA_IMMEDIATE_DATA);
	verdict = netlink_nest(b->link, NFTA_DATA_VERDICT);
	netlink_put_be32(b->link, NFTA_VERDICT_CODE, NF_ACCEPT);
	netlink_close(b->link, verdict);
	netlink_close(b->link, data);
	expr_end(b, x);
}

static void reject(struct nft *b, uint32_t type, uint8_t code)
{
	struct expr x = expr(b, "reject");

	needs(b, "nft_reject_inet");
	netlink_put_be32(b->link, NFTA_REJECT_TYPE, type);
	netlink_put(b->link, NFTA_REJECT_ICMP_CODE, &code, sizeof(code));
	expr_end(b, x);
}

void nft_reset(struct nft *b)
{
	reject(b, NFT_REJECT_TCP_RST, 0);
}

void nft_unreachable(struct nft *b)
{
	reject(b, NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_PORT_UNREACH);
}

struct reading {
	nft_key_fn *fn;
	void *arg;
};

static uint64_t packets(const struct netlink_attr *expr)
{
	struct netlink_attr data, n;
	uint64_t v;

	if (netlink_find(expr->data, expr->len, NFTA_EXPR_DATA, &data) < 0 ||
	    netlink_find(data.data, data.len, NFTA_COUNTER_PACKETS, &n) < 0 || n.len != sizeof(v))
		return 0;
	memcpy(&v, n.data, sizeof(v));
	return be64toh(v);
}

/* 0 where the kernel does not say. */
static uint64_t stays(const struct netlink_attr *elem)
{
	struct netlink_attr left;
	uint64_t v;

	if (netlink_find(elem->data, elem->len, NFTA_SET_ELEM_EXPIRATION, &left) < 0 || left.len != sizeof(v))
		return 0;
	memcpy(&v, left.data, sizeof(v));
	return be64toh(v);
}

static int read_part(void *arg, const uint8_t *body, size_t len)
{
	const struct reading *r = arg;
	struct netlink_attr list, elem, key, val, expr;
	uint16_t type;

	if (len < sizeof(struct nfgenmsg))
		return -EBADMSG;
	if (netlink_find(body + sizeof(struct nfgenmsg), len - sizeof(struct nfgenmsg), NFTA_SET_ELEM_LIST_ELEMENTS,
			 &list) < 0)
		return 0;
	while (netlink_next(&list.data, &list.len, &type, &elem)) {
		if (netlink_find(elem.data, elem.len, NFTA_SET_ELEM_KEY, &key) < 0 ||
		    netlink_find(key.data, key.len, NFTA_DATA_VALUE, &val) < 0)
			continue;
		r->fn(r->arg, val.data, val.len,
		      netlink_find(elem.data, elem.len, NFTA_SET_ELEM_EXPR, &expr) == 0 ? packets(&expr) : 0,
		      stays(&elem));
	}
	return 0;
}

int nft_set_read(struct netlink *link, const char *table, const char *set, nft_key_fn *fn, void *arg)
{
	const struct nfgenmsg g = { .nfgen_family = NFPROTO_INET, .version = NFNETLINK_V0 };
	struct reading r = { fn, arg };

	netlink_begin(link, TYPE(NFT_MSG_GETSETELEM), NLM_F_DUMP, &g, sizeof(g));
	netlink_put_str(link, NFTA_SET_ELEM_LIST_TABLE, table);
	netlink_put_str(link, NFTA_SET_ELEM_LIST_SET, set);
	return netlink_ask(link, read_part, &r);
}
