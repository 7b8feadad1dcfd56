/* Reads the mount points of a process, to find the file systems that are its own. */
#include "engine/kernel_memory/mounts.h"
#include "base/base.h"
#include "base/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* Decodes "\040" and the like in a path of mountinfo. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] && s[2] && s[3]) {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = 0;
}

void kernel_mounts_read(struct kernel_mounts *m, int pid)
{
	char path[40], *save = NULL;
	AUTO_CLOSE int fd = -1;
	size_t len = 0;
	ssize_t n;

	m->n = 0;
	snprintf(path, sizeof(path), "/proc/%d/mountinfo", pid);
	fd = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && len < sizeof(m->text) - 1 && (n = read(fd, m->text + len, sizeof(m->text) - 1 - len)) > 0)
		len += (size_t)n;
	m->text[len] = 0;
	for (char *p = strtok_r(m->text, "\n", &save); p && m->n < KERNEL_MOUNTS_MOST;
	     p = strtok_r(NULL, "\n", &save)) {
		char *type = strstr(p, " - "), *end;
		unsigned major, minor;
		int point = 0;

		if (!type || sscanf(p, "%*d %*d %u:%u %*s %n", &major, &minor, &point) != 2 || !point)
			continue;
		end = strchr(p + point, ' ');
		if (!end)
			continue;
		*end = 0;
		unescape(p + point);
		m->mount[m->n].path = p + point;
		m->mount[m->n].len = strlen(p + point);
		m->mount[m->n].any = makedev(major, minor);
		m->mount[m->n++].dev = strncmp(type + 3, "overlay ", 8) ? 0 : makedev(major, minor);
	}
}

uint64_t kernel_mounts_overlay(const struct kernel_mounts *m, const char *path)
{
	size_t best = 0;
	uint64_t dev = 0;

	/* The longest mount point; of mounts on the same path, the last. */
	for (unsigned i = 0; i < m->n; i++) {
		const size_t len = m->mount[i].len;

		if (len < best ||
		    (len > 1 && (strncmp(path, m->mount[i].path, len) != 0 || (path[len] && path[len] != '/'))))
			continue;
		best = len;
		dev = m->mount[i].dev;
	}
	return dev;
}

size_t kernel_mounts_own(const struct kernel_mounts *m, uint64_t *dev, size_t max)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	size_t n = 0;
	char line[1024];

	/* Without this file no mount is known to be the sandbox's own. */
	for (unsigned i = 0; f && i < m->n && n < max; i++) {
		bool again = false;

		for (size_t k = 0; k < n; k++)
			again |= dev[k] == m->mount[i].any;
		if (!again)
			dev[n++] = m->mount[i].any;
	}
	while (f && fgets(line, sizeof(line), f)) {
		unsigned major, minor;

		if (sscanf(line, "%*d %*d %u:%u ", &major, &minor) != 2)
			continue;
		for (size_t k = 0; k < n; k++)
			if (dev[k] == makedev(major, minor))
				dev[k--] = dev[--n];
	}
	if (f)
		fclose(f);
	return n;
}
