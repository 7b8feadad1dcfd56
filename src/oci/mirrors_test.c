/* Mirrors: where a registries.conf sends a repository. */
#include "oci/mirrors.h"
#include "base/base.h"
#include "base/test.h"

static const char conf[] = "unqualified-search-registries = [\"docker.io\"]\n"
			   "[[registry]]  # the hub\n"
			   "location = \"docker.io\"\n"
			   "  [[registry.mirror]]\n"
			   "  location = 'm1.example:5000/hub'\n"
			   "  insecure = true\n"
			   "  [[registry.mirror]]\n"
			   "  location = \"m2.example\" # the other one\n"
			   "[[registry]]\n"
			   "prefix = \"docker.io/team\"\r\n"
			   "location = \"r.example/moved\"\n"
			   "[aliases]\n"
			   "location = \"never.example\"\n"
			   "[[registry]]\n"
			   "prefix = \"*.wild.example\"\n"
			   "[[registry.mirror]]\n"
			   "location = \"127.0.0.1:5000/wild\"\n"
			   "[[registry]]\n"
			   "location = \"localhost\"\n"
			   "[[registry]]\n"
			   "prefix = \"localhost.example\"\n";

static void leads(const char *text, const char *ref, const char *want)
{
	char place[OCI_MIRRORS_MAX][OCI_PLACE_MAX], all[2048] = "";
	const unsigned n = oci_mirrors(text, ref, place);

	for (unsigned i = 0; i < n; i++)
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? " " : "", place[i]);
	CHECK_STR(all, want);
}

TEST(the_longest_prefix_counts)
{
	leads(conf, "docker.io/library/python", "m1.example:5000/hub/library/python m2.example/library/python");
	leads(conf, "docker.io/team/app", "r.example/moved/app");
	leads(conf, "docker.io/teams/app", "m1.example:5000/hub/teams/app m2.example/teams/app");
	leads(conf, "docker.ioo/x", "");
	leads(conf, "a.b.wild.example/x", "127.0.0.1:5000/wild/x");
	leads(conf, "wild.example/x", "");
	leads(conf, "never.example/x", "");
	leads("", "docker.io/x", "");
	leads("[[registry]]\nlocation = \"\"\n[[registry.mirror]]\nlocation = \"x\"", "docker.io/x", "");
}

TEST(places_on_this_machine_get_another_name)
{
	AUTO(buf_done) struct buf b = BUF_INIT(8 * KIB);

	CHECK_EQ(oci_mirrors_rename_loopback(conf, "other.internal", &b), 0);
	CHECK(strstr(buf_str(&b), "location = \"other.internal:5000/wild\"\n") != NULL);
	CHECK(strstr(buf_str(&b), "location = \"other.internal\"\n") != NULL);
	CHECK(strstr(buf_str(&b), "prefix = \"localhost.example\"\n") != NULL);
	CHECK_EQ(b.len, strlen(conf) + 5 + 5);
	leads(buf_str(&b), "docker.io/team/app", "r.example/moved/app");
}
