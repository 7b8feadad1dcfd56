/* `cloche image`: stored images, as a list and one by one. */
#include "client/image.h"
#include "base/base.h"
#include "client/show.h"
#include "client/table.h"
#include "client/text.h"
#include "client/thing.h"

static const char help[] =
	"usage: cloche image bootstrap [options] [NAME]\n"
	"       cloche image pull [options] NAME…\n"
	"       cloche image outdated|update [NAME…]\n"
	"       cloche image import [options] FILE|FOLDER [NAME]\n"
	"       cloche image build [options] DIR\n"
	"       cloche image commit SANDBOX NAME\n"
	"       cloche image export IMAGE FILE\n"
	"       cloche image ls|df|prune\n"
	"       cloche image inspect|rm IMAGE…\n"
	"       cloche image history IMAGE\n"
	"       cloche image tag IMAGE NAME\n"
	"\n"
	"Images are root filesystems with a name, such as python:3.12-slim: `cloche create --image NAME`.\n"
	"`cloche image VERB --help` lists the options of each verb.\n"
	"`cloche image vm-kernel` fetches the kernel for virtual machines.\n"
	"\n";

int image_url(struct buf *b, const char *name, const char *more)
{
	AUTO_FREE char *copy = strdup(name);
	int r = copy ? buf_adds(b, "/v1/images") : -ENOMEM;

	for (char *p = copy; p && *p; p++)
		*p = *p == '/' ? '+' : *p;
	if (r == 0)
		r = url_add(b, "/%s", copy);
	return r < 0 ? r : buf_adds(b, more);
}

static int plain_url(struct buf *b, const char *name)
{
	return image_url(b, name, "");
}

/* ---- ls, inspect, rm ---- */

static void cell_digest(struct table *t, const json_t *one, const char *field)
{
	const char *text = show_str(one, field), *colon = strchr(text, ':');

	table_addf(t, "%.12s", colon ? colon + 1 : text);
}

static void cell_layers(struct table *t, const json_t *one, const char *field)
{
	table_addf(t, "%zu", json_array_size(json_object_get(one, field)));
}

static void cell_public(struct table *t, const json_t *one, const char *field)
{
	table_add(t, json_is_true(json_object_get(one, field)) ? "public" : "");
}

static const struct column columns[] = {
	{ "NAME", cell_text, "name" }, { "DIGEST", cell_digest, "digest" }, { "LAYERS", cell_layers, "layers" },
	{ "SIZE", cell_size, "size" }, { "STORED", cell_age, "stored_at" }, { "ACCESS", cell_public, "public" },
	{ NULL, NULL, NULL },
};

static const struct thing image = { "IMAGE", "/v1/images", "images", plain_url, columns, 0xc };

static const char ls_help[] = "usage: cloche image ls\n"
			      "\n"
			      "Lists the images of this tenant, and public ones.\n"
			      "\n";

static const char inspect_help[] = "usage: cloche image inspect IMAGE…\n"
				   "\n"
				   "Prints all details of images as JSON; an array when there are several.\n"
				   "\n";

static const char rm_help[] =
	"usage: cloche image rm [-f] IMAGE…\n"
	"\n"
	"Removes names of images. Layers that nothing needs any more are removed with the last name.\n"
	"Sandboxes made from them are kept.\n"
	"\n"
	"  -f, --force         ignore images that do not exist\n";

/* ---- history ---- */

static const char history_help[] =
	"usage: cloche image history IMAGE\n"
	"\n"
	"Lists the steps that made an image, the newest first, with the layers that they made.\n"
	"\n";

static int run_history(struct args *a, struct err *e)
{
	static const char *const titles[] = { "CREATED", "LAYER", "SIZE", "STEP" };
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO(table_done) struct table t = { 0 };
	AUTO(conn_close) struct conn *c = NULL;
	AUTO_JSON json_t *v = NULL;
	const json_t *steps, *layers;
	size_t layer;
	char size[32];
	int r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	r = args_connect(a, 1, 1, "IMAGE", &c, e);
	if (r == 0 && image_url(&path, a->rest[0], "") < 0)
		r = err_set(e, ERR_INVALID, -EINVAL, "the name of the image is too long");
	if (r == 0)
		r = conn_get(c, buf_str(&path), &v, e);
	if (r < 0)
		return r;
	steps = json_object_get(v, "history");
	layers = json_object_get(v, "layers");
	if (a->json)
		return show_json(steps, SHOW_LINE, e);
	table_init(&t, titles, ARRAY_LEN(titles), 4);
	layer = json_array_size(layers);
	for (size_t i = json_array_size(steps); i-- > 0;) {
		const json_t *step = json_array_get(steps, i);
		const bool empty = json_is_true(json_object_get(step, "empty_layer"));
		const json_t *one = empty || !layer ? NULL : json_array_get(layers, --layer);

		table_add(&t, show_age(show_str(step, "created"), size, sizeof(size)));
		table_addf(&t, "%.12s", one ? show_str(one, "diff_id") + 7 : "");
		table_add(&t, one ? text_size(show_u64(one, "size"), size, sizeof(size)) : "");
		table_add(&t, show_str(step, "created_by"));
	}
	return table_print(&t, e);
}

/* ---- tag, publish ---- */

static const char tag_help[] = "usage: cloche image tag IMAGE NAME\n"
			       "\n"
			       "Gives an image another name. An image that has the name loses it.\n"
			       "\n";

static int run_tag(struct args *a, struct err *e)
{
	AUTO(buf_done) struct buf path = BUF_INIT(8 * KIB);
	AUTO(conn_close) struct conn *c = NULL;
	AUTO_JSON json_t *body = NULL, *v = NULL;
	int r = args_only(a, e);

	if (r < 0 || a->help)
		return r;
	r = args_connect(a, 2, 2, "IMAGE and NAME", &c, e);
	if (r == 0 && image_url(&path, a->rest[0], "/tag") < 0)
		r = err_set(e, ERR_INVALID, -EINVAL, "the name of the image is too long");
	body = json_pack("{s:s}", "name", r == 0 ? a->rest[1] : "");
	if (r == 0)
		r = conn_json(c, "POST", buf_str(&path), body, &v, e);
	if (r < 0)
		return r;
	if (a->json)
		return show_json(v, SHOW_LINE, e);
	show_line(show_str(v, "name"));
	return 0;
}

/* ---- prune, df ---- */

static const char prune_help[] =
	"usage: cloche image prune\n"
	"       cloche image prune --builds\n"
	"\n"
	"Removes layers that no image, step of a build or running work needs, of all tenants.\n"
	"\n"
	"  --builds            forget the steps of this tenant's builds instead; their layers are removed\n";

static const struct option prune_options[] = { { "builds", no_argument, NULL, 'b' }, { NULL, 0, NULL, 0 } };

static int run_prune(struct args *a, struct err *e)
{
	AUTO(conn_close) struct conn *c = NULL;
	AUTO_JSON json_t *v = NULL;
	bool builds = false;
	char size[32];
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0)
		builds |= opt == 'b';
	if (r < 0 || a->help)
		return r;
	r = args_connect(a, 0, 0, "options", &c, e);
	if (r == 0)
		r = builds ? conn_json(c, "DELETE", "/v1/images/build/cache", NULL, &v, e) :
			     conn_json(c, "POST", "/v1/images/prune", NULL, &v, e);
	if (r < 0)
		return r;
	if (a->json)
		return show_json(v, SHOW_LINE, e);
	if (builds)
		printf("%llu steps forgotten, ", (unsigned long long)show_u64(v, "steps"));
	printf("%llu layers removed, %s\n", (unsigned long long)show_u64(v, "layers"),
	       text_size(show_u64(v, "bytes"), size, sizeof(size)));
	return 0;
}

static const char df_help[] =
	"usage: cloche image df [--all-tenants]\n"
	"\n"
	"Shows how much disk images take. A layer counts once for each tenant that needs it.\n"
	"\n"
	"  --all-tenants       of all tenants, and of the disk, which has each layer once (admin)\n";

static const struct option df_options[] = { { "all-tenants", no_argument, NULL, 'A' }, { NULL, 0, NULL, 0 } };

static void cell_quota(struct table *t, const json_t *one)
{
	char size[32];

	table_add(t, show_u64(one, "quota") ? text_size(show_u64(one, "quota"), size, sizeof(size)) : "");
}

static int show_use(const json_t *v, struct err *e)
{
	static const char *const titles[] = {
		"TENANT", "IMAGES", "LAYERS", "SIZE", "BUILDS", "PENDING", "USED", "QUOTA"
	};
	static const char *const sizes[] = { "bytes", "build_bytes", "pending_bytes", "used" };
	const json_t *disk = json_object_get(v, "disk"), *one;
	AUTO(table_done) struct table t = { 0 };
	char size[32];
	size_t i;
	int r;

	table_init(&t, titles, ARRAY_LEN(titles), 0xfe);
	json_array_foreach(json_object_get(v, "tenants"), i, one)
	{
		table_add(&t, show_str(one, "tenant"));
		table_addf(&t, "%llu", (unsigned long long)show_u64(one, "images"));
		table_addf(&t, "%llu", (unsigned long long)show_u64(one, "layers"));
		for (size_t k = 0; k < ARRAY_LEN(sizes); k++)
			table_add(&t, text_size(show_u64(one, sizes[k]), size, sizeof(size)));
		cell_quota(&t, one);
	}
	r = table_print(&t, e);
	if (r == 0 && json_is_object(disk))
		printf("%llu layers, %s on disk\n", (unsigned long long)show_u64(disk, "layers"),
		       text_size(show_u64(disk, "bytes"), size, sizeof(size)));
	return r;
}

static int run_df(struct args *a, struct err *e)
{
	AUTO(conn_close) struct conn *c = NULL;
	AUTO_JSON json_t *v = NULL;
	bool all = false;
	int opt, r;

	while ((r = args_next(a, &opt, e)) > 0)
		all |= opt == 'A';
	if (r < 0 || a->help)
		return r;
	r = args_connect(a, 0, 0, "options", &c, e);
	if (r == 0)
		r = conn_get(c, all ? "/v1/images/usage?tenant=*" : "/v1/images/usage", &v, e);
	if (r < 0)
		return r;
	return a->json ? show_json(v, SHOW_LINE, e) : show_use(v, e);
}

static const struct command ls = THING_LS(image, "list images", ls_help);
static const struct command inspect = THING_INSPECT(image, "print all details of an image", inspect_help);
static const struct command history = { .name = "image history",
					.text = "list the steps that made an image",
					.help = history_help,
					.complete = COMPLETE_NAMES,
					.names = "image",
					.run = run_history };
static const struct command tag = { .name = "image tag",
				    .text = "give an image another name",
				    .help = tag_help,
				    .complete = COMPLETE_NAMES,
				    .names = "image",
				    .run = run_tag };
static const struct command rm = THING_RM(image, "remove images", rm_help);
static const struct command prune = { .name = "image prune",
				      .text = "remove layers that nothing needs",
				      .help = prune_help,
				      .options = prune_options,
				      .run = run_prune };
static const struct command df = { .name = "image df",
				   .text = "show how much disk images take",
				   .help = df_help,
				   .options = df_options,
				   .run = run_df };

static const struct command *const verbs[] = {
	&image_pull, &image_outdated, &image_update, &image_import, &image_build, &image_bootstrap,
	&ls,	     &inspect,	      &history,	     &tag,	    &rm,	  &prune,
	&df,	     &image_export,   &image_commit, NULL
};

const struct command cmd_image = {
	.name = "image",
	.text = "pull, import, build, list and remove images; download the kernel for virtual machines",
	.help = help,
	.words = "vm-kernel ",
	.verbs = verbs,
	.run = args_noun,
};
