/*
 * `cloche image bootstrap`: images without a registry. The base, localhost/debian, is made by mmdebstrap and imported; the others are
 * recipes, Dockerfiles that come with this program and are built on it. Names below localhost/ are never looked for elsewhere.
 */
#include "client/image.h"
#include "base/base.h"
#include "base/fd.h"
#include "client/child.h"
#include "client/debian.h"
#include "client/show.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#define PREFIX "localhost/"
#define BASE PREFIX "debian"
#define LABEL "cloche.apt" /* of the base: the hosts that its apt connects to */
#define RECIPE_MAX (64 * KIB)
#define DEPTH 4 /* of recipes on recipes */

enum { OPT_MIRROR = 256, OPT_SUITE, OPT_REFRESH };

static const struct option options[] = {
	{ "mirror", required_argument, NULL, OPT_MIRROR },
	{ "suite", required_argument, NULL, OPT_SUITE },
	{ "refresh", no_argument, NULL, OPT_REFRESH },
	{ "quiet", no_argument, NULL, 'q' },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche image bootstrap [options] NAME\n"
	"       cloche image bootstrap\n"
	"\n"
	"Makes an image from Debian's packages, without a registry, and prints its name, localhost/NAME. Without NAME it lists\n"
	"what can be made. mmdebstrap makes the base, localhost/debian, on this machine, from the mirrors that its apt uses; the\n"
	"rest is built by the daemon, which may connect to these mirrors only. What is there already is not made again.\n"
	"\n"
	"  --refresh           make the base again, with Debian's updates, and the rest on it\n"
	"  --mirror URL        where Debian's packages are                   as apt on this machine\n"
	"  --suite NAME        which Debian, as bookworm                     as this machine\n"
	"  -q, --quiet         no progress, only the name\n";

struct bootstrap {
	char folder[512]; /* of the recipes */
	char hosts[DEBIAN_SOURCES * DEBIAN_TEXT]; /* HOST:PORT that steps may connect to, with blanks between them */
	const char *mirror, *suite;
	bool refresh, quiet, json;
	struct conn_opts *conn;
};

/* ---- recipes ---- */

static int find_folder(struct bootstrap *b, struct err *e)
{
	char path[sizeof(b->folder)];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof("images"));
	char *slash;

	path[n > 0 ? n : 0] = '\0';
	slash = strrchr(path, '/');
	if (slash)
		memcpy(slash + 1, "images", sizeof("images"));
	memcpy(b->folder, path, sizeof(path));
	if (slash && access(path, R_OK) == 0)
		return 0;
	err_set(e, ERR_NOT_FOUND, -ENOENT, "the recipes are not beside this program (%.150s)", path);
	err_remedy(e, "run `make install`");
	return -ENOENT;
}

static int read_recipe(const struct bootstrap *b, const char *name, char text[RECIPE_MAX])
{
	char path[1024];

	if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(name) || !*name ||
	    (size_t)snprintf(path, sizeof(path), "%s/%s/Dockerfile", b->folder, name) >= sizeof(path))
		return -ENOENT;
	return (int)fd_get(AT_FDCWD, path, text, RECIPE_MAX);
}

static int is_recipe(const struct dirent *d)
{
	return d->d_name[0] != '.';
}

/* The names, or with @about a line for each. */
static int list_recipes(const struct bootstrap *b, struct buf *to, bool about, struct err *e)
{
	AUTO_FREE char *text = malloc(RECIPE_MAX);
	struct dirent **all = NULL;
	int n = text ? scandir(b->folder, &all, is_recipe, alphasort) : -1, r = 0;

	if (n < 0)
		return err_sys(e, ERR_INTERNAL, -errno, "%.150s", b->folder);
	r = about ? buf_addf(to, "%-14s%s\n", "debian", "a small Debian with apt: what the others are built on") :
		    buf_adds(to, "debian");
	for (int i = 0; i < n; i++) {
		if (r == 0 && read_recipe(b, all[i]->d_name, text) > 0) {
			const char *line = text[0] == '#' ? text + 2 : "";

			r = about ? buf_addf(to, "%-14s%.*s\n", all[i]->d_name, (int)strcspn(line, "\n"), line) :
				    buf_addf(to, ", %s", all[i]->d_name);
		}
		free(all[i]);
	}
	free(all);
	return r < 0 ? err_sys(e, ERR_TOO_LARGE, r, "list the recipes") : 0;
}

static int unknown(const struct bootstrap *b, const char *name, struct err *e)
{
	AUTO(buf_done) struct buf names = BUF_INIT(1 * KIB);
	int r = list_recipes(b, &names, false, e);

	if (r < 0)
		return r;
	err_set(e, ERR_NOT_FOUND, -ENOENT, "there is no recipe '%.60s'", name);
	err_remedy(e, "there are %s", buf_str(&names));
	return -ENOENT;
}

/* ---- this program again, for the verbs that it has ---- */

static int cloche(const struct bootstrap *b, const char *const *words, size_t n, int in, bool speak, struct err *e)
{
	static const char *const begin[] = { "/proc/self/exe", "image" };
	AUTO(buf_done) struct buf nothing = BUF_INIT(64 * KIB);
	const char *argv[DEBIAN_SOURCES * 2 + 16];
	size_t k = 0;
	int r;

	assert(n + ARRAY_LEN(begin) < ARRAY_LEN(argv));
	for (size_t i = 0; i < ARRAY_LEN(begin); i++)
		argv[k++] = begin[i];
	for (size_t i = 0; i < n; i++)
		argv[k++] = words[i];
	argv[k] = NULL;
	/* Not as options, which other users can see. */
	if (b->conn->url)
		setenv("CLOCHE_URL", b->conn->url, 1);
	if (b->conn->token)
		setenv("CLOCHE_TOKEN", b->conn->token, 1);
	r = child_run(
		&(struct child){
			.argv = (char *const *)(uintptr_t)argv, .in = in, .out = -1, .text = speak ? NULL : &nothing },
		e);
	return r <= 0 ? r : err_set(e, ERR_REFUSED, -EIO, "`cloche image %s` failed", words[0]);
}

static void say(const struct bootstrap *b, const char *image, const char *from)
{
	if (!b->quiet && !b->json)
		fprintf(stderr, "making %s from %s\n", image, from);
}

/* Before minutes of work that would be refused at their end. */
static int may_store(const struct bootstrap *b, struct err *e)
{
	AUTO(conn_close) struct conn *c = NULL;
	AUTO_JSON json_t *v = NULL;
	const char *scope;
	int r = conn_open(b->conn, &c, e);

	if (r == 0)
		r = conn_get(c, "/v1/whoami", &v, e);
	if (r < 0)
		return r;
	scope = show_str(v, "scope");
	if (strcmp(scope, "read") != 0 && strcmp(scope, "exec") != 0)
		return 0;
	err_set(e, ERR_DENIED, -EACCES, "this token has scope %s, and storing an image takes scope sandbox", scope);
	err_remedy(e, "use another token, or ask for a public image (`cloche image ls`)");
	return -EACCES;
}

/* ---- the base ---- */

/* Without the label it is an image of the user's own, and is not replaced. */
static int find_base(struct bootstrap *b, bool *ret_found, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(1 * KIB);
	AUTO(conn_close) struct conn *c = NULL;
	AUTO_JSON json_t *v = NULL;
	const char *hosts;
	int r = conn_open(b->conn, &c, e);

	*ret_found = false;
	if (r == 0)
		r = image_url(&path, BASE, "");
	if (r < 0)
		return r;
	r = conn_get(c, buf_str(&path), &v, e);
	if (r < 0 && e->kind == ERR_NOT_FOUND)
		return 0;
	if (r < 0)
		return r;
	*ret_found = true;
	hosts = show_str(json_object_get(json_object_get(v, "config"), "labels"), LABEL);
	if (*hosts && strlen(hosts) < sizeof(b->hosts)) {
		snprintf(b->hosts, sizeof(b->hosts), "%s", hosts);
		return 0;
	}
	err_set(e, ERR_CONFLICT, -EEXIST, BASE " is there, and not from `cloche image bootstrap`");
	err_remedy(e, "`cloche image tag " BASE " OTHER` and `cloche image rm " BASE "`");
	return -EEXIST;
}

static int make_base(struct bootstrap *b, struct err *e)
{
	char config[sizeof(b->hosts) + 100];
	const char *const words[] = { "import", "--format", "rootfs", "--config", config, "-", BASE };
	AUTO_FREE struct debian *d = malloc(sizeof(*d));
	AUTO_CLOSE int fd = -1;
	int r = d ? debian_find(b->mirror, b->suite, d, e) : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");

	if (r < 0)
		return r;
	b->hosts[0] = '\0';
	for (size_t i = 0; i < d->hosts; i++) {
		strncat(b->hosts, i ? " " : "", sizeof(b->hosts) - strlen(b->hosts) - 1);
		strncat(b->hosts, d->host[i], sizeof(b->hosts) - strlen(b->hosts) - 1);
	}
	say(b, BASE, b->hosts);
	snprintf(config, sizeof(config), "{\"Cmd\": [\"bash\"], \"Labels\": {\"" LABEL "\": \"%s\"}}", b->hosts);
	r = debian_make(d, &fd, e);
	return r < 0 ? r : cloche(b, words, ARRAY_LEN(words), fd, false, e);
}

/* ---- a recipe ---- */

static int build_recipe(struct bootstrap *b, const char *name, bool last, struct err *e)
{
	const char *words[DEBIAN_SOURCES * 2 + 8];
	char tag[128], folder[1024], *save = NULL;
	AUTO_FREE char *hosts = strdup(b->hosts);
	size_t n = 0;
	int r;

	snprintf(tag, sizeof(tag), PREFIX "%s", name);
	snprintf(folder, sizeof(folder), "%s/%s", b->folder, name);
	words[n++] = "build";
	if (b->quiet)
		words[n++] = "--quiet";
	if (b->json)
		words[n++] = "--json";
	words[n++] = "-t";
	words[n++] = tag;
	for (char *p = hosts ? strtok_r(hosts, " ", &save) : NULL; p && n + 4 < ARRAY_LEN(words);
	     p = strtok_r(NULL, " ", &save)) {
		words[n++] = "--allow";
		words[n++] = p;
	}
	words[n++] = folder;
	say(b, tag, folder);
	r = cloche(b, words, n, -1, last, e);
	if (r == -EIO)
		err_remedy(
			e,
			"if a mirror is refused: `network_private = HOST:PORT` allows one with a private address (docs/images.md)");
	return r;
}

/* What it is built on first: the name behind "ARG BASE=localhost/". */
static int make(struct bootstrap *b, const char *name, unsigned depth, struct err *e)
{
	static const char begin[] = "\nARG BASE=" PREFIX;
	AUTO_FREE char *text = malloc(RECIPE_MAX);
	char below[64] = "debian";
	bool found = false;
	const char *p;
	int r;

	if (!strcmp(name, "debian")) {
		r = find_base(b, &found, e);
		return r < 0 || (found && !b->refresh) ? r : make_base(b, e);
	}
	if (!text || read_recipe(b, name, text) <= 0)
		return unknown(b, name, e);
	p = strstr(text, begin);
	if (p)
		snprintf(below, sizeof(below), "%.*s", (int)strcspn(p + strlen(begin), "\n"), p + strlen(begin));
	if (depth + 1 == DEPTH)
		return err_set(e, ERR_INVALID, -ELOOP, "recipe '%.60s' is built on itself", name);
	r = make(b, below, depth + 1, e);
	return r < 0 ? r : build_recipe(b, name, !depth, e);
}

static int run(struct args *a, struct err *e)
{
	AUTO(buf_done) struct buf list = BUF_INIT(16 * KIB);
	AUTO_FREE struct bootstrap *b = calloc(1, sizeof(*b));
	int opt, r;

	if (!b)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
	while ((r = args_next(a, &opt, e)) > 0) {
		if (opt == 'q')
			b->quiet = true;
		else if (opt == OPT_REFRESH)
			b->refresh = true;
		else if (opt == OPT_MIRROR)
			b->mirror = optarg;
		else
			b->suite = optarg;
	}
	if (r < 0 || a->help)
		return r;
	b->conn = &a->conn;
	b->json = a->json;
	r = args_count(a, 0, 1, "NAME", e);
	if (r == 0)
		r = find_folder(b, e);
	if (r < 0)
		return r;
	if (!a->nrest) {
		r = list_recipes(b, &list, true, e);
		if (r == 0)
			fputs(buf_str(&list), stdout);
		return r;
	}
	r = may_store(b, e);
	if (r == 0)
		r = make(b, a->rest[0], 0, e);
	if (r == 0 && !strcmp(a->rest[0], "debian"))
		show_line(BASE);
	return r;
}

const struct command image_bootstrap = {
	.name = "image bootstrap",
	.text = "make an image of Debian packages, without a registry",
	.help = help,
	.letters = "q",
	.options = options,
	.complete = COMPLETE_WORDS,
	.words = "base data-science debian node python",
	.run = run,
};
