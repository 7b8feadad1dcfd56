/* The plan of a build: the stages that the target needs, with the variables of each. */
#include "base/base.h"
#include "service/image/build_impl.h"

/* Predefined arguments, when they are declared. */
static const char *platform(const char *name, size_t len)
{
	static char whole[64];
	static const struct {
		const char *name;
		enum { WHOLE, OS, ARCH, VARIANT } what;
	} known[] = { { "TARGETPLATFORM", WHOLE },  { "TARGETOS", OS },		{ "TARGETARCH", ARCH },
		      { "TARGETVARIANT", VARIANT }, { "BUILDPLATFORM", WHOLE }, { "BUILDOS", OS },
		      { "BUILDARCH", ARCH },	    { "BUILDVARIANT", VARIANT } };

	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		if (strlen(known[i].name) != len || memcmp(known[i].name, name, len) != 0)
			continue;
		snprintf(whole, sizeof(whole), "linux/%s", oci_architecture());
		return known[i].what == WHOLE ? whole :
		       known[i].what == OS    ? "linux" :
		       known[i].what == ARCH  ? oci_architecture() :
						"";
	}
	return NULL;
}

static const char *given(const struct build *b, const char *name, size_t len)
{
	return json_string_value(json_object_getn(json_object_get(b->request, "args"), name, len));
}

static const char *get_meta(void *data, const char *name, size_t len)
{
	const struct build *b = data;
	const char *v = oci_list_get(&b->meta, name, len);

	return v ? v : platform(name, len);
}

static const char *get_stage(void *data, const char *name, size_t len)
{
	const struct build *b = data;
	const struct build_stage *g = build_stage_now(b);
	const char *v = oci_list_get(&g->config.env, name, len);

	return v ? v : oci_list_get(&g->args, name, len);
}

struct expand build_expand(struct build *b)
{
	return (struct expand){ .get = get_stage, .data = b, .escape = b->file->escape, .work = &b->work };
}

static int expand_text(const struct expand *x, const char *text, char **ret, struct err *e)
{
	AUTO(buf_done) struct buf out = BUF_INIT(EXPAND_MAX);
	int r = expand_word(x, text, &out, e);

	if (r < 0)
		return r;
	*ret = strdup(buf_str(&out));
	return *ret ? 0 : err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a build");
}

int build_word(struct build *b, const char *text, char **ret, struct err *e)
{
	const struct expand x = build_expand(b);

	return expand_text(&x, text, ret, e);
}

/* One "NAME[=DEFAULT]" of ARG. @meta: before the first FROM. */
static int declare(struct build *b, const char *text, bool meta, struct err *e)
{
	const struct expand x = {
		.get = meta ? get_meta : get_stage, .data = b, .escape = b->file->escape, .work = &b->work
	};
	struct oci_list *to = meta ? &b->meta : &build_stage_now(b)->args;
	const char *eq = strchr(text, '='), *value;
	AUTO_FREE char *name = NULL, *expanded = NULL, *all = NULL;
	size_t n;
	int r;

	r = expand_text(&x, text, &all, e);
	if (r < 0)
		return r;
	n = strcspn(all, "=");
	name = strndup(all, n);
	if (!name)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a build");
	value = given(b, name, n);
	if (!value && eq)
		value = all + n + (all[n] == '=');
	else if (!value && !meta)
		value = get_meta(b, name, n);
	if (!value)
		return 0; /* declared without a value */
	if (asprintf(&expanded, "%s=%s", name, value) < 0) {
		expanded = NULL;
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a build");
	}
	r = build_spend(b, 32ULL * to->n, e);
	if (r == 0)
		r = build_keep(b, strlen(expanded), e);
	if (r < 0)
		return r;
	r = oci_list_put(to, expanded);
	return r < 0 ? err_set(e, ERR_TOO_LARGE, r, "too many arguments") : 0;
}

int build_arg(struct build *b, const struct instruction *in, bool meta, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < in->args.n; i++)
		r = declare(b, in->args.at[i], meta, e);
	return r;
}

/* --- stages --- */

static int line_wrap(const struct build *b, size_t stage, int r, struct err *e)
{
	return err_wrap(e, r, "line %u: FROM", b->stages.at[stage].line);
}

/* An image of the store; otherwise ->missing is the name of one that a registry may have. */
static struct image *image_of(struct build *b, const char *name, struct err *e)
{
	struct image *i = image_find(b->s, b->who.tenant, name, e);
	struct oci_name n;

	if (!i && oci_name_parse(name, &n, NULL) == 0)
		oci_name_full(&n, b->missing);
	return i;
}

/* FROM: an earlier stage, scratch, or an image of the store. */
static int base_of(struct build *b, size_t i, struct err *e)
{
	const struct expand x = { .get = get_meta, .data = b, .escape = b->file->escape, .work = &b->work };
	const struct stage *s = &b->stages.at[i];
	struct build_stage *g = &b->stage[i];
	AUTO_FREE char *name = NULL, *want = NULL;
	const char *arch;
	int r = expand_text(&x, s->base, &name, e);

	if (r == 0 && s->platform)
		r = expand_text(&x, s->platform, &want, e);
	if (r < 0)
		return r;
	if (!*name)
		return err_set(e, ERR_INVALID, -EINVAL,
			       "'%.60s' is empty after expansion; give a --build-arg, or a default", s->base);
	arch = want && strncmp(want, "linux/", 6) == 0 ? want + 6 : want;
	if (want && *want && strcmp(arch, oci_architecture()) != 0)
		return err_set(e, ERR_UNSUPPORTED, -ENOTSUP,
			       "--platform=%.40s is not supported: this machine builds linux/%s", want,
			       oci_architecture());
	g->parent = stages_find(&b->stages, name, i);
	if (g->parent >= 0 || strcmp(name, "scratch") == 0)
		return 0;
	g->image = image_of(b, name, e);
	if (!g->image)
		return -ENOENT;
	/* Its turn may come late, when the name is gone, or that of another. */
	image_ref(g->image);
	g->chain = image_chain_find(b->s, g->image->chain);
	if (g->chain)
		image_chain_pin(g->chain);
	return 0;
}

static int need(struct build *b, size_t i, struct err *e);

/* What no ADD takes is found before anything is made, where no variable hides it. */
static int check_sources(const struct instruction *in, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r == 0 && in->kind == DOCKER_ADD && i + 1 < in->args.n; i++)
		r = build_not_remote(in->args.at[i], e);
	return r < 0 ? err_wrap(e, r, "ADD") : 0;
}

/* Marks what an instruction copies from or mounts. */
static int need_of(struct build *b, size_t i, const struct instruction *in, struct err *e)
{
	const char *from = in->kind == DOCKER_COPY ? instruction_flag(in, "from", NULL) : NULL, *text;
	size_t at = 0;
	int k = from ? stages_find(&b->stages, from, i) : -1, r;

	if (from && k < 0 && strcasecmp(from, "scratch") && !image_of(b, from, e))
		return -ENOENT;
	r = k >= 0 ? need(b, (size_t)k, e) : check_sources(in, e);
	while (r == 0 && in->kind == DOCKER_RUN && (text = instruction_flag(in, "mount", &at))) {
		AUTO(run_mount_done) struct run_mount m = { 0 };

		r = run_mount_parse(text, NULL, &m, e);
		if (r == 0 && m.type == MOUNT_CACHE && m.from)
			r = err_set(e, ERR_UNSUPPORTED, -ENOTSUP,
				    "RUN: --mount=type=cache,from=… is not supported: it begins empty");
		k = r == 0 && m.from ? stages_find(&b->stages, m.from, i) : -1;
		if (r == 0 && k >= 0)
			r = need(b, (size_t)k, e);
		else if (r == 0 && m.from && !image_of(b, m.from, e))
			r = -ENOENT;
	}
	return r;
}

static int need_of_trigger(struct build *b, size_t i, const char *text, struct err *e)
{
	AUTO(dockerfile_free) struct dockerfile *one = NULL;
	int r = text ? dockerfile_parse_trigger(text, '\\', b->stages.at[i].line, &one, e) :
		       err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a build");

	if (r == 0)
		r = need_of(b, i, &one->at[0], e);
	return r < 0 && strncmp(e->msg, "line ", 5) != 0 ? err_wrap(e, r, "ONBUILD of the base image") : r;
}

/* Marks what a stage's triggers copy from: those of its image, or of the earlier stage that is its base. */
static int need_of_triggers(struct build *b, size_t i, struct err *e)
{
	const struct build_stage *g = &b->stage[i];
	const struct stage *base = g->parent >= 0 ? &b->stages.at[g->parent] : NULL;
	int r = 0;

	for (unsigned k = 0; r == 0 && g->image && k < g->image->config.onbuild.n; k++)
		r = need_of_trigger(b, i, g->image->config.onbuild.item[k], e);
	for (size_t k = base ? base->first : 0; r == 0 && base && k < base->end; k++) {
		AUTO_FREE char *text = NULL;

		if (b->file->at[k].kind != DOCKER_ONBUILD)
			continue;
		text = instruction_trigger(&b->file->at[k]);
		r = need_of_trigger(b, i, text, e);
	}
	return r;
}

static int need(struct build *b, size_t i, struct err *e)
{
	const struct stage *s = &b->stages.at[i];
	int r;

	if (b->stage[i].needed)
		return 0;
	b->stage[i].needed = true;
	r = base_of(b, i, e);
	if (r < 0)
		return line_wrap(b, i, r, e);
	b->total++;
	if (b->stage[i].parent >= 0)
		r = need(b, (size_t)b->stage[i].parent, e);
	if (r == 0)
		r = need_of_triggers(b, i, e);
	for (size_t k = s->first; r == 0 && k < s->end; k++) {
		b->total++;
		r = need_of(b, i, &b->file->at[k], e);
		if (r < 0 && strncmp(e->msg, "line ", 5) != 0)
			err_wrap(e, r, "line %u", b->file->at[k].line);
	}
	return r;
}

static int find_target(struct build *b, size_t *ret, struct err *e)
{
	int k;

	*ret = b->stages.n - 1;
	if (!b->target || !*b->target)
		return 0;
	k = stages_find(&b->stages, b->target, b->stages.n);
	if (k < 0)
		return err_set(e, WHY_IMAGE_MISSING, -ENOENT, "the Dockerfile has no stage '%.60s' (`target`)",
			       b->target);
	*ret = (size_t)k;
	return 0;
}

int build_plan(struct build *b, struct err *e)
{
	const char *text = json_string_value(json_object_get(b->request, "dockerfile"));
	size_t target = 0;
	int r;

	if (!text)
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'dockerfile' must be the text of a Dockerfile");
	r = dockerfile_parse(text, strlen(text), &b->file, e);
	if (r == 0)
		r = stages_check(b->file, &b->stages, e);
	if (r < 0)
		return r;
	b->stage = calloc(b->stages.n, sizeof(*b->stage));
	if (!b->stage)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a build");
	for (size_t i = 0; i < b->stages.n; i++) {
		oci_config_init(&b->stage[i].config);
		b->stage[i].parent = -1;
	}
	for (size_t i = 0; r == 0 && i < b->file->n && b->file->at[i].kind == DOCKER_ARG; i++) {
		r = build_arg(b, &b->file->at[i], true, e);
		if (r < 0)
			err_wrap(e, r, "line %u", b->file->at[i].line);
	}
	if (r == 0)
		r = find_target(b, &target, e);
	if (r == 0)
		r = need(b, target, e);
	if (r < 0)
		return r;
	/* The target is the last stage: later ones are not needed, and not built. */
	b->stages.n = target + 1;
	b->at = 0;
	return 0;
}

void build_plan_done(struct build *b)
{
	for (size_t i = 0; b->stage && i < b->stages.n; i++) {
		oci_config_done(&b->stage[i].config);
		oci_list_done(&b->stage[i].args);
		if (b->stage[i].chain)
			image_chain_unpin(b->stage[i].chain);
		image_unref(b->stage[i].image);
	}
	for (size_t i = 0; i < b->triggers; i++)
		dockerfile_free(b->trigger[i]);
	free(b->trigger);
	free(b->stage);
	stages_done(&b->stages);
	oci_list_done(&b->meta);
	dockerfile_free(b->file);
	b->stage = NULL;
}

static int triggers(struct build *b, struct build_stage *g, struct err *e)
{
	int r = 0;

	for (size_t i = 0; i < b->triggers; i++)
		dockerfile_free(b->trigger[i]);
	free(b->trigger);
	b->trigger = NULL;
	b->triggers = b->trigger_at = 0;
	if (!g->config.onbuild.n)
		return 0;
	b->trigger = calloc(g->config.onbuild.n, sizeof(struct dockerfile *));
	if (!b->trigger)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a build");
	for (unsigned i = 0; r == 0 && i < g->config.onbuild.n; i++) {
		r = dockerfile_parse_trigger(g->config.onbuild.item[i], '\\', b->stages.at[b->at].line, &b->trigger[i],
					     e);
		if (r == 0)
			b->triggers++;
		if (r == 0)
			r = instruction_check(&b->trigger[i]->at[0], '\\', e);
		if (r < 0)
			err_wrap(e, r, "ONBUILD of the base image");
	}
	b->total += (unsigned)b->triggers;
	oci_list_done(&g->config.onbuild);
	return r;
}

/* Starts a stage with the state of its base. */
int build_stage_begin(struct build *b, struct err *e)
{
	struct build_stage *g = build_stage_now(b), *p = g->parent >= 0 ? &b->stage[g->parent] : NULL;
	const struct oci_config *from = p ? &p->config : g->image ? &g->image->config : NULL;
	const char *chain = p ? build_chain(p) : g->image ? g->image->chain : "";
	const char *text[] = { "from", chain };
	int r = 0;

	g->begun = true;
	if (from) {
		struct oci_config copy;

		r = build_keep(b, oci_config_bytes(from), e);
		if (r == 0)
			r = oci_config_copy(from, &copy, e);
		if (r == 0) {
			oci_config_done(&g->config);
			g->config = copy;
		}
	}
	/* As in other builders: programs that are copied into it are found. */
	if (r == 0 && !from && oci_list_put(&g->config.env, SPEC_PATH_DEFAULT) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a build");
	if (r == 0 && *chain && !g->chain) {
		g->chain = image_chain_find(b->s, chain);
		if (!g->chain)
			return err_set(e, WHY_IMAGE_MISSING, -ENOENT, "the layers of the base image were removed");
		image_chain_pin(g->chain);
	}
	if (p)
		memcpy(g->key, p->key, sizeof(g->key));
	build_key(g->key, text, ARRAY_LEN(text));
	if (r == 0)
		r = triggers(b, g, e);
	return r < 0 ? line_wrap(b, b->at, r, e) : 0;
}
