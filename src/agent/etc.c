/*
 * /etc/passwd and /etc/group of a new sandbox whose image is a folder: the image may lack the user that commands run
 * as, and then whoami, initdb and many others fail. Existing lines stay; missing ones are added in the sandbox's
 * writable layer, never in the image. Every path is resolved inside the image and on its own filesystem. A file that
 * cannot be parsed (proto/account.h) is left alone.
 */
#include "agent/agent.h"
#include "base/base.h"
#include "base/sys.h"
#include "proto/account.h"

#include <sys/mman.h>
#include <sys/stat.h>

#define USER_ID 1000U

struct etc_file {
	const char *path, *name; /* ->path: from the root; ->name: in /etc */
	const char *first; /* first line of a file that does not exist or is empty */
	const char *line; /* the user's line without the name in front */
};

static const struct etc_file files[] = {
	{ "/etc/passwd", "passwd", "root:x:0:0:root:/root:/bin/sh\n", ":x:1000:1000:user:/home/user:/bin/sh\n" },
	{ "/etc/group", "group", "root:x:0:\n", ":x:1000:\n" },
};

static int open_etc(int root)
{
	const struct open_how how = {
		.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
	};
	int fd = sys_openat2(root, "etc", &how);

	if (fd == -ENOENT && sys_mkdirat(root, "etc", 0755) == 0)
		fd = sys_openat2(root, "etc", &how);
	return fd;
}

static int open_file(int etc, const char *name, uint64_t flags)
{
	const struct open_how how = {
		.flags = flags | O_WRONLY | O_NONBLOCK | O_CLOEXEC,
		.mode = flags & O_CREAT ? 0644 : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};

	return sys_openat2(etc, name, &how);
}

/* A user name that @text does not list yet; NULL if both candidates are taken. */
static const char *free_name(const char *text, size_t len)
{
	static const char *const names[] = { "user", "sandbox" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!account_lists(text, len, names[i]))
			return names[i];
	return NULL;
}

/* Adds the user's line to a file whose content is @text, of @len bytes. */
static int add_user(int etc, const struct etc_file *f, const char *text, size_t len)
{
	const char *name = free_name(text, len);
	AUTO_CLOSE int fd = -1;
	char line[128];
	bool whole = false;
	struct stat st;
	int n, r = 0;

	if (!name || account_lists_id(text, len, USER_ID))
		return 0;
	n = snprintf(line, sizeof(line), "%s%s%s%s", len ? "" : f->first, len && text[len - 1] != '\n' ? "\n" : "",
		     name, f->line);
	fd = open_file(etc, f->name, O_APPEND);
	/* A link is replaced by what it leads to, so that nothing else is changed by it. */
	if (fd == -ELOOP) {
		whole = true;
		r = sys_unlinkat(etc, f->name, 0);
	}
	if (r == 0 && (fd == -ELOOP || fd == -ENOENT))
		fd = open_file(etc, f->name, O_CREAT | O_EXCL);
	if (r < 0 || fd < 0)
		return r < 0 ? r : fd;
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -EINVAL;
	if (whole)
		r = sys_fchmod(fd, 0644);
	if (r == 0 && whole && len)
		r = fd_write_all(fd, text, len);
	return r < 0 ? r : fd_write_all(fd, line, (size_t)n);
}

int etc_make(void)
{
	AUTO_CLOSE int root = sys_openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0), etc = -1;
	int r = root < 0 ? root : 0;

	if (r == 0)
		r = etc = open_etc(root);
	for (size_t i = 0; r >= 0 && i < ARRAY_LEN(files); i++) {
		char *text = NULL;
		size_t len, room;

		r = account_read(root, files[i].path, &text, &len, &room);
		if (r < 0)
			break;
		r = add_user(etc, &files[i], text ? text : "", len);
		if (room)
			munmap(text, room);
	}
	return r < 0 ? r : 0;
}
