/* `cloche cp`. */
#include "client/client.h"
#include "base/base.h"
#include "client/outfile.h"
#include "client/progress.h"
#include "client/show.h"
#include "client/tree.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPT_USER = 256 };

static const struct option options[] = {
	{ "user", required_argument, NULL, OPT_USER },
	{ "recursive", no_argument, NULL, 'r' }, /* as fingers have it */
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche cp [options] SRC… SANDBOX:PATH\n"
	"       cloche cp [options] SANDBOX:PATH… DST\n"
	"\n"
	"Copies files and folders into or out of a sandbox, with their modes. When DST is a folder, the copy is placed\n"
	"in it. `-` is stdin or stdout: the bytes of a file, or a tar archive of a folder. SRC/. copies what is in the\n"
	"folder SRC. With several SRC, DST must be a folder. Write a local name with a colon as ./a:b.\n"
	"\n"
	"  --user NAME|UID[:GID]   user inside                               the sandbox's\n"
	"  -r, --recursive         has no effect: folders are always copied with their contents\n";

struct place {
	char *sandbox; /* NULL: here */
	const char *path;
};

struct cp {
	struct conn *conn;
	const char *user;
	bool json;
	bool many; /* several sources are copied into one folder */
	struct progress progress;
	/* what the callbacks need */
	int fd;
	struct tree_reader *tree;
	struct call *call;
	char *data;
	struct err err;
	json_t *done; /* what was copied, for --json */
};

static int parse_place(const char *text, struct place *ret, struct err *e)
{
	const char *colon = strchr(text, ':'), *slash = strchr(text, '/');

	*ret = (struct place){ .path = text };
	if (!colon || (slash && slash < colon))
		return 0;
	if (colon == text)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': the name of the sandbox before the colon is missing",
			       text);
	ret->sandbox = strndup(text, (size_t)(colon - text));
	ret->path = colon[1] ? colon + 1 : ".";
	return ret->sandbox ? 0 : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory");
}

/* The last part of a path; "" when there is none, as for "/", "." and "..". */
static void base_of(const char *path, char *ret, size_t size)
{
	size_t end = strlen(path), start;

	while (end && path[end - 1] == '/')
		end--;
	for (start = end; start && path[start - 1] != '/'; start--)
		;
	snprintf(ret, size, "%.*s", (int)(end - start), path + start);
	if (!strcmp(ret, ".") || !strcmp(ret, ".."))
		ret[0] = '\0';
}

static int files_url(const struct cp *p, struct buf *b, const struct place *at, const char *path, const char *more)
{
	int r = url_add(b, "/v1/sandboxes/%s/files?path=%s", at->sandbox, path);

	if (r == 0 && p->user)
		r = url_add(b, "&user=%s", p->user);
	return r < 0 ? r : buf_adds(b, more);
}

/* *ret is NULL when there is no such thing. */
static int remote_stat(struct cp *p, const struct place *at, const char *path, json_t **ret, struct err *e)
{
	AUTO(buf_done) struct buf url = BUF_INIT(32 * KIB);
	struct err mine = { 0 };
	int r = files_url(p, &url, at, path, "&op=stat");

	*ret = NULL;
	if (r < 0)
		return err_sys(e, ERR_INVALID, r, "the path");
	r = conn_get(p->conn, buf_str(&url), ret, &mine);
	/* Of the sandbox itself it is an error, of a file an answer. */
	if (r == -ENOENT && mine.kind == ERR_NOT_FOUND && !strstr(mine.msg, "no sandbox"))
		return 0;
	if (r < 0)
		*e = mine;
	return r;
}

/* Whether @path inside is a folder, or a link to one. */
static int remote_is_dir(struct cp *p, const struct place *at, const char *path, bool *ret_dir, bool *ret_there,
			 struct err *e)
{
	AUTO(buf_done) struct buf below = BUF_INIT(16 * KIB);
	AUTO_JSON json_t *st = NULL, *inner = NULL;
	int r = remote_stat(p, at, path, &st, e);

	if (r < 0)
		return r;
	*ret_there = st != NULL;
	*ret_dir = !strcmp(show_str(st, "type"), "dir");
	if (!strcmp(show_str(st, "type"), "link")) {
		if (buf_addf(&below, "%s/.", path) < 0)
			return err_set(e, ERR_INVALID, -ENAMETOOLONG, "the path is too long");
		r = remote_stat(p, at, buf_str(&below), &inner, NULL);
		*ret_dir = r == 0 && !strcmp(show_str(inner, "type"), "dir");
	}
	return 0;
}

/* Several sources need a folder: at one path each would replace the one before it. */
static int need_folder(const char *path, const char *where, struct err *e)
{
	err_set(e, ERR_INVALID, -ENOTDIR, "'%.100s' is not a folder %s, and there are several files to copy", path,
		where);
	err_remedy(e, "make the folder first, with `mkdir -p`");
	return -ENOTDIR;
}

/* ---- into a sandbox ---- */

static ssize_t from_fd(void *arg, char *buf, size_t len)
{
	struct cp *p = arg;
	ssize_t n;

	do {
		n = read(p->fd, buf, len);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	progress_add(&p->progress, (uint64_t)n);
	return n;
}

static ssize_t from_tree(void *arg, char *buf, size_t len)
{
	struct cp *p = arg;
	ssize_t n = tree_read(p->tree, buf, len);

	if (n > 0)
		progress_add(&p->progress, (uint64_t)n);
	return n;
}

static int send_call(struct cp *p, struct call_spec *s, struct err *e)
{
	AUTO(call_free) struct call *call = NULL;
	const struct buf *b;
	int r = call_start(p->conn, s, &call, e);

	if (r == 0)
		r = call_wait(call, e);
	progress_done(&p->progress);
	if (r < 0)
		return r;
	b = call_body(call);
	if (b->len)
		json_array_append_new(p->done, json_loadb(b->data, b->len, 0, NULL));
	return 0;
}

static int put_file(struct cp *p, int fd, const char *name, const struct place *to, const char *path, struct err *e)
{
	AUTO(buf_done) struct buf url = BUF_INIT(32 * KIB);
	struct call_spec s = { .method = "PUT", .source = from_fd, .size = -1, .arg = p };
	char more[64];
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return err_sys(e, ERR_INVALID, -errno, "%.150s", name);
	if (S_ISREG(st.st_mode))
		s.size = st.st_size;
	snprintf(more, sizeof(more), "&mkdirs=1&mode=%04o", S_ISREG(st.st_mode) ? st.st_mode & 0777U : 0644U);
	r = files_url(p, &url, to, path, more);
	if (r < 0)
		return err_sys(e, ERR_INVALID, r, "the path");
	s.path = buf_str(&url);
	p->fd = fd;
	progress_init(&p->progress, name, s.size > 0 ? (uint64_t)s.size : 0);
	r = send_call(p, &s, e);
	return r < 0 ? err_wrap(e, r, "%.100s", name) : 0;
}

static int put_tree(struct cp *p, const char *src, const char *prefix, const struct place *to, const char *path,
		    struct err *e)
{
	AUTO(buf_done) struct buf url = BUF_INIT(32 * KIB);
	struct call_spec s = { .method = "POST", .source = from_tree, .size = -1, .arg = p };
	AUTO(tree_read_free) struct tree_reader *tree = NULL;
	const json_t *skipped, *one;
	size_t i;
	int r;

	r = tree_read_open(src, prefix, &tree, e);
	if (r == 0)
		r = files_url(p, &url, to, path, "&op=extract");
	if (r < 0)
		return r;
	s.path = buf_str(&url);
	p->tree = tree;
	progress_init(&p->progress, src, 0);
	r = send_call(p, &s, e);
	if (r < 0 && tree_read_error(tree))
		*e = *tree_read_error(tree);
	skipped = json_object_get(json_array_get(p->done, json_array_size(p->done) - 1), "skipped");
	json_array_foreach(skipped, i, one) if (r == 0 && !p->json)
		show_warn("skipped %s: %s", show_str(one, "name"), show_str(one, "why"));
	return r;
}

/* Splits the path of a copy into its folder and its name. */
static int split(const char *path, char *dir, char *name, struct err *e)
{
	size_t len;

	base_of(path, name, PATH_MAX);
	if (!name[0])
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s' cannot be the name of a copy", path);
	len = (size_t)(strrchr(path, '/') ? strrchr(path, '/') - path : 0);
	while (len && path[len - 1] == '/')
		len--;
	snprintf(dir, PATH_MAX, "%.*s", (int)len, path);
	if (!dir[0])
		snprintf(dir, PATH_MAX, "%s", path[0] == '/' ? "/" : ".");
	return 0;
}

static int copy_in(struct cp *p, const char *src, const struct place *to, struct err *e)
{
	bool content = strlen(src) >= 2 && !strcmp(src + strlen(src) - 2, "/.");
	bool dir, there, slash = to->path[strlen(to->path) - 1] == '/';
	char base[PATH_MAX], path[2 * PATH_MAX], parent[PATH_MAX], trimmed[PATH_MAX];
	AUTO_CLOSE int fd = -1;
	struct stat st;
	int r;

	snprintf(trimmed, sizeof(trimmed), "%s", to->path);
	for (size_t n = strlen(trimmed); n > 1 && trimmed[n - 1] == '/'; n--)
		trimmed[n - 1] = '\0';
	r = remote_is_dir(p, to, trimmed, &dir, &there, e);
	if (r < 0)
		return r;
	if (p->many && !dir && (there || !slash))
		return need_folder(to->path, "inside", e);
	if (!strcmp(src, "-")) {
		if (dir || p->many)
			return err_set(e, ERR_INVALID, -EISDIR,
				       "'%.100s' is a folder; a copy of stdin needs the name of a file", to->path);
		return put_file(p, STDIN_FILENO, "stdin", to, trimmed, e);
	}
	fd = open(src, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, ERR_NOT_FOUND, -errno, "%.150s", src);
	base_of(src, base, sizeof(base));
	if (S_ISDIR(st.st_mode)) {
		if (there && !dir)
			return err_set(e, ERR_CONFLICT, -ENOTDIR, "'%.100s' is not a folder", to->path);
		if (content || strcmp(src, ".") == 0)
			return put_tree(p, src, "", to, trimmed, e);
		if (dir || p->many)
			return put_tree(p, src, base, to, trimmed, e);
		r = split(trimmed, parent, path, e);
		return r < 0 ? r : put_tree(p, src, path, to, parent, e);
	}
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_INVALID, -EINVAL, "%.150s is neither a file nor a folder", src);
	if (dir || slash)
		snprintf(path, sizeof(path), "%s/%s", strcmp(trimmed, "/") ? trimmed : "", base);
	else
		snprintf(path, sizeof(path), "%s", trimmed);
	return put_file(p, fd, src, to, path, e);
}

/* ---- out of a sandbox ---- */

static int to_fd(void *arg, const void *data, size_t len)
{
	struct cp *p = arg;

	progress_add(&p->progress, len);
	return fd_write_all(p->fd, data, len);
}

/* Bytes of the answer to @fd. */
static int fetch(struct cp *p, const struct place *from, const char *more, uint64_t size, int fd, struct err *e)
{
	AUTO(buf_done) struct buf url = BUF_INIT(32 * KIB);
	struct call_spec s = { .method = "GET", .accept = "*/*", .sink = to_fd, .arg = p };
	AUTO(call_free) struct call *call = NULL;
	int r = files_url(p, &url, from, from->path, more);

	if (r < 0)
		return err_sys(e, ERR_INVALID, r, "the path");
	s.path = buf_str(&url);
	p->fd = fd;
	progress_init(&p->progress, from->path, size);
	r = call_start(p->conn, &s, &call, e);
	if (r == 0)
		r = call_wait(call, e);
	progress_done(&p->progress);
	return r;
}

static int fetch_file(struct cp *p, const struct place *from, const json_t *st, const char *dst, struct err *e)
{
	unsigned long mode = strtoul(*show_str(st, "mode") ? show_str(st, "mode") : "0644", NULL, 8) & 0777;
	AUTO(outfile_done) struct outfile out = OUTFILE_INIT;
	int r = outfile_open(&out, dst, e);

	if (r == 0)
		r = fetch(p, from, "", show_u64(st, "size"), out.fd, e);
	return r < 0 ? r : outfile_commit(&out, (mode_t)mode, e);
}

static ssize_t pull(void *arg, const void **ret_data)
{
	struct cp *p = arg;
	ssize_t n = call_read(p->call, p->data, 256 * KIB, &p->err);

	if (n > 0)
		progress_add(&p->progress, (uint64_t)n);
	*ret_data = p->data;
	return n;
}

static int fetch_tree(struct cp *p, const struct place *from, const char *dst, struct err *e)
{
	AUTO(buf_done) struct buf url = BUF_INIT(32 * KIB);
	struct call_spec s = { .method = "GET", .accept = "*/*", .pull = true };
	AUTO(call_free) struct call *call = NULL;
	AUTO_FREE char *data = malloc(256 * KIB);
	struct tree_stats stats = { 0 };
	int r = data ? files_url(p, &url, from, from->path, "&op=archive&format=tar") : -ENOMEM;

	if (r < 0)
		return err_sys(e, ERR_INVALID, r, "the path");
	s.path = buf_str(&url);
	r = call_start(p->conn, &s, &call, e);
	if (r == 0)
		r = call_head(call, e);
	if (r < 0)
		return r;
	if (mkdir(dst, 0777) < 0 && errno != EEXIST)
		return err_sys(e, ERR_DENIED, -errno, "%.150s", dst);
	p->call = call;
	p->data = data;
	progress_init(&p->progress, from->path, 0);
	r = tree_unpack(dst, pull, p, &stats, e);
	progress_done(&p->progress);
	if (r < 0 && p->err.msg[0])
		*e = p->err;
	if (r == 0)
		json_array_append_new(p->done, json_pack("{s:s, s:I, s:I, s:I}", "path", dst, "files",
							 (json_int_t)stats.files, "bytes", (json_int_t)stats.bytes,
							 "skipped", (json_int_t)stats.skipped));
	return r;
}

static int copy_out(struct cp *p, const struct place *from, const char *dst, struct err *e)
{
	char base[PATH_MAX], path[2 * PATH_MAX];
	AUTO_JSON json_t *st = NULL;
	bool dir, there, here_dir;
	struct stat here;
	size_t len = strlen(from->path);
	bool content = len >= 2 && !strcmp(from->path + len - 2, "/.");
	int r = remote_is_dir(p, from, from->path, &dir, &there, e);

	if (r == 0)
		r = remote_stat(p, from, from->path, &st, e);
	if (r < 0)
		return r;
	if (!there || !st)
		return err_set(e, ERR_NOT_FOUND, -ENOENT, "%.60s has no '%.120s'", from->sandbox, from->path);
	if (!strcmp(dst, "-"))
		return fetch(p, from, dir ? "&op=archive&format=tar" : "", dir ? 0 : show_u64(st, "size"),
			     STDOUT_FILENO, e);
	here_dir = stat(dst, &here) == 0 && S_ISDIR(here.st_mode);
	if (p->many && !here_dir)
		return need_folder(dst, "here", e);
	if (!here_dir && dst[strlen(dst) - 1] == '/' && !dir)
		return err_set(e, ERR_NOT_FOUND, -ENOENT, "folder '%.150s' does not exist", dst);
	base_of(from->path, base, sizeof(base));
	if (here_dir && base[0] && !content)
		snprintf(path, sizeof(path), "%s/%s", dst, base);
	else
		snprintf(path, sizeof(path), "%s", dst);
	if (dir)
		return fetch_tree(p, from, path, e);
	r = fetch_file(p, from, st, path, e);
	if (r == 0)
		json_array_append_new(p->done,
				      json_pack("{s:s, s:I}", "path", path, "bytes", (json_int_t)show_u64(st, "size")));
	return r;
}

static int copy_all(struct cp *p, struct args *a, struct err *e)
{
	struct place to = { 0 }, from = { 0 };
	int r = parse_place(a->rest[a->nrest - 1], &to, e);

	for (int i = 0; i < a->nrest - 1 && r == 0; i++) {
		r = parse_place(a->rest[i], &from, e);
		if (r < 0)
			break;
		if (!from.sandbox == !to.sandbox) {
			r = err_set(e, ERR_INVALID, -EINVAL, "one side must be SANDBOX:PATH, the other a local path");
			err_remedy(e, "see `cloche cp --help`");
		} else if (to.sandbox) {
			r = copy_in(p, from.path, &to, e);
		} else {
			r = copy_out(p, &from, to.path, e);
		}
		free(from.sandbox);
	}
	free(to.sandbox);
	return r;
}

static int run(struct args *a, struct err *e)
{
	AUTO_JSON json_t *done = json_array();
	AUTO(conn_close) struct conn *c = NULL;
	struct cp p = { .fd = -1, .done = done };
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0)
		p.user = opt == OPT_USER ? optarg : p.user;
	if (r < 0 || a->help)
		return r;
	r = args_connect(a, 2, -1, "SRC and DST", &c, e);
	if (r < 0)
		return r;
	p.conn = c;
	p.json = a->json;
	p.many = a->nrest > 2;
	r = copy_all(&p, a, e);
	return r == 0 && a->json ? show_json(done, SHOW_LINE, e) : r;
}

const struct command cmd_cp = {
	.name = "cp",
	.text = "copy files and folders in and out",
	.help = help,
	.options = options,
	.letters = "r",
	.complete = COMPLETE_COPY,
	.run = run,
};
