/* `cloche quarantine`. */
#include "daemon/quarantine.h"
#include "base/base.h"
#include "base/id.h"
#include "base/sys.h"
#include "daemon/conf.h"
#include "daemon/state_check.h"
#include "engine/image/disk.h"
#include "layers/layers.h"
#include "layers/manifest.h"
#include "layers/tree.h"

#include <dirent.h>
#include <getopt.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PLACES 3U /* of the database, of layers, of disks */
#define FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

struct place {
	int dir; /* -1: there is none */
	char path[DAEMON_PATH + 32];
};

static void usage(FILE *to)
{
	fputs("usage: cloche quarantine [options] ls | show ID | rm ID...\n"
	      "\n"
	      "Lists, shows or removes what a daemon put into quarantine (docs/recovery.md): databases of other daemons, layers\n"
	      "that no checkpoint or sandbox uses, disks that no sandbox uses.\n"
	      "\n"
	      "  --data DIR    the daemon's data folder (" CONF_DATA ")\n"
	      "  --layers DIR  the folder of its checkpoints (\"layers\" in --data)\n"
	      "  --config FILE the daemon's configuration (" CONF_FILE " when it exists)\n",
	      to);
}

static void when(time_t t, char ret[32])
{
	struct tm tm;

	if (!gmtime_r(&t, &tm) || !strftime(ret, 32, "%Y-%m-%dT%H:%M:%SZ", &tm))
		snprintf(ret, 32, "-");
}

static int show_files(int dir)
{
	DIR *d = fdopendir(dir);
	struct dirent *x;

	if (!d) {
		fd_close(dir);
		return -errno;
	}
	while ((x = readdir(d))) {
		struct stat st;

		if (x->d_name[0] != '.' && fstatat(dirfd(d), x->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			printf("  %-16s %12lld\n", x->d_name, (long long)st.st_size);
	}
	closedir(d);
	return 0;
}

/* An ext4 file system in a file. */
static void show_disk(const struct place *p, const char *id, const struct stat *st, bool more)
{
	char since[32];

	when(st->st_ctim.tv_sec, since);
	printf("%s  %-8s  %s  %lld bytes, of which %lld are used\n", id, "disk", since, (long long)st->st_size,
	       (long long)st->st_blocks * 512);
	if (more)
		printf("  %s/%s\n", p->path, id);
}

static bool is_file(const struct place *p, const char *id, struct stat *ret)
{
	return fstatat(p->dir, id, ret, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(ret->st_mode);
}

/* One line, and with @more all that is known. */
static int show_folder(const struct place *p, const char *id, bool more)
{
	AUTO_CLOSE int dir = sys_openat(p->dir, id, FOLDER, 0);
	struct manifest m;
	struct stat st;
	char since[32], made[32];

	if (dir < 0 || fstat(dir, &st) < 0)
		return dir < 0 ? dir : -errno;
	when(st.st_ctim.tv_sec, since);
	if (manifest_read(dir, id, &m) < 0) {
		bool state = faccessat(dir, "state.db", F_OK, AT_SYMLINK_NOFOLLOW) == 0;

		printf("%s  %-8s  %s\n", id, state ? "database" : "unknown", since);
	} else {
		when((time_t)(m.made / 1000000000ULL), made);
		printf("%s  %-8s  %s  image %s, %llu bytes in %llu files%s, of %s\n", id, "layer", since, m.image,
		       (unsigned long long)m.size, (unsigned long long)m.files, m.meta ? " and memory" : "", made);
		if (more)
			printf("  tenant number %llu, on %s%s\n", (unsigned long long)m.tenant,
			       m.parent[0] ? "layer " : "the image", m.parent);
	}
	if (!more)
		return 0;
	printf("  %s/%s\n", p->path, id);
	return show_files(TAKE_FD(dir));
}

static int show_one(const struct place *p, const char *id, bool more)
{
	struct stat st;

	if (!is_file(p, id, &st))
		return show_folder(p, id, more);
	show_disk(p, id, &st, more);
	return 0;
}

static int remove_one(const struct place *p, const char *id)
{
	struct stat st;

	return is_file(p, id, &st) ? sys_unlinkat(p->dir, id, 0) : tree_remove(p->dir, id);
}

static int list(const struct place *p)
{
	int fd = p->dir < 0 ? -1 : sys_openat(p->dir, ".", FOLDER, 0), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *x;

	if (!d)
		return 0;
	while (r == 0 && (x = readdir(d)))
		if (id_valid(x->d_name))
			r = show_one(p, x->d_name, false);
	closedir(d);
	return r;
}

static bool has(const struct place *p, const char *id)
{
	struct stat st;

	return p->dir >= 0 && id_valid(id) && fstatat(p->dir, id, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int on_one(const struct place p[PLACES], const char *verb, const char *id, struct err *e)
{
	const struct place *at = NULL;
	int r;

	for (unsigned i = 0; i < PLACES && !at; i++)
		at = has(&p[i], id) ? &p[i] : NULL;
	if (!at)
		return err_set(e, ERR_NOT_FOUND, -ENOENT, "id '%.64s' is not in the quarantine", id);
	r = strcmp(verb, "rm") ? show_one(at, id, true) : remove_one(at, id);
	return r < 0 ? err_sys(e, ERR_INTERNAL, r, "%s '%s'", verb, id) : 0;
}

static int open_places(const struct daemon_config *c, struct place p[PLACES], struct err *e)
{
	snprintf(p[0].path, sizeof(p[0].path), "%s/" STATE_QUARANTINE, c->data);
	if (c->layers[0])
		snprintf(p[1].path, sizeof(p[1].path), "%s/" LAYERS_QUARANTINE, c->layers);
	else
		snprintf(p[1].path, sizeof(p[1].path), "%s/layers/" LAYERS_QUARANTINE, c->data);
	snprintf(p[2].path, sizeof(p[2].path), "%s/disks/" DISK_QUARANTINE, c->data);
	for (unsigned i = 0; i < PLACES; i++) {
		p[i].dir = sys_openat(AT_FDCWD, p[i].path, FOLDER, 0);
		if (p[i].dir < 0 && p[i].dir != -ENOENT)
			return err_sys(e, ERR_DENIED, p[i].dir, "open '%.200s'", p[i].path);
	}
	return 0;
}

static int run(struct daemon_config *c, int argc, char **argv, struct err *e)
{
	struct place p[PLACES] = { { .dir = -1 }, { .dir = -1 }, { .dir = -1 } };
	const char *verb = argc ? argv[0] : "";
	const bool all = !strcmp(verb, "ls");
	int r;

	if (all ? argc != 1 : (strcmp(verb, "show") && strcmp(verb, "rm")) || argc < 2) {
		err_set(e, ERR_INVALID, -EINVAL, "expected ls, show ID or rm ID");
		err_remedy(e, "see `cloche quarantine --help`");
		return -EINVAL;
	}
	r = open_places(c, p, e);
	for (unsigned i = 0; r == 0 && all && i < PLACES; i++) {
		r = list(&p[i]);
		if (r < 0)
			err_sys(e, ERR_INTERNAL, r, "read '%.200s'", p[i].path);
	}
	for (int i = 1; r == 0 && !all && i < argc; i++)
		r = on_one(p, verb, argv[i], e);
	for (unsigned i = 0; i < PLACES; i++)
		fd_close(p[i].dir);
	return r;
}

int quarantine_main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "data", required_argument, NULL, 'd' },
		{ "layers", required_argument, NULL, 'l' },
		{ "config", required_argument, NULL, 'c' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	static struct daemon_config config;
	const char *file = access(CONF_FILE, F_OK) == 0 ? CONF_FILE : NULL, *data = NULL, *layers = NULL;
	struct err e = { 0 };
	int c, r = 0;

	opterr = 0;
	while (r == 0 && (c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (c == 'd')
			data = optarg;
		else if (c == 'l')
			layers = optarg;
		else if (c == 'c')
			file = optarg;
		else if (c == 'h') {
			usage(stdout);
			return 0;
		} else
			r = err_set(&e, ERR_INVALID, -EINVAL, "option '%.60s': unknown, or its value is missing",
				    argv[optind - 1]);
	}
	conf_init(&config);
	if (r == 0 && file)
		r = conf_read(&config, file, &e);
	if (r == 0 && data)
		r = conf_set(&config, "data", data, &e);
	if (r == 0 && layers)
		r = conf_set(&config, "layers", layers, &e);
	if (r == 0)
		r = run(&config, argc - optind, argv + optind, &e);
	if (r == 0)
		return 0;
	fprintf(stderr, "cloche: %s%s%s\n", e.msg, e.remedy[0] ? "; " : "", e.remedy);
	return r == -EINVAL ? 125 : 1;
}
