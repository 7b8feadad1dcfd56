/* The sequence of steps, and the build cache. */
#include "base/base.h"
#include "base/clock.h"
#include "service/image/assemble.h"
#include "service/image/chain.h"
#include "service/image/build_impl.h"

#define SLICE_NS (10ULL * 1000000) /* of steps that need no sandbox, until others have their turn */
#define USED_AGAIN_NS (3600ULL * 1000000000) /* how often the use of a step is recorded */

static void event_step(struct build *b, const char *state)
{
	AUTO(buf_done) struct buf out = BUF_INIT(2 * MIB);
	const struct build_step *t = &b->step;
	struct json j = JSON_INIT(&out);
	const char *name = b->stages.at[b->at].name;

	jout_object(&j, NULL);
	jout_str(&j, "type", "step");
	jout_str(&j, "state", state);
	jout_u64(&j, "step", b->number);
	jout_u64(&j, "total", b->total);
	jout_str(&j, "stage", name);
	jout_u64(&j, "line", t->in->line);
	jout_strn(&j, "text", t->in->text, strnlen(t->in->text, 4096));
	if (strcmp(state, "begun") != 0)
		jout_u64(&j, "ms", (clock_mono_ns() - t->begun_ns) / 1000000);
	jout_end(&j);
	if (jout_done(&j) == 0)
		build_event(b, &out);
}

static void step_clear(struct build *b)
{
	build_box_free(TAKE_PTR(b->step.box));
	build_box_free(TAKE_PTR(b->step.from));
	buf_done(&b->step.spec);
	build_mounts_free(TAKE_PTR(b->mounts));
}

static void stage_over(struct build *b)
{
	b->at++;
}

static const struct instruction *step_next(struct build *b)
{
	if (b->trigger_at < b->triggers)
		return &b->trigger[b->trigger_at++]->at[0];
	return b->next < b->stages.at[b->at].end ? &b->file->at[b->next++] : NULL;
}

/* 1: the step is finished already; 0: it is under way. */
static int do_step(struct build *b, struct err *e)
{
	const struct instruction *in = b->step.in;
	struct build_stage *g = build_stage_now(b);
	const char *text[] = { "config", in->text };
	AUTO_FREE char *path = NULL;
	int r;

	switch (in->kind) {
	case DOCKER_RUN:
		build_run(b);
		return 0;
	case DOCKER_COPY:
	case DOCKER_ADD:
		build_copy(b);
		return 0;
	case DOCKER_WORKDIR:
		r = build_word(b, in->args.at[0], &path, e);
		if (r == 0)
			build_workdir(b, path);
		return r;
	case DOCKER_ARG:
		r = build_arg(b, in, false, e);
		return r < 0 ? r : build_history(b, in->text, true, e) < 0 ? -ENOMEM : 1;
	case DOCKER_CMD:
	case DOCKER_ENTRYPOINT:
	case DOCKER_ENV:
	case DOCKER_EXPOSE:
	case DOCKER_FROM:
	case DOCKER_HEALTHCHECK:
	case DOCKER_LABEL:
	case DOCKER_MAINTAINER:
	case DOCKER_ONBUILD:
	case DOCKER_SHELL:
	case DOCKER_STOPSIGNAL:
	case DOCKER_USER:
	case DOCKER_VOLUME:
		break;
	}
	r = build_config(b, in, e);
	if (r == 0)
		r = build_history(b, in->text, true, e);
	if (r < 0)
		return r;
	/* Files that a later step makes may depend on variables, user and shell: those are in its own key. */
	if (in->kind == DOCKER_VOLUME)
		build_key(g->key, text, ARRAY_LEN(text));
	return 1;
}

static void finish(struct build *b);

static void step_begin(struct build *b, const struct instruction *in)
{
	b->number++;
	b->step = (struct build_step){ .in = in, .begun_ns = clock_mono_ns() };
	event_step(b, "begun");
}

static void go(void *arg)
{
	struct build *b = arg;
	const uint64_t since = clock_mono_ns();
	struct err e = { 0 };
	int r = 1;

	while (r == 1 && !b->ended) {
		struct build_stage *g;
		const struct instruction *in;

		/* Others wait meanwhile. */
		if (clock_mono_ns() - since > SLICE_NS) {
			build_go_on(b);
			return;
		}
		if (b->at == b->stages.n) {
			finish(b);
			return;
		}
		g = build_stage_now(b);
		if (!g->needed) {
			stage_over(b);
			continue;
		}
		if (!g->begun) {
			step_begin(b, &b->file->at[b->stages.at[b->at].first - 1]);
			r = build_stage_begin(b, &e);
			b->next = b->stages.at[b->at].first;
			if (r < 0)
				break;
			event_step(b, "done");
			r = 1;
			continue;
		}
		in = step_next(b);
		if (!in) {
			stage_over(b);
			continue;
		}
		step_begin(b, in);
		r = do_step(b, &e);
		if (r < 0 && !b->ended)
			err_wrap(&e, r, "line %u: %s", in->line, instruction_name(in->kind));
		if (r == 1)
			event_step(b, "done");
	}
	if (r < 0)
		build_fail(b, r, &e);
}

void build_go_on(struct build *b)
{
	turn_after(b->s->turn, &b->wait, go, b);
}

/* --- the cache --- */

int build_note_step(struct build *b, const char *key, const char *chain, struct err *e)
{
	return b->who.tenant->gone ? 0 : build_cache_keep(b->s, b->who.tenant, key, chain, e);
}

int build_step_cached(struct build *b)
{
	struct build_stage *g = build_stage_now(b);
	char chain[OCI_DIGEST_SIZE];
	struct image_chain *c = NULL;
	uint64_t used_ns;

	if (b->no_cache ||
	    build_cache_get(b->s->db, b->who.tenant->id, b->step.key, chain, sizeof(chain), &used_ns) <= 0)
		return 0;
	if (*chain) {
		c = image_chain_find(b->s, chain);
		if (!c)
			return 0;
		image_chain_pin(c);
	}
	if (!c && g->chain) /* a step without changes whose base was removed cannot be reused */
		return 0;
	if (used_ns + USED_AGAIN_NS < clock_real_ns())
		build_note_step(b, b->step.key, chain, NULL); /* nothing new counts */
	b->step.cached = true;
	build_step_over(b, c);
	return 1;
}

void build_step_over(struct build *b, struct image_chain *c)
{
	struct build_stage *g = build_stage_now(b);
	struct err e = { 0 };
	bool same = c == g->chain;
	int r = 0;

	if (g->chain)
		image_chain_unpin(g->chain);
	g->chain = c;
	memcpy(g->key, b->step.key, sizeof(g->key));
	if (!same)
		r = image_chain_room(c, 0, &e);
	if (r == 0 && !b->step.cached)
		r = build_note_step(b, g->key, build_chain(g), &e);
	if (r < 0) {
		err_wrap(&e, r, "line %u: %s", b->step.in->line, instruction_name(b->step.in->kind));
		build_fail(b, r, &e);
		return;
	}
	if (build_history(b, b->step.in->text, same, &e) < 0) {
		build_fail(b, -ENOMEM, &e);
		return;
	}
	event_step(b, b->step.cached ? "cached" : "done");
	step_clear(b);
	build_go_on(b);
}

static void on_sealed(void *arg, struct image_chain *c, const struct err *e)
{
	struct build *b = arg;
	struct err why = { 0 };

	if (!c) {
		why = *e;
		err_wrap(&why, -EIO, "line %u: %s", b->step.in->line, instruction_name(b->step.in->kind));
		build_fail(b, -EIO, &why);
		return;
	}
	build_step_over(b, c);
}

void build_step_seal(struct build *b)
{
	build_box_seal(b->step.box, on_sealed, b);
}

/* --- the image --- */

static int diffs(struct build *b, struct oci_config *c, struct err *e)
{
	const struct build_stage *g = build_stage_now(b);
	char(*diff)[OCI_DIGEST_SIZE];
	unsigned n = 0;

	for (const struct image_chain *k = g->chain; k; k = image_chain_find(b->s, k->parent))
		n++;
	diff = calloc(n + 1, OCI_DIGEST_SIZE);
	if (!diff)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for an image");
	free(c->diff);
	c->diff = diff;
	c->ndiff = n;
	for (const struct image_chain *k = g->chain; k && n; k = image_chain_find(b->s, k->parent))
		memcpy(diff[--n], k->diff, OCI_DIGEST_SIZE);
	return 0;
}

static int complete(struct build *b, struct oci_config *c, struct err *e)
{
	const char *name;
	json_t *v;
	char when[32];
	int r = diffs(b, c, e);

	clock_iso(clock_real_ns(), when);
	if (r == 0 && (build_set(&c->created, when) < 0 || build_set(&c->architecture, oci_architecture()) < 0 ||
		       build_set(&c->os, "linux") < 0))
		r = err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for an image");
	json_object_foreach(json_object_get(b->request, "labels"), name, v)
	{
		AUTO_FREE char *text = NULL;

		if (r == 0 &&
		    (asprintf(&text, "%s=%s", name, json_string_value(v)) < 0 || oci_list_put(&c->labels, text) < 0))
			r = err_set(e, ERR_TOO_LARGE, -E2BIG, "too many labels");
	}
	return r;
}

/* Every layer exists, so none is opened. */
static int open_layer(void *arg, unsigned n, struct assembly_layer *ret, struct err *e)
{
	(void)arg;
	(void)n;
	(void)ret;
	return err_set(e, WHY_SERVICE_LOST, -ENOENT, "a layer of the image was removed while it was built");
}

static void on_assembled(void *arg, struct image *i, const struct err *e)
{
	struct build *b = arg;
	const json_t *tags = json_object_get(b->request, "tags");
	struct image *other;
	struct err why = { 0 };
	int r = i ? 0 : -EIO;

	b->assembly = NULL;
	b->image = i ? image_ref(i) : NULL;
	for (size_t k = 1; r == 0 && k < json_array_size(tags); k++)
		r = image_tag(i, &b->who, json_string_value(json_array_get(tags, k)), &other, &why);
	build_fail(b, r, i ? &why : e);
}

static void finish(struct build *b)
{
	const json_t *tags = json_object_get(b->request, "tags");
	char text[64];
	const char *tag = json_string_value(json_array_get(tags, 0));
	struct build_stage *g;
	struct oci_name name;
	struct assembly_plan p = {
		.name = &name, .source = "{\"kind\":\"build\"}", .open = open_layer, .done = on_assembled, .arg = b
	};
	struct err e = { 0 };
	int r;

	b->at = (unsigned)b->stages.n - 1;
	g = build_stage_now(b);
	snprintf(text, sizeof(text), "build:%.12s", g->key);
	r = complete(b, &g->config, &e);
	if (r == 0)
		r = oci_name_parse(tag ? tag : text, &name, &e);
	p.config = &g->config;
	p.layers = g->config.ndiff;
	if (r == 0)
		r = assemble(b->s, &b->who, &p, &b->assembly, &e);
	if (r < 0)
		build_fail(b, r, &e);
}
