#include "engine/pool/prebuilt.h"
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
	static struct prebuilt t;
	struct sandbox_spec a = host(1 << 20), b = host(2 << 20);

	CHECK(!prebuilt_same(&t, &a));
	CHECK(!prebuilt_learn(&t, &a));
	CHECK(!prebuilt_same(&t, &a));
	CHECK(prebuilt_learn(&t, &a));
	CHECK(prebuilt_same(&t, &a));
	CHECK(!prebuilt_learn(&t, &b));
	CHECK(!prebuilt_learn(&t, &a));
	CHECK(!prebuilt_learn(&t, &b));
	CHECK(prebuilt_same(&t, &a) && !prebuilt_same(&t, &b));
	CHECK_EQ(t.number, 1);
	CHECK(prebuilt_learn(&t, &b));
	CHECK(prebuilt_same(&t, &b) && !prebuilt_same(&t, &a));
	CHECK_EQ(t.number, 2);
}

TEST(who_asks_does_not_matter_but_every_word_of_the_request_does)
{
	static struct prebuilt t;
	struct sandbox_spec a = host(1 << 20), b;

	prebuilt_learn(&t, &a);
	CHECK(prebuilt_learn(&t, &a));
	b = a;
	b.tenant = 7;
	CHECK(prebuilt_same(&t, &b));
	b.hostname[0] = 'x';
	CHECK(!prebuilt_same(&t, &b));
	b = a;
	b.uid = 1;
	CHECK(!prebuilt_same(&t, &b));
	b = a;
	b.flags = SPEC_READ_ONLY;
	CHECK(!prebuilt_same(&t, &b));
	b = a;
	b.limits.pids = 1;
	CHECK(!prebuilt_same(&t, &b));
	b = a;
	b.workdir[1] = 'x';
	CHECK(!prebuilt_same(&t, &b));
}

TEST(nothing_is_made_ahead_for_what_is_asked_for_once_only)
{
	static struct prebuilt t = { .most = PREBUILT_LAYERED };
	struct sandbox_spec a = host(1 << 20), b;

	a.layers = 1;
	b = a;
	b.flags |= SPEC_ONCE;
	for (int i = 0; i < 3; i++)
		CHECK(!prebuilt_learn(&t, &b));
	CHECK_EQ(prebuilt_number(&t, &a), 0);
	CHECK(!prebuilt_learn(&t, &a));
	CHECK(prebuilt_learn(&t, &a));
}

TEST(what_can_change_or_needs_more_is_never_made_ahead)
{
	const struct sandbox_spec a = host(1 << 20);

	for (int i = 0; i < 6; i++) {
		struct prebuilt t = { 0 };
		struct sandbox_spec b = a;

		if (i == 0)
			memcpy(b.image, "/images/x", 10);
		b.layers = i == 1;
		b.nmounts = i == 2;
		b.ntmpfs = i == 3;
		b.limits.io_bps = i == 4 ? 1 << 20 : 0;
		b.flags = i == 5 ? SPEC_DISK : 0;
		for (int k = 0; k < 3; k++)
			CHECK(!prebuilt_learn(&t, &b));
		CHECK(!prebuilt_same(&t, &b));
	}
}

TEST(forgotten_it_takes_two_again_and_the_number_is_another)
{
	static struct prebuilt t;
	struct sandbox_spec a = host(1 << 20);

	prebuilt_learn(&t, &a);
	CHECK(prebuilt_learn(&t, &a));
	prebuilt_forget(&t, t.number);
	CHECK(!prebuilt_same(&t, &a));
	CHECK(!prebuilt_learn(&t, &a));
	CHECK(prebuilt_learn(&t, &a));
	CHECK_EQ(t.number, 2);
}

TEST(other_rules_for_a_network_are_another_request)
{
	struct sandbox_spec spec = {
		.image = "host", .workdir = "/w", .flags = SPEC_NET, .net = { .mode = STEER_ALLOW, .n = 1 }
	};
	struct prebuilt t = { 0 };

	spec.net.rule[0] = (struct steer_rule){ .family = 4, .prefix = 8, .first = 80, .last = 80, .addr = { 10 } };
	prebuilt_learn(&t, &spec);
	CHECK(prebuilt_learn(&t, &spec));
	CHECK(prebuilt_same(&t, &spec));
	spec.net.rule[0].last = 81;
	CHECK(!prebuilt_same(&t, &spec));
	spec.net.rule[0].last = 80;
	spec.net.n = 0;
	CHECK(!prebuilt_same(&t, &spec));
	spec.net.n = 1;
	spec.flags = 0;
	CHECK(!prebuilt_same(&t, &spec));
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
	static struct prebuilt t = { .most = 2 };
	struct sandbox_spec a = on_layer("a"), b = on_layer("b"), c = on_layer("c"), plain = host(1 << 20), x;
	uint64_t of_a, of_b, before;

	CHECK(!prebuilt_learn(&t, &a) && !prebuilt_learn(&t, &plain) && !prebuilt_learn(&t, &b));
	CHECK_EQ(prebuilt_number(&t, &a), 0);
	CHECK(prebuilt_learn(&t, &a) && prebuilt_learn(&t, &b));
	of_a = prebuilt_number(&t, &a);
	of_b = prebuilt_number(&t, &b);
	CHECK(of_a && of_b && of_a != of_b && prebuilt_current(&t, of_a) && prebuilt_current(&t, of_b));
	CHECK(!prebuilt_current(&t, 0));
	/* Only for the same tenant, the same layers below, and the same kind. */
	x = a;
	x.tenant = 8;
	CHECK_EQ(prebuilt_number(&t, &x), 0);
	x = a;
	x.flags = SPEC_MEMORY;
	CHECK_EQ(prebuilt_number(&t, &x), 0);
	x = a;
	x.layers = 2;
	CHECK_EQ(prebuilt_number(&t, &x), 0);
	x = a;
	x.nmounts = 1;
	CHECK_EQ(prebuilt_number(&t, &x), 0);
	/*
	 * There is room for two: the one that was asked for longest ago goes. Many that are asked for once replace
	 * none.
	 */
	for (int i = 'k'; i < 'z'; i++) {
		x = on_layer((char[]){ (char)i, '\0' });
		CHECK(!prebuilt_learn(&t, &x));
	}
	CHECK(!prebuilt_learn(&t, &a) && !prebuilt_learn(&t, &c) && prebuilt_learn(&t, &c));
	CHECK(prebuilt_current(&t, of_a) && !prebuilt_current(&t, of_b) && !prebuilt_number(&t, &b));
	/* What is below goes. */
	CHECK(!prebuilt_forget_layer(&t, "b"));
	CHECK(prebuilt_forget_layer(&t, "a"));
	CHECK(!prebuilt_number(&t, &a) && !prebuilt_current(&t, of_a) && prebuilt_number(&t, &c));
	prebuilt_forget(&t, prebuilt_number(&t, &c));
	CHECK(!prebuilt_number(&t, &c));
	/* So does one that was not asked for. */
	prebuilt_learn(&t, &a);
	CHECK(prebuilt_learn(&t, &a));
	before = clock_mono_ns();
	prebuilt_learn(&t, &c);
	CHECK(prebuilt_learn(&t, &c));
	prebuilt_expire(&t, before);
	CHECK(!prebuilt_number(&t, &a) && prebuilt_number(&t, &c));
	prebuilt_expire(&t, UINT64_MAX);
	CHECK(!prebuilt_number(&t, &c));
}

/* How many sandboxes @spec may have of @places; 0: nothing is prebuilt for it. */
static unsigned share(const struct prebuilt *t, unsigned places, const struct sandbox_spec *spec)
{
	struct prebuilt_wish w[PREBUILT_WISHES];
	const unsigned n = prebuilt_wishes(t, places, w);
	const uint64_t number = prebuilt_number(t, spec);

	for (unsigned i = 0; i < n; i++)
		if (w[i].number == number)
			return w[i].most;
	return 0;
}

TEST(repeated_requests_share_the_places_and_none_gets_more_than_it_was_asked_for)
{
	static struct prebuilt t = { .most = PREBUILT_LAYERED };
	struct sandbox_spec a = on_layer("a"), b = on_layer("b"), m = on_layer("m"), plain = host(1 << 20);

	CHECK_EQ(share(&t, 16, &plain), 0);
	prebuilt_learn(&t, &plain);
	prebuilt_learn(&t, &plain);
	CHECK_EQ(share(&t, 16, &plain), 16);
	prebuilt_learn(&t, &a);
	CHECK_EQ(share(&t, 16, &a), 0);
	prebuilt_learn(&t, &a);
	CHECK(share(&t, 16, &a) == 1 && share(&t, 16, &plain) == 8);
	prebuilt_learn(&t, &a);
	CHECK_EQ(share(&t, 16, &a), 2);
	for (int i = 0; i < 20; i++)
		prebuilt_learn(&t, &a);
	CHECK(share(&t, 16, &a) == 8 && share(&t, 16, &plain) == 8);
	/* With memory: one, which holds up no other request. */
	m.flags = SPEC_MEMORY;
	for (int i = 0; i < 5; i++)
		prebuilt_learn(&t, &m);
	CHECK(share(&t, 16, &m) == 1 && share(&t, 16, &a) == 8);
	for (int i = 0; i < 10; i++)
		prebuilt_learn(&t, &b);
	CHECK(share(&t, 16, &b) == 5 && share(&t, 16, &a) == 5 && share(&t, 16, &plain) == 5);
	/* What did not come for a while keeps one, and the places are the others'. */
	for (unsigned i = 0; i < PREBUILT_RECENT; i++)
		prebuilt_learn(&t, &b);
	CHECK(share(&t, 16, &b) == 16 && share(&t, 16, &a) == 1 && share(&t, 16, &plain) == 1);
	CHECK_EQ(share(&t, 0, &b), 1);
	prebuilt_learn(&t, &a);
	CHECK(share(&t, 16, &a) == 8 && share(&t, 16, &b) == 8);
}

/* Which request comes first when all lack as many. */
static uint64_t first(const struct prebuilt *t)
{
	struct prebuilt_wish w[PREBUILT_WISHES];

	return prebuilt_wishes(t, 16, w) ? w[0].number : 0;
}

TEST(of_requests_that_come_in_turns_the_next_one_is_made_first)
{
	static struct prebuilt t = { .most = PREBUILT_LAYERED };
	const struct sandbox_spec turn[] = { host(1 << 20), on_layer("b"), on_layer("a"), on_layer("c") };

	prebuilt_learn(&t, &turn[0]);
	for (unsigned i = 0; i < 8; i++)
		prebuilt_learn(&t, &turn[i % 4]);
	for (unsigned i = 0; i < 12; i++) {
		CHECK_EQ(first(&t), prebuilt_number(&t, &turn[i % 4]));
		prebuilt_learn(&t, &turn[i % 4]);
	}
}
