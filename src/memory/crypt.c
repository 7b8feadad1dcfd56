/* Encrypts the folder of a memory image. */
#include "memory/crypt.h"

#include <fcntl.h>
#include <linux/fscrypt.h>

#include "base/base.h"
#include "base/sys.h"

static int add_key(int dir, const uint8_t key[CRYPT_KEY], uint8_t ret_id[16])
{
	_Alignas(struct fscrypt_add_key_arg) uint8_t room[sizeof(struct fscrypt_add_key_arg) + CRYPT_KEY] = { 0 };
	struct fscrypt_add_key_arg *a = (struct fscrypt_add_key_arg *)(void *)room;
	int r;

	a->key_spec.type = FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER;
	a->raw_size = CRYPT_KEY;
	memcpy(a->raw, key, CRYPT_KEY);
	r = sys_ioctl(dir, FS_IOC_ADD_ENCRYPTION_KEY, a);
	memcpy(ret_id, a->key_spec.u.identifier, 16);
	explicit_bzero(room, sizeof(room));
	return r < 0 ? r : 0;
}

/* Only making an encrypted folder shows whether the file system can do it. */
static int try_folder(int dir, const struct crypt *c)
{
	static const char name[] = ".crypt-trial";
	AUTO_CLOSE int fd = -1;
	int r = sys_mkdirat(dir, name, 0700);

	if (r == -EEXIST)
		r = 0; /* left by a process that died */
	if (r == 0)
		r = fd = sys_openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (r >= 0)
		r = crypt_folder(c, fd);
	(void)sys_unlinkat(dir, name, AT_REMOVEDIR);
	return r;
}

int crypt_open(int dir, const uint8_t (*key)[CRYPT_KEY], unsigned n, struct crypt *ret, struct err *e)
{
	struct crypt c = { 0 };
	int r = n && n <= CRYPT_KEYS_MAX ? 0 : -EINVAL;

	for (; r == 0 && c.n < n; c.n++)
		r = add_key(dir, key[c.n], c.id[c.n]);
	if (r == 0)
		r = try_folder(dir, &c);
	if (r == -ENOTTY || r == -EOPNOTSUPP || r == -ENOSYS)
		return err_advise(
			e, ERR_UNSUPPORTED, r,
			"enable it (ext4: `tune2fs -O encrypt DEVICE`), or set `layers` to a folder on a file system that supports it",
			"encrypt_memory: the file system of the layers has no encryption");
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "encrypt_memory: prepare the folder of the layers");
	*ret = c;
	return 0;
}

void crypt_close(struct crypt *c, int dir)
{
	while (c->n) {
		struct fscrypt_remove_key_arg a = { .key_spec.type = FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER };

		memcpy(a.key_spec.u.identifier, c->id[--c->n], sizeof(c->id[0]));
		/* files that are in use stay readable until they are closed */
		(void)sys_ioctl(dir, FS_IOC_REMOVE_ENCRYPTION_KEY, &a);
	}
}

int crypt_folder(const struct crypt *c, int folder)
{
	struct fscrypt_policy_v2 p = { .version = FSCRYPT_POLICY_V2,
				       .contents_encryption_mode = FSCRYPT_MODE_AES_256_XTS,
				       .filenames_encryption_mode = FSCRYPT_MODE_AES_256_CTS,
				       .flags = FSCRYPT_POLICY_FLAGS_PAD_32 };
	int r;

	if (!c || !c->n)
		return 0;
	memcpy(p.master_key_identifier, c->id[0], sizeof(c->id[0]));
	r = sys_ioctl(folder, FS_IOC_SET_ENCRYPTION_POLICY, &p);
	return r < 0 ? r : 0;
}

bool crypt_locked(int dir, const char *name)
{
	AUTO_CLOSE int fd = sys_openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	struct fscrypt_get_policy_ex_arg p = { .policy_size = sizeof(p.policy) };
	struct fscrypt_get_key_status_arg k = { .key_spec.type = FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER };

	if (fd < 0 || sys_ioctl(fd, FS_IOC_GET_ENCRYPTION_POLICY_EX, &p) < 0 || p.policy.version != FSCRYPT_POLICY_V2)
		return false;
	memcpy(k.key_spec.u.identifier, p.policy.v2.master_key_identifier, sizeof(k.key_spec.u.identifier));
	return sys_ioctl(fd, FS_IOC_GET_ENCRYPTION_KEY_STATUS, &k) >= 0 && k.status != FSCRYPT_KEY_STATUS_PRESENT;
}
