/* Digests and chain ids, against values that other programs have computed. */
#include "oci/digest.h"
#include "base/base.h"
#include "base/test.h"

#define EMPTY "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

TEST(a_digest_is_sha256_in_lower_case)
{
	char text[OCI_DIGEST_SIZE];

	oci_digest_of("", 0, text);
	CHECK_STR(text, EMPTY);
	CHECK(oci_digest_ok(EMPTY) && !oci_digest_ok("sha256:00") && !oci_digest_ok("") && !oci_digest_ok(EMPTY "0"));
	CHECK(!oci_digest_ok("SHA256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
	CHECK(!oci_digest_ok("sha256:E3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
}

TEST(a_chain_id_is_of_the_parents_and_the_diff_id)
{
	char text[OCI_DIGEST_SIZE];

	oci_chain_id("", EMPTY, text);
	CHECK_STR(text, EMPTY);
	oci_chain_id(EMPTY, EMPTY, text);
	/* printf '%s %s' EMPTY EMPTY | sha256sum */
	CHECK_STR(text, "sha256:de9d9016b852e46e9f3973e20d3a6d17e120f7144931d50cd6e2a8ad53e81960");
}
