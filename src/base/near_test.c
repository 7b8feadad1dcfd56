#include "base/near.h"
#include "base/base.h"
#include "base/test.h"

static const char *const words[] = { "timeout", "memory", "cpus", "pids", "metadata", "exec_timeout", "network", "x" };

static const char *near(const char *word)
{
	const char *found = near_word(word, words, ARRAY_LEN(words));

	return found ? found : "";
}

TEST(a_usual_name_leads_to_ours)
{
	CHECK_STR(near("ttl"), "timeout");
	CHECK_STR(near("mem"), "memory");
	CHECK_STR(near("labels"), "metadata");
	CHECK_STR(near("timeoutMs"), "timeout");
	CHECK_STR(near("allow_internet_access"), "network");
	CHECK_STR(near("cwd"), ""); /* its meaning is not among these */
}

TEST(a_letter_or_two_are_forgiven)
{
	CHECK_STR(near("memroy"), "memory");
	CHECK_STR(near("cpu"), "cpus");
	CHECK_STR(near("pid"), "pids");
	CHECK_STR(near("timeot"), "timeout");
	CHECK_STR(near("metdaata"), "metadata");
	CHECK_STR(near("exectimeout"), "exec_timeout");
}

TEST(what_is_far_from_all_has_no_near_one)
{
	CHECK_STR(near("nonsense"), "");
	CHECK_STR(near(""), "");
	CHECK_STR(near("y"), "");
	CHECK_STR(near("memory"), ""); /* itself is no advice */
	CHECK_STR(near("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), "");
}

TEST(options_of_other_programs_lead_to_what_is_here)
{
	CHECK(strstr(near_option("-v"), "--mount"));
	CHECK(strstr(near_option("--publish=80:80"), "port-forward"));
	CHECK(!near_option("--pub"));
	CHECK(!near_option("--memory"));
}
