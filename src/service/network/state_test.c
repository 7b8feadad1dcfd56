#include "service/network/state.h"
#include "base/base.h"
#include "base/test.h"

static struct net_tree tree;

static struct net_state *fresh(void)
{
	tree = (struct net_tree){ .id = 7 };
	return net_state_new(&tree);
}

TEST(what_egress_counts_is_added_for_the_sandbox_and_its_tree)
{
	struct net_state *a = fresh(), *b = net_state_new(&tree);
	struct egress_counts la = { 0 }, lb = { 0 };

	net_state_count(a, &la,
			&(struct egress_counts){ .bytes_out = 5, .bytes_in = 7, .connections = 1, .concurrent = 1 });
	net_state_count(a, &la, &(struct egress_counts){ .bytes_out = 9, .bytes_in = 7, .connections = 1 });
	net_state_count(b, &lb, &(struct egress_counts){ .bytes_out = 100, .dns = 3 });
	CHECK_EQ(a->counts.bytes_out, 9);
	CHECK_EQ(a->counts.bytes_in, 7);
	CHECK_EQ(a->counts.concurrent, 0);
	CHECK_EQ(tree.counts.bytes_out, 109);
	CHECK_EQ(tree.counts.dns, 3);
	/* Egress was started anew, and knows less than was counted: that is not taken back. */
	net_state_count(a, &la, &(struct egress_counts){ .bytes_out = 2 });
	net_state_count(a, &la, &(struct egress_counts){ .bytes_out = 4 });
	CHECK_EQ(a->counts.bytes_out, 11);
	CHECK_EQ(tree.refs, 2);
	net_state_unref(a);
	net_state_unref(b);
	CHECK_EQ(tree.refs, 0);
}

TEST(what_is_told_of_one_that_was_replaced_counts_for_its_successor)
{
	struct net_state *old = fresh(), *new = net_state_new(&tree);
	struct egress_counts last = { 0 };

	net_state_count(old, &last, &(struct egress_counts){ .bytes_out = 10 });
	new->counts = new->copied = old->counts;
	old->forward = net_state_ref(new);
	net_state_count(old, &last, &(struct egress_counts){ .bytes_out = 15 });
	net_state_refuse(old,
			 &(struct egress_stream){ .verdict = EGRESS_V_DENIED,
						  .name = "x.example",
						  .rule = "",
						  .reason = "no",
						  .command = "",
						  .port = 1,
						  .times = 1 },
			 0);
	CHECK_EQ(new->counts.bytes_out, 15);
	CHECK_EQ(new->nrefusals, 1);
	net_state_unref(old);
	net_state_unref(new);
}

TEST(counts_are_the_same_after_the_store)
{
	const struct egress_counts c = {
		.bytes_out = UINT64_MAX, .bytes_in = 2, .connections = 3, .refused = 4, .dns = 5, .dns_refused = 6
	};
	struct egress_counts back;
	char text[160];

	CHECK(net_counts_text(&c, text, sizeof(text)) < (int)sizeof(text));
	net_counts_read(text, &back);
	CHECK_EQ(back.bytes_out, c.bytes_out);
	CHECK_EQ(back.dns_refused, 6);
	net_counts_read("7 8 nonsense", &back);
	CHECK_EQ(back.bytes_in, 8);
	CHECK_EQ(back.connections, 0);
}

TEST(names_are_kept_by_number_and_carried_as_text)
{
	AUTO(buf_done) struct buf text = BUF_INIT(4096);
	struct net_state *a = fresh(), *b = net_state_new(&tree);

	CHECK(net_state_name(a, 5, "five.example"));
	CHECK(net_state_name(a, 1, "one.example"));
	CHECK(!net_state_name(a, 5, "five.example"));
	CHECK(net_state_name(a, 5, "other.example"));
	CHECK(!net_state_name(a, EGRESS_NAMES_MAX, "far.example"));
	for (uint32_t i = 100; i > 10; i--)
		CHECK(net_state_name(a, i, "many.example"));
	CHECK_EQ(a->nnames, 92);
	for (uint32_t i = 1; i < a->nnames; i++)
		CHECK(a->names[i - 1].index < a->names[i].index);
	CHECK_EQ(net_state_names_write(a, &text), 0);
	net_state_names_read(b, text.data);
	CHECK_EQ(b->nnames, 92);
	CHECK_STR(b->names[1].name, "other.example");
	net_state_names_read(b, "9999999 far.example\n3\n4 \nx y\n6 127.1\n2 two.example");
	CHECK_EQ(b->nnames, 93);
	net_state_unref(a);
	net_state_unref(b);
}

static struct egress_stream refusal(const char *name, uint16_t port, uint32_t times)
{
	return (struct egress_stream){ .verdict = EGRESS_V_DENIED,
				       .name = name,
				       .port = port,
				       .times = times,
				       .rule = "r.example",
				       .reason = "not allowed",
				       .command = "curl",
				       .pid = 3 };
}

TEST(the_last_refusals_are_kept_and_the_same_ones_folded)
{
	struct net_state *s = fresh();
	struct egress_stream x = refusal("a.example", 443, 2), k = { .verdict = EGRESS_V_DENIED,
								     .family = 4,
								     .port = 80,
								     .addr = { 10, 0, 0, 1 },
								     .name = "",
								     .rule = "",
								     .reason = "a private address",
								     .command = "",
								     .times = 5 };
	char name[32];

	net_state_refuse(s, &x, 0);
	x.times = 3;
	net_state_refuse(s, &x, 0);
	CHECK_EQ(s->nrefusals, 1);
	CHECK_EQ(s->refusal[0].times, 5);
	x.command = ""; /* the process is unknown: not another refusal for that */
	x.pid = 0;
	net_state_refuse(s, &x, 0);
	CHECK_EQ(s->nrefusals, 1);
	CHECK_EQ(s->refusal[0].times, 8);
	CHECK_STR(s->refusal[0].command, "curl");
	CHECK_EQ(s->refusal[0].pid, 3);
	net_state_refuse(s, &k, 1000);
	net_state_refuse(s, &k, 1001); /* the same once more, as the clock says: not another one */
	CHECK_EQ(s->refusal[1].at_ns, 1000);
	k.times = 9; /* the kernel's counter is the total */
	net_state_refuse(s, &k, 2000);
	CHECK(s->refusal[1].first_ns == 1000 && s->refusal[1].at_ns == 2000);
	CHECK_EQ(s->nrefusals, 2);
	CHECK_STR(s->refusal[1].target, "10.0.0.1");
	CHECK_EQ(s->refusal[1].times, 9);
	for (unsigned i = 0; i < 2 * NET_REFUSALS; i++) {
		snprintf(name, sizeof(name), "n%u.example", i);
		x = refusal(name, 443, 1);
		net_state_refuse(s, &x, 0);
	}
	CHECK_EQ(s->nrefusals, 2 + 2 * NET_REFUSALS);
	CHECK_STR(s->refusal[(s->nrefusals - 1) % NET_REFUSALS].target, "n127.example");
	net_state_unref(s);
}

TEST(what_was_observed_becomes_a_short_list)
{
	AUTO(buf_done) struct buf text = BUF_INIT(4096);
	struct json j = JSON_INIT(&text);
	struct net_state *s = fresh();
	char name[32];

	net_state_observe(s, "a.example:443");
	net_state_observe(s, "b.example:80");
	net_state_observe(s, "a.example:80");
	net_state_observe(s, "a.example:443");
	net_state_observe(s, "b.example:8443");
	net_state_observe(s, "9.9.9.9:853");
	net_state_observed_write(s, NULL, &j);
	CHECK_EQ(jout_done(&j), 0);
	CHECK_STR(buf_str(&text), "[\"a.example\",\"b.example:80,8443\",\"9.9.9.9:853\"]");
	for (unsigned i = 0; i < 2 * NET_OBSERVED; i++) {
		snprintf(name, sizeof(name), "n%u.example", i);
		net_state_observe(s, name);
	}
	CHECK_EQ(s->nobserved, NET_OBSERVED);
	CHECK(s->observed_all);
	net_state_unref(s);
}
