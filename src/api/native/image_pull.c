/* Images from registries: a pull, which is an operation, and the question whether a tag has moved. */
#include "api/native/native.h"
#include "base/base.h"
#include "base/base64.h"
#include "service/image/operation.h"
#include "service/image/outdated.h"
#include "service/image/pull.h"
#include "service/state/json_read.h"

#define USERNAME_MAX 1024U
#define PASSWORD_MAX 16384U

static void on_done(void *arg, struct image *i, bool news, const struct err *e)
{
	AUTO(buf_done) struct buf out = BUF_INIT(16 * MIB);
	struct call *c = arg;
	struct err why = { 0 };

	if (!i) {
		call_fail(c, e);
	} else if (image_answer(i, &out, &why) < 0) {
		call_fail(c, &why);
	} else {
		call_audited(c);
		call_json(c, news ? 201 : 200, &out);
	}
}

/* Base64 of "USER:PASSWORD". */
static int write_login(const char *user, const char *password, struct buf *out, struct err *e)
{
	AUTO(buf_done) struct buf text = BUF_INIT(32 * KIB);
	char *to;

	if (strchr(user, ':'))
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'username': must not contain ':'");
	if (buf_addf(&text, "%s:%s", user, password) < 0 || !(to = buf_room(out, BASE64_SIZE(text.len))))
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a login");
	buf_added(out, base64_encode(text.data, text.len, to));
	return 0;
}

struct login_fields {
	const char *user, *password;
};

static void read_login(struct json_read *j, struct login_fields *l)
{
	json_read_str(j, "username", &l->user, USERNAME_MAX);
	json_read_str(j, "password", &l->password, PASSWORD_MAX);
	if (!l->user != !l->password)
		json_read_bad(j, l->user ? "password" : "username", "is required beside the other");
}

static int read_pull(const char *data, size_t len, struct oci_name *name, struct buf *login, bool *background,
		     struct err *e)
{
	struct login_fields l = { 0 };
	const char *text = NULL;
	AUTO(json_decref) json_t *o = NULL;
	int r = json_read_begin(data, len, &o, e);

	if (r == 0) {
		struct json_read j = JIN_INIT(o, e);

		if (!json_read_str(&j, "name", &text, OCI_NAME_MAX - 1))
			json_read_bad(&j, "name", "is required: an image, such as python:3.12-slim");
		read_login(&j, &l);
		json_read_bool(&j, "background", background);
		r = json_read_end(&j);
	}
	if (r == 0)
		r = oci_name_parse(text, name, e);
	if (r == 0 && l.user)
		r = write_login(l.user, l.password, login, e);
	return r;
}

static void pull_body(struct call *c, const char *data, size_t len)
{
	AUTO(buf_done) struct buf login = BUF_INIT(64 * KIB);
	struct tenant *t = call_tenant_of(c, NULL);
	struct image_pull_plan plan = { 0 };
	struct who who = c->who;
	bool background = false;
	struct operation *o;
	struct oci_name name;
	struct err e = { 0 };
	int r;

	if (!t)
		return;
	r = read_pull(data, len, &name, &login, &background, &e);
	plan = (struct image_pull_plan){ .name = &name, .login = login.len ? buf_str(&login) : NULL };
	who.tenant = t;
	if (r == 0)
		r = image_pull(c->api->s, &who, &plan, background ? NULL : on_done, c, &o, &e);
	if (r < 0) {
		call_fail(c, &e);
	} else if (background) {
		call_accepted(c, o);
	} else {
		http_set(c->q, "X-Cloche-Operation", operation_id(o));
		c->pending = true;
	}
}

void post_images_pull(void *arg, struct http_req *q, const struct route *r)
{
	call_body(call_new(arg, q, r), pull_body);
}

/* --- outdated --- */

static void on_outdated(void *arg, const struct image_outdated *x, const struct err *e)
{
	AUTO(buf_done) struct buf out = BUF_INIT(16 * KIB);
	struct json j = JSON_INIT(&out);
	struct call *c = arg;

	if (!x) {
		call_fail(c, e);
		return;
	}
	jout_object(&j, NULL);
	jout_str(&j, "name", x->name);
	jout_str(&j, "digest", x->digest);
	jout_str(&j, "registry_digest", x->registry_digest);
	jout_bool(&j, "outdated", strcmp(x->digest, x->registry_digest));
	jout_end(&j);
	call_json(c, 200, &out);
}

static void ask_registry(struct call *c, const char *login)
{
	const struct image *i = call_image(c);
	struct err e = { 0 };

	if (!i)
		return;
	if (image_outdated(c->api->s, &c->who, i, login, on_outdated, c, &e) < 0)
		call_fail(c, &e);
	else
		c->pending = true;
}

void get_image_outdated(void *arg, struct http_req *q, const struct route *r)
{
	ask_registry(call_new(arg, q, r), NULL);
}

static void outdated_body(struct call *c, const char *data, size_t len)
{
	AUTO(buf_done) struct buf login = BUF_INIT(64 * KIB);
	AUTO(json_decref) json_t *o = NULL;
	struct login_fields l = { 0 };
	struct err e = { 0 };
	int r = json_read_begin(data, len, &o, &e);

	if (r == 0) {
		struct json_read j = JIN_INIT(o, &e);

		read_login(&j, &l);
		r = json_read_end(&j);
	}
	if (r == 0 && l.user)
		r = write_login(l.user, l.password, &login, &e);
	if (r < 0)
		call_fail(c, &e);
	else
		ask_registry(c, login.len ? buf_str(&login) : NULL);
}

void post_image_outdated(void *arg, struct http_req *q, const struct route *r)
{
	call_body(call_new(arg, q, r), outdated_body);
}
