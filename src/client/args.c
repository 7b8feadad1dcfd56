#include "client/client.h"
#include "base/base.h"
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
	"the daemon (without these: $CLOCHE_URL and $CLOCHE_TOKEN, ~/.config/cloche/config, the local socket)\n"
	"  --url URL           http://HOST:PORT, https://…, or unix:/PATH\n"
	"  --token TOKEN       better in $CLOCHE_TOKEN: options can be seen by others on this machine\n";

const struct option *args_common(void)
{
	return common;
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
	for (const struct option *o = common; o->name; o++)
		a->table[n++] = *o;
	/* The colon makes getopt tell a missing value from an unknown option. */
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
		r = err_set(e, ERR_INVALID, -EINVAL, "unknown option %.60s", optopt ? letter : at);
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
			return bad_option(a, opt, e);
		case 'h':
			fputs(a->command->help, stdout);
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

const char *args_take(struct args *a)
{
	const char *first;

	if (!a->nrest)
		return NULL;
	first = a->rest[0];
	/* getopt skips argv[0], so the word just taken stands for it. */
	a->argv = a->rest;
	a->argc = a->nrest;
	optind = 0;
	return first;
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
		r = err_set(e, ERR_INVALID, -EINVAL, "'%.60s' is one word too many", a->rest[max]);
	else
		for (int i = 0; i < a->nrest && !r; i++)
			if (!a->rest[i][0])
				r = err_set(e, ERR_INVALID, -EINVAL, "an empty word where %s belongs", want);
	if (r < 0)
		err_remedy(e, "see `cloche %s --help`", a->command->name);
	return r;
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
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s' is not set here; give %.60s=VALUE", arg, arg);
	if (json_object_set_new(env, arg, json_string(value)) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': its value is not UTF-8", arg);
	return 0;
}
