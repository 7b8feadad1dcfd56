/*
 * cloche-tar out|in --files FD --stream FD --path PATH [--format tar|tar.zst] [--max-bytes N] [--max-entries N]
 *
 * Theory of operation. The API process starts one of these per archive, with a connected file worker (proto/file.h) on
 * one descriptor and the archive's bytes on the other. It closes everything else, locks itself up (confine.c), and
 * only then touches a byte: `out` lists the sandbox's folder with all contents and writes an archive, `in` reads one
 * and makes what is in it below PATH. What can go wrong in the library that reads archives goes wrong here, in a
 * process that can open nothing and reaches one sandbox only, as the user whose worker it was given.
 *
 * It says how it went in one line of JSON on stdout: {"files", "bytes", "skipped": [{"name", "why"}],
 * "skipped_total"}, exit 0; or {"error": {"code", "message"}}, exit 1. `out` with exit 1 has written an archive
 * without an end. Wrong use: exit 2.
 */
#include "tar/tar.h"
#include "base/base.h"
#include "base/json.h"
#include "base/str.h"

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

void tar_skip(struct tar_result *r, const char *name, const char *fmt, ...)
{
	va_list ap;

	if (r->skipped < TAR_SKIPPED_NAMED) {
		struct tar_skipped *s = &r->named[r->skipped];

		s->name = strndup(name, FILE_PATH_MAX);
		va_start(ap, fmt);
		vsnprintf(s->why, sizeof(s->why), fmt, ap);
		va_end(ap);
	}
	r->skipped++;
}

bool tar_name_ok(const char *name)
{
	if (!*name || *name == '/')
		return false;
	for (const char *p = name; *p; p += *p == '/') {
		size_t n = strcspn(p, "/");

		if (n == 2 && !memcmp(p, "..", 2))
			return false;
		p += n;
	}
	return true;
}

static int say(const struct tar_result *r, int failed, const struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(2 * MIB);
	struct json j = JSON_INIT(&b);

	jout_object(&j, NULL);
	if (failed < 0) {
		jout_object(&j, "error");
		jout_str(&j, "code", err_kind_name(e->kind));
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
	}
	jout_end(&j);
	if (jout_done(&j) < 0 || buf_addc(&b, '\n') < 0 || fd_write_all(STDOUT_FILENO, b.data, b.len) < 0)
		return 1;
	return failed < 0;
}

static int usage(void)
{
	static const char text[] = "usage: cloche-tar out|in --files FD --stream FD --path PATH [--format tar|tar.zst] "
				   "[--max-bytes N] [--max-entries N]\n";

	fd_write_all(STDERR_FILENO, text, sizeof(text) - 1);
	return 2;
}

static int parse(int argc, char **argv, struct tar_opts *o, uint64_t *files, uint64_t *stream)
{
	for (int i = 2; i + 1 < argc; i += 2) {
		const char *key = argv[i], *value = argv[i + 1];
		int r = 0;

		if (!strcmp(key, "--files"))
			r = parse_u64(value, files, NULL);
		else if (!strcmp(key, "--stream"))
			r = parse_u64(value, stream, NULL);
		else if (!strcmp(key, "--max-bytes"))
			r = parse_u64(value, &o->max_bytes, NULL);
		else if (!strcmp(key, "--max-entries"))
			r = parse_u64(value, &o->max_entries, NULL);
		else if (!strcmp(key, "--path"))
			o->path = value;
		else if (!strcmp(key, "--format") && (!strcmp(value, "tar") || !strcmp(value, "tar.zst")))
			o->zstd = value[3];
		else
			return -EINVAL;
		if (r < 0)
			return r;
	}
	return argc % 2 || !o->path || strlen(o->path) >= FILE_PATH_MAX || *files > INT32_MAX || *stream > INT32_MAX
		       ? -EINVAL
		       : 0;
}

/* The two descriptors to their places, everything else closed. */
static int place(int files, int stream)
{
	int a = fcntl(files, F_DUPFD, 10), b = fcntl(stream, F_DUPFD, 10);

	if (a < 0 || b < 0 || dup2(a, TAR_FILES) < 0 || dup2(b, TAR_STREAM) < 0)
		return -errno;
	return close_range(TAR_STREAM + 1, ~0U, 0) < 0 ? -errno : 0;
}

int main(int argc, char **argv)
{
	static struct host host;
	static struct tar_result result;
	uint64_t files = UINT64_MAX, stream = UINT64_MAX;
	struct tar_opts o = { 0 };
	struct err e = { 0 };
	bool out = argc > 1 && !strcmp(argv[1], "out");
	int r;

	if (argc < 2 || (!out && strcmp(argv[1], "in")) || parse(argc, argv, &o, &files, &stream) < 0)
		return usage();
	signal(SIGPIPE, SIG_IGN);
	setlocale(LC_CTYPE, "C.UTF-8"); /* names in archives are that */
	r = place((int)files, (int)stream);
	if (r < 0)
		err_sys(&e, ERR_INTERNAL, r, "the descriptors cannot be used");
	if (r == 0)
		r = confine(&e);
	if (r == 0)
		r = out ? tar_out(&o, &host, &result, &e) : tar_in(&o, &host, &result, &e);
	_exit(say(&result, r, &e));
}
