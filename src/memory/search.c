/*
 * Finds a name for a file of which only the number is known: a watched file (inotify), or one whose name is gone while
 * it has others. All folders of the sandbox are searched, small ones first, for all such files at once.
 */
#include "memory/search.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENTRIES_MAX 1000000U
#define SECONDS_MAX 5ULL
#ifndef AT_HANDLE_FID
#define AT_HANDLE_FID 0x200
#endif

struct walk {
	const struct dump *d;
	struct wanted *want;
	size_t n, left;
	char **queue; /* folders that are still to be searched */
	size_t first, end, room;
	uint32_t entries;
	uint64_t until;
};

/* Compares file handles, by which the kernel itself identifies files, where the filesystem has them. */
bool search_same(const struct wanted *w, int dir, const char *name)
{
	struct {
		uint32_t bytes;
		int32_t type;
		uint8_t f[128];
	} h = { .bytes = sizeof(h.f) };
	int mount;

	if (!w->handle_len)
		return true;
	if (syscall(SYS_name_to_handle_at, dir, name, &h, &mount, AT_HANDLE_FID | (*name ? 0 : AT_EMPTY_PATH)) < 0)
		return false;
	return h.type == w->handle_type && h.bytes == w->handle_len && !memcmp(h.f, w->handle, h.bytes);
}

static void look(struct walk *k, int dir, const char *name, const char *path, dev_t folder, const struct stat *st)
{
	for (size_t i = 0; i < k->n; i++) {
		struct wanted *w = &k->want[i];

		/* The number of a file's device may be a layer's own; its folder's is the filesystem's. */
		if (w->path || w->ino != st->st_ino ||
		    (w->dev != st->st_dev && (S_ISDIR(st->st_mode) || w->dev != folder)) || !search_same(w, dir, name))
			continue;
		w->path = strdup(path);
		w->st = *st;
		k->left -= w->path != NULL;
	}
}

static int push(struct walk *k, const char *path)
{
	if (k->end == k->room) {
		size_t room = k->room ? k->room * 2 : 256;
		char **more = reallocarray(k->queue, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		k->queue = more;
		k->room = room;
	}
	k->queue[k->end] = strdup(path);
	return k->queue[k->end++] ? 0 : -ENOMEM;
}

static bool skipped(const char *path)
{
	return !strcmp(path, "/proc") || !strcmp(path, "/sys");
}

static int read_folder(struct walk *k, const char *path, bool deep)
{
	struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOATIME,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS };
	int fd = sys_openat2(k->d->root, path, &how), r = 0;
	struct stat folder, st;
	char at[MEM_PATH_MAX];
	struct dirent *de;
	DIR *dir;

	if (fd == -EPERM) {
		how.flags &= ~(uint64_t)O_NOATIME;
		fd = sys_openat2(k->d->root, path, &how);
	}
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		fd_close(fd);
		return 0;
	}
	if (fstat(fd, &folder) == 0)
		look(k, fd, "", path, folder.st_dev, &folder);
	while (r == 0 && k->left && (de = readdir(dir))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		if (++k->entries > ENTRIES_MAX || (!(k->entries & 1023) && clock_mono_ns() > k->until))
			r = -ETIMEDOUT;
		if (snprintf(at, sizeof(at), "%s/%s", path[1] ? path : "", de->d_name) >= (int)sizeof(at) ||
		    fstatat(fd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (!S_ISDIR(st.st_mode))
			look(k, fd, de->d_name, at, folder.st_dev, &st);
		else if (deep && !skipped(at))
			r = push(k, at);
	}
	closedir(dir);
	return r;
}

void search_names(const struct dump *d, struct wanted *want, size_t n, const char *hint)
{
	static const char *const small[] = { "/dev", "/etc", "/home", "/root", "/run",
					     "/srv", "/tmp", "/opt",  "/mnt",  "/var" };
	struct walk k = {
		.d = d, .want = want, .n = n, .left = n, .until = clock_mono_ns() + SECONDS_MAX * 1000000000ULL
	};
	char up[MEM_PATH_MAX];
	int r = 0;

	snprintf(up, sizeof(up), "%s", hint ? hint : "/");
	if (hint && strrchr(up, '/') > up) {
		*strrchr(up, '/') = '\0';
		read_folder(&k, up, false);
	}
	read_folder(&k, "/", false);
	for (size_t i = 0; i < ARRAY_LEN(small); i++)
		r = push(&k, small[i]);
	if (r == 0)
		r = push(&k, "/");
	while (r == 0 && k.left && k.first < k.end) {
		r = read_folder(&k, k.queue[k.first], true);
		free(TAKE_PTR(k.queue[k.first]));
		k.first++;
	}
	for (size_t i = k.first; i < k.end; i++)
		free(k.queue[i]);
	free(k.queue);
}
