#include "tier/tiers.h"
#include "base/base.h"
#include "base/test.h"
#include "vm/host/tier.h"

static struct err e;

TEST(each_tier_is_found_by_its_name_and_by_its_flag_alone)
{
	const struct tier_ops *found;

	for (const struct tier_ops *const *t = tiers; *t; t++) {
		found = NULL;
		CHECK_EQ(tier_find((*t)->name, &found, &e), 0);
		CHECK(found == *t);
		CHECK(tier_of((*t)->flag | SPEC_NET | SPEC_DISK) == *t);
		CHECK_EQ((*t)->flag & ~SPEC_TIERS, 0);
		CHECK_EQ((*t)->flag & ((*t)->flag - 1), 0);
		for (const struct tier_ops *const *other = tiers; *other; other++)
			CHECK(*other == *t || ((*other)->flag != (*t)->flag && strcmp((*other)->name, (*t)->name)));
	}
	CHECK(tiers[0] == &container_tier && !tiers[0]->flag);
}

TEST(an_unknown_name_is_refused_and_the_remedy_lists_the_tiers)
{
	const struct tier_ops *found = NULL;

	CHECK_EQ(tier_find("zoo", &found, &e), -EINVAL);
	CHECK(!found && e.kind == ERR_INVALID);
	for (const struct tier_ops *const *t = tiers; *t; t++)
		CHECK(strstr(e.remedy, (*t)->name));
	e = (struct err){ 0 };
	CHECK_EQ(tier_find("wasm", &found, &e), -EOPNOTSUPP);
	CHECK(!found && e.kind == ERR_UNSUPPORTED);
}

TEST(flags_of_no_tier_or_of_two_are_refused_and_never_a_container)
{
	struct sandbox_spec s = {
		.uid = 1000, .gid = 1000, .image = "host", .workdir = "/", .limits = { .memory = 256 * MIB }
	};

	CHECK_EQ(tier_check(&s, &e), 0);
	s.flags = SPEC_TIERS;
	CHECK(!tier_of(s.flags) && !tier_is_machine(s.flags));
	CHECK_EQ(tier_check(&s, &e), -EOPNOTSUPP);
	CHECK(e.kind == ERR_UNSUPPORTED);
	s.flags = vm_tier.flag;
	CHECK_EQ(tier_check(&s, &e), 0);
	CHECK(tier_is_machine(s.flags));
	s.nmounts = 1;
	snprintf(s.mount[0].src, sizeof(s.mount[0].src), "/srv");
	snprintf(s.mount[0].dst, sizeof(s.mount[0].dst), "/mnt");
	CHECK_EQ(tier_check(&s, &e), -EOPNOTSUPP);
}
