/* Asks apt for its sources, and mmdebstrap for a small Debian from them. */
#include "client/debian.h"
#include "base/base.h"
#include "client/child.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define ROOM (1 * GIB) /* what mmdebstrap unpacks and packs: about 600 MiB */
#define HOST_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]"
#define MIRROR_REMEDY "name one: `--mirror URL`, as in Debian's list of mirrors"

/* ---- what this machine has ---- */

/* The first line that mmdebstrap or apt marks as an error; those behind it follow from it. */
static const char *reason(struct buf *text)
{
	char *save = NULL;

	if (strstr(buf_str(text), "No space left"))
		return "No space left on device";
	for (char *line = text->len ? strtok_r(text->data, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save))
		if (!strncmp(line, "E: ", 3))
			return line + 3;
	return "it gave no reason";
}

static int output_of(char *const *argv, struct buf *to, struct err *e)
{
	AUTO(buf_done) struct buf complaints = BUF_INIT(4 * KIB);
	int r = child_run(&(struct child){ .argv = argv, .in = -1, .out = -1, .text = to, .complaints = &complaints },
			  e);

	return r <= 0 ? r : err_set(e, ERR_REFUSED, -EIO, "%s failed: %.160s", argv[0], reason(&complaints));
}

/* VERSION_CODENAME of a Debian; false elsewhere. */
static bool own_suite(char *to, size_t size)
{
	FILE *f = fopen("/etc/os-release", "re");
	char line[256];
	bool debian = false;

	*to = '\0';
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		debian = debian || !strcmp(line, "ID=debian");
		if (!strncmp(line, "VERSION_CODENAME=", 17))
			snprintf(to, size, "%.*s", (int)size - 1, line + 17);
	}
	if (f)
		fclose(f);
	return debian && *to;
}

/* Acquire::http::Proxy, or what programs use when apt has no setting of its own. */
static int find_proxy(struct debian *d, struct err *e)
{
	AUTO(buf_done) struct buf text = BUF_INIT(4 * KIB);
	char *argv[] = { (char[]){ "apt-config" }, (char[]){ "shell" }, (char[]){ "P" },
			 (char[]){ "Acquire::http::Proxy" }, NULL };
	const char *env = getenv("http_proxy"), *begin;
	struct err none = { 0 };
	int r = output_of(argv, &text, &none);

	if (r == -EINTR) {
		*e = none;
		return r;
	}
	begin = r == 0 ? strstr(buf_str(&text), "P='") : NULL;
	if (begin)
		snprintf(d->proxy, sizeof(d->proxy), "%.*s", (int)strcspn(begin + 3, "'"), begin + 3);
	else if (env)
		snprintf(d->proxy, sizeof(d->proxy), "%s", env);
	if (!strcmp(d->proxy, "DIRECT"))
		d->proxy[0] = '\0';
	return 0;
}

/* ---- sources and their hosts ---- */

static int bad_source(const char *url, struct err *e)
{
	err_set(e, ERR_UNSUPPORTED, -EOPNOTSUPP,
		"apt's source '%.150s' is not http or https: the steps of a build cannot reach it", url);
	err_remedy(e, MIRROR_REMEDY);
	return -EOPNOTSUPP;
}

/* The host of http://[USER@]HOST[:PORT]/…, once. */
static int add_host(struct debian *d, const char *url, struct err *e)
{
	bool tls = !strncmp(url, "https://", 8);
	char host[DEBIAN_TEXT];
	const char *at, *p;
	size_t n;

	if (!tls && strncmp(url, "http://", 7) != 0)
		return bad_source(url, e);
	p = url + (tls ? 8 : 7);
	n = strcspn(p, "/");
	at = memrchr(p, '@', n);
	if (at) {
		n -= (size_t)(at + 1 - p);
		p = at + 1;
	}
	at = memrchr(p, ':', n);
	if (at && memchr(at, ']', n - (size_t)(at - p))) /* of an IPv6 address */
		at = NULL;
	if (!n || at == p ||
	    (size_t)snprintf(host, sizeof(host), "%.*s%s", (int)n, p,
			     at	 ? "" :
			     tls ? ":443" :
				   ":80") >= sizeof(host))
		return bad_source(url, e);
	if (strspn(host, HOST_LETTERS) != strlen(host))
		return bad_source(url, e);
	for (size_t i = 0; i < d->hosts; i++)
		if (!strcmp(d->host[i], host))
			return 0;
	snprintf(d->host[d->hosts++], DEBIAN_TEXT, "%s", host);
	return 0;
}

static int add_source(struct debian *d, const char *url, const char *suite, struct err *e)
{
	if (d->sources == DEBIAN_SOURCES)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "apt has more than %d sources of Debian", DEBIAN_SOURCES);
	if ((size_t)snprintf(d->source[d->sources], DEBIAN_TEXT, "deb %s %s main", url, suite) >= DEBIAN_TEXT)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "a source's URL is too long: '%.100s'", url);
	d->sources++;
	return *d->proxy ? 0 : add_host(d, url, e);
}

/* One of ORIGIN, CODENAME, RELEASE, COMPONENT, URL, as apt prints them. What it does not know stays "$(ORIGIN)". */
static int take_target(struct debian *d, char *line, struct err *e)
{
	static const char *const behind[] = { "", "-updates", "-security", "/updates" };
	char *field[5], *save = NULL;
	size_t n = strlen(d->suite);

	for (size_t i = 0; i < ARRAY_LEN(field); i++)
		if (!(field[i] = strtok_r(i ? NULL : line, "\t", &save)))
			return 0;
	if ((field[0][0] != '$' && strcmp(field[0], "Debian") != 0) || strcmp(field[3], "main") != 0)
		return 0;
	/* A source may be called "stable": then what it holds says its name. */
	if (field[1][0] == '$')
		field[1] = field[2];
	for (size_t i = 0; i < ARRAY_LEN(behind); i++)
		if (!strncmp(field[1], d->suite, n) && !strcmp(field[1] + n, behind[i]))
			return add_source(d, field[4], field[2], e);
	return 0;
}

static int ask_apt(struct debian *d, struct err *e)
{
	AUTO(buf_done) struct buf text = BUF_INIT(256 * KIB);
	char *argv[] = { (char[]){ "apt-get" },
			 (char[]){ "indextargets" },
			 (char[]){ "--format" },
			 (char[]){ "$(ORIGIN)\t$(CODENAME)\t$(RELEASE)\t$(COMPONENT)\t$(REPO_URI)" },
			 (char[]){ "Created-By: Packages" },
			 NULL };
	char *save = NULL;
	int r = output_of(argv, &text, e);

	if (r == -EIO)
		err_remedy(e, MIRROR_REMEDY);
	if (r < 0 && r != -ENOENT)
		return r;
	for (char *line = r == 0 && text.len ? strtok_r(text.data, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save)) {
		r = take_target(d, line, e);
		if (r < 0)
			return r;
	}
	if (d->sources)
		return 0;
	err_set(e, ERR_NOT_FOUND, -ENOENT, "this machine's apt has no source of Debian %s", d->suite);
	err_remedy(e, MIRROR_REMEDY);
	return -ENOENT;
}

int debian_find(const char *mirror, const char *suite, struct debian *ret, struct err *e)
{
	char own[sizeof(ret->suite)];
	bool debian = own_suite(own, sizeof(own));
	int r;

	*ret = (struct debian){ 0 };
	if (suite && strspn(suite, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(suite))
		return err_set(e, ERR_INVALID, -EINVAL, "--suite '%.40s': must be a name such as bookworm", suite);
	snprintf(ret->suite, sizeof(ret->suite), "%s", suite ? suite : debian ? own : "stable");
	r = find_proxy(ret, e);
	if (r == 0 && *ret->proxy)
		r = add_host(ret, ret->proxy, e);
	if (r < 0)
		return r;
	if (mirror && strpbrk(mirror, " \t\n"))
		return err_set(e, ERR_INVALID, -EINVAL, "--mirror '%.100s': must be a URL", mirror);
	return mirror ? add_source(ret, mirror, ret->suite, e) : ask_apt(ret, e);
}

/* ---- mmdebstrap ---- */

static int enough_room(const char *folder, struct err *e)
{
	struct statvfs s;

	if (statvfs(folder, &s) < 0)
		return err_sys(e, ERR_NOT_FOUND, -errno, "%.150s", folder);
	if ((uint64_t)s.f_bavail * s.f_frsize >= ROOM)
		return 0;
	err_set(e, ERR_EXHAUSTED, -ENOSPC, "%.150s has %llu MiB left, and Debian takes %llu to unpack", folder,
		(unsigned long long)((uint64_t)s.f_bavail * s.f_frsize / MIB), (unsigned long long)(ROOM / MIB));
	err_remedy(e, "free some, or set TMPDIR to a folder with more");
	return -ENOSPC;
}

static int why(struct buf *complaints, struct err *e)
{
	const char *text = reason(complaints);

	err_set(e, ERR_REFUSED, -EIO, "mmdebstrap could not make a Debian: %.160s", text);
	if (strstr(text, "No space"))
		err_remedy(e, "set TMPDIR to a folder with 1 GiB");
	else if (geteuid() != 0)
		err_remedy(
			e,
			"as another user than root it needs newuidmap and this user's ids in /etc/subuid; or run it as root");
	else
		err_remedy(e, "try `apt-get update`, or another mirror with --mirror URL");
	return -EIO;
}

int debian_make(const struct debian *d, int *ret_fd, struct err *e)
{
	/* clang-format off */
	static const char *const options[] = {
		"mmdebstrap", "--mode=unshare", "--variant=apt", "--components=main", "--include=ca-certificates", "--format=tar",
		/* As in other small images: nothing that only people at a terminal need, and no waiting for the disk. */
		"--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/info/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*/LC_MESSAGES/*", "--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-include=/usr/share/doc/*/copyright", "--aptopt=Acquire::Languages none", "--skip=output/dev",
	};
	/* clang-format on */
	const char *folder = getenv("TMPDIR") && *getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp", *argv[64];
	AUTO(buf_done) struct buf complaints = BUF_INIT(16 * KIB);
	AUTO_CLOSE int fd = -1;
	char proxy[DEBIAN_TEXT + 64], scratch[DEBIAN_TEXT];
	size_t n = 0;
	int r = enough_room(folder, e);

	if (r < 0)
		return r;
	fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "make a file in %.150s", folder);
	snprintf(scratch, sizeof(scratch), "%.400s/cloche-bootstrap-XXXXXX", folder);
	if (!mkdtemp(scratch) || chmod(scratch, 0755) < 0) /* apt works there as another user */
		return err_sys(e, ERR_INTERNAL, -errno, "make a folder in %.150s", folder);
	setenv("TMPDIR", scratch, 1);
	setenv("LC_ALL", "C.UTF-8", 1);
	for (size_t i = 0; i < ARRAY_LEN(options); i++)
		argv[n++] = options[i];
	if (*d->proxy) {
		snprintf(proxy, sizeof(proxy), "--aptopt=Acquire::http::Proxy \"%s\"", d->proxy);
		argv[n++] = proxy;
	}
	argv[n++] = d->suite;
	argv[n++] = "-";
	for (size_t i = 0; i < d->sources; i++)
		argv[n++] = d->source[i];
	argv[n] = NULL;
	r = child_run(
		&(struct child){
			.argv = (char *const *)(uintptr_t)argv,
			.in = -1,
			.out = fd,
			.complaints = &complaints,
			.scratch = scratch,
			/* It unmounts /sys below its folder, which systemd's shared mounts would do to ours as well. */
			.own_mounts = true },
		e);
	rmdir(scratch); /* is there only if nothing was started */
	if (r == -ENOENT) {
		err_set(e, ERR_UNSUPPORTED, r, "mmdebstrap is not installed");
		err_remedy(e, "`apt-get install mmdebstrap`");
	}
	if (r < 0)
		return r;
	if (r > 0)
		return why(&complaints, e);
	if (lseek(fd, 0, SEEK_SET) < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "rewind the archive");
	*ret_fd = TAKE_FD(fd);
	return 0;
}
