/*
 * The other runtimes, each with the least that gives it a usable root of its own: the host's /usr, a /proc, a /dev.
 * What they need (a bundle, a rootfs folder) is made once, in a folder of our own that goes away at the end.
 */
#include "bench.h"
#include "base/base.h"
#include "base/sys.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

/* As `crun spec` writes it, but for the terminal, the command, the bound /usr, and a limit this host may not set. */
static const char config[] =
	"{\"ociVersion\":\"1.0.0\",\"process\":{\"terminal\":false,\"user\":{\"uid\":0,\"gid\":0},\"args\":[%s],"
	"\"env\":[\"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"],\"cwd\":\"/\","
	"\"capabilities\":{\"bounding\":[\"CAP_KILL\"],\"effective\":[\"CAP_KILL\"],\"permitted\":[\"CAP_KILL\"]},"
	"\"noNewPrivileges\":true},\"root\":{\"path\":\"%s/rootfs\",\"readonly\":true},\"hostname\":\"bench\",\"mounts\":["
	"{\"destination\":\"/usr\",\"type\":\"bind\",\"source\":\"/usr\",\"options\":[\"rbind\",\"ro\"]},"
	"{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\"},"
	"{\"destination\":\"/dev\",\"type\":\"tmpfs\",\"source\":\"tmpfs\",\"options\":[\"nosuid\",\"strictatime\","
	"\"mode=755\",\"size=65536k\"]},"
	"{\"destination\":\"/dev/pts\",\"type\":\"devpts\",\"source\":\"devpts\",\"options\":[\"nosuid\",\"noexec\","
	"\"newinstance\",\"ptmxmode=0666\",\"mode=0620\",\"gid=5\"]},"
	"{\"destination\":\"/dev/shm\",\"type\":\"tmpfs\",\"source\":\"shm\",\"options\":[\"nosuid\",\"noexec\",\"nodev\","
	"\"mode=1777\",\"size=65536k\"]},"
	"{\"destination\":\"/dev/mqueue\",\"type\":\"mqueue\",\"source\":\"mqueue\",\"options\":[\"nosuid\",\"noexec\","
	"\"nodev\"]},"
	"{\"destination\":\"/sys\",\"type\":\"sysfs\",\"source\":\"sysfs\",\"options\":[\"nosuid\",\"noexec\",\"nodev\","
	"\"ro\"]},"
	"{\"destination\":\"/sys/fs/cgroup\",\"type\":\"cgroup\",\"source\":\"cgroup\",\"options\":[\"nosuid\",\"noexec\","
	"\"nodev\",\"relatime\",\"ro\"]}],"
	"\"linux\":{\"resources\":{\"devices\":[{\"allow\":false,\"access\":\"rwm\"}]},"
	"\"namespaces\":[{\"type\":\"pid\"},{\"type\":\"network\"},{\"type\":\"ipc\"},{\"type\":\"uts\"},"
	"{\"type\":\"mount\"}],"
	"\"maskedPaths\":[\"/proc/acpi\",\"/proc/asound\",\"/proc/kcore\",\"/proc/keys\",\"/proc/latency_stats\","
	"\"/proc/timer_list\",\"/proc/timer_stats\",\"/proc/sched_debug\",\"/sys/firmware\",\"/proc/scsi\"],"
	"\"readonlyPaths\":[\"/proc/bus\",\"/proc/fs\",\"/proc/irq\",\"/proc/sys\",\"/proc/sysrq-trigger\"]}}\n";

static int write_bundle(struct peers *p, int dir, const char *name, const char *args)
{
	char text[4096], path[64];
	AUTO_CLOSE int fd = -1;
	int n;

	snprintf(path, sizeof(path), "%s/config.json", name);
	n = snprintf(text, sizeof(text), config, args, p->dir);
	if (n < 0 || n >= (int)sizeof(text))
		return -E2BIG;
	if (mkdirat(dir, name, 0700) < 0)
		return -errno;
	fd = sys_openat(dir, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	return fd < 0 ? fd : fd_write_all(fd, text, (size_t)n);
}

static int write_files(struct peers *p)
{
	static const char *const folders[] = { "rootfs",     "rootfs/usr", "rootfs/proc", "rootfs/dev",
					       "rootfs/sys", "rootfs/tmp", "rootfs/etc",  "rootfs/run" };
	static const char *const links[][2] = { { "usr/bin", "rootfs/bin" },
						{ "usr/sbin", "rootfs/sbin" },
						{ "usr/lib", "rootfs/lib" },
						{ "usr/lib64", "rootfs/lib64" } };
	AUTO_CLOSE int dir = sys_openat(AT_FDCWD, p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	int r = dir;

	for (size_t i = 0; r >= 0 && i < ARRAY_LEN(folders); i++)
		r = sys_mkdirat(dir, folders[i], 0755);
	for (size_t i = 0; r >= 0 && i < ARRAY_LEN(links); i++)
		r = sys_symlinkat(links[i][0], dir, links[i][1]);
	if (r >= 0)
		r = write_bundle(p, dir, "true", "\"/bin/true\"");
	if (r >= 0)
		r = write_bundle(p, dir, "sleep", "\"/bin/sleep\",\"100000\"");
	return r;
}

/* Depth first; what is mounted somewhere below is left alone by unlinkat itself. */
static void remove_tree(int dirfd, const char *name)
{
	int fd = sys_openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *x;

	while (d && (x = readdir(d))) {
		if (!strcmp(x->d_name, ".") || !strcmp(x->d_name, ".."))
			continue;
		if (unlinkat(fd, x->d_name, 0) < 0)
			remove_tree(fd, x->d_name);
	}
	if (d)
		closedir(d);
	unlinkat(dirfd, name, AT_REMOVEDIR);
}

static const char *find_program(struct peers *p, size_t slot, const char *name)
{
	static const char *const folders[] = { "/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
					       "/usr/bin",	  "/sbin",	    "/bin" };

	for (size_t i = 0; i < ARRAY_LEN(folders); i++) {
		snprintf(p->text[slot], sizeof(p->text[slot]), "%s/%s", folders[i], name);
		if (access(p->text[slot], X_OK) == 0)
			return p->text[slot];
	}
	return NULL;
}

static void set(struct peers *p, enum peer_id id, struct peer peer)
{
	p->list[id] = peer;
	if (!peer.argv[0])
		snprintf(p->list[id].why_not, sizeof(p->list[id].why_not), "not installed");
}

static void list_peers(struct peers *p)
{
	const char *bwrap = find_program(p, 0, "bwrap"), *crun = find_program(p, 1, "crun");
	const char *podman = find_program(p, 2, "podman"), *docker = find_program(p, 3, "docker");
	const char *runsc = find_program(p, 4, "runsc");
	char *bundle = p->text[5], *state = p->text[6], *rootfs = p->text[7], *sleep = p->text[8],
	     *storage = p->text[9];
	char *run = p->text[10];
	size_t n = sizeof(p->text[0]);

	snprintf(p->id, sizeof(p->id), "cloche-bench-%d-@", getpid());
	snprintf(p->exec_id, sizeof(p->exec_id), "cloche-bench-%d-exec", getpid());
	snprintf(bundle, n, "%s/true", p->dir);
	snprintf(sleep, n, "%s/sleep", p->dir);
	snprintf(state, n, "%s/state", p->dir);
	snprintf(rootfs, n, "%s/rootfs", p->dir);
	snprintf(storage, n, "%s/storage", p->dir);
	snprintf(run, n, "%s/run", p->dir);
	set(p, PEER_NONE, (struct peer){ "no sandbox (posix_spawn)", VIEW_HOST, 1, { "/bin/true" }, "" });
	set(p, PEER_BWRAP,
	    (struct peer){ "bwrap --unshare-all --ro-bind / /",
			   VIEW_HOST,
			   1,
			   { bwrap, "--unshare-all", "--ro-bind", "/", "/", "/bin/true" },
			   "" });
	set(p, PEER_BWRAP_FULL,
	    (struct peer){ "bwrap, with its own /proc /dev /tmp",
			   VIEW_HOST,
			   1,
			   { bwrap, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev",
			     "--tmpfs", "/tmp", "/bin/true" },
			   "" });
	set(p, PEER_CRUN,
	    (struct peer){
		    "crun run", VIEW_PEERS, 1, { crun, "--root", state, "run", "--bundle", bundle, p->id }, "" });
	set(p, PEER_PODMAN,
	    (struct peer){ "podman run",
			   VIEW_PEERS,
			   25,
			   { podman,
			     "--root",
			     storage,
			     "--runroot",
			     run,
			     "--cgroup-manager",
			     "cgroupfs",
			     "run",
			     "--rm",
			     "--network",
			     "none",
			     "--ulimit",
			     "nofile=1024:1024",
			     "--ulimit",
			     "nproc=4096:4096",
			     "-v",
			     "/usr:/usr:ro",
			     "--rootfs",
			     rootfs,
			     "/bin/true" },
			   "" });
	set(p, PEER_DOCKER,
	    (struct peer){
		    "docker run",
		    VIEW_HOST,
		    25,
		    { docker, "run", "--rm", "--network", "none", "-v", "/usr:/usr:ro", "cloche-bench", "/bin/true" },
		    "" });
	set(p, PEER_RUNSC,
	    (struct peer){
		    "runsc run",
		    VIEW_PEERS,
		    25,
		    { runsc, "--root", state, "--platform=ptrace", "--network=none", "run", "--bundle", bundle, p->id },
		    "" });
}

/* Why it did not run: the line that speaks of an error, else the last one. */
static void last_words(const char *path, char *ret, size_t size)
{
	char text[2048], *rest = text, *line, *best = NULL;

	if (fd_get(AT_FDCWD, path, text, sizeof(text)) <= 0)
		return;
	while ((line = strsep(&rest, "\n"))) {
		if (!line[0])
			continue;
		best = line;
		if (strstr(line, "rror") || strstr(line, "annot"))
			break;
	}
	if (best)
		snprintf(ret, size, "%.*s", (int)size - 1, best);
}

/* Docker runs images only; one of an empty root is made from the folder the others use. */
static void prepare_docker(struct peers *p, const char *errors)
{
	char script[512];
	const char *const import[] = { "/bin/sh", "-c", script, NULL };
	struct spawn_opts o = { .errors = errors };

	snprintf(script, sizeof(script), "tar -C %s -c . | %s import - cloche-bench", p->text[7],
		 p->list[PEER_DOCKER].argv[0]);
	spawner_run(&p->host, import, &o, NULL, NULL);
}

static void try_peers(struct peers *p)
{
	char errors[160];
	struct spawn_opts o = { .errors = errors };

	snprintf(errors, sizeof(errors), "%s/errors", p->dir);
	if (!p->list[PEER_DOCKER].why_not[0])
		prepare_docker(p, errors);
	for (unsigned i = 0; i < PEER_COUNT; i++) {
		struct peer *x = &p->list[i];
		struct err e = { 0 };

		if (x->why_not[0] || spawner_run(peer_spawner(p, x), x->argv, &o, NULL, &e) == 0)
			continue;
		snprintf(x->why_not, sizeof(x->why_not), "%.150s", e.msg);
		last_words(errors, x->why_not, sizeof(x->why_not));
	}
}

/* One container that stays, for `crun exec`. */
static void start_sleeper(struct peers *p)
{
	const char *const argv[] = { p->text[1], "--root",   p->text[6], "run", "--detach",
				     "--bundle", p->text[8], p->exec_id, NULL };
	const char *const exec[] = { p->text[1], "--root", p->text[6], "exec", p->exec_id, "/bin/true" };
	struct spawn_opts o = { 0 };

	if (p->list[PEER_CRUN].why_not[0] || spawner_run(&p->other, argv, &o, NULL, NULL) < 0)
		return;
	memcpy(p->exec, exec, sizeof(exec));
}

struct spawner *peer_spawner(struct peers *p, const struct peer *peer)
{
	return peer->view == VIEW_HOST ? &p->host : &p->other;
}

int peers_open(struct peers *p, struct err *e)
{
	const char *tmp = getenv("TMPDIR");
	int r;

	*p = (struct peers){ .id = "" };
	r = snprintf(p->dir, sizeof(p->dir), "%s/cloche-bench.XXXXXX", tmp && tmp[0] == '/' ? tmp : "/tmp");
	if (r >= (int)sizeof(p->dir)) {
		p->dir[0] = '\0';
		return err_set(e, ERR_INVALID, -ENAMETOOLONG, "TMPDIR is too long");
	}
	r = spawner_start(&p->host, VIEW_HOST, e);
	if (r == 0)
		r = spawner_start(&p->other, VIEW_PEERS, e);
	if (r < 0)
		return r;
	if (!mkdtemp(p->dir)) {
		p->dir[0] = '\0';
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a folder for the peers");
	}
	r = write_files(p);
	if (r < 0)
		return err_sys(e, ERR_EXHAUSTED, r, "write what the peers need");
	list_peers(p);
	try_peers(p);
	start_sleeper(p);
	return 0;
}

void peers_close(struct peers *p)
{
	const char *const remove[] = { p->text[1], "--root", p->text[6], "delete", "--force", p->exec_id, NULL };
	struct spawn_opts o = { 0 };

	if (p->exec[0])
		spawner_run(&p->other, remove, &o, NULL, NULL);
	spawner_stop(&p->host);
	spawner_stop(&p->other);
	if (p->dir[0])
		remove_tree(AT_FDCWD, p->dir);
}
