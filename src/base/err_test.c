#include "base/base.h"
#include "base/test.h"

TEST(set_keeps_kind_number_and_text)
{
	struct err e;

	CHECK_EQ(err_set(&e, ERR_NOT_FOUND, -ENOENT, "no image '%s'", "py"), -ENOENT);
	CHECK_EQ(e.kind, ERR_NOT_FOUND);
	CHECK_EQ(e.errnum, ENOENT);
	CHECK_STR(e.msg, "no image 'py'");
	CHECK_STR(e.remedy, "");
}

TEST(a_reason_says_the_kind)
{
	struct err e;

	err_set(&e, WHY_NAME_TAKEN, -EEXIST, "x");
	CHECK_EQ(e.kind, ERR_CONFLICT);
	CHECK_EQ(err_reason(&e), WHY_NAME_TAKEN);
	err_wrap(&e, -EEXIST, "y");
	CHECK_EQ(err_reason(&e), WHY_NAME_TAKEN);
	err_because(&e, WHY_DAMAGED);
	CHECK_EQ(e.kind, ERR_REFUSED);
	CHECK_STR(e.msg, "y: x");
	e.kind = ERR_LOST; /* by hand: the reason no longer fits, and that of the kind is given */
	CHECK_EQ(err_reason(&e), WHY_SANDBOX_LOST);
	err_because(&e, ERR_TIMEOUT);
	CHECK_EQ(err_reason(&e), WHY_NO_PROGRESS);
}

TEST(each_kind_has_a_reason_with_its_status_and_name_and_words_are_unique)
{
	for (unsigned k = 0; k < ERR_KIND_COUNT; k++) {
		struct err e = { .kind = (enum err_kind)k };

		CHECK_EQ(err_reason_kind(err_reason(&e)), k);
		CHECK_EQ(err_reason_status(err_reason(&e)), err_kind_status(e.kind));
	}
	for (unsigned i = WHY_FIRST_ + 1; i < WHY_END_; i++)
		CHECK_EQ(err_reason_find(err_reason_name((enum err_reason)i)), i);
	CHECK_EQ(err_reason_find(NULL), WHY_INTERNAL);
	CHECK(err_what_ok(ERR_METHOD) && !err_what_ok(ERR_KIND_COUNT) && !err_what_ok(WHY_FIRST_) &&
	      !err_what_ok(WHY_END_));
}

TEST(sys_adds_the_reason)
{
	struct err e;

	CHECK_EQ(err_sys(&e, ERR_INTERNAL, -EACCES, "open %s", "/x"), -EACCES);
	CHECK_STR(e.msg, "open /x: Permission denied");
}

TEST(wrap_goes_in_front_and_keeps_the_rest)
{
	struct err e;

	err_set(&e, ERR_NOT_FOUND, -ENOENT, "no image '%s'", "py");
	err_remedy(&e, "pull it");
	CHECK_EQ(err_wrap(&e, -ENOENT, "sandbox '%s'", "s1"), -ENOENT);
	CHECK_STR(e.msg, "sandbox 's1': no image 'py'");
	CHECK_EQ(e.kind, ERR_NOT_FOUND);
	CHECK_STR(e.remedy, "pull it");
}

TEST(the_first_remedy_wins)
{
	struct err e;

	err_set(&e, ERR_UNSUPPORTED, -ENOSYS, "x");
	err_remedy(&e, "boot with %s", "a");
	err_remedy(&e, "something vague");
	CHECK_STR(e.remedy, "boot with a");
}

TEST(advise_sets_message_and_remedy_and_forgets_the_old_ones)
{
	struct err e = { 0 };

	err_set(&e, ERR_INTERNAL, -EIO, "before");
	err_remedy(&e, "of before");
	CHECK_EQ(err_advise(&e, ERR_EXHAUSTED, -EAGAIN, "100% try again", "%d are in use", 7), -EAGAIN);
	CHECK_STR(e.msg, "7 are in use");
	CHECK_STR(e.remedy, "100% try again");
	CHECK_EQ(e.kind, ERR_EXHAUSTED);
	CHECK_EQ(e.errnum, EAGAIN);
	CHECK_EQ(err_advise(NULL, ERR_EXHAUSTED, -EAGAIN, "nobody", "listens"), -EAGAIN);
}

TEST(setting_again_forgets_the_old_remedy)
{
	struct err e;

	err_set(&e, ERR_UNSUPPORTED, -ENOSYS, "x");
	err_remedy(&e, "old");
	err_set(&e, ERR_INVALID, -EINVAL, "y");
	CHECK_STR(e.remedy, "");
}

TEST(long_text_is_cut_not_overrun)
{
	char text[1000];
	struct err e;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	err_sys(&e, ERR_INTERNAL, -EIO, "%s", text);
	CHECK_EQ(strlen(e.msg), sizeof(e.msg) - 1);
	err_wrap(&e, -EIO, "%s", text);
	CHECK_EQ(strlen(e.msg), sizeof(e.msg) - 1);
	err_remedy(&e, "%s", text);
	CHECK_EQ(strlen(e.remedy), sizeof(e.remedy) - 1);
}

TEST(nobody_listening_is_fine)
{
	CHECK_EQ(err_set(NULL, ERR_INVALID, -EINVAL, "x"), -EINVAL);
	CHECK_EQ(err_sys(NULL, ERR_INVALID, -EINVAL, "x"), -EINVAL);
	CHECK_EQ(err_wrap(NULL, -EINVAL, "x"), -EINVAL);
	err_remedy(NULL, "x");
}

TEST(kinds_have_wire_names_and_statuses)
{
	CHECK_STR(err_kind_name(ERR_NOT_FOUND), "not_found");
	CHECK_EQ(err_kind_status(ERR_NOT_FOUND), 404);
	CHECK_STR(err_kind_name(ERR_TIMEOUT), "timeout");
	CHECK_EQ(err_kind_status(ERR_UNAUTHORIZED), 401);
	CHECK_STR(err_kind_name(ERR_METHOD), "method");
	CHECK_EQ(ERR_METHOD + 1, ERR_KIND_COUNT);
	CHECK_EQ(err_kind_status(ERR_INTERNAL), 500);
}
