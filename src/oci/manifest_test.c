/* Manifests and indexes: which image is chosen, and what is refused. */
#include "oci/manifest.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/test.h"

#define D1 "sha256:1111111111111111111111111111111111111111111111111111111111111111"
#define D2 "sha256:2222222222222222222222222222222222222222222222222222222222222222"
#define CONFIG "\"config\":{\"mediaType\":\"" OCI_TYPE_CONFIG "\",\"digest\":\"" D1 "\",\"size\":7}"
#define LAYER(type, more) "{\"mediaType\":\"" type "\",\"digest\":\"" D2 "\",\"size\":9" more "}"
#define HEAD "{\"schemaVersion\":2,"

static struct oci_manifest m;

static int parse(const char *text, const char *ref)
{
	return oci_manifest_parse(text, strlen(text), ref, &m, NULL);
}

TEST(an_image_has_a_configuration_and_layers)
{
	CHECK_EQ(parse(HEAD CONFIG
		       ",\"layers\":[" LAYER(OCI_TYPE_LAYER_GZIP, "") "," LAYER(OCI_TYPE_LAYER_ZSTD, "") "]}",
		       NULL),
		 0);
	CHECK(m.kind == OCI_IMAGE && m.nlayers == 2 && m.config.size == 7 && m.layer[1].size == 9);
	CHECK_STR(m.config.digest, D1);
	CHECK_STR(m.layer[0].type, OCI_TYPE_LAYER_GZIP);
	CHECK_EQ(parse(HEAD CONFIG ",\"layers\":[]}", NULL), 0);
}

TEST(an_index_leads_to_the_image_for_this_machine)
{
	char text[2048];

	snprintf(
		text, sizeof(text),
		HEAD
		"\"manifests\":[{\"mediaType\":\"x\",\"digest\":\"" D1
		"\",\"size\":1,\"platform\":{\"os\":\"linux\",\"architecture\":\"s390x\"}},{\"mediaType\":\"x\",\"digest\":\"" D2
		"\",\"size\":2,\"platform\":{\"os\":\"linux\",\"architecture\":\"%s\"}}]}",
		oci_architecture());
	CHECK_EQ(parse(text, NULL), 0);
	CHECK(m.kind == OCI_INDEX && m.chosen.size == 2);
	CHECK_STR(m.chosen.digest, D2);
	CHECK_EQ(parse(HEAD "\"manifests\":[{\"mediaType\":\"x\",\"digest\":\"" D1
			    "\",\"size\":1,\"platform\":{\"os\":\"linux\",\"architecture\":\"s390x\"}}]}",
		       NULL),
		 -ENOENT);
}

TEST(a_layout_leads_to_the_image_that_is_named_or_to_the_only_one)
{
#define ONE(d, name)                                                                                                   \
	"{\"mediaType\":\"x\",\"digest\":\"" d                                                                         \
	"\",\"size\":1,\"annotations\":{\"org.opencontainers.image.ref.name\":\"" name "\"}}"
	CHECK_EQ(parse(HEAD "\"manifests\":[" ONE(D1, "a") "]}", NULL), 0);
	CHECK_STR(m.chosen.digest, D1);
	CHECK(parse(HEAD "\"manifests\":[" ONE(D1, "a") "," ONE(D2, "b") "]}", NULL) < 0);
	CHECK_EQ(parse(HEAD "\"manifests\":[" ONE(D1, "a") "," ONE(D2, "b") "]}", "b"), 0);
	CHECK_STR(m.chosen.digest, D2);
	CHECK_EQ(parse(HEAD "\"manifests\":[" ONE(D1, "a") "]}", "c"), -ENOENT);
}

TEST(what_lies_or_is_of_another_kind_is_refused)
{
	static const char *const bad[] = {
		"",
		"[]",
		"{}",
		"{\"schemaVersion\":1}",
		HEAD "\"schemaVersion\":2}",
		HEAD "\"layers\":[]}",
		HEAD CONFIG "}",
		HEAD CONFIG ",\"layers\":{}}",
		HEAD CONFIG ",\"layers\":[1]}",
		HEAD CONFIG ",\"layers\":[],\"manifests\":[]}",
		HEAD CONFIG ",\"layers\":[" LAYER("text/plain", "") "]}",
		HEAD CONFIG ",\"layers\":[" LAYER(OCI_TYPE_LAYER, ",\"urls\":[\"http://x\"]") "]}",
		HEAD "\"config\":{\"mediaType\":\"application/vnd.oci.empty.v1+json\",\"digest\":\"" D1
		     "\",\"size\":2},\"layers\":[]}",
		HEAD "\"config\":{\"mediaType\":\"" OCI_TYPE_CONFIG
		     "\",\"digest\":\"sha256:1\",\"size\":2},\"layers\":[]}",
		HEAD "\"config\":{\"mediaType\":\"" OCI_TYPE_CONFIG "\",\"digest\":\"" D1
		     "\",\"size\":-2},\"layers\":[]}",
		HEAD "\"config\":{\"mediaType\":\"" OCI_TYPE_CONFIG "\",\"digest\":\"" D1
		     "\",\"size\":\"2\"},\"layers\":[]}",
	};
	struct err e = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		e = (struct err){ 0 };
		if (oci_manifest_parse(bad[i], strlen(bad[i]), NULL, &m, &e) == 0 || !e.msg[0])
			TEST_FAIL("accepted, or without a reason: %s", bad[i]);
	}
}

TEST(there_are_bounds)
{
	AUTO(buf_done) struct buf b = BUF_INIT(1 << 20);

	CHECK_EQ(buf_adds(&b, HEAD CONFIG ",\"layers\":["), 0);
	for (unsigned i = 0; i <= OCI_LAYERS_MAX; i++)
		CHECK_EQ(buf_addf(&b, "%s" LAYER(OCI_TYPE_LAYER, ""), i ? "," : ""), 0);
	CHECK_EQ(buf_adds(&b, "]}"), 0);
	CHECK_EQ(parse(b.data, NULL), -E2BIG);
	CHECK(oci_manifest_parse(b.data, OCI_MANIFEST_MAX + 1, NULL, &m, NULL) < 0);
}
