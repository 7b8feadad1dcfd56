/* What a context, and an execution in one, should be: from JSON, and a context's back. */
#include "base/base.h"
#include "service/context/struct.h"
#include "service/state/json_read.h"

#include <strings.h>

#define OUTPUT_DEFAULT (4 * MIB)
#define NAMES_MAX 1000U /* of a list of `restrict` */

/* clang-format off */
static const struct {
	const char *name;
	enum context_language language;
} names[] = {
	{ "python", CONTEXT_PYTHON },	  { "javascript", CONTEXT_JAVASCRIPT }, { "typescript", CONTEXT_TYPESCRIPT },
	{ "shell", CONTEXT_SHELL },	  { "r", CONTEXT_R },
	{ "js", CONTEXT_JAVASCRIPT },	  { "ts", CONTEXT_TYPESCRIPT },
	{ "bash", CONTEXT_SHELL },	  { "sh", CONTEXT_SHELL },		{ "py", CONTEXT_PYTHON },
	{ "python3", CONTEXT_PYTHON },	  { "node", CONTEXT_JAVASCRIPT },
};
/* clang-format on */

bool context_language_parse(const char *text, enum context_language *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcasecmp(text, names[i].name)) {
			*ret = names[i].language;
			return true;
		}
	return false;
}

const char *context_language_name(enum context_language l)
{
	return names[l].name; /* the first of the list are in that order */
}

void context_spec_free(struct context_spec *s)
{
	if (!s)
		return;
	free(s->cwd);
	json_decref(s->env);
	json_decref(s->restricted);
	free(s);
}

/* Names with a text, or null, which removes one. */
static void read_env(struct json_read *j, const json_t **ret)
{
	const json_t *env = json_read_object(j, "env"), *v;
	const char *key;

	if (!env || j->r < 0)
		return;
	if (json_object_size(env) > ENV_MAX)
		json_read_bad(j, "env", "has too many variables (at most %d)", ENV_MAX);
	void *it = json_object_iter((json_t *)(uintptr_t)env);

	for (; it && j->r == 0; it = json_object_iter_next((json_t *)(uintptr_t)env, it)) {
		key = json_object_iter_key(it);
		v = json_object_iter_value(it);
		if (!*key || strchr(key, '='))
			json_read_bad(j, "env", "'%.60s' is not the name of a variable", key);
		else if (!json_is_null(v) &&
			 (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v)))
			json_read_bad(j, "env", "'%.60s' must be a string without NULs, or null", key);
	}
	*ret = env;
}

static void read_names(struct json_read *j, const char *key)
{
	const json_t *list = json_read_array(j, key, NAMES_MAX);

	for (size_t i = 0; j->r == 0 && list && i < json_array_size(list); i++)
		if (!json_is_string(json_array_get(list, i)))
			json_read_bad(j, key, "must be an array of strings");
}

static void read_restrict(struct json_read *j, struct context_spec *s)
{
	const json_t *o = json_read_object(j, "restrict");
	struct json_read in = JIN_INIT(o, j->e);

	if (!o || j->r < 0)
		return;
	if (s->language != CONTEXT_PYTHON) {
		json_read_bad(j, "restrict", "is for Python contexts only");
		return;
	}
	read_names(&in, "builtins");
	read_names(&in, "imports");
	j->r = json_read_end(&in);
	if (j->r < 0)
		err_wrap(j->e, j->r, "'restrict'");
	else
		s->restricted = json_deep_copy(o);
}

static int read_all(const json_t *from, struct context_spec *s, struct err *e)
{
	struct json_read j = JIN_INIT(from, e);
	const char *language = NULL, *cwd = NULL;
	const json_t *env = NULL;

	s->output_limit = OUTPUT_DEFAULT;
	s->result_limit = CONTEXT_RESULT_MAX;
	if (json_read_str(&j, "language", &language, 32) && j.r == 0 && !context_language_parse(language, &s->language))
		json_read_bad(&j, "language", "must be " CONTEXT_NAMES " (got '%.32s')", language);
	json_read_str(&j, "cwd", &cwd, 4095);
	read_env(&j, &env);
	read_restrict(&j, s);
	json_read_size(&j, "output_limit", &s->output_limit);
	json_read_size(&j, "result_limit", &s->result_limit);
	if (s->output_limit < KIB || s->output_limit > CONTEXT_OUTPUT_MAX)
		json_read_bad(&j, "output_limit", "must be from 1K to 16M");
	if (s->result_limit < KIB || s->result_limit > CONTEXT_RESULT_MAX)
		json_read_bad(&j, "result_limit", "must be from 1K to 10M");
	if (j.r == 0 && env)
		s->env = json_deep_copy(env);
	if (j.r == 0 && cwd && *cwd)
		s->cwd = strdup(cwd);
	return json_read_end(&j);
}

int context_spec_read(const struct sandbox *b, const json_t *from, struct context_spec **ret, struct err *e)
{
	AUTO(context_spec_free) struct context_spec *s = calloc(1, sizeof(*s));
	int r;

	(void)b;
	if (!s)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a context");
	r = read_all(from, s, e);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(s);
	return 0;
}

static void write_json(const json_t *o, const char *key, struct json *j)
{
	char *text = o ? json_dumps(o, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

	if (text)
		jout_raw(j, key, text, strlen(text));
	free(text);
}

void context_spec_write(const struct context_spec *s, struct json *j)
{
	jout_str(j, "language", context_language_name(s->language));
	if (s->cwd)
		jout_str(j, "cwd", s->cwd);
	write_json(s->env, "env", j);
	write_json(s->restricted, "restrict", j);
	jout_u64(j, "output_limit", s->output_limit);
	jout_u64(j, "result_limit", s->result_limit);
}

void context_request_fields(const struct service_opts *o, struct json_read *j, struct context_request *ret)
{
	const uint64_t most = o->exec_timeout_max_ms;
	const json_t *code = json_read_any(j, "code");

	json_read_ms(j, "timeout", &ret->timeout_ms);
	read_env(j, &ret->env);
	if (most && (!ret->timeout_ms || ret->timeout_ms > most))
		ret->timeout_ms = most;
	if (!json_is_string(code))
		json_read_bad(j, "code", code ? "must be a string" : "is required");
	ret->code = json_string_value(code);
	ret->code_len = json_string_length(code);
}

int context_request_from(const struct sandbox *b, const json_t *o, struct context_request *ret, struct err *e)
{
	struct json_read j = JIN_INIT(o, e);
	struct context_request read = { .timeout_ms = b->request->exec_timeout_ms };
	int r;

	context_request_fields(&b->service->o, &j, &read);
	r = json_read_end(&j);
	if (r == 0)
		*ret = read;
	return r;
}

int context_request_read(const struct sandbox *b, const char *data, size_t len, struct context_request *ret,
			 json_t **ret_o, struct err *e)
{
	AUTO(json_decref) json_t *o = NULL;
	int r = json_read_begin_nul(data, len, &o, e);

	if (r == 0)
		r = context_request_from(b, o, ret, e);
	if (r == 0)
		*ret_o = TAKE_PTR(o);
	return r;
}
