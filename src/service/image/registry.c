/* Finds an image in its registry: its digest, its manifest, and its blobs. */
#include "service/image/registry.h"
#include "base/base.h"
#include "service/struct.h"
#include "service/image/skopeo.h"
#include "service/image/work_sandbox.h"
#include "service/network/conf.h"
#include "service/sandbox/request.h"

#include <jansson.h>

#define IMAGE_SET "images" /* the administrator's set of network rules for registries */

struct registry {
	struct service *s;
	struct who who;
	struct oci_name name;
	char what[OCI_NAME_MAX]; /* for messages */
	bool digest_only;
	struct registry_conf conf;
	struct work_sandbox *work;
	struct skopeo *inspect;
	struct blob_proxy *proxy;
	struct registry_found found;
	struct oci_manifest manifest;
	registry_fn *fn;
	void *arg;
	void (*done)(void *arg);
	void *done_arg;
};

static void answer(struct registry *r, int status, const struct err *e)
{
	r->fn(r->arg, status, status < 0 ? NULL : &r->found, status < 0 ? e : NULL);
}

/* Writes "docker://HOST/REPOSITORY@sha256:…", or with the tag. */
static void image_text(const struct registry *r, const char *digest, char *to, size_t size)
{
	const struct oci_name *n = &r->name;

	if (digest)
		snprintf(to, size, "docker://%s/%s@%s", r->conf.host, n->repository, digest);
	else
		snprintf(to, size, "docker://%s/%s:%s", r->conf.host, n->repository, n->tag);
}

#define IMAGE_TEXT (REGISTRY_HOST + OCI_NAME_MAX + 16)

static void on_manifest(void *arg, int status, const struct buf *out, const struct err *e);

static int inspect(struct registry *r, const char *digest, struct err *e)
{
	char image[IMAGE_TEXT];
	const char *args[] = { "inspect", "--raw", image, NULL };
	const struct skopeo_plan plan = { .conf = &r->conf, .args = args, .stdin_fd = -1, .what = r->what };
	struct sandbox *b = work_sandbox_get(r->work);

	if (!b)
		return err_set(e, WHY_REGISTRY_FAILED, -ESRCH, "the sandbox that asks the registry has ended");
	image_text(r, digest, image, sizeof(image));
	return skopeo_run(b, &r->who, &plan, on_manifest, r, &r->inspect, e);
}

/* Compares the registry's manifest with its digest, if that is known. */
static int check_digest(struct registry *r, const struct buf *out, struct err *e)
{
	const char *expected = r->found.digest[0] ? r->manifest.chosen.digest :
			       r->name.digest[0]  ? r->name.digest :
						    NULL;
	char digest[OCI_DIGEST_SIZE];

	oci_digest_of(buf_str(out), out->len, digest);
	if (expected && strcmp(expected, digest))
		return err_set(e, WHY_IMAGE_INVALID, -EPROTO,
			       "%.100s: the registry's manifest has digest %.20s…, not %.20s…", r->what, digest,
			       expected);
	if (!r->found.digest[0])
		memcpy(r->found.digest, digest, sizeof(digest));
	memcpy(r->found.image_digest, digest, sizeof(digest));
	return 0;
}

static void on_manifest(void *arg, int status, const struct buf *out, const struct err *e)
{
	struct registry *r = arg;
	const bool second = r->found.digest[0];
	struct err why = { 0 };

	if (status < 0)
		why = *e;
	else
		status = check_digest(r, out, &why);
	if (status == 0 && !r->digest_only) {
		status = oci_manifest_parse(buf_str(out), out->len, NULL, &r->manifest, &why);
		if (status < 0)
			err_wrap(&why, status, "%.60s", r->what);
	}
	skopeo_free(TAKE_PTR(r->inspect));
	if (status == 0 && !r->digest_only && r->manifest.kind == OCI_INDEX) {
		if (second)
			status = err_set(&why, WHY_IMAGE_INVALID, -EPROTO, "%.100s: an index that leads to an index",
					 r->what);
		else if ((status = inspect(r, r->manifest.chosen.digest, &why)) == 0)
			return;
	}
	r->found.manifest = r->digest_only ? NULL : &r->manifest;
	answer(r, status, &why);
}

static void on_work(void *arg, struct sandbox *b, const struct err *e)
{
	struct registry *r = arg;
	struct err why = { 0 };
	int status;

	if (b) {
		status = inspect(r, r->name.digest[0] ? r->name.digest : NULL, &why);
	} else {
		why = *e;
		err_wrap(&why, 0, "the sandbox that asks the registry");
		status = -EIO;
	}
	if (status < 0)
		answer(r, status, &why);
}

/*
 * Uses the administrator's set `images`, if there is one; otherwise the public internet, and allowed private addresses.
 */
static int request_make(const struct service *s, struct sandbox_request **ret, struct err *e)
{
	const char *rule[EGRESS_RULES_MAX];
	const bool set = net_conf_set(s->o.net, IMAGE_SET, rule) >= 0;
	AUTO(json_decref)
	json_t *body = json_pack("{s:s, s:s, s:i, s:i, s:o}", "memory", "512M", "disk", "64M", "cpus", 2, "pids", 256,
				 "network", set ? json_pack("{s:[s]}", "allow", "@" IMAGE_SET) : json_string("open"));

	if (!body)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory to ask a registry");
	if (!set && s->o.net->closed) {
		err_set(e, WHY_HOST_FORBIDS, -EPERM,
			"images cannot be pulled: the configuration allows no network for that");
		err_remedy(e,
			   "an administrator can add the registries with `network_set = " IMAGE_SET ": REGISTRY, …`");
		return -EPERM;
	}
	return sandbox_request_parse(&s->o, body, true, ret, e);
}

int registry_find(struct service *s, const struct who *who, const struct registry_plan *plan, registry_fn *fn,
		  void *arg, struct registry **ret, struct err *e)
{
	AUTO(sandbox_request_free) struct sandbox_request *request = NULL;
	struct registry *r;
	int status = request_make(s, &request, e);

	if (status < 0)
		return status;
	r = calloc(1, sizeof(*r));
	if (!r)
		abort();
	*r = (struct registry){
		.s = s, .who = *who, .name = *plan->name, .digest_only = plan->digest_only, .fn = fn, .arg = arg
	};
	oci_name_short(plan->name, r->what);
	status = registry_conf_make(&s->o, plan->name, plan->login, &r->conf, e);
	if (status < 0) {
		free(r);
		return status;
	}
	r->work = work_sandbox_make(s, who, TAKE_PTR(request), on_work, r);
	*ret = r;
	return 0;
}

static int start_proxy(struct registry *r, struct err *e)
{
	struct sandbox *b = work_sandbox_get(r->work);
	char image[IMAGE_TEXT];

	if (!b)
		return err_set(e, WHY_REGISTRY_FAILED, -ESRCH, "the sandbox that asks the registry has ended");
	image_text(r, r->found.image_digest, image, sizeof(image));
	return blob_proxy_new(b, &r->who, &r->conf, image, r->what, &r->proxy, e);
}

int registry_fetch(struct registry *r, const struct oci_descriptor *d, int fd, blob_fn *fn, void *arg, struct err *e)
{
	const struct blob_plan plan = { .digest = d->digest, .size = d->size, .fd = fd };
	int status = r->proxy ? 0 : start_proxy(r, e);

	return status < 0 ? status : blob_proxy_fetch(r->proxy, &plan, fn, arg, e);
}

uint64_t registry_bytes(const struct registry *r)
{
	return r->proxy ? blob_proxy_bytes(r->proxy) : 0;
}

static void on_quiet(void *arg)
{
	struct registry *r = arg;

	if (r->done)
		r->done(r->done_arg);
	work_sandbox_free(r->work);
	registry_conf_done(&r->conf);
	free(r);
}

void registry_free(struct registry *r, void (*done)(void *arg), void *arg)
{
	if (!r) {
		if (done)
			done(arg);
		return;
	}
	r->done = done;
	r->done_arg = arg;
	skopeo_free(TAKE_PTR(r->inspect));
	blob_proxy_free(TAKE_PTR(r->proxy), on_quiet, r);
}
