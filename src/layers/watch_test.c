#include "layers/watch.h"
#include "base/base.h"
#include "base/test.h"
#include "layers/tree.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char id[] = "0000aaaaaaaaaaaaaaaaaaaa";
static char store_path[64];

/* Makes a store with one layer: a file in a nested folder, and a manifest. */
static int make_store(void)
{
	int dir, fd;

	snprintf(store_path, sizeof(store_path), "/var/tmp/cloche-watch-XXXXXX");
	if (!mkdtemp(store_path) || (dir = open(store_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		return -1;
	if (mkdirat(dir, id, 0700) < 0 || mkdirat(dir, "0000aaaaaaaaaaaaaaaaaaaa/fs", 0700) < 0 ||
	    mkdirat(dir, "0000aaaaaaaaaaaaaaaaaaaa/fs/u", 0700) < 0)
		return -1;
	fd = openat(dir, "0000aaaaaaaaaaaaaaaaaaaa/fs/u/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, "one", 3) != 3 || close(fd) < 0)
		return -1;
	fd = openat(dir, "0000aaaaaaaaaaaaaaaaaaaa/manifest", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	return fd < 0 || close(fd) < 0 ? -1 : dir;
}

static void change_byte(int dir)
{
	AUTO_CLOSE int fd = openat(dir, "0000aaaaaaaaaaaaaaaaaaaa/fs/u/f", O_WRONLY | O_CLOEXEC);

	CHECK_EQ(pwrite(fd, "O", 1, 0), 1);
}

static void change_mode(int dir)
{
	CHECK_EQ(fchmodat(dir, "0000aaaaaaaaaaaaaaaaaaaa/fs/u/f", 0640, 0), 0);
}

static void add_name(int dir)
{
	CHECK_EQ(symlinkat("f", dir, "0000aaaaaaaaaaaaaaaaaaaa/fs/u/l"), 0);
}

static void rename_file(int dir)
{
	CHECK_EQ(renameat(dir, "0000aaaaaaaaaaaaaaaaaaaa/fs/u/l", dir, "0000aaaaaaaaaaaaaaaaaaaa/fs/m"), 0);
}

static void remove_file(int dir)
{
	CHECK_EQ(unlinkat(dir, "0000aaaaaaaaaaaaaaaaaaaa/fs/u/f", 0), 0);
}

static void remove_folder(int dir)
{
	CHECK_EQ(unlinkat(dir, "0000aaaaaaaaaaaaaaaaaaaa/fs/u", AT_REMOVEDIR), 0);
}

TEST(whatever_is_changed_is_told_until_it_is_watched_anew)
{
	static void (*const changes[])(int dir) = { change_byte, change_mode, add_name,
						    rename_file, remove_file, remove_folder };
	AUTO_CLOSE int dir = make_store();
	struct watch *w = watch_new(0);
	char text[4];

	CHECK(dir >= 0 && w);
	CHECK_EQ(watch_look(w, id), WATCH_BLIND);
	for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
		watch_layer(w, dir, id);
		CHECK_EQ(watch_look(w, id), WATCH_QUIET);
		changes[i](dir);
		CHECK_EQ(watch_look(w, id), WATCH_TOUCHED);
		CHECK_EQ(watch_look(w, id), WATCH_TOUCHED);
	}
	watch_layer(w, dir, id);
	{
		AUTO_CLOSE int fd = openat(dir, "0000aaaaaaaaaaaaaaaaaaaa/manifest", O_RDONLY | O_CLOEXEC);

		CHECK_EQ(read(fd, text, sizeof(text)), 0);
	}
	CHECK_EQ(watch_look(w, id), WATCH_QUIET); /* reading changes nothing */
	watch_forget(w, id);
	CHECK_EQ(watch_look(w, id), WATCH_BLIND);
	watch_expected(w, dir, id);
	CHECK_EQ(watch_look(w, id), WATCH_BLIND); /* it was never watched */
	watch_expect(w, id);
	CHECK_EQ(watch_look(w, id), WATCH_QUIET);
	watch_expected(w, dir, id);
	CHECK_EQ(unlinkat(dir, "0000aaaaaaaaaaaaaaaaaaaa/manifest", 0), 0);
	CHECK_EQ(watch_look(w, id), WATCH_TOUCHED);
	watch_layer(w, dir, "0000bbbbbbbbbbbbbbbbbbbb");
	CHECK_EQ(watch_look(w, "0000bbbbbbbbbbbbbbbbbbbb"), WATCH_BLIND); /* there is no such layer */
	watch_free(w);
	watch_free(NULL);
	CHECK_EQ(tree_remove(dir, id), 0);
	CHECK_EQ(rmdir(store_path), 0);
}

/* A layer of many folders must not take the watches of all other layers, or of the host. */
TEST(where_watches_are_few_the_layer_of_the_most_folders_goes_without)
{
	static const char many[] = "0000cccccccccccccccccccc";
	AUTO_CLOSE int dir = make_store();
	struct watch *w = watch_new(6);
	char path[64];

	CHECK(dir >= 0 && w);
	for (int i = 0; i < 5; i++) {
		snprintf(path, sizeof(path), i ? "%s/%d" : "%s", many, i);
		CHECK_EQ(mkdirat(dir, path, 0700), 0);
	}
	watch_layer(w, dir, many);
	CHECK_EQ(watch_look(w, many), WATCH_QUIET);
	watch_layer(w, dir, id);
	CHECK_EQ(watch_look(w, id), WATCH_QUIET);
	CHECK_EQ(watch_look(w, many), WATCH_BLIND);
	/* Repeated, since no layer may take another's place, and no places may be lost. */
	for (int i = 0; i < 3; i++) {
		watch_layer(w, dir, many);
		CHECK_EQ(watch_look(w, many), WATCH_BLIND);
		CHECK_EQ(watch_look(w, id), WATCH_QUIET);
	}
	change_byte(dir);
	CHECK_EQ(watch_look(w, id), WATCH_TOUCHED);
	watch_forget(w, id);
	watch_layer(w, dir, many);
	CHECK_EQ(watch_look(w, many), WATCH_QUIET);
	watch_free(w);
	CHECK_EQ(tree_remove(dir, id), 0);
	CHECK_EQ(tree_remove(dir, many), 0);
	CHECK_EQ(rmdir(store_path), 0);
}
