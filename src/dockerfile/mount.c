/* Reads the fields of RUN --mount: comma-separated, double quotes keep commas. */
#include "dockerfile/mount.h"
#include "base/base.h"
#include "base/near.h"
#include "base/str.h"

static const char *const types[] = { "bind", "cache", "tmpfs", "secret" };
static const char *const sharings[] = { "shared", "private", "locked" };
static const char *const keys[] = { "type",	"from", "source", "src",       "target",   "dst",  "destination",
				    "readonly", "ro",	"id",	  "sharing",   "required", "size", "mode",
				    "uid",	"gid",	"rw",	  "readwrite", "env" };

void run_mount_done(struct run_mount *m)
{
	free(m->from);
	free(m->source);
	free(m->target);
	free(m->id);
	free(m->env);
	*m = (struct run_mount){ 0 };
}

/* Reads the next field of @p into @ret; returns the text after its comma, NULL at the end. */
static const char *field_read(const char *p, struct buf *ret, int *r)
{
	bool quoted = *p == '"';

	*r = 0;
	if (quoted)
		p++;
	for (; *p && *r == 0; p++) {
		if (quoted && *p == '"' && p[1] != '"') {
			quoted = false;
			continue;
		}
		if (quoted && *p == '"')
			p++;
		if (!quoted && *p == ',')
			return p + 1;
		*r = buf_addc(ret, *p);
	}
	if (quoted)
		*r = -EINVAL;
	return NULL;
}

static int one_of(const char *value, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcasecmp(value, list[i]) == 0)
			return (int)i;
	return -1;
}

static int text_set(char **to, const char *value, struct err *e)
{
	char *copy = strdup(value);

	if (!copy)
		return err_set(e, ERR_INTERNAL, -ENOMEM, "not enough memory");
	free(*to);
	*to = copy;
	return 0;
}

static int bool_set(bool *to, const char *key, const char *value, bool inverted, struct err *e)
{
	bool on = !value || !strcasecmp(value, "true") || !strcmp(value, "1");

	if (!on && strcasecmp(value, "false") && strcmp(value, "0"))
		return err_set(e, ERR_INVALID, -EINVAL, "--mount: %s must be true or false, not '%.40s'", key, value);
	*to = on != inverted;
	return 0;
}

static int number_set(uint32_t *to, bool *has, const char *key, const char *value, int base, struct err *e)
{
	char *end;
	unsigned long v;

	errno = 0;
	v = strtoul(value, &end, base);
	if (*end || end == value || errno || *value == '-' || *value == '+' || v > UINT32_MAX - 1)
		return err_set(e, ERR_INVALID, -EINVAL, "--mount: invalid %s '%.40s'", key, value);
	*to = (uint32_t)v;
	*has = true;
	return 0;
}

static int type_set(struct run_mount *m, const char *value, struct err *e)
{
	int i = one_of(value, types, ARRAY_LEN(types));

	if (strcasecmp(value, "ssh") == 0)
		return err_set(e, ERR_UNSUPPORTED, -ENOTSUP,
			       "--mount=type=ssh is not supported: a build step reaches no agent of the host");
	if (i < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "--mount: unknown type '%.40s' (bind, cache, tmpfs or secret)",
			       value);
	m->type = (enum mount_type)i;
	return 0;
}

static int field_set(struct run_mount *m, const char *key, const char *value, bool *ro_given, bool *sharing_given,
		     struct err *e)
{
	int i = one_of(key, keys, ARRAY_LEN(keys));

	if (i < 0) {
		const char *near = near_word(key, keys, ARRAY_LEN(keys));

		err_set(e, ERR_INVALID, -EINVAL, "--mount has no option '%.40s'", key);
		if (near)
			err_remedy(e, "did you mean %s?", near);
		return -EINVAL;
	}
	key = keys[i];
	if (!strcmp(key, "ro") || !strcmp(key, "readonly") || !strcmp(key, "rw") || !strcmp(key, "readwrite")) {
		*ro_given = true;
		return bool_set(&m->readonly, key, value, key[1] == 'w' || !strcmp(key, "readwrite"), e);
	}
	if (!strcmp(key, "required"))
		return bool_set(&m->required, key, value, false, e);
	if (!value)
		return err_set(e, ERR_INVALID, -EINVAL, "--mount: %s needs a value", key);
	if (!strcmp(key, "type"))
		return type_set(m, value, e);
	if (!strcmp(key, "from"))
		return text_set(&m->from, value, e);
	if (!strcmp(key, "source") || !strcmp(key, "src"))
		return text_set(&m->source, value, e);
	if (!strcmp(key, "target") || !strcmp(key, "dst") || !strcmp(key, "destination"))
		return text_set(&m->target, value, e);
	if (!strcmp(key, "id"))
		return text_set(&m->id, value, e);
	if (!strcmp(key, "env"))
		return text_set(&m->env, value, e);
	if (!strcmp(key, "size"))
		return parse_size(value, &m->size, e) < 0 ? err_wrap(e, -EINVAL, "--mount") : 0;
	if (!strcmp(key, "mode"))
		return number_set(&m->mode, &m->has_mode, key, value, 8, e);
	if (!strcmp(key, "uid"))
		return number_set(&m->uid, &m->has_uid, key, value, 10, e);
	if (!strcmp(key, "gid"))
		return number_set(&m->gid, &m->has_gid, key, value, 10, e);
	i = one_of(value, sharings, ARRAY_LEN(sharings));
	if (i < 0)
		return err_set(e, ERR_INVALID, -EINVAL,
			       "--mount: sharing must be shared, private or locked, not '%.40s'", value);
	m->sharing = (enum mount_sharing)i;
	*sharing_given = true;
	return 0;
}

/* Whether the fields are valid together. @blind: some values are not known yet. */
static int fits(const struct run_mount *m, bool sharing_given, bool blind, struct err *e)
{
	const char *type = types[m->type];

	if (m->type != MOUNT_CACHE && m->type != MOUNT_SECRET && (m->has_mode || m->has_uid || m->has_gid))
		return err_set(e, ERR_INVALID, -EINVAL, "--mount=type=%s takes no mode, uid or gid", type);
	if (m->type != MOUNT_TMPFS && m->size)
		return err_set(e, ERR_INVALID, -EINVAL, "--mount=type=%s takes no size", type);
	if (m->type != MOUNT_CACHE && sharing_given)
		return err_set(e, ERR_INVALID, -EINVAL, "--mount=type=%s takes no sharing", type);
	if (m->type != MOUNT_SECRET && (m->required || m->env))
		return err_set(e, ERR_INVALID, -EINVAL, "--mount=type=%s takes no required and no env", type);
	if (m->type == MOUNT_SECRET && m->from)
		return err_set(e, ERR_INVALID, -EINVAL, "--mount=type=secret takes no from");
	if (m->type == MOUNT_SECRET && m->source && m->id)
		return err_set(e, ERR_INVALID, -EINVAL, "--mount=type=secret: source and id exclude each other");
	if (!blind && m->type == MOUNT_SECRET && !m->source && !m->id && !m->target)
		return err_set(e, ERR_INVALID, -EINVAL, "--mount=type=secret needs an id");
	if (!blind && m->type != MOUNT_SECRET && !m->target)
		return err_set(e, ERR_INVALID, -EINVAL, "--mount=type=%s needs a target", type);
	return 0;
}

int run_mount_parse(const char *text, const struct expand *x, struct run_mount *ret, struct err *e)
{
	AUTO(run_mount_done) struct run_mount m = { .type = MOUNT_BIND };
	bool ro_given = false, sharing_given = false, blind = false;
	const char *p = text;
	int r;

	while (p) {
		AUTO(buf_done) struct buf field = BUF_INIT(EXPAND_MAX), value = BUF_INIT(EXPAND_MAX);
		char key[32];
		const char *eq;

		p = field_read(p, &field, &r);
		if (r < 0)
			return err_set(e, ERR_INVALID, r, "--mount: a quote is not closed");
		eq = strchr(buf_str(&field), '=');
		snprintf(key, sizeof(key), "%.*s", (int)strcspn(buf_str(&field), "="), buf_str(&field));
		if (eq && strcasecmp(key, "from") == 0 && strchr(eq, '$'))
			return err_set(e, ERR_INVALID, -EINVAL,
				       "--mount: from takes no variables; give the stage a name");
		if (eq && x)
			r = expand_word(x, eq + 1, &value, e);
		else if (eq && strchr(eq, '$'))
			blind = true;
		else if (eq)
			r = buf_adds(&value, eq + 1);
		if (r == 0 && !(eq && !x && strchr(eq, '$')))
			r = field_set(&m, key, eq ? buf_str(&value) : NULL, &ro_given, &sharing_given, e);
		if (r < 0)
			return r;
	}
	r = blind ? 0 : fits(&m, sharing_given, blind, e);
	if (r < 0)
		return r;
	if (!ro_given)
		m.readonly = m.type == MOUNT_BIND || m.type == MOUNT_SECRET;
	*ret = m;
	m = (struct run_mount){ 0 };
	return 0;
}
