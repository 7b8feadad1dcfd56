/*
 * cloche-tar out|in --files FD --stream FD --path PATH [--format tar|tar.zst] [--max-bytes N] [--max-entries N]
 *	[--skip-dev N]
 * cloche-tar pack --changes FD --stream FD --manifest FD …
 * cloche-tar unpack --files FD --stream FD --manifest FD …
 * cloche-tar apply --files FD --changes FD …
 * cloche-tar layer --files FD --stream FD [--size N] [--digest D] [--diff D] [--lowest yes] [--sums yes] …
 * cloche-tar blobs --raw FD --stream FD --blobs FD …
 * cloche-tar layer-out --changes FD --stream FD …
 * cloche-tar context --files FD --stream FD …
 * cloche-tar select --from FD --spec FD
 * cloche-tar copy --from FD --spec FD --files FD …
 *
 * Theory of operation. The API process starts one of these per archive, with a connected file worker (proto/file.h) on
 * one descriptor and the archive's bytes on the other. It closes everything else, locks itself up (confine.c), and
 * only then touches a byte: `out` lists the sandbox's folder with all contents and writes an archive, `in` reads one
 * and makes what is in it below PATH. What can go wrong in the library that reads archives goes wrong here, in a
 * process that can open nothing and reaches one sandbox only, as the user whose worker it was given. `pack` makes a
 * checkpoint's file of a stream of changes (proto/change.h) and a manifest, `unpack` gives the manifest back and makes the rest in a
 * sandbox, `apply` does changes of one sandbox in another. `layer` makes the files of one layer of an image and checks its digests.
 * `layer-out` is its reverse: one layer of a stream of changes. `blobs` copies an archive to one file and the parts of an image that it holds, one behind the other, to another.
 * For builds of images, `context` makes an archive's files with all that it says of them, as root inside; `copy` copies files
 * of one sandbox, or a build's context, to another (copy_spec.h), and `select` computes the digest of what would be copied.
 *
 * It says how it went in one line of JSON on stdout: {"files", "bytes", "skipped": [{"name", "why"}],
 * "skipped_total"}, exit 0; or {"error": {"code", "message"}}, exit 1. `out` with exit 1 has written an archive
 * without an end. Wrong use: exit 2.
 */
#include "tar/tar.h"
#include "base/base.h"
#include "base/json.h"
#include "base/score.h"
#include "base/str.h"

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PATIENCE_MS 60000

static int say(const struct tar_result *r, int failed, const struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(2 * MIB);
	struct json j = JSON_INIT(&b);

	jout_object(&j, NULL);
	if (failed < 0) {
		jout_object(&j, "error");
		jout_str(&j, "reason", err_reason_name(err_reason(e)));
		jout_str(&j, "message", e->msg);
		jout_end(&j);
	} else {
		jout_u64(&j, "files", r->files);
		jout_u64(&j, "bytes", r->bytes);
		jout_array(&j, "skipped");
		for (uint64_t i = 0; i < r->skipped && i < TAR_SKIPPED_NAMED; i++) {
			jout_object(&j, NULL);
			jout_str(&j, "name", r->named[i].name);
			jout_str(&j, "why", r->named[i].why);
			jout_end(&j);
		}
		jout_end(&j);
		jout_u64(&j, "skipped_total", r->skipped);
		if (r->one_file)
			jout_bool(&j, "file", true);
		if (r->made[0])
			jout_str(&j, "made", r->made);
		if (r->digest[0])
			jout_str(&j, "digest", r->digest);
		if (r->diff[0]) {
			jout_str(&j, "diff", r->diff);
			jout_u64(&j, "in", r->in);
			jout_u64(&j, "out", r->out);
		}
		if (r->has_found)
			jout_raw(&j, "found", buf_str(&r->found), r->found.len);
	}
	jout_end(&j);
	if (jout_done(&j) < 0 || buf_addc(&b, '\n') < 0 || fd_write_all(STDOUT_FILENO, b.data, b.len) < 0)
		return 1;
	return failed < 0;
}

static int usage(void)
{
	static const char text[] =
		"usage: cloche-tar out|in --files FD --stream FD --path PATH [--format tar|tar.zst] "
		"[--max-bytes N] [--max-entries N] [--skip-dev N]\n"
		"       cloche-tar pack --changes FD --stream FD --manifest FD\n"
		"       cloche-tar unpack --files FD --stream FD --manifest FD\n"
		"       cloche-tar apply --files FD --changes FD\n"
		"       cloche-tar layer --files FD --stream FD [--size N] [--digest D] [--diff D] [--lowest yes] [--sums yes]\n"
		"       cloche-tar blobs --raw FD --stream FD --blobs FD\n"
		"       cloche-tar layer-out --changes FD --stream FD\n"
		"       cloche-tar context --files FD --stream FD\n"
		"       cloche-tar select --from FD --spec FD\n"
		"       cloche-tar copy --from FD --spec FD --files FD\n";

	fd_write_all(STDERR_FILENO, text, sizeof(text) - 1);
	return 2;
}

/* What it does, and with which descriptors: as bits of enum option. */
enum option { FILES = 1, STREAM = 2, MANIFEST = 4, CHANGES = 8, PATH = 16, FROM = 32, SPEC = 64 };
static const struct mode {
	const char *name;
	unsigned needs;
} modes[] = {
	{ "out", FILES | STREAM | PATH },
	{ "in", FILES | STREAM | PATH },
	{ "pack", CHANGES | STREAM | MANIFEST },
	{ "unpack", FILES | STREAM | MANIFEST },
	{ "apply", FILES | CHANGES },
	{ "layer", FILES | STREAM },
	{ "blobs", FILES | STREAM | MANIFEST }, /* FILES is --raw, and MANIFEST --blobs */
	{ "context", FILES | STREAM },
	{ "select", FROM | SPEC },
	{ "copy", FROM | SPEC | FILES },
	{ "layer-out", CHANGES | STREAM },
};
enum { OUT, IN, PACK, UNPACK, APPLY, LAYER, BLOBS, CONTEXT, SELECT, COPY, LAYER_OUT, MODES };

struct fds {
	uint64_t files, stream, manifest, changes, from, spec;
};

static int parse(int argc, char **argv, struct tar_opts *o, struct fds *f, unsigned *ret_given)
{
	for (int i = 2; i + 1 < argc; i += 2) {
		const char *key = argv[i], *value = argv[i + 1];
		int r = 0;

		if (!strcmp(key, "--files") || !strcmp(key, "--raw"))
			r = parse_u64(value, &f->files, NULL), *ret_given |= FILES;
		else if (!strcmp(key, "--stream"))
			r = parse_u64(value, &f->stream, NULL), *ret_given |= STREAM;
		else if (!strcmp(key, "--manifest") || !strcmp(key, "--blobs"))
			r = parse_u64(value, &f->manifest, NULL), *ret_given |= MANIFEST;
		else if (!strcmp(key, "--changes"))
			r = parse_u64(value, &f->changes, NULL), *ret_given |= CHANGES;
		else if (!strcmp(key, "--from"))
			r = parse_u64(value, &f->from, NULL), *ret_given |= FROM;
		else if (!strcmp(key, "--spec"))
			r = parse_u64(value, &f->spec, NULL), *ret_given |= SPEC;
		else if (!strcmp(key, "--max-bytes"))
			r = parse_u64(value, &o->max_bytes, NULL);
		else if (!strcmp(key, "--max-entries"))
			r = parse_u64(value, &o->max_entries, NULL);
		else if (!strcmp(key, "--skip-dev"))
			r = parse_u64(value, &o->skip_dev, NULL);
		else if (!strcmp(key, "--size"))
			r = parse_u64(value, &o->size, NULL);
		else if (!strcmp(key, "--digest"))
			o->digest = value;
		else if (!strcmp(key, "--diff"))
			o->diff = value;
		else if (!strcmp(key, "--lowest"))
			o->lowest = !strcmp(value, "yes");
		else if (!strcmp(key, "--sums"))
			o->sums = !strcmp(value, "yes");
		else if (!strcmp(key, "--path"))
			o->path = value, *ret_given |= PATH;
		else if (!strcmp(key, "--format") && (!strcmp(value, "tar") || !strcmp(value, "tar.zst")))
			o->zstd = value[3];
		else
			return -EINVAL;
		if (r < 0)
			return r;
	}
	return argc % 2 || (o->path && strlen(o->path) >= FILE_PATH_MAX) || f->files > INT32_MAX ||
			       f->stream > INT32_MAX || f->manifest > INT32_MAX || f->changes > INT32_MAX ||
			       f->from > INT32_MAX || f->spec > INT32_MAX ?
		       -EINVAL :
		       0;
}

/* The descriptors to their places, everything else closed. */
static int place(const struct fds *f, unsigned mode)
{
	const bool copies = mode == COPY || mode == SELECT;
	const uint64_t from[] = { mode == PACK || mode == LAYER_OUT ? f->changes :
				  copies			    ? f->from :
								      f->files,
				  mode == APPLY ? f->changes :
				  copies	? f->spec :
						  f->stream,
				  mode == COPY ? f->files : f->manifest };
	const unsigned n = modes[mode].needs & MANIFEST || mode == COPY ? 3 : 2;
	int high[3];

	for (unsigned i = 0; i < n; i++) {
		high[i] = fcntl((int)from[i], F_DUPFD, 10);
		if (high[i] < 0)
			return -errno;
	}
	for (unsigned i = 0; i < n; i++)
		if (dup2(high[i], TAR_FILES + (int)i) < 0)
			return -errno;
	return close_range(TAR_FILES + n, ~0U, 0) < 0 ? -errno : 0;
}

static int run(unsigned mode, const struct tar_opts *o, struct tar_result *result, struct err *e)
{
	static struct host host, to;

	host.fd = TAR_FILES;
	to.fd = TAR_TO;
	host.patience = mode == OUT || mode == IN ? 0 : PATIENCE_MS;
	to.patience = PATIENCE_MS;
	switch (mode) {
	case OUT:
		return tar_out(o, &host, result, e);
	case IN:
		return tar_in(o, &host, result, e);
	case PACK:
		return tar_pack(o, result, e);
	case UNPACK:
		return tar_unpack(o, &host, result, e);
	case LAYER:
		return tar_layer_hash(o, &host, result, e);
	case BLOBS:
		return tar_blobs(o, result, e);
	case LAYER_OUT:
		return tar_layer_out(o, result, e);
	case CONTEXT:
		return tar_context(o, &host, result, e);
	case SELECT:
		return tar_copy(o, &host, NULL, result, e);
	case COPY:
		return tar_copy(o, &host, &to, result, e);
	default:
		return tar_apply(o, &host, result, e);
	}
}

int main(int argc, char **argv)
{
	static struct tar_result result;
	struct tar_opts o = { 0 };
	struct err e = { 0 };
	struct fds f = { 0 };
	unsigned mode = 0, given = 0;
	int r;

	while (argc > 1 && mode < MODES && strcmp(argv[1], modes[mode].name))
		mode++;
	if (argc < 2 || mode == MODES || parse(argc, argv, &o, &f, &given) < 0 || given != modes[mode].needs)
		return usage();
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* without the daemon its work is of no use */
	setlocale(LC_CTYPE, "C.UTF-8"); /* names in archives are that */
	r = place(&f, mode);
	if (r < 0)
		err_sys(&e, ERR_INTERNAL, r, "the descriptors are invalid");
	if (r == 0) {
		/* it may go first: what it has in memory is an archive */
		score_sandbox_self("/proc/self/oom_score_adj");
		r = mode == LAYER ? 0 : confine(&e); /* that one forks first, and then confines itself */
	}
	if (r == 0)
		r = run(mode, &o, &result, &e);
	_exit(say(&result, r, &e));
}
