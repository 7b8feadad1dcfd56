/* Splits a command line into a command, its options and its arguments. */
#include "client/client.h"
#include "base/base.h"
#include "base/near.h"
#include "base/str.h"
#include "client/show.h"

enum { OPT_URL = 1000, OPT_TOKEN, OPT_JSON };

static const struct option common[] = {
	{ "url", required_argument, NULL, OPT_URL },
	{ "token", required_argument, NULL, OPT_TOKEN },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static const char common_help[] =
	"  --json              the answer as JSON\n"
	"the daemon (default: $CLOCHE_URL and $CLOCHE_TOKEN, ~/.config/cloche/config, the local socket)\n"
	"  --url URL           http://HOST:PORT, https://…, or unix:/PATH\n"
	"  --token TOKEN       prefer $CLOCHE_TOKEN: other users of this machine can see options\n";

const struct option *args_common(void)
{
	return common;
}

/* The number of arguments of an option that all commands have; 0 for other options. */
static int common_words(const char *arg)
{
	for (const struct option *o = common; o->name; o++) {
		size_t n = strlen(o->name);

		if (o->val == 'h' || strncmp(arg, "--", 2) || strncmp(arg + 2, o->name, n))
			continue;
		if (!arg[2 + n])
			return o->has_arg == required_argument ? 2 : 1;
		if (arg[2 + n] == '=')
			return 1;
	}
	return 0;
}

const struct command *args_verb(const struct command *c, int *argc, char ***argv)
{
	char **v = *argv, *word;
	int at = 1, n;

	if (!c->verbs)
		return c;
	while (at < *argc && (n = common_words(v[at])) > 0)
		at += n;
	if (at >= *argc || !strcmp(v[at], "--help") || !strcmp(v[at], "-h"))
		return c;
	for (size_t i = 0; c->verbs[i]; i++) {
		if (strcmp(v[at], c->verbs[i]->name + strlen(c->name) + 1))
			continue;
		word = v[at];
		memmove(&v[2], &v[1], (size_t)(at - 1) * sizeof(*v));
		v[1] = word;
		*argv += 1;
		*argc -= 1;
		return c->verbs[i];
	}
	return c->first_verb ? c->verbs[0] : c;
}

int args_noun(struct args *a, struct err *e)
{
	const struct command *c = a->command;
	AUTO(buf_done) struct buf list = BUF_INIT(1 * KIB);
	const char *verbs[ARGS_OPTIONS], *near = NULL;
	int r = args_only(a, e);
	size_t n = 0;

	if (r < 0 || a->help)
		return r;
	for (; c->verbs[n] && n < ARRAY_LEN(verbs); n++) {
		verbs[n] = c->verbs[n]->name + strlen(c->name) + 1;
		buf_addf(&list, "%s%s", n == 0 ? "" : c->verbs[n + 1] ? ", " : " or ", verbs[n]);
	}
	if (!a->nrest) {
		r = err_set(e, ERR_INVALID, -EINVAL, "missing subcommand: %s", buf_str(&list));
	} else {
		r = err_set(e, ERR_INVALID, -EINVAL, "unknown subcommand '%.40s': must be %s", a->rest[0],
			    buf_str(&list));
		near = near_word(a->rest[0], verbs, n);
	}
	if (near)
		err_remedy(e, "did you mean `cloche %s %s`?", c->name, near);
	else
		err_remedy(e, "see `cloche %s --help`", c->name);
	return r;
}

void args_init(struct args *a, const struct command *c, int argc, char **argv)
{
	bool stop = c->letters && c->letters[0] == '+';
	size_t n = 0;

	*a = (struct args){ .command = c, .argc = argc, .argv = argv };
	for (const struct option *o = c->options; o && o->name; o++) {
		assert(n + ARRAY_LEN(common) < ARGS_OPTIONS);
		a->table[n++] = *o;
	}
	for (const struct option *o = c->more; o && o->name; o++) {
		assert(n + ARRAY_LEN(common) < ARGS_OPTIONS);
		a->table[n++] = *o;
	}
	for (const struct option *o = common; o->name; o++)
		a->table[n++] = *o;
	/* The colon makes getopt distinguish a missing value from an unknown option. */
	snprintf(a->letters, sizeof(a->letters), "%s:h%s", stop ? "+" : "", (c->letters ? c->letters : "") + stop);
	/* getopt's own state: 0 starts anew, and it prints nothing. */
	optind = 0;
	opterr = 0;
}

static bool known(const struct args *a, int opt)
{
	for (const struct option *o = a->table; o->name; o++)
		if (o->val == opt)
			return true;
	return false;
}

static int unknown_option(const struct args *a, const char *at, struct err *e)
{
	const char *names[ARGS_OPTIONS], *near, *use = near_option(at);
	char word[40] = "";
	size_t n = 0;

	for (const struct option *o = a->table; o->name; o++)
		names[n++] = o->name;
	if (!strncmp(at, "--", 2))
		snprintf(word, sizeof(word), "%.*s", (int)strcspn(at + 2, "="), at + 2);
	near = near_word(word, names, n);
	err_set(e, ERR_INVALID, -EINVAL, "unknown option %.60s", at);
	if (use)
		err_remedy(e, "%s; see `cloche %s --help`", use, a->command->name);
	else if (near)
		err_remedy(e, "did you mean --%s? See `cloche %s --help`", near, a->command->name);
	else
		err_remedy(e, "see `cloche %s --help`", a->command->name);
	return -EINVAL;
}

static int bad_option(const struct args *a, int opt, struct err *e)
{
	const char *at = optind > 0 && optind <= a->argc ? a->argv[optind - 1] : "";
	const char letter[] = { '-', (char)optopt, '\0' };
	int r;

	if (opt == ':')
		r = err_set(e, ERR_INVALID, -EINVAL, "option %.60s needs a value", *at ? at : letter);
	else if (optopt && known(a, optopt) && !strncmp(at, "--", 2))
		r = err_set(e, ERR_INVALID, -EINVAL, "option %.*s takes no value", (int)strcspn(at, "="), at);
	else
		return unknown_option(a, optopt ? letter : at, e);
	err_remedy(e, "see `cloche %s --help`", a->command->name);
	return r;
}

int args_next(struct args *a, int *ret_opt, struct err *e)
{
	for (;;) {
		int opt = getopt_long(a->argc, a->argv, a->letters, a->table, NULL);

		switch (opt) {
		case -1:
			a->rest = a->argv + optind;
			a->nrest = a->argc - optind;
			return 0;
		case '?':
		case ':':
			/* --json, which decides how the error is printed, may follow the bad option. */
			for (int i = optind; i < a->argc && strcmp(a->argv[i], "--"); i++)
				a->json = a->json || !strcmp(a->argv[i], "--json");
			return bad_option(a, opt, e);
		case 'h':
			fputs(a->command->help, stdout);
			if (a->command->more_help)
				fputs(a->command->more_help, stdout);
			fputs(common_help, stdout);
			a->help = true;
			return 0;
		case OPT_URL:
			a->conn.url = optarg;
			break;
		case OPT_TOKEN:
			a->conn.token = optarg;
			break;
		case OPT_JSON:
			a->json = true;
			break;
		default:
			*ret_opt = opt;
			return 1;
		}
	}
}

int args_only(struct args *a, struct err *e)
{
	int opt;

	return args_next(a, &opt, e);
}

int args_count(const struct args *a, int min, int max, const char *want, struct err *e)
{
	int r = 0;

	if (a->nrest < min)
		r = err_set(e, ERR_INVALID, -EINVAL, "missing %s", want);
	else if (max >= 0 && a->nrest > max)
		r = err_set(e, ERR_INVALID, -EINVAL, "unexpected argument '%.60s'", a->rest[max]);
	else
		for (int i = 0; i < a->nrest && !r; i++)
			if (!a->rest[i][0])
				r = err_set(e, ERR_INVALID, -EINVAL, "%s must not be empty", want);
	if (r < 0)
		err_remedy(e, "see `cloche %s --help`", a->command->name);
	return r;
}

int args_connect(const struct args *a, int min, int max, const char *want, struct conn **ret, struct err *e)
{
	int r = args_count(a, min, max, want, e);

	return r < 0 ? r : conn_open(&a->conn, ret, e);
}

int args_add_env(json_t *body, const char *arg, struct err *e)
{
	json_t *env = json_object_get(body, "env");
	const char *value;

	if (!env) {
		env = json_object();
		json_object_set_new(body, "env", env);
	}
	if (strchr(arg, '='))
		return show_set_pair(env, arg, e);
	value = getenv(arg);
	if (!value)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s' is not set in the environment; give %.60s=VALUE", arg,
			       arg);
	if (json_object_set_new(env, arg, json_string(value)) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': the value is not UTF-8", arg);
	return 0;
}

int args_add_meta(json_t *body, const char *arg, struct err *e)
{
	if (!json_object_get(body, "metadata"))
		json_object_set_new(body, "metadata", json_object());
	return show_set_pair(json_object_get(body, "metadata"), arg, e);
}

int args_set_text(json_t *body, const char *key, const char *arg, struct err *e)
{
	if (json_object_set_new(body, key, json_string(arg)) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': not UTF-8", arg);
	return 0;
}

int args_set_time(json_t *body, const char *key, const char *arg, struct err *e)
{
	uint64_t ms = 0;
	int r = parse_duration(arg, &ms, e);

	if (r < 0)
		return r;
	if (ms > INT64_MAX)
		return err_set(e, ERR_INVALID, -ERANGE, "'%.60s': too large", arg);
	json_object_set_new(body, key,
			    ms % 1000 ? json_real((double)ms / 1000) : json_integer((json_int_t)(ms / 1000)));
	return 0;
}

int args_set_memory(json_t *body, const char *arg, struct err *e)
{
	json_t *value = NULL;

	if (!arg || !strcmp(arg, "yes"))
		value = json_true();
	else if (!strcmp(arg, "no"))
		value = json_false();
	else if (!strcmp(arg, "auto"))
		value = json_string("auto");
	else
		return err_set(e, ERR_INVALID, -EINVAL, "--memory=%.40s: must be yes, no or auto", arg);
	json_object_set_new(body, "memory", value);
	return 0;
}

int args_set_copied(json_t *body, const char *arg, struct err *e)
{
	if (strcmp(arg, "drop") && strcmp(arg, "refuse"))
		return err_set(e, ERR_INVALID, -EINVAL, "--network %.40s: must be drop or refuse", arg);
	return args_set_text(body, "network", arg, e);
}

int args_set_words(json_t *body, const char *key, char **words, int n, struct err *e)
{
	json_t *list = json_array();

	for (int i = 0; i < n; i++)
		if (json_array_append_new(list, json_string(words[i])) < 0) {
			json_decref(list);
			return err_set(e, ERR_INVALID, -EINVAL, "argument %d of the command is not UTF-8", i + 1);
		}
	json_object_set_new(body, key, list);
	return 0;
}

int args_query_meta(struct buf *query, char *arg, struct err *e)
{
	char *eq = strchr(arg, '=');
	int r;

	if (!eq || eq == arg)
		return err_set(e, ERR_INVALID, -EINVAL, "--meta '%.60s': must be NAME=VALUE", arg);
	*eq = '\0';
	r = url_add(query, "&metadata.%s=%s", arg, eq + 1);
	return r < 0 ? err_sys(e, ERR_INVALID, r, "the request is too large") : 0;
}

int args_sandbox(struct args *a, int (*apply)(void *arg, int opt, const char *value, struct err *e), void *arg,
		 const char **ret_sandbox, struct err *e)
{
	int opt, r;

	for (unsigned round = 0; round < 2; round++) {
		while ((r = args_next(a, &opt, e)) > 0) {
			r = apply(arg, opt, optarg, e);
			if (r < 0)
				return r;
		}
		if (r < 0 || a->help || round)
			return r;
		r = args_count(a, 1, -1, "SANDBOX", e);
		if (r < 0)
			return r;
		*ret_sandbox = a->rest[0];
		/* getopt skips argv[0], so the word that was just read takes its place. */
		a->argv = a->rest;
		a->argc = a->nrest;
		optind = 0;
	}
	return 0;
}
