/* Images: what is there, what is brought as an archive, other names, removing. */
#include "api/native/feed.h"
#include "api/native/object.h"
#include "base/base.h"
#include "service/file/tar_child.h"
#include "service/image/archive.h"
#include "service/image/blob_store.h"
#include "service/image/usage.h"
#include "service/state/json_read.h"

int image_answer(const struct image *i, struct buf *out, struct err *e)
{
	struct json j = JSON_INIT(out);

	image_write(i, &j);
	return jout_done(&j) < 0 ? err_set(e, ERR_EXHAUSTED, -ENOMEM, "the image does not fit into an answer") : 0;
}

void call_image_json(struct call *c, int status, const struct image *i)
{
	AUTO(buf_done) struct buf out = BUF_INIT(OBJECT_MAX);
	struct err e = { 0 };

	if (image_answer(i, &out, &e) < 0)
		call_fail(c, &e);
	else
		call_stored(c, status, &out);
}

/* The name in the path: '/' is written as '+', which no name contains. NULL: it has been answered. */
struct image *call_image(struct call *c)
{
	struct tenant *t = call_tenant_of(c, NULL);
	char name[OCI_NAME_MAX];
	struct err e = { 0 };
	struct image *i;

	if (!t)
		return NULL;
	snprintf(name, sizeof(name), "%s", router_param(c->route, c->q, "image"));
	for (char *p = name; *p; p++)
		*p = *p == '+' ? '/' : *p;
	i = image_find(c->api->s, t, name, &e);
	if (!i)
		call_fail(c, &e);
	return i;
}

static int write_images(struct call *c, struct json *j)
{
	AUTO_FREE struct image **list = NULL;
	bool all = false;
	struct tenant *t = call_tenant_of(c, &all);
	size_t n;

	if (!t && !all)
		return -ENOENT;
	images_list(c->api->s, t, &list, &n);
	for (size_t k = 0; k < n; k++)
		image_write(list[k], j);
	return 0;
}

DEFINE_LIST(get_images, "images", write_images)
DEFINE_SHOW(get_image, struct image, call_image, image_write)
DEFINE_REMOVE(delete_image, struct image, call_image, image_remove)

void get_images_usage(void *arg, struct http_req *q, const struct route *r)
{
	AUTO(buf_done) struct buf out = BUF_INIT(64 * MIB);
	struct call *c = call_new(arg, q, r);
	struct json j = JSON_INIT(&out);
	bool all = false;
	struct tenant *t = call_tenant_of(c, &all);

	if (!t && !all)
		return;
	image_usage_write(c->api->s, t, &j);
	call_list(c, &j);
}

static void tag_body(struct call *c, const char *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	struct image *i = call_image(c), *tagged = NULL;
	const char *name = NULL;
	struct err e = { 0 };
	int r;

	if (!i)
		return;
	r = json_read_begin(data, len, &o, &e);
	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		json_read_str(&j, "name", &name, OCI_NAME_MAX - 1);
		r = json_read_end(&j);
		if (r == 0 && !name)
			r = err_set(&e, WHY_BAD_FIELD, -EINVAL, "'name' is missing: the image's other name");
	}
	if (r == 0)
		r = image_tag(i, &c->who, name, &tagged, &e);
	if (r < 0)
		call_fail(c, &e);
	else
		call_image_json(c, 201, tagged);
}

void post_image_tag(void *arg, struct http_req *q, const struct route *r)
{
	call_body(call_new(arg, q, r), tag_body);
}

static void patch_body(struct call *c, const char *data, size_t len)
{
	AUTO(json_decref) json_t *o = NULL;
	struct image *i = call_image(c);
	struct err e = { 0 };
	bool public;
	int r;

	if (!i)
		return;
	public = image_is_public(i);
	r = json_read_begin(data, len, &o, &e);
	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		json_read_bool(&j, "public", &public);
		r = json_read_end(&j);
	}
	if (r == 0)
		r = image_publish(i, &c->who, public, &e);
	if (r < 0)
		call_fail(c, &e);
	else
		call_image_json(c, 200, i);
}

void patch_image(void *arg, struct http_req *q, const struct route *r)
{
	call_body(call_new(arg, q, r), patch_body);
}

void post_images_prune(void *arg, struct http_req *q, const struct route *r)
{
	AUTO(buf_done) struct buf out = BUF_INIT(4096);
	struct call *c = call_new(arg, q, r);
	struct json j = JSON_INIT(&out);
	struct image_freed freed;

	image_sweep(c->api->s, &freed);
	for (struct tenant *t = tenant_first(c->api->access); t; t = tenant_next(t))
		freed.bytes += blob_store_forget(c->api->s, t);
	jout_object(&j, NULL);
	jout_u64(&j, "layers", freed.chains);
	jout_u64(&j, "bytes", freed.bytes);
	jout_end(&j);
	call_stored(c, 200, jout_done(&j) == 0 ? &out : NULL);
}

/* --- an archive as the body --- */

struct upload {
	struct call *c;
	struct archive_import *import;
	struct feed feed;
};

static void upload_free(struct upload *u)
{
	feed_done(&u->feed);
	free(u);
}

static void on_imported(void *arg, struct image *i, const struct err *e)
{
	struct upload *u = arg;
	struct call *c = u->c;

	upload_free(u);
	c->gone = NULL;
	c->pending = true;
	if (i) {
		call_audited(c);
		call_image_json(c, 201, i);
	} else {
		call_fail(c, e);
	}
}

static void on_gone(struct call *c)
{
	struct upload *u = c->data;

	u->feed.q = NULL;
	archive_import_cancel(u->import);
	upload_free(u);
}

void post_images_import(void *arg, struct http_req *q, const struct route *r)
{
	struct call *c = call_new(arg, q, r);
	const struct archive_request w = { .name = http_query(q, "name"),
					   .ref = http_query(q, "ref"),
					   .format = http_query(q, "format"),
					   .config = http_query(q, "config") };
	struct err e = { 0 };
	struct upload *u;
	int fd, rc = 0;

	if (w.format && strcmp(w.format, "auto") && strcmp(w.format, "image") && strcmp(w.format, "rootfs"))
		rc = err_set(&e, ERR_INVALID, -EINVAL, "format must be \"auto\", \"image\" or \"rootfs\"");
	u = calloc(1, sizeof(*u));
	if (!u)
		abort();
	u->c = c;
	feed_init(&u->feed, c->api->loop, q);
	c->data = u;
	if (rc == 0)
		rc = archive_import(c->api->s, &c->who, &w, on_imported, u, &u->import, &fd, &e);
	if (rc < 0) {
		upload_free(u);
		call_fail(c, &e);
		return;
	}
	http_set(q, "X-Cloche-Operation", archive_import_operation(u->import));
	c->gone = on_gone;
	feed_open(&u->feed, fd);
	feed_body(&u->feed);
}
