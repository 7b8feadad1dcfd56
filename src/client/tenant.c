/* `cloche tenant`. */
#include "client/client.h"
#include "base/base.h"
#include "base/str.h"
#include "client/show.h"
#include "client/text.h"
#include "client/thing.h"

#define OPT_RATE 300

enum kind { NUMBER, SIZE, CPUS };

/* Each quota is an option and a field: X(id, option, field, kind). */
#define QUOTAS(X)                                                                                                      \
	X(SANDBOXES, "sandboxes", "sandboxes", NUMBER)                                                                 \
	X(CPUS, "cpus", "cpus", CPUS)                                                                                  \
	X(MEMORY, "memory", "memory", SIZE)                                                                            \
	X(DISK, "disk", "disk", SIZE)                                                                                  \
	X(EXECS, "execs", "execs", NUMBER)                                                                             \
	X(CHECKPOINTS, "checkpoints", "checkpoints", NUMBER)                                                           \
	X(CHECKPOINT_BYTES, "checkpoint-bytes", "checkpoint_bytes", SIZE)                                              \
	X(SECRETS, "secrets", "secrets", NUMBER)                                                                       \
	X(IMAGE_BYTES, "image-bytes", "image_bytes", SIZE)                                                             \
	X(GPUS, "gpus", "gpus", NUMBER)

#define QUOTA 256 /* + its place */
#define QUOTA_ID(id, option, field, kind) QUOTA_##id,
#define QUOTA_FIELD(id, option, field, kind) { option, field, kind },
#define QUOTA_OPTION(id, option, field, kind) { option, required_argument, NULL, QUOTA + QUOTA_##id },

enum { QUOTAS(QUOTA_ID) };

static const struct quota {
	const char *option, *field;
	enum kind kind;
} quotas[] = { QUOTAS(QUOTA_FIELD) };

static const struct option set_options[] = {
	QUOTAS(QUOTA_OPTION){ "rate", required_argument, NULL, OPT_RATE },
	{ NULL, 0, NULL, 0 },
};

#define QUOTA_HELP                                                                                                     \
	"quotas of all sandboxes of the tenant together (0: no limit)\n"                                               \
	"  --sandboxes N       number of sandboxes\n"                                                                  \
	"  --cpus N            CPU cores, as 0.5 or 2\n"                                                               \
	"  --memory SIZE       memory\n"                                                                               \
	"  --disk SIZE         disk space\n"                                                                           \
	"  --execs N           commands at the same time\n"                                                            \
	"  --checkpoints N     number of checkpoints\n"                                                                \
	"  --checkpoint-bytes SIZE   disk space of checkpoints\n"                                                      \
	"  --secrets N         number of secrets\n"                                                                    \
	"  --image-bytes SIZE  disk space of images\n"                                                                 \
	"  --gpus N            GPUs of all sandboxes\n"                                                                \
	"  --rate N/TIME[/BLOCK]     N calls in TIME; more are refused for BLOCK, as 100/1s/10s; 0: no limit\n"

static const char help[] =
	"usage: cloche tenant ls\n"
	"       cloche tenant create [options] NAME\n"
	"       cloche tenant set [options] NAME\n"
	"       cloche tenant inspect NAME…\n"
	"       cloche tenant rm [-f] NAME…\n"
	"\n"
	"Tenants are isolated from each other, and each has quotas. These commands need an admin token.\n"
	"\n";

static const char create_help[] =
	"usage: cloche tenant create [options] NAME\n"
	"\n"
	"Makes a tenant and prints its name. `cloche token create --tenant NAME` makes a token for it.\n"
	"\n" QUOTA_HELP;

static const char set_help[] = "usage: cloche tenant set [options] NAME\n"
			       "\n"
			       "Changes quotas and rate of a tenant. Quotas that are not given keep their values.\n"
			       "\n" QUOTA_HELP;

static const char ls_help[] = "usage: cloche tenant ls\n"
			      "\n"
			      "Lists tenants: what each uses, and its quotas.\n"
			      "\n";

static const char inspect_help[] = "usage: cloche tenant inspect NAME…\n"
				   "\n"
				   "Prints all details of tenants as JSON; an array when there are several.\n"
				   "\n";

static const char rm_help[] =
	"usage: cloche tenant rm [-f] NAME…\n"
	"\n"
	"Removes tenants that have no sandboxes and checkpoints, with their tokens, templates and pools.\n"
	"\n"
	"  -f, --force         ignore tenants that do not exist\n";

static int set_quota(json_t *body, const struct quota *q, const char *arg, struct err *e)
{
	json_t *all = json_object_get(body, "quotas");
	uint32_t milli = 0;
	uint64_t v = 0;
	int r = q->kind == CPUS ? parse_cpus(arg, &milli, e) :
		q->kind == SIZE ? parse_size(arg, &v, e) :
				  parse_u64(arg, &v, e);

	if (r == 0 && v > INT64_MAX)
		r = err_set(e, ERR_INVALID, -ERANGE, "'%.60s': too large", arg);
	if (r < 0)
		return err_wrap(e, r, "--%s", q->option);
	if (!all) {
		all = json_object();
		json_object_set_new(body, "quotas", all);
	}
	json_object_set_new(all, q->field, q->kind == CPUS ? json_real(milli / 1000.0) : json_integer((json_int_t)v));
	return 0;
}

/* "100/1s/10s" */
static int set_rate(json_t *body, char *arg, struct err *e)
{
	static const char *const fields[] = { "window", "block" };
	json_t *rate = json_object();
	char *at = arg, *word = strsep(&at, "/");
	uint64_t points = 0;
	int r = parse_u64(word, &points, e);

	json_object_set_new(body, "rate", rate);
	json_object_set_new(rate, "points", json_integer((json_int_t)(points < INT64_MAX ? points : INT64_MAX)));
	for (size_t i = 0; r == 0 && at; i++) {
		word = strsep(&at, "/");
		r = i < ARRAY_LEN(fields) ?
			    args_set_time(rate, fields[i], word, e) :
			    err_set(e, ERR_INVALID, -EINVAL, "'%.20s' has too many parts: must be N/TIME/BLOCK", word);
	}
	if (r == 0 && points && !json_object_get(rate, "window"))
		r = err_set(e, ERR_INVALID, -EINVAL, "must be N/TIME or N/TIME/BLOCK, as 100/1s/10s");
	return r < 0 ? err_wrap(e, r, "--rate") : 0;
}

static int read_options(struct args *a, json_t *body, struct err *e)
{
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0) {
		r = opt == OPT_RATE ? set_rate(body, optarg, e) : set_quota(body, &quotas[opt - QUOTA], optarg, e);
		if (r < 0)
			return r;
	}
	return r < 0 || a->help ? r : args_count(a, 1, 1, "NAME", e);
}

static int show_tenant(const struct args *a, const json_t *v, struct err *e)
{
	if (a->json)
		return show_json(v, SHOW_LINE, e);
	show_line(show_str(v, "id"));
	return 0;
}

static int run_create(struct args *a, struct err *e)
{
	AUTO_JSON json_t *body = json_object(), *v = NULL;
	AUTO(conn_close) struct conn *c = NULL;
	int r = read_options(a, body, e);

	if (r < 0 || a->help)
		return r;
	r = args_set_text(body, "id", a->rest[0], e);
	if (r == 0)
		r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = conn_json(c, "POST", "/v1/tenants", body, &v, e);
	return r < 0 ? r : show_tenant(a, v, e);
}

static const struct thing tenant;

static int run_set(struct args *a, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO_JSON json_t *body = json_object(), *v = NULL;
	AUTO(conn_close) struct conn *c = NULL;
	int r = read_options(a, body, e);

	if (r < 0 || a->help)
		return r;
	if (!json_object_size(body)) {
		r = err_set(e, ERR_INVALID, -EINVAL, "nothing to change");
		err_remedy(e, "see `cloche tenant set --help`");
		return r;
	}
	r = conn_open(&a->conn, &c, e);
	if (r == 0)
		r = thing_url(&tenant, a->rest[0], &path);
	if (r == 0)
		r = conn_json(c, "PATCH", buf_str(&path), body, &v, e);
	return r < 0 ? r : show_tenant(a, v, e);
}

/* "3 of 10", or "3" where there is no limit. */
static void cell_share(struct table *t, const json_t *one, const char *field)
{
	uint64_t used = show_u64(json_object_get(one, "used"), field),
		 max = show_u64(json_object_get(one, "quotas"), field);

	if (max)
		table_addf(t, "%llu of %llu", (unsigned long long)used, (unsigned long long)max);
	else
		table_addf(t, "%llu", (unsigned long long)used);
}

/* The same in bytes: "1.5G of 8G". */
static void cell_share_size(struct table *t, const json_t *one, const char *field)
{
	uint64_t used = show_u64(json_object_get(one, "used"), field),
		 max = show_u64(json_object_get(one, "quotas"), field);
	char a[16], b[16];

	text_size(used, a, sizeof(a));
	if (max)
		table_addf(t, "%s of %s", a, text_size(max, b, sizeof(b)));
	else
		table_addf(t, "%s", a);
}

static const struct column columns[] = {
	{ "TENANT", cell_text, "id" },		 { "SANDBOXES", cell_share, "sandboxes" },
	{ "MEMORY", cell_share_size, "memory" }, { "DISK", cell_share_size, "disk" },
	{ "EXECS", cell_share, "execs" },	 { "CHECKPOINTS", cell_share, "checkpoints" },
	{ "CREATED", cell_text, "created_at" },	 { NULL, NULL, NULL },
};

static const struct thing tenant = { "TENANT", "/v1/tenants", "tenants", NULL, columns, 0x3e };

static const struct command create = {
	.name = "tenant create",
	.text = "make a tenant",
	.help = create_help,
	.options = set_options,
	.run = run_create,
};

static const struct command set = {
	.name = "tenant set",
	.text = "change quotas of a tenant",
	.help = set_help,
	.options = set_options,
	.complete = COMPLETE_NAMES,
	.names = "tenant",
	.run = run_set,
};

static const struct command ls = THING_LS(tenant, "list tenants and what they use", ls_help);
static const struct command inspect = THING_INSPECT(tenant, "print all details of a tenant", inspect_help);
static const struct command rm = THING_RM(tenant, "remove tenants", rm_help);

static const struct command *const verbs[] = { &ls, &create, &set, &inspect, &rm, NULL };

const struct command cmd_tenant = {
	.name = "tenant",
	.text = "manage tenants and their quotas",
	.help = help,
	.verbs = verbs,
	.run = args_noun,
};
