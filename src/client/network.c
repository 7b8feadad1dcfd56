/* `cloche network`, `cloche why`: what a sandbox may reach, what it reached, and what was refused. */
#include "client/client.h"
#include "base/base.h"
#include "client/show.h"
#include "client/text.h"
#include "client/want.h"

enum { OPT_MODE = 256, OPT_ALLOW, OPT_ADD, OPT_REMOVE, OPT_BUDGET, OPT_TREE_BUDGET };

static const struct option options[] = {
	{ "mode", required_argument, NULL, OPT_MODE },
	{ "allow", required_argument, NULL, OPT_ALLOW },
	{ "add", required_argument, NULL, OPT_ADD },
	{ "remove", required_argument, NULL, OPT_REMOVE },
	{ "budget", required_argument, NULL, OPT_BUDGET },
	{ "tree-budget", required_argument, NULL, OPT_TREE_BUDGET },
	{ NULL, 0, NULL, 0 },
};

static const char help[] =
	"usage: cloche network [options] SANDBOX\n"
	"\n"
	"Prints the network policy and the traffic of a sandbox. Options change the policy, also while the sandbox runs:\n"
	"connections that are no longer allowed are closed.\n"
	"\n"
	"  --mode MODE         none, allow, open or observe\n"
	"  --allow RULE        replace all rules by these (repeatable)\n"
	"  --add RULE          add a rule (repeatable); a sandbox without a network gets mode allow\n"
	"  --remove RULE       remove a rule (repeatable)\n"
	"  --budget NAME=N     bytes_out, bytes_in, connections, concurrent, bandwidth, dns, requests_per_minute; 0: no limit\n"
	"                      (repeatable); --tree-budget: of the sandbox and its forks together\n"
	"\n"
	"RULE: NAME, *.NAME, ADDRESS[/N] or @SET; with :PORTS (443,8000-8100 or *), else 80 and 443; then +ech or +terminate.\n";

static const char help_why[] =
	"usage: cloche why SANDBOX\n"
	"\n"
	"Lists connections of the sandbox that were refused: why, by which process, and the rule that would allow them; and\n"
	"allowed hosts that could not be reached. In mode observe also the sufficient rules.\n"
	"\n";

struct change {
	json_t *net; /* what is put: "mode", "allow", "budget" … */
	json_t *add, *remove; /* arrays */
};

static int append(json_t *to, const char *text, struct err *e)
{
	json_t *v = json_string(text);

	if (!v || json_array_append_new(to, v) < 0)
		return err_set(e, ERR_INVALID, -EINVAL, "'%.60s': not UTF-8", text);
	return 0;
}

static int apply(struct change *x, int opt, const char *arg, struct err *e)
{
	switch (opt) {
	case OPT_MODE:
		return args_set_text(x->net, "mode", arg, e);
	case OPT_ALLOW:
		return want_allow(x->net, arg, e);
	case OPT_ADD:
		return append(x->add, arg, e);
	case OPT_REMOVE:
		return append(x->remove, arg, e);
	case OPT_BUDGET:
		return want_budget(x->net, "budget", arg, e);
	case OPT_TREE_BUDGET:
		return want_budget(x->net, "tree_budget", arg, e);
	}
	return -EINVAL;
}

static ssize_t find(const json_t *list, const char *text)
{
	const json_t *one;
	size_t i;

	json_array_foreach(list, i,
			   one) if (json_is_string(one) && !strcmp(json_string_value(one), text)) return (ssize_t)i;
	return -1;
}

/* The policy there is, with what was asked for changed: a PUT says all of it. */
static int merge(const json_t *policy, const struct change *x, json_t **ret, struct err *e)
{
	AUTO_JSON json_t *all = json_deep_copy(policy);
	json_t *rules, *one;
	const char *key;
	size_t i;

	if (!json_is_object(all))
		return err_set(e, ERR_INTERNAL, -EPROTO, "the daemon's answer has no policy");
	json_object_foreach(x->net, key, one)
	{
		json_t *old = json_object_get(all, key);

		if (json_is_object(one) && json_is_object(old))
			json_object_update(old, one);
		else
			json_object_set(all, key, one);
	}
	rules = json_object_get(all, "allow");
	if (!json_is_array(rules)) {
		rules = json_array();
		json_object_set_new(all, "allow", rules);
	}
	json_array_foreach(x->add, i, one) if (find(rules, json_string_value(one)) < 0) json_array_append(rules, one);
	json_array_foreach(x->remove, i, one)
	{
		ssize_t at = find(rules, json_string_value(one));

		if (at < 0)
			return err_set(e, ERR_NOT_FOUND, -ENOENT, "'%.60s' is not one of its rules",
				       json_string_value(one));
		json_array_remove(rules, (size_t)at);
	}
	if (json_array_size(x->add) && !json_object_get(x->net, "mode") && !strcmp(show_str(all, "mode"), "none"))
		json_object_set_new(all, "mode", json_string("allow"));
	/* Other modes have no list; when both are given, the daemon reports the error. */
	if (strcmp(show_str(all, "mode"), "allow") != 0 && !json_object_get(x->net, "allow") &&
	    !json_array_size(x->add))
		json_object_del(all, "allow");
	*ret = json_incref(all);
	return 0;
}

/* ---- showing ---- */

static void put_list(const char *name, const json_t *list)
{
	AUTO(buf_done) struct buf b = BUF_INIT(256 * KIB);
	const json_t *one;
	size_t i;

	json_array_foreach(list, i, one)
		buf_addf(&b, "%s%s", i ? " " : "", json_string_value(one) ? json_string_value(one) : "");
	printf("%-9s ", name);
	show_line(b.len ? buf_str(&b) : "nothing");
}

static void put_budget(const char *name, const json_t *budget)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4 * KIB);
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)(uintptr_t)budget, key, v)
		buf_addf(&b, "%s%s=%lld", b.len ? " " : "", key, (long long)json_integer_value(v));
	if (!b.len)
		return;
	printf("%-9s ", name);
	show_line(buf_str(&b));
}

static void put_counts(const json_t *c)
{
	char a[32], b[32];

	printf("%-9s %s out, %s in; %llu connections (%llu open, %llu refused), %llu lookups (%llu refused)\n", "used",
	       text_size(show_u64(c, "bytes_out"), a, sizeof(a)), text_size(show_u64(c, "bytes_in"), b, sizeof(b)),
	       (unsigned long long)show_u64(c, "connections"), (unsigned long long)show_u64(c, "concurrent"),
	       (unsigned long long)show_u64(c, "refused"), (unsigned long long)show_u64(c, "dns"),
	       (unsigned long long)show_u64(c, "dns_refused"));
}

static void print(const json_t *v)
{
	const json_t *policy = json_object_get(v, "policy"), *observed = json_object_get(v, "observed");
	const char *mode = show_str(policy, "mode"), *state = show_str(v, "state");

	printf("%-9s ", "mode");
	show_line(mode);
	if (!strcmp(mode, "allow"))
		put_list("allow", json_object_get(policy, "allow"));
	put_budget("budget", json_object_get(policy, "budget"));
	put_budget(" in total", json_object_get(policy, "tree_budget"));
	if (strcmp(mode, "none") != 0 && strcmp(state, "in force") != 0) {
		printf("%-9s ", "state");
		show_line(state);
	}
	if (*show_str(v, "less"))
		show_warn("%s", show_str(v, "less"));
	put_counts(json_object_get(v, "counts"));
	if (observed)
		put_list("observed", json_object_get(observed, "allow"));
}

static int run(struct args *a, struct err *e)
{
	AUTO_JSON json_t *net = json_object(), *add = json_array(), *remove = json_array(), *now = NULL, *all = NULL;
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	struct change x = { .net = net, .add = add, .remove = remove };
	AUTO(conn_close) struct conn *c = NULL;
	bool changes = false;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		r = apply(&x, opt, optarg, e);
		if (r < 0)
			return r;
		changes = true;
	}
	if (r < 0 || a->help)
		return r;
	r = args_connect(a, 1, 1, "SANDBOX", &c, e);
	if (r == 0)
		r = url_add(&path, "/v1/sandboxes/%s/network", a->rest[0]);
	if (r == 0)
		r = conn_get(c, buf_str(&path), &now, e);
	if (r == 0 && changes) {
		r = merge(json_object_get(now, "policy"), &x, &all, e);
		json_decref(now);
		now = NULL;
		if (r == 0)
			r = conn_json(c, "PUT", buf_str(&path), all, &now, e);
	}
	if (r < 0)
		return r;
	if (a->json)
		return show_json(now, SHOW_LINE, e);
	if (!changes)
		print(now);
	return 0;
}

/* ---- why ---- */

/* "evil.test:443  3 times, last 5s ago, by curl (pid 7): no rule allows it", and what to do. */
static void put_refusal(const json_t *r, const char *sandbox)
{
	AUTO(buf_done) struct buf b = BUF_INIT(16 * KIB);
	const char *command = show_str(r, "command"), *rule = show_str(r, "rule");
	const char *fix = show_str(r, "fix"), *to = show_str(r, "to");
	uint64_t times = show_u64(r, "times"), port = show_u64(r, "port"), pid = show_u64(r, "pid");
	char age[32];

	buf_addf(&b, port && strchr(to, ':') ? "[%s]" : "%s", to);
	if (port)
		buf_addf(&b, ":%llu", (unsigned long long)port);
	else
		buf_adds(&b, " (lookup)");
	buf_addf(&b, "  %s ago", show_age(show_str(r, "time"), age, sizeof(age)));
	if (times > 1)
		buf_addf(&b, ", %llu times", (unsigned long long)times);
	if (*command || pid)
		buf_addf(&b, ", by %s (pid %llu%s)", *command ? command : "?", (unsigned long long)pid,
			 json_is_true(json_object_get(r, "claimed")) ? ", as reported by the machine" : "");
	buf_addf(&b, ": %s", show_str(r, "reason"));
	show_line(buf_str(&b));
	buf_clear(&b);
	/* A fix by a rule of the sandbox is printed as a command; others are done already, or need an administrator. */
	if (*rule && (!strncmp(fix, "add ", 4) || !strncmp(fix, "PUT ", 4)))
		buf_addf(&b, "  cloche network --add '%s' %s", rule, sandbox);
	else
		buf_addf(&b, "  %s", fix);
	show_line(buf_str(&b));
}

static int run_why(struct args *a, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO(conn_close) struct conn *c = NULL;
	AUTO_JSON json_t *v = NULL;
	const json_t *list, *one, *observed;
	size_t i;
	int r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	r = args_connect(a, 1, 1, "SANDBOX", &c, e);
	if (r == 0)
		r = url_add(&path, "/v1/sandboxes/%s/network?why=1", a->rest[0]);
	if (r == 0)
		r = conn_get(c, buf_str(&path), &v, e);
	if (r < 0)
		return r;
	if (a->json)
		return show_json(v, SHOW_LINE, e);
	list = json_object_get(v, "refusals");
	json_array_foreach(list, i, one) put_refusal(one, a->rest[0]);
	observed = json_object_get(v, "observed");
	if (observed)
		put_list("observed", json_object_get(observed, "allow"));
	buf_clear(&path);
	buf_addf(&path, "the sandbox has no network: `cloche network --add RULE %s` gives it one", a->rest[0]);
	if (!strcmp(show_str(json_object_get(v, "policy"), "mode"), "none"))
		show_line(buf_str(&path));
	else if (!json_array_size(list) && !observed)
		show_line("nothing was refused");
	return 0;
}

const struct command cmd_network = {
	.name = "network",
	.text = "show the network policy and traffic of a sandbox",
	.help = help,
	.options = options,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run,
};

const struct command cmd_why = {
	.name = "why",
	.text = "list refused connections, and how to allow them",
	.help = help_why,
	.complete = COMPLETE_NAMES,
	.names = "sandbox",
	.run = run_why,
};
