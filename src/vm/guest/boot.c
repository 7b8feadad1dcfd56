/* Sets up a machine after its start: mounts, disks, clock. */
#include "base/base.h"
#include "base/clock.h"
#include "base/sys.h"
#include "vm/guest/guest.h"

#include <dirent.h>
#include <linux/random.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define PORT_NAME "cloche"
#define DEVICE_NS 20000000000ULL /* an emulated machine on a busy host is slow */
#define NEW_ROOT "/r"

static int make_dirs(const char *const *paths, size_t n, struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		int r = sys_mkdirat(AT_FDCWD, paths[i], 0755);

		if (r < 0 && r != -EEXIST)
			return err_sys(e, ERR_INTERNAL, r, "guest: make %s", paths[i]);
	}
	return 0;
}

static int attach(const char *fs, const char *src, const char *dst, unsigned long flags, const char *opts,
		  struct err *e)
{
	int r = sys_mount(src, dst, fs, flags, opts);

	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "guest: mount %s on %s", fs, dst) : 0;
}

/* Loads them in the order of the list, which satisfies their dependencies. */
static int load_modules(struct err *e)
{
	char names[4096], *name, *rest = names;
	ssize_t n = fd_get(AT_FDCWD, "/m/order", names, sizeof(names));

	if (n < 0)
		return err_sys(e, ERR_INTERNAL, (int)n, "guest: read /m/order");
	while ((name = strsep(&rest, "\n"))) {
		AUTO_CLOSE int fd = -1;
		char path[128];

		if (!*name)
			continue;
		snprintf(path, sizeof(path), "/m/%s.ko", name);
		fd = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
		if (fd < 0)
			return err_sys(e, ERR_INTERNAL, fd, "guest: open %s", path);
		/* A processor may lack what a faster variant of a module is for. */
		if (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST && errno != ENODEV)
			return err_sys(e, ERR_INTERNAL, -errno, "guest: load module %s", name);
		unlink(path);
	}
	return 0;
}

static int copy_program(const char *path, const char *copy, struct err *e)
{
	AUTO_CLOSE int from = sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	AUTO_CLOSE int to = sys_openat(AT_FDCWD, copy, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	static char data[65536];
	ssize_t n = from < 0 ? from : to < 0 ? to : 1;
	int r = 0;

	while (n > 0 && r == 0) {
		n = sys_read(from, data, sizeof(data));
		r = n > 0 ? fd_write_all(to, data, (size_t)n) : 0;
	}
	if (n < 0 || r < 0)
		return err_sys(e, ERR_INTERNAL, n < 0 ? (int)n : r, "guest: copy %s", path);
	unlink(path);
	return 0;
}

/* The first root cannot be left by pivot_root, which every sandbox does; so the machine gets another. */
static int enter_root(struct err *e)
{
	static const char *const places[] = { NEW_ROOT "/proc",	    NEW_ROOT "/sys",	 NEW_ROOT "/dev",
					      NEW_ROOT "/run",	    NEW_ROOT "/usr",	 NEW_ROOT "/etc",
					      NEW_ROOT "/var",	    NEW_ROOT "/var/tmp", NEW_ROOT "/var/cache",
					      NEW_ROOT GUEST_IMAGE, NEW_ROOT GUEST_DISK, NEW_ROOT "/tmp" };
	static const char *const moved[] = { "/proc", "/sys", "/dev" };
	char to[32];
	int r = make_dirs((const char *const[]){ NEW_ROOT }, 1, e);

	if (r == 0)
		r = attach("tmpfs", "root", NEW_ROOT, 0, "mode=0755", e);
	if (r == 0)
		r = make_dirs(places, ARRAY_LEN(places), e);
	if (r == 0)
		r = copy_program(GUEST_AGENT, NEW_ROOT GUEST_AGENT, e);
	if (r == 0)
		r = copy_program(GUEST_LAYERS, NEW_ROOT GUEST_LAYERS, e);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(moved); i++) {
		snprintf(to, sizeof(to), NEW_ROOT "%s", moved[i]);
		r = attach("moved", moved[i], to, MS_MOVE, NULL, e);
	}
	if (r < 0)
		return r;
	r = sys_chdir(NEW_ROOT);
	if (r == 0)
		r = sys_mount(".", "/", NULL, MS_MOVE, NULL);
	if (r == 0)
		r = sys_chroot(".", 0);
	if (r == 0)
		r = sys_chdir("/");
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "guest: enter the new root") : 0;
}

/* The entry of @folder whose file @file contains @want, as /dev/NAME. */
static bool find_device(const char *folder, const char *file, const char *want, char *ret, size_t size)
{
	DIR *dir = opendir(folder);
	struct dirent *d;
	bool found = false;

	while (dir && !found && (d = readdir(dir))) {
		char path[600], text[64];

		if (d->d_name[0] == '.' || strlen(d->d_name) > 16)
			continue;
		snprintf(path, sizeof(path), "%s/%s/%s", folder, d->d_name, file);
		if (fd_get(AT_FDCWD, path, text, sizeof(text)) < 0)
			continue;
		text[strcspn(text, "\n")] = '\0';
		found = !strcmp(text, want);
		if (found)
			snprintf(ret, size, "/dev/%.16s", d->d_name);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* Waits for a device, which appears when the kernel has found it, in no fixed order. */
static int wait_device(const char *folder, const char *file, const char *want, char *ret, size_t size, struct err *e)
{
	const struct timespec nap = { .tv_nsec = 1000000 };
	uint64_t end = clock_mono_ns() + DEVICE_NS;

	while (!find_device(folder, file, want, ret, size) || access(ret, F_OK) < 0) {
		if (clock_mono_ns() > end)
			return err_set(e, ERR_INTERNAL, -ENODEV, "guest: device '%s' does not exist", want);
		nanosleep(&nap, NULL);
	}
	return 0;
}

static int open_port(int *ret, struct err *e)
{
	char path[32];
	int r = wait_device("/sys/class/virtio-ports", "name", PORT_NAME, path, sizeof(path), e);

	if (r < 0)
		return r;
	r = sys_openat(AT_FDCWD, path, O_RDWR | O_NONBLOCK | O_CLOEXEC, 0);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "guest: open the port");
	*ret = r;
	return 0;
}

/*
 * A kernel's first process has limits that depend on the size of its machine. Here the sandbox's own limits count, as
 * in a container: a sandbox with many processes or files meets those limits, and gets their errors.
 */
static int lift_limits(struct err *e)
{
	static const struct {
		int what;
		rlim_t to;
	} limits[] = { { RLIMIT_NOFILE, 1U << 20 }, { RLIMIT_NPROC, RLIM_INFINITY }, { RLIMIT_SIGPENDING, 1U << 16 } };
	int r = fd_put(AT_FDCWD, "/proc/sys/kernel/threads-max", "65536");

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(limits); i++)
		r = setrlimit(limits[i].what, &(struct rlimit){ limits[i].to, limits[i].to }) < 0 ? -errno : 0;
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "guest: raise the limits of its kernel") : 0;
}

/*
 * On a host an allocation is seldom refused, since the host is large, and a sandbox that uses too much meets its limit. In a
 * machine of that size the kernel would say no ahead: a program would see another world than in a container.
 */
static int overcommit(struct err *e)
{
	int r = fd_put(AT_FDCWD, "/proc/sys/vm/overcommit_memory", "1");

	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "guest: allow memory overcommit") : 0;
}

int boot(struct guest_places *ret, struct err *e)
{
	static const char *const first[] = { "/proc", "/sys", "/dev" };
	char image[32];
	int r = make_dirs(first, ARRAY_LEN(first), e);

	if (r == 0)
		r = attach("proc", "proc", "/proc", 0, NULL, e);
	if (r == 0)
		r = attach("sysfs", "sysfs", "/sys", 0, NULL, e);
	if (r == 0)
		r = attach("devtmpfs", "devtmpfs", "/dev", 0, NULL, e);
	if (r == 0)
		r = load_modules(e);
	/* From here on, failures can be reported to the host. */
	if (r == 0)
		r = open_port(&ret->port, e);
	if (r == 0)
		r = overcommit(e);
	if (r == 0)
		r = lift_limits(e);
	if (r == 0)
		r = enter_root(e);
	if (r == 0)
		r = attach("cgroup2", "cgroup2", "/sys/fs/cgroup", 0, NULL, e);
	if (r == 0)
		r = wait_device("/sys/block", "serial", "root", image, sizeof(image), e);
	if (r == 0)
		r = wait_device("/sys/block", "serial", "rw", ret->disk, sizeof(ret->disk), e);
	if (r == 0)
		r = attach("erofs", image, GUEST_IMAGE, MS_RDONLY | MS_NODEV | MS_NOATIME, NULL, e);
	return r;
}

/* Copies the links into /usr, such as /bin. */
static int copy_links(struct err *e)
{
	DIR *dir = opendir(GUEST_IMAGE);
	struct dirent *d;
	int r = dir ? 0 : -errno;

	while (r == 0 && (d = readdir(dir))) {
		char target[256];
		ssize_t n = readlinkat(dirfd(dir), d->d_name, target, sizeof(target) - 1);

		if (n < 0)
			continue;
		target[n] = '\0';
		r = sys_symlinkat(target, AT_FDCWD, d->d_name); /* this process is in the root already */
	}
	if (dir)
		closedir(dir);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "guest: make the links of the root") : 0;
}

int boot_host(const struct guest_places *p, struct err *e)
{
	char usr[32];
	int r = wait_device("/sys/block", "serial", "usr", usr, sizeof(usr), e);

	if (r == 0)
		r = attach("erofs", usr, "/usr", MS_RDONLY | MS_NODEV | MS_NOATIME, NULL, e);
	if (r == 0)
		r = attach("ext4", p->disk, GUEST_DISK, MS_NOSUID, "noinit_itable,noauto_da_alloc", e);
	if (r == 0)
		r = attach("bind", GUEST_IMAGE "/etc", "/etc", MS_BIND, NULL, e);
	return r < 0 ? r : copy_links(e);
}

int boot_fresh(uint64_t real_ns, const uint8_t seed[32], struct err *e)
{
	struct timespec now = { .tv_sec = (time_t)(real_ns / 1000000000ULL),
				.tv_nsec = (long)(real_ns % 1000000000ULL) };
	struct {
		int bits, size;
		uint8_t data[32];
	} pool = { 256, 32, { 0 } };
	AUTO_CLOSE int fd = sys_openat(AT_FDCWD, "/dev/urandom", O_RDWR | O_CLOEXEC, 0);
	int r = fd;

	memcpy(pool.data, seed, sizeof(pool.data));
	if (r >= 0)
		r = sys_ioctl(fd, RNDADDENTROPY, &pool);
	if (r >= 0)
		r = sys_ioctl(fd, RNDRESEEDCRNG, NULL);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "guest: seed the random numbers");
	return clock_settime(CLOCK_REALTIME, &now) < 0 ? err_sys(e, ERR_INTERNAL, -errno, "guest: set the clock") : 0;
}

uint64_t boot_memory_left(void)
{
	char text[4096], *at;

	if (fd_get(AT_FDCWD, "/proc/meminfo", text, sizeof(text)) < 0)
		return 0;
	at = strstr(text, "MemAvailable:");
	return at ? strtoull(at + strlen("MemAvailable:"), NULL, 10) * KIB : 0;
}
