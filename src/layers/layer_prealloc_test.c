#include "layers/layer_prealloc.h"
#include "base/base.h"
#include "base/test.h"
#include "layers/flush.h"
#include "layers/manifest.h"
#include "layers/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char store[64];

static int make_store(void)
{
	snprintf(store, sizeof(store), "/var/tmp/cloche-prealloc-test-XXXXXX");
	return mkdtemp(store) ? open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

/* Counts the names in a folder; and how many of those are made ahead. */
static unsigned names(int dir, unsigned *ready)
{
	DIR *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	const struct dirent *x;
	unsigned n = 0;

	*ready = 0;
	while (d && (x = readdir(d))) {
		n += x->d_name[0] != '.';
		*ready += !strncmp(x->d_name, LAYER_PREALLOC_PREFIX, strlen(LAYER_PREALLOC_PREFIX));
	}
	if (d)
		closedir(d);
	return n;
}

static void item_done(struct layer_prealloc_item *x)
{
	flush_free(x->flush);
	free(x->buf);
	close(x->manifest);
	close(x->fs);
	close(x->tmp);
}

static bool is_at(int dir, const char *path, int fd)
{
	struct stat a, b;

	return fstatat(dir, path, &a, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &b) == 0 && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

TEST(each_is_taken_once_as_a_layer_begins_and_what_is_not_goes)
{
	AUTO_CLOSE int dir = make_store();
	struct layer_prealloc *s = layer_prealloc_new(dir);
	struct layer_prealloc_item x;
	struct stat st;
	unsigned ready;

	CHECK(dir >= 0 && s);
	CHECK(!layer_prealloc_take(s, "a.tmp", &x) && names(dir, &ready) == 0);
	for (unsigned i = 0; i < 2; i++) {
		const char *name = i ? "b.tmp" : "a.tmp";
		char path[32];

		layer_prealloc_fill(s);
		layer_prealloc_fill(s);
		CHECK(names(dir, &ready) == i + 1 && ready == 1);
		CHECK(layer_prealloc_take(s, name, &x) && names(dir, &ready) == i + 1 && ready == 0);
		CHECK(!layer_prealloc_take(s, "c.tmp", &(struct layer_prealloc_item){ 0 }));
		snprintf(path, sizeof(path), "%s/fs", name);
		CHECK(is_at(dir, name, x.tmp) && is_at(dir, path, x.fs));
		snprintf(path, sizeof(path), "%s/manifest", name);
		CHECK(is_at(dir, path, x.manifest) && fstat(x.manifest, &st) == 0 &&
		      st.st_size == sizeof(struct manifest));
		CHECK(names(x.tmp, &ready) == 2 && names(x.fs, &ready) == 0 && x.buf && x.flush);
		item_done(&x);
	}
	layer_prealloc_fill(s);
	layer_prealloc_free(s);
	CHECK(names(dir, &ready) == 2 && ready == 0);
	CHECK(tree_remove(AT_FDCWD, store) == 0);
	layer_prealloc_free(NULL);
	layer_prealloc_fill(NULL);
	CHECK(!layer_prealloc_take(NULL, "a", &x));
}

TEST(a_name_that_is_there_stays_and_where_none_can_be_made_none_is_given)
{
	AUTO_CLOSE int dir = make_store();
	struct layer_prealloc *s = layer_prealloc_new(dir);
	struct layer_prealloc_item x;
	unsigned ready;

	CHECK(dir >= 0 && s && mkdirat(dir, "a.tmp", 0700) == 0);
	layer_prealloc_fill(s);
	CHECK(!layer_prealloc_take(s, "a.tmp", &x) && names(dir, &ready) == 1 && ready == 0);
	layer_prealloc_fill(s);
	CHECK(layer_prealloc_take(s, "b.tmp", &x));
	item_done(&x);
	CHECK(tree_remove(AT_FDCWD, store) == 0);
	layer_prealloc_fill(s);
	CHECK(!layer_prealloc_take(s, "a.tmp", &x));
	layer_prealloc_free(s);
}
