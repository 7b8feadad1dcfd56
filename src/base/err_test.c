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
