/* GPUs that no file of CDI describes, as the text of such a file. */
#include "base/base.h"
#include "devices/catalog.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#define GPUS_MAX 32

struct gpu {
	int minor;
	char uuid[64], bus[32]; /* "": not known */
};

int gpu_node_minor(const char *path)
{
	const char *digits = strncmp(path, "/dev/nvidia", 11) ? "" : path + 11;

	return *digits && strlen(digits) < 4 && strspn(digits, "0123456789") == strlen(digits) ?
		       (int)strtol(digits, NULL, 10) :
		       -1;
}

static int open_under(const char *root, const char *path, int flags)
{
	char full[512];

	if ((size_t)snprintf(full, sizeof(full), "%s%s", root, path) >= sizeof(full))
		return -ENAMETOOLONG;
	return open(full, flags | O_CLOEXEC);
}

static bool is_there(const char *root, const char *path)
{
	AUTO_CLOSE int fd = open_under(root, path, O_PATH);

	return fd >= 0;
}

/* The value of a line "Key: value" in the driver's text. */
static bool read_line(const char *text, const char *key, char *ret, size_t size)
{
	const char *at = strstr(text, key);
	size_t n;

	if (!at)
		return false;
	at += strlen(key);
	at += strspn(at, ": \t");
	n = strcspn(at, " \t\n");
	if (!n || n >= size)
		return false;
	memcpy(ret, at, n);
	ret[n] = '\0';
	return true;
}

static bool read_gpu(int dir, const char *bus, struct gpu *ret)
{
	char path[300], text[4096], number[12];
	ssize_t n;

	snprintf(path, sizeof(path), "%.200s/information", bus);
	n = fd_get(dir, path, text, sizeof(text));
	if (bus[0] == '.' || n < 0 || !read_line(text, "Device Minor", number, sizeof(number)))
		return false;
	*ret = (struct gpu){ .minor = (int)strtol(number, NULL, 10) };
	if (!read_line(text, "GPU UUID", ret->uuid, sizeof(ret->uuid)) || strncmp(ret->uuid, "GPU-", 4) ||
	    strspn(ret->uuid + 4, "0123456789abcdefABCDEF-") != strlen(ret->uuid + 4))
		ret->uuid[0] = '\0';
	snprintf(ret->bus, sizeof(ret->bus), "%.31s", bus);
	return true;
}

static int by_bus(const void *a, const void *b)
{
	const struct gpu *x = a, *y = b;
	const int order = strcmp(x->bus, y->bus);

	return order ? order : x->minor - y->minor;
}

/* As the driver numbers them: by bus. Where it does not list them: by node. */
static int list_gpus(const char *root, struct gpu *ret)
{
	AUTO_CLOSE int fd = open_under(root, "/proc/driver/nvidia/gpus", O_RDONLY | O_DIRECTORY);
	DIR *d = fd >= 0 ? fdopendir(dup(fd)) : NULL;
	struct dirent *x;
	int n = 0;

	while (d && n < GPUS_MAX && (x = readdir(d)))
		n += read_gpu(fd, x->d_name, &ret[n]);
	if (d)
		closedir(d);
	for (int minor = 0; fd < 0 && minor < GPUS_MAX; minor++) {
		char path[32];

		snprintf(path, sizeof(path), "/dev/nvidia%d", minor);
		if (is_there(root, path))
			ret[n++] = (struct gpu){ .minor = minor };
	}
	qsort(ret, (size_t)n, sizeof(*ret), by_bus);
	return n;
}

int gpu_minor(const char *root, const char *uuid)
{
	struct gpu gpu[GPUS_MAX];
	const int n = list_gpus(root, gpu);

	for (int i = 0; i < n; i++)
		if (!strcasecmp(gpu[i].uuid, uuid))
			return gpu[i].minor;
	return -ENOENT;
}

/* --- the driver's libraries --- */

static const char *const usual[] = {
	"/usr/local/nvidia/lib64",
	"/usr/local/nvidia/lib",
	"/usr/lib64/nvidia",
	"/usr/lib/nvidia",
	"/opt/nvidia/lib64",
	"/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
	"/run/nvidia/driver/usr/lib64",
	"/run/opengl-driver/lib",
	"/usr/lib/wsl/lib",
	"/usr/lib/x86_64-linux-gnu",
	"/usr/lib/aarch64-linux-gnu",
	"/usr/lib64",
	"/usr/lib",
	"/usr/local/lib",
};

static bool has_cuda(const char *root, const char *folder)
{
	char path[400];

	return folder[0] == '/' && strlen(folder) < 300 &&
	       (snprintf(path, sizeof(path), "%s/libcuda.so.1", folder), is_there(root, path));
}

/* Folders that the administrator told the dynamic linker about come before the usual ones. */
static bool from_linker(const char *root, char *ret, size_t size)
{
	AUTO_CLOSE int fd = open_under(root, "/etc/ld.so.conf.d", O_RDONLY | O_DIRECTORY);
	DIR *d = fd >= 0 ? fdopendir(dup(fd)) : NULL;
	bool found = false;
	struct dirent *x;

	while (d && !found && (x = readdir(d))) {
		char text[4096], *save = NULL;

		if (x->d_name[0] == '.' || fd_get(fd, x->d_name, text, sizeof(text)) < 0)
			continue;
		for (char *line = strtok_r(text, "\n \t", &save); line && !found; line = strtok_r(NULL, "\n \t", &save))
			if ((found = has_cuda(root, line)))
				snprintf(ret, size, "%s", line);
	}
	if (d)
		closedir(d);
	return found;
}

static bool find_libraries(const char *root, char *ret, size_t size)
{
	if (from_linker(root, ret, size))
		return true;
	for (size_t i = 0; i < ARRAY_LEN(usual); i++)
		if (has_cuda(root, usual[i])) {
			snprintf(ret, size, "%s", usual[i]);
			return true;
		}
	return false;
}

/* What computing takes, and what is in the names: a text without quotes or other signs of YAML's. */
static bool is_library(const char *name)
{
	static const char *const starts[] = { "libcuda.so.", "libcudadebugger.so.", "libnvcuvid.so.", "libnvoptix.so.",
					      "libnvidia-" };

	if (!strstr(name, ".so.") ||
	    strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.+") != strlen(name))
		return false;
	for (size_t i = 0; i < ARRAY_LEN(starts); i++)
		if (!strncmp(name, starts[i], strlen(starts[i])))
			return true;
	return false;
}

static void add_mount(struct buf *b, const char *from, const char *to)
{
	buf_addf(b, "    - {hostPath: \"%s\", containerPath: \"%s\", options: [ro, nosuid, nodev, bind]}\n", from, to);
}

static void add_libraries(const char *root, const char *folder, struct buf *b)
{
	AUTO_CLOSE int fd = open_under(root, folder, O_RDONLY | O_DIRECTORY);
	DIR *d = fd >= 0 ? fdopendir(dup(fd)) : NULL;
	struct dirent *x;

	while (d && (x = readdir(d))) {
		char from[900], to[640];
		struct stat st;

		/* Links are made anew from what the files say of themselves. */
		if (!is_library(x->d_name) || fstatat(fd, x->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		snprintf(to, sizeof(to), "%s/%s", folder, x->d_name);
		snprintf(from, sizeof(from), "%s%s", root, to);
		add_mount(b, from, to);
	}
	if (d)
		closedir(d);
}

/* A script there may only lead to a program in a folder that is not inside. */
static bool is_program(const char *path)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char magic[4];

	return fd >= 0 && read(fd, magic, sizeof(magic)) == (ssize_t)sizeof(magic) &&
	       !memcmp(magic, "\177ELF", sizeof(magic));
}

static void add_programs(const char *root, const char *libraries, struct buf *b)
{
	static const char *const names[] = { "nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control",
					     "nvidia-cuda-mps-server" };
	char beside[400];

	snprintf(beside, sizeof(beside), "%.300s/../bin", libraries);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const char *const folders[] = { beside, "/usr/bin" };

		for (size_t k = 0; k < ARRAY_LEN(folders); k++) {
			char path[500], full[900], real[PATH_MAX], to[64];

			snprintf(path, sizeof(path), "%s/%s", folders[k], names[i]);
			snprintf(full, sizeof(full), "%s%s", root, path);
			snprintf(to, sizeof(to), "/usr/bin/%s", names[i]);
			if (!realpath(full, real) || strlen(real) >= 300 || !is_program(real))
				continue;
			add_mount(b, real, to);
			break;
		}
	}
}

static void add_node(struct buf *b, const char *root, const char *path, const char *indent)
{
	if (root[0])
		buf_addf(b, "%s- {path: \"%s\", hostPath: \"%s%s\"}\n", indent, path, root, path);
	else
		buf_addf(b, "%s- {path: \"%s\"}\n", indent, path);
}

static void add_device(struct buf *b, const char *name)
{
	buf_addf(b, "- name: \"%s\"\n  containerEdits:\n    deviceNodes:\n", name);
}

int gpu_describe_nvidia(const char *root, struct buf *b)
{
	static const char *const shared[] = { "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
					      "/dev/nvidia-modeset" };
	struct gpu gpu[GPUS_MAX];
	const int n = list_gpus(root, gpu);
	char folder[320], name[80], path[32];

	if (!n || !is_there(root, "/dev/nvidiactl"))
		return 0;
	buf_adds(b, "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n");
	for (int i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%d", i);
		snprintf(path, sizeof(path), "/dev/nvidia%d", gpu[i].minor);
		add_device(b, name);
		add_node(b, root, path, "    ");
		if (!gpu[i].uuid[0])
			continue;
		add_device(b, gpu[i].uuid);
		add_node(b, root, path, "    ");
	}
	add_device(b, "all");
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "/dev/nvidia%d", gpu[i].minor);
		add_node(b, root, path, "    ");
	}
	buf_adds(b, "containerEdits:\n  env: [NVIDIA_VISIBLE_DEVICES=void]\n  deviceNodes:\n");
	for (size_t i = 0; i < ARRAY_LEN(shared); i++)
		if (is_there(root, shared[i]))
			add_node(b, root, shared[i], "    ");
	if (!find_libraries(root, folder, sizeof(folder)))
		return b->len == b->max ? -E2BIG : 0;
	buf_adds(b, "  mounts:\n");
	add_libraries(root, folder, b);
	add_programs(root, folder, b);
	buf_addf(
		b,
		"  hooks:\n    - {hookName: createContainer, path: /usr/bin/nvidia-cdi-hook, args: [nvidia-cdi-hook, update-ldcache, --folder, \"%s\"]}\n",
		folder);
	return buf_adds(b, "\n");
}

/* --- AMD: one device for all GPUs' memory and queues, and a node for each --- */

int gpu_describe_amd(const char *root, struct buf *b)
{
	char path[64], all[1024] = "";
	int n = 0;

	if (!is_there(root, "/dev/kfd"))
		return 0;
	for (int minor = 128; minor < 192; minor++) {
		char text[64];
		AUTO_CLOSE int fd = -1;

		snprintf(path, sizeof(path), "/dev/dri/renderD%d", minor);
		if (!is_there(root, path))
			continue;
		snprintf(text, sizeof(text), "/sys/class/drm/renderD%d/device", minor);
		fd = open_under(root, text, O_PATH | O_DIRECTORY);
		if (fd < 0 || fd_get(fd, "vendor", text, sizeof(text)) < 0 || strncmp(text, "0x1002", 6))
			continue;
		if (!n)
			buf_adds(b, "cdiVersion: 0.5.0\nkind: amd.com/gpu\ndevices:\n");
		snprintf(text, sizeof(text), "%d", n++);
		add_device(b, text);
		add_node(b, root, path, "    ");
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%d ", minor);
	}
	if (!n)
		return 0;
	add_device(b, "all");
	for (char *at = all, *end; *at; at = end + 1) {
		snprintf(path, sizeof(path), "/dev/dri/renderD%ld", strtol(at, &end, 10));
		add_node(b, root, path, "    ");
	}
	buf_adds(b, "containerEdits:\n  deviceNodes:\n");
	add_node(b, root, "/dev/kfd", "    ");
	return buf_adds(b, "\n");
}
