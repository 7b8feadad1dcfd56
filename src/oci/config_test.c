/* Configurations: read, written, and refused. */
#include "oci/config.h"
#include "base/base.h"
#include "base/test.h"

#define D1 "sha256:1111111111111111111111111111111111111111111111111111111111111111"
#define ROOT "\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"" D1 "\"]}"

static const char full[] =
	"{\"created\":\"2024-01-01T00:00:00Z\",\"author\":\"me\",\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{\"User\":\"www\","
	"\"ExposedPorts\":{\"80/tcp\":{}},\"Env\":[\"PATH=/bin\",\"A=1=2\"],\"Entrypoint\":[\"/e\"],\"Cmd\":[\"a\",\"b c\"],"
	"\"Healthcheck\":{\"Test\":[\"CMD\",\"x\"],\"Interval\":5,\"Retries\":3},\"Volumes\":{\"/data\":{}},\"WorkingDir\":\"/w\","
	"\"Labels\":{\"k\":\"v\"},\"StopSignal\":\"SIGINT\",\"OnBuild\":[\"RUN x\"],\"Shell\":[\"/bin/bash\",\"-c\"]}," ROOT
	",\"history\":[{\"created\":\"2024-01-01T00:00:00Z\",\"created_by\":\"ADD x\",\"comment\":\"c\"},{\"created_by\":\"CMD\","
	"\"empty_layer\":true}]}";

TEST(what_is_read_is_written_again_as_it_was)
{
	AUTO(oci_config_done) struct oci_config c, copy;
	AUTO(buf_done) struct buf b = BUF_INIT(1 << 20), again = BUF_INIT(1 << 20);

	oci_config_init(&copy);
	CHECK_EQ(oci_config_parse(full, strlen(full), &c, NULL), 0);
	CHECK_STR(c.user, "www");
	CHECK_STR(c.workdir, "/w");
	CHECK_STR(oci_list_get(&c.env, "A", 1), "1=2");
	CHECK(!oci_list_get(&c.env, "B", 1) && c.ndiff == 1 && c.nhistory == 2 && c.history[1].empty &&
	      c.health->retries == 3);
	CHECK_EQ(oci_config_write(&c, &b, NULL), 0);
	CHECK_EQ(oci_config_copy(&c, &copy, NULL), 0);
	CHECK_EQ(oci_config_write(&copy, &again, NULL), 0);
	CHECK_STR(b.data, again.data);
	CHECK(strstr(b.data, "\"Cmd\":[\"a\",\"b c\"]") && strstr(b.data, "\"ExposedPorts\":{\"80/tcp\":{}}") &&
	      strstr(b.data, "\"Labels\":{\"k\":\"v\"}") && strstr(b.data, "\"empty_layer\":true"));
}

TEST(null_is_as_good_as_missing)
{
	static const char text[] =
		"{\"config\":{\"User\":\"\",\"Env\":null,\"Cmd\":null,\"Entrypoint\":[],\"Labels\":null,\"OnBuild\":null,"
		"\"Volumes\":null},\"rootfs\":{\"type\":\"layers\",\"diff_ids\":null},\"history\":null}";
	AUTO(oci_config_done) struct oci_config c;

	CHECK_EQ(oci_config_parse(text, strlen(text), &c, NULL), 0);
	CHECK(!c.user && !c.has_cmd && c.has_entrypoint && !c.entrypoint.n && !c.ndiff);
}

TEST(values_of_a_wrong_type_are_refused)
{
	/* clang-format off */
	static const char *const bad[] = {
		"", "{}", "{\"rootfs\":{\"type\":\"other\",\"diff_ids\":[]}}", "{\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"x\"]}}",
		"{\"config\":[]," ROOT "}", "{\"config\":{\"User\":1}," ROOT "}", "{\"config\":{\"Env\":\"A=1\"}," ROOT "}",
		"{\"config\":{\"Env\":[1]}," ROOT "}", "{\"config\":{\"Labels\":{\"a\":1}}," ROOT "}", "{\"config\":{\"Volumes\":[\"/a\"]}," ROOT "}",
		"{\"config\":{\"Healthcheck\":1}," ROOT "}", "{\"history\":{}," ROOT "}", "{\"os\":1," ROOT "}",
		"{\"config\":{\"User\":\"a\\u0000b\"}," ROOT "}", ROOT,
	};
	/* clang-format on */
	struct oci_config c;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err e = { 0 };

		if (oci_config_parse(bad[i], strlen(bad[i]), &c, &e) == 0 || !e.msg[0])
			TEST_FAIL("accepted, or without a reason: %s", bad[i]);
	}
}

TEST(a_later_assignment_takes_the_place_of_the_first)
{
	struct oci_list l = { 0 };

	CHECK(oci_list_put(&l, "A=1") == 0 && oci_list_put(&l, "AB=2") == 0 && oci_list_put(&l, "A=3") == 0);
	CHECK_EQ(l.n, 2);
	CHECK_STR(l.item[0], "A=3");
	CHECK_STR(oci_list_get(&l, "AB", 2), "2");
	oci_list_done(&l);
}
