/* Names of images: what is accepted, what is filled in, what is written back. */
#include "oci/name.h"
#include "base/base.h"
#include "base/test.h"

#define DIGEST "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void same(const char *text, const char *full, const char *shorter)
{
	struct oci_name n, again;
	char out[OCI_NAME_MAX];

	CHECK_EQ(oci_name_parse(text, &n, NULL), 0);
	oci_name_full(&n, out);
	CHECK_STR(out, full);
	oci_name_short(&n, out);
	CHECK_STR(out, shorter);
	CHECK_EQ(oci_name_parse(out, &again, NULL), 0);
	CHECK(!strcmp(n.registry, again.registry) && !strcmp(n.repository, again.repository));
	CHECK(!strcmp(n.tag, again.tag) && !strcmp(n.digest, again.digest));
}

TEST(what_is_left_out_is_filled_in_and_left_out_again)
{
	same("python", "docker.io/library/python:latest", "python:latest");
	same("python:3.12-slim", "docker.io/library/python:3.12-slim", "python:3.12-slim");
	same("team/app", "docker.io/team/app:latest", "team/app:latest");
	same("docker.io/python", "docker.io/library/python:latest", "python:latest");
	same("index.docker.io/library/python:3", "docker.io/library/python:3", "python:3");
	same("localhost/a", "localhost/a:latest", "localhost/a:latest");
	same("localhost:5000/a/b:1", "localhost:5000/a/b:1", "localhost:5000/a/b:1");
	same("r.example/a", "r.example/a:latest", "r.example/a:latest");
	same("[::1]:5000/a", "[::1]:5000/a:latest", "[::1]:5000/a:latest");
	same("a@" DIGEST, "docker.io/library/a@" DIGEST, "a@" DIGEST);
	same("a:1@" DIGEST, "docker.io/library/a:1@" DIGEST, "a:1@" DIGEST);
	same("a__b--c/e.d", "docker.io/a__b--c/e.d:latest", "a__b--c/e.d:latest");
}

TEST(anything_else_is_refused)
{
	static const char *const bad[] = {
		"",	    ":",    "a:",   "A",	  "a b",    "/a",	  "a/",		"a//b",
		"-a",	    "a-",   "a..b", "a___b",	  "a.-b",   "a:-1",	  "a@sha256:0", "a@" DIGEST "0",
		"a@md5:00", "../a", "a/..", "x.y:port/a", "[::1/a", "r.example/", "a:b:c",	"a\nb",
		".a/b"
	};
	char longest[OCI_NAME_MAX + 2];
	struct oci_name n;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (oci_name_parse(bad[i], &n, NULL) == 0)
			TEST_FAIL("'%s' is accepted", bad[i]);
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	CHECK(oci_name_parse(longest, &n, NULL) < 0);
	longest[OCI_REPOSITORY_MAX] = '\0';
	CHECK(oci_name_parse(longest, &n, NULL) < 0);
}
