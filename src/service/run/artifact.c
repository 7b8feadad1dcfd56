/* Artifacts: the files of a working folder that are new or changed since the code began. */
#include "base/base.h"
#include "service/run/glob.h"
#include "service/run/struct.h"

#include <strings.h>
#include <sys/stat.h>

/* Of patterns, for all files of a run: meanwhile nobody else is served. Ten patterns and 10,000 files need about 4 million. */
#define STEPS_MAX (32ULL * 1024 * 1024)

/* clang-format off */
static const struct {
	const char *ending, *mime;
} types[] = {
	{ "png", "image/png" },		{ "jpg", "image/jpeg" },	{ "jpeg", "image/jpeg" },
	{ "gif", "image/gif" },		{ "svg", "image/svg+xml" },	{ "webp", "image/webp" },
	{ "pdf", "application/pdf" },	{ "json", "application/json" }, { "csv", "text/csv" },
	{ "tsv", "text/tab-separated-values" }, { "html", "text/html" }, { "md", "text/markdown" },
	{ "txt", "text/plain" },	{ "log", "text/plain" },	{ "py", "text/x-python" },
	{ "js", "text/javascript" },	{ "xml", "application/xml" },	{ "zip", "application/zip" },
	{ "gz", "application/gzip" },	{ "parquet", "application/vnd.apache.parquet" },
	{ "xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" },
};
/* clang-format on */

static const char *mime_of(const char *path)
{
	const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');

	for (size_t i = 0; dot && (!slash || dot > slash) && i < ARRAY_LEN(types); i++)
		if (!strcasecmp(dot + 1, types[i].ending))
			return types[i].mime;
	return "application/octet-stream";
}

void folder_list_done(struct folder_list *l)
{
	for (unsigned i = 0; i < l->n; i++)
		free(l->item[i].path);
	free(l->item);
	*l = (struct folder_list){ 0 };
}

int folder_list_add(struct folder_list *l, const struct file_entry *x)
{
	struct folder_file *f;

	if (!S_ISREG(x->mode) || !*x->path)
		return 0;
	if (l->n == l->room) {
		f = realloc(l->item, (l->room ? 2U * l->room : 64U) * sizeof(*f));
		if (!f)
			return -ENOMEM;
		l->item = f;
		l->room = l->room ? 2U * l->room : 64U;
	}
	f = &l->item[l->n];
	*f = (struct folder_file){ .path = strdup(x->path), .size = x->size, .ino = x->ino, .mtime = x->mtime };
	if (!f->path)
		return -ENOMEM;
	l->n++;
	return 0;
}

static int by_path(const void *a, const void *b)
{
	const struct folder_file *x = a, *y = b;

	return strcmp(x->path, y->path);
}

void folder_list_sort(struct folder_list *l)
{
	if (l->n)
		qsort(l->item, l->n, sizeof(*l->item), by_path);
}

/* `true` does not mean the caches and settings that programs keep in their home. */
static bool is_hidden(const char *path)
{
	return *path == '.' || strstr(path, "/.") || strstr(path, "__pycache__/");
}

static bool fits(const char *path, const json_t *globs, uint64_t *steps)
{
	if (!globs)
		return !is_hidden(path);
	for (size_t i = 0; i < json_array_size(globs); i++)
		if (glob_match(json_string_value(json_array_get(globs, i)), path, steps))
			return true;
	return false;
}

void artifacts_choose(const struct folder_list *before, const struct folder_list *after, const json_t *globs,
		      struct run_artifact **ret, unsigned *ret_n, uint64_t *ret_left_out)
{
	struct run_artifact *list = calloc(RUN_ARTIFACTS_MAX, sizeof(*list));
	uint64_t steps = STEPS_MAX;

	*ret = list;
	*ret_n = 0;
	*ret_left_out += after->more;
	for (unsigned i = 0; i < after->n; i++) {
		const struct folder_file *f = &after->item[i];
		const struct folder_file *was =
			before->n ? bsearch(f, before->item, before->n, sizeof(*f), by_path) : NULL;
		char *path;

		if (was && was->ino == f->ino && was->mtime == f->mtime && was->size == f->size)
			continue;
		if (!fits(f->path, globs, &steps) && steps)
			continue;
		path = steps && list && *ret_n < RUN_ARTIFACTS_MAX ? strdup(f->path) : NULL;
		if (path)
			list[(*ret_n)++] =
				(struct run_artifact){ .path = path, .size = f->size, .mime = mime_of(path) };
		else
			(*ret_left_out)++;
	}
}

void artifacts_free(struct run_artifact *a, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		free(a[i].path);
		free(a[i].content);
	}
	free(a);
}

void run_result_write(const struct run_result *r, struct json *j)
{
	jout_array(j, "artifacts");
	for (unsigned i = 0; i < r->artifacts; i++) {
		const struct run_artifact *a = &r->artifact[i];

		jout_object(j, NULL);
		jout_str(j, "path", a->path);
		jout_u64(j, "size", a->size);
		jout_str(j, "mime", a->mime);
		jout_str(j, "content", a->content);
		jout_end(j);
	}
	jout_end(j);
	jout_u64(j, "artifacts_dropped", r->left_out);
}
