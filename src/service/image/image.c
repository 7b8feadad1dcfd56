/* Images by name: finding, storing, tagging and removing them. */
#include "service/sandbox/part.h"
#include "service/image/image.h"
#include "base/base.h"
#include "service/image/struct.h"
#include "service/struct.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/image/blob_store.h"
#include "service/image/book.h"
#include "service/image/build.h"
#include "service/image/chain.h"
#include "service/image/usage.h"
#include "service/state/event.h"

#define IMAGES_MAX 4096U /* of one tenant */
#define CONFIGS_MAX (64 * MIB) /* in memory, of one tenant */
#define SHORT_DIGEST 12U /* least number of digits that identify a digest */

struct image *image_ref(struct image *i)
{
	i->refs++;
	return i;
}

void image_unref(struct image *i)
{
	if (!i || --i->refs)
		return;
	oci_config_done(&i->config);
	free(i->source);
	free(i);
}

static void key_of(const struct tenant *t, const char *name, char ret[OCI_NAME_MAX + 64])
{
	snprintf(ret, OCI_NAME_MAX + 64, "%s/%s", t->id, name);
}

int image_book_new(struct service *s, struct err *e)
{
	struct image_book *b = calloc(1, sizeof(*b));

	if (!b || map_init(&b->images) < 0 || map_init(&b->chains) < 0 || map_init(&b->works) < 0 ||
	    map_init(&b->operations) < 0 || map_init(&b->uses) < 0 || map_init(&b->blobs) < 0) {
		free(b);
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for images");
	}
	s->images = b;
	s->image_layers = image_layers_of;
	s->image_hold = image_hold;
	return 0;
}

static struct image *image_alloc(struct service *s, struct tenant *t, const char *source)
{
	struct image *i = calloc(1, sizeof(*i));

	if (!i || !(i->source = strdup(source)))
		abort(); /* a few kilobytes */
	i->service = s;
	i->tenant = t;
	i->refs = 1;
	return i;
}

static int list(struct image *i, struct err *e)
{
	char key[OCI_NAME_MAX + 64];
	struct image *old;

	key_of(i->tenant, i->name, key);
	old = map_get(&i->service->images->images, key);
	if (map_put(&i->service->images->images, key, i) < 0)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for an image");
	if (old)
		image_unuse(i->service, old->tenant, old->chain);
	image_unref(old);
	return 0;
}

static int load(struct service *s, const struct image_row *row, struct err *e)
{
	struct tenant *t = tenant_find(s->access, row->tenant);
	struct image *i;
	int r;

	if (!t)
		return err_set(e, ERR_INTERNAL, -ENOENT, "its tenant does not exist");
	i = image_alloc(s, t, row->source);
	snprintf(i->name, sizeof(i->name), "%s", row->name);
	snprintf(i->digest, sizeof(i->digest), "%s", row->digest);
	snprintf(i->chain, sizeof(i->chain), "%s", row->chain);
	snprintf(i->user, sizeof(i->user), "%s", row->user);
	i->public = row->public;
	i->size = row->size;
	i->created_ns = row->created_ns;
	r = oci_config_parse(row->config, strlen(row->config), &i->config, e);
	i->config_bytes = oci_config_bytes(&i->config);
	if (r == 0 && i->chain[0] && !image_chain_find(s, i->chain))
		r = err_set(e, ERR_INTERNAL, -ENOENT, "its layers are not known");
	if (r == 0)
		r = list(i, e);
	if (r < 0)
		image_unref(i);
	else
		image_use_force(s, t, i->chain);
	return r;
}

static int on_image(void *arg, const struct image_row *row)
{
	struct err e = { 0 };

	if (load(arg, row, &e) < 0)
		log_error("image %s of tenant '%s' cannot be read from the store: %s", row->name, row->tenant, e.msg);
	return 0;
}

static int on_layer(void *arg, const struct image_layer_row *row)
{
	return image_chain_load(arg, row);
}

int images_load(struct service *s, struct err *e)
{
	int r = image_layers_each(s->db, on_layer, s, e);

	if (r == 0)
		r = images_each(s->db, on_image, s, e);
	if (r == 0)
		r = build_cache_load(s, e);
	return r;
}

/* --- looking --- */

bool image_visible(const struct image *i, const struct tenant *t)
{
	return !i->tenant->gone && (i->public || i->tenant == t);
}

bool image_is_public(const struct image *i)
{
	return i->public;
}

static struct image *image_next(struct service *s, size_t *at)
{
	return map_next(&s->images->images, at);
}

static int by_name(const void *a, const void *b)
{
	struct image *const *x = a, *const *y = b;
	int r = strcmp((*x)->name, (*y)->name);

	return r ? r : strcmp((*x)->tenant->id, (*y)->tenant->id);
}

void images_list(struct service *s, const struct tenant *t, struct image ***ret, size_t *ret_n)
{
	struct image **list = calloc(s->images->images.count + 1, sizeof(struct image *)), *i;
	size_t n = 0, at = 0;

	if (!list)
		abort();
	while ((i = image_next(s, &at)))
		if (!t || image_visible(i, t))
			list[n++] = i;
	qsort(list, n, sizeof(struct image *), by_name);
	*ret = list;
	*ret_n = n;
}

/* Whether @text is the digest, or enough of its first digits. */
static bool is_digest(const char *text, const char *digest)
{
	const size_t skip = strlen(OCI_DIGEST_PREFIX);
	size_t n;

	if (!strncmp(text, OCI_DIGEST_PREFIX, skip))
		text += skip;
	n = strlen(text);
	return n >= SHORT_DIGEST && n <= 64 && strspn(text, "0123456789abcdef") == n &&
	       !strncmp(digest + skip, text, n);
}

/* An image of the tenant comes before public ones of others. */
static struct image *by_digest(struct service *s, const struct tenant *t, const char *text)
{
	struct image *i, *found = NULL;
	size_t at = 0;

	while ((i = image_next(s, &at)))
		if (image_visible(i, t) && is_digest(text, i->digest) && (!found || i->tenant == t))
			found = i;
	return found;
}

struct image *image_find(struct service *s, const struct tenant *t, const char *text, struct err *e)
{
	char full[OCI_NAME_MAX], key[OCI_NAME_MAX + 64];
	struct image *i = NULL, *other;
	struct oci_name n;
	size_t at = 0;

	if (oci_name_parse(text, &n, NULL) == 0) {
		/* With a digest, a tag is only informative. */
		if (n.digest[0])
			return by_digest(s, t, n.digest) ? by_digest(s, t, n.digest) : image_find(s, t, n.digest, e);
		oci_name_full(&n, full);
		key_of(t, full, key);
		i = map_get(&s->images->images, key);
		if (i && i->tenant != t)
			i = NULL; /* of one that was called so before */
		while (!i && (other = image_next(s, &at)))
			if (other->public && image_visible(other, t) && !strcmp(other->name, full))
				i = other;
	}
	if (!i)
		i = by_digest(s, t, text);
	if (i)
		return i;
	err_set(e, WHY_IMAGE_MISSING, -ENOENT, "no image '%.100s'", text);
	err_remedy(
		e,
		"`cloche image ls` (GET /v1/images) lists images; `cloche image pull`, `import` and `bootstrap` add some");
	return NULL;
}

const char *image_current(struct service *s, const struct tenant *t, const char *name)
{
	const struct image *i = image_find(s, t, name, NULL);

	return i ? i->digest : name;
}

/* --- changes --- */

static void note(const struct image *i, const struct who *who, const char *kind)
{
	struct audit_rec rec = who_rec(who, kind);
	struct json *j;
	char fields[OCI_NAME_MAX + 32];

	rec.tenant = i->tenant->id;
	j = audit_begin(i->service->audit, &rec);
	jout_str(j, "image", i->name);
	jout_str(j, "digest", i->digest);
	audit_end(i->service->audit, NULL);
	snprintf(fields, sizeof(fields), "\"image\":\"%s\"", i->name);
	event_of(i->service, i->tenant, "", kind, fields);
	turn_dirty(i->service->turn);
}

static int store(const struct image *i, struct err *e)
{
	AUTO(buf_done) struct buf config = BUF_INIT(4 * OCI_CONFIG_MAX);
	struct image_row row = { .tenant = i->tenant->id,
				 .name = i->name,
				 .digest = i->digest,
				 .chain = i->chain,
				 .user = i->user,
				 .source = i->source,
				 .public = i->public,
				 .size = i->size,
				 .created_ns = i->created_ns };
	int r = oci_config_write(&i->config, &config, e);

	row.config = buf_str(&config);
	return r < 0 ? r : images_put(i->service->db, &row, e);
}

/* All are in memory, with their configurations. */
static int room_for(struct service *s, const struct tenant *t, const char *name, const struct oci_config *c,
		    struct err *e)
{
	const struct image *i;
	size_t at = 0, n = 0, bytes = oci_config_bytes(c);

	while ((i = image_next(s, &at)))
		if (i->tenant == t && strcmp(i->name, name) != 0) {
			n++;
			bytes += i->config_bytes;
		}
	if (n < IMAGES_MAX && bytes <= CONFIGS_MAX)
		return 0;
	if (n >= IMAGES_MAX)
		err_set(e, ERR_EXHAUSTED, -EDQUOT, "this tenant has %zu images, which is the limit", n);
	else
		err_set(e, ERR_EXHAUSTED, -EDQUOT,
			"the configurations of this tenant's images are larger than %u MiB, which is the limit",
			(unsigned)(CONFIGS_MAX / MIB));
	err_remedy(e, "remove some: `cloche image rm` (DELETE /v1/images/{image})");
	return -EDQUOT;
}

int image_put(struct service *s, const struct who *who, const struct image_new *n, struct image **ret, struct err *e)
{
	struct image *i = image_alloc(s, who->tenant, n->source);
	char key[OCI_NAME_MAX + 64];
	const struct image *old;
	int r;

	oci_name_full(n->name, i->name);
	snprintf(i->digest, sizeof(i->digest), "%s", n->digest);
	snprintf(i->chain, sizeof(i->chain), "%s", n->chain);
	snprintf(i->user, sizeof(i->user), "%s", n->user);
	if (who->tenant->gone) {
		image_unref(i);
		return err_set(e, WHY_SERVICE_LOST, -ESRCH, "the tenant was removed");
	}
	i->created_ns = clock_real_ns();
	i->size = image_chain_bytes(s, i->chain);
	key_of(who->tenant, i->name, key);
	old = map_get(&s->images->images, key);
	i->public = old && old->tenant == who->tenant && old->public; /* as its name was: tags move */
	r = room_for(s, who->tenant, i->name, n->config, e);
	if (r == 0)
		r = image_use(s, who->tenant, i->chain, e);
	if (r < 0) {
		image_unref(i);
		return r;
	}
	r = oci_config_copy(n->config, &i->config, e);
	i->config_bytes = oci_config_bytes(&i->config);
	if (r == 0)
		r = store(i, e);
	if (r == 0) {
		r = list(i, e);
		if (r < 0)
			images_delete(s->db, i->tenant->id, i->name, NULL);
	}
	if (r < 0) {
		image_unuse(s, who->tenant, i->chain);
		image_unref(i);
		return r;
	}
	note(i, who, "image.put");
	if (old)
		image_sweep(s, NULL);
	sandbox_parts_images_changed(s);
	*ret = i;
	return 0;
}

int image_tag(struct image *i, const struct who *who, const char *name, struct image **ret, struct err *e)
{
	struct oci_name n;
	const struct image_new made = { .name = &n,
					.digest = i->digest,
					.chain = i->chain,
					.user = i->user,
					.config = &i->config,
					.source = i->source };
	char full[OCI_NAME_MAX];
	int r = oci_name_parse(name, &n, e);

	if (r == 0 && n.digest[0])
		r = err_set(e, WHY_BAD_FIELD, -EINVAL, "'%.100s': a new name must not have a digest", name);
	if (r < 0)
		return r;
	oci_name_full(&n, full);
	if (i->tenant == who->tenant && !strcmp(full, i->name)) {
		*ret = i;
		return 0;
	}
	return image_put(i->service, who, &made, ret, e);
}

int image_publish(struct image *i, const struct who *who, bool public, struct err *e)
{
	const bool was = i->public;
	int r;

	if (i->public == public)
		return 0;
	if (who->scope != SCOPE_ADMIN)
		return err_set(e, WHY_ADMIN_ONLY, -EPERM,
			       "only an administrator may make an image public, or take that back");
	i->public = public;
	r = store(i, e);
	if (r < 0)
		i->public = was;
	else
		note(i, who, "image.update");
	return r;
}

int image_remove(struct image *i, const struct who *who, struct err *e)
{
	char key[OCI_NAME_MAX + 64];
	int r;

	if (i->tenant != who->tenant && who->scope != SCOPE_ADMIN) {
		err_set(e, WHY_NOT_ALLOWED, -EPERM, "image '%.100s' belongs to another tenant and is public", i->name);
		return -EPERM;
	}
	r = images_delete(i->service->db, i->tenant->id, i->name, e);
	if (r < 0)
		return r;
	note(i, who, "image.delete");
	key_of(i->tenant, i->name, key);
	map_del(&i->service->images->images, key);
	image_unuse(i->service, i->tenant, i->chain);
	image_sweep(i->service, NULL);
	sandbox_parts_images_changed(i->service);
	image_unref(i);
	return 0;
}

void images_forget(struct service *s, const struct who *who, const struct tenant *t)
{
	struct build_forgotten gone;
	struct err e = { 0 };
	struct who as = *who;
	struct image *i;
	size_t at = 0;

	while ((i = image_next(s, &at))) {
		char key[OCI_NAME_MAX + 64];

		if (i->tenant != t)
			continue;
		if (images_delete(s->db, t->id, i->name, &e) < 0)
			log_error("cannot remove an image of a tenant that was removed: %s", e.msg);
		key_of(t, i->name, key);
		map_del(&s->images->images, key);
		image_unuse(s, i->tenant, i->chain);
		image_unref(i);
	}
	as.tenant = (struct tenant *)(uintptr_t)t;
	if (build_cache_forget(s, &as, &gone, &e) < 0)
		log_error("cannot forget the builds of a tenant that was removed: %s", e.msg);
	image_uses_forget(s, t);
	blob_store_forget(s, as.tenant);
	image_sweep(s, NULL);
	sandbox_parts_images_changed(s);
}

/* --- shown --- */

static void put_list(struct json *j, const char *key, const struct oci_list *l, bool there)
{
	if (!there) {
		jout_null(j, key);
		return;
	}
	jout_array(j, key);
	for (unsigned i = 0; i < l->n; i++)
		jout_str(j, NULL, l->item[i]);
	jout_end(j);
}

static void put_time(struct json *j, const char *key, uint64_t ns)
{
	char text[32];

	clock_iso(ns, text);
	jout_str(j, key, text);
}

static void put_history(struct json *j, const struct image *i)
{
	jout_array(j, "history");
	for (unsigned n = 0; n < i->config.nhistory; n++) {
		const struct oci_history *h = &i->config.history[n];

		jout_object(j, NULL);
		jout_str(j, "created", h->created);
		jout_str(j, "created_by", h->by);
		jout_str(j, "comment", h->comment);
		jout_bool(j, "empty_layer", h->empty);
		jout_end(j);
	}
	jout_end(j);
}

/* The chain has the uppermost first, the list the lowest. */
static void put_layers(struct json *j, const struct image *i)
{
	const struct image_chain *chain[OCI_LAYERS_MAX];
	unsigned n = 0;

	for (const struct image_chain *c = image_chain_find(i->service, i->chain); c && n < OCI_LAYERS_MAX;
	     c = image_chain_find(i->service, c->parent))
		chain[n++] = c;
	jout_array(j, "layers");
	while (n-- > 0) {
		jout_object(j, NULL);
		jout_str(j, "diff_id", chain[n]->diff);
		jout_str(j, "digest", chain[n]->blob[0] ? chain[n]->blob : NULL);
		jout_u64(j, "size", chain[n]->size);
		jout_u64(j, "files", chain[n]->files);
		jout_end(j);
	}
	jout_end(j);
}

static void put_config(struct json *j, const struct oci_config *c)
{
	jout_object(j, "config");
	jout_str(j, "user", c->user);
	jout_str(j, "workdir", c->workdir);
	put_list(j, "env", &c->env, true);
	put_list(j, "entrypoint", &c->entrypoint, c->has_entrypoint);
	put_list(j, "cmd", &c->cmd, c->has_cmd);
	jout_object(j, "labels");
	for (unsigned n = 0; n < c->labels.n; n++) {
		char *eq = strchr(c->labels.item[n], '=');

		*eq = '\0';
		jout_str(j, c->labels.item[n], eq + 1);
		*eq = '=';
	}
	jout_end(j);
	put_list(j, "ports", &c->ports, true);
	put_list(j, "volumes", &c->volumes, true);
	jout_str(j, "stop_signal", c->stop_signal);
	put_list(j, "shell", &c->shell, c->shell.n > 0);
	put_list(j, "onbuild", &c->onbuild, true);
	jout_end(j);
}

/* In short form. */
static void write_name(const struct image *i, const char *key, struct json *j)
{
	char shorter[OCI_NAME_MAX];
	struct oci_name n;

	if (oci_name_parse(i->name, &n, NULL) == 0)
		oci_name_short(&n, shorter);
	else
		snprintf(shorter, sizeof(shorter), "%s", i->name);
	jout_str(j, key, shorter);
}

void image_write_result(const struct image *i, struct json *j)
{
	write_name(i, "image", j);
	jout_str(j, "digest", i->digest);
}

void image_write(const struct image *i, struct json *j)
{
	jout_object(j, NULL);
	write_name(i, "name", j);
	jout_str(j, "full_name", i->name);
	jout_str(j, "digest", i->digest);
	jout_str(j, "tenant", i->tenant->id);
	jout_bool(j, "public", i->public);
	jout_str(j, "user", i->user[0] ? i->user : NULL);
	jout_str(j, "architecture", i->config.architecture ? i->config.architecture : oci_architecture());
	jout_str(j, "created", i->config.created);
	put_time(j, "stored_at", i->created_ns);
	jout_u64(j, "size", i->size);
	jout_raw(j, "source", i->source, strlen(i->source));
	put_config(j, &i->config);
	put_layers(j, i);
	put_history(j, i);
	jout_end(j);
}
