/* A layer's manifest: reading and checking it. Computing its sums is in manifest_sum.c. */
#include "layers/manifest.h"
#include "base/base.h"
#include "base/id.h"
#include "base/sys.h"

#include <sys/stat.h>
#include <unistd.h>

const char manifest_magic[8] = "cloche-L";

const char *const layer_trees[LAYER_TREES] = { "u", "uu", "ud", "t", "k" };

void manifest_self(const struct manifest *m, uint8_t ret[SHA256_SIZE])
{
	struct sha256 s;

	sha256_init(&s);
	sha256_add(&s, m, offsetof(struct manifest, self));
	sha256_end(&s, ret);
}

static bool text_ok(const char *s, size_t size)
{
	return strnlen(s, size) < size;
}

int manifest_read(int dir, const char *id, struct manifest *ret)
{
	AUTO_CLOSE int fd = sys_openat(dir, "manifest", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	uint8_t self[SHA256_SIZE];
	struct manifest m;
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size != sizeof(m))
		return -EBADMSG;
	n = pread(fd, &m, sizeof(m), 0);
	if (n != (ssize_t)sizeof(m))
		return n < 0 ? -errno : -EBADMSG;
	if (m.version != MANIFEST_VERSION && m.version != (MANIFEST_VERSION | MANIFEST_UNSETTLED) &&
	    m.version != MANIFEST_VERSION_VM)
		return -EBADMSG;
	manifest_self(&m, self);
	if (memcmp(self, m.self, sizeof(self)) || memcmp(m.magic, manifest_magic, sizeof(manifest_magic)) ||
	    !text_ok(m.id, sizeof(m.id)) || strcmp(m.id, id) || !text_ok(m.parent, sizeof(m.parent)) ||
	    (m.parent[0] && !id_valid(m.parent)) || !text_ok(m.image, sizeof(m.image)))
		return -EBADMSG;
	*ret = m;
	return 0;
}

int manifest_is_made_of(const struct manifest *m, const struct manifest *given)
{
	struct manifest is = *m;
	uint8_t self[SHA256_SIZE];

	is.version = given->version;
	is.made = given->made;
	is.entries = given->entries;
	is.files = given->files;
	is.size = given->size;
	is.trees = given->trees;
	is.meta = given->meta;
	is.pages = given->pages;
	memcpy(is.magic, given->magic, sizeof(is.magic));
	memcpy(is.sum, given->sum, sizeof(is.sum));
	memcpy(is.meta_sum, given->meta_sum, sizeof(is.meta_sum));
	memcpy(is.pages_sum, given->pages_sum, sizeof(is.pages_sum));
	memcpy(is.self, given->self, sizeof(is.self));
	manifest_self(m, self);
	return memcmp(&is, given, sizeof(is)) || memcmp(self, m->self, sizeof(self)) ? -EPROTO : 0;
}
