/*
 * /etc/hosts of a new sandbox that has a host name of its own, or whose image is a folder: `hostname -f` and programs
 * that resolve their own name need that name and localhost. Image `host` has the usual names already. A copy of a
 * sandbox keeps the file of its source.
 */
#include "agent/agent.h"
#include "base/base.h"
#include "base/sys.h"

#include <ctype.h>
#include <sys/stat.h>

#define PLACE "etc/hosts"
#define SIZE_MAX_KNOWN 65536
#define LOCALHOST "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"

/* Whether @text has @name as a whole word. */
static bool has_name(const char *text, const char *name)
{
	const size_t n = strlen(name);

	for (const char *p = text; (p = strstr(p, name)); p += n)
		if (p > text && isspace((unsigned char)p[-1]) && (!p[n] || isspace((unsigned char)p[n])))
			return true;
	return false;
}

static int open_hosts(int root, uint64_t flags)
{
	const struct open_how how = {
		.flags = flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
		.mode = flags & O_CREAT ? 0644 : 0,
		/* A file that is mounted there was chosen by the caller. */
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
	};

	return sys_openat2(root, PLACE, &how);
}

int hosts_make(const char *name)
{
	AUTO_CLOSE int root = sys_openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC, 0), fd = -1;
	static char text[SIZE_MAX_KNOWN + 1];
	char line[256];
	struct stat st;
	ssize_t n = 0;

	if (root < 0)
		return root;
	fd = open_hosts(root, O_RDWR | O_APPEND);
	if (fd == -ENOENT) {
		fd = open_hosts(root, O_RDWR | O_APPEND | O_CREAT | O_EXCL);
		if (fd >= 0)
			n = snprintf(text, sizeof(text), LOCALHOST);
		if (fd >= 0 && fd_write_all(fd, text, (size_t)n) < 0)
			return -EIO;
	} else if (fd >= 0) {
		if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > SIZE_MAX_KNOWN)
			return 0;
		n = sys_read(fd, text, SIZE_MAX_KNOWN);
	}
	/* No such folder, links, or a mount: the file is not part of the image and is left alone. */
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP || fd == -EXDEV || fd == -EISDIR)
		return 0;
	if (fd < 0 || n < 0)
		return fd < 0 ? fd : (int)n;
	text[n] = '\0';
	n = snprintf(line, sizeof(line), "%s%s", n && text[n - 1] != '\n' ? "\n" : "",
		     has_name(text, "localhost") ? "" : LOCALHOST);
	if (!has_name(text, name))
		n += snprintf(line + n, sizeof(line) - (size_t)n, "127.0.0.1 %s\n", name);
	return n > 1 ? fd_write_all(fd, line, (size_t)n) : 0;
}
