/* Logins: which one a repository gets. */
#include "oci/login.h"
#include "base/base.h"
#include "base/test.h"

static const char text[] = "{\"auths\": {"
			   "\"https://index.docker.io/v1/\": {\"auth\": \"hub\"},"
			   "\"r.example:5000\": {\"auth\": \"all\"},"
			   "\"r.example:5000/team\": {\"auth\": \"team\"},"
			   "\"r.example:5000/team/app/\": {\"auth\": \"app\"},"
			   "\"https://url.example/any/path\": {\"auth\": \"url\"},"
			   "\"only.example/part\": {\"auth\": \"part\"},"
			   "\"localhost:5000\": {\"auth\": \"here\"},"
			   "\"helped.example\": {}}}";

static void expect(const json_t *file, const char *registry, const char *repository, const char *want)
{
	const char *auth = json_string_value(json_object_get(oci_login_find(file, registry, repository), "auth"));

	CHECK_STR(auth ? auth : "none", want);
}

TEST(the_closest_entry_counts)
{
	json_t *file = json_loads(text, 0, NULL);

	expect(file, "docker.io", "library/python", "hub");
	expect(file, "r.example:5000", "other", "all");
	expect(file, "r.example:5000", "teams/app", "all");
	expect(file, "r.example:5000", "team/x", "team");
	expect(file, "r.example:5000", "team/app", "app");
	expect(file, "r.example:5000", "team/app2", "team");
	expect(file, "r.example", "team/app", "none");
	expect(file, "url.example", "x", "url");
	expect(file, "only.example", "part/x", "part");
	expect(file, "only.example", "x", "none");
	expect(file, "helped.example", "x", "none");
	CHECK(oci_login_find(file, "helped.example", "x") != NULL && !oci_login_find(NULL, "a", "b"));
	json_decref(file);
}

TEST(a_registry_on_this_machine_has_one_login_under_each_of_its_names)
{
	json_t *file = json_loads(text, 0, NULL);

	expect(file, "localhost:5000", "x", "here");
	expect(file, "127.0.0.1:5000", "x", "here");
	expect(file, "127.0.0.1:5001", "x", "none");
	expect(file, "127.0.0.1", "x", "none");
	expect(file, "localhost.example:5000", "x", "none");
	json_decref(file);
}
