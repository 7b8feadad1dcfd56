/* `cloche image import`: an archive, or a folder, which is sent as one. */
#include "client/image.h"
#include "base/base.h"
#include "client/progress.h"
#include "client/show.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OPT_REF = 256, OPT_FORMAT, OPT_CONFIG };

static const struct option options[] = {
	{ "ref", required_argument, NULL, OPT_REF },
	{ "format", required_argument, NULL, OPT_FORMAT },
	{ "config", required_argument, NULL, OPT_CONFIG },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche image import [options] FILE|FOLDER [NAME]\n"
	"\n"
	"Reads an archive of `docker save`, an OCI layout (a folder, or a tar of one), or a root filesystem (a folder, or a tar\n"
	"of one), and prints the image's name. Archives may be compressed with gzip or zstd. FILE `-` is stdin. Without NAME\n"
	"the image gets the name that is in the archive.\n"
	"\n"
	"  --ref NAME          which image of an archive with several        the only one\n"
	"  --format FORMAT     image or rootfs                               detected\n"
	"  --config JSON       of a root filesystem: its configuration, as {\"Cmd\": [\"sh\"], \"Env\": [\"A=b\"]}\n";

struct import {
	int fd;
	pid_t tar; /* that packs a folder; 0 = none */
	struct progress progress;
};

static ssize_t from_fd(void *arg, char *buf, size_t len)
{
	struct import *x = arg;
	ssize_t n;

	do {
		n = read(x->fd, buf, len);
	} while (n < 0 && errno == EINTR);
	if (n > 0)
		progress_add(&x->progress, (uint64_t)n);
	return n < 0 ? -errno : n;
}

/* tar knows all of a file's facts: owners, links, holes, attributes. */
static int pack(struct import *x, char *folder, struct err *e)
{
	char *argv[] = { (char[]){ "tar" },
			 (char[]){ "--numeric-owner" },
			 (char[]){ "--format=posix" },
			 (char[]){ "--xattrs" },
			 (char[]){ "--xattrs-include=*" },
			 (char[]){ "--acls" },
			 (char[]){ "--sparse" },
			 (char[]){ "--one-file-system" },
			 (char[]){ "-C" },
			 folder,
			 (char[]){ "-cf" },
			 (char[]){ "-" },
			 (char[]){ "." },
			 NULL };
	posix_spawn_file_actions_t f;
	int pipes[2], r;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return err_sys(e, ERR_EXHAUSTED, -errno, "make a pipe");
	posix_spawn_file_actions_init(&f);
	posix_spawn_file_actions_adddup2(&f, pipes[1], STDOUT_FILENO);
	r = -posix_spawnp(&x->tar, "tar", &f, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&f);
	close(pipes[1]);
	if (r < 0) {
		close(pipes[0]);
		x->tar = 0;
		err_sys(e, ERR_UNSUPPORTED, r, "start tar");
		err_remedy(e, "install tar, or import an archive");
		return r;
	}
	x->fd = pipes[0];
	return 0;
}

static int packed(struct import *x, struct err *e)
{
	int status = 0;

	if (!x->tar)
		return 0;
	while (waitpid(x->tar, &status, 0) < 0 && errno == EINTR)
		;
	x->tar = 0;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ?
		       0 :
		       err_set(e, ERR_INTERNAL, -EIO, "tar could not read the folder");
}

static int open_what(struct import *x, char *what, struct err *e)
{
	struct stat st;

	x->fd = STDIN_FILENO;
	if (!strcmp(what, "-"))
		return 0;
	if (stat(what, &st) < 0)
		return err_sys(e, ERR_NOT_FOUND, -errno, "%.150s", what);
	if (S_ISDIR(st.st_mode))
		return pack(x, what, e);
	x->fd = open(what, O_RDONLY | O_CLOEXEC);
	return x->fd < 0 ? err_sys(e, ERR_NOT_FOUND, -errno, "%.150s", what) : 0;
}

static int deliver(struct conn *c, struct import *x, const char *what, const char *query, json_t **ret, struct err *e)
{
	struct call_spec s = { .method = "POST", .source = from_fd, .size = -1, .arg = x };
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO(call_free) struct call *call = NULL;
	struct stat st;
	int r = buf_addf(&path, "/v1/images/import%s%s", *query ? "?" : "", *query ? query + 1 : "");

	if (r < 0)
		return err_sys(e, ERR_INVALID, r, "the request is too large");
	if (fstat(x->fd, &st) == 0 && S_ISREG(st.st_mode))
		s.size = st.st_size;
	s.path = buf_str(&path);
	progress_init(&x->progress, what, s.size > 0 ? (uint64_t)s.size : 0);
	r = call_start(c, &s, &call, e);
	if (r == 0)
		r = call_wait(call, e);
	progress_done(&x->progress);
	if (r < 0)
		return r;
	*ret = json_loadb(call_body(call)->data, call_body(call)->len, JSON_REJECT_DUPLICATES, NULL);
	return *ret ? 0 : err_set(e, ERR_INTERNAL, -EPROTO, "the daemon's answer is not valid JSON");
}

static int run(struct args *a, struct err *e)
{
	AUTO(buf_done) struct buf query = BUF_INIT(4 * KIB);
	AUTO(conn_close) struct conn *c = NULL;
	AUTO_JSON json_t *v = NULL;
	struct import x = { .fd = -1 };
	struct err tar = { 0 };
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		r = url_add(&query,
			    opt == OPT_REF    ? "&ref=%s" :
			    opt == OPT_FORMAT ? "&format=%s" :
						"&config=%s",
			    optarg);
		if (r < 0)
			return err_sys(e, ERR_INVALID, r, "the request is too large");
	}
	if (r < 0 || a->help)
		return r;
	r = args_count(a, 1, 2, "FILE and NAME", e);
	if (r == 0 && a->nrest == 2 && url_add(&query, "&name=%s", a->rest[1]) < 0)
		r = err_set(e, ERR_INVALID, -EINVAL, "the request is too large");
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = open_what(&x, a->rest[0], e);
	if (r == 0)
		r = deliver(c, &x, x.fd ? a->rest[0] : "stdin", buf_str(&query), &v, e);
	if (x.fd > 0)
		close(x.fd);
	if (packed(&x, &tar) < 0 && r == 0) {
		*e = tar;
		r = -EIO;
	}
	if (r < 0)
		return r;
	if (a->json)
		return show_json(v, SHOW_LINE, e);
	show_line(show_str(v, "name"));
	return 0;
}

const struct command image_import = {
	.name = "image import",
	.text = "make an image of an archive or a folder",
	.help = help,
	.options = options,
	.complete = COMPLETE_FILES,
	.run = run,
};
