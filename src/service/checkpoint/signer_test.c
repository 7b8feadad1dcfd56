#include "service/checkpoint/signer.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/test.h"

static struct signer *made(const char *folder, const char *trusted)
{
	struct signer *s = NULL;
	struct err e = { 0 };

	if (signer_new(folder, &trusted, trusted ? 1 : 0, &s, &e) < 0)
		printf("# %s\n", e.msg);
	return s;
}

static void sweep(const char *folder)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/export.key", folder);
	unlink(path);
	rmdir(folder);
}

TEST(what_was_signed_is_known_again_and_nothing_else_is)
{
	char folder[] = "/tmp/cloche-signer-XXXXXX", key[SIGNER_TEXT], again[SIGNER_TEXT], path[64];
	uint8_t sum[32] = { 1, 2, 3 }, block[SIGNER_BLOCK];
	struct signer *s, *other;
	struct err e = { 0 };
	struct stat st;

	CHECK(mkdtemp(folder));
	s = made(folder, NULL);
	CHECK_EQ(signer_sign(s, sum, block, &e), 0);
	CHECK_EQ(signer_public(s, key, &e), 0);
	CHECK_EQ(signer_key_ok(key), 0);
	CHECK(signer_is_block(block));
	CHECK_EQ(signer_check(s, block, sum, again, &e), 0);
	CHECK_STR(again, key);
	snprintf(path, sizeof(path), "%s/export.key", folder);
	CHECK_EQ(stat(path, &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0600);
	/* The next start finds the same key. */
	other = made(folder, NULL);
	CHECK_EQ(signer_check(other, block, sum, again, &e), 0);
	signer_free(other);
	for (unsigned i = 0; i < sizeof(block); i++) {
		block[i] ^= 1;
		CHECK_EQ(signer_check(s, block, sum, again, &e), -EKEYREJECTED);
		block[i] ^= 1;
	}
	sum[31] ^= 1;
	CHECK_EQ(signer_check(s, block, sum, again, &e), -EKEYREJECTED);
	CHECK_CONTAINS(e.msg, "does not match");
	signer_free(s);
	sweep(folder);
}

TEST(a_stranger_s_signature_is_good_when_its_key_is_trusted)
{
	char folder[] = "/tmp/cloche-signer-XXXXXX", empty[] = "/tmp/cloche-signer-XXXXXX", key[SIGNER_TEXT];
	uint8_t sum[32] = { 7 }, block[SIGNER_BLOCK];
	struct signer *s, *other;
	struct err e = { 0 };

	CHECK(mkdtemp(folder) && mkdtemp(empty));
	s = made(folder, NULL);
	CHECK_EQ(signer_sign(s, sum, block, &e), 0);
	other = made(empty, NULL);
	CHECK_EQ(signer_check(other, block, sum, key, &e), -ENOKEY);
	CHECK_CONTAINS(e.msg, key);
	signer_free(other);
	other = made(empty, key);
	CHECK_EQ(signer_check(other, block, sum, key, &e), 0);
	signer_free(other);
	signer_free(s);
	sweep(folder);
	sweep(empty); /* nothing was made there */
}

TEST(what_is_no_key_is_not_taken)
{
	CHECK_EQ(signer_key_ok("ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="), 0);
	CHECK_EQ(signer_key_ok("ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="), -EINVAL);
	CHECK_EQ(signer_key_ok("ed25519:AAAA"), -EINVAL);
	CHECK_EQ(signer_key_ok("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="), -EINVAL);
	CHECK_EQ(signer_key_ok(""), -EINVAL);
}
