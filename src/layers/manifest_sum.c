/* Computing and writing the manifest of a layer in the making, and verifying that a layer still matches its own. */
#include "layers/manifest.h"
#include "base/base.h"
#include "base/sys.h"
#include "layers/digests.h"
#include "layers/flush.h"
#include "layers/memory.h"
#include "layers/tree.h"

#include <sys/stat.h>
#include <unistd.h>

void manifest_seal(struct manifest *m)
{
	memcpy(m->magic, manifest_magic, sizeof(manifest_magic));
	manifest_self(m, m->self);
}

int manifest_make(int dir)
{
	AUTO_CLOSE int fd = sys_openat(dir, "manifest", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	static const struct manifest none;
	int r;

	if (fd < 0)
		return fd;
	r = fd_write_all(fd, &none, sizeof(none));
	return r < 0 ? r : TAKE_FD(fd);
}

int manifest_write(int fd, const struct manifest *m)
{
	ssize_t n = pwrite(fd, m, sizeof(*m), 0);

	return n == (ssize_t)sizeof(*m) ? flush_data(fd) : n < 0 ? -errno : -EIO;
}

int manifest_sum_files(int dir, const int *stop, const struct digests *known, struct manifest *m)
{
	AUTO_CLOSE int fs = sys_openat(dir, "fs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	AUTO_FREE char *buf = malloc(TREE_BUF);
	/* A machine's disks may also be linked into other layers, and their link count changes with those. */
	const struct tree_sum how = { stop, buf, known, manifest_of_machine(m), m->flags & SPEC_TIERS };
	struct tree_facts facts = { 0 };
	struct sha256 s;
	int r = 0;

	if (fs < 0 || !buf)
		return fs < 0 ? fs : -ENOMEM;
	sha256_init(&s);
	m->trees = 0;
	for (unsigned i = 0; r == 0 && i < LAYER_TREES; i++) {
		AUTO_CLOSE int tree =
			sys_openat(fs, layer_trees[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);

		if (tree == -ENOENT)
			continue;
		sha256_add(&s, layer_trees[i], strlen(layer_trees[i]) + 1);
		m->trees |= 1U << i;
		r = tree < 0 ? tree : tree_sum(&how, tree, &s, &facts);
	}
	if (r < 0)
		return r;
	m->entries = facts.entries;
	m->files = facts.files;
	m->size = facts.size;
	sha256_end(&s, m->sum);
	return 0;
}

int manifest_sum(int dir, const int *stop, const struct digests *known, struct manifest *m)
{
	int r = manifest_sum_files(dir, stop, known, m);

	return r == 0 ? memory_sum(dir, stop, m) : r;
}

int manifest_verify(int dir, const int *stop, const struct manifest *m)
{
	struct manifest is = *m;
	int r = manifest_sum(dir, stop, NULL, &is);

	return r < 0 ? r : memcmp(&is, m, sizeof(is)) ? -EBADMSG : 0;
}
