/* The sizes of the host's pools, and what host and sandboxes have taken of each. */
#include "engine/kernel_memory/pools.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/fd.h"
#include "engine/kernel_memory/files.h"
#include "engine/kernel_memory/sockets.h"
#include "linux/cgroup_parse.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#define SIZES_NS 1000000000ULL /* the sizes are read again after this, since the administrator may change them */
#define FILE_BYTES 192U /* bytes charged for an open file: the smallest size among kernels */
#define FEW 64U /* connections that count without being looked at */
#define OWN_FILTERS (64U << 10) /* bytes of machine code of the filters that every sandbox gets */

/* The number after @skip others in the file. 0: it is not there. */
static uint64_t number(const char *path, unsigned skip)
{
	char text[256], *at = text;
	uint64_t n = 0;

	if (fd_get(AT_FDCWD, path, text, sizeof(text)) < 0)
		return 0;
	for (unsigned i = 0; i <= skip; i++)
		n = strtoull(at, &at, 10);
	return n;
}

/* The number after @key in @line, in a file like /proc/net/sockstat. 0: it is not there. */
static uint64_t behind(const char *text, const char *line, const char *key)
{
	const char *at = strstr(text, line);

	at = at ? strstr(at, key) : NULL;
	return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void read_sizes(struct kernel_pools *p)
{
	const uint64_t reserve = number("/proc/sys/kernel/pty/reserve", 0),
		       ptys = number("/proc/sys/kernel/pty/max", 0);
	const uint64_t all[KERNEL_POOLS_COUNT] = {
		[KERNEL_POOL_TCP] = number("/proc/sys/net/ipv4/tcp_mem", 2) * (uint64_t)sysconf(_SC_PAGESIZE),
		[KERNEL_POOL_ORPHANS] = number("/proc/sys/net/ipv4/tcp_max_orphans", 0),
		[KERNEL_POOL_TASKS] =
			smaller(number("/proc/sys/kernel/pid_max", 0), number("/proc/sys/kernel/threads-max", 0)),
		[KERNEL_POOL_FILES] = number("/proc/sys/fs/file-max", 0),
		[KERNEL_POOL_PTYS] = ptys > reserve ? ptys - reserve : 0,
		[KERNEL_POOL_FILTERS] = number("/proc/sys/net/core/bpf_jit_limit", 0),
	};

	for (unsigned i = 0; i < KERNEL_POOLS_COUNT; i++)
		p->share[i] = all[i] / 100 * p->percent + all[i] % 100 * p->percent / 100;
}

/* What the whole host has taken. */
static void read_taken(uint64_t ret[KERNEL_POOLS_COUNT])
{
	char text[1024];
	const char *at;

	if (fd_get(AT_FDCWD, "/proc/thread-self/net/sockstat", text, sizeof(text)) > 0) {
		ret[KERNEL_POOL_TCP] = behind(text, "\nTCP: ", " mem ") * (uint64_t)sysconf(_SC_PAGESIZE);
		ret[KERNEL_POOL_ORPHANS] = behind(text, "\nTCP: ", " orphan ");
	}
	if (fd_get(AT_FDCWD, "/proc/loadavg", text, sizeof(text)) > 0 && (at = strchr(text, '/')))
		ret[KERNEL_POOL_TASKS] = strtoull(at + 1, NULL, 10);
	ret[KERNEL_POOL_FILES] = number("/proc/sys/fs/file-nr", 0);
	ret[KERNEL_POOL_PTYS] = number("/proc/sys/kernel/pty/nr", 0);
}

unsigned kernel_pools_scarce(struct kernel_pools *p)
{
	const uint64_t now = clock_mono_ns();
	uint64_t taken[KERNEL_POOLS_COUNT] = { 0 };
	unsigned scarce = 0;

	if (!p->read_ns || now - p->read_ns > SIZES_NS) {
		read_sizes(p);
		p->read_ns = now;
	}
	read_taken(taken);
	for (unsigned i = 0; i < KERNEL_POOLS_COUNT; i++)
		if (p->share[i] && taken[i] > p->share[i])
			scarce |= 1U << i;
	return scarce;
}

static uint64_t group_number(struct kernel_look *l, unsigned controller, const char *file)
{
	const int base = l->host->base[l->host->version == 2 ? 0 : controller];
	unsigned long long n = 0;
	char path[96];

	snprintf(path, sizeof(path), "%s/%s", l->cgroup->name, file);
	return base < 0 || fd_get_u64(base, path, &n) < 0 ? 0 : n;
}

/* On version 2 only: "@key <number>" of memory.stat. */
static uint64_t memory_stat(struct kernel_look *l, const char *key)
{
	char path[96], text[8192];
	uint64_t n = 0;

	snprintf(path, sizeof(path), "%s/memory.stat", l->cgroup->name);
	if (fd_get(l->host->base[0], path, text, sizeof(text)) > 0)
		cgroup_parse_kv(text, key, &n);
	return n;
}

/*
 * Open files, including those in messages that were not received. Forked processes share them; they are charged
 * together with other objects.
 */
static uint64_t files_of(struct kernel_look *l)
{
	const uint64_t charge = l->host->version == 2 ? memory_stat(l, "slab_unreclaimable") :
							group_number(l, CGROUP_MEMORY, "memory.kmem.usage_in_bytes");

	return smaller(charge / FILE_BYTES, kernel_files_open(l) + l->files->sent);
}

/* Whether what was read of /proc/PID belongs to it: the number is not reused while the process exists. */
static bool is_there(struct kernel_look *l)
{
	struct pollfd p = { .fd = l->pidfd, .events = POLLIN };

	return poll(&p, 1, 0) == 0;
}

/* In a sandbox with few connections all count as orphans: looking at each takes long. */
static uint64_t orphans_of(struct kernel_look *l)
{
	char path[48], text[1024];
	uint64_t n = 0, orphans;

	snprintf(path, sizeof(path), "/proc/%d/net/sockstat", l->pid);
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) > 0)
		n = behind(text, "\nTCP: ", "inuse ");
	snprintf(path, sizeof(path), "/proc/%d/net/sockstat6", l->pid);
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) > 0)
		n += behind(text, "TCP6: ", "inuse ");
	if (!is_there(l))
		return 0;
	return n < FEW || kernel_sockets_orphans(l, &orphans) < 0 ? n : orphans;
}

/* Opens it and checks its type, so that no path of the sandbox leads elsewhere. */
static int open_ptys(struct kernel_look *l)
{
	const int how = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	AUTO_CLOSE int root = -1, dev = -1, at = -1;
	struct statfs fs;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/root", l->pid);
	root = openat(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	dev = root < 0 || !is_there(l) ? -1 : openat(root, "dev", how);
	at = dev < 0 ? -1 : openat(dev, "pts", how);
	if (at < 0 || fstatfs(at, &fs) < 0 || fs.f_type != DEVPTS_SUPER_MAGIC)
		return -1;
	return openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static uint64_t ptys_of(struct kernel_look *l)
{
	int fd = open_ptys(l);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;
	uint64_t n = 0;

	while (dir && (d = readdir(dir)))
		n += isdigit((unsigned char)d->d_name[0]) != 0;
	if (dir)
		closedir(dir);
	else
		fd_close(fd);
	return n;
}

uint64_t kernel_pools_taken(enum kernel_pool_id id, struct kernel_look *l, const struct kernel_usage *u)
{
	switch (id) {
	case KERNEL_POOL_TCP: /* version 2 charges accepted connections, and the watch does not measure them */
		return u->bytes[KERNEL_SOCKETS] + (l->host->version == 2 ? memory_stat(l, "sock") : 0);
	case KERNEL_POOL_ORPHANS:
		return orphans_of(l);
	case KERNEL_POOL_TASKS:
		return group_number(l, CGROUP_PIDS, "pids.current");
	case KERNEL_POOL_FILES:
		return files_of(l);
	case KERNEL_POOL_PTYS:
		return ptys_of(l);
	case KERNEL_POOL_FILTERS:
		return u->bytes[KERNEL_FILTERS] + OWN_FILTERS;
	case KERNEL_POOLS_COUNT:
		break;
	}
	return 0;
}
