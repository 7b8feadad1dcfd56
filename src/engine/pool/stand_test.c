#include "engine/pool/stand.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/test.h"

static struct sandbox_spec host(uint64_t memory)
{
	struct sandbox_spec s = { .image = "host", .workdir = "/home/user", .limits.memory = memory };

	return s;
}

TEST(two_in_a_row_make_it_stand_and_one_stranger_changes_nothing)
{
	static struct stand t;
	struct sandbox_spec a = host(1 << 20), b = host(2 << 20);

	CHECK(!stand_same(&t, &a));
	CHECK(!stand_learn(&t, &a));
	CHECK(!stand_same(&t, &a));
	CHECK(stand_learn(&t, &a));
	CHECK(stand_same(&t, &a));
	CHECK(!stand_learn(&t, &b));
	CHECK(!stand_learn(&t, &a));
	CHECK(!stand_learn(&t, &b));
	CHECK(stand_same(&t, &a) && !stand_same(&t, &b));
	CHECK_EQ(t.number, 1);
	CHECK(stand_learn(&t, &b));
	CHECK(stand_same(&t, &b) && !stand_same(&t, &a));
	CHECK_EQ(t.number, 2);
}

TEST(who_asks_does_not_matter_but_every_word_of_the_request_does)
{
	static struct stand t;
	struct sandbox_spec a = host(1 << 20), b;

	stand_learn(&t, &a);
	CHECK(stand_learn(&t, &a));
	b = a;
	b.tenant = 7;
	CHECK(stand_same(&t, &b));
	b.hostname[0] = 'x';
	CHECK(!stand_same(&t, &b));
	b = a;
	b.uid = 1;
	CHECK(!stand_same(&t, &b));
	b = a;
	b.flags = SPEC_READ_ONLY;
	CHECK(!stand_same(&t, &b));
	b = a;
	b.limits.pids = 1;
	CHECK(!stand_same(&t, &b));
	b = a;
	b.workdir[1] = 'x';
	CHECK(!stand_same(&t, &b));
}

TEST(nothing_is_made_ahead_for_what_is_asked_for_once_only)
{
	static struct stand t = { .most = STAND_LAYERED };
	struct sandbox_spec a = host(1 << 20), b;

	a.layers = 1;
	b = a;
	b.flags |= SPEC_ONCE;
	for (int i = 0; i < 3; i++)
		CHECK(!stand_learn(&t, &b));
	CHECK_EQ(stand_number(&t, &a), 0);
	CHECK(!stand_learn(&t, &a));
	CHECK(stand_learn(&t, &a));
}

TEST(what_can_change_or_needs_more_is_never_made_ahead)
{
	const struct sandbox_spec a = host(1 << 20);

	for (int i = 0; i < 6; i++) {
		struct stand t = { 0 };
		struct sandbox_spec b = a;

		if (i == 0)
			memcpy(b.image, "/images/x", 10);
		b.layers = i == 1;
		b.nmounts = i == 2;
		b.ntmpfs = i == 3;
		b.limits.io_bps = i == 4 ? 1 << 20 : 0;
		b.flags = i == 5 ? SPEC_DISK : 0;
		for (int k = 0; k < 3; k++)
			CHECK(!stand_learn(&t, &b));
		CHECK(!stand_same(&t, &b));
	}
}

TEST(forgotten_it_takes_two_again_and_the_number_is_another)
{
	static struct stand t;
	struct sandbox_spec a = host(1 << 20);

	stand_learn(&t, &a);
	CHECK(stand_learn(&t, &a));
	stand_forget(&t);
	CHECK(!stand_same(&t, &a));
	CHECK(!stand_learn(&t, &a));
	CHECK(stand_learn(&t, &a));
	CHECK_EQ(t.number, 2);
}

TEST(other_rules_for_a_network_are_another_request)
{
	struct sandbox_spec spec = { .image = "host", .workdir = "/w", .flags = SPEC_NET, .net = { .mode = STEER_ALLOW, .n = 1 } };
	struct stand t = { 0 };

	spec.net.rule[0] = (struct steer_rule){ .family = 4, .prefix = 8, .first = 80, .last = 80, .addr = { 10 } };
	stand_learn(&t, &spec);
	CHECK(stand_learn(&t, &spec));
	CHECK(stand_same(&t, &spec));
	spec.net.rule[0].last = 81;
	CHECK(!stand_same(&t, &spec));
	spec.net.rule[0].last = 80;
	spec.net.n = 0;
	CHECK(!stand_same(&t, &spec));
	spec.net.n = 1;
	spec.flags = 0;
	CHECK(!stand_same(&t, &spec));
}

static struct sandbox_spec on_layer(const char *id)
{
	struct sandbox_spec s = host(1 << 20);

	s.tenant = 7;
	s.layers = 1;
	snprintf(s.layer[0], sizeof(s.layer[0]), "%s", id);
	return s;
}

TEST(on_layers_who_comes_back_has_one_although_others_came_in_between)
{
	static struct stand t = { .most = 2 };
	struct sandbox_spec a = on_layer("a"), b = on_layer("b"), c = on_layer("c"), plain = host(1 << 20), x;
	uint64_t of_a, of_b, before;

	CHECK(!stand_learn(&t, &a) && !stand_learn(&t, &plain) && !stand_learn(&t, &b));
	CHECK_EQ(stand_number(&t, &a), 0);
	CHECK(stand_learn(&t, &a) && stand_learn(&t, &b));
	of_a = stand_number(&t, &a);
	of_b = stand_number(&t, &b);
	CHECK(of_a && of_b && of_a != of_b && stand_current(&t, of_a) && stand_current(&t, of_b));
	CHECK(!stand_current(&t, 0));
	/* Nobody else's, with nothing else below, and not of another kind. */
	x = a;
	x.tenant = 8;
	CHECK_EQ(stand_number(&t, &x), 0);
	x = a;
	x.flags = SPEC_MEMORY;
	CHECK_EQ(stand_number(&t, &x), 0);
	x = a;
	x.layers = 2;
	CHECK_EQ(stand_number(&t, &x), 0);
	x = a;
	x.nmounts = 1;
	CHECK_EQ(stand_number(&t, &x), 0);
	/* There is room for two: who was away longest goes. Many who come once move nobody. */
	for (char i = 'k'; i < 'z'; i++) {
		x = on_layer((char[]){ i, '\0' });
		CHECK(!stand_learn(&t, &x));
	}
	CHECK(!stand_learn(&t, &a) && !stand_learn(&t, &c) && stand_learn(&t, &c));
	CHECK(stand_current(&t, of_a) && !stand_current(&t, of_b) && !stand_number(&t, &b));
	/* What is below goes. */
	CHECK(!stand_forget_layer(&t, "b"));
	CHECK(stand_forget_layer(&t, "a"));
	CHECK(!stand_number(&t, &a) && !stand_current(&t, of_a) && stand_number(&t, &c));
	stand_forget_layered(&t, stand_number(&t, &c));
	CHECK(!stand_number(&t, &c));
	/* So does who was not asked for. */
	stand_learn(&t, &a);
	CHECK(stand_learn(&t, &a));
	before = clock_mono_ns();
	stand_learn(&t, &c);
	CHECK(stand_learn(&t, &c));
	stand_expire(&t, before);
	CHECK(!stand_number(&t, &a) && stand_number(&t, &c));
	stand_expire(&t, UINT64_MAX);
	CHECK(!stand_number(&t, &c));
}
