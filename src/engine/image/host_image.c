/* Fills the skeleton of image `host`. */
#include "engine/image/host_image.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/sys.h"
#include "engine/image/device_folder.h"
#include "linux/steer.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_FILE_MAX (4U * 1024 * 1024)
#define COPY_DEPTH_MAX 8

/*
 * What is copied of /etc, and only what every user may read: programs in /usr expect these. They contain no name,
 * address or credential of this host.
 */
/* clang-format off */
static const char *const from_etc[] = {
	"ld.so.cache",	   "ld.so.conf",   "ld.so.conf.d", "alternatives",	 "ssl/certs",	"ssl/openssl.cnf",
	"ca-certificates", "localtime",	   "timezone",	   "debian_version",	 "os-release",	"lsb-release",
	"mime.types",	   "services",	   "protocols",	   "python3",		 "python3.11",	"python3.12",
	"python3.13",	   "perl",	   "profile",	   "bash.bashrc",	 "skel",	"inputrc",
	"terminfo",	   "magic",	   "magic.mime",   "fonts",		 "ImageMagick-6", "dpkg/origins",
	"java-11-openjdk", "java-17-openjdk", "java-21-openjdk", "ucf.conf",	 "debconf.conf", "xattr.conf",
	"login.defs",	   "maven/m2.conf", "maven/logging", "apt/trusted.gpg.d", "apt/keyrings", "adduser.conf",
	"deluser.conf",	   "default/useradd", "default/locale", "locale.alias", "locale.gen",	"gai.conf",
	"host.conf",	   "netconfig",	   "rpc",		 "ethertypes",	"bindresvport.blacklist",
	"manpath.config",  "mailcap",	   "mke2fs.conf",  "libaudit.conf",	 "rmt",		"bash_completion",
	"bash_completion.d", "groff",	   "papersize",	   "libnl-3",	 "xdg/user-dirs.conf", "xdg/user-dirs.defaults",
	"nanorc",	   "xml",	   "sgml",	   "glvnd",	"OpenCL",
	"vulkan",	   "gtk-3.0",	   "chromium.d/README", "chromium.d/default-flags", "chromium.d/extensions",
	"chromium.d/dev-shm", "matplotlibrc", "R/Renviron", "R/ldpaths", "R/Makeconf", "R/repositories",
};
/* clang-format on */

struct made {
	const char *path;
	const char *text;
};

static const struct made files[] = {
	{ "etc/hosts", "127.0.0.1 localhost\n127.0.0.1 sandbox\n::1 localhost ip6-localhost ip6-loopback\n" },
	{ "etc/hostname", "sandbox\n" },
	{ "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n" },
	/* Of a sandbox without a network, too: there it is an address that nothing leads to. */
	{ "etc/resolv.conf", STEER_RESOLV_CONF },
	{ "etc/shells", "/bin/sh\n/bin/bash\n" },
	{ "etc/apt/sources.list", "" },
	/*
	 * For su, runuser and similar programs, when root calls them, as install scripts do. Other users cannot gain
	 * privileges, whatever this file says.
	 */
	{ "etc/pam.d/other",
	  "auth sufficient pam_rootok.so\nauth required pam_deny.so\naccount required pam_permit.so\n"
	  "password required pam_unix.so yescrypt\nsession required pam_permit.so\n" },
};

/* clang-format off */
static const struct {
	const char *path;
	unsigned mode, owner;
} folders[] = {
	{ "proc", 0555, 0 },	 { "sys", 0555, 0 },	 { "dev", 0755, 0 },	{ "usr", 0755, 0 },
	{ "etc", 0755, 0 },	 { "etc/ssl", 0755, 0 }, { "tmp", 01777, 0 },	{ "run", 0755, 0 },
	{ "run/lock", 01777, 0 }, { "root", 0700, 0 },	 { "home", 0755, 0 },	{ "home/user", 0755, 1000 },
	{ "var", 0755, 0 },	 { "var/tmp", 01777, 0 }, { "var/lib", 0755, 0 }, { "var/cache", 0755, 0 },
	{ "var/log", 0755, 0 },	 { "var/lib/dpkg", 0755, 0 }, { "opt", 0755, 0 }, { "mnt", 0755, 0 },
	{ "srv", 0755, 0 },	 { "media", 0755, 0 },	 { "etc/dpkg", 0755, 0 }, { "etc/apt", 0755, 0 },
	{ "etc/apt/apt.conf.d", 0755, 0 }, { "etc/apt/sources.list.d", 0755, 0 }, { "etc/apt/preferences.d", 0755, 0 },
	{ "var/cache/apt", 0755, 0 }, { "var/cache/apt/archives", 0755, 0 }, { "var/spool", 0755, 0 },
	{ "var/mail", 02775, 0 }, { "etc/default", 0755, 0 },
	{ "etc/pam.d", 0755, 0 }, { "opt/cloche", 0755, 0 }, { "opt/cloche/bin", 0755, 0 },
};
/* clang-format on */

/* As on the host. */
static const char *const links[] = { "bin", "sbin", "lib", "lib32", "lib64", "libx32" };

/* As on every Debian. */
static const struct made own_links[] = {
	{ "etc/mtab", "../proc/self/mounts" },
	{ "var/run", "/run" },
	{ "var/lock", "/run/lock" },
};

static int put_file(int dir, const char *path, const char *text, unsigned mode)
{
	AUTO_CLOSE int fd = sys_openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);

	return fd < 0 ? fd : fd_write_all(fd, text, strlen(text));
}

/*
 * The host's system accounts, without a password, a person's name or a shell: the package database and the programs of
 * /usr know these names. People's accounts (1000 and above) stay out.
 */
static int put_accounts(int root, const char *host, const char *head, const char *tail)
{
	AUTO(buf_done) struct buf b = BUF_INIT(256 * KIB);
	bool groups = !strcmp(host, "/etc/group");
	FILE *f = fopen(host, "re");
	char line[1024], name[33];
	unsigned id, gid = 0;
	int r;

	r = buf_addf(&b, "%s", head);
	while (r == 0 && f && fgets(line, sizeof(line), f)) {
		int n = sscanf(line, "%32[a-zA-Z0-9_.-]:%*[^:]:%u:%u", name, &id, &gid);

		if (n < (groups ? 2 : 3) || id == 0 || id > 999 || gid > 65535 || !strcmp(name, "user"))
			continue;
		r = groups ? buf_addf(&b, "%s:x:%u:\n", name, id) :
			     buf_addf(&b, "%s:x:%u:%u::/nonexistent:/usr/sbin/nologin\n", name, id, gid);
	}
	if (f)
		fclose(f);
	if (r == 0)
		r = buf_addf(&b, "%s", tail);
	return r == 0 ? put_file(root, host + 1, b.data, 0644) : r;
}

static int copy_file(int from, int to, const char *name, unsigned mode)
{
	AUTO_CLOSE int src = sys_openat(from, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
	AUTO_CLOSE int dst = -1;
	char buf[16384];

	if (src < 0)
		return src;
	dst = sys_openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode & 0755);
	if (dst < 0)
		return dst == -EEXIST ? 0 : dst;
	for (;;) {
		ssize_t n = sys_read(src, buf, sizeof(buf));
		int r;

		if (n <= 0)
			return (int)n;
		r = fd_write_all(dst, buf, (size_t)n);
		if (r < 0)
			return r;
	}
}

static int copy_tree(int from, int to, const char *name, unsigned depth);

static int copy_folder(int from, int to, const char *name, unsigned depth)
{
	int fd = sys_openat(from, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0);
	AUTO_CLOSE int dst = -1;
	struct dirent *d;
	DIR *dir;
	int r;

	if (fd < 0)
		return fd;
	r = sys_mkdirat(to, name, 0755);
	if (r == 0 || r == -EEXIST)
		r = dst = sys_openat(to, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0);
	dir = r < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		fd_close(fd);
		return r < 0 ? r : -ENOMEM;
	}
	r = 0;
	while (r == 0 && (d = readdir(dir)))
		if (strcmp(d->d_name, ".") && strcmp(d->d_name, ".."))
			r = copy_tree(fd, dst, d->d_name, depth + 1);
	closedir(dir);
	return r;
}

/* Copies regular files, folders and links that every user may read; the rest is left out. */
static int copy_tree(int from, int to, const char *name, unsigned depth)
{
	struct stat st;

	if (depth > COPY_DEPTH_MAX)
		return 0;
	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		/* What every user may read, but not reach, is left out. Else an error: a half skeleton would be kept for good. */
		return errno == ENOENT || errno == EACCES ? 0 : -errno;
	if (S_ISLNK(st.st_mode)) {
		char target[1024];
		ssize_t n = readlinkat(from, name, target, sizeof(target) - 1);
		int r;

		if (n <= 0)
			return n < 0 && errno != ENOENT ? -errno : 0;
		target[n] = '\0';
		r = sys_symlinkat(target, to, name);
		return r == -EEXIST ? 0 : r;
	}
	if (!(st.st_mode & S_IROTH))
		return 0;
	if (S_ISREG(st.st_mode) && st.st_size <= COPY_FILE_MAX)
		return copy_file(from, to, name, st.st_mode);
	if (S_ISDIR(st.st_mode))
		return copy_folder(from, to, name, depth);
	return 0;
}

static int copy_etc(int root)
{
	AUTO_CLOSE int etc = sys_openat(AT_FDCWD, "/etc", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);

	if (etc < 0)
		return etc;
	for (size_t i = 0; i < ARRAY_LEN(from_etc); i++) {
		const char *slash = strchr(from_etc[i], '/');
		AUTO_CLOSE int from = -1, to = -1;
		char sub[64];
		int r = 0;

		snprintf(sub, sizeof(sub), "%.*s", slash ? (int)(slash - from_etc[i]) : 1, slash ? from_etc[i] : ".");
		from = sys_openat(etc, sub, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
		if (from == -ENOENT || from == -ENOTDIR || (from == -EACCES && geteuid() != 0))
			continue; /* this host does not have it, or not for every user */
		if (from < 0)
			return from;
		to = sys_openat(root, "etc", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
		if (to >= 0 && slash) {
			int top = to;

			r = sys_mkdirat(top, sub, 0755);
			if (r < 0 && r != -EEXIST)
				return r;
			to = sys_openat(top, sub, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0);
			fd_close(top);
		}
		if (to < 0)
			return to;
		r = copy_tree(from, to, slash ? slash + 1 : from_etc[i], 0);
		if (r < 0)
			return r;
	}
	return 0;
}

static int fill_root(int root, bool owners)
{
	struct stat python;
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(folders); i++) {
		AUTO_CLOSE int fd = -1;

		r = sys_mkdirat(root, folders[i].path, 0700);
		if (r == 0)
			r = fd = sys_openat(root, folders[i].path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW, 0);
		if (r >= 0)
			r = sys_fchmod(fd, folders[i].mode);
		/* Without root no owner can be given; such a sandbox gets its home made anew. */
		if (r == 0 && folders[i].owner && owners)
			r = sys_fchownat(root, folders[i].path, folders[i].owner, folders[i].owner,
					 AT_SYMLINK_NOFOLLOW);
	}
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(links); i++) {
		char target[256], path[32];
		ssize_t n;

		snprintf(path, sizeof(path), "/%s", links[i]);
		n = readlink(path, target, sizeof(target) - 1);
		if (n <= 0)
			continue;
		target[n] = '\0';
		r = sys_symlinkat(target, root, links[i]);
	}
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(own_links); i++)
		r = sys_symlinkat(own_links[i].text, root, own_links[i].path);
	/* Debian has a package for this name alone. Models write it, and PATH has this folder as the last one (engine/spec.h). */
	if (r == 0 && stat("/usr/bin/python3", &python) == 0)
		r = sys_symlinkat("/usr/bin/python3", root, "opt/cloche/bin/python");
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(files); i++)
		r = put_file(root, files[i].path, files[i].text, 0644);
	if (r == 0)
		r = put_accounts(root, "/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n",
				 "user:x:1000:1000:user:/home/user:/bin/bash\n"
				 "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
	if (r == 0)
		r = put_accounts(root, "/etc/group", "root:x:0:\n", "user:x:1000:\nnogroup:x:65534:\n");
	return r == 0 ? copy_etc(root) : r;
}

/*
 * /sys/fs/cgroup where the host's groups are of version 1 (agent/group_view.c): the names of version 2, for what has the same
 * form in both. cpu.max is covered by the sandbox's own.
 */
static int fill_groups(int dir)
{
	static const char *const shown[] = { "base/c/memory", "base/c/pids", "base/c/cpu", "base/c/cpuacct",
					     "base/c/cpuset" };
	static const struct made same[] = {
		{ "base/c/memory.max", "memory/memory.limit_in_bytes" },
		{ "base/c/memory.current", "memory/memory.usage_in_bytes" },
		{ "base/c/memory.peak", "memory/memory.max_usage_in_bytes" },
		{ "base/c/memory.events", "memory/memory.oom_control" },
		{ "base/c/pids.max", "pids/pids.max" },
		{ "base/c/pids.current", "pids/pids.current" },
		{ "base/c/pids.events", "pids/pids.events" },
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(shown); i++)
		r = sys_mkdirat(dir, shown[i], 0755);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(same); i++)
		r = sys_symlinkat(same[i].text, dir, same[i].path);
	if (r == 0)
		r = put_file(dir, "base/c/cgroup.controllers", "cpu memory pids\n", 0444);
	return r == 0 ? put_file(dir, "base/c/cpu.max", "max 100000\n", 0444) : r;
}

/* The agent's stepping stone: see agent/blank.c. */
static int fill_base(int dir)
{
	static const char *const places[] = { "base",	"base/n", "base/p", "base/e",
					      "base/s", "base/c", "base/k", "base/f" };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(places); i++)
		r = sys_mkdirat(dir, places[i], 0755);
	if (r == 0)
		r = fill_groups(dir);
	return r == 0 ? sys_mknodat(dir, "base/z", S_IFREG | 0444, 0) : r;
}

int host_image_fill(int dir, bool devices, struct err *e)
{
	AUTO_CLOSE int root = -1, dev = -1;
	int r;

	r = sys_mkdirat(dir, "root", 0755);
	if (r == 0)
		r = root = sys_openat(dir, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (r >= 0)
		r = fill_root(root, devices);
	if (r == 0)
		r = fill_base(dir);
	if (r < 0)
		return err_sys(e, ERR_INTERNAL, r, "make the root of image 'host'");
	if (!devices)
		return 0;
	r = sys_mkdirat(dir, "dev", 0755);
	if (r == 0)
		r = dev = sys_openat(dir, "dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (r >= 0)
		r = device_folder_fill(dev);
	if (r < 0) {
		err_sys(e, ERR_UNSUPPORTED, r, "make device nodes for image 'host'");
		err_remedy(
			e,
			"CAP_MKNOD and a cache folder on a filesystem without nodev are required (CLOCHE_CACHE=DIR)");
	}
	return r < 0 ? r : 0;
}
