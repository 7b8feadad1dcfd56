/* Checks a file of the Container Device Interface by one table of its fields. */
#include "devices/cdi.h"
#include "base/base.h"

enum kind { STRING, TEXT /* not empty */, STRINGS, ENV, UINT, INT, BOOL, MAP, OBJECT, OBJECTS };

struct field {
	const char *name;
	enum kind kind;
	bool required;
	unsigned char since; /* index of CDI_VERSIONS */
	const struct field *in;
};

enum { V040 = 1, V050 = 2, V060 = 3, V070 = 4, V110 = 7 };

static const char *const versions[] = CDI_VERSIONS;

static const struct field node[] = {
	{ "path", TEXT, true, 0, NULL },	   { "hostPath", STRING, false, V050, NULL },
	{ "type", STRING, false, 0, NULL },	   { "major", INT, false, 0, NULL },
	{ "minor", INT, false, 0, NULL },	   { "fileMode", UINT, false, 0, NULL },
	{ "permissions", STRING, false, 0, NULL }, { "uid", UINT, false, 0, NULL },
	{ "gid", UINT, false, 0, NULL },	   { NULL, 0, false, 0, NULL },
};

static const struct field mount[] = {
	{ "hostPath", TEXT, true, 0, NULL },
	{ "containerPath", TEXT, true, 0, NULL },
	{ "options", STRINGS, false, 0, NULL },
	{ "type", STRING, false, V040, NULL },
	{ NULL, 0, false, 0, NULL },
};

static const struct field hook[] = {
	{ "hookName", TEXT, true, 0, NULL }, { "path", TEXT, true, 0, NULL },	  { "args", STRINGS, false, 0, NULL },
	{ "env", ENV, false, 0, NULL },	     { "timeout", UINT, false, 0, NULL }, { NULL, 0, false, 0, NULL },
};

static const struct field rdt[] = {
	{ "closID", STRING, false, 0, NULL },
	{ "l3CacheSchema", STRING, false, 0, NULL },
	{ "memBwSchema", STRING, false, 0, NULL },
	{ "schemata", STRINGS, false, V110, NULL },
	{ "enableMonitoring", BOOL, false, V110, NULL },
	{ NULL, 0, false, 0, NULL },
};

static const struct field net[] = {
	{ "hostInterfaceName", TEXT, true, 0, NULL },
	{ "name", TEXT, true, 0, NULL },
	{ NULL, 0, false, 0, NULL },
};

static const struct field edits[] = {
	{ "env", ENV, false, 0, NULL },
	{ "deviceNodes", OBJECTS, false, 0, node },
	{ "mounts", OBJECTS, false, 0, mount },
	{ "hooks", OBJECTS, false, 0, hook },
	{ "intelRdt", OBJECT, false, V070, rdt },
	{ "netDevices", OBJECTS, false, V110, net },
	{ "additionalGids", STRINGS, false, V070, NULL },
	{ "additionalGIDs", STRINGS, false, V070, NULL },
	{ NULL, 0, false, 0, NULL },
};

static const struct field device[] = {
	{ "name", TEXT, true, 0, NULL },
	{ "annotations", MAP, false, V060, NULL },
	{ "containerEdits", OBJECT, true, 0, edits },
	{ NULL, 0, false, 0, NULL },
};

static const struct field file[] = {
	{ "cdiVersion", TEXT, true, 0, NULL },	       { "kind", TEXT, true, 0, NULL },
	{ "annotations", MAP, false, V060, NULL },     { "devices", OBJECTS, true, 0, device },
	{ "containerEdits", OBJECT, false, 0, edits }, { NULL, 0, false, 0, NULL },
};

static bool is_null(const struct tree *t)
{
	return t->kind == TREE_TEXT && t->plain && (!t->text[0] || !strcmp(t->text, "null") || !strcmp(t->text, "~"));
}

const struct tree *cdi_field(const struct tree *map, const char *key)
{
	const struct tree *t = tree_get(map, key);

	return t && !is_null(t) ? t : NULL;
}

static int must_be(const struct tree *t, const char *what, struct err *e)
{
	return err_set(e, ERR_INVALID, -EINVAL, "line %u: '%.60s' must be %s", t->line, t->key ? t->key : "entry",
		       what);
}

static int check_object(const struct tree *t, const struct field *f, unsigned version, struct err *e);

static int check_list(const struct tree *t, const struct field *f, unsigned version, struct err *e)
{
	const bool numbers = !strncmp(f->name, "additional", 10);
	const char *text;
	int r = 0;

	if (t->kind != TREE_LIST)
		return must_be(t, "a list", e);
	for (const struct tree *c = t->child; r == 0 && c; c = c->next) {
		if (f->kind == OBJECTS)
			r = check_object(c, f->in, version, e);
		else if (numbers)
			r = tree_int(c, 0, UINT32_MAX, &(int64_t){ 0 }, e);
		else
			r = tree_string(c, &text, e);
		if (r == 0 && f->kind == ENV && (!strchr(text, '=') || text[0] == '='))
			r = err_set(e, ERR_INVALID, -EINVAL, "line %u: '%.60s' must be NAME=VALUE", c->line, text);
	}
	return r;
}

static int check_map(const struct tree *t, struct err *e)
{
	const char *text;
	int r = 0;

	if (t->kind != TREE_MAP)
		return must_be(t, "an object of strings", e);
	for (const struct tree *c = t->child; r == 0 && c; c = c->next)
		r = tree_string(c, &text, e);
	return r;
}

static int check_value(const struct tree *t, const struct field *f, unsigned version, struct err *e)
{
	const char *text = "";
	int r;

	switch (f->kind) {
	case STRING:
	case TEXT:
		r = tree_string(t, &text, e);
		return r == 0 && f->kind == TEXT && !text[0] ? must_be(t, "not empty", e) : r;
	case STRINGS:
	case ENV:
	case OBJECTS:
		return check_list(t, f, version, e);
	case UINT:
		return tree_int(t, 0, UINT32_MAX, &(int64_t){ 0 }, e);
	case INT:
		return tree_int(t, INT64_MIN, INT64_MAX, &(int64_t){ 0 }, e);
	case BOOL:
		return t->kind == TREE_TEXT && t->plain && (!strcmp(t->text, "true") || !strcmp(t->text, "false")) ?
			       0 :
			       must_be(t, "true or false", e);
	case MAP:
		return check_map(t, e);
	case OBJECT:
		return check_object(t, f->in, version, e);
	}
	return -EINVAL;
}

static int check_object(const struct tree *t, const struct field *f, unsigned version, struct err *e)
{
	int r = 0;

	if (t->kind != TREE_MAP)
		return must_be(t, "an object", e);
	for (const struct tree *c = t->child; r == 0 && c; c = c->next) {
		const struct field *k = f;

		while (k->name && strcmp(k->name, c->key))
			k++;
		if (!k->name)
			return err_set(e, ERR_INVALID, -EINVAL, "line %u: unknown field '%.60s'", c->line, c->key);
		if (is_null(c))
			continue;
		if (k->since > version)
			return err_set(e, ERR_INVALID, -EINVAL, "line %u: '%s' needs cdiVersion %s or later", c->line,
				       k->name, versions[k->since]);
		r = check_value(c, k, version, e);
	}
	for (const struct field *k = f; r == 0 && k->name; k++)
		if (k->required && !cdi_field(t, k->name))
			r = err_set(e, ERR_INVALID, -EINVAL, "line %u: '%s' is missing", t->line, k->name);
	return r;
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_alnum(char c)
{
	return is_letter(c) || (c >= '0' && c <= '9');
}

/* Alphanumerics, and @more between them; the first is a letter unless @digit. */
static bool is_word(const char *s, size_t n, const char *more, bool digit)
{
	if (!n || n > 253 || !(digit ? is_alnum(s[0]) : is_letter(s[0])) || !is_alnum(s[n - 1]))
		return false;
	for (size_t i = 1; i < n; i++)
		if (!is_alnum(s[i]) && !strchr(more, s[i]))
			return false;
	return true;
}

static bool is_kind(const char *s, size_t n)
{
	const char *slash = memchr(s, '/', n);
	const size_t vendor = slash ? (size_t)(slash - s) : 0;

	return slash && is_word(s, vendor, "-_.", false) && n - vendor - 1 <= 63 &&
	       is_word(slash + 1, n - vendor - 1, "-_.", false);
}

int cdi_check_name(const char *name, size_t *ret_kind, struct err *e)
{
	const size_t n = strcspn(name, "=");

	if (!name[n] || !is_kind(name, n) || !is_word(name + n + 1, strlen(name + n + 1), "-_.:", true)) {
		err_set(e, ERR_INVALID, -EINVAL, "device '%.80s': not a name of a device", name);
		err_remedy(
			e,
			"give VENDOR/CLASS=NAME, as nvidia.com/gpu=0, or a node, as /dev/fuse; `cloche doctor` lists them");
		return -EINVAL;
	}
	*ret_kind = n;
	return 0;
}

static int check_nodes(const struct tree *at, struct err *e)
{
	const struct tree *list = cdi_field(at, "deviceNodes"), *hooks = cdi_field(at, "hooks");
	static const char *const names[] = { "prestart",       "createRuntime", "createContainer",
					     "startContainer", "poststart",	"poststop" };

	for (const struct tree *c = list ? list->child : NULL; c; c = c->next) {
		const struct tree *type = cdi_field(c, "type"), *may = cdi_field(c, "permissions");

		if (type && strcmp(type->text, "") && strcmp(type->text, "b") && strcmp(type->text, "c") &&
		    strcmp(type->text, "u") && strcmp(type->text, "p"))
			return must_be(type, "b, c, u or p", e);
		if (may && strcmp(may->text, "none") && may->text[strspn(may->text, "rwm")])
			return must_be(may, "of the letters r, w and m, or none", e);
	}
	for (const struct tree *c = hooks ? hooks->child : NULL; c; c = c->next) {
		const struct tree *name = cdi_field(c, "hookName");
		size_t i = 0;

		while (i < ARRAY_LEN(names) && strcmp(names[i], name->text))
			i++;
		if (i == ARRAY_LEN(names))
			return must_be(name, "a kind of hook that OCI has", e);
	}
	return 0;
}

static int check_devices(const struct tree *root, unsigned version, struct err *e)
{
	const struct tree *list = cdi_field(root, "devices");
	int r = check_nodes(cdi_field(root, "containerEdits"), e);

	if (r == 0 && !list->child)
		return must_be(list, "at least one device", e);
	for (const struct tree *c = list->child; r == 0 && c; c = c->next) {
		const struct tree *name = cdi_field(c, "name"), *in = cdi_field(c, "containerEdits");

		if (!is_word(name->text, strlen(name->text), "-_.:", true))
			return must_be(name, "letters and digits, and -_.: between them", e);
		if (!is_letter(name->text[0]) && version < V050)
			return err_set(e, ERR_INVALID, -EINVAL,
				       "line %u: a name that begins with a digit needs cdiVersion 0.5.0 or later",
				       name->line);
		if (!in->child)
			return err_set(e, ERR_INVALID, -EINVAL, "line %u: device '%.60s' has no edits", c->line,
				       name->text);
		for (const struct tree *o = list->child; o != c; o = o->next)
			if (!strcmp(cdi_field(o, "name")->text, name->text))
				return err_set(e, ERR_INVALID, -EINVAL, "line %u: device '%.60s' is there twice",
					       c->line, name->text);
		r = check_nodes(in, e);
	}
	return r;
}

int cdi_check(const struct tree *root, struct err *e)
{
	const struct tree *given = cdi_field(root, "cdiVersion"), *kind = cdi_field(root, "kind");
	const char *text = "";
	unsigned version = 0;
	int r;

	if (root->kind != TREE_MAP)
		return must_be(root, "an object", e);
	if (!given)
		return err_set(e, ERR_INVALID, -EINVAL, "'cdiVersion' is missing");
	r = tree_string(given, &text, e);
	if (r < 0)
		return r;
	text += *text == 'v';
	while (version < ARRAY_LEN(versions) && strcmp(versions[version], text))
		version++;
	if (version == ARRAY_LEN(versions))
		return err_set(e, ERR_INVALID, -EINVAL, "cdiVersion '%.40s' is not one of 0.3.0 to 1.1.0", text);
	r = check_object(root, file, version, e);
	if (r < 0)
		return r;
	if (!is_kind(kind->text, strlen(kind->text)))
		return must_be(kind, "VENDOR/CLASS", e);
	if (version < V060 && strchr(strchr(kind->text, '/'), '.'))
		return err_set(e, ERR_INVALID, -EINVAL, "line %u: a class with dots needs cdiVersion 0.6.0 or later",
			       kind->line);
	return check_devices(root, version, e);
}
