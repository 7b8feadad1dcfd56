/* Seals and opens the values of secrets. */
#include "service/secret/vault.h"
#include "base/base.h"
#include "base/sha256.h"

#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#define NONCE 12
#define TAG 16
#define SALT 16
#define PATH_ROOM 1200
#define OLD_MAX 3

struct vault {
	char path[PATH_ROOM];
	uint8_t key[VAULT_KEY];
	bool ready; /* the key is known */
	bool in_use;
	uint8_t old[OLD_MAX][VAULT_KEY];
	unsigned nold;
	bool opened_old; /* what was opened last */
	bool proven; /* something was: so a new key may be made, though it is in use */
};

void vault_wipe(struct buf *b)
{
	if (b->data)
		explicit_bzero(b->data, b->cap);
	buf_done(b);
}

/* --- files --- */

/* Exactly @size bytes, ours alone. -ENOENT without a word: it is not there. */
int vault_file_read(const char *path, void *to, size_t size, struct err *e)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	uint8_t more[1];
	struct stat st;
	int r = 0;

	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "open '%s'", path);
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077 || st.st_nlink != 1) {
		err_set(e, ERR_INTERNAL, -EPERM, "'%s' must belong to the daemon's user only (uid %u, mode %04o)", path,
			(unsigned)st.st_uid, (unsigned)st.st_mode & 07777);
		err_remedy(e, "chown it to uid %u and chmod it to 0600, if no other user has read it",
			   (unsigned)geteuid());
		return -EPERM;
	}
	if (read(fd, to, size) != (ssize_t)size || read(fd, more, 1) != 0) {
		r = err_set(e, ERR_INTERNAL, -EBADMSG, "'%s' must have %zu bytes", path, size);
		err_remedy(e, "restore the file that was made with this data folder");
	}
	return r;
}

/* On the disk before it is used: what is sealed with it would be lost otherwise. */
int vault_file_write(const char *path, const void *data, size_t size, struct err *e)
{
	char fresh[PATH_ROOM + 8], folder[PATH_ROOM];
	AUTO_CLOSE int fd = -1, dir = -1;
	char *slash;
	int r;

	snprintf(fresh, sizeof(fresh), "%s.new", path);
	snprintf(folder, sizeof(folder), "%s", path);
	slash = strrchr(folder, '/');
	if (slash)
		*slash = '\0';
	unlink(fresh); /* of one that died */
	fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	r = fd < 0 ? -errno : fd_write_all(fd, data, size);
	if (r == 0 && (fchmod(fd, 0600) < 0 || fsync(fd) < 0 || rename(fresh, path) < 0))
		r = -errno;
	if (r < 0) {
		unlink(fresh);
		return err_sys(e, ERR_INTERNAL, r, "make '%s'", path);
	}
	dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || fsync(dir) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "sync '%s'", folder);
	return 0;
}

/* --- the key --- */

static int stretch(const void *pass, size_t len, const uint8_t salt[SALT], uint8_t key[VAULT_KEY], struct err *e)
{
	if (EVP_PBE_scrypt(pass, len, salt, SALT, 1 << 15, 8, 1, 64 * MIB, key, VAULT_KEY) != 1)
		return err_set(e, ERR_INTERNAL, -EINVAL, "cannot derive a key from the passphrase");
	return 0;
}

static int key_given(const char *data, const char *who, const uint8_t *given, size_t len, uint8_t key[VAULT_KEY],
		     struct err *e)
{
	char path[PATH_ROOM];
	uint8_t salt[SALT];
	int r;

	if (len == VAULT_KEY) {
		memcpy(key, given, VAULT_KEY);
		return 0;
	}
	if (len && given[len - 1] == '\n')
		len--;
	if (len && given[len - 1] == '\r')
		len--;
	if (len < VAULT_PASSPHRASE_MIN || len > VAULT_GIVEN_MAX) {
		err_set(e, ERR_INVALID, -EINVAL, "%s printed %zu bytes", who, len);
		err_remedy(e,
			   "it must print %u bytes, the key, or a passphrase of %u to %u bytes, to its standard output",
			   VAULT_KEY, VAULT_PASSPHRASE_MIN, VAULT_GIVEN_MAX);
		return -EINVAL;
	}
	snprintf(path, sizeof(path), "%s/secrets.salt", data);
	r = vault_file_read(path, salt, sizeof(salt), e);
	if (r == -ENOENT) {
		r = RAND_bytes(salt, sizeof(salt)) == 1 ? vault_file_write(path, salt, sizeof(salt), e) :
							  err_set(e, ERR_INTERNAL, -EIO, "no random bytes");
	}
	return r < 0 ? r : stretch(given, len, salt, key, e);
}

/* Keys of before. One in a file that does not serve is an error; `secrets.key` beside a command may be anything. */
static int old_keys(struct vault *v, const struct vault_opts *o, struct err *e)
{
	char path[PATH_ROOM + 8];
	int r = 0;

	if (o->old)
		r = key_given(o->data, "secrets_old_key_command", o->old, o->old_len, v->old[v->nold], e);
	if (r == 0 && o->old)
		v->nold++;
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%s.old", v->path);
	r = vault_file_read(path, v->old[v->nold], VAULT_KEY, e);
	if (r < 0 && r != -ENOENT)
		return r;
	v->nold += r == 0;
	if (o->given && vault_file_read(v->path, v->old[v->nold], VAULT_KEY, NULL) == 0)
		v->nold++;
	return 0;
}

static int key_file(struct vault *v, bool make, struct err *e)
{
	int r = vault_file_read(v->path, v->key, VAULT_KEY, e);

	if (r == -ENOENT && (!make || (v->in_use && !v->proven))) {
		err_set(e, ERR_INTERNAL, -ENOKEY, "'%s', the key of all secrets, is missing", v->path);
		err_remedy(e, "restore it from a backup, or delete the secrets and set them again");
		return -ENOKEY;
	}
	if (r == -ENOENT) {
		r = RAND_priv_bytes(v->key, VAULT_KEY) == 1 ? 0 : err_set(e, ERR_INTERNAL, -EIO, "no random bytes");
		if (r == 0)
			r = vault_file_write(v->path, v->key, VAULT_KEY, e);
	}
	if (r < 0)
		explicit_bzero(v->key, sizeof(v->key));
	v->ready = r == 0;
	return r;
}

int vault_new(const struct vault_opts *o, struct vault **ret, struct err *e)
{
	AUTO(vault_free) struct vault *v = calloc(1, sizeof(*v));
	int r = 0;

	if (!v)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for the vault");
	if (snprintf(v->path, sizeof(v->path), "%s/secrets.key", o->data) >= (int)sizeof(v->path))
		return err_set(e, ERR_INVALID, -ENAMETOOLONG, "the data folder's name is too long");
	if (o->given) {
		r = key_given(o->data, "secrets_key_command", o->given, o->given_len, v->key, e);
		v->ready = r == 0;
	}
	if (r == 0)
		r = old_keys(v, o, e);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(v);
	return 0;
}

void vault_free(struct vault *v)
{
	if (!v)
		return;
	explicit_bzero(v, sizeof(*v));
	free(v);
}

void vault_in_use(struct vault *v)
{
	v->in_use = true;
}

bool vault_has_old(const struct vault *v)
{
	return v->nold > 0;
}

bool vault_opened_old(const struct vault *v)
{
	return v->opened_old;
}

void vault_settle(struct vault *v)
{
	explicit_bzero(v->old, sizeof(v->old));
	v->nold = 0;
	v->proven = v->opened_old = false;
}

static void memory_key(const uint8_t key[VAULT_KEY], uint8_t ret[VAULT_KEY])
{
	static const char context[] = "cloche memory images 1";
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, context, sizeof(context));
	sha256_add(&s, key, VAULT_KEY);
	sha256_end(&s, ret);
	explicit_bzero(&s, sizeof(s));
}

int vault_memory_keys(struct vault *v, uint8_t ret[VAULT_MEMORY_KEYS][VAULT_KEY], struct err *e)
{
	int r = v->ready ? 0 : key_file(v, true, e), n = 0;

	if (r < 0)
		return r;
	memory_key(v->key, ret[n++]);
	for (unsigned i = 0; i < v->nold && n < (int)VAULT_MEMORY_KEYS; i++)
		memory_key(v->old[i], ret[n++]);
	return n;
}

/* --- seal and open --- */

static void put_aad(const struct vault_name *n, char out[256], int *ret_len)
{
	/* Neither a tenant's nor a secret's name has a bar. */
	*ret_len = snprintf(out, 256, "cloche secret 1|%s|%s|%" PRIu64, n->tenant, n->name, n->version);
	assert(*ret_len < 256);
}

int vault_seal(struct vault *v, const struct vault_name *n, const void *value, size_t len, struct buf *ret,
	       struct err *e)
{
	EVP_CIPHER_CTX *c = NULL;
	char aad[256];
	uint8_t *to;
	int got = 0, aad_len, r = v->ready ? 0 : key_file(v, true, e);

	if (r < 0)
		return r;
	if (len > VAULT_VALUE_MAX)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "a secret must be at most %u KiB", VAULT_VALUE_MAX / 1024U);
	to = buf_room(ret, len + VAULT_OVERHEAD);
	c = EVP_CIPHER_CTX_new();
	put_aad(n, aad, &aad_len);
	if (!to || !c || RAND_bytes(to, NONCE) != 1 ||
	    EVP_EncryptInit_ex2(c, EVP_aes_256_gcm(), v->key, to, NULL) != 1 ||
	    EVP_EncryptUpdate(c, NULL, &got, (const uint8_t *)aad, aad_len) != 1 ||
	    EVP_EncryptUpdate(c, to + NONCE, &got, value, (int)len) != 1 || (size_t)got != len ||
	    EVP_EncryptFinal_ex(c, to + NONCE + len, &got) != 1 ||
	    EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, TAG, to + NONCE + len) != 1)
		r = err_set(e, ERR_INTERNAL, -EIO, "secret '%s' cannot be encrypted", n->name);
	else
		buf_added(ret, len + VAULT_OVERHEAD);
	EVP_CIPHER_CTX_free(c);
	return r;
}

static int does_not_open(const struct vault_name *n, struct err *e)
{
	err_set(e, ERR_INTERNAL, -EBADMSG, "secret '%s' of tenant '%s' (version %" PRIu64 ") cannot be decrypted",
		n->name, n->tenant, n->version);
	err_remedy(e, "it was encrypted with another key (secrets.key, secrets_key_command), or its row was changed: "
		      "set it again");
	return -EBADMSG;
}

/* Into @to, which has room for it. -EBADMSG: not with this key. */
static int open_with(const uint8_t key[VAULT_KEY], const struct vault_name *n, const uint8_t *from, size_t plain,
		     uint8_t *to)
{
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	uint8_t tag[TAG];
	char aad[256];
	int got = 0, aad_len, r = 0;

	put_aad(n, aad, &aad_len);
	memcpy(tag, from + NONCE + plain, TAG);
	if (!c)
		r = -ENOMEM;
	else if (EVP_DecryptInit_ex2(c, EVP_aes_256_gcm(), key, from, NULL) != 1 ||
		 EVP_DecryptUpdate(c, NULL, &got, (const uint8_t *)aad, aad_len) != 1 ||
		 EVP_DecryptUpdate(c, to, &got, from + NONCE, (int)plain) != 1 || (size_t)got != plain ||
		 EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, TAG, tag) != 1 ||
		 EVP_DecryptFinal_ex(c, to + plain, &got) != 1)
		r = -EBADMSG;
	if (r < 0)
		explicit_bzero(to, plain);
	EVP_CIPHER_CTX_free(c);
	return r;
}

int vault_open(struct vault *v, const struct vault_name *n, const void *sealed, size_t len, struct buf *ret,
	       struct err *e)
{
	size_t plain = len - VAULT_OVERHEAD;
	int missing = v->ready ? 0 : key_file(v, false, e), r = missing;
	uint8_t *to;

	v->opened_old = false;
	if (missing < 0 && !(missing == -ENOKEY && v->nold))
		return err_wrap(e, missing, "secret '%s'", n->name);
	if (len < VAULT_OVERHEAD || plain > VAULT_VALUE_MAX)
		return does_not_open(n, e);
	to = buf_room(ret, plain + 1);
	if (!to)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a secret");
	if (missing == 0)
		r = open_with(v->key, n, sealed, plain, to);
	for (unsigned i = 0; r < 0 && i < v->nold; i++) {
		r = open_with(v->old[i], n, sealed, plain, to);
		v->opened_old = r == 0;
		v->proven |= r == 0;
	}
	if (r == 0)
		buf_added(ret, plain);
	else if (missing < 0)
		return err_wrap(e, missing, "secret '%s'", n->name);
	return r < 0 ? does_not_open(n, e) : 0;
}
