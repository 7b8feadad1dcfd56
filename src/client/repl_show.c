/* Prints results, output and errors of executions, and saves pictures under names that are not taken. */
#include "client/repl_show.h"
#include "base/base.h"
#include "base/base64.h"
#include "client/conn.h"
#include "client/show.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define NUMBER_MAX 100000U

static const struct {
	const char *mime, *suffix;
	bool coded; /* base64 */
} pictures[] = {
	{ "image/png", "png", true },
	{ "image/jpeg", "jpg", true },
	{ "image/svg+xml", "svg", false },
	{ "image/gif", "gif", true },
};

static void put(FILE *to, const char *text, size_t len)
{
	fwrite(text, 1, len, to);
	fflush(to);
}

static void put_line(FILE *to, const char *text)
{
	const size_t n = strlen(text);

	put(to, text, n);
	if (!n || text[n - 1] != '\n')
		put(to, "\n", 1);
}

/* --- pictures --- */

/* A new file; another program may take a number at the same time. */
static int new_file(struct repl_show *v, const char *suffix, char *path, size_t size)
{
	while (v->number < NUMBER_MAX) {
		int fd;

		if (snprintf(path, size, "%s/plot-%u.%s", v->folder, ++v->number, suffix) >= (int)size)
			return -ENAMETOOLONG;
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (fd >= 0 || errno != EEXIST)
			return fd < 0 ? -errno : fd;
	}
	return -EEXIST;
}

static int write_all(int fd, const char *p, size_t len)
{
	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			p += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

static void save(struct repl_show *v, const char *suffix, bool coded, const char *text)
{
	AUTO_FREE char *bytes = coded ? malloc(strlen(text) + 1) : NULL;
	char path[PATH_MAX];
	ssize_t n = (ssize_t)strlen(text);
	int fd, r;

	if (coded)
		n = bytes ? base64_decode(text, strlen(text), bytes) : -ENOMEM;
	if (n < 0) {
		show_warn("a picture cannot be decoded");
		return;
	}
	fd = new_file(v, suffix, path, sizeof(path));
	r = fd < 0 ? fd : write_all(fd, coded ? bytes : text, (size_t)n);
	if (fd >= 0)
		close(fd);
	if (r < 0)
		show_warn("%s: %s", fd < 0 ? v->folder : path, strerror(-r));
	else
		printf("[saved %s]\n", path);
	if (r < 0 && fd >= 0)
		unlink(path);
}

static bool show_picture(struct repl_show *v, const json_t *mime)
{
	for (size_t i = 0; i < ARRAY_LEN(pictures); i++) {
		const char *text = json_string_value(json_object_get(mime, pictures[i].mime));

		if (text && v->folder) {
			save(v, pictures[i].suffix, pictures[i].coded, text);
			return true;
		}
		if (text)
			return false;
	}
	return false;
}

/* --- the rest --- */

static void result(struct repl_show *v, const json_t *m)
{
	static const char *const texts[] = { "text/plain", "text/markdown", "text/latex", "text/html" };
	const json_t *mime = json_object_get(m, "mime");
	const bool pictured = show_picture(v, mime);
	const char *text = NULL, *key;
	json_t *value;

	for (size_t i = 0; i < ARRAY_LEN(texts) && !text; i++)
		text = json_string_value(json_object_get(mime, texts[i]));
	if (text && (!pictured || json_is_true(json_object_get(m, "is_main"))))
		put_line(stdout, text);
	if (text || pictured)
		return;
	json_object_foreach((json_t *)(uintptr_t)mime, key, value) printf("[%s]\n", key);
	fflush(stdout);
}

static void error(struct repl_show *v, const json_t *m)
{
	static const char *const leaving[] = { "SystemExit", "ProcessExit", "ShellExited" };
	const char *trace = show_str(m, "traceback");

	snprintf(v->error, sizeof(v->error), "%s", show_str(m, "name"));
	v->failed = true;
	for (size_t i = 0; i < ARRAY_LEN(leaving); i++)
		v->left = v->left || !strcmp(v->error, leaving[i]);
	if (v->left || !strcmp(v->error, "ExitStatus")) /* a shell's commands have said why */
		return;
	fflush(stdout);
	if (*trace)
		put_line(stderr, trace);
	else
		fprintf(stderr, "%s: %s\n", v->error, show_str(m, "value"));
}

static void end(struct repl_show *v, const json_t *m)
{
	const json_t *verdict = json_object_get(m, "verdict"), *cut = json_object_get(m, "truncated");
	const char *cause = show_str(verdict, "cause");

	if (strcmp(cause, "ok") != 0 && strcmp(cause, "error") != 0 && strcmp(cause, "interrupted") != 0)
		show_warn("%s: %s", cause, show_str(verdict, "detail"));
	else if (!strcmp(cause, "interrupted") && !v->error[0])
		show_warn("interrupted");
	if (!strcmp(show_str(verdict, "state"), "lost"))
		show_warn("variables are lost: what follows runs in a new interpreter");
	if (show_u64(cut, "output_dropped"))
		show_warn("%llu bytes of output are left out", (unsigned long long)show_u64(cut, "output_dropped"));
	if (show_u64(cut, "results_dropped"))
		show_warn("%llu results are left out", (unsigned long long)show_u64(cut, "results_dropped"));
	v->failed = v->failed || strcmp(cause, "ok") != 0;
}

bool repl_show(struct repl_show *v, const json_t *m)
{
	const char *type = show_str(m, "type");
	const json_t *text = json_object_get(m, "text");

	if (!strcmp(type, "stdout") || !strcmp(type, "stderr")) {
		put(type[3] == 'o' ? stdout : stderr, json_string_value(text) ? json_string_value(text) : "",
		    json_string_length(text));
	} else if (!strcmp(type, "result")) {
		result(v, m);
	} else if (!strcmp(type, "error")) {
		error(v, m);
	} else if (!strcmp(type, "refused")) {
		const json_t *e = json_object_get(m, "error");

		v->failed = true;
		show_warn("%s%s%s", show_str(e, "message"), *show_str(e, "remedy") ? "; " : "", show_str(e, "remedy"));
		return true;
	} else if (!strcmp(type, "end")) {
		end(v, m);
		return true;
	}
	return false;
}
