/* Makes the layers of an image one after the other, looks up its user, and stores it. */
#include "service/image/assemble.h"
#include "base/base.h"
#include "service/image/struct.h"
#include "service/struct.h"
#include "service/image/account.h"
#include "service/image/layer.h"
#include "service/image/manifest.h"
#include "service/image/usage.h"

struct assembly {
	struct service *s;
	struct who who;
	struct oci_name name;
	char digest[OCI_DIGEST_SIZE];
	struct oci_config config;
	char *source;
	struct assembly_plan plan;
	unsigned at;
	struct image_chain *top; /* pinned, and in use by the tenant; NULL: no layer yet */
	struct layer_making *making;
	struct account_reading *reading;
	bool over;
	struct image *image;
	struct err e;
	struct turn_wait wait;
};

static void drop_top(struct assembly *a)
{
	if (!a->top)
		return;
	image_unuse(a->s, a->who.tenant, a->top->id);
	image_chain_unpin(TAKE_PTR(a->top));
}

static void on_told(void *arg)
{
	struct assembly *a = arg;

	if (a->plan.done)
		a->plan.done(a->plan.arg, a->image, a->image ? NULL : &a->e);
	drop_top(a);
	if (!a->image)
		image_sweep(a->s, NULL); /* removes layers of an image that was not completed */
	image_unref(a->image);
	oci_config_done(&a->config);
	free(a->source);
	free(a);
}

static void finish(struct assembly *a, const struct err *e)
{
	if (a->over)
		return;
	a->over = true;
	if (e)
		a->e = *e;
	turn_after(a->s->turn, &a->wait, on_told, a);
}

static int write_manifest(struct assembly *a, struct err *e)
{
	AUTO(buf_done) struct buf config = BUF_INIT(4 * OCI_CONFIG_MAX), out = BUF_INIT(OCI_MANIFEST_MAX);
	struct oci_descriptor layer[OCI_LAYERS_MAX] = { 0 };
	int r = oci_config_write(&a->config, &config, e);

	for (unsigned i = 0; i < a->config.ndiff; i++) {
		snprintf(layer[i].type, sizeof(layer[i].type), "%s", OCI_TYPE_LAYER);
		memcpy(layer[i].digest, a->config.diff[i], OCI_DIGEST_SIZE);
	}
	if (r == 0)
		r = image_manifest_write(&config, layer, a->config.ndiff, &out, e);
	if (r == 0)
		oci_digest_of(buf_str(&out), out.len, a->digest);
	return r;
}

static void on_account(void *arg, const char *user, const struct err *e)
{
	struct assembly *a = arg;
	const struct image_new n = { .name = &a->name,
				     .digest = a->digest,
				     .chain = a->top ? a->top->id : "",
				     .user = user,
				     .config = &a->config,
				     .source = a->source };
	struct err why = { 0 };

	a->reading = NULL;
	if (!user) {
		finish(a, e);
		return;
	}
	if ((!a->digest[0] && write_manifest(a, &why) < 0) || image_put(a->s, &a->who, &n, &a->image, &why) < 0) {
		finish(a, &why);
		return;
	}
	image_ref(a->image); /* it may be removed before that is stored, and told */
	finish(a, NULL);
}

static void next(struct assembly *a);

/* Adds a diff id that was unknown before. */
static int add_diff(struct assembly *a, const char *diff, struct err *e)
{
	char(*more)[OCI_DIGEST_SIZE];

	if (a->config.ndiff > a->at)
		return 0;
	more = realloc(a->config.diff, (a->config.ndiff + 1) * sizeof(*more));
	if (!more)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for an image");
	a->config.diff = more;
	memcpy(more[a->config.ndiff++], diff, OCI_DIGEST_SIZE);
	return 0;
}

static void take(struct assembly *a, struct image_chain *c)
{
	struct err e = { 0 };
	int r = image_use(a->s, a->who.tenant, c->id, &e);

	if (r < 0) {
		image_chain_unpin(c);
		finish(a, &e);
		return;
	}
	drop_top(a);
	a->top = c;
	if (add_diff(a, c->diff, &e) < 0) {
		finish(a, &e);
		return;
	}
	a->at++;
	if (a->plan.progress && a->plan.done)
		a->plan.progress(a->plan.arg, a->at);
	next(a);
}

static void on_layer(void *arg, struct image_chain *c, const struct err *e)
{
	struct assembly *a = arg;

	a->making = NULL;
	if (c)
		take(a, c);
	else
		finish(a, e);
}

static void make(struct assembly *a)
{
	struct assembly_layer l = { .fd = -1 };
	struct err e = { 0 };
	int r = a->plan.open(a->plan.arg, a->at, &l, &e);
	const struct image_layer_plan p = { .parent = a->top ? a->top->id : "",
					    .fd = l.fd,
					    .size = l.size,
					    .digest = l.digest[0] ? l.digest : NULL,
					    .compressed = l.compressed,
					    .diff = a->at < a->config.ndiff ? a->config.diff[a->at] : NULL };

	if (r == 0)
		r = image_layer_make(a->s, &a->who, &p, on_layer, a, &a->making, &e);
	fd_close(l.fd);
	if (r < 0)
		finish(a, &e);
}

static void next(struct assembly *a)
{
	struct image_chain *c = NULL;
	struct err e = { 0 };

	if (a->over)
		return;
	if (a->at == a->plan.layers) {
		if (image_account(a->s, &a->who, a->top ? a->top->id : "", a->config.user, on_account, a, &a->reading,
				  &e) < 0)
			finish(a, &e);
		return;
	}
	if (a->at < a->config.ndiff)
		c = image_layer_above(a->s, a->top ? a->top->id : "", a->config.diff[a->at]);
	if (!c || !image_is_had(a->s, a->who.tenant, c)) {
		make(a);
		return;
	}
	image_chain_pin(c);
	take(a, c);
}

int assemble(struct service *s, const struct who *who, const struct assembly_plan *p, struct assembly **ret,
	     struct err *e)
{
	struct assembly *a;
	int r;

	if (p->config->ndiff && p->config->ndiff != p->layers)
		return err_set(e, WHY_IMAGE_INVALID, -EBADMSG,
			       "the image's manifest has %u layers, and its configuration %u", p->layers,
			       p->config->ndiff);
	a = calloc(1, sizeof(*a));
	if (!a || !(a->source = strdup(p->source)))
		abort();
	a->s = s;
	a->who = *who;
	a->plan = *p;
	a->name = *p->name;
	snprintf(a->digest, sizeof(a->digest), "%s", p->digest ? p->digest : "");
	r = oci_config_copy(p->config, &a->config, e);
	if (r < 0) {
		free(a->source);
		free(a);
		return r;
	}
	*ret = a;
	next(a);
	return 0;
}

void assembly_cancel(struct assembly *a)
{
	a->plan.done = NULL;
	if (a->making)
		image_layer_cancel(TAKE_PTR(a->making));
	if (a->reading)
		image_account_cancel(TAKE_PTR(a->reading));
	finish(a, NULL);
}
