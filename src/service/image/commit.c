/* Makes an image from a sandbox or a checkpoint. */
#include "service/image/commit.h"
#include "base/base.h"
#include "base/clock.h"
#include "engine/spec.h"
#include "service/checkpoint/restore.h"
#include "service/checkpoint/struct.h"
#include "service/image/assemble.h"
#include "service/image/chain.h"
#include "service/image/layer_pack.h"
#include "service/image/struct.h"
#include "service/image/usage.h"
#include "service/sandbox/struct.h"
#include "service/struct.h"

#include <unistd.h>

struct image_commit {
	struct service *s;
	struct who who;
	struct oci_name name;
	char *comment;
	char image[256]; /* the name of the sandbox's image */
	struct checkpoint *checkpoint; /* referenced; NULL: the sandbox is being sealed */
	struct image_chain *base; /* pinned; NULL: there is no lower layer */
	struct sandbox_spec *older;
	struct layer_pack *pack;
	struct assembly *assembly;
	struct oci_config config;
	int fd; /* archive of the layer */
	struct oci_descriptor layer;
	uint64_t taken; /* its size, which counts for the tenant */
	image_commit_fn *fn; /* NULL: cancelled */
	void *arg;
	struct turn_wait wait;
};

static void commit_free(struct image_commit *x)
{
	if (x->base)
		image_chain_unpin(x->base);
	if (x->checkpoint)
		checkpoint_unref(x->checkpoint);
	oci_config_done(&x->config);
	fd_close(x->fd);
	image_bytes_give(x->who.tenant, x->taken);
	free(x->older);
	free(x->comment);
	free(x);
}

static void finish(struct image_commit *x, struct image *i, const struct err *e)
{
	if (x->fn)
		x->fn(x->arg, i, e);
	commit_free(x);
}

static int copy_config(struct image_commit *x, struct err *e)
{
	struct image *i = x->image[0] ? image_find(x->s, x->who.tenant, x->image, NULL) : NULL, **list;
	size_t n;

	/* The name may belong to another image by now: then any image with this chain is used. */
	if (x->base && (!i || strcmp(i->chain, x->base->id))) {
		images_list(x->s, x->who.tenant, &list, &n);
		for (i = NULL; !i && n; n--)
			i = strcmp(list[n - 1]->chain, x->base->id) ? NULL : list[n - 1];
		free(list);
	}
	if (!x->base)
		return 0;
	if (!i) {
		err_set(e, WHY_IMAGE_MISSING, -ENOENT,
			"the image '%.100s' that it was made from has lost its name, and with it its configuration",
			x->image);
		err_remedy(e, "pull, import or build that image again, under any name; its layers are still here");
		return -ENOENT;
	}
	return oci_config_copy(&i->config, &x->config, e);
}

/* Completes the configuration: the diff ids of all layers, and one more entry of the history. */
static int complete(struct image_commit *x, struct err *e)
{
	const struct image_chain *chain[OCI_LAYERS_MAX];
	struct oci_history *more;
	unsigned n = 0;
	char when[32];
	int r = image_chain_room(x->base, 1, e);

	if (r < 0)
		return r;
	for (const struct image_chain *c = x->base; c; c = image_chain_find(x->s, c->parent))
		chain[n++] = c;
	free(x->config.diff);
	x->config.diff = calloc(n + 1, sizeof(*x->config.diff));
	x->config.ndiff = 0;
	more = realloc(x->config.history, (x->config.nhistory + 1) * sizeof(*more));
	if (more)
		x->config.history = more;
	if (!x->config.diff || !more)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for an image");
	while (n-- > 0)
		memcpy(x->config.diff[x->config.ndiff++], chain[n]->diff, OCI_DIGEST_SIZE);
	memcpy(x->config.diff[x->config.ndiff++], x->layer.digest, OCI_DIGEST_SIZE);
	clock_iso(clock_real_ns(), when);
	more[x->config.nhistory++] = (struct oci_history){ .created = strdup(when),
							   .by = strdup("cloche image commit"),
							   .comment = x->comment ? strdup(x->comment) : NULL };
	free(x->config.created);
	x->config.created = strdup(when);
	return 0;
}

static int open_layer(void *arg, unsigned n, struct assembly_layer *ret, struct err *e)
{
	struct image_commit *x = arg;

	if (n + 1 != x->config.ndiff || x->fd < 0)
		return err_set(e, WHY_CHANGED_MEANWHILE, -ENOENT, "a layer of the image was removed in the meantime");
	ret->fd = TAKE_FD(x->fd);
	ret->size = x->layer.size;
	memcpy(ret->digest, x->layer.digest, sizeof(ret->digest));
	return 0;
}

static void on_assembled(void *arg, struct image *i, const struct err *e)
{
	struct image_commit *x = arg;

	x->assembly = NULL;
	finish(x, i, e);
}

static void on_packed(void *arg, int fd, const struct oci_descriptor *d, const struct err *e)
{
	struct image_commit *x = arg;
	struct assembly_plan p = { .name = &x->name,
				   .config = &x->config,
				   .source = "{\"kind\":\"commit\"}",
				   .open = open_layer,
				   .done = on_assembled,
				   .arg = x };
	struct err why = { 0 };
	int r;

	x->pack = NULL;
	if (fd < 0) {
		finish(x, NULL, e);
		return;
	}
	x->fd = fd;
	x->layer = *d;
	r = image_bytes_take_in(x->s, x->who.tenant, d->size, &why);
	if (r == 0)
		x->taken = d->size;
	if (r == 0)
		r = complete(x, &why);
	p.layers = x->config.ndiff;
	if (r == 0)
		r = assemble(x->s, &x->who, &p, &x->assembly, &why);
	if (r < 0)
		finish(x, NULL, &why);
}

static void pack(void *arg)
{
	struct image_commit *x = arg;
	struct compare_request w = { .to.checkpoint = x->checkpoint };
	struct err e = { 0 };
	int r = 0;

	if (!x->fn) {
		commit_free(x);
		return;
	}
	if (strcmp(x->older->image, SPEC_SCRATCH)) {
		r = err_set(&e, ERR_UNSUPPORTED, -EOPNOTSUPP, "only a sandbox of a stored image can become an image");
		err_remedy(&e, "this one is of image 'host' or of a folder: export a checkpoint instead");
	}
	x->base = image_chain_of(x->s, x->checkpoint->chain);
	if (x->base)
		image_chain_pin(x->base);
	if (r == 0)
		r = copy_config(x, &e);
	x->older->layers = x->base ? x->base->layers : 0;
	if (x->base)
		memcpy(x->older->layer, x->base->layer, sizeof(x->older->layer));
	w.from.chain = x->older;
	if (r == 0)
		r = layer_pack(x->s, &x->who, &w, on_packed, x, &x->pack, &e);
	if (r < 0)
		finish(x, NULL, &e);
}

static void on_sealed(void *arg, struct checkpoint *c, const struct err *e)
{
	struct image_commit *x = arg;

	if (!c || !x->fn) {
		finish(x, NULL, e);
		return;
	}
	x->checkpoint = c;
	checkpoint_ref(c);
	pack(x);
}

int image_commit(struct service *s, const struct who *who, const struct image_commit_request *w, image_commit_fn *fn,
		 void *arg, struct image_commit **ret, struct err *e)
{
	struct image_commit *x = calloc(1, sizeof(*x));
	struct sandbox_request *request = NULL;
	int r;

	if (!x || !(x->older = calloc(1, sizeof(*x->older))))
		abort();
	*x = (struct image_commit){ .s = s, .who = *who, .older = x->older, .fd = -1, .fn = fn, .arg = arg };
	oci_config_init(&x->config);
	x->comment = w->comment ? strdup(w->comment) : NULL;
	r = oci_name_parse(w->name, &x->name, e);
	if (r == 0 && x->name.digest[0])
		r = err_set(e, WHY_BAD_FIELD, -EINVAL, "'%.100s': a new name must not have a digest", w->name);
	if (r == 0 && w->checkpoint)
		r = restore_request(w->checkpoint, NULL, true, &request, e);
	if (r < 0) {
		commit_free(x);
		return r;
	}
	request_spec(request ? request : w->sandbox->request, x->older);
	snprintf(x->image, sizeof(x->image), "%s", request ? request->image : w->sandbox->request->image);
	sandbox_request_free(request);
	*ret = x;
	if (w->checkpoint) {
		x->checkpoint = w->checkpoint;
		checkpoint_ref(w->checkpoint);
		turn_after(s->turn, &x->wait, pack, x);
	} else {
		checkpoint_make_hidden(w->sandbox, who, MEMORY_NO, NETWORK_DROP, on_sealed, x);
	}
	return 0;
}

void image_commit_cancel(struct image_commit *x)
{
	x->fn = NULL;
	if (x->pack) {
		layer_pack_cancel(x->pack); /* no callback follows */
		commit_free(x);
	} else if (x->assembly) {
		assembly_cancel(TAKE_PTR(x->assembly));
		commit_free(x);
	}
}
