/* Parses the secrets of a request. */
#include "service/secret/request.h"
#include "base/base.h"
#include "base/str.h"
#include "proto/net_rule.h"
#include "service/state/json_read.h"
#include "service/sandbox/request.h"

#define FIELD_MAX 256U
#define INJECT_FIELD_MAX 128U /* egress has no longer ones */
#define FORMAT_MAX 1024U
#define PATH_LEN_MAX 1024U

static const struct {
	const char *name;
	enum secret_as as;
} ways[] = {
	{ "file", SECRET_FILE },   { "env", SECRET_ENV },     { "header", SECRET_HEADER },
	{ "basic", SECRET_BASIC }, { "query", SECRET_QUERY }, { "mask", SECRET_MASK },
};

const char *secret_as_name(enum secret_as as)
{
	for (size_t i = 0; i < ARRAY_LEN(ways); i++)
		if (ways[i].as == as)
			return ways[i].name;
	return "?";
}

void secret_uses_done(struct secret_uses *u)
{
	for (uint32_t i = 0; i < u->n; i++) {
		free(u->use[i].path);
		free(u->use[i].field);
		free(u->use[i].format);
		free(u->use[i].host);
	}
	free(u->use);
	*u = (struct secret_uses){ 0 };
}

static void keep(struct json_read *j, const char *text, char **ret)
{
	*ret = strdup(text);
	if (!*ret && j->r == 0)
		j->r = err_set(j->e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
}

/* --- fields --- */

static bool is_variable(const char *s)
{
	if (!*s || (*s >= '0' && *s <= '9'))
		return false;
	for (; *s; s++)
		if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') || *s == '_'))
			return false;
	return true;
}

static bool is_token(const char *s)
{
	static const char fit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~";

	return *s && strspn(s, fit) == strlen(s);
}

/* Headers that delimit a request or its connection must not be replaced. */
static bool is_framing(const char *header)
{
	static const char *const not [] = { "host",	  "content-length", "transfer-encoding",
					    "connection", "upgrade",	    "te",
					    "trailer",	  "expect",	    "proxy-connection",
					    "keep-alive" };

	for (size_t i = 0; i < ARRAY_LEN(not ); i++)
		if (!strcasecmp(header, not [i]))
			return true;
	return false;
}

static bool is_printable(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			return false;
	return true;
}

static void read_file(struct json_read *j, struct secret_use *u)
{
	const char *path = NULL;

	if (!json_read_str(j, "path", &path, PATH_LEN_MAX) || j->r < 0)
		return;
	if (*path != '/' || strstr(path, "/../") || strstr(path, "/./") || path[strlen(path) - 1] == '/' ||
	    !is_printable(path) || (strlen(path) > 2 && !strcmp(path + strlen(path) - 3, "/..")))
		json_read_bad(j, "path", "must be an absolute path without '..'");
	else
		keep(j, path, &u->path);
}

static void read_env(struct json_read *j, struct secret_use *u)
{
	const char *var = u->name;

	json_read_str(j, "env", &var, FIELD_MAX);
	if (j->r < 0)
		return;
	if (!is_variable(var))
		json_read_bad(j, "env", "must consist of letters, digits and '_', and not start with a digit");
	else
		keep(j, var, &u->field);
}

static void read_to(struct json_read *j, bool admin, struct secret_use *u)
{
	const char *to = NULL, *colon;
	char host[NET_NAME_MAX];
	uint64_t port = 443;

	json_read_bool(j, "plain", &u->plain);
	if (u->plain)
		port = 80;
	if (!json_read_str(j, "to", &to, NET_NAME_MAX + 8) && j->r == 0)
		json_read_bad(j, "to",
			      "must be the host that receives it: \"api.example.com\" or \"api.example.com:8443\"");
	if (j->r < 0)
		return;
	colon = strrchr(to, ':');
	if (colon && (parse_u64(colon + 1, &port, NULL) < 0 || port < 1 || port > 65535))
		json_read_bad(j, "to", "'%.80s': the text after ':' must be a port from 1 to 65535", to);
	else if (net_name_parse(to, colon ? (size_t)(colon - to) : strlen(to), host) < 0)
		json_read_bad(j, "to", "'%.80s': must be one exact name, not an address, without '*'", to);
	else if (u->plain && !admin)
		json_read_bad(j, "plain", "only an admin may allow a secret to be sent without TLS");
	else
		keep(j, host, &u->host);
	u->port = (uint16_t)port;
}

static void read_header(struct json_read *j, struct secret_use *u)
{
	const char *header = "Authorization", *format = NULL, *at;

	json_read_str(j, "header", &header, INJECT_FIELD_MAX);
	json_read_str(j, "format", &format, FORMAT_MAX);
	if (j->r < 0)
		return;
	if (!format)
		format = strcasecmp(header, "authorization") ? "{}" : "Bearer {}";
	at = strstr(format, "{}");
	if (!is_token(header) || is_framing(header))
		json_read_bad(j, "header", "'%.60s' cannot be set", header);
	else if (!at || strstr(at + 2, "{}") || !is_printable(format))
		json_read_bad(j, "format", "must contain \"{}\" once, which is replaced by the value");
	else if (*format == ' ' || format[strlen(format) - 1] == ' ')
		json_read_bad(j, "format", "must not begin or end with a space");
	else
		keep(j, header, &u->field);
	if (j->r == 0)
		keep(j, format, &u->format);
}

static void read_basic(struct json_read *j, struct secret_use *u)
{
	const char *user = NULL;

	if (!json_read_str(j, "user", &user, INJECT_FIELD_MAX) && j->r == 0)
		json_read_bad(j, "user", "is required");
	if (j->r < 0)
		return;
	if (strchr(user, ':') || !is_printable(user))
		json_read_bad(j, "user", "must not contain ':' or control characters");
	else
		keep(j, user, &u->field);
}

static void read_query(struct json_read *j, struct secret_use *u)
{
	const char *parameter = NULL;

	if (!json_read_str(j, "parameter", &parameter, INJECT_FIELD_MAX) && j->r == 0)
		json_read_bad(j, "parameter", "is required");
	if (j->r < 0)
		return;
	if (!is_token(parameter) || strpbrk(parameter, "&%+#'"))
		json_read_bad(j, "parameter", "must consist of letters, digits, '-', '_', '.'");
	else
		keep(j, parameter, &u->field);
}

static int read_one(const json_t *v, bool admin, struct secret_use *u, struct err *e)
{
	struct json_read j = JIN_INIT(v, e);
	const char *name = NULL, *as = NULL;
	int r;

	if (!json_is_object(v))
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'secrets' must be objects {name, as, …}");
	if (!json_read_str(&j, "name", &name, SECRET_NAME_SIZE - 1) && j.r == 0)
		json_read_bad(&j, "name", "must be the name of a secret");
	if (j.r == 0)
		j.r = name_check(name, e);
	if (!json_read_str(&j, "as", &as, 16) && j.r == 0)
		json_read_bad(&j, "as", "is required: file, env, header, basic, query or mask");
	if (j.r < 0)
		return err_wrap(e, j.r, "'secrets'");
	snprintf(u->name, sizeof(u->name), "%s", name);
	for (size_t i = 0; i < ARRAY_LEN(ways); i++)
		if (!strcmp(as, ways[i].name))
			u->as = ways[i].as;
	switch (u->as) {
	case SECRET_FILE:
		read_file(&j, u);
		break;
	case SECRET_ENV:
		read_env(&j, u);
		break;
	case SECRET_HEADER:
		read_header(&j, u);
		break;
	case SECRET_BASIC:
		read_basic(&j, u);
		break;
	case SECRET_QUERY:
		read_query(&j, u);
		break;
	case SECRET_MASK:
		break;
	default:
		json_read_bad(&j, "as", "'%.20s': must be file, env, header, basic, query or mask", as);
	}
	if (secret_injected(u))
		read_to(&j, admin, u);
	r = json_read_end(&j);
	return r < 0 ? err_wrap(e, r, "secret '%s'", u->name) : 0;
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

/* Two of the same kind would be in each other's place. */
static int check_apart(const struct secret_uses *u, struct err *e)
{
	for (uint32_t i = 0; i < u->n; i++)
		for (uint32_t k = 0; k < i; k++) {
			const struct secret_use *a = &u->use[i], *b = &u->use[k];
			/* Masked twice is masked: a sandbox that had one in two ways has that when it is gone. */
			bool same = a->as == SECRET_FILE && b->as == SECRET_FILE && !strcmp(a->name, b->name);

			if (a->as == SECRET_ENV && b->as == SECRET_ENV && !strcmp(a->field, b->field))
				same = true;
			if (a->path && same_text(a->path, b->path))
				same = true;
			/* A basic one is an Authorization header, too. */
			if (secret_injected(a) && secret_injected(b) && !strcmp(a->host, b->host) &&
			    a->port == b->port && (a->as == SECRET_QUERY) == (b->as == SECRET_QUERY) &&
			    !strcasecmp(a->as == SECRET_BASIC ? "authorization" : a->field,
					b->as == SECRET_BASIC ? "authorization" : b->field))
				same = true;
			if (same)
				return err_set(e, ERR_INVALID, -EEXIST,
					       "'secrets': '%s' and '%s' have the same destination", b->name, a->name);
		}
	return 0;
}

int secret_uses_parse(const json_t *v, bool admin, struct secret_uses *ret, struct err *e)
{
	struct secret_uses u = { 0 };
	size_t n = json_array_size(v);
	int r = 0;

	if (!v || json_is_null(v) || (json_is_string(v) && !strcmp(json_string_value(v), "drop")))
		return 0;
	if (!json_is_array(v))
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'secrets' must be an array, or \"drop\"");
	if (n > SECRET_USES_MAX)
		return err_set(e, ERR_INVALID, -E2BIG, "'secrets': at most %u", SECRET_USES_MAX);
	if (!n)
		return 0;
	u.use = calloc(n, sizeof(*u.use));
	if (!u.use)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	while (r == 0 && u.n < n) {
		u.n++;
		r = read_one(json_array_get(v, u.n - 1), admin, &u.use[u.n - 1], e);
	}
	if (r == 0)
		r = check_apart(&u, e);
	if (r < 0)
		secret_uses_done(&u);
	else
		*ret = u;
	return r;
}

void secret_uses_write(const struct secret_uses *u, const char *key, struct json *j)
{
	jout_array(j, key);
	for (uint32_t i = 0; i < u->n; i++) {
		const struct secret_use *x = &u->use[i];
		char to[NET_NAME_MAX + 8];

		jout_object(j, NULL);
		jout_str(j, "name", x->name);
		jout_str(j, "as", secret_as_name(x->as));
		if (x->path)
			jout_str(j, "path", x->path);
		if (x->field)
			jout_str(j,
				 x->as == SECRET_ENV	? "env" :
				 x->as == SECRET_HEADER ? "header" :
				 x->as == SECRET_BASIC	? "user" :
							  "parameter",
				 x->field);
		if (x->format)
			jout_str(j, "format", x->format);
		if (x->plain)
			jout_bool(j, "plain", true);
		if (x->host) {
			snprintf(to, sizeof(to), "%s:%u", x->host, x->port);
			jout_str(j, "to", to);
		}
		jout_end(j);
	}
	jout_end(j);
}

bool secret_uses_same(const struct secret_uses *a, const struct secret_uses *b)
{
	bool same = a->n == b->n;

	for (uint32_t i = 0; same && i < a->n; i++) {
		const struct secret_use *x = &a->use[i], *y = &b->use[i];

		same = !strcmp(x->name, y->name) && x->as == y->as && x->plain == y->plain && x->port == y->port &&
		       same_text(x->path, y->path) && same_text(x->field, y->field) &&
		       same_text(x->format, y->format) && same_text(x->host, y->host);
	}
	return same;
}

bool secret_uses_have(const struct secret_uses *u, const char *name)
{
	for (uint32_t i = 0; i < u->n; i++)
		if (!strcmp(u->use[i].name, name))
			return true;
	return false;
}

void secret_use_only_mask(struct secret_use *u)
{
	free(u->path);
	free(u->field);
	free(u->format);
	free(u->host);
	u->path = u->field = u->format = u->host = NULL;
	u->as = SECRET_MASK;
}

bool secret_uses_first(const struct secret_uses *u, uint32_t i)
{
	for (uint32_t k = 0; k < i; k++)
		if (!strcmp(u->use[k].name, u->use[i].name))
			return false;
	return true;
}

bool secret_uses_as(const struct secret_uses *u, enum secret_as as)
{
	for (uint32_t i = 0; i < u->n; i++)
		if (u->use[i].as == as)
			return true;
	return false;
}

bool secret_uses_inject(const struct secret_uses *u)
{
	return secret_uses_as(u, SECRET_HEADER) || secret_uses_as(u, SECRET_BASIC) || secret_uses_as(u, SECRET_QUERY);
}

static bool list_has(const json_t *list, const char *name)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *text = json_string_value(json_object_get(json_array_get(list, i), "name"));

		if (text && !strcmp(text, name))
			return true;
	}
	return false;
}

json_t *secret_uses_after(const json_t *before, const json_t *v)
{
	json_t *list;

	if (!v || json_is_null(v))
		return before ? json_deep_copy(before) : json_array();
	list = json_is_array(v) ? json_deep_copy(v) : json_array();
	for (size_t i = 0; list && i < json_array_size(before); i++) {
		const char *name = json_string_value(json_object_get(json_array_get(before, i), "name"));

		if (name && !list_has(list, name) &&
		    json_array_append_new(list, json_pack("{s:s, s:s}", "name", name, "as", "mask")) < 0) {
			json_decref(list);
			list = NULL;
		}
	}
	return list;
}
