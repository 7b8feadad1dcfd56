/*
 * Reads and writes configurations of images. Unknown keys are dropped when a configuration is written again. Values of
 * a wrong type are refused, but null counts as missing: most tools write it.
 */
#include "oci/config.h"
#include "base/base.h"
#include "base/json.h"
#include "oci/json.h"

#define TEXT_MAX 65536U

void oci_config_init(struct oci_config *c)
{
	memset(c, 0, sizeof(*c));
}

void oci_list_done(struct oci_list *l)
{
	for (unsigned i = 0; i < l->n; i++)
		free(l->item[i]);
	free(l->item);
	*l = (struct oci_list){ 0 };
}

static void history_done(struct oci_config *c)
{
	for (unsigned i = 0; i < c->nhistory; i++) {
		free(c->history[i].created);
		free(c->history[i].by);
		free(c->history[i].comment);
		free(c->history[i].author);
	}
	free(c->history);
}

void oci_config_done(struct oci_config *c)
{
	char *const texts[] = { c->architecture, c->os,	  c->variant, c->created,
				c->author,	 c->user, c->workdir, c->stop_signal };
	struct oci_list *const lists[] = { &c->env,	&c->entrypoint, &c->cmd,   &c->shell,
					   &c->onbuild, &c->labels,	&c->ports, &c->volumes };

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		free(texts[i]);
	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		oci_list_done(lists[i]);
	if (c->health)
		oci_list_done(&c->health->test);
	free(c->health);
	history_done(c);
	free(c->diff);
	oci_config_init(c);
}

int oci_list_add(struct oci_list *l, const char *text)
{
	char **more;

	if (l->n >= OCI_LIST_MAX)
		return -E2BIG;
	if (!(l->n & (l->n - 1))) { /* the capacity grows at powers of two */
		more = realloc(l->item, (l->n ? 2 * (size_t)l->n : 1) * sizeof(*more));
		if (!more)
			return -ENOMEM;
		l->item = more;
	}
	l->item[l->n] = strdup(text);
	if (!l->item[l->n])
		return -ENOMEM;
	l->n++;
	return 0;
}

static size_t list_bytes(const struct oci_list *l)
{
	size_t n = 0;

	for (unsigned i = 0; i < l->n; i++)
		n += strlen(l->item[i]) + sizeof(*l->item);
	return n;
}

static size_t text_bytes(const char *text)
{
	return text ? strlen(text) : 0;
}

size_t oci_config_bytes(const struct oci_config *c)
{
	const struct oci_list *const lists[] = { &c->env,     &c->entrypoint, &c->cmd,	 &c->shell,
						 &c->onbuild, &c->labels,     &c->ports, &c->volumes };
	size_t n = sizeof(*c) + c->ndiff * sizeof(*c->diff) + text_bytes(c->user) + text_bytes(c->workdir) +
		   text_bytes(c->author);

	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		n += list_bytes(lists[i]);
	for (unsigned i = 0; i < c->nhistory; i++)
		n += sizeof(*c->history) + text_bytes(c->history[i].by) + text_bytes(c->history[i].comment);
	return n;
}

static size_t name_len(const char *assignment)
{
	return strcspn(assignment, "=");
}

int oci_list_put(struct oci_list *l, const char *assignment)
{
	const size_t n = name_len(assignment);

	for (unsigned i = 0; i < l->n; i++) {
		char *copy;

		if (name_len(l->item[i]) != n || strncmp(l->item[i], assignment, n))
			continue;
		copy = strdup(assignment);
		if (!copy)
			return -ENOMEM;
		free(l->item[i]);
		l->item[i] = copy;
		return 0;
	}
	return oci_list_add(l, assignment);
}

const char *oci_list_get(const struct oci_list *l, const char *name, size_t len)
{
	for (unsigned i = 0; i < l->n; i++)
		if (name_len(l->item[i]) == len && !strncmp(l->item[i], name, len))
			return l->item[i][len] == '=' ? l->item[i] + len + 1 : "";
	return NULL;
}

/* --- read --- */

static int wrong(const char *key, struct err *e)
{
	return err_set(e, WHY_IMAGE_INVALID, -EBADMSG, "the image's configuration has an invalid '%s'", key);
}

static int no_memory(struct err *e)
{
	return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for an image's configuration");
}

/* Reads a text without NUL: jansson refuses those with one. */
static int read_text(const json_t *o, const char *key, char **ret, struct err *e)
{
	const json_t *v = json_object_get(o, key);

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_string(v) || json_string_length(v) > TEXT_MAX)
		return wrong(key, e);
	if (!json_string_length(v))
		return 0;
	*ret = strdup(json_string_value(v));
	return *ret ? 0 : no_memory(e);
}

static int read_list(const json_t *o, const char *key, struct oci_list *ret, bool *ret_there, struct err *e)
{
	const json_t *v = json_object_get(o, key);
	int r = 0;

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_array(v) || json_array_size(v) > OCI_LIST_MAX)
		return wrong(key, e);
	for (size_t i = 0; r == 0 && i < json_array_size(v); i++) {
		const json_t *text = json_array_get(v, i);

		if (!json_is_string(text))
			return wrong(key, e);
		if (json_string_length(text) > TEXT_MAX)
			return err_set(e, WHY_IMAGE_INVALID, -E2BIG,
				       "an entry of '%s' in the image's configuration is longer than %u bytes", key,
				       TEXT_MAX);
		r = oci_list_add(ret, json_string_value(text));
	}
	if (ret_there)
		*ret_there = true;
	return r < 0 ? no_memory(e) : 0;
}

/* Reads the names of an object; with their texts if @values. */
static int read_names(const json_t *o, const char *name, bool values, struct oci_list *ret, struct err *e)
{
	json_t *v = json_object_get(o, name), *value;
	const char *key;
	int r = 0;

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_object(v) || json_object_size(v) > OCI_LIST_MAX)
		return wrong(name, e);
	json_object_foreach(v, key, value)
	{
		AUTO(buf_done) struct buf b = BUF_INIT(2 * TEXT_MAX + 8);

		if (!*key || strlen(key) > TEXT_MAX || (values && (strchr(key, '=') || !json_is_string(value))))
			return wrong(name, e);
		r = values ? buf_addf(&b, "%s=%s", key, json_string_value(value)) : buf_adds(&b, key);
		if (r < 0)
			return wrong(name, e);
		r = oci_list_add(ret, b.data);
		if (r < 0)
			return no_memory(e);
	}
	return 0;
}

static int read_number(const json_t *o, const char *key, uint64_t *ret, struct err *e)
{
	const json_t *v = json_object_get(o, key);

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return wrong(key, e);
	*ret = (uint64_t)json_integer_value(v);
	return 0;
}

static int read_health(const json_t *o, struct oci_config *c, struct err *e)
{
	const json_t *h = json_object_get(o, "Healthcheck");
	uint64_t retries = 0;
	int r;

	if (!h || json_is_null(h))
		return 0;
	if (!json_is_object(h))
		return wrong("Healthcheck", e);
	c->health = calloc(1, sizeof(*c->health));
	if (!c->health)
		return no_memory(e);
	r = read_list(h, "Test", &c->health->test, NULL, e);
	if (r == 0)
		r = read_number(h, "Interval", &c->health->interval, e);
	if (r == 0)
		r = read_number(h, "Timeout", &c->health->timeout, e);
	if (r == 0)
		r = read_number(h, "StartPeriod", &c->health->start_period, e);
	if (r == 0)
		r = read_number(h, "StartInterval", &c->health->start_interval, e);
	if (r == 0)
		r = read_number(h, "Retries", &retries, e);
	c->health->retries = retries < UINT32_MAX ? (unsigned)retries : UINT32_MAX;
	return r;
}

static int read_config(const json_t *o, struct oci_config *c, struct err *e)
{
	int r = 0;

	if (!o || json_is_null(o))
		return 0;
	if (!json_is_object(o))
		return wrong("config", e);
	c->args_escaped = json_is_true(json_object_get(o, "ArgsEscaped"));
	r = read_text(o, "User", &c->user, e);
	if (r == 0)
		r = read_text(o, "WorkingDir", &c->workdir, e);
	if (r == 0)
		r = read_text(o, "StopSignal", &c->stop_signal, e);
	if (r == 0)
		r = read_list(o, "Env", &c->env, NULL, e);
	if (r == 0)
		r = read_list(o, "Entrypoint", &c->entrypoint, &c->has_entrypoint, e);
	if (r == 0)
		r = read_list(o, "Cmd", &c->cmd, &c->has_cmd, e);
	if (r == 0)
		r = read_list(o, "Shell", &c->shell, NULL, e);
	if (r == 0)
		r = read_list(o, "OnBuild", &c->onbuild, NULL, e);
	if (r == 0)
		r = read_names(o, "Labels", true, &c->labels, e);
	if (r == 0)
		r = read_names(o, "ExposedPorts", false, &c->ports, e);
	if (r == 0)
		r = read_names(o, "Volumes", false, &c->volumes, e);
	return r < 0 ? r : read_health(o, c, e);
}

static int read_layers(const json_t *o, struct oci_config *c, struct err *e)
{
	const json_t *fs = json_object_get(o, "rootfs"), *ids = json_object_get(fs, "diff_ids");
	const char *type = json_string_value(json_object_get(fs, "type"));

	if (!json_is_object(fs) || !type || strcmp(type, "layers") ||
	    (ids && !json_is_null(ids) && !json_is_array(ids)))
		return wrong("rootfs", e);
	if (json_array_size(ids) > OCI_LAYERS_MAX)
		return err_set(e, WHY_IMAGE_INVALID, -E2BIG, "the image has more than %u layers", OCI_LAYERS_MAX);
	c->diff = calloc(json_array_size(ids) + 1, sizeof(*c->diff));
	if (!c->diff)
		return no_memory(e);
	for (size_t i = 0; i < json_array_size(ids); i++) {
		const char *id = json_string_value(json_array_get(ids, i));

		if (!id || !oci_digest_ok(id))
			return wrong("diff_ids", e);
		memcpy(c->diff[c->ndiff++], id, OCI_DIGEST_SIZE);
	}
	return 0;
}

static int read_history(const json_t *o, struct oci_config *c, struct err *e)
{
	const json_t *list = json_object_get(o, "history");
	int r = 0;

	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list) || json_array_size(list) > OCI_LIST_MAX)
		return wrong("history", e);
	c->history = calloc(json_array_size(list) + 1, sizeof(*c->history));
	if (!c->history)
		return no_memory(e);
	for (size_t i = 0; r == 0 && i < json_array_size(list); i++) {
		const json_t *x = json_array_get(list, i);
		struct oci_history *h = &c->history[c->nhistory++];

		h->empty = json_is_true(json_object_get(x, "empty_layer"));
		r = read_text(x, "created", &h->created, e);
		if (r == 0)
			r = read_text(x, "created_by", &h->by, e);
		if (r == 0)
			r = read_text(x, "comment", &h->comment, e);
		if (r == 0)
			r = read_text(x, "author", &h->author, e);
	}
	return r;
}

static int read_all(const json_t *o, struct oci_config *c, struct err *e)
{
	const struct {
		const char *key;
		char **to;
	} texts[] = { { "architecture", &c->architecture },
		      { "os", &c->os },
		      { "variant", &c->variant },
		      { "created", &c->created },
		      { "author", &c->author } };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(texts); i++)
		r = read_text(o, texts[i].key, texts[i].to, e);
	if (r == 0)
		r = read_config(json_object_get(o, "config"), c, e);
	if (r == 0)
		r = read_layers(o, c, e);
	return r < 0 ? r : read_history(o, c, e);
}

int oci_config_parse(const char *text, size_t len, struct oci_config *ret, struct err *e)
{
	AUTO(json_decref) json_t *o = oci_json(text, len, OCI_CONFIG_MAX, "the image's configuration", e);
	int r;

	oci_config_init(ret);
	if (!o)
		return -EBADMSG;
	r = read_all(o, ret, e);
	if (r < 0)
		oci_config_done(ret);
	return r;
}

/* --- write --- */

static void put_text(struct json *j, const char *key, const char *text)
{
	if (text)
		jout_str(j, key, text);
}

static void put_list(struct json *j, const char *key, const struct oci_list *l, bool always)
{
	if (!l->n && !always)
		return;
	jout_array(j, key);
	for (unsigned i = 0; i < l->n; i++)
		jout_str(j, NULL, l->item[i]);
	jout_end(j);
}

static void put_names(struct json *j, const char *key, const struct oci_list *l, bool values)
{
	if (!l->n)
		return;
	jout_object(j, key);
	for (unsigned i = 0; i < l->n; i++) {
		char *eq = values ? strchr(l->item[i], '=') : NULL;

		if (eq) {
			*eq = '\0';
			jout_str(j, l->item[i], eq + 1);
			*eq = '=';
		} else {
			jout_object(j, l->item[i]);
			jout_end(j);
		}
	}
	jout_end(j);
}

static void put_health(struct json *j, const struct oci_healthcheck *h)
{
	const struct {
		const char *key;
		uint64_t value;
	} numbers[] = { { "Interval", h->interval },
			{ "Timeout", h->timeout },
			{ "StartPeriod", h->start_period },
			{ "StartInterval", h->start_interval },
			{ "Retries", h->retries } };

	jout_object(j, "Healthcheck");
	put_list(j, "Test", &h->test, false);
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		if (numbers[i].value)
			jout_u64(j, numbers[i].key, numbers[i].value);
	jout_end(j);
}

static void put_config(struct json *j, const struct oci_config *c)
{
	jout_object(j, "config");
	put_text(j, "User", c->user);
	put_names(j, "ExposedPorts", &c->ports, false);
	put_list(j, "Env", &c->env, false);
	put_list(j, "Entrypoint", &c->entrypoint, c->has_entrypoint);
	put_list(j, "Cmd", &c->cmd, c->has_cmd);
	if (c->health)
		put_health(j, c->health);
	put_names(j, "Volumes", &c->volumes, false);
	put_text(j, "WorkingDir", c->workdir);
	put_names(j, "Labels", &c->labels, true);
	put_text(j, "StopSignal", c->stop_signal);
	put_list(j, "OnBuild", &c->onbuild, false);
	put_list(j, "Shell", &c->shell, false);
	if (c->args_escaped)
		jout_bool(j, "ArgsEscaped", true);
	jout_end(j);
}

int oci_config_write(const struct oci_config *c, struct buf *out, struct err *e)
{
	struct json j = JSON_INIT(out);

	jout_object(&j, NULL);
	put_text(&j, "created", c->created);
	put_text(&j, "author", c->author);
	jout_str(&j, "architecture", c->architecture ? c->architecture : oci_architecture());
	jout_str(&j, "os", c->os ? c->os : "linux");
	put_text(&j, "variant", c->variant);
	put_config(&j, c);
	jout_object(&j, "rootfs");
	jout_str(&j, "type", "layers");
	jout_array(&j, "diff_ids");
	for (unsigned i = 0; i < c->ndiff; i++)
		jout_str(&j, NULL, c->diff[i]);
	jout_end(&j);
	jout_end(&j);
	if (c->nhistory) {
		jout_array(&j, "history");
		for (unsigned i = 0; i < c->nhistory; i++) {
			const struct oci_history *h = &c->history[i];

			jout_object(&j, NULL);
			put_text(&j, "created", h->created);
			put_text(&j, "created_by", h->by);
			put_text(&j, "author", h->author);
			put_text(&j, "comment", h->comment);
			if (h->empty)
				jout_bool(&j, "empty_layer", true);
			jout_end(&j);
		}
		jout_end(&j);
	}
	jout_end(&j);
	return jout_done(&j) < 0 ? err_set(e, ERR_TOO_LARGE, -E2BIG, "the image's configuration is too long") : 0;
}

int oci_config_copy(const struct oci_config *from, struct oci_config *ret, struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(OCI_CONFIG_MAX);
	int r = oci_config_write(from, &b, e);

	oci_config_init(ret);
	return r < 0 ? r : oci_config_parse(buf_str(&b), b.len, ret, e);
}
