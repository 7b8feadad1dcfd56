/* `cloche checkpoint export` and `import`: a checkpoint as one file, to be carried to another machine. */
#include "client/checkpoint.h"
#include "base/base.h"
#include "client/outfile.h"
#include "client/progress.h"
#include "client/ref.h"
#include "client/show.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

struct carry {
	int fd;
	struct progress progress;
};

/* ---- export ---- */

static const char export_help[] =
	"usage: cloche checkpoint export CHECKPOINT FILE\n"
	"\n"
	"Writes a checkpoint to one file, which `cloche checkpoint import` reads on any machine that has the same image.\n"
	"The file is an archive (tar.zst) with all layers and a manifest of their checksums. FILE `-` is stdout. An existing\n"
	"FILE is replaced when the new one is complete.\n"
	"\n";

static int to_fd(void *arg, const void *data, size_t len)
{
	struct carry *x = arg;

	progress_add(&x->progress, len);
	return fd_write_all(x->fd, data, len);
}

static int fetch(struct conn *c, struct carry *x, const char *word, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	struct call_spec s = { .method = "GET", .accept = "*/*", .sink = to_fd, .arg = x };
	AUTO(call_free) struct call *call = NULL;
	int r = ref_url(&path, word, "/export", "");

	if (r < 0)
		return err_sys(e, ERR_INVALID, r, "'%.100s'", word);
	s.path = buf_str(&path);
	progress_init(&x->progress, word, 0);
	r = call_start(c, &s, &call, e);
	if (r == 0)
		r = call_wait(call, e);
	progress_done(&x->progress);
	return r;
}

static int run_export(struct args *a, struct err *e)
{
	AUTO(outfile_done) struct outfile out = OUTFILE_INIT;
	AUTO(conn_close) struct conn *c = NULL;
	struct carry x = { .fd = STDOUT_FILENO };
	bool std;
	int r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	r = args_count(a, 2, 2, "CHECKPOINT and FILE", e);
	if (r < 0)
		return r;
	std = !strcmp(a->rest[1], "-");
	if (std && a->json)
		return err_set(e, ERR_INVALID, -EINVAL, "--json and the archive cannot both be written to stdout");
	if (std && isatty(STDOUT_FILENO)) {
		err_set(e, ERR_INVALID, -EINVAL, "the archive cannot be written to a terminal");
		err_remedy(e, "name a file, or redirect stdout");
		return -EINVAL;
	}
	r = conn_open(&a->conn, &c, e);
	if (r == 0 && !std) {
		r = outfile_open(&out, a->rest[1], e);
		x.fd = out.fd;
	}
	if (r == 0)
		r = fetch(c, &x, a->rest[0], e);
	if (r == 0 && !std)
		r = outfile_commit(&out, 0600, e);
	if (r < 0 || !a->json)
		return r;
	AUTO_JSON json_t *told = json_pack("{s:s, s:I}", "path", a->rest[1], "bytes", (json_int_t)x.progress.done);
	return show_json(told, SHOW_LINE, e);
}

/* ---- import ---- */

enum { OPT_NAME = 256, OPT_LABEL, OPT_ISOLATION, OPT_KEEP_NETWORK, OPT_KEEP_MOUNTS, OPT_VERIFY };

static const struct option import_options[] = {
	{ "name", required_argument, NULL, OPT_NAME },
	{ "label", required_argument, NULL, OPT_LABEL },
	{ "isolation", required_argument, NULL, OPT_ISOLATION },
	{ "keep-network", no_argument, NULL, OPT_KEEP_NETWORK },
	{ "keep-mounts", no_argument, NULL, OPT_KEEP_MOUNTS },
	{ "verify", no_argument, NULL, OPT_VERIFY },
	{ NULL, 0, NULL, 0 },
};

static const char import_help[] =
	"usage: cloche checkpoint import [options] FILE\n"
	"\n"
	"Reads a file written by `cloche checkpoint export`, and prints the new checkpoint's id. FILE `-` is stdin. A file\n"
	"that is incomplete, altered or for another image is refused, and nothing of it is kept.\n"
	"\n"
	"  --name NAME         name here                                     as exported\n"
	"  --label TEXT        a label for people                            as exported\n"
	"  --isolation TIER    container or vm, for sandboxes made from it   as exported\n"
	"  --keep-network      keep the network policy of the file           none: each restore sets one\n"
	"  --keep-mounts       keep the mounts of host folders of the file   none\n"
	"  --verify            refuse a file that is not signed by this daemon or by a key in export_trust\n";

static ssize_t from_fd(void *arg, char *buf, size_t len)
{
	struct carry *x = arg;
	ssize_t n;

	do {
		n = read(x->fd, buf, len);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	progress_add(&x->progress, (uint64_t)n);
	return n;
}

static int deliver(struct conn *c, struct carry *x, const char *name, const char *query, json_t **ret, struct err *e)
{
	struct call_spec s = { .method = "POST", .source = from_fd, .size = -1, .arg = x };
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO(call_free) struct call *call = NULL;
	struct stat st;
	int r = buf_addf(&path, "/v1/checkpoints/import%s%s", *query ? "?" : "", *query ? query + 1 : "");

	if (r < 0)
		return err_sys(e, ERR_INVALID, r, "the request is too large");
	if (fstat(x->fd, &st) == 0 && S_ISREG(st.st_mode))
		s.size = st.st_size;
	s.path = buf_str(&path);
	progress_init(&x->progress, name, s.size > 0 ? (uint64_t)s.size : 0);
	r = call_start(c, &s, &call, e);
	if (r == 0)
		r = call_wait(call, e);
	progress_done(&x->progress);
	if (r < 0)
		return r;
	*ret = json_loadb(call_body(call)->data, call_body(call)->len, JSON_REJECT_DUPLICATES, NULL);
	return *ret ? 0 : err_set(e, ERR_INTERNAL, -EPROTO, "the daemon's answer is not valid JSON");
}

static int run_import(struct args *a, struct err *e)
{
	AUTO(buf_done) struct buf query = BUF_INIT(4 * KIB);
	AUTO(conn_close) struct conn *c = NULL;
	AUTO_JSON json_t *v = NULL;
	AUTO_CLOSE int fd = -1;
	struct carry x = { .fd = STDIN_FILENO };
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		if (opt == OPT_KEEP_NETWORK)
			r = buf_adds(&query, "&network=keep");
		else if (opt == OPT_KEEP_MOUNTS)
			r = buf_adds(&query, "&mounts=keep");
		else if (opt == OPT_VERIFY)
			r = buf_adds(&query, "&verify=true");
		else
			r = url_add(&query,
				    opt == OPT_NAME  ? "&name=%s" :
				    opt == OPT_LABEL ? "&label=%s" :
						       "&isolation=%s",
				    optarg);
		if (r < 0)
			return err_sys(e, ERR_INVALID, r, "the request is too large");
	}
	if (r < 0 || a->help)
		return r;
	r = args_count(a, 1, 1, "FILE", e);
	if (r < 0)
		return r;
	if (strcmp(a->rest[0], "-")) {
		fd = open(a->rest[0], O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return err_sys(e, ERR_NOT_FOUND, -errno, "%.150s", a->rest[0]);
		x.fd = fd;
	}
	r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = deliver(c, &x, fd < 0 ? "stdin" : a->rest[0], buf_str(&query), &v, e);
	if (r < 0)
		return r;
	if (a->json)
		return show_json(v, SHOW_LINE, e);
	show_line(show_str(v, "id"));
	return 0;
}

const struct command checkpoint_export = {
	.name = "checkpoint export",
	.text = "write a checkpoint to one file",
	.help = export_help,
	.complete = COMPLETE_NAMES,
	.names = "checkpoint",
	.run = run_export,
};

const struct command checkpoint_import = {
	.name = "checkpoint import",
	.text = "read a checkpoint from a file",
	.help = import_help,
	.options = import_options,
	.complete = COMPLETE_FILES,
	.run = run_import,
};
