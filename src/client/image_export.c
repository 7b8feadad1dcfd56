/* `cloche image export` and `commit`. */
#include "base/base.h"
#include "client/image.h"
#include "client/outfile.h"
#include "client/progress.h"
#include "client/show.h"

#include <unistd.h>

static const char export_help[] =
	"usage: cloche image export IMAGE FILE\n"
	"\n"
	"Writes an image to one file: an OCI layout as a tar, which `docker load`, podman and skopeo read. FILE `-` is stdout.\n"
	"An existing FILE is replaced when the new one is complete.\n"
	"\n";

struct export
{
	int fd;
	struct progress progress;
};

static int to_fd(void *arg, const void *data, size_t len)
{
	struct export *x = arg;

	progress_add(&x->progress, len);
	return fd_write_all(x->fd, data, len);
}

static int run_export(struct args *a, struct err *e)
{
	AUTO(outfile_done) struct outfile out = OUTFILE_INIT;
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO(conn_close) struct conn *c = NULL;
	AUTO(call_free) struct call *call = NULL;
	struct export x = { .fd = STDOUT_FILENO };
	struct call_spec s = { .method = "GET", .accept = "*/*", .sink = to_fd, .arg = &x };
	bool std;
	int r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	r = args_count(a, 2, 2, "IMAGE and FILE", e);
	if (r < 0)
		return r;
	std = !strcmp(a->rest[1], "-");
	if (std && isatty(STDOUT_FILENO)) {
		err_set(e, ERR_INVALID, -EINVAL, "the archive cannot be written to a terminal");
		err_remedy(e, "name a file, or redirect stdout");
		return -EINVAL;
	}
	if (image_url(&path, a->rest[0], "/export") < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "the name of the image is too long");
	r = conn_open(&a->conn, &c, e);
	if (r == 0 && !std) {
		r = outfile_open(&out, a->rest[1], e);
		x.fd = out.fd;
	}
	s.path = buf_str(&path);
	progress_init(&x.progress, a->rest[0], 0);
	if (r == 0)
		r = call_start(c, &s, &call, e);
	if (r == 0)
		r = call_wait(call, e);
	progress_done(&x.progress);
	return r == 0 && !std ? outfile_commit(&out, 0600, e) : r;
}

static const char commit_help[] =
	"usage: cloche image commit [options] SANDBOX NAME\n"
	"       cloche image commit [options] --checkpoint ID NAME\n"
	"\n"
	"Makes an image from a sandbox or a checkpoint: the image that it was made from, and a layer with its changes. That must\n"
	"have been a stored image.\n"
	"\n"
	"  --checkpoint ID     of a checkpoint, by its id\n"
	"  --comment TEXT      for the image's history\n";

enum { OPT_CHECKPOINT = 256, OPT_COMMENT };

static const struct option commit_options[] = {
	{ "checkpoint", required_argument, NULL, OPT_CHECKPOINT },
	{ "comment", required_argument, NULL, OPT_COMMENT },
	{ NULL, 0, NULL, 0 },
};

static int run_commit(struct args *a, struct err *e)
{
	AUTO_JSON json_t *body = json_object(), *v = NULL;
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO(conn_close) struct conn *c = NULL;
	const char *checkpoint = NULL;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		if (opt == OPT_CHECKPOINT)
			checkpoint = optarg;
		else
			r = args_set_text(body, "comment", optarg, e);
		if (r < 0)
			return r;
	}
	if (r == 0 && !a->help)
		r = args_count(a, checkpoint ? 1 : 2, checkpoint ? 1 : 2, checkpoint ? "NAME" : "SANDBOX and NAME", e);
	if (r < 0 || a->help)
		return r;
	r = args_set_text(body, "name", a->rest[a->nrest - 1], e);
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = checkpoint ? url_add(&path, "/v1/checkpoints/%s/commit", checkpoint) :
				 url_add(&path, "/v1/sandboxes/%s/commit", a->rest[0]);
	if (r == 0)
		r = conn_json(c, "POST", buf_str(&path), body, &v, e);
	if (r < 0)
		return r;
	if (a->json)
		return show_json(v, SHOW_LINE, e);
	show_line(show_str(v, "name"));
	return 0;
}

const struct command image_export = {
	.name = "image export",
	.text = "write an image to one file",
	.help = export_help,
	.complete = COMPLETE_NAMES,
	.names = "image",
	.run = run_export,
};

const struct command image_commit = {
	.name = "image commit",
	.text = "make an image of a sandbox or a checkpoint",
	.help = commit_help,
	.options = commit_options,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run_commit,
};
