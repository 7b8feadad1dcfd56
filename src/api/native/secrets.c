/* Secrets: values can be written, and are never returned. */
#include "api/native/object.h"
#include "base/base.h"
#include "base/base64.h"
#include "service/state/json_read.h"
#include "service/secret/secret.h"

#include <malloc.h>

/* The library's messages about a body may quote it, so they are not used. */
static int parse(const char *data, size_t len, json_t **ret, struct err *e)
{
	int r = json_read_begin(data, len, ret, NULL);

	if (r < 0)
		err_set(e, ERR_INVALID, r, "the body must be a JSON object {value, description}");
	return r;
}

static int decode(const char *coded, struct buf *value, struct err *e)
{
	size_t n = strlen(coded);
	char *to = buf_room(value, n + 1);
	ssize_t got;

	if (!to)
		return err_set(e, ERR_TOO_LARGE, -E2BIG, "'value_base64': must be at most %u KiB",
			       VAULT_VALUE_MAX / 1024U);
	got = base64_decode(coded, n, to);
	if (got < 0)
		return err_set(e, WHY_BAD_FIELD, -EINVAL, "'value_base64': invalid base64");
	buf_added(value, (size_t)got);
	return 0;
}

/* For jansson, whose parser leaves copies of the text in several places. */
static void wipe_and_free(void *p)
{
	if (p)
		explicit_bzero(p, malloc_usable_size(p));
	free(p);
}

/* After this the value is in the vault only. */
static int put_secret_text(struct call *c, struct tenant *tenant, const char *data, size_t len, struct secret **ret,
			   bool *ret_created, struct err *e)
{
	AUTO(vault_wipe) struct buf value = BUF_INIT(2 * (size_t)VAULT_VALUE_MAX);
	const char *text = NULL, *coded = NULL, *description = NULL;
	AUTO(json_decref) json_t *o = NULL;
	int r = parse(data, len, &o, e);

	if (r == 0) {
		struct json_read j = JIN_INIT(o, e);

		json_read_str(&j, "value", &text, SIZE_MAX);
		json_read_str(&j, "value_base64", &coded, SIZE_MAX);
		json_read_str(&j, "description", &description, SECRET_DESCRIPTION_MAX);
		if (!text == !coded)
			json_read_bad(&j, "value", "is required, or `value_base64`");
		r = json_read_end(&j);
	}
	if (r == 0 && coded)
		r = decode(coded, &value, e);
	if (r == 0)
		r = secret_put(c->api->s, &c->who, tenant, router_param(c->route, c->q, "name"),
			       coded ? buf_str(&value) : text, coded ? value.len : strlen(text), description, ret,
			       ret_created, e);
	return r;
}

static void put_body(struct call *c, const char *data, size_t len)
{
	struct tenant *tenant = call_tenant_of(c, NULL);
	struct secret *x = NULL;
	struct err e = { 0 };
	bool created = false;
	int r;

	if (!tenant)
		return;
	json_set_alloc_funcs(malloc, wipe_and_free);
	r = put_secret_text(c, tenant, data, len, &x, &created, &e);
	json_set_alloc_funcs(malloc, free);
	http_body_forget(c->q);
	if (r < 0)
		call_fail(c, &e);
	else
		named_answer(c, created ? 201 : 200, &secret_kind, x);
}

void put_secret(void *arg, struct http_req *q, const struct route *r)
{
	http_body_wiped(q);
	call_body(call_new(arg, q, r), put_body);
}

DEFINE_NAMED(secret)
