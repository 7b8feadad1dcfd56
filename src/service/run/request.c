/* What a run should be, from JSON: the code, and the sandbox it runs in. */
#include "base/base.h"
#include "base/base64.h"
#include "service/run/packages.h"
#include "service/run/struct.h"
#include "service/state/json_read.h"

/* Of a create, by the names that creates use. */
static const char *const limit_names[] = { "cpus", "memory", "disk", "inodes", "pids", "nofile" };
static const char *const sandbox_names[] = { "image", "isolation", "template", "network", "secrets" };

void run_request_free(struct run_request *q)
{
	if (!q)
		return;
	for (unsigned i = 0; i < q->files; i++) {
		free(q->file[i].path);
		free(q->file[i].bytes);
	}
	free(q->file);
	json_decref(q->create);
	json_decref(q->body);
	free(q);
}

/* A text, or {base64}. */
static int read_file(const char *path, const json_t *v, struct run_file *ret, struct err *e)
{
	const json_t *coded = json_object_get(v, "base64");
	const char *text = json_string_value(json_is_object(v) ? coded : v);
	const size_t len = json_string_length(json_is_object(v) ? coded : v);
	ssize_t n = (ssize_t)len;

	if (!*path || strlen(path) >= FILE_PATH_MAX)
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'files': a path must have 1 to %u bytes", FILE_PATH_MAX - 1);
	if (!text || (json_is_object(v) && json_object_size(v) != 1))
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'files': '%.100s' must be a string, or {\"base64\": string}",
			       path);
	ret->path = strdup(path);
	ret->bytes = malloc(len + 1);
	if (!ret->path || !ret->bytes)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a file");
	if (json_is_object(v))
		n = base64_decode(text, len, ret->bytes);
	else
		memcpy(ret->bytes, text, len);
	if (n < 0)
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'files': '%.100s' is not valid base64", path);
	ret->len = (size_t)n;
	return 0;
}

static int read_files(struct run_request *q, const json_t *files, struct err *e)
{
	json_t *walk = (json_t *)(uintptr_t)files, *v;
	const char *path;
	int r = 0;

	if (json_object_size(files) > RUN_FILES_MAX)
		return err_set(e, ERR_INVALID, -E2BIG, "'files' has too many files (at most %u)", RUN_FILES_MAX);
	q->file = calloc(json_object_size(files) + 1, sizeof(*q->file));
	if (!q->file)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for files");
	json_object_foreach(walk, path, v)
	{
		if (r == 0)
			r = read_file(path, v, &q->file[q->files++], e);
	}
	json_object_del(q->body, "files"); /* they can be large, and the code may run for long */
	return r;
}

static int read_artifacts(struct json_read *j, struct run_request *q)
{
	const json_t *v = json_read_any(j, "artifacts");

	if (!v || j->r < 0)
		return j->r;
	if (json_is_boolean(v)) {
		q->artifacts = json_is_true(v);
		return 0;
	}
	if (!json_is_array(v) || json_array_size(v) > RUN_GLOBS_MAX)
		return json_read_bad(j, "artifacts", "must be true, false, or an array of at most %u patterns",
				     RUN_GLOBS_MAX);
	for (size_t i = 0; i < json_array_size(v); i++) {
		const char *text = json_string_value(json_array_get(v, i));

		if (!text || !*text || *text == '/' || strlen(text) > 1024)
			return json_read_bad(j, "artifacts",
					     "must have patterns relative to the working folder, of 1 to 1024 bytes");
	}
	q->artifacts = json_array_size(v) > 0;
	q->globs = v;
	return 0;
}

/* The sandbox's part of the body, by its names there. Whether it is valid is for the code that reads every create. */
static void read_sandbox(struct json_read *j, json_t *create)
{
	const json_t *limits = json_read_object(j, "limits");
	struct json_read in = JIN_INIT(limits, j->e);

	for (size_t i = 0; i < ARRAY_LEN(sandbox_names); i++) {
		const json_t *v = json_read_any(j, sandbox_names[i]);

		if (v)
			json_object_set(create, sandbox_names[i], (json_t *)(uintptr_t)v);
	}
	if (!limits || j->r < 0)
		return;
	for (size_t i = 0; i < ARRAY_LEN(limit_names); i++) {
		const json_t *v = json_read_any(&in, limit_names[i]);

		if (v)
			json_object_set(create, limit_names[i], (json_t *)(uintptr_t)v);
	}
	j->r = json_read_end(&in);
	if (j->r < 0)
		err_wrap(j->e, j->r, "'limits'");
}

static int read_all(const struct service_opts *o, struct run_request *q, struct err *e)
{
	struct json_read j = JIN_INIT(q->body, e);
	enum context_language l = CONTEXT_PYTHON;
	const char *language = NULL;
	const json_t *files;

	q->code.timeout_ms = o->exec_timeout_ms;
	if (json_read_str(&j, "language", &language, 32) && j.r == 0 && !context_language_parse(language, &l))
		json_read_bad(&j, "language", "must be " CONTEXT_NAMES " (got '%.32s')", language);
	q->language = context_language_name(l);
	files = json_read_object(&j, "files");
	q->packages = json_read_any(&j, "packages");
	if (q->packages && j.r == 0)
		j.r = packages_check(q->packages, q->language, e);
	read_artifacts(&j, q);
	read_sandbox(&j, q->create);
	context_request_fields(o, &j, &q->code);
	if (json_read_end(&j) < 0)
		return j.r < 0 ? j.r : -EINVAL;
	if (json_array_size(q->packages) && json_object_get(q->create, "template"))
		return err_set(e, ERR_INVALID, -EINVAL, "'packages' and 'template' cannot be given together");
	return files ? read_files(q, files, e) : 0;
}

int run_request_read(const struct service_opts *o, const char *data, size_t len, struct run_request **ret,
		     struct err *e)
{
	AUTO(run_request_free) struct run_request *q = calloc(1, sizeof(*q));
	int r;

	if (q)
		q->create = json_object();
	if (!q || !q->create)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a run");
	r = json_read_begin_nul(data, len, &q->body, e);
	if (r == 0)
		r = read_all(o, q, e);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(q);
	return 0;
}
