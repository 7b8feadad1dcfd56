/*
 * A pull: the manifest is found, the configuration fetched, and then each missing layer is fetched into a file, up to
 * three at once, and made a chain, in order. The name is stored last, so that a pull that fails or is killed leaves
 * nothing visible.
 */
#include "service/image/pull.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/json.h"
#include "service/struct.h"
#include "service/image/struct.h"
#include "service/image/account.h"
#include "service/image/blob_store.h"
#include "service/image/layer.h"
#include "service/image/operation.h"
#include "service/image/registry.h"
#include "service/image/usage.h"

#include <unistd.h>

#define AT_ONCE 3U
#define PROGRESS_MS 200
#define BYTES_MAX (64ULL << 30) /* of all blobs of an image together */

enum blob_state { BLOB_HERE, BLOB_WANTED, BLOB_COMING, BLOB_READY };

struct blob {
	struct image_pull *pull;
	const struct oci_descriptor *d;
	enum blob_state state; /* HERE: its chain exists */
	int fd; /* COMING: being written; READY: at its start */
	char part[BLOB_PART]; /* its name while it is COMING */
	bool fetched; /* it was fetched, so its bytes count */
};

struct image_pull {
	struct service *s;
	struct who who;
	struct oci_name name;
	struct operation *operation;
	image_pull_fn *fn; /* may be NULL */
	void *arg;
	struct registry *registry;
	const struct registry_found *found;
	struct blob config_blob;
	struct oci_config config;
	struct blob blob[OCI_LAYERS_MAX];
	unsigned layers, made; /* ->made: number of chains that exist, from the lowest on */
	struct image_chain *top; /* pinned, and in use by the tenant: the uppermost of those */
	struct layer_making *making;
	struct account_reading *reading;
	uint64_t here; /* bytes of READY blobs that were stored before */
	uv_timer_t *timer;
	char said[160]; /* the progress that was reported last */
	bool over; /* no callback follows: it is freed when the files are not written to any more */
	struct turn_wait wait;
	struct image *image;
	bool news;
};

/* --- its end --- */

static void free_timer(uv_handle_t *h)
{
	free(h);
}

static void blob_close(struct blob *b)
{
	if (b->state == BLOB_COMING)
		blob_store_drop(b->pull->s, b->pull->who.tenant, b->d, b->part);
	else if (b->state == BLOB_READY)
		blob_store_release(b->pull->s, b->pull->who.tenant, b->d);
	if (b->state == BLOB_COMING || b->state == BLOB_READY)
		fd_close(b->fd);
	b->state = BLOB_WANTED;
}

static void drop_top(struct image_pull *p)
{
	if (!p->top)
		return;
	image_unuse(p->s, p->who.tenant, p->top->id);
	image_chain_unpin(TAKE_PTR(p->top));
}

static void on_quiet(void *arg)
{
	struct image_pull *p = arg;

	for (unsigned i = 0; i < p->layers; i++)
		blob_close(&p->blob[i]);
	blob_close(&p->config_blob);
	drop_top(p);
	if (!p->image)
		/* removes layers of an image that was not completed: their blobs are still there */
		image_sweep(p->s, NULL);
	image_unref(p->image);
	oci_config_done(&p->config);
	free(p);
}

static void end_operation(struct image_pull *p, const struct image *i, const struct err *e)
{
	AUTO(buf_done) struct buf b = BUF_INIT(4 * KIB);
	struct json j = JSON_INIT(&b);

	if (i) {
		jout_object(&j, NULL);
		image_write_result(i, &j);
		jout_bool(&j, "new", p->news);
		jout_end(&j);
	}
	operation_end(p->operation, i ? buf_str(&b) : NULL, i ? NULL : e);
}

/* Bytes are those of layers: of what the registry has sent, the configuration is no part. */
static void report(struct image_pull *p)
{
	uint64_t total = 0, bytes;
	char fields[160];

	if (!p->layers)
		return;
	for (unsigned i = 0; i < p->layers; i++)
		total += p->blob[i].fetched ? p->blob[i].d->size : 0;
	bytes = registry_bytes(p->registry) - p->config_blob.d->size + p->here;
	snprintf(fields, sizeof(fields), "\"layers\":%u,\"ready\":%u,\"bytes\":%llu,\"total\":%llu", p->layers, p->made,
		 (unsigned long long)(bytes < total ? bytes : total), (unsigned long long)total);
	if (strcmp(fields, p->said)) {
		memcpy(p->said, fields, sizeof(fields));
		operation_progress(p->operation, fields);
	}
}

/* Reports the end to all that wait. It is freed when the files are not written to any more. */
static void end(struct image_pull *p, struct image *i, const struct err *e)
{
	if (p->over)
		return;
	p->over = true;
	turn_cancel(&p->wait);
	if (p->making)
		image_layer_cancel(TAKE_PTR(p->making));
	if (p->reading)
		image_account_cancel(TAKE_PTR(p->reading));
	uv_close((uv_handle_t *)TAKE_PTR(p->timer), free_timer);
	if (i)
		report(p); /* that all is there; the only report of a pull that took no time */
	end_operation(p, i, e);
	if (p->fn)
		p->fn(p->arg, i, p->news, i ? NULL : e);
	registry_free(TAKE_PTR(p->registry), on_quiet, p);
}

static void fail(struct image_pull *p, const struct err *e)
{
	const struct err why = *e;

	end(p, NULL, &why);
}

static void on_cancel(void *arg)
{
	struct err e = { 0 };

	err_set(&e, WHY_CANCELED, -ECANCELED, "the pull was canceled");
	end(arg, NULL, &e);
}

static void on_stored(void *arg)
{
	struct image_pull *p = arg;

	end(p, p->image, NULL);
}

/* --- its steps --- */

static void go_on(struct image_pull *p);

static void on_account(void *arg, const char *user, const struct err *e)
{
	struct image_pull *p = arg;
	struct image_new n = { .name = &p->name,
			       .digest = p->found->digest,
			       .chain = p->top ? p->top->id : "",
			       .user = user,
			       .config = &p->config,
			       .source = "{\"kind\":\"pull\"}" };
	struct err why = { 0 };

	p->reading = NULL;
	if (!user) {
		fail(p, e);
		return;
	}
	if (image_put(p->s, &p->who, &n, &p->image, &why) < 0) {
		fail(p, &why);
		return;
	}
	image_ref(p->image); /* it may be removed before that is stored */
	p->news = true;
	for (unsigned i = 0; i < p->layers; i++)
		blob_store_remove(p->s, p->who.tenant, p->blob[i].d);
	turn_after(p->s->turn, &p->wait, on_stored, p);
}

static void name_it(struct image_pull *p)
{
	struct err e = { 0 };

	if (image_account(p->s, &p->who, p->top ? p->top->id : "", p->config.user, on_account, p, &p->reading, &e) < 0)
		fail(p, &e);
}

static void on_made(void *arg, struct image_chain *c, const struct err *e)
{
	struct image_pull *p = arg;
	struct err why = { 0 };

	p->making = NULL;
	if (!c) {
		why = *e;

		err_wrap(&why, 0, "layer %u of %u", p->made + 1, p->layers);
		blob_store_remove(p->s, p->who.tenant, p->blob[p->made].d); /* the stored blob may be the damaged one */
		fail(p, &why);
		return;
	}
	if (image_use(p->s, p->who.tenant, c->id, &why) < 0) {
		image_chain_unpin(c);
		fail(p, &why);
		return;
	}
	drop_top(p);
	p->top = c;
	blob_close(&p->blob[p->made]);
	p->blob[p->made++].state = BLOB_HERE;
	go_on(p);
}

static int make_next(struct image_pull *p, struct err *e)
{
	const struct blob *b = &p->blob[p->made];
	const struct image_layer_plan plan = { .parent = p->top ? p->top->id : "",
					       .fd = b->fd,
					       .size = b->d->size,
					       .digest = b->d->digest,
					       .diff = p->config.diff[p->made],
					       .compressed = true };

	return image_layer_make(p->s, &p->who, &plan, on_made, p, &p->making, e);
}

static void on_blob(void *arg, int r, const struct err *e)
{
	struct blob *b = arg;
	struct image_pull *p = b->pull;
	struct err why = { 0 };

	if (r == 0)
		r = blob_store_keep(p->s, p->who.tenant, b->d, b->part, &why);
	else
		why = *e;
	if (r == 0)
		b->state = BLOB_READY;
	if (r == 0 && lseek(b->fd, 0, SEEK_SET) < 0)
		r = err_sys(&why, ERR_INTERNAL, -errno, "read the file of a layer");
	if (r < 0) {
		fail(p, &why);
		return;
	}
	go_on(p);
}

static int fetch(struct blob *b, struct err *e)
{
	struct image_pull *p = b->pull;
	int r;

	b->fd = blob_store_open(p->s, p->who.tenant, b->d);
	if (b->fd >= 0) {
		b->state = BLOB_READY;
		p->here += b->d->size;
		return 0;
	}
	b->fd = blob_store_new(p->s, p->who.tenant, b->d, b->part, e);
	if (b->fd < 0)
		return b->fd;
	b->state = BLOB_COMING;
	r = registry_fetch(p->registry, b->d, b->fd, on_blob, b, e);
	if (r < 0)
		blob_close(b);
	return r;
}

static int fetch_more(struct image_pull *p, struct err *e)
{
	unsigned coming = 0;
	int r = 0;

	for (unsigned i = p->made; i < p->layers; i++)
		coming += p->blob[i].state == BLOB_COMING;
	for (unsigned i = p->made; r == 0 && i < p->layers && coming < AT_ONCE; i++) {
		if (p->blob[i].state != BLOB_WANTED)
			continue;
		r = fetch(&p->blob[i], e);
		coming += p->blob[i].state == BLOB_COMING;
	}
	return r;
}

static void go_on(struct image_pull *p)
{
	struct err e = { 0 };
	int r = fetch_more(p, &e);

	if (r == 0 && p->made == p->layers) {
		name_it(p);
		return;
	}
	if (r == 0 && !p->making && p->blob[p->made].state == BLOB_READY)
		r = make_next(p, &e);
	if (r < 0)
		fail(p, &e);
}

/* Counts the lowest layers that the tenant has already; the uppermost of them is pinned. */
static int find_layers(struct image_pull *p, struct err *e)
{
	struct image_chain *c, *top = NULL;
	int r;

	while (p->made < p->layers && (c = image_layer_above(p->s, top ? top->id : "", p->config.diff[p->made])) &&
	       image_is_had(p->s, p->who.tenant, c)) {
		top = c;
		p->blob[p->made++].state = BLOB_HERE;
	}
	r = top ? image_use(p->s, p->who.tenant, top->id, e) : 0;
	if (top && r == 0) {
		image_chain_pin(top);
		p->top = top;
	}
	return r;
}

static uint64_t bytes_to_fetch(const struct image_pull *p)
{
	uint64_t bytes = 0;

	for (unsigned i = p->made; i < p->layers; i++)
		bytes += blob_store_has(p->s, p->who.tenant, p->blob[i].d) ? 0 : p->blob[i].d->size;
	return bytes;
}

/* What is to be fetched must fit, before anything is fetched. */
static int check_room(struct image_pull *p, struct err *e)
{
	int r = image_bytes_check(p->who.tenant, bytes_to_fetch(p), e);

	if (r == -EDQUOT && blob_store_forget(p->s, p->who.tenant))
		r = image_bytes_check(p->who.tenant, bytes_to_fetch(p), e);
	return r;
}

static int check_config(struct image_pull *p, struct err *e)
{
	const struct oci_manifest *m = p->found->manifest;
	uint64_t bytes = 0;

	if (p->config.ndiff != m->nlayers)
		return err_set(e, WHY_IMAGE_INVALID, -EPROTO,
			       "the image has %u layers by its manifest, and %u by its configuration", m->nlayers,
			       p->config.ndiff);
	if (!p->config.architecture || strcmp(p->config.architecture, oci_architecture())) {
		err_set(e, WHY_WRONG_PLATFORM, -EPROTO, "the image is for %.40s, and this machine is %s",
			p->config.architecture ? p->config.architecture : "no known processor", oci_architecture());
		return -EPROTO;
	}
	for (unsigned i = 0; i < m->nlayers; i++) {
		if (m->layer[i].size > BYTES_MAX - bytes)
			return err_set(e, ERR_TOO_LARGE, -E2BIG, "the image has more than 64 GiB");
		bytes += m->layer[i].size;
	}
	return service_room(p->s, e);
}

static int read_config(struct image_pull *p, struct err *e)
{
	const struct oci_descriptor *d = p->config_blob.d;
	AUTO_FREE char *text = malloc(d->size + 1);
	char digest[OCI_DIGEST_SIZE];
	ssize_t n;

	if (!text)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for an image's configuration");
	n = pread(p->config_blob.fd, text, d->size, 0);
	if (n != (ssize_t)d->size)
		return err_set(e, ERR_INTERNAL, -EIO, "read an image's configuration");
	oci_digest_of(text, d->size, digest);
	if (strcmp(digest, d->digest))
		return err_set(e, WHY_IMAGE_INVALID, -EPROTO,
			       "the image's configuration does not have the digest that its manifest says");
	return oci_config_parse(text, d->size, &p->config, e);
}

static void on_config(void *arg, int r, const struct err *e)
{
	struct image_pull *p = ((struct blob *)arg)->pull;
	const struct oci_manifest *m = p->found->manifest;
	struct err why = { 0 };

	if (r < 0)
		why = *e;
	else
		r = read_config(p, &why);
	blob_close(&p->config_blob);
	if (r == 0)
		r = check_config(p, &why);
	if (r < 0) {
		fail(p, &why);
		return;
	}
	for (unsigned i = 0; i < m->nlayers; i++)
		p->blob[i] = (struct blob){ .pull = p, .d = &m->layer[i], .state = BLOB_WANTED };
	p->layers = m->nlayers;
	r = find_layers(p, &why);
	if (r == 0)
		r = check_room(p, &why);
	if (r < 0) {
		fail(p, &why);
		return;
	}
	for (unsigned i = p->made; i < p->layers; i++)
		p->blob[i].fetched = true;
	go_on(p);
}

/* The same image, if it exists with all its layers. */
static struct image *same_here(struct image_pull *p)
{
	char full[OCI_NAME_MAX];
	struct image *i;

	oci_name_full(&p->name, full);
	i = image_find(p->s, p->who.tenant, full, NULL);
	return i && i->tenant == p->who.tenant && !strcmp(i->digest, p->found->digest) ? i : NULL;
}

static void on_found(void *arg, int r, const struct registry_found *f, const struct err *e)
{
	struct image_pull *p = arg;
	struct blob *c = &p->config_blob;
	struct err why = { 0 };

	if (r < 0) {
		fail(p, e);
		return;
	}
	p->found = f;
	p->image = same_here(p);
	if (p->image) {
		image_ref(p->image);
		on_stored(p);
		return;
	}
	*c = (struct blob){ .pull = p, .d = &f->manifest->config, .state = BLOB_WANTED };
	if (c->d->size > OCI_CONFIG_MAX)
		r = err_set(&why, ERR_TOO_LARGE, -E2BIG, "the image's configuration is larger than 4 MiB");
	if (r == 0)
		r = c->fd = blob_store_new(p->s, p->who.tenant, c->d, c->part, &why);
	if (r >= 0) {
		c->state = BLOB_COMING;
		r = registry_fetch(p->registry, c->d, c->fd, on_config, c, &why);
	}
	if (r < 0)
		fail(p, &why);
}

/* --- for callers --- */

static void on_progress(uv_timer_t *t)
{
	report(t->data);
}

int image_pull(struct service *s, const struct who *who, const struct image_pull_plan *plan, image_pull_fn *fn,
	       void *arg, struct operation **ret, struct err *e)
{
	const struct registry_plan find = { .name = plan->name, .login = plan->login };
	struct operation_new operation = { .kind = "pull", .cancel = on_cancel };
	struct image_pull *p = calloc(1, sizeof(*p));
	char what[OCI_NAME_MAX];
	int r;

	if (!p)
		abort();
	blob_store_sweep(s, clock_real_ns());
	*p = (struct image_pull){ .s = s, .who = *who, .name = *plan->name, .fn = fn, .arg = arg };
	p->config_blob.pull = p;
	p->config_blob.state = BLOB_HERE;
	oci_name_short(plan->name, what);
	operation.what = what;
	operation.arg = p;
	r = operation_begin(s, who, &operation, &p->operation, e);
	if (r < 0) {
		free(p);
		return r;
	}
	r = registry_find(s, who, &find, on_found, p, &p->registry, e);
	if (r < 0) {
		operation_end(p->operation, NULL, e);
		free(p);
		return r;
	}
	p->timer = calloc(1, sizeof(*p->timer));
	if (!p->timer)
		abort();
	p->timer->data = p;
	uv_timer_init(s->loop, p->timer);
	uv_timer_start(p->timer, on_progress, PROGRESS_MS, PROGRESS_MS);
	*ret = p->operation;
	return 0;
}
