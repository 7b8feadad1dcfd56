/*
 * Images in requests for sandboxes: the image's name becomes layers, and the image's configuration gives defaults. This
 * happens once: a stored sandbox or checkpoint has the layers, whatever the name refers to later.
 */
#include "base/base.h"
#include "service/image/struct.h"
#include "service/struct.h"
#include "service/image/image.h"
#include "service/image/usage.h"
#include "service/sandbox/part.h"

/*
 * Appends the image's variables, except those that the request sets, and those with names that no request may have. Of a name
 * that the image has twice the last one counts.
 */
static int put_env(struct kv *to, const struct oci_list *env, struct err *e)
{
	const uint32_t given = to->n;
	char **more = realloc(to->item, ((size_t)given + env->n + 1) * sizeof(*more));

	if (!more)
		return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
	to->item = more;
	for (unsigned i = 0; i < env->n; i++) {
		const size_t n = strcspn(env->item[i], "=");
		uint32_t k = 0;
		char *item;

		if (!env->item[i][n] || !env_name_ok(env->item[i], n))
			continue;
		while (k < to->n && (strcspn(more[k], "=") != n || strncmp(more[k], env->item[i], n) != 0))
			k++;
		if (k < given)
			continue;
		if (k >= ENV_MAX)
			return err_set(e, WHY_IMAGE_INVALID, -E2BIG, "the image sets more than %u variables", ENV_MAX);
		item = strdup(env->item[i]);
		if (!item)
			return err_set(e, ERR_EXHAUSTED, -ENOMEM, "no memory for a sandbox");
		if (k < to->n)
			free(more[k]);
		else
			to->n++;
		more[k] = item;
	}
	return 0;
}

static int put_user(struct sandbox_request *w, const struct image *i, struct err *e)
{
	int r;

	if (!i->user[0]) {
		const char *user = i->config.user ? i->config.user : "";

		err_set(e, WHY_USER_UNKNOWN, -ENOENT,
			strspn(user, "0123456789:") == strlen(user) ?
				"the user '%.60s' of image '%.100s' is above 65535, the highest in a sandbox" :
				"the user '%.60s' of image '%.100s' is not in its /etc/passwd",
			user, i->name);
		err_remedy(e, "say which user: `user` of the request (--user)");
		return -ENOENT;
	}
	r = user_parse_ids(!strcmp(i->user, "0:0") ? "root" : i->user, &w->user, e);
	if (r == 0) {
		w->spec->uid = w->user.uid;
		w->spec->gid = w->user.gid;
	}
	return r;
}

static int put_workdir(struct sandbox_request *w, const struct image *i, struct err *e)
{
	const char *dir = i->config.workdir ? i->config.workdir : "/";

	if (strlen(dir) >= sizeof(w->spec->workdir))
		return err_set(e, WHY_IMAGE_INVALID, -ENAMETOOLONG, "the image's working directory is too long");
	snprintf(w->spec->workdir, sizeof(w->spec->workdir), "%s%s", *dir == '/' ? "" : "/", dir);
	return 0;
}

int image_resolve(struct service *s, const struct tenant *t, struct sandbox_request *w, struct err *e)
{
	const struct image_chain *c;
	const struct image *i;
	char shorter[OCI_NAME_MAX];
	struct oci_name n;
	int r;

	if (!w->image[0] || w->spec->layers || w->image_kept)
		return 0;
	i = image_find(s, t, w->image, e);
	/* It may be the name of a folder, which the warden searches. */
	if (!i)
		return strcmp(w->spec->image, SPEC_SCRATCH) ? 0 : -ENOENT;
	r = put_env(&w->env, &i->config.env, e);
	if (r == 0 && !w->user_given)
		r = put_user(w, i, e);
	if (r == 0 && !w->workdir_given)
		r = put_workdir(w, i, e);
	if (r < 0)
		return r;
	c = image_chain_find(s, i->chain);
	snprintf(w->spec->image, sizeof(w->spec->image), "%s", SPEC_SCRATCH);
	w->spec->layers = w->image_layers = c ? c->layers : 0;
	if (c)
		memcpy(w->spec->layer, c->layer, sizeof(w->spec->layer));
	/* The full name with a tag, which is never taken for a folder. */
	if (oci_name_parse(i->name, &n, NULL) == 0) {
		oci_name_short(&n, shorter);
		if (strlen(shorter) < sizeof(w->image))
			memcpy(w->image, shorter, strlen(shorter) + 1);
	}
	return 0;
}

/* While the sandbox is there, its image's layers count, also when the image was removed. */
static void hold(struct sandbox *b)
{
	image_hold(b->service, b->tenant, b->request->spec, b->request->image_layers, &b->image_held);
}

static void on_begun(struct sandbox *b, const struct sandbox_plan *p, struct sandbox_spec *spec)
{
	(void)p;
	(void)spec;
	hold(b);
}

static void on_left(struct sandbox *b)
{
	image_hold(b->service, b->tenant, b->request->spec, 0, &b->image_held);
}

const struct sandbox_part image_part = {
	.name = "image",
	.check = image_resolve,
	.begun = on_begun,
	.loaded = hold,
	.left = on_left,
};
