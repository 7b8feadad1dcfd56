/* Makes the texts about processors and network devices. */
#include "engine/image/cpu_files.h"
#include "base/base.h"
#include "base/str.h"
#include "base/sys.h"
#include "engine/image/procfs.h"

#include <sys/stat.h>
#include <unistd.h>

#define HOST_CACHE "/sys/devices/system/cpu/cpu0/cache"
#define CACHES 8U
#define SHARED_LEVEL 3 /* from this one on, all cores have it together */

static int put(int dir, const char *path, const char *text)
{
	AUTO_CLOSE int fd = sys_openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);

	return fd < 0 ? fd : fd_write_all(fd, text, strlen(text));
}

static int make_folder(int at, const char *name)
{
	int r = sys_mkdirat(at, name, 0755);

	return r < 0 ? r : sys_openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0);
}

/* As the kernel writes it: groups of 32, the highest first, no more digits than there are processors. */
static void write_mask(char *buf, size_t size, unsigned cpus, unsigned first, unsigned n)
{
	size_t len = 0;

	for (unsigned group = (cpus + 31) / 32; group-- > 0;) {
		const unsigned left = cpus - group * 32;
		uint32_t bits = 0;

		for (unsigned i = 0; i < 32; i++)
			bits |= (uint32_t)(group * 32 + i >= first && group * 32 + i < first + n) << i;
		if (len + 12 < size)
			len += (size_t)snprintf(buf + len, size - len, "%0*x%s", left >= 32 ? 8 : (int)(left + 3) / 4,
						bits, group ? "," : "\n");
	}
}

/* Two files that name the same @n processors from @first on. */
static int put_set(int dir, unsigned cpus, unsigned first, unsigned n, const char *mask_name, const char *list_name)
{
	char mask[512], list[32];
	int r;

	write_mask(mask, sizeof(mask), cpus, first, n);
	snprintf(list, sizeof(list), n > 1 ? "%u-%u\n" : "%u\n", first, first + n - 1);
	r = put(dir, mask_name, mask);
	return r == 0 ? put(dir, list_name, list) : r;
}

static int put_topology(int cpu, unsigned cpus, unsigned number)
{
	static const char *const own[][2] = { { "thread_siblings", "thread_siblings_list" },
					      { "core_cpus", "core_cpus_list" } };
	static const char *const all[][2] = { { "core_siblings", "core_siblings_list" },
					      { "package_cpus", "package_cpus_list" },
					      { "die_cpus", "die_cpus_list" } };
	AUTO_CLOSE int dir = make_folder(cpu, "topology");
	char text[16];
	int r = dir < 0 ? dir : 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(own); i++)
		r = put_set(dir, cpus, number, 1, own[i][0], own[i][1]);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(all); i++)
		r = put_set(dir, cpus, 0, cpus, all[i][0], all[i][1]);
	snprintf(text, sizeof(text), "%u\n", number);
	if (r == 0)
		r = put(dir, "core_id", text);
	if (r == 0)
		r = put(dir, "die_id", "0\n");
	return r == 0 ? put(dir, "physical_package_id", "0\n") : r;
}

/* One cache of the host's first processor. 1: it has no more. */
static int put_cache(int cache, unsigned cpus, unsigned number, unsigned index)
{
	static const char *const same[] = { "coherency_line_size",     "level", "number_of_sets",
					    "physical_line_partition", "size",	"type",
					    "ways_of_associativity" };
	AUTO_CLOSE int dir = -1;
	char path[96], text[64], name[16];
	bool shared;
	int r = 0;

	snprintf(path, sizeof(path), HOST_CACHE "/index%u/level", index);
	if (fd_get(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return 1;
	shared = strtol(text, NULL, 10) >= SHARED_LEVEL;
	snprintf(name, sizeof(name), "index%u", index);
	dir = make_folder(cache, name);
	r = dir < 0 ? dir : 0;
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(same); i++) {
		snprintf(path, sizeof(path), HOST_CACHE "/index%u/%s", index, same[i]);
		if (fd_get(AT_FDCWD, path, text, sizeof(text)) > 0)
			r = put(dir, same[i], text);
	}
	snprintf(text, sizeof(text), "%u\n", shared ? 0 : number);
	if (r == 0)
		r = put(dir, "id", text);
	return r == 0 ?
		       put_set(dir, cpus, shared ? 0 : number, shared ? cpus : 1, "shared_cpu_map", "shared_cpu_list") :
		       r;
}

static int put_cpu(int dir, unsigned cpus, unsigned number)
{
	AUTO_CLOSE int cpu = -1, cache = -1;
	char name[16];
	int r;

	snprintf(name, sizeof(name), "cpu%u", number);
	r = cpu = make_folder(dir, name);
	if (r >= 0)
		r = put_topology(cpu, cpus, number);
	if (r == 0)
		r = cache = make_folder(cpu, "cache");
	for (unsigned i = 0; r >= 0 && i < CACHES; i++) {
		r = put_cache(cache, cpus, number, i);
		if (r > 0)
			break;
	}
	return r < 0 ? r : 0;
}

static int put_loopback(int sys)
{
	/* clang-format off */
	static const char *const files[][2] = {
		{ "address", "00:00:00:00:00:00\n" }, { "broadcast", "00:00:00:00:00:00\n" },
		{ "addr_len", "6\n" },		      { "carrier", "1\n" },
		{ "flags", "0x9\n" },		      { "ifindex", "1\n" },
		{ "iflink", "1\n" },		      { "mtu", "65536\n" },
		{ "operstate", "unknown\n" },	      { "tx_queue_len", "1000\n" },
		{ "type", "772\n" },		      { "uevent", "INTERFACE=lo\nIFINDEX=1\n" },
	};
	/* clang-format on */
	static const char *const folders[] = { "class/net", "devices/virtual", "devices/virtual/net",
					       "devices/virtual/net/lo" };
	AUTO_CLOSE int lo = -1;
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(folders); i++)
		r = sys_mkdirat(sys, folders[i], 0755);
	if (r == 0)
		r = sys_symlinkat("../../devices/virtual/net/lo", sys, "class/net/lo");
	if (r == 0)
		r = lo = sys_openat(sys, "devices/virtual/net/lo", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0);
	for (size_t i = 0; r >= 0 && i < ARRAY_LEN(files); i++)
		r = put(lo, files[i][0], files[i][1]);
	return r < 0 ? r : 0;
}

static int fill_sys(int sys, unsigned cpus)
{
	AUTO_CLOSE int dir = sys_openat(sys, "devices/system/cpu", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0);
	char most[16];
	int r = dir < 0 ? dir : 0;

	for (unsigned i = 0; r == 0 && i < cpus; i++)
		r = put_cpu(dir, cpus, i);
	snprintf(most, sizeof(most), "%u\n", cpus - 1);
	if (r == 0)
		r = put(dir, "kernel_max", most);
	if (r == 0)
		r = put(dir, "offline", "\n");
	return r == 0 ? put_loopback(sys) : r;
}

static int put_text(int dir, const char *path, const char *text, size_t len)
{
	AUTO_CLOSE int fd = sys_openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	return fd < 0 ? fd : fd_write_all(fd, text, len);
}

int cpu_files_fill(int dir, unsigned cpus)
{
	static const char *const folders[] = {
		"sys",	  "sys/devices",   "sys/devices/system", "sys/devices/system/cpu",
		"sys/fs", "sys/fs/cgroup", "sys/kernel",	 "sys/class"
	};
	static const char *const lists[] = { "sys/devices/system/cpu/online", "sys/devices/system/cpu/possible",
					     "sys/devices/system/cpu/present" };
	const size_t size = 2 * MIB;
	AUTO_FREE char *host = malloc(size), *cut = malloc(size);
	AUTO_CLOSE int sys = -1;
	ssize_t n;
	int r = 0;

	if (!host || !cut)
		return -ENOMEM;
	n = fd_get(AT_FDCWD, "/proc/cpuinfo", host, size);
	if (n < 0)
		return (int)n;
	r = put_text(dir, "cpuinfo", cut, procfs_cpuinfo(host, cut, size, cpus));
	if (r == 0)
		r = put_text(dir, "stat", cut, procfs_stat(cut, size, cpus));
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(folders); i++)
		r = sys_mkdirat(dir, folders[i], 0755);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(lists); i++)
		r = put_text(dir, lists[i], cut, procfs_online(cut, size, cpus));
	if (r == 0)
		r = sys = sys_openat(dir, "sys", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	return r < 0 ? r : fill_sys(sys, cpus);
}
