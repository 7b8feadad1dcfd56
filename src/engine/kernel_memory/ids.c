/* Reads the ids of processes and threads from /proc and from groups. */
#include "engine/kernel_memory/ids.h"
#include "base/base.h"
#include "base/fd.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TASKS_MOST (1U << 22) /* the kernel's maximum */

void kernel_ids_done(struct kernel_ids *x)
{
	free(x->id);
}

static void ids_add(struct kernel_ids *x, int id)
{
	const size_t max = x->max ? 2 * x->max : 64;
	int *more;

	if (x->n == x->max) {
		more = max > TASKS_MOST ? NULL : realloc(x->id, max * sizeof(*more));
		if (!more)
			return;
		x->id = more;
		x->max = max;
	}
	x->id[x->n++] = id;
}

static int id_order(const void *a, const void *b)
{
	const int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

void kernel_ids_sort(struct kernel_ids *x)
{
	size_t n = 0;

	if (x->n)
		qsort(x->id, x->n, sizeof(x->id[0]), id_order);
	for (size_t i = 0; i < x->n; i++)
		if (!n || x->id[n - 1] != x->id[i])
			x->id[n++] = x->id[i];
	x->n = n;
}

void kernel_tasks_of(int pid, struct kernel_ids *ret)
{
	char path[40];
	struct dirent *d;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && (d = readdir(dir)))
		if (isdigit((unsigned char)d->d_name[0]))
			ids_add(ret, (int)strtol(d->d_name, NULL, 10));
	if (dir)
		closedir(dir);
	kernel_ids_sort(ret);
}

void kernel_processes_of(int base, const char *name, unsigned depth, char *text, size_t size, struct kernel_ids *ret)
{
	AUTO_CLOSE int fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_CLOSE int procs = fd < 0 ? -1 : openat(fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	struct dirent *d;
	ssize_t n;
	int id = 0;
	DIR *dir;

	while (procs >= 0 && (n = read(procs, text, size)) > 0)
		for (ssize_t i = 0; i < n; i++) {
			if (isdigit((unsigned char)text[i])) {
				id = id * 10 + (text[i] - '0');
				continue;
			}
			if (id)
				ids_add(ret, id);
			id = 0;
		}
	dir = depth && fd >= 0 ? fdopendir(fd) : NULL;
	if (!dir)
		return;
	fd = -1;
	while ((d = readdir(dir)))
		if (d->d_type == DT_DIR && d->d_name[0] != '.')
			kernel_processes_of(dirfd(dir), d->d_name, depth - 1, text, size, ret);
	closedir(dir);
}
