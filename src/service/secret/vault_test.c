#include "service/secret/vault.h"
#include "base/base.h"
#include "base/test.h"

#include <sys/stat.h>
#include <unistd.h>

static const struct vault_name name = { "default", "KEY", 3 };

static void folder(char out[64])
{
	snprintf(out, 64, "/tmp/cloche-vault-XXXXXX");
	if (!mkdtemp(out))
		abort();
}

static void path_in(const char *dir, const char *file, char out[128])
{
	snprintf(out, 128, "%s/%s", dir, file);
}

static void remove_all(const char *dir)
{
	char path[128];

	path_in(dir, "secrets.key", path);
	unlink(path);
	path_in(dir, "secrets.key.old", path);
	unlink(path);
	path_in(dir, "secrets.salt", path);
	unlink(path);
	rmdir(dir);
}

TEST(what_was_sealed_opens_as_it_was_and_only_as_what_it_is)
{
	const struct vault_name other[] = { { "default", "KEY", 4 }, { "default", "KEX", 3 }, { "defaulu", "KEY", 3 } };
	AUTO(vault_wipe) struct buf sealed = BUF_INIT(MIB), again = BUF_INIT(MIB), plain = BUF_INIT(MIB);
	AUTO(vault_free) struct vault *v = NULL;
	struct err e = { 0 };
	char dir[64];

	folder(dir);
	CHECK_EQ(vault_new(&(struct vault_opts){ .data = dir }, &v, &e), 0);
	CHECK_EQ(vault_seal(v, &name, "a value", 7, &sealed, &e), 0);
	CHECK_EQ(sealed.len, 7 + VAULT_OVERHEAD);
	CHECK(!memmem(sealed.data, sealed.len, "value", 5));
	CHECK_EQ(vault_seal(v, &name, "a value", 7, &again, &e), 0);
	CHECK(memcmp(sealed.data, again.data, sealed.len) != 0);
	CHECK_EQ(vault_open(v, &name, sealed.data, sealed.len, &plain, &e), 0);
	CHECK_STR(buf_str(&plain), "a value");
	buf_clear(&plain);
	for (size_t i = 0; i < ARRAY_LEN(other); i++)
		CHECK_EQ(vault_open(v, &other[i], sealed.data, sealed.len, &plain, &e), -EBADMSG);
	CHECK_CONTAINS(e.msg, "KEY");
	for (size_t i = 0; i < sealed.len; i++) {
		sealed.data[i] ^= 1;
		CHECK_EQ(vault_open(v, &name, sealed.data, sealed.len, &plain, &e), -EBADMSG);
		sealed.data[i] ^= 1;
	}
	CHECK_EQ(vault_open(v, &name, sealed.data, sealed.len - 1, &plain, &e), -EBADMSG);
	CHECK_EQ(vault_open(v, &name, sealed.data, 3, &plain, &e), -EBADMSG);
	CHECK_EQ(plain.len, 0);
	remove_all(dir);
}

TEST(keys_of_memory_images_are_of_the_vaults_key_and_those_of_before)
{
	uint8_t key[VAULT_MEMORY_KEYS][VAULT_KEY], again[VAULT_MEMORY_KEYS][VAULT_KEY], old[VAULT_KEY] = { 9 };
	struct vault_opts o = { 0 };
	struct vault *v = NULL;
	struct err e = { 0 };
	char dir[64];

	folder(dir);
	o.data = dir;
	CHECK_EQ(vault_new(&o, &v, &e), 0);
	CHECK_EQ(vault_memory_keys(v, key, &e), 1);
	vault_free(v);
	o.given = old;
	o.given_len = sizeof(old);
	CHECK_EQ(vault_new(&o, &v, &e), 0);
	CHECK_EQ(vault_memory_keys(v, again, &e), 2); /* the file's is one of before now */
	vault_free(v);
	CHECK(!memcmp(again[1], key[0], VAULT_KEY));
	CHECK(memcmp(again[0], key[0], VAULT_KEY) && memcmp(again[0], old, VAULT_KEY));
	remove_all(dir);
}

TEST(the_key_is_made_once_and_is_nobody_elses)
{
	AUTO(vault_wipe) struct buf sealed = BUF_INIT(MIB), plain = BUF_INIT(MIB);
	struct vault *v = NULL;
	struct err e = { 0 };
	char dir[64], path[128];
	struct stat st;

	folder(dir);
	path_in(dir, "secrets.key", path);
	CHECK_EQ(vault_new(&(struct vault_opts){ .data = dir }, &v, &e), 0);
	CHECK(stat(path, &st) < 0); /* no key was needed yet */
	CHECK_EQ(vault_seal(v, &name, "value", 5, &sealed, &e), 0);
	vault_free(v);
	CHECK_EQ(stat(path, &st), 0);
	CHECK_EQ(st.st_mode & 07777, 0600);
	CHECK_EQ(st.st_size, 32);
	CHECK_EQ(vault_new(&(struct vault_opts){ .data = dir }, &v, &e), 0);
	CHECK_EQ(vault_open(v, &name, sealed.data, sealed.len, &plain, &e), 0);
	vault_free(v);
	/* Others could have read it. */
	CHECK_EQ(chmod(path, 0640), 0);
	CHECK_EQ(vault_new(&(struct vault_opts){ .data = dir }, &v, &e), 0);
	CHECK_EQ(vault_open(v, &name, sealed.data, sealed.len, &plain, &e), -EPERM);
	CHECK_CONTAINS(e.msg, "secrets.key");
	CHECK_EQ(vault_seal(v, &name, "value", 5, &sealed, &e), -EPERM);
	vault_free(v);
	/* Cut short. */
	CHECK_EQ(chmod(path, 0600), 0);
	CHECK_EQ(truncate(path, 31), 0);
	CHECK_EQ(vault_new(&(struct vault_opts){ .data = dir }, &v, &e), 0);
	CHECK_EQ(vault_seal(v, &name, "value", 5, &sealed, &e), -EBADMSG);
	/* Gone: a new one would only hide that. */
	CHECK_EQ(unlink(path), 0);
	vault_in_use(v);
	CHECK_EQ(vault_seal(v, &name, "value", 5, &sealed, &e), -ENOKEY);
	CHECK(stat(path, &st) < 0);
	vault_free(v);
	remove_all(dir);
}

TEST(a_key_or_passphrase_from_outside_is_all_there_is)
{
	static const uint8_t key[32] = { 1, 2, 3 }, other[32] = { 1, 2, 4 };
	static const char pass[] = "correct horse battery staple\n", wrong[] = "correct horse battery stable\n";
	const struct vault_opts good[] = { { .given = key, .given_len = 32 },
					   { .given = pass, .given_len = sizeof(pass) - 1 } };
	const struct vault_opts bad[] = { { .given = other, .given_len = 32 },
					  { .given = wrong, .given_len = sizeof(wrong) - 1 } };
	struct err e = { 0 };
	char dir[64], path[128];
	struct stat st;

	folder(dir);
	path_in(dir, "secrets.key", path);
	for (size_t i = 0; i < 2; i++) {
		AUTO(vault_wipe) struct buf sealed = BUF_INIT(MIB), plain = BUF_INIT(MIB);
		struct vault_opts o = good[i], x = bad[i];
		struct vault *v = NULL;

		o.data = x.data = dir;
		CHECK_EQ(vault_new(&o, &v, &e), 0);
		CHECK_EQ(vault_seal(v, &name, "value", 5, &sealed, &e), 0);
		vault_free(v);
		CHECK_EQ(vault_new(&o, &v, &e), 0);
		CHECK_EQ(vault_open(v, &name, sealed.data, sealed.len, &plain, &e), 0);
		vault_free(v);
		CHECK_EQ(vault_new(&x, &v, &e), 0);
		CHECK_EQ(vault_open(v, &name, sealed.data, sealed.len, &plain, &e), -EBADMSG);
		CHECK_CONTAINS(e.remedy, "secrets_key_command");
		vault_free(v);
	}
	CHECK(stat(path, &st) < 0);
	{
		struct vault *v = NULL;

		CHECK_EQ(vault_new(&(struct vault_opts){ .data = dir, .given = "short\n", .given_len = 6 }, &v, &e),
			 -EINVAL);
		CHECK(!v);
	}
	remove_all(dir);
}

TEST(a_key_of_before_opens_what_is_sealed_again_until_it_is_forgotten)
{
	static const char first[] = "correct horse battery staple", then[] = "another horse battery staple";
	AUTO(vault_wipe) struct buf sealed = BUF_INIT(MIB), again = BUF_INIT(MIB), plain = BUF_INIT(MIB);
	const struct vault_name unknown = { "default", "KEY", 4 };
	struct vault *v = NULL;
	struct err e = { 0 };
	char dir[64], path[128], old[128];

	folder(dir);
	path_in(dir, "secrets.key", path);
	path_in(dir, "secrets.key.old", old);
	CHECK_EQ(vault_new(&(struct vault_opts){ .data = dir }, &v, &e), 0);
	CHECK_EQ(vault_seal(v, &name, "value", 5, &sealed, &e), 0);
	CHECK(!vault_has_old(v));
	vault_free(v);
	/* From a file to another: which is not made for what the old one cannot open either. */
	CHECK_EQ(rename(path, old), 0);
	CHECK_EQ(vault_new(&(struct vault_opts){ .data = dir }, &v, &e), 0);
	vault_in_use(v);
	CHECK_EQ(vault_open(v, &unknown, sealed.data, sealed.len, &plain, &e), -ENOKEY);
	CHECK_EQ(vault_seal(v, &name, "value", 5, &again, &e), -ENOKEY);
	CHECK_EQ(vault_open(v, &name, sealed.data, sealed.len, &plain, &e), 0);
	CHECK(vault_has_old(v) && vault_opened_old(v));
	CHECK_EQ(vault_seal(v, &name, plain.data, plain.len, &again, &e), 0);
	buf_clear(&plain);
	CHECK_EQ(vault_open(v, &name, again.data, again.len, &plain, &e), 0);
	CHECK_STR(buf_str(&plain), "value");
	CHECK(!vault_opened_old(v));
	vault_settle(v);
	CHECK_EQ(vault_open(v, &name, sealed.data, sealed.len, &plain, &e), -EBADMSG);
	vault_free(v);
	/* One that others can read is none. */
	CHECK_EQ(chmod(old, 0644), 0);
	CHECK_EQ(vault_new(&(struct vault_opts){ .data = dir }, &v, &e), -EPERM);
	CHECK_CONTAINS(e.msg, "secrets.key.old");
	CHECK_EQ(unlink(old), 0);
	/* To a command, and to another one. */
	CHECK_EQ(vault_new(&(struct vault_opts){ .data = dir, .given = first, .given_len = sizeof(first) - 1 }, &v, &e),
		 0);
	CHECK_EQ(vault_open(v, &name, again.data, again.len, &plain, &e), 0);
	CHECK(vault_opened_old(v));
	buf_clear(&sealed);
	CHECK_EQ(vault_seal(v, &name, "value", 5, &sealed, &e), 0);
	vault_free(v);
	CHECK_EQ(unlink(path), 0);
	CHECK_EQ(vault_new(&(struct vault_opts){ .data = dir,
						 .given = then,
						 .given_len = sizeof(then) - 1,
						 .old = first,
						 .old_len = sizeof(first) - 1 },
			   &v, &e),
		 0);
	CHECK_EQ(vault_open(v, &name, sealed.data, sealed.len, &plain, &e), 0);
	CHECK(vault_opened_old(v));
	vault_free(v);
	remove_all(dir);
}
