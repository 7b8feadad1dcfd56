/* Walks through a tree of folders by descriptors, without recursion. */
#include "layers/walk.h"
#include "base/base.h"
#include "base/sys.h"

#include <sys/stat.h>

#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* An entry as getdents64() returns it. */
struct entry {
	uint64_t ino;
	int64_t off;
	uint16_t len;
	uint8_t type;
	char name[];
};

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int append(struct walk *w, struct walk_level *l, size_t *room, const char *name)
{
	size_t n = strlen(name) + 1;

	if (w->bytes + n > WALK_NAMES || ++w->entries > WALK_ENTRIES)
		return -E2BIG;
	if (l->bytes + n > *room) {
		size_t more = *room ? *room * 2 : 4096;
		char *text = realloc(l->text, more); /* a name has at most 256 bytes */

		if (!text)
			return -ENOMEM;
		l->text = text;
		*room = more;
	}
	memcpy(l->text + l->bytes, name, n);
	l->bytes += n;
	w->bytes += n;
	l->count++;
	return 0;
}

static int read_names(struct walk *w, struct walk_level *l)
{
	_Alignas(struct entry) char buf[32768];
	size_t room = 0;
	ssize_t n;
	int r = 0;

	while (r == 0 && (n = sys_getdents64(w->fd, buf, sizeof(buf))) != 0) {
		if (n < 0)
			return (int)n;
		for (ssize_t at = 0; r == 0 && at < n;) {
			const struct entry *d = (const struct entry *)(const void *)(buf + at);

			if (strcmp(d->name, ".") && strcmp(d->name, ".."))
				r = append(w, l, &room, d->name);
			at += d->len;
		}
	}
	return r;
}

/* Adds a level for the folder ->fd. */
static int push(struct walk *w)
{
	struct walk_level *l;
	struct stat st;
	char *text;
	int r;

	if (w->depth == w->room) {
		size_t room = w->room ? w->room * 2 : 32;
		struct walk_level *more = realloc(w->level, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->level = more;
		w->room = room;
	}
	if (fstat(w->fd, &st) < 0)
		return -errno;
	l = &w->level[w->depth++];
	*l = (struct walk_level){ .dev = st.st_dev, .ino = st.st_ino };
	r = read_names(w, l);
	if (r < 0 || !l->count)
		return r;
	l->name = malloc(l->count * sizeof(*l->name));
	if (!l->name)
		return -ENOMEM;
	text = l->text;
	for (size_t i = 0; i < l->count; i++, text += strlen(text) + 1)
		l->name[i] = text;
	if (w->sorted)
		qsort(l->name, l->count, sizeof(*l->name), by_name);
	return 0;
}

static void pop(struct walk *w)
{
	struct walk_level *l = &w->level[--w->depth];

	w->bytes -= l->bytes;
	free(l->name);
	free(l->text);
}

int walk_begin(struct walk *w, int dir, bool sorted)
{
	*w = (struct walk){ .fd = dir, .sorted = sorted };
	return push(w);
}

void walk_done(struct walk *w)
{
	while (w->depth)
		pop(w);
	free(w->level);
	fd_close(w->fd);
	*w = (struct walk){ .fd = -1 };
}

const char *walk_next(struct walk *w)
{
	struct walk_level *l = &w->level[w->depth - 1];

	return l->at < l->count ? l->name[l->at++] : NULL;
}

const char *walk_name(const struct walk *w)
{
	const struct walk_level *l = &w->level[w->depth - 1];

	return l->name[l->at - 1];
}

int walk_down(struct walk *w, const char *name)
{
	int fd = sys_openat(w->fd, name, FOLDER, 0);

	if (fd < 0)
		return fd;
	fd_close(w->fd);
	w->fd = fd;
	return push(w);
}

int walk_up(struct walk *w)
{
	const struct walk_level *above = &w->level[w->depth - 2];
	AUTO_CLOSE int fd = sys_openat(w->fd, "..", FOLDER, 0);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_dev != above->dev || st.st_ino != above->ino)
		return -ESTALE;
	fd_close(w->fd);
	w->fd = TAKE_FD(fd);
	pop(w);
	return 0;
}
